/* ticket_test.c -- what a flush is answered, also when its caller looks late, or if it is about several stores. */
#include "sync/batch/ledger.h"

#include "tests/support/support.h"

/* One round for the tickets that wait. */
static void play_round(struct twi_tickets *tickets, bool refused) {
    struct twi_ticket_share share = {0};
    assert_true(twi_ticket_begin(tickets));
    twi_ticket_join(tickets, &share);
    twi_ticket_collected(tickets);
    twi_ticket_await(&share, 1);
    if (refused) twi_ticket_refused(tickets);
    twi_ticket_acknowledged(tickets, &share, 1);
}

/* Goal: each ticket has the outcome of its own round. */
TEST(a_ticket_is_answered_by_its_own_round) {
    struct twi_tickets tickets = {0};
    uint64_t taken[100];
    for (int i = 0; i < 100; i++) {
        taken[i] = twi_ticket_take(&tickets);
        assert_int_equal(twi_ticket_state(&tickets, taken[i]), TWI_TICKET_OPEN);
        play_round(&tickets, i % 3 == 0);
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(twi_ticket_state(&tickets, taken[i]), i % 3 == 0 ? TWI_TICKET_REFUSED : TWI_TICKET_DONE);
}

/* Goal: a caller that looks after its outcome was overwritten never hears that all is well where it was not.
 * Method: one refused round, then more good ones than are kept. */
TEST(a_refusal_is_not_forgotten) {
    struct twi_tickets tickets = {0};
    uint64_t good = twi_ticket_take(&tickets);
    play_round(&tickets, false);
    uint64_t refused = twi_ticket_take(&tickets);
    play_round(&tickets, true);
    uint64_t after = twi_ticket_take(&tickets);
    play_round(&tickets, false);
    for (int i = 0; i < 3 * TWI_TICKET_OUTCOMES; i++) {
        (void)twi_ticket_take(&tickets);
        play_round(&tickets, false);
        assert_int_equal(twi_ticket_state(&tickets, refused), TWI_TICKET_REFUSED);
    }
    assert_int_equal(twi_ticket_state(&tickets, after), TWI_TICKET_DONE);
    assert_int_equal(twi_ticket_state(&tickets, good), TWI_TICKET_REFUSED); /* nobody knows any more: the worse */
}

/* A round whose full collection is over; store i has batches up to number 10 (i + 1). */
static uint64_t begin_round(struct twi_tickets *tickets, struct twi_ticket_share *shares, size_t count) {
    uint64_t ticket = twi_ticket_take(tickets);
    assert_true(twi_ticket_begin(tickets));
    for (size_t i = 0; i < count; i++) twi_ticket_join(tickets, &shares[i]);
    twi_ticket_collected(tickets);
    for (size_t i = 0; i < count; i++) twi_ticket_await(&shares[i], 10 * (i + 1));
    return ticket;
}

/* Goal: a flush is done when every store has acknowledged its own number, whatever numbers the others are at. */
TEST(a_flush_waits_for_every_store) {
    struct twi_tickets tickets = {0};
    struct twi_ticket_share shares[3] = {{0}};
    uint64_t ticket = begin_round(&tickets, shares, 3);
    twi_ticket_acknowledged(&tickets, &shares[2], 1000);
    twi_ticket_acknowledged(&tickets, &shares[0], 10);
    twi_ticket_acknowledged(&tickets, &shares[0], 500); /* more of the same says nothing of another */
    twi_ticket_acknowledged(&tickets, &shares[1], 19);
    assert_int_equal(twi_ticket_state(&tickets, ticket), TWI_TICKET_OPEN);
    twi_ticket_acknowledged(&tickets, &shares[1], 20);
    assert_int_equal(twi_ticket_state(&tickets, ticket), TWI_TICKET_DONE);
    assert_int_equal(tickets.stores_short, 0);
}

/* Goal: if the batches of one store are numbered again, the flush awaits its new numbers; what it awaits of the other
 * stores stays as it was. Method: the numbers of the other store have gone on meanwhile, and are not acknowledged. */
TEST(a_store_that_begins_anew_renews_its_share_alone) {
    struct twi_tickets tickets = {0};
    struct twi_ticket_share shares[3] = {{0}};
    uint64_t ticket = begin_round(&tickets, shares, 3);
    twi_ticket_acknowledged(&tickets, &shares[0], 10);
    assert_true(twi_ticket_renew_share(&tickets, &shares[0])); /* it had all of this round, and has lost it */
    assert_true(twi_ticket_renew_share(&tickets, &shares[1]));
    twi_ticket_acknowledged(&tickets, &shares[1], 40); /* of the earlier numbers */
    twi_ticket_acknowledged(&tickets, &shares[2], 30);
    assert_int_equal(twi_ticket_state(&tickets, ticket), TWI_TICKET_OPEN);
    twi_ticket_collected(&tickets);
    for (size_t i = 0; i < 3; i++) twi_ticket_await(&shares[i], i < 2 ? 3 : 900);
    twi_ticket_acknowledged(&tickets, &shares[1], 3);
    assert_int_equal(twi_ticket_state(&tickets, ticket), TWI_TICKET_OPEN);
    twi_ticket_acknowledged(&tickets, &shares[0], 3);
    assert_int_equal(twi_ticket_state(&tickets, ticket), TWI_TICKET_DONE);
}

/* Goal: a store that is made while a round collects is a part of it; one that is made later is not. */
TEST(a_store_joins_the_round_that_collects) {
    struct twi_tickets tickets = {0};
    struct twi_ticket_share first = {0}, second = {0}, third = {0};
    uint64_t ticket = twi_ticket_take(&tickets);
    assert_true(twi_ticket_begin(&tickets));
    twi_ticket_join(&tickets, &first);
    twi_ticket_join(&tickets, &second);
    twi_ticket_collected(&tickets);
    twi_ticket_await(&first, 1);
    twi_ticket_await(&second, 1);
    twi_ticket_join(&tickets, &third);
    twi_ticket_acknowledged(&tickets, &first, 1);
    assert_int_equal(twi_ticket_state(&tickets, ticket), TWI_TICKET_OPEN);
    twi_ticket_acknowledged(&tickets, &second, 1);
    assert_int_equal(twi_ticket_state(&tickets, ticket), TWI_TICKET_DONE);
}
