/* ticket.c -- see ticket.h. Labels: T1 with T2 lets the collection that begins for a ticket see its caller's earlier
 * adds. T3 with T4 lets a reader that sees a ticket settled see its outcome. T5 with T6 lets a reader that finds an
 * outcome overwritten see that it was refused. */
#include "sync/batch/ticket.h"

#include "engine/base/check.h"
#include "engine/base/atomic.h"

uint64_t twi_ticket_take(struct twi_tickets *tickets) {
    return twi_add_acqrel(&tickets->taken, 1) + 1; /* T1 releases the caller's earlier adds */
}

enum twi_ticket twi_ticket_state(struct twi_tickets *tickets, uint64_t ticket) {
    twi_check(ticket != 0);
    if (twi_load_acquire(&tickets->settled) < ticket) return TWI_TICKET_OPEN; /* T4, pairs with T3 */
    /* The first kept round that reaches the ticket is the ticket's round, or a later one. */
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < TWI_TICKET_OUTCOMES; i++) {
        uint64_t outcome = twi_load_acquire(&tickets->outcomes[i]); /* T6, pairs with T5 */
        if (outcome >> 1 >= ticket && outcome < first) first = outcome;
    }
    /* The ticket's round was overwritten after 256 more rounds. If an overwritten round could be the ticket's, and was
     * refused, the ticket counts as refused, because TW_OK would promise too much. */
    bool was_refused = (first & 1) != 0 || ticket <= twi_load_relaxed(&tickets->refused_before);
    return was_refused ? TWI_TICKET_REFUSED : TWI_TICKET_DONE;
}

bool twi_ticket_waits(const struct twi_tickets *tickets) {
    return twi_load_relaxed(&tickets->taken) != twi_load_relaxed(&tickets->settled); /* a hint */
}

bool twi_ticket_begin(struct twi_tickets *tickets) {
    twi_check(tickets->active || (tickets->stores_short == 0 && !tickets->collecting));
    uint64_t taken = twi_load_acquire(&tickets->taken); /* T2, pairs with T1: read before the collection begins */
    if (tickets->active || taken == twi_load_relaxed(&tickets->settled))
        return false; /* settled: only the turn writes it */
    tickets->active = tickets->collecting = true;
    tickets->refused = false;
    tickets->until = taken;
    twi_check(tickets->until != 0);
    return true;
}

void twi_ticket_join(struct twi_tickets *tickets, struct twi_ticket_share *share) {
    twi_check(!share->again || share->is_short);
    if (!tickets->active || !tickets->collecting) return;
    tickets->stores_short += !share->is_short;
    share->is_short = share->again = true;
}

void twi_ticket_collected(struct twi_tickets *tickets) {
    twi_check(tickets->active || !tickets->collecting);
    tickets->collecting = false;
}

void twi_ticket_await(struct twi_ticket_share *share, uint64_t number) {
    twi_check(!share->again || share->is_short);
    if (!share->again) return;
    share->again = false;
    share->number = number;
}

void twi_ticket_refused(struct twi_tickets *tickets) {
    if (tickets->active) tickets->refused = true;
}

bool twi_ticket_renew(struct twi_tickets *tickets) {
    if (tickets->active) tickets->collecting = true;
    return tickets->active;
}

bool twi_ticket_renew_share(struct twi_tickets *tickets, struct twi_ticket_share *share) {
    twi_check(!share->again || share->is_short);
    if (!tickets->active) return false;
    tickets->stores_short += !share->is_short;
    share->is_short = share->again = true;
    return twi_ticket_renew(tickets);
}

void twi_ticket_acknowledged(struct twi_tickets *tickets, struct twi_ticket_share *share, uint64_t acked) {
    twi_check(!share->is_short || tickets->stores_short != 0);
    if (!share->is_short || share->again || acked < share->number) return;
    share->is_short = false;
    tickets->stores_short--;
    twi_ticket_settle(tickets);
}

void twi_ticket_settle(struct twi_tickets *tickets) {
    twi_check(tickets->active || tickets->stores_short == 0);
    if (!tickets->active || tickets->collecting || tickets->stores_short != 0) return;
    _Atomic uint64_t *outcome = &tickets->outcomes[tickets->round++ % TWI_TICKET_OUTCOMES];
    uint64_t before = twi_load_relaxed(outcome); /* only the turn writes it */
    if ((before & 1) != 0) twi_store_relaxed(&tickets->refused_before, before >> 1);
    twi_store_release(outcome,
                      tickets->until << 1 | tickets->refused);       /* T5: whoever misses the old one sees the mark */
    twi_check(tickets->until > twi_load_relaxed(&tickets->settled)); /* the round settles at least one ticket */
    tickets->active = false;
    twi_store_release(&tickets->settled, tickets->until); /* T3 */
}
