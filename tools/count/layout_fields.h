/* layout_fields.h -- the fields that nginx, Apache and HAProxy have for their logs. The kinds are those whose text shows
 * its end, and the meanings are the names that access logs have.
 * Always true: each table ends with the row of all other names. */
#ifndef TOOL_LAYOUT_FIELDS_H
#define TOOL_LAYOUT_FIELDS_H

#include "tools/count/layout.h"

struct field_kind {
    const char *name;
    enum layout_kind kind;
    uint16_t meaning; /* 0 means none */
    const char *time;
};

extern const struct field_kind layout_nginx[];          /* variables */
extern const struct field_kind layout_apache[];         /* letters */
extern const struct field_kind layout_apache_headers[]; /* %{...}i */
extern const struct field_kind layout_apache_times[];   /* %{...}t */
extern const struct field_kind layout_haproxy[];

#endif
