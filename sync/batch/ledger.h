/* ledger.h -- our side of the ledger. It has the identity of this instance, the numbers that Redis has, and the batches
 * that may be needed again.
 *
 *   |<-- replay buffer -->|<--- unsettled --->|
 *   head ......... confirmed ......... acked ......... last            batches by number, without gaps
 * `acked` is the last number whose items are settled. `confirmed` is the last number that Redis is known to have now.
 * They are equal, except while batches are sent again to a Redis that went back, or while Redis must answer about
 * batches again. Then confirmed < acked.
 * Always true: confirmed <= acked <= last and looked <= acked; replicated <= the larger of `confirmed` and `looked`.
 * twi_ledger_trim() drops no batch above `replicated` or `confirmed`. The numbers in the list follow each other; a
 * step has several numbers. */
#ifndef TWI_SYNC_BATCH_LEDGER_H
#define TWI_SYNC_BATCH_LEDGER_H

#include "sync/batch/reply.h"
#include "sync/batch/batch.h"
#include "sync/batch/replay_ring.h"
#include "engine/port/driver.h"

#include <stdatomic.h>

#define TWI_LEDGER_TTL_MS INT64_C(86400000) /* 24 h. An engine that is cut off for longer starts a new instance */
/* The ledger's life after the engine has closed. No operating system tries for longer to deliver the data of a
 * closed connection (Linux tries for 15 minutes). */
#define TWI_LEDGER_LEFT_MS INT64_C(1200000)
/* 30 s. An idle engine writes the ledger this often, and so learns that Redis was wiped */
#define TWI_LEDGER_REFRESH_MS INT64_C(30000)
#define TWI_LEDGER_NAME_MAX 512

/* How many of the last numbers the ledger in Redis keeps, with their nonces: the slots of the script. */
#define TWI_LEDGER_REMEMBERS 8u
/* An engine with more refusals than this overestimates a later loss. */
#define TWI_LEDGER_MISSING 64u

/* An identity that we may adopt. It has the name of a ledger, and the marker for a store that has none. */
struct twi_identity {
    char name[TWI_LEDGER_NAME_MAX];
    size_t name_size;
    char marker[40];
};

/* Units that the sums at that number include and Redis lacks. They were refused, or were lost before. A ring. */
struct twi_ledger_missing {
    struct {
        uint64_t number, units;
    } places[TWI_LEDGER_MISSING];
    uint32_t next;
};

struct twi_ledger {
    char name[TWI_LEDGER_NAME_MAX];
    size_t name_size; /* 0 if there is no identity */
    char marker[40];  /* of the store, by its last reply; before that, the one we would give it */
    bool marker_known;
    uint64_t confirmed, acked, last;
    /* Used while Redis must answer about batches again. Redis is known to have all batches up to this number. */
    uint64_t looked;
    /* Enough replicas have all batches up to this number. If replicas are not awaited, it is equal to `confirmed`. */
    uint64_t replicated;
    bool awaits_replicas;
    uint64_t plus_sum, minus_sum; /* through `last` */
    struct twi_ledger_missing missing;
    struct twi_batch *head, *tail;
    struct twi_batch *unconfirmed; /* the first above `confirmed`, or NULL; thousands may come before it */
    struct twi_replay_ring *ring;  /* of a shared engine: the settled batches, for the next process; otherwise NULL */
    size_t replay_bytes;           /* of batches up to min(confirmed, acked) */
    size_t
        *all_replay_bytes; /* the sum of these over all ledgers that share one budget; NULL if there is no such sum */
    size_t replay_bytes_max;
    int64_t replay_ms;
};

/* Makes a new identity: 128 random bits (`random` fills the buffer that it gets). */
/* `tag`: "", or "{14}" in the name of a ledger in that key slot. */
void twi_identity_make(struct twi_identity *identity, const char *prefix, const char *tag,
                       void (*random)(void *ctx, void *out, size_t size), void *ctx);
/* The ledger adopts this identity. Batches that are still in it are numbered from 1 again, with new nonces, so that
 * they can be sent under it. Those of them that were settled stay settled: `acked` is then their count. */
void twi_ledger_adopt(struct twi_ledger *ledger, const struct twi_identity *identity,
                      void (*random)(void *ctx, void *out, size_t size), void *ctx);
/* Makes an identity and adopts it. */
void twi_ledger_identify(struct twi_ledger *ledger, const char *prefix,
                         void (*random)(void *ctx, void *out, size_t size), void *ctx);
/* The identity is lost, and batches were taken out, perhaps from the middle of the list. Numbers the remaining batches
 * from 1, and starts the sums at 0. No batch may be sent under these numbers before the ledger adopts a new
 * identity. */
void twi_ledger_close_ranks(struct twi_ledger *ledger);
/* Gives the batch the next number and puts it at the end. */
void twi_ledger_append(struct twi_ledger *ledger, struct twi_batch *batch, uint64_t nonce);
/* Appends an empty batch, which requests the state of the ledger. Returns false if there is no memory. */
bool twi_ledger_append_empty(struct twi_ledger *ledger, uint64_t nonce, int64_t now_ms);
/* Puts a batch at the end that has its number already, and whose outcome is not known (reply.h). A batch between the
 * last one and this one is lost: `step` (an empty batch) steps over its number. Without a gap `step` is freed. */
void twi_ledger_inherit(struct twi_ledger *ledger, struct twi_batch *batch, struct twi_batch *step, uint64_t nonce);
/* The list of a ledger that has no batch yet begins with the batches of its ring. `acked` and the sums are those that
 * were saved; a batch that came into the ring just after that is settled, too. `confirmed`: as it was saved. A run of
 * batches that does not end at `acked` is of no use. */
void twi_ledger_inherit_kept(struct twi_ledger *ledger, uint64_t confirmed);
/* Behind them comes a settled batch that is not in the ring yet, because the process before has ended before that. NULL
 * means that its content is lost. `noted` has its numbers and sums. */
void twi_ledger_inherit_settled(struct twi_ledger *ledger, struct twi_batch *batch, const struct twi_batch *noted);
struct twi_batch *twi_ledger_find(const struct twi_ledger *ledger, uint64_t number); /* NULL if it is not in the list */
/* Returns the first batch that is not known to be in Redis. */
struct twi_batch *twi_ledger_unconfirmed(const struct twi_ledger *ledger);
bool twi_ledger_is_replaying(const struct twi_ledger *ledger);
/* Redis has `batch`. `confirmed` moves there, and so does `acked`, unless this is a replay. */
void twi_ledger_confirm(struct twi_ledger *ledger, struct twi_batch *batch);
/* A batch that is confirmed goes into the ring, before its number is saved. If there is no room, older ones that may be
 * dropped make room. Does nothing without a ring, or if it is there already. */
void twi_ledger_keep(struct twi_ledger *ledger, struct twi_batch *batch);
/* The store's ledger is at `last`, further than we knew, and remembers the last eight numbers. Moves `confirmed` to
 * just before these, so that they are sent again and the store answers for each. Returns false and changes no state if
 * no batch would be skipped, or an unsettled one. */
bool twi_ledger_skip_to(struct twi_ledger *ledger, uint64_t last);
/* Two stores may answer differently about a batch that strayed. If one of the last eight numbers did, `confirmed` moves
 * back before those of the eight that are in the list, so that the store answers about them again. */
void twi_ledger_look_back(struct twi_ledger *ledger);
/* Notes that the batches up to this number are known to be in Redis. It is not less than `confirmed`. */
uint64_t twi_ledger_known(const struct twi_ledger *ledger);
/* Called if the store lacks the batches about which it had to answer again. From now on it is known to have only the
 * confirmed batches. */
void twi_ledger_end_look(struct twi_ledger *ledger);
/* Earlier reports about replicas are true only for the earlier server, so no batch of the list counts as replicated. */
void twi_ledger_reset_replicas(struct twi_ledger *ledger);
/* A flush is done up to this number. These batches are acknowledged, and on enough replicas if replicas are awaited. */
uint64_t twi_ledger_safe(const struct twi_ledger *ledger);
/* Drops the batches of the replay buffer that are too old, or that exceed its memory. */
void twi_ledger_trim(struct twi_ledger *ledger, int64_t now_ms);
/* The sums of the instance through `acked`. */
void twi_ledger_sums_acked(const struct twi_ledger *ledger, uint64_t *plus_sum, uint64_t *minus_sum);
bool twi_ledger_may_drop(const struct twi_ledger *ledger); /* true if Redis and enough replicas have the first batch */
void twi_ledger_drop_first(struct twi_ledger *ledger);     /* only if it may be dropped */
/* So many units of the sums at `number` are known not to be in Redis. They were refused there, or are lost already. */
void twi_ledger_note_missing(struct twi_ledger *ledger, uint64_t number, uint64_t units);
/* Returns the units of this instance whose batches left the list, without those that are known to be missing. */
uint64_t twi_ledger_beyond_replay(const struct twi_ledger *ledger);
/* Called if Redis is back at the number and the sums of `head`. Returns the units (magnitudes added up) that cannot
 * be restored, because their batches were dropped from the replay buffer. `step` (an empty batch) steps over the
 * missing numbers, or is freed. */
uint64_t twi_ledger_roll_back(struct twi_ledger *ledger, const struct twi_reply_head *head, struct twi_batch *step,
                              uint64_t nonce);
/* Drops all settled batches and returns the magnitudes of those above that number. Unsettled batches stay. */
uint64_t twi_ledger_replay_drop(struct twi_ledger *ledger, uint64_t above);
/* Takes one batch out of the list. The caller owns it then. */
void twi_ledger_remove(struct twi_ledger *ledger, struct twi_batch *batch);
void twi_ledger_free(struct twi_ledger *ledger);
/* Checks "always true" above, with an identity or without one. Traps if one of these statements is false. */
bool twi_ledger_is_valid(const struct twi_ledger *ledger);

/* ---- ticket ----
 * tw_flush() waits for a full collection that began after the call, until its batches are acknowledged.
 *
 *   waiting --begin--> collecting --whole--> awaited (up to a number) --acknowledged--> settled: DONE or REFUSED
 * A round has a share in each store, namely the number up to which the store's batches are awaited. It is settled when
 * no store is short any more.
 * Any thread takes a ticket and reads its state. The turn moves all waiting tickets on at once. Always true: there is
 * one round at a time. A ticket taken during a round waits for the next round, so this always includes what the caller
 * had added before. Numbers of different stores are independent. */

#define TWI_TICKET_OUTCOMES 256 /* rounds whose outcome is kept; a round takes a network round trip */

/* The batches of one store that the round awaits. Written by the turn alone. */
struct twi_ticket_share {
    uint64_t number; /* batches up to this number; valid once `again` is false */
    bool is_short;   /* they are not all acknowledged */
    bool again;      /* is_short, and the collection that has to end first is not over */
};

struct twi_tickets {
    _Atomic uint64_t taken;   /* the last ticket given */
    _Atomic uint64_t settled; /* all up to this one are settled */
    /* For each of the last rounds, the last ticket of the round << 1 | refused. */
    _Atomic uint64_t outcomes[TWI_TICKET_OUTCOMES];
    _Atomic uint64_t refused_before; /* the last ticket of the last refused round that was overwritten; 0 without one */
    /* written by the turn alone */
    uint64_t round;                   /* rounds settled so far */
    uint64_t until;                   /* the round's last ticket */
    uint32_t stores_short;            /* shares with is_short */
    bool active, collecting, refused; /* `collecting` is true only while `active` is */
};

uint64_t twi_ticket_take(struct twi_tickets *tickets);                          /* any thread */
enum twi_ticket twi_ticket_state(struct twi_tickets *tickets, uint64_t ticket); /* any thread */
bool twi_ticket_waits(const struct twi_tickets *tickets); /* returns true if a ticket is not settled; any thread */
/* Returns true if a round begins, and the caller begins a full collection now, and joins each store to it. */
bool twi_ticket_begin(struct twi_tickets *tickets);
/* Gives this store a share in the round that collects. Called also for a store that is made meanwhile. */
void twi_ticket_join(struct twi_tickets *tickets, struct twi_ticket_share *share);
/* Called when the full collection has ended. Then, for each store, the number of its last batch. */
void twi_ticket_collected(struct twi_tickets *tickets);
void twi_ticket_await(struct twi_ticket_share *share, uint64_t number);
void twi_ticket_refused(struct twi_tickets *tickets); /* called if a part of the round was refused, late or uncertain */
/* Called if items went back to their counters, so that the round collects again. Returns true if the caller begins a
 * full collection now. */
bool twi_ticket_renew(struct twi_tickets *tickets);
/* Does the same if the items are of one store, or if its batches were renumbered, even if the round had all of that
 * store. What is awaited of the other stores does not change. */
bool twi_ticket_renew_share(struct twi_tickets *tickets, struct twi_ticket_share *share);
/* Called if the store has acknowledged all batches up to that number. */
void twi_ticket_acknowledged(struct twi_tickets *tickets, struct twi_ticket_share *share, uint64_t acked);
/* Settles the round if no batch is awaited any more. */
void twi_ticket_settle(struct twi_tickets *tickets);

#endif
