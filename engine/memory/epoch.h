/* epoch.h -- read sections, the threads that enter them, and when memory may be reused. Epochs, process-wide.
 *
 * A thread that may hold arena memory is inside a section: its record shows the epoch in which it entered. What is
 * unlinked at epoch e is reused once no record shows an epoch <= e. Nobody waits: the turn looks, and looks again
 * later. A section protects memory and nothing else; clock and window are read per call.
 *
 * Why not ck_epoch: its begin carries a full fence (2-5 ns of an add that takes ten), its barrier blocks, and the poll
 * of 0.7.1 dispatches too early on weakly ordered processors. Here the fence is asymmetric: entering is two plain
 * stores; the turn pays with membarrier(2). Where that is missing, and under ThreadSanitizer, entering pays with an
 * exchange.
 *
 * Records live in memory that the kernel wipes upon fork: a forked child meets a record without its mark and
 * registers anew, and that is how the fork is noticed at all (twi_epoch_process() changes).
 * Always true: a record is written by its own thread alone; records are never freed, only used again.
 *
 *                  enter/leave   reach   advance        x = the caller must prevent it
 *  enter/leave         -           -        -
 *  advance             -           -        -           any number of turns (one per engine) */
#ifndef TWI_MEMORY_EPOCH_H
#define TWI_MEMORY_EPOCH_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"

struct twi_thread {
    alignas(2 * TWI_LINE_BYTES) _Atomic uint64_t epoch; /* 0: outside of any section */
    uint32_t mark;                                      /* TWI_THREAD_MARK; 0 after a fork wiped it */
    uint32_t process;                                   /* twi_epoch_process() of its registration; wiped with it */
    uint32_t depth;                                     /* nested sections */
    uint32_t shard;                                     /* of statistics: its own, or TWI_SHARD_SHARED */
    bool inserts;       /* its last add away from home was of a new key: so may be the next (add_fast.h) */
    bool in_hook;       /* inside a user's hook: some calls answer TW_ERR_MODE */
    _Atomic bool taken; /* belongs to a living thread */
    void *sampled;      /* the cell that this thread watches for others (stripe.c), and what it has seen: */
    int64_t sampled_value, sampled_since_ms;
    uint32_t sampled_adds, sampled_others;
    struct twi_thread *next; /* all records of this process; set before sharing */
};
#define TWI_SHARDS 256u
#define TWI_SHARD_SHARED (TWI_SHARDS - 1) /* of all threads after the first 254 */
#define TWI_SHARD_ASIDE (TWI_SHARDS - 2)  /* of nobody: what is counted there is never read (acquire_all.c) */
#define TWI_THREAD_MARK 0x7a11e5u

extern _Thread_local struct twi_thread *twi_thread_self __attribute__((tls_model("initial-exec")));
extern _Atomic uint64_t twi_epoch_current;
extern bool twi_epoch_asymmetric; /* membarrier works; set before the first section */

/* Registers the calling thread (and, in a forked child, begins a new process). NULL: no memory. */
struct twi_thread *twi_thread_register(void);
/* What a forked child does before its first call goes on: makes its engines anew. Set before the first section. */
void twi_epoch_set_on_fork(void (*renew)(void));
/* How often this process has begun: 1, and one more in a child after each fork that it noticed. */
uint32_t twi_epoch_process(void);

TWI_INLINE struct twi_thread *twi_thread_here(void) {
    struct twi_thread *self = twi_thread_self;
    if (twi_likely(self != NULL && self->mark == TWI_THREAD_MARK)) return self;
    return twi_thread_register();
}

#if defined(__SANITIZE_THREAD__)
#define TWI_EPOCH_SEES_FENCES 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TWI_EPOCH_SEES_FENCES 0
#endif
#endif
#ifndef TWI_EPOCH_SEES_FENCES
#define TWI_EPOCH_SEES_FENCES 1
#endif

TWI_INLINE void twi_section_enter(struct twi_thread *self) {
    if (self->depth++ != 0) return;
    /* acquire R3, pairs with R4: what was unlinked before the epoch rose is not reachable for us any more */
    uint64_t epoch = twi_load_acquire(&twi_epoch_current);
    if (TWI_EPOCH_SEES_FENCES && twi_likely(twi_epoch_asymmetric)) {
        twi_store_relaxed(&self->epoch, epoch);
        twi_fence_compiler(); /* R1, pairs with the membarrier R2: our store is seen before any of our loads counts */
    } else {
        (void)twi_swap_seqcst(&self->epoch,
                              epoch); /* R1 at full price: an exchange alone lets later loads pass on ARM64 */
        twi_fence_seqcst();
    }
}

TWI_INLINE void twi_section_leave(struct twi_thread *self) {
    twi_check(self->depth != 0);
    if (--self->depth != 0) return;
    twi_store_release(&self->epoch, 0); /* R5, pairs with R6: our accesses are over before the memory is reused */
}

/* For a call that calls nothing in between: a section without counting its depth. May be used where
 * twi_section_may_be_short(). */
TWI_INLINE bool twi_section_may_be_short(void) {
    return !TWI_EPOCH_SEES_FENCES || twi_epoch_asymmetric;
}
TWI_INLINE bool twi_section_enter_short(struct twi_thread *self) {
    bool outermost = self->depth == 0;
    if (twi_likely(outermost)) {
        uint64_t epoch = twi_load_acquire(&twi_epoch_current); /* R3 */
        if (TWI_EPOCH_SEES_FENCES) {
            twi_store_relaxed(&self->epoch, epoch);
            twi_fence_compiler(); /* R1 */
        } else {
            (void)twi_swap_seqcst(&self->epoch, epoch); /* R1 at full price, for ThreadSanitizer */
            twi_fence_seqcst();
        }
    }
    return outermost;
}
TWI_INLINE void twi_section_leave_short(struct twi_thread *self, bool outermost) {
    if (twi_likely(outermost)) twi_store_release(&self->epoch, 0); /* R5 */
}

/* ---- for the turn ---- */

/* All threads have shards below that (those that share one apart). */
uint32_t twi_epoch_shards(void);

/* The stamp of what has just been unlinked; raises the epoch. */
uint64_t twi_epoch_stamp(void);
/* Every stamp below the answer is free: no section that began at or before it is still open. Costs a membarrier; where the
 * kernel refuses that, nothing is free: 0. */
uint64_t twi_epoch_reached(void);
/* Why the last membarrier was refused (an errno); 0: it was not. Any thread. */
int twi_epoch_refusal(void);
/* The oldest epoch that an open section shows; UINT64_MAX: none. No barrier: for the stall gauge. */
uint64_t twi_epoch_oldest(void);

#endif
