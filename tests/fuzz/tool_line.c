/* tool_line.c -- any bytes as a line of any format: nothing is read past their end, and what parses has a key that the
 * library takes. The first byte chooses format and fields. */
#include <stdlib.h>

#include "fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What may be asked of each format, in the order of enum line_format: a third of the inputs each. */
static const struct fields_asked asked[][3] = {
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
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char joined[TW_KEY_SIZE_MAX + LINE_ELEMENT_MAX];
    static struct line_rule rules[5][3];
    static bool are_made;
    for (int i = 0; i < 15 && !are_made; i++) {
        struct fields_asked of_format = asked[i / 3][i % 3];
        of_format.format = (enum line_format)(i / 3);
        if (!fields_set(&rules[i / 3][i % 3], &of_format)) abort();
    }
    are_made = true;
    struct line line;
    if (size == 0) return 0;
    struct line_rule *rule = &rules[data[0] % 5][data[0] / 5 % 3];
    rule->has_span = data[0] >= 128;
    rule->since_ms = 0;
    rule->until_ms = 1431857103000;
    if (line_parse(rule, (const char *)data + 1, size - 1, &line, joined) != NULL) return 0;
    if (line.key.size < 1 || line.key.size > TW_KEY_SIZE_MAX) abort();
    if (rule->has_span && (line.unix_ms < 0 || line.unix_ms >= rule->until_ms)) abort();
    if (rule->element_count > 0 && line.element.data == NULL) abort();
    if (line.delta > TW_DELTA_MAX || line.delta < -TW_DELTA_MAX) abort();
    return 0;
}
