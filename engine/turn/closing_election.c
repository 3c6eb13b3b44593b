/* closing_election.c -- see closing_election.h. */
#include "engine/turn/closing_election.h"

#include "engine/base/threads.h"
#include "engine/core/agenda.h"
#include "engine/core/window_map.h"
#include "engine/memory/epoch.h"

#include <stdlib.h>
#include <string.h>

/* ---- closing tags ---- */

#define PAGE 64u /* how many names of one group may wait; with 128 tags, all groups use 32 KiB */
#define NONE UINT32_MAX

bool twi_closing_tags_are_used(const struct tw_family *family) {
    return family->template.tags != NULL && family->engine->peers.stores != NULL;
}

struct twi_closing_tags *twi_closing_tags_create(void) {
    return calloc(1, sizeof(struct twi_closing_tags));
}

static void free_pages(struct twi_closing_tags *tags) {
    free(tags->counts);
    free(tags->lines);
    tags->counts = NULL;
    tags->lines = NULL;
}

void twi_closing_tags_free(struct twi_closing_tags *tags) {
    if (tags == NULL) return;
    free_pages(tags);
    free(tags);
}

/* ---- groups ---- */

static void put(struct twi_closing_groups *groups, uint32_t group) {
    twi_check(group < TWI_KEY_SLOT_TAGS_MAX);
    groups->words[group / 64] |= UINT64_C(1) << (group % 64);
}

static void take(struct twi_closing_groups *groups, uint32_t group) {
    twi_check(group < TWI_KEY_SLOT_TAGS_MAX);
    groups->words[group / 64] &= ~(UINT64_C(1) << (group % 64));
}

/* Returns the first group, or NONE if no group is left. */
static uint32_t first_of(const struct twi_closing_groups *groups) {
    for (uint32_t i = 0; i < TWI_CLOSING_TAGS_WORDS; i++)
        if (groups->words[i] != 0) return i * 64 + (uint32_t)__builtin_ctzll(groups->words[i]);
    return NONE;
}

void twi_closing_tags_note(struct twi_closing_tags *tags, const struct tw_family *family, tw_key member) {
    const char *digits = member.data;
    uint32_t group = 0;
    if (member.size == 0) tags->reads_all = true;
    if (member.size == 0 || member.size > TWI_KEY_SLOT_TAG_DIGITS) return;
    for (size_t i = 0; i < member.size; i++) {
        if (digits[i] < '0' || digits[i] > '9') return;
        group = group * 10 + (uint32_t)(digits[i] - '0');
    }
    if (group < family->template.tag_count) put(&tags->found, group);
}

void twi_closing_tags_do_found(struct twi_closing_tags *tags, const struct tw_family *family) {
    tags->left = tags->found;
    for (uint32_t group = 0; tags->reads_all && group < family->template.tag_count; group++) put(&tags->left, group);
    tags->failing_ms = 0;
}

void twi_closing_tags_found(struct twi_closing_tags *tags) {
    put(&tags->found, tags->group);
}

void twi_closing_tags_do_own(struct twi_closing_tags *tags) {
    tags->left = tags->own;
    tags->failing_ms = 0;
}

bool twi_closing_tags_next(struct twi_closing_tags *tags) {
    tags->group = first_of(&tags->left);
    return tags->group != NONE;
}

void twi_closing_tags_done(struct twi_closing_tags *tags) {
    take(&tags->left, tags->group);
    tags->failing_ms = 0;
}

/* ---- adding names ---- */

void twi_closing_tags_reset(struct twi_closing_tags *tags) {
    free_pages(tags);
    tags->own = tags->left = tags->lost = (struct twi_closing_groups){{0}};
    tags->sent = 0;
    tags->failing_ms = tags->pause_ms = 0;
    tags->relists = false;
}

static bool has_pages(struct twi_closing_tags *tags, const struct tw_family *family) {
    twi_check(family->template.tag_count != 0);
    twi_check((tags->counts == NULL) == (tags->lines == NULL));
    uint32_t count = family->template.tag_count;
    if (tags->counts != NULL) return true;
    tags->counts = calloc(count, sizeof *tags->counts);
    tags->lines = malloc((size_t)count * PAGE * sizeof *tags->lines);
    if (tags->counts != NULL && tags->lines != NULL) return true;
    free_pages(tags);
    return false;
}

struct sort {
    struct twi_closing_tags *tags;
    struct twi_generation *generation;
    uint32_t full; /* a group whose page is full; NONE means that no page is full */
};

static bool sort_name(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct sort *sort = ctx;
    struct twi_closing_tags *tags = sort->tags;
    const struct twi_cold *cold = twi_cell_cold(cell, meta);
    const struct tw_family *family = sort->generation->family;
    if (twi_cell_local(cell, meta) == 0 && twi_load_relaxed(&cold->acked) == 0) return true; /* it was only read */
    uint32_t group = twi_key_template_group(&family->template, tw_bytes(cell->key, meta & TWI_META_SIZE));
    if ((tags->lost.words[group / 64] >> (group % 64) & 1) != 0) return true;
    tags->lines[group * PAGE + tags->counts[group]++] = twi_arena_line(&family->engine->arena, cell);
    put(&tags->own, group);
    if (tags->counts[group] == PAGE) sort->full = group;
    return sort->full == NONE;
}

/* Returns the group whose names are sent next. Its page is full; after all keys were walked, any group may be next. */
static uint32_t pick(const struct twi_closing_tags *tags, const struct tw_family *family, bool is_walked) {
    uint32_t some = NONE;
    for (uint32_t group = 0; group < family->template.tag_count; group++) {
        if (tags->counts[group] == PAGE) return group;
        if (some == NONE && tags->counts[group] != 0) some = group;
    }
    return is_walked ? some : NONE;
}

static void put_names(struct twi_closing_tags *tags, const struct tw_family *family,
                      struct twi_closing_message *message) {
    twi_check(tags->counts != NULL && tags->counts[tags->group] != 0);
    twi_check(message->name_count == 0);
    size_t bytes = 0;
    message->group = tags->group;
    tags->sent = 0;
    for (uint32_t i = 0; i < tags->counts[tags->group]; i++) {
        struct twi_cell *cell = twi_arena_at(&family->engine->arena, tags->lines[tags->group * PAGE + i]);
        size_t size = twi_load_relaxed(&cell->meta) & TWI_META_SIZE;
        if (bytes + size > TWI_CLOSING_NAMES_BYTES_MAX) break;
        message->names[message->name_count++] = tw_bytes(cell->key, size);
        bytes += size;
    }
    tags->sent = message->name_count;
}

bool twi_closing_tags_fill(struct twi_closing_tags *tags, struct twi_generation *generation, struct twi_cursor *cursor,
                           struct twi_closing_message *message) {
    twi_check(twi_closing_tags_are_used(generation->family));
    const struct tw_family *family = generation->family;
    struct sort sort = {tags, generation, NONE};
    if (!has_pages(tags, family)) return false;
    tags->group = pick(tags, family, cursor->done);
    if (tags->group == NONE && !cursor->done) {
        cursor->looks = TWI_WORK_TURN;
        twi_table_walk(&family->engine->arena, generation, cursor, sort_name, &sort);
        tags->group = sort.full != NONE ? sort.full : pick(tags, family, cursor->done);
    }
    if (tags->group == NONE) return false;
    put_names(tags, family, message);
    return true;
}

void twi_closing_tags_added(struct twi_closing_tags *tags) {
    twi_check(tags->sent == 0 || tags->counts == NULL || tags->sent <= tags->counts[tags->group]);
    if (tags->sent == 0 || tags->counts == NULL) return;
    uint32_t *lines = tags->lines + tags->group * PAGE;
    tags->counts[tags->group] = (uint16_t)(tags->counts[tags->group] - tags->sent);
    memmove(lines, lines + tags->sent, tags->counts[tags->group] * sizeof *lines);
    tags->sent = 0;
    tags->failing_ms = 0;
}

void twi_closing_tags_skip(struct twi_closing_tags *tags) {
    if (tags->counts != NULL) tags->counts[tags->group] = 0;
    put(&tags->lost, tags->group);
    tags->sent = 0;
    tags->failing_ms = 0;
}

/* ---- the index ---- */

void twi_closing_tags_confirm(struct twi_closing_tags *tags) {
    free_pages(tags);
    twi_closing_tags_do_own(tags);
}

bool twi_closing_tags_fill_index(struct twi_closing_tags *tags, struct twi_closing_message *message) {
    twi_check(message->name_count == 0);
    struct twi_closing_groups left = tags->left;
    uint32_t group;
    while (message->name_count < TWI_CLOSING_NAMES_MAX && (group = first_of(&left)) != NONE) {
        char *text = tags->texts[message->name_count];
        message->names[message->name_count++] = tw_bytes(text, twi_key_slot_decimal(group, text));
        take(&left, group);
    }
    tags->sent = message->name_count;
    return message->name_count != 0;
}

void twi_closing_tags_confirmed(struct twi_closing_tags *tags) {
    for (; tags->sent != 0; tags->sent--) take(&tags->left, first_of(&tags->left));
    tags->failing_ms = 0;
}

/* ---- closing windows ---- */

#define DUE_MS 3000 /* the engines that have counted in a window need less time than this to close it */
#define HOLD_MS 500 /* counts wait for an announcement for at most this time */

bool twi_closing_has_hook(struct tw_family *family) {
    twi_lock(&family->engine->roster.lock);
    bool has = family->options.on_window_closed != NULL;
    twi_unlock(&family->engine->roster.lock);
    return has;
}

static int64_t due_ms(const struct tw_family *family, int64_t end_ms) {
    twi_check(family->kind.has_starts);
    return twi_time_add(twi_family_takes_until(family, end_ms), DUE_MS);
}

int64_t twi_closing_due_ms(const struct twi_generation *generation) {
    twi_check(generation->family->kind.closes_once);
    return due_ms(generation->family, generation->end_ms);
}

/* ---- names that batches record ---- */

void twi_port_window_names(const struct twi_item *item, struct twi_window_names *names) {
    twi_check((item->flags & TWI_ITEM_NAMED) != 0);
    static const char *const what[TWI_WINDOW_NAMES_KEYS] = {"names", "windows", "closed"};
    const struct twi_generation *generation = item->generation;
    const struct twi_key_template *template = &item->family->template;
    bool by_tag = twi_closing_tags_are_used(item->family);
    uint32_t group = by_tag ? twi_key_template_group(template, twi_port_key(item)) : 0;
    char name[TWI_REDIS_KEY_MAX];
    uint32_t count = by_tag ? 1 : TWI_WINDOW_NAMES_KEYS;
    names->key_count = count;
    for (uint32_t i = 0; i < count; i++) {
        int64_t start_ms = i == 1 ? 0 : generation->start_ms;
        size_t size = by_tag ? twi_key_template_render_group(template, group, start_ms, name)
                             : twi_key_template_render(template, tw_bytes("", 0), start_ms, name);
        names->sizes[i] = twi_key_template_own(template, what[i], name, size, names->keys[i]);
    }
    names->start_ms = generation->start_ms;
    names->due_ms = twi_closing_due_ms(generation);
    names->recorded = generation->turn.closing.names_recorded && !by_tag; /* by tag, and not about this group */
}

/* ---- windows that are announced ---- */

/* Returns true for a window of a family whose list of windows is in another store than its counts. */
static bool is_to_announce(const struct twi_generation *generation) {
    return !generation->turn.closing.is_listed && generation->family->kind.closes_once &&
           twi_closing_tags_are_used(generation->family);
}

/* Returns true if no heartbeat was answered for so long that other engines may assume that this engine is dead, and
 * close windows without it. In this case the engine announces its windows again. */
static bool may_be_forgotten(const tw_engine *engine, const struct twi_family_close_state *closing) {
    int64_t silent_ms = engine->turn.now_ms - closing->word_ms, least_ms = 3 * closing->every_ms;
    return silent_ms > least_ms && silent_ms > engine->here->remote.tuning.closing_life_ms / 2;
}

bool twi_closing_may_collect(tw_engine *engine, struct twi_generation *generation) {
    struct twi_family_close_state *closing = &generation->family->turn.closing;
    int64_t now_ms = engine->turn.mono_ms;
    if (generation->turn.closing.is_listed && may_be_forgotten(engine, closing))
        generation->turn.closing.is_listed = generation->turn.closing.is_held = false;
    if (twi_likely(!is_to_announce(generation)) || closing->left) return true;
    if (!generation->turn.closing.is_held) {
        generation->turn.closing.is_held = closing->announces = true;
        closing->at_ms = closing->at_ms < now_ms ? closing->at_ms : now_ms;
        struct twi_appointment *heartbeat = &generation->family->agenda.special;
        if (heartbeat->at_ms > closing->at_ms) twi_appointment_set(&engine->agenda.closings, heartbeat, closing->at_ms);
        if (closing->held_ms == 0) closing->held_ms = now_ms != 0 ? now_ms : 1;
    }
    return closing->held_ms != 0 && now_ms - closing->held_ms >= HOLD_MS;
}

static void announce(void *ctx, struct twi_generation *generation) {
    struct twi_closing_message *message = ctx;
    if (!is_to_announce(generation) || !generation->turn.closing.is_held) return;
    if (message->announced.count == TWI_CLOSING_LISTED_MAX) return;
    uint32_t i = message->announced.count++;
    message->announced.at[i].start_ms = generation->start_ms;
    message->announced.at[i].due_ms = twi_closing_due_ms(generation);
    message->announced.at[i].expiry_ms = generation->expiry_ms;
}

void twi_closing_announce(struct tw_family *family, struct twi_closing_message *message) {
    message->announced.count = 0;
    if (!message->by_tag) return;
    twi_window_visit(family, announce, message);
    family->turn.closing.announces = message->announced.count == TWI_CLOSING_LISTED_MAX;
}

void twi_closing_announced(struct tw_family *family, const struct twi_closing_message *message) {
    twi_check(message->announced.count <= TWI_CLOSING_LISTED_MAX);
    for (uint32_t i = 0; i < message->announced.count; i++) {
        struct twi_generation *generation = twi_window_find(family, message->announced.at[i].start_ms);
        if (generation != NULL) generation->turn.closing.is_listed = true;
    }
    if (message->announced.count == 0) return;
    family->turn.closing.held_ms = family->turn.closing.announces ? family->engine->turn.mono_ms : 0;
    family->engine->collector.hurried = true; /* the counts that waited are collected */
}

/* ---- windows of other engines ---- */

void twi_port_closing_window(tw_engine *engine, const struct twi_closing_message *message, int64_t start_ms) {
    twi_check(message->family != NULL && message->verb == TWI_CLOSING_SEND_HEARTBEAT);
    struct tw_family *family = message->family;
    struct twi_thread *self = twi_thread_here();
    if (self == NULL || !twi_calendar_holds(start_ms) || twi_closing_is_ending(family) || !twi_closing_has_hook(family))
        return;
    struct twi_span span = twi_calendar_span(&family->rule, start_ms);
    if (span.start_ms != start_ms) return; /* the family's windows were different when it was listed */
    if (due_ms(family, span.end_ms) > engine->turn.now_ms) return;
    twi_section_enter(self);
    struct twi_generation *generation = twi_window_open(family, span, 0);
    if (generation != NULL && twi_load_relaxed(&generation->phase) < TWI_HISTORY && !generation->turn.hook_done)
        generation->turn.closing.is_adopted = true;
    twi_section_leave(self);
}

bool twi_closing_awaits_word(const struct twi_generation *generation) {
    struct tw_family *family = generation->family;
    const struct twi_family_close_state *closing = &family->turn.closing;
    if (twi_closing_is_ending(family) || !closing->known || family->engine->turn.hooks_partial) return false;
    if (closing->word_ms >= twi_closing_due_ms(generation)) return false;
    return twi_closing_has_hook(family);
}

void twi_close_election_enter(struct twi_close_election *election, enum twi_close_election_state state, int64_t at_ms) {
    twi_check(election->state != TWI_ELECTION_OVER && state != TWI_ELECTION_OVER);
    election->state = state;
    election->at_ms = at_ms;
    election->cursor = (struct twi_cursor){0};
}

/* This engine has counted nothing in the window, and delays nobody. */
static bool is_foreign(struct twi_generation *generation) {
    return generation->turn.closing.is_adopted && !generation->has_cells &&
           twi_cell_local(&generation->overflow, twi_load_relaxed(&generation->overflow.meta)) == 0;
}

/* Redis may have removed the names because the window was closed: who made the set before is of no interest. */
void twi_close_election_record(struct twi_close_election *election, int64_t now_ms) {
    twi_check(election->tags == NULL);
    election->generation->turn.closing.names_recorded = false;
    election->generation->turn.closing.names_doubted = election->generation->turn.closing.names_again = true;
    election->listed = false;
    election->through = is_foreign(election->generation);
    election->totals_ms = now_ms;
    twi_close_election_enter(election, TWI_ELECTION_RECORD, now_ms);
}

bool twi_close_election_lacks_names(const struct twi_close_election *election) {
    return election->tags == NULL && election->generation->turn.closing.names_doubted;
}

/* By tag, an engine that leaves before the window's time, or has no hook, cannot know whether other engines will need
 * its names. So it lists them. */
static void begin(struct twi_close_election *election, int64_t at_ms) {
    bool lists = election->tags != NULL && (election->lists_only || election->partial);
    election->listed = false;
    election->through = election->tags == NULL && is_foreign(election->generation);
    if (twi_close_election_lacks_names(election))
        twi_close_election_record(election, at_ms);
    else
        twi_close_election_enter(election, lists ? TWI_ELECTION_LIST : TWI_ELECTION_CLAIM, at_ms);
}

struct twi_close_election *twi_close_election_make(tw_engine *engine, struct twi_generation *generation) {
    twi_check(twi_close_election_of(generation) == NULL);
    twi_check(!generation->turn.hook_done);
    struct tw_family *family = generation->family;
    struct twi_close_election *election = calloc(1, sizeof *election);
    if (election == NULL) return NULL;
    if (twi_closing_tags_are_used(family) && (election->tags = twi_closing_tags_create()) == NULL) {
        free(election);
        return NULL;
    }
    election->generation = generation;
    twi_closing_keys_begin(&election->foreign, generation);
    election->start_ms = generation->start_ms;
    election->lists_only = !twi_closing_has_hook(family);
    election->partial = engine->turn.now_ms < twi_family_takes_until(family, generation->end_ms);
    begin(election, engine->turn.mono_ms);
    election->next = family->turn.closing.elections;
    family->turn.closing.elections = election;
    return election;
}

/* A linear search, because the list has only windows that have ended and not yet closed. */
struct twi_close_election *twi_close_election_of(const struct twi_generation *generation) {
    struct twi_close_election *election = generation->family->turn.closing.elections;
    while (election != NULL && election->generation != generation) election = election->next;
    return election;
}

void twi_close_election_free(struct twi_close_election *election) {
    twi_check(election->foreign.family == NULL);
    twi_closing_tags_free(election->tags);
    free(election);
}

/* If a reply is still in flight, the code that receives it finds the election OVER and frees it. */
void twi_close_election_end(struct twi_close_election *election) {
    twi_check(election->state != TWI_ELECTION_OVER);
    twi_check(twi_close_election_of(election->generation) == election);
    struct twi_close_election **link = &election->generation->family->turn.closing.elections;
    while (*link != election) link = &(*link)->next;
    *link = election->next;
    twi_closing_keys_end(&election->foreign);
    election->state = TWI_ELECTION_OVER;
    if (!election->in_flight) twi_close_election_free(election);
}

void twi_close_election_keep(struct tw_family *family, int64_t start_ms) {
    family->turn.closing.kept[family->turn.closing.kept_count++ % TWI_CLOSED_KEPT] = start_ms;
}

/* This engine or another one has closed the window. */
void twi_close_election_end_closed(struct twi_close_election *election) {
    twi_check(election->state != TWI_ELECTION_OVER);
    twi_close_election_keep(election->generation->family, election->start_ms);
    election->generation->turn.hook_done = true;
    twi_close_election_end(election);
}

void twi_close_election_begin_again(struct twi_close_election *election) {
    twi_check(election->state != TWI_ELECTION_OVER);
    if (election->tags != NULL) twi_closing_tags_reset(election->tags);
    begin(election, election->at_ms);
}

/* Other engines have closed the window, or continue with it. The unsent counts of this engine are too late for that
 * closing. The window is closed again when Redis has those counts. */
void twi_close_election_end_by_others(struct twi_close_election *election) {
    twi_check(election->generation != NULL && election->state != TWI_ELECTION_OVER);
    if (twi_generation_is_drained(election->generation) && !twi_close_election_lacks_names(election)) {
        twi_close_election_end_closed(election);
        return;
    }
    election->acked_units = election->generation->turn.acked_units;
    election->through = true;
    twi_close_election_enter(election, TWI_ELECTION_UNSENT, 0);
}

/* The hook gets the known counts, with the flag TW_CLOSED_LOCAL. */
void twi_close_election_lack(struct twi_close_election *election, const char *why) {
    twi_check(why != NULL);
    if (!election->is_short)
        twi_port_log(election->generation->family->engine, TW_LOG_ERROR, TW_EVENT_CLOSED,
                     "the figures of a window of family \"%s\" may lack keys: %s",
                     election->generation->family->options.name, why);
    election->is_short = true;
}

/* Redis has the names of all keys of this engine, and knows that it no longer delays the window. */
void twi_close_election_end_list(struct twi_close_election *election) {
    twi_check(election->state != TWI_ELECTION_OVER);
    election->listed = election->through = true;
    if (!election->lists_only) {
        twi_close_election_enter(election, TWI_ELECTION_CLAIM, twi_close_election_claim_at_ms(election->generation));
        return;
    }
    election->generation->turn.hook_done = true;
    if (twi_generation_is_drained(election->generation))
        twi_close_election_end(election);
    else
        twi_close_election_end_by_others(election);
}

/* Returns when a window may be claimed. A claim is useless while a store was empty recently. */
int64_t twi_close_election_claim_at_ms(const struct twi_generation *generation) {
    const tw_engine *engine = generation->family->engine;
    bool waits = engine->peers.closing_pause_ms > engine->turn.mono_ms;
    return waits ? engine->peers.closing_pause_ms : engine->turn.mono_ms;
}

/* Returns true if the window waits and Redis has not replied about this family for the closing wait. */
bool twi_closing_is_away(const tw_engine *engine, const struct twi_generation *generation) {
    int64_t since_ms = generation->turn.sealed_mono_ms, last_reply_ms = generation->family->turn.closing.last_reply_ms;
    return engine->turn.mono_ms - (last_reply_ms > since_ms ? last_reply_ms : since_ms) >=
           engine->here->remote.tuning.closing_wait_ms;
}

/* Returns true if Redis has replied during the whole closing wait since the window was sealed, and the window still
 * has unsent counts. */
bool twi_closing_had_its_time(const tw_engine *engine, const struct twi_generation *generation) {
    twi_check(twi_load_relaxed(&generation->phase) >= TWI_SEALED);
    int64_t wait_ms = engine->here->remote.tuning.closing_wait_ms, now_ms = engine->turn.mono_ms;
    return !twi_closing_is_away(engine, generation) && now_ms - generation->turn.sealed_mono_ms >= wait_ms &&
           now_ms - generation->family->turn.closing.since_ms >= wait_ms;
}

enum twi_closing_verb twi_close_election_verb(const struct twi_close_election *election) {
    if (election->tags != NULL && election->tags->renews) return TWI_CLOSING_SEND_CLAIM;
    switch (election->state) {
    case TWI_ELECTION_LIST:
    case TWI_ELECTION_CONFIRM: return TWI_CLOSING_SEND_LIST;
    case TWI_ELECTION_ADD: return TWI_CLOSING_SEND_ADD;
    case TWI_ELECTION_FETCH: return TWI_CLOSING_SEND_FETCH;
    case TWI_ELECTION_DROP: return TWI_CLOSING_SEND_DROP;
    case TWI_ELECTION_READ: return TWI_CLOSING_SEND_READ;
    case TWI_ELECTION_PASS: return TWI_CLOSING_SEND_PASS;
    case TWI_ELECTION_PARTIAL: return TWI_CLOSING_SEND_PARTIAL;
    case TWI_ELECTION_DONE: return TWI_CLOSING_SEND_DONE;
    default:
        if (election->tags == NULL && (election->lists_only || (election->partial && !election->through)))
            return TWI_CLOSING_SEND_LIST;
        return election->partial ? TWI_CLOSING_SEND_LAST : TWI_CLOSING_SEND_CLAIM;
    }
}

/* In these states the engine has nothing to say, for example no claim to renew. */
bool twi_close_election_is_silent(const struct twi_close_election *election) {
    bool holds = election->state == TWI_ELECTION_TOTALS || election->state == TWI_ELECTION_CALL_HOOK;
    return (holds && election->partial) || election->state == TWI_ELECTION_UNSENT ||
           election->state == TWI_ELECTION_RECORD;
}

/* Returns true for ADD, FETCH and DROP. These go to the set of names of a group, not to the election. */
bool twi_closing_is_of_names(enum twi_closing_verb verb) {
    return verb >= TWI_CLOSING_SEND_ADD;
}
