/* metric_labels.h -- labels that a program puts on every metric (tw_options.metrics_labels): checked once, then copied as they stand.
 * Always true of what was accepted: it may stand between braces, behind other labels and a comma, in Prometheus's text and in
 * OpenMetrics; no name in it comes twice or is one of our own. Pure; any thread. */
#ifndef TWI_CORE_METRIC_LABELS_H
#define TWI_CORE_METRIC_LABELS_H

#include <stdbool.h>
#include <stddef.h>

#define TWI_LABELS_BYTES_MAX 512

/* False: `why` says what is wrong, and at which byte. */
bool twi_labels_check(const char *labels, char *why, size_t why_size);

#endif
