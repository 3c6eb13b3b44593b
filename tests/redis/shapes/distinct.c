/* distinct.c -- distinct counts next to a real Redis: the same elements give the same estimate as PFADD and PFCOUNT, to
 * the unit; Redis reads our registers from our bytes, and we read Redis's. */
#include "tests/redis/sync_support.h"
#include "tests/support/hll_twin.h"

#include "engine/base/hll.h"

#include <inttypes.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- a connection that takes any bytes --------------------------------------------------------------------------- */

static FILE *connect_to(const struct redis_server *server) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", server->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fdopen(fd, "r+");
}

static void say(FILE *redis, const tw_key *words, size_t count) {
    fprintf(redis, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) {
        fprintf(redis, "$%zu\r\n", words[i].size);
        fwrite(words[i].data, 1, words[i].size, redis);
        fputs("\r\n", redis);
    }
    fseek(redis, 0, SEEK_CUR); /* C requires this between writing and reading */
}

/* The number of a ":n" or the length of a "$n"; anything else fails. */
static int64_t hear(FILE *redis, char kind) {
    char line[100];
    assert_non_null(fgets(line, sizeof line, redis));
    if (line[0] != kind) fail_msg("Redis says %s", line);
    return strtoll(line + 1, NULL, 10);
}

static int64_t ask_number(FILE *redis, const tw_key *words, size_t count) {
    say(redis, words, count);
    int64_t number = hear(redis, ':');
    fseek(redis, 0, SEEK_CUR);
    return number;
}

static int64_t pfcount(FILE *redis, const char *key) {
    return ask_number(redis, (const tw_key[]){tw_str("PFCOUNT"), tw_str(key)}, 2);
}

static size_t get_bytes(FILE *redis, const char *key, unsigned char *bytes) {
    say(redis, (const tw_key[]){tw_str("GET"), tw_str(key)}, 2);
    int64_t size = hear(redis, '$');
    assert_true(size >= 0 && size <= (int64_t)TWI_HLL_BYTES_MAX);
    assert_int_equal(fread(bytes, 1, (size_t)size, redis), size);
    assert_int_equal(fgetc(redis), '\r');
    assert_int_equal(fgetc(redis), '\n');
    fseek(redis, 0, SEEK_CUR);
    return (size_t)size;
}

static void set_bytes(FILE *redis, const char *key, const unsigned char *bytes, size_t size) {
    say(redis, (const tw_key[]){tw_str("SET"), tw_str(key), tw_bytes(bytes, size)}, 3);
    assert_true(hear(redis, '+') == 0);
    fseek(redis, 0, SEEK_CUR);
}

/* ---- both count -------------------------------------------------------------------------------------------------- */

enum { BATCH = 1000, ELEMENT_BYTES = 24 };

static char text[BATCH][ELEMENT_BYTES];
static tw_key words[BATCH + 2];
static struct twin twin;

/* The next `count` elements: numbers as text, and now and then other bytes. */
static void draw(uint64_t salt, uint64_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t number = first + i;
        size_t size = (size_t)snprintf(text[i], ELEMENT_BYTES, "%" PRIx64 ":%" PRIu64, salt & 0xff, number);
        if (number % 7 == 3) text[i][0] = (char)(number * 31);
        if (number % 11 == 5) size = 8, memcpy(text[i], &number, sizeof number);
        words[i + 2] = tw_bytes(text[i], size);
        (void)twin_add(&twin, words[i + 2]);
    }
}

/* Our registers, as bytes, are the same sketch for Redis; and Redis's bytes are ours. */
static void compare_bytes(FILE *redis) {
    static unsigned char bytes[TWI_HLL_BYTES_MAX];
    static uint8_t theirs[TWI_HLL_REGISTERS];
    size_t size = get_bytes(redis, "k", bytes);
    assert_true(twi_hll_decode(bytes, size, theirs));
    assert_memory_equal(theirs, twin.registers, sizeof theirs);
    set_bytes(redis, "ours", bytes, twi_hll_encode(twin.registers, bytes));
    assert_i64_equal(pfcount(redis, "ours"), twin_estimate(&twin));
    /* merged with itself it is the same, and it can be added to */
    say(redis, (const tw_key[]){tw_str("PFMERGE"), tw_str("ours"), tw_str("k")}, 3);
    assert_true(hear(redis, '+') == 0);
    fseek(redis, 0, SEEK_CUR);
    assert_i64_equal(pfcount(redis, "ours"), twin_estimate(&twin));
}

static void count_upto(FILE *redis, tw_family *family, uint64_t salt, uint64_t most) {
    uint64_t added = 0;
    memset(&twin, 0, sizeof twin);
    (void)ask_number(redis, (const tw_key[]){tw_str("DEL"), tw_str("k")}, 2);
    words[0] = tw_str("PFADD");
    words[1] = tw_str("k");
    for (uint64_t upto = 1; upto <= most; upto *= 10) {
        while (added < upto) {
            size_t part = upto - added < BATCH ? (size_t)(upto - added) : BATCH, changed;
            draw(salt, added, part);
            int64_t theirs = ask_number(redis, words, part + 2), estimate = -1;
            assert_status(tw_distinct_add_many(family, tw_bytes(&salt, sizeof salt), words + 2, part, &changed), TW_OK);
            if (part == 1) assert_i64_equal(changed, theirs);
            if (added < 20 * BATCH) { /* at each step through the sparse forms */
                assert_status(tw_distinct_get(family, tw_bytes(&salt, sizeof salt), &estimate), TW_OK);
                assert_i64_equal(estimate, pfcount(redis, "k"));
            }
            added += part;
        }
        int64_t estimate = -1;
        assert_status(tw_distinct_get(family, tw_bytes(&salt, sizeof salt), &estimate), TW_OK);
        assert_i64_equal(estimate, pfcount(redis, "k"));
        assert_i64_equal(estimate, twin_estimate(&twin));
        compare_bytes(redis);
    }
}

/* TW_SCALE=1000: ten million elements. */
TEST(an_estimate_is_that_of_redis_to_the_unit) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    FILE *redis = connect_to(&server);
    tw_options options;
    tw_family_options family;
    tw_engine *engine;
    tw_family *opened;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    tw_options_init(&options);
    assert_status(test_open(&options, &engine), TW_OK);
    tw_family_options_init(&family);
    family.name = "f";
    family.kind = TW_KIND_DISTINCT;
    family.window = TW_WINDOW_FOREVER;
    assert_status(tw_family_open(engine, &family, &opened), TW_OK);
    for (int round = 0; round < 20; round++) count_upto(redis, opened, test_prng_next(&prng), 100);
    count_upto(redis, opened, test_prng_next(&prng), test_scale(1000000));
    assert_status(tw_close(engine, 0), TW_OK);
    fclose(redis);
    redis_server_destroy(&server);
}
