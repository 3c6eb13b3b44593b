/* supervisor.h -- a process that only supervises others: it opened an engine, it forked, and no call of it since then
 * uses what its children can write.
 *
 * Children may be of other users, and write garbage where the processes share memory. A process that supervises follows
 * nothing there. It locks and unlocks no mutex there, either, because glibc writes where the pointers in a robust mutex
 * lead. The thread that forks lets its record go, so it makes no step there by mistake. It keeps the mutex of its slot,
 * by which others see that the process lives, until it ends. If no engine is open, nobody needs to see that: it
 * unlocks the mutex while nobody else has the table, and the next table of all takes the place of this one. So the
 * master of a server whose workers have engines of their own has one table, however often it is reloaded.
 * Its first other call ends that: the process takes part again, as each child does with its first call. Root does not
 * take part if it has opened an engine meanwhile. It has made that with a table of threads of its own, which its
 * children do not get, and its other calls are refused.
 * Always true: a table is replaced only if no thread of this process has a mutex in it, because the kernel's list of
 * a thread's robust mutexes leads there. Whether a process supervises is in its private memory. No thread of it uses
 * the table of all while it supervises. */
#ifndef TWI_MEMORY_SUPERVISOR_H
#define TWI_MEMORY_SUPERVISOR_H

#include "engine/memory/epoch.h"

/* Returns true while this process supervises. */
bool twi_supervisor_is_here(void);

struct twi_supervising {
    /* It forks: no thread of it leads, or waits to lead. May wait for no lock. *has_engines is written if the result is
     * true. */
    bool (*may_supervise)(bool *has_engines);
    bool (*others_have_none)(void); /* no engine is open here that other processes may have */
    void (*take_part)(void);        /* it is about to take part: it joins the engines of others */
};
void twi_supervisor_set(const struct twi_supervising *functions);

#endif
