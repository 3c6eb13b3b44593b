/* mutants.h -- the mistakes of tests/sim/mutants/ that need more than one line: a patch includes this and calls one of
 * them.
 *
 * They are here and not in the patches, so that every build compiles them. Always true: only a patched copy of the tree
 * calls them. */
#ifndef TEST_SIM_MUTANTS_H
#define TEST_SIM_MUTANTS_H

#include <stdbool.h>

struct twi_sync;
struct twi_batch;

/* A batch of unknown outcome gets what its counters owe by now. */
void mutant_thaw(struct twi_sync *sync, struct twi_batch *batch);
/* The counts of the latest batch are returned, and its number is used again. */
void mutant_reuse(struct twi_sync *sync, struct twi_batch *batch);
/* A batch loses its last item, and keeps its number. */
void mutant_shrink(struct twi_sync *sync, struct twi_batch *batch);
/* True if one of three counters of this engine is in Redis. */
bool mutant_probe(const struct twi_sync *sync);

#endif
