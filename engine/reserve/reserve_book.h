/* reserve_book.h -- the entries of the local reservation store, found by serial and by buyer, and in the order in which
 * they are examined. reserve_local.c changes and ends them.
 * Always true: an entry is in the chain of its serial from its creation until it is forgotten. It is in its buyer's
 * chain while the buyer counts as one who has reserved or bought. It is in the heap (rank not 0) until time alone
 * cannot change it any more. No call does more than a bounded piece of work, however many entries there are. The heap
 * is leftist (each step takes logarithmic time, also the first one after a million insertions), and an index grows and
 * shrinks a few chains at a time.
 * Under the lock of the reservations. */
#ifndef TWI_RESERVE_RESERVE_BOOK_H
#define TWI_RESERVE_RESERVE_BOOK_H

#include <pthread.h>
#include <stdbool.h>

#include "engine/core/state.h"
#include "engine/reserve/chains.h"

/* Forgets the entries of closed families. It is a walk of the turn through all entries that begins after the closing.
 * Under the lock. */
struct twi_reserve_pass {
    bool asked, restarts;
    uint16_t begun, done; /* numbers of walks */
    uint32_t cursor;      /* the chain to look at next */
};

struct twi_reserve_local {
    pthread_mutex_t lock;
    uint64_t tag;             /* part of its tokens, which identifies this incarnation of this engine */
    uint64_t serial;          /* the serial of the newest reservation */
    uint32_t due;             /* the root of a heap of entries, ordered by wake_ms; 0 means empty */
    struct twi_chains chains; /* two rows, by serial and by buyer */
    uint64_t entries;
    uint64_t bytes; /* arena memory in use for entries and index */
    struct twi_reserve_pass pass;
    _Atomic bool tidies;     /* the turn has work on the index, or with closed families; any thread reads it */
    _Atomic int64_t next_ms; /* monotonic time when the turn has work; written and read by any thread */
};

enum { TWI_HELD, TWI_SOLD, TWI_RETURNED, TWI_SWEEP };

struct twi_reservation {
    uint64_t serial;
    tw_family *family;
    int64_t n;
    int64_t start_ms, end_ms; /* the times of its window, in engine time */
    int64_t due_ms;           /* monotonic time when its lease time ends */
    /* monotonic time when it is examined, which is the heap's order. A SWEEP entry has INT64_MAX meanwhile */
    int64_t wake_ms;
    uint64_t buyer_hash;
    uint32_t left, right, parent; /* links of the heap */
    uint32_t next_by_serial, next_by_buyer;
    uint32_t lines;
    uint8_t rank; /* in the heap, 1 + that of the right child; 0 means not in the heap */
    uint8_t state;
    uint16_t key_size, buyer_size; /* a buyer_size of 0 means no buyer */
    unsigned char bytes[];         /* key, then buyer */
};

TWI_INLINE struct twi_reservation *twi_reservation_at(const struct twi_arena *arena, uint32_t line) {
    return twi_arena_at(arena, line);
}
TWI_INLINE tw_key twi_reservation_key(const struct twi_reservation *entry) {
    return tw_bytes(entry->bytes, entry->key_size);
}
TWI_INLINE tw_key twi_reservation_buyer(const struct twi_reservation *entry) {
    return tw_bytes(entry->bytes + entry->key_size, entry->buyer_size);
}

/* The heap. The entry to examine first; NULL means none. */
struct twi_reservation *twi_reserve_first(tw_engine *engine);
void twi_reserve_push(tw_engine *engine, struct twi_reservation *entry);
/* Visits the entries in the heap, in no particular order. `visit` changes nothing. */
void twi_reserve_visit(tw_engine *engine, void (*visit)(void *ctx, const struct twi_reservation *entry), void *ctx);
/* Takes an entry out of the heap, wherever it is. */
void twi_reserve_take_out(tw_engine *engine, struct twi_reservation *entry);

/* A zeroed entry with room for so many bytes, in no list. Returns NULL if there is no memory, or if reservations have
 * half of it. */
struct twi_reservation *twi_reserve_make(tw_engine *engine, size_t bytes);
/* Gives back an entry that is in no list. */
void twi_reserve_give(tw_engine *engine, struct twi_reservation *entry);
/* Enters it under its serial, and under its buyer if it has one. */
void twi_reserve_link(tw_engine *engine, struct twi_reservation *entry);
/* The buyer may reserve again. */
void twi_reserve_unlink_buyer(tw_engine *engine, struct twi_reservation *entry);
/* Takes it out of all lists and gives it back. */
void twi_reserve_forget(tw_engine *engine, struct twi_reservation *entry);

struct twi_reservation *twi_reserve_find(tw_engine *engine, uint64_t serial);
/* The newest entry of the chain of that buyer; by next_by_buyer the others follow. NULL means none. */
struct twi_reservation *twi_reserve_of_buyer(tw_engine *engine, uint64_t buyer_hash);

/* Work of the turn on the index: moves chains to the larger or smaller one. Returns true if there is more work. */
bool twi_reserve_tidy(tw_engine *engine);
/* Shows entries by chain, from reservations->pass.cursor on, as many chains as *work allows; `visit` may forget the
 * entry. Returns true if all were shown. */
bool twi_reserve_walk(tw_engine *engine, uint32_t *work,
                      void (*visit)(tw_engine *engine, struct twi_reservation *entry));

#endif
