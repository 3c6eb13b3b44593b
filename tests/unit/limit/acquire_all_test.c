/* acquire_all_test.c -- the short way of tw_acquire_all() (engine/fast/all_fast.h): it answers and counts as the
 * complete call does, it leaves to that call what it must, and threads that take the same units lose and double none.
 * Method: a host-driven engine with the system's clocks. Families whose `hot_acquire` is another function have the same
 * limits, but only the complete call.
 * Covers: engine/fast/all_fast.h, engine/limit/acquire.c. */
#include "tests/support/support.h"

#include "engine/core/family.h"
#include "engine/limit/limit_stats.h"

#include <pthread.h>

#define FAMILIES 4u
#define KEYS 24u
#define CALLS 20000u

static tw_engine *engine;

static void open_engine(bool has_thread) {
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = UINT64_C(64) << 20;
    options.threads = has_thread ? TW_OWN_THREAD : TW_HOST_DRIVEN;
    assert_status(tw_open(&options, &engine), TW_OK);
}

static tw_family_options options_of(const char *name) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = name;
    options.window_ms = 1000 * TW_DAY;
    return options;
}

static tw_family *open_family(const tw_family_options *options) {
    tw_family *family;
    assert_status(tw_family_open(engine, options, &family), TW_OK);
    return family;
}

/* Until this thread has a line for the statistics of the family's limits. */
static void warm(tw_family *family) {
    for (int i = 0; i < 1100; i++) assert_status(tw_acquire(family, tw_str("warm"), 1, TW_DELTA_MAX, NULL), TW_OK);
    assert_status(tw_turn(family->engine), TW_OK);
    assert_non_null(twi_load_acquire(&family->limit_lines));
}

static tw_family *family_of(const char *name) {
    tw_family_options options = options_of(name);
    tw_family *family = open_family(&options);
    warm(family);
    return family;
}

static int64_t count_of(tw_family *family, const char *key) {
    int64_t view;
    assert_status(tw_get(family, tw_str(key), &view), TW_OK);
    return view;
}

/* ---- the same answers -------------------------------------------------------------------------------------------- */

static const char *key_of(uint64_t number, char *key) {
    static const char *const forms[] = {"%u", "key %u", "a key of 20 bytes %02u",
                                        "a key of more than thirty-two bytes %u"};
    snprintf(key, 64, forms[number % 4], (unsigned)number);
    return key;
}

static void compare(const tw_verdict *fast, const tw_verdict *slow) {
    tw_verdict same = *slow;
    assert_in_range(slow->reset_after_ms - fast->reset_after_ms + 60000, 0, 120000);
    assert_in_range(slow->retry_after_ms - fast->retry_after_ms + 60000, 0, 120000);
    same.reset_after_ms = fast->reset_after_ms;
    same.retry_after_ms = fast->retry_after_ms;
    assert_memory_equal(fast, &same, sizeof same);
}

/* Goal: status, verdict, counts and statistics are those of the complete call.
 * Method: the same claims, drawn from a seed, on two families each: known keys and new ones, keys that are claimed
 * twice, n and limits of 0, limits that are reached, more claims than the short way takes. */
TEST(it_answers_as_the_complete_call) {
    open_engine(false);
    tw_family *families[2][FAMILIES];
    for (uint32_t i = 0; i < FAMILIES; i++) {
        char name[16];
        for (uint32_t slow = 0; slow < 2; slow++) {
            snprintf(name, sizeof name, "f%u%u", (unsigned)slow, (unsigned)i);
            families[slow][i] = family_of(name);
        }
        twi_store_relaxed(&families[1][i]->kind.hot_acquire, families[1][i]->kind.limit->by_counter);
    }
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    uint64_t answers[2] = {0};
    for (uint32_t call = 0; call < CALLS; call++) {
        tw_claim claims[2][10];
        char keys[10][64];
        size_t count = 1 + test_prng_below(&prng, call % 4 == 0 ? 10 : 3);
        for (size_t i = 0; i < count; i++) {
            uint64_t family = test_prng_below(&prng, FAMILIES);
            key_of(test_prng_below(&prng, KEYS), keys[i]);
            for (int slow = 0; slow < 2; slow++)
                claims[slow][i] = (tw_claim){.family = families[slow][family], .key = tw_str(keys[i])};
            claims[0][i].n = claims[1][i].n = TEST_PRNG_PICK(&prng, 1, 1, 1, 2, 3, 0);
            claims[0][i].limit = claims[1][i].limit = TEST_PRNG_PICK(&prng, 100000, 100000, 2000, 2000, 2000, 300, 0);
        }
        tw_verdict verdicts[2];
        memset(verdicts, 0xa5, sizeof verdicts);
        tw_status status = tw_acquire_all(claims[0], count, &verdicts[0]);
        assert_status(tw_acquire_all(claims[1], count, &verdicts[1]), status);
        assert_true(status == TW_OK || status == TW_DENIED);
        /* the order of two claims on different families is that of their addresses */
        if (status == TW_OK || verdicts[0].claim == verdicts[1].claim) compare(&verdicts[0], &verdicts[1]);
        answers[status]++;
    }
    assert_true(answers[0] > CALLS / 10 && answers[1] > CALLS / 100);
    for (uint32_t i = 0; i < FAMILIES; i++) {
        char key[64];
        for (uint32_t number = 0; number < KEYS; number++) {
            key_of(number, key);
            assert_i64_equal(count_of(families[0][i], key), count_of(families[1][i], key));
        }
        struct twi_limit_stats sums[2];
        memset(sums, 0, sizeof sums);
        for (int slow = 0; slow < 2; slow++) twi_limit_stats_add(families[slow][i], &sums[slow]);
        assert_i64_equal(sums[0].admitted, sums[1].admitted);
        assert_i64_equal(sums[0].near, sums[1].near);
    }
    assert_status(tw_close(engine, 0), TW_OK);
}

/* ---- what it leaves to the complete call ------------------------------------------------------------------------- */

static bool takes_two(tw_claim one, tw_claim two) {
    const tw_claim claims[] = {one, two};
    tw_verdict verdict;
    return one.family->kind.limit->all(claims, 2, &verdict);
}

TEST(it_refuses_what_is_not_plain_and_takes_nothing) {
    open_engine(false);
    tw_engine *first = engine;
    tw_family *a = family_of("a"), *b = family_of("b");
    open_engine(false);
    tw_family *foreign = family_of("foreign");
    const tw_claim good = {.family = a, .key = tw_str("warm"), .n = 1, .limit = 5000};
    tw_claim other = good;
    other.family = b;
    assert_true(takes_two(good, other));
    tw_claim wrong[] = {other, other, other, other, other, other, other, other, other, good};
    wrong[0].key = tw_str("new key");
    wrong[1].n = 0;
    wrong[2].limit = 0;
    wrong[3].limit = 1101; /* no room */
    wrong[4].family = foreign;
    wrong[5].key = tw_str("k");
    wrong[6].n = TW_DELTA_MAX + 1;
    wrong[7].n = -1;
    wrong[8].key.data = wrong[9].key.data = NULL; /* another family, and the same one */
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (takes_two(good, wrong[i])) fail_msg("claim %zu was taken", i);
        if (takes_two(wrong[i], good)) fail_msg("claim %zu was taken as the first one", i);
    }
    assert_i64_equal(count_of(a, "warm"), 1101);
    assert_i64_equal(count_of(b, "warm"), 1101);
    assert_i64_equal(count_of(foreign, "warm"), 1100);
    assert_i64_equal(count_of(b, "new key"), 0);
    struct twi_limit_stats sum = {0};
    twi_limit_stats_add(b, &sum);
    assert_i64_equal(sum.admitted, 1101);
    assert_status(tw_stop(first), TW_OK);
    assert_false(takes_two(good, other));
    assert_status(tw_close(first, 0), TW_OK);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* Goal: also a thread that is in a section, whose last add inserted a key, or that adds to one counter again and again,
 * takes the short way. */
TEST(what_the_thread_did_before_does_not_matter) {
    open_engine(false);
    tw_family *a = family_of("a"), *b = family_of("b");
    const tw_claim one = {.family = a, .key = tw_str("warm"), .n = 1, .limit = 5000},
                   two = {.family = b, .key = tw_str("warm"), .n = 1, .limit = 5000};
    tw_enter(engine);
    assert_true(takes_two(one, two));
    tw_leave(engine);
    assert_status(tw_add(a, tw_str("a new key"), 1, NULL), TW_OK);
    assert_true(takes_two(one, two));
    for (int i = 0; i < 3000; i++) assert_status(tw_add(a, tw_str("a new key"), 1, NULL), TW_OK);
    assert_true(takes_two(one, two));
    assert_i64_equal(count_of(b, "warm"), 1103);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* Goal: if units are gone when their turn comes, those that were taken go back, and nothing is counted. Two claims on
 * one counter that have room together are taken.
 * Method: the claims with the higher address come last. They are on one counter, where each has room, and both together
 * have not. */
TEST(what_was_taken_goes_back) {
    open_engine(false);
    tw_family *b = family_of("a"), *a = family_of("b");
    if ((uintptr_t)a < (uintptr_t)b) {
        tw_family *first = a;
        a = b;
        b = first;
    }
    const tw_claim one = {.family = a, .key = tw_str("warm"), .n = 2, .limit = 1103},
                   two = {.family = b, .key = tw_str("warm"), .n = 3, .limit = 5000};
    const tw_claim claims[] = {one, two, one};
    tw_verdict verdict;
    assert_false(a->kind.limit->all(claims, 3, &verdict));
    assert_false(takes_two(one, one));
    assert_i64_equal(count_of(a, "warm"), 1100);
    assert_i64_equal(count_of(b, "warm"), 1100);
    struct twi_limit_stats sum = {0};
    twi_limit_stats_add(a, &sum);
    assert_i64_equal(sum.admitted, 1100);
    assert_true(takes_two(two, two));
    assert_i64_equal(count_of(b, "warm"), 1106);
    assert_status(tw_acquire_all(&one, 1, &verdict), TW_OK);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* Goal: kinds of families for which it has no meaning have none, and shadow mode goes on to admit what is denied. */
TEST(other_kinds_of_families_do_not_use_it) {
    open_engine(false);
    tw_family_options kinds[3];
    static const char *const names[] = {"first", "sliding", "gcra"};
    for (int i = 0; i < 3; i++) kinds[i] = options_of(names[i]);
    kinds[0].window = TW_WINDOW_FROM_FIRST;
    kinds[1].limit_shape = TW_SHAPE_SLIDING;
    kinds[2].limit_shape = TW_SHAPE_GCRA;
    for (int i = 0; i < 3; i++) {
        kinds[i].window_ms = TW_HOUR;
        assert_null(open_family(&kinds[i])->kind.limit->all);
    }
    tw_family_options options = options_of("shadow");
    tw_family *family = open_family(&options);
    warm(family);
    options.shadow = true;
    assert_status(tw_family_set(family, &options), TW_OK);
    tw_verdict verdict;
    const tw_claim claim = {.family = family, .key = tw_str("warm"), .n = 1, .limit = 1100};
    assert_status(tw_acquire_all(&claim, 1, &verdict), TW_OK);
    assert_false(verdict.allowed);
    assert_i64_equal(count_of(family, "warm"), 1100);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

#define THREADS 4
#define LIMIT 150000

static struct race {
    tw_family *wide, *narrow;
    _Atomic int64_t taken;
    _Atomic bool is_over;
} race;

static void *take_until_over(void *unused) {
    (void)unused;
    const tw_claim claims[] = {{.family = race.wide, .key = tw_str("contended"), .n = 1, .limit = TW_DELTA_MAX},
                               {.family = race.narrow, .key = tw_str("contended"), .n = 1, .limit = LIMIT}};
    while (!race.is_over) {
        tw_status status = tw_acquire_all(claims, 2, NULL);
        if (status == TW_OK) race.taken++;
        if (status == TW_DENIED) break;
    }
    return NULL;
}

/* Goal: of two limits the narrow one is admitted exactly, and the wide one counts as much, because units go back. */
TEST(threads_get_exactly_the_narrow_limit) {
    open_engine(true);
    tw_family_options options = options_of("wide");
    race.wide = open_family(&options);
    options.name = "narrow";
    race.narrow = open_family(&options);
    race.taken = 0;
    race.is_over = false;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_until_over, NULL), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_i64_equal(race.taken, LIMIT);
    assert_i64_equal(count_of(race.narrow, "contended"), LIMIT);
    assert_i64_equal(count_of(race.wide, "contended"), LIMIT);
    assert_status(tw_close(engine, 0), TW_OK);
}

static void *take_one_until_over(void *unused) {
    (void)unused;
    const tw_claim claim = {.family = race.wide, .key = tw_str("contended"), .n = 1, .limit = TW_DELTA_MAX};
    while (!race.is_over) {
        if (tw_acquire_all(&claim, 1, NULL) != TW_OK) abort();
        race.taken++;
    }
    return NULL;
}

static bool is_striped(void *unused) {
    (void)unused;
    tw_stats stats;
    assert_status(tw_stats_read(engine, &stats), TW_OK);
    return stats.striped > 0;
}

/* Goal: a counter that only this call uses gets slices when threads contend for it, and then loses nothing. */
TEST(contention_is_noticed) {
    if (test_is_slow()) {
        test_leave_out("under valgrind no two threads run at once: a build without valgrind and sanitizers runs this");
        return;
    }
    open_engine(true);
    tw_family_options options = options_of("wide");
    race.wide = open_family(&options);
    race.taken = 0;
    race.is_over = false;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, take_one_until_over, NULL);
    bool striped = test_wait(is_striped, NULL, TEST_PATIENCE_MS);
    test_sleep_ms(50);
    race.is_over = true;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_true(striped);
    assert_i64_equal(count_of(race.wide, "contended"), race.taken);
    assert_status(tw_close(engine, 0), TW_OK);
}
