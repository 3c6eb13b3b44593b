/* page.h -- a page of text lines, cut to a width and a height. `top` draws it and `show` prints it.
 * Always true: a line has no more columns than the page, is valid UTF-8, and has no character that controls a terminal
 * or moves other text about. */
#ifndef TOOL_PAGE_H
#define TOOL_PAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/common/sink.h"

enum page_style { PAGE_PLAIN, PAGE_BOLD, PAGE_REVERSED, PAGE_ALARM };

struct page_line {
    char *text;
    enum page_style style;
};

struct page {
    size_t width, height; /* 0 means unlimited */
    struct page_line *lines;
    size_t count;
    struct sink line; /* the line that is being written */
};

bool page_begin(struct page *page, size_t width, size_t height); /* false means no memory */
/* Appends to the line that is being written. */
void page_put(struct page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the line. Beyond the page's height it is left out. */
void page_end_line(struct page *page, enum page_style style);
/* Spaces up to a column. */
void page_to(struct page *page, size_t column);
size_t page_left(const struct page *page); /* lines that there is still room for; SIZE_MAX means unlimited */
void page_free(struct page *page);

/* Columns of a text on a terminal, as the locale's characters are wide. */
size_t page_columns(const char *text, size_t size);
/* Returns how many bytes of the text fit into the columns; `*used` is the number of their columns. */
size_t page_fitting(const char *text, size_t size, size_t columns, size_t *used);

#endif
