/* coverage.h -- what a run of many seeds has seen: a table of counts that must not hold a zero.
 *
 * Four parts: each fault; each answer of the script; what the engine came to (log lines, figures, states of the breaker);
 * and each pair of a fault and what the oldest unsettled batch of a node was in when it struck.
 * Always true: a pair that cannot happen is named in the list of those, with its reason; every other one counts. */
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

/* What a line of the engine's log says. */
void coverage_read_log(struct coverage *coverage, const char *line);
void coverage_add_world(struct coverage *coverage, const struct world *world);
void coverage_print(const struct coverage *coverage);
/* How many entries are zero; each is named on standard output. Of a run that is not long only the faults and the answers of
 * the script are asked for: the rarest pairs come once in some hundred seeds. */
size_t coverage_gaps(const struct coverage *coverage, bool long_run);

#endif
