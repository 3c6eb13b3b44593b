/* tool_line.c -- any bytes as a line of any format: nothing is read past their end, and what parses has a key that the
 * library takes. The first byte chooses format and fields. */
#include <stdlib.h>

#include "line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char joined[TW_KEY_SIZE_MAX + LINE_ELEMENT_MAX];
    struct line_rule rule = {.utc_offset_ms = 0};
    struct line line;
    if (size == 0) return 0;
    enum line_format format = (enum line_format)(data[0] % 4);
    uint16_t fields[2] = {(uint16_t)(data[0] / 4 % 11), (uint16_t)(1 + data[0] / 30)};
    if (format == LINE_DPKG && fields[0] == LINE_FIELD_HOST) fields[0] = 1; /* plan.c refuses it */
    line_rule_set(&rule, format, fields, format == LINE_TSV ? 0 : data[0] % 2 + 1);
    bool is_distinct = data[0] >= 200;
    if (is_distinct) line_rule_set_element(&rule, fields, format == LINE_TSV ? 1 : 1 + data[0] / 2 % 2);
    if (line_parse(&rule, (const char *)data + 1, size - 1, &line, joined) != NULL) return 0;
    if (line.key.size < 1 || line.key.size > TW_KEY_SIZE_MAX || line.unix_ms % 1000 != 0) abort();
    if (is_distinct && line.element.data == NULL) abort();
    if (line.delta > TW_DELTA_MAX || line.delta < -TW_DELTA_MAX) abort();
    return 0;
}
