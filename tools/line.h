/* line.h -- one line of a log: its time, its key, its delta.
 *
 * A line parses when its time and its key can be read; what else stands in it is not looked at. So a line whose last
 * field was cut off still counts for its client, and fails only where the cut field is the key.
 *
 * Always true: the parsers read the given bytes only (NUL is a byte like any other), allocate nothing, ask no locale
 * and no time zone, and give back a key of 1..TW_KEY_SIZE_MAX bytes. Safe from any number of threads. */
#ifndef TOOL_LINE_H
#define TOOL_LINE_H

#include "tallywheel.h"

#define LINE_FIELDS_MAX 16

/* In the order of --format's words. LINE_COMBINED takes lines behind a virtual host, too, where they can be told apart. */
enum line_format { LINE_COMBINED, LINE_VHOST_COMBINED, LINE_DPKG, LINE_TSV };
#define LINE_FIELD_HOST \
    0 /* of the web servers' formats: the virtual host that leads the line, and is not counted as a field */

/* How lines are to be read. */
struct line_rule {
    enum line_format format;
    int64_t utc_offset_ms; /* dpkg: the times in the log carry no offset and are taken as in this one */
    uint16_t
        fields[LINE_FIELDS_MAX]; /* the key's fields, counted from 1, in the order in which they are joined by ':' */
    uint16_t field_count;        /* 0 in tsv */
    uint16_t field_last;         /* the greatest of them: nothing after it is read */
};

/* What was read. The key points into the line, or into `joined` where it has several fields. */
struct line {
    int64_t unix_ms;
    int64_t delta;
    tw_key key;
};

/* Sets the rule's fields; count 0: the format's default key. */
void line_rule_set(struct line_rule *rule, enum line_format format, const uint16_t *fields, size_t count);

/* NULL: read. Else what is wrong, as words that follow "FILE:34: ". `text` is without its newline; a carriage return at
 * its end is not part of it. `joined` has room for TW_KEY_SIZE_MAX bytes. */
const char *line_parse(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);

/* The parts, by file. */
const char *line_combined(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);
const char *line_dpkg(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);
const char *line_tsv(const char *text, size_t size, struct line *line);

/* Civil time to Unix seconds: the proleptic Gregorian calendar, arguments in range (month 1..12, day 1..31). */
int64_t line_unix_s(int64_t year, unsigned month, unsigned day, unsigned hour, unsigned minute, unsigned second);
/* True for a day that the calendar has. */
bool line_date_is_valid(unsigned year, unsigned month, unsigned day);
/* `count` digits, 1..9 of them; -1 if one is none. */
int line_digits(const char *text, unsigned count);

/* The key made of a line's fields. field_at[i] is the text of rule->fields[i]. NULL: made. */
const char *line_key(const struct line_rule *rule, const tw_key *field_at, struct line *line, char *joined);

#endif
