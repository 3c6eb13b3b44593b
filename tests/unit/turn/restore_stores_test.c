/* restore_stores_test.c -- several stores (key slots) behind one engine: one that lost everything is told again what
 * its own counters had told it, once, and the others nothing. A row of sums stands for all of Redis. */
#include "engine/base/key_slot.h"
#include "engine/turn/restore_notes.h"
#include "tests/unit/hand_driver.h"

#define KEYS 64
#define STORES 4 /* as many tags */
#define MANY 32  /* tags, if there are to be more stores than a row has room for at first */
#define FIRST 8  /* as many stores has a row room for at first */

struct redis {
    int64_t sums[KEYS]; /* of keys "0" to "63" */
    uint32_t of[KEYS];  /* their stores, once known */
};

static void key_text(char text[16], size_t number) {
    snprintf(text, 16, "%zu", number);
}

static size_t number_of(const struct twi_item *item) {
    tw_key key = twi_port_key(item);
    char text[16] = "";
    memcpy(text, key.data, key.size);
    return (size_t)atoi(text);
}

static tw_family_options tagged(const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options = rig_options(name, window, window_ms);
    options.redis_tags = STORES;
    options.redis_key = window == TW_WINDOW_FOREVER ? "{%t}:%n:%k" : "{%t}:%n:%k:%Y%m%d%H%M%S";
    return options;
}

static tw_family *open_tagged(struct rig *rig, const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options = tagged(name, window, window_ms);
    return rig_family_of(rig, &options);
}

static size_t collect(size_t most) {
    size_t before = hand->count, count = hand_collect(most);
    char name[TWI_REDIS_KEY_MAX];
    size_t size;
    for (size_t i = before; i < hand->count; i++) assert_true(twi_port_assign(&hand->held[i], name, &size));
    return count;
}

static void acknowledge_all(struct redis *redis) {
    while (hand->count != 0) {
        struct twi_item item = hand_pop();
        size_t number = number_of(&item);
        redis->of[number] = item.store;
        struct twi_reply answer = {.total = redis->sums[number] += item.delta, .has_total = true};
        twi_port_acknowledge(&item, &answer);
    }
}

static void send_all(struct redis *redis) {
    while (collect(16) == 16) acknowledge_all(redis);
    acknowledge_all(redis);
}

/* That store is empty; what was under way to it comes back. */
static uint64_t wipe(struct rig *rig, struct redis *redis, uint32_t store) {
    size_t kept = 0;
    for (size_t i = 0; i < hand->count; i++) {
        if (hand->held[i].store == store)
            twi_port_return(&hand->held[i], 0);
        else
            hand->held[kept++] = hand->held[i];
    }
    hand->count = kept;
    for (size_t i = 0; i < KEYS; i++)
        if (redis->of[i] == store) redis->sums[i] = 0;
    return twi_port_restore(rig->engine, store);
}

static void restore_whole(struct rig *rig) {
    while (twi_port_restore_some(rig->engine)) {}
}

static int64_t sum_of(const struct redis *redis, uint32_t store) {
    int64_t sum = 0;
    for (size_t i = 0; i < KEYS; i++)
        if (redis->of[i] == store) sum += redis->sums[i];
    return sum;
}

/* The store is wiped, and told everything again. Returns what was lost. */
static int64_t wipe_and_restore(struct rig *rig, struct redis *redis, uint32_t store) {
    int64_t lost = (int64_t)wipe(rig, redis, store);
    restore_whole(rig);
    send_all(redis);
    return lost;
}

/* Counts 1 of the first key, 2 of the second, and so on. */
static void count_numbers(tw_family *family) {
    char key[16];
    for (size_t i = 0; i < KEYS; i++) key_text(key, i), rig_add(family, key, (int64_t)i + 1);
}

/* Goal: of a store that was wiped its own counters are to be sent again, and no other, while items of the others are
 * under way. Method: stores wiped at random, several in one walk, the walk cut at every step; at the end the sums
 * agree. */
TEST(a_wiped_store_is_told_its_own_counters_once) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t round = 0; round < test_scale(60); round++) {
        struct rig rig;
        struct redis redis = {0};
        char key[16];
        int64_t added[KEYS] = {0};
        bool restoring = false;
        hand_open(&rig);
        tw_family *families[] = {open_tagged(&rig, "f", TW_WINDOW_FOREVER, 0),
                                 open_tagged(&rig, "h", TW_WINDOW_ALIGNED, TW_HOUR)};
        for (int step = 0; step < 300; step++) {
            size_t i = test_prng_below(&prng, KEYS);
            int64_t delta = test_prng_between(&prng, -5, 100);
            key_text(key, i);
            rig_add(families[i % 2], key, delta), added[i] += delta;
            uint32_t met = twi_restore_store_count(rig.engine->restore->stores);
            if (met != 0 && test_prng_chance(&prng, 1, 10)) {
                assert_i64_equal((int64_t)wipe(&rig, &redis, (uint32_t)test_prng_below(&prng, met)), 0);
                restoring = true;
            }
            if (restoring && test_prng_chance(&prng, 1, 2)) restoring = twi_port_restore_some(rig.engine);
            if (!restoring && test_prng_chance(&prng, 1, 3)) (void)collect(1 + test_prng_below(&prng, 20));
            if (test_prng_chance(&prng, 1, 4)) acknowledge_all(&redis);
        }
        restore_whole(&rig);
        acknowledge_all(&redis);
        send_all(&redis);
        for (size_t i = 0; i < KEYS; i++) assert_i64_equal(redis.sums[i], added[i]);
        assert_i64_equal(test_stat_of(rig.engine, lost), 0);
        hand_close(&rig);
    }
}

/* Goal: what a wiped store held of windows that are dropped here is lost to the unit: of that store, and once. */
TEST(of_dropped_windows_each_store_loses_its_own) {
    struct rig rig;
    struct redis redis = {0};
    hand_open(&rig);
    tw_family_options options = tagged("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.retention_ms = 10 * TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    for (int minute = 0; minute < 6; minute++) {
        count_numbers(family);
        send_all(&redis);
        rig_pass(&rig, TW_MINUTE);
    }
    rig_settle(&rig); /* held: the last one. Dropped and alive in Redis: the first five */
    for (uint32_t store = 0; store < STORES; store++) {
        int64_t of_one = sum_of(&redis, store) / 6;
        assert_true(of_one > 0);
        assert_i64_equal(wipe_and_restore(&rig, &redis, store), 5 * of_one);
        assert_i64_equal(sum_of(&redis, store), of_one);
        assert_i64_equal(wipe_and_restore(&rig, &redis, store), 0); /* what was lost once is not lost twice */
        assert_i64_equal(sum_of(&redis, store), of_one);
    }
    hand_close(&rig);
}

/* Goal: a row has room for the stores that are known when it is made. Those that come later have their sums, too: in a
 * window that is held, in one that is dropped, and none in one that had ended before. */
TEST(stores_that_come_later_have_their_own_sums) {
    struct rig rig;
    struct redis redis = {0};
    char key[16];
    size_t few = 0;
    hand_open(&rig);
    tw_family_options options = tagged("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.retention_ms = 10 * TW_MINUTE;
    options.redis_tags = MANY;
    tw_family *family = rig_family_of(&rig, &options);
    const struct twi_restore_stores *stores = rig.engine->restore->stores;
    for (; twi_restore_store_count(stores) < FIRST; few++) {
        assert_true(few < KEYS);
        key_text(key, few), rig_add(family, key, 1);
        send_all(&redis);
    }
    rig_pass(&rig, TW_MINUTE);
    for (int minute = 0; minute < 2; minute++) {
        for (size_t i = 0; i < KEYS; i++) {
            key_text(key, i), rig_add(family, key, (int64_t)i + 1);
            send_all(&redis);
        }
        rig_pass(&rig, TW_MINUTE);
    }
    rig_settle(&rig); /* held: the last one */
    assert_true(twi_restore_store_count(stores) > 2 * FIRST);
    for (uint32_t store = twi_restore_store_count(stores);
         store-- > 0;) { /* the last first: all windows still have rows */
        int64_t dropped = 0, held = 0;
        for (size_t i = 0; i < KEYS; i++) {
            if (redis.of[i] != store) continue;
            held += (int64_t)i + 1;
            dropped += (int64_t)i + 1 + (i < few);
        }
        assert_i64_equal(wipe_and_restore(&rig, &redis, store), dropped);
        assert_i64_equal(sum_of(&redis, store), held);
    }
    hand_close(&rig);
}

/* Goal: of very many dropped windows neighbours are put together. Each store's sum stays whole. Method: the
 * later half of them have more stores, so that rows are of two widths. */
TEST(of_very_many_dropped_windows_each_sum_stays_whole) {
    struct rig rig;
    struct redis redis = {0};
    char key[16];
    int64_t lost = 0, told = 0;
    hand_open(&rig);
    tw_family_options options = tagged("f", TW_WINDOW_ALIGNED, TW_SECOND);
    options.retention_ms = 10 * TW_HOUR;
    options.redis_tags = MANY;
    tw_family *family = rig_family_of(&rig, &options);
    const size_t windows = TWI_DROPPED_MAX + 500;
    for (size_t second = 0; second < windows; second++) {
        key_text(key, second % (second < windows / 2 ? 4 : KEYS)), rig_add(family, key, 1);
        send_all(&redis);
        rig_pass(&rig, TW_SECOND);
    }
    rig_settle(&rig);
    uint32_t stores = twi_restore_store_count(rig.engine->restore->stores);
    assert_true(stores > FIRST);
    for (uint32_t store = 0; store < stores; store++) lost += (int64_t)wipe(&rig, &redis, store);
    restore_whole(&rig);
    send_all(&redis);
    for (uint32_t store = 0; store < stores; store++) told += sum_of(&redis, store);
    assert_i64_equal(lost + told, TWI_DROPPED_MAX + 500);
    assert_true(rig.engine->restore->dropped_room <= TWI_DROPPED_MAX);
    hand_close(&rig);
}

/* Goal: one store is back, and another one was wiped at the same time. The first is told nothing, the second all. What
 * is uncertain is of the first alone. */
TEST(one_store_is_back_while_another_is_told_all) {
    struct rig rig;
    struct redis redis = {0};
    char key[16];
    uint64_t uncertain = 0;
    hand_open(&rig);
    tw_family *family = open_tagged(&rig, "f", TW_WINDOW_FOREVER, 0);
    for (size_t i = 0; i < KEYS; i++) key_text(key, i), rig_add(family, key, 10);
    send_all(&redis);
    struct redis before = redis;
    assert_i64_equal((int64_t)wipe(&rig, &redis, 0), 0); /* another store, empty, is seen in its place */
    restore_whole(&rig);
    assert_int_not_equal(collect(4), 0);
    acknowledge_all(&redis);
    for (size_t i = 0; i < KEYS; i++)
        if (redis.of[i] == 0) redis.sums[i] = before.sums[i]; /* the earlier one is back */
    assert_true(twi_port_keep(rig.engine, 0, &uncertain));
    assert_i64_equal((int64_t)uncertain, 0);
    assert_i64_equal(wipe_and_restore(&rig, &redis, 1), 0);
    for (size_t i = 0; i < KEYS; i++) assert_i64_equal(redis.sums[i], 10);
    hand_close(&rig);
}

/* Goal: a packed window that is restored for one store can be restored for another later. */
TEST(a_packed_window_is_restored_store_by_store) {
    struct rig rig;
    struct redis redis = {0};
    hand_open(&rig);
    tw_family_options options = tagged("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.retention_ms = TW_HOUR;
    options.history_ms = 10 * TW_MINUTE;
    tw_family *family = rig_family_of(&rig, &options);
    count_numbers(family);
    send_all(&redis);
    for (int i = 0; i < 20; i++) rig_pass(&rig, 5 * TW_SECOND), rig_settle(&rig);
    assert_true(test_stat_of(rig.engine, windows_packed) > 0);
    for (int round = 0; round < 2; round++)
        for (uint32_t store = 0; store < STORES; store++) {
            int64_t sum = sum_of(&redis, store);
            assert_i64_equal((int64_t)wipe(&rig, &redis, store), 0);
            restore_whole(&rig);
            send_all(&redis);
            assert_i64_equal(sum_of(&redis, store), sum);
        }
    for (size_t i = 0; i < KEYS; i++) assert_i64_equal(redis.sums[i], (int64_t)i + 1);
    hand_close(&rig);
}
