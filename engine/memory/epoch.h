/* epoch.h -- read sections, the threads that enter them, and the time from which memory may be reused. Epochs are
 * process-wide.
 *
 * A thread that may use arena memory is inside a section. Its record shows the epoch in which it entered. Memory that
 * was unlinked at epoch e is reused once no record shows an epoch <= e. No thread waits. The turn never waits. It
 * looks, and looks again later. A section protects only memory; each call reads the clock and looks up its window.
 *
 * ck_epoch is not used. Its begin needs a full fence (2-5 ns of an add that takes ten), its barrier blocks, and the
 * poll of 0.7.1 dispatches too early on weakly ordered processors. Here the fence is asymmetric: to enter costs two
 * plain stores, and the turn calls membarrier(2). Without membarrier, and under ThreadSanitizer, a thread enters with
 * an exchange.
 *
 * The kernel wipes the memory of the records upon fork. A thread in a forked child finds a record without its mark and
 * registers again. In this way the library notices a fork.
 * Always true: only the thread of a record writes it. A record is never freed, only used again.
 *
 *                  enter/leave   reach   advance        x = the caller must prevent it
 *  enter/leave         -           -        -
 *  advance             -           -        -           any number of turns (one per engine) */
#ifndef TWI_MEMORY_EPOCH_H
#define TWI_MEMORY_EPOCH_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"

/* The counter to which the last adds of a thread went, in the family with that serial, from start_ms until end_ms. */
struct twi_repeated {
    uint64_t family;
    int64_t start_ms, end_ms;
    void *generation, *cell;
};

struct twi_thread {
    alignas(2 * TWI_LINE_BYTES) _Atomic uint64_t epoch; /* 0 means that the thread is in no section */
    /* The next fields are one word, so that one comparison can check them (twi_thread_is_plain). */
    uint8_t mark;    /* TWI_THREAD_MARK; 0 after a fork wiped it */
    uint8_t repeats; /* not 0 if the thread checks whether all its adds go to one counter (repeat_fast.h) */
    /* 1 means that the last add inserted a key, so the next add may insert one, too (add_fast.h) */
    uint16_t inserts;
    uint32_t depth;       /* nested sections */
    uint32_t process;     /* twi_epoch_process() at the registration of the thread; wiped together with the mark */
    uint32_t shard;       /* the shard of statistics: a separate one, or TWI_SHARD_SHARED */
    uint32_t shard_bytes; /* the same shard, as a distance in bytes from the first one */
    bool in_hook;         /* the thread is inside a user's hook, so some calls are refused with TW_ERR_MODE */
    _Atomic bool taken;   /* the record belongs to a live thread */
    /* the cell that this thread samples for contention (contention.c), and the adds that the thread has seen in that
     * cell: */
    void *sampled;
    int64_t sampled_value, sampled_since_ms;
    uint32_t sampled_adds, sampled_others;
    uint32_t looks;               /* counts calls; one in TWI_CLOCK_LOOK_EVERY looks at the clock */
    struct twi_repeated repeated; /* used while `repeats` is not 0 */
    struct twi_thread *next;      /* the next record in the list of this process; set before the record is shared */
};
#define TWI_SHARDS 256u
#define TWI_SHARD_SHARED (TWI_SHARDS - 1) /* all threads after the first 254 share it */
#define TWI_SHARD_ASIDE (TWI_SHARDS - 2)  /* it belongs to no thread; counts in it are never read (acquire_all.c) */
#define TWI_THREAD_MARK 0xe5u

/* Never NULL. Before its first call a thread has a record without the mark, which is never changed. */
extern _Thread_local struct twi_thread *twi_thread_self __attribute__((tls_model("initial-exec")));
/* the variable is reached without a table */
extern _Atomic uint64_t twi_epoch_current __attribute__((visibility("hidden")));
extern bool twi_epoch_asymmetric; /* true if membarrier works; set before the first section */

/* Registers the calling thread. In a forked child, the first thread that comes here also begins a new process.
 * Returns NULL if there is no memory. */
struct twi_thread *twi_thread_register(void);
/* Sets the function that renews the engines of a forked child before its first call continues. It is set before the
 * first section. */
void twi_epoch_set_on_fork(void (*renew)(void));

TWI_INLINE void twi_thread_use_shard(struct twi_thread *self, uint32_t shard) {
    self->shard = shard;
    self->shard_bytes = shard * TWI_LINE_BYTES;
}

TWI_INLINE struct twi_thread *twi_thread_here(void) {
    struct twi_thread *self = twi_thread_self;
    if (twi_likely(self->mark == TWI_THREAD_MARK)) return self;
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
    /* acquire R3, pairs with R4: memory that was unlinked before the epoch rose can no longer be reached */
    uint64_t epoch = twi_load_acquire(&twi_epoch_current);
    if (TWI_EPOCH_SEES_FENCES && twi_likely(twi_epoch_asymmetric)) {
        twi_store_relaxed(&self->epoch, epoch);
        /* R1, pairs with the membarrier R2: the turn sees this store before it sees an effect of the following loads */
        twi_fence_compiler();
    } else {
        (void)twi_swap_seqcst(&self->epoch,
                              /* R1 with a full fence: after an exchange alone, ARM64 may execute later loads earlier */
                              epoch);
        twi_fence_seqcst();
    }
}

TWI_INLINE void twi_section_leave(struct twi_thread *self) {
    twi_check(self->depth != 0);
    if (--self->depth != 0) return;
    twi_store_release(&self->epoch, 0); /* R5, pairs with R6: our accesses end before the memory is reused */
}

/* Returns true if a call may use a short section. Such a call calls no other function in between. A short section
 * does not count its depth. Its thread is outside of any other section. Allowed if twi_section_may_be_short(). */
TWI_INLINE bool twi_section_may_be_short(void) {
    return !TWI_EPOCH_SEES_FENCES || twi_epoch_asymmetric;
}
TWI_INLINE void twi_section_enter_first(struct twi_thread *self) {
    uint64_t epoch = twi_load_acquire(&twi_epoch_current); /* R3 */
    if (TWI_EPOCH_SEES_FENCES) {
        twi_store_relaxed(&self->epoch, epoch);
        twi_fence_compiler(); /* R1 */
    } else {
        (void)twi_swap_seqcst(&self->epoch, epoch); /* R1 with a full fence, for ThreadSanitizer */
        twi_fence_seqcst();
    }
}
TWI_INLINE void twi_section_leave_first(struct twi_thread *self) {
    twi_store_release(&self->epoch, 0); /* R5 */
}
/* Returns true if the thread is registered in this process and outside of any section, its last add inserted no key,
 * and it does not check whether its adds go to one counter. */
TWI_INLINE bool twi_thread_is_plain(const struct twi_thread *self) {
    const struct twi_thread plain = {.mark = TWI_THREAD_MARK};
    uint64_t is, should;
    static_assert(offsetof(struct twi_thread, mark) % 8 == 0 &&
                      offsetof(struct twi_thread, depth) + sizeof self->depth == offsetof(struct twi_thread, mark) + 8,
                  "mark, repeats, inserts and depth are compared as one word");
    memcpy(&is, (const char *)self + offsetof(struct twi_thread, mark), sizeof is);
    memcpy(&should, (const char *)&plain + offsetof(struct twi_thread, mark), sizeof should);
    return is == should;
}
/* The same for a thread that may already be inside a section. */
TWI_INLINE bool twi_section_enter_short(struct twi_thread *self) {
    bool outermost = self->depth == 0;
    if (twi_likely(outermost)) twi_section_enter_first(self);
    return outermost;
}
TWI_INLINE void twi_section_leave_short(struct twi_thread *self, bool outermost) {
    if (twi_likely(outermost)) twi_section_leave_first(self);
}

/* ---- for the turn ---- */

/* All shards of threads are below this number, except the shared one. */
uint32_t twi_epoch_shards(void);

/* Returns the stamp for memory that was just unlinked. Raises the epoch. */
uint64_t twi_epoch_stamp(void);
/* Memory with a stamp below the result is free, because no section that began at or before the stamp is still open.
 * Costs a membarrier. If the kernel refuses the barrier, the result is 0, and no memory is free. */
uint64_t twi_epoch_reached(void);
/* Returns the errno of the last membarrier if the kernel refused it, otherwise 0. Any thread. */
int twi_epoch_refusal(void);
/* Returns the oldest epoch that an open section shows. UINT64_MAX means that no section is open. The function has no
 * barrier. It serves the figure sections_oldest_ms. */
uint64_t twi_epoch_oldest(void);

#endif
