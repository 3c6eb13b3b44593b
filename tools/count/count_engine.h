/* count_engine.h -- the engine and the family of `tallywheel count`, opened by the options, drained and
 * closed at the end.
 * Always true: an error that a user can correct is reported on standard error under the option's name. */
#ifndef TOOL_COUNT_ENGINE_H
#define TOOL_COUNT_ENGINE_H

#include "tools/count/plan.h"

/* Counts that will not reach Redis. Hooks on the engine's thread write it; it is read when the engine is gone. */
struct count_lost {
    uint64_t keys;
    int64_t units;
    int reason;
};

/* Both return an exit code. `lost` outlives the engine. `options` become those of the family. */
int count_engine_open(const struct plan *plan, struct count_lost *lost, tw_engine **engine);
/* The family of the sums; *sums is NULL without --sum. */
int count_sums_open(const struct plan *plan, tw_engine *engine, tw_family **sums);
int count_family_open(const struct plan *plan, tw_engine *engine, tw_family_options *options, tw_family **family);
/* Waits until Redis has everything; a signal ends the wait. Returns what tw_flush() returns. */
tw_status count_drain(tw_engine *engine);
/* Returns true if Redis has everything, or if there is no Redis; otherwise after a message on standard error. */
bool count_engine_close(tw_engine *engine, bool has_redis, const struct count_lost *lost);

#endif
