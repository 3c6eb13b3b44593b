/* ticket.h -- tw_flush: one full collection begun after the call, done when its batches are acknowledged.
 *
 *   waiting --begin--> collecting --whole--> awaited (up to a number) --acknowledged--> settled: DONE or REFUSED
 * Any thread takes a ticket and looks at it; the turn moves them on, all that wait at once. Always true: one round at
 * a time; a ticket taken during a round waits for the next, so what its caller had added before is always within. */
#ifndef TWI_SYNC_BATCH_TICKET_H
#define TWI_SYNC_BATCH_TICKET_H

#include "engine/port/driver.h"
#include <stdatomic.h>

#define TWI_TICKET_OUTCOMES 256 /* rounds whose outcome can still be asked for; a round takes a network round trip */

struct twi_tickets {
    _Atomic uint64_t taken;   /* the last ticket given */
    _Atomic uint64_t settled; /* all up to this one are settled */
    struct {
        _Atomic uint64_t ticket; /* the last one of a round */
        _Atomic bool refused;
    } outcomes[TWI_TICKET_OUTCOMES];
    /* the turn's */
    uint64_t round;                   /* rounds settled so far */
    uint64_t until;                   /* the round's last ticket */
    uint64_t number;                  /* awaited: acknowledged up to there */
    bool active, collecting, refused; /* collecting: only while active */
};

uint64_t twi_ticket_take(struct twi_tickets *tickets);                          /* any thread */
enum twi_ticket twi_ticket_state(struct twi_tickets *tickets, uint64_t ticket); /* any thread */
bool twi_ticket_waits(struct twi_tickets *tickets); /* is there one that is not settled? any thread */
/* True: a round begins; the caller begins a full collection now. */
bool twi_ticket_begin(struct twi_tickets *tickets);
void twi_ticket_collected(struct twi_tickets *tickets,
                          uint64_t number);           /* a full collection has ended in batch `number` */
void twi_ticket_refused(struct twi_tickets *tickets); /* something was refused, late or uncertain */
/* Items went back to their counters: the round collects again. True: the caller begins a full collection now. */
bool twi_ticket_renew(struct twi_tickets *tickets);
void twi_ticket_acknowledged(struct twi_tickets *tickets, uint64_t acked);

#endif
