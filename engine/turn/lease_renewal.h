/* lease_renewal.h -- leases in the turn: whether anything of them is under way, their beginning and end. */
#ifndef TWI_TURN_LEASE_RENEWAL_H
#define TWI_TURN_LEASE_RENEWAL_H

#include "tallywheel.h"

struct twi_generation;

/* A fresh instance; also in a forked child. */
void twi_leases_begin(tw_engine *engine);
/* Nobody can reach this generation any more: its leases leave all lists. By the turn. */
void twi_leases_forget(tw_engine *engine, struct twi_generation *generation);
/* Closing: every unit in hand was returned, and Redis has acknowledged that. */
bool twi_leases_are_returned(tw_engine *engine);
/* The same, and it was said that this engine takes part no more; or it never did. */
bool twi_leases_are_over(tw_engine *engine);
/* The window has ended: what is stranded in it is free. By the turn. */
void twi_leases_end(tw_engine *engine, struct twi_generation *generation);

#endif
