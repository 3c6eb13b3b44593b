/* ticket.c -- see ticket.h. Labels: T1 with T2 makes a caller's adds seen by the collection begun for its ticket; T3
 * with T4 makes an outcome seen by whoever sees its ticket settled. */
#include "sync/batch/ticket.h"

#include "engine/base/atomic.h"

uint64_t twi_ticket_take(struct twi_tickets *tickets) {
    return twi_add_acqrel(&tickets->taken, 1) + 1; /* T1: releases what the caller added before */
}

enum twi_ticket twi_ticket_state(struct twi_tickets *tickets, uint64_t ticket) {
    if (twi_load_acquire(&tickets->settled) < ticket) return TWI_TICKET_OPEN; /* T4, pairs with T3 */
    /* The outcome of the first round that reaches the ticket. Overwritten (256 rounds ago): say the worse. */
    uint64_t best = UINT64_MAX;
    bool refused = true;
    for (size_t i = 0; i < TWI_TICKET_OUTCOMES; i++) {
        uint64_t last = twi_load_acquire(&tickets->outcomes[i].ticket);
        if (last < ticket || last >= best) continue;
        best = last;
        refused = twi_load_relaxed(&tickets->outcomes[i].refused);
    }
    return refused ? TWI_TICKET_REFUSED : TWI_TICKET_DONE;
}

bool twi_ticket_waits(struct twi_tickets *tickets) {
    return twi_load_relaxed(&tickets->taken) != twi_load_relaxed(&tickets->settled); /* a hint */
}

bool twi_ticket_begin(struct twi_tickets *tickets) {
    uint64_t taken = twi_load_acquire(&tickets->taken); /* T2, pairs with T1: read before the collection begins */
    if (tickets->active || taken == twi_load_relaxed(&tickets->settled))
        return false; /* settled: only the turn writes it */
    tickets->active = tickets->collecting = true;
    tickets->refused = false;
    tickets->until = taken;
    return true;
}

void twi_ticket_collected(struct twi_tickets *tickets, uint64_t number) {
    if (!tickets->active || !tickets->collecting) return;
    tickets->collecting = false;
    tickets->number = number;
}

void twi_ticket_refused(struct twi_tickets *tickets) {
    if (tickets->active) tickets->refused = true;
}

bool twi_ticket_renew(struct twi_tickets *tickets) {
    if (tickets->active) tickets->collecting = true;
    return tickets->active;
}

void twi_ticket_acknowledged(struct twi_tickets *tickets, uint64_t acked) {
    if (!tickets->active || tickets->collecting || acked < tickets->number) return;
    size_t slot = tickets->round++ % TWI_TICKET_OUTCOMES;
    /* Nobody asks for this slot's old tickets between these two stores and gets DONE for REFUSED: 0 answers nobody. */
    twi_store_release(&tickets->outcomes[slot].ticket, 0);
    twi_store_release(&tickets->outcomes[slot].refused, tickets->refused);
    twi_store_release(&tickets->outcomes[slot].ticket, tickets->until);
    tickets->active = false;
    twi_store_release(&tickets->settled, tickets->until); /* T3 */
}
