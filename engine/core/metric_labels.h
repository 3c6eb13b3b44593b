/* metric_labels.h -- checks the labels that a program puts on every metric (tw_options.metrics_labels). They are
 * checked once, and then copied unchanged.
 * Always true for an accepted text: it may be put between braces, after other labels and a comma, in the Prometheus
 * text format and in OpenMetrics. No name in it occurs twice or is one of the engine's own. Any thread. */
#ifndef TWI_CORE_METRIC_LABELS_H
#define TWI_CORE_METRIC_LABELS_H

#include <stdbool.h>
#include <stddef.h>

#define TWI_LABELS_BYTES_MAX 512

/* If it returns false, `why` contains the reason and the place. */
bool twi_labels_check(const char *labels, char *why, size_t why_size);

#endif
