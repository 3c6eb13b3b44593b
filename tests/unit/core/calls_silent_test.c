/* calls_silent_test.c -- calls that answer later allocate nothing once they are warm.
 * Method: this program defines malloc and its relatives in front of libc's, and ends at the first call of one of them
 * while they are forbidden. The driver answers when the test says so (later_driver.h). Skipped under sanitizers, which
 * define the same functions. */
#include "tests/unit/later_driver.h"

#include <errno.h>

static _Thread_local bool forbidden;

/* A sanitizer's free() knows only what its malloc() gave. The names behind these calls are glibc's. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void look(void) {
    if (forbidden) __builtin_trap();
}
void *malloc(size_t size) {
    look();
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
    look();
    return __libc_calloc(count, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
    look();
    return __libc_memalign(alignment, size);
}
void *realloc(void *old, size_t size) {
    look();
    return __libc_realloc(old, size);
}
#endif

#define CALLS 200

static int answers;
static void note(tw_request *request) {
    answers += request->status == TW_OK;
}

static tw_status start(tw_request *request, int kind, tw_family *family) {
    switch (kind) {
    case 0: return tw_acquire_async(request, family, tw_str("some key"), 1, 100);
    case 1: return tw_once_async(request, family, tw_str("some key"));
    case 2: return tw_lock_async(request, family, tw_str("some key"), 1000);
    default: return tw_reserve_async(request, family, tw_str("some key"), 1, 9, 1000, tw_str("buyer"));
    }
}

/* Starts all, cancels some of them before and some after the answer, and delivers the rest. */
static void round_of_calls(tw_request *requests, tw_family *family, tw_queue *queue) {
    for (int i = 0; i < CALLS; i++) (void)start(&requests[i], i % 4, family);
    for (int i = 0; i < CALLS; i += 10) (void)tw_request_cancel(&requests[i]);
    (void)tw_turn(family->engine);
    for (int i = 4; i < CALLS; i += 10) (void)tw_request_cancel(&requests[i]);
    (void)tw_queue_run(queue, CALLS);
    (void)tw_turn(family->engine); /* what undoes the cancelled ones is answered */
}

/* Goal: no allocation for a call, whatever becomes of it. */
TEST(warm_calls_allocate_nothing) {
    static struct rig rig;
    static tw_request requests[CALLS];
    tw_queue *queue;
    later_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_FOREVER, 0);
    options.limit_mode = TW_LIMIT_STRICT;
    tw_family *family = rig_family_of(&rig, &options);
    assert_status(tw_queue_open(rig.engine, &queue), TW_OK);
    twi_store_relaxed(&later.answers_all, true);
    for (int i = 0; i < CALLS; i++) {
        tw_request_init(&requests[i]);
        requests[i].done = note;
        requests[i].queue = queue;
    }
    for (int round = 0; round < 3; round++) round_of_calls(requests, family, queue);
    answers = 0;
    forbidden = true;
    for (int round = 0; round < 10; round++) round_of_calls(requests, family, queue);
    forbidden = false;
    assert_true(answers >= 10 * CALLS / 4); /* those that the driver's OK means something to */
    assert_status(tw_queue_close(queue), TW_OK);
    rig_close(&rig);
}

int main(void) {
#ifndef __GLIBC__
    test_skip_program("it defines malloc by what glibc has behind it: run it in a build with glibc");
#endif
    if (test_is_slow()) test_skip_program("sanitizers define malloc themselves: a build without one runs this");
    return test_run();
}
