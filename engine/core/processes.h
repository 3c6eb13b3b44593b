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

#include "tallywheel.h"
#include "engine/core/state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- witness ----
 * a thread by whose end other processes learn that this process has ended.
 *
 * Each thread that calls the library has a robust mutex (memory/epoch.h). The main thread lives as long as the process.
 * Where another thread is the first one that calls, a thread of ours takes its part: it only waits. It starts when the
 * process joins the engine, and in the process that opened it with its first tw_hold() or tw_lead().
 * Always true: a process has a place (processes.h) only after its witness is registered. That thread runs until
 * tw_close(). Its signals are blocked.
 * Threads: any. */

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

/* ---- engines ----
 * the engines of this process, in a list of its own memory.
 *
 * Other processes can write everything that they share, also engine->here. So this list says whether a process has an
 * engine, whether it is alone with it, and how it leaves it without reading it.
 * Always true: nothing here follows a pointer in shared memory, except for an engine that no other process has yet. */

/* The strings among the options, of which the engine has copies. */
#define TWI_ENGINE_TEXTS(X) \
    X(redis_url) \
    X(redis_prefix) \
    X(metrics_labels) \
    X(watch_path) \
    X(sentinel_user) \
    X(redis_tls_ca_file) X(redis_tls_cert_file) X(redis_tls_key_file) X(redis_tls_server_name)

void twi_engines_add(tw_engine *engine);
void twi_engines_remove(const struct twi_here *here);
/* What this process has of the engine. NULL means that it has no such engine. In a forked child it first begins a new
 * process there. */
struct twi_here *twi_engines_find(const tw_engine *engine);
/* Calls `renew` for each engine, in a forked child, where the list's lock may be taken. */
void twi_engines_renew(void (*renew)(struct twi_here *here));
/* Returns true if no other process has the engine. */
bool twi_engines_is_alone(const struct twi_here *here);

/* For struct twi_supervising (memory/supervisor.h). */
bool twi_engines_may_supervise(bool *has_engines);
bool twi_engines_others_have_none(void);
/* Calls `join` for each engine of others that this process has not joined. */
void twi_engines_join_all(void (*join)(tw_engine *engine));

/* Leaves an engine that others may have written. Its memory is given back, and its descriptors are closed. */
void twi_engines_leave_unread(tw_engine *engine, struct twi_here *here);

/* A text may have a password. */
void twi_engines_free_text(const char *text);

/* ---- turn owner ----
 * which thread owns the turn.
 * Always true: at most one thread owns it. The word has the number of its slot, so a thread that has ended in the
 * middle of a turn is found, and its slot serves no other thread before another one has taken over (turn/recover.h). */

/* Takes the turn for this thread if `from` owns it; 0 means nobody. Returns who owned it before: `from` means that this
 * thread has it. */
uint32_t twi_turn_own(tw_engine *engine, uint32_t from);
void twi_turn_disown(tw_engine *engine);

/* ---- leader ----
 * which process makes the turns of a shared engine (tw_options.shared).
 *
 * The thread that leads has a robust mutex in shared memory. So the kernel frees it when that thread ends, however it
 * ends, and the next candidate that tries it finds that out. A candidate is a process that called tw_lead(). It tries
 * twice a second, and at once after twi_leader_call(). In a host-driven engine the thread that took the mutex leads,
 * and no other thread makes turns. Otherwise it is the background thread of the process, and any thread of that process
 * may take the turn.
 * Always true: a process that does not lead never owns the turn. A private engine has none of this. */

#define TWI_LEADER_LOOK_MS 500 /* how often candidates try, and look whether somebody keeps the time */

/* For the process that opens the engine. */
void twi_leader_make(tw_engine *engine);
/* What belongs to a process, when it opens or joins the engine. */
void twi_leader_begin_here(tw_engine *engine);

/* For each turn of a shared engine: it notes when that was, and reports that the leader was replaced. */
void twi_leader_turn(tw_engine *engine);
/* How long ago the last turn was; -1 means that there was none. */
int64_t twi_leader_age_ms(const tw_engine *engine);

/* Returns true if this thread leads; if the engine is not host-driven, if a thread of this process does. */
bool twi_leader_is_here(const tw_engine *engine);
/* Returns true if a thread of this process leads, or ended as the leader and no other process leads since. */
bool twi_leader_leads(const tw_engine *engine);
enum twi_leader_try { TWI_LEADER_NOT, TWI_LEADER_SINCE_NOW, TWI_LEADER_AFTER_DEATH };
/* Tries to lead from now on. Not if this thread leads already. */
enum twi_leader_try twi_leader_take(tw_engine *engine);
/* Returns true if a candidate should try now: it was called, or a second has passed. */
bool twi_leader_is_due(tw_engine *engine);
/* Sleeps until then, or until twi_leader_call(). */
void twi_leader_await(tw_engine *engine);
/* The thread that leads hands over, and calls the candidates. */
void twi_leader_hand_over(tw_engine *engine);
/* All candidates try at once. Follows no pointer. */
void twi_leader_call(tw_engine *engine);

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
