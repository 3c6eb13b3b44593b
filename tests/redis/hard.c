/* hard.c -- hard limits over a real Redis: never more than the limit (P4), all of it in the end (P5), whatever engines and the
 * server do. Several engines in one process stand for several processes; hard_crowd.c has real ones. */
#include "tests/redis/hard_support.h"

#define KEY tw_str("tv")

/* Goal: one engine sells exactly the limit, says "pending" until Redis has given and "final" only when all is spent. */
static void one_engine_sells_exactly_the_limit(void **state) {
    (void)state;
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *engine = quick_engine(server.url, NULL);
    tw_family *family = hard_family(engine, "sale");
    tw_verdict verdict;
    assert_status(tw_acquire(family, KEY, 1, 100, &verdict), TW_PENDING);
    assert_int_equal(verdict.final, 0);
    assert_int_equal(verdict.allowed, 0);
    assert_i64_equal(sell(family, KEY, 1, 100, 5000, &verdict), 100);
    assert_int_equal(verdict.final, 1);
    assert_int_equal(verdict.decided_by, TW_BY_LEASE);
    assert_i64_equal(verdict.remaining, 0);
    assert_status(tw_close(engine, 2000), TW_OK);
    assert_i64_equal(redis_server_get(&server, "sale:tv"), 100);
    redis_server_destroy(&server);
}

/* Goal: demand equal to supply, nearly all of it at one engine after the others drew and went idle: everything is sold, and
 * nobody is told "final" before (P5, trap L4). */
static void what_others_hold_idle_is_called_back(void **state) {
    (void)state;
    enum { ENGINES = 4, LIMIT = 1000 };
    struct redis_server server;
    redis_server_start(&server, NULL);
    tw_engine *engines[ENGINES];
    tw_family *families[ENGINES];
    tw_verdict verdict;
    for (int i = 0; i < ENGINES; i++) {
        engines[i] = quick_engine(server.url, NULL);
        families[i] = hard_family(engines[i], "sale");
    }
    int64_t sold = 0;
    for (int i = 1; i < ENGINES; i++) sold += sell_some(families[i], KEY, 3, LIMIT, 5000);
    assert_i64_equal(sold, 3 * (ENGINES - 1));
    sold += sell(families[0], KEY, 1, LIMIT, 10000, &verdict);
    assert_i64_equal(sold, LIMIT);
    assert_int_equal(verdict.final, 1);
    for (int i = 0; i < ENGINES; i++) assert_status(tw_close(engines[i], 2000), TW_OK);
    assert_i64_equal(redis_server_get(&server, "sale:tv"), LIMIT);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_engine_sells_exactly_the_limit),
        cmocka_unit_test(what_others_hold_idle_is_called_back),
    };
    return cmocka_run_group_tests_name("hard", tests, NULL, NULL);
}
