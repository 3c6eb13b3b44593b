/* memory_plan.h -- computes how much counting memory a family needs, by the formula of docs/MEMORY.md.
 * Always true: a plan is an upper bound of an engine's memory, for counters of one family and keys of one length
 * (tests/unit/tools/memory_plan_test.c compares it with real engines). */
#ifndef TOOL_MEMORY_PLAN_H
#define TOOL_MEMORY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

struct memory_ask {
    uint64_t keys;      /* in one window */
    uint64_t key_bytes; /* 1..TW_KEY_SIZE_MAX */
    uint64_t open;      /* windows that accept counts at the same time (the current one, lateness_ms); at least 1 */
    uint64_t closed;    /* windows of history_ms */
    bool redis;         /* the family is synced */
};

struct memory_plan {
    uint64_t record;         /* bytes of a counter's record, the key within */
    uint64_t index;          /* bytes of its index */
    uint64_t window;         /* of a window that accepts counts */
    uint64_t packed;         /* of a window of history */
    uint64_t most;           /* at the worst moment, a roll-over */
    uint64_t memory_bytes;   /* the value for memory_bytes_max, with a quarter to spare, and room for replays */
    uint64_t redis_a_window; /* of one window in Redis; 0 means not synced */
};

/* Accepts no more than 2^40 keys in all windows. */
struct memory_plan memory_plan(const struct memory_ask *ask);

#endif
