/* epoch.h -- read sections, the threads that enter them, and the time from which memory may be reused. Epochs are
 * process-wide.
 *
 * A thread that may use arena memory is inside a section. Its slot shows the epoch in which it entered. Memory that
 * was unlinked at epoch e is reused once no slot shows an epoch <= e. No thread waits. The turn looks, and looks again
 * later. A section protects only memory; each call reads the clock and looks up its window.
 *
 * ck_epoch is not used. Its begin needs a full fence (2-5 ns of an add that takes ten), its barrier blocks, and poll
 * (0.7.1) dispatches too early on weakly ordered processors. Here the fence is asymmetric: to enter costs two plain
 * stores, and the turn calls membarrier(2). Without membarrier, and under ThreadSanitizer, it is an exchange.
 *
 * A thread has two pieces of memory with one number. Its *record* belongs to its process: the kernel wipes all records
 * upon fork, so a thread in a forked child finds its record without the mark and registers again. That is how the
 * library notices a fork at all. Its *slot* has what others must know of it. Slots lie in memory that a forked child
 * shares. A thread locks the robust mutex of its slot when it registers, and never unlocks it. So the kernel frees it
 * when the thread ends, whether by return, pthread_exit(), kill or exec: whoever can lock it knows that its thread is
 * gone. Whoever meets such a slot takes back what it shows. Where processes share the slots, a thread whose end the
 * kernel would not report gets none.
 * Always true: only its own thread writes a record, and a slot while the thread lives. Both stay mapped for ever,
 * because the kernel's list of a thread's robust mutexes leads there.
 *
 *                  enter/leave   reach   advance        x = the caller must prevent it
 *  enter/leave         -           -        -
 *  advance             -           -        -           any number of turns (one per engine) */
#ifndef TWI_MEMORY_EPOCH_H
#define TWI_MEMORY_EPOCH_H

#include <pthread.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/base/why.h"

/* The counter to which the last adds of a thread went, in the family with that serial, from start_ms until end_ms. */
struct twi_repeated {
    uint64_t family;
    int64_t start_ms, end_ms;
    void *generation, *cell;
};

struct twi_thread {
    /* One word, which one comparison looks at (twi_thread_is_plain). */
    alignas(2 * TWI_LINE_BYTES) uint8_t mark; /* TWI_THREAD_MARK; 0 after a fork wiped it */
    uint8_t repeats;      /* not 0 if the thread watches whether its adds go to one counter (repeat_fast.h) */
    uint16_t inserts;     /* 1 means that the last add inserted a key, so the next one may, too (add_fast.h) */
    uint32_t depth;       /* nested sections */
    uint32_t process;     /* the number of its process at its registration, from 1 on; wiped with the mark */
    uint32_t shard;       /* shard of statistics, which is a separate one, or TWI_SHARD_SHARED */
    uint32_t shard_bytes; /* the same in bytes from the first shard */
    bool in_hook;         /* it is inside a user's hook, so some calls are refused with TW_ERR_MODE */
    uint8_t walks;        /* nested walks (walk.c), each of which has a pair of holds */
    bool must_count;      /* a full table admits no call of it, whatever on_full_limit is (acquire.c) */
    /* the cell that this thread samples for contention (dirty.c), and the adds that it has seen there: */
    void *sampled;
    int64_t sampled_value, sampled_since_ms;
    uint32_t sampled_adds, sampled_others;
    uint32_t looks;               /* counts calls; one in TWI_CLOCK_LOOK_EVERY looks at the clock */
    struct twi_repeated repeated; /* used while `repeats` is not 0 */
    uint64_t serial;              /* of its registration in this process, from 1 on */
};

#define TWI_WALKS_MAX 2u /* of a thread, one within a visitor of the other */

/* What a thread may leave unfinished if it ends now: flags that promise a step, and have its number (recover.c). They
 * are those of the counter `cell` and of its window. If `generation` is NULL, `cell` is a family that the thread adds
 * to the news (agenda.c). If `cell` is NULL, there is nothing. */
struct twi_marking {
    _Atomic(void *) engine, generation, cell;
};

struct twi_thread_slot {
    alignas(2 * TWI_LINE_BYTES) _Atomic uint64_t epoch; /* 0 means outside of any section */
    /* The generations that its walks need, also between two sections. TWI_HOLDS_TABLE is added for a generation whose
     * table is needed, too. */
    _Atomic uintptr_t holds[TWI_WALKS_MAX][2];
    struct twi_marking marking;
    alignas(TWI_LINE_BYTES) pthread_mutex_t alive; /* its thread has it */
    _Atomic uint32_t turn_of; /* TWI_TURN_OF() of the engine whose turn it makes (processes.c), or 0 */
    /* 0, or the number of a thread whose end the kernel does not report. It has the slot without having the mutex. */
    pid_t unwatched;
    _Atomic uint32_t process; /* the number of its thread's process */
    _Atomic bool ready;       /* the mutex is made */
};

/* The threads of a process, or of all processes that share them. It lies in place of slot 0, which no thread has. */
struct twi_domain {
    alignas(2 * TWI_LINE_BYTES) _Atomic uint64_t epoch;
    alignas(TWI_LINE_BYTES) _Atomic uint32_t slots; /* that have been handed out, which are 1 to this one */
    _Atomic uint32_t looked;                        /* where the last search for a free one ended */
    _Atomic uint32_t ended_inside;                  /* how many threads have ended inside a section */
    _Atomic uint32_t processes;                     /* that have shared it, with this one; see twi_epoch_share() */
    _Atomic bool has_users;                         /* one of them is of another user than root */
};
/* Of an engine. Engines of a process differ in it. */
#define TWI_TURN_OF(engine) ((uint32_t)((uintptr_t)(engine) / (2 * TWI_LINE_BYTES)))
#define TWI_HOLDS_TABLE 1u
#define TWI_THREADS_MAX 65535u
/* The distance from a thread's record to its slot: all records come first, then all slots. */
#define TWI_SLOTS_BEHIND ((TWI_THREADS_MAX + 1) * sizeof(struct twi_thread))
static_assert(sizeof(struct twi_thread) == sizeof(struct twi_thread_slot) &&
                  sizeof(struct twi_domain) == sizeof(struct twi_thread_slot),
              "record and slot are equally far from the first of their kind");

#define TWI_SHARDS 256u
#define TWI_SHARD_SHARED (TWI_SHARDS - 1) /* all threads after the first 254 share it */
#define TWI_SHARD_ASIDE (TWI_SHARDS - 2)  /* it belongs to no thread; counts in it are never read (acquire.c) */
#define TWI_THREAD_MARK 0xe5u

/* Never NULL. Before its first call a thread has a record without the mark, which is never changed. */
extern _Thread_local struct twi_thread *twi_thread_self __attribute__((tls_model("initial-exec")));
extern struct twi_domain *twi_domain __attribute__((visibility("hidden"))); /* reached without a table */
extern bool twi_epoch_asymmetric; /* membarrier works; set before the first section */

/* Registers the calling thread. The first thread in a forked child also begins a new process here. Returns NULL if
 * there is no memory, or no slot. */
struct twi_thread *twi_thread_register(void);
/* From now on this process and forked children have one table of threads, because they share an engine. Returns false
 * if the kernel does not tell of threads that end. */
bool twi_epoch_share(void);
/* Returns false if this process is root, and a process of another user shares its threads. That one can write pointers
 * that this one follows, so a call of root would run code of any user. From then on this process makes no call. Each
 * process notes its user here: at each first call of a thread, in one call of 1,024, and in calls that are rare. */
bool twi_epoch_look_at_users(void);
bool twi_process_is_barred(void);
/* Between these two a call of this thread is none of those: the engine is new, and no other process has it yet. It
 * is, or will be, for all processes. */
void twi_thread_alone_begin(bool is_for_all);
void twi_thread_alone_end(void);
/* In a forked child it begins a new process here, as the first call of a thread does. */
void twi_process_begin(void);
bool twi_process_has_begun(void);
/* Why the thread has no record. */
enum twi_reason twi_thread_why(void);
/* Returns how often this process has called fork() since twi_epoch_share(). */
uint32_t twi_epoch_forks(void);
/* Returns the number of this process. Of those that share their threads, no two have the same. */
uint32_t twi_process_number(void);
/* Returns true while a thread of that process lives that has called the library. *slot is where the last look found
 * one; 0 means nowhere yet. */
bool twi_process_lives(uint32_t process, uint32_t *slot);
/* Sets the function that renews the engines of a forked child before its first call continues. It is set before the
 * first section. */
void twi_epoch_set_on_fork(void (*renew)(void));

TWI_INLINE void twi_thread_use_shard(struct twi_thread *self, uint32_t shard) {
    self->shard = shard;
    self->shard_bytes = shard * TWI_LINE_BYTES;
}

TWI_INLINE struct twi_thread_slot *twi_thread_slot(struct twi_thread *self) {
    return (struct twi_thread_slot *)(void *)((char *)self + TWI_SLOTS_BEHIND);
}

/* 1 to TWI_THREADS_MAX. No other thread has this number while anything of this one is left. */
TWI_INLINE uint16_t twi_thread_number(struct twi_thread *self) {
    return (uint16_t)(((uintptr_t)twi_thread_slot(self) - (uintptr_t)twi_domain) / sizeof(struct twi_thread_slot));
}

/* A thread that counts nothing, such as the turn's, may be without a slot. */
TWI_INLINE bool twi_thread_has_slot(const struct twi_thread *self) {
    return self->mark == TWI_THREAD_MARK;
}
/* The same, but never 0: of a thread without a slot it is the number of any thread. */
TWI_INLINE uint16_t twi_thread_any_number(struct twi_thread *self) {
    return twi_thread_has_slot(self) ? twi_thread_number(self) : 1;
}

/* Says which flags the thread is about to set, until it has done what they promise. Returns what it said before, for
 * twi_marking_end(). Each of the three stores releases the thread's last step: who reads any of them and concludes that
 * the step is done must find what it pushed (twi_thread_next_marking). */
TWI_INLINE void twi_marking_set(struct twi_thread *self, void *engine, void *generation, void *cell) {
    struct twi_marking *marking = &twi_thread_slot(self)->marking;
    twi_store_release(&marking->engine, engine);         /* D9 */
    twi_store_release(&marking->generation, generation); /* D9 */
    twi_store_release(&marking->cell, cell);             /* D9, also pairs with the mutex of the slot */
}
TWI_INLINE void *twi_marking_begin(struct twi_thread *self, void *engine, void *generation, void *cell) {
    void *outer = twi_load_relaxed(&twi_thread_slot(self)->marking.cell);
    twi_check_dear(outer == NULL || outer == cell);
    twi_marking_set(self, engine, generation, cell);
    return outer;
}
TWI_INLINE void twi_marking_end(struct twi_thread *self, void *outer) {
    twi_store_release(&twi_thread_slot(self)->marking.cell, outer); /* D9 */
}
/* Claims the push of a list's member. Returns true if this thread is the one that pushes it. Then the flag has its
 * number, also if the thread ends before the push (D11). */
bool twi_thread_claim(_Atomic uint16_t *listed);

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
    /* acquire R3, pairs with R4: memory unlinked before the epoch rose is not reachable any more */
    uint64_t epoch = twi_load_acquire(&twi_domain->epoch);
    if (TWI_EPOCH_SEES_FENCES && twi_likely(twi_epoch_asymmetric)) {
        twi_store_relaxed(&twi_thread_slot(self)->epoch, epoch);
        /* R1, pairs with the membarrier R2: the turn sees our store before any of our loads counts */
        twi_fence_compiler();
    } else {
        /* R1 at full price: with an exchange alone, ARM64 lets later loads pass */
        (void)twi_swap_seqcst(&twi_thread_slot(self)->epoch, epoch);
        twi_fence_seqcst();
    }
}

TWI_INLINE void twi_section_leave(struct twi_thread *self) {
    twi_check(self->depth != 0);
    if (--self->depth != 0) return;
    twi_store_release(&twi_thread_slot(self)->epoch,
                      0); /* R5, pairs with R6: our accesses end before the memory is reused */
}

/* Returns true if a call may use a short section. In between such a call calls no other function that enters a section.
 * A short section does not count its depth. Its thread is outside of any other section. Allowed if
 * twi_section_may_be_short(). */
TWI_INLINE bool twi_section_may_be_short(void) {
    return !TWI_EPOCH_SEES_FENCES || twi_epoch_asymmetric;
}
TWI_INLINE void twi_section_enter_first(struct twi_thread *self) {
    uint64_t epoch = twi_load_acquire(&twi_domain->epoch); /* R3 */
    if (TWI_EPOCH_SEES_FENCES) {
        twi_store_relaxed(&twi_thread_slot(self)->epoch, epoch);
        twi_fence_compiler(); /* R1 */
    } else {
        (void)twi_swap_seqcst(&twi_thread_slot(self)->epoch, epoch); /* R1 at full price, for ThreadSanitizer */
        twi_fence_seqcst();
    }
}
TWI_INLINE void twi_section_leave_first(struct twi_thread *self) {
    twi_store_release(&twi_thread_slot(self)->epoch, 0); /* R5 */
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
/* Returns true if a thread that lives holds this generation (walk.c), or its table if `holds` is TWI_HOLDS_TABLE. NULL
 * means any. Memory that was unlinked, and whose stamp is reached, gets no new holds. */
bool twi_threads_hold(const void *generation, uintptr_t holds);
/* Two processes that share their threads may have private engines at one address. So here and below `process` is the
 * number of the engine's process, or 0 for an engine that processes share (twi_engine_process()).
 * Returns the next slot after *number whose thread has ended and left something of this engine, or NULL. The slot is
 * locked until twi_thread_let_go(), which frees it, unless something of another engine is left. Until then the section
 * of that thread is open. */
struct twi_thread_slot *twi_thread_next_ended(const void *engine, uint32_t process, uint32_t *number);
void twi_thread_let_go(const void *engine, struct twi_thread_slot *slot);
/* Returns the slot with this number if its thread has ended. It is locked until twi_thread_unlock(). */
struct twi_thread_slot *twi_thread_lock_ended(uint32_t number);
void twi_thread_unlock(struct twi_thread_slot *slot);
/* Returns the next thread after *number that says what it is about to do in this engine, as long as there is one. A
 * flag that was seen set before, and that no thread says, has no step to come. */
bool twi_thread_next_marking(const void *engine, uint32_t process, uint32_t *number, void **generation, void **cell);
/* How many threads have ended inside a section, as far as was noticed. */
uint32_t twi_threads_ended_inside(void);
/* The engine ends. No thread marks a counter of it any more. */
void twi_threads_forget(const void *engine, uint32_t process);
/* Returns false if the kernel does not report the end of this thread. Then the turn asks for each such thread. */
bool twi_thread_is_watched(struct twi_thread *self);

/* ---- a process that only supervises (supervisor.h) ---- */

/* What decides whether this process uses the table of all, where others can write. */
struct twi_supervision {
    /* Returns true if this process also has a table of threads of its own. */
    bool (*has_table)(void);
    /* Handlers of fork(). They wait for no lock. */
    void (*before_fork)(void);
    void (*begin_child)(void);
    /* A process begins, by the first call in a child: with the table of all, or with a private one. */
    void (*begin_process)(void);
    void (*begin_private)(void);
    /* A thread is about to register in the table of all, and is counted there. Returns false if this process may not
     * use that table any more. */
    bool (*take_part)(void);
    /* Returns true if this thread may open an engine in a table of its own process, until end_table(). If no engine is
     * open that others have, nothing of the table of all is needed any more. Then a new one is for all, the process
     * takes part, and the result is false. */
    bool (*begin_table)(void);
    void (*end_table)(void);
};
/* Called before the first thread registers, always with the same functions. Until then nobody supervises. */
void twi_epoch_set_supervision(const struct twi_supervision *functions);
/* The process shares its threads with no process of another user any more. */
void twi_process_unbar(void);
/* This thread has no record any more, so its next call registers it again. */
void twi_thread_let_record_go(void);
/* The same, but its slot stays its own, and so does the mutex: others see that the process lives. Nothing in the slot
 * is read or written until the thread registers again, which gives it the same slot. */
void twi_thread_park(void);
/* This thread gives its record and its slot back. It is outside of any section, and has left nothing in the slot. */
void twi_thread_leave(void);
/* Returns true if this thread has a slot where others can see it, in the table of all, perhaps without its record. */
bool twi_thread_is_seen(void);

#endif
