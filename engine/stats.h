/* stats.h -- statistics as a page of metrics, in the two formats that scrapers read. Pure; any thread. */
#ifndef TWI_STATS_H
#define TWI_STATS_H

#include "engine/limit/limit_stats.h"

/* How a page is written. */
struct twi_metrics_page {
    bool is_open, has_end; /* OpenMetrics; ending in "# EOF" */
    const char *labels;    /* checked (metric_labels.h); NULL or "" means none */
    bool (*write)(void *ctx, const char *text, size_t size);
    void *ctx;
};
/* Returns false if there is no such format. */
bool twi_metrics_page_of(uint32_t format, struct twi_metrics_page *page);

/* Writes every field of TW_STATS as tallywheel_<field>, in base units (seconds, bytes), counters with _total. Then come
 * the limits of each family as tallywheel_family_...{family="NAME"}, then tallywheel_build_info, and "# EOF" if the
 * format has it. `write` gets one sample at a time; the first sample of a metric comes with its description. If `write`
 * returns false, it writes no more. last_error is left out, because free text does not belong into labels. Returns
 * TW_OK, or TW_DENIED if `write` returned false. */
tw_status twi_stats_write(const tw_stats *stats, const struct twi_family_limit_stats *families, size_t count,
                          const struct twi_metrics_page *page);

#endif
