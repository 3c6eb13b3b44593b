/* supervisor.c -- see supervisor.h. */
#include "engine/memory/supervisor.h"

#include "engine/base/threads.h"
#include "engine/memory/arena.h"

enum part { TAKES_PART = 0, SUPERVISES, HAS_OWN };
#define COUNT_MAX (UINT32_MAX / 2)
/* enum part << 32 | how many threads have registered in the table of all since it took part last. In one word, so that
 * a thread registers or the process supervises, and not both. */
static _Atomic uint64_t part;
static struct twi_domain *of_all; /* the table of all, while this process has its own one */
static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t own_users; /* threads that have begun to use its own one; under the lock */
static _Thread_local bool takes_part_now;
static const struct twi_supervising *supervising;
static struct twi_domain *made;           /* the last table of all that this process made, */
static uint32_t made_forks;               /* and twi_epoch_forks() at that time */
static _Atomic(struct twi_domain *) left; /* a table of all in which no thread of this process has a mutex, or NULL */

static enum part part_of(uint64_t word) {
    return (enum part)(word >> 32);
}
static enum part part_now(void) {
    return part_of(twi_load_relaxed(&part));
}

static bool has_table(void) {
    return part_now() == HAS_OWN;
}

bool twi_supervisor_is_here(void) {
    return part_now() != TAKES_PART;
}

/* ---- fork ---- */

static bool is_idle(struct twi_thread *self) {
    const struct twi_thread_slot *slot = twi_thread_slot(self);
    return self->depth == 0 && !self->in_hook && self->walks == 0 && twi_load_relaxed(&slot->epoch) == 0 &&
           twi_load_relaxed(&slot->turn_of) == 0 && twi_load_relaxed(&slot->marking.cell) == NULL;
}

/* If the thread that forks is the only one that has registered, it lets go of its record. It is known again after its
 * next call. */
static void before_fork(void) {
    struct twi_thread *self = twi_thread_self;
    uint64_t found = twi_load_relaxed(&part);
    uint32_t count = (uint32_t)found;
    bool has_engines;
    if (count > 1 || (count == 1 && (self->mark != TWI_THREAD_MARK || !is_idle(self)))) return;
    if (!supervising->may_supervise(&has_engines) || part_of(found) != TAKES_PART) return;
    if (!twi_cas_relaxed(&part, &found, (uint64_t)SUPERVISES << 32) || count == 0) return;
    /* In a table that others have had, glibc must not follow the pointers of a mutex. */
    if (!has_engines && made == twi_domain && made_forks == twi_epoch_forks()) {
        twi_thread_leave();
        twi_store_relaxed(&left, made);
    } else {
        twi_thread_park();
    }
}

/* The child takes part with its first call. Another handler may have made that already. */
static void begin_child(void) {
    if (twi_process_has_begun()) return;
    if (of_all != NULL) twi_domain = of_all;
    made = NULL;
    twi_store_relaxed(&left, NULL);
    of_all = NULL;
    own_users = 0;
    twi_store_relaxed(&part, 0);
    pthread_mutex_init(&own_lock, NULL);
}

static void begin_process(void) {
    if (of_all != NULL) twi_domain = of_all; /* a child of clone() */
    of_all = NULL;
    own_users = 0;
    if (part_now() == HAS_OWN) twi_store_relaxed(&part, (uint64_t)SUPERVISES << 32);
}

static void begin_private(void) {
    twi_store_relaxed(&part, 0);
}

/* ---- its first call, and a table of its own ---- */

static bool take_part(void) {
    if (takes_part_now) return true;
    if (part_now() == SUPERVISES) {
        twi_lock(&own_lock); /* other threads wait until it has joined */
        takes_part_now = true;
        if (part_now() == SUPERVISES) supervising->take_part();
        takes_part_now = false;
        twi_unlock(&own_lock);
    }
    uint64_t found = twi_load_relaxed(&part);
    do {
        if (part_of(found) == HAS_OWN) return false;
    } while (!twi_cas_relaxed(&part, &found, (uint32_t)found < COUNT_MAX ? (uint32_t)found + 1 : COUNT_MAX));
    twi_store_relaxed(&left, NULL);
    return true;
}

/* Other memory takes the place of a table in which no thread of this process has a mutex. Processes that have the old
 * one keep it. A thread that looks at it meanwhile finds one or the other. */
static char *renewed(void) {
    char *records = (char *)twi_domain - TWI_SLOTS_BEHIND;
    bool is_left = twi_load_relaxed(&left) == twi_domain;
    return is_left && twi_arena_renew_pages(records, TWI_SLOTS_BEHIND, TWI_SLOTS_BEHIND) ? records : NULL;
}

/* A table of this process, or one that it shares with its children. */
static bool make_table(bool is_for_all) {
    const size_t shared_bytes = is_for_all ? TWI_SLOTS_BEHIND : 0;
    char *records = is_for_all ? renewed() : NULL;
    if (records == NULL) records = twi_arena_wiped_pages(2 * TWI_SLOTS_BEHIND - shared_bytes, shared_bytes);
    if (records == NULL || !twi_arena_open_pages(records, 2 * TWI_SLOTS_BEHIND)) return false;
    struct twi_domain *table = (struct twi_domain *)(void *)(records + TWI_SLOTS_BEHIND);
    twi_store_relaxed(&table->epoch, 1);
    twi_store_relaxed(&table->processes, twi_process_number());
    of_all = is_for_all ? NULL : twi_domain;
    twi_domain = table;
    if (is_for_all) {
        made = table;
        made_forks = twi_epoch_forks();
        twi_store_relaxed(&left, NULL);
    }
    return true;
}

/* Under the lock. While a thread is between alone_begin() and alone_end(), the table stays. */
static void try_table(void) {
    uint64_t before = twi_load_relaxed(&part);
    bool is_for_all = own_users == 0 && supervising->others_have_none();
    if (part_of(before) == TAKES_PART || (part_of(before) == HAS_OWN && !is_for_all)) return;
    if (!twi_cas_relaxed(&part, &before, (uint64_t)HAS_OWN << 32)) return;
    if (!make_table(is_for_all)) {
        twi_store_relaxed(&part, before);
    } else if (is_for_all) {
        twi_process_unbar();
        twi_store_relaxed(&part, TAKES_PART);
    }
}

/* Returns true if this thread may open an engine now, in a table of its own process. If no engine is open that others
 * have, nothing of the table of all is needed any more. Then the new one is for all, and the process takes part. */
static bool begin_table(void) {
    if (!twi_supervisor_is_here()) return false;
    twi_lock(&own_lock);
    try_table();
    bool has_own = part_now() == HAS_OWN;
    if (has_own) own_users++;
    twi_unlock(&own_lock);
    uintptr_t at = (uintptr_t)twi_thread_self - ((uintptr_t)twi_domain - TWI_SLOTS_BEHIND);
    if (at >= TWI_SLOTS_BEHIND) twi_thread_let_record_go(); /* it has a record in another table */
    return has_own;
}

static void end_table(void) {
    twi_lock(&own_lock);
    own_users--;
    twi_unlock(&own_lock);
    if (twi_thread_self->mark == TWI_THREAD_MARK) twi_thread_self->mark = 0;
}

void twi_supervisor_set(const struct twi_supervising *functions) {
    static const struct twi_supervision supervision = {
        .has_table = has_table,
        .before_fork = before_fork,
        .begin_child = begin_child,
        .begin_process = begin_process,
        .begin_private = begin_private,
        .take_part = take_part,
        .begin_table = begin_table,
        .end_table = end_table,
    };
    supervising = functions;
    twi_epoch_set_supervision(&supervision);
}
