/* page_test.c -- lines of a page: whatever bytes a key has, the screen keeps its columns. */
#include "tests/support/support.h"

#include "tools/common/page.h"
#include "tools/top/top.h"
#include "tools/common/utf8.h"

#include <locale.h>

static struct page page;

static const char *line_of(size_t width, const char *bytes, size_t size) {
    assert_true(page_begin(&page, width, 0));
    sink_bytes(&page.line, bytes, size);
    page_end_line(&page, PAGE_PLAIN);
    assert_int_equal(page.count, 1);
    return page.lines[0].text;
}

TEST(lines_are_cut_by_columns) {
    static const struct {
        size_t width;
        const char *text, *shown;
    } cases[] = {
        {5, "plain", "plain"},
        {5, "longer", "long\xe2\x80\xa6"},
        {5, "trail   ", "trail"},
        {4, "\xe6\x97\xa5\xe6\x9c\xac", "\xe6\x97\xa5\xe6\x9c\xac"},             /* two wide characters */
        {4, "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e", "\xe6\x97\xa5\xe2\x80\xa6"}, /* a third: half of one is none */
        {2, "e\xcc\x81o", "e\xcc\x81o"},                                         /* a combining accent has no column */
        {9, "a\xff\x1b[31m", "a??[31m"},                                         /* no text; a control character */
        {3,
         "\xe2\x80\xae"
         "abc",
         "?a\xe2\x80\xa6"},                             /* turns the direction */
        {3, "\xe2\x80\xa8\xe2\x81\xa6\xc2\x85", "???"}, /* ends a line; isolates; C1 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(line_of(cases[i].width, cases[i].text, strlen(cases[i].text)), cases[i].shown);
        page_free(&page);
    }
}

/* What is always true (page.h), for characters of all kinds in random order. */
TEST(no_bytes_break_a_line) {
    static const char *const pieces[] = {"a",
                                         " ",
                                         "\x1b",
                                         "\n",
                                         "\t",
                                         "\x7f",
                                         "\xff",
                                         "\xc2",
                                         "\xc2\x9b",
                                         "\xe6\x97\xa5",
                                         "\xcc\x81",
                                         "\xe2\x80\xae",
                                         "\xe2\x81\xa9",
                                         "\xe2\x80\xa8",
                                         "\xe2\x80\x8b",
                                         "\xf0\x9f\x91\xa9",
                                         "\xe2\x80\x8d",
                                         "\xef\xbf\xbf",
                                         "\xcd\xb8",
                                         "\xed\xa0\x80"};
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (uint64_t round = 0; round < test_scale(100000); round++) {
        char bytes[200];
        size_t size = 0, width = 1 + test_prng_below(&prng, 30);
        for (uint64_t left = test_prng_below(&prng, 40); left > 0; left--) {
            const char *piece = pieces[test_prng_below(&prng, sizeof pieces / sizeof *pieces)];
            memcpy(bytes + size, piece, strlen(piece));
            size += strlen(piece);
        }
        const char *text = line_of(width, bytes, size);
        const unsigned char *at = (const unsigned char *)text;
        size_t left = strlen(text), step;
        assert_true(utf8_is_valid(at, left));
        assert_true(page_columns(text, left) <= width);
        for (; left > 0; at += step, left -= step) {
            step = utf8_size(at, left);
            assert_false(utf8_is_control(at, step) || utf8_moves_text(at, step));
        }
        page_free(&page);
    }
}

static struct watched_family family_of(const char *name, int64_t numbers) {
    return (struct watched_family){.name = name,
                                   .kind = "counter",
                                   .window = "aligned",
                                   .limit_mode = "soft",
                                   .redis_shape = "string",
                                   .window_ms = 3600000,
                                   .end_ms = 3600000,
                                   .windows = 3,
                                   .keys = numbers,
                                   .admitted = numbers,
                                   .denied = numbers / 10};
}

/* Goal: on a terminal of 80 columns the numbers of each family are whole, however large they are; names are cut. The
 * last error says how old it is. */
TEST(no_number_of_top_is_cut) {
    struct watched_family families[] = {family_of("logins", 12),
                                        family_of("a-name-that-is-far-too-long-for-it", 1234567890)};
    struct watched look = {
        .version = "1", .last_error = "NOAUTH", .last_error_age_ms = 720000, .families = families, .family_count = 2};
    struct top_view view = {&look, NULL, "logins", NULL};
    bool denied = false, aged = false;
    assert_true(page_begin(&page, 80, 24));
    top_draw(&page, &view);
    for (size_t i = 0; i < page.count; i++) {
        const char *text = page.lines[i].text;
        assert_true(page_columns(text, strlen(text)) <= 80);
        denied = denied || strstr(text, "1,234,567,890 123,456,789") != NULL;
        aged = aged || strstr(text, "Last error  12 min ago: NOAUTH") != NULL;
    }
    assert_true(denied);
    assert_true(aged);
    page_free(&page);
}

int main(void) {
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL) test_skip_program("the locale C.UTF-8 is not there: install libc-bin");
    return test_run();
}
