/* epoch_test.c -- sections and epochs: memory that a section could hold is not reused before it ends; no thread waits;
 * records are used again. */
#include "tests/support/support.h"

#include "engine/core/family.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/syscall.h>

struct player {
    pthread_t thread;
    pthread_barrier_t step;
    _Atomic bool over;
};
static void *enter_and_leave_on_call(void *ctx) {
    struct player *player = ctx;
    struct twi_thread *self = twi_thread_here();
    for (;;) {
        pthread_barrier_wait(&player->step);
        if (atomic_load(&player->over)) break;
        twi_section_enter(self);
        pthread_barrier_wait(&player->step);
        pthread_barrier_wait(&player->step);
        twi_section_leave(self);
        pthread_barrier_wait(&player->step);
    }
    return NULL;
}
static void player_begin(struct player *player) {
    atomic_store(&player->over, false);
    pthread_barrier_init(&player->step, NULL, 2);
    assert_int_equal(pthread_create(&player->thread, NULL, enter_and_leave_on_call, player), 0);
}
static void player_step(struct player *player) { /* enters; or leaves */
    pthread_barrier_wait(&player->step);
    pthread_barrier_wait(&player->step);
}
static void player_end(struct player *player) {
    atomic_store(&player->over, true);
    pthread_barrier_wait(&player->step);
    pthread_join(player->thread, NULL);
    pthread_barrier_destroy(&player->step);
}

TEST(without_sections_every_stamp_is_reached_at_once) {
    for (int i = 0; i < 100; i++) {
        uint64_t stamp = twi_epoch_stamp();
        assert_true(stamp < twi_epoch_reached());
    }
    assert_true(twi_epoch_oldest() == UINT64_MAX);
}

struct refused {
    bool works; /* there is seccomp here */
    bool reached;
    int error;
    int lines;
    int64_t windows;
};

static void count_line(void *ctx, int level, int event, const char *text) {
    struct refused *refused = ctx;
    if (event == TW_EVENT_BARRIER && level == TW_LOG_ERROR && strstr(text, "membarrier(2) is refused (error ") == text)
        refused->lines++;
}

static void *live_without_barriers(void *ctx) {
    struct refused *refused = ctx;
    struct fake_clock clock;
    tw_options options;
    tw_engine *engine;
    tw_family *family;
    tw_family_options family_options;
    fake_clock_init(&clock, INT64_C(1700000000000));
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.log_write = count_line;
    options.log_ctx = refused;
    fake_clock_install(&clock, &options);
    tw_family_options_init(&family_options);
    family_options.name = "f";
    family_options.window_ms = TW_SECOND;
    family_options.history_ms = TW_NONE;
    if (tw_open(&options, &engine) != TW_OK || tw_family_open(engine, &family_options, &family) != TW_OK) return NULL;
    refused->works = test_answer_call(SYS_membarrier, SECCOMP_RET_ERRNO | ENOMEM);
    uint64_t stamp = twi_epoch_stamp();
    refused->reached = stamp < twi_epoch_reached();
    refused->error = twi_epoch_refusal();
    for (int second = 0; second < 20; second++) {
        (void)tw_add(family, tw_str("a"), 1, NULL);
        fake_clock_advance_ms(&clock, 1000);
        for (int turn = 0; turn < 5; turn++) (void)tw_turn(engine);
    }
    for (uint32_t line = engine->unlinked.generations; line != 0; refused->windows++)
        line = ((struct twi_generation *)twi_arena_at(&engine->arena, line))->turn.dropped.next;
    (void)tw_close(engine, 0);
    return NULL;
}

/* Goal: if the kernel refuses the barrier, no stamp is reached, so no memory is reused under a reader; one log line
 * says so. */
TEST(a_barrier_that_is_refused_reaches_nothing) {
    struct refused refused = {0};
    pthread_t thread;
    assert_non_null(twi_thread_here());
    if (!TWI_EPOCH_SEES_FENCES || !twi_epoch_asymmetric) {
        test_leave_out("no membarrier(2) here, or ThreadSanitizer: run it on Linux 4.14, in a build without it");
        return;
    }
    assert_int_equal(pthread_create(&thread, NULL, live_without_barriers, &refused), 0);
    pthread_join(thread, NULL);
    if (!refused.works) {
        test_leave_out("no seccomp here: run it with a kernel and a container that allow it");
        return;
    }
    assert_false(refused.reached);
    assert_int_equal(refused.error, ENOMEM);
    assert_int_equal(refused.lines, 1);
    assert_true(refused.windows >= 18);
    uint64_t stamp = twi_epoch_stamp(); /* this thread's work */
    assert_true(stamp < twi_epoch_reached());
    assert_int_equal(twi_epoch_refusal(), 0);
}

TEST(a_stamp_is_reached_when_the_sections_of_before_have_ended) {
    struct player player;
    player_begin(&player);
    for (int i = 0; i < 20; i++) {
        uint64_t before = twi_epoch_stamp();
        player_step(&player);
        uint64_t during = twi_epoch_stamp();
        for (int j = 0; j < 5; j++) (void)twi_epoch_stamp();
        assert_true(before < twi_epoch_reached()); /* it entered after that was unlinked */
        assert_false(during < twi_epoch_reached());
        player_step(&player);
        assert_true(during < twi_epoch_reached());
    }
    player_end(&player);
}

TEST(a_section_entered_later_holds_up_nothing_older) {
    struct player one, two;
    player_begin(&one);
    player_begin(&two);
    player_step(&one);
    uint64_t first = twi_epoch_stamp();
    player_step(&two);
    uint64_t second = twi_epoch_stamp();
    assert_false(first < twi_epoch_reached());
    player_step(&one);
    assert_true(first < twi_epoch_reached());
    assert_false(second < twi_epoch_reached());
    player_step(&two);
    assert_true(second < twi_epoch_reached());
    player_end(&one);
    player_end(&two);
}

TEST(sections_nest) {
    struct twi_thread *self = twi_thread_here();
    twi_section_enter(self);
    uint64_t stamp = twi_epoch_stamp();
    twi_section_enter(self);
    twi_section_enter(self);
    twi_section_leave(self);
    twi_section_leave(self);
    assert_false(stamp < twi_epoch_reached());
    twi_section_leave(self);
    assert_true(stamp < twi_epoch_reached());
}

static void *register_and_exit_inside(void *ctx) {
    struct twi_thread *self = twi_thread_here();
    *(struct twi_thread **)ctx = self;
    twi_section_enter(self);
    return NULL;
}

/* Goal: a thread that exits inside a section leaves it, and its record serves the next thread. */
TEST(a_thread_that_exits_gives_its_record_back) {
    struct twi_thread *first = NULL;
    if (test_misses_robust_lists()) return;
    for (int i = 0; i < 100; i++) {
        struct twi_thread *self = NULL;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, register_and_exit_inside, &self), 0);
        pthread_join(thread, NULL);
        if (first == NULL) first = self;
        assert_ptr_equal(self, first);
        assert_true(twi_epoch_stamp() < twi_epoch_reached());
    }
}

TEST(records_of_living_threads_are_their_own) {
    struct player players[20];
    for (int i = 0; i < 20; i++) player_begin(&players[i]);
    for (int i = 0; i < 20; i++) player_step(&players[i]);
    uint64_t stamp = twi_epoch_stamp();
    for (int i = 0; i < 20; i++) {
        assert_false(stamp < twi_epoch_reached());
        player_step(&players[i]);
    }
    assert_true(stamp < twi_epoch_reached());
    for (int i = 0; i < 20; i++) player_end(&players[i]);
}

/* ---- the promise itself ------------------------------------------------------------------------------------------ */

struct shared {
    _Atomic(_Atomic uint64_t *) published;
    _Atomic bool over;
    _Atomic uint64_t bad;
};
static void *read_published(void *ctx) {
    struct shared *shared = ctx;
    struct twi_thread *self = twi_thread_here();
    while (!atomic_load(&shared->over)) {
        twi_section_enter(self);
        _Atomic uint64_t *word = twi_load_acquire(&shared->published);
        for (int i = 0; i < 20; i++)
            if (twi_load_relaxed(word) != 1) atomic_fetch_add(&shared->bad, 1);
        twi_section_leave(self);
    }
    return NULL;
}

/* Goal: no section that found a piece sees it reused, because it is reused only after its stamp is reached.
 * Method: readers look at the published piece; the writer replaces it, and spoils the old one as soon as it may. */
TEST(no_section_sees_memory_that_was_reused) {
    static _Atomic uint64_t words[2];
    static struct shared shared;
    atomic_store(&words[0], 1);
    atomic_store(&shared.published, &words[0]);
    pthread_t readers[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&readers[i], NULL, read_published, &shared), 0);
    uint64_t rounds = test_scale(3000);
    for (uint64_t round = 1; round <= rounds; round++) {
        _Atomic uint64_t *fresh = &words[round % 2], *old = &words[(round + 1) % 2];
        twi_store_relaxed(fresh, 1);
        twi_store_release(&shared.published, fresh);
        uint64_t stamp = twi_epoch_stamp();
        while (stamp >= twi_epoch_reached()) sched_yield();
        twi_store_relaxed(old, 0xdead);
    }
    atomic_store(&shared.over, true);
    for (int i = 0; i < 2; i++) pthread_join(readers[i], NULL);
    assert_i64_equal(atomic_load(&shared.bad), 0);
}
