/* idle_eviction.c -- idle eviction over a real Redis: threads add to keys whose favourites drift, and Redis is killed
 * in the middle.
 * Always true: in the end every key in Redis holds exactly the sum of its increments. */
#include "tests/redis/sync_support.h"
#include "tests/support/side_by_side.h"

#include <pthread.h>
#include <unistd.h>

#define THREADS 2
#define KEYS_MAX 2000

static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};

struct stream {
    tw_family *family;
    tw_engine *engine;
    uint64_t rounds;
    uint32_t universe;
    _Atomic int64_t *added; /* by key; the last one: the overflow counter */
    _Atomic int64_t most;   /* entries ever seen */
    _Atomic int refused;    /* adds that returned neither TW_OK nor TW_OVERFLOWED */
    bool pause;             /* sleep now and then, so that Redis keeps up */
};
struct streamer {
    struct stream *stream;
    unsigned index;
    pthread_t thread;
};

/* Zipf-like: the range of keys is halved again and again, each time with a chance of 5 in 6, so the first keys are
 * drawn most. `round` moves the range, so the favourites drift. */
static uint32_t draw_key(const struct stream *stream, struct test_prng *prng, uint64_t round) {
    uint32_t span = stream->universe;
    while (span > 16 && !test_prng_chance(prng, 1, 6)) span /= 2;
    return (uint32_t)((round / 40 + test_prng_below(prng, span)) % stream->universe);
}

static void *run_stream(void *argument) {
    struct streamer *streamer = argument;
    struct stream *stream = streamer->stream;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed() ^ (streamer->index + 1) * UINT64_C(0x9e3779b97f4a7c15));
    for (uint64_t round = 0; round < stream->rounds; round++) {
        uint32_t key = draw_key(stream, &prng, round);
        int64_t delta = test_prng_between(&prng, 1, 9);
        char name[32];
        snprintf(name, sizeof name, "user%u", key);
        tw_status status = tw_add(stream->family, tw_str(name), delta, NULL);
        if (status == TW_OK || status == TW_OVERFLOWED)
            atomic_fetch_add(&stream->added[status == TW_OK ? key : stream->universe], delta);
        else
            atomic_fetch_add(&stream->refused, 1);
        if (round % 512 != 0) continue;
        int64_t entries = test_stat_of(stream->engine, entries);
        if (entries > atomic_load(&stream->most)) atomic_store(&stream->most, entries);
        if (stream->pause) usleep(4000);
    }
    return NULL;
}

static void stream_open(struct stream *stream, const char *url, uint64_t rounds, uint32_t universe) {
    memset(stream, 0, sizeof *stream);
    stream->engine = quick_engine(url, NULL);
    stream->rounds = rounds;
    stream->universe = universe;
    stream->pause = true;
    stream->added = calloc(universe + 1, sizeof *stream->added);
    assert_non_null(stream->added);
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "aged";
    options.window = TW_WINDOW_FOREVER;
    options.on_full = TW_ON_FULL_EVICT_IDLE;
    options.idle_ms = 150;
    options.keys_max = KEYS_MAX;
    assert_status(tw_family_open(stream->engine, &options, &stream->family), TW_OK);
}

static void stream_start(struct stream *stream, struct streamer *streamers) {
    for (unsigned i = 0; i < THREADS; i++) {
        streamers[i] = (struct streamer){.stream = stream, .index = i};
        assert_int_equal(pthread_create(&streamers[i].thread, NULL, run_stream, &streamers[i]), 0);
    }
}

static void stream_finish(struct stream *stream, struct redis_server *server, struct streamer *streamers) {
    for (unsigned i = 0; i < THREADS; i++) pthread_join(streamers[i].thread, NULL);
    assert_status(tw_flush(stream->engine, TEST_PATIENCE_MS), TW_OK);
    assert_int_equal(atomic_load(&stream->refused), 0);
    /* an insert without room counts for a moment, and the gauge adds up one generation after another */
    assert_in_range(atomic_load(&stream->most), 0, KEYS_MAX + KEYS_MAX / 50);
    int64_t differ = 0;
    for (uint32_t key = 0; key < stream->universe; key++) {
        int64_t added = atomic_load(&stream->added[key]);
        if (added == 0) continue;
        char name[48];
        snprintf(name, sizeof name, "aged:user%u", key);
        int64_t there = redis_server_get(server, name);
        if (there != added && differ++ < 5)
            print_error("%s: %lld in Redis, %lld added\n", name, (long long)there, (long long)added);
    }
    assert_i64_equal(differ, 0);
    assert_i64_equal(redis_server_get(server, "tw:overflow:aged:"), atomic_load(&stream->added[stream->universe]));
    print_message("# %lld evicted, at most %lld entries, %lld units of overflow\n",
                  (long long)test_stat_of(stream->engine, evicted), (long long)atomic_load(&stream->most),
                  (long long)atomic_load(&stream->added[stream->universe]));
    assert_true(test_stat_of(stream->engine, evicted) > 0);
    assert_i64_equal(test_stat_of(stream->engine, lost), 0);
    assert_i64_equal(test_stat_of(stream->engine, uncertain), 0);
    assert_status(tw_close(stream->engine, TEST_PATIENCE_MS), TW_OK);
    free((void *)stream->added);
}

/* Goal: a drifting stream over ten times as many keys as have room is counted exactly, within keys_max. */
TEST(a_drifting_stream_is_counted_to_the_unit) {
    struct redis_server server;
    struct stream stream;
    struct streamer streamers[THREADS];
    redis_server_start(&server, NULL);
    stream_open(&stream, server.url, test_scale(200000), 10 * KEYS_MAX);
    stream_start(&stream, streamers);
    stream_finish(&stream, &server, streamers);
    redis_server_destroy(&server);
}

/* Goal: the same while Redis is killed twice and stays away for longer than an eviction epoch. */
TEST(a_stream_over_a_redis_that_dies_is_counted_to_the_unit) {
    struct redis_server server;
    struct stream stream;
    struct streamer streamers[THREADS];
    redis_server_start(&server, durable);
    stream_open(&stream, server.url, test_scale(150000), 4 * KEYS_MAX);
    stream_start(&stream, streamers);
    for (int i = 0; i < 2; i++) {
        test_sleep_ms(300); /* counters are evicted meanwhile */
        redis_server_kill(&server);
        test_sleep_ms(400); /* counters are evicted without Redis, too */
        redis_server_restart(&server);
    }
    stream_finish(&stream, &server, streamers);
    redis_server_destroy(&server);
}

/* Goal: with new keys at full speed, faster than any Redis, keys_max holds, the overflow counter takes what has no
 * room, and every unit arrives. */
TEST(ever_new_keys_at_full_speed_stay_within_bounds) {
    struct redis_server server;
    struct stream stream;
    struct streamer streamers[THREADS];
    redis_server_start(&server, NULL);
    stream_open(&stream, server.url, test_scale(300000), 30 * KEYS_MAX);
    stream.pause = false;
    int64_t before = test_memory_bytes(stream.engine);
    stream_start(&stream, streamers);
    for (int i = 0; i < 20; i++) {
        test_sleep_ms(10);
        assert_true(test_memory_bytes(stream.engine) - before < KEYS_MAX * 512 + (4 << 20));
    }
    stream_finish(&stream, &server, streamers);
    redis_server_destroy(&server);
}

static bool is_unknown(void *family) {
    tw_reading reading;
    assert_status(tw_read(family, tw_str("user0"), &reading), TW_OK);
    return !reading.known;
}

/* Goal: an evicted key comes back with its global total, and a limit on it holds once it is known (trap E26). */
TEST(an_evicted_key_comes_back_with_its_total) {
    struct redis_server server;
    struct stream stream;
    redis_server_start(&server, NULL);
    stream_open(&stream, server.url, 0, 1);
    assert_status(tw_add(stream.family, tw_str("user0"), 100, NULL), TW_OK);
    for (int i = 0; i < 200 && test_stat_of(stream.engine, evicted) == 0; i++) test_sleep_ms(20);
    assert_i64_equal(test_stat_of(stream.engine, evicted), 1);
    /* It goes just after it is counted. A look in between is a use, and the key then stays for two more idle times. */
    for (int i = 0; !is_unknown(stream.family); i++) assert_true(i < 60), test_sleep_ms(1000);
    tw_key key = tw_str("user0");
    int64_t total = 0;
    assert_status(tw_fetch(stream.family, &key, 1, 5000, &total), TW_OK);
    assert_i64_equal(total, 100);
    tw_verdict verdict;
    assert_status(tw_acquire(stream.family, key, 1, 100, &verdict), TW_DENIED);
    assert_status(tw_close(stream.engine, TEST_PATIENCE_MS), TW_OK);
    free((void *)stream.added);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
