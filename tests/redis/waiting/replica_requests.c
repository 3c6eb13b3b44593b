/* replica_requests.c -- requests at an address that shows a replica for a while. No call is decided there, on the old
 * data of the replica; back at the master each call has the true result.
 * Method: a master and a replica that no longer follows it, behind the name of one socket; and a master that becomes a
 * replica while connections to it stand. A table lists the calls. */
#include "tests/redis/sync_support.h"

#include <unistd.h>

static struct redis_server master, replica;
static char address[128], url[160];

/* An engine of this test and its families. */
struct store {
    tw_engine *engine;
    tw_family *stock, *strict, *paced, *open, *jobs, *subjects, *ranks;
};

static tw_family *family_with(tw_engine *engine, const char *name, uint32_t shape, uint32_t on_outage) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = shape == TW_SHAPE_GCRA ? TW_WINDOW_ALIGNED : TW_WINDOW_FOREVER;
    options.window_ms = shape == TW_SHAPE_GCRA ? TW_DAY : 0;
    options.limit_mode = TW_LIMIT_STRICT;
    options.limit_shape = shape;
    options.on_outage = on_outage;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static tw_family *family_shaped(tw_engine *engine, const char *name, uint32_t redis_shape) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = TW_WINDOW_FOREVER;
    options.redis_shape = redis_shape;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

static struct store open_at(const char *at, uint32_t timeout_ms) {
    struct store store;
    tw_options options;
    quick_options(&options, at);
    options.redis_timeout_ms = timeout_ms;
    assert_status(test_open(&options, &store.engine), TW_OK);
    store.stock = family_of(store.engine, "stock", TW_WINDOW_FOREVER, 0);
    store.strict = family_with(store.engine, "strict", TW_SHAPE_FIXED, TW_OUTAGE_FAIL_CLOSED);
    store.open = family_with(store.engine, "open", TW_SHAPE_FIXED, TW_OUTAGE_FAIL_OPEN);
    store.paced = family_with(store.engine, "paced", TW_SHAPE_GCRA, TW_OUTAGE_FAIL_OPEN);
    store.jobs = family_with(store.engine, "jobs", TW_SHAPE_FIXED, TW_OUTAGE_FAIL_CLOSED);
    store.subjects = family_shaped(store.engine, "subjects", TW_REDIS_HASH);
    store.ranks = family_shaped(store.engine, "ranks", TW_REDIS_ZSET);
    return store;
}

static char basket[TW_TOKEN_SIZE], lock_token[TW_TOKEN_SIZE];
static char given_back[TW_TOKEN_SIZE], released[TW_TOKEN_SIZE]; /* a release goes on, and may reach the master later */

/* What the replica has: limits that are reached, a lock of another owner, a key that had its first call. */
static void fill(const struct store *store) {
    char token[TW_TOKEN_SIZE];
    tw_key key = tw_str("k");
    assert_status(tw_acquire(store->strict, key, 3, 3, NULL), TW_OK);
    assert_status(tw_acquire(store->open, key, 3, 3, NULL), TW_OK);
    assert_status(tw_acquire(store->paced, key, 3, 3, NULL), TW_OK);
    assert_status(tw_reserve(store->stock, tw_str("full"), 3, 3, 60000, tw_str(""), token, NULL), TW_OK);
    assert_status(tw_once(store->strict, tw_str("order"), NULL), TW_OK);
    assert_status(tw_lock(store->strict, tw_str("theirs"), 60000, token, NULL), TW_OK);
    assert_status(tw_hold(store->jobs, key, 1, NULL), TW_OK);
}

/* What the replica lacks. */
static void go_on(const struct store *store) {
    assert_status(tw_reserve(store->stock, tw_str("sku"), 1, 9, 60000, tw_str(""), basket, NULL), TW_OK);
    assert_status(tw_lock(store->strict, tw_str("ours"), 60000, lock_token, NULL), TW_OK);
    assert_status(tw_reserve(store->stock, tw_str("other"), 1, 9, 60000, tw_str(""), given_back, NULL), TW_OK);
    assert_status(tw_lock(store->strict, tw_str("released"), 60000, released, NULL), TW_OK);
}

/* ---- the calls, each with the result that its caller sees -------------------------------------------------------- */

static tw_status confirm(const struct store *store) {
    return tw_reserve_confirm(store->engine, basket);
}
static tw_status cancel(const struct store *store) {
    return tw_reserve_cancel(store->engine, given_back);
}
static tw_status reserve(const struct store *store) {
    char token[TW_TOKEN_SIZE];
    return tw_reserve(store->stock, tw_str("full"), 1, 3, 60000, tw_str(""), token, NULL);
}
static tw_status acquire_of(tw_family *family) {
    tw_verdict verdict = {0};
    tw_status status = tw_acquire(family, tw_str("k"), 1, 3, &verdict);
    if (status >= 0 && verdict.decided_by != TW_BY_OUTAGE) return TW_ERR_MODE; /* a reply of Redis */
    return status;
}
static tw_status acquire_closed(const struct store *store) {
    return acquire_of(store->strict);
}
static tw_status acquire_open(const struct store *store) {
    return acquire_of(store->open);
}
static tw_status acquire_gcra(const struct store *store) {
    return acquire_of(store->paced);
}
static tw_status acquire_some(const struct store *store) {
    int64_t taken;
    tw_verdict verdict = {0};
    tw_status status = tw_acquire_some(store->open, tw_str("k"), 2, 3, &taken, &verdict);
    return status == TW_OK && verdict.decided_by == TW_BY_OUTAGE ? TW_OK : TW_ERR_MODE;
}
static tw_status once(const struct store *store) {
    bool first = false;
    return tw_once(store->strict, tw_str("order"), &first);
}
static tw_status lock(const struct store *store) {
    char token[TW_TOKEN_SIZE];
    return tw_lock(store->strict, tw_str("theirs"), 60000, token, NULL);
}
static tw_status extend(const struct store *store) {
    return tw_lock_extend(store->strict, tw_str("ours"), lock_token, 60000);
}
static tw_status unlock(const struct store *store) {
    return tw_lock_release(store->strict, tw_str("released"), released);
}
static tw_status hold(const struct store *store) {
    tw_verdict verdict = {0};
    tw_status status = tw_hold(store->jobs, tw_str("k"), 1, &verdict);
    return status == TW_OK || (status == TW_DENIED && verdict.decided_by != TW_BY_OUTAGE) ? TW_ERR_MODE : TW_ERR_REDIS;
}

static bool show_none(void *ctx, tw_key name, int64_t total) {
    (void)ctx, (void)name, (void)total;
    return true;
}
static tw_status fetch_fields(const struct store *store) {
    return tw_fetch_fields(store->subjects, tw_str("s"), TW_NOW, 0, show_none, NULL);
}
static tw_status fetch_top(const struct store *store) {
    return tw_fetch_top(store->ranks, TW_NOW, 10, 0, show_none, NULL);
}
static tw_status fetch_rank(const struct store *store) {
    return tw_fetch_rank(store->ranks, tw_str("m"), TW_NOW, 0, NULL, NULL);
}

static const struct {
    const char *what;
    tw_status (*call)(const struct store *store);
    tw_status says; /* expected at a replica */
} rows[] = {
    {"tw_reserve_confirm", confirm, TW_ERR_REDIS},
    {"tw_reserve_cancel", cancel, TW_ERR_REDIS},
    {"tw_reserve", reserve, TW_ERR_REDIS},
    {"tw_acquire, closed", acquire_closed, TW_DENIED},
    {"tw_acquire, open", acquire_open, TW_OK},
    {"tw_acquire, a rate", acquire_gcra, TW_OK},
    {"tw_acquire_some", acquire_some, TW_OK},
    {"tw_once", once, TW_ERR_REDIS},
    {"tw_lock", lock, TW_ERR_REDIS},
    {"tw_lock_extend", extend, TW_ERR_REDIS},
    {"tw_lock_release", unlock, TW_ERR_REDIS},
    {"tw_hold", hold, TW_ERR_REDIS},
    {"tw_fetch_fields", fetch_fields, TW_ERR_REDIS},
    {"tw_fetch_top", fetch_top, TW_ERR_REDIS},
    {"tw_fetch_rank", fetch_rank, TW_ERR_REDIS},
};
#define ROWS (sizeof rows / sizeof *rows)

static void show(struct redis_server *server) {
    (void)unlink(address);
    assert_int_equal(symlink(server->socket, address), 0);
}

static bool follows(void *ctx) {
    return redis_server_get(&replica, "strict:k") == 3 &&
           strstr(redis_server_ask(&replica, "KEYS", "tw:hold:*", NULL), "jobs");
}

/* The master is right: what was reserved can be sold, what is locked can be extended. */
static void check_master(void) {
    struct store store = open_at(master.url, 2000);
    assert_status(tw_reserve_confirm(store.engine, basket), TW_OK);
    assert_status(tw_lock_extend(store.strict, tw_str("ours"), lock_token, 60000), TW_OK);
    assert_i64_equal(redis_server_get(&master, "stock:sku"), 1);
    assert_status(tw_close(store.engine, TEST_PATIENCE_MS), TW_OK);
}

static void begin(void) {
    char port[16];
    redis_server_ask(&master, "FLUSHALL", NULL);
    snprintf(port, sizeof port, "%d", master.port);
    redis_server_ask(&replica, "REPLICAOF", "127.0.0.1", port, NULL);
    struct store store = open_at(master.url, 2000);
    fill(&store);
    if (!test_wait(follows, NULL, TEST_PATIENCE_MS)) fail_msg("the replica does not follow");
    redis_server_ask(&replica, "REPLICAOF", "127.0.0.1", "1", NULL); /* it lags from here on */
    go_on(&store);
    assert_status(tw_close(store.engine, TEST_PATIENCE_MS), TW_OK);
}

/* True when a connection stands. */
static bool is_asked(void *ctx) {
    const struct store *store = ctx;
    return tw_acquire(store->strict, tw_str("any"), 1, 1000000, NULL) == TW_OK;
}

/* Makes all calls, each by a separate engine: the first one at the replica opens the breaker for the others. */
static void check_calls(bool at_replica) {
    for (size_t i = 0; i < ROWS; i++) {
        show(&master);
        struct store store = open_at(url, 40); /* each first call looks for a master for so long */
        assert_true(test_wait(is_asked, &store, TEST_PATIENCE_MS));
        if (at_replica) {
            show(&replica);
            redis_server_ask(&master, "CLIENT", "KILL", "TYPE", "normal", NULL);
        } else {
            redis_server_ask(&master, "REPLICAOF", "127.0.0.1", "1", NULL);
        }
        for (int times = 0; times < 2; times++) {
            tw_status status = rows[i].call(&store);
            /* the server has not answered within the 40 ms: nothing is decided, and the call is made again */
            for (int again = 0; status == TW_ERR_TIMEOUT && rows[i].says != TW_ERR_REDIS && again < 50; again++)
                status = rows[i].call(&store);
            bool too_late = status == TW_ERR_TIMEOUT && rows[i].says == TW_ERR_REDIS; /* the call sent nothing */
            if (status != rows[i].says && !too_late)
                fail_msg("%s says %s", rows[i].what,
                         status == TW_ERR_MODE ? "what the replica says" : tw_status_name(status));
        }
        redis_server_ask(&master, "REPLICAOF", "NO", "ONE", NULL);
        (void)tw_close(store.engine, 0);
    }
}

/* Goal: no call takes its result from a replica that lags, and no count is lost permanently. */
TEST(a_replica_that_lags_decides_nothing) {
    begin();
    check_calls(true);
    check_master();
}

/* Goal: the same if the replica accepts writes, which are lost. */
TEST(a_replica_that_takes_writes_decides_nothing) {
    begin();
    redis_server_ask(&replica, "CONFIG", "SET", "replica-read-only", "no", NULL);
    check_calls(true);
    redis_server_ask(&replica, "CONFIG", "SET", "replica-read-only", "yes", NULL);
    check_master();
}

/* Goal: the same if the master becomes a replica while connections stand that nobody checks again. */
TEST(a_master_that_is_demoted_decides_nothing) {
    begin();
    check_calls(false);
    check_master();
}

int main(void) {
    static const char *const at_once[] = {"--repl-diskless-sync-delay", "0", NULL};
    redis_server_require();
    redis_server_start_tcp(&master, at_once);
    redis_server_start_tcp(&replica, NULL);
    snprintf(address, sizeof address, "%s/shown", master.folder);
    snprintf(url, sizeof url, "unix://%s", address);
    int failed = test_run();
    redis_server_destroy(&replica);
    redis_server_destroy(&master);
    return failed;
}
