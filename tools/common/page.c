/* page.c -- see page.h. */
#include "tools/common/page.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "tools/common/utf8.h"

bool page_begin(struct page *page, size_t width, size_t height) {
    *page = (struct page){.width = width, .height = height};
    return sink_open(&page->line, -1);
}

void page_put(struct page *page, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sink_bytes(&page->line, text, size < 0 ? 0 : (size_t)size < sizeof text ? (size_t)size : sizeof text - 1);
}

/* Returns false if a question mark stands for it. */
static bool is_shown(const unsigned char *text, size_t size) {
    return size != 0 && !utf8_is_control(text, size) && !utf8_moves_text(text, size);
}

/* Returns the width of the character at `text`. In a locale without UTF-8 it is one column. */
static size_t width_of(const unsigned char *text, size_t size) {
    static const unsigned char masks[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    if (!is_shown(text, size)) return 1;
    uint32_t code = text[0] & masks[size];
    for (size_t i = 1; i < size; i++) code = code << 6 | (text[i] & 0x3f);
    int width = wcwidth((wchar_t)code);
    return width < 0 ? 1 : (size_t)width;
}

size_t page_fitting(const char *text, size_t size, size_t columns, size_t *used) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t at = 0;
    for (*used = 0; at < size;) {
        size_t step = utf8_size(bytes + at, size - at), width = width_of(bytes + at, step);
        if (*used + width > columns) break;
        *used += width;
        at += step == 0 ? 1 : step;
    }
    return at;
}

size_t page_columns(const char *text, size_t size) {
    size_t used;
    (void)page_fitting(text, size, SIZE_MAX - 2, &used);
    return used;
}

void page_to(struct page *page, size_t column) {
    size_t used = page_columns(page->line.buffer, page->line.size);
    if (used < column) sink_spaces(&page->line, column - used);
}

size_t page_left(const struct page *page) {
    return page->height == 0 ? SIZE_MAX : page->height - page->count;
}

/* The caller escapes control characters in keys. In other text (a last error) they become a question mark, and
 * so do characters that move text. */
static char *copy_plain(const char *text, size_t size) {
    char *copy = malloc(size + 4);
    size_t at = 0, out = 0;
    while (copy != NULL && at < size) {
        const unsigned char *byte = (const unsigned char *)text + at;
        size_t step = utf8_size(byte, size - at);
        bool plain = is_shown(byte, step);
        if (plain) memcpy(copy + out, byte, step);
        if (!plain) copy[out] = '?';
        out += plain ? step : 1;
        at += step == 0 ? 1 : step;
    }
    if (copy != NULL) copy[out] = '\0';
    return copy;
}

void page_end_line(struct page *page, enum page_style style) {
    size_t size = page->line.size, used;
    struct page_line *lines = NULL;
    while (size > 0 && page->line.buffer[size - 1] == ' ') size--;
    if (page_left(page) > 0) lines = realloc(page->lines, (page->count + 1) * sizeof *lines);
    if (lines != NULL) {
        page->lines = lines;
        bool cut = page->width != 0 && page_fitting(page->line.buffer, size, page->width, &used) < size;
        if (cut) size = page_fitting(page->line.buffer, size, page->width - 1, &used);
        char *text = copy_plain(page->line.buffer, size);
        if (text != NULL && cut) strcat(text, "\xe2\x80\xa6"); /* an ellipsis */
        if (text != NULL) lines[page->count++] = (struct page_line){text, style};
    }
    page->line.size = 0;
}

void page_free(struct page *page) {
    for (size_t i = 0; i < page->count; i++) free(page->lines[i].text);
    free(page->lines);
    sink_close(&page->line);
    *page = (struct page){0};
}
