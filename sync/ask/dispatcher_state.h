/* dispatcher_state.h -- the state of a dispatcher, for the files that work on it: way.c (where a call goes), verdict.c
 * (what becomes of it), loss.c (the end of a link), dispatcher.c (life and steps).
 * Always true: the driver alone uses it, except for the atomic fields, and for `lanes` and `spoilt`, which have locks.
 * A lane that is not free is in one place: submitted, paused, or waiting or sent at a link. */
#ifndef TWI_SYNC_ASK_DISPATCHER_STATE_H
#define TWI_SYNC_ASK_DISPATCHER_STATE_H

#include "engine/base/atomic.h"
#include "engine/base/socket_set.h"
#include "engine/port/services.h"
#include "sync/ask/link.h"
#include "sync/ask/spoilt.h"

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

#endif
