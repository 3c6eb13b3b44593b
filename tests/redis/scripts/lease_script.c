/* lease_script.c -- lease.lua and leases.lua on a real server do what tests/model/lease_store.h does.
 * Method: random messages, in no sensible order, go to both; each reply is compared number by number. The model uses
 * the time in Redis's reply. */
#include <inttypes.h>

#include "tests/support/redis_server.h"
#include "tests/support/support.h"

#include "tests/model/lease_store.h"

#include "lease.lua.h"
#include "leases.lua.h"

#define INSTANCES 3
#define LINES_MAX 128

static struct redis_server server;
static struct store store;
static struct test_prng prng;
static uint64_t words_drawn;
static char run[41]; /* the history that the server reports now */

static const char *number(int64_t value) {
    static char texts[16][24];
    static int next;
    next = (next + 1) % 16;
    snprintf(texts[next], sizeof texts[0], "%lld", (long long)value);
    return texts[next];
}

/* The lines of a reply. */
static size_t split(const char *reply, char lines[LINES_MAX][64]) {
    size_t count = 0;
    for (const char *at = reply; count < LINES_MAX; at = strchr(at, '\n') + 1) {
        snprintf(lines[count++], 64, "%.*s", (int)strcspn(at, "\n"), at);
        if (strchr(at, '\n') == NULL) break;
    }
    return count;
}

/* Reads the history of the server's data, as it reports it. */
static void read_run(void) {
    const char *at = strstr(redis_server_ask(&server, "INFO", "replication", NULL), "master_replid:");
    assert_non_null(at);
    snprintf(run, 41, "%.40s", at + strlen("master_replid:"));
}

/* Leaves the data and changes their history, as a promotion does. */
static void change_run(void) {
    redis_server_ask(&server, "REPLICAOF", "127.0.0.1", "1", NULL);
    redis_server_ask(&server, "REPLICAOF", "NO", "ONE", NULL);
    read_run();
}

static void compare_epoch(const struct store_word *word) {
    char lines[LINES_MAX][64];
    const char *other[2] = {word->other_count > 0 ? word->others[0] : NULL, NULL};
    const char *reply = redis_server_ask(&server, "EVAL", twi_script_leases, "2", "tw:leases", "tw:leases:wanted", "2",
                                         word->instance, word->ask.epoch, word->epoch_run, word->ask.resent_in,
                                         word->fresh, number(word->ask.requested_since_ms),
                                         !word->ask.leaves   ? "0"
                                         : word->leaves_life ? word->life
                                                             : "1",
                                         number(word->changes), number(word->every_ms), other[0], NULL);
    size_t count = split(reply, lines);
    assert_true(count >= 10);
    assert_string_equal(lines[0], "OK");
    struct store_answer model = store_run(&store, word, run, strtoll(lines[1], NULL, 10));
    if (word->ask.leaves) return;
    assert_string_equal(lines[2], model.id);
    assert_i64_equal(atoi(lines[3]), model.answer.open);
    assert_string_equal(lines[4], model.run);
    assert_string_equal(lines[5], model.life);
    assert_i64_equal(atoi(lines[6]), model.answer.every_ms);
    assert_i64_equal(atoi(lines[7]), model.answer.changes);
    assert_string_equal(lines[8], model.answer.whole ? "1" : "0");
    assert_i64_equal(atoi(lines[9]), model.other_count);
    for (uint32_t i = 0; i < model.other_count && !model.answer.whole; i++)
        assert_string_equal(lines[10 + i], model.others[i]);
    bool wanted = count > 10 + model.other_count;
    assert_i64_equal(wanted, model.wanted[0]);
}

static void compare_lease(const struct store_word *word) {
    char lines[LINES_MAX][64];
    const struct twi_lease_message *ask = &word->ask;
    const char *reply = redis_server_ask(
        &server, "EVAL", twi_script_lease, "3", "tw:leases", "tw:leases:wanted", "tw:lease:k0", "2", word->epoch_id,
        word->instance, number((int64_t)word->serial), "0", number(ask->limit), number(ask->granted),
        number(ask->target), number(ask->need), number(ask->returned), number(ask->spent), number(ask->spent_all),
        ask->look ? "1" : "0", word->life, ask->base >= 0 ? number(ask->base) : "", number(ask->risk), NULL);
    size_t count = split(reply, lines);
    assert_true(count >= 2);
    struct store_answer model = store_run(&store, word, run, strtoll(lines[1], NULL, 10));
    const char *status = model.stale                            ? "STALE"
                         : model.twin                           ? "TWIN"
                         : model.answer.kind == TWI_LEASE_ENDED ? "EPOCH"
                                                                : "OK";
    assert_string_equal(lines[0], status);
    if (strcmp(status, "OK") != 0) return;
    assert_i64_equal(count, 9);
    assert_i64_equal(atoll(lines[2]), model.answer.granted);
    assert_i64_equal(atoll(lines[3]), model.answer.total);
    assert_i64_equal(atoll(lines[4]), model.answer.spent_all);
    assert_i64_equal(atoll(lines[5]), model.answer.stranded);
    assert_i64_equal(atoll(lines[6]), model.answer.risk);
    assert_i64_equal(atoi(lines[7]), model.answer.open);
    assert_i64_equal(atoi(lines[8]), model.answer.wait_ms);
}

static void compare_lease_hash(void) {
    const struct store_lease *lease = &store.leases[0];
    if (!lease->there) return;
    assert_i64_equal(atoll(redis_server_ask(&server, "HGET", "tw:lease:k0", "t", NULL)), lease->total);
    assert_i64_equal(atoll(redis_server_ask(&server, "HGET", "tw:lease:k0", "s", NULL)), lease->spent);
    assert_i64_equal(atoll(redis_server_ask(&server, "HGET", "tw:lease:k0", "d", NULL)), lease->folded);
    assert_i64_equal(atoll(redis_server_ask(&server, "HGET", "tw:lease:k0", "p", NULL)), lease->passed);
}

static struct store_word draw_word(struct twi_lease *some) {
    struct store_word word = {.serial = test_prng_below(&prng, 3)};
    snprintf(word.instance, sizeof word.instance, "%032d", (int)test_prng_below(&prng, INSTANCES));
    snprintf(word.fresh, sizeof word.fresh, "epoch%llu", (unsigned long long)++words_drawn);
    char other_epoch[33]; /* one of the earlier epochs, if there was one */
    snprintf(other_epoch, sizeof other_epoch, "epoch%llu",
             (unsigned long long)(words_drawn - test_prng_below(&prng, 10)));
    snprintf(word.epoch_run, sizeof word.epoch_run, "%s", test_prng_chance(&prng, 1, 3) ? "other" : run);
    const char *known = test_prng_chance(&prng, 5, 6) ? store.id : other_epoch;
    snprintf(word.epoch_id, sizeof word.epoch_id, "%s", known);
    snprintf(word.ask.epoch, sizeof word.ask.epoch, "%s", test_prng_chance(&prng, 1, 4) ? "" : known);
    snprintf(word.ask.resent_in, sizeof word.ask.resent_in, "%s", test_prng_chance(&prng, 1, 3) ? "" : known);
    word.ask.leaves = test_prng_chance(&prng, 1, 12);
    word.leaves_life = words_drawn % 2 == 0;
    int64_t born_ms = store.born_ms[store_instance(&store, word.instance)];
    snprintf(word.life, sizeof word.life, "%s", words_drawn % 3 == 0 || born_ms == 0 ? "7" : number(born_ms));
    if (test_prng_chance(&prng, 1, 4))
        snprintf(word.others[word.other_count++], 33, "%032d", (int)test_prng_below(&prng, INSTANCES));
    word.changes = test_prng_chance(&prng, 1, 4) ? -1 : store.changes - (int64_t)test_prng_below(&prng, 5);
    word.every_ms = test_prng_chance(&prng, 1, 4) ? 2000 : 150;
    if (test_prng_chance(&prng, 1, 4)) return word;
    word.ask.lease = some;
    int64_t life = store.born_ms[store_instance(&store, word.instance)];
    snprintf(word.life, sizeof word.life, "%s", test_prng_chance(&prng, 1, 20) ? "7" : number(life));
    word.ask.base = test_prng_chance(&prng, 1, 3) ? test_prng_between(&prng, 0, 30) : -1;
    word.ask.limit = test_prng_between(&prng, 0, 100);
    word.ask.granted = test_prng_between(&prng, 0, 60);
    word.ask.target = word.ask.granted + test_prng_between(&prng, 0, 40);
    word.ask.need = test_prng_between(&prng, 0, 20);
    word.ask.returned = test_prng_between(&prng, 0, 30);
    word.ask.spent = test_prng_between(&prng, -5, 30);
    word.ask.spent_all = test_prng_chance(&prng, 1, 3) ? test_prng_between(&prng, 0, 90) : 0;
    word.ask.risk = test_prng_chance(&prng, 1, 3) ? test_prng_between(&prng, 0, 40) : 0;
    word.ask.look = test_prng_chance(&prng, 1, 3);
    return word;
}

/* Makes both times pass: for which an epoch waits, and for which an engine is new. */
static void pass_time(void) {
    if (!store.has_id) return;
    redis_server_ask(&server, "HSET", "tw:leases", "from", "0", "to", "0", "k", "0 0", NULL);
    store.from_ms = store.to_ms = 0;
    store.was_tidied = false;
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
    struct twi_lease *some = (struct twi_lease *)(void *)&nothing; /* not NULL; no thread reads through it */
    test_prng_seed(&prng, seed);
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
        if (test_prng_chance(&prng, 1, 20)) compare_lease_hash();
    }
}

/* Goal: the model of hard limits (tests/model/leases.c) does what the real scripts do. */
TEST(the_scripts_mean_what_the_model_means) {
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

/* ---- engines that come and go ------------------------------------------------------------------------------------ */

struct engine {
    char instance[33], id[33], life[33];
};

static void comes(struct engine *engine, bool leaves) {
    char lines[LINES_MAX][64];
    const char *reply =
        redis_server_ask(&server, "EVAL", twi_script_leases, "2", "tw:leases", "tw:leases:wanted", "2",
                         engine->instance, "", "", "", "an epoch", "0", leaves ? "1" : "0", "-1", "0", NULL);
    assert_true(split(reply, lines) >= 10);
    assert_string_equal(lines[0], "OK");
    if (leaves) return;
    snprintf(engine->id, sizeof engine->id, "%.32s", lines[2]);
    snprintf(engine->life, sizeof engine->life, "%.32s", lines[5]);
}

/* The reply: its status, or, if that is OK, the units granted so far. */
static const char *says(const struct engine *engine, int64_t granted, int64_t wants, int64_t spent, bool looks) {
    static char answer[64];
    char lines[LINES_MAX][64];
    const char *reply = redis_server_ask(&server, "EVAL", twi_script_lease, "3", "tw:leases", "tw:leases:wanted",
                                         "tw:lease:k0", "2", engine->id, engine->instance, "1", "0", "1000",
                                         number(granted), number(granted + wants), wants != 0 ? "1" : "0", "0",
                                         number(spent), "0", looks ? "1" : "0", engine->life, "", "0", NULL);
    size_t count = split(reply, lines);
    snprintf(answer, sizeof answer, "%s", strcmp(lines[0], "OK") == 0 && count == 9 ? lines[2] : lines[0]);
    return answer;
}

static int64_t figure(const char *field) {
    return atoll(redis_server_ask(&server, "HGET", "tw:lease:k0", field, NULL));
}

/* Goal: an engine that has left does not keep a separate field for ever. A late copy of its messages changes nothing,
 * not even after a late copy of its first message. */
TEST(engines_that_left_are_folded_into_one_field) {
    enum { ENGINES = 200 };
    static struct engine engines[ENGINES + 1];
    redis_server_start(&server, NULL);
    for (int i = 0; i <= ENGINES; i++) {
        snprintf(engines[i].instance, sizeof engines[i].instance, "%032d", i);
        comes(&engines[i], false);
    }
    redis_server_ask(&server, "HSET", "tw:leases", "from", "0", NULL);
    test_sleep_ms(1250); /* they are new for this long */
    for (int i = 0; i <= ENGINES; i++) comes(&engines[i], false);
    for (int i = 0; i < ENGINES; i++) {
        assert_string_equal(says(&engines[i], 0, 2, 0, false), "2");
        assert_string_equal(says(&engines[i], 2, 0, i == 0 ? 1 : 2, false), "2"); /* the first engine keeps a unit */
        comes(&engines[i], true);
    }
    struct engine *last = &engines[ENGINES];
    for (int i = 0; i < 20; i++) {
        assert_string_equal(says(last, 0, 0, 0, true), "0");
        test_sleep_ms(20);
    }
    assert_true(atoll(redis_server_ask(&server, "HLEN", "tw:lease:k0", NULL)) < 10);
    assert_i64_equal(figure("t"), 2 * ENGINES);
    assert_i64_equal(figure("s"), 2 * ENGINES - 1);
    assert_i64_equal(figure("d"), 2 * (ENGINES - 1));
    assert_string_equal(redis_server_ask(&server, "HGET", "tw:lease:k0", engines[0].instance, NULL), "1 2 0 1 0");
    struct engine before = engines[1];
    assert_string_equal(says(&before, 2, 5, 2, false), "EPOCH");
    comes(&engines[1], false);
    assert_string_equal(says(&before, 2, 5, 2, false), "EPOCH");
    assert_i64_equal(figure("t"), 2 * ENGINES);
    redis_server_destroy(&server);
}

/* Goal: a share is computed from the living engines, however many have drawn before; the fields of engines that left
 * are folded over time. */
TEST(engines_that_left_take_no_part_of_a_share) {
    static const char fill[] =
        "for i = 1, 20000 do redis.call('HSET', KEYS[1], string.format('%032x', i), '1 9 0 9 0') end "
        "return redis.call('HSET', KEYS[1], 't', '0', 's', '0', 'l', '1000', 'e', 'x')";
    struct engine engine = {.instance = "0123456789abcdef0123456789abcdef"};
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "EVAL", fill, "1", "tw:lease:k0", NULL);
    comes(&engine, false);
    redis_server_ask(&server, "HSET", "tw:leases", "from", "0", NULL);
    test_sleep_ms(250); /* engines that left are late by now */
    comes(&engine, false);
    assert_string_equal(says(&engine, 0, 1000, 0, false), "500");
    for (int i = 0; i < 200 && figure("d") < INT64_C(20000) * 9; i++) {
        assert_string_equal(says(&engine, 500, 0, 0, true), "500");
        redis_server_ask(&server, "EVAL",
                         "local k = redis.call('HGET', KEYS[1], 'k') "
                         "return k and redis.call('HSET', KEYS[1], 'k', (string.gsub(k, '^%d+', '0')))",
                         "1", "tw:lease:k0", NULL); /* as if some time had passed */
    }
    assert_true(atoll(redis_server_ask(&server, "HLEN", "tw:lease:k0", NULL)) < 10);
    assert_i64_equal(figure("d"), 20000 * 9);
    redis_server_destroy(&server);
}

/* Reports everything again, for a limit of 1000; returns the risk that the reply names. */
static int64_t risk_of(const struct engine *engine, int64_t granted, int64_t risk) {
    char lines[LINES_MAX][64];
    const char *reply =
        redis_server_ask(&server, "EVAL", twi_script_lease, "3", "tw:leases", "tw:leases:wanted", "tw:lease:k0", "2",
                         engine->id, engine->instance, "1", "0", "1000", number(granted), number(granted), "0", "0",
                         number(granted), "0", "0", engine->life, "", number(risk), NULL);
    assert_i64_equal(split(reply, lines), 9);
    assert_string_equal(lines[0], "OK");
    return atoll(lines[6]);
}

static void open_epoch(struct engine engines[2]) {
    comes(&engines[0], false);
    redis_server_ask(&server, "HSET", "tw:leases", "from", "0", NULL);
    comes(&engines[1], false);
}

/* Goal: units above the limit are reported once, when the epoch is open. A Redis that forgot this report does not
 * repeat it. */
TEST(units_reported_as_at_risk_are_not_reported_again) {
    struct engine engines[2] = {{.instance = "0123456789abcdef0123456789abcdef"},
                                {.instance = "f123456789abcdef0123456789abcdef"}};
    redis_server_start(&server, NULL);
    for (int i = 0; i < 2; i++) comes(&engines[i], false); /* the epoch is not open yet */
    assert_i64_equal(risk_of(&engines[0], 1000, 0), 0);
    assert_i64_equal(risk_of(&engines[1], 500, 0), 0);
    open_epoch(engines);
    assert_i64_equal(risk_of(&engines[0], 1000, 0), 500);
    assert_i64_equal(risk_of(&engines[1], 500, 0), 0);
    for (int i = 0; i < 2; i++) { /* in either order */
        redis_server_ask(&server, "FLUSHALL", NULL);
        for (int each = 0; each < 2; each++) comes(&engines[each], false);
        if (i == 0) assert_i64_equal(risk_of(&engines[0], 1000, 500), 500);
        assert_i64_equal(risk_of(&engines[1], 500, 0), 0);
        if (i == 1) assert_i64_equal(risk_of(&engines[0], 1000, 500), 500);
        open_epoch(engines);
        if (i == 0) assert_i64_equal(risk_of(&engines[1], 500, 0), 0);
        assert_i64_equal(risk_of(&engines[0], 1000, 500), 500);
        assert_i64_equal(risk_of(&engines[1], 500, 0), 0);
    }
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
