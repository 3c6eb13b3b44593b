/* ledger.h -- our side of the ledger: the identity of this instance, the numbers that Redis has, and the batches
 * that may be needed again.
 *
 *   |<-- replay buffer -->|<--- unsettled --->|
 *   head ......... confirmed ......... acked ......... last            batches by number, without gaps
 * `acked`: the last number whose items are settled. `confirmed`: the last number that Redis is known to hold now.
 * They are equal, except while batches are replayed to a Redis that went back, or while Redis is asked about batches
 * once more: then confirmed < acked.
 * Always true: confirmed <= acked <= last and looked <= acked; replicated <= the larger of `confirmed` and `looked`.
 * twi_ledger_trim() drops no batch above `replicated` or `confirmed`. The numbers in the list follow each other; a
 * step stands for several. */
#ifndef TWI_SYNC_BATCH_LEDGER_H
#define TWI_SYNC_BATCH_LEDGER_H

#include "sync/batch/reply.h"
#include "sync/batch/batch.h"

#define TWI_LEDGER_TTL_MS INT64_C(86400000) /* 24 h: an engine that is cut off for longer starts a new instance */
/* Of an engine that has closed. A system tries for no longer to deliver what a connection that is gone had sent (Linux:
 * 15 minutes). */
#define TWI_LEDGER_LEFT_MS INT64_C(1200000)
/* 30 s: an engine with nothing to send writes the ledger this often, and so learns that Redis was wiped */
#define TWI_LEDGER_REFRESH_MS INT64_C(30000)
#define TWI_LEDGER_NAME_MAX 512

/* How many of the last numbers the ledger in Redis keeps, with their nonces: the slots of the script. */
#define TWI_LEDGER_REMEMBERS 8u
/* An engine with more refusals than this overestimates a later loss. */
#define TWI_LEDGER_MISSING 64u

/* An identity that we may take: the name of a ledger, and the marker that we would give a store without one. */
struct twi_identity {
    char name[TWI_LEDGER_NAME_MAX];
    size_t name_size;
    char marker[40];
};

struct twi_ledger {
    char name[TWI_LEDGER_NAME_MAX];
    size_t name_size; /* 0 if there is no identity */
    char marker[40];  /* of the store, by its last reply; before that, the one we would give it */
    bool marker_known;
    uint64_t confirmed, acked, last;
    /* While Redis is asked once more about batches. Redis is known to hold them up to here. */
    uint64_t looked;
    /* Enough replicas have the batches up to here. Where replicas are not awaited, it follows `confirmed`. */
    uint64_t replicated;
    bool awaits_replicas;
    uint64_t plus_sum, minus_sum; /* through `last` */
    /* Units that the sums at that number include and Redis lacks. They were refused, or lost before. A ring. */
    struct {
        uint64_t number, units;
    } missing[TWI_LEDGER_MISSING];
    uint32_t missing_next;
    struct twi_batch *head, *tail;
    struct twi_batch *unconfirmed; /* the first above `confirmed`, or NULL; thousands may come before it */
    size_t replay_bytes;           /* of batches up to min(confirmed, acked) */
    size_t
        *all_replay_bytes; /* the sum of these over all ledgers that share one budget; NULL if there is no such sum */
    size_t replay_bytes_max;
    int64_t replay_ms;
};

/* A new identity: 128 random bits (`random` fills what it is given). */
/* `tag`: "", or "{14}" in the name of a ledger in that key slot. */
void twi_identity_make(struct twi_identity *identity, const char *prefix, const char *tag,
                       void (*random)(void *ctx, void *out, size_t size), void *ctx);
/* The ledger takes this identity. Batches that are still held are numbered from 1 again, with new nonces, so that
 * they can be sent under it. The settled ones among them stay settled: `acked` is then their count. */
void twi_ledger_adopt(struct twi_ledger *ledger, const struct twi_identity *identity,
                      void (*random)(void *ctx, void *out, size_t size), void *ctx);
/* Makes an identity and adopts it. */
void twi_ledger_identify(struct twi_ledger *ledger, const char *prefix,
                         void (*random)(void *ctx, void *out, size_t size), void *ctx);
/* The identity is lost, and batches were taken out, perhaps from the middle of the list. Numbers the remaining
 * batches from 1; the sums start at 0 with them. Nothing may be sent under these numbers before the ledger adopts a
 * new identity. */
void twi_ledger_close_ranks(struct twi_ledger *ledger);
/* Gives the batch the next number and puts it at the end. */
void twi_ledger_append(struct twi_ledger *ledger, struct twi_batch *batch, uint64_t nonce);
/* Appends an empty batch, which requests the state of the ledger. False if there is no memory. */
bool twi_ledger_append_empty(struct twi_ledger *ledger, uint64_t nonce, int64_t now_ms);
struct twi_batch *twi_ledger_find(const struct twi_ledger *ledger, uint64_t number); /* NULL if it is not held */
/* The first batch that Redis is not known to hold. */
struct twi_batch *twi_ledger_unconfirmed(const struct twi_ledger *ledger);
bool twi_ledger_is_replaying(const struct twi_ledger *ledger);
/* Redis holds `batch`: `confirmed` moves there, and so does `acked`, unless this is a replay. */
void twi_ledger_confirm(struct twi_ledger *ledger, struct twi_batch *batch);
/* The store's ledger is at `last`, further than we knew, and keeps the last eight numbers. Moves `confirmed` to just
 * before these, so that they are sent again and the store answers for each. False, and nothing changes. No batch would
 * be skipped, or one that is not settled. */
bool twi_ledger_skip_to(struct twi_ledger *ledger, uint64_t last);
/* Two stores may answer differently about a batch that strayed. If one of the last eight numbers did, `confirmed`
 * moves back before those of the eight that are held, so that the store is asked about them once more. */
void twi_ledger_look_back(struct twi_ledger *ledger);
/* Redis is known to hold the batches up to this number. It is not less than `confirmed`. */
uint64_t twi_ledger_known(const struct twi_ledger *ledger);
/* The store lacks what it was asked about once more. From now on it is known to hold only what is confirmed. */
void twi_ledger_end_look(struct twi_ledger *ledger);
/* What was reported of replicas is true of the earlier server only: none of the batches held counts as replicated. */
void twi_ledger_reset_replicas(struct twi_ledger *ledger);
/* A flush is done up to this number: acknowledged, and on enough replicas where these are awaited. */
uint64_t twi_ledger_safe(const struct twi_ledger *ledger);
/* Drops the batches of the replay buffer that are too old, or that exceed its memory. */
void twi_ledger_trim(struct twi_ledger *ledger, int64_t now_ms);
bool twi_ledger_may_drop(const struct twi_ledger *ledger); /* the first batch: Redis and enough replicas have it */
void twi_ledger_drop_first(struct twi_ledger *ledger);     /* only if it may be dropped */
/* So many units of the sums at `number` are known not to be in Redis. They were refused there, or are lost already. */
void twi_ledger_note_missing(struct twi_ledger *ledger, uint64_t number, uint64_t units);
/* Units of this instance whose batches are no longer held, less those that are known to be missing. */
uint64_t twi_ledger_beyond_replay(const struct twi_ledger *ledger);
/* Redis is back at the number and the sums of `head`. Returns the units (magnitudes added up) that cannot be
 * restored, because their batches were dropped from the replay buffer. `step` (an empty batch) steps over the missing
 * numbers, or is freed. */
uint64_t twi_ledger_roll_back(struct twi_ledger *ledger, const struct twi_reply_head *head, struct twi_batch *step,
                              uint64_t nonce);
/* Drops all settled batches and returns the magnitudes of those above that number. Unsettled batches stay. */
uint64_t twi_ledger_replay_drop(struct twi_ledger *ledger, uint64_t above);
/* Takes one batch out of the list. The caller owns it then. */
void twi_ledger_remove(struct twi_ledger *ledger, struct twi_batch *batch);
void twi_ledger_free(struct twi_ledger *ledger);
/* Checks "always true" above, with an identity or without one. Traps where it does not hold. */
bool twi_ledger_is_valid(const struct twi_ledger *ledger);

#endif
