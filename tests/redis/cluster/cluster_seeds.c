/* cluster_seeds.c -- an engine starts, and not all seeds of its cluster are of use. Where one is, Redis decides calls
 * that wait for it.
 *
 * Proxies play the seeds that are of no use. Each engine asks a random seed first, so each case has several engines. */
#include "tests/redis/cluster/cluster_support.h"

enum { ENGINES = 6 };

static int port_of(const struct proxy *proxy) {
    return atoi(strrchr(proxy_url(proxy), ':') + 1);
}

static tw_family *open_family(tw_engine *engine) {
    tw_family_options options = plain_family_options("f", TW_WINDOW_FOREVER, 0);
    options.limit_mode = TW_LIMIT_STRICT;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    options.redis_tags = CLUSTER_TAGS;
    return opened_family(engine, options);
}

/* True: Redis decided the first call of a new engine. */
static bool is_first_call_decided(const tw_options *options, tw_stats *stats) {
    tw_engine *engine = NULL;
    tw_verdict verdict;
    assert_status(test_open(options, &engine), TW_OK);
    tw_status status = tw_acquire(open_family(engine), tw_str("k"), 1, 1000000, &verdict);
    (void)tw_stats_read(engine, stats);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    return status == TW_OK && verdict.decided_by == TW_BY_REDIS;
}

/* One new engine after the other. On a busy machine a call may have no time: another engine tries. Seeds that delay the
 * start do so for most engines, so not all of these have one that gets through. */
static void first_calls_are_decided(const char *url, uint32_t timeout_ms) {
    tw_options options;
    quick_options(&options, url);
    options.redis_timeout_ms = timeout_ms;
    for (int i = 0; i < ENGINES; i++) {
        tw_stats stats;
        bool is_decided = false;
        for (int tries = 0; tries < 3 && !is_decided; tries++) is_decided = is_first_call_decided(&options, &stats);
        if (!is_decided) fail_msg("engine %d: not decided by Redis; last error: %s", i, stats.last_error);
    }
}

/* So many seeds answer CLUSTER SLOTS with `reply`, and one as it should. */
static void start_with(const char *reply, int bad_seeds, uint32_t timeout_ms) {
    struct proxy *bad[2];
    char url[160];
    int used = snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d", redis_cluster_server(&cluster, 1)->port);
    for (int i = 0; i < bad_seeds; i++) {
        bad[i] = proxy_start(redis_cluster_server(&cluster, 0), 1);
        proxy_map(bad[i], reply, strlen(reply));
        used += snprintf(url + used, sizeof url - (size_t)used, ",127.0.0.1:%d", port_of(bad[i]));
    }
    first_calls_are_decided(url, timeout_ms);
    for (int i = 0; i < bad_seeds; i++) proxy_stop(bad[i]);
}

/* Goal: two of three seeds know no master. They cost a call two short pauses, not the second that lies between two
 * refreshes of a map. */
TEST(seeds_that_know_no_master_are_passed_over) {
    static const char *const replies[] = {
        "-ERR This instance has cluster support disabled\r\n",
        "-NOPERM this user has no permissions to run the 'cluster|slots' command\r\n",
        "*0\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$1\r\n?\r\n:7000\r\n$2\r\nid\r\n", /* of a host that it does not know */
        "+OK\r\n",
    };
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) start_with(replies[i], 2, 1000);
}

/* Goal: a seed greets, and stops in the middle of its answer. Half of the call's time is left for the other one. */
TEST(a_seed_that_stops_in_its_answer_is_passed_over) {
    start_with("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n", 1, 3000);
}

int main(void) {
    redis_cluster_start(&cluster, CLUSTER_MASTERS, 0, cluster_server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
