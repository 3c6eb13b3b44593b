/* line_rule.h -- the rule by which a line of a log is read, and the common parts of all formats: fields, key, element,
 * conditions, times.
 *
 * A rule may also name fields that make an element, whose different values are counted for each key (--distinct). It
 * may have conditions (--where) and a span of time (--since, --until). A line that does not meet them is left out.
 *
 * Always true: the functions read only the given bytes (NUL is a byte like any other), allocate nothing, use no locale
 * and no time zone. Any number of threads may use them. */
#ifndef TOOL_LINE_RULE_H
#define TOOL_LINE_RULE_H

#include "tallywheel.h"

#define LINE_FIELDS_MAX 16
#define LINE_ELEMENT_MAX 8192 /* bytes of an element that is joined from several fields */
#define LINE_WHERE_MAX 8
/* The moments that the library counts: 1000-01-01T00:00:00Z to 9998-12-31T23:59:59.999Z. */
#define LINE_MS_MIN INT64_C(-30610224000000)
#define LINE_MS_MAX INT64_C(253370764799999)
#define LINE_FIELDS_ALL (2 * LINE_FIELDS_MAX + LINE_WHERE_MAX + 1)

/* In the order of --format's words. LINE_COMBINED also reads each line that it recognises as one of another format of
 * access logs, with a virtual host in front, of S3, of a load balancer, of Envoy, of HAProxy, or below a head of
 * W3C. */
enum line_format {
    LINE_COMBINED,
    LINE_VHOST_COMBINED,
    LINE_DPKG,
    LINE_TSV,
    LINE_JSON,
    LINE_S3,
    LINE_ALB,
    LINE_ENVOY,
    LINE_HAPROXY,
    LINE_W3C,
    LINE_CLOUDFRONT,
    LINE_LAYOUT /* of --log-format; no word of --format */
};

/* Fields of access logs that have a name. A name means the same in each of these formats; a number is a place in the
 * line. The value of a name is also checked. A client is a host, a status is a number. A request has parts. GET /a?b
 * HTTP/1.1 has the path /a and the URL /a?b. A request that has no such form is all of it URL and path. */
enum {
    LINE_FIELD_HOST = 0, /* the virtual host; in combined lines at the start, and not counted as a field */
    LINE_FIELD_METHOD = 2001,
    LINE_FIELD_URL,
    LINE_FIELD_PATH,
    LINE_FIELD_PROTOCOL,
    LINE_FIELD_CLIENT,
    LINE_FIELD_IDENT,
    LINE_FIELD_USER,
    LINE_FIELD_TIME,
    LINE_FIELD_REQUEST,
    LINE_FIELD_STATUS,
    LINE_FIELD_BYTES,
    LINE_FIELD_REFERER,
    LINE_FIELD_AGENT,
    LINE_FIELD_BACKEND, /* HAProxy */
    LINE_FIELD_SERVER,
    LINE_FIELD_NAMES_END
};
#define LINE_NAMES (LINE_FIELD_NAMES_END - LINE_FIELD_METHOD)

/* The comparison between the field and the value of a condition. The comparisons of numbers lie between LINE_LESS and
 * LINE_AT_LEAST. */
enum line_relation {
    LINE_EQUAL,
    LINE_UNEQUAL,
    LINE_LESS,
    LINE_AT_MOST,
    LINE_GREATER,
    LINE_AT_LEAST,
    LINE_CONTAINS,
    LINE_LACKS
};

struct line_condition {
    enum line_relation relation;
    bool has_number;
    double number; /* of the value */
    tw_key value;
};

/* A member of a JSON object; with a path before it, as request.uri. */
struct line_name {
    const char *text;
    size_t size;
};

struct line_layout; /* layout.h */

/* A field in whose place the network of its address is used. All zero if it is used as it is. */
struct line_network {
    bool is_wanted;
    uint8_t bits4, bits6; /* of an address of IPv4, and of IPv6 */
};

/* How to read lines. */
struct line_rule {
    enum line_format format;
    bool is_cri;           /* each line begins as those of Kubernetes's log files; otherwise some may */
    int64_t utc_offset_ms; /* for times without an offset */
    /* The key's, then the element's, then those of the conditions, counted from 1, in the order of joining. */
    uint16_t fields[LINE_FIELDS_ALL];
    uint16_t places[LINE_FIELDS_ALL]; /* of them in a combined line */
    uint16_t field_count;             /* of the key; 0 in tsv */
    uint16_t element_count;           /* of the element; 0 if the rule has no element */
    uint16_t where_count;
    uint16_t sum_count;  /* of the field that is summed, which is behind the conditions': 0 or 1 */
    uint16_t field_last; /* the greatest of their places; the fields after it are not read */
    bool finds_json;     /* in combined lines: no format was named, so a JSON object is read by `names` */
    bool is_json_alone;  /* then some name is of no access log; names[0].size is 0 if no key was named */
    bool has_lead;       /* in combined lines, some of them are before the time */
    bool has_span;       /* only moments in [since, until) count */
    int64_t since_ms, until_ms;
    struct line_condition where[LINE_WHERE_MAX];
    bool has_network; /* some field of key or element has one */
    struct line_network network[2 * LINE_FIELDS_MAX];
    struct line_name names[LINE_FIELDS_ALL]; /* for JSON and W3C, in place of `fields` */
    const struct line_layout *layout;        /* for LINE_LAYOUT; `places` are numbers of its fields */
    struct line_name time_name;              /* for JSON; size is 0 for the usual names */
};

/* The fields of a line. Key and element point into the line, or into `joined` if they have several fields. */
struct line {
    int64_t unix_ms;
    int64_t delta; /* 1 with an element */
    int64_t sum;   /* of the field that is summed; 0 if there is none */
    tw_key key;
    tw_key element;
};

/* The columns of a file, as its lines that begin with # have described them so far. All zero if there were no such
 * lines. */
struct line_head {
    bool is_known;
    uint16_t columns;                 /* how many a line has */
    uint16_t date, time;              /* their columns, counted from 1; 0 if there is none. `time` alone has both. */
    uint16_t column[LINE_FIELDS_ALL]; /* of the rule's fields; 0 if there is none */
};

/* Sets the key's fields. If count is 0, it is the format's default key. The rule then has no element. */
void line_rule_set(struct line_rule *rule, enum line_format format, const uint16_t *fields, size_t count);
/* Sets the element's fields, after line_rule_set(). In tsv the element is the third field, whatever is in `fields`. */
void line_rule_set_element(struct line_rule *rule, const uint16_t *fields, size_t count);

/* Adds a condition on a field, after those two. `name` counts for JSON and W3C, `field` for the others. */
void line_rule_add_condition(struct line_rule *rule, uint16_t field, struct line_name name,
                             const struct line_condition *condition);

/* Sets the field that is summed, after all others. */
void line_rule_set_sum(struct line_rule *rule, uint16_t field, struct line_name name);

/* Of a line that is no JSON, where the names are of JSON alone. */
extern const char line_no_json[];
/* What line_parse() returns, this very pointer, of a line that could be read and shall not count. */
extern const char line_left_out[];

/* Civil time to Unix seconds in the proleptic Gregorian calendar, arguments in range (month 1..12, day 1..31). */
int64_t line_unix_s(int64_t year, unsigned month, unsigned day, unsigned hour, unsigned minute, unsigned second);
/* Returns true if the calendar has this day. */
bool line_date_is_valid(unsigned year, unsigned month, unsigned day);
/* Reads a time of a web server's log; one of ISO 8601; one of these or Unix time, of any size (line_time.c). */
bool line_time_web(const char *text, size_t size, int64_t *unix_ms);
/* HAProxy's, which has milliseconds and no offset: 17/May/2015:10:05:03.655. */
bool line_time_proxy(const char *text, size_t size, int64_t utc_offset_ms, int64_t *unix_ms);
/* Reads a time of day alone: 10:05:03.123, milliseconds since midnight. */
bool line_time_of_day(const char *text, size_t size, int64_t *ms);
bool line_time_iso(const char *text, size_t size, int64_t utc_offset_ms, int64_t *unix_ms);
bool line_time_read(const char *text, size_t size, int64_t utc_offset_ms, int64_t *unix_ms);

/* Reads `count` digits (1..9); returns -1 if one of them is no digit. */
static inline int line_digits(const char *text, unsigned count) {
    int value = 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned digit = (unsigned)(unsigned char)text[i] - '0';
        if (digit > 9) return -1;
        value = value * 10 + (int)digit;
    }
    return value;
}

/* An address without its port, and without the brackets that it may need then (line_word.c). */
tw_key line_bare_address(tw_key text);
/* Reads a whole number within TW_DELTA_MAX, all of the text; "-" and no text are 0. */
bool line_whole_read(const char *text, size_t size, int64_t *number);
/* Reads a decimal number, all of the text. */
bool line_number_read(const char *text, size_t size, double *number);
/* field_at[i] is the text of the condition's i-th field. */
bool line_where_holds(const struct line_rule *rule, const tw_key *field_at);

/* Returns whether the library can count this moment. Otherwise returns the error of the line. */
static inline bool line_time_counts(int64_t unix_ms) {
    return (uint64_t)unix_ms - (uint64_t)LINE_MS_MIN <= LINE_MS_MAX - LINE_MS_MIN;
}
extern const char line_time_uncounted[];

/* Returns how many fields of a line the rule needs, for the key, the element, the conditions and the sum. */
static inline size_t line_field_count(const struct line_rule *rule) {
    return (size_t)rule->field_count + rule->element_count + rule->where_count + rule->sum_count;
}
/* Sets the network of a field of the key or the element, by its place in the order of joining. */
void line_rule_set_network(struct line_rule *rule, size_t index, struct line_network network);
/* The error of a line that lacks some of them. */
const char *line_too_short(const struct line_rule *rule);
/* Makes key and element of a line's fields, if its time counts and it meets the conditions. field_at[i] is the text of
 * rule->fields[i]. Returns NULL on success. */
const char *line_key(const struct line_rule *rule, const tw_key *field_at, struct line *line, char *joined);

#endif
