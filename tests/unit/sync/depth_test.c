/* depth_test.c -- how much is under way to Redis at once. */
#include "sync/batch/batch.h"

#include "engine/port/services.h"
#include "tests/support/support.h"

static struct twi_load load_at(int64_t way_us) {
    struct twi_estimate estimate = {0};
    struct twi_measure measure = {.took_us = way_us, .bytes = 300, .is_alone = true};
    if (way_us != 0) twi_estimate_note(&estimate, &measure, 1000);
    return twi_depth_load(&estimate, TWI_NEAR_KEYS);
}

/* Goal: near a Redis, and where nothing is known of the way yet, one small batch is under way at a time: others are
 * served between two. */
TEST(near_a_redis_one_small_batch_at_a_time) {
    static const int64_t near_us[] = {0, 1, 50, 200, 255};
    for (size_t i = 0; i < sizeof near_us / sizeof *near_us; i++) {
        assert_int_equal(load_at(near_us[i]).batches, 1);
        assert_int_equal(load_at(near_us[i]).keys, TWI_NEAR_KEYS);
    }
}

/* Goal: a longer way has more under way, never less, within the bounds of both; and what is under way takes Redis, at 2
 * us a key, no longer than half of the way beyond the one small batch. Method: every way up to a second, in steps of 7
 * %. */
TEST(what_is_under_way_grows_with_the_way) {
    uint32_t before = 0;
    for (int64_t way_us = 1; way_us < 1000000; way_us += way_us / 14 + 1) {
        struct twi_load load = load_at(way_us);
        uint32_t all = load.keys * load.batches;
        assert_true(load.batches >= 1 && load.batches <= TWI_PIPELINE_MAX);
        assert_true(load.keys >= TWI_NEAR_KEYS && load.keys <= TWI_BATCH_ITEMS_MAX);
        assert_true(all >= before || all + TWI_PIPELINE_MAX > before); /* but for what rounding leaves over */
        assert_true(((int64_t)all - TWI_NEAR_KEYS) * 2 <= way_us / 2);
        before = all;
    }
    assert_int_equal(load_at(16000).batches, TWI_PIPELINE_MAX);
    assert_int_equal(load_at(16000).keys, TWI_BATCH_ITEMS_MAX);
    assert_int_equal(load_at(INT64_MAX / 2).keys, TWI_BATCH_ITEMS_MAX);
}

/* Goal: 100,000 keys a second go through over every way up to 16 ms, as one pipeline of a round trip each. */
TEST(no_way_up_to_16_ms_is_a_bottleneck) {
    for (int64_t way_us = 1; way_us <= 16000; way_us += way_us / 20 + 1) {
        struct twi_load load = load_at(way_us);
        int64_t under_way = (int64_t)load.keys * load.batches;
        int64_t round_us = way_us + under_way * 2 + 100; /* Redis's time for them, and a turn */
        assert_true(under_way * 1000000 / round_us >= 100000);
    }
}

/* Goal: a batch has half of the bytes that may be under way, but never so few that its head is most of it, and never
 * more than a batch may have. */
TEST(a_thin_link_has_batches_of_few_bytes) {
    uint32_t before = 0;
    for (uint64_t bytes_per_s = 1000; bytes_per_s < 10000000000; bytes_per_s *= 2) {
        struct twi_estimate estimate = {0};
        struct twi_measure measure = {.took_us = (int64_t)(UINT64_C(8192000000) / bytes_per_s), .bytes = 8192};
        twi_estimate_note(&estimate, &measure, 1000);
        uint32_t bytes = twi_depth_batch_bytes(&estimate, 100);
        assert_in_range(bytes, TWI_ESTIMATE_BYTES_MIN, TWI_BATCH_BYTES_MAX);
        assert_true(bytes >= before);
        assert_true(bytes == TWI_ESTIMATE_BYTES_MIN || bytes <= bytes_per_s / 8 + 1);
        before = bytes;
    }
    assert_int_equal(before, TWI_BATCH_BYTES_MAX);
}
