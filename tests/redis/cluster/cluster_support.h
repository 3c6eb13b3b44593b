/* cluster_support.h -- an engine that counts over a real Redis Cluster, and what has to be there. Keys have one of
 * sixteen tags. Always true: `added` is the value that each key has in Redis once everything is acknowledged. */
#ifndef TEST_CLUSTER_SUPPORT_H
#define TEST_CLUSTER_SUPPORT_H

#include "tests/redis/redis_rig.h"
#include "tests/support/redis_cluster.h"

#include "engine/base/key_slot.h"

#include <limits.h>

enum { CLUSTER_MASTERS = 3, CLUSTER_KEYS = 400, CLUSTER_TAGS = 16 };

static struct redis_cluster cluster;
static struct rig rig;
static int64_t added[CLUSTER_KEYS];
static char family_name[16]; /* another one in each test: the keys of the others are still there */

/* A host name makes the reply to CLUSTER SLOTS deeper. */
static const char *const cluster_server_options[] = {"--cluster-require-full-coverage",
                                                     "no",
                                                     "--appendonly",
                                                     "yes",
                                                     "--appendfsync",
                                                     "always",
                                                     "--cluster-announce-hostname",
                                                     "localhost",
                                                     NULL};

static inline void cluster_name_of(int key, char *name, size_t size) {
    char text[16];
    int length = snprintf(text, sizeof text, "k%d", key);
    unsigned tag = twi_key_slot_tags(CLUSTER_TAGS)[twi_key_slot_crc16(text, (size_t)length) % CLUSTER_TAGS];
    snprintf(name, size, "%s:{%u}:%s", family_name, tag, text);
}

static inline void cluster_open_engine(const char *named, void (*change)(tw_options *options)) {
    char url[512];
    tw_options options;
    tw_family_options family;
    redis_cluster_url(&cluster, url, sizeof url);
    memset(&rig, 0, sizeof rig);
    memset(added, 0, sizeof added);
    rig_options(&rig, &options, url);
    if (change) change(&options);
    assert_status(test_open(&options, &rig.engine), TW_OK);
    tw_family_options_init(&family);
    snprintf(family_name, sizeof family_name, "%s", named);
    family.name = family_name;
    family.window = TW_WINDOW_FOREVER;
    family.redis_tags = CLUSTER_TAGS;
    assert_status(tw_family_open(rig.engine, &family, &rig.family), TW_OK);
}

static inline void cluster_add_all(int64_t delta) {
    char text[16];
    for (int key = 0; key < CLUSTER_KEYS; key++) {
        snprintf(text, sizeof text, "k%d", key);
        assert_status(tw_add(rig.family, tw_str(text), delta, NULL), TW_OK);
        added[key] += delta;
    }
}

/* Every counter in Redis has the added units, and no count was reported as lost or uncertain. */
static inline void cluster_assert_sums(void) {
    char name[64], text[24];
    for (int key = 0; key < CLUSTER_KEYS; key++) {
        cluster_name_of(key, name, sizeof name);
        size_t owner = cluster.owners[twi_key_slot_of(name, strlen(name))];
        snprintf(text, sizeof text, "%lld", (long long)added[key]);
        assert_string_equal(redis_server_ask(redis_cluster_server(&cluster, owner), "GET", name, NULL), text);
    }
    assert_i64_equal(test_stat_of(rig.engine, lost), 0);
    assert_i64_equal(test_stat_of(rig.engine, uncertain), 0);
}

static inline uint32_t cluster_slot_of_tag(int tag) {
    char text[16];
    int size = snprintf(text, sizeof text, "%u", (unsigned)twi_key_slot_tags(CLUSTER_TAGS)[tag]);
    return twi_key_slot_of(text, (size_t)size);
}

/* Keys of the slot go to another node, so many at most: the engines' own (ledgers, markers), or counters. Returns how
 * many went. */
static inline int cluster_move_some(uint32_t slot, size_t from, size_t to, bool own, int most) {
    char port[16], number[16];
    static char names[65536];
    int count = 0;
    snprintf(port, sizeof port, "%d", redis_cluster_server(&cluster, to)->port);
    snprintf(number, sizeof number, "%u", slot);
    snprintf(names, sizeof names, "%s",
             redis_server_ask(redis_cluster_server(&cluster, from), "CLUSTER", "GETKEYSINSLOT", number, "1000", NULL));
    for (char *rest = names, *name; count < most && (name = strtok_r(rest, "\n", &rest)) != NULL;) {
        if ((strstr(name, "tw:") != NULL) != own) continue;
        const char *said = redis_server_ask(redis_cluster_server(&cluster, from), "MIGRATE", "127.0.0.1", port, name,
                                            "0", "10000", NULL);
        assert_string_equal(said, "OK");
        count++;
    }
    return count;
}

/* The ledgers and markers of the slot go to another node, ahead of its counters. */
static inline void cluster_move_ledgers(uint32_t slot, size_t from, size_t to) {
    assert_true(cluster_move_some(slot, from, to, true, INT_MAX) > 0);
}

#endif
