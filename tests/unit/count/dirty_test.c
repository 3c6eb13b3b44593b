/* dirty_test.c -- a thread ends in the middle of marking a counter: its marks are finished, and its neighbours' counts
 * are sent.
 * Covers: engine/count/dirty.c, engine/count/dirty.h. */
#include "tests/unit/hand_driver.h"

#include "engine/count/dirty.h"

#include <pthread.h>

static struct rig rig;

/* The last step of the thread that ends. */
enum step { BEGUN, DIRTY_SET, BIT_SET, CHUNK_CLAIMED, CHUNK_PUSHED, WINDOW_CLAIMED, WINDOW_PUSHED, STEPS };

struct mortal {
    tw_family *family;
    const char *key; /* NULL means "a" */
    enum step last;
    const struct twi_thread *self;
    bool failed;
};

/* The steps of an add and its marks, as far as `last`. */
static void *add_and_end(void *ctx) {
    struct mortal *mortal = ctx;
    struct twi_call call;
    struct twi_place place;
    uint64_t before;
    mortal->failed = twi_call_begin(&call, mortal->family, tw_str(mortal->key != NULL ? mortal->key : "a")) != TW_OK ||
                     twi_call_now(&call) != TW_OK || !twi_place_find(&call, &place) ||
                     twi_cell_add(place.cell, place.meta, 20, &before) != TWI_ADDED || (before & TWI_DIRTY) != 0;
    if (mortal->failed) return NULL;
    mortal->self = call.self;
    tw_engine *engine = call.engine;
    struct twi_generation *generation = place.generation;
    struct twi_chunk *chunk = twi_cell_chunk(place.cell, place.meta);
    uint32_t index = twi_cell_index(place.meta);
    uint16_t own = twi_thread_number(call.self);
    twi_dirty_begin(call.self, engine, generation, place.cell);
    if (mortal->last >= DIRTY_SET) (void)twi_or_acqrel(&place.cell->local, TWI_DIRTY);
    if (mortal->last >= BIT_SET) (void)twi_or_acqrel(&chunk->marks[index / 64], UINT64_C(1) << (index % 64));
    if (mortal->last >= CHUNK_CLAIMED) twi_store_release(&chunk->listed, own);
    if (mortal->last >= CHUNK_PUSHED) {
        chunk->next_marked = twi_load_relaxed(&generation->marks.chunks);
        twi_store_release(&generation->marks.chunks, twi_arena_line(&engine->arena, chunk));
    }
    if (mortal->last >= WINDOW_CLAIMED) twi_store_release(&generation->marks.listed, own);
    if (mortal->last >= WINDOW_PUSHED) {
        generation->marks.next = twi_load_relaxed(&engine->collector.marked);
        twi_store_release(&engine->collector.marked, twi_arena_line(&engine->arena, generation));
    }
    return NULL; /* inside the call's section */
}

static void let_one_end(struct mortal *mortal, enum step last) {
    pthread_t thread;
    mortal->last = last;
    assert_int_equal(pthread_create(&thread, NULL, add_and_end, mortal), 0);
    pthread_join(thread, NULL);
    assert_false(mortal->failed);
}

static tw_family *family_with_two_keys(int64_t window_ms) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, window_ms);
    rig_add(family, "a", 1);
    rig_add(family, "b", 1);
    assert_i64_equal(hand_collected(), 2);
    return family;
}

/* Goal: whichever mark was a thread's last one, its count, later counts of the same counter and of its neighbours are
 * sent, also if they came before anybody knew of the end. Then everything is as before: marks work, the slot is free,
 * and memory returns. */
HAND_TEST(marks_of_a_thread_that_ended_are_finished) {
    if (test_misses_robust_lists()) return;
    struct mortal mortal = {.family = family_with_two_keys(TW_HOUR)};
    const struct twi_thread *first = NULL;
    for (enum step last = 0; last < STEPS; last++) {
        let_one_end(&mortal, last);
        if (first == NULL) first = mortal.self;
        assert_ptr_equal(mortal.self, first);
        rig_add(mortal.family, "a", 1);
        rig_add(mortal.family, "b", 1);
        rig_run_turn(rig.engine);
        assert_i64_equal(hand_collected(), 22);
        assert_i64_equal(hand_collected(), 0);
        uint64_t stamp = twi_epoch_stamp();
        assert_true(stamp < twi_epoch_reached());
        rig_add(mortal.family, "b", 1);
        rig_add(mortal.family, "a", 1);
        assert_i64_equal(hand_collected(), 2);
    }
}

/* Goal: a slot with marks to finish keeps its memory, and serves no other thread before they are finished. */
HAND_TEST(a_slot_is_not_free_before_its_marks_are_finished) {
    struct mortal mortal = {.family = family_with_two_keys(TW_HOUR)};
    let_one_end(&mortal, CHUNK_CLAIMED);
    const struct twi_thread *first = mortal.self;
    uint64_t stamp = twi_epoch_stamp();
    assert_false(stamp < twi_epoch_reached());
    assert_i64_equal(hand_collected(), 0);
    mortal.key = "b";
    let_one_end(&mortal, DIRTY_SET);
    assert_ptr_not_equal(mortal.self, first);
    rig_run_turn(rig.engine);
    assert_true(stamp < twi_epoch_reached());
    assert_i64_equal(hand_collected(), 40);
}

/* Goal: E10. A flush that begins after the end of such a thread waits until its marks are finished. */
HAND_TEST(a_flush_waits_for_marks_of_a_thread_that_ended) {
    if (test_misses_robust_lists()) return;
    struct mortal mortal = {.family = family_with_two_keys(TW_HOUR)};
    let_one_end(&mortal, WINDOW_CLAIMED);
    rig_add(mortal.family, "b", 1);
    twi_port_collect_begin(rig.engine);
    (void)hand_collected();
    assert_false(twi_port_collect_is_done(rig.engine));
    rig_run_turn(rig.engine);
    rig_run_turn(rig.engine);
    int64_t rest = hand_collected();
    assert_true(twi_port_collect_is_done(rig.engine));
    assert_i64_equal(rest, 21);
}

/* Goal: the window may end and be dropped before anybody looks: sealing sends the counts, the memory returns, and the
 * marks harm nobody. An engine that is closed first leaves the slot free. */
HAND_TEST(a_window_may_be_over_before_marks_are_finished) {
    if (test_misses_robust_lists()) return;
    for (enum step last = 0; last < STEPS; last++) {
        tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
        options.history_ms = TW_NONE;
        struct mortal mortal = {.family = rig_family_of(&rig, &options)};
        rig_add(mortal.family, "a", 1);
        assert_i64_equal(hand_collected(), 1);
        let_one_end(&mortal, last);
        int64_t sum = 0;
        for (int i = 0; i < 5; i++) {
            rig_pass(&rig, TW_MINUTE);
            sum += hand_collected();
        }
        assert_i64_equal(sum, 20);
        assert_i64_equal(rig.engine->unlinked.generations, 0);
        rig_add(mortal.family, "b", 1);
        assert_i64_equal(hand_collected(), 1);
        assert_status(tw_family_close(mortal.family), TW_OK);
        for (int i = 0; i < 5; i++) rig_pass(&rig, TW_MINUTE);
    }
    struct mortal mortal = {.family = family_with_two_keys(TW_HOUR)};
    let_one_end(&mortal, BIT_SET);
    assert_i64_equal(hand_collected(), 0);
    hand_close(&rig);
    uint64_t stamp = twi_epoch_stamp();
    assert_true(stamp < twi_epoch_reached());
    hand_open(&rig);
}
