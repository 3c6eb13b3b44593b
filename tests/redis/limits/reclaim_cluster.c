/* reclaim_cluster.c -- tw_lease_reclaim() over a real Redis Cluster: what a dead engine held of hard limits comes back
 * once, at whichever master it is, while slots move and while a master is unreachable.
 * Method: a process that sells and is killed; and leases of an engine that never was, as docs/KEYS.md has them.
 * Covers: engine/ask/lease_reclaim.c, sync/script/reclaim.lua, sync/audit/audit_servers.c. */
#include "tests/redis/limits/hard_support.h"
#include "tests/support/redis_cluster.h"

#include "engine/base/key_slot.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MASTERS = 3, TAGS = 8, LIMIT = 60, PATIENCE_MS = 30000, HELD = 30 };

static struct redis_cluster cluster;
static const char *const server_options[] = {
    "--cluster-require-full-coverage", "no", "--appendonly", "yes", "--appendfsync", "always", NULL};
static const char dead[] = "00112233445566778899aabbccddeeff";

static tw_family *open_sale(const char *name, tw_engine **engine) {
    char url[512];
    tw_options options;
    tw_family_options options_of;
    tw_family *family = NULL;
    redis_cluster_url(&cluster, url, sizeof url);
    quick_options(&options, url);
    options.redis_timeout_ms = 500;
    assert_status(test_open(&options, engine), TW_OK);
    tw_family_options_init(&options_of);
    options_of.name = name;
    options_of.window = TW_WINDOW_FOREVER;
    options_of.limit_mode = TW_LIMIT_HARD;
    options_of.redis_tags = TAGS;
    assert_status(tw_family_open(*engine, &options_of, &family), TW_OK);
    return family;
}

static unsigned number_of(uint32_t tag) {
    return twi_key_slot_tags(TAGS)[tag];
}

static uint32_t slot_of(uint32_t tag) {
    char text[16];
    int size = snprintf(text, sizeof text, "%u", number_of(tag));
    return twi_key_slot_of(text, (size_t)size);
}

static struct redis_server *owner_of(uint32_t tag) {
    return redis_cluster_server(&cluster, cluster.owners[slot_of(tag)]);
}

static void key_in(char text[16], uint32_t tag) {
    for (int number = 0;; number++) {
        int size = snprintf(text, 16, "k%d", number);
        if (twi_key_slot_crc16(text, (size_t)size) % TAGS == tag) return;
    }
}

/* ---- a process that dies ----------------------------------------------------------------------------------------- */

struct page {
    _Atomic int64_t sold[TAGS];
    _Atomic int is_done;
};

struct sale {
    uint32_t tag;
    int64_t sold;
};

/* Redis knows of all units that were sold. What it does not know of is freed, and sold a second time. */
static bool is_reported(void *ctx) {
    const struct sale *sale = ctx;
    char key[16], name[64];
    key_in(key, sale->tag);
    snprintf(name, sizeof name, "tw:lease:dies:{%u}:%s", number_of(sale->tag), key);
    return atoll(redis_server_ask(owner_of(sale->tag), "HGET", name, "s", NULL)) == sale->sold;
}

static int sell_in_child(struct page *page) {
    tw_engine *engine;
    tw_family *family = open_sale("dies", &engine);
    for (uint32_t tag = 0; tag < TAGS; tag += 3) { /* one at each master */
        char key[16];
        key_in(key, tag);
        page->sold[tag] = sell_some(family, tw_str(key), 8, LIMIT, PATIENCE_MS);
    }
    for (uint32_t tag = 0; tag < TAGS; tag += 3)
        if (!test_wait(is_reported, &(struct sale){tag, page->sold[tag]}, PATIENCE_MS)) return 1;
    page->is_done = 1;
    for (;;) pause();
}

static bool is_done(void *ctx) {
    return ((struct page *)ctx)->is_done != 0;
}

/* The only engine that an epoch knows. */
static void read_instance(uint32_t tag, char instance[33]) {
    char name[64];
    snprintf(name, sizeof name, "tw:leases:{%u}", number_of(tag));
    const char *field = strstr(redis_server_ask(owner_of(tag), "HKEYS", name, NULL), "i:");
    assert_non_null(field);
    snprintf(instance, 33, "%s", field + 2);
}

/* Goal: a process is killed that holds units of limits at all masters. As long as any store has just heard of it, it is
 * alive. Then all that it had not spent is free, once: the next engine sells exactly the rest. */
TEST(what_a_killed_process_held_is_sold_by_others) {
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char instance[33];
    tw_engine *engine;
    int64_t units = 0, again = 0, sold = 0;
    fflush(NULL);
    pid_t child = test_fork();
    assert_true(child >= 0);
    if (child == 0) _exit(sell_in_child(page));
    assert_true(test_wait(is_done, page, PATIENCE_MS));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    read_instance(0, instance);
    tw_family *family = open_sale("dies", &engine);
    tw_status status = tw_lease_reclaim(family, instance, &units);
    assert_status(status, TW_DENIED);
    assert_i64_equal(units, 0);
    for (int i = 0; i < PATIENCE_MS / 100 && status == TW_DENIED; i++) {
        test_sleep_ms(100);
        status = tw_lease_reclaim(family, instance, &units);
    }
    assert_status(status, TW_OK);
    assert_true(units > 0);
    assert_status(tw_lease_reclaim(family, instance, &again), TW_OK);
    assert_i64_equal(again, 0);
    for (uint32_t tag = 0; tag < TAGS; tag += 3) {
        tw_verdict verdict;
        char key[16];
        key_in(key, tag);
        sold = page->sold[tag] + sell(family, tw_str(key), 1, LIMIT, PATIENCE_MS, &verdict);
        assert_i64_equal(sold, LIMIT);
    }
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    munmap(page, sizeof *page);
}

/* ---- leases of an engine that never was -------------------------------------------------------------------------- */

static void name_lease(char name[64], const char *family, uint32_t tag) {
    snprintf(name, 64, "tw:lease:%s:{%u}:tv", family, number_of(tag));
}

/* One in each tag with its counter, and an epoch that has not heard of the engine. */
static void write_leases(const char *family) {
    for (uint32_t tag = 0; tag < TAGS; tag++) {
        char name[64], epoch[64];
        name_lease(name, family, tag);
        snprintf(epoch, sizeof epoch, "tw:leases:{%u}", number_of(tag));
        redis_server_ask(owner_of(tag), "HSET", name, dead, "1 40 0 10 0", "t", "40", "s", "10", "e", "x", "l", "100",
                         NULL);
        redis_server_ask(owner_of(tag), "HSET", epoch, "n", "0", NULL);
        redis_server_ask(owner_of(tag), "SET", name + sizeof "tw:lease:" - 1, "10", NULL);
    }
}

/* Each was freed once. */
static void assert_free(const char *family) {
    for (uint32_t tag = 0; tag < TAGS; tag++) {
        char name[64];
        name_lease(name, family, tag);
        assert_string_equal(redis_server_ask(owner_of(tag), "HMGET", name, dead, "t", NULL), "1 40 30 10 0\n10");
    }
}

static void assert_says(const char *text) {
    if (!strstr(tw_error_text(), text)) fail_msg("'%s' lacks '%s'", tw_error_text(), text);
}

/* Whether a master runs scripts. What reads is allowed in any case. */
static void allow_scripts(size_t master, bool allow) {
    struct redis_server *server = redis_cluster_server(&cluster, master);
    assert_string_equal(redis_server_ask(server, "ACL", "SETUSER", "default", allow ? "+eval" : "-eval",
                                         allow ? "+evalsha" : "-evalsha", NULL),
                        "OK");
}

static int tags_at(size_t master) {
    int count = 0;
    for (uint32_t tag = 0; tag < TAGS; tag++) count += cluster.owners[slot_of(tag)] == master;
    return count;
}

static void migrate(const char *name, uint32_t tag, size_t to) {
    char port[16];
    snprintf(port, sizeof port, "%d", redis_cluster_server(&cluster, to)->port);
    assert_string_equal(redis_server_ask(owner_of(tag), "MIGRATE", "127.0.0.1", port, name, "0", "10000", NULL), "OK");
}

/* Goal: a slot moves. A lease that has gone ahead with its epoch is freed where it is. One that has gone without it
 * cannot be freed; the call says so, and frees all others. After the move the next call frees that one. */
TEST(a_slot_on_its_way_holds_up_only_itself) {
    char name[64];
    tw_engine *engine;
    int64_t units = 0;
    tw_family *family = open_sale("moves", &engine);
    write_leases("moves");
    size_t to[2];
    for (uint32_t tag = 1; tag < 3; tag++) {
        to[tag - 1] = (cluster.owners[slot_of(tag)] + 1u) % MASTERS;
        redis_cluster_move_begin(&cluster, slot_of(tag), to[tag - 1]);
    }
    while (redis_cluster_move_keys(&cluster, slot_of(1), to[0], 50) != 0) continue;
    name_lease(name, "moves", 2);
    migrate(name, 2, to[1]);
    assert_status(tw_lease_reclaim(family, dead, &units), TW_ERR_REDIS);
    assert_says("1 of 8 leases that were found could not be freed");
    assert_i64_equal(units, (TAGS - 1) * HELD);
    while (redis_cluster_move_keys(&cluster, slot_of(2), to[1], 50) != 0) continue;
    for (uint32_t tag = 1; tag < 3; tag++) redis_cluster_move_end(&cluster, slot_of(tag), to[tag - 1]);
    redis_cluster_wait(&cluster);
    assert_status(tw_lease_reclaim(family, dead, &units), TW_OK);
    assert_i64_equal(units, HELD);
    assert_free("moves");
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: a master is unreachable. What the others have is freed, and the call says how much it has not seen. When the
 * master is back, the next call frees the rest. */
TEST(a_master_that_is_away_keeps_only_its_own) {
    enum { AWAY = 1 };
    tw_engine *engine;
    int64_t units = 0, there = 0;
    tw_family *family = open_sale("away", &engine);
    write_leases("away");
    for (uint32_t tag = 0; tag < TAGS; tag++) there += cluster.owners[slot_of(tag)] != AWAY;
    assert_true(there > 0 && there < TAGS);
    redis_server_kill(redis_cluster_server(&cluster, AWAY));
    assert_status(tw_lease_reclaim(family, dead, &units), TW_ERR_REDIS);
    assert_says("incomplete");
    assert_i64_equal(units, there * HELD);
    redis_server_restart(redis_cluster_server(&cluster, AWAY));
    redis_cluster_wait(&cluster);
    assert_status(tw_lease_reclaim(family, dead, &units), TW_OK);
    assert_i64_equal(units, (TAGS - there) * HELD);
    assert_free("away");
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: one master refuses to free, and another one is unreachable. What the third has is freed, and the call says
 * both: how much it has not seen, and how much of what it found is not free. */
TEST(what_was_found_and_not_freed_is_said) {
    enum { REFUSES = 0, AWAY = 1 };
    char refused[80];
    tw_engine *engine;
    int64_t units = 0, first = 0;
    tw_family *family = open_sale("refused", &engine);
    write_leases("refused");
    allow_scripts(REFUSES, false);
    redis_server_kill(redis_cluster_server(&cluster, AWAY));
    assert_status(tw_lease_reclaim(family, dead, &first), TW_ERR_REDIS);
    snprintf(refused, sizeof refused, "%d of %d leases that were found could not be freed", tags_at(REFUSES),
             TAGS - tags_at(AWAY));
    assert_says("slots could not be looked at");
    assert_says(refused);
    assert_i64_equal(first, (TAGS - tags_at(REFUSES) - tags_at(AWAY)) * HELD);
    redis_server_restart(redis_cluster_server(&cluster, AWAY));
    redis_cluster_wait(&cluster);
    allow_scripts(REFUSES, true);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    family = open_sale("refused", &engine); /* the previous one leaves that master alone for a while */
    assert_status(tw_lease_reclaim(family, dead, &units), TW_OK);
    assert_i64_equal(first + units, TAGS * HELD);
    assert_free("refused");
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: the one store that has just heard of an engine does not say so. It knows the engine and refuses the request.
 * Nothing is freed in any other store either, for the engine may be alive, as it is here. */
TEST(a_store_that_does_not_say_whether_it_lives_keeps_all) {
    enum { TAG = 3 };
    char epoch[64], soon_ms[24];
    tw_engine *engine;
    int64_t units = 0;
    tw_family *family = open_sale("silent", &engine);
    write_leases("silent");
    snprintf(epoch, sizeof epoch, "tw:leases:{%u}", number_of(TAG));
    snprintf(soon_ms, sizeof soon_ms, "%lld", (atoll(redis_server_ask(owner_of(TAG), "TIME", NULL)) + 60) * 1000);
    redis_server_ask(owner_of(TAG), "HSET", epoch, "i:00112233445566778899aabbccddeeff", soon_ms, NULL);
    allow_scripts(cluster.owners[slot_of(TAG)], false);
    assert_status(tw_lease_reclaim(family, dead, &units), TW_ERR_REDIS);
    assert_i64_equal(units, 0);
    assert_says("nothing was freed: 1 of the stores");
    allow_scripts(cluster.owners[slot_of(TAG)], true);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    family = open_sale("silent", &engine);
    assert_status(tw_lease_reclaim(family, dead, &units), TW_DENIED);
    assert_i64_equal(units, 0);
    redis_server_ask(owner_of(TAG), "HDEL", epoch, "i:00112233445566778899aabbccddeeff", NULL);
    assert_status(tw_lease_reclaim(family, dead, &units), TW_OK);
    assert_i64_equal(units, TAGS * HELD);
    assert_free("silent");
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

/* Goal: an instance that has no lease, and a family that has none, are errors that say so, with and without looking
 * only; the first one names who has leases. */
TEST(who_has_no_lease_is_unknown) {
    static const char nobody[] = "ffeeddccbbaa99887766554433221100";
    tw_engine *engine;
    int64_t units = -1;
    tw_family *family = open_sale("known", &engine);
    write_leases("known");
    assert_status(tw_lease_stranded(family, nobody, &units), TW_ERR_UNKNOWN_TOKEN);
    assert_says("no lease of family \"known\"");
    assert_says(dead);
    assert_i64_equal(units, 0);
    assert_status(tw_lease_reclaim(family, nobody, &units), TW_ERR_UNKNOWN_TOKEN);
    assert_status(tw_lease_stranded(family, dead, &units), TW_OK);
    assert_i64_equal(units, TAGS * HELD);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
    family = open_sale("unknown", &engine);
    assert_status(tw_lease_reclaim(family, dead, &units), TW_ERR_UNKNOWN_TOKEN);
    assert_says("Redis has no lease of family \"unknown\"");
    assert_i64_equal(units, 0);
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

int main(void) {
    redis_server_require();
    redis_cluster_start(&cluster, MASTERS, 0, server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
