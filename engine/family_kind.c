/* family_kind.c -- see family_kind.h.
 * Always true: each fast function decides as the slow one of its call does, so a table may name either. */
#include "engine/family_kind.h"

#include "engine/ask/strict.h"
#include "engine/base/hash_aes.h"
#include "engine/core/family.h"
#include "engine/count/api.h"
#include "engine/count/distinct.h"
#include "engine/fast/fast.h"
#include "engine/limit/counted.h"
#include "engine/limit/gcra.h"
#include "engine/limit/lease.h"
#include "engine/limit/no_limit.h"
#include "engine/limit/refund.h"
#include "engine/limit/share.h"
#include "engine/limit/sliding.h"
#include "engine/reserve/hold.h"

/* ---- the functions ---- */

/* Which limits a counter of this process decides, if they do not slide. */
enum counting { HERE, SHARED, GAUGE, COUNTINGS }; /* GAUGE is with Redis, and not shared */

/* A kind of limit that such a counter decides (decision.h). */
#define COUNTED(function, complete, together) \
    { \
        .acquire = (function), .by_counter = (complete), .all = (together), .is_counted = true, \
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

#define FAST(hash, synced, complete, together) \
    { \
        twi_hot_add_##hash##synced, twi_hot_group_##hash##synced, twi_hot_distinct_##hash##synced, \
            COUNTED(twi_hot_acquire_##hash##synced, complete, together) \
    }
#define FAST_ROW(hash) \
    { \
        [HERE] = FAST(hash, , twi_counted_acquire, twi_hot_all_##hash), \
        [SHARED] = FAST(hash, _synced, twi_share_acquire, NULL), \
        [GAUGE] = FAST(hash, _synced, twi_counted_acquire, NULL) \
    }
static const struct calls portable[COUNTINGS] = FAST_ROW(any);
static const struct shapes portable_shapes = {.gcra = PACED(twi_hot_gcra_any),
                                              .sliding = COUNTED(twi_hot_sliding_any, twi_sliding_acquire, NULL)};
#if TWI_WITH_AES
static const struct calls by_aes[COUNTINGS] = FAST_ROW(aes);
static const struct shapes shapes_by_aes = {.gcra = PACED(twi_hot_gcra_aes),
                                            .sliding = COUNTED(twi_hot_sliding_aes, twi_sliding_acquire, NULL)};
#endif

/* For families that the fast functions do not handle. Their keys have separate lives, or every section has a fence. */
#define SLOW(complete) \
    { twi_add_slow, NULL, twi_distinct_add_slow, COUNTED(complete, complete, NULL) }
static const struct calls slow[COUNTINGS] = {
    [HERE] = SLOW(twi_counted_acquire), [SHARED] = SLOW(twi_share_acquire), [GAUGE] = SLOW(twi_counted_acquire)};
static const struct shapes slow_shapes = {.gcra = PACED(NULL),
                                          .sliding = COUNTED(twi_sliding_acquire, twi_sliding_acquire, NULL)};

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
    kind->evicts_idle = options->on_full == TW_ON_FULL_EVICT_IDLE;
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
