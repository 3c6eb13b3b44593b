/* coverage.h -- what a run of many seeds has seen. A table of counts that must not contain a zero.
 *
 * It has four parts: each fault; each reply of the script; the engine's events (log lines, statistics, states of the
 * breaker); and each pair of a fault and the state of a node's oldest unsettled batch when it struck.
 * Always true: a pair that cannot happen is in the list of impossible pairs, with its reason; every other pair
 * counts. */
#ifndef TEST_COVERAGE_H
#define TEST_COVERAGE_H

#include "tests/sim/world.h"

enum coverage_event { /* of the engine */
                      SAW_IDENTITY_EVICTED,
                      SAW_IDENTITY_CLASH,
                      SAW_IDENTITY_AHEAD,
                      SAW_IDENTITY_UNKNOWN_STORE,
                      SAW_WIPE,
                      SAW_ROLLBACK,
                      SAW_REPLAY_DONE,
                      SAW_UNBORN,
                      SAW_POISON,
                      SAW_REFUSED,
                      SAW_NOT_UNDERSTOOD,
                      SAW_NO_ANSWER_IN_TIME,
                      SAW_REPLAYED,
                      SAW_LOST_BEYOND_WINDOW,
                      SAW_UNCERTAIN,
                      SAW_RESTORED,
                      SAW_ROLL_OVER,
                      SAW_FLUSH_DONE,
                      SAW_FLUSH_REFUSED,
                      SAW_BREAKER_CLOSED,
                      SAW_BREAKER_OPEN,
                      SAW_BREAKER_TRYING,
                      SAW_EVENTS
};

struct coverage {
    uint64_t faults[WORLD_FAULTS];
    uint64_t edges[MODEL_EDGES];
    uint64_t events[SAW_EVENTS];
    uint64_t pairs[FLIGHTS][WORLD_FAULTS];
    uint64_t seeds, turns;
    int64_t simulated_ms;
};

/* Takes an event from a line of the engine's log. */
void coverage_read_log(struct coverage *coverage, const char *line);
void coverage_add_world(struct coverage *coverage, const struct world *world);
void coverage_print(const struct coverage *coverage);
/* Returns how many entries are zero, and prints each of them. A run that is not long needs only the faults and the
 * script's replies. The rarest pairs come once in some hundred seeds. */
size_t coverage_gaps(const struct coverage *coverage, bool long_run);

#endif
