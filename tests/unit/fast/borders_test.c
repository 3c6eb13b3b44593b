/* borders_test.c -- no call reads a byte outside of its key. A key may begin where a page begins and end where one
 * ends, and the pages next to it may not be readable: fast paths load keys by whole vectors, which must not reach
 * there.
 * Method: keys of every size at both borders, through every call with a fast path, for both hashes, with an area,
 * without, and in a window that lies in no cache. Two copies of a key are one counter. The fast paths are for engines
 * with a thread, which writes the time down: here the test writes it. */
#include "tests/unit/rig.h"

#include "engine/base/hash_aes.h"
#include "engine/fast/fast.h"

#include <sys/mman.h>
#include <unistd.h>

#define GROUP 8u /* the smallest batch that is a group */
#define FAR 135000u

static struct rig rig;
static unsigned char *begins, *ends; /* the page between the two that may not be read */

static void make_borders(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *map = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mprotect(map, page, PROT_NONE), 0);
    assert_int_equal(mprotect(map + 2 * page, page, PROT_NONE), 0);
    begins = map + page, ends = map + 2 * page;
}

static void hold_time(void) {
    twi_store_relaxed(&rig.engine->clock.word, TWI_CLOCK_WORD(rig_now(&rig)));
}

/* Each call adds one to the key. Returns how many there were. */
static int64_t count_by_each_call(tw_family *family, tw_key key) {
    tw_key keys[GROUP];
    int64_t times[GROUP], views[GROUP], view;
    tw_verdict verdict;
    tw_pin *pin;
    for (size_t i = 0; i < GROUP; i++) keys[i] = key, times[i] = rig_now(&rig);
    assert_status(tw_add(family, key, 1, NULL), TW_OK);
    assert_status(tw_add(family, key, 1, &view), TW_OK);
    assert_status(tw_acquire(family, key, 1, 1000, NULL), TW_OK);
    assert_status(tw_acquire(family, key, 1, 1000, &verdict), TW_OK);
    assert_i64_equal(verdict.used, view + 2);
    assert_status(tw_acquire(family, key, 1, 1, &verdict), TW_DENIED);
    tw_enter(rig.engine);
    assert_status(tw_add(family, key, 1, &view), TW_OK);
    assert_status(tw_acquire(family, key, 1, 1000, &verdict), TW_OK);
    tw_leave(rig.engine);
    assert_i64_equal(verdict.used, view + 1);
    assert_status(tw_add_many(family, keys, NULL, GROUP, views, NULL), TW_OK);
    assert_i64_equal(views[GROUP - 1], verdict.used + GROUP);
    assert_status(tw_add_many_at(family, keys, NULL, GROUP, times, views, NULL), TW_OK);
    assert_status(tw_add_at(family, key, 1, times[0], &view), TW_OK);
    assert_i64_equal(view, verdict.used + 2 * GROUP + 1);
    assert_status(tw_pin_open(family, key, &pin), TW_OK);
    assert_status(tw_pin_add(pin, 1, NULL), TW_OK);
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    tw_pin_close(pin);
    return 6 + 2 * GROUP + 1 + 2;
}

static void check_distinct(tw_family *family, tw_key key, tw_key element) {
    bool changed;
    assert_status(tw_distinct_add(family, key, element, &changed), TW_OK);
    assert_status(tw_distinct_add(family, key, key, &changed), TW_OK);
    assert_status(tw_distinct_add(family, key, element, &changed), TW_OK);
    assert_false(changed);
}

/* Each call with a fast path refuses a key without bytes, and one that is a byte too long, and counts nothing. */
static void check_refused(tw_family *family, tw_family *distinct) {
    const size_t sizes[] = {0, TW_KEY_SIZE_MAX + 1};
    uint64_t counters = rig_each(family, TW_NOW).counters;
    bool changed;
    assert_status(tw_distinct_add(distinct, tw_bytes(NULL, 8), tw_str("e"), &changed), TW_ERR_KEY);
    assert_status(tw_distinct_add(distinct, tw_str("warm"), tw_bytes(NULL, 8), &changed), TW_ERR_KEY);
    tw_verdict verdict;
    for (size_t i = 0; i < 2; i++) {
        tw_key key = tw_bytes(begins, sizes[i]), keys[GROUP];
        int64_t times[GROUP];
        tw_pin *pin;
        for (size_t k = 0; k < GROUP; k++) keys[k] = key, times[k] = rig_now(&rig);
        assert_status(tw_distinct_add(distinct, key, tw_str("e"), &changed), TW_ERR_KEY);
        for (int entered = 0; entered < 2; entered++) {
            if (entered != 0) tw_enter(rig.engine);
            assert_status(tw_add(family, key, 1, NULL), TW_ERR_KEY);
            assert_status(tw_acquire(family, key, 1, 1000, NULL), TW_ERR_KEY);
            assert_status(tw_acquire(family, key, 1, 1000, &verdict), TW_ERR_KEY);
            if (entered != 0) tw_leave(rig.engine);
        }
        assert_status(tw_add_many(family, keys, NULL, GROUP, NULL, NULL), TW_ERR_KEY);
        assert_status(tw_add_many_at(family, keys, NULL, GROUP, times, NULL, NULL), TW_ERR_KEY);
        assert_status(tw_add_at(family, key, 1, times[0], NULL), TW_ERR_KEY);
        assert_status(tw_pin_open(family, key, &pin), TW_ERR_KEY);
    }
    assert_i64_equal(rig_each(family, TW_NOW).counters, counters);
}

static tw_family *family_of(const char *name, uint64_t keys_expected, uint32_t kind) {
    tw_family_options options = rig_options(name, TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_expected = keys_expected;
    options.kind = kind;
    return rig_family_of(&rig, &options);
}

/* A stopped engine counts nothing, also in the counters that the fast paths know. */
static void check_stopped(tw_family *family, tw_family *distinct) {
    assert_status(tw_add(family, tw_str("warm"), 1, NULL), TW_OK);
    assert_status(tw_distinct_add(distinct, tw_str("warm"), tw_str("e"), NULL), TW_OK);
    assert_status(tw_stop(rig.engine), TW_OK);
    assert_status(tw_add(family, tw_str("warm"), 1, NULL), TW_ERR_CLOSED);
    assert_status(tw_distinct_add(distinct, tw_str("warm"), tw_str("e"), NULL), TW_ERR_CLOSED);
}

/* Until the calling thread has a line for the statistics of this family's limits. */
static void warm(tw_family *family) {
    for (int i = 0; i < 2000; i++) assert_status(tw_acquire(family, tw_str("warm"), 1, 2000, NULL), TW_OK);
    rig_turn(&rig);
    assert_non_null(twi_load_acquire(&family->limit_lines));
    hold_time();
}

/* Each new key makes one piece of the area. Returns how many keys it needed. */
static uint64_t add_until_area(tw_family *family, const struct twi_generation *generation) {
    uint64_t keys = 0;
    while (twi_load_relaxed(&generation->area.places[0]) == 0) {
        char key[16];
        assert_true(keys < FAR);
        snprintf(key, sizeof key, "first %u", (unsigned)keys++);
        assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
    }
    return keys;
}

static void play(twi_hash_fn *hash, uint64_t keys_expected) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    rig_init(&rig);
    rig.options.memory_bytes_max = UINT64_C(256) << 20;
    rig_start(&rig);
    rig.engine->hashing.fn = hash; /* families choose their fast paths by it */
    tw_family *family = family_of("f", keys_expected, TW_KIND_COUNTER), *distinct = family_of("d", 1, TW_KIND_DISTINCT);
    bool is_aes = hash == twi_hash_aes();
    assert_true(is_aes || family->kind.hot_add == twi_hot_add_any);
    warm(family);
    const struct twi_generation *generation = twi_load_acquire(&family->current);
    uint64_t keys = 1; /* "warm" */
    if (keys_expected == FAR) keys += add_until_area(family, generation);
    assert_int_equal(twi_load_relaxed(&generation->area.places[0]) != 0, keys_expected == FAR);
    for (size_t size = 1; size <= TW_KEY_SIZE_MAX; size++) {
        tw_key first = tw_bytes(begins, size), last = tw_bytes(ends - size, size);
        int64_t wanted = 0, view;
        for (size_t i = 0; i < size; i++) begins[i] = (unsigned char)test_prng_next(&prng);
        if (size > 4) memcpy(begins, &size, 4); /* no two keys are equal */
        memmove(ends - size, begins, size);
        wanted += count_by_each_call(family, size % 2 != 0 ? first : last); /* new ones at both borders */
        wanted += count_by_each_call(family, first);
        wanted += count_by_each_call(family, last);
        assert_status(tw_get(family, last, &view), TW_OK);
        if (size > 2) assert_i64_equal(view, wanted); /* smaller keys may come twice */
        check_distinct(distinct, first, last);
        check_distinct(distinct, last, first);
        keys++;
    }
    assert_in_range(rig_each(family, TW_NOW).counters, keys - 2, keys);
    check_refused(family, distinct);
    check_stopped(family, distinct);
    rig_close(&rig);
}

TEST(keys_that_end_where_memory_ends) {
    const uint64_t expected[] = {1, 1200, FAR};
    make_borders();
    for (size_t i = 0; i < 3; i++) {
        play(twi_hash_sip, expected[i]);
        if (twi_hash_aes() != NULL) play(twi_hash_aes(), expected[i]);
    }
    if (twi_hash_aes() == NULL)
        test_leave_out("no AES rounds on this processor: run it on one that has them, as /proc/cpuinfo says");
}
