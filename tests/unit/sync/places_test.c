/* places_test.c -- which servers are left alone: each by itself, and one call at a time tries whether it is back. */
#include "sync/ask/places.h"

#include "tests/support/support.h"

static bool lets(struct twi_places *places, uint64_t name, int64_t now_ms, bool want_try) {
    bool tries;
    bool let = twi_places_let(places, name, now_ms, &tries);
    assert_int_equal(tries, let && want_try);
    return let;
}

static void a_place_that_fails_stops_nobody_else(void **state) {
    (void)state;
    struct twi_places places = {0};
    assert_true(lets(&places, 1, 0, false) && lets(&places, 2, 0, false));
    twi_places_note(&places, 1, false, TWI_PLACE_FAILED, 0, 0);
    assert_false(twi_places_is_closed(&places, 1));
    assert_false(lets(&places, 1, 0, false));
    assert_true(twi_places_is_closed(&places, 2) && twi_places_is_closed(&places, 3));
    assert_true(lets(&places, 2, 0, false));
}

static void one_call_at_a_time_tries_and_a_reply_closes_the_breaker(void **state) {
    (void)state;
    struct twi_places places = {0};
    assert_true(lets(&places, 1, 0, false) && lets(&places, 1, 0, false));
    twi_places_note(&places, 1, false, TWI_PLACE_FAILED, 0, 0);
    twi_places_note(&places, 1, false, TWI_PLACE_FAILED, 0, 0); /* it failed together with the first */
    assert_int_equal(places.table[0].breaker.failures, 1);
    assert_true(lets(&places, 1, 5000, true));
    assert_false(lets(&places, 1, 5000, false));
    twi_places_note(&places, 1, true, TWI_PLACE_UNTRIED, 5000, 0); /* it went elsewhere */
    assert_true(lets(&places, 1, 5000, true));
    twi_places_note(&places, 1, true, TWI_PLACE_REPLIED, 5000, 0);
    assert_true(lets(&places, 1, 5000, false));
    twi_places_note(&places, 1, false, TWI_PLACE_FAILED_SLOWLY, 5000, 0);
    assert_false(lets(&places, 1, 5000 + TWI_BREAKER_SLOW_MS - 1, false));
    assert_true(lets(&places, 1, 5000 + 2 * TWI_BREAKER_SLOW_MS, true));
}

/* Goal: however many nodes there are, memory is bounded, and places that are away are remembered longest. */
static void the_table_is_bounded(void **state) {
    (void)state;
    struct twi_places places = {0};
    assert_true(lets(&places, 1, 0, false));
    twi_places_note(&places, 1, false, TWI_PLACE_FAILED_SLOWLY, 0, 0);
    for (uint64_t name = 2; name < 10 * TWI_PLACES_MAX; name++) assert_true(lets(&places, name, 0, false));
    assert_int_equal(places.count, TWI_PLACES_MAX);
    assert_false(lets(&places, 1, 0, false));
    twi_places_note(&places, 2, true, TWI_PLACE_FAILED, 0, 0); /* forgotten long ago */
    assert_true(twi_places_is_closed(&places, 2));
}

static void endpoints_have_names_of_their_own(void **state) {
    (void)state;
    struct twi_endpoint a = {.port = 7000, .host = "10.0.0.1"}, b = a;
    assert_true(twi_place_name(NULL) == 0 && twi_place_name(&a) == twi_place_name(&b));
    b.port = 7001;
    assert_true(twi_place_name(&a) != twi_place_name(&b));
    b = a, b.is_tls = true;
    assert_true(twi_place_name(&a) != twi_place_name(&b));
    b = a, strcpy(b.host, "10.0.0.2");
    assert_true(twi_place_name(&a) != twi_place_name(&b));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_that_fails_stops_nobody_else),
        cmocka_unit_test(one_call_at_a_time_tries_and_a_reply_closes_the_breaker),
        cmocka_unit_test(the_table_is_bounded),
        cmocka_unit_test(endpoints_have_names_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
