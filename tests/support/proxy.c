/* proxy.c -- see proxy.h.
 *
 *   client --> in --whole request? plan--> to_server --> Redis --> back --whole reply? plan--> to_client --> client
 * Always true: `mutex` is held when anything but `url` and `wake` is used, and never while the thread waits. `expected`
 * has one entry for each request that went to the server and has no reply yet, the oldest first. */
#include "tests/support/proxy.h"
#include "tests/support/support.h"

#include "engine/base/key_slot.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PAIRS_MAX 64
#define EXPECTED_MAX 1024 /* calls that wait are pipelined */
#define DEPTH_MAX 8

struct bytes {
    char *data;
    size_t size, room;
};

struct plan {
    enum proxy_fault fault;
    size_t at;
    const char *text;
    size_t text_size;
    char serial[40];          /* of a call that waits: its number and nonce, ARGV[2] */
    uint32_t slot;            /* of the first key, for PROXY_REDIRECT */
    bool is_batch, is_hidden; /* hidden: the proxy's own request; its reply goes nowhere */
    bool is_late;
};

/* A client's connection, and the connection to Redis that serves it. */
struct pair {
    bool used;
    int client, server; /* -1: closed */
    bool deaf, mute;    /* deaf: takes nothing more from the client; mute: sends nothing more to it */
    bool ends;          /* the client's connection is closed as soon as to_client has been sent */
    bool faulty;        /* had a fault: its end is noted */
    struct bytes in, to_server, back, to_client, held;
    struct plan expected[EXPECTED_MAX];
    size_t expected_first, expected_count;
    size_t drip_ms; /* to_client is sent byte by byte */
    int64_t drip_at_ms;
};

struct proxy {
    pthread_mutex_t mutex;
    pthread_t thread;
    int listener, wake[2];
    bool stop, cut;
    char url[64], upstream[108];
    enum proxy_manner manner;
    struct test_prng prng;
    struct proxy_order order;
    bool has_order;
    uint32_t chances[PROXY_FAULTS];
    char from[200], to[200];
    char only[64];
    const char *map; /* NULL: CLUSTER SLOTS passes */
    size_t map_size;
    const char *const *redirects;
    size_t redirect_count;
    struct bytes faulted; /* the last batch that had a fault, from its number of keys on */
    struct pair pairs[PAIRS_MAX];
    struct proxy_seen seen;
};

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Adds a NUL after the bytes, because they are searched for words. */
static void bytes_add(struct bytes *bytes, const char *data, size_t size) {
    if (bytes->size + size >= bytes->room) {
        bytes->room = 2 * (bytes->size + size) + 1;
        bytes->data = realloc(bytes->data, bytes->room);
        if (bytes->data == NULL) abort(); /* a test without memory cannot continue */
    }
    if (size > 0) memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    bytes->data[bytes->size] = '\0';
}

static void bytes_skip(struct bytes *bytes, size_t size) {
    bytes->size -= size;
    memmove(bytes->data, bytes->data + size, bytes->size);
    if (bytes->data != NULL) bytes->data[bytes->size] = '\0';
}

static void bytes_free(struct bytes *bytes) {
    free(bytes->data);
    *bytes = (struct bytes){0};
}

/* Where the line at `at` ends, with its \r\n; 0: it is not complete. */
static size_t line_end(const char *data, size_t size, size_t at) {
    const char *end = at < size ? memchr(data + at, '\n', size - at) : NULL;
    return end != NULL ? (size_t)(end - data) + 1 : 0;
}

/* The number in a complete line that begins at `at`, after one letter. The bytes end with the line, not with a NUL. */
static long line_number(const char *data, size_t at) {
    long number = 0;
    bool negative = data[at + 1] == '-';
    for (size_t i = at + (negative ? 2 : 1); data[i] >= '0' && data[i] <= '9'; i++)
        number = number * 10 + (data[i] - '0');
    return negative ? -number : number;
}

/* Where the value at `at` ends; 0: it is not complete. Requests and replies have the same form. */
static size_t value_end(const char *data, size_t size, size_t at, int depth) {
    size_t end = line_end(data, size, at);
    if (end == 0 || depth > DEPTH_MAX) return 0;
    long count = data[at] == '$' || data[at] == '*' ? line_number(data, at) : -1;
    if (count < 0) return end;
    if (data[at] == '$') return end + (size_t)count + 2 <= size ? end + (size_t)count + 2 : 0;
    for (long index = 0; index < count && end != 0; index++) end = value_end(data, size, end, depth + 1);
    return end;
}

/* The word with this index in a request: its text, and where it begins with its `$`. */
static const char *word_of(const char *data, size_t size, size_t index, size_t *length, size_t *begins) {
    size_t at = line_end(data, size, 0);
    for (size_t i = 0; i < index; i++) at = value_end(data, size, at, 0);
    *begins = at;
    *length = (size_t)line_number(data, at);
    return data + line_end(data, size, at);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void close_client(struct proxy *proxy, struct pair *pair, bool reset) {
    if (pair->client < 0) return;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (reset) setsockopt(pair->client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(pair->client);
    pair->client = -1;
    if (pair->faulty) proxy->seen.ended_ms = test_mono_ms();
}

static void close_server(struct pair *pair) {
    if (pair->server >= 0) close(pair->server);
    pair->server = -1;
}

static void pair_free(struct proxy *proxy, struct pair *pair) {
    close_client(proxy, pair, false);
    close_server(pair);
    bytes_free(&pair->in), bytes_free(&pair->to_server), bytes_free(&pair->back), bytes_free(&pair->to_client);
    bytes_free(&pair->held);
    *pair = (struct pair){.client = -1, .server = -1};
}

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static struct plan plan_next(struct proxy *proxy) {
    struct proxy_order *order = &proxy->order;
    struct plan plan = {.is_batch = true};
    if (proxy->has_order) {
        if (order->skip > 0) {
            order->skip--;
            return plan;
        }
        plan.fault = order->fault, plan.at = order->at, plan.text = order->text;
        plan.text_size = order->text_size > 0 || order->text == NULL ? order->text_size : strlen(order->text);
        proxy->has_order = order->times > 1;
        if (order->times > 0) order->times--;
        return plan;
    }
    for (int fault = 1; fault < PROXY_FAULTS; fault++) {
        if (proxy->chances[fault] == 0 || !test_prng_chance(&proxy->prng, proxy->chances[fault], 10000)) continue;
        plan.fault = (enum proxy_fault)fault;
        plan.at = test_prng_below(&proxy->prng, 200);
        break;
    }
    return plan;
}

static void expect(struct pair *pair, const struct plan *plan) {
    if (pair->expected_count == EXPECTED_MAX) abort(); /* clients pipeline fewer */
    pair->expected[(pair->expected_first + pair->expected_count++) % EXPECTED_MAX] = *plan;
}

static void note_fault(struct proxy *proxy, struct pair *pair, enum proxy_fault fault) {
    proxy->seen.happened[fault]++;
    proxy->seen.fault_ms = test_mono_ms();
    pair->faulty = true;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Replaces the ledger's name of this request in place: both names have the same length. */
static void impersonate(struct proxy *proxy, char *data, size_t size) {
    size_t length = strlen(proxy->from);
    char *found = length > 0 ? memmem(data, size, proxy->from, length) : NULL;
    if (found != NULL) memcpy(found, proxy->to, length);
}

static void look_at_batch(struct proxy *proxy, const char *data, size_t size, const struct plan *plan) {
    size_t length, begins, keys_at;
    const char *word = word_of(data, size, 0, &length, &begins);
    proxy->seen.requests++;
    if (length == 4) proxy->seen.evals++;
    (void)word_of(data, size, 2, &length, &keys_at);
    if (proxy->faulted.size == size - keys_at && memcmp(proxy->faulted.data, data + keys_at, size - keys_at) == 0)
        proxy->seen.same_again++;
    if (plan->fault != PROXY_PASS) {
        proxy->faulted.size = 0;
        bytes_add(&proxy->faulted, data + keys_at, size - keys_at);
    }
    proxy->seen.request_bytes = size;
    word = word_of(data, size, 3, &length, &begins);
    snprintf(proxy->seen.ledger, sizeof proxy->seen.ledger, "%.*s", (int)length, word);
}

static void forward(struct pair *pair, const char *data, size_t size, const struct plan *plan) {
    bytes_add(&pair->to_server, data, size);
    expect(pair, plan);
}

/* The request is not executed. PING takes its place, so that replies keep their order. */
static void answer_here(struct pair *pair, const struct plan *plan) {
    bytes_add(&pair->to_server, "PING\r\n", 6);
    expect(pair, plan);
}

static void choose_redirect(struct proxy *proxy, const char *data, size_t size, struct plan *plan) {
    size_t length, begins;
    const char *word = word_of(data, size, 3, &length, &begins);
    plan->slot = twi_key_slot_of(word, length);
    if (plan->text == NULL && proxy->redirect_count == 0) abort(); /* a mistake of the test */
    if (plan->text == NULL) plan->text = proxy->redirects[test_prng_below(&proxy->prng, proxy->redirect_count)];
}

/* After the keys, and the name of who calls. A batch has something else there. */
static void note_serial(const char *data, size_t size, struct plan *plan) {
    size_t length, begins, keys = 0, count = (size_t)line_number(data, 0);
    const char *word = word_of(data, size, 2, &length, &begins);
    for (size_t i = 0; i < length && i < 3; i++) keys = keys * 10 + (size_t)(word[i] - '0');
    if (3 + keys + 1 >= count) return;
    word = word_of(data, size, 3 + keys + 1, &length, &begins);
    if (length < sizeof plan->serial) snprintf(plan->serial, sizeof plan->serial, "%.*s", (int)length, word);
}

static void take_batch(struct proxy *proxy, struct pair *pair, char *data, size_t size) {
    struct plan plan = plan_next(proxy);
    note_serial(data, size, &plan);
    static const struct plan hidden = {.is_hidden = true};
    impersonate(proxy, data, size);
    look_at_batch(proxy, data, size, &plan);
    if (plan.fault != PROXY_PASS) note_fault(proxy, pair, plan.fault);
    switch (plan.fault) {
    case PROXY_DROP_REQUEST:
        pair->deaf = pair->mute = true;
        close_client(proxy, pair, false);
        break;
    case PROXY_LOSE_REQUEST: pair->deaf = pair->mute = true; break;
    case PROXY_CUT_REQUEST:
        bytes_add(&pair->to_server, data, plan.at < size ? plan.at : size);
        pair->deaf = pair->mute = true;
        close_client(proxy, pair, false);
        break;
    case PROXY_HOLD:
        pair->deaf = pair->mute = true;
        bytes_add(&pair->held, data, size);
        close_client(proxy, pair, false);
        break;
    case PROXY_RUN_FIRST:
        bytes_add(&pair->to_server, plan.text, plan.text_size);
        bytes_add(&pair->to_server, "\r\n", 2);
        expect(pair, &hidden);
        forward(pair, data, size, &plan);
        break;
    case PROXY_REDIRECT:
        choose_redirect(proxy, data, size, &plan);
        answer_here(pair, &plan);
        break;
    case PROXY_ANSWER: answer_here(pair, &plan); break;
    default: forward(pair, data, size, &plan); break;
    }
}

/* One key, tw:live. */
static bool is_the_registry(const char *data, size_t size) {
    size_t length, begins;
    const char *word = word_of(data, size, 2, &length, &begins);
    return length == 1 && word[0] == '1' && memmem(data, size, "tw:live", 7) != NULL;
}

static bool asks_for_the_map(const char *data, size_t size) {
    static const char request[] = "*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n";
    return size == sizeof request - 1 && memcmp(data, request, size) == 0;
}

static void take_map_request(struct proxy *proxy, struct pair *pair, const char *data, size_t size) {
    struct plan plan = {.fault = PROXY_ANSWER, .text = proxy->map, .text_size = proxy->map_size};
    static const struct plan plain = {0};
    proxy->seen.maps++;
    if (proxy->map != NULL)
        answer_here(pair, &plan);
    else
        forward(pair, data, size, &plain);
}

static void take_requests(struct proxy *proxy, struct pair *pair) {
    for (size_t size; !pair->deaf && (size = value_end(pair->in.data, pair->in.size, 0, 0)) > 0;) {
        size_t length, begins;
        const char *word = word_of(pair->in.data, size, 0, &length, &begins);
        static const struct plan plain = {0};
        bool only_others =
            proxy->only[0] != '\0' && memmem(pair->in.data, size, proxy->only, strlen(proxy->only)) == NULL;
        if (asks_for_the_map(pair->in.data, size))
            take_map_request(proxy, pair, pair->in.data, size);
        else if (length >= 4 && memcmp(word, "EVAL", 4) == 0 && !only_others &&
                 (proxy->only[0] != '\0' || !is_the_registry(pair->in.data, size)))
            take_batch(proxy, pair, pair->in.data, size);
        else
            forward(pair, pair->in.data, size, &plain);
        bytes_skip(&pair->in, size);
    }
    if (pair->deaf) pair->in.size = 0;
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

/* A batch was answered: now the requests held back on dead connections are executed. */
static void release_held(struct proxy *proxy) {
    static const struct plan late = {.is_late = true};
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        struct pair *pair = &proxy->pairs[i];
        if (!pair->used || pair->held.size == 0) continue;
        forward(pair, pair->held.data, pair->held.size, &late);
        pair->held.size = 0;
    }
}

/* The reply's first word: *8 $2 OK. */
static void note_late(struct proxy *proxy, struct pair *pair, const char *data, size_t size) {
    size_t length, begins;
    const char *word = data[0] == '*' ? word_of(data, size, 0, &length, &begins) : data + 1;
    if (data[0] == '*' && data[begins] != '$') word = data + begins + 1; /* a status */
    proxy->seen.late++;
    snprintf(proxy->seen.late_answer, sizeof proxy->seen.late_answer, "%.*s", (int)strcspn(word, " \r\n"), word);
    close_server(pair);
}

static void end_mute(struct pair *pair) {
    pair->mute = pair->ends = true;
}

static void give_redirect(struct pair *pair, const struct plan *plan) {
    char text[256];
    const char *at = strstr(plan->text, "%u");
    if (at != NULL)
        snprintf(text, sizeof text, "-%.*s%u%s\r\n", (int)(at - plan->text), plan->text, plan->slot, at + 2);
    else
        snprintf(text, sizeof text, "-%s\r\n", plan->text);
    bytes_add(&pair->to_client, text, strlen(text));
}

static void give_text(struct pair *pair, const struct plan *plan) {
    const char *at = plan->text, *end = at + plan->text_size, *mark;
    char serial[64];
    int length = snprintf(serial, sizeof serial, "$%zu\r\n%s\r\n", strlen(plan->serial), plan->serial);
    for (; (mark = memchr(at, PROXY_SERIAL[0], (size_t)(end - at))) != NULL; at = mark + 1) {
        bytes_add(&pair->to_client, at, (size_t)(mark - at));
        bytes_add(&pair->to_client, serial, (size_t)length);
    }
    bytes_add(&pair->to_client, at, (size_t)(end - at));
}

static void give_reply(struct proxy *proxy, struct pair *pair, const char *data, size_t size, const struct plan *plan) {
    if (plan->is_batch) {
        proxy->seen.replies++;
        proxy->seen.reply_bytes = size;
    }
    if (pair->mute) return;
    switch (plan->fault) {
    case PROXY_DROP_REPLY: end_mute(pair); break;
    case PROXY_LOSE_REPLY: pair->mute = true; break;
    case PROXY_CUT_REPLY:
        bytes_add(&pair->to_client, data, plan->at < size ? plan->at : size);
        end_mute(pair);
        break;
    case PROXY_DRIP:
        bytes_add(&pair->to_client, data, size);
        pair->drip_ms = plan->at;
        break;
    case PROXY_GARBAGE:
        bytes_add(&pair->to_client, plan->text, plan->text_size);
        pair->mute = true;
        break;
    case PROXY_ANSWER: give_text(pair, plan); break;
    case PROXY_REDIRECT: give_redirect(pair, plan); break;
    case PROXY_RESET:
        pair->mute = true;
        close_client(proxy, pair, true);
        break;
    default:
        bytes_add(&pair->to_client, data, size);
        if (plan->fault == PROXY_TWICE) bytes_add(&pair->to_client, data, size);
        if (plan->is_batch) release_held(proxy);
    }
}

static void take_replies(struct proxy *proxy, struct pair *pair) {
    for (size_t size; pair->server >= 0 && (size = value_end(pair->back.data, pair->back.size, 0, 0)) > 0;) {
        struct plan plan = {0};
        if (pair->expected_count > 0) {
            plan = pair->expected[pair->expected_first];
            pair->expected_first = (pair->expected_first + 1) % EXPECTED_MAX;
            pair->expected_count--;
        }
        if (plan.is_late)
            note_late(proxy, pair, pair->back.data, size);
        else if (!plan.is_hidden)
            give_reply(proxy, pair, pair->back.data, size, &plan);
        bytes_skip(&pair->back, size);
    }
}

/* ---- sockets ----------------------------------------------------------------------------------------------------- */

static bool would_wait(void) {
    return errno == EAGAIN || errno == EINTR;
}

/* Reads what has arrived. Returns false if the other side has closed. */
static bool fill(int fd, struct bytes *bytes) {
    char chunk[65536];
    ssize_t got;
    while ((got = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT)) > 0) bytes_add(bytes, chunk, (size_t)got);
    return got < 0 && would_wait();
}

static bool drain(int fd, struct bytes *bytes, size_t size_max) {
    while (bytes->size > 0 && size_max > 0) {
        size_t wanted = bytes->size < size_max ? bytes->size : size_max;
        ssize_t sent = send(fd, bytes->data, wanted, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) return would_wait();
        bytes_skip(bytes, (size_t)sent);
        size_max -= (size_t)sent;
    }
    return true;
}

static int dial(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static void take_connection(struct proxy *proxy) {
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC), on = 1;
    if (client < 0) return;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    proxy->seen.connections++;
    struct pair *pair = proxy->pairs;
    while (pair < proxy->pairs + PAIRS_MAX && pair->used) pair++;
    struct pair none = {.client = client};
    if (proxy->manner == PROXY_REFUSE || pair == proxy->pairs + PAIRS_MAX) {
        close_client(proxy, &none, true);
        return;
    }
    *pair = (struct pair){.used = true, .client = client, .server = -1};
    if (proxy->manner == PROXY_SILENT) {
        pair->deaf = pair->mute = true;
        return;
    }
    pair->server = dial(proxy->upstream);
    if (pair->server < 0) close_client(proxy, pair, true); /* like a port where no process listens */
}

static void drip(struct proxy *proxy, struct pair *pair) {
    if (pair->drip_ms == 0) {
        if (!drain(pair->client, &pair->to_client, SIZE_MAX)) close_client(proxy, pair, false);
        return;
    }
    int64_t now_ms = test_mono_ms();
    if (now_ms < pair->drip_at_ms) return;
    pair->drip_at_ms = now_ms + (int64_t)pair->drip_ms;
    if (!drain(pair->client, &pair->to_client, 1)) close_client(proxy, pair, false);
}

static void serve(struct proxy *proxy, struct pair *pair) {
    if (pair->client >= 0 && !fill(pair->client, &pair->in)) {
        take_requests(proxy, pair); /* what a client sent before it hung up still arrives */
        close_client(proxy, pair, false);
    }
    take_requests(proxy, pair);
    bool server_ends = false;
    if (pair->server >= 0) {
        server_ends = !drain(pair->server, &pair->to_server, SIZE_MAX);
        if (!fill(pair->server, &pair->back)) server_ends = true;
        take_replies(proxy, pair);
    }
    if (pair->client >= 0) drip(proxy, pair);
    if (server_ends) close_server(pair);
    if (pair->client >= 0 && pair->to_client.size == 0 && (pair->ends || (server_ends && !pair->mute)))
        close_client(proxy, pair, false);
    bool owes = pair->server >= 0 && (pair->held.size > 0 || pair->expected_count > 0 || pair->to_server.size > 0);
    if (pair->client < 0 && !owes) pair_free(proxy, pair);
}

static int gather(struct proxy *proxy, struct pollfd *fds, int *timeout_ms) {
    int count = 0;
    fds[count++] = (struct pollfd){.fd = proxy->wake[0], .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        struct pair *pair = &proxy->pairs[i];
        if (!pair->used) continue;
        short client = (short)(POLLIN | (pair->to_client.size > 0 && pair->drip_ms == 0 ? POLLOUT : 0));
        short server = (short)(POLLIN | (pair->to_server.size > 0 ? POLLOUT : 0));
        if (pair->drip_ms > 0) *timeout_ms = 1;
        if (pair->client >= 0) fds[count++] = (struct pollfd){.fd = pair->client, .events = client};
        if (pair->server >= 0) fds[count++] = (struct pollfd){.fd = pair->server, .events = server};
    }
    return count;
}

static void *run(void *argument) {
    struct proxy *proxy = argument;
    struct pollfd fds[2 + 2 * PAIRS_MAX];
    char ignored[64];
    pthread_mutex_lock(&proxy->mutex);
    while (!proxy->stop) {
        int timeout_ms = 1000, count = gather(proxy, fds, &timeout_ms);
        pthread_mutex_unlock(&proxy->mutex);
        (void)poll(fds, (nfds_t)count, timeout_ms);
        pthread_mutex_lock(&proxy->mutex);
        while (read(proxy->wake[0], ignored, sizeof ignored) > 0) continue;
        for (size_t i = 0; i < PAIRS_MAX; i++) {
            if (!proxy->pairs[i].used) continue;
            if (proxy->cut)
                pair_free(proxy, &proxy->pairs[i]);
            else
                serve(proxy, &proxy->pairs[i]);
        }
        proxy->cut = false;
        if (fds[1].revents) take_connection(proxy);
    }
    pthread_mutex_unlock(&proxy->mutex);
    return NULL;
}

/* ---- life and orders --------------------------------------------------------------------------------------------- */

static int listen_somewhere(struct proxy *proxy) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        fail_msg("no port for the proxy: %s", strerror(errno));
    snprintf(proxy->url, sizeof proxy->url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    return fd;
}

struct proxy *proxy_start(const struct redis_server *server, uint64_t seed) {
    struct proxy *proxy = calloc(1, sizeof *proxy);
    if (proxy == NULL || pipe2(proxy->wake, O_CLOEXEC | O_NONBLOCK) != 0) fail_msg("no proxy: %s", strerror(errno));
    pthread_mutex_init(&proxy->mutex, NULL);
    test_prng_seed(&proxy->prng, seed);
    snprintf(proxy->upstream, sizeof proxy->upstream, "%s", server->socket);
    proxy->listener = listen_somewhere(proxy);
    assert_int_equal(pthread_create(&proxy->thread, NULL, run, proxy), 0);
    return proxy;
}

static void lock(struct proxy *proxy) {
    pthread_mutex_lock(&proxy->mutex);
}

static void unlock(struct proxy *proxy) {
    (void)!write(proxy->wake[1], "", 1); /* a full pipe wakes as well */
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_stop(struct proxy *proxy) {
    lock(proxy);
    proxy->stop = true;
    unlock(proxy);
    pthread_join(proxy->thread, NULL);
    for (size_t i = 0; i < PAIRS_MAX; i++)
        if (proxy->pairs[i].used) pair_free(proxy, &proxy->pairs[i]);
    bytes_free(&proxy->faulted);
    close(proxy->listener), close(proxy->wake[0]), close(proxy->wake[1]);
    pthread_mutex_destroy(&proxy->mutex);
    free(proxy);
}

const char *proxy_url(const struct proxy *proxy) {
    return proxy->url;
}

void proxy_order(struct proxy *proxy, const struct proxy_order *order) {
    lock(proxy);
    proxy->order = *order;
    proxy->has_order = order->fault != PROXY_PASS;
    unlock(proxy);
}

void proxy_chance(struct proxy *proxy, enum proxy_fault fault, uint32_t of_10000) {
    lock(proxy);
    proxy->chances[fault] = of_10000;
    unlock(proxy);
}

void proxy_manner(struct proxy *proxy, enum proxy_manner manner) {
    lock(proxy);
    proxy->manner = manner;
    unlock(proxy);
}

void proxy_lead_to(struct proxy *proxy, const struct redis_server *server) {
    lock(proxy);
    snprintf(proxy->upstream, sizeof proxy->upstream, "%s", server->socket);
    unlock(proxy);
}

void proxy_only(struct proxy *proxy, const char *text) {
    lock(proxy);
    snprintf(proxy->only, sizeof proxy->only, "%s", text != NULL ? text : "");
    unlock(proxy);
}

void proxy_cut_all(struct proxy *proxy) {
    lock(proxy);
    proxy->cut = true; /* the thread closes them itself. It may be waiting on them */
    unlock(proxy);
    for (bool is_done = false; !is_done;) {
        test_sleep_ms(1);
        pthread_mutex_lock(&proxy->mutex);
        is_done = !proxy->cut;
        pthread_mutex_unlock(&proxy->mutex);
    }
}

void proxy_say(struct proxy *proxy, const char *text) {
    lock(proxy);
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        struct pair *pair = &proxy->pairs[i];
        if (!pair->used || pair->client < 0) continue;
        bytes_add(&pair->to_client, text, strlen(text));
        pair->faulty = true;
        proxy->seen.fault_ms = test_mono_ms();
    }
    unlock(proxy);
}

void proxy_impersonate(struct proxy *proxy, const char *from, const char *to) {
    lock(proxy);
    snprintf(proxy->from, sizeof proxy->from, "%s", from != NULL ? from : "");
    snprintf(proxy->to, sizeof proxy->to, "%s", to != NULL ? to : "");
    unlock(proxy);
}

void proxy_map(struct proxy *proxy, const char *reply, size_t size) {
    lock(proxy);
    proxy->map = reply;
    proxy->map_size = size;
    unlock(proxy);
}

void proxy_redirects(struct proxy *proxy, const char *const *texts, size_t count) {
    lock(proxy);
    proxy->redirects = texts;
    proxy->redirect_count = count;
    unlock(proxy);
}

struct proxy_seen proxy_look(struct proxy *proxy) {
    lock(proxy);
    struct proxy_seen seen = proxy->seen;
    unlock(proxy);
    return seen;
}
