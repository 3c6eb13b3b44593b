/* cluster_world.h -- a Redis Cluster in a seeded world: three masters with a replica each (cluster_model.h), reached
 * over the faulty network of world.h.
 *
 * Somebody moves slots key by key, stops in the middle, dies, and leaves the flags of the move at one end. Masters hand
 * over, die, come back empty or under another address. Nodes hear of all that late. How they name each other changes.
 *   split   a slot is split if a master that does not own it, and does not take part in a move of it, has keys of it
 * Always true: everything follows from the world's seed. Without `splits` no slot is ever split, unless a replica that
 * lags has taken over. */
#ifndef TEST_CLUSTER_WORLD_H
#define TEST_CLUSTER_WORLD_H

#include "tests/sim/cluster_model.h"
#include "tests/sim/world.h"

#define CLUSTER_WORLD_URL "redis+cluster://a:6999,b:6998" /* either is some node that runs */
#define CLUSTER_WORLD_MASTERS 3
#define CLUSTER_WORLD_SLOTS 8
#define CLUSTER_WORLD_PORTS 64 /* from 7001 on: others are not looked at */

enum cluster_fault {
    CLUSTER_MOVE,         /* a slot begins to move */
    CLUSTER_MOVE_AT_ONCE, /* a slot moves as a whole, and most nodes hear of it late */
    CLUSTER_MOVER_DIES,
    CLUSTER_HAND_OVER, /* a master and its replica change places */
    CLUSTER_CRASH,     /* a master dies; later its replica takes over */
    CLUSTER_LINGER,    /* the same, but the master goes on for a while */
    CLUSTER_RESTART,   /* a master comes back with what it had */
    CLUSTER_EMPTY,     /* a master comes back without anything */
    CLUSTER_ADDRESS,   /* a node has another address from now on, perhaps that of another node */
    CLUSTER_FORM,      /* a node names others in another way from now on */
    CLUSTER_DOWN,      /* a node answers CLUSTERDOWN for a while */
    CLUSTER_FLUSH_SCRIPTS,
    CLUSTER_REFUSE,    /* a node takes no writes for a while */
    CLUSTER_IN_MIDDLE, /* not drawn: a failover came in the middle of a move, which is forgotten */
    CLUSTER_FAULTS
};

enum cluster_move_state {
    MOVE_NONE,
    MOVE_RUNS,
    MOVE_LEFT /* the mover died, or one end has forgotten it */
};

struct cluster_move {
    uint32_t slot;
    enum cluster_move_state state;
    int to;
    int64_t again_ms;
    int64_t begun_ms;       /* when the slot began to move */
    int64_t moved_ms;       /* when the last key moved */
    int64_t ended_ms;       /* when the slot had last moved to its owner */
    int64_t split_since_ms; /* 0: the slot is not split */
    uint8_t named;          /* the nodes that some node has named as the owner: a bit each */
};

struct cluster_server {
    int64_t skew_ms;
    int64_t heard_ms;            /* when it last got all that its master had ... */
    uint64_t heard;              /* ... and the last script that was run before */
    int taken_over_by;           /* -1: it is not known to be dead */
    int64_t takes_over_ms;       /* 0: nobody is to take over */
    int64_t back_ms;             /* when it is back; 0: it is there */
    int64_t refuses_ms, down_ms; /* until when */
};

struct cluster_world {
    struct world *world;
    struct cluster_model model;
    uint32_t of_10000[CLUSTER_FAULTS]; /* the chance of a fault at each step */
    uint64_t happened[CLUSTER_FAULTS];
    bool lags;         /* what takes over has what its master had a while ago */
    bool waits_count;  /* what WAIT has said holds */
    bool waits_own;    /* WAIT speaks of the connection's own writes only, as in Redis 8 and Valkey 8 */
    bool splits;       /* a master may go in the middle of a move, and the new one knows nothing of the move */
    bool covers_whole; /* while a master is dead, the others answer CLUSTERDOWN */
    bool is_calm;
    bool is_deaf;                                     /* in a calm cluster: no replica hears anything */
    uint64_t scripts;                                 /* that came so far */
    uint64_t waits[WORLD_NODES][CLUSTER_WORLD_PORTS]; /* WAITs that were told a replica: of each node, at each port */
    int ports;                                        /* the last one that was given */
    struct cluster_move moves[CLUSTER_WORLD_SLOTS];
    size_t move_count;
    struct cluster_server servers[CLUSTER_MODEL_NODES];
};

/* The slots are those that are used; each lies at a master chosen at random. */
void cluster_world_begin(struct cluster_world *cluster, struct world *world, const uint32_t *slots, size_t count);
/* Behind each step of the world. */
void cluster_world_step(struct cluster_world *cluster);
/* Moves end, or are taken back; what runs is known to all; no slot is split any more. */
void cluster_world_calm(struct cluster_world *cluster);
/* In a calm cluster all keys of the slot go to another master, which does not know the script; the move is not ended.
 * Then: it ends, and all know it. */
void cluster_world_move_half_way(struct cluster_world *cluster, uint32_t slot);
void cluster_world_move_ends(struct cluster_world *cluster, uint32_t slot);
/* What the masters have of a life's counts in that key. Where a key may be at two of them in two states, it is that of
 * the master that has the most. */
int64_t cluster_world_applied(const struct cluster_world *cluster, const char *name, int life);
/* Whether some node has named the one with that port as the owner of the slot. True where addresses have changed: a map
 * may then take one node for another. */
bool cluster_world_has_named(const struct cluster_world *cluster, uint32_t slot, int port);
/* How long the slot has been split; -1: it is not. */
int64_t cluster_world_split_ms(const struct cluster_world *cluster, uint32_t slot);

#endif
