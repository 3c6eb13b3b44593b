/* closing.c -- see closing.h: the functions of an election that need its window, and the window's messages to its
 * election.
 * Always true: the hook is called, and its result is used, only in the state CALL_HOOK, or if no reply of Redis is
 * expected in time. */
#include "engine/turn/closing.h"

#include "engine/core/agenda.h"
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"
#include "engine/turn/closing_election.h"
#include "engine/turn/windows.h"

#include <stdio.h>
#include <string.h>

/* ---- the steps of a window ---- */

void twi_closing_restart(struct twi_generation *generation) {
    twi_check(generation->family != NULL);
    generation->turn.closing.names_recorded = false;
    generation->turn.closing.names_doubted = true;
    struct twi_close_election *election = twi_close_election_of(generation);
    if (election == NULL || election->state == TWI_ELECTION_DONE || election->state == TWI_ELECTION_PARTIAL ||
        election->state == TWI_ELECTION_UNSENT ||
        (election->state == TWI_ELECTION_DROP && election->generation->turn.hook_done))
        return;
    bool claims = election->tags != NULL && !election->partial && election->state >= TWI_ELECTION_READ &&
                  election->state <= TWI_ELECTION_CALL_HOOK;
    twi_close_election_begin_again(election);
    if (claims) {
        /* The other engines may have lost counts there, too. While the claim is valid, Redis does not examine the
         * windows that the other engines delay. */
        election->tags->pause_ms = generation->family->engine->turn.mono_ms;
        twi_close_election_enter(election, TWI_ELECTION_PASS, election->tags->pause_ms);
    }
    twi_closing_appoint(generation->family);
}

static void doubt_names(void *ctx, struct twi_generation *generation) {
    const tw_engine *engine = ctx;
    struct twi_close_election *election = twi_close_election_of(generation);
    generation->turn.closing.names_doubted = true;
    bool waits = election != NULL && election->tags == NULL &&
                 (election->state == TWI_ELECTION_CLAIM || election->state == TWI_ELECTION_RECORD);
    if (!waits) return;
    twi_close_election_record(election, engine->turn.mono_ms);
    twi_closing_appoint(generation->family);
}

void twi_closing_doubt_names(tw_engine *engine) {
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        if (family->kind.closes_once) twi_window_visit(family, doubt_names, engine);
}

bool twi_closing_is_repeat(const struct twi_generation *generation) {
    const struct twi_close_election *election = twi_close_election_of(generation);
    return election != NULL && election->is_repeat;
}

void twi_closing_note_unreported(struct twi_generation *generation, const char *why) {
    twi_check(why != NULL);
    struct tw_family *family = generation->family;
    twi_port_count(family->engine, windows_untold, 1);
    twi_port_log(family->engine, TW_LOG_WARNING, TW_EVENT_CLOSED,
                 "no hook was called for a window of family \"%s\": %s", family->options.name, why);
}

/* Called when no count is unsent any more. Returns true if no count was added since then, and no name is lacking. */
static bool is_paid(struct twi_close_election *election) {
    twi_check(election->state == TWI_ELECTION_UNSENT);
    twi_check(twi_generation_is_drained(election->generation));
    bool is_whole = !twi_close_election_lacks_names(election);
    if (election->generation->turn.acked_units == election->acked_units && is_whole) {
        twi_close_election_end_closed(election);
        return true;
    }
    election->at_ms = election->generation->family->engine->turn.mono_ms;
    twi_close_election_begin_again(election);
    return false;
}

void twi_closing_free(struct tw_family *family) {
    while (family->turn.closing.elections != NULL) {
        struct twi_close_election *election = family->turn.closing.elections;
        family->turn.closing.elections = election->next;
        twi_closing_keys_end(&election->foreign);
        twi_close_election_free(election);
    }
}

void twi_closing_inherit(tw_engine *engine) {
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next)) {
        if (!family->kind.closes_once) continue;
        struct twi_family_close_state *closing = &family->turn.closing;
        closing->elections = NULL;
        closing->foreign = NULL;
        closing->in_flight = closing->kept_in_flight = false;
        closing->at_ms = engine->turn.mono_ms;
    }
}

bool twi_closing_gives_up(const tw_engine *engine, const struct twi_generation *generation) {
    return twi_closing_is_away(engine, generation) || twi_closing_had_its_time(engine, generation);
}

static bool request_total_of(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct twi_generation *generation = ctx;
    twi_dirty_owe(generation->family->engine, generation, cell, meta);
    return true;
}

/* Requests every total. Returns true if they have arrived. */
static bool has_totals(struct twi_arena *arena, struct twi_close_election *election, bool drained, uint32_t *work) {
    twi_check(election->state == TWI_ELECTION_TOTALS || election->state == TWI_ELECTION_RECORD);
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
    twi_check(election->state == TWI_ELECTION_CALL_HOOK);
    int64_t left_ms = election->claim_ms - engine->turn.mono_ms;
    if (!election->partial && left_ms < engine->here->remote.tuning.closing_life_ms / 2) return TWI_CLOSING_WAIT;
    return election->is_short ? TWI_CLOSING_LOCAL : TWI_CLOSING_CALL_HOOK;
}

/* Returns true if the totals have not arrived within the closing wait. */
static bool is_late(const tw_engine *engine, const struct twi_close_election *election) {
    return engine->turn.mono_ms - election->totals_ms >= engine->here->remote.tuning.closing_wait_ms;
}

/* The names come with the requests for the totals. If these have no reply in time, it delays nobody any longer.
 * Once it has no unsent count, it begins again (is_paid()). */
static enum twi_closing await_names(tw_engine *engine, struct twi_close_election *election, bool drained,
                                    uint32_t *work) {
    struct twi_generation_closing *closing = &election->generation->turn.closing;
    bool have_come = has_totals(&engine->arena, election, drained, work);
    if (!have_come && !is_late(engine, election)) return TWI_CLOSING_WAIT;
    if (have_come) closing->names_doubted = false;
    closing->names_again = false;
    election->listed = true;
    twi_close_election_enter(election, TWI_ELECTION_CLAIM, twi_close_election_claim_at_ms(election->generation));
    twi_closing_appoint(election->generation->family);
    return TWI_CLOSING_WAIT;
}

static enum twi_closing await_totals(tw_engine *engine, struct twi_close_election *election, bool drained,
                                     uint32_t *work) {
    twi_check(election->state == TWI_ELECTION_TOTALS);
    if (!has_totals(&engine->arena, election, drained, work) && !is_late(engine, election)) return TWI_CLOSING_WAIT;
    if (election->tags != NULL && !election->partial && engine->peers.closing_pause_ms > engine->turn.mono_ms) {
        election->tags->pause_ms =
            engine->peers.closing_pause_ms; /* by then, engines with unsent counts for that store delay their windows */
        twi_close_election_enter(election, TWI_ELECTION_PASS, engine->turn.mono_ms);
        return TWI_CLOSING_WAIT;
    }
    election->state = TWI_ELECTION_CALL_HOOK; /* `at_ms` stays, so the claim is renewed at the same time as before */
    election->is_short = election->is_short || !drained;
    return call_hook(engine, election);
}

/* Called if no more replies are expected in time. */
static enum twi_closing give_up(struct twi_close_election *election, bool left_to_others) {
    twi_check(election->state != TWI_ELECTION_OVER);
    if (!election->lists_only && !left_to_others && !election->generation->turn.hook_done) return TWI_CLOSING_LOCAL;
    election->generation->turn.hook_done = true;
    twi_close_election_end(election);
    return TWI_CLOSING_OVER;
}

enum twi_closing twi_closing_step(tw_engine *engine, struct twi_generation *generation, bool drained, uint32_t *work) {
    twi_check(generation->family->kind.closes_once);
    twi_check(twi_load_relaxed(&generation->phase) >= TWI_SEALED);
    struct twi_close_election *election = twi_close_election_of(generation);
    if (election == NULL && generation->turn.hook_done) return TWI_CLOSING_OVER;
    if (election == NULL && (election = twi_close_election_make(engine, generation)) == NULL) return TWI_CLOSING_WAIT;
    if (election->state == TWI_ELECTION_UNSENT) {
        if (engine->turn.hooks_partial) return give_up(election, true);
        return drained && is_paid(election) ? TWI_CLOSING_OVER : TWI_CLOSING_WAIT;
    }
    if (engine->turn.hooks_partial) return give_up(election, election->left_to_others);
    if (twi_closing_is_away(engine, generation)) return give_up(election, false);
    if (election->state == TWI_ELECTION_RECORD) return await_names(engine, election, drained, work);
    if (election->state == TWI_ELECTION_TOTALS) return await_totals(engine, election, drained, work);
    return election->state == TWI_ELECTION_CALL_HOOK ? call_hook(engine, election) : TWI_CLOSING_WAIT;
}

void twi_closing_hook_answered(tw_engine *engine, struct twi_generation *generation, bool reported) {
    twi_check(twi_close_election_of(generation) != NULL);
    struct twi_close_election *election = twi_close_election_of(generation);
    bool claimed = election->state == TWI_ELECTION_CALL_HOOK && !election->partial;
    if (reported) {
        generation->turn.hook_done = true;
        if (claimed || (election->state == TWI_ELECTION_CALL_HOOK && !engine->turn.hooks_partial))
            twi_close_election_enter(election, claimed ? TWI_ELECTION_DONE : TWI_ELECTION_PARTIAL,
                                     engine->turn.mono_ms);
        else
            twi_close_election_end(election);
    } else if (claimed && engine->turn.mono_ms - election->chosen_ms >= engine->here->remote.tuning.closing_wait_ms) {
        twi_close_election_enter(election, TWI_ELECTION_PASS, engine->turn.mono_ms);
    }
}

void twi_closing_refused(tw_engine *engine, struct twi_generation *generation) {
    twi_check(twi_close_election_of(generation) != NULL);
    struct twi_close_election *election = twi_close_election_of(generation);
    if (election->state == TWI_ELECTION_CALL_HOOK && !election->partial && !twi_closing_is_away(engine, generation)) {
        twi_close_election_enter(election, TWI_ELECTION_PASS, engine->turn.mono_ms);
        return;
    }
    twi_closing_note_unreported(generation, "its hook returned false until the family had to close");
    generation->turn.hook_done = true;
    twi_close_election_end(election);
}

/* ---- leaving ---- */

bool twi_closing_is_busy(const struct tw_family *family) {
    const struct twi_family_close_state *closing = &family->turn.closing;
    if (closing->in_flight || closing->kept_in_flight || closing->elections != NULL) return true;
    return closing->known && !closing->left && twi_load_relaxed(&family->engine->peers.is_connected);
}

bool twi_closing_is_over(tw_engine *engine) {
    if (engine->here->remote.sync == NULL || !twi_load_relaxed(&engine->peers.is_connected)) return true;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next))
        if (family->kind.closes_once && !family->turn.closing.left &&
            (family->turn.closing.known || family->turn.closing.in_flight))
            return false;
    return true;
}

/* ---- closing send ----
 * the messages of elections (closing.h): decides what to send, and when.
 * sync/message/closing.c encodes them for the wire.
 * Always true: each election has at most one message under way. The same is true for the other messages of a family. */

#define FORGET_MS \
    (10 * TW_MINUTE) /* a window is forgotten if it could have been closed this long ago and its keys have expired */
#define FLOOR_ALL (INT64_C(1) << 52)

static bool holds_up(struct twi_generation *generation) {
    uint32_t phase = twi_load_relaxed(&generation->phase);
    const struct twi_close_election *election = twi_close_election_of(generation);
    if (phase >= TWI_HISTORY) return false;
    if (election != NULL) return !election->through;
    if (generation->turn.hook_done)
        return phase != TWI_DRAINED && !twi_closing_had_its_time(generation->family->engine, generation);
    return phase != TWI_DRAINED || twi_generation_has_counted(generation);
}

/* The earliest ends in ascending order, and one extra end. If there are too many ends, the extra one is the floor.
 * Every window from the floor on counts as delayed. */
struct ends {
    int64_t floor_ms, at_ms[TWI_CLOSING_ENDS_MAX + 1];
    uint32_t count;
};

static void note_end(void *ctx, struct twi_generation *generation) {
    struct ends *ends = ctx;
    int64_t end_ms = generation->end_ms;
    if (end_ms > ends->floor_ms || !holds_up(generation)) return;
    uint32_t at = ends->count;
    if (at > TWI_CLOSING_ENDS_MAX) { /* the list is full, so the new end replaces the last one */
        at = TWI_CLOSING_ENDS_MAX;
        if (ends->at_ms[at] <= end_ms) return;
    } else {
        ends->count++;
    }
    for (; at > 0 && ends->at_ms[at - 1] > end_ms; at--) ends->at_ms[at] = ends->at_ms[at - 1];
    ends->at_ms[at] = end_ms;
}

/* A window that can still be opened ends after the floor. Another thread may have opened one before the clock or the
 * watermark reached the floor. The fence makes that window visible here. That thread looks at both again before it
 * counts (lookup.c). */
static void fill_heartbeat(struct tw_family *family, struct twi_closing_message *message) {
    twi_check(family->kind.closes_once);
    tw_engine *engine = family->engine;
    struct ends ends = {.floor_ms = twi_closing_is_ending(family) ? FLOOR_ALL
                                                                  : twi_family_over_by(family, engine->turn.now_ms)};
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
    message->life_ms = engine->here->remote.tuning.closing_life_ms;
    message->sent_ms = engine->turn.mono_ms;
    message->word_ms = engine->turn.now_ms;
}

static bool is_due(const struct twi_turn_state *turn, const struct twi_close_election *election) {
    return !election->in_flight && election->at_ms <= turn->mono_ms && !twi_close_election_is_silent(election);
}

/* If names are grouped by tag, they are in other stores, so reading them does not renew the claim. */
static bool must_renew(const struct twi_turn_state *turn, const struct twi_close_election *election) {
    bool reads = election->state == TWI_ELECTION_READ || election->state == TWI_ELECTION_FETCH;
    return reads && !election->partial && turn->mono_ms >= election->tags->renew_ms;
}

/* Puts the names into the message. Returns false if it cannot be sent now. */
static bool fill(struct twi_close_election *election, struct twi_closing_message *message) {
    twi_check(election->state != TWI_ELECTION_OVER);
    struct twi_closing_tags *tags = election->tags;
    if (tags == NULL) return true;
    message->round = tags->round;
    message->group = tags->group;
    if (election->state == TWI_ELECTION_ADD) {
        if (twi_closing_tags_fill(tags, election->generation, &election->cursor, message)) return true;
        if (!election->cursor.done) return false;
        twi_closing_tags_confirm(tags);
        twi_close_election_enter(election, TWI_ELECTION_CONFIRM, election->at_ms);
        message->verb = twi_close_election_verb(election);
    }
    if (election->state != TWI_ELECTION_CONFIRM || twi_closing_tags_fill_index(tags, message)) return true;
    twi_close_election_end_list(election); /* this engine counted no key */
    return false;
}

static bool message_of(tw_engine *engine, struct twi_close_election *election, struct twi_closing_message *message) {
    twi_check(election->generation->family->kind.closes_once);
    const struct twi_generation *generation = election->generation;
    message->name_count = 0;
    if (election->tags != NULL) election->tags->renews = must_renew(&engine->turn, election);
    message->verb = twi_close_election_verb(election);
    message->by_tag = election->tags != NULL;
    if (!fill(election, message)) return false;
    message->election = election;
    message->start_ms = generation->start_ms;
    message->end_ms = generation->end_ms;
    message->expiry_ms = generation->expiry_ms;
    message->flag = message->verb == TWI_CLOSING_SEND_READ ? !election->partial : election->listed;
    message->through = election->through;
    /* If names are grouped by tag, each round has separate sets. Batches use those of the first round. */
    message->recorded =
        generation->turn.closing.names_recorded && (election->tags == NULL || election->tags->round == 0);
    message->look_ms = twi_closing_due_ms(generation);
    memcpy(message->scan, election->scan, sizeof message->scan);
    fill_heartbeat(generation->family, message);
    election->in_flight = true;
    return true;
}

/* After Redis has forgotten data, sends the windows that are closed again. */
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

static int64_t forget_ms(const struct tw_family *family) {
    int64_t retention_ms = twi_load_relaxed(&family->policy.retention_ms);
    return twi_time_add(family->engine->turn.now_ms,
                        -twi_time_add(retention_ms != 0 ? retention_ms : 30 * TW_DAY, FORGET_MS));
}

static bool wants_to_leave(const struct tw_family *family) {
    return twi_closing_is_ending(family) && family->turn.closing.known && twi_family_has_reached(family, TWI_HISTORY);
}

static bool send_heartbeat(struct tw_family *family, struct twi_closing_message *message) {
    struct twi_family_close_state *closing = &family->turn.closing;
    bool leaves = wants_to_leave(family);
    if (closing->in_flight || closing->left) return false;
    if ((!leaves || closing->unanswered) && family->engine->turn.mono_ms < closing->at_ms) return false;
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

/* Returns when the family has a message to send. */
static int64_t due_at_ms(const struct tw_family *family) {
    const struct twi_family_close_state *closing = &family->turn.closing;
    int64_t due_ms = INT64_MAX;
    if (!closing->in_flight && !closing->left)
        due_ms = wants_to_leave(family) && !closing->unanswered ? family->engine->turn.mono_ms : closing->at_ms;
    if (closing->kept_repeat != 0 && !closing->kept_in_flight && closing->kept_at_ms < due_ms)
        due_ms = closing->kept_at_ms;
    for (const struct twi_close_election *election = closing->elections; election != NULL; election = election->next)
        if (!election->in_flight && !twi_close_election_is_silent(election) && election->at_ms < due_ms)
            due_ms = election->at_ms;
    return due_ms;
}

void twi_closing_appoint(struct tw_family *family) {
    twi_check(family->kind.closes_once);
    twi_appointment_set(&family->engine->agenda.closings, &family->agenda.special, due_at_ms(family));
}

/* An election without a message may enter its next state, so the loop looks twice. If a message needs more work or
 * memory than is left, it waits for a later turn. */
bool twi_port_closing(tw_engine *engine, struct twi_closing_message *message) {
    for (struct tw_family *family;
         (family = twi_appointment_take(&engine->agenda.closings, engine->turn.mono_ms)) != NULL;) {
        bool is_found = false;
        for (int looks = 0; looks < 2 && !is_found; looks++) is_found = message_for(engine, family, message);
        int64_t due_ms = due_at_ms(family), later_ms = engine->turn.mono_ms + 1;
        twi_appointment_set(&engine->agenda.closings, &family->agenda.special,
                            is_found || due_ms > later_ms ? due_ms : later_ms);
        if (is_found) return true;
    }
    return false;
}

size_t twi_port_closing_keys(const struct twi_closing_message *message, char (*keys)[TWI_OWN_NAME_MAX], size_t *sizes) {
    twi_check(message->family != NULL && message->family->kind.closes_once);
    const char *const what[] = {"closers", "closed", message->by_tag ? "groups" : "names", "windows"};
    const struct twi_key_template *template = &message->family->template;
    char name[TWI_REDIS_KEY_MAX], set[16] = "names";
    if (twi_closing_is_of_names(message->verb)) {
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
    return engine->agenda.closings != NULL ? engine->agenda.closings->at_ms : INT64_MAX;
}
