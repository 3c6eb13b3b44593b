/* fields.c -- the fields that a user names. See fields.h. */
#include "tools/count/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include "tools/common/text.h"
#include "tools/common/tool.h"

#define FIELD_NUMBER_MAX 1000
#define NAME_TAKES "names of members or columns, separated by commas, at most 16, are wanted, as status or request.uri"

/* ---- names ---- */

struct field_name {
    const char *name;
    uint16_t number;
};

/* Of all access logs. */
static const struct field_name web_names[] = {
    {"host", LINE_FIELD_HOST},         {"client", LINE_FIELD_CLIENT}, {"ident", LINE_FIELD_IDENT},
    {"user", LINE_FIELD_USER},         {"time", LINE_FIELD_TIME},     {"request", LINE_FIELD_REQUEST},
    {"method", LINE_FIELD_METHOD},     {"url", LINE_FIELD_URL},       {"path", LINE_FIELD_PATH},
    {"protocol", LINE_FIELD_PROTOCOL}, {"status", LINE_FIELD_STATUS}, {"bytes", LINE_FIELD_BYTES},
    {"referer", LINE_FIELD_REFERER},   {"agent", LINE_FIELD_AGENT},   {NULL, 0}};
static const struct field_name dpkg_names[] = {{"date", 1}, {"time", 2}, {"action", 3}, {"package", 4}, {NULL, 0}};
static const struct field_name tsv_names[] = {{"time", 1}, {"key", 2}, {"delta", 3}, {"element", 3}, {NULL, 0}};
/* Beside those of all access logs. */
static const struct field_name s3_names[] = {{"bucket", 2}, {"operation", 7}, {"object", 8}, {"error", 11}, {NULL, 0}};
static const struct field_name alb_names[] = {{"type", 1},           {"balancer", 3},      {"target", 5},
                                              {"target_status", 10}, {"target_group", 17}, {NULL, 0}};
static const struct field_name envoy_names[] = {{"flags", 4}, {NULL, 0}};
static const struct field_name haproxy_names[] = {
    {"frontend", 3}, {"backend", LINE_FIELD_BACKEND}, {"server", LINE_FIELD_SERVER}, {"state", 10}, {NULL, 0}};
static const struct field_name no_names[] = {{NULL, 0}};

static const struct field_name *names_of(enum line_format format) {
    return format == LINE_DPKG ? dpkg_names : format == LINE_TSV ? tsv_names : web_names;
}

static const struct field_name *more_names_of(enum line_format format) {
    switch (format) {
    case LINE_S3: return s3_names;
    case LINE_ALB: return alb_names;
    case LINE_ENVOY: return envoy_names;
    case LINE_HAPROXY: return haproxy_names;
    default: return no_names;
    }
}

/* Their fields have the names that the line or its file gives them. */
static bool has_own_names(enum line_format format) {
    return format == LINE_JSON || format == LINE_W3C || format == LINE_CLOUDFRONT;
}

void fields_names(const struct fields_asked *asked, char *list, size_t size) {
    enum line_format format = asked->format;
    size_t used = 0;
    if (format == LINE_LAYOUT) {
        layout_names(asked->layout, list, size);
        return;
    }
    list[0] = '\0';
    for (const struct field_name *at = names_of(format); at->name != NULL && used < size; at++)
        used += (size_t)snprintf(list + used, size - used, "%s%s", used == 0 ? "" : ", ", at->name);
    for (const struct field_name *at = more_names_of(format); at->name != NULL && used < size; at++)
        used += (size_t)snprintf(list + used, size - used, ", %s", at->name);
}

static bool name_find(const struct field_name *names, const char *text, size_t size, uint16_t *number) {
    for (; names->name != NULL; names++) {
        if (strlen(names->name) != size || memcmp(names->name, text, size) != 0) continue;
        *number = names->number;
        return true;
    }
    return false;
}

static bool number_read(const struct fields_asked *asked, const char *text, size_t size, uint16_t *number) {
    enum line_format format = asked->format;
    unsigned value = 0;
    if (format == LINE_LAYOUT) return layout_find(asked->layout, text, size, number);
    if (name_find(names_of(format), text, size, number) || name_find(more_names_of(format), text, size, number))
        return true;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = value * 10 + (unsigned)(text[i] - '0');
        if (value > FIELD_NUMBER_MAX) return false;
    }
    *number = (uint16_t)value;
    return value > 0;
}

/* ---- lists ---- */

struct list {
    uint16_t numbers[LINE_FIELDS_MAX];
    struct line_name names[LINE_FIELDS_MAX];
    struct line_network networks[LINE_FIELDS_MAX];
    size_t count;
};

/* Digits behind a slash at the end of the text, which is cut there. Returns false if there are none. */
static bool bits_take(const char *text, size_t *size, unsigned most, uint8_t *bits) {
    size_t at = *size;
    unsigned value = 0, scale = 1;
    for (; at > 0 && *size - at < 3 && text[at - 1] >= '0' && text[at - 1] <= '9'; at--, scale *= 10)
        value += scale * (unsigned)(text[at - 1] - '0');
    if (at < 2 || at == *size || text[at - 1] != '/' || value > most) return false;
    *size = at - 1;
    *bits = (uint8_t)value;
    return true;
}

/* NAME/24/64: the network of an address. Otherwise all of it is the name. */
static struct line_network network_take(const char *text, size_t *size) {
    struct line_network network = {.is_wanted = false};
    size_t left = *size;
    network.is_wanted = bits_take(text, &left, 128, &network.bits6) && bits_take(text, &left, 32, &network.bits4);
    if (network.is_wanted) *size = left;
    return network.is_wanted ? network : (struct line_network){.is_wanted = false};
}

/* A name of JSON's, where no format was named. It is no number, and so no mistake for one. */
static bool is_open_name(const struct fields_asked *asked, const char *text, size_t size, uint16_t *number) {
    size_t digits = 0;
    *number = LINE_FIELD_NAMES_END;
    while (digits < size && text[size - digits - 1] >= '0' && text[size - digits - 1] <= '9') digits++;
    bool is_network = digits > 0 && digits < size && text[size - digits - 1] == '/'; /* bits that are none */
    return asked->is_open && size > 0 && !(*text >= '0' && *text <= '9') && !is_network;
}

/* Reads N|NAME[,...]. Returns false if an item is no field, or if there are too many. */
static bool list_read(const struct fields_asked *asked, const char *text, struct list *list) {
    enum line_format format = asked->format;
    for (list->count = 0; list->count < LINE_FIELDS_MAX;) {
        size_t whole = strcspn(text, ","), size = whole;
        list->networks[list->count] = network_take(text, &size);
        if (size == 0) return false;
        list->names[list->count] = (struct line_name){text, size};
        if (!has_own_names(format) && !number_read(asked, text, size, &list->numbers[list->count]) &&
            !is_open_name(asked, text, size, &list->numbers[list->count]))
            return false;
        list->count++;
        if (text[whole] == '\0') return true;
        text += whole + 1;
    }
    return false;
}

static bool list_take(const char *option, const struct fields_asked *asked, const char *text, struct list *list) {
    char names[1000];
    enum line_format format = asked->format;
    if (text == NULL || list_read(asked, text, list)) return true;
    fields_names(asked, names, sizeof names);
    if (has_own_names(format)) {
        tool_complain("--%s '%s': " NAME_TAKES, option, text);
    } else {
        tool_complain("--%s '%s': field numbers from 1 to %d or names, separated by commas, at most %d, are wanted; the"
                      " names are: %s",
                      option, text, FIELD_NUMBER_MAX, LINE_FIELDS_MAX, names);
    }
    return false;
}

/* ---- conditions ---- */

/* Two characters before one: "<=" is not "<". */
static const struct {
    const char *text;
    enum line_relation relation;
} relations[] = {{"==", LINE_EQUAL},    {"!=", LINE_UNEQUAL}, {"<=", LINE_AT_MOST},
                 {">=", LINE_AT_LEAST}, {"!~", LINE_LACKS},   {"=", LINE_EQUAL},
                 {"<", LINE_LESS},      {">", LINE_GREATER},  {"~", LINE_CONTAINS}};

/* "=>500", "=<500", "===", "~=" are mistakes for other comparisons. The text "<none>" is valid. */
static bool is_mistaken(const struct line_condition *condition) {
    const char *text = condition->value.data;
    double number;
    if (*text == '=') return true;
    return (*text == '<' || *text == '>') && line_number_read(text + 1, strlen(text + 1), &number);
}

static bool condition_split(const char *text, size_t *name_size, struct line_condition *condition) {
    *name_size = strcspn(text, "=!<>~");
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++) {
        size_t size = strlen(relations[i].text);
        if (strncmp(text + *name_size, relations[i].text, size) != 0) continue;
        condition->relation = relations[i].relation;
        condition->value = tw_str(text + *name_size + size);
        return *name_size > 0 && !is_mistaken(condition);
    }
    return false;
}

static bool condition_take(struct line_rule *rule, const struct fields_asked *asked, const char *text) {
    struct line_condition condition = {0};
    char names[1000];
    size_t size;
    uint16_t number = 0;
    if (!condition_split(text, &size, &condition)) {
        tool_complain("--where '%s': FIELD, one of = != < <= > >= ~ (contains) !~, and a value are wanted, as "
                      "'status>=500'",
                      text);
        return false;
    }
    if (!has_own_names(rule->format) &&
        ((!number_read(asked, text, size, &number) && !is_open_name(asked, text, size, &number)) ||
         (rule->format == LINE_TSV && number > 3))) {
        fields_names(asked, names, sizeof names);
        tool_complain("--where '%s': there is no field %.*s; a number is wanted, or one of: %s", text, (int)size, text,
                      names);
        return false;
    }
    uint64_t whole;
    condition.has_number = line_number_read(condition.value.data, condition.value.size, &condition.number);
    if (!condition.has_number && text_number(condition.value.data, 0, UINT64_MAX, &whole)) { /* 64K */
        condition.has_number = true;
        condition.number = (double)whole;
    }
    bool is_order = condition.relation >= LINE_LESS && condition.relation <= LINE_AT_LEAST;
    if (is_order && !condition.has_number) {
        tool_complain("--where '%s': <, <=, > and >= compare numbers, and '%s' is none", text,
                      (const char *)condition.value.data);
        return false;
    }
    line_rule_add_condition(rule, number, (struct line_name){text, size}, &condition);
    return true;
}

static bool sum_take(struct line_rule *rule, const struct fields_asked *asked) {
    struct list list = {.count = 0};
    if (asked->sum == NULL) return true;
    if (!list_take("sum", asked, asked->sum, &list)) return false;
    bool is_one = list.count == 1 && !list.networks[0].is_wanted;
    if (is_one) line_rule_set_sum(rule, list.numbers[0], list.names[0]);
    if (!is_one) tool_complain("--sum '%s': one field is wanted, as bytes", asked->sum);
    return is_one;
}

/* ---- all ---- */

static bool is_sound(const struct fields_asked *asked, const struct list *element) {
    if (asked->format == LINE_LAYOUT && asked->key == NULL && layout_place(asked->layout, LINE_FIELD_CLIENT) == 0) {
        tool_complain("--log-format: no field in it is the client; --key NAME is wanted");
    } else if (asked->format == LINE_TSV && asked->key != NULL) {
        tool_complain("--key goes with the other formats; in tsv the second field is the key");
    } else if (asked->format == LINE_TSV && asked->sum != NULL) {
        tool_complain("--sum goes with the other formats; in tsv the third field is summed as it is");
    } else if (asked->format == LINE_TSV && element->count > 0 && (element->count > 1 || element->numbers[0] != 3)) {
        tool_complain("--distinct: in tsv the third field is the one: --distinct 3");
    } else if (asked->format == LINE_JSON && asked->key == NULL) {
        tool_complain("--format json: --key is wanted, a member's name, as --key status or --key request.uri");
    } else if (asked->format != LINE_JSON && !asked->is_open && asked->time != NULL) {
        tool_complain("--time goes with --format json; the other formats have their time in one place");
    } else {
        return true;
    }
    return false;
}

bool fields_set(struct line_rule *rule, const struct fields_asked *asked) {
    struct list key = {.count = 0}, element = {.count = 0};
    if (!list_take("key", asked, asked->format == LINE_TSV ? NULL : asked->key, &key) ||
        !list_take("distinct", asked, asked->element, &element) || !is_sound(asked, &element))
        return false;
    line_rule_set(rule, asked->format, key.numbers, key.count);
    line_rule_set_element(rule, element.numbers, element.count);
    for (size_t i = 0; i < key.count; i++) line_rule_set_network(rule, i, key.networks[i]);
    for (size_t i = 0; i < element.count; i++) line_rule_set_network(rule, rule->field_count + i, element.networks[i]);
    rule->finds_json = asked->is_open;
    if (has_own_names(asked->format) || asked->is_open) {
        memcpy(rule->names, key.names, key.count * sizeof *key.names);
        memcpy(rule->names + rule->field_count, element.names, element.count * sizeof *element.names);
        if (asked->time != NULL) rule->time_name = (struct line_name){asked->time, strlen(asked->time)};
    }
    for (size_t i = 0; i < asked->where_count; i++)
        if (!condition_take(rule, asked, asked->where[i])) return false;
    if (!sum_take(rule, asked)) return false;
    rule->layout = asked->layout;
    for (size_t i = 0; asked->format == LINE_LAYOUT && i < line_field_count(rule); i++)
        rule->places[i] = layout_place(asked->layout, rule->fields[i]);
    rule->is_json_alone = asked->is_open && asked->time != NULL;
    for (size_t i = 0; asked->is_open && i < line_field_count(rule); i++)
        if (rule->fields[i] == LINE_FIELD_NAMES_END) rule->is_json_alone = true;
    return true;
}
