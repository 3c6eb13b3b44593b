/* support_engine.c -- the part of support.h that calls the library. It is a separate file, so that a test of one file
 * links without the rest.
 * Always true: it makes only public calls. */
#include "tests/support/support.h"

void test_status_equal(tw_status got, tw_status want, const char *text, const char *file, int line) {
    if (got == want) return;
    print_error("%s answers %s, should answer %s\n", text, tw_status_name(got), tw_status_name(want));
    _fail(file, line);
}

int64_t test_stat(tw_engine *engine, size_t offset) {
    tw_stats stats;
    assert_int_equal(tw_stats_read(engine, &stats), TW_OK);
    int64_t value;
    memcpy(&value, (const char *)&stats + offset, sizeof value);
    return value;
}

int64_t test_memory_bytes(tw_engine *engine) {
    return test_stat(engine, offsetof(tw_stats, memory_bytes));
}

void test_turn(tw_engine *engine, int turns_max) {
    for (int turns = 0; turns < turns_max; turns++) {
        assert_status(tw_turn(engine), TW_OK);
        if (tw_timeout_ms(engine) != 0) return;
    }
    fail_msg("%d turns and still something to do at once", turns_max);
}
