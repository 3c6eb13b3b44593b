/* epoch.c -- see epoch.h.
 *
 * The memory of thread records comes in blocks from the kernel, which wipes them upon fork. When a thread exits, the
 * next thread that registers takes over its record. If no such record is free, the list of records grows by one. A turn
 * walks the list. The list does not contain records that no thread has had.
 * After a fork the child's records are zero, but its list head (in ordinary memory) still points at them. The first
 * thread that registers in the child drops the list. This also drops every section that threads of the parent had
 * open. */
#include "engine/memory/epoch.h"

#include "engine/memory/arena.h"
#include "engine/base/lock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<linux/membarrier.h>)
#include <linux/membarrier.h>
#else /* musl-gcc has no headers of the kernel, so the numbers are repeated here; they never change */
#define MEMBARRIER_CMD_QUERY 0
#define MEMBARRIER_CMD_PRIVATE_EXPEDITED (1 << 3)
#define MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED (1 << 4)
#endif

#define BLOCK_BYTES 65536u

static struct twi_thread nobody; /* the record of threads that are not registered; it has no mark */
_Thread_local struct twi_thread *twi_thread_self __attribute__((tls_model("initial-exec"))) = &nobody;
_Atomic uint64_t twi_epoch_current = 1;
bool twi_epoch_asymmetric;

/* A word that the kernel wipes upon fork. */
enum { NOT_BEGUN = 0, BEGINNING, BEGUN };
struct process_mark {
    _Atomic uint32_t begun;
};
static _Atomic(struct process_mark *) mark;
static _Atomic uint32_t process_number;
static _Atomic(struct twi_thread *) threads; /* all records that a thread has now or had before */
static struct twi_thread *spares;            /* unused records of the last block; protected by the lock */
static _Atomic uint32_t threads_made;
static _Atomic uint32_t shards_used; /* 1 more than the highest shard that a thread ever had, except the shared one */
/* used only for registering, never when a thread counts */
static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;
static const pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t exit_key;
static _Atomic bool exit_key_made;
static void (*on_fork)(void);
static _Thread_local bool renewing; /* on_fork is running, and may make a call that registers this thread */

void twi_epoch_set_on_fork(void (*renew)(void)) {
    twi_lock(&process_lock);
    on_fork = renew;
    twi_unlock(&process_lock);
}

static void thread_exits(void *record) {
    struct twi_thread *self = record;
    twi_thread_self = &nobody;
    if (self->mark != TWI_THREAD_MARK) return; /* a fork has wiped the record, so it belonged to the parent */
    self->depth = 0;
    twi_store_release(&self->epoch, 0);
    twi_store_release(&self->taken, false);
}

/* dlclose() does not unload the shared library (meson.build). But a module that links the static library may be
 * unloaded. Threads that exit after the unloading must not call thread_exits(), which no longer exists. Their
 * records are not used again. */
__attribute__((destructor)) static void forget_threads(void) {
    if (twi_swap_acqrel(&exit_key_made, false)) (void)pthread_key_delete(exit_key);
}

/* Returns the page with the mark. The page is made without a lock. A fork may come at any moment, and the child's
 * copy of a lock would stay locked. If two threads make the page at once, the later page stays unused. */
static struct process_mark *mark_page(void) {
    struct process_mark *here = twi_load_acquire(&mark), *none = NULL;
    if (here != NULL) return here;
    here = twi_arena_wiped_pages(4096);
    if (here == NULL) return NULL;
    return twi_cas_acqrel(&mark, &none, here) ? here : none;
}

static bool begin_process(void) {
    if (!twi_load_relaxed(&exit_key_made) && pthread_key_create(&exit_key, thread_exits) != 0) return false;
    twi_store_relaxed(&exit_key_made, true);
    long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    /* A forked child inherits the registration. Registering again has no cost, and helps on kernels that forget it. */
    if (commands > 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
        twi_epoch_asymmetric = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    twi_store_relaxed(&threads, NULL);
    spares = NULL;
    twi_store_relaxed(&threads_made, 0);
    twi_store_relaxed(&process_number, twi_load_relaxed(&process_number) + 1); /* has_begun() publishes it */
    return true;
}

static struct twi_thread *reuse_record(void) {
    for (struct twi_thread *each = twi_load_acquire(&threads); each != NULL; each = each->next) {
        bool taken = false;
        if (!twi_load_relaxed(&each->taken) && twi_cas_acqrel(&each->taken, &taken, true)) return each;
    }
    return NULL;
}

/* Returns a record that no thread has had. A walk of the list does not find the record before it is handed out.
 * Under the lock. */
static struct twi_thread *spare_record(void) {
    if (spares == NULL) {
        struct twi_thread *block = twi_arena_wiped_pages(BLOCK_BYTES);
        if (block == NULL) return NULL;
        for (uint32_t i = 0; i + 1 < BLOCK_BYTES / sizeof *block; i++) block[i].next = &block[i + 1];
        spares = block;
    }
    struct twi_thread *self = spares;
    spares = self->next;
    return self;
}

static struct twi_thread *new_record(void) {
    struct twi_thread *self = spare_record();
    if (self == NULL) return NULL;
    uint32_t number = twi_add_relaxed(&threads_made, 1);
    self->mark = TWI_THREAD_MARK;
    twi_thread_use_shard(self, number < TWI_SHARD_ASIDE ? number : TWI_SHARD_SHARED);
    self->next = twi_load_relaxed(&threads);
    twi_store_relaxed(&self->taken, true);
    twi_store_release(&threads, self); /* R7, pairs with the acquire in reuse_record() and reached() */
    return self;
}

/* The first thread that comes begins the process here. In a forked child, a thread of the parent may have had the
 * lock at the fork, so the lock is made again. Other threads wait here. These threads have no record yet, so they
 * are in no call that must not wait. */
static bool has_begun(void) {
    struct process_mark *here = mark_page();
    uint32_t found = NOT_BEGUN;
    if (here == NULL || renewing) return renewing;
    if (twi_cas_acqrel(&here->begun, &found, BEGINNING)) {
        process_lock = fresh_lock;
        bool is_child = twi_load_relaxed(&process_number) != 0, begun = begin_process();
        renewing = true;
        if (begun && is_child && on_fork != NULL) on_fork();
        renewing = false;
        twi_store_release(&here->begun, begun ? BEGUN : NOT_BEGUN);
    }
    while (twi_load_acquire(&here->begun) == BEGINNING) sched_yield();
    return twi_load_acquire(&here->begun) == BEGUN;
}

struct twi_thread *twi_thread_register(void) {
    if (!has_begun()) return NULL;
    twi_lock(&process_lock);
    struct twi_thread *self = reuse_record();
    if (self == NULL) self = new_record();
    if (self != NULL) {
        if (self->shard < TWI_SHARD_ASIDE && self->shard >= twi_load_relaxed(&shards_used))
            twi_store_relaxed(&shards_used, self->shard + 1); /* under the lock */
        self->depth = 0;
        self->repeats = 0;
        self->in_hook = false;
        self->process = twi_load_relaxed(&process_number);
        if (twi_load_relaxed(&exit_key_made)) pthread_setspecific(exit_key, self);
        twi_thread_self = self;
    }
    twi_unlock(&process_lock);
    return self;
}

uint32_t twi_epoch_shards(void) {
    return twi_load_relaxed(&shards_used);
}

uint64_t twi_epoch_stamp(void) {
    return twi_add_acqrel(&twi_epoch_current, 1); /* R4, pairs with R3 */
}

uint64_t twi_epoch_oldest(void) {
    uint64_t oldest = UINT64_MAX;
    for (struct twi_thread *each = twi_load_acquire(&threads); each != NULL; each = each->next) {
        uint64_t epoch = twi_load_seqcst(&each->epoch); /* R6, pairs with R5 */
        if (epoch != 0 && epoch < oldest) oldest = epoch;
    }
    return oldest;
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
    int status = syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0 ? 0 : errno;
    if (status != twi_load_relaxed(&refusal)) twi_store_relaxed(&refusal, status);
    return status == 0;
}

uint64_t twi_epoch_reached(void) {
    uint64_t now = twi_load_seqcst(&twi_epoch_current);
    if (!barrier()) return 0;
    uint64_t oldest = twi_epoch_oldest();
    return oldest < now ? oldest : now;
}
