/* operation.h -- an operation is the engine's record of one call that waits, from its start to its answer. Its memory,
 * the lists that it is in, and the lock of all of that.
 *
 *   made ──▶ asked (sync/ has it), or waits (calls.h) ──▶ answered, in its queue (queue.h) ──▶ delivered, given back
 *             └──cancelled: nobody is answered any more; what it took is taken back (undo)
 *
 * An operation is of one kind. Its kind asks, reads replies (by whoever drives the calls) and finishes (by whoever
 * delivers the answer, so that tw_error_text() speaks there). The struct of a kind begins with its operation.
 * Always true: under the lock, an operation of a request has the request's own words lead to it, and its `call` leads
 * back, until one of both is cleared: by whoever delivers, or by whoever cancels. An operation is given back once. Its
 * memory is kept until the engine closes, so a late wake-up touches nothing else.
 * Threads: any. The lock is one for the process, is held for some instructions, and is taken before any lock of sync/;
 * answered() comes without. */
#ifndef TWI_CORE_OPERATION_H
#define TWI_CORE_OPERATION_H

#include "engine/base/atomic.h"
#include "engine/base/check.h"
#include "engine/base/event_count.h"
#include "engine/port/driver.h"
#include "tallywheel.h"

#define TWI_OPERATION_BYTES 896u    /* the size of an operation of any kind */
#define TWI_OPERATION_KEYS_MAX 256u /* keys of so many bytes together lie in the operation */
#define TWI_OPERATION_SLAB 64u

struct twi_operation;

/* A list of operations, with a pointer to its end. */
struct twi_operations {
    struct twi_operation *first, *last;
    uint32_t count;
};

/* The result of a request, apart from its long text. */
struct twi_result {
    enum twi_request_outcome outcome;
    bool is_crowd, is_kept, is_copied;      /* as in struct twi_answer */
    uint32_t count;                         /* values */
    uint32_t are_numbers;                   /* bit i is set if value i is a number */
    char word[16];                          /* the first value */
    int64_t numbers[TWI_SCRIPT_VALUES_MAX]; /* 0 if there is none */
};

/* The result of a look at a waiter. */
enum twi_look {
    TWI_LOOK_WAITS, /* on */
    TWI_LOOK_OVER,  /* it is to be answered */
    TWI_LOOK_ASKED  /* its request is under way, and the operation may be gone by now */
};

struct twi_operation_kind {
    /* Writes the first request and sends it. Returns true if it is under way, and the operation may be gone by now.
     * Returns false if it was not sent; the reason is in result.outcome. */
    bool (*send)(struct twi_operation *operation);
    /* Called by the driving thread when a reply has arrived. Returns true if the operation has sent another request or
     * waits, and may be gone by now. Returns false if it has ended. NULL means that the reply is its result. */
    bool (*reply)(struct twi_operation *operation, struct twi_answer *answer);
    /* Called by the delivering thread when the operation has ended. It fills the results of the call, and returns its
     * status. Never waits. */
    tw_status (*finish)(struct twi_operation *operation, tw_request *call);
    /* Called when its caller has gone. It takes back the changes that were made for the caller. What a numbered request
     * has charged, sync/ takes back, answered or not. NULL means that there is no other change. */
    void (*undo)(struct twi_operation *operation);
    /* Frees memory that it has allocated; or NULL. */
    void (*drop)(struct twi_operation *operation);
    /* `finish` can decide without Redis. So the family's on_busy is asked when calls_max calls are under way. A call
     * that it lets begin then has the outcome BUSY from the start, and is not sent. */
    bool may_be_unsent;
    /* It ends what an earlier call has taken. Where more calls wait than Redis answers, it goes before those that
     * take. */
    bool settles;
    /* Where on_busy lets calls begin, its caller begins another kind of call instead, which is counted as busy. */
    bool gives_way;
};

/* When the turn looks at a waiter (calls.h). */
struct twi_wait {
    enum twi_look (*look)(struct twi_operation *operation);
    int64_t look_ms; /* monotonic time; no look comes before ... */
    bool wakes;      /* ... but at once after a refund ... */
    bool each_turn;  /* ... or in each turn */
    /* if the units do not suffice for it, they suffice for no other waiter of its key in the same turn */
    bool shares_units;
};

struct twi_operation {
    const struct twi_operation_kind *kind;
    tw_engine *engine;
    tw_family *family;       /* is not freed before the operation; NULL means no family */
    int64_t deadline_ms;     /* monotonic */
    _Atomic uint64_t number; /* the number of the request that was sent last (port/driver.h) ... */
    struct twi_sync *sync;   /* ... and who has it */

    /* under the lock */
    tw_request *call; /* the call to answer; NULL means that there is none, or that a thread waits with it */
    tw_queue *queue;
    struct twi_operations *list; /* NULL means that it is in none */
    struct twi_operation *next, *before;
    bool is_given_up;
    bool is_counted; /* it is counted among those under way; tries of a counted operation are not */

    /* a thread waits for it */
    bool blocks;
    bool waits_for_room; /* its next request may wait for a lane, as the thread that sends it is the caller's */
    _Atomic bool is_over;
    struct twi_event_count over;

    struct twi_wait wait; /* under the lock, or of the thread that has taken it out of the list to look at it */

    struct twi_result result;
    tw_key key; /* a copy, where no thread waits */
    size_t key_bytes;
    void *long_keys;
    unsigned char keys[TWI_OPERATION_KEYS_MAX];
};

/* Answers for one event loop. Its fields are under the lock. */
struct tw_queue {
    tw_engine *engine;
    struct twi_operations answered;
    uint32_t under_way; /* calls of it that were started, and neither delivered nor cancelled */
    /* an eventfd, which is readable while answers wait; -1 means that the driving threads look without being woken */
    int fd;
    /* in the engine's own queue, the second thread, which does not have to wake itself */
    const struct twi_thread *runner;
    struct tw_queue *next;
};

struct twi_slab;

/* The calls of one engine. Under the lock, apart from the atomic fields and from what is set before sharing. */
struct twi_calls {
    struct twi_slab *slabs;
    struct twi_operation *spare; /* chained by `next` */
    uint32_t under_way, most;    /* calls of requests, and their greatest number (calls_max) */
    struct tw_queue own;         /* for calls that name no queue */
    struct tw_queue *queues;     /* those that are open */
    struct twi_operations waiters;
    _Atomic int64_t look_ms;      /* monotonic: when to look at waiters next; a hint */
    _Atomic bool is_looked_at;    /* a thread looks at waiters, and owns the next two fields */
    bool looks_each_turn;         /* some of them are looked at in each turn */
    uint32_t given_back;          /* refunds that were seen (engine->given_back) */
    _Atomic bool is_driven;       /* a thread is in twi_driving_step() */
    _Atomic int64_t slow_done_ms; /* the longest `done` that the log does not report yet; 0 means none */
};

/* The call of a thread that waits for its result. It lies on the thread's stack, is in no queue, cannot be cancelled,
 * and is not counted among those under way. Its `done` is this function, which is never called. */
void twi_call_waits(tw_request *call);
/* Makes such a call. Only these two fields are read before the result is there. */
TWI_INLINE void twi_call_by_thread(tw_request *call, uint32_t timeout_ms) {
    call->done = twi_call_waits;
    call->timeout_ms = timeout_ms;
}
TWI_INLINE bool twi_call_is_by_thread(const tw_request *call) {
    return call != NULL && call->done == twi_call_waits;
}

void twi_calls_lock(void);
void twi_calls_unlock(void);

/* An operation of that kind and family, for the caller of `call`. Its deadline is timeout_ms of `call` from now on, or
 * redis_timeout_ms. On an error it returns NULL, and *status is TW_ERR_BUSY (calls_max, and on_busy does not decide),
 * TW_ERR_MEMORY, or TW_ERR_MODE (the call is under way, or its queue is another engine's). `call` is NULL if no caller
 * needs the answer. */
struct twi_operation *twi_operation_make(tw_engine *engine, const struct twi_operation_kind *kind, tw_family *family,
                                         tw_request *call, tw_status *status);
/* The refusal of a call when calls_max calls are under way. */
tw_status twi_operation_refuse_busy(const tw_engine *engine);
/* Keeps a copy of the key. Returns false if there is no memory. */
bool twi_operation_keep(struct twi_operation *operation, tw_key key, tw_key *kept);
/* Takes the operation from its request. Called under the lock. */
void twi_operation_part(struct twi_operation *operation);
/* The operation has ended, and is in no list. */
void twi_operation_give(struct twi_operation *operation);
/* The operation's caller has gone, and no other thread has it. It is undone and given back. */
void twi_operation_give_up(struct twi_operation *operation);

/* A request of the library's own, for tries of an operation that is counted. These are not. */
void twi_operation_own_request(tw_request *request, void (*done)(tw_request *request), struct twi_operation *ctx);
/* A try of the library's own has its result. What it was given can be taken back from the operation that has tried. */
void twi_operation_pass_on(struct twi_operation *operation, const tw_request *try);

/* Returns the operation in this process with such a request under way, or NULL. Called under the lock. */
struct twi_operation *twi_operation_of(const tw_request *call);

/* Lists. Called under the lock. */
void twi_operations_add(struct twi_operations *list, struct twi_operation *operation);
void twi_operations_remove(struct twi_operation *operation);

void twi_result_read(struct twi_result *result, const struct twi_answer *answer);
bool twi_result_is(const struct twi_result *result, const char *word); /* its first value */
/* What decides in Redis's place: BUSY also for an UNKNOWN that is no outage. */
enum twi_request_outcome twi_result_why(const struct twi_result *result);
/* Value i, or 0 if it is no number. */
int64_t twi_result_number(const struct twi_result *result, size_t i);

/* The life of an engine's calls. */
void twi_operations_begin(tw_engine *engine);
void twi_operations_end(tw_engine *engine);
/* In a forked child: calls under way are the parent's. */
void twi_operations_renew_lock(void);

/* ---- driving ----
 * the work of the thread that drives the calls that wait for Redis. It is the second thread, or, in a
 * host-driven engine and while the engine closes, the owner of the turn. In a shared engine each process has a sync of
 * its own for its calls, whoever leads. That sync makes no turns. It is made before the first such call.
 * Always true: one thread at a time drives. */

/* The sync that makes the calls of this process. NULL means that there is none, or its driver makes no calls. */
struct twi_sync *twi_driving_sync(const tw_engine *engine);
/* Makes it if there is none. Any thread. Returns TW_ERR_REDIS in an engine without Redis. */
tw_status twi_driving_begin(tw_engine *engine);
/* Makes one round of requests and their answers, without any call of `done`. Never waits. */
void twi_driving_step(tw_engine *engine);
/* When it is to be called next, unless twi_driving_fd() is readable before; monotonic. */
int64_t twi_driving_wake_ms(const tw_engine *engine);
int twi_driving_fd(const tw_engine *engine); /* -1 means none */
/* From now on no call begins. The next step answers those under way. Any thread. */
void twi_driving_stop(tw_engine *engine);
/* How many calls have no result, or must still be taken back. */
uint32_t twi_driving_owed(const tw_engine *engine);
/* In a shared engine: this process makes no calls any more. */
void twi_driving_end(tw_engine *engine);
/* In a forked child: the sync that the parent made is the parent's. */
void twi_driving_abandon(tw_engine *engine);

/* ---- call guard ----
 * the checks of every call that waits for Redis or for the turn, which decide whether the thread may
 * wait. */

struct twi_thread;

/* Returns TW_ERR_MODE inside hooks and sections, and TW_ERR_MEMORY if `self` is NULL. */
tw_status twi_guard_thread(const struct twi_thread *self);
/* Returns TW_ERR_MODE in a host-driven engine, because no thread would end the wait. */
tw_status twi_guard_engine(const tw_engine *engine);
/* TW_OK if this process has the connection to Redis. TW_ERR_REDIS without Redis, and TW_ERR_MODE in a process that does
 * not lead a shared engine. */
tw_status twi_guard_redis(const tw_engine *engine);
/* Returns true if no other process has the engine: it is private, or no child was forked since it was opened. */
bool twi_guard_is_alone(const tw_engine *engine);
/* Returns TW_ERR_MODE if other processes may share the engine, because they would not see the change. */
tw_status twi_guard_families(const tw_engine *engine);
/* TW_OK if this thread may wait, and the engine is open. */
tw_status twi_guard_may_wait(tw_engine *engine);

#endif
