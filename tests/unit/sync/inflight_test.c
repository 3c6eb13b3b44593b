/* inflight_test.c -- the batches in flight of a shared engine, when the process that settles them ends after any step.
 * Method: a batch is sent, and settled up to each point at which a process may end; then what is left is inherited, the
 * rest settled, and the units that Redis has and the engine's own compared. Covers: sync/batch/reply.c,
 * engine/turn/recover.c. */
#include "tests/unit/hand_driver.h"

#include <pthread.h>

#include "engine/core/window_map.h"
#include "engine/table/packed.h"
#include "engine/turn/restore_notes.h"
#include "engine/turn/turn.h"
#define twi_node twi_wire_node /* the engine's index has nodes, too */
#include "sync/batch/reply.h"
#undef twi_node

#define COUNT 6
static struct twi_inflight places[TWI_INFLIGHT_PLACES];

/* Where the process ends, in the settling of one item. */
enum step { BEFORE_NEXT, NEXT_NOTED, SETTLED, STEPS };

static void add_to_all(tw_family *family, int64_t delta) {
    for (int i = 0; i < COUNT; i++) rig_add(family, (char[]){(char)('a' + i), '\0'}, delta);
}

static struct twi_batch *freeze_all(size_t count) {
    size_t taken;
    struct twi_freeze how = {.keys_max = TWI_BATCH_ITEMS_MAX, .bytes_max = TWI_BATCH_BYTES_MAX};
    struct twi_batch *batch = twi_batch_freeze(hand->held, count, &how, &taken);
    assert_non_null(batch);
    assert_i64_equal(taken, count);
    batch->number = 1;
    hand->count = 0;
    return batch;
}

static bool has_memory = true;

/* Another process goes on. Returns the batch that it sends again. */
static struct twi_batch *inherit(struct rig *rig) {
    rig->engine->life.is_shared = false; /* this process leads, as far as the turn knows */
    assert_true(twi_turn_take(rig->engine));
    rig->engine->life.is_shared = true; /* items of a private engine are never forgotten */
    for (uint32_t i = 0; i < TWI_INFLIGHT_PLACES; i++) twi_inflight_undo(&places[i]);
    twi_port_inherit_begin(rig->engine);
    struct twi_batch *batch = NULL;
    for (uint32_t i = 0; i < TWI_INFLIGHT_PLACES; i++) {
        if (twi_load_relaxed(&places[i].state) == TWI_INFLIGHT_FREE) continue;
        batch = twi_inflight_inherit(&places[i], has_memory);
        if (batch == NULL) twi_inflight_free(&places[i]);
    }
    twi_port_inherit_end(rig->engine);
    rig->engine->life.is_shared = false;
    twi_turn_leave(rig->engine);
    return batch;
}

/* The process has ended: its heap is gone. */
static struct twi_batch *go_on(struct rig *rig, struct twi_batch *ended) {
    twi_batch_free(ended);
    return inherit(rig);
}

/* Collects and acknowledges what is unsent. Returns how many units that was. */
static int64_t settle_rest(void) {
    int64_t units = 0;
    while (hand_collect(100) != 0)
        while (hand->count != 0) {
            units += hand->held[hand->count - 1].delta;
            struct twi_item item = hand_pop();
            twi_port_acknowledge(&item, &(struct twi_reply){0});
        }
    return units;
}

static void expect_settled(struct rig *rig, tw_family *family) {
    assert_i64_equal(settle_rest(), 0);
    struct twi_generation *generation = twi_load_relaxed(&family->current);
    assert_i64_equal(generation->turn.outstanding, 0);
    assert_i64_equal(rig->engine->collector.items_out, 0);
}

/* Goal: a batch whose reply has not come is sent again with the same bytes, and each unit is in one place. */
TEST(a_batch_without_a_reply_is_sent_again_as_it_was) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_to_all(family, 5);
    struct twi_batch *batch = freeze_all(hand_collect(100));
    assert_true(twi_inflight_note(places, batch));
    char *keys = malloc(batch->keys.size);
    size_t size = batch->keys.size;
    memcpy(keys, batch->keys.data, size);
    add_to_all(family, 1);
    assert_i64_equal(hand_collect(3), 3); /* collected, and never sent */
    hand->count = 0;
    struct twi_batch *again = go_on(&rig, batch);
    assert_non_null(again);
    assert_i64_equal(again->keys.size, size);
    assert_memory_equal(again->keys.data, keys, size);
    assert_i64_equal(again->item_count, COUNT);
    for (uint32_t i = 0; i < again->item_count; i++) {
        assert_i64_equal(again->items[i].delta, 5);
        twi_port_acknowledge(&again->items[i], &(struct twi_reply){0});
    }
    twi_inflight_forget(again);
    twi_batch_free(again);
    free(keys);
    assert_i64_equal(settle_rest(), COUNT);
    expect_settled(&rig, family);
    hand_close(&rig);
}

/* Goal: Redis has answered, and the process ends while it settles the items: each is settled once, as Redis answered.
 * Method: the process ends at each point; every third item was refused. */
TEST(a_batch_that_was_being_settled_is_settled_to_its_end) {
    for (uint32_t at = 0; at <= COUNT; at++) {
        for (int step = 0; step < STEPS; step++) {
            struct rig rig;
            hand_open(&rig);
            tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
            add_to_all(family, 5);
            struct twi_batch *batch = freeze_all(hand_collect(100));
            assert_true(twi_inflight_note(places, batch));
            int64_t refused = 0;
            for (uint32_t i = 0; i < COUNT; i++) {
                twi_inflight_outcome(batch, i, i % 3 == 2 ? TWI_OUTCOME_RETURNS : TWI_OUTCOME_APPLIED);
                refused += i % 3 == 2 ? 5 : 0;
            }
            twi_inflight_settle(batch);
            for (uint32_t i = 0; i < at || (i == at && step != BEFORE_NEXT); i++) {
                twi_inflight_next(batch, i);
                if (i == COUNT || (i == at && step == NEXT_NOTED)) break;
                if (i % 3 == 2)
                    twi_port_return(&batch->items[i], 0);
                else
                    twi_port_acknowledge(&batch->items[i], &(struct twi_reply){0});
            }
            assert_null(go_on(&rig, batch));
            assert_i64_equal(settle_rest(), refused);
            expect_settled(&rig, family);
            assert_i64_equal(rig_get(family, "a"), 5);
            hand_close(&rig);
        }
    }
}

/* Goal: a process ended while it settled a batch. The batch can be sent again to a Redis that goes back, without what
 * was refused, and whoever settles it. */
TEST(a_batch_that_was_being_settled_is_kept_without_what_was_refused) {
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_to_all(family, 5);
    struct twi_batch *batch = freeze_all(hand_collect(100));
    assert_true(twi_inflight_note(places, batch));
    for (uint32_t i = 0; i < COUNT; i++)
        twi_inflight_outcome(batch, i, i == 1 ? TWI_OUTCOME_RETURNS : i == 3 ? TWI_OUTCOME_LATE : TWI_OUTCOME_APPLIED);
    twi_inflight_settle(batch);
    struct twi_batch *kept = twi_inflight_settled(&places[0]);
    assert_non_null(kept);
    assert_null(kept->items);
    assert_int_equal(kept->key_count, COUNT);
    assert_int_equal(kept->copies_open, 0);
    assert_false(kept->was_short);
    assert_memory_equal(kept->keys.data, batch->keys.data, batch->keys.size);
    assert_i64_equal(kept->struck, 10);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_i64_equal(twi_batch_take_aside(kept, i), i == 1 ? 5 : 0);
        assert_i64_equal(twi_batch_strike(kept, i), i == 1 || i == 3 ? 0 : 5);
    }
    twi_batch_free(kept);
    twi_inflight_outcome(batch, 2, TWI_OUTCOME_UNCERTAIN);
    kept = twi_inflight_settled(&places[0]);
    assert_true(kept->was_short);
    twi_batch_free(kept);
    places[0].key_bytes = TWI_INFLIGHT_BYTES + 1; /* it found no room there */
    assert_null(twi_inflight_settled(&places[0]));
    assert_null(go_on(&rig, batch));
    (void)settle_rest();
    hand_close(&rig);
}

/* ---- two processes end, one after the other ---- */

static int lost_calls, ends_in; /* in that call its thread ends */

static void end_in_on_lost(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    (void)ctx, (void)family, (void)key, (void)start_ms, (void)delta, (void)reason;
    if (lost_calls++ == ends_in) pthread_exit(NULL);
}

static void *inherit_and_end(void *rig) {
    (void)inherit(rig);
    return rig;
}

/* The batch of the process that has ended is inherited by one that ends, too, in that call of on_lost, and by a third
 * one. Returns how many units are sent again. */
static int64_t inherit_twice(struct rig *rig, struct twi_batch *ended, int call) {
    pthread_t thread;
    void *answer;
    twi_batch_free(ended);
    lost_calls = 0;
    ends_in = call;
    assert_int_equal(pthread_create(&thread, NULL, inherit_and_end, rig), 0);
    pthread_join(thread, &answer);
    assert_null(answer);
    has_memory = true;
    assert_null(inherit(rig));
    return settle_rest();
}

static tw_family *open_losing(struct rig *rig) {
    hand_init(rig);
    rig->options.on_lost = end_in_on_lost;
    rig_start(rig);
    twi_port_connected(rig->engine, true);
    tw_family *family = rig_family(rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_to_all(family, 5);
    return family;
}

/* Goal: the process that settles what another one has left ends, too: still each item is settled once. */
TEST(a_batch_is_settled_once_over_two_ends) {
    if (test_misses_robust_lists()) return;
    static const enum twi_inflight_outcome outcomes[] = {TWI_OUTCOME_APPLIED, TWI_OUTCOME_LATE, TWI_OUTCOME_RETURNS};
    for (int call = 0; call < COUNT / 3; call++) {
        struct rig rig;
        tw_family *family = open_losing(&rig);
        struct twi_batch *batch = freeze_all(hand_collect(100));
        assert_true(twi_inflight_note(places, batch));
        for (uint32_t i = 0; i < COUNT; i++) twi_inflight_outcome(batch, i, outcomes[i % 3]);
        twi_inflight_settle(batch);
        assert_i64_equal(inherit_twice(&rig, batch, call), 5 * COUNT / 3);
        assert_int_equal(lost_calls, COUNT / 3 + 1);
        expect_settled(&rig, family);
        hand_close(&rig);
    }
}

/* Goal: so is a batch that is given up, because there was no memory to send it again. */
TEST(a_batch_is_given_up_once_over_two_ends) {
    if (test_misses_robust_lists()) return;
    for (int call = 0; call < COUNT; call++) {
        struct rig rig;
        tw_family *family = open_losing(&rig);
        struct twi_batch *batch = freeze_all(hand_collect(100));
        assert_true(twi_inflight_note(places, batch));
        has_memory = false;
        assert_i64_equal(inherit_twice(&rig, batch, call), 0);
        assert_int_equal(lost_calls, COUNT + 1);
        expect_settled(&rig, family);
        hand_close(&rig);
    }
}

/* Goal: a process that ended while it listed a window whose counts Redis has lost, walked over it, or took it off the
 * list, leaves no window that waits for ever, and none that is dropped before its counts are sent. */
TEST(a_restoration_goes_on_from_its_list) {
    if (test_misses_robust_lists()) return;
    enum cut { LISTED, LISTED_WITHOUT_FLAG, FLAG_WITHOUT_LIST, HALF_A_CURSOR, CUTS };
    for (enum cut cut = LISTED; cut < CUTS; cut++) {
        struct rig rig;
        hand_open(&rig);
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        add_to_all(family, 5);
        assert_i64_equal(settle_rest(), 5 * COUNT);
        (void)twi_port_restore(rig.engine, 0);
        struct twi_generation *generation = twi_load_relaxed(&family->current);
        assert_true(generation->turn.restore.listed);
        if (cut == LISTED_WITHOUT_FLAG) {
            generation->turn.restore.listed = false;
            generation->turn.outstanding--;
        }
        if (cut == FLAG_WITHOUT_LIST) rig.engine->restore->listed = 0;
        if (cut == HALF_A_CURSOR) rig.engine->restore->cursor = (struct twi_cursor){.kind = TWI_KINDS, .begun = true};
        assert_null(inherit(&rig));
        bool is_listed = cut != FLAG_WITHOUT_LIST;
        assert_true(generation->turn.restore.listed == is_listed);
        assert_int_equal(generation->turn.outstanding, is_listed);
        while (twi_port_restore_some(rig.engine)) {}
        assert_i64_equal(settle_rest(), is_listed ? 5 * COUNT : 0);
        expect_settled(&rig, family);
        hand_close(&rig);
    }
}

/* ---- a packed window that is half restored ---- */

#define PACKED_KEYS 4096 /* more than one turn restores */

/* Notes where the entry before *end begins. */
struct before {
    const struct twi_packed_cursor *at, *end;
    struct twi_packed_cursor last;
};
static bool note_before(void *ctx, tw_key key, struct twi_final final) {
    (void)key, (void) final;
    struct before *before = ctx;
    if (before->at->page == before->end->page && before->at->at == before->end->at) return false;
    before->last = *before->at;
    return true;
}

static struct twi_packed *pack(struct rig *rig, tw_family *family) {
    for (int i = 0; i < 100; i++) rig_pass(rig, TW_SECOND);
    struct twi_generation *generation = twi_window_find(family, RIG_START_MS);
    struct twi_packed *packed = twi_packed_of(&rig->engine->arena, generation);
    assert_non_null(packed);
    assert_int_equal(packed->table, TWI_TABLE_GONE);
    return packed;
}

/* Goal: a process that ended while counters of a packed window got records again, leaves no counter that is sent twice,
 * and none that is not sent. Also if all of them had records, and were marked.
 * Method: the walk is cut after a turn's work, and its last step is undone, as if the process had not come to it. */
TEST(a_packed_window_is_restored_once_over_an_end) {
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        struct rig rig;
        hand_open(&rig);
        tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
        options.retention_ms = options.history_ms = TW_HOUR;
        tw_family *family = rig_family_of(&rig, &options);
        for (int i = 0; i < PACKED_KEYS; i++) {
            char key[40];
            snprintf(key, sizeof key, "a key with the number %d", i);
            rig_add(family, key, 5);
        }
        assert_i64_equal(settle_rest(), 5 * PACKED_KEYS);
        struct twi_packed *packed = pack(&rig, family);
        (void)twi_port_restore(rig.engine, 0);
        assert_true(twi_port_restore_some(rig.engine));
        assert_true(packed->revived.begun && !packed->revived.done);
        struct twi_packed_cursor at = {0};
        struct before before = {&at, &packed->revived, {0}};
        twi_packed_walk(&rig.engine->arena, twi_arena_line(&rig.engine->arena, packed), &at, note_before, &before);
        if (!is_whole) packed->revived = before.last;
        while (is_whole && twi_port_restore_some(rig.engine)) continue;
        assert_null(inherit(&rig));
        while (twi_port_restore_some(rig.engine)) continue;
        assert_i64_equal(settle_rest(), 5 * PACKED_KEYS);
        expect_settled(&rig, family);
        hand_close(&rig);
    }
}

/* Goal: nothing is sent that has no place. */
TEST(without_a_free_place_nothing_is_sent) {
    if (test_misses_robust_lists()) return;
    struct twi_batch *batches[TWI_INFLIGHT_PLACES + 1];
    for (uint32_t i = 0; i <= TWI_INFLIGHT_PLACES; i++) {
        batches[i] = twi_batch_empty(0);
        assert_int_equal(twi_inflight_note(places, batches[i]), i < TWI_INFLIGHT_PLACES);
    }
    twi_inflight_forget(batches[0]);
    assert_true(twi_inflight_note(places, batches[TWI_INFLIGHT_PLACES]));
    for (uint32_t i = 0; i <= TWI_INFLIGHT_PLACES; i++) {
        twi_inflight_forget(batches[i]);
        twi_batch_free(batches[i]);
    }
}
