/* pace_test.c -- how fast what has piled up is sent once Redis is back. */
#include "sync/wire/pace.h"
#include "tests/support/support.h"

/* Goal: never faster than the rate by more than two chunks, nor slower by more than one, whatever the turns' times.
 * Method: rates from 1 to 10 million a second, turns at random; a backlog without end. */
TEST(the_rate_is_kept_at_any_rate) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    static const uint32_t rates[] = {1, 7, 100, 999, 20000, 200000, 10000000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct twi_pace pace = {.keys_per_s = rates[i]};
        int64_t now_ms = 5000, began_ms = now_ms, sent = 0, wait_ms = 0;
        int64_t chunk = rates[i] / 50 < 8 ? 8 : rates[i] / 50 > 1000 ? 1000 : rates[i] / 50;
        int64_t for_ms = rates[i] < 100 ? 100000 : 10000;
        twi_pace_begin(&pace, now_ms);
        while (now_ms < began_ms + for_ms) {
            size_t room = twi_pace_room(&pace, 1000, now_ms, &wait_ms);
            if (room != 0) {
                sent += (int64_t)room;
                twi_pace_took(&pace, room, false);
            } else {
                assert_true(wait_ms > 0 && wait_ms <= 8000 + 1);
                now_ms += test_prng_chance(&prng, 1, 4) ? 1 : wait_ms; /* woken for another reason, or by the hold */
            }
            assert_true(sent <= 2 * chunk + (now_ms - began_ms) * rates[i] / 1000);
        }
        if (rates[i] <= 20000) assert_true(sent >= (now_ms - began_ms) * rates[i] / 1000 * 9 / 10 - 2 * chunk);
    }
}

/* Goal: the rate holds while catching up alone, and a pause saves up no more than two chunks. */
TEST(once_all_is_collected_there_is_no_bound) {
    struct twi_pace pace = {.keys_per_s = 1000};
    int64_t wait_ms;
    assert_i64_equal(twi_pace_room(&pace, 1000, 0, &wait_ms), 1000);
    twi_pace_begin(&pace, 0);
    assert_i64_equal(twi_pace_room(&pace, 1000, 0, &wait_ms), 20);
    twi_pace_took(&pace, 20, false);
    assert_i64_equal(twi_pace_room(&pace, 1000, 0, &wait_ms), 0);
    assert_i64_equal(twi_pace_room(&pace, 1000, 1000000, &wait_ms), 40);
    assert_i64_equal(twi_pace_room(&pace, 15, 1000000, &wait_ms), 15);
    twi_pace_took(&pace, 10, true);
    assert_i64_equal(twi_pace_room(&pace, 1000, 1000000, &wait_ms), 1000);
}

/* Goal: nodes that return together do not send together: spread over half the outage, half a second at most. */
TEST(the_first_collection_is_spread_by_the_length_of_the_outage) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    assert_i64_equal(twi_pace_spread_ms(0, 12345), 0);
    static const int64_t outages_ms[] = {1, 100, 3000, 86400000};
    for (size_t i = 0; i < 4; i++) {
        int64_t most_ms = outages_ms[i] / 2 < 500 ? outages_ms[i] / 2 : 500, seen_max = 0, seen_min = INT64_MAX;
        for (int n = 0; n < 1000; n++) {
            int64_t spread_ms = twi_pace_spread_ms(outages_ms[i], test_prng_next(&prng));
            assert_true(spread_ms >= 0 && spread_ms <= most_ms);
            if (spread_ms > seen_max) seen_max = spread_ms;
            if (spread_ms < seen_min) seen_min = spread_ms;
        }
        assert_true(seen_max >= most_ms * 9 / 10 && seen_min <= most_ms / 10);
    }
}
