/* thin_link.c -- engines with a Redis behind a thin link, or far away: everything arrives, and no data is sent twice
 * because it was given up too soon.
 * Method: a real server; a link of so many bytes a second, or so many milliseconds long, that all engines share. The
 * options are the defaults: `redis_timeout_ms` is 100.
 * Covers: engine/turn/turn_check.c, sync/message/connection.c, sync/message/message.c, sync/message/connection.h,
 * sync/message/state.h. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"
#include "tests/support/thin_link.h"

#define PATIENCE_MS 30000 /* next to other programs the processors are late; the link itself needs some seconds */

static tw_engine *default_engine(const char *url, struct log_lines *lines) {
    tw_options options;
    tw_engine *engine = NULL;
    tw_options_init(&options);
    options.redis_url = url;
    options.log_write = lines ? on_log : NULL;
    options.log_ctx = lines;
    options.memory_bytes_max = 64 << 20;
    assert_status(test_open(&options, &engine), TW_OK);
    return engine;
}

static void add_all(tw_family *family, size_t keys, size_t size, int64_t delta) {
    char key[1024];
    for (size_t i = 0; i < keys; i++) {
        int length = snprintf(key, sizeof key, "k%zu", i);
        memset(key + length, 'x', sizeof key - (size_t)length);
        assert_status(tw_add(family, tw_bytes(key, size), delta, NULL), TW_OK);
    }
}

/* Goal: on links of 20, 60 and 125 KB/s counters of short and long names arrive, each once, and the engine stays
 * connected: no deadline passes before what is under way can be through. Method: as many bytes as the link
 * carries in a second, in two rounds; the engine may lose its connection once, for a processor without time. */
TEST(on_a_thin_link_everything_arrives) {
    static const int64_t rates[] = {20000, 60000, 125000};
    static const size_t sizes[] = {29, 200, 1000};
    for (size_t r = 0; r < 3; r++) {
        for (size_t s = 0; s < 3; s++) {
            struct redis_server server;
            redis_server_start(&server, NULL);
            struct thin_link *link = thin_link_start(server.folder, server.socket, rates[r], 2);
            tw_engine *engine = default_engine(thin_link_url(link), NULL);
            tw_family *family = family_of(engine, "c", TW_WINDOW_FOREVER, 0);
            size_t keys = (size_t)rates[r] / (sizes[s] + 30) / 2;
            for (int64_t round = 0; round < 2; round++) {
                add_all(family, keys, sizes[s], 1 + round);
                test_sleep_ms(150); /* the next round is added while this one is sent */
            }
            assert_status(tw_flush(engine, PATIENCE_MS), TW_OK);
            assert_i64_equal(sum_of(&server, "c:*"), 3 * (int64_t)keys);
            assert_true(test_stat_of(engine, disconnects) <= 1);
            assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
            thin_link_stop(link);
            redis_server_destroy(&server);
        }
    }
}

/* Goal: engines that share a thin link do not crowd each other out: none keeps losing its connection. Method: six
 * engines, 60 KB/s, three seconds of all that the link carries. */
TEST(engines_share_a_thin_link) {
    enum { ENGINES = 6, KEYS = 600 };
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct thin_link *link = thin_link_start(server.folder, server.socket, 60000, 5);
    tw_engine *engines[ENGINES];
    int64_t disconnects = 0;
    for (size_t i = 0; i < ENGINES; i++) {
        engines[i] = default_engine(thin_link_url(link), NULL);
        add_all(family_of(engines[i], "c", TW_WINDOW_FOREVER, 0), KEYS, 29, 1);
    }
    for (size_t i = 0; i < ENGINES; i++) assert_status(tw_flush(engines[i], PATIENCE_MS), TW_OK);
    assert_i64_equal(sum_of(&server, "c:*"), ENGINES * KEYS);
    for (size_t i = 0; i < ENGINES; i++) {
        disconnects += test_stat_of(engines[i], disconnects);
        assert_status(tw_close(engines[i], PATIENCE_MS), TW_OK);
    }
    assert_true(disconnects <= 4 * ENGINES);
    thin_link_stop(link);
    redis_server_destroy(&server);
}

/* Goal: at a round trip of one and a half times `redis_timeout_ms` batches are acknowledged, over one connection. */
TEST(a_round_trip_beyond_the_timeout_is_measured) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    struct thin_link *link = thin_link_start(server.folder, server.socket, 10000000, 150);
    tw_engine *engine = default_engine(thin_link_url(link), NULL);
    tw_family *family = family_of(engine, "c", TW_WINDOW_FOREVER, 0);
    for (int64_t round = 0; round < 3; round++) {
        add_all(family, 300, 29, 1);
        assert_status(tw_flush(engine, PATIENCE_MS), TW_OK);
    }
    assert_i64_equal(sum_of(&server, "c:*"), 900);
    assert_true(test_stat_of(engine, disconnects) <= 1);
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
    thin_link_stop(link);
    redis_server_destroy(&server);
}

static bool has_line(void *ctx) {
    return atomic_load(&((struct log_lines *)ctx)->count) != 0;
}

/* Goal: where a reply takes too long for any deadline, the log line names the option and the time that was waited. */
TEST(the_line_of_a_lost_connection_names_the_timeout) {
    struct redis_server server;
    struct log_lines lines = {0};
    redis_server_start(&server, NULL);
    struct thin_link *link = thin_link_start(server.folder, server.socket, 10000000, 4000);
    tw_engine *engine = default_engine(thin_link_url(link), &lines);
    tw_family *family = family_of(engine, "c", TW_WINDOW_FOREVER, 0);
    add_all(family, 1, 29, 1);
    assert_true(test_wait(has_line, &lines, PATIENCE_MS));
    (void)tw_close(engine, 0);
    const char *line = strstr(lines.text, "no answer in time: waited ");
    assert_non_null(line);
    assert_true(strtol(line + strlen("no answer in time: waited "), NULL, 10) >= 1000);
    assert_non_null(strstr(line, "redis_timeout_ms: 100"));
    thin_link_stop(link);
    redis_server_destroy(&server);
}

static bool has_error(void *ctx) {
    tw_stats stats;
    assert_status(tw_stats_read(ctx, &stats), TW_OK);
    return stats.last_error[0] != '\0';
}

/* The turn clears the one before it measures the other. */
static bool has_no_error(void *ctx) {
    return !has_error(ctx) && test_stat_of(ctx, outage_ms) == 0;
}

/* Goal: an outage that continues without an error is not silent: after five seconds it has a log line, an error and
 * outage_ms; when Redis answers, the error is gone. Method: a server that is stopped takes the greeting and answers
 * nothing; a reply may take a minute. */
TEST(no_outage_is_silent) {
    struct redis_server server;
    struct log_lines lines = {0};
    tw_options options;
    tw_engine *engine = NULL;
    redis_server_start(&server, NULL);
    redis_server_pause(&server);
    tw_options_init(&options);
    options.redis_url = server.url;
    options.redis_timeout_ms = 60000;
    options.log_write = on_log;
    options.log_ctx = &lines;
    options.memory_bytes_max = 64 << 20;
    assert_status(test_open(&options, &engine), TW_OK);
    assert_true(test_wait(has_error, engine, PATIENCE_MS));
    assert_true(test_stat_of(engine, outage_ms) >= 4900);
    assert_true(test_wait(has_line, &lines, PATIENCE_MS)); /* the error is shown before the line is written */
    assert_non_null(strstr(lines.text, "has not answered the greeting"));
    redis_server_resume(&server);
    assert_true(test_wait(has_no_error, engine, PATIENCE_MS));
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
    redis_server_destroy(&server);
}

/* ---- redis_timeout_ms -------------------------------------------------------------------------------------------- */

static void add_until_logged(tw_family *family, struct log_lines *lines) {
    for (int64_t end_ms = test_mono_ms() + PATIENCE_MS; atomic_load(&lines->count) < 2 && test_mono_ms() < end_ms;) {
        assert_status(tw_add(family, tw_str("k"), 1, NULL), TW_OK);
        test_sleep_ms(10);
    }
}

static uint32_t timeout_over(struct thin_link *link, uint32_t set_ms, struct log_lines *lines) {
    tw_options options;
    tw_engine *engine = NULL;
    tw_options_init(&options);
    options.redis_url = thin_link_url(link);
    options.redis_timeout_ms = set_ms;
    options.log_write = on_log;
    options.log_ctx = lines;
    options.memory_bytes_max = 64 << 20;
    assert_status(test_open(&options, &engine), TW_OK);
    if (set_ms == 0) assert_int_equal(twi_port_timeout_ms(engine), 1000); /* nothing was measured */
    tw_family *family = family_of(engine, "c", TW_WINDOW_FOREVER, 0);
    add_all(family, 1, 29, 1);
    assert_status(tw_flush(engine, PATIENCE_MS), TW_OK);
    if (set_ms != 0) add_until_logged(family, lines);
    uint32_t timeout_ms = twi_port_timeout_ms(engine);
    assert_status(tw_close(engine, PATIENCE_MS), TW_OK);
    return timeout_ms;
}

/* Goal: the default of redis_timeout_ms follows the round trip. One that was set is kept, and where it is less than
 * three round trips, one line of the log says so. */
TEST(the_timeout_follows_the_way_unless_it_is_set) {
    struct redis_server server;
    struct log_lines measured = {0}, set = {0};
    redis_server_start(&server, NULL);
    struct thin_link *link = thin_link_start(server.folder, server.socket, 10000000, 60);
    uint32_t timeout_ms = timeout_over(link, 0, &measured);
    assert_in_range(timeout_ms, 240, 2000);
    assert_null(strstr(measured.text, "redis_timeout_ms"));
    assert_int_equal(timeout_over(link, 120, &set), 120);
    assert_non_null(strstr(set.text, "redis_timeout_ms: 120 ms are less than three round trips of "));
    thin_link_stop(link);
    redis_server_destroy(&server);
}

/* Goal: calls that have no answer in time, while counts are acknowledged, are no silent matter. A line names the
 * option. Method: a proxy loses the replies to calls, and lets batches pass. */
TEST(calls_without_an_answer_while_counts_flow_are_logged) {
    struct redis_server server;
    struct log_lines lines = {0};
    tw_options options;
    tw_engine *engine = NULL;
    tw_family_options strict;
    tw_family *family = NULL;
    redis_server_start(&server, NULL);
    struct proxy *proxy = proxy_start(&server, 1);
    proxy_only(proxy, "tw:calls:");
    proxy_chance(proxy, PROXY_LOSE_REPLY, 10000);
    tw_options_init(&options);
    options.redis_url = proxy_url(proxy);
    options.redis_timeout_ms = 200;
    options.log_write = on_log;
    options.log_ctx = &lines;
    options.memory_bytes_max = 64 << 20;
    assert_status(test_open(&options, &engine), TW_OK);
    assert_status(tw_ready(engine, PATIENCE_MS), TW_OK);
    tw_family_options_init(&strict);
    strict.name = "s";
    strict.limit_mode = TW_LIMIT_STRICT;
    assert_status(tw_family_open(engine, &strict, &family), TW_OK);
    tw_family *counts = family_of(engine, "c", TW_WINDOW_FOREVER, 0);
    for (int i = 0; i < 3; i++) (void)tw_acquire(family, tw_str("k"), 1, 10, NULL);
    add_until_logged(counts, &lines); /* the first line says that Redis answers */
    (void)tw_close(engine, 0);
    assert_non_null(strstr(lines.text, "redis_timeout_ms: "));
    assert_non_null(strstr(lines.text, "had no answer within 200 ms"));
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
