/* ticket.h -- tw_flush() waits for a full collection that began after the call, until its batches are acknowledged.
 *
 *   waiting --begin--> collecting --whole--> awaited (up to a number) --acknowledged--> settled: DONE or REFUSED
 * A round has a share in each store, namely the number up to which the store's batches are awaited. It is settled when
 * no store is short any more.
 * Any thread takes a ticket and reads its state. The turn moves all waiting tickets on at once. Always true: there is
 * one round at a time. A ticket taken during a round waits for the next round, so this always includes what the caller
 * had added before. Numbers of different stores are independent. */
#ifndef TWI_SYNC_BATCH_TICKET_H
#define TWI_SYNC_BATCH_TICKET_H

#include "engine/port/driver.h"
#include <stdatomic.h>

#define TWI_TICKET_OUTCOMES 256 /* rounds whose outcome is kept; a round takes a network round trip */

/* The batches of one store that the round awaits. Written by the turn alone. */
struct twi_ticket_share {
    uint64_t number; /* batches up to this number; valid once `again` is false */
    bool is_short;   /* they are not all acknowledged */
    bool again;      /* is_short, and the collection that has to end first is not over */
};

struct twi_tickets {
    _Atomic uint64_t taken;   /* the last ticket given */
    _Atomic uint64_t settled; /* all up to this one are settled */
    /* For each of the last rounds, the last ticket of the round << 1 | refused. */
    _Atomic uint64_t outcomes[TWI_TICKET_OUTCOMES];
    _Atomic uint64_t refused_before; /* the last ticket of the last refused round that was overwritten; 0 without one */
    /* written by the turn alone */
    uint64_t round;                   /* rounds settled so far */
    uint64_t until;                   /* the round's last ticket */
    uint32_t stores_short;            /* shares with is_short */
    bool active, collecting, refused; /* `collecting` is true only while `active` is */
};

uint64_t twi_ticket_take(struct twi_tickets *tickets);                          /* any thread */
enum twi_ticket twi_ticket_state(struct twi_tickets *tickets, uint64_t ticket); /* any thread */
bool twi_ticket_waits(const struct twi_tickets *tickets); /* returns true if a ticket is not settled; any thread */
/* Returns true if a round begins, and the caller begins a full collection now, and joins each store to it. */
bool twi_ticket_begin(struct twi_tickets *tickets);
/* Gives this store a share in the round that collects. Called also for a store that is made meanwhile. */
void twi_ticket_join(struct twi_tickets *tickets, struct twi_ticket_share *share);
/* Called when the full collection has ended. Then, for each store, the number of its last batch. */
void twi_ticket_collected(struct twi_tickets *tickets);
void twi_ticket_await(struct twi_ticket_share *share, uint64_t number);
void twi_ticket_refused(struct twi_tickets *tickets); /* called if a part of the round was refused, late or uncertain */
/* Called if items went back to their counters, so that the round collects again. Returns true if the caller begins a
 * full collection now. */
bool twi_ticket_renew(struct twi_tickets *tickets);
/* Does the same if the items are of one store, or if its batches were renumbered, even if the round had all of that
 * store. What is awaited of the other stores does not change. */
bool twi_ticket_renew_share(struct twi_tickets *tickets, struct twi_ticket_share *share);
/* Called if the store has acknowledged all batches up to that number. */
void twi_ticket_acknowledged(struct twi_tickets *tickets, struct twi_ticket_share *share, uint64_t acked);
/* Settles the round if no batch is awaited any more. */
void twi_ticket_settle(struct twi_tickets *tickets);

#endif
