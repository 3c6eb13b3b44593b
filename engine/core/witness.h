/* witness.h -- a thread by whose end other processes learn that this process has ended.
 *
 * Each thread that calls the library has a robust mutex (memory/epoch.h). The main thread lives as long as the process.
 * Where another thread is the first one that calls, a thread of ours takes its part: it only waits. It starts when the
 * process joins the engine, and in the process that opened it with its first tw_hold() or tw_lead().
 * Always true: a process has a place (processes.h) only after its witness is registered. That thread runs until
 * tw_close(). Its signals are blocked.
 * Threads: any. */
#ifndef TWI_CORE_WITNESS_H
#define TWI_CORE_WITNESS_H

#include "tallywheel.h"

/* When the engine is opened, and in a forked child: there is no such thread. */
void twi_witness_begin(tw_engine *engine);
/* The process joins the engine. It has its place at once if the main thread calls, otherwise soon. */
void twi_witness_join(tw_engine *engine);
/* The same for the process that opens it. It has no place if the main thread does not call, or if others cannot see
 * that thread, because the process supervises and had called nothing before it forked (memory/supervisor.h). */
void twi_witness_open(tw_engine *engine);
/* Returns TW_OK when this process has a place. TW_ERR_MEMORY: there is no thread, or no place. */
tw_status twi_witness_need(tw_engine *engine);
/* Ends the thread. Only tw_close() calls it, when the process has left. */
void twi_witness_end(tw_engine *engine);

#endif
