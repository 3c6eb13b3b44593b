/* epoch.c -- see epoch.h.
 *
 * The table of records and slots is mapped once for a process, for the most threads that it may have, and only what is
 * used takes memory. A thread that registers takes over the slot of a thread that has ended. If a short search finds
 * none, the table grows by one. A turn looks at all slots that a thread has had.
 * After a fork the child's records are zero. The first thread that registers in the child maps a table of its own, and
 * drops with the parent's table every section that threads of the parent had open.
 * Nothing here is locked but by a try, because a fork may come at any moment, and a lock would stay taken in the
 * child. */
#include "engine/memory/epoch.h"

#include "engine/memory/arena.h"
#include "engine/base/threads.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<linux/membarrier.h>)
#include <linux/membarrier.h>
#else /* musl-gcc has no headers of the kernel, so the numbers are repeated here; they never change */
#define MEMBARRIER_CMD_QUERY 0
#define MEMBARRIER_CMD_GLOBAL_EXPEDITED (1 << 1)
#define MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED (1 << 2)
#define MEMBARRIER_CMD_PRIVATE_EXPEDITED (1 << 3)
#define MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED (1 << 4)
#endif

#define OPENED_AT_ONCE 512u /* slots; the table is opened in pieces of 64 KiB */
#define SEARCH_LOOKS 64u    /* at slots, by a thread that registers while the table may still grow */

static struct twi_thread nobody; /* without the mark, the record of threads that are not registered */
static struct twi_domain no_threads = {.epoch = 1};
_Thread_local struct twi_thread *twi_thread_self __attribute__((tls_model("initial-exec"))) = &nobody;
struct twi_domain *twi_domain = &no_threads;
bool twi_epoch_asymmetric;

/* A word that the kernel wipes upon fork. */
enum { NOT_BEGUN = 0, BEGINNING, BEGUN };
struct process_mark {
    _Atomic uint32_t begun;
};
static _Atomic(struct process_mark *) mark;
static _Atomic uint32_t process_number;
static _Atomic uint64_t registrations; /* of threads, in this process and before its fork */
static _Atomic(void (*)(void)) on_fork;
static _Thread_local bool renewing; /* on_fork is running, and a call in it may register this thread */

void twi_epoch_set_on_fork(void (*renew)(void)) {
    twi_store_release(&on_fork, renew);
}

static struct twi_thread_slot *slot_at(uint32_t number) {
    return (struct twi_thread_slot *)(void *)twi_domain + number;
}
static struct twi_thread *record_at(uint32_t number) {
    return (struct twi_thread *)(void *)((char *)slot_at(number) - TWI_SLOTS_BEHIND);
}

/* ---- threads that have ended ---- */

/* A kernel without robust lists still knows which threads live. The number may be another thread's by
 * now. Then the slot is found when that one has ended. */
static bool is_alive(pid_t thread) {
    return syscall(SYS_tgkill, getpid(), thread, 0) == 0 || errno != ESRCH;
}

/* ThreadSanitizer does not know that the kernel orders all accesses of a thread before it frees the thread's robust
 * mutexes. For it alone, a thread says that it ends. */
#if TWI_EPOCH_SEES_FENCES
static void end_visibly(struct twi_thread_slot *slot) {
    (void)slot;
}
#else
static pthread_key_t end_key;
static pthread_once_t end_key_made = PTHREAD_ONCE_INIT;

static void say_end(void *slot) {
    twi_store_release(&((struct twi_thread_slot *)slot)->ready, true);
}
static void make_end_key(void) {
    (void)pthread_key_create(&end_key, say_end);
}
static void end_visibly(struct twi_thread_slot *slot) {
    (void)pthread_once(&end_key_made, make_end_key);
    (void)pthread_setspecific(end_key, slot);
}
#endif

/* Returns true if the slot's thread has ended, or it has none. Then this thread has the mutex. */
static bool lock_ended(struct twi_thread_slot *slot) {
    if (!twi_load_acquire(&slot->ready) || !twi_lock_try(&slot->alive)) return false;
    if (slot->unwatched != 0 && is_alive(slot->unwatched)) {
        twi_unlock(&slot->alive);
        return false;
    }
    slot->unwatched = 0;
    (void)twi_load_acquire(&slot->ready); /* for ThreadSanitizer, see end_visibly() */
    return true;
}

/* Nothing is left of the thread that has ended. */
static void clear(struct twi_thread_slot *slot) {
    twi_check(twi_load_relaxed(&slot->turn_of) == 0 && twi_load_relaxed(&slot->marking.cell) == NULL);
    for (uint32_t i = 0; i < 2 * TWI_WALKS_MAX; i++) twi_store_relaxed(&slot->holds[i / 2][i % 2], 0);
    if (twi_load_relaxed(&slot->epoch) != 0) (void)twi_add_relaxed(&twi_domain->ended_inside, 1);
    twi_store_release(&slot->epoch, 0); /* R5, for the thread that has ended: the mutex orders its accesses before */
}

static bool has_left_nothing(const struct twi_thread_slot *slot) {
    return twi_load_relaxed(&slot->marking.cell) == NULL && twi_load_relaxed(&slot->turn_of) == 0;
}

/* Returns true if the slot is free, and this thread has the mutex. A slot is not free while its thread's steps are not
 * finished: they need the memory that its epoch keeps, and its number. */
static bool take(struct twi_thread_slot *slot) {
    if (!lock_ended(slot)) return false;
    if (!has_left_nothing(slot)) {
        twi_unlock(&slot->alive);
        return false;
    }
    clear(slot);
    return true;
}

static bool has_ended(struct twi_thread_slot *slot) {
    if (!take(slot)) return false;
    twi_unlock(&slot->alive);
    return true;
}

/* ---- registering ---- */

/* The page with the mark. If two threads make the page at once, the later page stays unused. */
static struct process_mark *mark_page(void) {
    struct process_mark *here = twi_load_acquire(&mark), *none = NULL;
    if (here != NULL) return here;
    here = twi_arena_wiped_pages(4096, 0);
    if (here == NULL || !twi_arena_open_pages(here, 4096)) return NULL;
    return twi_cas_acqrel(&mark, &none, here) ? here : none;
}

/* Makes the piece of the table that begins with this slot usable. More than one thread may do that. */
static bool open_slots(struct twi_thread_slot *first) {
    const size_t bytes = OPENED_AT_ONCE * sizeof *first;
    return twi_arena_open_pages((char *)first - TWI_SLOTS_BEHIND, bytes) && twi_arena_open_pages(first, bytes);
}

/* Another process may be the first to use a slot. So all of them are usable in each, and take no memory yet. */
static bool open_slots_for_all(void) {
    return twi_arena_open_pages((char *)twi_domain - TWI_SLOTS_BEHIND, 2 * TWI_SLOTS_BEHIND);
}

/* In a forked child the parent's slots are unmapped, but not their addresses. musl still knows the slot of the thread
 * that forked, and would write there. */
static bool make_domain(void) {
    char *records = twi_arena_wiped_pages(TWI_SLOTS_BEHIND, TWI_SLOTS_BEHIND);
    if (records == NULL) return false;
    struct twi_domain *domain = (struct twi_domain *)(void *)(records + TWI_SLOTS_BEHIND);
    if (!open_slots((struct twi_thread_slot *)(void *)domain)) return false;
    twi_store_relaxed(&domain->epoch, twi_load_relaxed(&twi_domain->epoch)); /* the engines' stamps stay in the past */
    if (twi_domain != &no_threads) twi_arena_unshare_pages(twi_domain, TWI_SLOTS_BEHIND);
    twi_domain = domain;
    return true;
}

static bool is_shared; /* children keep the table */
static _Atomic uint32_t forks;

static void count_fork(void) {
    (void)twi_add_relaxed(&forks, 1);
}

static const struct twi_supervision *_Atomic supervision;

void twi_epoch_set_supervision(const struct twi_supervision *functions) {
    twi_store_release(&supervision, functions); /* static data: it was there before */
}

static const struct twi_supervision *supervised(void) {
    return twi_load_relaxed(&supervision);
}

static bool has_own_table(void) {
    return supervised() != NULL && supervised()->has_table();
}

/* The handlers are registered when an engine is opened, so it is known who supervises. */
static void before_fork(void) {
    supervised()->before_fork();
}
static void begin_child(void) {
    supervised()->begin_child();
}

/* A child inherits the registration. Other C libraries than glibc keep a thread's list of robust mutexes over a fork.
 * The child would write into its parent's slot. */
bool twi_epoch_share(void) {
#ifndef __GLIBC__
    return false;
#endif
    if (is_shared || !twi_lock_is_watched()) return is_shared;
    if (twi_epoch_asymmetric && syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0)
        return false;
    if (!open_slots_for_all() || supervised() == NULL || pthread_atfork(before_fork, count_fork, begin_child) != 0)
        return false;
    twi_store_relaxed(&twi_domain->processes, twi_process_number());
    is_shared = true;
    return true;
}

static _Atomic bool is_barred; /* of this process alone, so no other one can take it back */

bool twi_process_is_barred(void) {
    return twi_load_relaxed(&is_barred) || has_own_table();
}

static bool begin_process(void) {
    if (is_shared) {
        supervised()->begin_process();
        uint32_t number = twi_add_relaxed(&twi_domain->processes, 1) + 1; /* others may have written any number */
        twi_store_relaxed(&process_number, number != 0 ? number : 1);
        twi_store_relaxed(&is_barred, false);
        return true;
    }
    if (!make_domain()) return false;
    if (supervised() != NULL) supervised()->begin_private();
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    /* A forked child inherits the registration. Registering again has no cost, and helps on kernels that forget it. */
    if (commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
        twi_epoch_asymmetric = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    twi_store_relaxed(&process_number, twi_load_relaxed(&process_number) + 1); /* has_begun() publishes it */
    return true;
}

/* The first thread that comes begins the process. Other threads wait here. They have no record yet, so they are in no
 * call that must not wait. */
static bool has_begun(void) {
    struct process_mark *here = mark_page();
    uint32_t found = NOT_BEGUN;
    if (here == NULL || renewing) return renewing;
    if (twi_cas_acqrel(&here->begun, &found, BEGINNING)) {
        bool is_child = twi_load_relaxed(&process_number) != 0, begun = begin_process();
        void (*renew)(void) = twi_load_acquire(&on_fork);
        renewing = true;
        if (begun && is_child && renew != NULL) renew();
        renewing = false;
        twi_store_release(&here->begun, begun ? BEGUN : NOT_BEGUN);
    }
    while (twi_load_acquire(&here->begun) == BEGINNING) sched_yield();
    return twi_load_acquire(&here->begun) == BEGUN;
}

void twi_process_begin(void) {
    (void)has_begun();
}

bool twi_process_has_begun(void) {
    struct process_mark *here = twi_load_relaxed(&mark);
    return here != NULL && twi_load_relaxed(&here->begun) != NOT_BEGUN;
}

void twi_process_unbar(void) {
    twi_store_relaxed(&is_barred, false);
}

void twi_thread_let_record_go(void) {
    twi_thread_self = &nobody;
}

static _Thread_local enum { NOT_ALONE, ALONE, ALONE_IN_OWN } is_alone; /* twi_thread_alone_begin() */

bool twi_epoch_look_at_users(void) {
    if (!is_shared || is_alone) return true;
    if (has_own_table()) return false;
    if (geteuid() != 0) {
        if (!twi_load_relaxed(&twi_domain->has_users)) twi_store_relaxed(&twi_domain->has_users, true);
        return true;
    }
    if (twi_load_relaxed(&twi_domain->has_users)) twi_store_relaxed(&is_barred, true);
    if (!twi_process_is_barred()) return true;
    struct twi_thread *self = twi_thread_self; /* in a section it has to leave that first */
    if (self->mark == TWI_THREAD_MARK && self->depth == 0) self->mark = 0;
    return false;
}

void twi_thread_alone_begin(bool is_for_all) {
    if (is_shared) (void)has_begun();
    bool has_own = is_for_all && geteuid() == 0 && supervised()->begin_table();
    if (!has_own && twi_epoch_look_at_users()) return;
    struct twi_thread *self = twi_thread_self;
    if (self != &nobody && self->process == twi_process_number()) self->mark = TWI_THREAD_MARK; /* it has its slot */
    is_alone = has_own ? ALONE_IN_OWN : ALONE;
}

void twi_thread_alone_end(void) {
    if (!is_alone) return;
    bool in_own = is_alone == ALONE_IN_OWN;
    is_alone = NOT_ALONE;
    if (in_own)
        supervised()->end_table();
    else
        (void)twi_epoch_look_at_users();
}

enum twi_reason twi_thread_why(void) {
    if (twi_process_is_barred()) return TWI_WHY_ROOT;
    return is_shared && !twi_lock_is_watched() ? TWI_WHY_UNSEEN : TWI_WHY_THREAD;
}

uint32_t twi_epoch_forks(void) {
    return twi_load_relaxed(&forks);
}

uint32_t twi_process_number(void) {
    return twi_load_relaxed(&process_number);
}

/* Takes over a slot. While there are few, the lowest number that is free. */
static uint32_t used_slot(uint32_t looks) {
    uint32_t count = twi_load_relaxed(&twi_domain->slots);
    uint32_t first = count <= SEARCH_LOOKS ? 0 : twi_add_relaxed(&twi_domain->looked, SEARCH_LOOKS);
    for (uint32_t i = 0; i < count && i < looks; i++) {
        uint32_t number = (first + i) % count + 1;
        if (take(slot_at(number))) return number;
    }
    return 0;
}

/* A slot that no thread has had. It counts among the slots before its thread's first section (R7). */
static uint32_t new_slot(void) {
    uint32_t count = twi_load_relaxed(&twi_domain->slots);
    do {
        if (count == TWI_THREADS_MAX) return 0;
        if ((count + 1) % OPENED_AT_ONCE == 0 && !open_slots(slot_at(count + 1))) return 0;
    } while (!twi_cas_relaxed(&twi_domain->slots, &count, count + 1)); /* R7, ordered by R1 */
    struct twi_thread_slot *slot = slot_at(count + 1);
    twi_lock_make_robust(&slot->alive);
    bool taken = twi_lock_try(&slot->alive);
    twi_check(taken);
    twi_store_release(&slot->ready, true);
    return count + 1;
}

static _Thread_local struct twi_thread *parked; /* the record of this thread, without the mark; its slot is kept */
static _Thread_local uint32_t parked_in;        /* the number of the process, because a child inherits these two */

void twi_thread_park(void) {
    twi_check(twi_thread_self->mark == TWI_THREAD_MARK);
    parked = twi_thread_self;
    parked_in = twi_process_number();
    parked->mark = 0;
    twi_thread_self = &nobody;
}

void twi_thread_leave(void) {
    struct twi_thread *self = twi_thread_self;
    struct twi_thread_slot *slot = twi_thread_slot(self);
    twi_check(self->mark == TWI_THREAD_MARK && self->depth == 0 && has_left_nothing(slot));
    self->mark = 0;
    twi_thread_self = &nobody;
    parked = NULL;
    end_visibly(NULL);
    if (slot->unwatched == 0) twi_unlock(&slot->alive);
}

bool twi_thread_is_seen(void) {
    return !has_own_table() || (parked != NULL && parked_in == twi_process_number());
}

/* In another table of threads the record is of no use. */
static struct twi_thread *unpark(void) {
    struct twi_thread *self = parked;
    uintptr_t at = (uintptr_t)self - ((uintptr_t)twi_domain - TWI_SLOTS_BEHIND);
    if (self == NULL || at >= TWI_SLOTS_BEHIND || parked_in != twi_process_number()) return NULL;
    self->mark = TWI_THREAD_MARK;
    return twi_thread_self = self;
}

struct twi_thread *twi_thread_register(void) {
    if (!has_begun() || !twi_epoch_look_at_users()) return NULL;
    if (twi_thread_self->mark == TWI_THREAD_MARK) return twi_thread_self; /* joining has registered it */
    if (is_alone != ALONE_IN_OWN && supervised() != NULL && !supervised()->take_part()) return NULL;
    if (twi_thread_self->mark == TWI_THREAD_MARK) return twi_thread_self; /* when it took part, it made calls */
    if (unpark() != NULL) return twi_thread_self;
    uint32_t number = used_slot(SEARCH_LOOKS);
    if (number == 0) number = new_slot();
    if (number == 0) number = used_slot(TWI_THREADS_MAX);
    if (number == 0) return NULL;
    struct twi_thread_slot *slot = slot_at(number);
    if (!twi_lock_is_watched()) {
        if (!is_shared) slot->unwatched = (pid_t)syscall(SYS_gettid);
        twi_unlock(&slot->alive);
        if (is_shared) return NULL; /* other processes could not ask for its number */
    }
    struct twi_thread *self = record_at(number);
    *self = (struct twi_thread){.process = twi_process_number(), .serial = twi_add_relaxed(&registrations, 1) + 1};
    twi_store_relaxed(&slot->process, self->process);
    twi_thread_use_shard(self, number <= TWI_SHARD_ASIDE ? number - 1 : TWI_SHARD_SHARED);
    end_visibly(slot);
    self->mark = TWI_THREAD_MARK;
    twi_thread_self = self;
    return self;
}

/* Whether marks of the thread are still to be finished does not matter. */
static bool is_of(struct twi_thread_slot *slot, uint32_t process) {
    if (twi_load_relaxed(&slot->process) != process) return false;
    if (!lock_ended(slot)) return true;
    twi_unlock(&slot->alive);
    return false;
}

bool twi_process_lives(uint32_t process, uint32_t *slot) {
    if (*slot != 0 && is_of(slot_at(*slot), process)) return true;
    uint32_t count = twi_load_relaxed(&twi_domain->slots);
    for (*slot = count; *slot != 0; --*slot)
        if (is_of(slot_at(*slot), process)) return true;
    return false;
}

bool twi_thread_is_watched(struct twi_thread *self) {
    return twi_thread_slot(self)->unwatched == 0;
}

/* ---- for the turn ---- */

uint32_t twi_epoch_shards(void) {
    uint32_t count = twi_load_relaxed(&twi_domain->slots);
    return count < TWI_SHARD_ASIDE ? count : TWI_SHARD_ASIDE;
}

uint64_t twi_epoch_stamp(void) {
    return twi_add_acqrel(&twi_domain->epoch, 1); /* R4, pairs with R3 */
}

/* The oldest epoch below `end` that an open section shows, or `end`. */
static uint64_t oldest_before(uint64_t end) {
    uint64_t oldest = end;
    uint32_t count = twi_load_relaxed(&twi_domain->slots); /* R7, ordered by R2 */
    for (uint32_t number = 1; number <= count; number++) {
        struct twi_thread_slot *slot = slot_at(number);
        uint64_t epoch = twi_load_seqcst(&slot->epoch); /* R6, pairs with R5 */
        if (epoch != 0 && epoch < oldest && !has_ended(slot)) oldest = epoch;
    }
    return oldest;
}

uint64_t twi_epoch_oldest(void) {
    return oldest_before(UINT64_MAX);
}

static bool slot_holds(struct twi_thread_slot *slot, uintptr_t held, uintptr_t mask) {
    for (uint32_t i = 0; i < 2 * TWI_WALKS_MAX; i++) {
        uintptr_t found = twi_load_acquire(&slot->holds[i / 2][i % 2]); /* R9, pairs with R8 */
        if (found != 0 && (held == 0 || (found & mask) == held)) return true;
    }
    return false;
}

bool twi_threads_hold(const void *generation, uintptr_t holds) {
    uintptr_t held = (uintptr_t)generation | holds, mask = holds != 0 ? UINTPTR_MAX : ~(uintptr_t)TWI_HOLDS_TABLE;
    uint32_t count = twi_load_relaxed(&twi_domain->slots);
    for (uint32_t number = 1; number <= count; number++) {
        struct twi_thread_slot *slot = slot_at(number);
        if (slot_holds(slot, held, mask) && !has_ended(slot)) return true;
    }
    return false;
}

static bool is_in(const struct twi_thread_slot *slot, uint32_t process) {
    return process == 0 || twi_load_relaxed(&slot->process) == process;
}

static bool has_left(const struct twi_thread_slot *slot, const void *engine, uint32_t process) {
    if (!is_in(slot, process)) return false;
    bool has_marks = twi_load_relaxed(&slot->marking.cell) != NULL && twi_load_relaxed(&slot->marking.engine) == engine;
    return has_marks || twi_load_relaxed(&slot->turn_of) == TWI_TURN_OF(engine);
}

struct twi_thread_slot *twi_thread_next_ended(const void *engine, uint32_t process, uint32_t *number) {
    uint32_t count = twi_load_relaxed(&twi_domain->slots);
    while (*number < count) {
        struct twi_thread_slot *slot = slot_at(++*number);
        if (!has_left(slot, engine, process) || !lock_ended(slot)) continue;
        /* It ended after these loads, or another thread has the slot since. What its last thread left is seen now. */
        if (has_left(slot, engine, process)) return slot;
        twi_unlock(&slot->alive);
    }
    return NULL;
}

void twi_thread_let_go(const void *engine, struct twi_thread_slot *slot) {
    if (twi_load_relaxed(&slot->marking.engine) == engine) twi_store_relaxed(&slot->marking.cell, NULL);
    if (twi_load_relaxed(&slot->turn_of) == TWI_TURN_OF(engine)) twi_store_relaxed(&slot->turn_of, 0);
    if (has_left_nothing(slot)) clear(slot);
    twi_unlock(&slot->alive);
}

struct twi_thread_slot *twi_thread_lock_ended(uint32_t number) {
    if (number > twi_load_relaxed(&twi_domain->slots)) return NULL;
    return lock_ended(slot_at(number)) ? slot_at(number) : NULL;
}
void twi_thread_unlock(struct twi_thread_slot *slot) {
    twi_unlock(&slot->alive);
}

bool twi_thread_next_marking(const void *engine, uint32_t process, uint32_t *number, void **generation, void **cell) {
    uint32_t count = twi_load_relaxed(&twi_domain->slots);
    while (*number < count) {
        struct twi_marking *marking = &slot_at(++*number)->marking;
        do {
            *cell = twi_load_acquire(&marking->cell); /* D9: if the step is done, it is seen. So are the next loads */
            *generation = twi_load_acquire(&marking->generation);
        } while (twi_load_acquire(&marking->cell) != *cell);
        if (*cell != NULL && twi_load_acquire(&marking->engine) == engine && is_in(slot_at(*number), process))
            return true;
    }
    return false;
}

bool twi_thread_claim(_Atomic uint16_t *listed) { /* D11 */
    uint16_t own = twi_thread_any_number(twi_thread_self), none = 0;
    while (!twi_cas_acqrel(listed, &none, own)) { /* D3, pairs with D4 */
        /* D10. A failed comparison only reads. This writes, so that a later D4 sees what this thread has marked. */
        if (twi_or_acqrel(listed, 0) != 0) return false;
        none = 0;
    }
    return true;
}

uint32_t twi_threads_ended_inside(void) {
    return twi_load_relaxed(&twi_domain->ended_inside);
}

void twi_threads_forget(const void *engine, uint32_t process) {
    uint32_t count = twi_load_relaxed(&twi_domain->slots);
    for (uint32_t number = 1; number <= count; number++) {
        struct twi_marking *marking = &slot_at(number)->marking;
        uint32_t turn_of = TWI_TURN_OF(engine);
        if (!is_in(slot_at(number), process)) continue;
        (void)twi_cas_relaxed(&slot_at(number)->turn_of, &turn_of, 0);
        if (twi_load_relaxed(&marking->engine) != engine) continue;
        twi_store_relaxed(&marking->cell, NULL);
        twi_store_relaxed(&marking->engine, NULL);
    }
}

static _Atomic int refusal;

int twi_epoch_refusal(void) {
    return twi_load_relaxed(&refusal);
}

/* R2, pairs with R1. membarrier worked when the process began. A sandbox that the process entered later, or a kernel
 * without memory, may refuse it now. Threads may then be inside a section without being seen, and they cannot change
 * to the full fence. */
static bool barrier(void) {
    if (!TWI_EPOCH_SEES_FENCES || !twi_epoch_asymmetric) {
        twi_fence_seqcst(); /* R2 with a full fence */
        return true;
    }
    int command = is_shared ? MEMBARRIER_CMD_GLOBAL_EXPEDITED : MEMBARRIER_CMD_PRIVATE_EXPEDITED;
    int status = syscall(SYS_membarrier, command, 0, 0) == 0 ? 0 : errno;
    if (status != twi_load_relaxed(&refusal)) twi_store_relaxed(&refusal, status);
    return status == 0;
}

uint64_t twi_epoch_reached(void) {
    uint64_t now = twi_load_seqcst(&twi_domain->epoch);
    return barrier() ? oldest_before(now) : 0;
}
