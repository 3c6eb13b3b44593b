/* peer.h -- what a table must be able to do to take part: one struct of functions, each called for a run of keys at a
 * time, so that the call through a pointer costs every peer the same nothing.
 *
 * Keys are slots: `stride` bytes (32, 64 or 128), the key's bytes first, zeroes behind, its size in the last byte. A
 * peer with an inline key takes a slot as it stands as its key type; everyone else takes pointer and size. Nobody
 * copies a key to look it up.
 * Always true: a peer lives in a child process of its own that loads it, measures it, has its sum and number of
 * counters checked and ends; so there is nothing to destroy, and what a peer cost is what the child grew by. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include "bench/histogram.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a peer is told before it is loaded. */
struct bench_setup {
    uint32_t stride;
    uint64_t keys_expected; /* 0: grow from small */
    uint32_t threads;       /* that will add at once, at most */
    const char *address;    /* unix socket, for peers that are servers */
    int64_t window_ms;      /* 0: an hour; only Tallywheel has windows */
};

struct bench_total {
    int64_t sum;
    uint64_t counters;
};

typedef int64_t bench_run(void *self, const unsigned char *slots, size_t count);

struct bench_peer {
    const char *name; /* of the library */
    const char *form; /* how it is used: "inline", "string", "view" ... */
    const char *note; /* what a reader must know, or NULL */
    uint32_t stride;  /* 0: any */
    void *(*make)(const struct bench_setup *setup);
    /* Around each thread's adding; may be NULL. */
    void (*enter)(void *self);
    void (*leave)(void *self);
    /* +1 to each key; answers something that depends on the results. */
    bench_run *add;
    /* The address of each key depends on the result before; NULL: not offered. */
    bench_run *add_dependent;
    /* Every call timed; NULL: not offered. */
    void (*add_timed)(void *self, const unsigned char *slots, size_t count, struct bench_histogram *histogram);
    /* All counters added up, after all threads have left. False: could not be read. */
    bool (*total)(void *self, struct bench_total *total);
};

static inline size_t bench_slot_size(const unsigned char *slot, uint32_t stride) {
    return slot[stride - 1];
}

/* Always 0, and the compiler does not know it: makes an address depend on a result. */
extern volatile uint64_t bench_zero;

/* ours.c: Tallywheel through its public header. */
const struct bench_peer *bench_ours(void);        /* views wanted, hourly windows, local */
const struct bench_peer *bench_ours_blind(void);  /* no view wanted */
const struct bench_peer *bench_ours_synced(void); /* a family with Redis: marks and larger records; Redis away unless
                                                      `address` names one */
const struct bench_peer *bench_ours_script(void); /* the same by its way to merge, for those who ask what that costs */
const struct bench_peer *bench_ours_multi(void);
const struct bench_peer *bench_ours_setnx(void);
const struct bench_peer *bench_ours_many(void);    /* tw_add_many, bench_many_count keys a call */
const struct bench_peer *bench_ours_pinned(void);  /* tw_pin_add, a pin for each thread: streams of one key only */
const struct bench_peer *bench_ours_acquire(void); /* tw_acquire below the limit */
const struct bench_peer *bench_ours_acquire_synced(void);  /* soft, with the Redis that `address` names */
const struct bench_peer *bench_ours_acquire_hard(void);    /* from a lease that does not run out: one key only */
const struct bench_peer *bench_ours_acquire_exactly(void); /* never from slices */
const struct bench_peer *bench_ours_denied(void);          /* the limit is reached: every call is denied */
extern size_t bench_many_count;

#define BENCH_MANY_MAX 1024u

/* For measurements that only Tallywheel can take part in. */
int64_t bench_ours_memory_bytes(void *self);
/* Waits until Redis has acknowledged everything; false: not within the time. */
bool bench_ours_flush(void *self, uint32_t timeout_ms);
/* The totals that Redis holds for `count` slots, added up; false: not to be had. */
bool bench_ours_fetch(void *self, const unsigned char *slots, size_t count, int64_t *sum);
/* Closes the engine; the sum of what the closing hook has been shown over all windows, and how many windows that
 * were. */
bool bench_ours_close(void *self, int64_t *sum, uint64_t *windows);

#ifdef __cplusplus
}
#endif
#endif
