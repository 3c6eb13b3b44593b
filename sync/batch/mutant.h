/* mutant.h -- the places where tests of the tests make this code wrong on purpose (tests/sim/mutants.c).
 *
 * A mutant is one mistake that a reader of the protocol might make; the simulator must catch each of them. Only the program
 * that does so is built with TWI_MUTANTS. Always true: in every other build TWI_MUTATE() is nothing. */
#ifndef TWI_SYNC_BATCH_MUTANT_H
#define TWI_SYNC_BATCH_MUTANT_H

#ifdef TWI_MUTANTS
#include <stdbool.h>

struct twi_sync;
struct twi_batch;

enum twi_mutant {
    TWI_MUTANT_NONE,
    TWI_MUTANT_LEDGER_LAST,       /* the script writes the ledger after the counters */
    TWI_MUTANT_THAWED,            /* a batch of unknown fate is sent again with what its counters owe by now */
    TWI_MUTANT_TTL_BY_VALUE,      /* an expiry is set where INCRBY answers the delta, and never looked at again */
    TWI_MUTANT_GAP_APPLIED,       /* the script takes any later number for the next one */
    TWI_MUTANT_GAP_IGNORED,       /* the engine goes on after a GAP as if nothing were missing */
    TWI_MUTANT_MARK_CLEARED_LAST, /* a counter's mark is cleared after its value was read */
    TWI_MUTANT_NUMBER_REUSED,     /* after NOSCRIPT the number is given to other counts */
    TWI_MUTANT_NEW_INSTANCE,      /* what is unanswered is sent again under a new instance */
    TWI_MUTANT_SHRUNK,            /* a refused batch loses an item, and keeps its number */
    TWI_MUTANT_DUP_RETURNED,      /* DUP is taken for "not applied" */
    TWI_MUTANT_PROBED,            /* a wipe is told by looking whether counters are there */
    TWI_MUTANT_WINDOW_DROPPED,    /* a window is dropped while a batch of its counts is under way */
    TWI_MUTANT_LAPSED,            /* the ledger lives shorter than a silence may last */
    TWI_MUTANT_UNKNOWN_CLOSED,    /* a copy of unknown outcome is taken for not applied */
    TWI_MUTANT_REPLICA_DENIES,    /* a replica's GAP, GONE and CLASH are believed */
    TWI_MUTANT_REPLICA_TAKES,     /* so are its OKs, where it takes writes */
    TWI_MUTANT_NO_DOUBT,          /* the first store that does not know us is told everything */
    TWI_MUTANT_KEPT_IGNORED,      /* an opening does not ask for the ledger of before */
    TWI_MUTANT_PAST_CLASHES,      /* a ledger that is further than we knew is taken for another engine's */
    TWI_MUTANT_ANY_SERVER,        /* whichever server greets anew is believed, not only the one that knew us */
    TWI_MUTANT_TOLD_AGAIN,    /* a store that was left and is back is told again what the other one was not told yet */
    TWI_MUTANT_KEPT_SILENTLY, /* ... and what the other one was told meanwhile is not uncertain */
    TWI_MUTANT_ADRIFT,        /* what was under way to a store when it was left is taken for not applied */
    TWI_MUTANT_LATE_LOST,     /* what the store of before has of a window that is over is lost with what is new */
    TWI_MUTANTS_END
};
extern enum twi_mutant twi_mutant;

#define TWI_MUTATE(which, ...) \
    do { \
        if (twi_mutant == (which)) { \
            __VA_ARGS__; \
        } \
    } while (0)

void twi_mutant_thaw(struct twi_sync *sync, struct twi_batch *batch);
void twi_mutant_reuse(struct twi_sync *sync, struct twi_batch *batch);
void twi_mutant_shrink(struct twi_sync *sync, struct twi_batch *batch);
bool twi_mutant_probe(const struct twi_sync *sync);
#else
#define TWI_MUTATE(which, ...) ((void)0)
#endif

#endif
