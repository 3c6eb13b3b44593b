/* operate.c -- the five questions of docs/OPERATE.md, each answer tried: what an operator sees, and what helps.
 * Method: engines log in as the user that the page makes. Each figure and each phrase of a log line that the page names
 * for a question is looked for here, in tw_stats or in what the engine logged. */
#include "tests/redis/limits/hard_support.h"
#include "tests/support/proxy.h"
#include "tests/support/side_by_side.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static char page[64 << 10];

/* The user of the page: all its lines that begin with ACL SETUSER, each up to its end. */
static void make_user(struct redis_server *server) {
    static const char begins[] = "\nredis-cli ACL SETUSER ";
    const char *line = strstr(page, begins);
    assert_non_null(line);
    for (; line != NULL; line = strstr(line, begins)) {
        char text[2000];
        const char *words[64] = {"ACL", "SETUSER"};
        size_t count = 2, used = 0;
        line += strlen(begins);
        for (; used + 1 < sizeof text && !(line[used] == '\n' && line[used - 1] != '\\'); used++)
            text[used] = line[used];
        text[used] = '\0';
        for (char *word = strtok(text, " '\\\n"); word != NULL; word = strtok(NULL, " '\\\n"))
            words[count++] = strcmp(word, "resetchannels") == 0 ? redis_server_no_channels() : word;
        assert_string_equal(redis_server_ask_words(server, words, count), "OK");
    }
}

struct node {
    struct log_lines lines;
    tw_engine *engine;
    tw_family *views;
};

static void with_login(const char *url, char *out, size_t size) {
    const char *place = strstr(url, "://") + 3;
    snprintf(out, size, "%.*stally:change-me@%s", (int)(place - url), url, place);
}

static void node_open(struct node *node, const char *url) {
    char login[200];
    tw_options options;
    memset(node, 0, sizeof *node);
    with_login(url, login, sizeof login);
    quick_options(&options, login);
    options.log_write = on_log;
    options.log_ctx = &node->lines;
    assert_status(test_open(&options, &node->engine), TW_OK);
    node->views = family_of(node->engine, "views", TW_WINDOW_FOREVER, 0);
}

#define WIPED "Redis was wiped: what do I see and do?"

static void node_add(struct node *node, int64_t units) {
    assert_status(tw_add(node->views, tw_str("/index.html"), units, NULL), TW_OK);
    assert_status(tw_flush(node->engine, TEST_PATIENCE_MS), TW_OK);
}

/* The engine has the replies to all that it sent: Redis shows a count before the engine's figures do. */
static void node_heard_all(struct node *node) {
    assert_status(tw_flush(node->engine, TEST_PATIENCE_MS), TW_OK);
}

/* The page has these words below the heading, and the engine has logged a line with the phrase and the event. */
static void promised(const char *heading, const char *words) {
    char title[80];
    snprintf(title, sizeof title, "\n## %s", heading);
    const char *section = strstr(page, title), *next, *found;
    assert_non_null(section);
    next = strstr(section + 1, "\n## ");
    found = strstr(section, words);
    if (found == NULL || (next != NULL && found > next)) fail_msg("docs/OPERATE.md lacks '%s' in '%s'", words, heading);
}

static void logged(const struct log_lines *lines, const char *heading, const char *event, const char *phrase) {
    char in_page[20], in_log[20];
    snprintf(in_page, sizeof in_page, "(`%s`", event);
    snprintf(in_log, sizeof in_log, "[%s", event);
    const char *line = strstr(lines->text, phrase), *mark = line != NULL ? strstr(line, in_log) : NULL;
    if (mark == NULL || mark > line + strcspn(line, "\n"))
        fail_msg("the log lacks '%s' with %s: %s", phrase, event, lines->text);
    promised(heading, phrase);
    promised(heading, in_page);
}

static void node_lost_nothing(struct node *node) {
    assert_i64_equal(test_stat_of(node->engine, lost) + test_stat_of(node->engine, uncertain), 0);
}

/* Closes the engine and looks into its log. */
static void node_logged(struct node *node, const char *heading, const char *event, const char *phrase) {
    if (node->engine != NULL) (void)tw_close(node->engine, 5000);
    node->engine = NULL;
    if (getenv("TW_PRINT")) print_message("%s", node->lines.text);
    logged(&node->lines, heading, event, phrase);
}

struct wanted {
    struct redis_server *server;
    int64_t count;
};

static bool has_count(void *ctx) {
    struct wanted *wanted = ctx;
    return redis_server_get(wanted->server, "views:/index.html") == wanted->count;
}

static void wait_count(struct redis_server *server, int64_t count) {
    struct wanted wanted = {server, count};
    if (!test_wait(has_count, &wanted, 30000))
        fail_msg("Redis has %lld", (long long)redis_server_get(server, "views:/index.html"));
}

/* Goal: living engines send their own parts again, and nobody has to do anything; the part of a process that has ended
 * is gone. */
TEST(redis_was_wiped) {
    struct redis_server server;
    struct node a, b, ended;
    redis_server_start(&server, NULL);
    make_user(&server);
    node_open(&a, server.url), node_open(&b, server.url), node_open(&ended, server.url);
    node_add(&a, 1000), node_add(&b, 500), node_add(&ended, 7);
    assert_status(tw_close(ended.engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(redis_server_get(&server, "views:/index.html"), 1507);
    assert_string_equal(redis_server_ask(&server, "FLUSHALL", NULL), "OK");
    node_add(&a, 1), node_add(&b, 1); /* an idle engine learns of it within 30 s */
    wait_count(&server, 1502);
    node_heard_all(&a), node_heard_all(&b);
    assert_true(test_stat_of(a.engine, rollbacks) == 1 && test_stat_of(b.engine, rollbacks) == 1);
    assert_i64_equal(test_stat_of(a.engine, restored), 1000);
    node_lost_nothing(&a);
    node_logged(&b, WIPED, "TW-E014", "Redis was wiped; what the counters hold is sent again");
    node_logged(&a, WIPED, "TW-E014", "Redis was wiped; what the counters hold is sent again");
    node_logged(&a, WIPED, "TW-E015", "does not know this engine");
    redis_server_destroy(&server);
}

static bool has_restored(void *ctx) {
    struct node *node = ctx;
    return test_stat_of(node->engine, restored) == 1000;
}

/* Goal: the same when the server is killed and comes back with nothing. It might be another server, which passes: so
 * the engine tells it nothing for some seconds, and shows that it is not connected. */
TEST(redis_came_back_empty) {
    struct redis_server server;
    struct node node;
    redis_server_start(&server, NULL);
    make_user(&server);
    node_open(&node, server.url);
    node_add(&node, 1000);
    redis_server_kill(&server);
    redis_server_restart(&server);
    make_user(&server);
    assert_i64_equal(redis_server_get(&server, "views:/index.html"), 0);
    assert_status(tw_add(node.views, tw_str("/index.html"), 1, NULL), TW_OK);
    assert_true(test_wait(has_restored, &node, TEST_PATIENCE_MS));
    wait_count(&server, 1001);
    assert_i64_equal(test_stat_of(node.engine, rollbacks), 1);
    node_lost_nothing(&node);
    node_logged(&node, WIPED, "TW-E014", "Redis was wiped; what the counters hold is sent again");
    node_logged(&node, WIPED, "TW-E015", "does not know this engine");
    node_logged(&node, WIPED, "TW-E011", "no connection to Redis");
    redis_server_destroy(&server);
}

static bool follows(void *ctx) {
    return strstr(redis_server_ask(ctx, "INFO", "replication", NULL), "master_link_status:up") != NULL;
}

/* Goal: what a replica that lagged lacks is sent again by itself. Method: 20 batches that it never saw. */
TEST(a_replica_was_promoted) {
    struct redis_server master, replica;
    struct node node;
    char port[16];
    redis_server_start_tcp(&master, NULL), redis_server_start_tcp(&replica, NULL);
    make_user(&master), make_user(&replica);
    struct proxy *proxy = proxy_start(&master, test_seed());
    snprintf(port, sizeof port, "%d", master.port);
    redis_server_ask(&master, "CONFIG", "SET", "repl-diskless-sync-delay", "0", NULL);
    redis_server_ask(&replica, "REPLICAOF", "127.0.0.1", port, NULL);
    assert_true(test_wait(follows, &replica, TEST_PATIENCE_MS));
    node_open(&node, proxy_url(proxy));
    node_add(&node, 10);
    wait_count(&replica, 10);
    redis_server_pause(&replica);
    redis_server_ask(&master, "CLIENT", "KILL", "TYPE", "replica", NULL);
    for (int i = 0; i < 20; i++) node_add(&node, 1);
    redis_server_kill(&master);
    redis_server_resume(&replica);
    redis_server_ask(&replica, "REPLICAOF", "NO", "ONE", NULL);
    assert_i64_equal(redis_server_get(&replica, "views:/index.html"), 10);
    proxy_lead_to(proxy, &replica);
    proxy_cut_all(proxy);
    wait_count(&replica, 30);
    node_heard_all(&node);
    assert_i64_equal(test_stat_of(node.engine, rollbacks), 1);
    assert_i64_equal(test_stat_of(node.engine, replayed), 20);
    node_lost_nothing(&node);
    node_logged(&node, "A replica was promoted", "TW-E014", "acknowledged batches; those still held are sent again");
    node_logged(&node, "A replica was promoted", "TW-E011", "no connection to Redis");
    proxy_stop(proxy);
    redis_server_destroy(&master), redis_server_destroy(&replica);
}

/* As the page says: refused is as good as away. */
static bool has_refusal(void *ctx) {
    struct node *node = ctx;
    return test_stat_of(node->engine, batches_error) > 0 && test_stat_of(node->engine, redis_connected) == 0 &&
           test_stat_of(node->engine, outage_ms) > 0 && test_stat_of(node->engine, sync_age_ms) > 200;
}

/* Goal: a Redis that is full takes nothing and loses nothing; with more memory all of it is there, once. */
TEST(the_memory_of_redis_is_full) {
    struct redis_server server;
    struct node node;
    redis_server_start(&server, NULL);
    make_user(&server);
    node_open(&node, server.url);
    node_add(&node, 5);
    redis_server_ask(&server, "CONFIG", "SET", "maxmemory", "1", NULL);
    assert_status(tw_add(node.views, tw_str("/index.html"), 20, NULL), TW_OK);
    assert_true(test_wait(has_refusal, &node, TEST_PATIENCE_MS));
    assert_i64_equal(test_stat_of(node.engine, unsent_keys), 1);
    tw_stats stats;
    assert_status(tw_stats_read(node.engine, &stats), TW_OK);
    assert_non_null(strstr(stats.last_error, "OOM command not allowed"));
    assert_i64_equal(redis_server_get(&server, "views:/index.html"), 5);
    redis_server_ask(&server, "CONFIG", "SET", "maxmemory", "0", NULL);
    wait_count(&server, 25);
    node_lost_nothing(&node);
    node_logged(&node, "Memory is full", "TW-E012", "OOM command not allowed");
    static const char *const figures[] = {"redis_connected", "outage_ms",   "batches_error",
                                          "sync_age_ms",     "unsent_keys", "last_error"};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) promised("Memory is full", figures[i]);
    redis_server_destroy(&server);
}

static bool has_warned(void *ctx) {
    struct log_lines *lines = ctx;
    return atomic_load(&lines->count) > 0;
}

/* Goal: an engine that is full counts known keys on, and puts new ones into the overflow counter: none is dropped. */
TEST(the_memory_of_an_engine_is_full) {
    struct node node = {.lines = {.text = ""}};
    tw_options options;
    tw_reading reading;
    int64_t overflowed = 0, added = 0;
    tw_options_init(&options);
    options.memory_bytes_max = 1 << 20;
    options.log_write = on_log;
    options.log_ctx = &node.lines;
    assert_status(tw_open(&options, &node.engine), TW_OK);
    node.views = family_of(node.engine, "views", TW_WINDOW_FOREVER, 0);
    for (int64_t i = 0; overflowed < 1000; i++) {
        tw_status status = tw_add(node.views, tw_bytes(&i, sizeof i), 1, NULL);
        assert_true(status == TW_OK || status == TW_OVERFLOWED);
        overflowed += status == TW_OVERFLOWED;
        added++;
    }
    int64_t first = 0;
    assert_status(tw_add(node.views, tw_bytes(&first, sizeof first), 1, NULL), TW_OK);
    assert_status(tw_read(node.views, tw_bytes(&first, sizeof first), &reading), TW_OK);
    assert_i64_equal(reading.view, 2);
    assert_i64_equal(test_stat_of(node.engine, overflow_increments), 1000);
    assert_i64_equal(test_stat_of(node.engine, increments), added + 1);
    assert_true(test_stat_of(node.engine, memory_usable_bytes) < (1 << 20) / 5);
    assert_true(test_wait(has_warned, &node.lines, TEST_PATIENCE_MS));
    node_logged(&node, "Memory is full", "TW-E001", "counting memory:");
}

/* A process that draws a lease, sells one unit of it, and goes on living. */
static void sell_one(const char *url) {
    tw_engine *engine = quick_engine(url, NULL);
    tw_verdict verdict;
    if (buy(hard_family(engine, "sale"), tw_str("tv"), 1, 100, TEST_PATIENCE_MS, &verdict) != TW_OK) _exit(1);
    for (;;) pause();
}

static bool has_reported(void *server) {
    return strcmp(redis_server_ask(server, "HGET", "tw:lease:sale:tv", "s", NULL), "1") == 0;
}

struct dead {
    tw_family *family;
    char instance[33];
    int64_t units;
};

static bool is_reclaimed(void *ctx) {
    struct dead *dead = ctx;
    return tw_lease_reclaim(dead->family, dead->instance, &dead->units) == TW_OK;
}

struct sale {
    tw_engine *engine;
    tw_family *family;
    int64_t sold, stranded;
};

/* Sells what there is. */
static void sell_more(struct sale *sale) {
    sale->sold += sell_some(sale->family, tw_str("tv"), 100, 100, 1);
    sale->stranded = test_stat_of(sale->engine, lease_stranded);
}

/* All but the units of the dead engine are sold when these two are the whole limit. */
static bool is_sold_but_for_the_dead(void *ctx) {
    struct sale *sale = ctx;
    sell_more(sale);
    return sale->sold + sale->stranded == 100;
}

/* The field of a lease with 32 digits that is not ours: the one engine that had it before us. */
static void find_instance(struct redis_server *server, char instance[33]) {
    char *fields = strdup(redis_server_ask(server, "HKEYS", "tw:lease:sale:tv", NULL));
    for (char *field = strtok(fields, "\n"); field != NULL; field = strtok(NULL, "\n"))
        if (strlen(field) == 32) snprintf(instance, 33, "%s", field);
    free(fields);
    assert_int_equal(strlen(instance), 32);
}

/* Goal: the others sell all but the dead engine's units, say how many are stranded, and sell these once they are freed
 * by hand; nothing is sold twice. */
TEST(a_node_died_with_leases) {
    struct redis_server server;
    struct dead dead = {.units = 0};
    char login[200];
    tw_verdict verdict;
    redis_server_start(&server, NULL);
    make_user(&server);
    with_login(server.url, login, sizeof login);
    pid_t child = test_fork();
    if (child == 0) sell_one(login);
    assert_true(
        test_wait(has_reported, &server, TEST_PATIENCE_MS)); /* an engine reports once a second what it has spent */
    assert_true(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    find_instance(&server, dead.instance);
    tw_engine *engine = quick_engine(login, NULL);
    dead.family = hard_family(engine, "sale");
    struct sale sale = {.engine = engine, .family = dead.family, .sold = 1};
    assert_true(test_wait(is_sold_but_for_the_dead, &sale, TEST_PATIENCE_MS));
    assert_true(sale.stranded > 0);
    assert_status(tw_acquire(dead.family, tw_str("tv"), 1, 100, &verdict), TW_DENIED);
    assert_int_equal(verdict.final, 0);
    assert_true(test_wait(is_reclaimed, &dead, TEST_PATIENCE_MS)); /* refused within 5 s of its last message */
    assert_i64_equal(dead.units, sale.stranded);
    assert_i64_equal(sell(dead.family, tw_str("tv"), 1, 100, TEST_PATIENCE_MS, &verdict), sale.stranded);
    assert_int_equal(verdict.final, 1);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static int64_t number_of(const char *reply) {
    return strtoll(reply, NULL, 10);
}

/* What the dead engine had sold and not reported, as the page finds it: the counter, less what was reported. */
struct unreported {
    struct redis_server *server;
    struct sale sale;
    int64_t units;
};

static bool is_as_the_page_says(void *ctx) {
    struct unreported *found = ctx;
    sell_more(&found->sale);
    found->units = number_of(redis_server_ask(found->server, "GET", "sale:tv", NULL)) -
                   number_of(redis_server_ask(found->server, "HGET", "tw:lease:sale:tv", "s", NULL));
    return found->sale.sold + found->sale.stranded - found->units == 100;
}

static bool has_sold(void *server) {
    return redis_server_get(server, "sale:tv") == 1;
}

/* Goal: what an engine sold just before it died, and had not yet reported, is among the stranded units; the page's
 * subtraction finds it, before anybody reclaims. */
TEST(a_node_died_right_after_a_sale) {
    struct redis_server server;
    struct unreported found = {.server = &server};
    char login[200];
    redis_server_start(&server, NULL);
    make_user(&server);
    with_login(server.url, login, sizeof login);
    pid_t child = test_fork();
    if (child == 0) sell_one(login);
    assert_true(test_wait(has_sold, &server,
                          TEST_PATIENCE_MS)); /* the sale is in the counter, and as a rule not yet reported */
    assert_true(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    tw_engine *engine = quick_engine(login, NULL);
    found.sale = (struct sale){.engine = engine, .family = hard_family(engine, "sale"), .sold = 1};
    assert_true(test_wait(is_as_the_page_says, &found, TEST_PATIENCE_MS));
    print_message("# %lld units were not reported\n", (long long)found.units);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

static bool is_away(void *ctx) {
    struct node *node = ctx;
    return test_stat_of(node->engine, outage_ms) > 0 && test_stat_of(node->engine, redis_connected) == 0;
}

/* Goal: while Redis does not answer the figures say so, and counting goes on; afterwards all is there. */
TEST(counts_are_late) {
    struct redis_server server;
    struct node node;
    redis_server_start(&server, NULL);
    make_user(&server);
    node_open(&node, server.url);
    node_add(&node, 1);
    redis_server_pause(&server);
    assert_status(tw_add(node.views, tw_str("/index.html"), 41, NULL), TW_OK);
    assert_true(test_wait(is_away, &node, TEST_PATIENCE_MS));
    assert_true(test_stat_of(node.engine, unsent_keys) == 1 && test_stat_of(node.engine, sync_age_ms) > 0);
    assert_status(tw_add(node.views, tw_str("/index.html"), 8, NULL), TW_OK);
    redis_server_resume(&server);
    assert_status(tw_flush(node.engine, TEST_PATIENCE_MS), TW_OK);
    wait_count(&server, 50);
    node_heard_all(&node);
    assert_i64_equal(test_stat_of(node.engine, outage_ms), 0);
    node_logged(&node, "Counts are late", "TW-E011", "no connection to Redis");
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    test_read_source("docs/OPERATE.md", page, sizeof page);
    return test_run_side_by_side();
}
