/* foreign.c -- see foreign.h. */
#include "tools/common/foreign.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/utf8.h"

/* ---- lines ---- */

/* The text that stays as it is. */
enum leave { LEAVE_TEXT = 0, LEAVE_BACKSLASH = 1, LEAVE_MOVES = 2 };

static bool stays(const unsigned char *text, size_t size, unsigned leave) {
    if (size == 0 || utf8_is_control(text, size)) return false;
    if (text[0] == '\\') return (leave & LEAVE_BACKSLASH) != 0;
    return (leave & LEAVE_MOVES) != 0 || !utf8_moves_text(text, size);
}

/* Writes \xHH in capitals, as in the manual. */
static void byte_escape(struct sink *sink, unsigned char byte) {
    static const char capitals[] = "0123456789ABCDEF";
    const char text[4] = {'\\', 'x', capitals[byte >> 4], capitals[byte & 15]};
    sink_bytes(sink, text, sizeof text);
}

static void char_escape(struct sink *sink, const unsigned char *text, size_t size) {
    switch (text[0]) {
    case '\t': sink_text(sink, "\\t"); return;
    case '\n': sink_text(sink, "\\n"); return;
    case '\\': sink_text(sink, "\\\\"); return;
    default:
        for (size_t i = 0; i < size; i++) byte_escape(sink, text[i]);
    }
}

static void foreign_put(struct sink *sink, const unsigned char *text, size_t size, unsigned leave) {
    for (size_t at = 0; at < size;) {
        size_t plain = 0, step = 1;
        while (at + plain < size) {
            step = utf8_size(text + at + plain, size - at - plain);
            if (!stays(text + at + plain, step, leave)) break;
            plain += step;
        }
        sink_bytes(sink, text + at, plain);
        at += plain;
        if (at == size) return;
        if (step == 0) step = 1;
        char_escape(sink, text + at, step);
        at += step;
    }
}

void foreign_line(struct sink *sink, const void *text, size_t size) {
    foreign_put(sink, text, size, LEAVE_MOVES);
}

void foreign_shown(struct sink *sink, const void *text, size_t size) {
    foreign_put(sink, text, size, LEAVE_TEXT);
}

void foreign_message(struct sink *sink, const void *text, size_t size) {
    foreign_put(sink, text, size, LEAVE_BACKSLASH);
}

/* ---- cells ---- */

/* The first character decides, also in its wide form. A lone dash, which logs have for "none", is harmless. */
static bool is_formula(const unsigned char *text, size_t size) {
    static const char *const begins[] = {"=",           "+", "-", "@", "\xEF\xBC\x9D", "\xEF\xBC\x8B", "\xEF\xBC\x8D",
                                         "\xEF\xBC\xA0"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t length = strlen(begins[i]);
        if (size > length && memcmp(text, begins[i], length) == 0) return true;
    }
    return false;
}

/* A semicolon separates cells where a comma is part of numbers. Line ends are escapes already. */
static bool needs_quotes(const unsigned char *text, size_t size) {
    static const char marks[] = {',', ';', '"'};
    for (size_t i = 0; i < sizeof marks; i++)
        if (memchr(text, marks[i], size) != NULL) return true;
    return size > 0 && (text[0] == ' ' || text[size - 1] == ' ');
}

/* Quotes are doubled within quotes. */
void foreign_csv(struct sink *sink, const void *text, size_t size) {
    const unsigned char *at = text, *end = at + size;
    bool quoted = needs_quotes(at, size);
    if (quoted) sink_byte(sink, '"');
    if (is_formula(at, size)) sink_byte(sink, '\'');
    while (at < end) {
        const unsigned char *quote = memchr(at, '"', (size_t)(end - at));
        const unsigned char *stop = quote == NULL ? end : quote;
        foreign_line(sink, at, (size_t)(stop - at));
        if (quote != NULL) sink_text(sink, "\"\"");
        at = quote == NULL ? end : quote + 1;
    }
    if (quoted) sink_byte(sink, '"');
}

/* ---- JSON ---- */

static uint32_t code_of(const unsigned char *text, size_t size) {
    static const unsigned char masks[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = text[0] & masks[size];
    for (size_t i = 1; i < size; i++) code = code << 6 | (text[i] & 0x3f);
    return code;
}

static void json_char(struct sink *sink, const unsigned char *text, size_t size) {
    char escape[8];
    if (size == 0) {
        sink_text(sink, "\\ufffd");
    } else if (text[0] == '"' || text[0] == '\\') {
        sink_byte(sink, '\\');
        sink_byte(sink, (char)text[0]);
    } else if (utf8_is_control(text, size) || utf8_moves_text(text, size)) {
        (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(code_of(text, size) & 0xffff));
        sink_text(sink, escape);
    } else {
        sink_bytes(sink, text, size);
    }
}

bool foreign_json(struct sink *sink, const void *text, size_t size) {
    const unsigned char *bytes = text;
    bool exact = true;
    sink_byte(sink, '"');
    for (size_t at = 0; at < size;) {
        size_t step = utf8_size(bytes + at, size - at);
        json_char(sink, bytes + at, step);
        exact = exact && step > 0;
        at += step == 0 ? 1 : step;
    }
    sink_byte(sink, '"');
    return exact;
}

void foreign_json_key(struct sink *sink, const void *key, size_t size) {
    static const char hex_digits[] = "0123456789abcdef";
    const unsigned char *bytes = key;
    sink_text(sink, "\"key\":");
    if (foreign_json(sink, key, size)) return;
    sink_text(sink, ",\"key_hex\":\"");
    for (size_t at = 0; at < size; at++) {
        sink_byte(sink, hex_digits[bytes[at] >> 4]);
        sink_byte(sink, hex_digits[bytes[at] & 15]);
    }
    sink_byte(sink, '"');
}
