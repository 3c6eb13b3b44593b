/* metric_labels.c -- see metric_labels.h. The grammar is name="value", and more of these after commas, without
 * spaces. A name has letters, digits and _, and does not begin with a digit. A value is UTF-8. \\, \" and \n mean a
 * backslash, a quote and the end of a line. */
#include "engine/core/metric_labels.h"

#include "engine/base/check.h"
#include <stdio.h>
#include <string.h>

struct reader {
    const char *text, *at;
    char *why;
    size_t why_size;
};

static bool refuse(const struct reader *reader, const char *what) {
    twi_check(reader->at >= reader->text);
    twi_check(reader->why_size != 0);
    (void)snprintf(reader->why, reader->why_size, "byte %zu: %s", (size_t)(reader->at - reader->text) + 1, what);
    return false;
}

static bool refuse_name(const struct reader *reader, const char *name, size_t size, const char *what) {
    twi_check(size != 0 && name >= reader->text);
    (void)snprintf(reader->why, reader->why_size, "%.*s %s", (int)size, name, what);
    return false;
}

static bool is_letter(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

static size_t name_size(const char *name) {
    size_t size = 0;
    while (is_letter(name[size]) || (size != 0 && name[size] >= '0' && name[size] <= '9')) size++;
    return size;
}

/* Returns how many bytes the UTF-8 character has. 0 means that it is not valid (overlong forms and surrogates are
 * not valid). */
static size_t character_size(const unsigned char *at) {
    if (at[0] < 0x80) return 1;
    size_t size = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4) return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    bool is_none = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
                   (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f);
    return is_none ? 0 : size;
}

static bool read_value(struct reader *reader) {
    twi_check(reader->at >= reader->text);
    if (*reader->at != '"') return refuse(reader, "a label's value must be in quotes");
    reader->at++;
    while (*reader->at != '"') {
        if (*reader->at == '\0') return refuse(reader, "the quote is not closed");
        if (*reader->at == '\n') return refuse(reader, "the end of a line is written as \\n");
        if (*reader->at == '\\' && (reader->at[1] == '\0' || strchr("\\\"n", reader->at[1]) == NULL))
            return refuse(reader, "unknown escape; there are \\\\, \\\" and \\n");
        size_t size = *reader->at == '\\' ? 2 : character_size((const unsigned char *)reader->at);
        if (size == 0) return refuse(reader, "not UTF-8");
        reader->at += size;
    }
    reader->at++;
    return true;
}

static bool is_named_before(const struct reader *reader, const char *name, size_t size) {
    struct reader before = *reader;
    for (before.at = before.text; before.at < name; before.at++) {
        size_t other = name_size(before.at);
        if (other == size && memcmp(before.at, name, size) == 0) return true;
        before.at += other + 1;
        (void)read_value(&before); /* its syntax was checked before */
    }
    return false;
}

static bool check_name(const struct reader *reader, const char *name, size_t size) {
    twi_check(name >= reader->text);
    static const char *const own[] = {"family", "le", "version"};
    if (size == 0) return refuse(reader, "a label's name is of letters, digits and _, and begins with no digit");
    if (size >= 2 && memcmp(name, "__", 2) == 0)
        return refuse_name(reader, name, size, "is reserved: it begins with __");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strlen(own[i]) == size && memcmp(name, own[i], size) == 0)
            return refuse_name(reader, name, size, "is a label of the library");
    if (is_named_before(reader, name, size)) return refuse_name(reader, name, size, "comes twice");
    return true;
}

static bool read_label(struct reader *reader) {
    const char *name = reader->at;
    size_t size = name_size(name);
    if (!check_name(reader, name, size)) return false;
    reader->at += size;
    if (*reader->at != '=') return refuse(reader, "= and a value in quotes must follow a label's name");
    reader->at++;
    return read_value(reader);
}

bool twi_labels_check(const char *labels, char *why, size_t why_size) {
    twi_check(why != NULL && why_size != 0);
    struct reader reader = {labels, labels, why, why_size};
    if (strnlen(labels, TWI_LABELS_BYTES_MAX + 1) > TWI_LABELS_BYTES_MAX) {
        (void)snprintf(why, why_size, "longer than %d bytes", TWI_LABELS_BYTES_MAX);
        return false;
    }
    for (;;) {
        if (!read_label(&reader)) return false;
        if (*reader.at == '\0') return true;
        if (*reader.at != ',') return refuse(&reader, "labels are separated by commas, without spaces");
        reader.at++;
    }
}
