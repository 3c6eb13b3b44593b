/* verdict.c -- see verdict.h. */
#include "sync/ask/verdict.h"

#include <stdlib.h>

#include "engine/base/check.h"
#include "sync/ask/way.h"
#include "sync/batch/reply.h"
#include "sync/message/refusal.h"

#define PAUSE_MS 5 /* before a call goes again whose reply left all open; it doubles */
#define PAUSE_MAX_MS 200
#define CANCEL_AGAIN_MS 200 /* before a cancel goes again that was refused */
#define RENAMES_MAX 3       /* of one call */

/* ---- callers ----------------------------------------------------------------------------------------------------- */

/* Returns the caller that waited, or NULL if there is none. From here on the call has no caller. */
static struct twi_lane_caller claim(struct twi_dispatcher *dispatcher, struct twi_lane *lane) {
    struct twi_lane_caller caller = lane->caller;
    if (!twi_lanes_claim(&dispatcher->lanes, lane)) caller.answered = NULL;
    twi_check(twi_load_relaxed(&lane->heard) == 0);
    return caller;
}

static void tell(struct twi_dispatcher *dispatcher, const struct twi_lane_caller *caller,
                 enum twi_request_outcome outcome) {
    struct twi_answer *answer = &dispatcher->answer;
    if (outcome != TWI_REQUEST_DONE) answer->value_count = 0;
    if (outcome != TWI_REQUEST_UNKNOWN) answer->is_crowd = false;
    twi_check(!answer->is_kept || outcome == TWI_REQUEST_DONE);
    twi_check(answer->value_count <= TWI_SCRIPT_VALUES_MAX);
    answer->outcome = outcome;
    if (caller->answered != NULL) {
        TWI_ASK_COUNT(dispatcher, ask_active, -1);
        TWI_ASK_COUNT(dispatcher, ask_ms, twi_port_mono_ms(dispatcher->rules.engine) - caller->began_ms);
        caller->answered(caller->ctx, answer);
    }
    free(answer->long_text);
    answer->long_text = NULL;
    answer->is_crowd = answer->is_kept = answer->is_copied = false;
}

/* The lane is in no list. */
static void finish(struct twi_dispatcher *dispatcher, struct twi_lane *lane, enum twi_request_outcome outcome) {
    twi_check(lane->state == TWI_LANE_QUEUED || lane->state == TWI_LANE_SENT);
    struct twi_lane_caller caller = claim(dispatcher, lane);
    twi_lanes_release(&dispatcher->lanes, lane);
    tell(dispatcher, &caller, outcome);
}

/* Without a caller, too, it goes out until it is answered: as a cancel, or as it is. */
static bool is_repeated(const struct twi_lane *lane) {
    return lane->tries.numbered || lane->tries.repeats;
}

/* It is such a call, and its caller has that answer, or has gone. */
static bool is_left(const struct twi_lane *lane) {
    return lane->state == TWI_LANE_CANCELLING || (lane->state == TWI_LANE_UNSETTLED && lane->tries.repeats);
}

/* ---- what is left in Redis --------------------------------------------------------------------------------------- */

static void note_unsettled(struct twi_dispatcher *dispatcher, struct twi_lane *lane, enum twi_lane_state state) {
    twi_check(state == TWI_LANE_UNSETTLED || state == TWI_LANE_CANCELLING);
    twi_check(lane->state != TWI_LANE_FREE);
    bool was = lane->state == TWI_LANE_UNSETTLED || lane->state == TWI_LANE_CANCELLING;
    lane->state = state;
    if (was) return;
    dispatcher->unsettled++;
    dispatcher->unsettled_units += lane->tries.units;
    if (lane->tries.repeats) (void)twi_add_relaxed(&dispatcher->lanes.giving, 1); /* a figure */
    twi_check(dispatcher->unsettled <= dispatcher->lanes.most);
    TWI_ASK_COUNT(dispatcher, ask_unsettled, 1);
}

/* The call has no charge left in Redis, or its charge cannot be removed. */
static void settle(struct twi_dispatcher *dispatcher, struct twi_lane *lane) {
    twi_check(lane->state != TWI_LANE_FREE && twi_load_relaxed(&lane->heard) == 0);
    bool was = lane->state == TWI_LANE_UNSETTLED || lane->state == TWI_LANE_CANCELLING;
    if (was) dispatcher->unsettled--;
    if (was) dispatcher->unsettled_units -= lane->tries.units;
    if (was) TWI_ASK_COUNT(dispatcher, ask_unsettled, -1);
    if (was && lane->tries.repeats) (void)twi_sub_relaxed(&dispatcher->lanes.giving, 1);
    if (lane->tries.unknown && is_repeated(lane)) TWI_ASK_COUNT(dispatcher, asks_settled, 1);
    twi_lanes_release(&dispatcher->lanes, lane);
}

/* The charge cannot be taken back. */
static void note_kept(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t units) {
    twi_check(is_left(lane) && units >= 0);
    TWI_ASK_COUNT(dispatcher, asks_forgotten, 1);
    TWI_ASK_COUNT(dispatcher, ask_units_kept, units);
    lane->tries.unknown = false;
}

/* No thread waits any more, and no reply is due. The lane is in no list. */
static void take_back(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    twi_check(twi_load_relaxed(&lane->heard) == 0);
    if (!is_repeated(lane)) {
        settle(dispatcher, lane);
        return;
    }
    note_unsettled(dispatcher, lane, TWI_LANE_CANCELLING);
    lane->tries.is_new = false; /* it waits, also while its server is left alone */
    (void)twi_way_find(dispatcher, lane, now_ms);
}

/* The outcome stays open, and the caller hears it. The lane is in no list. */
static void leave_open(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    struct twi_lane_caller caller = claim(dispatcher, lane);
    lane->tries.unknown = caller.answered != NULL;
    TWI_ASK_COUNT(dispatcher, asks_unknown, lane->tries.unknown);
    take_back(dispatcher, lane, now_ms);
    tell(dispatcher, &caller, TWI_REQUEST_UNKNOWN);
}

void twi_verdict_undo(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    twi_check(lane->state == TWI_LANE_KEPT && lane->tries.keeps);
    take_back(dispatcher, lane, now_ms);
}

/* ---- without a reply --------------------------------------------------------------------------------------------- */

void twi_verdict_away(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    twi_check(lane->state == TWI_LANE_QUEUED && !lane->tries.perhaps); /* no byte of it went out */
    TWI_ASK_COUNT(dispatcher, ask_away, 1);
    if (lane->tries.repeats)
        leave_open(dispatcher, lane, now_ms);
    else
        finish(dispatcher, lane, TWI_REQUEST_UNSENT);
}

bool twi_verdict_is_needless(const struct twi_lane *lane) {
    return lane->state == TWI_LANE_QUEUED && !lane->tries.perhaps && !lane->tries.repeats &&
           twi_load_relaxed(&lane->heard) == 0;
}

void twi_verdict_drop(struct twi_dispatcher *dispatcher, struct twi_lane *lane) {
    twi_check(lane->state == TWI_LANE_QUEUED && !lane->tries.perhaps);
    finish(dispatcher, lane, TWI_REQUEST_UNSENT);
}

void twi_verdict_crowded(struct twi_dispatcher *dispatcher, struct twi_lane *lane) {
    twi_check(lane->state == TWI_LANE_QUEUED && !lane->tries.perhaps);
    TWI_ASK_COUNT(dispatcher, ask_busy, 1);
    finish(dispatcher, lane, TWI_REQUEST_BUSY);
}

void twi_verdict_expired(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    twi_check(lane->state == TWI_LANE_SENT || lane->state == TWI_LANE_QUEUED);
    bool is_over = lane->caller.deadline_ms <= now_ms - dispatcher->late.all_ms;
    bool may_be_crowd = is_over && lane->link != NULL && !twi_load_relaxed(&dispatcher->stopped);
    bool is_crowd = may_be_crowd && !lane->detour.is_held && /* or its slot was served by nobody */
                    twi_link_serves(lane->link, &lane->caller, now_ms);
    bool is_counted = lane->state == TWI_LANE_QUEUED && (lane->tries.perhaps || is_crowd); /* dispatcher.c, or busy */
    TWI_ASK_COUNT(dispatcher, ask_timeouts, is_over && !is_counted);
    if (is_over && !is_counted && (lane->link == NULL || lane->link->phase != TWI_LINK_UP))
        twi_port_timed_out_unsent(dispatcher->rules.engine);
    dispatcher->answer.is_crowd = is_crowd;
    if (lane->state == TWI_LANE_SENT) { /* its reply is still due at the link */
        struct twi_lane_caller caller = claim(dispatcher, lane);
        lane->tries.unknown = caller.answered != NULL;
        TWI_ASK_COUNT(dispatcher, asks_unknown, lane->tries.unknown);
        note_unsettled(dispatcher, lane, TWI_LANE_UNSETTLED);
        tell(dispatcher, &caller, TWI_REQUEST_UNKNOWN);
        return;
    }
    twi_way_leave(dispatcher, lane);
    if (lane->tries.perhaps || lane->tries.repeats)
        leave_open(dispatcher, lane, now_ms);
    else if (is_crowd)
        twi_verdict_crowded(dispatcher, lane);
    else
        finish(dispatcher, lane, TWI_REQUEST_UNSENT);
}

bool twi_verdict_lost(struct twi_dispatcher *dispatcher, struct twi_lane *lane, bool is_out) {
    twi_check(lane->state != TWI_LANE_FREE && lane->state != TWI_LANE_QUEUED);
    struct twi_lane_tries *tries = &lane->tries;
    tries->perhaps = tries->perhaps || is_out;
    tries->whole = tries->asking = tries->asked = false;
    if (lane->state == TWI_LANE_SENT && twi_load_relaxed(&lane->heard) != 0) {
        lane->state = TWI_LANE_QUEUED;
        return true;
    }
    if (lane->state == TWI_LANE_SENT) { /* forgotten */
        (void)twi_lanes_claim(&dispatcher->lanes, lane);
        note_unsettled(dispatcher, lane, TWI_LANE_UNSETTLED);
    }
    bool is_owed = is_repeated(lane) && (lane->state == TWI_LANE_CANCELLING || tries->perhaps || tries->repeats);
    if (is_owed)
        lane->state = TWI_LANE_CANCELLING;
    else
        settle(dispatcher, lane);
    return is_owed;
}

void twi_verdict_refuse_all(struct twi_dispatcher *dispatcher, struct twi_lane_list *waiting) {
    struct twi_lane_list stay = {0};
    for (struct twi_lane *lane; (lane = waiting->first) != NULL;) {
        twi_lane_list_remove(waiting, lane);
        if (lane->state == TWI_LANE_QUEUED && !lane->tries.perhaps && !lane->tries.repeats)
            finish(dispatcher, lane, TWI_REQUEST_REFUSED);
        else
            twi_lane_list_add_first(&stay, lane);
    }
    *waiting = stay;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

/* This copy was not executed, and the call can go again. */
static bool goes_again(struct twi_dispatcher *dispatcher, struct twi_lane *lane) {
    twi_check(lane->state != TWI_LANE_FREE && lane->state != TWI_LANE_QUEUED);
    if (lane->state == TWI_LANE_SENT) {
        lane->state = TWI_LANE_QUEUED;
        return true;
    }
    bool is_owed = lane->tries.repeats || (lane->tries.perhaps && lane->tries.numbered);
    if (lane->state == TWI_LANE_UNSETTLED && !is_owed) {
        settle(dispatcher, lane);
        return false;
    }
    lane->state = TWI_LANE_CANCELLING;
    return true;
}

static void note_spoilt(struct twi_dispatcher *dispatcher, const struct twi_lane *lane, const char *why,
                        int64_t now_ms) {
    tw_key keys[8];
    struct twi_request request = {.keys = keys};
    if (lane->state != TWI_LANE_SENT) return;
    request.key_count = twi_call_keys(&lane->text, keys, sizeof keys / sizeof *keys);
    twi_spoilt_note(&dispatcher->spoilt, &request, why, now_ms);
}

/* A call of another life of this process has the number. The call was not executed, and goes out under another name. */
static bool takes_new_name(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    bool may = twi_call_says(&dispatcher->answer, "STALE") && lane->state == TWI_LANE_SENT && !lane->tries.perhaps &&
               lane->tries.renamed < RENAMES_MAX;
    if (!may || !twi_lanes_rename(&dispatcher->lanes, lane)) return false;
    lane->tries.renamed++;
    lane->state = TWI_LANE_QUEUED;
    (void)twi_way_find(dispatcher, lane, now_ms);
    return true;
}

/* A call that another one follows. */
struct following {
    struct twi_dispatcher *dispatcher;
    struct twi_lane *lane;
    bool is_put;
};

static void put_following(void *ctx, const struct twi_request *request) {
    struct following *following = ctx;
    following->is_put = twi_lanes_rewrite(&following->dispatcher->lanes, following->lane, request);
    if (!following->is_put) TWI_ASK_COUNT(following->dispatcher, asks_forgotten, 1); /* no memory */
}

/* The call that was answered had to find out which one follows. Returns true if the lane has that one now. */
static bool goes_on(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    tw_key key;
    struct following following = {.dispatcher = dispatcher, .lane = lane};
    struct twi_answer *answer = &dispatcher->answer;
    bool has_caller = lane->state == TWI_LANE_SENT && twi_load_relaxed(&lane->heard) != 0; /* it may go meanwhile */
    if (lane->then == NULL || (!has_caller && !lane->tries.repeats)) return false;
    if (twi_call_keys(&lane->text, &key, 1) == 0) return false;
    lane->then(dispatcher->rules.engine, key, answer, &(struct twi_next){put_following, &following});
    if (!following.is_put) return false;
    free(answer->long_text);
    answer->long_text = NULL;
    if (has_caller) {
        lane->state = TWI_LANE_QUEUED;
        (void)twi_way_find(dispatcher, lane, now_ms);
    } else {
        (void)claim(dispatcher, lane);
        take_back(dispatcher, lane, now_ms);
    }
    return true;
}

static void hear_answer(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    twi_check(lane->state != TWI_LANE_FREE && lane->state != TWI_LANE_QUEUED && lane->link == NULL);
    struct twi_answer *answer = &dispatcher->answer;
    /* The script found a value that is no number. (Totals report that to their caller.) */
    if (lane->text.script != TWI_SCRIPT_TOTALS && twi_call_says(answer, "BAD"))
        note_spoilt(dispatcher, lane, "its value decides nothing", now_ms);
    if (takes_new_name(dispatcher, lane, now_ms)) return;
    if (goes_on(dispatcher, lane, now_ms)) return;
    struct twi_lane_caller caller = claim(dispatcher, lane);
    if (is_left(lane)) {
        bool is_hidden = twi_call_says(answer, "STALE"); /* by another life of this process */
        if (is_hidden || twi_call_says(answer, "BAD"))
            note_kept(dispatcher, lane, lane->tries.units);
        else if (twi_call_says(answer, "KEPT"))
            note_kept(dispatcher, lane, answer->value_count > 1 ? answer->values[1].number : lane->tries.units);
        settle(dispatcher, lane);
        free(answer->long_text);
        answer->long_text = NULL;
        return;
    }
    bool is_owed = caller.answered == NULL && lane->tries.numbered && !twi_call_charged_nothing(answer);
    answer->is_copied = lane->tries.perhaps;
    if (is_owed)
        take_back(dispatcher, lane, now_ms);
    else if ((answer->is_kept = lane->tries.keeps && caller.answered != NULL && !twi_call_charged_nothing(answer)))
        lane->state = TWI_LANE_KEPT;
    else
        settle(dispatcher, lane);
    tell(dispatcher, &caller, TWI_REQUEST_DONE);
}

static void say(struct twi_dispatcher *dispatcher, const struct twi_node *error, bool is_refusal, int64_t now_ms) {
    char text[120];
    twi_refusal_text(error, false, text, sizeof text);
    twi_port_last_error(dispatcher->rules.engine, text);
    if (is_refusal) twi_spoilt_refused(&dispatcher->spoilt, text, now_ms);
}

/* Redis has certainly not executed it, and would not do so the next time. */
static void hear_refusal(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    twi_check(lane->state != TWI_LANE_FREE && lane->state != TWI_LANE_QUEUED && lane->link == NULL);
    TWI_ASK_COUNT(dispatcher, ask_refused, 1);
    if (lane->state == TWI_LANE_CANCELLING)
        twi_way_pause(dispatcher, lane, now_ms + CANCEL_AGAIN_MS);
    else if (lane->state == TWI_LANE_UNSETTLED && goes_again(dispatcher, lane))
        (void)twi_way_find(dispatcher, lane, now_ms);
    else if (lane->state == TWI_LANE_SENT && (lane->tries.perhaps || lane->tries.repeats))
        leave_open(dispatcher, lane, now_ms);
    else if (lane->state == TWI_LANE_SENT)
        finish(dispatcher, lane, TWI_REQUEST_REFUSED);
}

/* A key has a value of another kind. This is an answer, but not a decision. It would refuse a cancel for ever. */
static void hear_spoilt(struct twi_dispatcher *dispatcher, struct twi_lane *lane, const struct twi_node *error,
                        int64_t now_ms) {
    TWI_ASK_COUNT(dispatcher, ask_refused, 1);
    note_spoilt(dispatcher, lane, twi_reply_said(error), now_ms);
    if (is_left(lane)) note_kept(dispatcher, lane, lane->tries.units);
    dispatcher->answer.value_count = 0;
    struct twi_lane_caller caller = claim(dispatcher, lane);
    if (lane->state == TWI_LANE_SENT && lane->tries.perhaps && lane->tries.numbered)
        take_back(dispatcher, lane, now_ms);
    else
        settle(dispatcher, lane);
    tell(dispatcher, &caller, TWI_REQUEST_DONE);
}

/* Perhaps executed, so the call goes again under the same number. */
static void hear_doubt(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    struct twi_lane_tries *tries = &lane->tries;
    TWI_ASK_COUNT(dispatcher, ask_dropped, 1);
    tries->perhaps = true;
    tries->pause_ms = tries->pause_ms == 0 ? PAUSE_MS : 2 * tries->pause_ms;
    if (tries->pause_ms > PAUSE_MAX_MS) tries->pause_ms = PAUSE_MAX_MS;
    if (goes_again(dispatcher, lane)) twi_way_pause(dispatcher, lane, now_ms + tries->pause_ms);
}

/* The server turns everybody away. It has not executed this call. The outcome of the calls behind it is unknown. */
static void hear_dismissal(struct twi_dispatcher *dispatcher, struct twi_link *link, struct twi_lane *lane,
                           const struct twi_node *error, int64_t now_ms) {
    bool is_replica = twi_reply_is_replicas(error); /* its address may lead to the master by now */
    twi_link_end(link, is_replica ? TWI_LINK_CUT : TWI_LINK_DENIED, NULL);
    if (!is_replica)
        hear_refusal(dispatcher, lane, now_ms);
    else if (goes_again(dispatcher, lane))
        (void)twi_way_find(dispatcher, lane, now_ms);
}

static void hear_error(struct twi_dispatcher *dispatcher, struct twi_link *link, struct twi_lane *lane,
                       const struct twi_node *error, int64_t now_ms) {
    enum twi_reply_kind kind = twi_reply_error(error);
    if (kind == TWI_REPLY_NOSCRIPT) {
        lane->tries.whole = true;
        if (goes_again(dispatcher, lane)) (void)twi_way_join(dispatcher, lane, link, now_ms);
        return;
    }
    say(dispatcher, error, kind == TWI_REPLY_REFUSED || kind == TWI_REPLY_TURNED_AWAY, now_ms);
    switch (kind) {
    case TWI_REPLY_REFUSED: hear_refusal(dispatcher, lane, now_ms); return;
    case TWI_REPLY_SPOILT: hear_spoilt(dispatcher, lane, error, now_ms); return;
    case TWI_REPLY_TURNED_AWAY: hear_dismissal(dispatcher, link, lane, error, now_ms); return;
    default: hear_doubt(dispatcher, lane, now_ms); return;
    }
}

/* Handles a cluster node's redirects, and otherwise acts the same as with one Redis. */
static void hear_node(struct twi_dispatcher *dispatcher, struct twi_link *link, struct twi_lane *lane,
                      const struct twi_node *error, int64_t now_ms) {
    struct twi_redirect redirect;
    twi_redirect_read(error, &link->endpoint, &redirect);
    bool is_moved = redirect.kind == TWI_REDIRECT_MOVED || redirect.kind == TWI_REDIRECT_ASK;
    if (redirect.kind == TWI_REDIRECT_NONE) {
        hear_error(dispatcher, link, lane, error, now_ms);
        return;
    }
    if (!is_moved) say(dispatcher, error, redirect.kind == TWI_REDIRECT_CROSSSLOT, now_ms);
    if (redirect.kind == TWI_REDIRECT_CROSSSLOT) {
        twi_port_last_error(dispatcher->rules.engine, "CROSSSLOT: the keys of one call lie in several key slots");
        hear_refusal(dispatcher, lane, now_ms);
    } else if (redirect.kind == TWI_REDIRECT_NON_LOCAL) { /* a script that stopped in its middle */
        hear_doubt(dispatcher, lane, now_ms);
    } else if (goes_again(dispatcher, lane)) {
        twi_way_redirect(dispatcher, lane, &redirect, now_ms);
    }
}

void twi_verdict_heard(struct twi_dispatcher *dispatcher, struct twi_link *link, const struct twi_node *nodes,
                       size_t count, int64_t now_ms) {
    struct twi_lane *lane = link->sent.first;
    twi_check(lane != NULL && lane->link == link && lane->state != TWI_LANE_QUEUED);
    if (lane->tries.asking && !lane->tries.asked) { /* ASKING is valid for one command, and has a reply of its own */
        lane->tries.asked = true;
        return;
    }
    bool is_error = nodes->type == TWI_NODE_ERROR;
    if (!is_error && !twi_call_read(nodes, count, &lane->text, &dispatcher->answer)) {
        free(dispatcher->answer.long_text);
        dispatcher->answer.long_text = NULL;
        twi_link_end(link, TWI_LINK_CUT, "an answer to something else");
        return;
    }
    twi_window_heard(&link->window, &lane->tries.mark, now_ms - dispatcher->late.all_ms,
                     twi_port_timeout_ms(dispatcher->rules.engine));
    twi_lane_list_remove(&link->sent, lane);
    lane->link = NULL;
    if (lane->tries.whole) link->loading[lane->text.script] = false;
    lane->tries.whole = false;
    twi_link_answered(link);
    if (!is_error)
        hear_answer(dispatcher, lane, now_ms);
    else if (dispatcher->directory != NULL)
        hear_node(dispatcher, link, lane, nodes, now_ms);
    else
        hear_error(dispatcher, link, lane, nodes, now_ms);
}
