/* closing_reply.c -- the replies of Redis to the messages of elections (closing.h): applies each to its window.
 * Always true: a reply is applied only in the state that sent the request. A reply that comes after its election has
 * left that state is ignored. */
#include "engine/turn/closing.h"

#include "engine/turn/closing_election.h"
#include "engine/core/agenda.h"
#include "engine/core/window_map.h"

#include <stdio.h>
#include <string.h>

/* Redis may request a longer interval; the script takes a pause of 2.5 intervals for an outage */
#define HEARTBEAT_MS 1000
#define EVERY_MAX_MS TW_HOUR
#define AGAIN_MS 200
#define OTHER_MS 1000
#define REFUSED_MS 5000
#define PASSED_MS 5000  /* other engines have the first choice for this time */
#define ADOPTED_MS 3000 /* how soon an engine asks again for a window in which it has not counted */

/* ---- names ---- */

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
        twi_close_election_lack(election, "names of keys that were counted there were lost in Redis");
        return;
    }
    if (twi_closing_keys_add(engine, &election->foreign, name) || election->is_short) return;
    election->is_short = true;
    twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_MEMORY,
                 "no memory for all keys that other engines counted in a window of family \"%s\"",
                 election->generation->family->options.name);
}

/* ---- replies about the family ---- */

/* With many engines, Redis requests longer intervals. */
static int64_t heartbeat_ms(const struct tw_family *family) {
    return family->turn.closing.every_ms > HEARTBEAT_MS ? family->turn.closing.every_ms : HEARTBEAT_MS;
}
static int64_t in_a_crowd(const struct tw_family *family, int64_t ms) {
    return heartbeat_ms(family) > HEARTBEAT_MS && ms < heartbeat_ms(family) / 2 ? heartbeat_ms(family) / 2 : ms;
}

/* Redis may have lost the reports about the window. */
static void forget_listed(void *ctx, struct twi_generation *generation) {
    (void)ctx;
    generation->turn.closing.names_recorded = generation->turn.closing.is_listed = generation->turn.closing.is_held =
        false;
    generation->turn.closing.names_doubted = true;
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
    closing->unanswered = !answered;
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

/* ---- replies about a window ---- */

/* Another engine has closed the window without this engine's last counts, and this engine has no hook to report them
 * to. */
static void note_late(struct twi_close_election *election) {
    if (election->is_noted) return;
    election->is_noted = true;
    twi_closing_note_unreported(election->generation,
                                "counts came after another engine had closed it, and this engine has no hook");
}

/* Called when this engine no longer claims the window. */
static void take_pass_answer(struct twi_close_election *election, int64_t now_ms) {
    twi_check(election->state == TWI_ELECTION_PASS);
    struct twi_generation *generation = election->generation;
    if (election->tags != NULL && election->tags->pause_ms != 0) {
        bool listed = election->listed; /* if it was not listed, the other engines need the names meanwhile */
        twi_close_election_enter(election, listed ? TWI_ELECTION_CLAIM : TWI_ELECTION_LIST,
                                 listed ? twi_close_election_claim_at_ms(generation) : now_ms);
        election->tags->pause_ms = 0;
        return;
    }
    twi_close_election_enter(election, TWI_ELECTION_CLAIM, now_ms + PASSED_MS);
    if (!twi_load_relaxed(&generation->family->requests.close_requested)) return;
    twi_closing_note_unreported(
        generation, "its hook returned false until the family had to close; another engine's hook may accept it");
    generation->turn.hook_done = true;
    twi_close_election_end(election);
}

static bool is_reading(const struct twi_close_election *election) {
    return election->state == TWI_ELECTION_READ || election->state == TWI_ELECTION_FETCH;
}

static void begin_reading(struct twi_close_election *election, int64_t now_ms) {
    twi_check(election->state != TWI_ELECTION_OVER);
    twi_close_election_enter(election, TWI_ELECTION_READ, now_ms);
    (void)snprintf(election->scan, sizeof election->scan, "0");
    if (election->tags != NULL) election->tags->found = (struct twi_closing_groups){{0}};
}

static void chosen(struct twi_close_election *election, const struct twi_closing_message *message, int64_t now_ms) {
    twi_check(message->election == election);
    election->claim_ms = message->sent_ms + message->life_ms;
    int64_t renew_ms = now_ms + message->life_ms / 3;
    if (election->tags != NULL) election->tags->renew_ms = renew_ms;
    if (election->state != TWI_ELECTION_CLAIM) { /* renewed */
        election->at_ms = is_reading(election) ? now_ms : renew_ms;
        return;
    }
    election->chosen_ms = now_ms;
    election->through = true;
    election->listed = election->listed || election->tags == NULL;
    begin_reading(election, now_ms);
}

/* The window is delayed until all names are in Redis. By tag, an engine that had claimed it before delays nobody: the
 * next closing reads all groups, and then this engine needs no other. */
static void begin_list(struct twi_close_election *election, int64_t now_ms) {
    twi_check(election->state != TWI_ELECTION_OVER);
    if (election->tags != NULL)
        twi_close_election_enter(election, TWI_ELECTION_LIST, now_ms);
    else
        twi_close_election_record(election, now_ms);
}

/* Returns how soon to ask again for a window that other engines delay or have claimed. */
static int64_t pause_ms(const struct twi_close_election *election, enum twi_closing_kind kind) {
    const struct twi_generation *generation = election->generation;
    if (generation->turn.closing.is_adopted && !generation->has_cells) return ADOPTED_MS;
    return kind == TWI_CLOSING_REPLY_OTHER ? OTHER_MS : AGAIN_MS;
}

static void take_claim_answer(struct twi_close_election *election, const struct twi_closing_message *message,
                              enum twi_closing_kind kind, int64_t now_ms) {
    twi_check(message->election == election);
    election->left_to_others = kind == TWI_CLOSING_REPLY_OTHER;
    if (kind == TWI_CLOSING_REPLY_YOU) {
        chosen(election, message, now_ms);
        return;
    }
    if (kind == TWI_CLOSING_REPLY_LIST) {
        begin_list(election, now_ms);
        return;
    }
    int64_t later_ms = in_a_crowd(election->generation->family, pause_ms(election, kind));
    if (election->tags == NULL && !election->through) {
        election->listed = election->through = true;
        if (kind == TWI_CLOSING_REPLY_WAIT) later_ms = 0; /* the others may have waited for this engine alone */
    }
    twi_close_election_enter(election, TWI_ELECTION_CLAIM, now_ms + later_ms);
}

static void take_last_answer(struct twi_close_election *election, enum twi_closing_kind kind, int64_t now_ms) {
    if (kind == TWI_CLOSING_REPLY_YOU) {
        begin_reading(election, now_ms);
    } else {
        election->generation->turn.hook_done = true; /* other engines continue with the window */
        twi_close_election_end(election);
    }
}

static void begin_totals(struct twi_close_election *election, int64_t now_ms) {
    twi_check(election->state != TWI_ELECTION_OVER && election->totals_ms <= now_ms);
    const struct twi_generation *generation = election->generation;
    bool needs_names = (generation->turn.closing.is_adopted && !generation->has_cells) ||
                       (election->tags == NULL && generation->turn.closing.names_recorded);
    if (needs_names && !election->has_names)
        twi_close_election_lack(election, "it has counts, and Redis has no name of a key");
    election->totals_ms = now_ms;
    twi_close_election_enter(election, TWI_ELECTION_TOTALS, now_ms);
}

/* Reads the names of the next group from the beginning. If there is no next group, all names are read. */
static void fetch_next(struct twi_close_election *election, int64_t now_ms) {
    twi_check(election->tags != NULL);
    if (!twi_closing_tags_next(election->tags)) {
        begin_totals(election, now_ms);
        return;
    }
    twi_close_election_enter(election, TWI_ELECTION_FETCH, now_ms);
    (void)snprintf(election->scan, sizeof election->scan, "0");
}

static void take_read_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                             int64_t now_ms) {
    bool fetches = election->state == TWI_ELECTION_FETCH;
    if (answer->kind != TWI_CLOSING_REPLY_YOU) {
        twi_close_election_enter(election, TWI_ELECTION_CLAIM, now_ms);
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

/* Removes the sets of the next group. If there is no next group, all sets are removed. */
static void drop_next(struct twi_close_election *election, int64_t now_ms) {
    twi_check(election->tags != NULL);
    struct twi_closing_tags *tags = election->tags;
    if (twi_closing_tags_next(tags)) {
        twi_close_election_enter(election, TWI_ELECTION_DROP, now_ms);
    } else if (tags->relists) {
        twi_closing_tags_reset(tags);
        twi_close_election_enter(election, TWI_ELECTION_LIST, now_ms);
    } else if (election->generation->turn.hook_done) {
        twi_close_election_end(election);
    } else {
        twi_close_election_enter(election, TWI_ELECTION_CLAIM, now_ms);
    }
}

/* Returns true if the reply to this message belongs to the present state of the election. */
static bool has_sent(const struct twi_close_election *election, const struct twi_closing_message *message) {
    return twi_close_election_verb(election) == message->verb && !twi_close_election_is_silent(election);
}

/* Redis has recorded that the window is closed. If counts came meanwhile (LATE), the window is closed again, by the
 * engine that wins the next claim. If names are grouped by tag, the sets may be dropped only if new names go to the
 * sets of the next round. */
static void take_done_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                             int64_t now_ms) {
    struct twi_generation *generation = election->generation;
    bool late = answer->kind == TWI_CLOSING_REPLY_LATE;
    generation->turn.hook_done = !late;
    if (!late) twi_close_election_keep(generation->family, election->start_ms);
    if (election->tags != NULL && answer->round > election->tags->round) {
        election->tags->reads_all = false;
        twi_closing_tags_do_found(election->tags, generation->family);
        drop_next(election, now_ms);
    } else if (late) {
        twi_close_election_enter(election, TWI_ELECTION_CLAIM, now_ms);
    } else {
        twi_close_election_end(election);
    }
}

static void take_index_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                              int64_t now_ms) {
    twi_check(election->tags != NULL);
    struct twi_closing_tags *tags = election->tags;
    election->at_ms = now_ms;
    if (election->state == TWI_ELECTION_LIST) {
        twi_closing_tags_reset(tags);
        tags->round = answer->round;
        twi_close_election_enter(election, TWI_ELECTION_ADD, now_ms);
    } else if (answer->round != tags->round) { /* the window was closed meanwhile, so these names come too late */
        twi_closing_tags_do_own(tags);
        tags->relists = true;
        drop_next(election, now_ms);
    } else {
        twi_closing_tags_confirmed(tags);
        if (!twi_closing_tags_next(tags)) twi_close_election_end_list(election);
    }
}

static void take_list_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                             int64_t now_ms) {
    election->at_ms = now_ms;
    if (answer->kind == TWI_CLOSING_REPLY_LATE && election->lists_only) note_late(election);
    if (election->tags != NULL)
        take_index_answer(election, answer, now_ms);
    else if (answer->kind == TWI_CLOSING_REPLY_LIST)
        begin_list(election, now_ms);
    else
        twi_close_election_end_list(election);
}

/* A set of names has executed the request. */
static void take_set_answer(struct twi_close_election *election, const struct twi_closing_answer *answer,
                            int64_t now_ms) {
    twi_check(election->tags != NULL);
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

/* A set of names does not reply. After the closing wait the election continues without it. */
static void take_set_failure(tw_engine *engine, struct twi_close_election *election) {
    twi_check(election->tags != NULL);
    struct twi_closing_tags *tags = election->tags;
    int64_t now_ms = engine->turn.mono_ms;
    if (tags->failing_ms == 0) tags->failing_ms = now_ms != 0 ? now_ms : 1;
    if (now_ms - tags->failing_ms < engine->here->remote.tuning.closing_wait_ms) return;
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

/* Redis refuses the only set of names, perhaps because another client has written a value under its name. After the
 * closing wait the election continues without the set. */
static void take_names_refusal(struct twi_close_election *election, const struct twi_closing_message *message,
                               int64_t now_ms) {
    twi_check(message->election == election);
    bool ends = election->state == TWI_ELECTION_CLAIM && message->recorded;
    if (election->tags != NULL || !has_sent(election, message) || !(ends || election->state == TWI_ELECTION_READ))
        return;
    if (election->failing_ms == 0) election->failing_ms = now_ms != 0 ? now_ms : 1;
    if (now_ms - election->failing_ms < election->generation->family->engine->here->remote.tuning.closing_wait_ms)
        return;
    election->failing_ms = 0;
    twi_close_election_lack(election, "Redis refuses the set of their names");
    if (ends)
        election->generation->turn.closing.names_recorded = false;
    else
        begin_totals(election, now_ms);
}

static void take_closer_answer(struct twi_close_election *election, const struct twi_closing_message *message,
                               const struct twi_closing_answer *answer, int64_t now_ms) {
    twi_check(message->election == election && !election->in_flight);
    if (!has_sent(election, message) || answer->kind == TWI_CLOSING_REPLY_NEW) return;
    if (message->verb == TWI_CLOSING_SEND_DONE) {
        take_done_answer(election, answer, now_ms);
        return;
    }
    if (twi_closing_is_of_names(message->verb)) {
        take_set_answer(election, answer, now_ms);
        return;
    }
    if (answer->kind == TWI_CLOSING_REPLY_DONE) {
        twi_close_election_end_by_others(election);
        return;
    }
    election->failing_ms = 0;
    if (answer->kind == TWI_CLOSING_REPLY_YOU && message->verb != TWI_CLOSING_SEND_READ) {
        election->is_repeat = answer->is_repeat;
        if (election->tags != NULL) election->tags->round = answer->round;
        if (election->tags != NULL) election->tags->reads_all = election->tags->reads_all || answer->reads_all;
        if (answer->lacks_names)
            twi_close_election_lack(election,
                                    "counts were announced after it had been closed, and their process is gone");
    }
    switch (message->verb) {
    case TWI_CLOSING_SEND_CLAIM: take_claim_answer(election, message, answer->kind, now_ms); break;
    case TWI_CLOSING_SEND_LAST: take_last_answer(election, answer->kind, now_ms); break;
    case TWI_CLOSING_SEND_READ: take_read_answer(election, answer, now_ms); break;
    case TWI_CLOSING_SEND_LIST: take_list_answer(election, answer, now_ms); break;
    case TWI_CLOSING_SEND_PARTIAL: twi_close_election_end(election); break;
    case TWI_CLOSING_SEND_PASS: take_pass_answer(election, now_ms); break;
    default: break;
    }
}

void twi_port_closing_answered(tw_engine *engine, const struct twi_closing_message *message,
                               const struct twi_closing_answer *answer) {
    twi_check(message->family != NULL && message->family->engine == engine);
    struct twi_close_election *election = message->election;
    struct tw_family *family = message->family;
    bool answered = answer->kind != TWI_CLOSING_REPLY_RESEND && answer->kind != TWI_CLOSING_REPLY_REFUSED;
    int64_t now_ms = engine->turn.mono_ms;
    bool of_names = twi_closing_is_of_names(message->verb);
    if (election != NULL) election->in_flight = false;
    if (election != NULL && election->state == TWI_ELECTION_OVER) {
        twi_close_election_free(election);
        election = NULL;
    }
    if (answered && !of_names) take_reply_time(family, answer);
    if (message->election == NULL) {
        take_family_answer(family, message, answer->kind, answered);
    } else if (election != NULL && answered) {
        take_closer_answer(election, message, answer, now_ms);
    } else if (election != NULL) {
        election->at_ms = now_ms + (answer->kind == TWI_CLOSING_REPLY_REFUSED ? REFUSED_MS : AGAIN_MS);
        if (of_names && has_sent(election, message)) take_set_failure(engine, election);
        if (answer->kind == TWI_CLOSING_REPLY_REFUSED) take_names_refusal(election, message, now_ms);
    }
    if (answer->kind == TWI_CLOSING_REPLY_REFUSED && !of_names) family->turn.closing.at_ms = now_ms + REFUSED_MS;
    twi_closing_appoint(family);
    if (message->election != NULL || message->verb == TWI_CLOSING_SEND_LEAVE) twi_agenda_notify(family);
}
