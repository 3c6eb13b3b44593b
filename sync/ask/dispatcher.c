/* dispatcher.c -- see dispatcher.h: the life of a dispatcher, callers, and the driver's steps.
 *
 * One step: take what was begun; connect, receive and answer; expire; route what pauses; write and send. Lateness. The
 * driver may come late, because its host was busy or its machine was stopped. Meanwhile replies stay unread. So it
 * first reads the replies in the sockets. And the lateness of a step does not count for the calls under way. Their
 * deadlines are in the dispatcher's time, which is the clock minus all lateness. Lateness of some milliseconds has no
 * effect on calls, but none of it is a silence of the server.
 * Always true: `is_stepping` while the driver may be changing anything. */
#include "sync/ask/dispatcher.h"

#include "engine/base/check.h"
#include "engine/base/key_slot.h"
#include "sync/ask/verdict.h"
#include "sync/ask/way.h"
#include "sync/wire/cluster_directory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECEIVE_MAX (1u << 20) /* the most bytes in one step */
#define LATE_MS 20             /* a step with more delay than this is late; below this the machine is only busy ... */
#define BUSY_MS 8              /* ... and the server perhaps as busy; below this it is the clock */

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t mono_ms(const struct twi_dispatcher *dispatcher) {
    return twi_port_mono_ms(dispatcher->rules.engine);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

struct twi_dispatcher *twi_dispatcher_create(const struct twi_dispatcher_rules *rules) {
    twi_check(rules->engine != NULL && rules->where != NULL && rules->options != NULL);
    struct twi_dispatcher *dispatcher = calloc(1, sizeof *dispatcher);
    if (dispatcher == NULL) return NULL;
    dispatcher->rules = (struct twi_link_rules){.engine = rules->engine,
                                                .where = rules->where,
                                                .retry_max_ms = rules->options->retry_max_ms,
                                                .is_cluster = rules->directory != NULL};
    dispatcher->directory = rules->directory;
    dispatcher->host_drives = rules->host_drives;
    twi_lanes_begin(&dispatcher->lanes, rules->engine, rules->options->calls_max);
    twi_spoilt_begin(&dispatcher->spoilt);
    twi_store_relaxed(&dispatcher->wake_ms, INT64_MAX);
    dispatcher->paused_until_ms = INT64_MAX;
    bool is_made = rules->host_drives || twi_socket_set_make(&dispatcher->set);
    dispatcher->rules.set = rules->host_drives ? twi_port_socket_set(rules->engine) : dispatcher->set.fd;
    if (is_made) return dispatcher;
    twi_dispatcher_destroy(dispatcher);
    return NULL;
}

static void free_dispatcher(struct twi_dispatcher *dispatcher) {
    twi_check(dispatcher->hearing == NULL || twi_load_relaxed(&dispatcher->is_stepping));
    if (!dispatcher->host_drives) twi_socket_set_unmake(&dispatcher->set);
    free(dispatcher);
}

static void free_links(struct twi_dispatcher *dispatcher) {
    twi_check(dispatcher->link_count <= TWI_LINKS_MAX);
    for (uint32_t i = 0; i < dispatcher->link_count; i++) free(dispatcher->links[i]);
}

void twi_dispatcher_destroy(struct twi_dispatcher *dispatcher) {
    if (dispatcher == NULL) return;
    TWI_ASK_COUNT(dispatcher, asks_forgotten, dispatcher->unsettled);
    TWI_ASK_COUNT(dispatcher, ask_units_kept, dispatcher->unsettled_units);
    if (dispatcher->unsettled != 0)
        twi_port_log(dispatcher->rules.engine, TW_LOG_WARNING, TW_EVENT_LOST,
                     "%u calls of unknown outcome could not be taken back before the end: what Redis has charged for "
                     "them stays charged, %" PRId64 " units at most",
                     (unsigned)dispatcher->unsettled, dispatcher->unsettled_units);
    for (uint32_t i = 0; i < dispatcher->link_count; i++) twi_link_unmake(dispatcher->links[i]);
    free_links(dispatcher);
    twi_lanes_end(&dispatcher->lanes);
    twi_spoilt_end(&dispatcher->spoilt);
    free_dispatcher(dispatcher);
}

/* Data that the parent's threads were changing at the fork is left as it is. In a child this costs only some memory. */
void twi_dispatcher_abandon(struct twi_dispatcher *dispatcher) {
    if (dispatcher == NULL) return;
    bool is_used = twi_load_relaxed(&dispatcher->is_stepping);
    for (uint32_t i = 0; i < dispatcher->link_count; i++) twi_link_abandon(dispatcher->links[i], is_used);
    if (!is_used) free_links(dispatcher);
    bool is_idle = twi_load_relaxed(&dispatcher->lanes.taken) == 0;
    if (!is_used && is_idle) twi_lanes_end(&dispatcher->lanes);
    free_dispatcher(dispatcher);
}

/* ---- callers ----------------------------------------------------------------------------------------------------- */

static void wake(struct twi_dispatcher *dispatcher) {
    if (dispatcher->host_drives)
        twi_port_wake(dispatcher->rules.engine);
    else
        twi_socket_set_ring(&dispatcher->set);
}

/* A hint. The driver decides about calls that do not come here. */
static bool is_away(struct twi_dispatcher *dispatcher) {
    int64_t until_ms = twi_load_relaxed(&dispatcher->closed_until_ms);
    return until_ms != 0 && mono_ms(dispatcher) < until_ms;
}

/* Calls that give back and that Redis does not answer leave the other lanes to the others. */
static bool has_too_many_giving(struct twi_dispatcher *dispatcher) {
    return twi_load_relaxed(&dispatcher->lanes.giving) >= (dispatcher->lanes.most + 1) / 2;
}

uint64_t twi_dispatcher_ask(struct twi_dispatcher *dispatcher, const struct twi_request *request,
                            enum twi_request_outcome *why) {
    twi_check(request->key_count != 0 && request->script < TWI_SCRIPTS && why != NULL);
    TWI_ASK_COUNT(dispatcher, ask_calls, 1);
    if (!request->repeats && is_away(dispatcher)) {
        TWI_ASK_COUNT(dispatcher, ask_away, 1);
        *why = TWI_REQUEST_UNSENT;
        return 0;
    }
    bool is_full = request->repeats && has_too_many_giving(dispatcher);
    *why = TWI_REQUEST_BUSY;
    struct twi_lane *lane = is_full ? NULL : twi_lanes_take(&dispatcher->lanes, request, why);
    if (lane == NULL) {
        TWI_ASK_COUNT(dispatcher, ask_busy, *why == TWI_REQUEST_BUSY);
        return 0;
    }
    TWI_ASK_COUNT(dispatcher, ask_active, 1);
    if (dispatcher->directory != NULL) lane->slot = twi_key_slot_of(request->keys[0].data, request->keys[0].size);
    uint64_t number = lane->caller.number; /* from its submission on the lane is the driver's */
    twi_check(number != 0);
    if (twi_lanes_submit(&dispatcher->lanes, lane)) {
        twi_store_relaxed(&dispatcher->late.begun_ms, mono_ms(dispatcher));
        wake(dispatcher);
    }
    return number;
}

bool twi_dispatcher_forget(struct twi_dispatcher *dispatcher, uint64_t number) {
    if (!twi_lanes_forget(&dispatcher->lanes, number)) return false;
    TWI_ASK_COUNT(dispatcher, ask_active, -1);
    twi_store_relaxed(&dispatcher->has_forgotten, true); /* if a step misses it, another step follows */
    if (twi_dispatcher_owed(dispatcher) == dispatcher->lanes.most) wake(dispatcher); /* another call needs its lane */
    return true;
}

void twi_dispatcher_end(struct twi_dispatcher *dispatcher, uint64_t number, bool undo) {
    struct twi_lane *lane = twi_lanes_of(&dispatcher->lanes, number);
    twi_check(lane != NULL && lane->state == TWI_LANE_KEPT && lane->caller.number == number);
    if (!undo)
        twi_lanes_release(&dispatcher->lanes, lane);
    else if (twi_lanes_submit(&dispatcher->lanes, lane))
        wake(dispatcher);
}

void twi_dispatcher_stop(struct twi_dispatcher *dispatcher) {
    twi_lanes_stop(&dispatcher->lanes);
    twi_store_relaxed(&dispatcher->stopped, true); /* the ring causes a step, which sees it */
    wake(dispatcher);
}

void twi_dispatcher_leave(struct twi_dispatcher *dispatcher) {
    (void)twi_add_relaxed(&dispatcher->moves, 1); /* as above */
    wake(dispatcher);
}

uint32_t twi_dispatcher_owed(const struct twi_dispatcher *dispatcher) {
    twi_check(twi_load_relaxed(&dispatcher->lanes.taken) <= dispatcher->lanes.most);
    return twi_load_relaxed(&dispatcher->lanes.taken);
}

int twi_dispatcher_fd(const struct twi_dispatcher *dispatcher) {
    return dispatcher->rules.set;
}

int64_t twi_dispatcher_wake_ms(const struct twi_dispatcher *dispatcher) {
    return twi_load_relaxed(&dispatcher->wake_ms);
}

void twi_dispatcher_log(struct twi_dispatcher *dispatcher) {
    twi_spoilt_log(&dispatcher->spoilt, dispatcher->rules.engine);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void note_late(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    struct twi_dispatcher_late *late = &dispatcher->late;
    int64_t due_ms = twi_load_relaxed(&dispatcher->wake_ms), begun_ms = twi_swap_relaxed(&late->begun_ms, 0);
    if (begun_ms != 0) due_ms = earlier(due_ms, begun_ms);
    if (due_ms < late->step_ms) due_ms = late->step_ms;
    late->before_ms = late->all_ms;
    late->step_ms = now_ms;
    int64_t late_ms = now_ms - due_ms;
    if (late_ms < BUSY_MS) return;
    twi_check(late_ms > 0);
    bool is_late = late_ms >= LATE_MS;
    if (is_late) late->all_ms += late_ms;
    for (uint32_t i = 0; i < dispatcher->link_count; i++)
        (is_late ? twi_link_excuse : twi_link_excuse_silence)(dispatcher->links[i], late_ms);
}

/* In a cluster one master whose calls wait leaves half of the lanes to the others. */
static bool holds_too_many(const struct twi_dispatcher *dispatcher, const struct twi_link *link) {
    return dispatcher->directory != NULL && link != NULL && link->waiting.count > dispatcher->lanes.most / 2;
}

/* A call has come for a master that holds too many. */
static void turn_away(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    bool serves = twi_link_serves(lane->link, &lane->caller, now_ms);
    twi_way_leave(dispatcher, lane);
    if (serves)
        twi_verdict_crowded(dispatcher, lane);
    else
        twi_verdict_away(dispatcher, lane, now_ms);
}

/* How much of this step's lateness is time of a call that comes in it: what passed since the call was begun, or a
 * little. Where the driver waits for a processor again and again, its next step is late, too. */
static int64_t late_for(const struct twi_dispatcher *dispatcher, const struct twi_lane_caller *caller, int64_t now_ms) {
    int64_t late_ms = dispatcher->late.all_ms - dispatcher->late.before_ms, waits_ms = now_ms - caller->began_ms;
    return earlier(late_ms, waits_ms > LATE_MS ? waits_ms : LATE_MS);
}

/* Returns true if there was some. */
static bool take_arrived(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    struct twi_lane_list arrived;
    if (!dispatcher->host_drives) twi_socket_set_calm(&dispatcher->set); /* first this, then the list */
    twi_lanes_arrived(&dispatcher->lanes, &arrived);
    bool is_any = arrived.first != NULL;
    for (struct twi_lane *lane; (lane = arrived.first) != NULL;) {
        twi_lane_list_remove(&arrived, lane);
        twi_check(lane->link == NULL);
        if (lane->state == TWI_LANE_KEPT) {
            twi_verdict_undo(dispatcher, lane, now_ms);
            continue;
        }
        twi_check(lane->state == TWI_LANE_QUEUED && lane->tries.is_new);
        lane->caller.deadline_ms -= dispatcher->late.all_ms - late_for(dispatcher, &lane->caller, now_ms);
        twi_lanes_time(&dispatcher->lanes, lane);
        if (!twi_way_find(dispatcher, lane, now_ms))
            twi_verdict_away(dispatcher, lane, now_ms);
        else if (!lane->tries.repeats && holds_too_many(dispatcher, lane->link)) /* ask() bounds those that repeat */
            turn_away(dispatcher, lane, now_ms);
    }
    return is_any;
}

static void follow_moves(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    uint32_t moves = twi_load_relaxed(&dispatcher->moves);
    if (moves == dispatcher->moves_seen) return;
    dispatcher->moves_seen = moves;
    for (uint32_t i = 0; i < dispatcher->link_count; i++) {
        struct twi_link *link = dispatcher->links[i];
        if (link->phase == TWI_LINK_DOWN) continue;
        twi_link_end(link, TWI_LINK_DISMISSED, NULL);
        twi_check(link->phase == TWI_LINK_DOWN);
        twi_loss_of(dispatcher, link, now_ms);
    }
}

/* `was_rung` is true if a call has come. Then a link without a due reply is not looked at. If it has bytes to read,
 * the set wakes the driver again. */
static void receive(struct twi_dispatcher *dispatcher, bool was_rung, int64_t now_ms) {
    size_t room = RECEIVE_MAX, count;
    const struct twi_node *nodes;
    for (uint32_t i = 0; i < dispatcher->link_count; i++) {
        struct twi_link *link = dispatcher->links[i];
        dispatcher->hearing = link;
        twi_check(link->ended == TWI_LINK_LIVES);
        link->has_heard = was_rung;
        twi_link_connect(link, now_ms);
        while (twi_link_hear(link, &room, &nodes, &count, now_ms))
            twi_verdict_heard(dispatcher, link, nodes, count, now_ms);
        if (room != 0) twi_link_look(link, now_ms);
        dispatcher->hearing = NULL;
        twi_check(link->ended == TWI_LINK_LIVES || link->phase == TWI_LINK_DOWN);
        if (link->ended != TWI_LINK_LIVES) twi_loss_of(dispatcher, link, now_ms);
    }
    dispatcher->has_more = room == 0;
}

/* Unread bytes may be an answer, so no call is late yet. */
static void expire(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    bool is_stopped = twi_load_relaxed(&dispatcher->stopped);
    int64_t own_ms = now_ms - dispatcher->late.all_ms;
    if (dispatcher->has_more && !is_stopped) return;
    for (struct twi_lane *lane; (lane = twi_lanes_first(&dispatcher->lanes)) != NULL;) {
        bool is_over = lane->caller.deadline_ms <= own_ms;
        twi_check(lane->caller.at == 0);
        if (!is_over && !is_stopped) return;
        twi_verdict_expired(dispatcher, lane, now_ms);
    }
}

/* Calls that wait for a link, or pause, and that were forgotten. A link that is up looks at its calls anyway. */
static void drop_needless(struct twi_dispatcher *dispatcher, struct twi_lane_list *list) {
    for (struct twi_lane *lane = list->first, *next; lane != NULL; lane = next) {
        next = lane->next;
        if (!twi_verdict_is_needless(lane)) continue;
        twi_lane_list_remove(list, lane);
        twi_verdict_drop(dispatcher, lane);
    }
}

static void forget_all(struct twi_dispatcher *dispatcher) {
    if (!twi_swap_relaxed(&dispatcher->has_forgotten, false)) return;
    drop_needless(dispatcher, &dispatcher->paused);
    for (uint32_t i = 0; i < dispatcher->link_count; i++)
        if (dispatcher->links[i]->phase != TWI_LINK_UP) drop_needless(dispatcher, &dispatcher->links[i]->waiting);
}

static void put(struct twi_dispatcher *dispatcher, struct twi_link *link, struct twi_lane *lane, int64_t now_ms) {
    twi_check(lane->state == TWI_LANE_QUEUED || lane->state == TWI_LANE_CANCELLING);
    twi_check(lane->text.script < TWI_SCRIPTS && lane->link == link);
    bool is_left = lane->state == TWI_LANE_CANCELLING, *loading = &link->loading[lane->text.script];
    enum twi_call_verb verb = is_left && !lane->tries.repeats  ? TWI_CALL_CANCEL
                              : is_left || lane->tries.perhaps ? TWI_CALL_RETRY
                                                               : TWI_CALL_ASK;
    size_t before = link->out.size;
    /* not because the script's text is missing */
    bool is_again = verb == TWI_CALL_RETRY && lane->tries.perhaps && !lane->tries.whole;
    lane->tries.whole = lane->tries.whole && !*loading; /* one text for each link and script is enough */
    *loading = *loading || lane->tries.whole;
    twi_call_put(&link->out, &lane->text, verb, lane->tries.whole, lane->tries.asking);
    if (!is_left) lane->state = TWI_LANE_SENT;
    TWI_ASK_COUNT(dispatcher, asked_again, is_again);
    twi_link_put(link, lane, link->out.size - before, now_ms);
    twi_window_sent(&link->window, now_ms);
    lane->tries.mark = (struct twi_window_mark){.sent_ms = now_ms - dispatcher->late.all_ms, .place = link->sent.count};
}

/* The call would be answered after its caller's time. Where nothing is under way, a call shows whether that is still
 * so. A call that has been there once may have the script's text with it, for which others wait. One that ends what
 * another has taken has its effect also when it comes late. */
static bool is_too_late(const struct twi_dispatcher *dispatcher, const struct twi_link *link,
                        const struct twi_lane *lane, int64_t now_ms) {
    bool is_new = lane->state == TWI_LANE_QUEUED && !twi_lane_goes_first(lane);
    int64_t left_ms = lane->caller.deadline_ms - (now_ms - dispatcher->late.all_ms);
    return is_new && link->sent.first != NULL && !twi_window_suffices(&link->window, left_ms, lane->caller.time_ms);
}

/* Bytes that are not handed over are certainly unsent, so hand over only as many as the link sends soon, and only as
 * many calls as are answered soon. */
static void fill(struct twi_dispatcher *dispatcher, struct twi_link *link, int64_t now_ms) {
    if (link->phase != TWI_LINK_UP) return;
    twi_check(link->ended == TWI_LINK_LIVES && link->out_at <= link->out.size);
    if (link->out_at >= TWI_LINK_OUT_MAX) {
        twi_bytes_drop_front(&link->out, link->out_at);
        link->out_at = 0;
    }
    while (link->waiting.first != NULL && twi_link_has_room(link, now_ms)) {
        struct twi_lane *lane = link->waiting.first;
        twi_lane_list_remove(&link->waiting, lane);
        if (twi_verdict_is_needless(lane))
            twi_verdict_drop(dispatcher, lane);
        else if (is_too_late(dispatcher, link, lane, now_ms))
            twi_verdict_crowded(dispatcher, lane);
        else
            put(dispatcher, link, lane, now_ms);
    }
    link->window.is_full = link->waiting.first != NULL && link->sent.count >= link->window.calls;
}

static void send_all(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    for (uint32_t i = 0; i < dispatcher->link_count; i++) {
        struct twi_link *link = dispatcher->links[i];
        twi_link_connect(link, now_ms); /* another thread may want it now */
        fill(dispatcher, link, now_ms);
        twi_link_send(link, now_ms);
        if (link->ended != TWI_LINK_LIVES) twi_loss_of(dispatcher, link, now_ms);
    }
}

/* The least window of the links that are up, and what waits at all of them. */
static void publish_figures(struct twi_dispatcher *dispatcher) {
    int64_t window = 0, unsent = 0;
    for (uint32_t i = 0; i < dispatcher->link_count; i++) {
        const struct twi_link *link = dispatcher->links[i];
        unsent += link->waiting.count;
        if (link->phase == TWI_LINK_UP && (window == 0 || link->window.calls < window)) window = link->window.calls;
    }
    TWI_ASK_COUNT(dispatcher, ask_window, window - dispatcher->told.window);
    TWI_ASK_COUNT(dispatcher, ask_unsent, unsent - dispatcher->told.unsent);
    dispatcher->told.window = window;
    dispatcher->told.unsent = unsent;
}

static void publish(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    int64_t wake_ms = dispatcher->has_more ? now_ms : twi_way_wake_ms(dispatcher);
    const struct twi_lane *first = twi_lanes_first(&dispatcher->lanes);
    if (first != NULL) wake_ms = earlier(wake_ms, first->caller.deadline_ms + dispatcher->late.all_ms);
    for (uint32_t i = 0; i < dispatcher->link_count; i++)
        wake_ms = earlier(wake_ms, twi_link_wake_ms(dispatcher->links[i], now_ms));
    bool is_one = dispatcher->directory == NULL && dispatcher->link_count != 0;
    int64_t closed_until_ms = is_one ? twi_link_closed_until_ms(dispatcher->links[0]) : 0;
    twi_store_relaxed(&dispatcher->closed_until_ms, closed_until_ms);
    twi_store_relaxed(&dispatcher->wake_ms, wake_ms);
    publish_figures(dispatcher);
}

void twi_dispatcher_step(struct twi_dispatcher *dispatcher) {
    int64_t now_ms = mono_ms(dispatcher);
    twi_check(!twi_load_relaxed(&dispatcher->is_stepping)); /* one driver */
    twi_store_relaxed(&dispatcher->is_stepping, true);
    note_late(dispatcher, now_ms);
    bool was_rung = take_arrived(dispatcher, now_ms);
    follow_moves(dispatcher, now_ms);
    receive(dispatcher, was_rung, now_ms);
    expire(dispatcher, now_ms);
    twi_way_step(dispatcher, now_ms);
    forget_all(dispatcher);
    send_all(dispatcher, now_ms);
    publish(dispatcher, now_ms);
    twi_store_relaxed(&dispatcher->is_stepping, false);
}

/* ---- loss ---- */

static void count_end(struct twi_dispatcher *dispatcher, enum twi_link_end ended, uint32_t calls) {
    if (ended == TWI_LINK_SILENT) TWI_ASK_COUNT(dispatcher, ask_timeouts, calls);
    if (ended == TWI_LINK_CUT || ended == TWI_LINK_UNMADE) TWI_ASK_COUNT(dispatcher, ask_dropped, calls);
    if (ended == TWI_LINK_DENIED) TWI_ASK_COUNT(dispatcher, ask_refused, calls);
}

/* The sent calls whose end was not counted yet: those whose time was over before are in ask_timeouts. */
static uint32_t uncounted(const struct twi_link *link) {
    uint32_t count = 0;
    for (const struct twi_lane *lane = link->sent.first; lane != NULL; lane = lane->next)
        count += lane->state != TWI_LANE_UNSETTLED;
    twi_check(count <= link->sent.count);
    return count;
}

/* Puts the sent calls, in their order, before the waiting ones. */
static void take_back(struct twi_dispatcher *dispatcher, struct twi_link *link) {
    struct twi_lane_list again = {0};
    for (struct twi_lane *lane; (lane = link->sent.first) != NULL;) {
        twi_lane_list_remove(&link->sent, lane);
        if (twi_verdict_lost(dispatcher, lane, lane->tries.end_at <= link->sent_total)) twi_lane_list_add(&again, lane);
    }
    twi_lane_list_put_before(&link->waiting, &again);
    twi_check(link->sent.first == NULL && again.first == NULL);
}

void twi_loss_of(struct twi_dispatcher *dispatcher, struct twi_link *link, int64_t now_ms) {
    enum twi_link_end ended = link->ended;
    twi_check(ended != TWI_LINK_LIVES && link->phase == TWI_LINK_DOWN);
    uint32_t calls = ended == TWI_LINK_SILENT ? uncounted(link) : link->sent.count;
    count_end(dispatcher, ended, link->sent.count != 0 ? calls : link->waiting.first != NULL);
    take_back(dispatcher, link);
    twi_link_failed(link, now_ms);
    twi_check(link->ended == TWI_LINK_LIVES);
    if (ended == TWI_LINK_DENIED) twi_verdict_refuse_all(dispatcher, &link->waiting);
    if (dispatcher->directory == NULL || ended == TWI_LINK_DISMISSED) return;
    twi_directory_want(dispatcher->directory);
    twi_way_again(dispatcher, link, now_ms);
}
