/* hand_driver.h -- a driver that does nothing by itself: the test collects and settles, item by item. To be included by
 * the one file of a test program; it takes the place of the driver in sync/.
 * Always true: an engine opened with redis_url "hand:" is synced; between two steps of the test nothing is
 * collected. */
#ifndef TEST_HAND_DRIVER_H
#define TEST_HAND_DRIVER_H

#include "tests/unit/rig.h"

struct twi_sync {
    tw_engine *engine;
    struct twi_item held[4096]; /* collected and not yet settled; given up at close */
    size_t count;
    void (*at_destroy)(void); /* the connection is lost; may be NULL */
    bool settle_at_turns;     /* each turn acknowledges all, so that tw_close() comes to its end */
    bool refuse_at_turns;     /* each turn collects, and Redis refuses it */
    int turns;
};
static struct twi_sync *hand;
static int hand_refused; /* so many items, at turns */

static inline size_t hand_collect(size_t most) {
    size_t count = twi_port_collect(hand->engine, hand->held + hand->count, most);
    hand->count += count;
    return count;
}

/* Takes the last item out of the hand. */
static inline struct twi_item hand_pop(void) {
    assert_true(hand->count != 0);
    return hand->held[--hand->count];
}

static inline void hand_acknowledge(int64_t total) {
    struct twi_item item = hand_pop();
    struct twi_reply answer = {.total = total, .has_total = true};
    twi_port_acknowledge(&item, &answer);
}

/* Acknowledges all that is in the hand, without totals. Returns the sum of the deltas. */
static inline int64_t hand_settle(void) {
    int64_t sum = 0;
    struct twi_reply answer = {0};
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        sum += item.delta;
        twi_port_acknowledge(&item, &answer);
    }
    return sum;
}

/* Collects and settles. */
static inline int64_t hand_collected(void) {
    (void)hand_collect(100);
    return hand_settle();
}

static tw_status hand_create(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                             void *ctx, struct twi_sync **sync) {
    (void)transport, (void)ctx;
    if (strcmp(options->redis_url, "hand:") != 0) return TW_ERR_OPTIONS;
    hand = calloc(1, sizeof *hand);
    hand->engine = engine;
    *sync = hand;
    return TW_OK;
}
static void hand_turn(struct twi_sync *sync) {
    sync->turns++;
    if (sync->refuse_at_turns && hand_collect(1000) != 0)
        for (; sync->count != 0; hand_refused++) {
            struct twi_item item = hand_pop();
            twi_port_return(&item, TW_MINUTE);
        }
    if (!sync->settle_at_turns) return;
    (void)hand_collect(1000);
    (void)hand_settle();
}
static int64_t hand_wake_ms(const struct twi_sync *sync) {
    return INT64_MAX;
}
static uint64_t hand_ticket(struct twi_sync *sync) {
    return 1;
}
static enum twi_ticket hand_ticket_state(struct twi_sync *sync, uint64_t ticket) {
    (void)sync, (void)ticket;
    return TWI_TICKET_OPEN;
}
static void hand_stats(const struct twi_sync *sync, tw_stats *stats) {
    stats->redis_connected = 1;
}
static void hand_destroy(struct twi_sync *sync) {
    if (sync->at_destroy != NULL) sync->at_destroy();
    while (sync->count != 0) {
        struct twi_item item = hand_pop();
        twi_port_give_up(&item, TW_LOST_CLOSED);
    }
    free(sync);
    hand = NULL;
}
static void hand_abandon(struct twi_sync *sync, bool is_torn) {
    free(sync);
}
const struct twi_driver *twi_driver_find(void) {
    static const struct twi_driver driver = {
        .create = hand_create,
        .turn = hand_turn,
        .wake_ms = hand_wake_ms,
        .ticket_take = hand_ticket,
        .ticket_state = hand_ticket_state,
        .stats = hand_stats,
        .destroy = hand_destroy,
        .abandon = hand_abandon,
    };
    return &driver;
}

/* What on_lost was told. */
struct lost_log {
    int calls, reason;
    int64_t delta, start_ms;
    char key[64];
};
static inline void lost_write(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    struct lost_log *log = ctx;
    log->calls++;
    log->reason = reason;
    log->delta += delta;
    log->start_ms = start_ms;
    snprintf(log->key, sizeof log->key, "%.*s", (int)key.size, key.data != NULL ? (const char *)key.data : "");
}

/* So many engines live, and have for long. */
static inline void hand_live(struct rig *rig, uint32_t count) {
    twi_port_live_engines(rig->engine, count);
    twi_store_relaxed(&rig->engine->peers.live_engines, count);
}

static inline void hand_init(struct rig *rig) {
    rig_init(rig);
    rig->options.redis_url = "hand:";
}
static inline void hand_open(struct rig *rig) {
    hand_init(rig);
    rig_start(rig);
    twi_port_connected(rig->engine, true);
}
/* Closes after sending all that is unsent. */
static inline void hand_close(struct rig *rig) {
    hand->settle_at_turns = true;
    rig_close(rig);
}

/* As RIG_TEST(), with the hand for a driver. */
#define HAND_TEST(test) TEST_WITH(test, hand_setup, hand_teardown, &rig)
static inline int hand_setup(void **state) {
    hand_open(*state);
    return 0;
}
static inline int hand_teardown(void **state) {
    hand_close(*state);
    return 0;
}

/* What twi_dirty_mark() does after setting DIRTY: for an adder that slept in between. */
static inline void hand_list_late(tw_engine *engine, const struct twi_place *place) {
    struct twi_generation *generation = place->generation;
    struct twi_chunk *chunk = twi_cell_chunk(place->cell, place->meta);
    uint32_t index = twi_cell_index(place->meta);
    (void)twi_or_acqrel(&chunk->marks[index / 64], UINT64_C(1) << (index % 64));
    if (twi_swap_acqrel(&chunk->listed, 1) == 0) {
        chunk->next_marked = twi_load_relaxed(&generation->marks.chunks);
        twi_store_release(&generation->marks.chunks, twi_arena_line(&engine->arena, chunk));
    }
    if (twi_swap_acqrel(&generation->marks.listed, 1) == 0) {
        generation->marks.next = twi_load_relaxed(&engine->collector.marked);
        twi_store_release(&engine->collector.marked, twi_arena_line(&engine->arena, generation));
    }
}

#endif
