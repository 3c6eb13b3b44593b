/* ledger.h -- our side of the ledger: who we are, which numbers Redis has, and the batches that may be needed again.
 *
 *   |<-- replay window -->|<--- unsettled --->|
 *   head ......... confirmed ......... acked ......... last            batches by number, without gaps
 * `acked`: the last number whose items were settled. `confirmed`: the last number that Redis is known to hold now.
 * They are equal, except while Redis, having gone back, is being replayed to, or is asked once more: then confirmed <
 * acked.
 * Always true: confirmed <= acked <= last, and so is what is known to be there, and replicated <= that; no batch
 * above `replicated` or `confirmed` is ever dropped; numbers in the list follow each other. */
#ifndef TWI_SYNC_BATCH_LEDGER_H
#define TWI_SYNC_BATCH_LEDGER_H

#include "sync/batch/reply.h"
#include "sync/batch/batch.h"

#define TWI_LEDGER_TTL_MS INT64_C(86400000) /* 24 h: an engine cut off for longer starts a new instance */
/* 30 s: an engine with nothing to send writes it this often, and so learns that Redis was wiped */
#define TWI_LEDGER_REFRESH_MS INT64_C(30000)
#define TWI_LEDGER_NAME_MAX 512

#define TWI_LEDGER_REMEMBERS 8u /* the last so many numbers, with their nonces: the script's slots */
#define TWI_LEDGER_MISSING 64u  /* an engine that is refused more often than that counts a later loss too high */

/* Who we may become: the name of a ledger, and the marker that we would give a store without one. */
struct twi_identity {
    char name[TWI_LEDGER_NAME_MAX];
    size_t name_size;
    char marker[40];
};

struct twi_ledger {
    char name[TWI_LEDGER_NAME_MAX];
    size_t name_size; /* 0: no identity */
    char marker[40];  /* of the store, as last told; before that, the one we would give it */
    bool marker_known;
    uint64_t confirmed, acked, last;
    uint64_t looked;     /* up to there Redis is known to hold them, though it is asked about some once more */
    uint64_t replicated; /* up to there enough replicas have it; `confirmed`, where nobody asks for replicas */
    bool awaits_replicas;
    uint64_t plus_sum, minus_sum; /* through `last` */
    struct {
        uint64_t number, units;
    } missing[TWI_LEDGER_MISSING]; /* in the sums at that number, and not in Redis: refused, or lost before. A ring */
    uint32_t missing_next;
    struct twi_batch *head, *tail;
    struct twi_batch
        *unconfirmed;    /* the first above `confirmed`; NULL: none. The window before it may hold thousands */
    size_t window_bytes; /* of batches up to min(confirmed, acked) */
    size_t window_bytes_max;
    int64_t window_ms;
};

/* A new identity: 128 random bits (`random` fills what it is given). */
void twi_identity_make(struct twi_identity *identity, const char *prefix,
                       void (*random)(void *ctx, void *out, size_t size), void *ctx);
/* The ledger goes by it from now on. Batches that are still held are numbered anew from 1, with new nonces, so that
 * they can be sent under it; the first `acked` of them stay settled. */
void twi_ledger_adopt(struct twi_ledger *ledger, const struct twi_identity *identity,
                      void (*random)(void *ctx, void *out, size_t size), void *ctx);
/* Both. */
void twi_ledger_identify(struct twi_ledger *ledger, const char *prefix,
                         void (*random)(void *ctx, void *out, size_t size), void *ctx);
/* The identity is lost, and batches were taken out, perhaps in the midst of others: those that are left are numbered
 * from 1, and sums start at 0 with them. Nothing may be sent under these numbers before twi_ledger_identify(). */
void twi_ledger_close_ranks(struct twi_ledger *ledger);
/* Gives the batch the next number and puts it at the end. */
void twi_ledger_append(struct twi_ledger *ledger, struct twi_batch *batch, uint64_t nonce);
/* An empty batch, which asks how the ledger stands. False: no memory. */
bool twi_ledger_append_empty(struct twi_ledger *ledger, uint64_t nonce, int64_t now_ms);
struct twi_batch *twi_ledger_find(const struct twi_ledger *ledger, uint64_t number); /* NULL: not held */
/* The first batch that Redis is not known to hold. */
struct twi_batch *twi_ledger_unconfirmed(const struct twi_ledger *ledger);
bool twi_ledger_is_replaying(const struct twi_ledger *ledger);
/* Redis holds `batch`: confirmed moves there; so does acked, unless this is a replay. */
void twi_ledger_confirm(struct twi_ledger *ledger, struct twi_batch *batch);
/* The store is at `last`, further than we knew, and remembers the eight numbers up to there: it is asked about these
 * again. False: that would leave out some that are not settled. */
bool twi_ledger_skip_to(struct twi_ledger *ledger, uint64_t last);
/* Two stores may have different answers about a batch that strayed: the store is asked once more about those of the
 * eight numbers it remembers that are held, if one of them did. */
void twi_ledger_look_back(struct twi_ledger *ledger);
/* Up to there Redis is known to hold them: not less than `confirmed`. */
uint64_t twi_ledger_known(const struct twi_ledger *ledger);
/* It lacks what it was asked about once more. */
void twi_ledger_believe(struct twi_ledger *ledger);
/* Up to there a flush is done: acknowledged, and on enough replicas. */
uint64_t twi_ledger_safe(const struct twi_ledger *ledger);
/* Drops what is too old, or too much, of the replay window. */
void twi_ledger_trim(struct twi_ledger *ledger, int64_t now_ms);
/* So many units of the sums at `number` are known not to be in Redis: they were refused there, or are lost already. */
void twi_ledger_note_missing(struct twi_ledger *ledger, uint64_t number, uint64_t units);
/* What was ever acknowledged under this instance and is no longer held. */
uint64_t twi_ledger_beyond_window(const struct twi_ledger *ledger);
/* Redis is back at `number` with these sums. Returns what can never be restored (magnitudes added up): what was dropped
 * from the window. `step` (an empty batch) is used to step over missing numbers, or freed. */
uint64_t twi_ledger_roll_back(struct twi_ledger *ledger, const struct twi_reply_head *head, struct twi_batch *step,
                              uint64_t nonce);
/* Drops the whole window; returns the magnitudes of its batches above that number. Unsettled batches stay. */
uint64_t twi_ledger_window_drop(struct twi_ledger *ledger, uint64_t above);
/* Takes one batch out of the list and hands it over. */
void twi_ledger_remove(struct twi_ledger *ledger, struct twi_batch *batch);
void twi_ledger_free(struct twi_ledger *ledger);
/* With an identity or without one. Traps where it is not. */
bool twi_ledger_is_valid(const struct twi_ledger *ledger);

#endif
