/* line.h -- one line of a log: its time, its key, its delta.
 *
 * A line parses if its time and its key can be read; the rest is not checked. So a line whose last field was cut off
 * still counts for its client. It fails only if the cut field is the key.
 *
 * A rule may also name fields that make an element: what is different among the lines of one key (--distinct).
 *
 * Always true: the parsers read only the given bytes (NUL is a byte like any other), allocate nothing, use no locale
 * and no time zone, and return a key of 1..TW_KEY_SIZE_MAX bytes. Any number of threads may use them. */
#ifndef TOOL_LINE_H
#define TOOL_LINE_H

#include "tallywheel.h"

#define LINE_FIELDS_MAX 16
#define LINE_ELEMENT_MAX 8192 /* bytes of an element that is joined from several fields */

/* In the order of --format's words. LINE_COMBINED also takes lines with a leading virtual host, if it can recognize
 * them. */
enum line_format { LINE_COMBINED, LINE_VHOST_COMBINED, LINE_DPKG, LINE_TSV };
#define LINE_FIELD_HOST \
    0 /* in the web servers' formats: the virtual host at the start of the line, which is not counted as a field */

/* How to read lines. */
struct line_rule {
    enum line_format format;
    int64_t utc_offset_ms;                /* dpkg: the log's times have no offset; this one is assumed */
    uint16_t fields[2 * LINE_FIELDS_MAX]; /* the key's, then the element's, counted from 1, in the order of joining */
    uint16_t field_count;                 /* of the key; 0 in tsv */
    uint16_t element_count;               /* of the element; 0: none is wanted */
    uint16_t field_last;                  /* the greatest of them: the fields after it are not read */
};

/* The fields of a line. Key and element point into the line, or into `joined` if they have several fields. */
struct line {
    int64_t unix_ms;
    int64_t delta; /* 1 with an element */
    tw_key key;
    tw_key element;
};

/* Sets the key's fields; count 0: the format's default key. No element is wanted. */
void line_rule_set(struct line_rule *rule, enum line_format format, const uint16_t *fields, size_t count);
/* Sets the element's fields, after line_rule_set(). In tsv the element is the third field, whatever `fields` says. */
void line_rule_set_element(struct line_rule *rule, const uint16_t *fields, size_t count);

/* Returns NULL if the line was read, else what is wrong, as words that follow "FILE:34: ". `text` is without its
 * newline; a carriage return at its end is not part of it. `joined` has room for TW_KEY_SIZE_MAX bytes, and if an
 * element is wanted for LINE_ELEMENT_MAX more. */
const char *line_parse(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);

/* The parts, by file. */
const char *line_combined(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);
const char *line_dpkg(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);
const char *line_tsv(const struct line_rule *rule, const char *text, size_t size, struct line *line);

/* Civil time to Unix seconds: the proleptic Gregorian calendar, arguments in range (month 1..12, day 1..31). */
int64_t line_unix_s(int64_t year, unsigned month, unsigned day, unsigned hour, unsigned minute, unsigned second);
/* True if the calendar has this day. */
bool line_date_is_valid(unsigned year, unsigned month, unsigned day);
/* Reads `count` digits (1..9); returns -1 if one of them is no digit. */
int line_digits(const char *text, unsigned count);

/* How many fields of a line the rule needs, the key's and the element's. */
static inline size_t line_field_count(const struct line_rule *rule) {
    return (size_t)rule->field_count + rule->element_count;
}
/* What is said of a line that lacks some of them. */
const char *line_too_short(const struct line_rule *rule);
/* Makes key and element of a line's fields. field_at[i] is the text of rule->fields[i]. Returns NULL on success. */
const char *line_key(const struct line_rule *rule, const tw_key *field_at, struct line *line, char *joined);

#endif
