/* closing.c -- see closing.h: the functions of an election that need its window, and the window's messages to its
 * election.
 * Always true: the hook is called, and its result is used, only in the state CALL_HOOK, or if no reply of Redis is
 * expected in time. */
#include "engine/turn/closing.h"

#include "engine/turn/closing_send.h"
#include "engine/turn/closing_tags.h"
#include "engine/core/window_map.h"
#include "engine/count/dirty.h"

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
