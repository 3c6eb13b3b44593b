/* fake_driver.h -- a driver (engine/port/driver.h) that keeps a ledger instead of a connection to Redis.
 *
 * A test that links fake_driver.c gets it in place of the real driver: any redis_url will do. Each turn it collects,
 * and settles some of its items at random: acknowledged, returned (now or later) or given up. A ledger by key and
 * window records this, so that a test can compare it with the added units. Keys of the counters are 4 bytes: a number
 * below FAKE_KEYS. Windows are numbered from `base_ms` by `window_ms`.
 * Always true: an item is settled once. Only the owner of the turn writes the ledger, and it is read when turns have
 * ended. `acked` is atomic, so that a test may read it during turns. One engine at a time. */
#ifndef TEST_FAKE_DRIVER_H
#define TEST_FAKE_DRIVER_H

#include "tests/support/support.h"

#define FAKE_KEYS 64u
#define FAKE_WINDOWS 1024u

struct fake_driver {
    /* set by the test before tw_open() */
    int64_t base_ms, window_ms;
    uint64_t seed;
    _Atomic uint32_t return_percent, give_up_percent; /* of the items settled */
    _Atomic uint32_t hold_percent;                    /* how many items stay in flight after a turn */
    _Atomic size_t collect_max;                       /* items collected at once; 0: 200 */
    _Atomic bool totals;         /* acknowledgements have a total. All that is acknowledged of the key */
    _Atomic bool away;           /* collects and settles nothing */
    _Atomic bool settle_nothing; /* collects only */
    /* NULL, or it gets what is acknowledged in place of the ledger below. Then keys may be of any size. */
    void (*taken)(tw_key key, int64_t start_ms, int64_t delta);
    /* the ledger: [window][key]; the overflow counter is key FAKE_KEYS */
    _Atomic int64_t acked[FAKE_WINDOWS][FAKE_KEYS + 1];
    _Atomic int64_t given_up[FAKE_WINDOWS][FAKE_KEYS + 1];
    _Atomic uint32_t items_given_up[FAKE_WINDOWS]; /* deltas of one window may have the sum 0 */
    _Atomic uint64_t collected, settled, returned;
    _Atomic int64_t in_flight;
};
extern struct fake_driver fake_driver;

/* Forgets everything; set the fields that you need after it. */
void fake_driver_reset(int64_t base_ms, int64_t window_ms);
void fake_driver_install(tw_options *options);
/* The options of a host-driven shared engine with the driver, which has forgotten everything. */
void fake_driver_share(tw_options *options);
/* Acknowledged and given up, all keys and windows. */
int64_t fake_driver_sum(void);
int64_t fake_driver_given_up(void);
/* The same of one key (FAKE_KEYS: the overflow counter) in one window. */
int64_t fake_driver_of(int64_t start_ms, uint32_t key);

static inline tw_key fake_key(const uint32_t *number) {
    return tw_bytes(number, sizeof *number);
}

#endif
