/* cluster_model.h -- a small, obvious Redis Cluster: several redis_model, each with its own view of who has which slot.
 *
 * What a node answers follows from its own view alone, as in a real cluster: so maps are stale until a test says that
 * the nodes have talked (cluster_model_gossip). A slot moves key by key, and may stop anywhere. A replica is a store of
 * a while ago. tests/redis/cluster/cluster_model.c sends the same commands to it and to a real cluster.
 * Always true: a command that a node turns away changes nothing. */
#ifndef TEST_CLUSTER_MODEL_H
#define TEST_CLUSTER_MODEL_H

#include "engine/base/key_slot.h"
#include "tests/sim/redis_model.h"

#define CLUSTER_MODEL_NODES 6
#define CLUSTER_MODEL_NOBODY 255

/* How CLUSTER SLOTS, MOVED and ASK name a node (cluster-preferred-endpoint-type). */
enum cluster_model_form { CLUSTER_MODEL_IP, CLUSTER_MODEL_UNKNOWN, CLUSTER_MODEL_NAMELESS };

struct cluster_model_node {
    struct redis_model redis;
    bool is_down;
    bool is_failed; /* it answers CLUSTERDOWN to all that has keys */
    uint8_t master; /* whom it follows; NOBODY: it is a master */
    char id[41];
    int port;
    enum cluster_model_form form;
    uint8_t owners[TWI_KEY_SLOTS];                              /* its view; NOBODY: nobody serves the slot */
    uint8_t migrating[TWI_KEY_SLOTS], importing[TWI_KEY_SLOTS]; /* to and from whom; NOBODY: the slot does not move */
};

struct cluster_model {
    struct cluster_model_node nodes[CLUSTER_MODEL_NODES];
    int count;
    bool keeps_moves;              /* a new master knows of the moves, as in Valkey 8 */
    bool asks_half;                /* ASK, not TRYAGAIN, where some of the keys are at the source, as in Redis 6 */
    uint8_t owners[TWI_KEY_SLOTS]; /* whom the nodes will agree upon once they have talked */
};

/* What belongs to one connection. */
struct cluster_model_link {
    bool is_asking;
};

/* All are masters, with the slots in even stretches. */
void cluster_model_init(struct cluster_model *cluster, int masters);
/* Runs a command at a node. False: the node is down; there is no reply. */
bool cluster_model_run(struct cluster_model *cluster, int node, struct cluster_model_link *link,
                       const struct model_word *words, size_t count, struct twi_bytes *reply);

/* ---- slots ------------------------------------------------------------------------------------------------------- */

void cluster_model_move_begin(struct cluster_model *cluster, uint32_t slot, int to);
/* One key of the slot goes to the target. False: there is none. `name` NULL: any. */
bool cluster_model_move_key(struct cluster_model *cluster, uint32_t slot, int to, const char *name);
/* The nodes in `told` (a bit each) learn at once that the slot is the target's, the others when the nodes talk. */
void cluster_model_move_end(struct cluster_model *cluster, uint32_t slot, int to, uint32_t told);
/* The flags go at both ends; the keys stay where they are. */
void cluster_model_move_forget(struct cluster_model *cluster, uint32_t slot, int to);
/* The nodes talk: this one learns who has which slot. It does not look at slots that it imports. */
void cluster_model_gossip(struct cluster_model *cluster, int node);
size_t cluster_model_keys_in_slot(struct cluster_model *cluster, int node, uint32_t slot);

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

/* A new node that follows a master, with what that has now. Returns its index. */
int cluster_model_replica(struct cluster_model *cluster, int master);
/* What the master has written so far reaches the replica. */
void cluster_model_replicate(struct cluster_model *cluster, int replica);
/* The replica takes over with what it has. Its master, unless it is down, follows it from now on, with the same. Only
 * the two know of it until the nodes talk. */
void cluster_model_fail_over(struct cluster_model *cluster, int replica);

#endif
