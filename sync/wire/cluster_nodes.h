/* cluster_nodes.h -- the slots of one node of a Redis Cluster, from its reply to CLUSTER NODES. They are the slots that
 * it serves, and those that move from it or to it. CLUSTER SLOTS does not list the latter.
 *
 * A line of the reply: id, address, flags, master, ping, pong, epoch, link, then the slots: 5, 7-9, [93->-id] (93 moves
 * to that node), [77-<-id] (77 comes from there). Only the line of the node itself, "myself", has moves.
 * Pure. Always true: a line is read as a whole or refused as a whole. */
#ifndef TWI_SYNC_WIRE_CLUSTER_NODES_H
#define TWI_SYNC_WIRE_CLUSTER_NODES_H

#include "sync/wire/url.h"
#include "sync/wire/wire.h"
#include "engine/base/key_slot.h"

/* ---- cluster slots ----
 * reads from the reply to CLUSTER SLOTS which master has which slots. Replicas are skipped.
 *
 *   [first slot, last slot, [host, port, node id, [...]], replicas ...], and so on
 * A host that is nil or empty means the host of the node that replied; "?" means an unknown host. The file is pure; it
 * works on the nodes of a reply. Always true: a reply is read as a whole or refused as a whole. Slots are below 16,384,
 * and no slot is in two ranges. */

#define TWI_NODE_ID_SIZE 41 /* with its NUL */

/* Room for 16,384 ranges of a master and two replicas each. */
extern const struct twi_wire_limits twi_cluster_slots_limits;

/* A range of slots. Its texts belong to the reply and to the node that replied. */
struct twi_slot_range {
    uint32_t first, last;
    bool has_endpoint; /* false if the reply does not name the master's address */
    uint16_t port;     /* if has_endpoint */
    const char *host;  /* if has_endpoint */
    const char *id;    /* of the master; "" if it was not given (before Redis 4) */
};

/* Returns true if every range can be read, and no slot is in two of them. */
bool twi_cluster_slots_valid(const struct twi_node *nodes, size_t count, const struct twi_endpoint *asked);
/* Reads the range at `*at`, and moves on. Begin with `*at` = 1. Returns false if there is none, or it cannot be
 * read. */
bool twi_cluster_slots_next(const struct twi_node *nodes, size_t count, const struct twi_endpoint *asked, size_t *at,
                            struct twi_slot_range *range);

struct twi_slot_set {
    uint8_t bits[TWI_KEY_SLOTS / 8];
};

struct twi_own_slots {
    struct twi_slot_set serves, moves; /* `moves` has the slots that move from it or to it */
    bool imports;                      /* some come to it */
};

bool twi_slot_set_has(const struct twi_slot_set *set, uint32_t slot);
void twi_slot_set_add(struct twi_slot_set *set, uint32_t slot);

/* Returns false if there is no line of the node itself, or it cannot be read. */
bool twi_cluster_nodes_own(const char *text, struct twi_own_slots *own);
/* Finds the next node to which a slot of this one moves. Begin with `*at` = 0. Returns false if there are no more.
 * `asked` is the node that replied. */
bool twi_cluster_nodes_target(const char *text, const struct twi_endpoint *asked, size_t *at,
                              struct twi_endpoint *target);

/* ---- redirect ----
 * the redirects that a node of a Redis Cluster sends in place of an answer, and how long a store waits
 * before it tries again.
 *
 *   MOVED slot host:port   the slot is another node's. The map is changed (cluster_map.h)
 *   ASK slot host:port     this one request may be done there, behind ASKING. The map stays
 *   TRYAGAIN               some of the keys are here, others have moved. When the slot has moved, all will be there
 *   CLUSTERDOWN            no node serves the slot, or this node serves no client
 *   CROSSSLOT              the keys are in several slots, because of a mistake of ours
 * All of these mean that the request was not executed. One more error can come from the middle of a script
 * (TWI_REDIRECT_NON_LOCAL). The file is pure; times and random bits come from the caller. Always true: a store that
 * is redirected again and again follows TWI_REDIRECT_HOPS_MAX times, and waits longer each time. Then it is
 * throttled: it tries again from time to time. */

enum twi_redirect_kind {
    TWI_REDIRECT_NONE, /* another error, or one of these that cannot be read */
    TWI_REDIRECT_MOVED,
    TWI_REDIRECT_ASK,
    TWI_REDIRECT_TRYAGAIN,
    TWI_REDIRECT_UNSERVED, /* CLUSTERDOWN of one slot */
    TWI_REDIRECT_DOWN,     /* CLUSTERDOWN of the node, for all slots */
    TWI_REDIRECT_CROSSSLOT,
    TWI_REDIRECT_NON_LOCAL /* a script stopped in its middle at a key that has moved; its earlier writes stay */
};

struct twi_redirect {
    enum twi_redirect_kind kind;
    uint32_t slot;          /* of MOVED and ASK */
    bool has_endpoint;      /* for MOVED and ASK; false if the node does not name an address */
    struct twi_endpoint to; /* if has_endpoint */
};

/* Reads an error. `asked` is the node that answered. */
void twi_redirect_read(const struct twi_node *error, const struct twi_endpoint *asked, struct twi_redirect *redirect);

/* ---- how long to wait -------------------------------------------------------------------------------------------- */

#define TWI_REDIRECT_HOPS_MAX 6u      /* MOVED and ASK followed in a row */
#define TWI_REDIRECT_HOP_MS 2         /* before the second of them; it doubles */
#define TWI_REDIRECT_PROBE_MS 20      /* between the tries of a deferred store; it doubles ... */
#define TWI_REDIRECT_PROBE_MAX_MS 200 /* ... to this */
#define TWI_REDIRECT_MISTAKE_MS 30000 /* after CROSSSLOT */

/* One store's waiting. All zero if it does not wait. */
struct twi_detour {
    uint32_t hops;    /* MOVED and ASK since the last answer */
    uint32_t probes;  /* tries while it was deferred */
    int64_t again_ms; /* no request is sent for the store before this time */
    bool is_held;     /* one request at a time is sent, as a probe */
    /* of batches and openings alone (cluster.h) */
    bool is_logged;   /* a log line about the length of this was written */
    int64_t since_ms; /* the first redirect since the last answer */
};

/* Notes a redirect of the store. TWI_REDIRECT_NONE and NON_LOCAL are ignored. */
void twi_detour_note(struct twi_detour *detour, enum twi_redirect_kind kind, int64_t now_ms, uint64_t random);
/* Called if the owner of the store's slot is unknown. */
void twi_detour_hold(struct twi_detour *detour, int64_t now_ms, uint64_t random);
/* Called if the store got an answer that is no redirect. */
void twi_detour_end(struct twi_detour *detour);

#endif
