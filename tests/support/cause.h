/* cause.h -- what holds for each verdict that does not admit, whatever the limit: its cause, and when to ask again. */
#ifndef TEST_CAUSE_H
#define TEST_CAUSE_H

#include "tests/support/support.h"

static inline void test_assert_cause_at(const char *file, int line, const tw_verdict *verdict, uint32_t cause) {
    static const uint64_t none[7];
    bool is_known = cause == TW_CAUSE_LIMIT || (cause == TW_CAUSE_BUYER && verdict->retry_after_ms == -1);
    bool knows_nothing = cause == TW_CAUSE_OUTAGE || cause == TW_CAUSE_BUSY;
    bool is_retry = cause == TW_CAUSE_NEVER ? verdict->retry_after_ms == -1
                    : is_known              ? true
                                            : verdict->retry_after_ms >= 1 && verdict->retry_after_ms <= TW_MINUTE;
    bool is_empty = memcmp(verdict->reserved, none, sizeof verdict->reserved) == 0 &&
                    memcmp(verdict->reserved_bytes, none, sizeof verdict->reserved_bytes) == 0;
    if (verdict->cause == cause && verdict->allowed == 0 && is_retry && is_empty &&
        (!knows_nothing || verdict->remaining == 0) && (cause != TW_CAUSE_LIMIT || verdict->retry_after_ms > 0))
        return;
    print_error("%s:%d: cause %u instead of %u, allowed %u, retry_after_ms %lld, remaining %lld\n", file, line,
                verdict->cause, cause, verdict->allowed, (long long)verdict->retry_after_ms,
                (long long)verdict->remaining);
    fail();
}
#define test_assert_cause(verdict, cause) test_assert_cause_at(__FILE__, __LINE__, verdict, cause)

/* The call was admitted. */
static inline void test_assert_no_cause(const tw_verdict *verdict) {
    assert_int_equal(verdict->allowed, 1);
    assert_int_equal(verdict->cause, 0);
    assert_i64_equal(verdict->retry_after_ms, 0);
}

#endif
