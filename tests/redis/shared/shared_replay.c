/* shared_replay.c -- Redis goes back to an older file, and the leader that sent the missing batches is no more: the
 * next leader sends them again.
 * Method: a child leads, and what it counts is acknowledged: a first part before Redis writes its file, a second part
 * after. The leader ends, and Redis is killed and starts from that file, in one order or the other.
 * Covers: sync/batch/replay_ring.c, sync/message/state.c. */
#include "tests/redis/shared/shared_support.h"

/* What the child and this process tell each other, one after the other. */
enum { COUNTS = 0, COUNTED, GOES_ON, COUNTED_MORE, CLOSES };

static void await_step(struct stage *stage, uint64_t step) {
    while (atomic_load(&stage->children[1].calls) != step) usleep(200);
}

static void tell_step(struct stage *stage, uint64_t step) {
    atomic_store(&stage->children[1].calls, step);
}

static void add_flushed(struct stage *stage, struct child *child, uint32_t times) {
    for (uint32_t i = 0; i < times; i++) {
        for (uint32_t key = 0; key < KEYS; key++) {
            char name[16];
            if (tw_add(stage->family, key_name(key, name), 1, NULL) != TW_OK) _exit(4);
            child->added[key]++;
        }
        if (tw_flush(stage->engine, TEST_PATIENCE_MS) != TW_OK) _exit(5);
    }
}

static void lead_and_tell(struct stage *stage, struct child *child, uint32_t number) {
    (void)number;
    if (tw_lead(stage->engine) < 0) _exit(3);
    add_flushed(stage, child, 3);
    tell_step(stage, COUNTED);
    await_step(stage, GOES_ON);
    add_flushed(stage, child, 5);
    tell_step(stage, COUNTED_MORE);
    await_step(stage, CLOSES);
}

enum end { KILLED, HANDS_OVER };

static void end_leader(struct stage *stage, pid_t pid, enum end end) {
    if (end == HANDS_OVER) {
        tell_step(stage, CLOSES);
        child_expect_end(pid);
        return;
    }
    child_kill(pid);
    assert_status(tw_process_died(stage->engine), TW_OK);
}

static void bring_back_file(struct stage *stage) {
    redis_server_kill(&stage->server);
    redis_server_restart(&stage->server);
}

/* A leader whose last batches Redis has acknowledged, and has not in its file. */
static pid_t leader_beyond_file(struct stage *stage) {
    stage_begin(stage, TW_LIMIT_SOFT);
    pid_t pid = child_begin(stage, lead_and_tell, 0);
    await_step(stage, COUNTED);
    assert_string_equal(redis_server_ask(&stage->server, "SAVE", NULL), "OK");
    tell_step(stage, GOES_ON);
    await_step(stage, COUNTED_MORE);
    return pid;
}

static bool has_everything(void *ctx) {
    struct stage *stage = ctx;
    for (uint32_t key = 0; key < KEYS; key++) {
        char name[16];
        int64_t added = 0;
        for (uint32_t i = 0; i < CHILDREN; i++) added += stage->children[i].added[key];
        if (in_redis(stage, (key_name(key, name), name)) < added) return false;
    }
    return true;
}

/* This process leads now. */
static void expect_everything(struct stage *stage) {
    stage_lead(stage);
    add_flushed(stage, &stage->children[CHILDREN - 1], 1);
    bool all = test_wait(has_everything, stage, 5000);
    if (!all)
        print_message("# lost %lld, uncertain %lld\n", (long long)test_stat_of(stage->engine, lost),
                      (long long)test_stat_of(stage->engine, uncertain));
    check_sums(stage, 0);
    assert_i64_equal(test_stat_of(stage->engine, lost), 0);
    assert_i64_equal(test_stat_of(stage->engine, uncertain), 0);
    assert_true(test_stat_of(stage->engine, replayed) > 0);
    stage_end(stage);
}

static void leader_ends_first(enum end end) {
    struct stage stage;
    pid_t pid = leader_beyond_file(&stage);
    end_leader(&stage, pid, end);
    bring_back_file(&stage);
    expect_everything(&stage);
}

/* Goal: a leader was killed, and then Redis went back: what the killed one sent is sent again. */
TEST(the_replay_survives_a_killed_leader) {
    leader_ends_first(KILLED);
}

/* Goal: the same after a planned hand-over. */
TEST(the_replay_survives_a_hand_over) {
    leader_ends_first(HANDS_OVER);
}

/* Goal: the same if the leader is killed while Redis is away. */
TEST(the_replay_survives_a_leader_killed_while_redis_is_away) {
    struct stage stage;
    pid_t pid = leader_beyond_file(&stage);
    redis_server_kill(&stage.server);
    end_leader(&stage, pid, KILLED);
    redis_server_restart(&stage.server);
    expect_everything(&stage);
}

static void lead_only(struct stage *stage, struct child *child, uint32_t number) {
    (void)child, (void)number;
    if (tw_lead(stage->engine) < 0) _exit(3);
    for (;;) pause();
}

/* Goal: the same if each leader that sends it again is killed at another moment of that. */
TEST(the_replay_survives_leaders_killed_during_it) {
    struct stage stage;
    pid_t pid = leader_beyond_file(&stage);
    end_leader(&stage, pid, KILLED);
    bring_back_file(&stage);
    for (uint32_t i = 0; i < test_scale(20); i++) {
        pid = child_begin(&stage, lead_only, 2);
        usleep(1000 * (i % 20));
        end_leader(&stage, pid, KILLED);
    }
    expect_everything(&stage);
}

/* Goal: the same if Redis goes back to that file again and again, each time under another leader. */
TEST(the_replay_survives_many_leaders) {
    struct stage stage;
    pid_t pid = leader_beyond_file(&stage);
    end_leader(&stage, pid, HANDS_OVER);
    for (uint32_t i = 0; i < 3; i++) {
        bring_back_file(&stage);
        atomic_store(&stage.children[1].calls, GOES_ON);
        pid = child_begin(&stage, lead_and_tell, 0);
        await_step(&stage, COUNTED);
        tell_step(&stage, GOES_ON);
        await_step(&stage, COUNTED_MORE);
        end_leader(&stage, pid, i % 2 == 0 ? KILLED : HANDS_OVER);
    }
    bring_back_file(&stage);
    expect_everything(&stage);
}

static void lead_and_be_refused(struct stage *stage, struct child *child, uint32_t number) {
    (void)number;
    if (tw_lead(stage->engine) < 0) _exit(3);
    add_flushed(stage, child, 1);
    tell_step(stage, COUNTED);
    await_step(stage, GOES_ON);
    add_flushed(stage, child, 1);
    if (tw_add(stage->family, tw_str("list"), 5, NULL) != TW_OK) _exit(4);
    if (tw_flush(stage->engine, TEST_PATIENCE_MS) != TW_ERR_REDIS) _exit(5);
    tell_step(stage, COUNTED_MORE);
    await_step(stage, CLOSES);
}

/* Goal: what Redis had refused is no part of what is sent again: it waits in its counter, and is counted once after the
 * repair. */
TEST(what_was_refused_is_not_replayed) {
    struct stage stage;
    stage_begin(&stage, TW_LIMIT_SOFT);
    (void)redis_server_ask(&stage.server, "LPUSH", "f:list", "x", NULL);
    pid_t pid = child_begin(&stage, lead_and_be_refused, 0);
    await_step(&stage, COUNTED);
    assert_string_equal(redis_server_ask(&stage.server, "SAVE", NULL), "OK");
    tell_step(&stage, GOES_ON);
    await_step(&stage, COUNTED_MORE);
    end_leader(&stage, pid, KILLED);
    bring_back_file(&stage);
    (void)redis_server_ask(&stage.server, "DEL", "f:list", NULL);
    stage_lead(&stage);
    add_flushed(&stage, &stage.children[CHILDREN - 1], 1);
    assert_true(test_wait(has_everything, &stage, 5000));
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    check_sums(&stage, 0);
    assert_i64_equal(in_redis(&stage, "list"), 5);
    assert_i64_equal(test_stat_of(stage.engine, lost), 0);
    assert_i64_equal(test_stat_of(stage.engine, uncertain), 0);
    stage_end(&stage);
}

int main(void) {
    redis_server_require();
    test_skip_unshared();
    return test_run();
}
