/* ledger_test.c -- our side of the ledger: numbers, the replay buffer, going back, a new identity; and the breaker's
 * pauses. */
#include "sync/wire/pace.h"
#include "sync/batch/ledger.h"
#include "tests/support/support.h"

static void count_up(void *ctx, void *out, size_t size) {
    memset(out, ++*(int *)ctx, size);
}

static int times_asked;

static struct twi_batch *append(struct twi_ledger *ledger, uint64_t plus, uint64_t minus, int64_t frozen_ms) {
    struct twi_batch *batch = twi_batch_empty(frozen_ms);
    assert_non_null(batch);
    batch->plus = plus;
    batch->minus = minus;
    twi_ledger_append(ledger, batch, ledger->last + 1);
    return batch;
}

/* Six batches of 10, 20 ... 60; the first four are acknowledged. */
static struct twi_ledger ledger_make(void) {
    struct twi_ledger ledger = {.replay_bytes_max = 1 << 20, .replay_ms = 30000};
    twi_ledger_identify(&ledger, "p:", count_up, &times_asked);
    for (uint64_t i = 1; i <= 6; i++) {
        append(&ledger, i * 10, i, (int64_t)i * 1000);
    }
    for (uint64_t i = 1; i <= 4; i++) twi_ledger_confirm(&ledger, twi_ledger_find(&ledger, i));
    assert_true(twi_ledger_is_valid(&ledger));
    return ledger;
}

TEST(numbers_and_sums_follow_each_other) {
    struct twi_ledger ledger = ledger_make();
    assert_int_equal(ledger.name_size, strlen("p:tw:ledger:") + 32);
    assert_int_equal(ledger.acked, 4);
    assert_int_equal(twi_ledger_unconfirmed(&ledger)->number, 5);
    assert_int_equal(twi_ledger_find(&ledger, 5)->before, 4);
    assert_int_equal(twi_ledger_find(&ledger, 6)->plus_sum, 210);
    assert_int_equal(twi_ledger_find(&ledger, 6)->minus_sum, 21);
    assert_null(twi_ledger_find(&ledger, 7));
    assert_false(twi_ledger_is_replaying(&ledger));
    twi_ledger_free(&ledger);
}

TEST(the_window_drops_what_is_old_or_too_much_and_never_the_unconfirmed) {
    struct twi_ledger ledger = ledger_make();
    twi_ledger_trim(&ledger, 32500);
    assert_null(twi_ledger_find(&ledger, 2));
    assert_non_null(twi_ledger_find(&ledger, 3));
    ledger.replay_bytes_max = 0;
    twi_ledger_trim(&ledger, 0);
    assert_int_equal(ledger.head->number, 5);
    assert_int_equal(ledger.replay_bytes, 0);
    twi_ledger_trim(&ledger, INT64_MAX / 2);
    assert_int_equal(ledger.head->number, 5);
    assert_true(twi_ledger_is_valid(&ledger));
    twi_ledger_free(&ledger);
}

/* Goal: a store is asked once more about what it remembers, if a batch of that strayed; never across a step, within
 * which a store may be anywhere; and what is asked once more is not held for forgotten. */
TEST(only_a_batch_that_strayed_is_looked_back_for) {
    struct twi_ledger ledger = ledger_make();
    twi_ledger_look_back(&ledger);
    assert_int_equal(ledger.confirmed, 4);
    twi_ledger_find(&ledger, 3)->strayed = true;
    for (int i = 0; i < 2; i++) {
        twi_ledger_look_back(&ledger);
        assert_int_equal(ledger.confirmed, 0);
        assert_int_equal(twi_ledger_known(&ledger), 4);
        assert_true(twi_ledger_is_valid(&ledger));
    }
    for (uint64_t i = 1; i <= 4; i++) twi_ledger_confirm(&ledger, twi_ledger_unconfirmed(&ledger));
    twi_ledger_find(&ledger, 2)->is_step = true;
    twi_ledger_look_back(&ledger);
    assert_int_equal(ledger.confirmed, 2);
    for (uint64_t i = 3; i <= 4; i++) twi_ledger_confirm(&ledger, twi_ledger_unconfirmed(&ledger));
    for (uint64_t i = 7; i <= 12; i++) append(&ledger, i, 0, 0);
    for (uint64_t i = 5; i <= 12; i++) twi_ledger_confirm(&ledger, twi_ledger_unconfirmed(&ledger));
    twi_ledger_look_back(&ledger); /* 3 is remembered no more */
    assert_int_equal(ledger.confirmed, 12);
    twi_ledger_find(&ledger, 5)->strayed = true;
    twi_ledger_look_back(&ledger);
    assert_int_equal(ledger.confirmed, 4);
    twi_ledger_free(&ledger);
}

/* Goal: all of what was forgotten is still held. It is replayed in order, and no count is lost. */
TEST(going_back_within_the_window_loses_nothing) {
    struct twi_ledger ledger = ledger_make();
    struct twi_reply_head head = {.has_last = true, .last = 1, .plus_sum = 10, .minus_sum = 1};
    assert_int_equal(twi_ledger_roll_back(&ledger, &head, twi_batch_empty(0), 99), 0);
    assert_true(twi_ledger_is_replaying(&ledger));
    assert_int_equal(twi_ledger_unconfirmed(&ledger)->number, 2);
    for (uint64_t i = 2; i <= 4; i++) twi_ledger_confirm(&ledger, twi_ledger_unconfirmed(&ledger));
    assert_false(twi_ledger_is_replaying(&ledger));
    assert_int_equal(ledger.acked, 4);
    assert_true(twi_ledger_is_valid(&ledger));
    twi_ledger_free(&ledger);
}

/* Goal: beyond the window the loss is known to the unit, and an empty batch steps over the missing numbers (fault
 * 19). */
TEST(going_back_beyond_the_window_counts_the_loss) {
    struct twi_ledger ledger = ledger_make();
    ledger.replay_bytes_max = 0;
    twi_ledger_trim(&ledger, 0);
    struct twi_reply_head head = {.has_last = true, .last = 2, .plus_sum = 30, .minus_sum = 3};
    assert_int_equal(twi_ledger_roll_back(&ledger, &head, twi_batch_empty(0), 99), 30 + 40 + 3 + 4);
    struct twi_batch *step = twi_ledger_unconfirmed(&ledger);
    assert_int_equal(step->before, 2);
    assert_int_equal(step->number, 4);
    assert_int_equal(step->plus_sum, 100);
    assert_int_equal(step->next->number, 5);
    twi_ledger_confirm(&ledger, step);
    assert_int_equal(ledger.acked, 4);
    twi_ledger_confirm(&ledger, twi_ledger_unconfirmed(&ledger));
    assert_int_equal(ledger.acked, 5);
    assert_true(twi_ledger_is_valid(&ledger));
    twi_ledger_free(&ledger);
}

/* Goal: what is lost is counted once, however often Redis goes back over it. Method: back beyond the window, told of
 * the step, and back again, first to the same place, then further. */
TEST(going_back_twice_counts_a_loss_once) {
    struct twi_ledger ledger = ledger_make();
    ledger.replay_bytes_max = 0;
    twi_ledger_trim(&ledger, 0);
    struct twi_reply_head head = {.has_last = true, .last = 2, .plus_sum = 30, .minus_sum = 3};
    assert_int_equal(twi_ledger_roll_back(&ledger, &head, twi_batch_empty(0), 99), 30 + 40 + 3 + 4);
    twi_ledger_confirm(&ledger, twi_ledger_unconfirmed(&ledger));
    assert_int_equal(twi_ledger_roll_back(&ledger, &head, twi_batch_empty(0), 99), 0);
    head = (struct twi_reply_head){.has_last = true, .last = 1, .plus_sum = 10, .minus_sum = 1};
    assert_int_equal(twi_ledger_roll_back(&ledger, &head, twi_batch_empty(0), 99), 20 + 2);
    struct twi_batch *step = twi_ledger_unconfirmed(&ledger);
    assert_int_equal(step->before, 1); /* the step over what was lost became longer */
    assert_int_equal(step->number, 4);
    twi_ledger_confirm(&ledger, step);
    assert_true(twi_ledger_is_valid(&ledger));
    twi_ledger_free(&ledger);
}

/* Goal: units that Redis refused are no part of a later loss. Method: some of batch 4, gone with it. */
TEST(what_was_refused_is_no_part_of_a_loss) {
    struct twi_ledger ledger = ledger_make();
    ledger.replay_bytes_max = 0;
    twi_ledger_note_missing(&ledger, 4, 5);
    twi_ledger_trim(&ledger, 0);
    struct twi_reply_head head = {.has_last = true, .last = 2, .plus_sum = 30, .minus_sum = 3};
    assert_int_equal(twi_ledger_roll_back(&ledger, &head, twi_batch_empty(0), 99), 30 + 40 + 3 + 4 - 5);
    twi_ledger_free(&ledger);
}

/* Goal: a new identity takes along what must be sent again: other numbers, other nonces, no open copies. */
TEST(a_new_identity_numbers_its_batches_anew) {
    struct twi_ledger ledger = ledger_make();
    char name[TWI_LEDGER_NAME_MAX];
    memcpy(name, ledger.name, sizeof name);
    ledger.replay_bytes_max = 0;
    struct twi_batch *fifth = twi_ledger_find(&ledger, 5), *third = twi_ledger_find(&ledger, 3);
    fifth->copies_open = 2;
    uint64_t nonce = fifth->nonce;
    ledger.replay_bytes_max = twi_batch_bytes(third) * 2;
    twi_ledger_trim(&ledger, 0); /* 1 and 2 are gone */
    twi_ledger_identify(&ledger, "p:", count_up, &times_asked);
    assert_string_not_equal(ledger.name, name);
    assert_int_equal(third->number, 1);
    assert_int_equal(third->plus_sum, 30);
    assert_int_equal(fifth->number, 3);
    assert_int_equal(fifth->copies_open, 0);
    assert_int_not_equal(fifth->nonce, nonce);
    assert_int_equal(ledger.acked, 2);
    assert_int_equal(ledger.confirmed, 0);
    assert_int_equal(ledger.last, 4);
    assert_true(twi_ledger_is_valid(&ledger));
    twi_ledger_free(&ledger);
}

/* Goal: a batch of unknown outcome leaves between two that surely were not applied, because the identity is lost. The
 * list has no hole even before there is a new one. Method: the window dropped, the sixth of seven taken out. */
TEST(a_batch_taken_out_of_the_middle_leaves_no_hole) {
    struct twi_ledger ledger = ledger_make();
    struct twi_batch *fifth = twi_ledger_find(&ledger, 5), *sixth = twi_ledger_find(&ledger, 6);
    struct twi_batch *seventh = append(&ledger, 70, 7, 7000);
    assert_int_equal(twi_ledger_replay_drop(&ledger, 4), 0);
    twi_ledger_remove(&ledger, sixth);
    twi_batch_free(sixth);
    twi_ledger_close_ranks(&ledger);
    assert_true(twi_ledger_is_valid(&ledger));
    assert_int_equal(fifth->number, 1);
    assert_int_equal(seventh->number, 2);
    assert_int_equal(seventh->before, 1);
    assert_int_equal(seventh->plus_sum, 50 + 70);
    assert_int_equal(ledger.minus_sum, 5 + 7);
    assert_int_equal(ledger.last, 2);
    assert_int_equal(ledger.acked, 0);
    twi_ledger_free(&ledger);
}

TEST(dropping_the_window_tells_what_was_open) {
    struct twi_ledger ledger = ledger_make();
    assert_int_equal(twi_ledger_replay_drop(&ledger, 2), 30 + 3 + 40 + 4);
    assert_int_equal(ledger.head->number, 5);
    twi_ledger_free(&ledger);
}

static void check_pauses(uint32_t retry_max_ms, struct test_prng *prng) {
    struct twi_breaker breaker = {.retry_max_ms = retry_max_ms};
    int64_t most = retry_max_ms ? retry_max_ms : TWI_BREAKER_RETRY_MAX_MS, longest = 0, shortest = INT64_MAX;
    assert_true(twi_breaker_may_try(&breaker, 0));
    for (int i = 0; i < 200; i++) {
        twi_breaker_fail(&breaker, 1000, test_prng_next(prng));
        int64_t pause = breaker.retry_at_ms - 1000;
        assert_true(pause >= TWI_BREAKER_FLOOR_MS && pause <= most);
        if (i == 0) assert_true(pause <= TWI_BREAKER_BASE_MS);
        assert_false(twi_breaker_may_try(&breaker, breaker.retry_at_ms - 1));
        if (pause > longest) longest = pause;
        if (i > 20 && pause < shortest) shortest = pause;
    }
    if (most > TWI_BREAKER_FLOOR_MS)
        assert_true(longest > most * 9 / 10 && shortest < most / 10 + TWI_BREAKER_FLOOR_MS);
}

/* Goal: pauses grow, are spread, never vanish, and never pass retry_max_ms (fault 7). */
TEST(pauses_grow_are_spread_and_bounded) {
    static const uint32_t mosts_ms[] = {0, 10, 700, 5000};
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t i = 0; i < 4; i++) check_pauses(mosts_ms[i], &prng);
}

/* Goal: a nudge is one try at once; a success begins again, and keeps what was set; a slow failure waits for 2 to 4
 * s. */
TEST(a_success_closes_it_and_a_nudge_cuts_a_pause_short) {
    struct twi_breaker breaker = {.retry_max_ms = 700};
    twi_breaker_fail(&breaker, 1000, UINT64_MAX);
    twi_breaker_nudge(&breaker, 1000);
    assert_true(twi_breaker_may_try(&breaker, 1000));
    assert_int_equal(breaker.state, TWI_BREAKER_TRYING);
    twi_breaker_succeed(&breaker);
    assert_int_equal(breaker.failures, 0);
    assert_int_equal(breaker.retry_max_ms, 700);
    twi_breaker_fail_slowly(&breaker, 0, UINT64_MAX);
    assert_true(breaker.retry_at_ms >= TWI_BREAKER_SLOW_MS && breaker.retry_at_ms < 2 * TWI_BREAKER_SLOW_MS);
}
