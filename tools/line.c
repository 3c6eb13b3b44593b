/* line.c -- what the log formats share: the choice of the parser, civil time, keys of several fields. See line.h. */
#include "line.h"

static void add_field(struct line_rule *rule, uint16_t field) {
    rule->fields[line_field_count(rule)] = field;
    if (field > rule->field_last) rule->field_last = field;
}

void line_rule_set(struct line_rule *rule, enum line_format format, const uint16_t *fields, size_t count) {
    static const uint16_t client = 1, action = 3;
    if (count == 0 && format != LINE_TSV) {
        fields = format == LINE_DPKG ? &action : &client;
        count = 1;
    }
    rule->format = format;
    rule->field_count = rule->element_count = rule->field_last = 0;
    for (; rule->field_count < count; rule->field_count++) add_field(rule, fields[rule->field_count]);
}

void line_rule_set_element(struct line_rule *rule, const uint16_t *fields, size_t count) {
    for (; rule->element_count < count; rule->element_count++) add_field(rule, fields[rule->element_count]);
}

const char *line_too_short(const struct line_rule *rule) {
    return rule->element_count > 0 ? "the line has fewer fields than --key and --distinct need"
                                   : "the line has fewer fields than --key needs";
}

const char *line_parse(const struct line_rule *rule, const char *text, size_t size, struct line *line, char *joined) {
    if (size > 0 && text[size - 1] == '\r') size--;
    if (size == 0) return "empty line";
    switch (rule->format) {
    case LINE_COMBINED:
    case LINE_VHOST_COMBINED: return line_combined(rule, text, size, line, joined);
    case LINE_DPKG: return line_dpkg(rule, text, size, line, joined);
    default: return line_tsv(rule, text, size, line);
    }
}

/* Days since 1970-01-01. A year begins in March here, so that the leap day is its last day; 400 years repeat. */
static int64_t days_from_civil(int64_t year, unsigned month, unsigned day) {
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t year_of_era = y - era * 400;
    int64_t day_of_year = (153 * (int64_t)(month > 2 ? month - 3 : month + 9) + 2) / 5 + (int64_t)day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468; /* 719468 days from 0000-03-01 to 1970-01-01 */
}

int64_t line_unix_s(int64_t year, unsigned month, unsigned day, unsigned hour, unsigned minute, unsigned second) {
    return days_from_civil(year, month, day) * 86400 + (int64_t)(hour * 3600 + minute * 60 + second);
}

bool line_date_is_valid(unsigned year, unsigned month, unsigned day) {
    static const unsigned char days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (month < 1 || month > 12 || day < 1) return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return day <= days[month - 1] + (unsigned)(month == 2 && leap);
}

int line_digits(const char *text, unsigned count) {
    int value = 0;
    for (unsigned i = 0; i < count; i++) {
        unsigned digit = (unsigned)(unsigned char)text[i] - '0';
        if (digit > 9) return -1;
        value = value * 10 + (int)digit;
    }
    return value;
}

/* Joins fields by ':'. Returns false if there is no room. One field stays where it is. */
static bool join(const tw_key *field_at, size_t count, char *room, size_t room_size, tw_key *whole) {
    size_t size = 0;
    *whole = field_at[0];
    if (count == 1) return true;
    for (size_t i = 0; i < count; i++) {
        size_t need = field_at[i].size + (size_t)(i > 0);
        if (need > room_size - size) return false;
        if (i > 0) room[size++] = ':';
        memcpy(room + size, field_at[i].data, field_at[i].size);
        size += field_at[i].size;
    }
    *whole = tw_bytes(room, size);
    return true;
}

const char *line_key(const struct line_rule *rule, const tw_key *field_at, struct line *line, char *joined) {
    if (!join(field_at, rule->field_count, joined, TW_KEY_SIZE_MAX, &line->key) || line->key.size > TW_KEY_SIZE_MAX)
        return "the key is longer than 1024 bytes";
    if (line->key.size == 0) return "the key is empty";
    if (rule->element_count > 0 && !join(field_at + rule->field_count, rule->element_count, joined + TW_KEY_SIZE_MAX,
                                         LINE_ELEMENT_MAX, &line->element))
        return "the fields of --distinct are longer than 8192 bytes";
    return NULL;
}
