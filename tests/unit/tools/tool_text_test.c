/* tool_text_test.c -- the small languages of the command line, windows, rows and escapes of the command. */
#include "tests/support/support.h"

#include "tools/common/moment.h"
#include "tools/common/foreign.h"
#include "tools/count/print.h"
#include "tools/count/rows.h"
#include "tools/common/text.h"
#include "tools/common/utf8.h"
#include "tools/count/windows.h"

TEST(sizes_are_multiples_of_1024) {
    uint64_t bytes = 7;
    assert_true(text_size("4096", &bytes) && bytes == 4096);
    assert_true(text_size("512M", &bytes) && bytes == UINT64_C(512) << 20);
    assert_true(text_size("3g", &bytes) && bytes == UINT64_C(3) << 30);
    assert_true(text_size("16777215T", &bytes) && bytes == UINT64_C(16777215) << 40);
    bytes = 7;
    static const char *const wrong[] = {"",     "M", "-1", "1 M", "1MB", "1.5G", "16777216T", "18446744073709551616",
                                        "0x10", " 1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(text_size(wrong[i], &bytes));
    assert_i64_equal(bytes, 7); /* a refused text leaves the result alone */
}

TEST(numbers_may_end_in_a_letter) {
    static const struct {
        const char *text;
        uint64_t number; /* 0 means refused */
    } cases[] = {{"1", 1},
                 {"64K", 64000},
                 {"2M", 2000000},
                 {"18G", UINT64_C(18000000000)},
                 {"18446744073709551615", UINT64_MAX},
                 {"18446744073709551K", UINT64_C(18446744073709551000)},
                 {"18446744073709552K", 0},
                 {"99999999999G", 0},
                 {"1k", 0},
                 {"1T", 0},
                 {"1KB", 0},
                 {"K", 0},
                 {"", 0},
                 {"1 K", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t number = 7;
        assert_int_equal(text_number(cases[i].text, 1, UINT64_MAX, &number), cases[i].number != 0);
        assert_true(number == (cases[i].number != 0 ? cases[i].number : 7));
    }
    uint64_t number;
    assert_false(text_number("2K", 1, 1999, &number)); /* the bounds hold for the whole */
}

TEST(spans_have_a_unit_and_an_end) {
    int64_t ms = 7;
    assert_true(text_span("30s", &ms) && ms == 30000);
    assert_true(text_span("1h", &ms) && ms == TW_HOUR);
    assert_true(text_span("36500d", &ms) && ms == 36500 * TW_DAY);
    assert_true(text_span("0s", &ms) && ms == 0);
    ms = 7;
    static const char *const wrong[] = {"",    "h",   "1", "1w", "1hh", "-1h", "36501d", "99999999999999999999s",
                                        "1 h", "1.5h"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(text_span(wrong[i], &ms));
    assert_i64_equal(ms, 7);
}

TEST(offsets_stay_within_14_hours) {
    int64_t ms = 7;
    assert_true(text_offset("+08:00", &ms) && ms == 8 * TW_HOUR);
    assert_true(text_offset("-0330", &ms) && ms == -210 * TW_MINUTE);
    assert_true(text_offset("+8", &ms) && ms == 8 * TW_HOUR);
    assert_true(text_offset("Z", &ms) && ms == 0);
    assert_true(text_offset("-14:00", &ms) && ms == -14 * TW_HOUR);
    ms = 7;
    static const char *const wrong[] = {"", "8", "+", "+14:01", "+08:60", "+08:", "+08:0", "+08:000", "+008:00", "+8h"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(text_offset(wrong[i], &ms));
    assert_i64_equal(ms, 7);
}

TEST(a_misspelt_word_finds_its_neighbour) {
    static const char *const words[] = {"window", "format", "follow", "top", NULL};
    assert_string_equal(text_nearest("windwo", words), "window");
    assert_string_equal(text_nearest("fromat", words), "format");
    assert_string_equal(text_nearest("folow", words), "follow");
    assert_string_equal(text_nearest("window", words), "window");
    assert_string_equal(text_nearest("tpo", words), "top");
    assert_null(text_nearest("frobnicate", words));
    assert_null(text_nearest("x", words));
    assert_null(text_nearest("", words));
}

/* Goal: the start is a multiple of the window in the offset's time, at most a window before the moment. */
TEST(a_window_holds_its_moment) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int i = 0; i < 100000; i++) {
        int64_t window_ms = 1000 * test_prng_between(&prng, 1, 1000000);
        int64_t offset_ms = TW_MINUTE * test_prng_between(&prng, -840, 840);
        int64_t unix_ms = test_prng_between(&prng, -62135596800000, 253402300799000);
        int64_t start_ms = windows_start(unix_ms, window_ms, offset_ms);
        assert_true(start_ms <= unix_ms && unix_ms - start_ms < window_ms);
        assert_i64_equal((start_ms + offset_ms) % window_ms, 0);
    }
}

/* Goal: the set is a set, and sorts. Method: a plain array of flags as its twin. */
TEST(the_set_of_windows_equals_its_twin) {
    static bool twin[5000];
    struct windows_shared shared = WINDOWS_SHARED_EMPTY;
    struct test_prng prng;
    size_t distinct = 0, count;
    test_prng_seed(&prng, test_seed());
    for (int i = 0; i < 8000; i++) {
        uint64_t hour = test_prng_below(&prng, 5000);
        if (!twin[hour]) distinct++;
        twin[hour] = true;
        windows_note(&shared, ((int64_t)hour - 2500) * TW_HOUR);
    }
    assert_false(shared.no_memory);
    assert_i64_equal(shared.set.count, distinct);
    for (int64_t hour = 0; hour < 5000; hour++) {
        assert_int_equal(windows_holds(&shared.set, (hour - 2500) * TW_HOUR), twin[hour]);
    }
    int64_t *starts = windows_sorted(&shared.set, &count);
    assert_i64_equal(count, distinct);
    for (size_t i = 1; i < count; i++) assert_true(starts[i - 1] < starts[i]);
    free(starts);
    windows_free(&shared.set);
}

struct twin_row {
    int64_t count;
    char key[24];
};

static int twin_compare(const void *left, const void *right) {
    const struct twin_row *a = left, *b = right;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return strcmp(a->key, b->key);
}

/* Goal: with any limit the rows are the first ones of the whole, in the same order; sums are of all.
 * Method: random counts with many ties and keys of many lengths; qsort() over everything as the twin. */
TEST(limited_rows_are_the_first_of_all) {
    static struct twin_row twin[2000];
    struct rows rows = ROWS_EMPTY;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int turn = 0; turn < 200; turn++) {
        size_t count = 1 + test_prng_below(&prng, 2000), limit = test_prng_below(&prng, 50);
        int64_t sum = 0;
        rows_begin(&rows, limit);
        for (size_t i = 0; i < count; i++) {
            twin[i].count = test_prng_between(&prng, -3, 10);
            snprintf(twin[i].key, sizeof twin[i].key, "%.*s%zu", (int)test_prng_below(&prng, 12), "zzzzzzzzzzzz", i);
            sum += twin[i].count;
            rows_add(&rows, tw_str(twin[i].key), twin[i].count);
        }
        rows_sort(&rows);
        qsort(twin, count, sizeof *twin, twin_compare);
        assert_false(rows.no_memory);
        assert_i64_equal(rows.keys_all, count);
        assert_i64_equal(rows.sum_all, sum);
        assert_i64_equal(rows.count, limit == 0 || limit > count ? count : limit);
        for (size_t i = 0; i < rows.count; i++) {
            assert_i64_equal(rows.row[i].count, twin[i].count);
            assert_i64_equal(rows.row[i].key_size, strlen(twin[i].key));
            assert_memory_equal(rows.row[i].key, twin[i].key, rows.row[i].key_size);
        }
    }
    rows_free(&rows);
}

TEST(only_well_formed_utf8_is_text) {
    static const struct {
        const char *text;
        size_t size, want;
    } cases[] = {{"a", 1, 1},
                 {"\xC3\xBC", 2, 2},
                 {"\xE2\x82\xAC", 3, 3},
                 {"\xF0\x9F\x98\x80", 4, 4},
                 {"\x80", 1, 0},
                 {"\xC0\xAF", 2, 0},
                 {"\xC3", 1, 0},
                 {"\xE0\x80\xAF", 3, 0},
                 {"\xED\xA0\x80", 3, 0},
                 {"\xF4\x90\x80\x80", 4, 0},
                 {"\xF0\x80\x80\x80", 4, 0},
                 {"\xFF", 1, 0},
                 {"\xE2\x82", 2, 0},
                 {"\xC3z", 2, 0},
                 {"\0", 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_i64_equal(utf8_size((const unsigned char *)cases[i].text, cases[i].size), cases[i].want);
    }
    assert_true(utf8_is_control((const unsigned char *)"\x1B", 1));
    assert_true(utf8_is_control((const unsigned char *)"\x7F", 1));
    assert_true(utf8_is_control((const unsigned char *)"\xC2\x9B", 2));
    assert_false(utf8_is_control((const unsigned char *)"\xC2\xA0", 2));
}

/* The inverse of the escapes; false where the text is none of ours. */
static bool unescape(const char *text, size_t size, unsigned char *key, size_t *key_size) {
    *key_size = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned value = (unsigned char)text[i];
        if (value < 0x20 || value == 0x7F) return false;
        if (text[i] == '\\') {
            i++;
            if (i == size) return false;
            if (text[i] == 'x') {
                char digits[3] = {0}; /* the text ends without a NUL */
                if (size - i < 3) return false;
                memcpy(digits, text + i + 1, 2);
                if (sscanf(digits, "%2x", &value) != 1) return false;
                i += 2;
            } else {
                value = text[i] == 't' ? '\t' : text[i] == 'n' ? '\n' : text[i] == '\\' ? '\\' : 256;
            }
        }
        if (value > 255) return false;
        key[(*key_size)++] = (unsigned char)value;
    }
    return true;
}

/* Goal: an escaped key is one line of well-formed text, and says exactly which bytes the key has. */
TEST(escaped_keys_can_be_read_back) {
    static const char bytes[] = "ab\t\n\\\x1B\x7F\xC3\xBC\xC2\x9B\xFF\x80\xE2\x82\xAC\0\r";
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int turn = 0; turn < 20000; turn++) {
        unsigned char key[16], back[64];
        size_t size = 1 + test_prng_below(&prng, sizeof key), back_size;
        for (size_t i = 0; i < size; i++) key[i] = (unsigned char)bytes[test_prng_below(&prng, sizeof bytes)];
        struct sink sink;
        assert_true(sink_open(&sink, -1));
        foreign_line(&sink, key, size);
        assert_true(utf8_is_valid((const unsigned char *)sink.buffer, sink.size));
        assert_true(unescape(sink.buffer, sink.size, back, &back_size));
        assert_i64_equal(back_size, size);
        assert_memory_equal(back, key, size);
        sink_close(&sink);
    }
}

static void assert_written(void (*write)(struct sink *, const void *, size_t), const char *text, const char *expected) {
    struct sink sink;
    assert_true(sink_open(&sink, -1));
    write(&sink, text, strlen(text));
    sink_byte(&sink, '\0');
    assert_string_equal(sink.buffer, expected);
    sink_close(&sink);
}

static void json_write(struct sink *sink, const void *text, size_t size) {
    (void)foreign_json(sink, text, size);
}

/* Goal: no text of others becomes a command of a terminal, a formula, a second cell, or the end of a JSON string. */
TEST(foreign_text_stays_text) {
    assert_written(foreign_line, "a\x1b[2J\xe2\x80\xae", "a\\x1B[2J\xe2\x80\xae");
    assert_written(foreign_shown, "a\\\xc2\x9b\xe2\x80\xae", "a\\\\\\xC2\\x9B\\xE2\\x80\\xAE");
    assert_written(foreign_message, "say \\n: \x1b\n\xff", "say \\n: \\x1B\\n\\xFF");
    static const char *const formulas[] = {"=1+1", "+1", "-1", "@x",
                                           /* the wide = */ "\xef\xbc\x9d\x31"};
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++) {
        char expected[16];
        snprintf(expected, sizeof expected, "'%s", formulas[i]);
        assert_written(foreign_csv, formulas[i], expected);
    }
    assert_written(foreign_csv, "=\"a\",b", "\"'=\"\"a\"\",b\"");
    assert_written(foreign_csv, "a;=1", "\"a;=1\"");
    assert_written(foreign_csv, "-", "-");
    assert_written(foreign_csv, "a=1", "a=1");
    assert_written(foreign_csv, "\t=1", "\\t=1");
    assert_written(json_write, "\"\\\x1b\xc2\x85\xe2\x80\xa8\xff\xc3\xbc",
                   "\"\\\"\\\\\\u001b\\u0085\\u2028\\ufffd\xc3\xbc\"");
}

TEST(numbers_and_stamps_are_written_whole) {
    struct sink sink;
    char stamp[MOMENT_TEXT_SIZE];
    assert_true(sink_open(&sink, -1));
    sink_number(&sink, INT64_MIN);
    sink_byte(&sink, ' ');
    sink_number(&sink, INT64_MAX);
    sink_byte(&sink, ' ');
    sink_grouped(&sink, -1234567, 12);
    sink_grouped(&sink, 0, 0);
    assert_i64_equal(sink.size, 20 + 1 + 19 + 1 + 12 + 1);
    assert_memory_equal(sink.buffer, "-9223372036854775808 9223372036854775807   -1,234,5670", sink.size);
    sink_close(&sink);
    moment_text(1432004400000, stamp);
    assert_string_equal(stamp, "2015-05-19T03:00:00Z");
    moment_text(-1000, stamp);
    assert_string_equal(stamp, "1969-12-31T23:59:59Z");
    moment_text(-62135596800000, stamp);
    assert_string_equal(stamp, "0001-01-01T00:00:00Z");
}
