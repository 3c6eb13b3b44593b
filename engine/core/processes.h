/* processes.h -- the processes that share an engine (tw_options.shared). Each has a place in a table that all of them
 * see. What a process takes for itself, such as a slot of tw_hold(), is counted by its place. So it can be given back
 * when the process has gone.
 *
 * A process id is no witness: it is another one in each namespace, serves another process later, and stays the same
 * over exec. A robust mutex is one: the kernel frees it when its thread ends, for every process that has it. So only a
 * process with a registered thread that lives as long as itself has a place (witness.h). It is alive while one of its
 * registered threads is.
 * Always true: a living process that has not left is never taken for dead, unless its main thread ended by
 * pthread_exit() and no other thread of it that has called the library lives. A place serves another process only after
 * twi_process_clear(). Until then each look finds it again, so nothing is forgotten if the process that gives back dies
 * meanwhile.
 * Threads: any. twi_process_next_gone() and twi_process_clear() are for the owner of the turn. */
#ifndef TWI_CORE_PROCESSES_H
#define TWI_CORE_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tallywheel.h"

#define TWI_PROCESSES_MAX 1023u /* that share an engine at once; hold_shared.c has 10 bits for a place */

/* Called when a shared engine is made. Returns false if there is no memory. */
bool twi_processes_make(tw_engine *engine);
void twi_processes_unmake(tw_engine *engine);
size_t twi_processes_bytes(void); /* of that table */

/* Gives this process a place, which is here->process. 0 means that all places are taken. Called when a thread is
 * registered that lives as long as the process. */
void twi_process_enter(tw_engine *engine);
/* Returns true if this process has a place. */
bool twi_process_has_place(const tw_engine *engine);
/* This process leaves the engine. Its place is found by twi_process_next_gone() from now on. */
void twi_process_leave(tw_engine *engine);

/* Returns true if some process is alive. */
bool twi_processes_live(tw_engine *engine);
/* This process is a candidate: tw_lead(). It has a place. */
void twi_process_note_candidate(tw_engine *engine);
/* Returns true if another candidate is alive and has not left. */
bool twi_processes_may_lead(tw_engine *engine);
/* How many have a place and have not left it, dead ones included until their place is cleared. This process is counted
 * also without one. */
uint32_t twi_processes_count(const tw_engine *engine);
/* Returns true if the place has a process that has not left, and that is not known to be dead. */
bool twi_process_is_alive(tw_engine *engine, uint32_t number);
/* Returns true if the process of the place has left in good order. */
bool twi_process_has_left(const tw_engine *engine, uint32_t place);
/* Returns true if the process of the place has gone without leaving. The one that opened the engine may do so, unless
 * it was a candidate: the first process of a daemon opens, forks, and ends. */
bool twi_process_ended_early(const tw_engine *engine, uint32_t place);
/* The process id, in the namespace of the process. It is for log lines alone. */
uint32_t twi_process_id(const tw_engine *engine, uint32_t place);

/* Returns the next place after `place` whose process is dead or has left. 0 means that there is none. */
uint32_t twi_process_next_gone(tw_engine *engine, uint32_t place);
/* Everything of the process of that place is given back. The place serves another process. */
void twi_process_clear(tw_engine *engine, uint32_t number);

#endif
