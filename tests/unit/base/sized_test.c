/* sized_test.c -- results in a struct of the caller's size. A program built with an older header has a shorter struct
 * than the library, one built with a newer header a longer one.
 * Method: the test passes the sizes that both would pass. */
#include "tests/unit/rig.h"

#include "engine/base/grow.h"

#define GUARD 0x5a
#define ROOM 2048

static struct rig rig;

/* The library's own struct, whole, and the result for a program that has `size` bytes of it. */
struct given {
    const void *whole;
    size_t whole_bytes;
    const unsigned char *bytes;
};

/* Fields that both know are there, fields that only the program knows are 0, and nothing behind its struct was
 * touched. */
static void check_given(struct given given, size_t size) {
    size_t known = size < given.whole_bytes ? size : given.whole_bytes;
    assert_memory_equal(given.bytes, given.whole, known);
    for (size_t i = known; i < size; i++) assert_int_equal(given.bytes[i], 0);
    for (size_t i = size; i < ROOM; i++) assert_int_equal(given.bytes[i], GUARD);
}

RIG_TEST(a_reading_fits_the_programs_header) {
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    unsigned char bytes[ROOM];
    tw_reading whole;
    rig_add(family, "a", 41);
    assert_status(tw_read(family, tw_str("a"), &whole), TW_OK);
    assert_i64_equal(whole.view, 41);
    for (size_t size = 0; size <= sizeof whole + 64; size++) {
        memset(bytes, GUARD, sizeof bytes);
        assert_status(tw_read_sized(family, tw_str("a"), (tw_reading *)(void *)bytes, size), TW_OK);
        check_given((struct given){&whole, sizeof whole, bytes}, size);
    }
    memset(bytes, GUARD, sizeof bytes);
    assert_status(tw_read_sized(family, tw_str(""), (tw_reading *)(void *)bytes, sizeof whole), TW_ERR_KEY);
    check_given((struct given){&whole, sizeof whole, bytes}, 0); /* an error writes nothing */
    assert_status(tw_read_sized(family, tw_str("a"), NULL, sizeof whole), TW_OK);
}

RIG_TEST(statistics_fit_the_programs_header) {
    static const size_t sizes[] = {
        0, 8, 20, offsetof(tw_stats, last_error), sizeof(tw_stats) - 1, sizeof(tw_stats), sizeof(tw_stats) + 8, ROOM};
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    unsigned char bytes[ROOM];
    tw_stats whole;
    rig_add(family, "a", 1);
    assert_status(tw_stats_read(rig.engine, &whole), TW_OK);
    assert_i64_equal(whole.increments, 1);
    assert_i64_equal(whole.entries, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(bytes, GUARD, sizeof bytes);
        assert_status(tw_stats_read_sized(rig.engine, (tw_stats *)(void *)bytes, sizes[i]), TW_OK);
        check_given((struct given){&whole, sizeof whole, bytes}, sizes[i]);
    }
}

/* Nothing listens on port 1: the report says so by its -1. */
RIG_TEST(a_report_fits_the_programs_header) {
    unsigned char bytes[ROOM];
    const tw_audit_report whole = {.memory_used = -1, .memory_max = -1, .evicted = -1};
    tw_audit_options options;
    tw_audit_options_init(&options);
    options.redis_url = "redis://127.0.0.1:1";
    for (size_t size = 0; size <= sizeof whole + 16; size += 8) {
        memset(bytes, GUARD, sizeof bytes);
        assert_status(tw_audit_sized(NULL, &options, NULL, NULL, (tw_audit_report *)(void *)bytes, size), TW_ERR_REDIS);
        check_given((struct given){&whole, sizeof whole, bytes}, size);
    }
    assert_status(tw_audit(NULL, &options, NULL, NULL, NULL), TW_ERR_REDIS);
    options.timeout_ms = 600001;
    memset(bytes, GUARD, sizeof bytes);
    assert_status(tw_audit_sized(NULL, &options, NULL, NULL, (tw_audit_report *)(void *)bytes, sizeof whole),
                  TW_ERR_OPTIONS);
    check_given((struct given){&whole, sizeof whole, bytes}, 0);
}

int main(void) {
    return test_run();
}
