/* shared_support.h -- a shared engine over a real Redis, its forked children, and what each of them was answered.
 * Always true: a child writes each answer into memory that all processes of the test share, after the call. So a child
 * that is killed has at most one call that is not noted. */
#ifndef TEST_SHARED_SUPPORT_H
#define TEST_SHARED_SUPPORT_H

#include "engine/core/state.h"
#include "tests/redis/sync_support.h"
#include "tests/support/children.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4
#define KEYS 100u

struct child {
    _Atomic uint64_t calls, admitted, other;
    _Atomic int64_t added[KEYS];
};

struct stage {
    struct redis_server server;
    struct lost lost;
    tw_engine *engine;
    tw_family *family;
    struct child *children;
    _Atomic bool *enough; /* children that work for ever end */
};

static inline void stage_begin_with(struct stage *stage, uint32_t limit_mode, uint32_t threads) {
    *stage = (struct stage){.children = children_pages(CHILDREN * sizeof(struct child))};
    stage->enough = children_pages(sizeof *stage->enough);
    redis_server_start(&stage->server, NULL);
    tw_options options;
    quick_options(&options, stage->server.url);
    options.on_lost = on_lost;
    options.lost_ctx = &stage->lost;
    options.shared = TW_SHARED_BY_FORK;
    options.threads = threads;
    assert_status(test_open(&options, &stage->engine), TW_OK);
    tw_family_options one = plain_family_options("f", TW_WINDOW_FOREVER, 0);
    one.limit_mode = limit_mode;
    stage->family = opened_family(stage->engine, one);
}

static inline void stage_begin(struct stage *stage, uint32_t limit_mode) {
    stage_begin_with(stage, limit_mode, TW_OWN_THREAD);
}

/* This process leads. */
static inline void stage_lead(struct stage *stage) {
    assert_status(tw_lead(stage->engine), TW_OK);
}

static inline void stage_end(struct stage *stage) {
    assert_status(tw_close(stage->engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(stage->lost.calls, 0);
    munmap(stage->children, CHILDREN * sizeof(struct child));
    redis_server_destroy(&stage->server);
}

typedef void child_work(struct stage *stage, struct child *child, uint32_t number);

static inline pid_t child_begin(struct stage *stage, child_work *work, uint32_t number) {
    pid_t pid = child_fork(120);
    if (pid != 0) return pid;
    work(stage, &stage->children[number], number);
    _exit(tw_close(stage->engine, 1000) == TW_OK ? 0 : 9);
}

static inline tw_key key_name(uint32_t number, char name[16]) {
    return tw_bytes(name, (size_t)snprintf(name, 16, "k%u", number));
}

static inline int64_t in_redis(struct stage *stage, const char *key) {
    char name[32];
    (void)snprintf(name, sizeof name, "f:%s", key);
    return redis_server_get(&stage->server, name);
}

static inline int count_lines(const char *text) {
    int lines = text[0] != '\0';
    for (; *text; text++) lines += *text == '\n' && text[1] != '\0';
    return lines;
}

/* Checks that Redis has what the children were answered, and at most so many units more. */
static inline void check_sums(struct stage *stage, int64_t unanswered) {
    int64_t more = 0;
    for (uint32_t key = 0; key < KEYS; key++) {
        char name[16];
        int64_t answered = 0;
        (void)key_name(key, name);
        for (uint32_t i = 0; i < CHILDREN; i++) answered += stage->children[i].added[key];
        int64_t redis = in_redis(stage, name);
        if (redis < answered) fail_msg("%s: %lld in Redis, %lld answered", name, (long long)redis, (long long)answered);
        more += redis - answered;
    }
    if (more > unanswered) fail_msg("%lld units more than were answered", (long long)more);
}

static inline void add_until_enough(struct stage *stage, struct child *child, uint32_t number) {
    for (uint32_t i = number; !atomic_load(stage->enough); i++) {
        char name[16];
        uint32_t key = i % KEYS;
        if (tw_add(stage->family, key_name(key, name), 1, NULL) == TW_OK) child->added[key]++;
    }
}

#endif
