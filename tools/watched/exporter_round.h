/* exporter_round.h -- one look at all engines behind some watch sockets: their pages, requested at the same time.
 * Always true: only exporter_run() blocks. An engine that does not answer in time is left out and named by
 * tallywheel_exporter_up 0, and so is one whose page is not sound (exporter_page.h), and a pattern without a wildcard
 * that has no match. The others are served. One thread, one round at a time. */
#ifndef TOOL_EXPORTER_ROUND_H
#define TOOL_EXPORTER_ROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/common/sink.h"

struct exporter {
    char *const *patterns; /* of glob(7) */
    size_t pattern_count;
    bool is_patient; /* no thread waits for the page, so every engine gets the longer time */
    uint64_t *known; /* hashes of the sockets that answered in the last round; these get more time */
    size_t known_count;
};

struct exporter_round;

/* Looks which sockets there are, and asks them. Returns NULL if no memory, or no descriptor. */
struct exporter_round *exporter_begin(const struct exporter *exporter);
/* Readable when exporter_step() has something to do; or after so many milliseconds. */
int exporter_fd(const struct exporter_round *round);
int exporter_wait_ms(const struct exporter_round *round);
/* Reads the bytes that have come. Returns true if every engine has answered, or its time has ended. */
bool exporter_step(struct exporter_round *round);
/* Writes the page, unless `out` is NULL, and frees the round. Returns how many engines answered. */
size_t exporter_end(struct exporter *exporter, struct exporter_round *round, struct sink *out);

/* Does the whole round. Waits for the answers, or for a signal. */
size_t exporter_run(struct exporter *exporter, struct sink *out);
void exporter_free(struct exporter *exporter);

#endif
