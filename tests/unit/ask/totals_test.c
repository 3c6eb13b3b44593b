/* totals_test.c -- names and totals out of pages: whole pages, cut ones, such as make no sense, and too many. */
#include "tests/support/support.h"

#include "engine/ask/fetch_shapes.h"

#include <stdlib.h>

/* A separate page, as twi_totals_add() takes it. */
static char *copy_of(const char *text, size_t size) {
    char *page = malloc(size + 1);
    assert_non_null(page);
    memcpy(page, text, size);
    return page;
}

static enum twi_totals_added add(struct twi_totals *totals, const char *text, size_t size) {
    return twi_totals_add(totals, copy_of(text, size), size, TW_DELTA_MAX);
}

static const char *joined(const struct twi_totals *totals) {
    static char text[512];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < totals->count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%.*s=%lld ", (int)totals->each[i].name.size,
                                 (const char *)totals->each[i].name.data, (long long)totals->each[i].total);
    return text;
}

TEST(pages_are_united_and_ranked) {
    struct twi_totals totals = {0};
    static const char *const pages[] = {"1:b1:52:ab1:5", "", "1:a2:-31:b1:70:1:1", "2:ab1:9"};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        assert_int_equal(add(&totals, pages[i], strlen(pages[i])), TWI_TOTALS_ADDED);
    twi_totals_unite(&totals);
    assert_string_equal(joined(&totals), "=1 a=-3 ab=9 b=7 ");
    twi_totals_rank(&totals);
    assert_string_equal(joined(&totals), "ab=9 b=7 =1 a=-3 ");
    assert_int_equal(add(&totals, "1:c1:91:B1:9", 12), TWI_TOTALS_ADDED);
    twi_totals_unite(&totals);
    twi_totals_rank(&totals);
    assert_string_equal(joined(&totals), "c=9 ab=9 B=9 b=7 =1 a=-3 "); /* equal ones downwards */
    twi_totals_clear(&totals);
    twi_totals_unite(&totals);
    assert_string_equal(joined(&totals), "");
}

TEST(what_is_no_whole_number_within_bounds_is_left_out) {
    static const char *const numbers[] = {"",
                                          "-",
                                          "+1",
                                          " 1",
                                          "1 ",
                                          "1.0",
                                          "1e3",
                                          "0x1",
                                          "inf",
                                          "--1",
                                          "9007199254740993",
                                          "-9007199254740993",
                                          "99999999999999999999"};
    struct twi_totals totals = {0};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char page[64];
        int size = snprintf(page, sizeof page, "1:x%zu:%s", strlen(numbers[i]), numbers[i]);
        assert_int_equal(add(&totals, page, (size_t)size), TWI_TOTALS_ADDED);
        if (totals.count != 0) fail_msg("\"%s\" is a number", numbers[i]);
    }
    assert_int_equal(add(&totals, "1:x16:90071992547409921:y17:-90071992547409921:z2:-0", 52), TWI_TOTALS_ADDED);
    assert_string_equal(joined(&totals), "x=9007199254740992 y=-9007199254740992 z=0 ");
    twi_totals_clear(&totals);
}

/* Goal: whatever a page holds, it is read or refused, and nothing beyond it is touched (the sanitizers look). */
TEST(a_page_of_no_sense_is_refused) {
    static const char page[] = "5:views2:305:likes1:2";
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t size = 0; size < sizeof page; size++) {
        struct twi_totals totals = {0};
        bool is_whole = size == 0 || size == 11 || size == 21;
        assert_int_equal(add(&totals, page, size), is_whole ? TWI_TOTALS_ADDED : TWI_TOTALS_MALFORMED);
        twi_totals_clear(&totals);
    }
    static const char *const wrong[] = {"views", ":views", "-1:a1:1", "1a1:1", "99999999999999999999999:a", "5:view"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct twi_totals totals = {0};
        assert_int_equal(add(&totals, wrong[i], strlen(wrong[i])), TWI_TOTALS_MALFORMED);
        twi_totals_clear(&totals);
    }
    for (int round = 0; round < 2000; round++) {
        char text[sizeof page];
        struct twi_totals totals = {0};
        memcpy(text, page, sizeof page);
        for (int i = 0; i < 3; i++)
            text[test_prng_below(&prng, sizeof page - 1)] = "0123456789:-xyz"[test_prng_below(&prng, 15)];
        enum twi_totals_added added = add(&totals, text, sizeof page - 1);
        assert_true(added == TWI_TOTALS_ADDED || added == TWI_TOTALS_MALFORMED);
        twi_totals_unite(&totals);
        twi_totals_rank(&totals);
        twi_totals_clear(&totals);
    }
}

TEST(more_than_a_million_or_64_mib_are_too_many) {
    struct twi_totals totals = {0};
    size_t size = (size_t)TWI_TOTALS_MAX * 6;
    char *page = malloc(size);
    assert_non_null(page);
    for (size_t i = 0; i < TWI_TOTALS_MAX; i++) memcpy(page + 6 * i, "1:a1:1", 6);
    assert_int_equal(twi_totals_add(&totals, page, size, INT64_MAX), TWI_TOTALS_ADDED);
    assert_int_equal(add(&totals, "1:b1:1", 6), TWI_TOTALS_TOO_MANY);
    twi_totals_clear(&totals);
    size = TWI_TOTALS_BYTES_MAX + 1; /* it is not read */
    page = malloc(size);
    assert_non_null(page);
    assert_int_equal(twi_totals_add(&totals, page, size, INT64_MAX), TWI_TOTALS_TOO_MANY);
    twi_totals_clear(&totals);
}
