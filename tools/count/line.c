/* line.c -- which parser a line is for. See line.h. */
#include "tools/count/line.h"

#include "tools/count/line_form.h"
#include "tools/count/line_prefix.h"

/* A classic load balancer's line begins with a separate time. */
static const char *form_parse(const struct line_rule *rule, const char *text, size_t size, struct line *line,
                              char *joined) {
    size_t lead = line_prefix(text, size, rule->format != LINE_ALB);
    if (lead == size) return "empty line";
    return line_form(rule, rule->format, text + lead, size - lead, line, joined);
}

/* Several NULs mean two lines, of which one lacks its end. A single one is a byte of a text. */
static bool has_hole(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL && memmem(text, size, "\0\0\0\0", 4) != NULL;
}

static const char *combined_parse(const struct line_rule *rule, struct line_head *head, const char *text, size_t size,
                                  struct line *line, char *joined) {
    bool has_head = rule->format == LINE_COMBINED && (*text == '#' || (head != NULL && head->is_known));
    if (has_head && *text == '#') return line_w3c(rule, head, text, size, line, joined);
    if (has_hole(text, size)) return "NULs are in the line, as a hole in a file leaves them";
    if (has_head) return line_w3c(rule, head, text, size, line, joined);
    if (*text == '{') return line_object(rule, text, size, line, joined);
    if (rule->is_json_alone && !line_json_begins(text, size)) return line_no_json;
    if (rule->is_json_alone) return line_json(rule, text, size, line, joined);
    const char *wrong = line_combined(rule, text, size, line, joined);
    if (wrong == NULL || wrong == line_left_out || !rule->finds_json || !line_json_begins(text, size)) return wrong;
    return line_object(rule, text, size, line, joined);
}

static const char *parse(const struct line_rule *rule, struct line_head *head, const char *text, size_t size,
                         struct line *line, char *joined) {
    switch (rule->format) {
    case LINE_COMBINED:
    case LINE_VHOST_COMBINED: return combined_parse(rule, head, text, size, line, joined);
    case LINE_DPKG: return line_dpkg(rule, text, size, line, joined);
    case LINE_LAYOUT: return line_layout(rule, text, size, line, joined);
    case LINE_JSON: return line_json(rule, text, size, line, joined);
    case LINE_TSV: return line_tsv(rule, text, size, line);
    case LINE_W3C:
    case LINE_CLOUDFRONT: return line_w3c(rule, head, text, size, line, joined);
    default: return form_parse(rule, text, size, line, joined);
    }
}

static const char *parse_within(const struct line_rule *rule, struct line_head *head, const char *text, size_t size,
                                struct line *line, char *joined) {
    const char *wrong = parse(rule, head, text, size, line, joined);
    if (wrong != NULL) return wrong;
    return line->unix_ms >= rule->since_ms && line->unix_ms < rule->until_ms ? NULL : line_left_out;
}

const char *line_parse(const struct line_rule *rule, struct line_head *head, const char *text, size_t size,
                       struct line *line, char *joined) {
    if (size > 0 && text[size - 1] == '\r') size--;
    if (size == 0) return "empty line";
    if ((unsigned char)*text >= 0xEF || *text == '\0' || rule->is_cri || line_prefix_may_be_cri(text, size)) {
        const char *wrong = line_lead_pass(rule, &text, &size);
        if (wrong != NULL) return wrong;
    }
    return rule->has_span ? parse_within(rule, head, text, size, line, joined)
                          : parse(rule, head, text, size, line, joined);
}
