/* limits_table.c -- turns a file's text into a table, and finds the rule of a key. See limits.h.
 * Always true: the result does not depend on the order of the lines, because no two lines have the same family and
 * key. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "engine/base/grow.h"
#include "engine/base/why.h"
#include "extras/limits.h"

tw_status twi_limits_complain(const struct twi_limits_error *error, uint32_t line, const char *format, ...) {
    char what[400], where[16] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (line > 0) snprintf(where, sizeof where, ":%u", line);
    if (error->text != NULL && error->size != 0)
        snprintf(error->text, error->size, "%s%s: %s", error->path, where, what);
    return twi_refuse_with(TW_ERR_OPTIONS, "%s%s: %s", error->path, where, what);
}

void twi_limits_table_free(struct twi_limits_table *table) {
    if (table == NULL) return;
    free(table->text);
    free(table->rules);
    free(table->names);
    free(table->budgets);
    free(table->places);
    free(table);
}

/* ---- order ---- */

static int key_order(const struct twi_limits_rule *rule, const void *key, size_t size) {
    int order = memcmp(rule->key, key, rule->key_size < size ? rule->key_size : size);
    return order != 0 ? order : (rule->key_size > size) - (rule->key_size < size);
}

/* A pattern sorts before the key of the same bytes. So of two matches, the later one is the closer. */
static int rule_order(const void *left, const void *right) {
    const struct twi_limits_rule *a = left, *b = right;
    int order = strcmp(a->family, b->family);
    if (order == 0) order = key_order(a, b->key, b->key_size);
    if (order == 0) order = (int)b->is_prefix - (int)a->is_prefix;
    return order;
}

static bool rule_matches(const struct twi_limits_rule *rule, const void *key, size_t size) {
    if (rule->is_prefix ? rule->key_size > size : rule->key_size != size) return false;
    return memcmp(rule->key, key, rule->key_size) == 0;
}

/* ---- finding ---- */

const struct twi_limits_name *twi_limits_name_find(const struct twi_limits_table *table, const char *family) {
    uint32_t low = 0, high = table->name_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(table->names[middle].family, family);
        if (order == 0) return &table->names[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* Every pattern that is a prefix of `key` is also a prefix of the last rule not after `key`. So it is an ancestor of
 * that rule. */
const struct twi_limits_rule *twi_limits_rule_find(const struct twi_limits_table *table,
                                                   const struct twi_limits_name *name, tw_key key) {
    uint32_t low = name->first, high = name->first + name->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (key_order(&table->rules[middle], key.data, key.size) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    uint32_t at = low == name->first ? TWI_LIMITS_NONE : low - 1;
    while (at != TWI_LIMITS_NONE && !rule_matches(&table->rules[at], key.data, key.size)) at = table->rules[at].parent;
    return at == TWI_LIMITS_NONE ? NULL : &table->rules[at];
}

/* ---- building ---- */

struct build {
    struct twi_limits_table *table;
    const struct twi_limits_error *error;
    uint32_t rule_room, budget_room;
};

#define ROOM_FIRST 16u

/* Writes the name of the budget: "login" and 60000 give "login.1m". The unit is the largest that divides the window. */
static void budget_name(char name[65], const struct twi_limits_line *line) {
    static const struct {
        int64_t ms;
        char letter;
    } units[] = {{TW_DAY, 'd'}, {TW_HOUR, 'h'}, {TW_MINUTE, 'm'}, {TW_SECOND, 's'}};
    size_t unit = 0;
    while (line->policy.window_ms % units[unit].ms != 0) unit++;
    snprintf(name, 65, "%s.%lld%c", line->family, (long long)(line->policy.window_ms / units[unit].ms),
             units[unit].letter);
}

static const char *policy_difference(const struct twi_limits_policy *a, const struct twi_limits_policy *b) {
    if (a->window != b->window) return "from-first";
    if (a->mode != b->mode) return "mode";
    if (a->shape != b->shape) return "shape";
    if (a->burst != b->burst) return "burst";
    if (a->sub_windows != b->sub_windows) return "sub-windows";
    if (a->outage != b->outage) return "outage";
    if (a->busy != b->busy) return "busy";
    return a->shadow != b->shadow ? "shadow" : NULL;
}

/* Finds or makes the budget of the line's family and window. All lines of a budget must state the same policy. */
static tw_status budget_of(struct build *build, const struct twi_limits_line *line, uint32_t number, uint32_t *index) {
    struct twi_limits_table *table = build->table;
    char name[65];
    if (line->limit == TW_UNBOUNDED) {
        *index = TWI_LIMITS_NONE;
        return TW_OK;
    }
    budget_name(name, line);
    for (*index = 0; *index < table->budget_count; ++*index) {
        const struct twi_limits_budget *budget = &table->budgets[*index];
        if (strcmp(budget->name, name) != 0) continue;
        const char *word = policy_difference(&budget->policy, &line->policy);
        if (word == NULL) return TW_OK;
        return twi_limits_complain(build->error, number, "%s: differs from line %u: a family and window has one %s",
                                   name, budget->line, word);
    }
    if (table->budget_count == TWI_LIMITS_BUDGETS_MAX)
        return twi_limits_complain(build->error, number, "more than %u families and windows", TWI_LIMITS_BUDGETS_MAX);
    if (!twi_grow(&table->budgets, sizeof *table->budgets, &build->budget_room, table->budget_count + 1, ROOM_FIRST))
        return TW_ERR_MEMORY;
    struct twi_limits_budget *budget = &table->budgets[table->budget_count++];
    *budget = (struct twi_limits_budget){.line = number, .policy = line->policy};
    strcpy(budget->name, name);
    return TW_OK;
}

static tw_status add_line(struct build *build, char *text, size_t size, uint32_t number) {
    struct twi_limits_table *table = build->table;
    struct twi_limits_line line;
    char what[300];
    int answer = twi_limits_line_read(text, size, &line, what, sizeof what);
    if (answer == TWI_LIMITS_EMPTY) return TW_OK;
    if (answer == TWI_LIMITS_BAD) return twi_limits_complain(build->error, number, "%s", what);
    if (table->rule_count == TWI_LIMITS_RULES_MAX)
        return twi_limits_complain(build->error, number, "more than %u limits", TWI_LIMITS_RULES_MAX);
    if (!twi_grow(&table->rules, sizeof *table->rules, &build->rule_room, table->rule_count + 1, ROOM_FIRST))
        return TW_ERR_MEMORY;
    struct twi_limits_rule *rule = &table->rules[table->rule_count];
    *rule = (struct twi_limits_rule){.family = line.family,
                                     .key = line.key,
                                     .key_size = line.key_size,
                                     .is_prefix = line.is_prefix,
                                     .line = number,
                                     .limit = line.limit};
    tw_status status = budget_of(build, &line, number, &rule->budget);
    if (status == TW_OK) table->rule_count++;
    return status;
}

static tw_status add_lines(struct build *build, char *text, size_t size) {
    uint32_t number = 0;
    for (size_t at = 0; at < size;) {
        char *end = memchr(text + at, '\n', size - at);
        number++;
        if (end == NULL)
            return twi_limits_complain(build->error, number, "the last line has no end: is the file whole?");
        tw_status status = add_line(build, text + at, (size_t)(end - (text + at)), number);
        if (status != TW_OK) return status;
        at = (size_t)(end - text) + 1;
    }
    if (build->table->rule_count > 0) return TW_OK;
    return twi_limits_complain(build->error, 0, "it has no line with a limit");
}

/* Runs after sorting. Finds duplicates, sets each rule's parent, and notes where each family begins. */
static tw_status link_rules(struct build *build) {
    struct twi_limits_table *table = build->table;
    uint32_t name_room = 0;
    for (uint32_t i = 0; i < table->rule_count; i++) {
        struct twi_limits_rule *rule = &table->rules[i];
        bool is_first = i == 0 || strcmp(rule[-1].family, rule->family) != 0;
        rule->parent = is_first ? TWI_LIMITS_NONE : i - 1;
        if (is_first) {
            if (!twi_grow(&table->names, sizeof *table->names, &name_room, table->name_count + 1, ROOM_FIRST))
                return TW_ERR_MEMORY;
            table->names[table->name_count++] = (struct twi_limits_name){.family = rule->family, .first = i};
        } else if (rule_order(rule - 1, rule) == 0) {
            uint32_t other = rule[-1].line, later = other > rule->line ? other : rule->line;
            return twi_limits_complain(build->error, later, "the same family and key as on line %u",
                                       other < rule->line ? other : rule->line);
        }
        table->names[table->name_count - 1].count++;
        while (rule->parent != TWI_LIMITS_NONE) {
            const struct twi_limits_rule *up = &table->rules[rule->parent];
            if (up->is_prefix && rule_matches(up, rule->key, rule->key_size)) break;
            rule->parent = up->parent;
        }
    }
    return TW_OK;
}

tw_status twi_limits_build(char *text, size_t size, const struct twi_limits_error *error,
                           struct twi_limits_table **table) {
    struct build build = {.table = calloc(1, sizeof *build.table), .error = error};
    if (build.table == NULL) {
        free(text);
        return TW_ERR_MEMORY;
    }
    build.table->text = text;
    tw_status status = add_lines(&build, text, size);
    if (status == TW_OK && build.table->rules != NULL) {
        qsort(build.table->rules, build.table->rule_count, sizeof *build.table->rules, rule_order);
        status = link_rules(&build);
    }
    if (status == TW_OK) {
        *table = build.table;
    } else {
        twi_limits_table_free(build.table);
    }
    return status;
}
