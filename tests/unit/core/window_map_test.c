/* window_map_test.c -- the map of a family's windows: each start has one generation, in spite of growth, unlinking and
 * races. */
#include "tests/unit/rig.h"

#include "engine/core/window_map.h"

#include <pthread.h>

static struct rig rig;
static tw_family *family;
static struct twi_thread *self;

static int open_rig(void **state) {
    rig_open(&rig);
    family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    self = twi_thread_here();
    twi_section_enter(self);
    return 0;
}
static int close_rig(void **state) {
    while (self->depth != 0) twi_section_leave(self);
    rig_close(&rig);
    return 0;
}

static struct twi_span span_of(int64_t number) {
    int64_t start_ms = RIG_START_MS + number * TW_MINUTE;
    return (struct twi_span){start_ms, start_ms + TW_MINUTE};
}
static struct twi_generation *open_window(int64_t number) {
    return twi_window_open(family, span_of(number), 0);
}
static struct twi_generation *find_window(int64_t number) {
    return twi_window_find(family, span_of(number).start_ms);
}

TEST_WITH(each_start_has_one_generation_however_many_there_are, open_rig, close_rig, NULL) {
    enum { COUNT = 5000 };
    static struct twi_generation *held[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t number = i * 2741 % COUNT - COUNT / 2; /* in any order, before and after 'now' */
        assert_null(find_window(number));
        held[number + COUNT / 2] = open_window(number);
        assert_non_null(held[number + COUNT / 2]);
        assert_ptr_equal(open_window(number), held[number + COUNT / 2]);
        assert_i64_equal(held[number + COUNT / 2]->start_ms, span_of(number).start_ms);
    }
    for (int64_t i = 0; i < COUNT; i++) assert_ptr_equal(find_window(i - COUNT / 2), held[i]);
    assert_null(find_window(COUNT));
    int64_t windows = 0, keys = 0;
    twi_window_count(family, &windows, &keys);
    assert_i64_equal(windows, COUNT);
    assert_i64_equal(keys, 0);
}

/* Goal: in a map that another thread has closed to replace it, a look-up ends where nothing was, whatever the window's
 * start. Method: the thread ended after it had closed the map. The window of 1970 has the tag 0, as a closed slot. */
TEST_WITH(a_closed_map_is_replaced_by_who_opens_a_window, open_rig, close_rig, NULL) {
    const struct twi_span first = {0, TW_MINUTE};
    struct twi_generation *held = open_window(7), *opened;
    struct {
        _Atomic uint64_t next_retired;
        uint32_t capacity;
        _Atomic uint32_t used;
        _Atomic uint64_t slots[];
    } *map = twi_arena_at(&rig.engine->arena, (uint32_t)twi_load_relaxed(&family->map)); /* window_map.c */
    uint64_t word = twi_load_relaxed(&family->map);
    for (uint32_t i = 0; i < map->capacity; i++)
        if (twi_load_relaxed(&map->slots[i]) == TWI_SLOT_EMPTY) twi_store_relaxed(&map->slots[i], TWI_SLOT_CLOSED);
    assert_null(twi_window_find(family, 0));
    assert_ptr_equal(find_window(7), held);
    assert_i64_equal(twi_load_relaxed(&family->map), word);
    opened = twi_window_open(family, first, 0);
    assert_non_null(opened);
    assert_i64_equal(opened->start_ms, 0);
    assert_true(twi_load_relaxed(&family->map) != word);
    assert_ptr_equal(twi_window_find(family, 0), opened);
    assert_ptr_equal(find_window(7), held);
}

/* Goal: what is dropped is unlinked, in place, also many times over, and what lives is found all the while; a window
 * unlinked may be opened again. Method: a belt of windows that moves on. */
TEST_WITH(dropped_windows_are_unlinked_and_the_others_found, open_rig, close_rig, NULL) {
    enum { BELT = 40 };
    static struct twi_generation *held[BELT];
    for (int64_t i = 0; i < 3000; i++) {
        held[i % BELT] = open_window(i);
        assert_non_null(held[i % BELT]);
        if (i < BELT - 1) continue;
        int64_t oldest = i - BELT + 1;
        struct twi_generation *old = find_window(oldest);
        assert_ptr_equal(old, held[oldest % BELT]);
        twi_store_release(&old->phase, TWI_DROPPED);
        if (i % 3 == 0) twi_window_unlink_dropped(family);
        if (i % 3 == 0) assert_null(find_window(oldest));
        for (int64_t number = oldest + 1; number <= i; number++)
            assert_ptr_equal(find_window(number), held[number % BELT]);
    }
    twi_window_unlink_dropped(family);
    int64_t windows = 0, keys = 0;
    twi_window_count(family, &windows, &keys);
    assert_i64_equal(windows, BELT - 1);
    assert_null(find_window(17));
    assert_non_null(open_window(17));
    assert_i64_equal(find_window(17)->start_ms, span_of(17).start_ms);
}

/* Goal: without memory for a larger map new windows are refused, what is there is found, and what is over can be
 * unlinked. */
TEST_WITH(a_map_without_memory_refuses_and_stays_whole, open_rig, close_rig, NULL) {
    for (int64_t i = 0; i < 8; i++) assert_non_null(open_window(i));
    struct twi_arena *arena = &rig.engine->arena;
    for (uint32_t lines = 1024; lines != 0; lines /= 2)
        while (twi_arena_take(arena, lines) != 0) continue;
    int64_t opened = 8;
    while (open_window(opened) != NULL) opened++;
    for (int64_t i = 0; i < opened; i++) assert_non_null(find_window(i));
    assert_null(find_window(opened));
    twi_store_release(&find_window(3)->phase, TWI_DROPPED);
    twi_window_unlink_dropped(family); /* takes no memory */
    assert_null(find_window(3));
    assert_non_null(find_window(4));
}

TEST_WITH(the_window_of_now_is_kept_at_hand, open_rig, close_rig, NULL) {
    int64_t now_ms = rig_now(&rig);
    assert_null(twi_window_at(family, now_ms, true));
    struct twi_generation *now = open_window(0), *next = open_window(1);
    assert_ptr_equal(twi_window_at(family, now_ms + TW_MINUTE, false), next);
    assert_ptr_equal(twi_load_relaxed(&family->current), &twi_generation_none); /* event times leave it alone */
    assert_ptr_equal(twi_window_at(family, now_ms, true), now);
    assert_ptr_equal(twi_load_relaxed(&family->current), now);
    assert_ptr_equal(twi_window_at(family, now_ms + TW_MINUTE - 1, true), now);
    assert_ptr_equal(twi_window_at(family, now_ms + TW_MINUTE, true), next);
    assert_ptr_equal(twi_load_relaxed(&family->current), next);
}

/* Goal: callers that only peek at the clock find no window that begins before 1970 (clock.h). */
TEST_WITH(a_window_before_1970_is_not_kept_at_hand, open_rig, close_rig, NULL) {
    struct twi_span before = {-TW_MINUTE, 0}, after = {0, TW_MINUTE};
    struct twi_generation *last = twi_window_open(family, before, 0), *first = twi_window_open(family, after, 0);
    assert_ptr_equal(twi_window_at(family, -1, true), last);
    assert_ptr_equal(twi_load_relaxed(&family->current), &twi_generation_none);
    assert_ptr_equal(twi_window_at(family, 0, true), first);
    assert_ptr_equal(twi_load_relaxed(&family->current), first);
}

struct opener {
    pthread_t thread;
    struct twi_generation *held[400];
    int64_t step;
};
static void *open_all(void *ctx) {
    struct opener *opener = ctx;
    for (int64_t i = 0; i < 400; i++) {
        struct twi_thread *here = twi_thread_here();
        int64_t number = opener->step > 0 ? i : 399 - i;
        twi_section_enter(here);
        opener->held[number] = open_window(number);
        twi_section_leave(here);
    }
    return NULL;
}

TEST_WITH(threads_that_open_the_same_windows_agree, open_rig, close_rig, NULL) {
    twi_section_leave(self);
    for (int round = 0; round < 20; round++) {
        static struct opener openers[3];
        for (int i = 0; i < 3; i++) {
            openers[i].step = i == 1 ? -1 : 1;
            assert_int_equal(pthread_create(&openers[i].thread, NULL, open_all, &openers[i]), 0);
        }
        for (int i = 0; i < 3; i++) pthread_join(openers[i].thread, NULL);
        for (int64_t i = 0; i < 400; i++) {
            assert_non_null(openers[0].held[i]);
            assert_ptr_equal(openers[0].held[i], openers[1].held[i]);
            assert_ptr_equal(openers[0].held[i], openers[2].held[i]);
        }
        assert_status(tw_family_close(family), TW_OK);
        for (int i = 0; i < 20; i++) rig_pass(&rig, 10);
        assert_i64_equal(test_memory_bytes(rig.engine), 0); /* losers gave theirs back */
        family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_MINUTE);
    }
    twi_section_enter(self);
}

int main(void) {
    return test_run();
}
