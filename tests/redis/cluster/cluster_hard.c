/* cluster_hard.c -- hard limits over a real Redis Cluster: each limit is sold to the unit, by two engines, while slots
 * move and a master fails over; and what befalls one slot stops no other. */
#include "tests/redis/limits/hard_support.h"
#include "tests/support/redis_cluster.h"

#include "engine/base/key_slot.h"

enum { MASTERS = 3, TAGS = 8, LIMIT = 60, PATIENCE_MS = 30000 };

static struct redis_cluster cluster;
static const char *const server_options[] = {"--cluster-require-full-coverage", "no", NULL};

struct sale {
    const char *name; /* of the family; another one in each test */
    tw_engine *engines[2];
    tw_family *families[2];
    int64_t sold[TAGS];
};

static void open_sale(struct sale *sale, const char *name) {
    char url[512];
    redis_cluster_url(&cluster, url, sizeof url);
    *sale = (struct sale){.name = name};
    for (int i = 0; i < 2; i++) {
        tw_family_options options;
        sale->engines[i] = quick_engine(url, NULL);
        tw_family_options_init(&options);
        options.name = name;
        options.window = TW_WINDOW_FOREVER;
        options.limit_mode = TW_LIMIT_HARD;
        options.redis_tags = TAGS;
        assert_status(tw_family_open(sale->engines[i], &options, &sale->families[i]), TW_OK);
    }
}

static void key_in(char text[16], uint32_t tag) {
    for (int number = 0;; number++) {
        int size = snprintf(text, 16, "k%d", number);
        if (twi_key_slot_crc16(text, (size_t)size) % TAGS == tag) return;
    }
}

static uint32_t slot_of(uint32_t tag) {
    char text[16];
    int size = snprintf(text, sizeof text, "%u", (unsigned)twi_key_slot_tags(TAGS)[tag]);
    return twi_key_slot_of(text, (size_t)size);
}

static void sell_in(struct sale *sale, uint32_t tag, int64_t count, int64_t timeout_ms) {
    char key[16];
    key_in(key, tag);
    for (int i = 0; i < 2; i++) sale->sold[tag] += sell_some(sale->families[i], tw_str(key), count, LIMIT, timeout_ms);
}

/* What the epoch of that tag says of itself, by the master that has it. */
static void read_epoch(uint32_t tag, char id[64]) {
    char name[64];
    snprintf(name, sizeof name, "tw:leases:{%u}", (unsigned)twi_key_slot_tags(TAGS)[tag]);
    struct redis_server *server = redis_cluster_server(&cluster, cluster.owners[slot_of(tag)]);
    snprintf(id, 64, "%s", redis_server_ask(server, "HGET", name, "id", NULL));
}

/* Sells what is left: then exactly the limit of each key was sold and counted, and nothing is at risk. */
static void close_sale(struct sale *sale) {
    tw_verdict verdict;
    for (uint32_t tag = 0; tag < TAGS; tag++) {
        char key[16], name[64];
        key_in(key, tag);
        for (int i = 0; i < 2; i++)
            sale->sold[tag] += sell(sale->families[i], tw_str(key), 1, LIMIT, PATIENCE_MS, &verdict);
        assert_i64_equal(sale->sold[tag], LIMIT);
        assert_int_equal(verdict.final, 1);
        for (int i = 0; i < 2; i++) assert_status(tw_flush(sale->engines[i], TEST_PATIENCE_MS), TW_OK);
        snprintf(name, sizeof name, "%s:{%u}:%s", sale->name, (unsigned)twi_key_slot_tags(TAGS)[tag], key);
        assert_i64_equal(redis_server_get(redis_cluster_server(&cluster, cluster.owners[slot_of(tag)]), name), LIMIT);
    }
    int64_t at_risk = 0;
    for (int i = 0; i < 2; i++) at_risk += test_stat_of(sale->engines[i], limit_at_risk);
    assert_i64_equal(at_risk, 0);
    for (int i = 0; i < 2; i++) assert_status(tw_close(sale->engines[i], TEST_PATIENCE_MS), TW_OK);
}

/* Goal: a slot that moves sells on after its move, to the unit. Method: it is sold from at each step of the move. */
TEST(a_slot_that_moves_sells_its_limit) {
    struct sale sale;
    open_sale(&sale, "moves");
    for (uint32_t tag = 0; tag < TAGS; tag++) sell_in(&sale, tag, 8, PATIENCE_MS);
    uint32_t slot = slot_of(1);
    size_t to = (cluster.owners[slot] + 1u) % MASTERS;
    redis_cluster_move_begin(&cluster, slot, to);
    sell_in(&sale, 1, 5, 200);
    redis_cluster_move_keys(&cluster, slot, to, 3);
    sell_in(&sale, 1, 5, 200);
    sell_in(&sale, 2, 5, PATIENCE_MS);
    while (redis_cluster_move_keys(&cluster, slot, to, 50) != 0) continue;
    sell_in(&sale, 1, 5, 200);
    redis_cluster_move_end(&cluster, slot, to);
    sell_in(&sale, 1, 5, 200);
    close_sale(&sale);
}

/* Goal: a master that fails over ends the epochs of its own slots, and of no other: those sell on at once. */
TEST(a_failover_pauses_only_its_own_slots) {
    struct sale sale;
    char before[TAGS][64], after[64];
    open_sale(&sale, "fails");
    for (uint32_t tag = 0; tag < TAGS; tag++) sell_in(&sale, tag, 8, PATIENCE_MS);
    for (uint32_t tag = 0; tag < TAGS; tag++) read_epoch(tag, before[tag]);
    size_t former = cluster.owners[slot_of(0)], replica = MASTERS + former;
    bool was_its[TAGS];
    for (uint32_t tag = 0; tag < TAGS; tag++) was_its[tag] = cluster.owners[slot_of(tag)] == former;
    redis_cluster_failover(&cluster, replica);
    for (uint32_t tag = 0; tag < TAGS; tag++)
        if (!was_its[tag]) sell_in(&sale, tag, 10, PATIENCE_MS);
    for (uint32_t tag = 0; tag < TAGS; tag++) {
        if (was_its[tag]) sell_in(&sale, tag, 10, PATIENCE_MS);
        read_epoch(tag, after);
        assert_int_equal(strcmp(before[tag], after) != 0, was_its[tag]);
    }
    close_sale(&sale);
}

int main(void) {
    redis_cluster_start(&cluster, MASTERS, MASTERS, server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
