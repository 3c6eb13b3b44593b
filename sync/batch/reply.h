/* reply.h -- what Redis's replies to a batch mean. Pure: nodes in, meaning out.   Step 7 of the flow.
 *
 * Always true: an error reply is taken for "nothing was done" only if it is on the closed list of those that Redis
 * gives before a script's first write; every other one leaves the outcome unknown. */
#ifndef TWI_SYNC_BATCH_REPLY_H
#define TWI_SYNC_BATCH_REPLY_H

#include "sync/wire/wire.h"

enum twi_reply_kind {
    TWI_REPLY_OK,          /* applied now */
    TWI_REPLY_DUP,         /* had been applied before */
    TWI_REPLY_GAP,         /* not the next number; nothing was done */
    TWI_REPLY_PAST,        /* long past: whose number it was is no longer known; nothing was done */
    TWI_REPLY_GONE,        /* no ledger; nothing was done */
    TWI_REPLY_KEPT,        /* to an opening: the ledger of before is there; nothing was done */
    TWI_REPLY_CLASH,       /* somebody else's number, or another version; nothing was done */
    TWI_REPLY_NOSCRIPT,    /* nothing was done; send the script itself */
    TWI_REPLY_REFUSED,     /* nothing was done; keep the batch, try later */
    TWI_REPLY_TURNED_AWAY, /* nothing was done, and this connection will not change its mind: connect anew, later */
    TWI_REPLY_UNKNOWN      /* perhaps done: drop the connection, send the same again */
};

struct twi_reply_head {
    enum twi_reply_kind kind;
    int64_t redis_ms; /* Redis's TIME */
    bool has_last;
    uint64_t last; /* the ledger's number, after this batch */
    uint64_t plus_sum, minus_sum;
    const char *marker; /* NULL: the store has none */
    size_t marker_size;
    bool registered;              /* GONE, opened: the store's marker knows our instance, or does not say */
    bool has_older;               /* opened: it does not, but an older ledger of ours is there */
    int64_t marker_made_ms;       /* GONE, opened: since when it can know */
    bool done;                    /* DUP: false if that run was cut short */
    int64_t unhealed;             /* keys that stay without an expiry */
    const struct twi_node *error; /* the error reply of NOSCRIPT, REFUSED, TURNED_AWAY, UNKNOWN; else NULL */
    size_t items_at;              /* index of the first item's node */
};

/* False: not a reply of the script's form: drop the connection. */
bool twi_reply_read(const struct twi_node *nodes, size_t count, struct twi_reply_head *head);
/* The meaning of an error reply to any command. */
enum twi_reply_kind twi_reply_error(const struct twi_node *error);
/* Redis does not have the script, and nothing was done: the same command is sent again with EVAL. */
bool twi_reply_needs_script(const struct twi_node *reply);
/* A replica's refusal, TURNED_AWAY: whatever was asked, another server is to be asked. */
bool twi_reply_is_replicas(const struct twi_node *error);

enum twi_item_kind { TWI_ITEM_TOTAL, TWI_ITEM_NO_TOTAL, TWI_ITEM_LATE, TWI_ITEM_FAILED };

struct twi_item_answer {
    enum twi_item_kind kind;
    int64_t total;
    int64_t end_ms;               /* by Redis's clock; 0: not told */
    const struct twi_node *error; /* FAILED */
};

/* The next item's answer; `*at` moves on. False: the reply does not have it: drop the connection. */
bool twi_reply_item(const struct twi_node *nodes, size_t count, size_t *at, struct twi_item_answer *answer);

#endif
