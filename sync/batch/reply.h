/* reply.h -- the meaning of Redis's replies to a batch. Pure, from nodes to meaning.   Step 7 of the flow.
 *
 * Always true: an error reply means "not executed" only if it is on the closed list of errors that Redis gives before a
 * script's first write. Any other error leaves the outcome unknown. */
#ifndef TWI_SYNC_BATCH_REPLY_H
#define TWI_SYNC_BATCH_REPLY_H

#include "sync/wire/wire.h"

enum twi_reply_kind {
    TWI_REPLY_OK,          /* applied now */
    TWI_REPLY_DUP,         /* it was applied before */
    TWI_REPLY_GAP,         /* not the next number; not executed */
    TWI_REPLY_PAST,        /* the number is too old to be remembered; not executed */
    TWI_REPLY_GONE,        /* no ledger; not executed */
    TWI_REPLY_KEPT,        /* reply to an opening. The ledger of the previous instance is there; not executed */
    TWI_REPLY_CLASH,       /* another batch has this number, or another version of the script; not executed */
    TWI_REPLY_NOSCRIPT,    /* not executed; send the script itself */
    TWI_REPLY_REFUSED,     /* not executed; keep the batch, try later */
    TWI_REPLY_TURNED_AWAY, /* not executed, and never on this connection; connect again later */
    /* Reply to a request that is no batch. A key of the request has a value that its script does not expect. The
     * request was executed in part at most. Redis and the connection are in order. The request would get the same
     * answer again. */
    TWI_REPLY_SPOILT,
    TWI_REPLY_UNKNOWN /* perhaps executed; drop the connection, and send the same again */
};

struct twi_reply_head {
    enum twi_reply_kind kind;
    int64_t redis_ms; /* Redis's TIME */
    bool has_last;
    uint64_t last; /* the ledger's number, after this batch */
    uint64_t plus_sum, minus_sum;
    const char *marker; /* NULL if the store has none */
    size_t marker_size;
    bool registered;        /* GONE, opened: the store's marker names our instance, or the reply does not show it */
    bool has_older;         /* opened. The marker does not name it, but an older ledger of ours is there */
    int64_t marker_made_ms; /* GONE, opened: when the marker was made (it names no earlier instance); 0 if just now */
    int64_t survivors;      /* opened, in a cluster: keys that may be left from before the marker; -1 if not known */
    bool done;              /* DUP: false if that run was cut short */
    int64_t unhealed;       /* keys that stay without an expiry */
    const struct twi_node *error; /* the error reply of NOSCRIPT, REFUSED, TURNED_AWAY, UNKNOWN; otherwise NULL */
    size_t items_at;              /* index of the first item's node */
};

/* False means that the reply does not have the script's form, and the connection is to be dropped. */
bool twi_reply_read(const struct twi_node *nodes, size_t count, struct twi_reply_head *head);
/* The text of an error, without what Redis 6 puts in front of it if it comes from a script. */
const char *twi_reply_said(const struct twi_node *error);
/* The meaning of an error reply to any command. */
enum twi_reply_kind twi_reply_error(const struct twi_node *error);
/* Redis lacks the script, and has not executed the command. The same command is to be sent again with EVAL. */
bool twi_reply_needs_script(const struct twi_node *reply);
/* The user may not run a command, or may not use a key. */
bool twi_reply_is_forbidden(const struct twi_node *error);
/* An error that only a replica gives (TURNED_AWAY). The request must go to another server. */
bool twi_reply_is_replicas(const struct twi_node *error);

enum twi_role { TWI_ROLE_UNKNOWN, TWI_ROLE_MASTER, TWI_ROLE_REPLICA };
/* The role in the reply to ROLE. A sentinel is no master. */
enum twi_role twi_reply_role(const struct twi_node *nodes, size_t count);
/* The facts in the reply to INFO. */
enum twi_role twi_reply_info_role(const struct twi_node *info);

enum twi_item_kind { TWI_ITEM_TOTAL, TWI_ITEM_NO_TOTAL, TWI_ITEM_LATE, TWI_ITEM_FAILED };

struct twi_item_answer {
    enum twi_item_kind kind;
    int64_t total;
    int64_t end_ms;               /* in Redis's time; 0 if the reply lacks it */
    const struct twi_node *error; /* FAILED */
};

/* The next item's answer; `*at` moves on. Returns false if the reply has no more answers. The connection must then be
 * dropped. */
bool twi_reply_item(const struct twi_node *nodes, size_t count, size_t *at, struct twi_item_answer *answer);

#endif
