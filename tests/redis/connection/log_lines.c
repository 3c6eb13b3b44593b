/* log_lines.c -- what an engine that counts in Redis says of each fault, word for word: a line is what happened, and
 * its end is what to do. tests/log_lines.txt names the test of each line; here are those of faults that a server alone
 * makes.
 * Method: each fault is made against a real server, and *all* lines of the engine are compared with those of the table,
 * in their order. A "#" of the table is a number, a "*" is any text of the line.
 * Always true: a fault that lasts has a bounded number of lines, and its end has one. */
#include "tests/redis/limits/hard_support.h"
#include "tests/support/side_by_side.h"

#include <ctype.h>
#include <unistd.h>

#define AWAY "[TW-E011: check Redis and the network; counts wait here meanwhile]"
#define REFUSED "[TW-E012: let Redis do what the line names; what it has not counted waits here]"
#define POISON "[TW-E013: delete or rename the key in Redis]"
#define WIPED "[TW-E014: find out why Redis lost writes; see tw_stats.lost]"
#define IDENTITY "[TW-E015: check whether somebody deleted tw:* keys or copied a process]"
#define SETTING "[TW-E016: change the setting that the line names]"
#define LOST "[TW-E017: see on_lost for the keys, and tw_stats for the sums]"
#define GIVEN_UP(sum) \
    "0/17 tw_close() was over before Redis had acknowledged everything: " sum " are given up " LOST "\n"
#define CONNECTED "2/10 Redis at * answers [TW-E010]\n"
#define AGAIN "2/10 Redis at * answers and takes counts again, after # ms [TW-E010]\n"

/* ---- lines and patterns ------------------------------------------------------------------------------------------ */

/* Whether the text begins with the pattern; *rest is what is behind it. */
static bool begins_like(const char *text, const char *pattern, const char **rest) {
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '#') {
            if (!isdigit((unsigned char)*text)) return false;
            while (isdigit((unsigned char)*text)) text++;
        } else if (*pattern == '*') {
            for (;; text++) {
                if (begins_like(text, pattern + 1, rest)) return true;
                if (*text == '\0' || *text == '\n') return false;
            }
        } else if (*text++ != *pattern) {
            return false;
        }
    }
    *rest = text;
    return true;
}

static bool is_like(const char *text, const char *pattern) {
    const char *rest;
    return begins_like(text, pattern, &rest) && *rest == '\0';
}

TEST(a_pattern_has_numbers_and_gaps) {
    assert_true(is_like("at 127 ms\n", "at # ms\n"));
    assert_true(is_like("at a:b ms, 5\n", "at * ms, #\n"));
    assert_false(is_like("at x ms\n", "at # ms\n"));
    assert_false(is_like("at 1 ms\nmore\n", "at * ms\n"));
    assert_false(is_like("one\ntwo\n", "*\n"));
}

/* ---- an engine with a fault -------------------------------------------------------------------------------------- */

struct stage {
    struct redis_server server;
    struct log_lines lines;
    tw_engine *engine;
    tw_family *family, *strict;
    const char *url; /* NULL: that of the server */
    uint32_t wait_replicas;
};

static void ask(struct stage *stage, const char *command) {
    char text[300], *words[32];
    size_t count = 0;
    snprintf(text, sizeof text, "%s", command);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) words[count++] = word;
    (void)redis_server_ask_words(&stage->server, (const char *const *)words, count);
}

/* Whether the list of live engines is due while the server has no memory is chance. Its line is not a subject here. */
static void on_stage_log(void *ctx, int level, int event, const char *text) {
    if (strstr(text, "the registry of live engines") == NULL || strstr(text, "OOM") == NULL)
        on_log(ctx, level, event, text);
}

static void stage_open(struct stage *stage) {
    tw_options options;
    quick_options(&options, stage->url != NULL ? stage->url : stage->server.url);
    options.log_write = on_stage_log;
    options.log_ctx = &stage->lines;
    options.wait_replicas = stage->wait_replicas;
    assert_status(test_open(&options, &stage->engine), TW_OK);
    stage->family = family_of(stage->engine, "f", TW_WINDOW_FOREVER, 0);
    tw_family_options family = plain_family_options("st", TW_WINDOW_FOREVER, 0);
    family.limit_mode = TW_LIMIT_STRICT;
    stage->strict = opened_family(stage->engine, family);
}

static void add(struct stage *stage, int64_t units) {
    assert_status(tw_add(stage->family, tw_str("k"), units, NULL), TW_OK);
}

static void add_flushed(struct stage *stage, int64_t units) {
    add(stage, units);
    assert_status(tw_flush(stage->engine, TEST_PATIENCE_MS), TW_OK);
}

/* Until so many lines are there. Their number alone is no proof that no more come: the end compares all. */
struct wanted {
    struct stage *stage;
    int lines;
};

static bool has_lines(void *ctx) {
    struct wanted *wanted = ctx;
    return atomic_load(&wanted->stage->lines.count) >= wanted->lines;
}

static void wait_lines(struct stage *stage, int lines) {
    struct wanted wanted = {stage, lines};
    if (!test_wait(has_lines, &wanted, TEST_PATIENCE_MS)) fail_msg("%d lines are missing", lines);
}

static void stage_close(struct stage *stage, uint32_t timeout_ms, const char *lines) {
    (void)tw_close(stage->engine, timeout_ms);
    if (!is_like(stage->lines.text, lines)) fail_msg("the log is\n%swhere it should be\n%s", stage->lines.text, lines);
}

/* ---- refused from the first connection on ------------------------------------------------------------------------ */

struct refusal {
    const char *user; /* its permissions; NULL: no login */
    const char *login;
    const char *before, *lines;
};

static const struct refusal refusals[] = {
    {.login = "nobody:x@",
     .lines =
         "0/12 Redis at * refuses the login: WRONGPASS invalid username-password pair or user is disabled. " REFUSED
         "\n"},
    {.before = "CONFIG SET requirepass pw",
     .lines = "0/12 Redis at * refuses to answer: NOAUTH Authentication required. " REFUSED "\n"},
    {.before = "REPLICAOF 127.0.0.1 1",
     .lines = "1/11 no connection to Redis at *: this Redis is a replica: nothing is asked of it " AWAY "\n"},
    {.user = "~* +@all -eval -evalsha",
     .login = "u:p@",
     .lines = "0/12 Redis at * refuses a batch: NOPERM * (docs/KEYS.md, Permissions) " REFUSED "\n"},
    {.user = "~tw:* +@all",
     .login = "u:p@",
     .lines = "*0/12 Redis at * refuses a batch: NOPERM * (docs/KEYS.md, Permissions) " REFUSED "\n"},
    {.user = "~* +@all -hset",
     .login = "u:p@",
     .lines = "0/12 Redis at * refuses a batch: * (docs/KEYS.md, Permissions) " REFUSED "\n"},
};

/* Goal: a refusal is one line, in the words of Redis, whatever is tried again; and what is lost by it at the end is the
 * second. */
TEST(a_refusal_is_one_line_and_the_counts_that_it_costs_are_one) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct stage stage = {0};
        char url[200], lines[700];
        const struct refusal *refusal = &refusals[i];
        redis_server_start(&stage.server, NULL);
        if (refusal->user != NULL) {
            char command[200];
            snprintf(command, sizeof command, "ACL SETUSER u reset on >p %s %s", redis_server_no_channels(),
                     refusal->user);
            ask(&stage, command);
        }
        if (refusal->before != NULL) ask(&stage, refusal->before);
        snprintf(url, sizeof url, "unix://%s%s", refusal->login != NULL ? refusal->login : "", stage.server.socket);
        stage.url = url;
        stage_open(&stage);
        add(&stage, 3);
        wait_lines(&stage, 1);
        for (int n = 0; n < 3; n++) assert_status(tw_flush(stage.engine, 100), TW_ERR_TIMEOUT);
        bool has_answered = strstr(stage.lines.text, "2/10 ") != NULL; /* the opening may be permitted */
        snprintf(
            lines, sizeof lines,
            "%s%s0/17 tw_close() was over before Redis had acknowledged everything: 3 units of 1 counters are given up "
            "%s\n",
            has_answered ? CONNECTED : "", refusal->lines + (refusal->lines[0] == '*'), LOST);
        stage_close(&stage, 0, lines);
        redis_server_destroy(&stage.server);
    }
}

/* Goal: an address that leads nowhere is one line with the reason. */
TEST(an_address_that_leads_nowhere_is_one_line) {
    static const char *const urls[][2] = {
        {"unix:///nowhere/redis.sock", "/nowhere/redis.sock: connect: No such file or directory"},
        {"redis://127.0.0.1:1", "127.0.0.1:1: connect: Connection refused"},
        {"redis+sentinel://127.0.0.1:1/m", "the master m: sentinel 127.0.0.1:1 connect: Connection refused"},
    };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct stage stage = {.url = urls[i][0]};
        char lines[700];
        stage_open(&stage);
        add(&stage, 2);
        wait_lines(&stage, 1);
        assert_status(tw_flush(stage.engine, 300), TW_ERR_TIMEOUT);
        snprintf(lines, sizeof lines, "1/11 no connection to Redis at %s " AWAY "\n" GIVEN_UP("2 units of 1 counters"),
                 urls[i][1]);
        stage_close(&stage, 0, lines);
    }
}

/* ---- settings of the server -------------------------------------------------------------------------------------- */

TEST(what_the_start_finds_is_one_line) {
    static const char *const cluster[] = {"--cluster-enabled", "yes", NULL};
    struct stage stage = {0};
    redis_server_start(&stage.server, NULL);
    ask(&stage, "CONFIG SET maxmemory-policy allkeys-lru");
    stage_open(&stage);
    add_flushed(&stage, 1);
    stage_close(&stage, TEST_PATIENCE_MS,
                "1/16 Redis may evict counters before their time (maxmemory-policy allkeys-lru) " SETTING
                "\n" CONNECTED);
    ask(&stage, "CONFIG SET maxmemory-policy noeviction");
    ask(&stage, "CONFIG SET appendonly yes");
    stage = (struct stage){.server = stage.server};
    stage_open(&stage);
    add_flushed(&stage, 1);
    stage_close(&stage, TEST_PATIENCE_MS,
                "2/16 after a crash Redis itself may apply a torn append-only file twice (aof-load-truncated yes, its "
                "default; docs/OPERATE.md advises no) [TW-E016]\n" CONNECTED);
    redis_server_destroy(&stage.server);
    stage = (struct stage){0};
    redis_server_start_tcp(&stage.server, cluster);
    stage_open(&stage);
    add(&stage, 1);
    wait_lines(&stage, 2);
    stage_close(&stage, 0,
                "1/16 this is a node of a Redis Cluster (mode cluster): it is reached by redis+cluster:// " SETTING
                "\n0/12 Redis at * refuses a batch: CLUSTERDOWN Hash slot not served " REFUSED
                "\n" GIVEN_UP("1 units of 1 counters"));
    redis_server_destroy(&stage.server);
}

/* ---- while it counts --------------------------------------------------------------------------------------------- */

/* Goal: full memory is one line for counts and one for calls, and its end is one. */
TEST(a_full_server_has_a_line_and_so_has_its_end) {
    struct stage stage = {0};
    tw_verdict verdict;
    redis_server_start(&stage.server, NULL);
    stage_open(&stage);
    add_flushed(&stage, 1);
    ask(&stage, "CONFIG SET maxmemory 1");
    add(&stage, 1);
    wait_lines(&stage, 2);
    for (int n = 0; n < 3; n++) (void)tw_acquire(stage.strict, tw_str("k"), 1, 100, &verdict);
    wait_lines(&stage, 3);
    ask(&stage, "CONFIG SET maxmemory 0");
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    wait_lines(&stage, 4);
    stage_close(&stage, TEST_PATIENCE_MS,
                CONNECTED
                "0/12 Redis at * refuses a batch: OOM command not allowed when used memory > 'maxmemory'. " REFUSED "\n"
                "0/12 Redis refuses calls that wait: OOM command not allowed when used memory > 'maxmemory'. " REFUSED
                "\n" AGAIN);
    redis_server_destroy(&stage.server);
}

/* Goal: a server that hangs and comes back is two lines, and nothing is said of redis_timeout_ms. */
TEST(a_server_that_hangs_is_two_lines) {
    struct stage stage = {0};
    redis_server_start(&stage.server, NULL);
    stage_open(&stage);
    add_flushed(&stage, 1);
    redis_server_pause(&stage.server);
    add(&stage, 1);
    wait_lines(&stage, 2);
    redis_server_resume(&stage.server);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    wait_lines(&stage, 3);
    stage_close(&stage, TEST_PATIENCE_MS,
                CONNECTED "1/11 no connection to Redis at *: no answer in time: waited # ms (redis_timeout_ms: #) " AWAY
                          "\n" AGAIN);
    redis_server_destroy(&stage.server);
}

/* Goal: what an engine finds in Redis has its line even if another line of its event came just before. Method: the
 * ledger alone is deleted: two lines of TW-E015 within a second. */
TEST(a_ledger_that_is_gone_is_named) {
    struct stage stage = {0};
    redis_server_start(&stage.server, NULL);
    stage_open(&stage);
    add_flushed(&stage, 1);
    redis_server_ask(&stage.server, "EVAL",
                     "for _, k in ipairs(redis.call('KEYS', 'tw:ledger:*')) do redis.call('DEL', k) end", "0", NULL);
    add(&stage, 1);
    wait_lines(&stage, 3);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    wait_lines(&stage, 4);
    stage_close(
        &stage, TEST_PATIENCE_MS,
        CONNECTED
        "2/15 the store at * does not know this engine (tw:ledger:*): perhaps it is another one; nothing "
        "is told to it for up to # ms [TW-E015]\n"
        "0/15 a new instance begins: the ledger is gone: evicted, expired or overwritten (tw:ledger:*) " IDENTITY
        "\n" CONNECTED);
    redis_server_destroy(&stage.server);
}

TEST(a_wiped_server_is_named) {
    struct stage stage = {0};
    redis_server_start(&stage.server, NULL);
    stage_open(&stage);
    add_flushed(&stage, 1);
    ask(&stage, "FLUSHALL");
    add_flushed(&stage, 1);
    wait_lines(&stage, 4);
    stage_close(&stage, TEST_PATIENCE_MS,
                CONNECTED
                "2/15 the store at * does not know this engine (tw:ledger:*): perhaps it is another one; nothing "
                "is told to it for up to # ms [TW-E015]\n"
                "0/14 Redis was wiped; what the counters hold is sent again, 0 units of earlier ones are lost " WIPED
                "\n" CONNECTED);
    redis_server_destroy(&stage.server);
}

/* Goal: keys that others have changed are named, and so is one that lost counts. */
TEST(keys_that_others_change_are_named) {
    struct stage stage = {0};
    tw_verdict verdict;
    redis_server_start(&stage.server, NULL);
    ask(&stage, "RPUSH tw:marker x");
    ask(&stage, "RPUSH f:list x");
    stage_open(&stage);
    add_flushed(&stage, 5);
    assert_status(tw_add(stage.family, tw_str("list"), 1, NULL), TW_OK);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_ERR_REDIS);
    wait_lines(&stage, 3);
    ask(&stage, "DEL f:k f:list");
    add(&stage, 1);
    assert_true(test_wait(is_flushed, stage.engine, TEST_PATIENCE_MS));
    ask(&stage, "RPUSH st:k x");
    (void)tw_acquire(stage.strict, tw_str("k"), 1, 100, &verdict);
    wait_lines(&stage, 6);
    ask(&stage, "DEL st:k");
    assert_true(test_wait(is_flushed, stage.engine, TEST_PATIENCE_MS));
    stage_close(
        &stage, TEST_PATIENCE_MS,
        "0/15 a key of another type has the name tw:marker in Redis: delete it, for without its own key there this "
        "engine cannot recognise that Redis was wiped " IDENTITY "\n" CONNECTED
        "0/13 Redis refuses the key f:list: WRONGTYPE Operation against a key holding the wrong kind of value* " POISON
        "\n"
        "0/19 the key f:k in Redis is at 1, though it has acknowledged 6 to this engine [TW-E019: find out who "
        "deletes, evicts or sets keys of this engine]\n"
        "0/13 Redis cannot decide a call, for one of its keys holds something else: *st:k: * " POISON "\n"
        "0/13 Redis refuses the key st:k: WRONGTYPE Operation against a key holding the wrong kind of value* " POISON
        "\n");
    redis_server_destroy(&stage.server);
}

/* Goal: an expiry that Redis refuses is one line, not one a batch; the counts are there. */
TEST(an_expiry_that_is_refused_is_one_line) {
    struct stage stage = {0};
    char url[200];
    redis_server_start(&stage.server, NULL);
    redis_server_ask(&stage.server, "ACL", "SETUSER", "u", "on", ">p", "~*", redis_server_no_channels(), "+@all",
                     "-pexpireat", NULL);
    snprintf(url, sizeof url, "unix://u:p@%s", stage.server.socket);
    stage.url = url;
    stage_open(&stage);
    tw_family *hourly = family_of(stage.engine, "h", TW_WINDOW_ALIGNED, LONG_WINDOW_MS);
    for (int n = 0; n < 4; n++) {
        char key[8];
        snprintf(key, sizeof key, "%d", n);
        assert_status(tw_add(hourly, tw_str(key), 1, NULL), TW_OK);
        assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    }
    stage_close(&stage, TEST_PATIENCE_MS,
                CONNECTED
                "1/12 1 keys stay without an expiry in Redis, which refuses PEXPIREAT or PEXPIRE (docs/KEYS.md, "
                "Permissions) " REFUSED "\n");
    redis_server_destroy(&stage.server);
}

/* Goal: a command that the user may not run is named as that, not as a fault of the keys: who deletes them loses
 * them. */
TEST(a_command_that_is_forbidden_blames_no_key) {
    struct stage stage = {0};
    char url[200];
    redis_server_start(&stage.server, NULL);
    redis_server_ask(&stage.server, "ACL", "SETUSER", "u", "on", ">p", "~*", redis_server_no_channels(), "+@all",
                     "-incrby", NULL);
    snprintf(url, sizeof url, "unix://u:p@%s", stage.server.socket);
    stage.url = url;
    stage_open(&stage);
    add(&stage, 1);
    assert_status(tw_add(stage.family, tw_str("l"), 1, NULL), TW_OK);
    wait_lines(&stage, 2);
    assert_status(tw_flush(stage.engine, 300), TW_ERR_REDIS);
    tw_stats stats;
    assert_status(tw_stats_read(stage.engine, &stats), TW_OK);
    assert_non_null(strstr(stats.last_error, "a command on the keys of a batch"));
    redis_server_ask(&stage.server, "ACL", "SETUSER", "u", "+incrby", NULL);
    assert_true(test_wait(is_flushed, stage.engine, TEST_PATIENCE_MS));
    stage_close(&stage, TEST_PATIENCE_MS,
                CONNECTED
                "0/12 Redis at * refuses a command on the keys of a batch: * (docs/KEYS.md, Permissions) " REFUSED
                "\n");
    redis_server_destroy(&stage.server);
}

/* ---- clusters ---------------------------------------------------------------------------------------------------- */

static void cluster_url(struct stage *stage, const char *login, char *url, size_t size) {
    snprintf(url, size, "redis+cluster://%s127.0.0.1:%d", login, stage->server.port);
    stage->url = url;
}

/* Seven seconds, by which a silent outage would have had its line. */
static bool is_away_for_long(void *engine) {
    return test_stat_of(engine, outage_ms) > 7000;
}

/* Goal: an address of a cluster that leads to something else, a user who may not ask for its map, and a slot that no
 * master has. The last needs five seconds of silence. */
TEST(what_is_wrong_with_a_cluster_is_named) {
    static const char *const cluster[] = {"--cluster-enabled", "yes", NULL};
    struct stage stage = {0};
    char url[100];
    redis_server_start_tcp(&stage.server, NULL);
    cluster_url(&stage, "", url, sizeof url);
    stage_open(&stage);
    add(&stage, 1);
    assert_true(test_wait(is_away_for_long, stage.engine, TEST_PATIENCE_MS));
    stage_close(
        &stage, 0,
        "1/16 redis+cluster:// leads to a Redis that is no node of a cluster (mode standalone) " SETTING "\n"
        "0/12 Redis at * refuses CLUSTER SLOTS: ERR This instance has cluster support disabled " REFUSED "\n"
        "1/11 no master with an address is known for key slot # (CLUSTER SLOTS): its counts wait (for 5 s so far) " AWAY
        "\n" GIVEN_UP("1 units of 1 counters"));
    redis_server_destroy(&stage.server);
    stage = (struct stage){0};
    redis_server_start_tcp(&stage.server, cluster);
    redis_server_ask(&stage.server, "ACL", "SETUSER", "u", "on", ">p", "~*", redis_server_no_channels(), "+@all",
                     "-cluster", NULL);
    cluster_url(&stage, "u:p@", url, sizeof url);
    stage_open(&stage);
    add(&stage, 1);
    wait_lines(&stage, 2);
    (void)tw_close(stage.engine, 0);
    if (!strstr(stage.lines.text, " refuses CLUSTER SLOTS: NOPERM ")) fail_msg("%s", stage.lines.text);
    stage = (struct stage){.server = stage.server};
    cluster_url(&stage, "", url, sizeof url);
    stage_open(&stage);
    add(&stage, 1);
    wait_lines(&stage, 2);
    stage_close(&stage, 0,
                CONNECTED
                "1/11 no master with an address is known for key slot # (CLUSTER SLOTS): its counts wait (for 5 s "
                "so far) " AWAY "\n" GIVEN_UP("1 units of 1 counters"));
    redis_server_destroy(&stage.server);
}

/* ---- callbacks, and a store that cannot be trusted --------------------------------------------------------------- */

static int no_password(void *ctx, char *out, size_t size) {
    (void)ctx, (void)out, (void)size;
    return -1;
}

static void sleep_long(tw_request *request) {
    (void)request;
    test_sleep_ms(150);
}

/* Goal: a callback that fails, and one that is slow. */
TEST(callbacks_that_do_not_do_their_part_are_named) {
    struct stage stage = {0};
    tw_options options;
    redis_server_start(&stage.server, NULL);
    quick_options(&options, stage.server.url);
    options.log_write = on_log;
    options.log_ctx = &stage.lines;
    options.redis_password = no_password;
    assert_status(test_open(&options, &stage.engine), TW_OK);
    wait_lines(&stage, 1);
    stage_close(&stage, 0, "1/11 no connection to Redis at *: the password callback failed " AWAY "\n");
    stage = (struct stage){.server = stage.server};
    stage_open(&stage);
    tw_request request;
    tw_request_init(&request);
    request.done = sleep_long;
    assert_status(tw_acquire_async(&request, stage.strict, tw_str("k"), 1, 10), TW_STARTED);
    wait_lines(&stage, 2);
    (void)tw_close(stage.engine, TEST_PATIENCE_MS);
    if (strstr(stage.lines.text, "1/27 a `done` took 1") == NULL ||
        strstr(stage.lines.text,
               " ms: other answers waited for it [TW-E027: let the `done` pass its work to another thread]") == NULL)
        fail_msg("%s", stage.lines.text);
    redis_server_destroy(&stage.server);
}

/* Goal: calls whose outcome nobody knows at the end are summed. Method: the server stops with one of them. */
TEST(calls_of_unknown_outcome_are_named_at_the_end) {
    struct stage stage = {0};
    tw_verdict verdict;
    redis_server_start(&stage.server, NULL);
    stage_open(&stage);
    assert_status(tw_acquire(stage.strict, tw_str("k"), 1, 10, &verdict), TW_OK);
    assert_status(tw_flush(stage.engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_pause(&stage.server);
    (void)tw_acquire(stage.strict, tw_str("k"), 1, 10, &verdict);
    (void)tw_close(stage.engine, 100);
    if (strstr(stage.lines.text,
               "1/17 1 calls of unknown outcome could not be taken back before the end: what Redis has "
               "charged for them stays charged, 1 units at most " LOST "\n") == NULL)
        fail_msg("%s", stage.lines.text);
    redis_server_destroy(&stage.server);
}

/* Goal: an audit that cannot be made says why. Method: from now on a connection needs a password; the engine's own has
 * logged in before. */
TEST(an_audit_that_fails_is_named) {
    struct stage stage = {0};
    tw_options options;
    redis_server_start(&stage.server, NULL);
    quick_options(&options, stage.server.url);
    options.log_write = on_log;
    options.log_ctx = &stage.lines;
    options.audit_interval_ms = 1000;
    assert_status(test_open(&options, &stage.engine), TW_OK);
    stage.family = family_of(stage.engine, "f", TW_WINDOW_FOREVER, 0);
    add_flushed(&stage, 1);
    ask(&stage, "CONFIG SET requirepass pw");
    wait_lines(&stage, 2);
    (void)tw_close(stage.engine, TEST_PATIENCE_MS);
    if (strstr(stage.lines.text, "1/22 an audit failed: ") == NULL || strstr(stage.lines.text, "NOAUTH") == NULL)
        fail_msg("%s", stage.lines.text);
    redis_server_destroy(&stage.server);
}

/* Goal: what is gone, and cannot be told from an eviction or from a key of others, is uncertain, and said so. */
TEST(what_cannot_be_restored_is_named) {
    static const char *const whys[] = {"ledger and marker are gone, and Redis may evict them or would not say",
                                       "the ledger is gone, and a key of another type has the marker's name"};
    for (int i = 0; i < 2; i++) {
        struct stage stage = {0};
        char lines[300];
        redis_server_start(&stage.server, NULL);
        if (i == 0) ask(&stage, "CONFIG SET maxmemory-policy allkeys-lru");
        stage_open(&stage);
        add_flushed(&stage, 5);
        redis_server_ask(&stage.server, "EVAL",
                         "redis.call('DEL', 'tw:marker') for _, k in ipairs(redis.call('KEYS', 'tw:ledger:*')) do "
                         "redis.call('DEL', k) end return 1",
                         "0", NULL);
        if (i == 1) ask(&stage, "RPUSH tw:marker x");
        add(&stage, 1);
        wait_lines(&stage, 4);
        (void)tw_close(stage.engine, TEST_PATIENCE_MS);
        snprintf(lines, sizeof lines, "0/14 %s; what it has is not sent again, 5 units are uncertain " WIPED "\n",
                 whys[i]);
        if (strstr(stage.lines.text, lines) == NULL) fail_msg("the log is\n%s", stage.lines.text);
        redis_server_destroy(&stage.server);
    }
}

int main(void) {
    redis_server_require();
    return test_run();
}
