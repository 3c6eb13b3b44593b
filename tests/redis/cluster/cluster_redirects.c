/* cluster_redirects.c -- nodes of a cluster that send their clients away, also in circles, or to nobody: fault 37. Two
 * proxies play two masters. Both lead to one real node, which has all slots, so whatever reaches it counts.
 *
 * Always true: no redirect was executed, so no count is uncertain. Requests are counted: an engine that is sent to and
 * fro slows down. */
#include "tests/redis/redis_rig.h"
#include "tests/support/cluster_reply.h"
#include "tests/support/redis_cluster.h"

#include "engine/base/key_slot.h"

enum { TAGS = 16, KEYS = 200, STORES = TAGS + 1 }; /* and the store of the engine's own names */

static struct redis_cluster cluster;
static struct proxy *proxies[2], *dead;
static struct rig rig;
static int64_t added[KEYS];
static char family_name[16];

static int port_of(const struct proxy *proxy) {
    return atoi(strrchr(proxy_url(proxy), ':') + 1);
}

/* What both say of the map: a text for reply_bytes(), with the two ports. */
static void set_map(const char *text) {
    static char texts[2][1024], replies[2][1024];
    static int next;
    int use = next++ % 2;
    snprintf(texts[use], sizeof texts[use], text, port_of(proxies[0]), port_of(proxies[1]));
    size_t size = reply_bytes(texts[use], replies[use]);
    for (int i = 0; i < 2; i++) proxy_map(proxies[i], replies[use], size);
}

#define ID_A "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
#define ID_B "'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb'"
#define MAP(host) "[[0 8191 [" host " %d " ID_A "]] [8192 16383 [" host " %d " ID_B "]]]"

static void name_of(int key, char *name, size_t size) {
    char text[16];
    int length = snprintf(text, sizeof text, "k%d", key);
    unsigned tag = twi_key_slot_tags(TAGS)[twi_key_slot_crc16(text, (size_t)length) % TAGS];
    snprintf(name, size, "%s:{%u}:%s", family_name, tag, text);
}

static void open_engine(const char *name) {
    char url[128];
    tw_options options;
    tw_family_options family;
    memset(&rig, 0, sizeof rig);
    memset(added, 0, sizeof added);
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d", port_of(proxies[0]), port_of(proxies[1]));
    rig_options(&rig, &options, url);
    options.redis_timeout_ms = 500;
    assert_status(test_open(&options, &rig.engine), TW_OK);
    tw_family_options_init(&family);
    snprintf(family_name, sizeof family_name, "%s", name);
    family.name = family_name;
    family.window = TW_WINDOW_FOREVER;
    family.redis_tags = TAGS;
    assert_status(tw_family_open(rig.engine, &family, &rig.family), TW_OK);
}

static void add_all(void) {
    char text[16];
    for (int key = 0; key < KEYS; key++, added[key - 1]++) {
        snprintf(text, sizeof text, "k%d", key);
        assert_status(tw_add(rig.family, tw_str(text), 1, NULL), TW_OK);
    }
}

static void assert_all_is_there(void) {
    char name[64];
    tw_status status = tw_flush(rig.engine, 30000);
    if (status != TW_OK) print_error("%s\n", rig.lines.text);
    assert_status(status, TW_OK);
    for (int key = 0; key < KEYS; key++) {
        name_of(key, name, sizeof name);
        assert_i64_equal(redis_server_get(redis_cluster_server(&cluster, 0), name), added[key]);
    }
    assert_i64_equal(test_stat_of(rig.engine, lost), 0);
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 0);
    assert_i64_equal(test_stat_of(rig.engine, rollbacks), 0);
}

static void close_engine(void) {
    assert_all_is_there();
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

struct sum {
    int64_t requests, maps;
};

static struct sum seen(void) {
    struct sum sum = {0};
    for (int i = 0; i < 2; i++) {
        struct proxy_seen of = proxy_look(proxies[i]);
        sum.requests += of.requests;
        sum.maps += of.maps;
    }
    return sum;
}

/* Each proxy says this to each batch, with the port of the other one for "%d". */
static void redirect_all(const char *text) {
    static char texts[2][128];
    for (int i = 0; i < 2; i++) {
        const char *port = strstr(text, "%d");
        if (port)
            snprintf(texts[i], sizeof texts[i], "%.*s%d", (int)(port - text), text, port_of(proxies[1 - i]));
        else
            snprintf(texts[i], sizeof texts[i], "%s", text);
        struct proxy_order order = {.fault = PROXY_REDIRECT, .times = UINT32_MAX, .text = texts[i]};
        proxy_order(proxies[i], &order);
    }
}

static void redirect_nothing(void) {
    static const struct proxy_order pass = {.fault = PROXY_PASS};
    for (int i = 0; i < 2; i++) proxy_order(proxies[i], &pass);
}

/* ---- in circles -------------------------------------------------------------------------------------------------- */

/* Goal: while all nodes send everything away, each store follows six times and then asks at most ten times a second.
 * The map is asked for at most once a second. Then everything arrives once. */
TEST(stores_that_are_sent_in_circles_slow_down) {
    static const char *const circles[] = {
        "MOVED %u 127.0.0.1:%d",
        "ASK %u 127.0.0.1:%d",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN Hash slot not served",
        "CLUSTERDOWN The cluster is down",
    };
    set_map(MAP("'127.0.0.1'"));
    open_engine("circles");
    add_all();
    assert_all_is_there();
    for (size_t i = 0; i < sizeof circles / sizeof *circles; i++) {
        redirect_all(circles[i]);
        struct sum before = seen();
        int64_t begin_ms = test_mono_ms();
        add_all();
        test_sleep_ms(700); /* redirects repeat meanwhile */
        add_all();
        struct sum after = seen();
        int64_t took_ms = test_mono_ms() - begin_ms;
        assert_true(after.requests > before.requests);
        /* Six hops, three pauses that grow, then one of 100 ms at least: 10 + t / 100, and one for the edge. */
        int64_t most = STORES * (11 + took_ms / 100), requests = after.requests - before.requests;
        if (requests > most)
            fail_msg("%s: %lld requests in %lld ms", circles[i], (long long)requests, (long long)took_ms);
        assert_true(after.maps - before.maps <= 2 + took_ms / 1000);
        redirect_nothing();
        assert_all_is_there();
    }
    assert_true(test_stat_of(rig.engine, moved) > 0);
    assert_true(test_stat_of(rig.engine, asked) > 0);
    assert_true(test_stat_of(rig.engine, tryagain) > 0);
    close_engine();
}

/* Goal: stores that were sent to a node that does not answer come back once the others say whose their slots are; and
 * the dead one is not dialled all the time. */
TEST(stores_that_are_sent_to_a_dead_node_come_back) {
    char text[64];
    set_map(MAP("'127.0.0.1'"));
    open_engine("dead");
    add_all();
    assert_all_is_there();
    snprintf(text, sizeof text, "MOVED %%u 127.0.0.1:%d", port_of(dead));
    int64_t dialled = proxy_look(dead).connections, begin_ms = test_mono_ms();
    for (int i = 0; i < 2; i++) {
        struct proxy_order order = {.fault = PROXY_REDIRECT, .times = TAGS / 2, .text = text};
        proxy_order(proxies[i], &order);
    }
    for (int round = 0; round < 10; round++) {
        add_all();
        test_sleep_ms(20);
    }
    assert_all_is_there();
    dialled = proxy_look(dead).connections - dialled;
    assert_true(dialled > 0);
    assert_true(dialled <= 5 + (test_mono_ms() - begin_ms) / 100);
    redirect_nothing();
    close_engine();
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

/* Goal: a host that is empty or null is the host that was asked. With no host, no slots or a map that contradicts
 * itself counts wait, and the seeds are asked less and less often. They arrive once a map says where. */
TEST(maps_without_hosts_are_read_or_waited_for) {
    static const struct {
        const char *name, *map;
        bool works;
    } maps[] = {
        {"empty", MAP("''"), true},
        {"null", MAP("~"), true},
        {"unknown", MAP("'?'"), false},
        {"nothing", "[]", false},
        {"twice", "[[0 16383 ['127.0.0.1' %d " ID_A "]] [0 16383 ['127.0.0.1' %d " ID_B "]]]", false},
    };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        set_map(maps[i].map);
        struct sum before = seen();
        int64_t begin_ms = test_mono_ms();
        open_engine(maps[i].name);
        add_all();
        if (!maps[i].works) {
            assert_status(tw_flush(rig.engine, 600), TW_ERR_TIMEOUT);
            assert_i64_equal(seen().requests, before.requests);
            set_map(MAP("'127.0.0.1'"));
        }
        close_engine();
        int64_t at_first = maps[i].works ? 3 : 10; /* 100, 100, 200, 200, 400 ms ... at most */
        assert_true(seen().maps - before.maps <= at_first + (test_mono_ms() - begin_ms) / 500);
    }
}

/* ---- everything at once ------------------------------------------------------------------------------------------ */

struct storm {
    char texts[8][64];
    const char *list[8];
    size_t count;
};

static void say(struct storm *storm, const char *verb, const char *slot, int port) {
    char *text = storm->texts[storm->count];
    if (port)
        snprintf(text, sizeof storm->texts[0], "%s %s 127.0.0.1:%d", verb, slot, port);
    else
        snprintf(text, sizeof storm->texts[0], "%s %s", verb, slot);
    storm->list[storm->count++] = text;
}

static void begin_storm(struct storm *storm) {
    for (int i = 0; i < 2; i++) {
        say(storm, "MOVED", "%u", port_of(proxies[i]));
        say(storm, "ASK", "%u", port_of(proxies[i]));
    }
    say(storm, "ASK", "%u", port_of(dead));
    say(storm, "MOVED", "1", port_of(proxies[0])); /* another slot */
    say(storm, "TRYAGAIN", "later", 0);
    say(storm, "CLUSTERDOWN", "Hash slot not served", 0);
    for (int i = 0; i < 2; i++) {
        proxy_redirects(proxies[i], storm->list, storm->count);
        proxy_chance(proxies[i], PROXY_REDIRECT, 3333);
    }
}

/* Goal: one answer in three sends counts and calls somewhere, right or wrong. Calls end by their deadline, and what
 * they were granted is what the real node has. */
TEST(nothing_is_doubled_in_a_storm_of_redirects) {
    struct storm storm = {.count = 0};
    int64_t granted[KEYS] = {0}, longest_ms = 0, decided = 0;
    set_map(MAP("'127.0.0.1'"));
    open_engine("storm");
    tw_family_options options;
    tw_family *strict;
    tw_family_options_init(&options);
    options.name = "calls";
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = TW_LIMIT_STRICT;
    options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    options.redis_tags = TAGS;
    assert_status(tw_family_open(rig.engine, &options, &strict), TW_OK);
    begin_storm(&storm);
    int64_t end_ms = test_mono_ms() + 2000;
    for (int call = 0; test_mono_ms() < end_ms; call++) {
        tw_verdict verdict;
        char text[16];
        snprintf(text, sizeof text, "k%d", call % KEYS);
        if (call % 10 == 0) add_all();
        int64_t begin_ms = test_mono_ms();
        granted[call % KEYS] += tw_acquire(strict, tw_str(text), 1, 1000000, &verdict) == TW_OK;
        decided += verdict.decided_by == TW_BY_REDIS;
        int64_t took_ms = test_mono_ms() - begin_ms;
        longest_ms = took_ms > longest_ms ? took_ms : longest_ms;
    }
    for (int i = 0; i < 2; i++) proxy_chance(proxies[i], PROXY_REDIRECT, 0);
    assert_true(longest_ms < 20 * 500); /* the deadline is 500 ms */
    assert_true(decided > 0);
    assert_i64_equal(test_stat_of(rig.engine, asks_unknown), 0);
    close_engine();
    snprintf(family_name, sizeof family_name, "calls");
    for (int key = 0; key < KEYS; key++) {
        char name[64];
        name_of(key, name, sizeof name);
        assert_i64_equal(redis_server_get(redis_cluster_server(&cluster, 0), name), granted[key]);
    }
}

int main(void) {
    redis_server_require();
    redis_cluster_start(&cluster, 1, 0, NULL);
    for (int i = 0; i < 2; i++) proxies[i] = proxy_start(redis_cluster_server(&cluster, 0), test_seed() + (uint64_t)i);
    dead = proxy_start(redis_cluster_server(&cluster, 0), test_seed());
    proxy_manner(dead, PROXY_REFUSE);
    int failed = test_run();
    for (int i = 0; i < 2; i++) proxy_stop(proxies[i]);
    proxy_stop(dead);
    reply_end();
    redis_cluster_destroy(&cluster);
    return failed;
}
