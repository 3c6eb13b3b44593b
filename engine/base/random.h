/* random.h -- unpredictable bytes, and pages that a forked child finds empty. This is the only source of the system's
 * random numbers. The system may refuse them later, in a sandbox that the program enters after tw_open(). So what
 * draws again and again has a private key from before, and continues without the system. */
#ifndef TWI_BASE_RANDOM_H
#define TWI_BASE_RANDOM_H

#include "engine/base/hash.h"

#include <stdbool.h>
#include <stddef.h>

/* ---- wiped ----
 * pages that a forked child finds full of zeroes, whatever the parent has there.
 * Linux does that (MADV_WIPEONFORK). qemu-user answers "done" to any advice, and does nothing. There a handler of
 * fork() gives the child new pages at the same address, which a raw clone() does not call.
 * Threads: any. */

/* `pages` begins and ends at the borders of pages, and is private memory. `renew` is called in the child,
 * and leaves zeroes there. Returns false if neither way is there. */
bool twi_wiped_on_fork(void *pages, size_t bytes, void (*renew)(void *pages, size_t bytes));
/* A child keeps them from now on, because their memory is used for something else. */
void twi_wiped_forget(void *pages, size_t bytes);

/* Fills `out` with unpredictable bytes. Returns false if the system gives no such bytes. Then `out` is undefined,
 * and a caller that needs a secret must stop. Any thread may call it. It may enter the kernel. */
bool twi_random_bytes(void *out, size_t size);

/* What follows from the key and from what no other block of this process has is unpredictable to all who do not know
 * the key. Always true: it lies in memory of this process alone. */
struct twi_random_key {
    struct twi_hash_secret secret;
    _Atomic uint64_t blocks; /* how many were made from it, in this process and in those that it was forked from */
    bool is_drawn;           /* set before other threads see the key */
};

/* Draws a new key. Returns false if the system gives no bytes; an earlier key stays. One thread. */
bool twi_random_key_draw(struct twi_random_key *key);
/* Fills `out` with bytes of the system, or of the key, together with the time, which no forked process repeats. Returns
 * false if there are neither. Any thread. */
bool twi_random_bytes_or(struct twi_random_key *key, int64_t time_us, void *out, size_t size);

#endif
