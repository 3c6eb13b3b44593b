/* stats.h -- statistics as a page of metrics, in the two formats that scrapers read. Pure; any thread. */
#ifndef TWI_STATS_H
#define TWI_STATS_H

#include "engine/limit/limit_stats.h"

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

#endif
