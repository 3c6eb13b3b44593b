/* cluster_model.c -- see cluster_model.h. */
#include "tests/sim/cluster_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOBODY CLUSTER_MODEL_NOBODY

void cluster_model_init(struct cluster_model *cluster, int masters) {
    memset(cluster, 0, sizeof *cluster);
    cluster->count = masters;
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++)
        cluster->owners[slot] = (uint8_t)(slot * (uint32_t)masters / TWI_KEY_SLOTS);
    for (int i = 0; i < CLUSTER_MODEL_NODES; i++) {
        struct cluster_model_node *node = &cluster->nodes[i];
        redis_model_init(&node->redis);
        node->redis.run = node->redis.history = i;
        node->master = NOBODY;
        node->port = 7001 + i;
        snprintf(node->id, sizeof node->id, "%040d", i);
        memcpy(node->owners, cluster->owners, sizeof node->owners);
        memset(node->migrating, NOBODY, sizeof node->migrating);
        memset(node->importing, NOBODY, sizeof node->importing);
    }
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void say(struct twi_bytes *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct twi_bytes *out, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    twi_bytes_add(out, text, (size_t)size);
}

static const char *host_of(enum cluster_model_form form) {
    return form == CLUSTER_MODEL_IP ? "127.0.0.1" : form == CLUSTER_MODEL_UNKNOWN ? "" : "?";
}

static void say_redirect(const struct cluster_model *cluster, const struct cluster_model_node *node, const char *word,
                         uint32_t slot, uint8_t to, struct twi_bytes *reply) {
    say(reply, "-%s %u %s:%d\r\n", word, slot, host_of(node->form), cluster->nodes[to].port);
}

static void say_member(const struct cluster_model *cluster, const struct cluster_model_node *node, int member,
                       struct twi_bytes *reply) {
    const char *host = host_of(node->form);
    say(reply, "*4\r\n");
    if (node->form == CLUSTER_MODEL_UNKNOWN)
        say(reply, "$-1\r\n");
    else
        say(reply, "$%zu\r\n%s\r\n", strlen(host), host);
    say(reply, ":%d\r\n$40\r\n%s\r\n", cluster->nodes[member].port, cluster->nodes[member].id);
    if (node->form == CLUSTER_MODEL_IP)
        say(reply, "*0\r\n");
    else
        say(reply, "*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n");
}

/* Where the stretch of one owner that begins at `slot` ends. */
static uint32_t stretch(const struct cluster_model_node *node, uint32_t slot) {
    uint32_t end = slot + 1;
    while (end < TWI_KEY_SLOTS && node->owners[end] == node->owners[slot]) end++;
    return end;
}

static void say_slots(const struct cluster_model *cluster, const struct cluster_model_node *node,
                      struct twi_bytes *reply) {
    size_t ranges = 0;
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot = stretch(node, slot)) ranges += node->owners[slot] != NOBODY;
    say(reply, "*%zu\r\n", ranges);
    for (uint32_t slot = 0, end; slot < TWI_KEY_SLOTS; slot = end) {
        int owner = node->owners[slot], replicas = 0;
        end = stretch(node, slot);
        if (owner == NOBODY) continue;
        for (int i = 0; i < cluster->count; i++) replicas += cluster->nodes[i].master == owner;
        say(reply, "*%d\r\n:%u\r\n:%u\r\n", 3 + replicas, slot, end - 1);
        say_member(cluster, node, owner, reply);
        for (int i = 0; i < cluster->count; i++)
            if (cluster->nodes[i].master == owner) say_member(cluster, node, i, reply);
    }
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

static bool is(const struct model_word *word, const char *text) {
    return word->size == strlen(text) && memcmp(word->data, text, word->size) == 0;
}

static void text_of(const struct model_word *word, char *out, size_t room) {
    snprintf(out, room, "%.*s", (int)word->size, word->data);
}

/* The keys of a command: of scripts only. */
static size_t keys_of(const struct model_word *words, size_t count) {
    char text[32];
    if (count < 3 || (!is(&words[0], "EVAL") && !is(&words[0], "EVALSHA"))) return 0;
    text_of(&words[2], text, sizeof text);
    return strtoull(text, NULL, 10);
}

static uint32_t slot_of(const struct model_word *word) {
    return twi_key_slot_of(word->data, word->size);
}

static size_t count_missing(struct redis_model *redis, const struct model_word *keys, size_t count) {
    char name[MODEL_NAME_MAX];
    size_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        text_of(&keys[i], name, sizeof name);
        missing += redis_model_find(redis, name) == NULL;
    }
    return missing;
}

static bool are_several(const struct model_word *keys, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (keys[i].size != keys[0].size || memcmp(keys[i].data, keys[0].data, keys[0].size) != 0) return true;
    return false;
}

/* Turns the command away, in the order in which Redis looks. False: it is to be run here. */
static bool turns_away(struct cluster_model *cluster, int index, bool is_asking, const struct model_word *keys,
                       size_t count, struct twi_bytes *reply) {
    static const char try_again[] = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
    struct cluster_model_node *node = &cluster->nodes[index];
    uint32_t slot = slot_of(&keys[0]);
    uint8_t owner = node->owners[slot];
    if (owner == NOBODY) {
        say(reply, "-CLUSTERDOWN Hash slot not served\r\n");
        return true;
    }
    for (size_t i = 1; i < count; i++)
        if (slot_of(&keys[i]) != slot) {
            say(reply, "-CROSSSLOT Keys in request don't hash to the same slot\r\n");
            return true;
        }
    if (node->is_failed) {
        say(reply, "-CLUSTERDOWN The cluster is down\r\n");
        return true;
    }
    size_t missing = count_missing(&node->redis, keys, count);
    if (owner == index && node->migrating[slot] != NOBODY && missing != 0) {
        if (missing != count && !cluster->asks_half)
            say(reply, "%s", try_again);
        else
            say_redirect(cluster, node, "ASK", slot, node->migrating[slot], reply);
        return true;
    }
    if (owner != index && node->importing[slot] != NOBODY && is_asking) {
        if (!are_several(keys, count) || missing == 0) return false;
        say(reply, "%s", try_again);
        return true;
    }
    if (owner == index) return false;
    say_redirect(cluster, node, "MOVED", slot, owner, reply);
    return true;
}

/* False: it is no command about the cluster. */
static bool run_cluster(struct cluster_model *cluster, int index, const struct model_word *words, size_t count,
                        struct twi_bytes *reply) {
    char text[32];
    if (count < 2 || !is(&words[0], "CLUSTER")) return false;
    if (is(&words[1], "SLOTS")) {
        say_slots(cluster, &cluster->nodes[index], reply);
        return true;
    }
    if (count != 3 || !is(&words[1], "COUNTKEYSINSLOT")) return false;
    text_of(&words[2], text, sizeof text);
    say(reply, ":%zu\r\n", cluster_model_keys_in_slot(cluster, index, (uint32_t)strtoul(text, NULL, 10)));
    return true;
}

bool cluster_model_run(struct cluster_model *cluster, int index, struct cluster_model_link *link,
                       const struct model_word *words, size_t count, struct twi_bytes *reply) {
    struct cluster_model_node *node = &cluster->nodes[index];
    bool is_asking = link->is_asking;
    if (node->is_down) return false;
    link->is_asking = is(&words[0], "ASKING");
    if (link->is_asking) {
        say(reply, "+OK\r\n");
        return true;
    }
    if (run_cluster(cluster, index, words, count, reply)) return true;
    size_t keys = keys_of(words, count);
    if (keys != 0 && turns_away(cluster, index, is_asking, words + 3, keys, reply)) return true;
    redis_model_run(&node->redis, words, count, reply);
    return true;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

void cluster_model_move_begin(struct cluster_model *cluster, uint32_t slot, int to) {
    uint8_t from = cluster->owners[slot];
    cluster->nodes[to].importing[slot] = from;
    cluster->nodes[from].migrating[slot] = (uint8_t)to;
}

static struct model_key *key_in_slot(struct redis_model *redis, uint32_t slot, size_t *at) {
    for (; *at < redis->store.keys_end; ++*at) {
        struct model_key *key = &redis->store.keys[*at];
        bool is_here = key->type != MODEL_NONE && !redis_model_is_inner(key->name);
        if (!is_here || twi_key_slot_of(key->name, strlen(key->name)) != slot) continue;
        if (key->expiry_ms == 0 || key->expiry_ms > redis->now_ms) return key;
    }
    return NULL;
}

bool cluster_model_move_key(struct cluster_model *cluster, uint32_t slot, int to, const char *name) {
    struct redis_model *from = &cluster->nodes[cluster->owners[slot]].redis;
    char copy[MODEL_NAME_MAX];
    size_t at = 0;
    const struct model_key *key = name ? redis_model_find(from, name) : key_in_slot(from, slot, &at);
    if (!key) return false;
    memcpy(copy, key->name, sizeof copy); /* the key itself goes */
    return redis_model_move(from, &cluster->nodes[to].redis, copy);
}

/* A node that learns it of its own slot gives up the move; the target is the owner from now on. */
static void learn(struct cluster_model *cluster, int index, uint32_t slot) {
    struct cluster_model_node *node = &cluster->nodes[index];
    node->owners[slot] = cluster->owners[slot];
    node->migrating[slot] = NOBODY;
    if (node->owners[slot] == index) node->importing[slot] = NOBODY;
}

void cluster_model_move_end(struct cluster_model *cluster, uint32_t slot, int to, uint32_t told) {
    redis_model_move_books(&cluster->nodes[cluster->owners[slot]].redis, &cluster->nodes[to].redis, slot);
    cluster->owners[slot] = (uint8_t)to;
    for (int i = 0; i < cluster->count; i++)
        if (told & (1u << i)) learn(cluster, i, slot);
}

void cluster_model_move_forget(struct cluster_model *cluster, uint32_t slot, int to) {
    cluster->nodes[to].importing[slot] = NOBODY;
    cluster->nodes[cluster->owners[slot]].migrating[slot] = NOBODY;
}

/* A slot that is imported is only told by whoever moves it. If its owner has become a replica, nobody is left. */
void cluster_model_gossip(struct cluster_model *cluster, int index) {
    struct cluster_model_node *node = &cluster->nodes[index];
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        if (cluster->owners[slot] == node->owners[slot]) continue;
        if (node->importing[slot] == NOBODY || cluster->owners[slot] == index)
            learn(cluster, index, slot);
        else if (node->owners[slot] != NOBODY && cluster->nodes[node->owners[slot]].master != NOBODY)
            node->owners[slot] = NOBODY;
    }
}

size_t cluster_model_keys_in_slot(struct cluster_model *cluster, int node, uint32_t slot) {
    size_t keys = 0;
    for (size_t at = 0; key_in_slot(&cluster->nodes[node].redis, slot, &at); at++) keys++;
    return keys;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

int cluster_model_replica(struct cluster_model *cluster, int master) {
    int replica = cluster->count++;
    if (replica == CLUSTER_MODEL_NODES) abort(); /* this test needs more room */
    cluster->nodes[replica].master = (uint8_t)master;
    cluster_model_replicate(cluster, replica);
    memcpy(cluster->nodes[replica].owners, cluster->nodes[master].owners, sizeof cluster->owners);
    return replica;
}

void cluster_model_replicate(struct cluster_model *cluster, int replica) {
    struct cluster_model_node *node = &cluster->nodes[replica];
    node->redis.store = cluster->nodes[node->master].redis.store;
    node->redis.is_replica = true;
}

static void take_over(struct cluster_model *cluster, int replica, int master) {
    struct cluster_model_node *node = &cluster->nodes[replica], *former = &cluster->nodes[master];
    node->master = NOBODY;
    node->redis.is_replica = false;
    node->redis.history += CLUSTER_MODEL_NODES; /* another one from here on */
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        if (cluster->owners[slot] != master) continue;
        cluster->owners[slot] = (uint8_t)replica;
        if (cluster->keeps_moves) node->migrating[slot] = former->migrating[slot];
    }
    memcpy(node->owners, cluster->owners, sizeof node->owners);
    if (cluster->keeps_moves) memcpy(node->importing, former->importing, sizeof node->importing);
}

/* The other end of a move knows the new master. */
static void rename_ends(struct cluster_model_node *node, int master, int replica) {
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        if (node->migrating[slot] == master) node->migrating[slot] = (uint8_t)replica;
        if (node->importing[slot] != master) continue;
        node->importing[slot] = (uint8_t)replica;
        if (node->owners[slot] == master) node->owners[slot] = (uint8_t)replica;
    }
}

void cluster_model_fail_over(struct cluster_model *cluster, int replica) {
    int master = cluster->nodes[replica].master;
    struct cluster_model_node *former = &cluster->nodes[master];
    take_over(cluster, replica, master);
    for (int i = 0; cluster->keeps_moves && i < cluster->count; i++) rename_ends(&cluster->nodes[i], master, replica);
    for (int i = 0; i < cluster->count; i++)
        if (cluster->nodes[i].master == master) cluster->nodes[i].master = (uint8_t)replica;
    memset(former->migrating, NOBODY, sizeof former->migrating);
    memset(former->importing, NOBODY, sizeof former->importing);
    if (former->is_down) return;
    former->master = (uint8_t)replica;
    memcpy(former->owners, cluster->owners, sizeof former->owners);
    cluster_model_replicate(cluster, master);
}
