/* cluster_messages.c -- what goes next to the batches, over a real Redis Cluster: one engine closes a window for all,
 * with names that lie by tag; gauges, of which each statement has keys of one slot; and a flush of distinct counts. */
#include "tests/redis/cluster/cluster_support.h"

#include <time.h>

#define KEYS 300

struct closed {
    _Atomic int calls;
    int64_t sum;
    uint32_t keys, flags;
};

static bool see(void *ctx, const tw_count *count) {
    struct closed *closed = ctx;
    closed->sum += count->view;
    closed->keys++;
    return true;
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct closed *closed = ctx;
    closed->flags = flags;
    closed->sum = closed->keys = 0;
    if (tw_each(family, start_ms, see, closed) != TW_OK) return false;
    atomic_fetch_add(&closed->calls, 1);
    return true;
}

static tw_engine *open_engine(void) {
    char url[512];
    tw_options options;
    tw_engine *engine = NULL;
    redis_cluster_url(&cluster, url, sizeof url);
    quick_options(&options, url);
    options.redis_timeout_ms = 500;
    assert_status(test_open(&options, &engine), TW_OK);
    return engine;
}

static bool was_closed(void *ctx) {
    return atomic_load(&((struct closed *)ctx)->calls) != 0;
}

static bool names_are_gone(void *ctx) {
    for (size_t i = 0; i < CLUSTER_MASTERS; i++) {
        struct redis_server *server = redis_cluster_server(&cluster, i);
        if (redis_server_ask(server, "KEYS", "tw:names*", NULL)[0] != '\0') return false;
        if (redis_server_ask(server, "KEYS", "tw:groups*", NULL)[0] != '\0') return false;
    }
    return true;
}

/* Goal: keys of two engines lie on all masters. One hook is called, once, with all of them; then no names are left. */
TEST(one_engine_closes_a_window_of_all_masters) {
    static struct closed closed;
    tw_engine *engines[2];
    struct timespec now;
    test_tuning.closing_pause_ms = 500;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t start_ms = (now.tv_sec + 2) * 1000;
    for (int i = 0; i < 2; i++) {
        tw_family *family = NULL;
        tw_family_options options;
        char key[16];
        engines[i] = open_engine();
        tw_family_options_init(&options);
        options.name = "stat";
        options.window_ms = 1000;
        options.lateness_ms = 2000;
        options.earliness_ms = TW_MINUTE;
        options.closed_by = TW_CLOSED_BY_ONE;
        options.on_window_closed = on_closed;
        options.closed_ctx = &closed;
        assert_status(tw_family_open(engines[i], &options, &family), TW_OK);
        for (int k = 0; k < KEYS; k++) {
            snprintf(key, sizeof key, "%d-%d", k % 3 == 0 ? 2 : i, k); /* a third of them is of both */
            assert_status(tw_add_at(family, tw_str(key), 1 + i, start_ms, NULL), TW_OK);
        }
    }
    assert_true(test_wait(was_closed, &closed, TEST_PATIENCE_MS));
    assert_i64_equal(closed.flags, 0);
    assert_i64_equal(closed.sum, 3 * KEYS);
    assert_i64_equal(closed.keys, 2 * KEYS - KEYS / 3);
    assert_true(test_wait(names_are_gone, NULL, TEST_PATIENCE_MS));
    for (int i = 0; i < 2; i++) assert_status(tw_close(engines[i], TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(atomic_load(&closed.calls), 1);
}

static bool all_show(void *ctx) {
    int64_t view = 0;
    char key[16];
    for (int k = 0; k < KEYS; k++) {
        snprintf(key, sizeof key, "g%d", k);
        if (tw_get(ctx, tw_str(key), &view) != TW_OK || view != 3) return false;
    }
    return true;
}

/* Goal: the gauges of two engines, with keys on all masters, show the sum of both. */
TEST(gauges_of_all_masters_show_the_sum) {
    tw_engine *engines[2] = {open_engine(), open_engine()};
    tw_family *families[2];
    char key[16];
    for (int i = 0; i < 2; i++) {
        families[i] = gauge_of(engines[i]);
        for (int k = 0; k < KEYS; k++) {
            snprintf(key, sizeof key, "g%d", k);
            assert_status(tw_add(families[i], tw_str(key), 1 + i, NULL), TW_OK);
        }
    }
    for (int i = 0; i < 2; i++) assert_status(tw_flush(engines[i], TEST_PATIENCE_MS), TW_OK);
    for (int i = 0; i < 2; i++) assert_true(test_wait(all_show, families[i], TEST_PATIENCE_MS));
    for (int i = 0; i < 2; i++) assert_status(tw_close(engines[i], TEST_PATIENCE_MS), TW_OK);
}

/* ---- a flush ----------------------------------------------------------------------------------------------------- */

enum { SKETCHES = 24 };

/* An engine that waits long for a reply, with distinct counts on all masters. */
static tw_family *open_sketches(tw_engine **engine, const char *named, struct lost *lost) {
    char url[512];
    tw_options options;
    redis_cluster_url(&cluster, url, sizeof url);
    quick_options(&options, url);
    options.redis_timeout_ms = 10000;
    options.on_lost = lost != NULL ? on_lost : NULL;
    options.lost_ctx = lost;
    assert_status(test_open(&options, engine), TW_OK);
    snprintf(family_name, sizeof family_name, "%s", named);
    tw_family_options distinct;
    tw_family *family = NULL;
    tw_family_options_init(&distinct);
    distinct.name = family_name;
    distinct.kind = TW_KIND_DISTINCT;
    distinct.window = TW_WINDOW_FOREVER;
    distinct.redis_tags = CLUSTER_TAGS;
    assert_status(tw_family_open(*engine, &distinct, &family), TW_OK);
    return family;
}

static struct redis_server *server_of(int key) {
    char name[64];
    cluster_name_of(key, name, sizeof name);
    return redis_cluster_server(&cluster, cluster.owners[twi_key_slot_of(name, strlen(name))]);
}

static void note_done(tw_request *request) {
    atomic_store((_Atomic bool *)request->ctx, true);
}

static bool is_done(void *ctx) {
    return atomic_load((_Atomic bool *)ctx);
}

static bool all_answer(void *ctx) {
    return test_stat_of(ctx, stores_away) == 0;
}

static void visit_all(tw_family *family, const char *element) {
    char key[16];
    for (int k = 0; k < SKETCHES; k++) {
        snprintf(key, sizeof key, "k%d", k);
        assert_status(tw_distinct_add(family, tw_str(key), tw_str(element), NULL), TW_OK);
    }
}

/* The keys of that master, or of all masters, have so many elements. */
static bool have_elements(const struct redis_server *of, const char *count) {
    char name[64];
    for (int k = 0; k < SKETCHES; k++) {
        cluster_name_of(k, name, sizeof name);
        if (of != NULL && of != server_of(k)) continue;
        if (strcmp(redis_server_ask(server_of(k), "PFCOUNT", name, NULL), count) != 0) return false;
    }
    return true;
}

/* Goal: a flush waits also for distinct counts that it can collect only later, because their master was away when it
 * began. Method: that master comes back while another one has not replied yet, and stops again. If it lacks elements
 * then, the flush is not over when the other one has replied. */
TEST(a_flush_waits_for_what_it_collects_late) {
    struct redis_server *slow = redis_cluster_server(&cluster, 0), *away = redis_cluster_server(&cluster, 1);
    tw_engine *engine = NULL;
    tw_family *family = open_sketches(&engine, "late", NULL);
    visit_all(family, "ann");
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_true(have_elements(NULL, "1"));
    redis_server_ask(away, "CLIENT", "KILL", "TYPE", "normal", NULL); /* this client, too */
    redis_server_pause(away);
    redis_server_pause(slow);
    visit_all(family, "bob");
    _Atomic bool was_answered = false;
    tw_request flush;
    tw_request_init(&flush);
    flush.done = note_done;
    flush.ctx = (void *)&was_answered;
    flush.timeout_ms = 20000;
    assert_status(tw_flush_async(&flush, engine), TW_STARTED);
    test_sleep_ms(200); /* collected, sent to the slow one, and put aside for the one that is away */
    redis_server_resume(away);
    assert_true(test_wait(all_answer, engine, TEST_PATIENCE_MS));
    test_sleep_ms(100);
    bool has_all = have_elements(away, "2");
    redis_server_pause(away);
    redis_server_resume(slow);
    test_sleep_ms(300); /* the flush goes on */
    assert_true(has_all || !is_done((void *)&was_answered));
    redis_server_resume(away);
    assert_true(test_wait(is_done, (void *)&was_answered, TEST_PATIENCE_MS));
    assert_status(flush.status, TW_OK);
    assert_true(have_elements(NULL, "2"));
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: distinct counts that wait for a master that is away are named by on_lost when the engine closes. */
TEST(what_waits_for_a_master_is_named_at_the_close) {
    struct redis_server *away = redis_cluster_server(&cluster, 1);
    struct lost lost = {0};
    tw_engine *engine = NULL;
    tw_family *family = open_sketches(&engine, "away", &lost);
    visit_all(family, "ann");
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    redis_server_ask(away, "CLIENT", "KILL", "TYPE", "normal", NULL); /* this client, too */
    redis_server_pause(away);
    visit_all(family, "bob");
    test_sleep_ms(200);
    assert_status(tw_close(engine, 1000), TW_ERR_TIMEOUT);
    redis_server_resume(away);
    int64_t waiting = 0;
    for (int k = 0; k < SKETCHES; k++) waiting += server_of(k) == away;
    assert_true(waiting > 0);
    assert_i64_equal(lost.calls, waiting);
}

int main(void) {
    redis_server_require();
    redis_cluster_start(&cluster, CLUSTER_MASTERS, 0, cluster_server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
