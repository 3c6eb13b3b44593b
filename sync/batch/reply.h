/* reply.h -- the meaning of Redis's replies to a batch. Pure, from nodes to meaning.   Step 7 of the flow.
 *
 * Always true: an error reply means "not executed" only if it is on the closed list of errors that Redis gives before a
 * script's first write. Any other error leaves the outcome unknown. */
#ifndef TWI_SYNC_BATCH_REPLY_H
#define TWI_SYNC_BATCH_REPLY_H

#include "sync/batch/batch.h"
#include "sync/wire/wire.h"

/* ---- inflight ----
 * the batches of a shared engine that were sent and are not settled, in memory that its processes share.
 * The process that makes the turns next sends them again, with the same bytes under the same numbers. So Redis says
 * what became of each, as it does after a lost connection.
 *
 *   free ─before the first byte is sent▶ sent ─Redis has answered, its outcomes are noted▶ settling ─all settled▶ free
 *                                            ├─the next process cannot send it again▶ giving up ─all given up─▶┤
 *                                            └─it went to a store that was left▶ adrift ─all are noted as that─▶┘
 * A process may end after any instruction. So the words are written in an order in which each state is complete, and
 * while a batch is settled, it is noted which item is next.
 * Always true: a batch that was sent, and has an unsettled item, is in one place. A batch of an engine that is not
 * shared has no place. Threads: only the owner of the turn. */

/* More than a pipeline holds, because empty batches need a place, too. */
#define TWI_INFLIGHT_PLACES 16u
/* A batch with so many names that it is larger is uncertain if its process ends. */
#define TWI_INFLIGHT_BYTES (TWI_BATCH_BYTES_MAX + 64u * 1024)

enum twi_inflight_outcome {
    TWI_OUTCOME_APPLIED,
    TWI_OUTCOME_RETURNS,  /* Redis has not applied this item */
    TWI_OUTCOME_LATE,     /* TW_LOST_LATE */
    TWI_OUTCOME_UNCERTAIN /* TW_LOST_UNCERTAIN */
};

struct twi_inflight {
    _Atomic uint32_t state;   /* of TWI_INFLIGHT_ */
    _Atomic uint32_t settled; /* while it is settled, so many items are; the next one may be half settled */
    struct twi_batch batch;   /* its numbers and sums; its pointers mean nothing here */
    size_t key_bytes, arg_bytes;
    struct twi_item items[TWI_BATCH_ITEMS_MAX];
    int64_t acked_before[TWI_BATCH_ITEMS_MAX]; /* twi_port_acked() of each item, before it was settled */
    unsigned char outcomes[TWI_BATCH_ITEMS_MAX];
    char bytes[TWI_INFLIGHT_BYTES]; /* keys, then args */
};
enum { TWI_INFLIGHT_FREE, TWI_INFLIGHT_SENT, TWI_INFLIGHT_SETTLING, TWI_INFLIGHT_GIVING_UP, TWI_INFLIGHT_ADRIFT };

/* Notes a batch that is sent next. Does nothing if it is noted, or if `places` is NULL. Returns false if no place is
 * free. Then it must not be sent. */
bool twi_inflight_note(struct twi_inflight *places, struct twi_batch *batch);
/* Notes the outcome of an item, before any is settled. */
void twi_inflight_outcome(struct twi_batch *batch, uint32_t item, enum twi_inflight_outcome outcome);
void twi_inflight_outcome_of_all(struct twi_batch *batch, enum twi_inflight_outcome outcome);
/* All outcomes are noted, and the items are settled next, in their order. */
void twi_inflight_settle(struct twi_batch *batch);
/* This item is settled next; the number of all items means that none is left. */
void twi_inflight_next(struct twi_batch *batch, uint32_t item);
/* Notes that the store which the engine leaves may have the items that are not noted yet (twi_port_adrift()). */
void twi_inflight_note_adrift(struct twi_inflight *place);
/* Gives the place back, because all items are settled, or because no copy of it can be applied any more. */
void twi_inflight_forget(struct twi_batch *batch);
void twi_inflight_free(struct twi_inflight *place);

/* ---- in the next process ---- */

/* The item that the process before was settling is not settled. Called for each place, before
 * twi_port_inherit_begin(). */
void twi_inflight_undo(struct twi_inflight *place);
/* The items of that place that are not settled are in flight again. Then those of a batch that was being settled are
 * settled by their outcomes, without a total. Returns the batch if it is to be sent again, with its items; NULL if it
 * was settled, or if there is no memory (`has_memory` is false, or there is none): then its items are given up as
 * uncertain. After NULL the caller frees the place. */
struct twi_batch *twi_inflight_inherit(struct twi_inflight *place, bool has_memory);
/* A batch that was being settled, as it is kept to be sent again: without items, and without the deltas that Redis has
 * refused. NULL if there is no memory, or if the place had no room for its bytes. */
struct twi_batch *twi_inflight_settled(const struct twi_inflight *place);

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
