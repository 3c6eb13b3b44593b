/* merge.c -- the three ways to merge, with a real server: what all of them must do, what only the script can promise,
 * and other programs that count the same keys meanwhile.
 * Covers: sync/turn/merge_plain.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include <sys/wait.h>
#include <unistd.h>

#define WALL_MS INT64_C(4102444800000)       /* 2100-01-01, midnight: by Redis's clock no window is over yet */
#define WANT_MS (WALL_MS + TW_HOUR + TW_DAY) /* an hour's end, and the default retention */

static const uint32_t all[] = {TW_MERGE_SCRIPT, TW_MERGE_MULTI, TW_MERGE_SETNX};
static const uint32_t plain[] = {TW_MERGE_MULTI, TW_MERGE_SETNX};

static tw_engine *engine_by(const char *url, uint32_t merge, struct fake_clock *clock, struct lost *lost) {
    tw_options options;
    tw_engine *engine = NULL;
    quick_options(&options, url);
    options.merge = merge;
    if (lost) options.on_lost = on_lost, options.lost_ctx = lost;
    if (clock) {
        options.threads = TW_HOST_DRIVEN;
        fake_clock_install(clock, &options);
    }
    assert_status(test_open(&options, &engine), TW_OK);
    return engine;
}

static int64_t expiry_of(struct redis_server *server, const char *key) {
    return redis_server_expiry(server, key);
}

/* Before Redis 7 SET takes a span, not a moment: its way to Redis delays the end. On a crowded machine that is long. */
#define WAY_MS 10000

static void assert_dies_at(struct redis_server *server, const char *key, int64_t want_ms, int64_t off_ms) {
    int64_t end_ms = expiry_of(server, key);
    if (off_ms == 0 && !redis_server_is_at_least(7, 0)) off_ms = WAY_MS;
    if (end_ms > want_ms && end_ms <= want_ms + off_ms) end_ms = want_ms;
    assert_i64_equal(end_ms, want_ms);
}

static void add_and_flush(tw_engine *engine, tw_family *family, const char *key, int64_t delta) {
    assert_status(tw_add(family, tw_str(key), delta, NULL), TW_OK);
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
}

/* ---- what all of them do ----------------------------------------------------------------------------------------- */

/* Checks counts, another engine's counts, and expiries: set, kept, healed, and set anew for a key's next life. `knows`:
 * the server reports its version, so the newer commands are used. */
static void count_by(uint32_t merge, bool knows) {
    struct redis_server server;
    struct fake_clock clock;
    char url[200];
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "ACL", "SETUSER", "blind", "on", ">pw", "~*", "+@all", "-info", NULL);
    snprintf(url, sizeof url, "unix://%s%s", knows ? "" : "blind:pw@", server.socket);
    fake_clock_init(&clock, WALL_MS + 1000);
    tw_engine *a = engine_by(url, merge, &clock, NULL), *b = engine_by(url, merge, &clock, NULL);
    tw_family *ours = family_of(a, "hour", TW_WINDOW_ALIGNED, TW_HOUR),
              *theirs = family_of(b, "hour", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_family *endless = family_of(a, "ever", TW_WINDOW_FOREVER, 0);
    int64_t view = 0, off_ms = merge == TW_MERGE_SETNX && !knows ? WAY_MS : 0;
    add_and_flush(a, ours, "k", 3);
    assert_dies_at(&server, "hour:k:2100010100", WANT_MS, off_ms);
    redis_server_ask(&server, "EXPIRE", "hour:k:2100010100", "1000", NULL);
    add_and_flush(b, theirs, "k", 4);
    assert_true(atoll(redis_server_ask(&server, "PTTL", "hour:k:2100010100", NULL)) <=
                1000000); /* no engine extends it */
    redis_server_ask(&server, "PERSIST", "hour:k:2100010100", NULL);
    for (int i = 0; i < 35 && expiry_of(&server, "hour:k:2100010100") < 0; i++) {
        fake_clock_advance_ms(&clock, 1000);
        add_and_flush(a, ours, "k", 1);
        test_sleep_ms(2); /* a repair may be in flight */
        assert_status(tw_flush(a, TEST_PATIENCE_MS), TW_OK);
        assert_status(tw_turn(a), TW_OK);
    }
    assert_dies_at(&server, "hour:k:2100010100", WANT_MS, off_ms);
    redis_server_ask(&server, "DEL", "hour:k:2100010100", NULL);
    add_and_flush(a, ours, "k", 10);
    add_and_flush(b, theirs, "k", -4);
    assert_dies_at(&server, "hour:k:2100010100", WANT_MS, off_ms);
    assert_i64_equal(redis_server_get(&server, "hour:k:2100010100"), 6);
    assert_status(tw_get(theirs, tw_str("k"), &view), TW_OK);
    assert_i64_equal(view, 6); /* the total came back */
    add_and_flush(a, endless, "k", 1);
    assert_i64_equal(expiry_of(&server, "ever:k"), -1);
    redis_server_ask(&server, "SET", "ever:huge", "9007199254740993", NULL);
    add_and_flush(a, endless, "huge", 2);
    assert_status(tw_get(endless, tw_str("huge"), &view), TW_OK);
    assert_i64_equal(view, INT64_C(9007199254740995));
    assert_i64_equal(test_stat_of(a, uncertain) + test_stat_of(a, lost) + test_stat_of(b, lost), 0);
    assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* Goal: sums, totals and expiries are the same by each way to merge. The same holds with a server before Redis 7, as
 * far as a test can have one: a server that does not report its version is treated as one. */
TEST(each_way_counts_and_keeps_expiries) {
    for (size_t i = 0; i < 3; i++)
        for (int knows = 0; knows < 2; knows++) count_by(all[i], knows);
}

/* Both engines count in one life of the key. False: on a crowded machine that life was over before both had. */
static bool share_a_life(struct redis_server *server, tw_engine *a, tw_family *first, tw_engine *b, tw_family *second,
                         const char *key) {
    char name[64];
    snprintf(name, sizeof name, "life:%s", key);
    add_and_flush(a, first, key, 1);
    int64_t end_ms = expiry_of(server, name);
    test_sleep_ms(600); /* the second engine comes later in the life of the key */
    add_and_flush(b, second, key, 1);
    int64_t again_ms = expiry_of(server, name);
    if (end_ms <= 0 || again_ms <= 0 || redis_server_get(server, name) != 2) return false;
    assert_i64_equal(again_ms, end_ms);
    return true;
}

/* Goal: from-first keys have one life for all engines, whichever began it. */
TEST(each_way_adopts_the_life_another_began) {
    for (size_t i = 0; i < 3; i++) {
        struct redis_server server;
        redis_server_start(&server, NULL);
        tw_engine *a = engine_by(server.url, all[i], NULL, NULL), *b = engine_by(server.url, all[i], NULL, NULL);
        tw_family *first = family_of(a, "life", TW_WINDOW_FROM_FIRST, 2000),
                  *second = family_of(b, "life", TW_WINDOW_FROM_FIRST, 2000);
        int64_t view = 0;
        char key[16], name[64];
        int tries = 0;
        do {
            assert_true(tries < 20);
            snprintf(key, sizeof key, "k%d", tries++);
        } while (!share_a_life(&server, a, first, b, second, key));
        snprintf(name, sizeof name, "life:%s", key);
        test_sleep_ms(1700); /* past the first engine's end, before the end that the second one assumed */
        assert_status(tw_get(second, tw_str(key), &view), TW_OK);
        assert_i64_equal(view, 0);
        add_and_flush(b, second, key, 5);
        int64_t total = redis_server_get(&server, name);
        assert_true(total == 5 || (total == 0 && expiry_of(&server, name) == -2)); /* or that life is over, too */
        assert_status(tw_close(a, TEST_PATIENCE_MS), TW_OK);
        assert_status(tw_close(b, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

/* Goal: counts of a window that is over by Redis's clock are reported as late and not written. Method: the engine's
 * clock shows 2001. */
TEST(each_way_reports_what_is_late) {
    for (size_t i = 0; i < 3; i++) {
        struct redis_server server;
        struct fake_clock clock;
        struct lost lost = {0};
        redis_server_start(&server, NULL);
        fake_clock_init(&clock, INT64_C(1000000000000));
        tw_engine *engine = engine_by(server.url, all[i], &clock, &lost);
        tw_family *family = family_of(engine, "late", TW_WINDOW_ALIGNED, TW_MINUTE);
        assert_status(tw_add(family, tw_str("k"), 7, NULL), TW_OK);
        assert_status(tw_flush(engine, 5000), TW_ERR_REDIS);
        assert_i64_equal(lost.by_reason[TW_LOST_LATE], 7);
        assert_string_equal(redis_server_ask(&server, "KEYS", "late:*", NULL), "");
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

/* Goal: batches may be larger than what a socket takes at once: replies arrive while commands still go out. */
TEST(each_way_sends_more_than_a_socket_takes) {
    for (size_t i = 0; i < 3; i++) {
        struct redis_server server;
        char key[300];
        redis_server_start(&server, NULL);
        tw_options options;
        tw_engine *engine;
        quick_options(&options, server.url);
        options.merge = all[i];
        options.redis_timeout_ms = 10000; /* no deadline is met here, however busy the machine */
        assert_status(test_open(&options, &engine), TW_OK);
        tw_family *family = family_of(engine, "many", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
        for (int round = 0; round < 2; round++) {
            for (int n = 0; n < 6000; n++) {
                snprintf(key, sizeof key, "%0*d", n % 2 ? 20 : 250, n);
                assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
            }
            assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        }
        assert_i64_equal(test_stat_of(engine, disconnects) + test_stat_of(engine, uncertain), 0);
        assert_i64_equal(test_stat_of(engine, batches_error), 0);
        int64_t view = 0;
        assert_status(tw_get(family, tw_str(key), &view), TW_OK);
        assert_i64_equal(view, 2);
        assert_i64_equal(atoll(redis_server_ask(&server, "DBSIZE", NULL)), 6000 + (all[i] == TW_MERGE_SCRIPT ? 3 : 0));
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

static void wait_for(struct redis_server *server, const char *key, int64_t value) {
    for (int i = 0; i < 200 && redis_server_get(server, key) != value; i++) test_sleep_ms(50);
    assert_i64_equal(redis_server_get(server, key), value);
}

/* Goal: a refused key (wrong type, overflow, forbidden) waits alone and is counted once; the others go on. Method: a
 * user that may not touch one of the names, and later may. */
TEST(each_way_lets_a_refused_key_wait_alone) {
    static const char *const names[] = {"list", "full", "forbidden", "good"};
    for (size_t i = 0; i < 3; i++) {
        struct redis_server server;
        char url[200];
        redis_server_start(&server, NULL);
        redis_server_ask(&server, "ACL", "SETUSER", "user", "on", ">pw", "+@all", "~tw:*", "~p:[lg]*", "~p:full", NULL);
        redis_server_ask(&server, "RPUSH", "p:list", "x", NULL);
        redis_server_ask(&server, "SET", "p:full", "9223372036854775807", NULL);
        snprintf(url, sizeof url, "unix://user:pw@%s", server.socket);
        tw_engine *engine = engine_by(url, all[i], NULL, NULL);
        tw_family *family = family_of(engine, "p", TW_WINDOW_FOREVER, 0);
        for (size_t n = 0; n < 4; n++) assert_status(tw_add(family, tw_str(names[n]), 5, NULL), TW_OK);
        assert_status(tw_flush(engine, 5000), all[i] == TW_MERGE_SCRIPT ? TW_ERR_TIMEOUT : TW_ERR_REDIS);
        if (all[i] != TW_MERGE_SCRIPT) { /* a script is refused as a whole for one forbidden key */
            assert_i64_equal(redis_server_get(&server, "p:good"), 5);
            assert_i64_equal(test_stat_of(engine, poison_keys), 3);
        }
        redis_server_ask(&server, "DEL", "p:list", "p:full", NULL);
        redis_server_ask(&server, "ACL", "SETUSER", "user", "~*", NULL);
        for (size_t n = 0; n < 4; n++) {
            char name[32];
            snprintf(name, sizeof name, "p:%s", names[n]);
            wait_for(&server, name, 5);
        }
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        assert_i64_equal(test_stat_of(engine, uncertain) + test_stat_of(engine, lost), 0);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

struct refused {
    tw_engine *engine;
    tw_family *family;
    int64_t before;
};

/* One more count each time: earlier ones may have been in Redis when it began to refuse. */
static bool is_refused(void *ctx) {
    struct refused *refused = ctx;
    assert_status(tw_add(refused->family, tw_str("more"), 1, NULL), TW_OK);
    return test_stat_of(refused->engine, batches_error) > refused->before;
}

/* Goal: a server that refuses (out of memory, too few replicas, no permission) causes delay, and no loss or double
 * count. */
TEST(each_way_waits_while_the_server_refuses) {
    static const char *const settings[][3] = {{"maxmemory", "1", "0"}, {"min-replicas-to-write", "1", "0"}};
    for (size_t i = 0; i < 3; i++) {
        struct redis_server server;
        redis_server_start(&server, NULL);
        tw_engine *engine = engine_by(server.url, all[i], NULL, NULL);
        tw_family *family = family_of(engine, "refused", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
        int64_t sum = 0, total = 0;
        for (size_t s = 0; s < 2; s++) {
            for (int n = 0; n < 1500; n++) {
                char key[16];
                snprintf(key, sizeof key, "%d", n);
                assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
                sum++;
            }
            redis_server_ask(&server, "CONFIG", "SET", settings[s][0], settings[s][1], NULL);
            struct refused refused = {engine, family, test_stat_of(engine, batches_error)};
            assert_true(test_wait(is_refused, &refused, TEST_PATIENCE_MS));
            redis_server_ask(&server, "CONFIG", "SET", settings[s][0], settings[s][2], NULL);
            assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        }
        for (int n = 0; n < 1500; n++) {
            char key[16];
            int64_t one;
            snprintf(key, sizeof key, "%d", n);
            assert_status(tw_get(family, tw_str(key), &one), TW_OK);
            total += one;
        }
        assert_i64_equal(total, sum);
        assert_i64_equal(test_stat_of(engine, uncertain) + test_stat_of(engine, lost), 0);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        tw_engine *reader = engine_by(server.url, TW_MERGE_SCRIPT, NULL, NULL); /* reads what Redis itself has */
        tw_key keys[] = {{"0", 1}, {"1499", 4}};
        int64_t totals[2];
        assert_status(tw_fetch(family_of(reader, "refused", TW_WINDOW_ALIGNED, LONG_WINDOW_MS), keys, 2, 5000, totals),
                      TW_OK);
        assert_i64_equal(totals[0] + totals[1], 4);
        assert_status(tw_close(reader, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

/* ---- what only the script can ------------------------------------------------------------------------------------ */

/* Goal: a server that hangs longer than the deadline executes the batch twice: the first copy from the old connection,
 * and the one that was sent again. The script counts it once. The other ways count it twice and report it as
 * `uncertain`. */
TEST(only_the_script_counts_once_when_an_answer_is_lost) {
    for (size_t i = 0; i < 3; i++) {
        struct redis_server server;
        tw_options options;
        tw_engine *engine;
        redis_server_start(&server, NULL);
        quick_options(&options, server.url);
        options.merge = all[i];
        options.redis_timeout_ms = 200;
        struct log_lines lines = {.text = ""};
        options.log_write = on_log;
        options.log_ctx = &lines;
        assert_status(test_open(&options, &engine), TW_OK);
        tw_family *family = family_of(engine, "twice", TW_WINDOW_FOREVER, 0);
        add_and_flush(engine, family, "k", 1);
        redis_server_pause(&server);
        assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
        for (int n = 0; n < 200 && test_stat_of(engine, disconnects) == 0; n++) test_sleep_ms(10);
        redis_server_resume(&server);
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        int64_t got = redis_server_get(&server, "twice:k"), uncertain = test_stat_of(engine, uncertain);
        assert_i64_equal(got, all[i] == TW_MERGE_SCRIPT ? 11 : 21);
        assert_i64_equal(uncertain, all[i] == TW_MERGE_SCRIPT ? 0 : 10);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        bool is_told = strstr(lines.text, "1/20 10 units are sent again without knowing whether Redis has counted them "
                                          "[TW-E020: use TW_MERGE_SCRIPT, which counts exactly once]\n") != NULL;
        assert_int_equal(is_told, all[i] != TW_MERGE_SCRIPT);
        redis_server_destroy(&server);
    }
}

/* Goal: Redis is killed and restarted at random moments: the stored sum is never short, and above the truth by no more
 * than `uncertain`. */
TEST(what_may_count_twice_is_counted_as_uncertain) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t i = 0; i < 2; i++) {
        struct redis_server server;
        redis_server_start(&server, durable);
        tw_engine *engine = engine_by(server.url, plain[i], NULL, NULL);
        tw_family *family = family_of(engine, "kill", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
        tw_key keys[64];
        char names[64][8];
        int64_t totals[64], added = 0, total = 0;
        for (int n = 0; n < 64; n++) keys[n] = tw_bytes(names[n], (size_t)snprintf(names[n], 8, "%d", n));
        for (uint64_t kills = 0; kills < 6; kills++) {
            for (int64_t until_ms = test_mono_ms() + test_prng_between(&prng, 20, 120); test_mono_ms() < until_ms;) {
                for (int n = 0; n < 200; n++, added++)
                    assert_status(tw_add(family, keys[test_prng_below(&prng, 64)], 1, NULL), TW_OK);
                test_sleep_ms(1);
            }
            redis_server_kill(&server);
            redis_server_restart(&server);
        }
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        int64_t uncertain = test_stat_of(engine, uncertain);
        assert_status(tw_fetch(family, keys, 64, 5000, totals), TW_OK);
        for (int n = 0; n < 64; n++) total += totals[n];
        print_message("# added %lld, in Redis %lld, uncertain %lld\n", (long long)added, (long long)total,
                      (long long)uncertain);
        assert_true(total >= added && total - added <= uncertain);
        assert_i64_equal(test_stat_of(engine, lost), 0);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

struct sending {
    tw_engine *engine;
    int64_t batches;
};

static bool has_sent(void *ctx) {
    struct sending *sending = ctx;
    return test_stat_of(sending->engine, batches_sent) > sending->batches;
}

/* Goal: a close while the server hangs reports each unit once. */
TEST(a_close_on_a_hung_server_reports_each_unit_once) {
    for (size_t i = 0; i < 2; i++) {
        struct redis_server server;
        struct lost lost = {0};
        redis_server_start(&server, NULL);
        tw_engine *engine = engine_by(server.url, plain[i], NULL, &lost);
        tw_family *family = family_of(engine, "hung", TW_WINDOW_FOREVER, 0);
        add_and_flush(engine, family, "k", 1);
        redis_server_pause(&server);
        struct sending sending = {engine, test_stat_of(engine, batches_sent)};
        assert_status(tw_add(family, tw_str("k"), 10, NULL), TW_OK);
        assert_true(test_wait(has_sent, &sending, TEST_PATIENCE_MS));
        assert_status(tw_close(engine, 200), TW_ERR_TIMEOUT);
        assert_i64_equal(lost.by_reason[TW_LOST_UNCERTAIN], 10);
        assert_i64_equal(lost.calls, 1);
        redis_server_resume(&server);
        redis_server_destroy(&server);
    }
}

/* ---- strangers --------------------------------------------------------------------------------------------------- */

#define STRANGERS 3
#define STRANGE_KEYS 8
#define STRANGE_ROUNDS 60

static void strange_name(int kind, int key, char *out) {
    sprintf(out, "hour:%d-%d:2100010100", kind, key);
}

/* Counts in one of three habits of other programs: INCRBY and EXPIRE; SET NX EX and INCR; Lua with EXPIRE at the first
 * count. */
static void count_as_a_stranger(struct redis_server *server, int kind, const char *name) {
    static const char script[] =
        "local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end return n";
    if (kind == 0) {
        redis_server_ask(server, "INCRBY", name, "1", NULL);
        redis_server_ask(server, "EXPIRE", name, "3600", NULL);
    } else if (kind == 1) {
        redis_server_ask(server, "SET", name, "0", "EX", "3600", "NX", NULL);
        redis_server_ask(server, "INCR", name, NULL);
    } else {
        redis_server_ask(server, "EVAL", script, "1", name, "3600", NULL);
    }
}

static pid_t strangers_start(struct redis_server *server) {
    pid_t pid = test_fork();
    if (pid != 0) return pid;
    char name[64];
    for (int round = 0; round < STRANGE_ROUNDS; round++)
        for (int kind = 0; kind < STRANGERS; kind++)
            for (int key = 0; key < STRANGE_KEYS; key++) {
                strange_name(kind, key, name);
                count_as_a_stranger(server, kind, name);
            }
    _exit(0);
}

/* Even keys are counted here first, odd ones by the stranger. */
static void begin_together(struct redis_server *server, tw_engine *engine, tw_family *family) {
    char name[64], key[16];
    for (int kind = 0; kind < STRANGERS; kind++)
        for (int n = 0; n < STRANGE_KEYS; n++) {
            snprintf(key, sizeof key, "%d-%d", kind, n);
            strange_name(kind, n, name);
            if (n % 2 == 1) count_as_a_stranger(server, kind, name);
            add_and_flush(engine, family, key, 1);
            if (n % 2 == 0) count_as_a_stranger(server, kind, name);
        }
}

static void check_strange_key(struct redis_server *server, tw_family *family, int kind, int n, int64_t ours) {
    char name[64], key[16];
    int64_t local = 0, want = ours + STRANGE_ROUNDS + 1;
    tw_reading reading;
    strange_name(kind, n, name);
    snprintf(key, sizeof key, "%d-%d", kind, n);
    assert_i64_equal(redis_server_get(server, name), want);
    assert_status(tw_read(family, tw_str(key), &reading), TW_OK);
    local = reading.local;
    assert_i64_equal(local, ours);
    assert_i64_equal(reading.view, want);
    int64_t ttl_ms = atoll(redis_server_ask(server, "PTTL", name, NULL));
    if (kind == 0 || n % 2 == 1)
        assert_true(ttl_ms > 3000000 && ttl_ms <= 3600000); /* the stranger set it: always, or as the first */
    else
        assert_dies_at(server, name, WANT_MS, 0);
}

/* Goal: other programs count the same keys in their own ways meanwhile. Both sums are right, and the first one to count
 * sets the expiry that stays (except with programs that set it at each count). Method: a child process plays the other
 * programs. */
TEST(strangers_on_the_same_keys_change_nothing) {
    for (size_t i = 0; i < 3; i++) {
        struct redis_server server;
        struct fake_clock clock;
        redis_server_start(&server, NULL);
        pid_t pid = -1;
        fake_clock_init(&clock, WALL_MS + 1000);
        tw_engine *engine = engine_by(server.url, all[i], &clock, NULL);
        tw_family *family = family_of(engine, "hour", TW_WINDOW_ALIGNED, TW_HOUR);
        begin_together(&server, engine, family);
        pid = strangers_start(&server);
        int64_t ours = 1;
        for (int round = 0; round < 300; round++, ours++) {
            for (int kind = 0; kind < STRANGERS; kind++)
                for (int n = 0; n < STRANGE_KEYS; n++) {
                    char key[16];
                    snprintf(key, sizeof key, "%d-%d", kind, n);
                    assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
                }
            assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        ours++;
        for (int kind = 0; kind < STRANGERS; kind++)
            for (int n = 0; n < STRANGE_KEYS; n++) {
                char key[16];
                snprintf(key, sizeof key, "%d-%d", kind, n);
                assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
            }
        assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK); /* brings the last totals, too */
        for (int kind = 0; kind < STRANGERS; kind++)
            for (int n = 0; n < STRANGE_KEYS; n++) check_strange_key(&server, family, kind, n, ours);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
