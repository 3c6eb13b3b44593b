/* part_test.c -- memory_share is memory that a family can count on: whatever others do, whenever its windows end, after
 * it was closed and opened again, in a forked child. Fake clock, turns by hand. */
#include "tests/unit/rig.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define USERS 5000

static struct rig rig;
static char text[200];
static int limit = 5, windows = 8; /* fewer where each step is slow */

static void start(uint64_t bytes) {
    rig_init(&rig);
    rig.options.memory_bytes_max = bytes;
    rig_start(&rig);
}
static int stop(void **state) {
    if (rig.engine != NULL) rig_close(&rig);
    rig.engine = NULL;
    return 0;
}

static tw_family_options with_share(const char *name, uint64_t share) {
    tw_family_options options = rig_options(name, TW_WINDOW_ALIGNED, TW_MINUTE);
    options.memory_share = share;
    options.error_text = text;
    options.error_size = sizeof text;
    return options;
}

/* New keys of another family, until none finds room. */
static void flood(tw_family *family) {
    static uint64_t next;
    char key[24];
    do {
        snprintf(key, sizeof key, "page %llu", (unsigned long long)next++);
        if (next % 4096 == 0) rig_turn(&rig);
    } while (tw_add(family, tw_str(key), 1, NULL) == TW_OK);
}

/* Each of so many users asks once more than the limit allows. Returns how many units were admitted without being
 * counted. */
static int64_t everybody_asks(tw_family *family, const char *format, int users, int64_t *admitted) {
    int64_t by_full = 0;
    char key[64];
    *admitted = 0;
    for (int time = 0; time <= limit; time++) {
        for (int user = 0; user < users; user++) {
            tw_verdict verdict;
            snprintf(key, sizeof key, format, user);
            if (tw_acquire(family, tw_str(key), 1, limit, &verdict) != TW_OK) continue;
            *admitted += 1;
            by_full += verdict.decided_by == TW_BY_FULL;
        }
    }
    return by_full;
}

static void assert_everybody_is_held(tw_family *family, const char *format, int users) {
    int64_t admitted, by_full = everybody_asks(family, format, users, &admitted);
    assert_i64_equal(by_full, 0);
    assert_i64_equal(admitted, (int64_t)users * limit);
}

static void pass_ms(int64_t span_ms) {
    for (int64_t left_ms = span_ms; left_ms > 0; left_ms -= 20) {
        fake_clock_advance_ms(&rig.clock, left_ms < 20 ? left_ms : 20);
        rig_turn(&rig);
    }
}

/* Goal: P1. A limiter with a share of 1 MiB holds each of 5,000 users in every window, while other families have taken
 * everything else and continue to take: with and without keys_expected, with short and long names, with history that
 * fits and history that does not. Method: all users ask in the first moment of each window, before any turn; the
 * windows before are all still there. */
TEST_WITH(a_share_holds_every_user_in_every_window_of_a_flood, NULL, stop, NULL) {
    static const struct {
        const char *format;
        uint64_t expected;
        int64_t history_ms;
    } kinds[] = {{"user %d", 0, 0},
                 {"user %d", USERS, 0},
                 {"user of a longer name %08d", 0, 0},
                 {"user %d", 0, TW_NONE},
                 {"user %d", 0, 10 * TW_MINUTE}};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind += test_is_slow() ? 2 : 1) {
        start(8 * MIB);
        tw_family_options options = with_share("login", MIB);
        options.keys_expected = kinds[kind].expected;
        options.history_ms = kinds[kind].history_ms;
        tw_family *login = rig_family_of(&rig, &options), *pages = rig_family(&rig, "pages", TW_WINDOW_FOREVER, 0);
        tw_family *minutes = rig_family(&rig, "minutes", TW_WINDOW_ALIGNED, TW_MINUTE);
        for (int window = 0; window < windows; window++) {
            flood(pages);
            flood(minutes);
            assert_everybody_is_held(login, kinds[kind].format, USERS);
            pass_ms(TW_MINUTE);
        }
        assert_true(test_stat_of(rig.engine, memory_bytes_high) <= (int64_t)(8 * MIB));
        stop(NULL);
    }
}

struct asker {
    pthread_t thread;
    _Atomic int *waiting; /* threads that have not begun yet */
    tw_family *family;
    int first, step;
    int64_t admitted, by_full;
};

static void *ask_for_some(void *argument) {
    struct asker *asker = argument;
    int64_t view; /* the engine knows this thread from now on */
    (void)tw_get(asker->family, tw_str("nobody"), &view);
    (void)twi_sub_acqrel(asker->waiting, 1);
    while (twi_load_acquire(asker->waiting) > 0) sched_yield(); /* under valgrind one thread runs at a time */
    for (int time = 0; time <= limit; time++) {
        for (int user = asker->first; user < USERS; user += asker->step) {
            tw_verdict verdict;
            char key[64];
            snprintf(key, sizeof key, "user of a longer name %08d", user);
            if (tw_acquire(asker->family, tw_str(key), 1, limit, &verdict) != TW_OK) continue;
            asker->admitted++;
            asker->by_full += verdict.decided_by == TW_BY_FULL;
        }
    }
    return NULL;
}

/* As assert_everybody_is_held(), by so many threads that begin at once. */
static void assert_threads_hold_everybody(tw_family *family, int threads) {
    struct asker askers[4];
    _Atomic int waiting = threads;
    int64_t admitted = 0, by_full = 0;
    for (int i = 0; i < threads; i++) {
        askers[i] = (struct asker){.waiting = &waiting, .family = family, .first = i, .step = threads};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_for_some, &askers[i]), 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(askers[i].thread, NULL);
        admitted += askers[i].admitted;
        by_full += askers[i].by_full;
    }
    assert_i64_equal(by_full, 0);
    assert_i64_equal(admitted, (int64_t)USERS * limit);
}

/* Goal: the same where the users of a window come just before its end, and all of them again just after it: neither of
 * the two windows has been prepared then. Method: windows of a second; a turn between the two moments, or none; with
 * keys_expected and without; one thread, and four that begin at once; in the first windows, and after a window without
 * users that comes after a full one. */
TEST_WITH(a_share_holds_every_user_on_both_sides_of_a_boundary, NULL, stop, NULL) {
    for (int kind = 0; kind < 8; kind += test_is_slow() ? 3 : 1) {
        int threads = (kind & 4) != 0 ? 4 : 1;
        start(2 * MIB);
        tw_family_options options = with_share("login", MIB);
        options.window_ms = TW_SECOND;
        if ((kind & 2) != 0) options.keys_expected = USERS;
        tw_family *login = rig_family_of(&rig, &options), *pages = rig_family(&rig, "pages", TW_WINDOW_FOREVER, 0);
        pass_ms(TW_SECOND - 5);
        for (int round = 0; round < 2; round++) {
            flood(pages);
            assert_threads_hold_everybody(login, threads);
            fake_clock_advance_ms(&rig.clock, 5);
            if ((kind & 1) != 0) rig_turn(&rig);
            assert_threads_hold_everybody(login, threads);
            pass_ms((round + 2) * TW_SECOND - 5);
        }
        stop(NULL);
    }
}

/* Those users are counted by event time. */
static void add_at(tw_family *family, int first, int end, int64_t at_ms) {
    char key[64];
    for (; first < end; first++) {
        snprintf(key, sizeof key, "user of a longer name %08d", first);
        assert_status(tw_add_at(family, tw_str(key), 1, at_ms, NULL), TW_OK);
    }
}

/* Goal: a share holds all of its users though the next window is opened while the previous one has few of them yet, for
 * some threads still read an earlier time. Method: so many users are counted in the first window; the next one is
 * opened, and gets all; the others are counted in the first one, by event time. */
TEST_WITH(a_share_holds_two_windows_that_grow_at_the_same_time, NULL, stop, NULL) {
    static const int early[] = {1, 100, 400, 900, 1500, 2500, 3000, 4000, USERS};
    for (size_t i = 0; i < sizeof early / sizeof *early; i += test_is_slow() ? 2 : 1) {
        start(2 * MIB);
        tw_family_options options = with_share("login", MIB);
        options.lateness_ms = TW_MINUTE;
        options.on_full = TW_ON_FULL_REJECT;
        tw_family *login = rig_family_of(&rig, &options), *pages = rig_family(&rig, "pages", TW_WINDOW_FOREVER, 0);
        flood(pages);
        int64_t first_ms = twi_clock_now_ms(&rig.engine->clock);
        add_at(login, 0, early[i], first_ms);
        fake_clock_advance_ms(&rig.clock, TW_MINUTE);
        assert_everybody_is_held(login, "user of a longer name %08d", USERS);
        add_at(login, early[i], USERS, first_ms);
        stop(NULL);
    }
}

/* Goal: what cannot be set aside is refused by name, and changes nothing: more than an engine has for shares, more than
 * other shares have left, more than other families have left, at opening and by tw_family_set(). */
TEST_WITH(a_share_that_does_not_fit_is_refused_by_name, NULL, stop, NULL) {
    start(8 * MIB);
    tw_family *family, *first;
    tw_family_options options = with_share("a", 8 * MIB);
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_non_null(strstr(text, "memory_share"));
    assert_i64_equal(twi_load_relaxed(&rig.engine->arena.parts.bytes_aside), 0);
    options = with_share("a", 4 * MIB);
    assert_status(tw_family_open(rig.engine, &options, &first), TW_OK);
    options = with_share("b", 4 * MIB);
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_non_null(strstr(text, "memory_share"));
    assert_null(tw_family_find(rig.engine, "b"));
    options = with_share("b", 2 * MIB);
    tw_family *second = rig_family_of(&rig, &options);
    options = with_share("a", 6 * MIB);
    assert_status(tw_family_set(first, &options), TW_ERR_OPTIONS);
    assert_non_null(strstr(text, "memory_share"));
    assert_i64_equal(twi_load_relaxed(&first->quota.bytes_max), 4 * MIB);
    options = with_share("b", 2 * MIB + MIB / 2);
    assert_status(tw_family_set(second, &options), TW_OK);
    assert_i64_equal(twi_load_relaxed(&rig.engine->arena.parts.bytes_aside), 6 * MIB + MIB / 2);
    stop(NULL);
    start(8 * MIB);
    flood(rig_family(&rig, "pages", TW_WINDOW_FOREVER, 0));
    options = with_share("late", MIB);
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_non_null(strstr(text, "memory_share"));
    assert_non_null(strstr(text, "first"));
}

/* Goal: a share that grows is set aside, too; one that shrinks bounds its family at once; none of it is lost. */
TEST_WITH(a_share_changes_while_its_family_is_open, NULL, stop, NULL) {
    start(8 * MIB);
    tw_family_options options = with_share("login", MIB / 4);
    tw_family *login = rig_family_of(&rig, &options), *pages = rig_family(&rig, "pages", TW_WINDOW_FOREVER, 0);
    int64_t admitted;
    assert_true(everybody_asks(login, "early %d", USERS, &admitted) > 0);
    options = with_share("login", 2 * MIB);
    assert_status(tw_family_set(login, &options), TW_OK);
    flood(pages);
    assert_everybody_is_held(login, "user %d", USERS);
    options = with_share("login", MIB / 8);
    assert_status(tw_family_set(login, &options), TW_OK);
    assert_true(everybody_asks(login, "later %d", USERS, &admitted) > 0);
    assert_status(tw_family_close(login), TW_OK);
    for (int i = 0; i < 100; i++) rig_pass(&rig, 20);
    assert_i64_equal(twi_load_relaxed(&rig.engine->arena.parts.bytes_aside), 0);
    assert_null(rig.engine->arena.parts.first);
}

/* Goal: a family that is closed and opened again has its share at once, though earlier windows are still in it, and
 * no share is lost over many times. Method: more than half of the memory, with and without turns in between. */
TEST_WITH(a_family_that_is_opened_again_takes_its_share_over, NULL, stop, NULL) {
    start(8 * MIB);
    tw_family *pages = rig_family(&rig, "pages", TW_WINDOW_FOREVER, 0);
    for (int round = 0; round < 30; round++) {
        tw_family_options options = with_share("login", (5 + (uint64_t)round % 2) * MIB);
        tw_family *login = rig_family_of(&rig, &options);
        assert_everybody_is_held(login, "user %d", 1000);
        if (round == 10) flood(pages);
        assert_status(tw_family_close(login), TW_OK);
        for (int turn = 0; turn < round % 3; turn++) rig_pass(&rig, 5);
    }
    for (int i = 0; i < 100; i++) rig_pass(&rig, 20);
    assert_i64_equal(twi_load_relaxed(&rig.engine->arena.parts.bytes_aside), 0);
    assert_i64_equal(twi_load_relaxed(&rig.engine->arena.parts.bytes_used), 0);
}

/* Goal: a forked child has an empty engine with the same shares. */
TEST_WITH(a_forked_child_has_the_shares_of_its_parent, NULL, stop, NULL) {
    if (test_misses_wiped_pages()) return;
    start(8 * MIB);
    tw_family_options options = with_share("login", MIB), more = with_share("more", 2 * MIB);
    tw_family *login = rig_family_of(&rig, &options), *pages = rig_family(&rig, "pages", TW_WINDOW_FOREVER, 0);
    tw_family *other = rig_family_of(&rig, &more);
    options = with_share("login", 2 * MIB); /* two parts */
    assert_status(tw_family_set(login, &options), TW_OK);
    assert_everybody_is_held(login, "user %d", USERS);
    pid_t child = fork();
    if (child == 0) {
        flood(pages);
        int64_t admitted;
        if (everybody_asks(login, "user %d", USERS, &admitted) != 0 || admitted != USERS * limit) _exit(1);
        if (everybody_asks(other, "user %d", USERS, &admitted) != 0 || admitted != USERS * limit) _exit(2);
        if (twi_load_relaxed(&rig.engine->arena.parts.bytes_aside) != (int64_t)(4 * MIB)) _exit(3);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_i64_equal(twi_load_relaxed(&rig.engine->arena.parts.bytes_aside), 4 * MIB);
}

/* Goal: shares next to each other do not touch each other, and what is free of them is no room for the rest. The
 * warning and the statistics say what there is. */
TEST_WITH(shares_and_the_rest_have_accounts_of_their_own, NULL, stop, NULL) {
    start(8 * MIB);
    tw_family_options options = with_share("a", 2 * MIB), other = with_share("b", 3 * MIB);
    tw_family *a = rig_family_of(&rig, &options), *b = rig_family_of(&rig, &other);
    assert_true(test_memory_bytes(rig.engine) < 4096); /* nothing is in use yet */
    assert_true(test_stat_of(rig.engine, memory_free_bytes) > (int64_t)(8 * MIB - 4096));
    assert_true(test_stat_of(rig.engine, memory_usable_bytes) <= (int64_t)(3 * MIB));
    flood(rig_family(&rig, "pages", TW_WINDOW_FOREVER, 0));
    assert_true(test_memory_bytes(rig.engine) <= (int64_t)(3 * MIB));
    flood(a);
    assert_true(test_memory_bytes(rig.engine) <= (int64_t)(5 * MIB));
    assert_everybody_is_held(b, "user %d", 2 * USERS);
    assert_true(test_stat_of(rig.engine, memory_bytes_high) <= (int64_t)(8 * MIB));
}

int main(void) {
    if (test_is_slow()) limit = 2, windows = 4;
    return test_run();
}
