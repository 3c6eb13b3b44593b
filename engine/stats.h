/* stats.h -- the figures of an engine, as a struct, as a page of metrics, and for its watch socket. Writing a page is
 * pure: any thread may do it. */
#ifndef TWI_STATS_H
#define TWI_STATS_H

#include "engine/limit/limit_stats.h"
#include "tallywheel.h"

/* The form of a page. */
struct twi_metrics_page {
    bool is_open, has_end; /* the format is OpenMetrics; the page ends with "# EOF" */
    const char *labels;    /* checked labels (metric_labels.h); NULL or "" means that there are none */
    bool (*write)(void *ctx, const char *text, size_t size);
    void *ctx;
};
/* Returns false if the format is unknown. */
bool twi_metrics_page_of(uint32_t format, struct twi_metrics_page *page);

/* Writes every field of TW_STATS as tallywheel_<field>, in base units (seconds, bytes), counters with _total. Then
 * it writes the limits of each family as tallywheel_family_...{family="NAME"}, then tallywheel_build_info, and "#
 * EOF" if the format has it. `write` gets one sample at a time. The first sample of a metric comes with the
 * description of the metric. If `write` returns false, the function writes no more. last_error is left out, because
 * labels should not contain free text. Returns TW_OK, or TW_DENIED if `write` returned false. */
tw_status twi_stats_write(const tw_stats *stats, const struct twi_family_limit_stats *families, size_t count,
                          const struct twi_metrics_page *page);

/* ---- watch ----
 * when the watch socket (watch_path) is opened and closed.
 * Always true: the socket is open from tw_open() until tw_close() begins, or not at all. No program fails because it is
 * missing. */

/* Opens it, if watch_path is set. If the path cannot be used, that is one line of the log. Before the engine's threads
 * are started. */
void twi_watcher_start(tw_engine *engine);
void twi_watcher_stop(tw_engine *engine);
/* In a forked child: the parent's socket is left alone. The child has a socket if its path is free (%p in it, or the
 * parent is gone); otherwise it has no socket. */
void twi_watcher_renew(tw_engine *engine);
/* In a forked child that has none: the parent's socket is left alone. */
void twi_watcher_abandon(tw_engine *engine);

#endif
