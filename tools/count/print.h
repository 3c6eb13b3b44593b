/* print.h -- prints windows and their rows as a table for people, tab-separated values, JSON.
 *
 * tsv:   window-start<TAB>key<TAB>count, no heading. The start is ISO 8601 in UTC (2015-05-19T03:00:00Z). In keys,
 *        control characters, backslashes and bytes that are no UTF-8 are written as \t \n \\ \xHH.
 *        With --sum the sum follows, behind a tab.
 * csv:   the same behind a header, window,key,count; a key with a comma, a semicolon, a quote or a space at its ends is
 *        quoted, and one that a spreadsheet would treat as a formula has an apostrophe in front.
 * json:  [ {"window":"2015-05-19T03:00:00Z","counts":[{"key":"...","count":3},...]}, ... ]. If windows come one by one
 *        (--follow), one such object per line and no array around them. A key that is no UTF-8 has U+FFFD in place of
 *        each wrong byte, and its exact bytes next to it: "key_hex":"ff00".
 *        With --window all the start is the word all.
 * table: a heading for each window in the time of --utc-offset, aligned counts, totals at the end. On a terminal that
 *        is wide enough, a bar next to each count, as long as its share of the window's greatest one; keys are cut to
 *        its width.
 *
 * Always true: whatever bytes a key has, a row is one line, and no control character reaches the terminal. */
#ifndef TOOL_PRINT_H
#define TOOL_PRINT_H

#include "tools/count/rows.h"
#include "tools/common/sink.h"

/* In the order of --output's words. */
enum print_form { PRINT_TABLE, PRINT_TSV, PRINT_JSON, PRINT_CSV };

struct print {
    struct sink *sink;
    enum print_form form;
    int64_t window_ms, utc_offset_ms;
    size_t width;     /* columns of the terminal; 0 means unlimited */
    bool stream;      /* windows come one by one, without end */
    bool bold;        /* headings, if the output is a terminal; then bars have a colour */
    bool blocks;      /* the bars consist of Unicode blocks, otherwise of # */
    bool sums;        /* --sum: a column more */
    bool distinct;    /* estimates of distinct elements, which have no meaningful sum */
    uint64_t windows; /* printed so far */
    int64_t keys, sum, field_sum;
};

void print_begin(struct print *print);
void print_window(struct print *print, int64_t start_ms, const struct rows *rows);
void print_end(struct print *print);

#endif
