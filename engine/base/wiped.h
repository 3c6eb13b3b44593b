/* wiped.h -- pages that a forked child finds full of zeroes, whatever the parent has there.
 * Linux does that (MADV_WIPEONFORK). qemu-user answers "done" to any advice, and does nothing. There a handler of
 * fork() gives the child new pages at the same address, which a raw clone() does not call.
 * Threads: any. */
#ifndef TWI_BASE_WIPED_H
#define TWI_BASE_WIPED_H

#include <stdbool.h>
#include <stddef.h>

/* `pages` begins and ends at the borders of pages, and is private memory. `renew` is called in the child,
 * and leaves zeroes there. Returns false if neither way is there. */
bool twi_wiped_on_fork(void *pages, size_t bytes, void (*renew)(void *pages, size_t bytes));
/* A child keeps them from now on, because their memory is used for something else. */
void twi_wiped_forget(void *pages, size_t bytes);

#endif
