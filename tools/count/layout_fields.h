/* layout_fields.h -- the fields that nginx, Apache and HAProxy have for their logs. The kinds are those whose text
 * shows its end, and the meanings are the names that access logs have.
 * Always true: each table ends with the row of all other names. */
#ifndef TOOL_LAYOUT_FIELDS_H
#define TOOL_LAYOUT_FIELDS_H

#include "tools/count/line_rule.h"

#define LAYOUT_HOST (LINE_FIELD_NAMES_END + 1) /* a meaning; LINE_FIELD_HOST is 0, which is none here */

enum layout_kind {
    LAYOUT_TEXT,    /* anything; it ends where the rest of the line has its form */
    LAYOUT_QUOTED,  /* anything up to a quote without a backslash before it */
    LAYOUT_WORD,    /* no spaces */
    LAYOUT_NUMBER,  /* digits, signs and points */
    LAYOUT_HEADERS, /* HAProxy: {a|b}, or nothing */
    LAYOUT_TIME
};

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
