/* redis_cluster.h -- a real Redis Cluster of the test's own: masters and replicas on loopback, and all that an operator
 * does to one: slots that move key by key and stop in the middle, failovers, kills, nodes that come and go.
 *
 * The first nodes are the masters, with the slots in even stretches; the replicas follow: node masters + i follows
 * master i % masters. The node timeout is 2 s. A node is named by its index.
 * Always true: it ends with the test, and its folders with it (redis_server.h). `owners` is where the test has put each
 * slot: no gossip is asked. */
#ifndef TEST_REDIS_CLUSTER_H
#define TEST_REDIS_CLUSTER_H

#include "tests/support/redis_server.h"

#define CLUSTER_NODES_MAX 12
#define CLUSTER_SLOTS 16384

struct redis_cluster_node {
    struct redis_server server;
    char id[48];
    bool is_member;
};

struct redis_cluster {
    struct redis_cluster_node nodes[CLUSTER_NODES_MAX];
    size_t count; /* of nodes, with those that have left */
    const char *const *extra;
    bool has_tls; /* nodes speak TLS to each other and to clients; the test asks them over their unix sockets */
    uint8_t owners[CLUSTER_SLOTS];
};

/* Starts them and waits until all of them serve (some 4 s). `extra`: as in redis_server_start(); with "--tls-cluster",
 * "yes" and the certificates the nodes speak TLS. */
void redis_cluster_start(struct redis_cluster *cluster, size_t masters, size_t replicas, const char *const *extra);
void redis_cluster_destroy(struct redis_cluster *cluster);
/* "redis+cluster://127.0.0.1:port,..." of all its members; with TLS "rediss+cluster://". */
void redis_cluster_url(const struct redis_cluster *cluster, char *url, size_t size);
/* Waits until every member that runs says that the cluster is well, and agrees with `owners`. */
void redis_cluster_wait(struct redis_cluster *cluster);

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* A slot moves in these steps. Between them a test may do what it likes, or stop for ever. */
void redis_cluster_move_begin(struct redis_cluster *cluster, uint32_t slot, size_t to); /* IMPORTING, then MIGRATING */
/* Moves at most `most` keys; returns how many. */
size_t redis_cluster_move_keys(struct redis_cluster *cluster, uint32_t slot, size_t to, size_t most);
/* Its keys have moved. When it returns, all masters say that the target has the slot, and no message that is on its way
 * makes them say otherwise. For a moment both ends send clients to each other. */
void redis_cluster_move_end(struct redis_cluster *cluster, uint32_t slot, size_t to);
/* The flags of a move go at both ends; the keys stay where they are. */
void redis_cluster_move_forget(struct redis_cluster *cluster, uint32_t slot, size_t to);
/* All steps, for each slot from `first` to `last`; commands to one node go together. */
void redis_cluster_move(struct redis_cluster *cluster, uint32_t first, uint32_t last, size_t to);

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

size_t redis_cluster_add(struct redis_cluster *cluster);               /* an empty master; returns its index */
void redis_cluster_remove(struct redis_cluster *cluster, size_t node); /* it has no slots; it ends */
void redis_cluster_replicate(struct redis_cluster *cluster, size_t replica, size_t master); /* waits for the link */
/* Kills a master, which comes back at another port, with its data and its id; waits until all know that. */
void redis_cluster_relocate(struct redis_cluster *cluster, size_t node);
/* The replica gets no more of what its master writes, and would still take over from it. The second call ends that; if
 * the replica has become a master meanwhile, nothing else changes. */
void redis_cluster_cut_off(struct redis_cluster *cluster, size_t replica, size_t master);
void redis_cluster_rejoin(struct redis_cluster *cluster, size_t replica);
/* The replica takes over; its master, which lives, hands over and follows it. */
void redis_cluster_failover(struct redis_cluster *cluster, size_t replica);
/* The master was killed: waits until the replica has taken over. */
void redis_cluster_wait_takeover(struct redis_cluster *cluster, size_t replica, size_t former);
/* The node was started again: waits until it follows this master. */
void redis_cluster_wait_follower(struct redis_cluster *cluster, size_t node, size_t master);
bool redis_cluster_is_master(struct redis_cluster *cluster, size_t node);

#define redis_cluster_server(cluster, node) (&(cluster)->nodes[node].server)

#endif
