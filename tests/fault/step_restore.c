/* step_restore.c -- the leader of a shared engine is killed after every single instruction while it restores, packs or
 * gives back: the next leader goes on, and the emptied Redis gets each unit once.
 *
 * Method: stepping.h. A forked child owns the turn and makes one call of it. Its parent is the next leader, inherits,
 * restores what is left, and collects everything. A row of sums takes the place of Redis. `prepare` brings the windows
 * to the state in which the call begins.
 * Always true: nothing is collected before a restoration is whole, as in sync/turn/collect.c. */
#include "tests/fault/stepping.h"
#include "tests/support/fake_driver.h"

#include "engine/core/processes.h"
#include "engine/core/window_map.h"
#include "engine/port/items.h"
#include "engine/table/packed.h"
#include "engine/turn/windows.h"
#include "engine/turn/turn.h"

#define twi_node twi_wire_node /* the engine has these names, too */
#define twi_phase twi_wire_phase
#define TWI_OPEN TWI_WIRE_OPEN
#include "sync/batch/reply.h"
#include "sync/message/state.h"
#include "sync/turn/settle.h"
#undef twi_node
#undef twi_phase
#undef TWI_OPEN

#define WHOLE_SECONDS 300
#define KEYS 8u /* a smaller table is not packed */
#define WINDOWS_MAX 2000

static tw_engine *engine;
static tw_family *family;
static int64_t first_ms, windows; /* the start of the first window, and how many there are */

static tw_key key_at(uint32_t i) {
    static char text[40];
    snprintf(text, sizeof text, "%03u, a key of some thirty bytes", i);
    return tw_str(text);
}
static int64_t units_at(uint32_t i) {
    return 1000 + (int64_t)i;
}

static int open_engine(void **state) {
    tw_options options;
    fake_driver_share(&options);
    fake_driver.away = true;
    assert_status(tw_open(&options, &engine), TW_OK);
    tw_family_options of_family;
    tw_family_options_init(&of_family);
    of_family.name = "f";
    of_family.window_ms = 1000;
    of_family.lateness_ms = TW_UNBOUNDED;
    of_family.history_ms = of_family.retention_ms = TW_DAY;
    assert_status(tw_family_open(engine, &of_family, &family), TW_OK);
    assert_status(tw_lead(engine), TW_OK);
    first_ms = twi_clock_read(&engine->clock) / 1000 * 1000 - 1000 * WINDOWS_MAX;
    windows = 0;
    return 0;
}

static int close_engine(void **state) {
    step_end_child();
    fake_driver.away = false;
    assert_status(tw_close(engine, 1000), TW_OK);
    return 0;
}

/* ---- Redis ---- */

static int64_t sums[KEYS]; /* over all windows */

static void send_all(void) {
    struct twi_item items[64];
    for (size_t count; (count = twi_port_collect(engine, items, 64)) != 0;)
        for (size_t i = 0; i < count; i++) {
            unsigned number = (unsigned)atoi(twi_port_key(&items[i]).data);
            assert_true(number < KEYS);
            sums[number] += items[i].delta;
            twi_port_acknowledge(&items[i], &(struct twi_reply){0});
        }
}

static void expect_all(void) {
    for (uint32_t i = 0; i < KEYS; i++) assert_i64_equal(sums[i], windows * units_at(i));
}

static void wipe(void) {
    memset(sums, 0, sizeof sums);
    assert_i64_equal(twi_port_restore(engine, 0), 0);
}

/* Inside a turn: what was lost is sent. */
static void restore_rest(void) {
    while (twi_port_restore_some(engine)) continue;
    send_all();
    expect_all();
}

/* The next leader's first turn. */
static void take_over(void) {
    assert_true(twi_turn_take(engine));
    twi_port_inherit_begin(engine);
    twi_port_inherit_end(engine);
}

/* ---- the windows ---- */

static struct twi_generation *last_window(void) {
    return twi_window_find(family, first_ms + 1000 * (windows - 1));
}

/* Counts in one more window, and sends that. */
static void count_in_window(void) {
    int64_t at_ms = first_ms + 1000 * windows++;
    assert_true(windows < WINDOWS_MAX);
    for (uint32_t i = 0; i < KEYS; i++) assert_status(tw_add_at(family, key_at(i), units_at(i), at_ms, NULL), TW_OK);
    assert_true(twi_turn_take(engine));
    send_all();
    twi_turn_leave(engine);
    assert_status(tw_close_until(family, at_ms + 1000), TW_OK);
}

static bool is_in_state(uint32_t table) {
    struct twi_generation *generation = last_window();
    const struct twi_packed *packed = twi_packed_of(&engine->arena, generation);
    return packed != NULL && twi_load_relaxed(&generation->phase) == TWI_HISTORY && packed->table == table;
}
/* What may be marked is collected, too. */
static bool is_packed(void *ctx) {
    assert_status(tw_turn(engine), TW_OK);
    assert_true(twi_turn_take(engine));
    send_all();
    twi_turn_leave(engine);
    return is_in_state(TWI_TABLE_GONE) && !last_window()->turn.history.in_hand;
}
static void await(bool (*holds)(void *ctx)) {
    assert_true(test_wait(holds, NULL, TEST_PATIENCE_MS));
}

/* ---- the calls ---- */

static void own_the_turn(uint32_t n) {
    assert_int_equal(twi_turn_own(engine, 0), 0);
}

static void judge(uint32_t n, bool answered) {
    (void)n, (void)answered;
    take_over();
    restore_rest();
    twi_turn_leave(engine);
}

/* The window is packed and its table given back, and Redis is empty. */
static void pack_and_wipe(uint32_t n) {
    await(is_packed);
    assert_true(twi_turn_take(engine));
    wipe();
    twi_turn_leave(engine);
}
static bool restores(uint32_t n) {
    while (twi_port_restore_some(engine)) continue;
    return true;
}
/* Goal: a packed window is restored once, wherever its leader is killed. */
TEST_WITH(a_packed_window_is_restored, open_engine, close_engine, NULL) {
    count_in_window();
    step_through(&(struct step_call){"restore of a packed window", 11, pack_and_wipe, own_the_turn, restores, judge});
}

static void own_and_restore(uint32_t n) {
    own_the_turn(n);
    (void)restores(n);
}
static bool collects(uint32_t n) {
    struct twi_item items[64];
    return twi_port_collect(engine, items, 64) == KEYS;
}
/* Goal: what was collected after a restoration, and not sent, is collected again. */
TEST_WITH(what_is_restored_is_collected, open_engine, close_engine, NULL) {
    count_in_window();
    step_through(&(struct step_call){"collecting", 3, pack_and_wipe, own_and_restore, collects, judge});
}

static struct twi_item held[64];
static size_t held_count;
static void own_and_collect(uint32_t n) {
    own_and_restore(n);
    held_count = twi_port_collect(engine, held, 64);
}
static bool returns(uint32_t n) {
    for (size_t i = 0; i < held_count; i++) twi_port_return(&held[i], 0);
    return held_count == KEYS;
}
/* Goal: so is what could not be put into a batch, and was returned. */
TEST_WITH(what_is_restored_is_returned, open_engine, close_engine, NULL) {
    count_in_window();
    step_through(&(struct step_call){"returning", 7, pack_and_wipe, own_and_collect, returns, judge});
}

/* ---- the earlier Redis is back ---- */

static struct twi_inflight *places; /* in shared memory */
static struct twi_batch *batch;     /* of the process that begins to settle it */
static struct twi_sync *sync_alone; /* it has no connection */

/* A batch that sends a window again is in flight, when the earlier Redis comes back. */
static void send_again(uint32_t n) {
    count_in_window();
    assert_true(twi_turn_take(engine));
    wipe();
    (void)restores(n);
    static struct twi_item items[64];
    size_t taken, count = twi_port_collect(engine, items, 64);
    assert_int_equal(count, KEYS);
    struct twi_freeze how = {.keys_max = TWI_BATCH_ITEMS_MAX, .bytes_max = TWI_BATCH_BYTES_MAX};
    batch = twi_batch_freeze(items, count, &how, &taken);
    assert_int_equal(taken, count);
    batch->number = batch->copies_open = 1;
    assert_true(twi_inflight_note(places, batch));
    twi_turn_leave(engine);
}
static bool keeps(uint32_t n) {
    twi_settle_keep(sync_alone, batch);
    return true;
}
static void settle_again(void) {
    assert_true(twi_turn_take(engine));
    twi_inflight_undo(places);
    twi_port_inherit_begin(engine);
    if (twi_load_relaxed(&places->state) != TWI_INFLIGHT_FREE) {
        struct twi_batch *again = twi_inflight_inherit(places, true);
        if (again != NULL) {
            twi_settle_keep(sync_alone, again);
            twi_batch_free(again);
        }
        twi_inflight_free(places);
    }
    twi_port_inherit_end(engine);
}
static void judge_kept(uint32_t n, bool answered) {
    (void)n, (void)answered;
    settle_again();
    send_all();
    for (uint32_t i = 0; i < KEYS; i++) assert_i64_equal(sums[i], 0); /* the earlier Redis has it */
    last_window()->turn.restore.over = true;                          /* the next round is about the next window */
    twi_turn_leave(engine);
    twi_batch_free(batch);
}
/* Goal: what the earlier Redis has is neither sent again nor taken off there, wherever the leader is killed. */
TEST_WITH(what_the_earlier_redis_has_is_kept, open_engine, close_engine, NULL) {
    places = children_pages(TWI_INFLIGHT_PLACES * sizeof *places);
    sync_alone = calloc(1, sizeof *sync_alone);
    sync_alone->engine = engine;
    step_through(&(struct step_call){"keeping", 7, send_again, own_the_turn, keeps, judge_kept});
    free(sync_alone);
}

/* Goal: Redis is found empty once more by the next leader, because the one before had not noted which store it met. */
static bool begins_to_restore(uint32_t n) {
    (void)twi_port_restore(engine, 0);
    return true;
}
static void pack(uint32_t n) {
    await(is_packed);
}
static void judge_wiped(uint32_t n, bool answered) {
    (void)n, (void)answered;
    take_over();
    wipe();
    restore_rest();
    twi_turn_leave(engine);
}
TEST_WITH(a_restoration_begins_twice, open_engine, close_engine, NULL) {
    count_in_window();
    step_through(&(struct step_call){"beginning to restore", 7, pack, own_the_turn, begins_to_restore, judge_wiped});
}

/* All of the packed window is sent again, and its records are given back in the next turn. */
static void pack_and_restore(uint32_t n) {
    pack_and_wipe(n);
    assert_true(twi_turn_take(engine));
    restore_rest();
    twi_rollover_enter(last_window(), TWI_HISTORY);
    twi_history_enter(engine, last_window());
    twi_turn_leave(engine);
}
static bool packs(uint32_t n) {
    twi_history_turn(engine, family);
    return true;
}
/* Goal: after a restoration, a packed window gives its records back, and can be restored again. */
TEST_WITH(records_are_given_back, open_engine, close_engine, NULL) {
    count_in_window();
    step_through(&(struct step_call){"records given back", 5, pack_and_restore, own_the_turn, packs, judge_wiped});
}

static bool is_over(void *ctx) {
    assert_status(tw_turn(engine), TW_OK);
    return twi_load_relaxed(&last_window()->phase) == TWI_HISTORY;
}
/* One more window has ended, and is to be packed. Until the call it is as if it could not be. */
static void end_window(uint32_t n) {
    count_in_window();
    last_window()->turn.restore.has_given_up = true;
    await(is_over);
    last_window()->turn.restore.has_given_up = false;
    assert_true(twi_turn_take(engine));
    twi_history_enter(engine, last_window());
    twi_turn_leave(engine);
}
/* Goal: a window that is being packed is restored once. */
TEST_WITH(a_window_is_packed, open_engine, close_engine, NULL) {
    step_through(&(struct step_call){"packing", 211, end_window, own_the_turn, packs, judge_wiped});
}

int main(void) {
    step_begin();
    alarm(WHOLE_SECONDS);
    return test_run();
}
