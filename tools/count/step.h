/* step.h -- the counts of some lines, so few that they fit in one batch to Redis, which is applied as a whole or not at
 * all.
 * Always true: a step has at most STEP_COUNTERS counters, and the delta of each fits in one add. */
#ifndef TOOL_STEP_H
#define TOOL_STEP_H

#include "tallywheel.h"

/* An engine whose turns its host makes sends the counts that it finds in one turn as one batch, up to 64 counters
 * (TWI_NEAR_KEYS; tool_step_test.c does not compile if that gets too few). Two are the position of the file.
 * tests/cli/count_resume.sh watches Redis for that. */
#define STEP_COUNTERS 60
#define STEP_POSITION_COUNTERS 2
#define STEP_SLOTS 128 /* power of two */

struct step_row {
    int64_t start_ms; /* of the window */
    bool is_sum;      /* of --sum; a count otherwise */
    int64_t delta;
    size_t size;
    char key[TW_KEY_SIZE_MAX];
};

struct step {
    size_t count;
    uint8_t slots[STEP_SLOTS]; /* the row's number and 1, by hash; 0 means free */
    struct step_row row[STEP_COUNTERS];
};

void step_clear(struct step *step);
/* Adds a line's count, and its sum if it is not 0. Returns false if the step is full; then it is unchanged. An empty
 * step accepts any line. */
bool step_add(struct step *step, int64_t start_ms, tw_key key, int64_t delta, int64_t sum);

#endif
