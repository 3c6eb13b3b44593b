/* receive_test.c -- C19: a turn reads so many bytes and no more; what it leaves may raise no event, as within TLS. */
#include "tests/support/support.h"

#include "engine/port/driver.h"
#include "sync/wire/socket.h"

#define INFO_BYTES 2000000 /* more than a turn takes */

/* A server that answers PING, and INFO with a long text; its descriptor never says anything. */
struct talker {
    bool is_asked;
    size_t at;
    char head[64];
};

static int talk_connect(void *ctx, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms) {
    (void)ctx, (void)endpoint, (void)now_ms, (void)deadline_ms;
    return 1;
}

static ssize_t talk_send(void *ctx, const void *data, size_t size) {
    struct talker *talker = ctx;
    talker->is_asked = true;
    return (ssize_t)size;
}

static ssize_t talk_recv(void *ctx, void *data, size_t size) {
    struct talker *talker = ctx;
    size_t head = strlen(talker->head), end = head + INFO_BYTES + 2, used = 0;
    if (!talker->is_asked) return 0;
    for (; used < size && talker->at < end; talker->at++)
        ((char *)data)[used++] = talker->at < head      ? talker->head[talker->at]
                                 : talker->at < end - 2 ? 'x'
                                 : talker->at < end - 1 ? '\r'
                                                        : '\n';
    return (ssize_t)used;
}

static void talk_close(void *ctx) {
}

static int talk_fd(void *ctx, bool *wants_write) {
    *wants_write = false;
    return -1;
}

static const char *talk_why(void *ctx) {
    return "nothing";
}

static const struct twi_transport transport = {
    .connect = talk_connect, .send = talk_send, .recv = talk_recv, .close = talk_close, .fd = talk_fd, .why = talk_why};

/* Goal: the host is told to come again at once while bytes are left, and no more after that. */
TEST(a_turn_that_leaves_bytes_asks_for_the_next_one_at_once) {
    struct talker talker = {0};
    tw_engine *engine;
    tw_options options;
    snprintf(talker.head, sizeof talker.head, "+PONG\r\n$%d\r\n", INFO_BYTES);
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.redis_url = "redis://127.0.0.1:1";
    options.redis_timeout_ms = 60000;
    assert_status(
        twi_open_with(&options, &(struct twi_replacements){.transport = &transport, .transport_ctx = &talker}, &engine),
        TW_OK);
    size_t end = strlen(talker.head) + INFO_BYTES + 2;
    int turns = 0, left = 0;
    for (; talker.at < end && turns < 100; turns++) {
        assert_status(tw_turn(engine), TW_OK);
        if (talker.at == 0 || talker.at == end) continue;
        assert_int_equal(tw_timeout_ms(engine), 0);
        left++;
    }
    assert_int_equal(talker.at, end);
    assert_true(left > 0);
    assert_status(tw_turn(engine), TW_OK);
    assert_true(tw_timeout_ms(engine) > 0);
    assert_status(tw_close(engine, 0), TW_OK);
}

static bool sends_wrong;
static ssize_t lie_send(void *ctx, const void *data, size_t size) {
    ssize_t sent = talk_send(ctx, data, size);
    return sends_wrong ? sent + 1 : sent;
}
static ssize_t lie_recv(void *ctx, void *data, size_t size) {
    ((struct talker *)ctx)->at = 0;
    return talk_recv(ctx, data, size) != 0 ? (ssize_t)size + 1 : 0;
}

/* Goal: no answer of the system ends the program. Method: a transport that says that it has sent, or received, more
 * than it could; the connection ends, with a reason. */
TEST(a_transport_that_counts_wrong_loses_its_connection_only) {
    struct twi_transport liar = transport;
    liar.send = lie_send;
    liar.recv = lie_recv;
    for (int sends = 0; sends < 2; sends++) {
        struct talker talker = {.head = "+PONG\r\n"};
        tw_engine *engine;
        tw_options options;
        tw_stats stats;
        sends_wrong = sends != 0;
        tw_options_init(&options);
        options.threads = TW_HOST_DRIVEN;
        options.redis_url = "redis://127.0.0.1:1";
        assert_status(
            twi_open_with(&options, &(struct twi_replacements){.transport = &liar, .transport_ctx = &talker}, &engine),
            TW_OK);
        for (int turns = 0; turns < 10; turns++) assert_status(tw_turn(engine), TW_OK);
        assert_true(talker.is_asked);
        assert_status(tw_stats_read(engine, &stats), TW_OK);
        if (!sends) assert_non_null(strstr(stats.last_error, "more bytes than there was room for"));
        assert_i64_equal(stats.redis_connected, 0);
        assert_status(tw_close(engine, 0), TW_OK);
    }
}
