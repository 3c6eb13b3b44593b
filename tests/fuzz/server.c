/* server.c -- any bytes as all that Redis says while an engine lives: its replies to every kind of message and call,
 * over all connections, in the order in which they are read. Nothing crashes, each call that was started is answered
 * once, what was added stays counted, and what Redis says puts no control character into a log line.
 * The input is pieces, each up to a byte 0xff; an empty one closes the connection. The first one is the time of the
 * clock (Unix time in ms). A connection that has sent something reads the next piece. The engine draws its random
 * numbers from a fixed seed, so what a real Redis has said once fits again: TW_RECORD=SOCKET fuzz_server FILE writes
 * that into FILE (the server's password is open-sesame).
 * Always true: the input decides everything; nothing waits. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "engine/port/driver.h"
#include "sync/wire/socket.h"

int LLVMFuzzerInitialize(int *count, char ***words);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PIECE_END 0xff
#define STEPS 50
#define STEP_MS 30
#define REQUESTS 64

static int64_t clock_ms, clock_start_ms;
static const uint8_t *said, *said_end; /* what Redis has not said yet */
static const char *record_socket;
static FILE *record;

/* ---- the server ---- */

struct link {
    bool has_asked, is_closed;
    int fd; /* of a real Redis, whose words are recorded */
    const uint8_t *piece;
    size_t piece_size;
};

static int link_connect(void *ctx, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms) {
    (void)endpoint, (void)now_ms, (void)deadline_ms;
    struct link *link = ctx;
    if (record == NULL) {
        *link = (struct link){.fd = -1};
        return 1;
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", record_socket);
    *link = (struct link){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    return connect(link->fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 1 : -1;
}

static ssize_t link_send(void *ctx, const void *data, size_t size) {
    struct link *link = ctx;
    if (link->is_closed) return -1;
    link->has_asked = true;
    return record != NULL ? send(link->fd, data, size, MSG_NOSIGNAL) : (ssize_t)size;
}

/* What a real Redis says within some ms. */
static ssize_t link_record(struct link *link, uint8_t *data, size_t size) {
    struct pollfd there = {.fd = link->fd, .events = POLLIN};
    if (poll(&there, 1, link->has_asked ? 5 : 0) <= 0) return 0;
    ssize_t got = recv(link->fd, data, size, 0);
    if (got <= 0) return -1;
    for (ssize_t i = 0; i < got; i++)
        if (data[i] == PIECE_END) data[i] = PIECE_END - 1;
    fwrite(data, 1, (size_t)got, record);
    fputc(PIECE_END, record);
    link->has_asked = false;
    return got;
}

static void link_next_piece(struct link *link) {
    const uint8_t *end = said < said_end ? memchr(said, PIECE_END, (size_t)(said_end - said)) : NULL;
    if (!link->has_asked || end == NULL) return;
    link->piece = said;
    link->piece_size = (size_t)(end - said);
    link->is_closed = link->piece_size == 0;
    link->has_asked = false;
    said = end + 1;
}

static ssize_t link_recv(void *ctx, void *data, size_t size) {
    struct link *link = ctx;
    if (record != NULL) return link_record(link, data, size);
    if (link->piece_size == 0) link_next_piece(link);
    if (link->is_closed) return -1;
    size_t taken = link->piece_size < size ? link->piece_size : size;
    if (taken == 0) return 0;
    memcpy(data, link->piece, taken);
    link->piece += taken;
    link->piece_size -= taken;
    return (ssize_t)taken;
}

static void link_close(void *ctx) {
    struct link *link = ctx;
    if (link->fd > 0) close(link->fd);
    *link = (struct link){.fd = -1, .is_closed = true};
}

static int link_fd(void *ctx, bool *wants_write) {
    (void)ctx;
    *wants_write = false;
    return -1;
}

static const char *link_why(void *ctx) {
    (void)ctx;
    return "closed by the input";
}

static void *link_create(void *shared, int set) {
    (void)shared, (void)set;
    struct link *link = calloc(1, sizeof *link);
    if (link != NULL) link->fd = -1;
    return link;
}

static void link_destroy(void *ctx) {
    if (ctx != NULL) link_close(ctx);
    free(ctx);
}

static const struct twi_transport transport = {.connect = link_connect,
                                               .send = link_send,
                                               .recv = link_recv,
                                               .close = link_close,
                                               .fd = link_fd,
                                               .why = link_why,
                                               .create = link_create,
                                               .destroy = link_destroy,
                                               .abandon = link_destroy};

/* ---- the program ---- */

enum { PLAIN, WINDOWS, HARD, SOFT, STRICT, BUCKET, UNIQUE, LEVEL, FIELDS, RANKS, FAMILIES };
static tw_engine *engine;
static tw_family *families[FAMILIES];
static tw_request requests[REQUESTS];
static bool is_under_way[REQUESTS];
static int64_t totals[2];

static int64_t clock_now_ns(void *ctx, int kind) {
    (void)ctx;
    return (kind == TW_CLOCK_WALL ? clock_ms : clock_ms - clock_start_ms + 1000000) * 1000000;
}

static void log_line(void *ctx, int level, int event, const char *text) {
    (void)ctx, (void)level, (void)event;
    for (const char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 127) abort();
}

static bool on_closed(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)flags;
    if (start_ms >= end_ms) abort();
    return true;
}

static bool visit(void *ctx, tw_key name, int64_t total) {
    (void)ctx;
    if (name.size > TW_KEY_SIZE_MAX || total > TW_COUNT_MAX || total < -TW_COUNT_MAX) abort();
    return true;
}

static void on_done(tw_request *request) {
    size_t i = (size_t)(request - requests);
    if (!is_under_way[i] || request->status == TW_STARTED) abort();
    is_under_way[i] = false;
}

static void open_family(int which, const char *name, uint32_t window, uint32_t mode, uint32_t shape) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window;
    options.window_ms = window == TW_WINDOW_FOREVER ? 0 : TW_SECOND;
    options.limit_mode = mode;
    options.limit_shape = shape;
    options.kind = which == UNIQUE ? TW_KIND_DISTINCT : which == LEVEL ? TW_KIND_GAUGE : TW_KIND_COUNTER;
    options.redis_shape = which == FIELDS ? TW_REDIS_HASH : which == RANKS ? TW_REDIS_ZSET : TW_REDIS_STRING;
    if (which == WINDOWS) {
        options.closed_by = TW_CLOSED_BY_ONE;
        options.on_window_closed = on_closed;
    }
    if (tw_family_open(engine, &options, &families[which]) != TW_OK) abort();
}

static void open_engine(void) {
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.redis_url = "redis://:open-sesame@127.0.0.1";
    options.memory_bytes_max = UINT64_C(4) << 20;
    options.sync_interval_ms = STEP_MS;
    options.redis_timeout_ms = 300;
    options.retry_max_ms = 100;
    options.calls_max = 16;
    options.clock_now_ns = clock_now_ns;
    options.log_write = log_line;
    struct twi_replacements replacements = {.transport = &transport, .random_seed = 7};
    static struct link first;
    first = (struct link){.fd = -1};
    replacements.transport_ctx = &first;
    if (twi_open_with(&options, &replacements, &engine) != TW_OK) abort();
    open_family(PLAIN, "plain", TW_WINDOW_FOREVER, TW_LIMIT_SOFT, TW_SHAPE_FIXED);
    open_family(WINDOWS, "windows", TW_WINDOW_ALIGNED, TW_LIMIT_SOFT, TW_SHAPE_FIXED);
    open_family(HARD, "hard", TW_WINDOW_FOREVER, TW_LIMIT_HARD, TW_SHAPE_FIXED);
    open_family(SOFT, "soft", TW_WINDOW_ALIGNED, TW_LIMIT_SOFT, TW_SHAPE_SLIDING);
    open_family(STRICT, "strict", TW_WINDOW_FOREVER, TW_LIMIT_STRICT, TW_SHAPE_FIXED);
    open_family(BUCKET, "bucket", TW_WINDOW_ALIGNED, TW_LIMIT_STRICT, TW_SHAPE_GCRA);
    open_family(UNIQUE, "unique", TW_WINDOW_FOREVER, TW_LIMIT_SOFT, TW_SHAPE_FIXED);
    open_family(LEVEL, "level", TW_WINDOW_FOREVER, TW_LIMIT_SOFT, TW_SHAPE_FIXED);
    open_family(FIELDS, "fields", TW_WINDOW_FOREVER, TW_LIMIT_SOFT, TW_SHAPE_FIXED);
    open_family(RANKS, "ranks", TW_WINDOW_FOREVER, TW_LIMIT_SOFT, TW_SHAPE_FIXED);
}

/* One of the calls that wait for Redis, by its number. */
static tw_status begin_call(tw_request *request, int which) {
    static const tw_key key = {"k", 1};
    char token[TW_TOKEN_SIZE];
    memcpy(token, request->token, sizeof token); /* of the lock or the reservation that this request had before */
    switch (which) {
    case 0: return tw_acquire_async(request, families[STRICT], key, 1, 100);
    case 1: return tw_acquire_some_async(request, families[STRICT], key, 5, 100);
    case 2: return tw_acquire_async(request, families[BUCKET], key, 1, 100);
    case 3: return tw_once_async(request, families[STRICT], key);
    case 4: return tw_lock_async(request, families[STRICT], tw_str("lock"), 100);
    case 5: return tw_lock_extend_async(request, families[STRICT], tw_str("lock"), token, 100);
    case 6: return tw_reserve_async(request, families[STRICT], tw_str("stock"), 1, 10, 500, tw_str("ann"));
    case 7: return tw_reserve_confirm_async(request, engine, token);
    case 8: return tw_hold_async(request, families[STRICT], tw_str("slots"), 3);
    case 9: return tw_hold_release_async(request, families[STRICT], tw_str("slots"));
    case 10: return tw_fetch_async(request, families[PLAIN], &key, 1, totals);
    case 11: return tw_fetch_fields_async(request, families[FIELDS], tw_str("s"), TW_NOW, visit, NULL);
    case 12: return tw_fetch_top_async(request, families[RANKS], TW_NOW, 3, visit, NULL);
    case 13: return tw_fetch_rank_async(request, families[RANKS], key, TW_NOW);
    case 14: return tw_flush_async(request, engine);
    default: return tw_ready_async(request, engine);
    }
}

static void begin_calls(int step) {
    for (int which = 0; which < 16; which++) {
        size_t i = (size_t)(which + 16 * (step / 16 % 4));
        if (is_under_way[i] || step % 16 != which) continue;
        if (which == 5 || which == 7) { /* of what the call before has got */
            if (is_under_way[i - 1]) continue;
            memcpy(requests[i].token, requests[i - 1].token, TW_TOKEN_SIZE);
        }
        requests[i].done = on_done;
        is_under_way[i] = true;
        if (begin_call(&requests[i], which) != TW_STARTED) is_under_way[i] = false;
    }
}

/* Returns how much of it counts in this process. */
static int64_t count(int step) {
    char key[2] = {(char)('a' + step % 3), '\0'};
    int64_t added = 0;
    added += tw_add(families[PLAIN], tw_str(key), 1, NULL) == TW_OK;
    (void)tw_add(families[WINDOWS], tw_str(key), 1, NULL);
    (void)tw_add(families[LEVEL], tw_str(key), step % 2 == 0 ? 1 : -1, NULL);
    (void)tw_add(families[FIELDS], step % 2 == 0 ? tw_str("s|views") : tw_str("s|likes"), 1, NULL);
    (void)tw_add(families[RANKS], tw_str(key), 1, NULL);
    (void)tw_distinct_add(families[UNIQUE], tw_str("who"), tw_str(key), NULL);
    (void)tw_acquire(families[HARD], tw_str("k"), 1, 1000, NULL);
    (void)tw_acquire(families[SOFT], tw_str("k"), 1, 1000, NULL);
    return added;
}

static void pass_time(void) {
    struct timespec nap = {.tv_nsec = STEP_MS * 1000000};
    if (record != NULL) nanosleep(&nap, NULL);
    clock_ms += STEP_MS;
}

static void live(void) {
    int64_t added = 0;
    tw_stats stats;
    open_engine();
    for (int step = 0; step < STEPS; step++) {
        added += count(step);
        begin_calls(step);
        if (tw_turn(engine) != TW_OK) abort();
        pass_time();
    }
    if (tw_stats_read(engine, &stats) != TW_OK || stats.increments < added) abort();
    (void)tw_close(engine, 0);
    for (size_t i = 0; i < REQUESTS; i++)
        if (is_under_way[i]) abort();
}

/* ---- inputs ---- */

int LLVMFuzzerInitialize(int *count, char ***words) {
    record_socket = getenv("TW_RECORD");
    if (record_socket == NULL) return 0;
    record = fopen((*words)[*count - 1], "wbe");
    if (record == NULL) abort();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_ms = clock_start_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    fprintf(record, "%lld%c", (long long)clock_ms, PIECE_END);
    live();
    fclose(record);
    exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char text[16] = "";
    const uint8_t *end = size > 0 ? memchr(data, PIECE_END, size) : NULL;
    if (end == NULL) return 0;
    memcpy(text, data, (size_t)(end - data) < sizeof text - 1 ? (size_t)(end - data) : sizeof text - 1);
    clock_start_ms = strtoll(text, NULL, 10);
    if (clock_start_ms < INT64_C(100000000000) || clock_start_ms > INT64_C(10000000000000)) return 0;
    clock_ms = clock_start_ms;
    said = end + 1;
    said_end = data + size;
    memset(requests, 0, sizeof requests);
    live();
    return 0;
}
