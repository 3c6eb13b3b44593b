/* way.c -- see way.h. */
#include "sync/ask/way.h"

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/base/threads.h"
#include "engine/port/services.h"
#include "sync/wire/cluster_directory.h"
#include "sync/wire/fnv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- spoilt ---- */

#define NAME_BYTES 120u /* of a key's name */
#define LOG_EVERY_MS 1000
#define SAME_MS (10 * INT64_C(60000)) /* what is said again after that is news */

void twi_spoilt_begin(struct twi_spoilt *spoilt) {
    pthread_mutex_init(&spoilt->lock, NULL);
}

void twi_spoilt_end(struct twi_spoilt *spoilt) {
    pthread_mutex_destroy(&spoilt->lock);
}

/* Appends as many bytes as there is room for. Unprintable bytes become "?". */
static void put(char line[TWI_SPOILT_BYTES], const char *text, size_t size) {
    size_t used = strlen(line);
    twi_check(used < TWI_SPOILT_BYTES);
    for (size_t i = 0; i < size && used + 1 < TWI_SPOILT_BYTES; i++)
        line[used++] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
    line[used] = '\0';
}

/* `line` begins empty. */
static void write_line(char line[TWI_SPOILT_BYTES], const struct twi_request *request, const char *why) {
    for (size_t i = 0; i < request->key_count; i++) {
        size_t size = request->keys[i].size;
        if (i != 0) put(line, ", ", 2);
        put(line, request->keys[i].data, size < NAME_BYTES ? size : NAME_BYTES);
    }
    put(line, ": ", 2);
    put(line, why, strlen(why) < NAME_BYTES ? strlen(why) : NAME_BYTES);
}

static bool is_known(const struct twi_spoilt *spoilt, uint64_t hash) {
    for (uint32_t i = 0; i < TWI_SPOILT_KNOWN; i++)
        if (spoilt->known[i] == hash) return true;
    return false;
}

static void leave(struct twi_spoilt *spoilt, const char *line, bool is_refusal, int64_t now_ms) {
    char when[32];
    snprintf(when, sizeof when, "%" PRId64, now_ms / SAME_MS);
    uint64_t hash = twi_fnv_add(twi_fnv_add(TWI_FNV_BEGIN, line, strlen(line)), when, strlen(when));
    twi_lock(&spoilt->lock);
    uint32_t waiting = twi_load_relaxed(&spoilt->waiting); /* only changed under the lock */
    twi_check(waiting <= TWI_SPOILT_LINES);
    if (waiting < TWI_SPOILT_LINES && !is_known(spoilt, hash)) {
        spoilt->known[spoilt->known_next++ % TWI_SPOILT_KNOWN] = hash;
        snprintf(spoilt->lines[waiting], sizeof spoilt->lines[waiting], "%s", line);
        spoilt->are_refusals[waiting] = is_refusal;
        twi_store_relaxed(&spoilt->waiting, waiting + 1);
    }
    twi_unlock(&spoilt->lock);
}

void twi_spoilt_note(struct twi_spoilt *spoilt, const struct twi_request *request, const char *why, int64_t now_ms) {
    char line[TWI_SPOILT_BYTES] = "";
    write_line(line, request, why);
    leave(spoilt, line, false, now_ms);
}

void twi_spoilt_refused(struct twi_spoilt *spoilt, const char *why, int64_t now_ms) {
    leave(spoilt, why, true, now_ms);
}

void twi_spoilt_log(struct twi_spoilt *spoilt, tw_engine *engine) {
    char line[TWI_SPOILT_BYTES];
    int64_t now_ms = twi_port_mono_ms(engine);
    if (twi_load_relaxed(&spoilt->waiting) == 0) return; /* a hint; the next turn sees lines that this one misses */
    if (spoilt->logged_ms != 0 && now_ms - spoilt->logged_ms < LOG_EVERY_MS) return;
    twi_lock(&spoilt->lock);
    uint32_t waiting = twi_load_relaxed(&spoilt->waiting) - 1;
    twi_check(waiting < TWI_SPOILT_LINES);
    bool is_refusal = spoilt->are_refusals[0];
    memcpy(line, spoilt->lines[0], sizeof line);
    memmove(spoilt->lines[0], spoilt->lines[1], waiting * sizeof spoilt->lines[0]);
    memmove(&spoilt->are_refusals[0], &spoilt->are_refusals[1], waiting * sizeof spoilt->are_refusals[0]);
    twi_store_relaxed(&spoilt->waiting, waiting);
    twi_unlock(&spoilt->lock);
    spoilt->logged_ms = now_ms != 0 ? now_ms : 1;
    if (is_refusal)
        twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_REFUSED, "Redis refuses calls that wait: %s", line);
    else
        twi_port_log(engine, TW_LOG_ERROR, TW_EVENT_POISON,
                     "Redis cannot decide a call, for one of its keys holds something else: %s", line);
}

#define IDLE_MS 60000  /* in a cluster a link without calls is closed after this time */
#define FULL_MS 50     /* the pause until a link may be free, if there are too many */
#define REROUTE_MS 100 /* in a cluster, how often calls at a link that is down look for another */

/* ---- links ------------------------------------------------------------------------------------------------------- */

static bool is_empty(const struct twi_link *link) {
    return link->waiting.first == NULL && link->sent.first == NULL;
}

static void drop_link(struct twi_dispatcher *dispatcher, uint32_t i) {
    twi_check(i < dispatcher->link_count && is_empty(dispatcher->links[i]));
    twi_check(dispatcher->links[i] != dispatcher->hearing);
    twi_link_unmake(dispatcher->links[i]);
    free(dispatcher->links[i]);
    dispatcher->links[i] = dispatcher->links[--dispatcher->link_count];
}

/* Closes the link without calls that was used longest ago. Returns false if all links have calls. */
static bool drop_idle_link(struct twi_dispatcher *dispatcher) {
    uint32_t oldest = TWI_LINKS_MAX;
    for (uint32_t i = 0; i < dispatcher->link_count; i++) {
        const struct twi_link *link = dispatcher->links[i];
        if (!is_empty(link) || link == dispatcher->hearing || link->ended != TWI_LINK_LIVES) continue;
        if (oldest == TWI_LINKS_MAX || link->used_ms < dispatcher->links[oldest]->used_ms) oldest = i;
    }
    if (oldest != TWI_LINKS_MAX) drop_link(dispatcher, oldest);
    return oldest != TWI_LINKS_MAX;
}

/* Returns NULL if no memory, or too many masters. */
static struct twi_link *link_to(struct twi_dispatcher *dispatcher, const struct twi_endpoint *endpoint,
                                int64_t now_ms) {
    for (uint32_t i = 0; i < dispatcher->link_count; i++)
        if (endpoint == NULL || twi_endpoint_equals(&dispatcher->links[i]->endpoint, endpoint))
            return dispatcher->links[i];
    if (dispatcher->link_count == TWI_LINKS_MAX && !drop_idle_link(dispatcher)) return NULL;
    twi_check(dispatcher->link_count < TWI_LINKS_MAX);
    struct twi_link *link = malloc(sizeof *link);
    if (link == NULL) return NULL;
    twi_link_make(link, &dispatcher->rules, endpoint);
    link->used_ms = now_ms;
    return dispatcher->links[dispatcher->link_count++] = link;
}

/* ---- routes ------------------------------------------------------------------------------------------------------ */

void twi_way_pause(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t again_ms) {
    twi_check(lane->next == NULL && lane->before == NULL && again_ms != INT64_MAX);
    twi_check(lane->state == TWI_LANE_QUEUED || lane->state == TWI_LANE_CANCELLING);
    lane->link = NULL;
    lane->tries.again_ms = again_ms;
    lane->tries.is_new = false;
    twi_lane_list_add(&dispatcher->paused, lane);
    if (again_ms < dispatcher->paused_until_ms) dispatcher->paused_until_ms = again_ms;
}

bool twi_way_join(struct twi_dispatcher *dispatcher, struct twi_lane *lane, struct twi_link *link, int64_t now_ms) {
    twi_check(lane->next == NULL && lane->before == NULL);
    twi_check(lane->state == TWI_LANE_QUEUED || lane->state == TWI_LANE_CANCELLING);
    lane->tries.asked = false;
    if (link == NULL) {
        twi_way_pause(dispatcher, lane, now_ms + FULL_MS);
        return true;
    }
    if (lane->tries.is_new && now_ms < twi_link_closed_until_ms(link)) return false;
    lane->tries.is_new = false;
    lane->link = link;
    (twi_lane_goes_first(lane) ? twi_lane_list_add_first : twi_lane_list_add)(&link->waiting, lane);
    return true;
}

bool twi_way_find(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms) {
    struct twi_endpoint owner;
    lane->tries.asking = false;
    if (dispatcher->directory == NULL) return twi_way_join(dispatcher, lane, link_to(dispatcher, NULL, now_ms), now_ms);
    if (twi_directory_find(dispatcher->directory, lane->slot, &owner))
        return twi_way_join(dispatcher, lane, link_to(dispatcher, &owner, now_ms), now_ms);
    twi_directory_want(dispatcher->directory);
    twi_port_last_error(dispatcher->rules.engine, "no node of the cluster is known to serve the key's slot");
    twi_detour_hold(&lane->detour, now_ms, twi_dispatcher_random(dispatcher));
    twi_way_pause(dispatcher, lane, lane->detour.again_ms);
    return true;
}

void twi_way_again(struct twi_dispatcher *dispatcher, struct twi_link *link, int64_t now_ms) {
    twi_check(dispatcher->directory != NULL);
    struct twi_lane_list all = link->waiting;
    link->waiting = (struct twi_lane_list){0};
    for (struct twi_lane *lane; (lane = all.first) != NULL;) {
        twi_lane_list_remove(&all, lane);
        (void)twi_way_find(dispatcher, lane, now_ms);
    }
}

void twi_way_leave(struct twi_dispatcher *dispatcher, struct twi_lane *lane) {
    twi_check(lane->state == TWI_LANE_QUEUED || lane->state == TWI_LANE_CANCELLING);
    if (lane->link == NULL)
        twi_lane_list_remove(&dispatcher->paused, lane);
    else
        twi_lane_list_remove(&lane->link->waiting, lane);
    lane->link = NULL;
}

static void count_redirect(struct twi_dispatcher *dispatcher, enum twi_redirect_kind kind) {
    if (kind == TWI_REDIRECT_MOVED) TWI_ASK_COUNT(dispatcher, moved, 1);
    if (kind == TWI_REDIRECT_ASK) TWI_ASK_COUNT(dispatcher, asked, 1);
    if (kind == TWI_REDIRECT_TRYAGAIN) TWI_ASK_COUNT(dispatcher, tryagain, 1);
}

void twi_way_redirect(struct twi_dispatcher *dispatcher, struct twi_lane *lane, const struct twi_redirect *redirect,
                      int64_t now_ms) {
    struct twi_directory *directory = dispatcher->directory;
    twi_check(directory != NULL && redirect->kind != TWI_REDIRECT_NONE);
    bool is_unserved = redirect->kind == TWI_REDIRECT_UNSERVED || redirect->kind == TWI_REDIRECT_DOWN;
    count_redirect(dispatcher, redirect->kind);
    if (redirect->kind == TWI_REDIRECT_MOVED && redirect->has_endpoint)
        twi_directory_note_moved(directory, redirect->slot, &redirect->to);
    if (is_unserved || (redirect->kind == TWI_REDIRECT_MOVED && !redirect->has_endpoint)) twi_directory_want(directory);
    twi_detour_note(&lane->detour, redirect->kind, now_ms, twi_dispatcher_random(dispatcher));
    if (redirect->kind == TWI_REDIRECT_ASK && redirect->has_endpoint) { /* at once; only the way back may be a circle */
        lane->tries.asking = true;
        (void)twi_way_join(dispatcher, lane, link_to(dispatcher, &redirect->to, now_ms), now_ms);
    } else if (lane->detour.again_ms > now_ms) {
        twi_way_pause(dispatcher, lane, lane->detour.again_ms);
    } else {
        (void)twi_way_find(dispatcher, lane, now_ms);
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void end_idle(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    for (uint32_t i = dispatcher->link_count; i-- > 0;) {
        const struct twi_link *link = dispatcher->links[i];
        bool is_idle = is_empty(link) && now_ms - link->used_ms > IDLE_MS && link->ended == TWI_LINK_LIVES;
        if (is_idle) drop_link(dispatcher, i);
    }
}

static void reroute(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    if (dispatcher->directory == NULL || now_ms - dispatcher->rerouted_ms < REROUTE_MS) return;
    dispatcher->rerouted_ms = now_ms;
    end_idle(dispatcher, now_ms);
    for (uint32_t i = 0; i < dispatcher->link_count; i++)
        if (dispatcher->links[i]->phase != TWI_LINK_UP && dispatcher->links[i]->waiting.first != NULL)
            twi_way_again(dispatcher, dispatcher->links[i], now_ms);
}

static void end_pauses(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    struct twi_lane_list all = dispatcher->paused;
    dispatcher->paused = (struct twi_lane_list){0};
    dispatcher->paused_until_ms = INT64_MAX;
    for (struct twi_lane *lane; (lane = all.first) != NULL;) {
        twi_lane_list_remove(&all, lane);
        if (now_ms >= lane->tries.again_ms)
            (void)twi_way_find(dispatcher, lane, now_ms);
        else
            twi_way_pause(dispatcher, lane, lane->tries.again_ms);
    }
}

void twi_way_step(struct twi_dispatcher *dispatcher, int64_t now_ms) {
    twi_check(dispatcher->paused.first == NULL || dispatcher->paused_until_ms != INT64_MAX);
    if (now_ms >= dispatcher->paused_until_ms) end_pauses(dispatcher, now_ms);
    reroute(dispatcher, now_ms);
}

int64_t twi_way_wake_ms(const struct twi_dispatcher *dispatcher) {
    int64_t wake_ms = dispatcher->paused_until_ms;
    for (uint32_t i = 0; dispatcher->directory != NULL && i < dispatcher->link_count; i++) {
        const struct twi_link *link = dispatcher->links[i];
        bool waits = link->phase != TWI_LINK_UP && link->waiting.first != NULL;
        if (waits && dispatcher->rerouted_ms + REROUTE_MS < wake_ms) wake_ms = dispatcher->rerouted_ms + REROUTE_MS;
    }
    return wake_ms;
}
