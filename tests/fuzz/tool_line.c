/* tool_line.c -- any bytes as lines of any format: no data is read past their end, and what parses has a key that the
 * library takes. A reader that looks for heads only finds the same one as the parser. The first byte chooses format and
 * fields. */
#include <stdlib.h>

#include "tools/count/fields.h"

#define FORMATS 11
#define KINDS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What may be asked of each format, in the order of enum line_format: a third of the inputs each. */
static const struct fields_asked asked[FORMATS][KINDS] = {
    {{.key = "client"},
     {.key = "host,method,path", .element = "user", .where = {"status>=500"}, .where_count = 1},
     {.key = "9,1,protocol", .where = {"url~a", "7<1e3"}, .where_count = 2}},
    {{.key = "client"},
     {.key = "host,2,5", .element = "3,agent"},
     {.key = "request", .where = {"host!=x"}, .where_count = 1}},
    {{.key = "action"}, {.key = "package,5", .element = "1"}, {.key = "4", .where = {"3=install"}, .where_count = 1}},
    {{.key = NULL}, {.element = "3"}, {.where = {"delta>1", "key!~b"}, .where_count = 2}},
    {{.key = "a"},
     {.key = "a.b,c", .element = "c,d", .where = {"d.e<5", "c!~x"}, .where_count = 2},
     {.key = "a", .time = "b.t", .where = {"b.t!=1"}, .where_count = 1}},
    {{.key = "client"},
     {.key = "bucket,path", .element = "user,agent", .where = {"status>=500"}, .where_count = 1},
     {.key = "26,1", .where = {"operation~GET"}, .where_count = 1}},
    {{.key = "client"},
     {.key = "host,path", .element = "target,agent", .where = {"target_status!=200"}, .where_count = 1},
     {.key = "30,balancer,1"}},
    {{.key = "client"},
     {.key = "host,path", .element = "agent,flags", .where = {"status>=500"}, .where_count = 1},
     {.key = "20,1"}},
    {{.key = "client"},
     {.key = "backend,server,path", .element = "frontend,state", .where = {"status>=500"}, .where_count = 1},
     {.key = "6,12"}},
    {{.key = NULL},
     {.key = "c-ip,path", .element = "cs(User-Agent),user", .where = {"status>=500"}, .where_count = 1},
     {.key = "3,1"}},
    {{.key = NULL},
     {.key = "x-edge-location,path", .element = "agent,host", .where = {"sc-status>=500"}, .where_count = 1},
     {.key = "5,24"}},
};

static void check_line(const struct line_rule *rule, const struct line *line) {
    if (line->key.size < 1 || line->key.size > TW_KEY_SIZE_MAX) abort();
    if (rule->has_span && (line->unix_ms < 0 || line->unix_ms >= rule->until_ms)) abort();
    if (rule->element_count > 0 && line->element.data == NULL) abort();
    if (line->delta > TW_DELTA_MAX || line->delta < -TW_DELTA_MAX) abort();
    if (line->unix_ms < LINE_MS_MIN || line->unix_ms > LINE_MS_MAX) abort();
}

static void check_heads(const struct line_rule *rule, const struct line_head *head, const char *text, size_t size) {
    struct line_head found = {.is_known = false};
    if (!line_head_take(rule, &found, text, size)) return;
    if (found.is_known != head->is_known || found.columns != head->columns || found.date != head->date ||
        found.time != head->time || memcmp(found.column, head->column, sizeof found.column) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char joined[TW_KEY_SIZE_MAX + LINE_ELEMENT_MAX];
    static struct line_rule rules[FORMATS][KINDS];
    static bool are_made;
    for (int i = 0; i < FORMATS * KINDS && !are_made; i++) {
        struct fields_asked of_format = asked[i / KINDS][i % KINDS];
        of_format.format = (enum line_format)(i / KINDS);
        if (!fields_set(&rules[i / KINDS][i % KINDS], &of_format)) abort();
    }
    are_made = true;
    if (size == 0) return 0;
    struct line_rule *rule = &rules[data[0] % FORMATS][data[0] / FORMATS % KINDS];
    struct line_head head = {.is_known = false};
    rule->has_span = data[0] >= 128;
    rule->is_cri = data[0] >= 192;
    rule->since_ms = 0;
    rule->until_ms = 1431857103000;
    const char *text = (const char *)data + 1, *end = (const char *)data + size, *next;
    for (const char *at = text; at < end; at = next) {
        struct line line;
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        next = newline == NULL ? end : newline + 1;
        size_t line_size = (size_t)((newline == NULL ? end : newline) - at);
        if (line_parse(rule, &head, at, line_size, &line, joined) == NULL) check_line(rule, &line);
    }
    bool has_heads = rule->format == LINE_COMBINED || rule->format == LINE_W3C || rule->format == LINE_CLOUDFRONT;
    if (has_heads) check_heads(rule, &head, text, (size_t)(end - text));
    return 0;
}
