/* lease_stores_test.c -- when an engine takes part in the leases of a store, where there are several.
 * Method: names with two tags, each a store. The test answers every message at once: each request is granted.
 * Covers: engine/core/state.h, engine/turn/lease_stores.c. */
#include "tests/unit/hand_driver.h"

#include "engine/base/key_slot.h"
#include "engine/limit/lease.h"
#include "engine/turn/lease_renewal.h"

#define TAGS 2u
#define STEP_MS 50

struct store {
    int joins, heartbeats, leaves, leases; /* messages */
    bool loses_leaves;                     /* a departure is executed, and its reply lost */
    bool takes_part;
    char life[16];
    int lives;
    int64_t granted;
    bool tells_stranded; /* units of dead engines */
    int64_t stranded;
};

static struct store stores[TAGS];
static tw_verdict verdict;

static tw_family *open_family(struct rig *rig, const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options = rig_options(name, window, window_ms);
    options.redis_tags = TAGS;
    options.redis_key = window == TW_WINDOW_FOREVER ? "{%t}:%n:%k" : "{%t}:%n:%k:%Y%m%d%H%M%S";
    options.limit_mode = TW_LIMIT_HARD;
    return rig_family_of(rig, &options);
}

static tw_status take(tw_family *family, uint32_t tag) {
    char text[16];
    for (int number = 0;; number++) {
        int size = snprintf(text, sizeof text, "%d", number);
        if (twi_key_slot_crc16(text, (size_t)size) % TAGS == tag) break;
    }
    return tw_acquire(family, tw_str(text), 1, 100, &verdict);
}

static void open_rig(struct rig *rig) {
    memset(stores, 0, sizeof stores);
    hand_open(rig);
    hand->settle_at_turns = true;
    for (uint32_t tag = 0; tag < TAGS; tag++) {
        char name[16];
        int size = snprintf(name, sizeof name, "{%u}", twi_key_slot_tags(TAGS)[tag]);
        assert_int_equal(twi_port_store(rig->engine, twi_key_slot_of(name, (size_t)size)), tag);
    }
}

/* What Redis does with a message about the epoch. */
static void run_epoch(struct store *store, const struct twi_lease_message *message, struct twi_lease_answer *answer) {
    if (message->leaves) {
        store->leaves++;
        store->takes_part = false;
        if (store->loses_leaves) answer->kind = TWI_LEASE_RESEND;
        return;
    }
    if (!store->takes_part) snprintf(store->life, sizeof store->life, "%d", ++store->lives);
    store->joins += !store->takes_part;
    store->heartbeats++;
    store->takes_part = true;
}

static void exchange(struct rig *rig, uint32_t index) {
    struct twi_lease_message messages[8];
    struct store *store = &stores[index];
    size_t count = twi_port_leases(rig->engine, index, 1, messages, 8);
    for (size_t i = 0; i < count; i++) {
        struct twi_lease_answer answer = {
            .kind = TWI_LEASE_NUMBERS, .open = true, .id = "epoch", .run = "run", .whole = true, .stranded = -1};
        assert_int_equal(messages[i].store, index);
        if (messages[i].lease == NULL) {
            run_epoch(store, &messages[i], &answer);
        } else {
            store->leases++;
            assert_true(store->takes_part); /* nothing is said of a lease elsewhere */
            answer.granted = messages[i].granted + messages[i].need;
            answer.total = answer.granted - messages[i].returned;
            answer.spent_all = messages[i].spent;
            if (store->tells_stranded) answer.stranded = store->stranded;
        }
        answer.incarnation = store->life;
        twi_port_lease_answered(rig->engine, &messages[i], &answer);
    }
}

static void go_on(struct rig *rig, int64_t ms) {
    for (; ms > 0; ms -= STEP_MS) {
        rig_pass(rig, STEP_MS);
        for (uint32_t i = 0; i < TAGS; i++) exchange(rig, i);
    }
}

static void buy(struct rig *rig, tw_family *family, uint32_t tag) {
    assert_status(take(family, tag), TW_PENDING);
    go_on(rig, 1000);
    assert_status(take(family, tag), TW_OK);
}

/* Goal: an engine takes part in a store's leases from the first request on, and while it would have to restate
 * anything; and in no other store's. */
TEST(an_engine_takes_part_where_it_has_leases) {
    struct rig rig;
    open_rig(&rig);
    tw_family *family = open_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    go_on(&rig, 1000);
    assert_int_equal(stores[0].joins + stores[1].joins, 0);
    buy(&rig, family, 1);
    int before = stores[1].heartbeats;
    go_on(&rig, 60000); /* nobody buys: what it has spent would have to be restated */
    assert_int_equal(stores[1].joins, 1);
    assert_int_equal(stores[1].leaves, 0);
    assert_true(stores[1].heartbeats - before >= 60); /* leases.lua relies on one in 1.2 s */
    assert_int_equal(stores[0].heartbeats, 0);
    hand_close(&rig);
}

/* Goal: lease_stranded is what the last reply said of each lease. Nothing of it is left when the window has gone. */
TEST(stranded_units_are_a_statistic_as_long_as_the_window) {
    const int64_t told[] = {30, 10, 11, 0, 25};
    struct rig rig;
    open_rig(&rig);
    tw_family *family = open_family(&rig, "f", TW_WINDOW_ALIGNED, 20000);
    buy(&rig, family, 1);
    assert_i64_equal(test_stat_of(rig.engine, lease_stranded), 0);
    stores[1].tells_stranded = true;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        stores[1].stranded = told[i];
        for (int n = 0; n < 10; n++) {
            (void)take(family, 1); /* a reply may be awaited */
            go_on(&rig, 4 * STEP_MS);
        }
        assert_i64_equal(test_stat_of(rig.engine, lease_stranded), told[i]);
    }
    go_on(&rig, 60000);
    assert_i64_equal(test_stat_of(rig.engine, lease_stranded), 0);
    hand_close(&rig);
}

/* Goal: once the windows in which it had units have gone, the engine leaves, and sends nothing more. With the next
 * request it comes again. */
TEST(an_engine_leaves_a_store_without_leases) {
    struct rig rig;
    open_rig(&rig);
    tw_family *family = open_family(&rig, "f", TW_WINDOW_ALIGNED, 5000);
    buy(&rig, family, 0);
    buy(&rig, family, 1);
    go_on(&rig, 60000);
    for (uint32_t i = 0; i < TAGS; i++) assert_int_equal(stores[i].leaves, 1);
    int before = stores[1].heartbeats;
    go_on(&rig, 20000);
    assert_int_equal(stores[1].heartbeats, before);
    buy(&rig, family, 1);
    assert_int_equal(stores[1].joins, 2);
    assert_int_equal(stores[0].joins, 1);
    hand_close(&rig);
}

/* Goal: a departure of which no reply comes is sent until it is acknowledged; until then no lease sends anything. So a
 * late copy of it names a life that has ended (leases.lua). */
TEST(a_departure_is_repeated_until_it_is_acknowledged) {
    struct rig rig;
    open_rig(&rig);
    tw_family *family = open_family(&rig, "f", TW_WINDOW_ALIGNED, 5000);
    buy(&rig, family, 1);
    stores[1].loses_leaves = true;
    go_on(&rig, 60000);
    assert_true(stores[1].leaves > 1);
    int leases = stores[1].leases;
    assert_status(take(family, 1), TW_PENDING);
    go_on(&rig, 1000);
    assert_status(take(family, 1), TW_PENDING);
    assert_int_equal(stores[1].leases, leases);
    assert_int_equal(stores[1].joins, 1);
    stores[1].loses_leaves = false;
    go_on(&rig, 1000);
    assert_status(take(family, 1), TW_OK);
    assert_int_equal(stores[1].joins, 2);
    assert_int_equal(stores[1].lives, 2);
    hand_close(&rig);
}

/* Goal: an engine that is closed leaves each store where it takes part. */
TEST(a_closed_engine_leaves_every_store) {
    struct rig rig;
    open_rig(&rig);
    tw_family *family = open_family(&rig, "f", TW_WINDOW_FOREVER, 0);
    for (uint32_t tag = 0; tag < TAGS; tag++) buy(&rig, family, tag);
    rig.engine->turn.closing = true;
    go_on(&rig, 2000);
    for (uint32_t i = 0; i < TAGS; i++) assert_int_equal(stores[i].leaves, 1);
    hand_close(&rig);
}

#define LEASES 6 /* of each window */

/* Goal: a family that closes is done with each of its windows, however many leases each has. Method: fewer leases than
 * one window has are looked at in one turn. */
TEST(windows_with_many_leases_are_done_one_after_the_other) {
    struct rig rig;
    bool are_done = false;
    open_rig(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.limit_mode = TW_LIMIT_HARD;
    options.history_ms = TW_HOUR;
    tw_family *family = rig_family_of(&rig, &options);
    for (int window = 0; window < 2; window++) {
        for (int i = 0; i < LEASES; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%d", i);
            assert_status(tw_acquire(family, tw_str(key), 1, 100, &verdict), TW_PENDING);
        }
        go_on(&rig, TW_MINUTE); /* the window is over: nothing of its leases matters any more */
    }
    struct twi_generation *windows[2];
    int count = 0;
    for (uint32_t line = family->turn.generations; line != 0;) {
        struct twi_generation *generation = twi_generation_at(&rig.engine->arena, line);
        line = generation->turn.next_all;
        if (twi_load_relaxed(&generation->leases) == 0) continue;
        assert_true(count < 2);
        windows[count++] = generation;
    }
    assert_int_equal(count, 2);
    for (int turns = 0; turns < 4 * LEASES && !are_done; turns++) {
        uint32_t work = LEASES / 2;
        are_done = true;
        for (int i = 0; i < 2; i++) {
            if (windows[i] == NULL) continue;
            if (twi_leases_are_returned(rig.engine, windows[i], &work))
                windows[i] = NULL;
            else
                are_done = false;
        }
    }
    assert_true(are_done);
    hand_close(&rig);
}
