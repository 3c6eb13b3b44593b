/* redis_cluster.c -- see redis_cluster.h. Ports lie below those that the system deals out, so that a node that is
 * started again finds its own free. */
#include "tests/support/redis_cluster.h"
#include "tests/support/support.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BUS 10000 /* a node's cluster bus listens at its port plus this */
#define WAIT_MS 90000
#define RESEND_MS 500
#define ROUND 64 /* slots that move together */
#define KEYS_MAX 100

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool is_free(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool free = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return free;
}

static const char *ask(struct redis_cluster *cluster, size_t node, const char *a, const char *b, const char *c) {
    return redis_server_ask(redis_cluster_server(cluster, node), a, b, c, NULL);
}

/* A port that is free now, with the one of its bus. */
static int draw_port(void) {
    static uint64_t drawn;
    if (drawn == 0) drawn = (uint64_t)getpid() * 7919;
    for (;;) {
        int port = 11000 + (int)(drawn++ % 11000);
        if (is_free(port) && is_free(port + BUS)) return port;
    }
}

static void start_node(struct redis_cluster *cluster, size_t node) {
    for (int tries = 0; tries < 1000; tries++) {
        int port = draw_port(), tls_port = cluster->has_tls ? draw_port() : 0;
        if (!redis_server_start_at(redis_cluster_server(cluster, node), port, tls_port, cluster->extra)) continue;
        snprintf(cluster->nodes[node].id, sizeof cluster->nodes[node].id, "%s",
                 ask(cluster, node, "CLUSTER", "MYID", NULL));
        cluster->nodes[node].is_member = true;
        return;
    }
    fail_msg("no node of a cluster could be started");
}

/* Where the other nodes find it. */
static int port_of(const struct redis_cluster *cluster, size_t node) {
    const struct redis_server *server = &cluster->nodes[node].server;
    return server->tls_port != 0 ? server->tls_port : server->port;
}

static bool runs(const struct redis_cluster *cluster, size_t node) {
    return cluster->nodes[node].is_member && cluster->nodes[node].server.pid > 0;
}

static void meet(struct redis_cluster *cluster, size_t node, size_t other) {
    char port[16];
    snprintf(port, sizeof port, "%d", port_of(cluster, other));
    redis_server_ask(redis_cluster_server(cluster, node), "CLUSTER", "MEET", "127.0.0.1", port, NULL);
}

static size_t members(const struct redis_cluster *cluster) {
    size_t count = 0;
    for (size_t i = 0; i < cluster->count; i++) count += cluster->nodes[i].is_member;
    return count;
}

static bool all_know_all(void *ctx) {
    struct redis_cluster *cluster = ctx;
    char want[40];
    snprintf(want, sizeof want, "cluster_known_nodes:%zu\r", members(cluster));
    for (size_t i = 0; i < cluster->count; i++)
        if (runs(cluster, i) && (!strstr(ask(cluster, i, "CLUSTER", "INFO", NULL), want) ||
                                 strstr(ask(cluster, i, "CLUSTER", "NODES", NULL), "handshake")))
            return false;
    return true;
}

/* What each node believes, for whoever has to find out why a wait was in vain. */
static void print_views(struct redis_cluster *cluster) {
    for (size_t i = 0; i < cluster->count; i++) {
        if (!runs(cluster, i)) continue;
        print_error("node %zu: %s\n", i, ask(cluster, i, "CLUSTER", "NODES", NULL));
        print_error("%s\n", ask(cluster, i, "CLUSTER", "INFO", NULL));
    }
}

static void wait_for(struct redis_cluster *cluster, bool (*is_true)(void *ctx), void *ctx, const char *what) {
    if (test_wait(is_true, ctx, WAIT_MS)) return;
    print_views(cluster);
    fail_msg("the cluster: %s takes longer than %d s", what, WAIT_MS / 1000);
}

/* CLUSTER ADDSLOTSRANGE is there since Redis 7. */
static void add_slots(struct redis_server *server, uint32_t begin, uint32_t end) {
    char texts[512][12];
    const char *words[514] = {"CLUSTER", "ADDSLOTS"};
    while (begin < end) {
        size_t count = 0;
        for (; begin < end && count < 512; count++, begin++) {
            snprintf(texts[count], sizeof texts[count], "%u", begin);
            words[2 + count] = texts[count];
        }
        const char *said = redis_server_ask_words(server, words, 2 + count);
        if (strcmp(said, "OK") != 0) fail_msg("ADDSLOTS: %s", said);
    }
}

void redis_cluster_start(struct redis_cluster *cluster, size_t masters, size_t replicas, const char *const *extra) {
    /* Else a master whose last slot goes becomes a replica by itself, in the middle of the move. */
    static const char *options[64] = {"--cluster-enabled",
                                      "yes",
                                      "--cluster-node-timeout",
                                      "2000",
                                      "--cluster-allow-replica-migration",
                                      "no",
                                      "--repl-diskless-sync-delay",
                                      "0",
                                      "--cluster-replica-validity-factor",
                                      "0"};
    size_t used = 10;
    memset(cluster, 0, sizeof *cluster);
    for (size_t i = 0; extra != NULL && extra[i] != NULL; i++)
        cluster->has_tls |= strcmp(extra[i], "--tls-cluster") == 0;
    for (; extra != NULL && *extra != NULL; extra++) options[used++] = *extra;
    options[used] = NULL;
    cluster->extra = options;
    cluster->count = masters + replicas;
    for (size_t i = 0; i < cluster->count; i++) {
        char epoch[24];
        uint32_t begin = (uint32_t)(i * CLUSTER_SLOTS / masters), end = (uint32_t)((i + 1) * CLUSTER_SLOTS / masters);
        start_node(cluster, i);
        snprintf(epoch, sizeof epoch, "%zu", i + 1);
        ask(cluster, i, "CLUSTER", "SET-CONFIG-EPOCH", epoch);
        if (i >= masters) continue;
        add_slots(redis_cluster_server(cluster, i), begin, end);
        for (; begin < end; begin++) cluster->owners[begin] = (uint8_t)i;
    }
    for (size_t i = 0; i < cluster->count; i++)
        for (size_t other = 0; other < i; other++) meet(cluster, i, other);
    wait_for(cluster, all_know_all, cluster, "to meet");
    for (size_t i = masters; i < cluster->count; i++) redis_cluster_replicate(cluster, i, (i - masters) % masters);
    redis_cluster_wait(cluster);
}

void redis_cluster_destroy(struct redis_cluster *cluster) {
    for (size_t i = 0; i < cluster->count; i++)
        if (cluster->nodes[i].is_member) redis_server_destroy(redis_cluster_server(cluster, i));
    cluster->count = 0;
}

void redis_cluster_url(const struct redis_cluster *cluster, char *url, size_t size) {
    size_t used = (size_t)snprintf(url, size, "%s+cluster://", cluster->has_tls ? "rediss" : "redis");
    const char *comma = "";
    for (size_t i = 0; i < cluster->count && used < size; i++) {
        if (!cluster->nodes[i].is_member) continue;
        used += (size_t)snprintf(url + used, size - used, "%s127.0.0.1:%d", comma, port_of(cluster, i));
        comma = ",";
    }
}

static size_t node_of(const struct redis_cluster *cluster, const char *id) {
    for (size_t i = 0; i < cluster->count; i++)
        if (cluster->nodes[i].is_member && strncmp(cluster->nodes[i].id, id, 40) == 0) return i;
    return CLUSTER_NODES_MAX;
}

/* Reads the slots that the node is importing: "[77-<-id]" in its own line. */
static void read_imports(const char *nodes, bool imports[CLUSTER_SLOTS]) {
    memset(imports, 0, CLUSTER_SLOTS * sizeof *imports);
    for (const char *at = nodes; (at = strchr(at, '[')) != NULL; at++) {
        unsigned slot;
        char arrow;
        if (sscanf(at, "[%u-%c-", &slot, &arrow) == 2 && arrow == '<' && slot < CLUSTER_SLOTS) imports[slot] = true;
    }
}

/* Whether the node's CLUSTER NODES says what `owners` says. A line: id, address, flags, master, ping, pong, epoch,
 * link, ranges; a move that is under way stands in brackets. A node that is importing a slot does not hear who has it:
 * if its owner fails over, it names the former owner, or nobody. */
static bool agrees(struct redis_cluster *cluster, size_t node) {
    static char text[65536];
    static bool is_fine[CLUSTER_SLOTS];
    char *rest = text;
    snprintf(text, sizeof text, "%s", ask(cluster, node, "CLUSTER", "NODES", NULL));
    read_imports(text, is_fine);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        size_t owner = node_of(cluster, line);
        int column = 0;
        for (char *word; (word = strsep(&line, " ")) != NULL; column++) {
            unsigned first, last;
            if (column < 8 || word[0] == '[') continue;
            int found = sscanf(word, "%u-%u", &first, &last);
            if (found == 1) last = first;
            if (found < 1 || last >= CLUSTER_SLOTS) continue;
            for (; first <= last; first++) is_fine[first] |= cluster->owners[first] == owner;
        }
    }
    return memchr(is_fine, false, sizeof is_fine) == NULL;
}

static long long epoch_of(struct redis_cluster *cluster, size_t node) {
    static const char name[] = "cluster_current_epoch:";
    const char *at = strstr(ask(cluster, node, "CLUSTER", "INFO", NULL), name);
    return at ? atoll(at + sizeof name - 1) : 0;
}

/* Not asked of the node: it may stand still. */
static bool has_slots(const struct redis_cluster *cluster, size_t node) {
    return runs(cluster, node) && memchr(cluster->owners, (int)node, sizeof cluster->owners) != NULL;
}

/* These nodes know the newest epoch. One that does not may give the next to itself, which another has already: then
 * both have a claim to a slot that has moved. It would lose an election, too. */
static bool share_the_epoch(struct redis_cluster *cluster, const bool nodes[CLUSTER_NODES_MAX]) {
    long long epoch = 0;
    for (size_t i = 0; i < cluster->count; i++) {
        if (!nodes[i]) continue;
        long long own = epoch_of(cluster, i);
        if (epoch != 0 && own != epoch) return false;
        epoch = own;
    }
    return true;
}

/* What stands from a word on in node `of`'s line, in what `node` says of the cluster; NULL: nothing. */
enum { PING_SENT = 4, CLAIM_EPOCH = 6, SLOTS = 8 };

static const char *line_of(struct redis_cluster *cluster, size_t node, size_t of, int word) {
    static char text[65536];
    char *rest = text;
    snprintf(text, sizeof text, "%s", ask(cluster, node, "CLUSTER", "NODES", NULL));
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (node_of(cluster, line) != of) continue;
        for (int i = 0; i < word && line; i++) strsep(&line, " ");
        return line;
    }
    return NULL;
}

static long long number_of(struct redis_cluster *cluster, size_t node, size_t of, int word) {
    const char *line = line_of(cluster, node, of, word);
    return line ? atoll(line) : -1;
}

static bool is_well(void *ctx) {
    struct redis_cluster *cluster = ctx;
    for (size_t i = 0; i < cluster->count; i++) {
        if (!runs(cluster, i)) continue;
        if (!strstr(ask(cluster, i, "CLUSTER", "INFO", NULL), "cluster_state:ok") || !agrees(cluster, i)) return false;
    }
    bool masters[CLUSTER_NODES_MAX] = {false};
    for (size_t i = 0; i < cluster->count; i++) masters[i] = has_slots(cluster, i);
    return share_the_epoch(cluster, masters);
}

void redis_cluster_wait(struct redis_cluster *cluster) {
    wait_for(cluster, is_well, cluster, "to be well");
}

/* ---- whose a slot is --------------------------------------------------------------------------------------------- */

/* A slot passes from one master to another. Each message of a master names all of its slots. One that was sent before
 * the master heard of a move may arrive when all nodes have been told of it. Redis 7.0 may believe it, whatever its
 * epoch: a node that got a message of a slot's owner without the slot gives the slot to the next other node that names
 * it. It keeps that in mind (`owner_not_claiming_slot`) through SETSLOT, and until the owner names other slots than it
 * did. If the node is the slot's owner itself by then, it loses the slot for good, and deletes its keys.
 * So nobody but the owner may name a slot, not even in a message that is on its way. The former owner is told first,
 * the new one when all that the former one had sent has arrived. Until then each of the two sends
 * clients to the other. */
struct passing {
    struct redis_cluster *cluster;
    size_t from, to;
    bool hears[CLUSTER_NODES_MAX]; /* the masters that have slots, and the target, which may have none */
    char channel[32];
    FILE *ears[CLUSTER_NODES_MAX];
};

static bool know_the_epoch(void *ctx) {
    struct passing *passing = ctx;
    return share_the_epoch(passing->cluster, passing->hears);
}

/* All know how new the new owner's claim is. What a third node passes on of an older one is no news then. */
static bool know_the_claim(void *ctx) {
    struct passing *passing = ctx;
    long long epoch = number_of(passing->cluster, passing->to, passing->to, CLAIM_EPOCH);
    for (size_t i = 0; i < passing->cluster->count; i++)
        if (passing->hears[i] && number_of(passing->cluster, i, passing->to, CLAIM_EPOCH) != epoch) return false;
    return true;
}

/* Nobody waits for an answer of the former owner. */
static bool none_is_asking(void *ctx) {
    struct passing *passing = ctx;
    for (size_t i = 0; i < passing->cluster->count; i++)
        if (passing->hears[i] && i != passing->from && number_of(passing->cluster, i, passing->from, PING_SENT) != 0)
            return false;
    return true;
}

static FILE *open_node(struct redis_cluster *cluster, size_t node) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", redis_cluster_server(cluster, node)->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FILE *stream = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fdopen(fd, "r+") : NULL;
    if (stream == NULL) fail_msg("node %zu is away", node);
    return stream;
}

/* Listens at each node for what the former owner publishes: that arrives behind all that the former owner had sent over
 * links of its own. Its answers go over the links of those that asked. */
static void passing_begin(struct passing *passing, struct redis_cluster *cluster, size_t from, size_t to) {
    static unsigned long count;
    *passing = (struct passing){.cluster = cluster, .from = from, .to = to};
    for (size_t i = 0; i < cluster->count; i++) passing->hears[i] = i == to || has_slots(cluster, i);
    wait_for(passing->cluster, know_the_epoch, passing, "to know the newest epoch");
    snprintf(passing->channel, sizeof passing->channel, "passing:%lu", ++count);
    for (size_t i = 0; i < cluster->count; i++) {
        char line[256];
        if (!passing->hears[i] || i == from) continue;
        FILE *ear = passing->ears[i] = open_node(cluster, i);
        fprintf(ear, "SUBSCRIBE %s\r\n", passing->channel);
        fflush(ear);
        fseek(ear, 0, SEEK_CUR);
        for (int lines = 0; lines < 6; lines++) /* an array of two words and a number */
            if (!fgets(line, sizeof line, ear)) fail_msg("node %zu: SUBSCRIBE", i);
    }
}

/* The former owner has been told. A link that was down has lost what was published: then it is published again. */
static void passing_heard(struct passing *passing) {
    const char *channel = passing->channel;
    ask(passing->cluster, passing->from, "PUBLISH", channel, "heard");
    for (size_t i = 0; i < passing->cluster->count; i++) {
        if (!passing->ears[i]) continue;
        struct pollfd heard = {.fd = fileno(passing->ears[i]), .events = POLLIN};
        for (int tries = 0; poll(&heard, 1, RESEND_MS) != 1; tries++) {
            if (tries == WAIT_MS / RESEND_MS) fail_msg("node %zu does not hear node %zu", i, passing->from);
            ask(passing->cluster, passing->from, "PUBLISH", channel, "heard");
        }
        fclose(passing->ears[i]);
    }
    wait_for(passing->cluster, none_is_asking, passing, "to hear a slot's former owner");
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static void set_slot(struct redis_cluster *cluster, size_t node, uint32_t slot, const char *how, const char *id) {
    char number[16];
    snprintf(number, sizeof number, "%u", slot);
    const char *said =
        redis_server_ask(redis_cluster_server(cluster, node), "CLUSTER", "SETSLOT", number, how, id, NULL);
    if (strcmp(said, "OK") != 0) fail_msg("SETSLOT %u %s at node %zu: %s", slot, how, node, said);
}

void redis_cluster_move_begin(struct redis_cluster *cluster, uint32_t slot, size_t to) {
    size_t from = cluster->owners[slot];
    set_slot(cluster, to, slot, "IMPORTING", cluster->nodes[from].id);
    set_slot(cluster, from, slot, "MIGRATING", cluster->nodes[to].id);
}

/* The words are part of `text`, one a line. */
static size_t split(char *text, const char **words, size_t room) {
    size_t count = 0;
    for (char *word; (word = strsep(&text, "\n")) != NULL && count < room;)
        if (word[0]) words[count++] = word;
    return count;
}

size_t redis_cluster_move_keys(struct redis_cluster *cluster, uint32_t slot, size_t to, size_t most) {
    static char keys[65536];
    char number[16], count[16], port[16];
    const char *words[7 + KEYS_MAX] = {"MIGRATE", "127.0.0.1", port, "", "0", "10000", "KEYS"};
    struct redis_server *from = redis_cluster_server(cluster, cluster->owners[slot]);
    size_t moved = 0;
    snprintf(number, sizeof number, "%u", slot);
    snprintf(port, sizeof port, "%d", port_of(cluster, to));
    while (moved < most) {
        size_t wanted = most - moved < KEYS_MAX ? most - moved : KEYS_MAX;
        snprintf(count, sizeof count, "%zu", wanted);
        snprintf(keys, sizeof keys, "%s", redis_server_ask(from, "CLUSTER", "GETKEYSINSLOT", number, count, NULL));
        size_t found = split(keys, words + 7, KEYS_MAX);
        if (found == 0) break;
        const char *said = redis_server_ask_words(from, words, 7 + found);
        if (strcmp(said, "OK") != 0 && strcmp(said, "NOKEY") != 0) fail_msg("MIGRATE of slot %u: %s", slot, said);
        moved += found;
    }
    return moved;
}

void redis_cluster_move_end(struct redis_cluster *cluster, uint32_t slot, size_t to) {
    struct passing passing;
    size_t from = cluster->owners[slot];
    passing_begin(&passing, cluster, from, to);
    set_slot(cluster, from, slot, "NODE", cluster->nodes[to].id);
    passing_heard(&passing);
    set_slot(cluster, to, slot, "NODE", cluster->nodes[to].id);
    for (size_t i = 0; i < cluster->count; i++)
        if (i != to && i != from && passing.hears[i]) set_slot(cluster, i, slot, "NODE", cluster->nodes[to].id);
    cluster->owners[slot] = (uint8_t)to;
    wait_for(cluster, know_the_claim, &passing, "to know who has a moved slot");
}

void redis_cluster_move_forget(struct redis_cluster *cluster, uint32_t slot, size_t to) {
    char number[16];
    size_t ends[] = {to, cluster->owners[slot]};
    snprintf(number, sizeof number, "%u", slot);
    for (size_t i = 0; i < 2; i++)
        redis_server_ask(redis_cluster_server(cluster, ends[i]), "CLUSTER", "SETSLOT", number, "STABLE", NULL);
}

/* Sends one command for each of the slots, and reads as many numbers or OKs. NULL for `how`: COUNTKEYSINSLOT. */
static void ask_for_each(struct redis_cluster *cluster, size_t node, const uint32_t *slots, size_t count,
                         const char *how, const char *id, uint64_t *numbers) {
    char line[256];
    FILE *stream = open_node(cluster, node);
    for (size_t i = 0; i < count; i++) {
        if (how)
            fprintf(stream, "CLUSTER SETSLOT %u %s %s\r\n", slots[i], how, id);
        else
            fprintf(stream, "CLUSTER COUNTKEYSINSLOT %u\r\n", slots[i]);
    }
    fflush(stream);
    fseek(stream, 0, SEEK_CUR);
    for (size_t i = 0; i < count; i++) {
        if (!fgets(line, sizeof line, stream) || line[0] == '-')
            fail_msg("node %zu, slot %u: %s", node, slots[i], line);
        if (numbers) numbers[i] = strtoull(line + 1, NULL, 10);
    }
    fclose(stream);
}

/* Slots that have one owner. */
static void move_round(struct redis_cluster *cluster, const uint32_t *slots, size_t count, size_t to) {
    struct passing passing;
    size_t from = cluster->owners[slots[0]];
    uint64_t keys[ROUND];
    ask_for_each(cluster, to, slots, count, "IMPORTING", cluster->nodes[from].id, NULL);
    ask_for_each(cluster, from, slots, count, "MIGRATING", cluster->nodes[to].id, NULL);
    ask_for_each(cluster, from, slots, count, NULL, NULL, keys);
    for (size_t i = 0; i < count; i++) {
        /* A new key cannot come: it is made at the target. */
        if (keys[i] != 0) redis_cluster_move_keys(cluster, slots[i], to, SIZE_MAX);
    }
    passing_begin(&passing, cluster, from, to);
    ask_for_each(cluster, from, slots, count, "NODE", cluster->nodes[to].id, NULL);
    passing_heard(&passing);
    ask_for_each(cluster, to, slots, count, "NODE", cluster->nodes[to].id, NULL);
    for (size_t i = 0; i < cluster->count; i++)
        if (i != to && i != from && passing.hears[i])
            ask_for_each(cluster, i, slots, count, "NODE", cluster->nodes[to].id, NULL);
    for (size_t i = 0; i < count; i++) cluster->owners[slots[i]] = (uint8_t)to;
    wait_for(cluster, know_the_claim, &passing, "to know who has moved slots");
}

void redis_cluster_move(struct redis_cluster *cluster, uint32_t first, uint32_t last, size_t to) {
    uint32_t slots[ROUND];
    size_t count = 0;
    for (uint32_t slot = first; slot <= last; slot++) {
        bool is_there = cluster->owners[slot] == to;
        bool is_full = count == ROUND || (count != 0 && cluster->owners[slots[0]] != cluster->owners[slot]);
        if (is_full) {
            move_round(cluster, slots, count, to);
            count = 0;
        }
        if (!is_there) slots[count++] = slot;
    }
    if (count != 0) move_round(cluster, slots, count, to);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

bool redis_cluster_is_master(struct redis_cluster *cluster, size_t node) {
    return strncmp(ask(cluster, node, "ROLE", NULL, NULL), "master", 6) == 0;
}

size_t redis_cluster_add(struct redis_cluster *cluster) {
    size_t node = cluster->count++;
    if (node == CLUSTER_NODES_MAX) fail_msg("more than %d nodes", CLUSTER_NODES_MAX);
    start_node(cluster, node);
    for (size_t i = 0; i < node; i++)
        if (runs(cluster, i)) meet(cluster, node, i);
    wait_for(cluster, all_know_all, cluster, "to meet a new node");
    redis_cluster_wait(cluster);
    return node;
}

void redis_cluster_relocate(struct redis_cluster *cluster, size_t node) {
    struct redis_server *server = redis_cluster_server(cluster, node);
    redis_server_kill(server);
    server->port = draw_port();
    redis_server_restart(server);
    redis_cluster_wait(cluster);
}

void redis_cluster_remove(struct redis_cluster *cluster, size_t node) {
    cluster->nodes[node].is_member = false;
    redis_server_destroy(redis_cluster_server(cluster, node));
    for (size_t i = 0; i < cluster->count; i++)
        if (runs(cluster, i)) ask(cluster, i, "CLUSTER", "FORGET", cluster->nodes[node].id);
}

struct waiting {
    struct redis_cluster *cluster;
    size_t node, master;
};

/* All say that the node follows the master. Before, none of them would help it to take over again. */
static bool is_known_to_follow(void *ctx) {
    const struct waiting *waiting = ctx;
    struct redis_cluster *cluster = waiting->cluster;
    for (size_t i = 0; i < cluster->count; i++)
        if (runs(cluster, i) && !strstr(ask(cluster, i, "CLUSTER", "REPLICAS", cluster->nodes[waiting->master].id),
                                        cluster->nodes[waiting->node].id))
            return false;
    return true;
}

static bool follows(void *ctx) {
    const struct waiting *waiting = ctx;
    const char *said = ask(waiting->cluster, waiting->node, "INFO", "replication", NULL);
    return strstr(said, "role:slave") && strstr(said, "master_link_status:up");
}

/* A node that is importing a slot leaves it out where it tells the former master of the new one. If the former master
 * hears that before it hears the new master itself, its slots go in two messages, and it becomes a master without
 * slots. What it has, the new master has. */
static bool follows_at_last(void *ctx) {
    const struct waiting *waiting = ctx;
    struct redis_cluster *cluster = waiting->cluster;
    if (redis_cluster_is_master(cluster, waiting->node)) {
        const char *slots = line_of(cluster, waiting->node, waiting->node, SLOTS);
        if (slots != NULL && slots[0] != '[') return false;
        ask(cluster, waiting->node, "FLUSHALL", NULL, NULL);
        ask(cluster, waiting->node, "CLUSTER", "REPLICATE", cluster->nodes[waiting->master].id);
    }
    return follows(ctx);
}

static bool is_alone(void *ctx) {
    const struct waiting *waiting = ctx;
    return strstr(ask(waiting->cluster, waiting->node, "INFO", "replication", NULL), "master_link_status:down") != NULL;
}

/* A replica that greets with a password is refused by a master that has none. */
void redis_cluster_cut_off(struct redis_cluster *cluster, size_t replica, size_t master) {
    struct waiting waiting = {cluster, replica, master};
    redis_server_ask(redis_cluster_server(cluster, replica), "CONFIG", "SET", "masterauth", "nobody", NULL);
    redis_server_ask(redis_cluster_server(cluster, master), "CLIENT", "KILL", "TYPE", "replica", NULL);
    wait_for(cluster, is_alone, &waiting, "to cut off a replica");
}

void redis_cluster_rejoin(struct redis_cluster *cluster, size_t replica) {
    redis_server_ask(redis_cluster_server(cluster, replica), "CONFIG", "SET", "masterauth", "", NULL);
}

static bool leads(void *ctx) {
    const struct waiting *waiting = ctx;
    return redis_cluster_is_master(waiting->cluster, waiting->node);
}

void redis_cluster_wait_follower(struct redis_cluster *cluster, size_t node, size_t master) {
    struct waiting waiting = {cluster, node, master};
    wait_for(cluster, follows_at_last, &waiting, "to follow again");
    wait_for(cluster, is_known_to_follow, &waiting, "to know of a replica");
}

void redis_cluster_replicate(struct redis_cluster *cluster, size_t replica, size_t master) {
    const char *said = ask(cluster, replica, "CLUSTER", "REPLICATE", cluster->nodes[master].id);
    if (strcmp(said, "OK") != 0) fail_msg("REPLICATE: %s", said);
    redis_cluster_wait_follower(cluster, replica, master);
}

static void hand_over(struct redis_cluster *cluster, size_t from, size_t to) {
    for (size_t slot = 0; slot < CLUSTER_SLOTS; slot++)
        if (cluster->owners[slot] == from) cluster->owners[slot] = (uint8_t)to;
    redis_cluster_wait(cluster);
}

void redis_cluster_failover(struct redis_cluster *cluster, size_t replica) {
    struct waiting now = {cluster, replica, replica};
    redis_cluster_wait(cluster);
    const char *role = ask(cluster, replica, "ROLE", NULL, NULL); /* slave, host, port ... */
    const char *port = strchr(role, '\n') ? strchr(strchr(role, '\n') + 1, '\n') : NULL;
    struct waiting former = {cluster, 0, replica};
    while (port && former.node < cluster->count && port_of(cluster, former.node) != atoi(port + 1)) former.node++;
    if (!port || former.node == cluster->count) fail_msg("node %zu follows nobody", replica);
    const char *said = ask(cluster, replica, "CLUSTER", "FAILOVER", NULL);
    if (strcmp(said, "OK") != 0) fail_msg("FAILOVER: %s", said);
    wait_for(cluster, leads, &now, "to fail over");
    wait_for(cluster, follows_at_last, &former, "to follow the new master");
    wait_for(cluster, is_known_to_follow, &former, "to know of the failover");
    hand_over(cluster, former.node, replica);
}

void redis_cluster_wait_takeover(struct redis_cluster *cluster, size_t replica, size_t former) {
    struct waiting now = {cluster, replica, replica};
    wait_for(cluster, leads, &now, "to take over");
    hand_over(cluster, former, replica);
}
