/* refusal.h -- reports which commands and keys Redis refuses, to the log and to tw_stats.last_error.
 * Always true: a line about a command is logged once in an outage (of TWI_REFUSALS_LOGGED different ones). A text from
 * Redis is made printable and cut. */
#ifndef TWI_SYNC_MESSAGE_REFUSAL_H
#define TWI_SYNC_MESSAGE_REFUSAL_H

#include "sync/message/connection.h"
#include "sync/message/state.h"
#include "sync/wire/cluster_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct twi_connection;
struct twi_item;
struct twi_node;
struct twi_store;
struct twi_sync;

/* Copies the text of an error, printable and cut. `first_word`: only its first word. */
void twi_refusal_text(const struct twi_node *error, bool first_word, char *out, size_t size);
/* Redis counts, and keys stay without an expiry there. One line at first, and then one each ten minutes. */
void twi_refusal_unhealed(struct twi_connection *connection, int64_t keys, int64_t now_ms);
/* Redis refuses `what`. Writes a log line and the last error. */
void twi_refusal_report(struct twi_connection *connection, const char *what, const struct twi_node *error);
/* Does the same for a login. Servers repeat arguments that they did not understand, so only the first word of such a
 * reply reaches the log. */
void twi_refusal_login(struct twi_connection *connection, const char *what, const struct twi_node *error);
/* Ends a connection whose server refused as a replica, because it is the wrong one, or whose reply was not understood:
 * the message was perhaps done, and the next connection sends it again. */
void twi_refusal_end(struct twi_connection *connection, enum twi_message_outcome outcome, const struct twi_node *error);
/* A key that is only read cannot be read. Writes one log line in an outage, and no counter waits. */
void twi_refusal_read(struct twi_connection *connection, const struct twi_item *item, const struct twi_node *error);
/* Redis refuses the item's key. The first refusal of a key is counted and logged. A flush under way ends as refused.
 * Returns how long the key is to wait. */
uint32_t twi_refusal_key(struct twi_sync *sync, struct twi_store *store, const struct twi_item *item,
                         const struct twi_node *error, int64_t now_ms);

/* ---- cluster ----
 * a Redis Cluster: which connection leads to which node, and the effect of a redirect on a store.
 *
 *   MOVED      the map is changed; the store goes to the new node when nothing of it is under way at the old one
 *   ASK        the store's first unconfirmed batch goes to the node that was named, behind ASKING; its master stays
 *   TRYAGAIN   the store is held: one batch at a time asks again
 *   CLUSTERDOWN of the whole node concerns the connection, like any refusal, so the function returns false
 * A redirect means that the batch was not executed, so the same batch goes out again. A script that stopped in its
 * middle at a key that has moved leaves the outcome open. The same batch, sent again, shows the outcome.
 * Always true: two connections never lead to the same endpoint. A redirect never closes a connection. */

struct twi_directory;

struct twi_cluster {
    struct twi_cluster_map *map;
    uint32_t version;                /* rises when the map may have changed */
    struct twi_directory *directory; /* the map as waiting callers see it; NULL if no calls can wait */
    uint32_t published;              /* the version of the map that callers see */
    struct twi_connection *asked;    /* the connection over which the map is being refreshed; NULL if there is none */
    bool has_tried;                  /* the map was read once, or could not be read */
    bool was_sent;                   /* CLUSTER SLOTS is under way there */
    int64_t asked_ms;                /* since when it is being dialled, or the command is under way */
    char unserved_error[128];        /* the error about slots that no node serves (nodes.h); "" if there is none */
};

/* The connection to that endpoint. It is made, but not dialled, if there is none. NULL if there is no memory. */
struct twi_connection *twi_cluster_connection(struct twi_sync *sync, const struct twi_endpoint *endpoint);
/* Returns the connection to a node of the map; NULL if there is no memory, or if the map no longer has that node. */
struct twi_connection *twi_cluster_connection_of(struct twi_sync *sync, uint64_t node);
/* Frees a connection that is unused and down. */
void twi_cluster_drop_connection(struct twi_sync *sync, uint32_t i);
/* Returns true if `reply` is a redirect of that store, and notes it. The request was then not executed, unless a script
 * stopped in its middle. Returns false if it is no redirect, or if there is one Redis. */
bool twi_cluster_redirects(struct twi_sync *sync, struct twi_connection *connection, struct twi_store *store,
                           const struct twi_node *reply, int64_t now_ms);
/* Called if a batch or an opening of the store was redirected. A move lasts seconds. A longer one may have been left
 * unfinished, because a master or the program that moved the slot was killed. So after apart_ms
 * (engine/port/services.h) without an answer a line is logged. */
void twi_cluster_sent_away(struct twi_sync *sync, struct twi_store *store, const struct twi_node *reply,
                           int64_t now_ms);
/* Called if an opening was answered, and not with a redirect. (A batch that is answered ends the detour as a whole:
 * cluster_nodes.h.) */
void twi_cluster_answered(struct twi_store *store);
/* Returns true if all servers that have stores of this engine answer. */
bool twi_cluster_is_whole(const struct twi_sync *sync);

#endif
