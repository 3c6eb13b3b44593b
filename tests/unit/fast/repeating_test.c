/* repeating_test.c -- a thread that adds to one key again and again finds its counter by what it remembers
 * (repeat_fast.h). Each of its adds must count and answer as any other add.
 * Method: threads are brought to that state by adds alone, and the state itself is asserted, so that no test passes
 * next to it. Fast paths are for engines with a thread, which writes the time down: here the test writes it. */
#include "tests/unit/rig.h"

#include "engine/base/hash_aes.h"
#include "engine/count/dirty.h"
#include "engine/fast/fast.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY (3 * 1024) /* adds after which a thread repeats */

static struct rig rig;

static void hold_time(void) {
    twi_store_relaxed(&rig.engine->clock.word, TWI_CLOCK_WORD(rig_now(&rig)));
}

static tw_family *family_of(const char *name) {
    tw_family *family = rig_family(&rig, name, TW_WINDOW_ALIGNED, TW_HOUR);
    hold_time();
    return family;
}

static int64_t add(tw_family *family, tw_key key, int64_t delta) {
    int64_t view = INT64_MIN;
    assert_status(tw_add(family, key, delta, &view), TW_OK);
    return view;
}
static int64_t get(tw_family *family, tw_key key) {
    int64_t view = INT64_MIN;
    assert_status(tw_get(family, key, &view), TW_OK);
    return view;
}

/* Adds one until the thread repeats. Returns how often. */
static int64_t repeat(tw_family *family, tw_key key) {
    int64_t before = get(family, key);
    for (int64_t i = 1; i <= MANY; i++) assert_i64_equal(add(family, key, 1), before + i);
    if (!twi_section_may_be_short()) return MANY; /* then there are no fast paths */
    assert_true(twi_thread_self->repeats > 0);
    assert_true(twi_thread_self->repeated.family == family->serial);
    return MANY;
}

static void play_sizes(twi_hash_fn *hash) {
    static const size_t sizes[] = {4, 7, 8, 16, 17, 29, 32, 33, 48, 64, 65, 100, 300, TW_KEY_SIZE_MAX};
    rig_open(&rig);
    rig.engine->hashing.fn = hash; /* families choose their fast paths by it */
    tw_family *family = family_of("f");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char bytes[TW_KEY_SIZE_MAX];
        memset(bytes, (int)sizes[i], sizeof bytes);
        tw_key key = tw_bytes(bytes, sizes[i]);
        int64_t wanted = repeat(family, key), alike = 0;
        for (size_t at = 0; at < sizes[i]; at++) { /* other keys that differ in one byte */
            bytes[at] ^= 0x40;
            assert_i64_equal(add(family, key, 5), 5);
            bytes[at] ^= 0x40;
            assert_i64_equal(add(family, key, 1), wanted + ++alike);
        }
        wanted += alike + repeat(family, key);
        assert_status(tw_add(family, key, 1, NULL), TW_OK);
        assert_i64_equal(add(family, tw_bytes(bytes, sizes[i] - 1), 3), 3);
        assert_i64_equal(add(family, key, -wanted), 1);
        assert_i64_equal(get(family, key), 1);
    }
    rig_close(&rig);
}

/* Goal: views and sums are exact while a thread repeats, with every way to compare a key, and other keys between. */
TEST(repeated_adds_count_as_all_others) {
    play_sizes(twi_hash_sip);
    if (twi_hash_aes() != NULL) play_sizes(twi_hash_aes());
}

/* Goal: a thread that uses many keys watches for two adds in 1,024, and one that begins to acquire watches no more. */
RIG_TEST(a_thread_stops_watching) {
    tw_family *family = family_of("f");
    uint32_t watched = 0;
    for (uint32_t i = 0; i < 8 * 1024; i++) {
        uint32_t number = i % 100;
        (void)add(family, tw_bytes(&number, sizeof number), 1);
        watched += twi_thread_self->repeats != 0;
    }
    assert_in_range(watched, 8, 2 * 8 + 2);
    (void)repeat(family, tw_str("some key"));
    assert_status(tw_acquire(family, tw_str("some key"), 1, 1000000, NULL), TW_OK);
    assert_int_equal(twi_thread_self->repeats, 0);
}

/* Goal: no add goes to a window that is over, whether it is open still, sealed, or dropped. */
RIG_TEST(repeated_adds_follow_the_windows) {
    tw_family *family = family_of("f");
    tw_key key = tw_str("some key");
    for (int turns = 0; turns < 3; turns++) {
        int64_t counted = repeat(family, key), start_ms = rig_now(&rig), was = -1;
        fake_clock_advance_ms(&rig.clock, TW_HOUR);
        if (turns > 0) rig_settle(&rig);
        if (turns > 1) rig_pass(&rig, 1);
        hold_time();
        assert_i64_equal(add(family, key, 1), 1);
        if (tw_get_at(family, key, start_ms, &was) == TW_OK) assert_i64_equal(was, counted + (turns > 0));
        assert_i64_equal(get(family, key), 1);
    }
}

/* Goal: nothing of a family that was closed is used for one of the same name, which may lie at the same place; nor
 * anything of a closed engine. */
TEST(a_family_that_is_opened_again_begins_at_zero) {
    tw_key key = tw_str("some key");
    for (int i = 0; i < 4; i++) {
        rig_open(&rig);
        for (int j = 0; j < 4; j++) {
            tw_family *family = family_of("f");
            assert_i64_equal(add(family, key, 0), 0);
            (void)repeat(family, key);
            assert_status(tw_family_close(family), TW_OK);
            if (j < 3) rig_settle(&rig);
        }
        rig_close(&rig);
    }
}

/* Goal: what is refused is refused while the thread repeats, too, and changes nothing. */
RIG_TEST(bad_arguments_are_refused_while_a_thread_repeats) {
    tw_family *family = family_of("f");
    static char big[TW_KEY_SIZE_MAX + 1];
    tw_key key = tw_bytes("key", 4);
    int64_t counted = repeat(family, key), view;
    assert_status(tw_add(family, tw_bytes(NULL, 4), 1, &view), TW_ERR_KEY);
    counted += repeat(family, key);
    assert_status(tw_add(family, tw_bytes("key", 0), 1, &view), TW_ERR_KEY);
    counted += repeat(family, key);
    assert_status(tw_add(family, tw_bytes(big, sizeof big), 1, &view), TW_ERR_KEY);
    counted += repeat(family, key);
    assert_status(tw_add(family, tw_bytes("key", ((size_t)1 << 40) + 4), 1, &view), TW_ERR_KEY);
    counted += repeat(family, key);
    assert_status(tw_add(family, key, TW_DELTA_MAX + 1, &view), TW_ERR_RANGE);
    counted += repeat(family, key);
    assert_i64_equal(add(family, key, TW_DELTA_MAX), counted + TW_DELTA_MAX);
    assert_i64_equal(add(family, key, -TW_DELTA_MAX), counted);
    counted += repeat(family, key);
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(tw_add(family, key, 1, &view), TW_ERR_CLOSED);
}

/* Goal: a counter that becomes striped is added up. Method: it is asked for as contention asks. */
RIG_TEST(a_counter_that_becomes_striped_loses_nothing) {
    tw_family *family = family_of("f");
    tw_key key = tw_str("some key");
    int64_t counted = repeat(family, key);
    struct twi_cell *cell = twi_thread_self->repeated.cell;
    twi_section_enter(twi_thread_self);
    twi_contention_request(rig.engine, twi_thread_self->repeated.generation, cell, TWI_NO_LIMIT);
    twi_section_leave(twi_thread_self);
    rig_settle(&rig);
    hold_time();
    assert_true((twi_load_relaxed(&cell->meta) & TWI_META_STRIPED) != 0);
    for (int i = 1; i <= MANY; i++) assert_i64_equal(add(family, key, 1), counted + i);
    assert_i64_equal(get(family, key), counted + MANY);
}

/* Goal: a repeating thread may enter a section, and leave it. */
RIG_TEST(a_thread_repeats_inside_and_outside_of_sections) {
    tw_family *family = family_of("f");
    tw_key key = tw_str("some key");
    int64_t counted = repeat(family, key);
    for (int i = 0; i < 20; i++) {
        tw_enter(rig.engine);
        assert_true(twi_load_relaxed(&twi_thread_slot(twi_thread_self)->epoch) != 0);
        assert_i64_equal(add(family, key, 1), ++counted);
        assert_true(twi_load_relaxed(&twi_thread_slot(twi_thread_self)->epoch) != 0);
        tw_leave(rig.engine);
        assert_i64_equal(add(family, key, 1), ++counted);
        assert_true(twi_load_relaxed(&twi_thread_slot(twi_thread_self)->epoch) == 0);
    }
}

static void *repeat_aside(void *family) {
    (void)twi_thread_here();
    assert_int_equal(twi_thread_self->repeats, 0); /* though the thread before it repeated */
    (void)repeat(family, tw_str("some key"));
    return twi_thread_self;
}
/* Goal: a thread that takes over the record of another begins again. */
RIG_TEST(the_next_thread_begins_without_a_memory) {
    if (test_misses_robust_lists()) return;
    tw_family *family = family_of("f");
    void *records[2];
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, repeat_aside, family), 0);
        assert_int_equal(pthread_join(thread, &records[i]), 0);
    }
    assert_ptr_equal(records[0], records[1]);
    assert_i64_equal(get(family, tw_str("some key")), 2 * MANY);
}

/* Goal: a forked child counts from zero, and leaves the parent's counter alone. */
RIG_TEST(a_forked_child_counts_from_zero) {
    if (test_misses_wiped_pages()) return;
    tw_family *family = family_of("f");
    tw_key key = tw_str("some key");
    int64_t counted = repeat(family, key);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool right = twi_thread_self->repeats == 0;
        for (int64_t i = 1, view; right && i <= MANY; i++) right = tw_add(family, key, 1, &view) == TW_OK && view == i;
        _exit(right ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_i64_equal(add(family, key, 1), counted + 1);
}

struct repeater {
    tw_family *family;
    uint32_t number;
    int64_t added;
    atomic_bool repeated, *is_over;
};
static void *repeat_over_windows(void *arg) {
    struct repeater *repeater = arg;
    for (uint32_t i = 0; !atomic_load(repeater->is_over); i++) {
        uint32_t key = i % 64 != 0 ? 0 : repeater->number; /* one key of all, and at times one of its own */
        int64_t view;
        if (tw_add(repeater->family, tw_bytes(&key, sizeof key), 1, i % 3 != 0 ? &view : NULL) == TW_OK)
            repeater->added++;
        if (twi_thread_self->repeats > 8) atomic_store_explicit(&repeater->repeated, true, memory_order_relaxed);
    }
    return NULL;
}
static bool add_up(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->view;
    return true;
}
static bool add_up_window(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)end_ms, (void)flags;
    return tw_each(family, start_ms, add_up, ctx) == TW_OK;
}

/* Goal: threads that repeat lose nothing while windows end and are dropped.
 * Method: the test moves the time, the closing hook adds up. A thread that the others disturb may repeat late, because
 * their one counter is striped soon in each window. So the time goes on until each of them has repeated. */
TEST(threads_that_repeat_lose_nothing_over_boundaries) {
    enum { THREADS = 3, TURNS_MAX = 30000 };
    int64_t handed = 0, added = 0;
    uint32_t repeated = 0, wanted = twi_section_may_be_short() ? THREADS : 0; /* else there are no fast paths */
    atomic_bool is_over = false;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_SECOND);
    options.on_window_closed = add_up_window;
    options.closed_ctx = &handed;
    options.history_ms = TW_NONE;
    tw_family *family = rig_family_of(&rig, &options);
    struct repeater repeaters[THREADS];
    pthread_t threads[THREADS];
    hold_time();
    for (uint32_t i = 0; i < THREADS; i++) {
        repeaters[i] = (struct repeater){.family = family, .number = i + 1, .is_over = &is_over};
        assert_int_equal(pthread_create(&threads[i], NULL, repeat_over_windows, &repeaters[i]), 0);
    }
    for (int i = 0; i < 150 || (repeated < wanted && i < TURNS_MAX); i++) {
        fake_clock_advance_ms(&rig.clock, 100);
        rig_turn(&rig);
        hold_time();
        usleep(500);
        repeated = 0;
        for (int j = 0; j < THREADS; j++) repeated += atomic_load(&repeaters[j].repeated);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        added += repeaters[i].added;
    }
    rig_close(&rig); /* hands the last windows over */
    assert_i64_equal(handed, added);
    assert_true(repeated >= wanted);
}
