/* family_open.c -- opening, changing and closing families. These calls are rare and hold the engine's lock; no call
 * that counts takes it.
 * Always true: a listed family has checked options, and no other open family's template can produce the same names. */
#include "engine/family_open.h"

#include "engine/ask/strict.h"
#include "engine/base/hash_aes.h"
#include "engine/base/threads.h"
#include "engine/core/agenda.h"
#include "engine/core/family.h"
#include "engine/core/host.h"
#include "engine/core/operation.h"
#include "engine/core/options.h"
#include "engine/core/roster.h"
#include "engine/core/window_map.h"
#include "engine/count/api.h"
#include "engine/count/distinct.h"
#include "engine/fast/fast.h"
#include "engine/limit/acquire.h"
#include "engine/limit/counted.h"
#include "engine/limit/gcra.h"
#include "engine/limit/lease.h"
#include "engine/limit/limit_stats.h"
#include "engine/limit/share.h"
#include "engine/limit/sliding.h"
#include "engine/reserve/hold.h"
#include "engine/reserve/reserve_local.h"
#include "engine/table/index.h"
#include "engine/turn/closing.h"
#include "engine/turn/idle_eviction.h"

#include <stdlib.h>
#include <string.h>

/* ---- family kind ----
 * 
 * Always true: each fast function decides as the slow one of its call does, so a table may name either. */

/* ---- the functions ---- */

/* Which limits a counter of this process decides, if they do not slide. */
enum counting { HERE, SHARED, GAUGE, COUNTINGS }; /* GAUGE is with Redis, and not shared */

/* A kind of limit that such a counter decides (decision.h). */
#define COUNTED(function, complete, together, find) \
    { \
        .acquire = (function), .by_counter = (complete), .all = (together), .cell = (find), .is_counted = true, \
        .refund = twi_refund_count, .undo = twi_undo_count \
    }

/* GCRA, with a quick way or without one. */
#define PACED(way) \
    { .acquire = twi_gcra_acquire, .quick = (way), .refund = twi_gcra_refund, .undo = twi_gcra_undo }

struct calls {
    twi_hot_add *add;
    twi_hot_group *group;
    twi_hot_distinct *distinct;
    struct twi_limit_kind limit;
};

/* The limits of families without Redis that are not of one window. */
struct shapes {
    struct twi_limit_kind gcra;
    struct twi_limit_kind sliding; /* without sub-windows, in windows of one length */
};

#define FAST(hash, synced, complete, together, find) \
    { \
        twi_hot_add_##hash##synced, twi_hot_group_##hash##synced, twi_hot_distinct_##hash##synced, \
            COUNTED(twi_hot_acquire_##hash##synced, complete, together, find) \
    }
#define FAST_ROW(hash) \
    { \
        [HERE] = FAST(hash, , twi_counted_acquire, twi_hot_all_##hash, twi_hot_cell_##hash), \
        [SHARED] = FAST(hash, _synced, twi_share_acquire, NULL, NULL), \
        [GAUGE] = FAST(hash, _synced, twi_counted_acquire, NULL, NULL) \
    }
static const struct calls portable[COUNTINGS] = FAST_ROW(any);
static const struct shapes portable_shapes = {.gcra = PACED(twi_hot_gcra_any),
                                              .sliding = COUNTED(twi_hot_sliding_any, twi_sliding_acquire, NULL, NULL)};
#if TWI_WITH_AES
static const struct calls by_aes[COUNTINGS] = FAST_ROW(aes);
static const struct shapes shapes_by_aes = {.gcra = PACED(twi_hot_gcra_aes),
                                            .sliding = COUNTED(twi_hot_sliding_aes, twi_sliding_acquire, NULL, NULL)};
#endif

/* For families that the fast functions do not handle. Their keys have separate lives, or every section has a fence. */
#define SLOW(complete) \
    { twi_add_slow, NULL, twi_distinct_add_slow, COUNTED(complete, complete, NULL, NULL) }
static const struct calls slow[COUNTINGS] = {
    [HERE] = SLOW(twi_counted_acquire), [SHARED] = SLOW(twi_share_acquire), [GAUGE] = SLOW(twi_counted_acquire)};
static const struct shapes slow_shapes = {.gcra = PACED(NULL),
                                          .sliding = COUNTED(twi_sliding_acquire, twi_sliding_acquire, NULL, NULL)};

static bool is_slow(const struct tw_family *family) {
    const struct twi_family_kind *kind = &family->kind;
    return kind->from_first || kind->evicts_idle || !twi_section_may_be_short();
}

static const struct calls *calls_of(const struct tw_family *family) {
    twi_check(!family->kind.shares || family->kind.synced);
    const struct twi_family_kind *kind = &family->kind;
    enum counting counting = kind->shares ? SHARED : kind->synced ? GAUGE : HERE;
    if (is_slow(family)) return &slow[counting];
#if TWI_WITH_AES
    if (family->engine->hashing.fn == twi_hash_aes()) return &by_aes[counting];
#endif
    return &portable[counting];
}

static const struct shapes *shapes_of(const struct tw_family *family) {
    if (is_slow(family)) return &slow_shapes;
#if TWI_WITH_AES
    if (family->engine->hashing.fn == twi_hash_aes()) return &shapes_by_aes;
#endif
    return &portable_shapes;
}

/* `counted` is true if a counter of this process decides. */
static const struct twi_limit_kind *limit_of(const struct tw_family *family, const struct twi_limit_kind *counted) {
    const struct twi_family_kind *kind = &family->kind;
    if (kind->is_distinct) return &twi_limit_none;
    if (kind->is_hard && kind->synced) return &twi_limit_leased;
    if (kind->is_strict && kind->synced) return &twi_limit_strict;
    if (kind->is_gcra) return family->engine->life.has_redis ? &twi_limit_strict_gcra : &shapes_of(family)->gcra;
    if (!kind->slides) return counted;
    /* months differ in length */
    bool is_plain =
        !kind->synced && kind->sub_windows == 1 && kind->has_starts && family->rule.window != TW_WINDOW_MONTH;
    return is_plain ? &shapes_of(family)->sliding : &slow_shapes.sliding;
}

static void choose_functions(struct tw_family *family) {
    struct twi_family_kind *kind = &family->kind;
    const struct calls *calls = calls_of(family);
    const struct calls *counts = kind->keeps_no_counts ? &slow[HERE] : calls; /* the slow call refuses */
    kind->hot_add = counts->add;
    kind->hot_group = counts->group;
    kind->hot_distinct = kind->is_distinct ? calls->distinct : twi_distinct_add_slow; /* which refuses */
    kind->limit = limit_of(family, &calls->limit);
}

/* ---- the kind ---- */

/* Sub-windows have whole milliseconds. If they do not divide the length, fewer may be enough. */
static uint8_t windows_of_stretch(const struct twi_window_rule *rule, const tw_family_options *options) {
    if (options->sub_windows <= 1) return 1;
    return (uint8_t)((options->window_ms + rule->window_ms - 1) / rule->window_ms);
}

void twi_family_kind_choose(struct tw_family *family, const tw_family_options *options) {
    twi_check(options->redis_shape <= TW_REDIS_ZSET && options->sub_windows <= TW_SUB_WINDOWS_MAX);
    static const uint16_t item_flags[] = {0, TWI_ITEM_HASH, TWI_ITEM_ZSET};
    struct twi_family_kind *kind = &family->kind;
    bool has_redis = family->engine->life.has_redis;
    kind->is_gcra = options->limit_shape == TW_SHAPE_GCRA;
    /* Times cannot be added. For GCRA, Redis keeps a separate value for each key (strict_gcra.c), and local values are
     * not sent. */
    kind->synced = has_redis && !kind->is_gcra;
    kind->from_first = options->window == TW_WINDOW_FROM_FIRST;
    kind->evicts_idle = options->on_full == TW_ON_FULL_EVICT_IDLE && options->window == TW_WINDOW_FOREVER;
    kind->takes_guests = options->on_full == TW_ON_FULL_EVICT_IDLE && !kind->evicts_idle;
    kind->has_starts = twi_calendar_has_starts(&family->rule);
    kind->is_hard = options->limit_mode == TW_LIMIT_HARD;
    kind->is_strict = options->limit_mode == TW_LIMIT_STRICT;
    kind->gauge = options->kind == TW_KIND_GAUGE && has_redis;
    kind->closes_once = kind->synced && options->closed_by == TW_CLOSED_BY_ONE;
    kind->slides = options->limit_shape == TW_SHAPE_SLIDING;
    kind->sub_windows = windows_of_stretch(&family->rule, options);
    kind->is_distinct = options->kind == TW_KIND_DISTINCT;
    kind->keeps_no_counts = kind->is_gcra || kind->is_distinct;
    kind->item_flags = item_flags[options->redis_shape];
    kind->has_fields = options->redis_shape == TW_REDIS_HASH;
    kind->checks_keys = kind->has_fields || (kind->synced && family->template.guard_reserved);
    kind->shares = kind->synced && !kind->is_hard && options->kind == TW_KIND_COUNTER;
    kind->takes_holds = twi_hold_refusal(family, options) == NULL;
    choose_functions(family);
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Returns the name of an option that tw_family_set() may not change. */
static const char *different_identity(const tw_family_options *a, const tw_family_options *b) {
#define TEXT(field) \
    if (!same_text(a->field, b->field)) return #field;
#define IDENTITY(field) \
    if (a->field != b->field) return #field;
    TWI_FAMILY_IDENTITY(TEXT, IDENTITY)
#undef TEXT
#undef IDENTITY
    return (a->on_full == TW_ON_FULL_EVICT_IDLE) != (b->on_full == TW_ON_FULL_EVICT_IDLE) ? "on_full" : NULL;
}

static const char *different_policy(const tw_family_options *a, const tw_family_options *b) {
#define POLICY(field, how) \
    if (a->field != b->field) return #field;
    TWI_FAMILY_POLICIES(POLICY)
#undef POLICY
    return NULL;
}

/* By the old times, windows may have been sealed, reported and dropped already. They must not begin again. */
static void note_what_is_over(struct tw_family *family) {
    int64_t now_ms = twi_clock_now_ms(&family->engine->clock), open_ms = twi_family_open_for_ms(family);
    int64_t more_ms = twi_time_add(open_ms, twi_load_relaxed(&family->policy.history_ms));
    (void)twi_family_raise(&family->marks.over_ms, twi_time_before(now_ms, open_ms));
    (void)twi_family_raise(&family->marks.gone_ms, twi_time_before(now_ms, more_ms));
}

/* The number of keys for which the index of each window of a share is laid out. It is the number that windows of one
 * size have when they fill the share. */
static uint64_t keys_laid(struct tw_family *family, const tw_family_options *options) {
    twi_check(options->sub_windows != 0);
    bool is_one = family->rule.window == TW_WINDOW_FOREVER && !family->kind.evicts_idle;
    int64_t windows = is_one ? 1 : 1 + family->kind.sub_windows;
    if (family->kind.takes_guests && options->memory_share != 0)
        return twi_share_keys((uint64_t)twi_quota_beside_guests(&family->engine->arena, &family->quota), 1, false);
    if (family->kind.has_starts) windows += options->lateness_ms / twi_calendar_longest_ms(&family->rule);
    if (options->memory_share == 0 || windows > UINT16_MAX) return 0;
    return twi_share_keys(options->memory_share, (uint32_t)windows, family->kind.synced);
}

#define GUEST_WINDOWS_MAX 64 /* with more windows of history, some of them may have no guests */

/* The memory of a family with guests is for the open window, the next one, and the history. */
static uint8_t windows_with_guests(const struct tw_family *family, const tw_family_options *options) {
    if (!family->kind.takes_guests) return 0;
    int64_t history = options->history_ms / twi_calendar_longest_ms(&family->rule);
    return (uint8_t)(2 + (history < GUEST_WINDOWS_MAX ? history : GUEST_WINDOWS_MAX));
}

#define STORE_STORED(field) twi_store_relaxed(&family->policy.field, options->field);
#define STORE_OTHER(field)

static void apply_policies(struct tw_family *family, const tw_family_options *options) {
    twi_check(family->kind.limit != NULL && family->kind.hot_add != NULL);
    /* F1, pairs with F2 in twi_family_open_for_ms(): a thread that sees the longer time sees the marks of
     * note_what_is_over(). */
    twi_store_release(&family->policy.lateness_ms, options->lateness_ms);
    twi_store_release(&family->policy.history_ms, options->history_ms); /* F1 */
#define POLICY(field, how) STORE_##how(field)
    TWI_FAMILY_POLICIES(POLICY)
#undef POLICY
    twi_store_relaxed(&family->policy.busy_is_outage, options->on_busy == TW_BUSY_AS_OUTAGE);
    const struct twi_limit_kind *limit = family->kind.limit;
    twi_hot_acquire *quick = limit->is_counted ? limit->acquire : limit->quick;
    if (options->shadow || quick == NULL) quick = limit->start != NULL ? limit->acquire : twi_shadow_acquire;
    twi_store_relaxed(&family->kind.hot_acquire, quick);
    twi_store_relaxed(&family->quota.keys_max,
                      family->kind.evicts_idle ? twi_idle_eviction_share(options->keys_max) : options->keys_max);
    twi_store_relaxed(&family->quota.overflows, options->on_full != TW_ON_FULL_REJECT && !family->kind.keeps_no_counts);
    twi_store_relaxed(&family->quota.bytes_max, (int64_t)options->memory_share);
    twi_quota_divide(&family->engine->arena, &family->quota, windows_with_guests(family, options));
    twi_store_relaxed(&family->quota.keys_laid, keys_laid(family, options));
}

#define ALLOCATION_BYTES 16 /* the overhead of an allocator, counted for each piece of memory */

static size_t text_bytes(const char *text) {
    return text != NULL ? strlen(text) + 1 + ALLOCATION_BYTES : 0;
}

void twi_family_begin(struct tw_family *family) {
    twi_check(family->engine != NULL);
    twi_store_relaxed(&family->current, &twi_generation_none);
    twi_store_relaxed(&family->map, 0);
    twi_store_relaxed(&family->arrivals, 0);
    twi_store_relaxed(&family->started, 0);
    twi_store_relaxed(&family->has_slots, false);
    twi_store_relaxed(&family->marks.had_counts, false);
    twi_store_relaxed(&family->slots, NULL);
    twi_store_relaxed(&family->quota.bytes, 0);
    family->requests.void_after = 0;
    family->entry.holds = 0;
    twi_closing_free(family);
    family->turn = (struct twi_family_turn){
        .opened_ms = family->turn.opened_ms,
        .is_late_logged = family->turn.is_late_logged,
        .due_ms = INT64_MAX,
        .look_mono_ms = INT64_MAX,
        .history.mono_ms = INT64_MAX,
        .prepared.start_ms = INT64_MIN,
    };
    twi_agenda_begin_family(family);
    twi_limit_stats_clear(family);
}

/* Copies the strings. Returns false if there is no memory. */
static bool copy_texts(struct tw_family *family) {
    tw_family_options *own = &family->options;
    bool copied = true;
    own->error_text = NULL;
#define TEXT(field) \
    if (own->field != NULL) copied = (own->field = strdup(own->field)) != NULL && copied;
#define IDENTITY(field)
    TWI_FAMILY_IDENTITY(TEXT, IDENTITY)
#undef TEXT
#undef IDENTITY
    if (own->fields == NULL || !copied) return copied;
    family->fields = malloc(sizeof *family->fields);
    return family->fields != NULL && twi_fields_read(own->fields, own->key_separator, family->fields) == NULL;
}

static _Atomic uint64_t families_made;

static struct tw_family *make_family(tw_engine *engine, const tw_family_options *options,
                                     const struct twi_key_template *template) {
    twi_check(options->name != NULL);
    size_t key_template_bytes = offsetof(struct twi_key_template, frame) + template->head_size + template->tail_size;
    size_t bytes = offsetof(struct tw_family, template) + key_template_bytes;
    struct tw_family *family = twi_arena_block(bytes, engine->life.is_shared);
    if (family == NULL) return NULL;
    family->entry.block_bytes = bytes;
    memcpy((unsigned char *)family + offsetof(struct tw_family, template), template, key_template_bytes);
    family->entry.bytes =
        bytes + text_bytes(options->name) + text_bytes(options->redis_key) + text_bytes(options->fields);
    if (options->fields != NULL) family->entry.bytes += sizeof *family->fields + ALLOCATION_BYTES;
    family->entry.opened = 1;
    family->serial = twi_add_relaxed(&families_made, 1) + 1;
    family->engine = engine;
    family->options = *options;
    family->rule = twi_options_rule(options);
    if (options->on_full == TW_ON_FULL_EVICT_IDLE && options->window == TW_WINDOW_FOREVER)
        family->rule.window = TWI_WINDOW_EVICTION;
    twi_family_kind_choose(family, options);
    if (family->kind.is_hard && family->kind.synced)
        twi_store_relaxed(&engine->leases.exist, true); /* the engine takes part in leases from now on */
    twi_store_relaxed(&family->marks.over_ms, INT64_MIN);
    twi_store_relaxed(&family->marks.gone_ms, INT64_MIN);
    twi_store_relaxed(&family->marks.watermark_ms, INT64_MIN);
    family->turn.opened_ms = twi_clock_read(&engine->clock);
    twi_family_begin(family);
    apply_policies(family, options);
    if (copy_texts(family)) return family;
    twi_family_free(family);
    return NULL;
}

/* Refuses a template that can produce the same names as another open family's, because both would count in one Redis
 * key. */
static tw_status check_collisions(tw_engine *engine, const tw_family_options *options,
                                  const struct twi_key_template *template) {
    if (!engine->life.has_redis) return TW_OK;
    for (struct tw_family *each = twi_load_acquire(&engine->roster.first); each != NULL;
         each = twi_load_acquire(&each->entry.next))
        if (!twi_load_relaxed(&each->requests.close_requested) && twi_key_templates_collide(&each->template, template))
            return twi_options_refuse(options->error_text, options->error_size,
                                      "redis_key: some keys would have the same name in Redis as some of family \"%s\"",
                                      each->options.name);
    return TW_OK;
}

/* If keys lie in several stores, the names of a window's keys are in the stores of their counters
 * (turn/closing_election.h). */
static tw_status check_closing(const tw_engine *engine, const tw_family_options *options,
                               const struct twi_key_template *template) {
    bool by_slot = engine->life.has_redis && engine->peers.stores != NULL;
    if (!by_slot || options->closed_by != TW_CLOSED_BY_ONE || template->tags != NULL) return TW_OK;
    return twi_options_refuse(options->error_text, options->error_size,
                              "closed_by: in a Redis Cluster, TW_CLOSED_BY_ONE needs a redis_key with {%%t}");
}

/* One of that name that is being closed, with the share that was set aside for it. Returns NULL if there is none. */
static struct tw_family *find_closing(tw_engine *engine, const char *name) {
    twi_check(name != NULL);
    for (struct tw_family *each = twi_load_acquire(&engine->roster.first); each != NULL;
         each = twi_load_acquire(&each->entry.next))
        if (twi_load_relaxed(&each->requests.close_requested) && twi_load_relaxed(&each->quota.parts) != NULL &&
            strcmp(each->options.name, name) == 0)
            return each;
    return NULL;
}

static tw_status set_aside(struct tw_family *family, const tw_family_options *options) {
    twi_check(family->engine != NULL);
    struct twi_arena *arena = &family->engine->arena;
    uint64_t share = options->memory_share, left = twi_parts_bytes_left(arena);
    if (share == 0 || twi_parts_extend(arena, &family->quota.parts, share)) return TW_OK;
    if (share - twi_parts_bytes(&family->quota.parts) > left)
        return twi_options_refuse(options->error_text, options->error_size,
                                  "memory_share: %llu bytes cannot be set aside: families may have %llu more of the "
                                  "engine's %llu",
                                  (unsigned long long)share, (unsigned long long)left,
                                  (unsigned long long)arena->bytes_max);
    return twi_options_refuse(options->error_text, options->error_size,
                              "memory_share: %llu bytes cannot be set aside: other families use them already; open "
                              "families with a share first",
                              (unsigned long long)share);
}

/* Sets its share aside and lists it. A family that is opened again takes over the share of its predecessor, with the
 * windows that are still in it. */
static tw_status enlist(struct tw_family *family, const tw_family_options *options) {
    twi_check(family->entry.opened == 1);
    tw_engine *engine = family->engine;
    struct tw_family *before = options->memory_share != 0 ? find_closing(engine, options->name) : NULL;
    if (before != NULL) {
        twi_store_release(&family->quota.parts, twi_load_relaxed(&before->quota.parts)); /* A8 */
        twi_store_relaxed(&before->quota.parts, NULL);
    }
    tw_status status = set_aside(family, options);
    if (status == TW_OK && !twi_roster_add(engine, family))
        status = twi_refuse(TW_ERR_MEMORY, "memory_bytes_max: there is no room for one more family");
    if (status == TW_OK) return TW_OK;
    if (before != NULL) {
        twi_store_release(&before->quota.parts, twi_load_relaxed(&family->quota.parts)); /* A8 */
        twi_store_relaxed(&family->quota.parts, NULL);
    }
    twi_parts_give(&engine->arena, &family->quota.parts);
    twi_family_free(family);
    return status;
}

static tw_status open_locked(tw_engine *engine, const tw_family_options *options, tw_family **out) {
    struct tw_family *family = twi_roster_find(engine, options->name);
    if (family != NULL) {
        const char *field = different_identity(&family->options, options);
        if (field == NULL) field = different_policy(&family->options, options);
        if (field != NULL)
            return twi_options_refuse(options->error_text, options->error_size,
                                      "%s: family \"%s\" is open already with another value", field, options->name);
        family->entry.opened++;
        *out = family;
        return TW_OK;
    }
    struct twi_key_template template;
    struct twi_window_rule rule = twi_options_rule(options);
    const struct twi_redis_shape shape = {(uint8_t)options->redis_shape, options->key_separator};
    tw_status status = twi_key_template_parse(&template, options->redis_key, options->name, twi_port_prefix(engine),
                                              (uint32_t)options->redis_tags, engine->here->remote.shorts, &rule, &shape,
                                              options->error_text, options->error_size);
    if (status == TW_OK) status = check_collisions(engine, options, &template);
    if (status == TW_OK) status = check_closing(engine, options, &template);
    if (status != TW_OK) return status;
    family = make_family(engine, options, &template);
    if (family == NULL) return twi_refuse(TW_ERR_MEMORY, NULL);
    status = enlist(family, options);
    if (status == TW_OK) *out = family;
    return status;
}

/* A caller that announces many keys waits for their memory here, so that no later caller has to. The first key of a
 * window takes the memory for few keys, so a family that is never used takes none. */
static void open_first_window(struct tw_family *family) {
    twi_check(family->entry.opened != 0);
    uint64_t expected = twi_load_relaxed(&family->policy.keys_expected);
    struct twi_thread *self = twi_thread_here();
    if (twi_index_is_one_leaf(expected) || family->kind.from_first || family->kind.evicts_idle || self == NULL) return;
    twi_section_enter(self);
    int64_t now_ms = twi_clock_read(&family->engine->clock);
    (void)twi_window_open(family, twi_calendar_span(&family->rule, now_ms), expected);
    twi_section_leave(self);
}

static tw_status check(tw_engine *engine, const tw_family_options *options, tw_family_options *checked) {
    struct twi_options_context context = {engine->life.has_redis, engine->arena.bytes_max, engine->options.merge,
                                          engine->life.is_shared};
    return twi_family_options_check(options, checked, &context);
}

static tw_status open_family(tw_engine *engine, const tw_family_options *options, tw_family **family) {
    if (twi_thread_here() == NULL)
        return twi_refuse_for(twi_thread_why()); /* also renews the engine in a forked child */
    if (twi_load_relaxed(&engine->life.broken)) return twi_refuse(TW_ERR_FORKED, NULL);
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    tw_family_options checked;
    tw_status status = twi_guard_families(engine);
    if (status == TW_OK) status = check(engine, options, &checked);
    if (status != TW_OK) return status;
    twi_lock(&engine->roster.lock);
    status = open_locked(engine, &checked, family);
    bool is_new = status == TW_OK && (*family)->entry.opened == 1;
    twi_unlock(&engine->roster.lock);
    if (is_new) open_first_window(*family);
    return status;
}

/* Root may do it after another user has joined an older engine: a reload of a server. */
tw_status tw_family_open(tw_engine *engine, const tw_family_options *options, tw_family **family) {
    TWI_NEED(engine);
    TWI_NEED(options);
    TWI_NEED(family);
    if (!twi_guard_is_alone(engine)) return twi_guard_families(engine);
    twi_thread_alone_begin(true);
    tw_status status = open_family(engine, options, family);
    twi_thread_alone_end();
    return status;
}

/* Keeps only the policies, because callers read the others without a lock. */
static void keep_policies(tw_family_options *own, const tw_family_options *now) {
#define POLICY(field, how) own->field = now->field;
    TWI_FAMILY_POLICIES(POLICY)
#undef POLICY
}

/* Other processes that share the engine read all policies in its memory. But they have a copy of a hook and its ctx
 * that is theirs, and would not have the memory of a new share. Returns the name of such a field that changes. */
static const char *unseen_change(const struct tw_family *family, const tw_family_options *now) {
    const tw_family_options *own = &family->options;
    if (twi_guard_is_alone(family->engine)) return NULL;
    if (own->on_window_closed != now->on_window_closed) return "on_window_closed";
    if (own->closed_ctx != now->closed_ctx) return "closed_ctx";
    return own->memory_share != now->memory_share ? "memory_share" : NULL;
}

static tw_status refuse_change(const struct tw_family *family, const tw_family_options *now) {
    const char *field = different_identity(&family->options, now);
    if (field != NULL) return twi_options_refuse(now->error_text, now->error_size, "%s: cannot be changed", field);
    field = unseen_change(family, now);
    if (field == NULL) return TW_OK;
    return twi_refuse_with(TW_ERR_MODE,
                           "%s: in a shared engine it is set before the first fork, because other "
                           "processes would not see the change",
                           field);
}

tw_status tw_family_set(tw_family *family, const tw_family_options *options) {
    TWI_NEED(family);
    TWI_NEED(options);
    tw_engine *engine = family->engine;
    if (twi_thread_here() == NULL) return twi_refuse_for(twi_thread_why());
    if (twi_load_acquire(&engine->life.stopped)) return twi_refuse(TW_ERR_CLOSED, NULL);
    tw_family_options checked;
    tw_status status = check(engine, options, &checked);
    if (status != TW_OK) return status;
    uint64_t hook_call = 0;
    twi_lock(&engine->roster.lock);
    status = refuse_change(family, &checked);
    if (status == TW_OK) status = set_aside(family, &checked);
    if (status == TW_OK) {
        bool keeps_hook = family->options.on_window_closed == checked.on_window_closed &&
                          family->options.closed_ctx == checked.closed_ctx;
        keep_policies(&family->options, &checked);
        if (!keeps_hook) hook_call = twi_host_running_hook(family);
        if (family->kind.has_starts) note_what_is_over(family);
        apply_policies(family, &checked);
        twi_store_release(&family->requests.changed, true);
        twi_agenda_notify(family);
    }
    twi_unlock(&engine->roster.lock);
    twi_host_wait_for_hook(family, hook_call); /* the host may free closed_ctx now */
    return status;
}

tw_status tw_family_close(tw_family *family) {
    TWI_NEED(family);
    struct twi_thread *self = twi_thread_here();
    if (self != NULL && self->in_hook)
        return twi_refuse(TW_ERR_MODE, "not from inside a hook: the turn that calls it is using this family");
    tw_engine *engine = family->engine;
    tw_status status = twi_guard_families(engine);
    if (status != TW_OK) return status;
    twi_lock(&engine->roster.lock);
    twi_check(family->entry.opened != 0);
    bool last = --family->entry.opened == 0;
    if (last) {
        twi_roster_forget(engine, family);
        family->requests.close_mono_ms = twi_clock_mono_ms(&engine->clock);
        twi_store_release(&family->requests.close_requested, true); /* the turn does the rest */
        twi_reserve_local_close(family);
        twi_agenda_notify(family);
    }
    twi_unlock(&engine->roster.lock);
    return TW_OK;
}
