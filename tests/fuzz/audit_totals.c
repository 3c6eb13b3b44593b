/* audit_totals.c -- any bytes as a line of a file of totals, and as a score of a sorted set: a key is within bounds,
 * and a count is one that a counter can have.
 * Covers: sync/audit/audit.c. */
#include <stdlib.h>

#include "sync/audit/audit.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tw_key key = {"", 0};
    int64_t count = 0;
    char *line = malloc(size + 1); /* as long as it is, so that AddressSanitizer sees its end */
    if (line == NULL) abort();
    memcpy(line, data, size);
    line[size] = '\0';
    if (parse_line(line, size, &key, &count) == NULL && (key.size == 0 || key.size > size)) abort();
    memcpy(line, data, size);
    struct twi_node node = {.type = TWI_NODE_STRING, .text = line, .size = size};
    if (read_score(&node, &count) && (count > TW_DELTA_MAX || count < -TW_DELTA_MAX)) abort();
    free(line);
    return 0;
}
