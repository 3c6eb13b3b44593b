/* hold_shared.h -- tw_hold() and tw_hold_release() without Redis in an engine that processes share. Slots are counted
 * for each process, so those of a process that has gone are given back, all of them and nothing else.
 *
 * A family has a table of its own for its slots. The cell of a key has one word in place of a count, and leads to one
 * account for each process:
 *
 *   cell word | slots in use : 24 | place of a process : 10 | step : 2 | version : 28 |
 *   account   | slots of that process : 32                  | version of its last step : 32 |
 *
 * A step changes both words. Its first exchange, of the cell word, decides it: the word has the new number of slots,
 * and says what to do in whose account. Whoever finds such a word does the rest, which is one exchange of the account
 * and one that ends the step. Each step has a version, so the rest is done once, whoever does it.
 * Always true: where the cell word shows no step, its number is the sum of the accounts. A process may be killed
 * between any two instructions: a step that has begun is finished by the next caller, or when its slots are given back.
 * Threads: any, lock-free. No call waits for another process, also if that is stopped or dead. */
#ifndef TWI_RESERVE_HOLD_SHARED_H
#define TWI_RESERVE_HOLD_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "tallywheel.h"

#define TWI_SLOTS_MAX ((1u << 24) - 1) /* of one key */

/* The family, key and limit are checked. The first one writes the verdict, whatever its status is. */
tw_status twi_hold_shared_take(tw_family *family, tw_key key, int64_t limit, tw_verdict *verdict);
tw_status twi_hold_shared_give(tw_family *family, tw_key key);

/* Gives back slots of a process that has gone (core/processes.h). Returns true if none is left, otherwise it is called
 * again. Called by the owner of the turn. A call does a bounded piece of work. */
bool twi_hold_shared_recover(tw_engine *engine, uint32_t place);
/* The family is closed, and no thread uses its slots. Its memory is given back. */
void twi_hold_shared_forget(tw_family *family);

#endif
