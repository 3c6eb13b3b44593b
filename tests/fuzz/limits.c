/* limits.c -- any text as a limits file: no data is read past its end, an error names file and line, and in a table
 * that was accepted each key finds the rule that a search through all of them finds. Keys are pieces of the text
 * itself. */
#include <stdio.h>
#include <stdlib.h>

#include "extras/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct twi_limits_rule *find_slowly(const struct twi_limits_table *table, const char *family, tw_key key) {
    const struct twi_limits_rule *best = NULL;
    for (uint32_t i = 0; i < table->rule_count; i++) {
        const struct twi_limits_rule *rule = &table->rules[i];
        if (strcmp(rule->family, family) != 0 || rule->key_size > key.size) continue;
        if (!rule->is_prefix && rule->key_size != key.size) continue;
        if (memcmp(rule->key, key.data, rule->key_size) != 0) continue;
        if (best == NULL || rule->key_size > best->key_size || !rule->is_prefix) best = rule;
    }
    return best;
}

static void check_table(const struct twi_limits_table *table, const uint8_t *data, size_t size) {
    for (uint32_t i = 0; i < table->name_count && i < 4; i++) {
        for (size_t at = 0; at + 1 < size && at < 200; at++) {
            size_t room = size - at, piece = 1 + data[at] % (room < 9 ? room : 9);
            tw_key key = tw_bytes(data + at, piece);
            const struct twi_limits_name *name = twi_limits_name_find(table, table->names[i].family);
            if (name != &table->names[i]) abort();
            if (twi_limits_rule_find(table, name, key) != find_slowly(table, name->family, key)) abort();
        }
    }
    for (uint32_t i = 0; i < table->rule_count; i++) {
        const struct twi_limits_rule *rule = &table->rules[i];
        bool is_unlimited = rule->budget == TWI_LIMITS_NONE;
        if (is_unlimited != (rule->limit == TW_UNBOUNDED) || rule->limit < 0 || rule->line == 0) abort();
        if (!is_unlimited && rule->budget >= table->budget_count) abort();
        if (rule->key_size > TW_KEY_SIZE_MAX || strlen(rule->family) > TWI_LIMITS_NAME_BYTES_MAX) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char what[200] = "";
    struct twi_limits_error error = {"limits", what, sizeof what};
    struct twi_limits_table *table = NULL;
    char *text = malloc(size + 1); /* as long as it is, so that AddressSanitizer sees its end */
    if (text == NULL) return 0;
    memcpy(text, data, size);
    char *fitting = realloc(text, size > 0 ? size : 1);
    tw_status status = twi_limits_build(fitting != NULL ? fitting : text, size, &error, &table);
    if (status == TW_OK) {
        if (table->rule_count == 0 || what[0] != '\0') abort();
        check_table(table, data, size);
        twi_limits_table_free(table);
    } else if (status != TW_ERR_OPTIONS || table != NULL || strncmp(what, "limits:", 7) != 0) {
        abort();
    }
    return 0;
}
