/* instance.h -- which store knows us, and when another instance begins. False: the connection was dropped */
#ifndef TWI_INSTANCE_H
#define TWI_INSTANCE_H

#include <stdbool.h>
#include <stdint.h>

struct twi_sync;
struct twi_answer_head;

/* For so long a store that does not know us is taken for another one, seen by mistake: the one of before may be back. Tests
 * shorten it. */
extern _Atomic int64_t twi_doubt_ms;
bool twi_instance_gone(struct twi_sync *sync, int64_t now_ms);
bool twi_instance_opened(struct twi_sync *sync, const struct twi_answer_head *head, int64_t now_ms);
/* The ledger is there, and not ours any more: nobody is to go back to it. */
bool twi_instance_lose(struct twi_sync *sync, int64_t now_ms, const char *why);
void twi_instance_at_home(struct twi_sync *sync); /* a store answered that has our ledger */
void twi_instance_note(struct twi_sync *sync, const struct twi_answer_head *head); /* its marker */
void twi_instance_entered(struct twi_sync *sync, const struct twi_answer_head *head,
                          int64_t now_ms); /* and when it last wrote that it knows us */

#endif
