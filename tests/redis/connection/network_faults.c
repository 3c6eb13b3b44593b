/* network_faults.c -- every fault that a network can have, one at a time, between an engine and a real redis-server.
 * Method of all tests: the test orders a fault of the proxy (tests/support/proxy.h) for the next batch. Afterwards the
 * sum in Redis must equal the sum of all increments (P), and the replies must be those that the fault calls for. */
#include "tests/redis/redis_rig.h"
#include "tests/support/side_by_side.h"

#include <sys/resource.h>

static void rig_open(struct rig *rig, uint32_t timeout_ms) {
    tw_options options;
    memset(rig, 0, sizeof *rig);
    redis_server_start(&rig->server, NULL);
    rig->proxy = proxy_start(&rig->server, test_seed());
    rig_options(rig, &options, proxy_url(rig->proxy));
    options.redis_timeout_ms = timeout_ms;
    rig_start(rig, &options);
}

static void rig_close(struct rig *rig) {
    rig_check(rig, &rig->server);
    assert_status(tw_close(rig->engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(rig->lost.calls, 0);
    proxy_stop(rig->proxy);
    redis_server_destroy(&rig->server);
}

/* Sends one batch with this fault, and waits until it is acknowledged. */
static void one_fault(struct rig *rig, const struct proxy_order *order) {
    int64_t before = proxy_look(rig->proxy).happened[order->fault];
    proxy_order(rig->proxy, order);
    rig_add(rig, 7);
    rig_check(rig, &rig->server);
    assert_i64_equal(proxy_look(rig->proxy).happened[order->fault], before + 1);
}

/* Goal: a reply that is lost after the batch was executed costs one more sending, answered DUP (fault 1). */
TEST(a_lost_reply_is_asked_for_again_and_answered_dup) {
    struct rig rig;
    static const enum proxy_fault faults[] = {PROXY_DROP_REPLY, PROXY_LOSE_REPLY, PROXY_RESET};
    rig_open(&rig, 150);
    rig_add(&rig, 1);
    rig_check(&rig, &rig.server);
    for (size_t i = 0; i < 3; i++) {
        one_fault(&rig, &(struct proxy_order){.fault = faults[i]});
        assert_i64_equal(test_stat_of(rig.engine, batches_dup), i + 1);
        assert_i64_equal(proxy_look(rig.proxy).same_again, i + 1); /* byte for byte the earlier batch */
    }
    rig_close(&rig);
}

/* Goal: a request that never arrived is sent again, unchanged, and then applied (fault 2). */
TEST(a_lost_request_is_sent_again_and_answered_ok) {
    struct rig rig;
    rig_open(&rig, 150);
    rig_add(&rig, 1);
    rig_check(&rig, &rig.server);
    one_fault(&rig, &(struct proxy_order){.fault = PROXY_DROP_REQUEST});
    one_fault(&rig, &(struct proxy_order){.fault = PROXY_LOSE_REQUEST});
    assert_i64_equal(test_stat_of(rig.engine, batches_dup), 0);
    assert_i64_equal(test_stat_of(rig.engine, batches_gap), 0);
    assert_i64_equal(proxy_look(rig.proxy).same_again, 2);
    rig_close(&rig);
}

/* ---- every byte -------------------------------------------------------------------------------------------------- */

#define LANES 8 /* engines side by side, because back-off takes most of the time */

struct lane {
    struct proxy *proxy;
    tw_engine *engine;
    tw_family *family;
};

static void lanes_add(struct lane *lanes, const char *key) {
    for (int i = 0; i < LANES; i++) assert_status(tw_add(lanes[i].family, tw_str(key), 1, NULL), TW_OK);
    for (int i = 0; i < LANES; i++) assert_status(tw_flush(lanes[i].engine, TEST_PATIENCE_MS), TW_OK);
}

static void cut_at_every_byte(enum proxy_fault fault) {
    struct redis_server server;
    struct lane lanes[LANES];
    redis_server_start(&server, NULL);
    for (int i = 0; i < LANES; i++) {
        lanes[i].proxy = proxy_start(&server, test_seed() + (uint64_t)i);
        lanes[i].engine = quick_engine(proxy_url(lanes[i].proxy), NULL);
        lanes[i].family = family_of(lanes[i].engine, "f", TW_WINDOW_FOREVER, 0);
    }
    lanes_add(lanes, "k");
    lanes_add(lanes, "k"); /* both know the key by now: the batch that is cut is like this one */
    struct proxy_seen seen = proxy_look(lanes[0].proxy);
    size_t end = (fault == PROXY_CUT_REQUEST ? seen.request_bytes : seen.reply_bytes) + 2; /* numbers may grow */
    int64_t rounds = 2, whole = 0, dups = 0, happened = 0;
    size_t step = test_is_slow() ? 7 : 1;
    for (size_t at = 0; at < end; at += LANES * step, rounds++) {
        for (size_t i = 0; i < LANES; i++)
            proxy_order(lanes[i].proxy, &(struct proxy_order){.fault = fault, .at = at + i * step});
        lanes_add(lanes, "k");
    }
    assert_i64_equal(redis_server_get(&server, "f:k"), LANES * rounds);
    for (int i = 0; i < LANES; i++) {
        happened += proxy_look(lanes[i].proxy).happened[fault];
        dups += test_stat_of(lanes[i].engine, batches_dup);
        whole += test_stat_of(lanes[i].engine, lost) + test_stat_of(lanes[i].engine, uncertain);
        assert_status(tw_close(lanes[i].engine, TEST_PATIENCE_MS), TW_OK);
        proxy_stop(lanes[i].proxy);
    }
    assert_i64_equal(whole, 0);
    assert_i64_equal(happened, LANES * (rounds - 2));
    /* A cut request was executed only if the cut lies behind its end; with a cut reply the batch always was. */
    if (fault == PROXY_CUT_REPLY) assert_true(dups >= happened - 2 * LANES && dups <= happened);
    if (fault == PROXY_CUT_REQUEST) assert_true(dups <= 2 * LANES);
    redis_server_destroy(&server);
}

/* Goal: a request cut after its k-th byte, for every k, is executed not at all or once (fault 3). */
TEST(a_request_cut_at_any_byte_counts_once) {
    cut_at_every_byte(PROXY_CUT_REQUEST);
}

/* Goal: a reply cut after its k-th byte, for every k, drops the connection, and the batch is sent again (fault 4). */
TEST(a_reply_cut_at_any_byte_counts_once) {
    cut_at_every_byte(PROXY_CUT_REPLY);
}

/* ---- slow, silent, refusing -------------------------------------------------------------------------------------- */

/* Goal: a reply that arrives byte by byte has one deadline for the whole of it, which the bytes do not push back
 * (fault 5). Method: a byte every 150 ms, a deadline of 600 ms. The engine does not count the time in which its thread
 * got no processor, so a crowded machine makes it later: the connection has to end before half of the reply has come.
 * The best of three tries; a quiet machine needs one. That the deadline is kept to a tenth where turns come in time,
 * tests/sim/outage/late_turns.c shows. */
#define DRIP_MS 150
TEST(a_dripping_reply_has_one_deadline) {
    struct rig rig;
    int64_t best_ms = INT64_MAX, whole_ms = 0;
    rig_open(&rig, 600);
    rig_add(&rig, 1);
    rig_check(&rig, &rig.server);
    for (int i = 0; i < 3 && best_ms > 660; i++) {
        one_fault(&rig, &(struct proxy_order){.fault = PROXY_DRIP, .at = DRIP_MS});
        struct proxy_seen seen = proxy_look(rig.proxy);
        int64_t lasted_ms = seen.ended_ms - seen.fault_ms;
        whole_ms = (int64_t)seen.reply_bytes * DRIP_MS;
        assert_true(lasted_ms >= 590); /* never before the deadline */
        if (lasted_ms < best_ms) best_ms = lasted_ms;
    }
    printf("# the best of the tries lasted %lld ms, the whole reply would %lld\n", (long long)best_ms,
           (long long)whole_ms);
    assert_true(best_ms <= whole_ms / 2);
    rig_close(&rig);
}

static int64_t cpu_ms(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* Goal: a server that resets every connection, or accepts and sends nothing, gets fewer and fewer tries, costs no adder
 * anything, and gets everything once it answers (faults 6, 7). */
TEST(a_storm_of_resets_is_answered_by_backing_off) {
    static const enum proxy_manner manners[] = {PROXY_REFUSE, PROXY_SILENT};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig;
        rig_open(&rig, 20);
        rig_add(&rig, 1);
        rig_check(&rig, &rig.server);
        proxy_manner(rig.proxy, manners[i]);
        proxy_cut_all(rig.proxy);
        int64_t before = proxy_look(rig.proxy).connections, began_ms = cpu_ms();
        int64_t until_ms = test_mono_ms() + 1500, tries = 0;
        for (; test_mono_ms() < until_ms || tries == 0; test_sleep_ms(5)) {
            rig_add(&rig, 1);
            tries = proxy_look(rig.proxy).connections - before;
        }
        /* Ceilings of 50, 100 ... 800 ms and more, half of each on average: about six; each at least 10 ms. */
        assert_true(tries <= 40);
        if (test_is_slow())
            test_leave_out("what a sanitizer works is counted with ours: a build without one runs this");
        else
            assert_true(cpu_ms() - began_ms < 750); /* no busy loop */
        assert_i64_equal(test_stat_of(rig.engine, redis_connected), 0);
        proxy_manner(rig.proxy, PROXY_OPEN);
        proxy_cut_all(rig.proxy);
        rig_close(&rig);
    }
}

/* ---- late, twice, unexpected, garbage ---------------------------------------------------------------------------- */

/* Goal: a copy from a dead connection's buffer runs after the retry, and changes nothing (fault 8). */
TEST(an_old_copy_that_runs_after_the_retry_counts_nothing) {
    struct rig rig;
    rig_open(&rig, 200);
    rig_add(&rig, 1);
    rig_check(&rig, &rig.server);
    for (int i = 0; i < 5; i++) {
        one_fault(&rig, &(struct proxy_order){.fault = PROXY_HOLD});
        for (int j = 0; j < 2000 && proxy_look(rig.proxy).late <= i; j++) test_sleep_ms(1);
        struct proxy_seen seen = proxy_look(rig.proxy);
        assert_i64_equal(seen.late, i + 1);
        assert_string_equal(seen.late_answer, "DUP");
        rig_check(&rig, &rig.server); /* the sum is unchanged */
    }
    rig_close(&rig);
}

/* Goal: two replies to one request, or replies without a request, end the connection, and count nothing (fault 9). */
TEST(unexpected_replies_end_the_connection) {
    static const char *const words[] = {
        "+OK\r\n", ">2\r\n$4\r\npush\r\n$1\r\nx\r\n",
        "*8\r\n$2\r\nOK\r\n:1\r\n$1\r\n9\r\n$0\r\n\r\n$1\r\n0\r\n$1\r\n0\r\n:1\r\n:0\r\n"};
    struct rig rig;
    rig_open(&rig, 1000);
    rig_add(&rig, 1);
    rig_check(&rig, &rig.server);
    for (int64_t i = 0; i < 4; i++) {
        if (i < 3) {
            proxy_say(rig.proxy, words[i]);
        } else {
            proxy_order(rig.proxy, &(struct proxy_order){.fault = PROXY_TWICE});
            rig_add(&rig, 3);
        }
        for (int j = 0; j < 5000 && test_stat_of(rig.engine, disconnects) <= i; j++) test_sleep_ms(1);
        assert_i64_equal(test_stat_of(rig.engine, disconnects), i + 1);
        rig_add(&rig, 5);
        rig_check(&rig, &rig.server);
    }
    rig_close(&rig);
}

/* Goal: bytes that are no reply end the connection at once or at the deadline; no crash, no leak of memory, no count
 * (fault 10). */
TEST(garbage_in_place_of_an_answer_is_survived) {
    char deep[4001];
    for (size_t i = 0; i < 1000; i++) memcpy(deep + 4 * i, "*1\r\n", 5);
    const char *const garbage[] = {
        deep,
        "$9999999999\r\n",
        "*-2\r\n",
        "*99999999\r\n",
        "$2\r\nOKxx$2\r\n",
        ":12",
        ":99999999999999999999999\r\n",
        "$-7\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "*8\r\n$2\r\nOK\r\n",
        "*0\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "+OK\r\n",
        "*8\r\n$2\r\nOK\r\n:1\r\n$1\r\n1\r\n$-1\r\n$1\r\n0\r\n$1\r\n0\r\n:1\r\n:0\r\n",
        "*9\r\n$3\r\nXXX\r\n:1\r\n$1\r\n1\r\n$-1\r\n$1\r\n0\r\n$1\r\n0\r\n:1\r\n:0\r\n:7\r\n",
        "-\r\n",
        "-ERR what is this\r\n",
        "\r\n",
        "\n"};
    struct rig rig;
    rig_open(&rig, 100);
    rig_add(&rig, 1);
    rig_check(&rig, &rig.server);
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        one_fault(&rig, &(struct proxy_order){.fault = PROXY_GARBAGE, .text = garbage[i]});
        one_fault(&rig, &(struct proxy_order){.fault = PROXY_GARBAGE, .text = "a\0\r\n*", .text_size = 3 + i % 3});
    }
    /* A process that stands still for a second sends a batch once more. */
    assert_true(test_stat_of(rig.engine, batches_dup) >= (int64_t)(2 * (sizeof garbage / sizeof *garbage)));
    rig_close(&rig);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

/* Goal: each error that means "nothing was applied" only delays its batch; each other one drops the connection (faults
 * 24, 25, 38). Method: the proxy sends the error in place of an execution; then the same batch is applied. */
TEST(every_refusal_delays_and_doubles_nothing) {
    static const struct {
        const char *text;
        int64_t drops;
    } refusals[] = {
        {"-LOADING Redis is loading the dataset in memory\r\n", 0},
        {"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n", 0},
        {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", 0},
        {"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.\r\n", 0},
        {"-NOREPLICAS Not enough good replicas to write.\r\n", 0},
        {"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", 0},
        {"-CLUSTERDOWN The cluster is down\r\n", 0},
        {"-NOSCRIPT No matching script. Please use EVAL.\r\n", 0},
        {"-READONLY You can't write against a read only replica.\r\n", 1},
        {"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n", 1},
        {"-CROSSSLOT Keys in request don't hash to the same slot\r\n", 1},
        {"-MOVED 3999 127.0.0.1:6381\r\n", 1},
        {"-UNKILLABLE Sorry the script already executed write commands against the dataset.\r\n", 1},
        {"-ERR something that nobody has heard of\r\n", 1},
    };
    struct rig rig;
    rig_open(&rig, 1000);
    rig_add(&rig, 1);
    rig_check(&rig, &rig.server);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        int64_t drops = test_stat_of(rig.engine, disconnects);
        proxy_order(rig.proxy, &(struct proxy_order){.fault = PROXY_ANSWER, .text = refusals[i].text});
        rig_add(&rig, 7);
        (void)tw_flush(rig.engine, 50); /* the next flush cuts the back-off of 2 to 4 s short */
        rig_check(&rig, &rig.server);
        assert_i64_equal(test_stat_of(rig.engine, disconnects) - drops, refusals[i].drops);
    }
    assert_i64_equal(test_stat_of(rig.engine, batches_dup), 0);
    assert_i64_equal(proxy_look(rig.proxy).same_again, sizeof refusals / sizeof *refusals);
    rig_close(&rig);
}

/* ---- scripts and pipelines --------------------------------------------------------------------------------------- */

/* Goal: SCRIPT FLUSH at any time costs one sending with the script's text (fault 11). */
TEST(a_flushed_script_costs_one_eval) {
    struct rig rig;
    rig_open(&rig, 10000); /* no deadline passes here, however busy the machine */
    rig_add(&rig, 1);
    rig_check(&rig, &rig.server);
    int64_t before = proxy_look(rig.proxy).evals; /* the first batch needed it, too */
    for (int64_t i = 0; i < 20; i++) {
        redis_server_ask(&rig.server, "SCRIPT", "FLUSH", NULL);
        rig_add(&rig, 1);
        rig_check(&rig, &rig.server);
        assert_i64_equal(proxy_look(rig.proxy).evals, before + i + 1);
    }
    assert_i64_equal(test_stat_of(rig.engine, disconnects), 0);
    rig_close(&rig);
}

static void add_many(struct rig *rig, int keys) {
    char name[32];
    for (int i = 0; i < keys; i++) {
        snprintf(name, sizeof name, "many%d", i);
        assert_status(tw_add(rig->family, tw_str(name), 1, NULL), TW_OK);
    }
}

/* Goal: NOSCRIPT in the middle of a pipeline: that batch is sent again with the script's text, later batches follow in
 * their order, and none counts twice (fault 12). Method: 4000 keys are four batches in flight; scripts vanish before
 * each in turn. */
TEST(noscript_within_a_pipeline_keeps_the_order) {
    struct rig rig;
    rig_open(&rig, 10000);
    add_many(&rig, 4000);
    rig_check(&rig, &rig.server);
    for (uint32_t skip = 0; skip < 4; skip++) {
        struct proxy_seen before = proxy_look(rig.proxy);
        proxy_order(rig.proxy, &(struct proxy_order){.fault = PROXY_RUN_FIRST, .skip = skip, .text = "SCRIPT FLUSH"});
        add_many(&rig, 4000);
        rig_check(&rig, &rig.server);
        struct proxy_seen after = proxy_look(rig.proxy);
        assert_i64_equal(after.evals - before.evals, 1);
        assert_i64_equal(sum_of(&rig.server, "f:many*"), 4000 * (int64_t)(skip + 2));
    }
    assert_i64_equal(test_stat_of(rig.engine, batches_dup), 0);
    assert_i64_equal(test_stat_of(rig.engine, disconnects), 0);
    rig_close(&rig);
}

/* Goal: increments made while a batch's outcome is unknown change nothing in it and go with the next one (fault 56).
 * Method: silence in place of a reply; a thousand adds meanwhile; the next sending must be byte for byte the same. */
TEST(a_batch_of_unknown_fate_stays_as_it_was_frozen) {
    struct rig rig;
    rig_open(&rig, 200);
    rig_add(&rig, 1);
    rig_check(&rig, &rig.server);
    static const enum proxy_fault faults[] = {PROXY_LOSE_REPLY, PROXY_LOSE_REQUEST};
    for (int64_t i = 0; i < 2; i++) {
        int64_t same = proxy_look(rig.proxy).same_again;
        proxy_order(rig.proxy, &(struct proxy_order){.fault = faults[i]});
        rig_add(&rig, 1000000);
        for (int j = 0; j < 20000 && !proxy_look(rig.proxy).happened[faults[i]]; j++) test_sleep_ms(1);
        for (int j = 0; j < 1000; j++) rig_add(&rig, 1);
        rig_check(&rig, &rig.server);
        /* once, unless the machine is so busy that the next reply is late as well */
        assert_true(proxy_look(rig.proxy).same_again > same);
    }
    assert_true(test_stat_of(rig.engine, batches_dup) >= 1); /* later batches of the pipeline were executed, too */
    rig_close(&rig);
}

/* ---- two engines under one identity ------------------------------------------------------------------------------ */

/* Goal: two engines under one identity are detected and reported, and one takes another identity; no unit is counted
 * twice (fault 58). Method: both are open; then the proxy makes the second one's batches name the first one's
 * ledger. */
TEST(two_engines_under_one_identity_are_found_out) {
    struct rig a, b;
    rig_open(&a, 500);
    rig_open(&b, 500);
    proxy_lead_to(b.proxy, &a.server);
    proxy_cut_all(b.proxy);
    for (int i = 0; i < 3; i++) {
        assert_status(tw_add(a.family, tw_str("k"), 1, NULL), TW_OK);
        assert_status(tw_flush(a.engine, TEST_PATIENCE_MS), TW_OK);
        assert_status(tw_add(b.family, tw_str("k"), 10, NULL), TW_OK);
        assert_status(tw_flush(b.engine, TEST_PATIENCE_MS), TW_OK);
    }
    char first[200], second[200];
    snprintf(first, sizeof first, "%s", proxy_look(a.proxy).ledger);
    snprintf(second, sizeof second, "%s", proxy_look(b.proxy).ledger);
    assert_int_equal(strlen(first), strlen(second));
    assert_string_not_equal(first, second);
    proxy_impersonate(b.proxy, second, first);
    for (int i = 0; i < 3; i++) {
        assert_status(tw_add(b.family, tw_str("k"), 10, NULL), TW_OK);
        assert_status(tw_flush(b.engine, TEST_PATIENCE_MS), TW_OK);
        assert_status(tw_add(a.family, tw_str("k"), 1, NULL), TW_OK);
        assert_status(tw_flush(a.engine, TEST_PATIENCE_MS), TW_OK);
    }
    assert_i64_equal(redis_server_get(&a.server, "f:k"), 66);
    assert_status(tw_close(a.engine, TEST_PATIENCE_MS), TW_OK);
    assert_status(tw_close(b.engine, TEST_PATIENCE_MS), TW_OK);
    assert_true(strstr(a.lines.text, "0/15 a new instance begins") ||
                strstr(b.lines.text, "0/15 a new instance begins"));
    proxy_stop(a.proxy), proxy_stop(b.proxy);
    redis_server_destroy(&a.server), redis_server_destroy(&b.server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
