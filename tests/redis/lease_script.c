/* lease_script.c -- lease.lua and leases.lua on a real server mean what tests/model/lease_store.h says they mean.
 * Method: random words, in no sensible order, go to both; each answer is compared number by number. The model goes by the time
 * that Redis's answer tells. */
#include <inttypes.h>

#include "tests/support/redis_server.h"
#include "tests/support/support.h"

#include "tests/model/lease_store.h"

#include "lease.lua.h"
#include "leases.lua.h"

#define INSTANCES 3
#define EPOCHS 3

static struct redis_server server;
static struct store store;
static struct test_prng prng;
static char ids[8][33];
static char run[41]; /* of the server, as it says now */

static const char *number(int64_t value) {
    static char texts[16][24];
    static int next;
    next = (next + 1) % 16;
    snprintf(texts[next], sizeof texts[0], "%lld", (long long)value);
    return texts[next];
}

/* The answer's lines. */
static size_t split(const char *reply, char lines[24][64]) {
    size_t count = 0;
    for (const char *at = reply; count < 24; at = strchr(at, '\n') + 1) {
        snprintf(lines[count++], 64, "%.*s", (int)strcspn(at, "\n"), at);
        if (strchr(at, '\n') == NULL) break;
    }
    return count;
}

/* The history of the server's data, as it says. */
static void read_run(void) {
    const char *at = strstr(redis_server_ask(&server, "INFO", "replication", NULL), "master_replid:");
    assert_non_null(at);
    snprintf(run, 41, "%.40s", at + strlen("master_replid:"));
}

/* The same data, and another history: what a promotion leaves. */
static void change_run(void) {
    redis_server_ask(&server, "REPLICAOF", "127.0.0.1", "1", NULL);
    redis_server_ask(&server, "REPLICAOF", "NO", "ONE", NULL);
    read_run();
}

static void compare_epoch(const struct store_word *word) {
    char lines[24][64];
    const char *other[2] = {word->other_count > 0 ? word->others[0] : NULL, NULL};
    const char *reply =
        redis_server_ask(&server, "EVAL", twi_script_leases, "2", "tw:leases", "tw:leases:wanted", "2", word->instance,
                         word->ask.epoch, word->epoch_run, word->ask.said, word->fresh,
                         number(word->ask.wanted_since_ms), word->ask.leaves ? "1" : "0", other[0], NULL);
    size_t count = split(reply, lines);
    assert_true(count >= 6);
    assert_string_equal(lines[0], "OK");
    struct store_answer model = store_run(&store, word, run, strtoll(lines[1], NULL, 10));
    if (word->ask.leaves) return;
    assert_string_equal(lines[2], model.id);
    assert_i64_equal(atoi(lines[3]), model.answer.open);
    assert_string_equal(lines[4], model.run);
    assert_i64_equal(atoi(lines[5]), model.other_count);
    bool wanted = count > 6 + model.other_count;
    assert_i64_equal(wanted, model.wanted[0]);
}

static void compare_lease(const struct store_word *word) {
    char lines[24][64];
    const struct twi_lease_ask *ask = &word->ask;
    const char *reply =
        redis_server_ask(&server, "EVAL", twi_script_lease, "3", "tw:leases", "tw:leases:wanted", "tw:lease:k0", "2",
                         word->epoch_id, word->instance, number((int64_t)word->serial), "0", number(ask->limit),
                         number(ask->granted), number(ask->target), number(ask->need), number(ask->returned),
                         number(ask->spent), number(ask->spent_all), ask->look ? "1" : "0", NULL);
    size_t count = split(reply, lines);
    assert_true(count >= 2);
    struct store_answer model = store_run(&store, word, run, strtoll(lines[1], NULL, 10));
    const char *status = model.stale ? "STALE" : model.answer.kind == TWI_LEASE_ENDED ? "EPOCH" : "OK";
    assert_string_equal(lines[0], status);
    if (strcmp(status, "OK") != 0) return;
    assert_i64_equal(count, 8);
    assert_i64_equal(atoll(lines[2]), model.answer.granted);
    assert_i64_equal(atoll(lines[3]), model.answer.total);
    assert_i64_equal(atoll(lines[4]), model.answer.spent_all);
    assert_i64_equal(atoll(lines[5]), model.answer.stranded);
    assert_i64_equal(atoll(lines[6]), model.answer.risk);
    assert_i64_equal(atoi(lines[7]), model.answer.open);
}

static struct store_word draw_word(struct twi_lease *some) {
    struct store_word word = {.serial = test_prng_below(&prng, 3)};
    snprintf(word.instance, sizeof word.instance, "%032d", (int)test_prng_below(&prng, INSTANCES));
    snprintf(word.fresh, sizeof word.fresh, "%s", ids[test_prng_below(&prng, EPOCHS)]);
    snprintf(word.epoch_run, sizeof word.epoch_run, "%s", test_prng_chance(&prng, 1, 3) ? "other" : run);
    const char *known = test_prng_chance(&prng, 5, 6) ? store.id : ids[test_prng_below(&prng, EPOCHS)];
    snprintf(word.epoch_id, sizeof word.epoch_id, "%s", known);
    snprintf(word.ask.epoch, sizeof word.ask.epoch, "%s", test_prng_chance(&prng, 1, 4) ? "" : known);
    snprintf(word.ask.said, sizeof word.ask.said, "%s", test_prng_chance(&prng, 1, 3) ? "" : known);
    word.ask.leaves = test_prng_chance(&prng, 1, 12);
    if (test_prng_chance(&prng, 1, 4))
        snprintf(word.others[word.other_count++], 33, "%032d", (int)test_prng_below(&prng, INSTANCES));
    if (test_prng_chance(&prng, 1, 4)) return word;
    word.ask.lease = some;
    word.ask.limit = test_prng_between(&prng, 0, 100);
    word.ask.granted = test_prng_between(&prng, 0, 60);
    word.ask.target = word.ask.granted + test_prng_between(&prng, 0, 40);
    word.ask.need = test_prng_between(&prng, 0, 20);
    word.ask.returned = test_prng_between(&prng, 0, 30);
    word.ask.spent = test_prng_between(&prng, -5, 30);
    word.ask.spent_all = test_prng_chance(&prng, 1, 3) ? test_prng_between(&prng, 0, 90) : 0;
    word.ask.look = test_prng_chance(&prng, 1, 3);
    return word;
}

/* The times for which an epoch waits, and an engine is new, are over. */
static void pass_time(void) {
    if (!store.has_id) return;
    redis_server_ask(&server, "HSET", "tw:leases", "from", "0", "to", "0", NULL);
    store.from_ms = store.to_ms = 0;
    for (int i = 0; i < STORE_INSTANCES; i++) {
        char field[40];
        if (!store.heard[i]) continue;
        snprintf(field, sizeof field, "b:%s", store.names[i]);
        redis_server_ask(&server, "HSET", "tw:leases", field, "1", NULL);
        store.born_ms[i] = 1;
    }
}

static void compare_words(uint64_t seed) {
    static char nothing;
    struct twi_lease *some = (struct twi_lease *)(void *)&nothing; /* any but NULL: it is not looked at */
    test_prng_seed(&prng, seed);
    for (int i = 0; i < EPOCHS; i++) snprintf(ids[i], sizeof ids[i], "epoch%d", i);
    redis_server_ask(&server, "FLUSHALL", NULL);
    store_wipe(&store);
    read_run();
    uint64_t words = test_scale(1500);
    for (uint64_t i = 0; i < words; i++) {
        if (test_prng_chance(&prng, 1, 4)) pass_time();
        if (test_prng_chance(&prng, 1, 150)) {
            redis_server_ask(&server, "FLUSHALL", NULL);
            store_wipe(&store);
        }
        if (test_prng_chance(&prng, 1, 20)) change_run();
        struct store_word word = draw_word(some);
        if (word.ask.lease == NULL)
            compare_epoch(&word);
        else
            compare_lease(&word);
    }
}

/* Goal: the model test of hard limits (tests/model/leases.c) speaks of the real scripts. */
static void the_scripts_mean_what_the_model_means(void **state) {
    (void)state;
    uint64_t seeds[32];
    redis_server_start(&server, NULL);
    size_t count = test_seeds("lease_script", 8, seeds, sizeof seeds / sizeof *seeds);
    for (size_t i = 0; i < count; i++) {
        printf("# words of seed 0x%" PRIx64 "\n", seeds[i]);
        fflush(stdout);
        compare_words(seeds[i]);
    }
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_scripts_mean_what_the_model_means),
    };
    return cmocka_run_group_tests_name("lease_script", tests, NULL, NULL);
}
