/* theirs.c -- what is done elsewhere to keep one limit on many nodes, each as small a model as is fair.
 *
 *   cleared on error   a delta counted here, sent with INCRBY at each interval, and dropped when a flush fails
 *   sent again         the same, but the delta is kept and sent once more: it counts twice if only the reply was lost
 *   interval sync      the same with a correct merge: each node sends its sum, so sending it again changes nothing
 *   fixed share        limit / nodes for each, for good; no requests to Redis
 *   batches            so many units at a time are taken from Redis, never beyond the limit, and none is given back
 * The first three decide on the last total in a reply and on what they counted since; without a reply, a key is at
 * 0. Always true: one command is under way at a time, on one connection. A command without a reply for TIMEOUT_MS,
 * or whose connection breaks, has failed. */
#include "bench/rivals/rivals.h"

#include <inttypes.h>

#define TIMEOUT_MS 350
#define BATCHES_OF_LIMIT 1000 /* a batch is the limit divided by this */

enum on_error { CLEARS, SENDS_AGAIN, SAYS_ITS_SUM };

struct client {
    bool is_up;
    bool is_waiting; /* for a reply */
    int64_t since_ms;
    char in[32];
    size_t in_size;
    int64_t next_ms;
    /* schemes that count */
    int64_t total;  /* by the last reply */
    int64_t unsent; /* counted here, in no flush */
    int64_t sent;   /* in the flush that is under way */
    int64_t sum;    /* all that was ever counted here */
    /* schemes that hold units */
    int64_t units;
    bool is_sold_out;
};
static struct client clients[RIVALS_NODES];

enum reply { REPLY_NONE, REPLY_HERE, REPLY_FAILED };

/* ---- one command at a time ---- */

static struct world_node *node_of(int node) {
    return &rivals.world.nodes[node];
}

static void hang_up(int node) {
    struct client *client = &clients[node];
    world_transport.close(node_of(node));
    client->is_up = client->is_waiting = false;
    client->in_size = 0;
}

/* 1: connected; 0: not yet; -1: refused. */
static int connect_to(int node) {
    struct client *client = &clients[node];
    if (client->is_up) return 1;
    int answer = world_transport.connect(node_of(node), NULL, rivals.world.now_ms, INT64_MAX);
    if (answer < 0) hang_up(node);
    client->is_up = answer > 0;
    return answer;
}

static bool send_all(int node, const char *text) {
    struct client *client = &clients[node];
    for (size_t size = strlen(text), at = 0; at < size;) {
        ssize_t taken = world_transport.send(node_of(node), text + at, size - at);
        if (taken < 0) return false;
        at += (size_t)taken;
    }
    client->is_waiting = true;
    client->since_ms = rivals.world.now_ms;
    return true;
}

static void add_word(char *out, size_t room, const char *word) {
    size_t size = strlen(out);
    snprintf(out + size, room - size, "$%zu\r\n%s\r\n", strlen(word), word);
}

static bool command(int node, const char *verb, const int64_t *numbers, int count) {
    char text[160], number[24];
    snprintf(text, sizeof text, "*%d\r\n", 2 + count);
    add_word(text, sizeof text, verb);
    add_word(text, sizeof text, RIVALS_KEY);
    for (int i = 0; i < count; i++) {
        snprintf(number, sizeof number, "%" PRId64, numbers[i]);
        add_word(text, sizeof text, number);
    }
    return send_all(node, text);
}

static enum reply receive(int node, int64_t *value) {
    struct client *client = &clients[node];
    for (;;) {
        ssize_t size =
            world_transport.recv(node_of(node), client->in + client->in_size, sizeof client->in - 1 - client->in_size);
        if (size < 0) return REPLY_FAILED;
        if (size == 0) break;
        client->in_size += (size_t)size;
        client->in[client->in_size] = '\0';
        if (client->in[client->in_size - 1] != '\n') continue;
        *value = strtoll(client->in + 1, NULL, 10); /* ":123\r\n": every reply is a number */
        client->in_size = 0;
        client->is_waiting = false;
        return REPLY_HERE;
    }
    return rivals.world.now_ms - client->since_ms > TIMEOUT_MS ? REPLY_FAILED : REPLY_NONE;
}

/* ---- schemes that count and flush -------------------------------------------------------------------------------- */

static void client_open(int node) {
    clients[node] = (struct client){.next_ms = rivals.world.now_ms + node * 37 % RIVALS_INTERVAL_MS};
}

static bool count_acquire(int node) {
    struct client *client = &clients[node];
    if (client->total + client->sent + client->unsent + 1 > rivals.at->limit) return false;
    client->unsent++;
    client->sum++;
    return true;
}

static void failed(int node, enum on_error on_error) {
    struct client *client = &clients[node];
    hang_up(node);
    if (on_error == CLEARS)
        client->unsent = 0; /* what came while the flush was under way is dropped, too */
    else
        client->unsent += client->sent;
    client->sent = 0;
    client->next_ms = rivals.world.now_ms + RIVALS_INTERVAL_MS;
}

static void flush(int node, enum on_error on_error) {
    struct client *client = &clients[node];
    int up = connect_to(node);
    if (up == 0) return;
    client->next_ms = rivals.world.now_ms + RIVALS_INTERVAL_MS;
    client->sent = client->unsent;
    client->unsent = 0;
    const int64_t says[] = {node, client->sum};
    bool ok = up > 0 &&
              (on_error == SAYS_ITS_SUM ? command(node, "PART", says, 2) : command(node, "INCRBY", &client->sent, 1));
    if (!ok) failed(node, on_error);
}

static void count_turn(int node, enum on_error on_error) {
    struct client *client = &clients[node];
    int64_t total = 0;
    if (!client->is_waiting) {
        if (client->unsent != 0 && rivals.world.now_ms >= client->next_ms) flush(node, on_error);
        return;
    }
    enum reply reply = receive(node, &total);
    if (reply == REPLY_FAILED) failed(node, on_error);
    if (reply != REPLY_HERE) return;
    client->total = total;
    client->sent = 0;
}

static void turn_clears(int node, int64_t waiting) {
    (void)waiting;
    count_turn(node, CLEARS);
}
static void turn_sends_again(int node, int64_t waiting) {
    (void)waiting;
    count_turn(node, SENDS_AGAIN);
}
static void turn_says_its_sum(int node, int64_t waiting) {
    (void)waiting;
    count_turn(node, SAYS_ITS_SUM);
}

static bool count_is_settled(int node) {
    return !clients[node].is_waiting && clients[node].unsent == 0;
}

/* ---- schemes that hold units ------------------------------------------------------------------------------------- */

static bool spend(int node) {
    if (clients[node].units == 0) return false;
    clients[node].units--;
    return true;
}

static void share_open(int node) {
    int64_t limit = rivals.at->limit, nodes = rivals.nodes;
    client_open(node);
    clients[node].units = limit / nodes + (node < limit % nodes);
}

static void share_turn(int node, int64_t waiting) {
    (void)node, (void)waiting;
}

/* Draws as much as the waiting calls need, but at least a batch. */
static void draw(int node, int64_t waiting) {
    struct client *client = &clients[node];
    int64_t batch = rivals.at->limit / BATCHES_OF_LIMIT;
    if (batch < 1) batch = 1;
    int up = connect_to(node);
    if (up == 0) return;
    const int64_t takes[] = {waiting > batch ? waiting : batch, rivals.at->limit};
    if (up < 0 || !command(node, "TAKE", takes, 2)) {
        hang_up(node);
        client->next_ms = rivals.world.now_ms + RIVALS_INTERVAL_MS;
    }
}

static void batch_turn(int node, int64_t waiting) {
    struct client *client = &clients[node];
    int64_t given = 0;
    if (!client->is_waiting) {
        bool wants = client->units == 0 && waiting > 0 && !client->is_sold_out;
        if (wants && rivals.world.now_ms >= client->next_ms) draw(node, waiting);
        return;
    }
    enum reply reply = receive(node, &given);
    if (reply == REPLY_FAILED) hang_up(node); /* units that were granted are lost */
    if (reply != REPLY_HERE) return;
    client->units += given;
    client->is_sold_out = given == 0;
}

static bool is_quiet(int node) {
    return !clients[node].is_waiting;
}

static void client_close(int node) {
    hang_up(node);
}

static int64_t in_redis(void) {
    const struct model_key *key = redis_model_find(&rivals.world.redis, RIVALS_KEY);
    return key ? key->value : 0;
}

const struct rivals_scheme rivals_theirs[THEIRS] = {
    {"deltas cleared on error", client_open, count_acquire, turn_clears, count_is_settled, in_redis, client_close},
    {"deltas sent again on error", client_open, count_acquire, turn_sends_again, count_is_settled, in_redis,
     client_close},
    {"interval sync that counts right", client_open, count_acquire, turn_says_its_sum, count_is_settled, in_redis,
     client_close},
    {"fixed share of the limit", share_open, spend, share_turn, is_quiet, NULL, client_close},
    {"batches, not given back", client_open, spend, batch_turn, is_quiet, in_redis, client_close},
};
