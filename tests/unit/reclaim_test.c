/* reclaim_test.c -- sections and epochs: what a section could hold is not reached before it ends; nobody waits; records come back. */
#include "tests/support/support.h"

#include "engine/reclaim.h"

#include <pthread.h>

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

static void without_sections_every_stamp_is_reached_at_once(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        uint64_t stamp = twi_reclaim_stamp();
        assert_true(stamp < twi_reclaim_reached());
    }
    assert_true(twi_reclaim_oldest() == UINT64_MAX);
}

static void a_stamp_is_reached_when_the_sections_of_before_have_ended(void **state) {
    (void)state;
    struct player player;
    player_begin(&player);
    for (int i = 0; i < 20; i++) {
        uint64_t before = twi_reclaim_stamp();
        player_step(&player);
        uint64_t during = twi_reclaim_stamp();
        for (int j = 0; j < 5; j++) (void)twi_reclaim_stamp();
        assert_true(before < twi_reclaim_reached()); /* it entered after that was unlinked */
        assert_false(during < twi_reclaim_reached());
        player_step(&player);
        assert_true(during < twi_reclaim_reached());
    }
    player_end(&player);
}

static void a_section_entered_later_holds_up_nothing_older(void **state) {
    (void)state;
    struct player one, two;
    player_begin(&one);
    player_begin(&two);
    player_step(&one);
    uint64_t first = twi_reclaim_stamp();
    player_step(&two);
    uint64_t second = twi_reclaim_stamp();
    assert_false(first < twi_reclaim_reached());
    player_step(&one);
    assert_true(first < twi_reclaim_reached());
    assert_false(second < twi_reclaim_reached());
    player_step(&two);
    assert_true(second < twi_reclaim_reached());
    player_end(&one);
    player_end(&two);
}

static void sections_nest(void **state) {
    (void)state;
    struct twi_thread *self = twi_thread_here();
    twi_section_enter(self);
    uint64_t stamp = twi_reclaim_stamp();
    twi_section_enter(self);
    twi_section_enter(self);
    twi_section_leave(self);
    twi_section_leave(self);
    assert_false(stamp < twi_reclaim_reached());
    twi_section_leave(self);
    assert_true(stamp < twi_reclaim_reached());
}

static void *register_and_exit_inside(void *ctx) {
    struct twi_thread *self = twi_thread_here();
    *(struct twi_thread **)ctx = self;
    twi_section_enter(self);
    return NULL;
}

/* Goal: a thread that exits inside a section leaves it, and its record serves the next thread. */
static void a_thread_that_exits_gives_its_record_back(void **state) {
    (void)state;
    struct twi_thread *first = NULL;
    for (int i = 0; i < 100; i++) {
        struct twi_thread *self = NULL;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, register_and_exit_inside, &self), 0);
        pthread_join(thread, NULL);
        if (first == NULL) first = self;
        assert_ptr_equal(self, first);
        assert_true(twi_reclaim_stamp() < twi_reclaim_reached());
    }
}

static void records_of_living_threads_are_their_own(void **state) {
    (void)state;
    struct player players[20];
    for (int i = 0; i < 20; i++) player_begin(&players[i]);
    for (int i = 0; i < 20; i++) player_step(&players[i]);
    uint64_t stamp = twi_reclaim_stamp();
    for (int i = 0; i < 20; i++) {
        assert_false(stamp < twi_reclaim_reached());
        player_step(&players[i]);
    }
    assert_true(stamp < twi_reclaim_reached());
    for (int i = 0; i < 20; i++) player_end(&players[i]);
}

/* ---- the promise itself ------------------------------------------------------------------------------------------------------ */

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

/* Goal: memory unlinked and reused after its stamp was reached is seen by no section that found it.
 * Method: readers look at what is published; the writer replaces it and spoils the old one as soon as it may. */
static void no_section_sees_memory_that_was_reused(void **state) {
    (void)state;
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
        uint64_t stamp = twi_reclaim_stamp();
        while (stamp >= twi_reclaim_reached()) sched_yield();
        twi_store_relaxed(old, 0xdead);
    }
    atomic_store(&shared.over, true);
    for (int i = 0; i < 2; i++) pthread_join(readers[i], NULL);
    assert_i64_equal(atomic_load(&shared.bad), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_sections_every_stamp_is_reached_at_once),
        cmocka_unit_test(a_stamp_is_reached_when_the_sections_of_before_have_ended),
        cmocka_unit_test(a_section_entered_later_holds_up_nothing_older),
        cmocka_unit_test(sections_nest),
        cmocka_unit_test(a_thread_that_exits_gives_its_record_back),
        cmocka_unit_test(records_of_living_threads_are_their_own),
        cmocka_unit_test(no_section_sees_memory_that_was_reused),
    };
    return cmocka_run_group_tests_name("reclaim", tests, NULL, NULL);
}
