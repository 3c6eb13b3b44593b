/* closing_election.c -- see closing_election.h. */
#include "engine/turn/closing_election.h"

#include "engine/turn/closing_tags.h"
#include "engine/turn/closing_windows.h"

#include <stdlib.h>

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
