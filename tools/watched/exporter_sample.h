/* exporter_sample.h -- one line of a page of metrics, which is a description or a sample.
 * Always true: the text is in the format of Prometheus as the library writes it, `name{labels} value`, without a time.
 * The functions never read after `end`. */
#ifndef TOOL_EXPORTER_SAMPLE_H
#define TOOL_EXPORTER_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>

#define EXPORTER_LABELS_MAX 64u

struct exporter_text {
    const char *at;
    size_t size;
};

struct exporter_sample {
    struct exporter_text name, value;
    struct exporter_text labels[EXPORTER_LABELS_MAX], values[EXPORTER_LABELS_MAX]; /* values with their quotes */
    size_t label_count;
};

bool exporter_same(struct exporter_text a, struct exporter_text b);
/* The line is from `line` to `end`, where its newline is. Returns false if it is no sample. No two labels have one
 * name. */
bool exporter_sample_read(const char *line, const char *end, struct exporter_sample *sample);
/* "# TYPE name type", of a type that is known. */
bool exporter_type_read(const char *line, const char *end, struct exporter_text *name);

#endif
