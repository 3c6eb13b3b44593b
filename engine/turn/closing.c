/* closing.c -- see closing.h. The first half decides what to send; the second half applies the answers to a window.
 * sync/message/closing.c encodes both for the wire.
 * Always true: an answer is applied only in the state that sent the request. An answer that comes after its election
 * has moved on does nothing. */
#include "engine/turn/closing.h"

#include "engine/turn/closing_tags.h"
#include "engine/turn/closing_windows.h"
#include "engine/count/dirty.h"
#include "engine/core/window_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Redis may ask for a longer interval; the script takes a pause of 2.5 intervals for an outage */
#define HEARTBEAT_MS 1000
#define EVERY_MAX_MS TW_HOUR
#define AGAIN_MS 200
#define OTHER_MS 1000
#define REFUSED_MS 5000
#define PASSED_MS 5000  /* how long the other engines have the first choice */
#define ADOPTED_MS 3000 /* how soon an engine asks again for a window in which it has counted nothing */
#define FORGET_MS \
    (10 * TW_MINUTE) /* a window that could have been closed, and whose keys died, so long ago is forgotten */
#define FLOOR_ALL (INT64_C(1) << 52)

static bool is_ending(const struct tw_family *family) {
    return family->engine->turn.closing || twi_load_relaxed(&family->requests.close_requested);
}
/* ---- the life of an election ---- */

static void enter(struct twi_close_election *election, enum twi_close_election_state state, int64_t at_ms) {
    election->state = state;
    election->at_ms = at_ms;
    election->cursor = (struct twi_cursor){0};
}

static struct twi_close_election *make_election(tw_engine *engine, struct twi_generation *generation) {
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
    /* An engine that leaves before the window's time, or has no hook, cannot know whether others will need the
     * names. */
    enter(election, election->lists_only || election->partial ? TWI_ELECTION_LIST : TWI_ELECTION_CLAIM,
          engine->turn.mono_ms);
    election->next = family->turn.closing.elections;
    family->turn.closing.elections = election;
    return election;
}

/* A linear search: the list holds only windows that are over and not yet closed. */
struct twi_close_election *twi_close_election_of(const struct twi_generation *generation) {
    struct twi_close_election *election = generation->family->turn.closing.elections;
    while (election != NULL && election->generation != generation) election = election->next;
    return election;
}

static void free_election(struct twi_close_election *election) {
    twi_closing_tags_free(election->tags);
    free(election);
}

/* If an answer is still in flight, that answer finds the election OVER and frees it. */
static void end(struct twi_close_election *election) {
    struct twi_close_election **link = &election->generation->family->turn.closing.elections;
    while (*link != election) link = &(*link)->next;
    *link = election->next;
    twi_closing_keys_end(&election->foreign);
    election->state = TWI_ELECTION_OVER;
    if (!election->in_flight) free_election(election);
}

static void keep(struct tw_family *family, int64_t start_ms) {
    family->turn.closing.kept[family->turn.closing.kept_count++ % TWI_CLOSED_KEPT] = start_ms;
}

/* The window is closed, by this engine or by another. */
static void end_closed(struct twi_close_election *election) {
    keep(election->generation->family, election->start_ms);
    election->generation->turn.hook_done = true;
    end(election);
}

static void begin_again(struct twi_close_election *election) {
    election->listed = election->through = false;
    if (election->tags != NULL) twi_closing_tags_reset(election->tags);
    enter(election, election->lists_only || election->partial ? TWI_ELECTION_LIST : TWI_ELECTION_CLAIM,
          election->at_ms);
}

void twi_closing_restart(struct twi_generation *generation) {
    generation->turn.closing.names_recorded = false;
    struct twi_close_election *election = twi_close_election_of(generation);
    if (election == NULL || election->state == TWI_ELECTION_DONE || election->state == TWI_ELECTION_PARTIAL ||
        election->state == TWI_ELECTION_UNSENT ||
        (election->state == TWI_ELECTION_DROP && election->generation->turn.hook_done))
        return;
    bool claims = election->tags != NULL && !election->partial && election->state >= TWI_ELECTION_READ &&
                  election->state <= TWI_ELECTION_CALL_HOOK;
    begin_again(election);
    if (!claims) return;
    /* The others may have lost something there, too. While the claim lasts, Redis does not look at what they hold up.
     */
    election->tags->pause_ms = generation->family->engine->turn.mono_ms;
    enter(election, TWI_ELECTION_PASS, election->tags->pause_ms);
}

bool twi_closing_is_repeat(const struct twi_generation *generation) {
    const struct twi_close_election *election = twi_close_election_of(generation);
    return election != NULL && election->is_repeat;
}

void twi_closing_note_unreported(struct twi_generation *generation, const char *why) {
    struct tw_family *family = generation->family;
    twi_port_count(family->engine, windows_untold, 1);
    twi_port_log(family->engine, TW_LOG_WARNING, TW_EVENT_CLOSED,
                 "no hook was called for a window of family \"%s\": %s", family->options.name, why);
}

/* Another engine has closed the window without this engine's last counts, and this engine has no hook to report them
 * to. */
static void note_late(struct twi_close_election *election) {
    if (election->is_noted) return;
    election->is_noted = true;
    twi_closing_note_unreported(election->generation,
                                "counts came after another engine had closed it, and this engine has no hook");
}

/* Others have closed the window, or continue with it. Counts that this engine still owes come too late for them. The
 * window is closed again when Redis has those counts. */
static void end_by_others(struct twi_close_election *election) {
    if (twi_generation_is_drained(election->generation)) {
        end_closed(election);
        return;
    }
    election->acked_units = election->generation->turn.acked_units;
    election->through = true;
    enter(election, TWI_ELECTION_UNSENT, 0);
}

/* Called when nothing is owed any more. Returns true if no count was added since the window was closed. */
static bool is_paid(struct twi_close_election *election) {
    if (election->generation->turn.acked_units == election->acked_units) {
        end_closed(election);
        return true;
    }
    election->at_ms = election->generation->family->engine->turn.mono_ms;
    begin_again(election);
    return false;
}

void twi_closing_free(struct tw_family *family) {
    while (family->turn.closing.elections != NULL) {
        struct twi_close_election *election = family->turn.closing.elections;
        family->turn.closing.elections = election->next;
        twi_closing_keys_end(&election->foreign);
        free_election(election);
    }
}

/* ---- keys that only others counted ---- */

/* The hook gets what is known, flagged. */
static void lack_names(struct twi_close_election *election, const char *why) {
    if (!election->is_short)
        twi_port_log(election->generation->family->engine, TW_LOG_ERROR, TW_EVENT_CLOSED,
                     "the figures of a window of family \"%s\" may lack keys: %s",
                     election->generation->family->options.name, why);
    election->is_short = true;
}

void twi_port_closing_name(tw_engine *engine, const struct twi_closing_message *message, tw_key name) {
    struct twi_close_election *election = message->election;
    if (election == NULL || name.size > TW_KEY_SIZE_MAX) return;
    if (election->tags != NULL && election->state == TWI_ELECTION_READ) {
        twi_closing_tags_note(election->tags, election->generation->family, name);
        return;
    }
    if (election->state != (election->tags != NULL ? TWI_ELECTION_FETCH : TWI_ELECTION_READ)) return;
    election->has_names = true;
    if (election->tags != NULL) twi_closing_tags_found(election->tags);
    if (name.size == 0) {
        lack_names(election, "names of keys that were counted there were lost in Redis");
        return;
    }
    if (twi_closing_keys_add(engine, &election->foreign, name) || election->is_short) return;
    election->is_short = true;
    twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_MEMORY,
                 "no memory for all keys that other engines counted in a window of family \"%s\"",
                 election->generation->family->options.name);
}

/* ---- the steps of a window ---- */

/* True if Redis has answered nothing about this family for the closing wait, while the window waits. */
static bool is_away(const tw_engine *engine, const struct twi_generation *generation) {
    int64_t since_ms = generation->turn.sealed_mono_ms, last_reply_ms = generation->family->turn.closing.last_reply_ms;
    return engine->turn.mono_ms - (last_reply_ms > since_ms ? last_reply_ms : since_ms) >=
           engine->remote.tuning.closing_wait_ms;
}

/* True if Redis has answered for the whole closing wait since the window was sealed, and the window still owes
 * counts. */
static bool had_its_time(const tw_engine *engine, const struct twi_generation *generation) {
    int64_t wait_ms = engine->remote.tuning.closing_wait_ms, now_ms = engine->turn.mono_ms;
    return !is_away(engine, generation) && now_ms - generation->turn.sealed_mono_ms >= wait_ms &&
           now_ms - generation->family->turn.closing.since_ms >= wait_ms;
}

bool twi_closing_gives_up(const tw_engine *engine, const struct twi_generation *generation) {
    return is_away(engine, generation) || had_its_time(engine, generation);
}

static bool request_total_of(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct twi_generation *generation = ctx;
    twi_dirty_owe(generation->family->engine, generation, cell, meta);
    return true;
}

/* True when every total was requested and has come. */
static bool has_totals(struct twi_arena *arena, struct twi_close_election *election, bool drained, uint32_t *work) {
    struct twi_generation *generation = election->generation;
    if (election->cursor.done) return drained;
    if (*work == 0) return false;
    twi_store_relaxed(&generation->turn.wants_totals, true);
    election->cursor.looks = *work;
    twi_table_walk(arena, generation, &election->cursor, request_total_of, generation);
    *work = election->cursor.looks;
    if (!election->cursor.done) return false;
    (void)request_total_of(generation, &generation->overflow, twi_load_relaxed(&generation->overflow.meta));
    generation->family->engine->collector.hurried = true; /* the interval may be longer than the hook waits */
    return false;
}

static enum twi_closing call_hook(const tw_engine *engine, const struct twi_close_election *election) {
    int64_t left_ms = election->claim_ms - engine->turn.mono_ms;
    if (!election->partial && left_ms < engine->remote.tuning.closing_life_ms / 2) return TWI_CLOSING_WAIT;
    return election->is_short ? TWI_CLOSING_LOCAL : TWI_CLOSING_CALL_HOOK;
}

static enum twi_closing await_totals(tw_engine *engine, struct twi_close_election *election, bool drained,
                                     uint32_t *work) {
    bool late = engine->turn.mono_ms - election->totals_ms >= engine->remote.tuning.closing_wait_ms;
    if (!has_totals(&engine->arena, election, drained, work) && !late) return TWI_CLOSING_WAIT;
    if (election->tags != NULL && !election->partial && engine->peers.closing_pause_ms > engine->turn.mono_ms) {
        election->tags->pause_ms =
            engine->peers.closing_pause_ms; /* by then the others hold up what they owe that store */
        enter(election, TWI_ELECTION_PASS, engine->turn.mono_ms);
        return TWI_CLOSING_WAIT;
    }
    election->state = TWI_ELECTION_CALL_HOOK; /* keeps at_ms: the claim is renewed as before */
    election->is_short = election->is_short || !drained;
    return call_hook(engine, election);
}

/* No more answers are expected in time. */
static enum twi_closing give_up(struct twi_close_election *election, bool left_to_others) {
    if (!election->lists_only && !left_to_others && !election->generation->turn.hook_done) return TWI_CLOSING_LOCAL;
    election->generation->turn.hook_done = true;
    end(election);
    return TWI_CLOSING_OVER;
}

enum twi_closing twi_closing_step(tw_engine *engine, struct twi_generation *generation, bool drained, uint32_t *work) {
    struct twi_close_election *election = twi_close_election_of(generation);
    if (election == NULL && generation->turn.hook_done) return TWI_CLOSING_OVER;
    if (election == NULL && (election = make_election(engine, generation)) == NULL) return TWI_CLOSING_WAIT;
    if (election->state == TWI_ELECTION_UNSENT) {
        if (engine->turn.hooks_partial) return give_up(election, true);
        return drained && is_paid(election) ? TWI_CLOSING_OVER : TWI_CLOSING_WAIT;
    }
    if (engine->turn.hooks_partial) return give_up(election, election->left_to_others);
    if (is_away(engine, generation)) return give_up(election, false);
    if (election->state == TWI_ELECTION_TOTALS) return await_totals(engine, election, drained, work);
    return election->state == TWI_ELECTION_CALL_HOOK ? call_hook(engine, election) : TWI_CLOSING_WAIT;
}

void twi_closing_hook_answered(tw_engine *engine, struct twi_generation *generation, bool reported) {
    struct twi_close_election *election = twi_close_election_of(generation);
    bool claimed = election->state == TWI_ELECTION_CALL_HOOK && !election->partial;
    if (reported) {
        generation->turn.hook_done = true;
        if (claimed || (election->state == TWI_ELECTION_CALL_HOOK && !engine->turn.hooks_partial))
            enter(election, claimed ? TWI_ELECTION_DONE : TWI_ELECTION_PARTIAL, engine->turn.mono_ms);
        else
            end(election);
    } else if (claimed && engine->turn.mono_ms - election->chosen_ms >= engine->remote.tuning.closing_wait_ms) {
        enter(election, TWI_ELECTION_PASS, engine->turn.mono_ms);
    }
}

void twi_closing_refused(tw_engine *engine, struct twi_generation *generation) {
    struct twi_close_election *election = twi_close_election_of(generation);
    if (election->state == TWI_ELECTION_CALL_HOOK && !election->partial && !is_away(engine, generation)) {
        enter(election, TWI_ELECTION_PASS, engine->turn.mono_ms);
        return;
    }
    twi_closing_note_unreported(generation, "its hook returned false until the family had to close");
    generation->turn.hook_done = true;
    end(election);
}

/* When a window may be claimed: not while a store that was empty a while ago makes a claim useless. */
static int64_t claim_at_ms(const struct twi_generation *generation) {
    const tw_engine *engine = generation->family->engine;
    bool waits = engine->peers.closing_pause_ms > engine->turn.mono_ms;
    return waits ? engine->peers.closing_pause_ms : engine->turn.mono_ms;
}

/* This engine no longer claims the window. */
static void take_pass_answer(struct twi_close_election *election, int64_t now_ms) {
    struct twi_generation *generation = election->generation;
    if (election->tags != NULL && election->tags->pause_ms != 0) {
        bool listed = election->listed; /* if not, the others need the names meanwhile */
        enter(election, listed ? TWI_ELECTION_CLAIM : TWI_ELECTION_LIST, listed ? claim_at_ms(generation) : now_ms);
        election->tags->pause_ms = 0;
        return;
    }
    enter(election, TWI_ELECTION_CLAIM, now_ms + PASSED_MS);
    if (!twi_load_relaxed(&generation->family->requests.close_requested)) return;
    twi_closing_note_unreported(
        generation, "its hook returned false until the family had to close; another engine's hook may accept it");
    generation->turn.hook_done = true;
    end(election);
}

/* ---- messages to Redis ---- */

static bool holds_up(struct twi_generation *generation) {
    uint32_t phase = twi_load_relaxed(&generation->phase);
    const struct twi_close_election *election = twi_close_election_of(generation);
    if (phase >= TWI_HISTORY) return false;
    if (election != NULL) return !election->through;
    if (generation->turn.hook_done)
        return phase != TWI_DRAINED && !had_its_time(generation->family->engine, generation);
    return phase != TWI_DRAINED || twi_generation_has_counted(generation);
}

/* The earliest ends in ascending order, and one more. If there are too many ends, the extra one is the floor: every
 * window from there on counts as held up. */
struct ends {
    int64_t floor_ms, at_ms[TWI_CLOSING_ENDS_MAX + 1];
    uint32_t count;
};

static void note_end(void *ctx, struct twi_generation *generation) {
    struct ends *ends = ctx;
    int64_t end_ms = generation->end_ms;
    if (end_ms > ends->floor_ms || !holds_up(generation)) return;
    uint32_t at = ends->count;
    if (at > TWI_CLOSING_ENDS_MAX) { /* full: replaces the last one */
        at = TWI_CLOSING_ENDS_MAX;
        if (ends->at_ms[at] <= end_ms) return;
    } else {
        ends->count++;
    }
    for (; at > 0 && ends->at_ms[at - 1] > end_ms; at--) ends->at_ms[at] = ends->at_ms[at - 1];
    ends->at_ms[at] = end_ms;
}

/* A window that may still be opened ends after the floor. If another thread opened one before the clock or the
 * watermark came to the floor, the fence makes it visible here: that thread looks at both again before it counts
 * (lookup.c). */
static void fill_heartbeat(struct tw_family *family, struct twi_closing_message *message) {
    tw_engine *engine = family->engine;
    struct ends ends = {.floor_ms = is_ending(family) ? FLOOR_ALL : twi_family_over_by(family, engine->turn.now_ms)};
    if (ends.floor_ms < 0) ends.floor_ms = 0;
    twi_fence_seqcst(); /* N5, pairs with N2: see above */
    twi_window_visit(family, note_end, &ends);
    message->floor_ms = ends.floor_ms;
    if (ends.count > TWI_CLOSING_ENDS_MAX) {
        message->floor_ms = ends.at_ms[TWI_CLOSING_ENDS_MAX] - 1;
        ends.count = TWI_CLOSING_ENDS_MAX;
    }
    memcpy(message->ends_ms, ends.at_ms, ends.count * sizeof *message->ends_ms);
    message->end_count = ends.count;
    message->family = family;
    message->known = family->turn.closing.known;
    message->life_ms = engine->remote.tuning.closing_life_ms;
    message->sent_ms = engine->turn.mono_ms;
    message->word_ms = engine->turn.now_ms;
}

struct page {
    struct twi_closing_message *message;
    struct twi_cursor *cursor;
    size_t bytes;
};

static bool list_name(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct page *page = ctx;
    struct twi_cold *cold = twi_cell_cold(cell, meta);
    size_t size = meta & TWI_META_SIZE;
    if (twi_cell_local(cell, meta) == 0 && twi_load_relaxed(&cold->acked) == 0) return true; /* it was only read here */
    if (page->message->name_count == TWI_CLOSING_NAMES_MAX || page->bytes + size > TWI_CLOSING_NAMES_BYTES_MAX) {
        page->cursor->index--; /* this name begins the next page */
        return false;
    }
    page->message->names[page->message->name_count++] = tw_bytes(cell->key, size);
    page->bytes += size;
    return true;
}

/* Redis holds the names of all keys of this engine. */
static void end_list(struct twi_close_election *election) {
    election->listed = election->through = true;
    if (!election->lists_only) {
        enter(election, TWI_ELECTION_CLAIM, claim_at_ms(election->generation));
        return;
    }
    election->generation->turn.hook_done = true;
    if (twi_generation_is_drained(election->generation))
        end(election);
    else
        end_by_others(election);
}

/* Returns false if there is no page to send now. */
static bool fill_page(struct twi_arena *arena, struct twi_close_election *election,
                      struct twi_closing_message *message) {
    struct page page = {message, &election->cursor, 0};
    election->page = election->cursor;
    election->cursor.looks = TWI_WORK_TURN;
    if (!election->cursor.done) twi_table_walk(arena, election->generation, &election->cursor, list_name, &page);
    if (message->name_count == 0 && election->cursor.done) end_list(election);
    return message->name_count != 0;
}

static enum twi_closing_verb verb_of(const struct twi_close_election *election) {
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
    default: return election->partial ? TWI_CLOSING_SEND_LAST : TWI_CLOSING_SEND_CLAIM;
    }
}

/* For a partial window, the engine holds no claim in these states, so there is nothing to renew. */
static bool is_silent(const struct twi_close_election *election) {
    bool holds = election->state == TWI_ELECTION_TOTALS || election->state == TWI_ELECTION_CALL_HOOK;
    return (holds && election->partial) || election->state == TWI_ELECTION_UNSENT;
}

static bool is_due(const struct twi_turn_state *turn, const struct twi_close_election *election) {
    return !election->in_flight && election->at_ms <= turn->mono_ms && !is_silent(election);
}

/* Where names lie by tag, reading them does not renew the claim: they lie in other stores. */
static bool must_renew(const struct twi_turn_state *turn, const struct twi_close_election *election) {
    bool reads = election->state == TWI_ELECTION_READ || election->state == TWI_ELECTION_FETCH;
    return reads && !election->partial && turn->mono_ms >= election->tags->renew_ms;
}

/* Puts into the message what it says of names. Returns false if it cannot be sent now. */
static bool fill(tw_engine *engine, struct twi_close_election *election, struct twi_closing_message *message) {
    struct twi_closing_tags *tags = election->tags;
    if (tags == NULL) return message->verb != TWI_CLOSING_SEND_LIST || fill_page(&engine->arena, election, message);
    message->round = tags->round;
    message->group = tags->group;
    if (election->state == TWI_ELECTION_ADD) {
        if (twi_closing_tags_fill(tags, election->generation, &election->cursor, message)) return true;
        if (!election->cursor.done) return false;
        twi_closing_tags_confirm(tags);
        enter(election, TWI_ELECTION_CONFIRM, election->at_ms);
        message->verb = verb_of(election);
    }
    if (election->state != TWI_ELECTION_CONFIRM || twi_closing_tags_fill_index(tags, message)) return true;
    end_list(election); /* this engine counted no key */
    return false;
}

static bool message_of(tw_engine *engine, struct twi_close_election *election, struct twi_closing_message *message) {
    const struct twi_generation *generation = election->generation;
    message->name_count = 0;
    if (election->tags != NULL) election->tags->renews = must_renew(&engine->turn, election);
    message->verb = verb_of(election);
    message->by_tag = election->tags != NULL;
    if (!fill(engine, election, message)) return false;
    message->election = election;
    message->start_ms = generation->start_ms;
    message->end_ms = generation->end_ms;
    message->expiry_ms = generation->expiry_ms;
    message->flag = message->verb == TWI_CLOSING_SEND_READ ? !election->partial : election->listed;
    message->through = election->through;
    /* By tag, each round has sets of its own; batches record in those of the first one. */
    message->recorded =
        generation->turn.closing.names_recorded && (election->tags == NULL || election->tags->round == 0);
    message->look_ms = twi_closing_due_ms(generation);
    memcpy(message->scan, election->scan, sizeof message->scan);
    fill_heartbeat(generation->family, message);
    election->in_flight = true;
    return true;
}

/* After Redis forgot, re-sends the windows that are closed. */
static bool send_kept(struct tw_family *family, struct twi_closing_message *message) {
    struct twi_family_close_state *closing = &family->turn.closing;
    if (closing->kept_repeat == 0 || closing->kept_in_flight) return false;
    if (family->engine->turn.mono_ms < closing->kept_at_ms) return false;
    message->verb = TWI_CLOSING_SEND_DONE;
    message->by_tag = twi_closing_tags_are_used(family);
    message->election = NULL;
    message->start_ms = closing->kept[(closing->kept_count - closing->kept_repeat) % TWI_CLOSED_KEPT];
    message->end_ms = message->start_ms;
    message->expiry_ms = twi_time_add(family->engine->turn.now_ms, twi_load_relaxed(&family->policy.retention_ms));
    fill_heartbeat(family, message);
    closing->kept_in_flight = true;
    return true;
}

static bool all_is_over(const struct tw_family *family) {
    for (uint32_t line = family->turn.generations; line != 0;) {
        const struct twi_generation *generation = twi_generation_at(&family->engine->arena, line);
        if (twi_load_relaxed(&generation->phase) < TWI_HISTORY) return false;
        line = generation->turn.next_all;
    }
    return true;
}

static int64_t forget_ms(const struct tw_family *family) {
    int64_t retention_ms = twi_load_relaxed(&family->policy.retention_ms);
    return twi_time_add(family->engine->turn.now_ms,
                        -twi_time_add(retention_ms != 0 ? retention_ms : 30 * TW_DAY, FORGET_MS));
}

static bool send_heartbeat(struct tw_family *family, struct twi_closing_message *message) {
    struct twi_family_close_state *closing = &family->turn.closing;
    bool leaves = is_ending(family) && closing->known && all_is_over(family);
    if (closing->in_flight || closing->left) return false;
    if (!leaves && family->engine->turn.mono_ms < closing->at_ms) return false;
    message->verb = leaves ? TWI_CLOSING_SEND_LEAVE : TWI_CLOSING_SEND_HEARTBEAT;
    message->by_tag = twi_closing_tags_are_used(family);
    message->election = NULL;
    message->start_ms = message->end_ms = message->expiry_ms = 0;
    message->look_ms = forget_ms(family);
    twi_closing_announce(family, message);
    fill_heartbeat(family, message);
    closing->in_flight = true;
    return true;
}

static bool message_for(tw_engine *engine, struct tw_family *family, struct twi_closing_message *message) {
    for (struct twi_close_election *election = family->turn.closing.elections, *next; election != NULL;
         election = next) {
        next = election->next;
        if (is_due(&engine->turn, election) && message_of(engine, election, message)) return true;
    }
    return send_kept(family, message) || send_heartbeat(family, message);
}

bool twi_port_closing(tw_engine *engine, struct twi_closing_message *message) {
    for (struct tw_family *family = twi_load_acquire(&engine->roster.specials); family != NULL;
         family = twi_load_acquire(&family->entry.next_special))
        if (family->kind.closes_once && message_for(engine, family, message)) return true;
    return false;
}

/* ADD, FETCH and DROP: sent to the set of names of one group, not to the election. */
static bool is_of_names(enum twi_closing_verb verb) {
    return verb >= TWI_CLOSING_SEND_ADD;
}

size_t twi_port_closing_keys(const struct twi_closing_message *message, char (*keys)[TWI_OWN_NAME_MAX], size_t *sizes) {
    const char *const what[] = {"closers", "closed", message->by_tag ? "groups" : "names", "windows"};
    const struct twi_key_template *template = &message->family->template;
    char name[TWI_REDIS_KEY_MAX], set[16] = "names";
    if (is_of_names(message->verb)) {
        if (message->round != 0) (void)snprintf(set, sizeof set, "names%u", message->round % TWI_CLOSING_TAGS_ROUNDS);
        size_t size = twi_key_template_render_group(template, message->group, message->start_ms, name);
        sizes[0] = twi_key_template_own(template, set, name, size, keys[0]);
        return 1;
    }
    for (int i = 0; i < TWI_CLOSING_KEYS; i++) {
        bool is_family = i == 0 || i == 3;
        size_t size = twi_key_template_render(template, tw_bytes("", 0), is_family ? 0 : message->start_ms, name);
        sizes[i] = twi_key_template_own(template, what[i], name, size, keys[i]);
    }
    return TWI_CLOSING_KEYS;
}

void twi_port_closing_pause(tw_engine *engine, int64_t until_ms) {
    if (engine->peers.closing_pause_ms < until_ms) engine->peers.closing_pause_ms = until_ms;
}

int64_t twi_port_closing_due(tw_engine *engine) {
    int64_t due_ms = INT64_MAX;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.specials); family != NULL;
         family = twi_load_acquire(&family->entry.next_special)) {
        const struct twi_family_close_state *closing = &family->turn.closing;
        if (!family->kind.closes_once) continue;
        if (!closing->in_flight && !closing->left && closing->at_ms < due_ms) due_ms = closing->at_ms;
        for (const struct twi_close_election *election = closing->elections; election != NULL;
             election = election->next)
            if (!election->in_flight && !is_silent(election) && election->at_ms < due_ms) due_ms = election->at_ms;
    }
    return due_ms;
}

/* ---- replies of Redis ---- */

/* With many engines, Redis asks for longer intervals. */
static int64_t heartbeat_ms(const struct tw_family *family) {
    return family->turn.closing.every_ms > HEARTBEAT_MS ? family->turn.closing.every_ms : HEARTBEAT_MS;
}
static int64_t in_a_crowd(const struct tw_family *family, int64_t ms) {
    return heartbeat_ms(family) > HEARTBEAT_MS && ms < heartbeat_ms(family) / 2 ? heartbeat_ms(family) / 2 : ms;
}

/* What Redis was told of the window, it may not know any more. */
static void forget_listed(void *ctx, struct twi_generation *generation) {
    (void)ctx;
    generation->turn.closing.names_recorded = generation->turn.closing.is_listed = generation->turn.closing.is_held =
        false;
}

static void take_reply_time(struct tw_family *family, const struct twi_closing_answer *answer) {
    struct twi_family_close_state *closing = &family->turn.closing;
    int64_t now_ms = family->engine->turn.mono_ms;
    if (closing->last_reply_ms == 0 || now_ms - closing->last_reply_ms > 5 * heartbeat_ms(family))
        closing->since_ms = now_ms;
    closing->last_reply_ms = now_ms != 0 ? now_ms : 1;
    closing->known = true;
    if (answer->every_ms > 0)
        closing->every_ms = (uint32_t)(answer->every_ms < EVERY_MAX_MS ? answer->every_ms : EVERY_MAX_MS);
    if (answer->kind != TWI_CLOSING_REPLY_NEW) return;
    closing->kept_repeat = closing->kept_count < TWI_CLOSED_KEPT ? closing->kept_count : TWI_CLOSED_KEPT;
    closing->at_ms = now_ms;
    for (struct twi_close_election *election = closing->elections; election != NULL; election = election->next)
        twi_closing_restart(election->generation);
    twi_window_visit(family, forget_listed, NULL);
}

static void take_family_answer(struct tw_family *family, const struct twi_closing_message *message,
                               enum twi_closing_kind kind, bool answered) {
    struct twi_family_close_state *closing = &family->turn.closing;
    int64_t now_ms = family->engine->turn.mono_ms;
    if (message->verb == TWI_CLOSING_SEND_DONE) {
        closing->kept_in_flight = false;
        if (answered && closing->kept_repeat != 0) closing->kept_repeat--;
        if (!answered) closing->kept_at_ms = now_ms + AGAIN_MS;
        return;
    }
    closing->in_flight = false;
    closing->at_ms = now_ms + (!answered ? AGAIN_MS : closing->announces ? 0 : heartbeat_ms(family));
    if (message->verb == TWI_CLOSING_SEND_HEARTBEAT && kind == TWI_CLOSING_REPLY_OK) {
        closing->word_ms = message->word_ms;
        twi_closing_announced(family, message);
    }
    if (message->verb == TWI_CLOSING_SEND_LEAVE && answered) {
        closing->left = true;
        closing->known = false;
    }
}

static bool is_reading(const struct twi_close_election *election) {
    return election->state == TWI_ELECTION_READ || election->state == TWI_ELECTION_FETCH;
}

static void begin_reading(struct twi_close_election *election, int64_t now_ms) {
    enter(election, TWI_ELECTION_READ, now_ms);
    (void)snprintf(election->scan, sizeof election->scan, "0");
    if (election->tags != NULL) election->tags->found = (struct twi_closing_groups){{0}};
}

static void chosen(struct twi_close_election *election, const struct twi_closing_message *message, int64_t now_ms) {
    election->claim_ms = message->sent_ms + message->life_ms;
    int64_t renew_ms = now_ms + message->life_ms / 3;
    if (election->tags != NULL) election->tags->renew_ms = renew_ms;
    if (election->state != TWI_ELECTION_CLAIM) { /* renewed */
        election->at_ms = is_reading(election) ? now_ms : renew_ms;
        return;
    }
    election->chosen_ms = now_ms;
    election->through = true;
    begin_reading(election, now_ms);
}

/* Where names lie by tag, they take more than one message: until all are there, the window is held up. */
static void begin_list(struct twi_close_election *election, int64_t now_ms) {
    if (election->tags != NULL) election->through = false;
    enter(election, TWI_ELECTION_LIST, now_ms);
}

/* How soon to ask again for a window that others hold up, or have claimed. */
static int64_t pause_ms(const struct twi_close_election *election, enum twi_closing_kind kind) {
    const struct twi_generation *generation = election->generation;
    if (generation->turn.closing.is_adopted && !generation->has_cells) return ADOPTED_MS;
    return kind == TWI_CLOSING_REPLY_OTHER ? OTHER_MS : AGAIN_MS;
}

static void take_claim_answer(struct twi_close_election *election, const struct twi_closing_message *message,
                              enum twi_closing_kind kind, int64_t now_ms) {
    election->left_to_others = kind == TWI_CLOSING_REPLY_OTHER;
    if (kind == TWI_CLOSING_REPLY_YOU)
        chosen(election, message, now_ms);
    else if (kind == TWI_CLOSING_REPLY_LIST)
        begin_list(election, now_ms);
    else
        enter(election, TWI_ELECTION_CLAIM,
              now_ms + in_a_crowd(election->generation->family, pause_ms(election, kind)));
}

static void take_last_answer(struct twi_close_election *election, enum twi_closing_kind kind, int64_t now_ms) {
    if (kind == TWI_CLOSING_REPLY_YOU) {
        begin_reading(election, now_ms);
    } else {
        election->generation->turn.hook_done = true; /* other engines continue with the window */
        end(election);
    }
}

static void begin_totals(struct twi_close_election *election, int64_t now_ms) {
    if (election->generation->turn.closing.is_adopted && !election->generation->has_cells && !election->has_names)
        lack_names(election, "it has counts, and Redis has no name of a key");
    election->totals_ms = now_ms;
    enter(election, TWI_ELECTION_TOTALS, now_ms);
}

/* The names of the next group are read, from the beginning; or all are. */
static void fetch_next(struct twi_close_election *election, int64_t now_ms) {
    if (!twi_closing_tags_next(election->tags)) {
        begin_totals(election, now_ms);
        return;
    }
    enter(election, TWI_ELECTION_FETCH, now_ms);
    (void)snprintf(election->scan, sizeof election->scan, "0");
}

static void take_read_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                             int64_t now_ms) {
    bool fetches = election->state == TWI_ELECTION_FETCH;
    if (answer->kind != TWI_CLOSING_REPLY_YOU) {
        enter(election, TWI_ELECTION_CLAIM, now_ms);
    } else if (strcmp(answer->scan, "0") != 0) {
        (void)snprintf(election->scan, sizeof election->scan, "%s", answer->scan);
        election->at_ms = now_ms;
    } else if (election->tags == NULL) {
        begin_totals(election, now_ms);
    } else {
        if (fetches) twi_closing_tags_done(election->tags);
        if (!fetches) twi_closing_tags_do_found(election->tags, election->generation->family);
        fetch_next(election, now_ms);
    }
}

/* The sets of the next group are removed; or all are. */
static void drop_next(struct twi_close_election *election, int64_t now_ms) {
    struct twi_closing_tags *tags = election->tags;
    if (twi_closing_tags_next(tags)) {
        enter(election, TWI_ELECTION_DROP, now_ms);
    } else if (tags->relists) {
        twi_closing_tags_reset(tags);
        enter(election, TWI_ELECTION_LIST, now_ms);
    } else if (election->generation->turn.hook_done) {
        end(election);
    } else {
        enter(election, TWI_ELECTION_CLAIM, now_ms);
    }
}

/* True if this message's answer belongs to the state that the election is in now. */
static bool has_sent(const struct twi_close_election *election, const struct twi_closing_message *message) {
    return verb_of(election) == message->verb && !is_silent(election);
}

/* Redis has recorded that the window is closed. If counts came meanwhile (LATE), the window is closed again, by the
 * engine that wins the next claim. By tag: the sets go if names are added to the next round's from now on. */
static void take_done_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                             int64_t now_ms) {
    struct twi_generation *generation = election->generation;
    bool late = answer->kind == TWI_CLOSING_REPLY_LATE;
    generation->turn.hook_done = !late;
    if (!late) keep(generation->family, election->start_ms);
    if (election->tags != NULL && answer->round > election->tags->round) {
        election->tags->reads_all = false;
        twi_closing_tags_do_found(election->tags, generation->family);
        drop_next(election, now_ms);
    } else if (late) {
        enter(election, TWI_ELECTION_CLAIM, now_ms);
    } else {
        end(election);
    }
}

static void take_index_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                              int64_t now_ms) {
    struct twi_closing_tags *tags = election->tags;
    election->at_ms = now_ms;
    if (election->state == TWI_ELECTION_LIST) {
        twi_closing_tags_reset(tags);
        tags->round = answer->round;
        enter(election, TWI_ELECTION_ADD, now_ms);
    } else if (answer->round != tags->round) { /* it was closed meanwhile: these names come too late for it */
        twi_closing_tags_do_own(tags);
        tags->relists = true;
        drop_next(election, now_ms);
    } else {
        twi_closing_tags_confirmed(tags);
        if (!twi_closing_tags_next(tags)) end_list(election);
    }
}

static void take_list_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                             int64_t now_ms) {
    election->at_ms = now_ms; /* send the next page now */
    if (answer->kind == TWI_CLOSING_REPLY_LATE && election->lists_only) note_late(election);
    if (election->tags != NULL)
        take_index_answer(election, answer, now_ms);
    else if (election->cursor.done)
        end_list(election);
}

/* A set of names has done what was asked. */
static void take_set_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                            int64_t now_ms) {
    struct twi_closing_tags *tags = election->tags;
    tags->failing_ms = 0;
    election->at_ms = now_ms;
    if (election->state == TWI_ELECTION_FETCH) {
        take_read_answer(election, answer, now_ms);
    } else if (election->state == TWI_ELECTION_DROP) {
        twi_closing_tags_done(tags);
        drop_next(election, now_ms);
    } else {
        twi_closing_tags_added(tags);
    }
}

/* A set of names does not answer. After the closing wait the election goes on without it. */
static void take_set_failure(tw_engine *engine, struct twi_close_election *election) {
    struct twi_closing_tags *tags = election->tags;
    int64_t now_ms = engine->turn.mono_ms;
    if (tags->failing_ms == 0) tags->failing_ms = now_ms != 0 ? now_ms : 1;
    if (now_ms - tags->failing_ms < engine->remote.tuning.closing_wait_ms) return;
    if (election->state == TWI_ELECTION_FETCH) {
        election->is_short = true;
        twi_closing_tags_done(tags);
        fetch_next(election, now_ms);
    } else if (election->state == TWI_ELECTION_DROP) {
        twi_closing_tags_done(tags);
        drop_next(election, now_ms);
    } else {
        twi_closing_tags_skip(tags);
        twi_closing_note_unreported(election->generation, "a store did not take the names of some of its keys");
    }
}

/* Redis refuses the one set of names, perhaps because another client has written a value under its name. After the
 * closing wait the election goes on without it. */
static void take_names_refusal(struct twi_close_election *election, const struct twi_closing_message *message,
                               int64_t now_ms) {
    bool lists = election->state == TWI_ELECTION_LIST, reads = election->state == TWI_ELECTION_READ;
    if (election->tags != NULL || !has_sent(election, message) || !(lists || reads)) return;
    if (election->failing_ms == 0) election->failing_ms = now_ms != 0 ? now_ms : 1;
    if (now_ms - election->failing_ms < election->generation->family->engine->remote.tuning.closing_wait_ms) return;
    election->failing_ms = 0;
    lack_names(election, "Redis refuses the set of their names");
    if (reads)
        begin_totals(election, now_ms);
    else
        end_list(election);
}

static void take_closer_answer(struct twi_close_election *election, const struct twi_closing_message *message,
                               const struct twi_closing_answer *answer, int64_t now_ms) {
    if (!has_sent(election, message) || answer->kind == TWI_CLOSING_REPLY_NEW) return;
    if (message->verb == TWI_CLOSING_SEND_DONE) {
        take_done_answer(election, answer, now_ms);
        return;
    }
    if (is_of_names(message->verb)) {
        take_set_answer(election, answer, now_ms);
        return;
    }
    if (answer->kind == TWI_CLOSING_REPLY_DONE) {
        end_by_others(election);
        return;
    }
    if (message->verb == TWI_CLOSING_SEND_LIST || message->verb == TWI_CLOSING_SEND_READ) election->failing_ms = 0;
    if (answer->kind == TWI_CLOSING_REPLY_YOU && message->verb != TWI_CLOSING_SEND_READ) {
        election->is_repeat = answer->is_repeat;
        if (election->tags != NULL) election->tags->round = answer->round;
        if (election->tags != NULL) election->tags->reads_all = election->tags->reads_all || answer->reads_all;
    }
    switch (message->verb) {
    case TWI_CLOSING_SEND_CLAIM: take_claim_answer(election, message, answer->kind, now_ms); break;
    case TWI_CLOSING_SEND_LAST: take_last_answer(election, answer->kind, now_ms); break;
    case TWI_CLOSING_SEND_READ: take_read_answer(election, answer, now_ms); break;
    case TWI_CLOSING_SEND_LIST: take_list_answer(election, answer, now_ms); break;
    case TWI_CLOSING_SEND_PARTIAL: end(election); break;
    case TWI_CLOSING_SEND_PASS: take_pass_answer(election, now_ms); break;
    default: break;
    }
}

void twi_port_closing_answered(tw_engine *engine, const struct twi_closing_message *message,
                               const struct twi_closing_answer *answer) {
    struct twi_close_election *election = message->election;
    bool answered = answer->kind != TWI_CLOSING_REPLY_RESEND && answer->kind != TWI_CLOSING_REPLY_REFUSED;
    int64_t now_ms = engine->turn.mono_ms;
    bool of_names = is_of_names(message->verb);
    if (election != NULL) election->in_flight = false;
    if (election != NULL && election->state == TWI_ELECTION_OVER) {
        free_election(election);
        election = NULL;
    }
    if (answered && !of_names) take_reply_time(message->family, answer);
    if (message->election == NULL) {
        take_family_answer(message->family, message, answer->kind, answered);
    } else if (election != NULL && answered) {
        take_closer_answer(election, message, answer, now_ms);
    } else if (election != NULL) {
        election->at_ms = now_ms + (answer->kind == TWI_CLOSING_REPLY_REFUSED ? REFUSED_MS : AGAIN_MS);
        if (message->verb == TWI_CLOSING_SEND_LIST && election->state == TWI_ELECTION_LIST)
            election->cursor = election->page;
        if (of_names && has_sent(election, message)) take_set_failure(engine, election);
        if (answer->kind == TWI_CLOSING_REPLY_REFUSED) take_names_refusal(election, message, now_ms);
    }
    if (answer->kind == TWI_CLOSING_REPLY_REFUSED && !of_names)
        message->family->turn.closing.at_ms = now_ms + REFUSED_MS;
}

/* ---- leaving ---- */

bool twi_closing_is_busy(const struct tw_family *family) {
    const struct twi_family_close_state *closing = &family->turn.closing;
    if (closing->in_flight || closing->kept_in_flight || closing->elections != NULL) return true;
    return closing->known && !closing->left && twi_load_relaxed(&family->engine->peers.is_connected);
}

bool twi_closing_is_over(tw_engine *engine) {
    if (engine->remote.sync == NULL || !twi_load_relaxed(&engine->peers.is_connected)) return true;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.specials); family != NULL;
         family = twi_load_acquire(&family->entry.next_special))
        if (family->kind.closes_once && !family->turn.closing.left &&
            (family->turn.closing.known || family->turn.closing.in_flight))
            return false;
    return true;
}
