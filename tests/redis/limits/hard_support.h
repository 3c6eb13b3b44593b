/* hard_support.h -- families with hard limits, and buyers, for hard.c, hard_processes.c and hard_store.c.
 * Always true: a buyer tries again until its result is final or its time is over. A connection that is made again in
 * between counts as an outage, too. */
#ifndef TEST_HARD_SUPPORT_H
#define TEST_HARD_SUPPORT_H

#include "tests/redis/sync_support.h"

static inline tw_family *hard_family_of(tw_engine *engine, const char *name, uint32_t window, int64_t window_ms,
                                        uint32_t on_outage) {
    tw_family_options options = plain_family_options(name, window, window_ms);
    options.limit_mode = TW_LIMIT_HARD;
    options.on_outage = on_outage;
    return opened_family(engine, options);
}

static inline tw_family *hard_family(tw_engine *engine, const char *name) {
    return hard_family_of(engine, name, TW_WINDOW_FOREVER, 0, TW_OUTAGE_LOCAL);
}

static inline bool is_over(tw_status status, const tw_verdict *verdict) {
    return status != TW_PENDING && (status != TW_DENIED || verdict->final || verdict->retry_after_ms < 0);
}

/* Tries until the result is final or the time is over. */
static inline tw_status buy(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t timeout_ms,
                            tw_verdict *verdict) {
    int64_t until_ms = test_mono_ms() + timeout_ms;
    tw_status status;
    while (!is_over(status = tw_acquire(family, key, n, limit, verdict), verdict) && test_mono_ms() < until_ms)
        test_sleep_ms(1);
    return status;
}

/* Buys n at a time until that is denied (or pending for so long); returns how many units. */
static inline int64_t sell(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t timeout_ms,
                           tw_verdict *verdict) {
    int64_t sold = 0;
    while (buy(family, key, n, limit, timeout_ms, verdict) == TW_OK) sold += n;
    return sold;
}

/* Buys so many, one by one; returns how many it got. */
static inline int64_t sell_some(tw_family *family, tw_key key, int64_t count, int64_t limit, int64_t timeout_ms) {
    tw_verdict verdict;
    int64_t sold = 0;
    while (sold < count && buy(family, key, 1, limit, timeout_ms, &verdict) == TW_OK) sold++;
    return sold;
}

#endif
