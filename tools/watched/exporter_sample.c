/* exporter_sample.c -- see exporter_sample.h. */
#include "tools/watched/exporter_sample.h"

#include <string.h>

bool exporter_same(struct exporter_text a, struct exporter_text b) {
    return a.size == b.size && memcmp(a.at, b.at, a.size) == 0;
}

static bool sample_is_letter(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

static bool sample_is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

/* Reads the name at `*at`, which moves behind it. The name is empty if there is none. */
static struct exporter_text name_take(const char **at, const char *end) {
    struct exporter_text name = {*at, 0};
    while (*at < end && (sample_is_letter(**at) || (name.size > 0 && sample_is_digit(**at)))) {
        (*at)++;
        name.size++;
    }
    return name;
}

static bool byte_take(const char **at, const char *end, char byte) {
    if (*at == end || **at != byte) return false;
    (*at)++;
    return true;
}

static bool value_take(const char **at, const char *end, struct exporter_text *value) {
    const char *from = *at;
    if (!byte_take(at, end, '"')) return false;
    while (*at < end && **at != '"') {
        bool is_escape = **at == '\\';
        if (is_escape && (*at + 1 == end || strchr("\\\"n", (*at)[1]) == NULL)) return false;
        *at += is_escape ? 2 : 1;
    }
    if (!byte_take(at, end, '"')) return false;
    *value = (struct exporter_text){from, (size_t)(*at - from)};
    return true;
}

static bool labels_take(const char **at, const char *end, struct exporter_sample *sample) {
    if (!byte_take(at, end, '{')) return true;
    while (!byte_take(at, end, '}')) {
        if (sample->label_count == EXPORTER_LABELS_MAX) return false;
        if (sample->label_count > 0 && !byte_take(at, end, ',')) return false;
        struct exporter_text name = name_take(at, end);
        if (name.size == 0 || !byte_take(at, end, '=')) return false;
        for (size_t i = 0; i < sample->label_count; i++)
            if (exporter_same(name, sample->labels[i])) return false;
        sample->labels[sample->label_count] = name;
        if (!value_take(at, end, &sample->values[sample->label_count++])) return false;
    }
    return true;
}

/* Reads -12, 0.000001, 1e+06, NaN, +Inf */
static bool is_number(struct exporter_text text) {
    static const char *const words[] = {"NaN", "+Inf", "-Inf"};
    size_t digits = 0, i = 0;
    for (size_t word = 0; word < sizeof words / sizeof *words; word++)
        if (exporter_same(text, (struct exporter_text){words[word], strlen(words[word])})) return true;
    if (text.size > 0 && (text.at[0] == '-' || text.at[0] == '+')) i++;
    for (bool point = false; i < text.size && (sample_is_digit(text.at[i]) || (text.at[i] == '.' && !point)); i++) {
        point = point || text.at[i] == '.';
        digits += sample_is_digit(text.at[i]);
    }
    if (digits == 0 || i == text.size) return digits > 0;
    if (text.at[i++] != 'e') return false;
    if (i < text.size && (text.at[i] == '-' || text.at[i] == '+')) i++;
    size_t from = i;
    while (i < text.size && sample_is_digit(text.at[i])) i++;
    return i == text.size && i > from;
}

bool exporter_sample_read(const char *line, const char *end, struct exporter_sample *sample) {
    const char *at = line;
    sample->label_count = 0;
    sample->name = name_take(&at, end);
    if (sample->name.size == 0 || !labels_take(&at, end, sample) || !byte_take(&at, end, ' ')) return false;
    sample->value = (struct exporter_text){at, (size_t)(end - at)};
    return sample->value.size < 64 && is_number(sample->value);
}

bool exporter_type_read(const char *line, const char *end, struct exporter_text *name) {
    static const char begin[] = "# TYPE ";
    static const char *const types[] = {"gauge", "counter", "histogram", "summary", "untyped"};
    const char *at = line + sizeof begin - 1;
    if ((size_t)(end - line) < sizeof begin - 1 || memcmp(line, begin, sizeof begin - 1) != 0) return false;
    *name = name_take(&at, end);
    if (name->size == 0 || !byte_take(&at, end, ' ')) return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (exporter_same((struct exporter_text){at, (size_t)(end - at)},
                          (struct exporter_text){types[i], strlen(types[i])}))
            return true;
    return false;
}
