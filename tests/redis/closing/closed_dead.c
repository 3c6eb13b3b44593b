/* closed_dead.c -- TW_CLOSED_BY_ONE: the final figures of a window have the keys of processes that were killed as soon
 * as Redis had their counts; or they are flagged, never silent.
 * Covers: sync/script/window_names.lua. */
#include "tests/redis/closing/closed_support.h"
#include "tests/support/side_by_side.h"

#define TAGS 16      /* after a death each is looked at, one in a turn */
#define LIFE_MS 2500 /* a killed process holds a window up for so long */

/* Makes one process count in that window. False: it came too late. */
static bool count_alone_at(int number, int64_t start_ms) {
    atomic_store(&page->counted[number], 0);
    atomic_store(&page->start_ms[number], start_ms);
    while (atomic_load(&page->counted[number]) == 0) test_sleep_ms(1);
    return atomic_load(&page->counted[number]) > 0;
}

/* The same in a window that begins soon; returns its start. */
static int64_t count_alone(int number) {
    int64_t start_ms;
    do {
        start_ms = (real_ms() / WINDOW_MS + 1) * WINDOW_MS;
    } while (!count_alone_at(number, start_ms));
    return start_ms;
}

/* What that process counts in a window. */
static int64_t part_of(int number) {
    return 1 + (int64_t)page->keys * (number + 1);
}

static void begin_in(struct redis_server *server, int count, bool by_tag, int64_t wait_ms) {
    redis_server_start(server, NULL);
    begin(count, server, LIFE_MS, wait_ms);
    page->keys = 40;
    if (by_tag) page->tags = TAGS;
}

/* Goal: one of three processes is killed right after its flush, before it has listed a name. Its keys are in the
 * figures that another one reports. */
static void keys_that_only_a_killed_process_counted_are_reported(bool by_tag) {
    struct redis_server server;
    begin_in(&server, 3, by_tag, LONG_MS);
    start();
    int64_t start_ms = count_all();
    kill_process(2);
    struct call call = assert_closed(start_ms, truth());
    assert_i64_equal(call.keys, 3 * page->keys + 1);
    end();
    redis_server_destroy(&server);
}

TEST_EACH(in_one_store_a_killed_process_is_in_the_figures, TW_REDIS_STRING, TW_REDIS_HASH) {
    play_shape(state);
    keys_that_only_a_killed_process_counted_are_reported(false);
}

TEST_EACH(by_tag_a_killed_process_is_in_the_figures, TW_REDIS_STRING) {
    play_shape(state);
    keys_that_only_a_killed_process_counted_are_reported(true);
}

/* Goal: the same for names that look like what stands around names in Redis. */
TEST(names_of_any_bytes_are_reported) {
    struct redis_server server;
    begin_in(&server, 3, false, LONG_MS);
    page->odd_names = true;
    start();
    int64_t start_ms = count_all();
    kill_process(2);
    struct call call = assert_closed(start_ms, truth());
    assert_i64_equal(call.keys, 3 * page->keys + 1);
    end();
    redis_server_destroy(&server);
}

/* Goal: only a process that is killed has counted in the window. A process that has counted nothing there closes it,
 * though it had counted in the window before; and so does one that comes when all others are dead. */
static void a_window_of_the_dead_is_closed(bool by_tag) {
    struct redis_server server;
    begin_in(&server, 2, by_tag, LONG_MS);
    start();
    assert_closed(count_all(), truth());
    int64_t start_ms = count_alone(1);
    kill_process(1);
    assert_int_equal(assert_closed(start_ms, part_of(1)).process, 0);
    start_ms = count_alone(0);
    kill_process(0);
    processes = 3;
    children[2] = test_fork();
    if (children[2] == 0) _exit(run_process(2));
    assert_int_equal(assert_closed(start_ms, part_of(0)).process, 2);
    end();
    redis_server_destroy(&server);
}

TEST(in_one_store_who_counted_nothing_closes_for_the_dead) {
    a_window_of_the_dead_is_closed(false);
}

TEST(by_tag_who_counted_nothing_closes_for_the_dead) {
    a_window_of_the_dead_is_closed(true);
}

static void assert_flagged(int64_t start_ms, int64_t least, int64_t most) {
    struct call call = {0};
    assert_true(test_wait(is_closed, &start_ms, LONG_MS));
    (void)closings_of(start_ms, &call);
    assert_i64_equal(call.flags & TW_CLOSED_LOCAL, TW_CLOSED_LOCAL);
    assert_in_range(call.sum, least, most);
}

struct list {
    struct redis_server *server;
    const char *name;
};
static bool is_empty(void *ctx) {
    const struct list *list = ctx;
    return strcmp(redis_server_ask(list->server, "ZCARD", list->name, NULL), "0") == 0;
}

static bool is_closed_again(void *ctx) {
    struct call call;
    return closings_of(*(int64_t *)ctx, &call) > 1;
}

/* Goal: with several stores, a process announces counts of a window that was closed before, and is killed. The window
 * is closed once more, and flagged, for nobody knows all of its keys. Method: the announcement is written by hand; a
 * process that comes later has not closed the window. */
TEST(late_counts_of_a_killed_process_are_flagged) {
    struct redis_server server;
    struct call call = {0};
    char name[80], moment[24];
    begin_in(&server, 1, true, LONG_MS);
    start();
    int64_t start_ms = count_all();
    assert_closed(start_ms, truth());
    const char *closers = redis_server_ask(&server, "KEYS", "tw:closers:*", NULL);
    snprintf(name, sizeof name, "tw:windows:%s", closers + sizeof "tw:closers:" - 1);
    snprintf(moment, sizeof moment, "%lld", (long long)start_ms);
    assert_string_equal(redis_server_ask(&server, "ZADD", name, moment, moment, NULL), "1");
    processes = 2;
    children[1] = fork();
    if (children[1] == 0) _exit(run_process(1));
    assert_true(test_wait(is_closed_again, &start_ms, LONG_MS));
    (void)closings_of(start_ms, &call);
    assert_i64_equal(call.flags, TW_CLOSED_AGAIN | TW_CLOSED_LOCAL);
    assert_true(test_wait(is_empty, &(struct list){&server, name}, LONG_MS)); /* some time after the hook was called */
    end();
    redis_server_destroy(&server);
}

/* Removes the names of a window. Returns true if nobody has read them: on a busy machine it may be over. */
static bool lose_names(struct redis_server *server, int64_t start_ms) {
    char name[64];
    name_of_names(start_ms, name, sizeof name);
    bool was_there = strcmp(redis_server_ask(server, "DEL", name, NULL), "1") == 0;
    return was_there && real_ms() < start_ms + WINDOW_MS + LATE_MS;
}

/* Goal: Redis has lost the names of a window (it has evicted them). The figures are flagged. */
TEST(figures_without_names_are_flagged) {
    bool in_time = false;
    for (int tries = 0; tries < 10 && !in_time; tries++) {
        struct redis_server server;
        begin_in(&server, 3, false, LONG_MS);
        start();
        int64_t start_ms = count_all();
        kill_process(2);
        in_time = lose_names(&server, start_ms);
        if (in_time) assert_flagged(start_ms, truth() - part_of(2) + 1, truth());
        end();
        redis_server_destroy(&server);
    }
    assert_true(in_time);
}

/* Goal: Redis has lost the names of a process that is dead, and another process makes the set again, that has recorded
 * none before. The figures are flagged. */
TEST(figures_whose_names_were_made_again_are_flagged) {
    struct redis_server server;
    begin_in(&server, 3, false, LONG_MS);
    start();
    int64_t start_ms = count_alone(2);
    kill_process(2);
    if (lose_names(&server, start_ms) && count_at(start_ms)) assert_flagged(start_ms, 1, truth());
    end();
    redis_server_destroy(&server);
}

/* Goal: Redis has refused the names of a process that is dead, for another client had written a value under their name;
 * and after that value is gone, another process makes the set. The figures are flagged. */
TEST(figures_whose_names_were_refused_once_are_flagged) {
    struct redis_server server;
    char name[64];
    begin_in(&server, 3, false, LONG_MS);
    start();
    int64_t start_ms;
    do {
        start_ms = (real_ms() / WINDOW_MS + 1) * WINDOW_MS;
        name_of_names(start_ms, name, sizeof name);
        redis_server_ask(&server, "SET", name, "foreign", NULL);
    } while (!count_alone_at(2, start_ms));
    kill_process(2);
    assert_string_equal(redis_server_ask(&server, "DEL", name, NULL), "1");
    if (count_at(start_ms)) assert_flagged(start_ms, 1, truth());
    end();
    redis_server_destroy(&server);
}

/* Goal: a batch of new keys brings one member, so that it costs Redis little; keys that others have created have
 * members that all have in common. Method: some windows, for a process lists each name when the window is over, and
 * when a reply is lost, which comes late where the machine is busy. */
TEST(names_of_a_batch_are_one_member) {
    enum { WINDOWS = 20, FEW = 60, ENOUGH = 5 }; /* of 121 names; a process that is held up sends more batches */
    struct redis_server server;
    char name[64];
    begin_in(&server, 3, false, LONG_MS);
    start();
    long long members = FEW + 1;
    int looks = 0;
    for (int i = 0; i < WINDOWS && members > FEW; i++) {
        int64_t start_ms = count_all();
        name_of_names(start_ms, name, sizeof name);
        members = atoll(redis_server_ask(&server, "SCARD", name, NULL));
        looks += real_ms() < start_ms + WINDOW_MS;
        assert_closed(start_ms, truth());
    }
    end();
    redis_server_destroy(&server);
    if (members > FEW && looks < ENOUGH)
        test_leave_out("processes that count within a second: run it on a machine with less load");
    assert_in_range(members, 1, FEW);
}

/* Goal: Redis refuses the names, for another client has written a value under their name: counts arrive, and the
 * figures are flagged after the wait. */
TEST(figures_whose_names_are_refused_are_flagged) {
    struct redis_server server;
    char name[64];
    begin_in(&server, 2, false, 3000);
    start();
    int64_t start_ms;
    do {
        start_ms = (real_ms() / WINDOW_MS + 1) * WINDOW_MS;
        name_of_names(start_ms, name, sizeof name);
        redis_server_ask(&server, "SET", name, "foreign", NULL);
    } while (!count_at(start_ms));
    assert_flagged(start_ms, 1, truth());
    assert_string_equal(redis_server_ask(&server, "GET", name, NULL), "foreign");
    end();
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
