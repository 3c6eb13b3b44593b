/* growth_test.c -- new keys and new windows never make an adding thread touch a fresh page (P9).
 * Method: the kernel's own count of the adding thread's page faults (getrusage). Between the adds the test makes the
 * engine's turns, as a background thread would. Huge pages are off, so that each fresh page of 4 KiB is seen.
 * Always true: page faults of the turns themselves are not counted. Needs MADV_POPULATE_WRITE (Linux 5.14). */
#include "tests/unit/hand_driver.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MIB (UINT64_C(1) << 20)
#define TURN_MS 5
#define PER_TURN 1000 /* inserts: 200,000 a second */

static int64_t faults_here(void) {
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt + usage.ru_majflt;
}

static void add_number(tw_family *family, const char *kind, uint64_t number) {
    char key[64];
    int size = snprintf(key, sizeof key, "%s:%09llu", kind, (unsigned long long)number);
    if (tw_add(family, tw_bytes(key, (size_t)size), 1, NULL) != TW_OK) fail_msg("key %s was refused", key);
}

/* Adds `count` keys from `first` on; the faults that this took. */
static int64_t add_keys(tw_family *family, uint64_t first, uint64_t count) {
    int64_t before = faults_here();
    for (uint64_t i = first; i < first + count; i++) {
        add_number(family, "user", i);
        if (i % 16 == 0) add_number(family, "a key that does not fit into one line of memory", i);
    }
    return faults_here() - before;
}

static void open_rig(struct rig *rig, bool synced) {
    if (synced)
        hand_init(rig);
    else
        rig_init(rig);
    rig->options.memory_bytes_max = 1024 * MIB;
    rig_start(rig);
    if (synced) hand->settle_at_turns = true;
}

/* What was not sent is not the matter here. */
static void close_rig(struct rig *rig) {
    (void)tw_close(rig->engine, 0);
}

static void pass_turns(struct rig *rig, int turns) {
    for (int i = 0; i < turns; i++) {
        fake_clock_advance_ms(&rig->clock, TURN_MS);
        rig_turn(rig);
    }
}

/* Goal: 200,000 new keys a second find their memory faulted in, from the first key on, also when a turn is late.
 * Method: turns every 5 ms; after the engine has seen 200 ms of it, every fortieth turn is 60 ms late. */
TEST(new_keys_at_a_steady_pace_touch_no_fresh_page) {
    for (int synced = 0; synced < 2; synced++) {
        struct rig rig;
        open_rig(&rig, synced != 0);
        tw_family *family = rig_family(&rig, "steady", TW_WINDOW_ALIGNED, TW_HOUR);
        uint64_t next = 0;
        for (int turn = 0; turn < (int)test_scale(400); turn++) {
            int late = turn > 40 && turn % 40 == 0 ? 13 : 1;
            int64_t faults = add_keys(family, next, (uint64_t)late * PER_TURN);
            next += (uint64_t)late * PER_TURN;
            if (faults != 0) fail_msg("%lld page faults before turn %d", (long long)faults, turn);
            fake_clock_advance_ms(&rig.clock, late * TURN_MS);
            rig_turn(&rig);
        }
        close_rig(&rig);
    }
}

/* Goal: a window boundary under load costs no page fault: the next window's index, records and tags are faulted in
 * before it.
 * Method: two families of 60,000 keys each, windows of a minute passed in 600 turns. One family has the same keys in
 * each window, the other new ones. From the second window on (the first has no forecast) every fault is an error. */
TEST(crossing_a_boundary_touches_no_fresh_page) {
    for (int synced = 0; synced < 2; synced++) {
        struct rig rig;
        open_rig(&rig, synced != 0);
        tw_family *same = rig_family(&rig, "same", TW_WINDOW_ALIGNED, TW_MINUTE);
        tw_family *fresh = rig_family(&rig, "fresh", TW_WINDOW_ALIGNED, TW_MINUTE);
        for (uint64_t window = 0; window < 4; window++) {
            for (uint64_t turn = 0; turn < 600; turn++) {
                int64_t faults = add_keys(same, turn * 100, 100);
                faults += add_keys(fresh, (window * 600 + turn) * 100, 100);
                if (faults != 0)
                    fail_msg("%lld page faults in window %d before turn %d", (long long)faults, (int)window, (int)turn);
                fake_clock_advance_ms(&rig.clock, 100);
                rig_turn(&rig);
            }
        }
        assert_true(test_stat_of(rig.engine, windows_closed) >= 6);
        close_rig(&rig);
    }
}

/* Goal: an add right after tw_open() finds memory ready, although the engine's own thread may not have run yet. */
TEST(an_engine_that_was_just_opened_is_ready) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.memory_bytes_max = 64 * MIB;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options family_options = rig_options("first", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family *family;
    assert_status(tw_family_open(engine, &family_options, &family), TW_OK);
    assert_i64_equal(add_keys(family, 0, 2000), 0);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* Bytes of the arena that are in memory. */
static uint64_t resident(const struct twi_arena *arena) {
    static unsigned char pages[1024 * MIB / 4096 + 2048];
    uint64_t count = (arena->map_bytes + 4095) / 4096, found = 0;
    assert_true(count <= sizeof pages);
    assert_int_equal(mincore(arena->map, arena->map_bytes, pages), 0);
    for (uint64_t i = 0; i < count; i++) found += pages[i] & 1;
    return found * 4096;
}

/* The pages that say which lines are free: a bit for each line, a byte for each segment. */
#define TABLE_BYTES (64 * UINT64_C(1024))

/* Goal: the reserve follows what is taken. A small engine stays within 2 MiB, and one that grew keeps no more than 2
 * MiB and an eighth; once nobody takes anything, nothing is added. */
TEST(the_reserve_is_bounded_and_nothing_is_added_for_an_idle_engine) {
    struct rig rig;
    open_rig(&rig, false);
    tw_family *family = rig_family(&rig, "small", TW_WINDOW_ALIGNED, TW_HOUR);
    (void)add_keys(family, 0, 100);
    pass_turns(&rig, 200);
    assert_true(resident(&rig.engine->arena) <= 2 * MIB + TABLE_BYTES);
    for (uint64_t burst = 1; burst <= 4; burst++) {
        for (uint64_t i = 0; i < 20; i++) {
            (void)add_keys(family, burst * 100000 + i * 2000, 2000);
            pass_turns(&rig, 1);
            uint64_t committed = (uint64_t)twi_arena_bytes_committed(&rig.engine->arena);
            assert_true(resident(&rig.engine->arena) <=
                        committed + committed / 8 + 2 * MIB + TWI_SEGMENT_BYTES + TABLE_BYTES);
        }
        pass_turns(&rig, 100);
        uint64_t idle = resident(&rig.engine->arena);
        pass_turns(&rig, 400);
        assert_i64_equal(resident(&rig.engine->arena), idle);
    }
    close_rig(&rig);
}

/* Half a millisecond passes whenever the time is read. */
static int64_t slow_now_ns(void *ctx, int kind) {
    struct fake_clock *clock = ctx;
    atomic_fetch_add(&clock->wall_ns, 500000);
    int64_t mono_ns = atomic_fetch_add(&clock->mono_ns, 500000);
    return kind == TW_CLOCK_WALL ? atomic_load(&clock->wall_ns) : mono_ns;
}

/* Goal: where pages are slow, a turn of the host's loop prepares no more than one piece of memory. */
TEST(a_turn_of_the_host_looks_at_the_time) {
    struct rig rig;
    rig_init(&rig);
    rig.options.memory_bytes_max = 1024 * MIB;
    rig.options.clock_now_ns = slow_now_ns;
    rig_start(&rig);
    struct twi_arena *arena = &rig.engine->arena;
    for (int i = 0; i < 2000; i++) assert_true(twi_arena_take(arena, TWI_SEGMENT_LINES) != 0);
    rig_turn(&rig); /* the reserve is to grow by hundreds of segments */
    uint32_t before = arena->segments_touched;
    rig_turn(&rig);
    assert_i64_equal(arena->segments_touched - before, TWI_WORK_AHEAD / 16 / TWI_SEGMENT_LINES);
    close_rig(&rig);
}

/* Goal: a burst that outruns the reserve leaves no untouched page behind for a much later add.
 * Method: one piece of each small class is taken; then more than the reserve; then a turn; then every class's next
 * piece is written to. */
TEST(a_burst_leaves_no_fresh_page_behind) {
    static const uint32_t sizes[] = {1, 2, 3, 8, 12, 64, 128, 256};
    static struct twi_arena arena;
    assert_true(twi_arena_make(&arena, 64 * MIB));
    uint32_t work = UINT32_MAX, burst = 100;
    twi_arena_keep_ahead(&arena, &work);
    while (burst-- != 0) assert_true(twi_arena_take(&arena, 1024) != 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) assert_true(twi_arena_take(&arena, sizes[i]) != 0);
    for (burst = 100; burst-- != 0;) assert_true(twi_arena_take(&arena, 1024) != 0);
    work = 65536;
    twi_arena_survey(&arena, 1000);
    twi_arena_keep_ahead(&arena, &work);
    int64_t before = faults_here();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t line = twi_arena_take(&arena, sizes[i]);
        memset(twi_arena_at(&arena, line), 1, (size_t)sizes[i] * TWI_LINE_BYTES);
    }
    memset(twi_arena_at(&arena, twi_arena_take(&arena, 1024)), 1, TWI_SEGMENT_BYTES);
    assert_i64_equal(faults_here() - before, 0);
    twi_arena_unmake(&arena);
}

/* Page faults of the library's and libc's own pages and of this program's stack, which the tests do not look for. An
 * engine with Redis runs code of its own. */
static int touch_all_else(void **state) {
    for (int synced = 0; synced < 2; synced++) {
        struct rig rig;
        open_rig(&rig, synced != 0);
        tw_family *family = rig_family(&rig, "warm", TW_WINDOW_ALIGNED, TW_HOUR);
        (void)add_keys(family, 0, 5000);
        pass_turns(&rig, 3);
        close_rig(&rig);
    }
    return 0;
}

static bool kernel_populates(void) {
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool works = map != MAP_FAILED && madvise(map, 4096, MADV_POPULATE_WRITE) == 0;
    if (map != MAP_FAILED) munmap(map, 4096);
    return works;
}

int main(void) {
    if (!kernel_populates()) test_skip_program("this kernel has no MADV_POPULATE_WRITE: run it on Linux 5.14");
    if (test_is_slow())
        test_skip_program("a sanitizer's own memory is faulted in beside ours: a build without one runs this");
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
        test_skip_program("huge pages cannot be turned off here: run it on Linux 3.15");
    return test_run_with(touch_all_else, NULL);
}
