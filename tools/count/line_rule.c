/* line_rule.c -- the fields that a rule names, and their use. See line_rule.h. */
#include "tools/count/line_rule.h"

const char line_no_json[] = "not a JSON object, and access logs have no field of a name that was given";
const char line_time_uncounted[] = "its time is not in the years 1000 to 9998";

/* Where a field that has a name lies in a combined line. */
static uint16_t combined_place(uint16_t field) {
    static const uint8_t places[LINE_NAMES] = {[0] = 5 /* the method */,
                                               [LINE_FIELD_URL - LINE_FIELD_METHOD] = 5,
                                               [LINE_FIELD_PATH - LINE_FIELD_METHOD] = 5,
                                               [LINE_FIELD_PROTOCOL - LINE_FIELD_METHOD] = 5,
                                               [LINE_FIELD_CLIENT - LINE_FIELD_METHOD] = 1,
                                               [LINE_FIELD_IDENT - LINE_FIELD_METHOD] = 2,
                                               [LINE_FIELD_USER - LINE_FIELD_METHOD] = 3,
                                               [LINE_FIELD_TIME - LINE_FIELD_METHOD] = 4,
                                               [LINE_FIELD_REQUEST - LINE_FIELD_METHOD] = 5,
                                               [LINE_FIELD_STATUS - LINE_FIELD_METHOD] = 6,
                                               [LINE_FIELD_BYTES - LINE_FIELD_METHOD] = 7,
                                               [LINE_FIELD_REFERER - LINE_FIELD_METHOD] = 8,
                                               [LINE_FIELD_AGENT - LINE_FIELD_METHOD] = 9};
    if (field >= LINE_FIELD_BACKEND) return 5; /* of other formats alone */
    return field < LINE_FIELD_METHOD ? field : places[field - LINE_FIELD_METHOD];
}

static void add_field(struct line_rule *rule, uint16_t field) {
    uint16_t place = combined_place(field);
    rule->fields[line_field_count(rule)] = field;
    rule->places[line_field_count(rule)] = place;
    rule->has_lead = rule->has_lead || place < 4;
    if (place > rule->field_last) rule->field_last = place;
}

void line_rule_set(struct line_rule *rule, enum line_format format, const uint16_t *fields, size_t count) {
    static const uint16_t client = LINE_FIELD_CLIENT, action = 3;
    if (count == 0 && format != LINE_TSV && format != LINE_JSON) {
        fields = format == LINE_DPKG ? &action : &client;
        count = 1;
    }
    rule->format = format;
    rule->field_count = rule->element_count = rule->where_count = rule->sum_count = rule->field_last = 0;
    rule->has_lead = rule->is_json_alone = rule->has_network = false;
    memset(rule->network, 0, sizeof rule->network);
    for (; rule->field_count < count; rule->field_count++) add_field(rule, fields[rule->field_count]);
}

void line_rule_set_element(struct line_rule *rule, const uint16_t *fields, size_t count) {
    for (; rule->element_count < count; rule->element_count++) add_field(rule, fields[rule->element_count]);
}

void line_rule_add_condition(struct line_rule *rule, uint16_t field, struct line_name name,
                             const struct line_condition *condition) {
    rule->names[line_field_count(rule)] = name;
    add_field(rule, field);
    rule->where[rule->where_count++] = *condition;
}

void line_rule_set_network(struct line_rule *rule, size_t index, struct line_network network) {
    rule->network[index] = network;
    rule->has_network = rule->has_network || network.is_wanted;
}

void line_rule_set_sum(struct line_rule *rule, uint16_t field, struct line_name name) {
    rule->names[line_field_count(rule)] = name;
    add_field(rule, field);
    rule->sum_count = 1;
}

const char *line_too_short(const struct line_rule *rule) {
    if (rule->sum_count > 0) return "the line has fewer fields than --key, --where and --sum need";
    if (rule->where_count > 0) return "the line has fewer fields than --key, --distinct and --where need";
    return rule->element_count > 0 ? "the line has fewer fields than --key and --distinct need"
                                   : "the line has fewer fields than --key needs";
}

/* Joins fields by ':'. Returns false if there is no room. One field stays where it is, unless it has to move. */
static bool rule_join(const tw_key *field_at, size_t count, bool moves, char *room, size_t room_size, tw_key *whole) {
    size_t size = 0;
    *whole = field_at[0];
    if (count == 1 && !moves) return true;
    for (size_t i = 0; i < count; i++) {
        size_t need = field_at[i].size + (size_t)(i > 0);
        if (need > room_size - size) return false;
        if (i > 0) room[size++] = ':';
        if (field_at[i].size != 0) memcpy(room + size, field_at[i].data, field_at[i].size);
        size += field_at[i].size;
    }
    *whole = tw_bytes(room, size);
    return true;
}

#define NETWORK_TEXT 64 /* as tw_key_network() needs */

/* A field's network, also of an address with its port. */
static const char *network_make(struct line_network network, tw_key *field, char *room) {
    tw_key bare = line_bare_address(*field);
    if (tw_key_network(field->data, field->size, network.bits4, network.bits6, room, NETWORK_TEXT, field) == TW_OK ||
        tw_key_network(bare.data, bare.size, network.bits4, network.bits6, room, NETWORK_TEXT, field) == TW_OK)
        return NULL;
    return "what should have a network is no address";
}

/* Makes key and element with networks in them. They cannot stay in the line. */
static const char *networks_key(const struct line_rule *rule, const tw_key *field_at, struct line *line, char *joined) {
    char texts[2 * LINE_FIELDS_MAX][NETWORK_TEXT];
    tw_key made[2 * LINE_FIELDS_MAX] = {{NULL, 0}};
    size_t count = (size_t)rule->field_count + rule->element_count;
    for (size_t i = 0; i < count; i++) {
        made[i] = field_at[i];
        const char *wrong = rule->network[i].is_wanted ? network_make(rule->network[i], &made[i], texts[i]) : NULL;
        if (wrong != NULL) return wrong;
    }
    if (!rule_join(made, rule->field_count, true, joined, TW_KEY_SIZE_MAX, &line->key))
        return "the key is longer than 1024 bytes";
    if (rule->element_count > 0 && !rule_join(made + rule->field_count, rule->element_count, true,
                                              joined + TW_KEY_SIZE_MAX, LINE_ELEMENT_MAX, &line->element))
        return "the fields of --distinct are longer than 8192 bytes";
    return NULL;
}

static const char *plain_key(const struct line_rule *rule, const tw_key *field_at, struct line *line, char *joined) {
    if (!rule_join(field_at, rule->field_count, false, joined, TW_KEY_SIZE_MAX, &line->key) ||
        line->key.size > TW_KEY_SIZE_MAX)
        return "the key is longer than 1024 bytes";
    if (rule->element_count > 0 && !rule_join(field_at + rule->field_count, rule->element_count, false,
                                              joined + TW_KEY_SIZE_MAX, LINE_ELEMENT_MAX, &line->element))
        return "the fields of --distinct are longer than 8192 bytes";
    return NULL;
}

const char *line_key(const struct line_rule *rule, const tw_key *field_at, struct line *line, char *joined) {
    if (!line_time_counts(line->unix_ms)) return line_time_uncounted;
    if (rule->where_count > 0 && !line_where_holds(rule, field_at + rule->field_count + rule->element_count))
        return line_left_out;
    const char *wrong =
        rule->has_network ? networks_key(rule, field_at, line, joined) : plain_key(rule, field_at, line, joined);
    if (wrong != NULL) return wrong;
    if (line->key.size == 0) return "the key is empty";
    line->sum = 0;
    if (rule->sum_count == 0) return NULL;
    const tw_key *sum = &field_at[line_field_count(rule) - 1];
    return line_whole_read(sum->data, sum->size, &line->sum) ? NULL : "the field of --sum is no whole number";
}
