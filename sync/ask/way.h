/* way.h -- chooses the link for a call. It is the link to the one Redis, or to the master that has the call's slot.
 * Always true: a call that is begun while its server is left alone is answered at once; one that is under way waits for
 * the next connection until its deadline. */
#ifndef TWI_SYNC_ASK_WAY_H
#define TWI_SYNC_ASK_WAY_H

#include "engine/port/driver.h"
#include "engine/base/atomic.h"
#include "engine/base/descriptor.h"
#include "engine/port/services.h"
#include "sync/ask/link.h"

#include <pthread.h>
#include <stdatomic.h>

/* ---- spoilt ----
 * what Redis says against a call: a key whose value is not what its script expects, or a refusal. Each gets
 * one log line in ten minutes.
 * Callers find it, and only the turn may write log lines. So a caller leaves the line here, and the turn logs it.
 * Always true: a line that was left is not left again while it is among the last TWI_SPOILT_KNOWN. */

#define TWI_SPOILT_KNOWN 64u
#define TWI_SPOILT_LINES 4u /* the most that wait for the turn; another one is left when its key is found again */
#define TWI_SPOILT_BYTES 600u

struct twi_spoilt {
    pthread_mutex_t lock;
    _Atomic uint32_t waiting; /* lines. Changed under the lock */
    /* under the lock */
    uint64_t known[TWI_SPOILT_KNOWN]; /* hashes */
    uint32_t known_next;
    char lines[TWI_SPOILT_LINES][TWI_SPOILT_BYTES];
    bool are_refusals[TWI_SPOILT_LINES];
    int64_t logged_ms; /* the turn alone */
};

void twi_spoilt_begin(struct twi_spoilt *spoilt);
void twi_spoilt_end(struct twi_spoilt *spoilt);
/* Called if the value of one of the request's keys is wrong; `why` is Redis's word. Any thread. */
void twi_spoilt_note(struct twi_spoilt *spoilt, const struct twi_request *request, const char *why, int64_t now_ms);
/* Called if Redis refuses the call, in these words. Any thread. */
void twi_spoilt_refused(struct twi_spoilt *spoilt, const char *why, int64_t now_ms);
/* Logs a line, if one waits. It logs at most one a second, so that the log drops no line. Only the owner of the turn
 * calls it. */
void twi_spoilt_log(struct twi_spoilt *spoilt, tw_engine *engine);

/* ---- dispatcher state ----
 * the state of a dispatcher, for the files that work on it: way.c (where a call goes), verdict.c
 * (what becomes of it), dispatcher.c (the end of a link), dispatcher.c (life and steps).
 * Always true: the driver alone uses it, except for the atomic fields, and for `lanes` and `spoilt`, which have locks.
 * A lane that is not free is in one place: submitted, paused, or waiting or sent at a link. */

struct twi_directory;
struct twi_dispatcher;

#define TWI_LINKS_MAX 64u /* masters in use */

/* By how much steps came later than they were requested. */
struct twi_dispatcher_late {
    int64_t all_ms, before_ms; /* all steps, and all but the present one */
    int64_t step_ms;           /* when the latest step began */
    _Atomic int64_t begun_ms;  /* since when a submission waits for a step; 0 if there is none */
};

struct twi_dispatcher {
    struct twi_link_rules rules;
    struct twi_directory *directory; /* NULL means one Redis */
    struct twi_lanes lanes;
    struct twi_link *links[TWI_LINKS_MAX]; /* made on demand */
    uint32_t link_count;
    const struct twi_link *hearing; /* the link whose replies are being read; NULL if there is no such link */
    struct twi_lane_list paused;
    int64_t paused_until_ms; /* the first of them; INT64_MAX means that there is none */
    struct twi_spoilt spoilt;
    struct twi_socket_set set; /* if the host does not drive */
    bool host_drives;
    bool has_more;           /* bytes were left in a socket */
    uint32_t moves_seen;     /* of `moves` */
    uint32_t unsettled;      /* lanes that are UNSETTLED or CANCELLING */
    int64_t unsettled_units; /* that their calls may have charged */
    int64_t rerouted_ms;     /* in a cluster: when calls at links that are down were routed last */
    struct twi_dispatcher_late late;
    struct {
        int64_t window, unsent;
    } told;                   /* in tw_stats */
    struct twi_answer answer; /* under construction */
    _Atomic int64_t wake_ms;
    _Atomic int64_t closed_until_ms; /* with one Redis: no call passes before that time (a hint); 0 if calls may pass */
    _Atomic bool stopped, is_stepping;
    _Atomic bool has_forgotten; /* a call was forgotten since the latest step, so unsent ones may be dropped */
    _Atomic uint32_t moves;     /* how often Redis was found elsewhere */
};

#define TWI_ASK_COUNT(dispatcher, field, n) twi_port_count((dispatcher)->rules.engine, field, (n))

static inline uint64_t twi_dispatcher_random(const struct twi_dispatcher *dispatcher) {
    uint64_t random;
    twi_port_random(dispatcher->rules.engine, &random, sizeof random);
    return random;
}

/* The lane is in no list. It goes to its link's waiting calls, or pauses until it can. Returns false if it is new
 * and nothing is sent to its server now. It is then still in no list. */
bool twi_way_find(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t now_ms);
/* Does the same with a given link. Called if the call has no link now. */
bool twi_way_join(struct twi_dispatcher *dispatcher, struct twi_lane *lane, struct twi_link *link, int64_t now_ms);
/* Routes the call after a while. */
void twi_way_pause(struct twi_dispatcher *dispatcher, struct twi_lane *lane, int64_t again_ms);
/* A node of a cluster has redirected the call without executing it. */
void twi_way_redirect(struct twi_dispatcher *dispatcher, struct twi_lane *lane, const struct twi_redirect *redirect,
                      int64_t now_ms);
/* All calls that wait for the link are routed again, in their order. */
void twi_way_again(struct twi_dispatcher *dispatcher, struct twi_link *link, int64_t now_ms);
/* Routes the calls whose pause has ended; in a cluster also those that wait for a link that is down. */
void twi_way_step(struct twi_dispatcher *dispatcher, int64_t now_ms);
int64_t twi_way_wake_ms(const struct twi_dispatcher *dispatcher);
/* Takes the lane out of the list that it is in. */
void twi_way_leave(struct twi_dispatcher *dispatcher, struct twi_lane *lane);

#endif
