/* peer.h -- what a table must offer to take part: one struct of functions. Each is called for a run of keys at a
 * time, so the call through a pointer costs next to nothing, the same for every peer.
 *
 * Keys are slots of `stride` bytes (32, 64 or 128): the key's bytes first, then zeroes, the key's size in the last
 * byte. A peer with an inline key takes a whole slot as its key type. Every other peer takes pointer and size. No
 * peer copies a key to look it up.
 * Always true: a peer lives in a child process of its own. The child loads it, measures it, has its sum and number
 * of counters checked, and ends. So there is nothing to destroy, and a peer costs the memory by which its child
 * grew. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include "bench/histogram.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a peer learns before it is loaded. */
struct bench_setup {
    uint32_t stride;
    uint64_t keys_expected; /* 0: grow from small */
    uint32_t threads;       /* how many threads will add at once, at most */
    const char *address;    /* unix socket, for peers that are servers */
    int64_t window_ms;      /* 0: an hour; only Tallywheel has windows */
    uint64_t memory_bytes;  /* of addresses that Tallywheel may reserve; 0: 64 GiB */
    uint32_t families;      /* so many tables will be made, each with keys of its own; 0: one */
    void *beside;           /* NULL, or the first of them: Tallywheel's families have one engine */
    bool is_shared;         /* forked processes share Tallywheel's engine */
    bool is_host_driven;    /* Tallywheel's engine has no thread */
    uint32_t limit_shape; /* of Tallywheel's family: enum tw_limit_shape; GCRA keeps no counts, so its total is none */
    bool holds;           /* Tallywheel's family is for tw_hold(): it has one window, and each slot is released */
};

struct bench_total {
    int64_t sum;
    uint64_t counters;
};

typedef int64_t bench_run(void *self, const unsigned char *slots, size_t count);

struct bench_peer {
    const char *name; /* of the library */
    const char *form; /* how it is used: "inline", "string", "view" ... */
    const char *note; /* what a reader of the tables must know, or NULL */
    uint32_t stride;  /* 0: any */
    void *(*make)(const struct bench_setup *setup);
    /* Called before a thread begins to add and after it ends; may be NULL. */
    void (*enter)(void *self);
    void (*leave)(void *self);
    /* Adds 1 to each key. Returns something that depends on the results. */
    bench_run *add;
    /* The same, but the address of each key depends on the result before. NULL: not offered. */
    bench_run *add_dependent;
    /* The same, with every call timed. NULL: not offered. */
    void (*add_timed)(void *self, const unsigned char *slots, size_t count, struct bench_histogram *histogram);
    /* Adds up all counters, after all threads have left. False: they could not be read. */
    bool (*total)(void *self, struct bench_total *total);
};

static inline size_t bench_slot_size(const unsigned char *slot, uint32_t stride) {
    return slot[stride - 1];
}

/* Always 0, but the compiler does not know that: it makes an address depend on a result. */
extern volatile uint64_t bench_zero;

/* ours.c: Tallywheel through its public header. */
const struct bench_peer *bench_ours(void);        /* views wanted, hourly windows, local */
const struct bench_peer *bench_ours_sized(void);  /* the same, with keys_expected */
const struct bench_peer *bench_ours_shared(void); /* an engine that forked processes share; this process leads */
const struct bench_peer *bench_ours_hosted(void); /* a host-driven engine; its host makes a turn now and then */
const struct bench_peer *bench_ours_blind(void);  /* no view wanted */
/* So many calls of another kind that the next ones rely on the time that the engine's thread keeps. */
void bench_ours_settle(void *self, const unsigned char *slot);
/* A family with Redis: marks and larger records. Redis is away unless `address` names one. */
const struct bench_peer *bench_ours_synced(void);
const struct bench_peer *bench_ours_script(void); /* the same, by each way to merge: what it costs */
const struct bench_peer *bench_ours_multi(void);
const struct bench_peer *bench_ours_setnx(void);
const struct bench_peer *bench_ours_many(void);   /* tw_add_many, with bench_many_count keys a call */
const struct bench_peer *bench_ours_pinned(void); /* tw_pin_add, a pin for each thread: only for streams of one key */
const struct bench_peer *bench_ours_pinned_blind(void);    /* the same, no view wanted */
const struct bench_peer *bench_ours_acquire(void);         /* tw_acquire below the limit */
const struct bench_peer *bench_ours_acquire_synced(void);  /* soft, with the Redis that `address` names */
const struct bench_peer *bench_ours_acquire_hard(void);    /* from a lease that does not run out: one key only */
const struct bench_peer *bench_ours_acquire_async(void);   /* tw_acquire_async of a local family */
const struct bench_peer *bench_ours_acquire_exactly(void); /* tw_acquire, but never from slices */
const struct bench_peer *bench_ours_denied(void);          /* the limit is reached: every call is denied */
const struct bench_peer *bench_ours_acquire_shared(void);  /* in an engine that forked processes share */
const struct bench_peer *bench_ours_acquire_hosted(void);  /* in a host-driven engine */
const struct bench_peer *bench_ours_acquire_last_hosted(void);
const struct bench_peer *bench_ours_denied_hosted(void);
const struct bench_peer *bench_ours_acquire_last_shared(void);
const struct bench_peer *bench_ours_denied_shared(void);
const struct bench_peer *bench_ours_hold(void); /* tw_hold and tw_hold_release of each key, in each kind of engine */
const struct bench_peer *bench_ours_hold_shared(void);
const struct bench_peer *bench_ours_hold_hosted(void);
const struct bench_peer *bench_ours_acquire_two(void); /* tw_acquire_all of two limits, and of four */
const struct bench_peer *bench_ours_acquire_four(void);
const struct bench_peer *bench_ours_acquire_silent(void); /* both again without a verdict */
const struct bench_peer *bench_ours_denied_silent(void);
const struct bench_peer *bench_ours_acquire_last(void); /* the only unit of a limit of 1, of keys that are new */
extern size_t bench_many_count;

#define BENCH_MANY_MAX 1024u

/* For measurements that only Tallywheel takes part in. */
int64_t bench_ours_memory_bytes(void *self);
/* Waits until Redis has acknowledged everything. False: not within the time. */
bool bench_ours_flush(void *self, uint32_t timeout_ms);
/* Adds up the totals that Redis holds for `count` slots. False: it cannot get them. */
bool bench_ours_fetch(void *self, const unsigned char *slots, size_t count, int64_t *sum);
/* Closes the engine. *sum: all that the closing hook was shown, over all windows; *windows: how many these were. */
bool bench_ours_close(void *self, int64_t *sum, uint64_t *windows);

#ifdef __cplusplus
}
#endif
#endif
