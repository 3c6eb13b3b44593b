/* cluster_calls.c -- calls that wait, over a real Redis Cluster: each goes to the master of its slot, follows a slot
 * that moves, and stops for no master but its own. What they were granted is what Redis has. */
#include "tests/redis/cluster/cluster_support.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLERS 3
#define PATIENT_MS \
    10000 /* a call that Redis is to decide is not given up before, however busy processors and disk are */

static tw_engine *engine;

static tw_engine *open_engine(uint32_t timeout_ms) {
    char url[512];
    tw_options options;
    tw_engine *opened = NULL;
    redis_cluster_url(&cluster, url, sizeof url);
    quick_options(&options, url);
    options.redis_timeout_ms = timeout_ms;
    assert_status(test_open(&options, &opened), TW_OK);
    return opened;
}

/* `redis_key` NULL: names have a tag. */
static tw_family *open_family(tw_engine *of, const char *name, uint32_t mode, const char *redis_key) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = mode;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    options.redis_tags = CLUSTER_TAGS;
    options.redis_key = redis_key;
    assert_status(tw_family_open(of, &options, &family), TW_OK);
    return family;
}

/* The counter's name in Redis, for a family with tags. */
static const char *name_of(const char *family, const char *key) {
    static char name[96];
    unsigned tag = twi_key_slot_tags(CLUSTER_TAGS)[twi_key_slot_crc16(key, strlen(key)) % CLUSTER_TAGS];
    snprintf(name, sizeof name, "%s:{%u}:%s", family, tag, key);
    return name;
}

static uint32_t slot_of(const char *name) {
    return twi_key_slot_of(name, strlen(name));
}

static int64_t in_redis(const char *name) {
    return redis_server_get(redis_cluster_server(&cluster, cluster.owners[slot_of(name)]), name);
}

/* A key of a slot of that master, but not of the slot of `not_of` (NULL: any). */
static const char *key_of(const char *family, const char *not_of, size_t master, int number) {
    static char keys[32][24];
    static int next;
    char *key = keys[next++ % 32];
    uint32_t shunned = not_of != NULL ? slot_of(name_of(family, not_of)) : CLUSTER_SLOTS;
    for (int i = 0, found = -1; i < 100000; i++) {
        snprintf(key, sizeof keys[0], "x%d", i);
        uint32_t slot = slot_of(name_of(family, key));
        if (slot != shunned && cluster.owners[slot] == master && ++found == number) return key;
    }
    fail_msg("no key has such a slot");
    return NULL;
}

#define take(family, key, limit, want, by) take_at(family, key, limit, want, by, __LINE__)
static void take_at(tw_family *family, const char *key, int64_t limit, tw_status want, uint32_t by, int line) {
    tw_verdict verdict;
    tw_stats stats;
    int64_t began_ms = test_mono_ms();
    tw_status status = tw_acquire(family, tw_str(key), 1, limit, &verdict);
    if (status == want && verdict.decided_by == by) return;
    (void)tw_stats_read(engine, &stats);
    fail_msg("line %d: answer %d, decided by %u after %lld ms; last error: %s", line, status, verdict.decided_by,
             (long long)(test_mono_ms() - began_ms), stats.last_error);
}

/* ---- where calls go ---------------------------------------------------------------------------------------------- */

TEST(each_call_goes_to_the_master_of_its_slot) {
    engine = open_engine(PATIENT_MS);
    static const char *const templates[] = {NULL, "%n:%k", "{%k}:%n"}; /* the last: a tag of the user's own */
    static const char *const names[] = {"a", "b", "c"};
    for (int kind = 0; kind < 3; kind++) {
        tw_family *family = open_family(engine, names[kind], TW_LIMIT_STRICT, templates[kind]);
        for (int i = 0; i < 12; i++) {
            char key[16], token[TW_TOKEN_SIZE];
            bool first;
            snprintf(key, sizeof key, "k%d", i);
            for (int n = 0; n < 3; n++) take(family, key, 3, TW_OK, TW_BY_REDIS);
            take(family, key, 3, TW_DENIED, TW_BY_REDIS);
            snprintf(key, sizeof key, "once%d", i);
            for (int n = 0; n < 2; n++) {
                assert_status(tw_once(family, tw_str(key), &first), TW_OK);
                assert_int_equal(first, n == 0);
            }
            assert_status(tw_lock(family, tw_str(key), 60000, token, NULL), TW_OK);
            assert_status(tw_lock(family, tw_str(key), 60000, (char[TW_TOKEN_SIZE]){0}, NULL), TW_DENIED);
            assert_status(tw_lock_release(family, tw_str(key), token), TW_OK);
        }
    }
    for (int i = 0; i < 12; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        assert_i64_equal(in_redis(name_of("a", key)), 3);
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: whoever confirms a reservation needs no more than its token. Method: another engine confirms, which has not
 * opened the family. Slots in use (tw_hold) are bounded over engines, too. */
TEST(a_token_says_where_its_reservation_is) {
    engine = open_engine(PATIENT_MS);
    tw_engine *other = open_engine(PATIENT_MS);
    static const char *const templates[] = {NULL, "%n:%k", "{%k}:%n"};
    static const char *const names[] = {"sale", "plain", "own"};
    for (int kind = 0; kind < 3; kind++) {
        tw_family *family = open_family(engine, names[kind], TW_LIMIT_SOFT, templates[kind]);
        for (int i = 0; i < 8; i++) {
            char key[16], sold[TW_TOKEN_SIZE], back[TW_TOKEN_SIZE], more[TW_TOKEN_SIZE];
            snprintf(key, sizeof key, "sku%d", i);
            assert_status(tw_reserve(family, tw_str(key), 1, 2, 60000, tw_str("me"), sold, NULL), TW_OK);
            assert_status(tw_reserve(family, tw_str(key), 1, 2, 60000, tw_str("you"), back, NULL), TW_OK);
            assert_int_equal(strlen(sold), 49);
            assert_status(tw_reserve(family, tw_str(key), 1, 2, 60000, tw_str("her"), more, NULL), TW_DENIED);
            assert_status(tw_reserve_confirm(other, sold), TW_OK);
            assert_status(tw_reserve_cancel(other, back), TW_OK);
            assert_status(tw_reserve_cancel(other, sold), TW_ERR_LATE);
            assert_status(tw_reserve(family, tw_str(key), 1, 2, 60000, tw_str("her"), more, NULL), TW_OK);
        }
    }
    /* A token of one Redis: its slot is not known. */
    assert_status(tw_reserve_confirm(other, "twr-0123456789abcdef0123456789abcdef-00000000"), TW_ERR_UNKNOWN_TOKEN);
    tw_family *jobs = open_family(engine, "jobs", TW_LIMIT_SOFT, NULL);
    tw_family *same = open_family(other, "jobs", TW_LIMIT_SOFT, NULL);
    for (int i = 0; i < 8; i++) {
        char key[16];
        snprintf(key, sizeof key, "j%d", i);
        assert_status(tw_hold(jobs, tw_str(key), 1, NULL), TW_OK);
        assert_status(tw_hold(same, tw_str(key), 1, NULL), TW_DENIED);
        assert_status(tw_hold_release(jobs, tw_str(key)), TW_OK);
        assert_status(tw_hold(same, tw_str(key), 1, NULL), TW_OK);
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(other, TEST_PATIENCE_MS), TW_OK);
}

/* ---- slots that move --------------------------------------------------------------------------------------------- */

/* Goal: a call whose keys have moved is done at the target: behind ASKING, also where the target does not
 * know the script. Once the slot has moved, the call goes there. */
TEST(a_call_is_asked_for_where_its_keys_are) {
    engine = open_engine(PATIENT_MS);
    tw_family *family = open_family(engine, "m", TW_LIMIT_STRICT, NULL);
    const char *key = key_of("m", NULL, 0, 0);
    uint32_t slot = slot_of(name_of("m", key));
    for (int way = 0; way < 2; way++) {
        size_t from = cluster.owners[slot], to = way == 0 ? 1 : 0;
        int64_t asked = test_stat_of(engine, asked), moved = test_stat_of(engine, moved);
        assert_true(from != to);
        take(family, key, 1000, TW_OK, TW_BY_REDIS);
        int64_t had = in_redis(name_of("m", key));
        redis_server_ask(redis_cluster_server(&cluster, to), "SCRIPT", "FLUSH", NULL);
        redis_cluster_move_begin(&cluster, slot, to);
        take(family, key, 1000, TW_OK, TW_BY_REDIS); /* all is still here */
        assert_i64_equal(test_stat_of(engine, asked), asked);
        while (redis_cluster_move_keys(&cluster, slot, to, 50) != 0) continue;
        take(family, key, 1000, TW_OK, TW_BY_REDIS);
        assert_true(test_stat_of(engine, asked) > asked);
        redis_cluster_move_end(&cluster, slot, to);
        take(family, key, 1000, TW_OK, TW_BY_REDIS);
        assert_true(test_stat_of(engine, moved) > moved);
        assert_i64_equal(in_redis(name_of("m", key)), had + 3);
    }
    assert_i64_equal(test_stat_of(engine, asks_unknown), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: a call that is sent to the new owner of a slot, which is sent on from there behind ASKING, is followed at once.
 * Method: the slot moves to another node, unnoticed, and is half-way back. */
TEST(a_call_is_followed_from_node_to_node) {
    engine = open_engine(PATIENT_MS);
    tw_family *family = open_family(engine, "n", TW_LIMIT_STRICT, NULL);
    const char *key = key_of("n", NULL, 0, 0);
    uint32_t slot = slot_of(name_of("n", key));
    size_t from = cluster.owners[slot], to = from == 0 ? 1 : 0;
    take(family, key, 1000, TW_OK, TW_BY_REDIS);
    redis_cluster_move(&cluster, slot, slot, to);
    redis_cluster_move_begin(&cluster, slot, from);
    while (redis_cluster_move_keys(&cluster, slot, from, 50) != 0) continue;
    int64_t began_ms = test_mono_ms(), asked = test_stat_of(engine, asked), moved = test_stat_of(engine, moved);
    take(family, key, 1000, TW_OK, TW_BY_REDIS);
    assert_true(test_stat_of(engine, moved) > moved);
    assert_true(test_stat_of(engine, asked) > asked);
    assert_true(test_mono_ms() - began_ms < PATIENT_MS / 2);
    redis_cluster_move_end(&cluster, slot, from);
    take(family, key, 1000, TW_OK, TW_BY_REDIS);
    assert_i64_equal(in_redis(name_of("n", key)), 3);
    assert_i64_equal(test_stat_of(engine, asks_unknown), 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

enum { APART_MS = 1000 };

static void *stop_both(void *argument) {
    test_sleep_ms(*(int64_t *)argument);
    for (size_t i = 0; i < 2; i++) redis_server_pause(redis_cluster_server(&cluster, i));
    test_sleep_ms(APART_MS / 2);
    for (size_t i = 0; i < 2; i++) redis_server_resume(redis_cluster_server(&cluster, i));
    return NULL;
}

static bool is_settled(void *ctx) {
    return test_stat_of(ctx, ask_unsettled) == 0;
}

/* Goal: while only one of a call's two keys has moved, nothing is done, and on_outage decides at the deadline. That is
 * also so if the last of its tries, of which there is one in 200 ms, is under way then: the nodes stop before. */
TEST(a_call_whose_keys_are_apart_is_decided_by_the_policy) {
    int64_t until_stop_ms = APART_MS * 3 / 4;
    pthread_t stopper;
    engine = open_engine(APART_MS);
    tw_family *family = open_family(engine, "p", TW_LIMIT_STRICT, NULL);
    const char *key = key_of("p", NULL, 0, 0);
    char name[96], calls[120], port[16];
    snprintf(name, sizeof name, "%s", name_of("p", key));
    snprintf(calls, sizeof calls, "tw:calls:%s", name);
    snprintf(port, sizeof port, "%d", redis_cluster_server(&cluster, 1)->port);
    uint32_t slot = slot_of(name);
    take(family, key, 1000, TW_OK, TW_BY_REDIS);
    redis_cluster_move_begin(&cluster, slot, 1);
    assert_string_equal(
        redis_server_ask(redis_cluster_server(&cluster, 0), "MIGRATE", "127.0.0.1", port, calls, "0", "10000", NULL),
        "OK");
    take(family, key, 1000, TW_DENIED, TW_BY_OUTAGE);
    assert_true(test_stat_of(engine, tryagain) > 1);
    assert_int_equal(pthread_create(&stopper, NULL, stop_both, &until_stop_ms), 0);
    take(family, key, 1000, TW_DENIED, TW_BY_OUTAGE);
    pthread_join(stopper, NULL);
    assert_true(test_wait(is_settled, engine, TEST_PATIENCE_MS));
    take(family, key_of("p", key, 0, 0), 1000, TW_OK, TW_BY_REDIS); /* the node continues with its other slots */
    while (redis_cluster_move_keys(&cluster, slot, 1, 50) != 0) continue;
    take(family, key, 1000, TW_OK, TW_BY_REDIS);
    redis_cluster_move_end(&cluster, slot, 1);
    assert_i64_equal(in_redis(name), 2);
    redis_cluster_move(&cluster, slot, slot, 0);
    take(family, key, 1000, TW_OK, TW_BY_REDIS);
    assert_i64_equal(in_redis(name), 3);
    assert_i64_equal(test_stat_of(engine, asks_settled), test_stat_of(engine, asks_unknown));
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

static bool join(void *ctx, tw_key name, int64_t total) {
    char *text = ctx;
    snprintf(text + strlen(text), 32, "%.*s=%lld ", (int)name.size, (const char *)name.data, (long long)total);
    return true;
}

static tw_family *open_shape(const char *name, uint32_t redis_shape) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = TW_WINDOW_FOREVER;
    options.redis_tags = CLUSTER_TAGS;
    options.redis_shape = redis_shape;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static void check_totals(tw_family *subjects, tw_family *ranks, const char *subject) {
    char fields[128] = "", members[128] = "";
    int64_t rank = -7, total = -7;
    assert_status(tw_fetch_fields(subjects, tw_str(subject), TW_NOW, 10000, join, fields), TW_OK);
    assert_string_equal(fields, "likes=2 views=30 ");
    assert_status(tw_fetch_top(ranks, TW_NOW, 10, 10000, join, members), TW_OK);
    assert_string_equal(members, "first=9 second=8 ");
    assert_status(tw_fetch_rank(ranks, tw_str("second"), TW_NOW, 10000, &rank, &total), TW_OK);
    assert_i64_equal(rank, 1);
    assert_i64_equal(total, 8);
}

/* Goal: the fields of a subject, and a ranking, are read where their slot is: before, while and after it moves. */
TEST(totals_are_read_where_their_slot_is) {
    engine = open_engine(1000);
    tw_family *subjects = open_shape("subjects", TW_REDIS_HASH), *ranks = open_shape("ranks", TW_REDIS_ZSET);
    const char *subject = key_of("subjects", NULL, 0, 0);
    char key[64];
    snprintf(key, sizeof key, "%s|views", subject);
    assert_status(tw_add(subjects, tw_str(key), 30, NULL), TW_OK);
    snprintf(key, sizeof key, "%s|likes", subject);
    assert_status(tw_add(subjects, tw_str(key), 2, NULL), TW_OK);
    assert_status(tw_add(ranks, tw_str("second"), 8, NULL), TW_OK);
    assert_status(tw_add(ranks, tw_str("first"), 9, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    check_totals(subjects, ranks, subject);
    const uint32_t slots[] = {slot_of(name_of("subjects", subject)), slot_of("ranks")};
    for (int i = 0; i < 2; i++) {
        size_t from = cluster.owners[slots[i]], to = (from + 1) % CLUSTER_MASTERS;
        int64_t asked = test_stat_of(engine, asked);
        redis_cluster_move_begin(&cluster, slots[i], to);
        check_totals(subjects, ranks, subject);
        while (redis_cluster_move_keys(&cluster, slots[i], to, 50) != 0) continue;
        check_totals(subjects, ranks, subject);
        assert_true(test_stat_of(engine, asked) > asked);
        redis_cluster_move_end(&cluster, slots[i], to);
        check_totals(subjects, ranks, subject);
        redis_cluster_move(&cluster, slots[i], slots[i], from);
        check_totals(subjects, ranks, subject);
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

struct caller {
    tw_family *family;
    const char *key;
    _Atomic bool *stops;
    int64_t pause_ms; /* after a call that Redis did not decide */
    int64_t granted;
    _Atomic int64_t by_outage;
};

static void *call(void *ctx) {
    struct caller *caller = ctx;
    while (!atomic_load(caller->stops)) {
        tw_verdict verdict;
        tw_status status = tw_acquire(caller->family, tw_str(caller->key), 1, 1000000, &verdict);
        caller->granted += status == TW_OK;
        atomic_fetch_add(&caller->by_outage, verdict.decided_by == TW_BY_OUTAGE);
        if (verdict.decided_by == TW_BY_OUTAGE && caller->pause_ms != 0) test_sleep_ms(caller->pause_ms);
    }
    return NULL;
}

/* Goal: a slot that goes to and fro under load costs no grant and doubles none, and no call is left to the policy. The
 * key is in use before: a slot that moves takes no new one before its move is over (TRYAGAIN, docs/SCALE.md). */
TEST(grants_are_exact_while_their_slot_moves) {
    engine = open_engine(PATIENT_MS);
    tw_family *family = open_family(engine, "g", TW_LIMIT_STRICT, NULL);
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    _Atomic bool stops = false;
    const char *key = key_of("g", NULL, 0, 0);
    uint32_t slot = slot_of(name_of("g", key));
    take(family, key, 1000000, TW_OK, TW_BY_REDIS);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.family = family, .key = key, .stops = &stops};
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    for (int way = 0; way < 6; way++) {
        size_t to = (cluster.owners[slot] + 1) % CLUSTER_MASTERS;
        redis_cluster_move_begin(&cluster, slot, to);
        for (test_sleep_ms(30); redis_cluster_move_keys(&cluster, slot, to, 1) != 0;) test_sleep_ms(10);
        redis_cluster_move_end(&cluster, slot, to);
        test_sleep_ms(30);
    }
    atomic_store(&stops, true);
    int64_t granted = 1;
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        granted += callers[i].granted;
        assert_i64_equal(atomic_load(&callers[i].by_outage), 0);
    }
    assert_true(granted > 1 && test_stat_of(engine, moved) > 0);
    assert_i64_equal(in_redis(name_of("g", key)), granted);
    assert_i64_equal(test_stat_of(engine, asks_unknown), 0);
    redis_cluster_move(&cluster, slot, slot, 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* ---- masters that are away --------------------------------------------------------------------------------------- */

enum { THEIRS = 12, HANGS_MS = 1000 }; /* calls to the others have so much time on a busy machine */

static bool has_each_been_stopped(void *ctx) {
    struct caller *callers = ctx;
    for (int i = 0; i < THEIRS; i++)
        if (atomic_load(&callers[i].by_outage) == 0) return false;
    return true;
}

/* Goal: a master that hangs stops calls for its own slots alone, also while all lines owe it something; and what it may
 * have granted is taken back once it answers. */
TEST(a_master_that_hangs_stops_no_calls_to_others) {
    engine = open_engine(HANGS_MS);
    tw_family *family = open_family(engine, "h", TW_LIMIT_STRICT, NULL);
    const char *own = key_of("h", NULL, 0, 0), *other = key_of("h", NULL, 2, 0);
    char keys[THEIRS][24];
    struct caller callers[THEIRS];
    pthread_t threads[THEIRS];
    _Atomic bool stops = false;
    take(family, own, 1000, TW_OK, TW_BY_REDIS);
    for (int i = 0; i < THEIRS; i++) snprintf(keys[i], sizeof keys[i], "%s", key_of("h", NULL, 1, i));
    for (int i = 0; i < THEIRS; i++) take(family, keys[i], 1000, TW_OK, TW_BY_REDIS);
    for (int i = 0; i < THEIRS; i++) {
        callers[i] = (struct caller){.family = family, .key = keys[i], .stops = &stops, .pause_ms = 5};
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    }
    test_sleep_ms(150); /* each line has a call under way there */
    redis_server_pause(redis_cluster_server(&cluster, 1));
    assert_true(test_wait(has_each_been_stopped, callers, TEST_PATIENCE_MS)); /* the calls under way have ended */
    for (int i = 0; i < 50; i++) {
        take(family, own, 1000, TW_OK, TW_BY_REDIS);
        take(family, other, 1000, TW_OK, TW_BY_REDIS);
    }
    atomic_store(&stops, true);
    redis_server_resume(redis_cluster_server(&cluster, 1));
    int64_t granted[THEIRS];
    for (int i = 0; i < THEIRS; i++) {
        pthread_join(threads[i], NULL);
        granted[i] = 1 + callers[i].granted;
    }
    redis_cluster_wait(&cluster);
    assert_true(test_stat_of(engine, asks_unknown) > 0);
    /* Each slot's next call settles the unsent counts there; the breaker lets it go after a while. */
    for (int i = 0; i < 400 && test_stat_of(engine, asks_settled) < test_stat_of(engine, asks_unknown); i++) {
        for (int k = 0; k < THEIRS; k++) granted[k] += tw_acquire(family, tw_str(keys[k]), 1, 1000000, NULL) == TW_OK;
        test_sleep_ms(10);
    }
    assert_i64_equal(test_stat_of(engine, asks_settled), test_stat_of(engine, asks_unknown));
    for (int i = 0; i < THEIRS; i++) assert_i64_equal(in_redis(name_of("h", keys[i])), granted[i]);
    assert_i64_equal(in_redis(name_of("h", own)), 51);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: the others continue while a master is dead, and it serves again once it is back. */
TEST(a_master_that_is_killed_stops_no_calls_to_others) {
    engine = open_engine(1000);
    tw_family *family = open_family(engine, "d", TW_LIMIT_STRICT, NULL);
    const char *own = key_of("d", NULL, 1, 0), *one = key_of("d", NULL, 0, 0), *two = key_of("d", NULL, 2, 0);
    take(family, own, 1000, TW_OK, TW_BY_REDIS);
    redis_server_kill(redis_cluster_server(&cluster, 1));
    for (int i = 0; i < 30; i++) {
        take(family, own, 1000, TW_DENIED, TW_BY_OUTAGE);
        take(family, one, 1000, TW_OK, TW_BY_REDIS);
        take(family, two, 1000, TW_OK, TW_BY_REDIS);
    }
    redis_server_restart(redis_cluster_server(&cluster, 1));
    redis_cluster_wait(&cluster);
    tw_status status = TW_DENIED;
    for (int i = 0; i < 400 && status != TW_OK; i++) {
        status = tw_acquire(family, tw_str(own), 1, 1000, NULL);
        if (status != TW_OK) test_sleep_ms(10);
    }
    assert_status(status, TW_OK);
    assert_i64_equal(in_redis(name_of("d", own)), 2);
    assert_i64_equal(in_redis(name_of("d", one)), 30);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: an engine starts while one of its two seeds says nothing, and a connection to it may take long. A call is
 * decided all the same. The other seed is asked, too. Method: several engines, for each asks a random seed first. */
TEST(a_seed_that_says_nothing_delays_no_call_for_long) {
    enum { ENGINES = 8, TIMEOUT_MS = 4000 };
    char url[96], key[16];
    tw_options options;
    tw_engine *engines[ENGINES];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(silent, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(silent, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(listen(silent, 4 * ENGINES), 0);
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d", ntohs(address.sin_port),
             redis_cluster_server(&cluster, 0)->port);
    quick_options(&options, url);
    options.redis_timeout_ms = TIMEOUT_MS;
    for (int i = 0; i < ENGINES; i++) assert_status(test_open(&options, &engines[i]), TW_OK);
    for (int i = 0; i < ENGINES; i++) {
        engine = engines[i];
        snprintf(key, sizeof key, "k%d", i);
        take(open_family(engine, "seed", TW_LIMIT_STRICT, NULL), key, 1, TW_OK, TW_BY_REDIS);
    }
    for (int i = 0; i < ENGINES; i++) assert_status(tw_close(engines[i], TEST_PATIENCE_MS), TW_OK);
    close(silent);
}

int main(void) {
    redis_cluster_start(&cluster, CLUSTER_MASTERS, 0, cluster_server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
