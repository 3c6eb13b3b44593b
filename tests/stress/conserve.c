/* conserve.c -- many threads add, insert and take at once while tables grow from nothing: sums, keys and limits are
 * exact. */
#include "tests/stress/stress.h"

#include "engine/core/family.h"
#include "engine/core/window_map.h"
#include "engine/memory/arena.h"
#include "engine/table/cell.h"

struct field {
    tw_engine *engine;
    tw_family *family;
    uint64_t rounds, keys;
    int64_t limit;
    atomic_int stop;
};

static void field_open(struct field *field, const tw_family_options *given, uint64_t memory_bytes) {
    tw_options options;
    tw_options_init(&options);
    options.memory_bytes_max = memory_bytes;
    tw_family_options family;
    tw_family_options_init(&family);
    if (given != NULL) family = *given;
    family.name = "field";
    family.window = TW_WINDOW_FOREVER;
    family.window_ms = 0;
    family.keys_expected = test_seed() % 2 == 0 ? 0 : 5000;
    field->engine = stress_open(&options);
    field->family = stress_family(field->engine, &family);
    atomic_store(&field->stop, 0);
}

static void field_close(struct field *field) {
    assert_status(tw_close(field->engine, 1000), TW_OK);
}

static bool check_cell(void *ctx, struct twi_cell *cell, uint64_t meta) {
    (void)ctx, (void)meta;
    assert_true(twi_cell_is_valid(cell));
    return true;
}

/* The whole structure, while nobody writes: every counter is sound and found by its key, the number of counters is
 * right, and so are the accounts of the memory. */
static void field_check(struct field *field) {
    struct twi_cursor cursor = {0};
    struct twi_generation *generation = twi_window_find(field->family, 0);
    assert_non_null(generation);
    assert_true(twi_table_is_valid(&field->engine->arena, generation, &field->engine->hashing.secret,
                                   field->engine->hashing.fn));
    twi_table_walk(&field->engine->arena, generation, &cursor, check_cell, NULL);
    assert_true(twi_arena_is_valid(&field->engine->arena));
}

/* ---- (a) adders and inserters ------------------------------------------------------------------------------------ */

static void add_own_and_shared(struct member *member) {
    struct field *field = member->team->ctx;
    for (uint64_t round = 0; round < field->rounds; round++) {
        int64_t delta = test_prng_between(&member->prng, -3, 10);
        uint64_t shared = test_prng_below(&member->prng, field->keys);
        uint64_t own = field->keys + member->index * field->rounds + round;
        uint64_t hot = 0;
        expect(tw_add(field->family, number_key(&shared), delta, NULL) == TW_OK);
        expect(tw_add(field->family, number_key(&own), 1, NULL) == TW_OK);
        expect(tw_add(field->family, number_key(&hot), 2, NULL) == TW_OK);
        int64_t view = -1;
        expect(tw_get(field->family, number_key(&own), &view) == TW_OK && view == 1); /* P3 */
        member->sum += delta + 3;
    }
}

/* Goal: the table holds exactly what threads add, each key once, while the index grows from one line (P1, P3, T1-T4).
 * Method: each thread has keys of its own and shares others; the sum is read by tw_each and by tw_get. */
TEST(sums_are_exact_while_the_table_grows) {
    struct field field = {.rounds = test_scale(40000), .keys = 20000};
    field_open(&field, NULL, UINT64_C(1) << 30);
    int64_t added = team_work(6, add_own_and_shared, &field);
    uint64_t numbers = field.keys + 6 * field.rounds;
    struct tally tally = {.seen = calloc(numbers, 1), .numbers = numbers};
    assert_non_null(tally.seen);
    assert_status(tw_each(field.family, TW_NOW, tally_count, &tally), TW_OK);
    assert_i64_equal(tally.sum, added);
    int64_t got = 0, distinct = 0;
    for (uint64_t number = 0; number < numbers; number++) {
        int64_t view;
        assert_status(tw_get(field.family, number_key(&number), &view), TW_OK);
        got += view;
        assert_true(tally.seen[number] <= 1);
        distinct += tally.seen[number];
    }
    assert_i64_equal(got, added);
    assert_i64_equal(distinct, tally.counters);
    assert_i64_equal(test_stat_of(field.engine, entries), tally.counters);
    free(tally.seen);
    field_check(&field);
    field_close(&field);
}

static void insert_the_same(struct member *member) {
    struct field *field = member->team->ctx;
    for (uint64_t number = 0; number < field->keys; number++)
        expect(tw_add(field->family, number_key(&number), 1, NULL) == TW_OK);
}

/* Goal: threads that insert one key at the same time meet at one slot (trap E12). Method: all insert the same keys in
 * the same order at once. */
TEST(the_same_keys_inserted_by_all_are_there_once) {
    struct field field = {.keys = 4000};
    for (uint64_t round = 0; round < test_scale(10); round++) {
        field_open(&field, NULL, UINT64_C(64) << 20);
        team_work(8, insert_the_same, &field);
        struct tally tally = {.seen = NULL};
        assert_status(tw_each(field.family, TW_NOW, tally_count, &tally), TW_OK);
        assert_i64_equal(tally.counters, field.keys);
        assert_i64_equal(tally.sum, 8 * (int64_t)field.keys);
        field_check(&field);
        field_close(&field);
    }
}

/* ---- (d) exact limits -------------------------------------------------------------------------------------------- */

static void take_units(struct member *member) {
    struct field *field = member->team->ctx;
    uint64_t number = 7;
    for (int denied = 0; denied < 3;) { /* after 10 units are refused 1 may still be left */
        int64_t n = denied == 0 ? 1 + (int64_t)test_prng_below(&member->prng, 10) : 1;
        tw_verdict verdict;
        tw_status status = tw_acquire(field->family, number_key(&number), n, field->limit, &verdict);
        expect(status == TW_OK || status == TW_DENIED);
        expect(verdict.used <= field->limit && verdict.allowed == (status == TW_OK));
        if (status == TW_OK)
            member->sum += n;
        else
            denied++;
    }
}

/* Goal: exactly the limit is admitted (traps E35, E36). */
TEST(exactly_the_limit_is_admitted) {
    const int64_t limits[] = {1, 2, 9, 10, 11, 1000, 99991, 1000000};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct field field = {.limit = limits[i]};
        if (test_is_slow() && field.limit > 20000) continue;
        field_open(&field, NULL, UINT64_C(16) << 20);
        assert_i64_equal(team_work(8, take_units, &field), field.limit);
        field_close(&field);
    }
}

static void be_first(struct member *member) {
    struct field *field = member->team->ctx;
    for (uint64_t number = 0; number < field->keys; number++) {
        bool first = false;
        expect(tw_once(field->family, number_key(&number), &first) == TW_OK);
        member->sum += first;
    }
}

/* Goal: exactly one caller is the first for each key. */
TEST(one_caller_is_first) {
    struct field field = {.keys = test_scale(30000)};
    field_open(&field, NULL, UINT64_C(64) << 20);
    assert_i64_equal(team_work(8, be_first, &field), field.keys);
    field_close(&field);
}

#define ALL_KEYS 8u
#define FULL UINT64_C(99) /* the key of which one unit exists */

static void claim_or_add(struct member *member) {
    struct field *field = member->team->ctx;
    for (uint64_t round = 0; round < field->rounds; round++) {
        uint64_t number = test_prng_below(&member->prng, ALL_KEYS), full = FULL;
        if (member->index % 2 == 0) {
            int64_t delta = test_prng_chance(&member->prng, 1, 2) ? -1 : 1;
            expect(tw_add(field->family, number_key(&number), delta, NULL) == TW_OK);
            member->sum += delta;
            continue;
        }
        int64_t n = test_prng_between(&member->prng, 1, 3);
        const tw_claim claims[] = {{field->family, number_key(&number), n, 1000000},
                                   {field->family, number_key(&full), 1, 1}};
        tw_status status = tw_acquire_all(claims, 2, NULL);
        expect(status == TW_OK || status == TW_DENIED);
        if (status != TW_OK) continue;
        expect(tw_add(field->family, number_key(&number), -n, NULL) == TW_OK); /* so counts stay near 0 */
        expect(tw_add(field->family, number_key(&full), -1, NULL) == TW_OK);
    }
}

/* Goal: a call that takes some of its claims and is denied the others leaves no unit, whatever others add to and
 * subtract from the same counters meanwhile, also below 0 (P1). */
TEST(denied_claims_leave_nothing) {
    struct field field = {.rounds = test_scale(200000)};
    field_open(&field, NULL, UINT64_C(16) << 20);
    int64_t sum = team_work(6, claim_or_add, &field), got = 0;
    for (uint64_t number = 0; number < ALL_KEYS; number++) {
        int64_t view;
        assert_status(tw_get(field.family, number_key(&number), &view), TW_OK);
        got += view;
    }
    assert_i64_equal(got, sum);
    field_close(&field);
}

/* ---- (f) bounds -------------------------------------------------------------------------------------------------- */

static void add_too_many(struct member *member) {
    struct field *field = member->team->ctx;
    for (uint64_t round = 0; round < field->rounds; round++) {
        uint64_t number = test_prng_below(&member->prng, field->keys);
        tw_status status = tw_add(field->family, number_key(&number), 3, NULL);
        expect(status == TW_OK || status == TW_OVERFLOWED || status == TW_ERR_FULL);
        if (status == TW_OK) member->sum += 3;
        if (status == TW_OVERFLOWED) member->other += 3;
    }
}

static void check_bound(uint32_t on_full, uint64_t keys_max, uint64_t memory_bytes) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.on_full = on_full;
    options.keys_max = keys_max;
    struct field field = {.rounds = test_scale(40000), .keys = 50000};
    field_open(&field, &options, memory_bytes);
    struct team team;
    team_start(&team, 6, add_too_many, &field);
    int64_t added = team_join(&team), over = team_others(&team);
    struct tally tally = {.seen = NULL};
    assert_status(tw_each(field.family, TW_NOW, tally_count, &tally), TW_OK);
    assert_i64_equal(tally.sum, added);
    assert_i64_equal(tally.overflow, over);
    assert_true(over == 0 || on_full == TW_ON_FULL_OVERFLOW);
    if (keys_max != 0) assert_i64_equal(tally.counters, keys_max);
    tw_stats stats;
    assert_status(tw_stats_read(field.engine, &stats), TW_OK);
    assert_true(stats.memory_bytes_high <= stats.memory_bytes_max);
    assert_i64_equal(stats.overflow_increments * 3, over);
    assert_i64_equal(stats.increments * 3, added + over);
    field_check(&field);
    field_close(&field);
}

/* Goal: a full family answers by its policy, keeps to its bound, and its figures stay right (P6). */
TEST(full_families_keep_their_books) {
    check_bound(TW_ON_FULL_OVERFLOW, 1000, UINT64_C(64) << 20);
    check_bound(TW_ON_FULL_REJECT, 1000, UINT64_C(64) << 20);
    check_bound(TW_ON_FULL_OVERFLOW, 0, UINT64_C(1) << 20);
    check_bound(TW_ON_FULL_REJECT, 0, UINT64_C(1) << 20);
}

/* ---- (e) readers ------------------------------------------------------------------------------------------------- */

static bool swallow(void *ctx, const char *text, size_t size) {
    (void)ctx, (void)text, (void)size;
    return true;
}

static void read_or_add(struct member *member) {
    struct field *field = member->team->ctx;
    if (member->index >= 3) {
        for (uint64_t round = 0; round < field->rounds; round++) {
            uint64_t number = test_prng_below(&member->prng, field->keys);
            expect(tw_add(field->family, number_key(&number), 1, NULL) == TW_OK);
            member->sum++;
        }
        atomic_fetch_add(&field->stop, 1);
        return;
    }
    int64_t last = 0;
    while (atomic_load(&field->stop) < 3) {
        struct tally tally = {.seen = calloc(field->keys, 1), .numbers = field->keys};
        if (tally.seen == NULL) return;
        expect(tw_each(field->family, TW_NOW, tally_count, &tally) == TW_OK);
        for (uint64_t number = 0; number < field->keys; number++) expect(tally.seen[number] <= 1);
        free(tally.seen);
        expect(tally.sum >= last); /* all deltas are positive, and a walk misses no counter that existed before it */
        last = tally.sum;
        tw_stats stats;
        expect(tw_stats_read(field->engine, &stats) == TW_OK);
        expect(tw_metrics_write(field->engine, TW_METRICS_PROMETHEUS, swallow, NULL) == TW_OK);
        uint64_t number = test_prng_below(&member->prng, field->keys);
        tw_reading reading;
        expect(tw_read(field->family, number_key(&number), &reading) == TW_OK && reading.known);
        expect(reading.view == reading.local);
    }
}

/* Goal: a walk shows each counter at most once and misses none that existed before it, while the index grows (trap
 * E33). */
TEST(readers_beside_growth_see_each_counter_once) {
    struct field field = {.rounds = test_scale(100000), .keys = 50000};
    field_open(&field, NULL, UINT64_C(64) << 20);
    int64_t added = team_work(6, read_or_add, &field);
    struct tally tally = {.seen = NULL};
    assert_status(tw_each(field.family, TW_NOW, tally_count, &tally), TW_OK);
    assert_i64_equal(tally.sum, added);
    field_close(&field);
}

/* ---- values near the edge ---------------------------------------------------------------------------------------- */

static void push_to_the_edge(struct member *member) {
    struct field *field = member->team->ctx;
    uint64_t number = 1;
    for (uint64_t round = 0; round < field->rounds; round++) {
        int64_t delta = member->index % 2 == 0 ? TW_DELTA_MAX : (INT64_C(1) << 40) - 1;
        tw_status status = tw_add(field->family, number_key(&number), delta, NULL);
        expect(status == TW_OK || status == TW_ERR_RANGE);
        if (status == TW_OK) member->sum += delta;
    }
}

/* Goal: a sum that would leave the range is refused before anything is written (trap E4, fault 29). */
TEST(sums_near_the_edge_are_refused_whole) {
    struct field field = {.rounds = 2000};
    field_open(&field, NULL, UINT64_C(16) << 20);
    uint64_t number = 1;
    int64_t base = 0, view;
    while (base < TW_COUNT_MAX - 300 * TW_DELTA_MAX / 2) {
        assert_status(tw_add(field.family, number_key(&number), TW_DELTA_MAX, &view), TW_OK);
        base += TW_DELTA_MAX;
    }
    int64_t added = team_work(6, push_to_the_edge, &field);
    assert_status(tw_get(field.family, number_key(&number), &view), TW_OK);
    assert_i64_equal(view, base + added);
    assert_true(view <= TW_COUNT_MAX);
    assert_true(view > TW_COUNT_MAX - TW_DELTA_MAX);
    field_close(&field);
}
