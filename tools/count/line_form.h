/* line_form.h -- parses words, hosts and parts of a request for all readers of access logs, and the formats whose
 * fields have fixed places.
 * Always true: a text counts as a client, a status or a request only if it looks like one. */
#ifndef TOOL_LINE_FORM_H
#define TOOL_LINE_FORM_H

#include "tools/count/line_rule.h"

/* One field of a line whose fields are separated by spaces. It has its text without its marks, and the place where the
 * next one may begin. A field that begins with a quote ends at the next quote without a backslash before it. A field
 * that begins with a bracket ends at the next closing one. Escapes stay as they are. */
struct line_word {
    tw_key text;
    const char *next;
    char mark; /* '"', '[', or 0 */
};

/* Returns NULL on success. `at` is not a space and lies before `end`. */
const char *line_word_read(const char *at, const char *end, struct line_word *word);
/* Returns the quote that ends the text; `at` is behind the one that begins it. Returns NULL if it has none. */
const char *line_quote_end(const char *at, const char *end);

/* Finds the text of `log` in an object of Docker's: {"log":"...","stream":"stdout","time":"..."}, in any order. */
bool line_json_docker(const char *text, size_t size, tw_key *log);
/* Returns whether an object begins here, perhaps behind a prefix. */
bool line_json_begins(const char *text, size_t size);
/* Writes the text of JSON at `at` without its escapes, which is never longer. Returns its size; SIZE_MAX means that an
 * escape is wrong. */
size_t line_json_text(const char *at, size_t text_size, char *to);

/* Letters, digits and the other characters of addresses, as in 10.0.0.1, 2001:db8::1, web_1.example, [::1]:80, unix: */
bool line_is_host(tw_key text);
/* An address, perhaps with its port. */
bool line_is_address(tw_key text);
/* Without ":443" at its end. An address without a port stays whole. */
tw_key line_without_port(tw_key text);
/* A whole number, or "-" if there is none. */
bool line_is_number(tw_key text);
/* Three digits, or -, -1 or 0 for a request that got no answer. */
bool line_is_status(tw_key text);

/* The whole or a part of a request. `field` is one of LINE_FIELD_METHOD, _URL, _PATH, _PROTOCOL and _REQUEST. */
tw_key line_request_part(tw_key request, uint16_t field);

/* A field of a rule. A rule of combined lines may also use numbers, which mean fields with names.
 * LINE_FIELD_NAMES_END means that only combined lines have the field. */
uint16_t line_field_meant(const struct line_rule *rule, uint16_t field);
/* Returns the error of a field that was requested by its name; NULL if there is none. */
const char *line_named_check(uint16_t field, const struct line_word *word);

typedef const char *line_reader(const struct line_rule *rule, const char *text, size_t size, struct line *line,
                                char *joined);
/* The line within one of Docker's log files, by `read`. Returns line_not_docker if it is none of them. */
const char *line_docker(line_reader *read, const struct line_rule *rule, const char *text, size_t size,
                        struct line *line, char *joined);
extern const char line_not_docker[];
/* A combined line, or one of JSON, within one of Docker's log files; or a JSON object, if the rule finds these. */
const char *line_object(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);

/* LINE_COMBINED means that the line has no other known format. */
enum line_format line_form_of(const char *text, size_t size);
/* A line of LINE_S3, LINE_ALB, LINE_ENVOY or LINE_HAPROXY. The rule may be of LINE_COMBINED. Then its fields
 * are those that have names there. */
const char *line_form(const struct line_rule *rule, enum line_format format, const char *text, size_t size,
                      struct line *line, char *joined);

/* The other formats, each in a file of its name. */
const char *line_combined(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);
const char *line_layout(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);
const char *line_dpkg(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);
const char *line_tsv(const struct line_rule *rule, const char *text, size_t size, struct line *line);
const char *line_json(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined);
const char *line_w3c(const struct line_rule *rule, struct line_head *head, const char *text, size_t size,
                     struct line *line, char *joined);

#endif
