/* world.h -- one seeded world: a clock, a faulty network, and a model of Redis, in which the real sync code runs.
 *
 * Bytes travel in pieces with delays. A connection may be cut at any byte in either direction, with or without notice
 * to its ends. What a client sent before it gave up may still be executed later. Always true: everything follows from
 * the seed. */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include "engine/port/services.h"
#include "sync/wire/socket.h"
#include "tests/sim/redis_model.h"
#include "tests/support/support.h"

#ifndef WORLD_NODES /* another program may have more */
#define WORLD_NODES 3
#define WORLD_CONNECTIONS 128
#endif

/* One direction of a connection: pieces in order, each with the time at which it arrives. */
struct world_pipe {
    struct twi_bytes bytes;
    struct {
        int64_t at_ms;
        size_t end; /* in bytes of the pipe, counted from its beginning */
    } pieces[256];
    size_t piece_first, piece_count;
    size_t passed; /* bytes delivered since the beginning */
    size_t total;
    bool cut; /* nothing more gets through */
};

struct world_connection {
    bool used;            /* the slot is in use until both ends are done with it */
    bool to_other;        /* it leads to the other store */
    int aside;            /* it leads to neither: see place_of; 0: it does not */
    bool is_asking;       /* of a node of a cluster: ASKING was its last command */
    uint64_t wrote;       /* of the same: the number of the last script that came over it; 0: none did */
    bool client_open;     /* the client has not closed it */
    int node;             /* the life that it belongs to */
    int index;            /* the node */
    int64_t up_at_ms;     /* connect() succeeds */
    int64_t broken_at_ms; /* the client learns that it is broken; INT64_MAX: never */
    struct world_pipe to_redis, to_client;
    struct twi_bytes request; /* arrived, but not complete yet */
};

struct world_node {
    struct world *world;
    int index;
    int life; /* whose books its batches belong to: a new life after the process was killed */
    struct world_connection *connection;
    size_t said; /* how much of the text that a test looks for was sent last */
    char why[40];
};

/* Chances in 10,000, of one event each; all zero: no faults. */
struct world_faults {
    uint32_t refuse_connect, black_hole, cut_request, cut_reply, tell_nobody, garbage, slow, run_twice, cut_short,
        odd_reply; /* at each connect, send, run or reply */
    uint32_t restart, flush_scripts, refuse_writes, roll_back, fail_over, wipe, restart_empty, evict_ledgers,
        evict_counters, poison, persist, lose_marker, twin, step_clock, leap, kill, flicker; /* at each step */
};

/* What the address shows for a while instead of the store. */
enum world_other {
    OTHER_EMPTY,
    OTHER_EMPTY_REPLICA,
    OTHER_OLD_REPLICA,
    OTHER_WRITABLE_REPLICA,
    OTHER_FULL,
    OTHER_OLD,
    OTHERS
};

enum world_fault {
    WORLD_REFUSED_CONNECT,
    WORLD_BLACK_HOLE,
    WORLD_CUT_REQUEST,
    WORLD_CUT_REPLY,
    WORLD_GARBAGE,
    WORLD_LATE_EXECUTION,
    WORLD_RUN_TWICE, /* a request is executed twice; one reply comes back */
    WORLD_ODD_REPLY, /* executed, and answered with an unknown error */
    WORLD_CUT_SHORT, /* a batch ends in the middle: its ledger is written, some counters are, but not "done" */
    WORLD_RESTART,
    WORLD_FLUSHED_SCRIPTS,
    WORLD_REFUSED_WRITE,
    WORLD_ROLLED_BACK,
    WORLD_UNBORN, /* went back to before a ledger was made */
    WORLD_FAILED_OVER,
    WORLD_WIPED,
    WORLD_RESTARTED_EMPTY,
    WORLD_EVICTED,
    WORLD_EVICTED_COUNTER,
    WORLD_POISONED,
    WORLD_PERSISTED, /* a key loses its expiry */
    WORLD_LOST_MARKER,
    WORLD_TWIN, /* another engine continues under the identity of one of ours */
    WORLD_STEPPED_CLOCK,
    WORLD_LEAPT, /* everything but time does not move for a while: a suspended machine */
    WORLD_KILLED,
    WORLD_SAW_OTHER, /* and OTHERS - 1 more: one for each kind of another store that is seen for a while */
    WORLD_FAULTS = WORLD_SAW_OTHER + OTHERS
};

/* The state of a node's oldest unsettled batch when a fault strikes. */
enum world_flight {
    FLIGHT_IDLE,           /* there is none */
    FLIGHT_FROZEN,         /* never sent under its number */
    FLIGHT_SENT,           /* a copy is on this connection, not executed */
    FLIGHT_APPLIED,        /* executed, the reply is not there */
    FLIGHT_ADRIFT,         /* its connection is gone; not executed */
    FLIGHT_ADRIFT_APPLIED, /* its connection is gone; executed */
    FLIGHT_REPLAY,         /* Redis went back, and the batch is re-sent */
    FLIGHT_OPENING,        /* number 0 is in flight */
    FLIGHTS
};

#define WORLD_SNAPSHOTS 6

/* Where an endpoint leads to. From WORLD_ASIDE on: to something of the test's own. */
enum world_place { WORLD_NOWHERE = -1, WORLD_STORE, WORLD_OTHER, WORLD_ASIDE };

struct world {
    struct test_prng prng;
    struct redis_model redis;
    struct world_faults faults;
    uint64_t happened[WORLD_FAULTS];
    uint64_t pairs[FLIGHTS][WORLD_FAULTS];
    enum world_flight (*flight_of)(int node); /* NULL: pairs are not counted */
    int64_t now_ms;                           /* monotonic */
    int64_t wall_offset_ms;                   /* wall minus monotonic, of the nodes */
    int64_t step_ms;                          /* how long each step takes; 0: some ms, sometimes some hundred */
    bool is_near;                             /* bytes need no time but that of a step */
    int64_t base_ms;                          /* windows are counted from this time, on the nodes' wall clock */
    int64_t redis_skew_ms;                    /* Redis's clock minus the nodes' */
    int64_t down_until_ms;                    /* Redis does not run until this time */
    int64_t refuses_until_ms;
    int64_t poison_until_ms;
    int64_t leap_max_ms;
    struct model_store before[WORLD_SNAPSHOTS]; /* snapshots to go back to: a ring, the newest last */
    size_t before_count;
    bool goes_back_to_known; /* never goes back to before a ledger that is there now */
    int64_t before_at_ms;
    struct redis_model other; /* the other store, and until when each node sees it */
    int64_t other_until_ms[WORLD_NODES];
    int64_t flicker_max_ms;
    int other_kinds;  /* how many kinds are used, from the first on */
    bool other_known; /* it was seen before */
    /* It is seen longer than it is doubted, by this time. As soon as it has been opened, it may go at any moment. 0: it
     * is not. */
    int64_t other_stays_ms;
    uint64_t other_opened; /* how often it was opened, at the last look */
    bool (*may_flicker)(void);
    /* NULL: every endpoint is the store's address. */
    int (*place_of)(struct world *world, const struct twi_endpoint *endpoint);
    /* Answers a command of a connection to such a place. */
    void (*aside)(struct world *world, struct world_connection *connection, const struct model_word *words,
                  size_t count, struct twi_bytes *reply);
    /* The Redis at such a place. NULL, or it returns NULL: there is none, and the faults of scripts do not happen. */
    struct redis_model *(*redis_at)(struct world *world, int place);
    /* NULL, or called before an engine adds to a key slot what it has had before. */
    void (*restores)(struct world *world, uint32_t slot);
    void *beyond; /* what these functions work on */
    struct world_connection connections[WORLD_CONNECTIONS];
    struct world_node nodes[WORLD_NODES];
    struct twi_bytes scratch;
};

extern struct twi_tuning test_tuning;              /* of the engines opened from now on */
extern const struct twi_transport world_transport; /* its ctx is a struct world_node */

void world_init(struct world *world, uint64_t seed);
/* Time passes by some milliseconds; what is due arrives, and faults strike. */
void world_step(struct world *world);
/* faults stop: what is broken stays broken until its client learns it; Redis runs */
void world_calm(struct world *world);
void world_free(struct world *world);
/* The process of that node is gone; what it sent is in flight. Its next life keeps other books. */
void world_kill(struct world *world, int node, int life);
void world_note(struct world *world, enum world_fault fault, int node); /* -1: it strikes all of them */
bool world_sees_other(const struct world *world, int node);
/* The node sees the other store until that time, or (0) the earlier one. Its connections end. What is in flight in them
 * may still be executed there. */
/* The store and the other one change places: a connection still leads to the server that it was made to. */
void world_swap_places(struct world *world);
/* The connections to that place end; what is in flight in them is not executed. */
void world_cut_off(struct world *world, int place);
void world_turn_to(struct world *world, int node, int64_t until_ms);
/* What a server that takes no writes says. */
const char *world_refusal(struct world *world);
extern const char *const world_fault_names[WORLD_FAULTS];
int64_t world_wall_ms(const struct world *world);
int64_t world_clock_ns(void *ctx, int kind); /* an engine's clock_now_ns; ctx: the world */

#endif
