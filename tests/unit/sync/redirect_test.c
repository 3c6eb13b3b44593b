/* redirect_test.c -- what a node of a cluster says instead of an answer, and how long a store waits before it asks
 * again. The texts are those of Redis 6, 7 and of Valkey. */
#include "sync/wire/cluster_nodes.h"
#include "tests/support/cluster_reply.h"

static struct twi_redirect read_error(const char *text) {
    const struct twi_endpoint asked = endpoint_of("10.0.0.9", 7009);
    struct twi_redirect redirect;
    error_reply(text);
    twi_redirect_read(reply_nodes, &asked, &redirect);
    return redirect;
}

TEST(every_refusal_of_a_cluster_is_known_by_its_words) {
    static const struct {
        const char *text;
        enum twi_redirect_kind kind;
    } rows[] = {
        {"MOVED 3999 127.0.0.1:6381", TWI_REDIRECT_MOVED},
        {"ASK 3999 127.0.0.1:6381", TWI_REDIRECT_ASK},
        {"TRYAGAIN Multiple keys request during rehashing of slot", TWI_REDIRECT_TRYAGAIN},
        {"CLUSTERDOWN Hash slot not served", TWI_REDIRECT_UNSERVED},
        {"CLUSTERDOWN The cluster is down", TWI_REDIRECT_DOWN},
        {"CLUSTERDOWN The cluster is down and only accepts read commands", TWI_REDIRECT_DOWN},
        {"CROSSSLOT Keys in request don't hash to the same slot", TWI_REDIRECT_CROSSSLOT},
        {"ERR Script attempted to access a non local key in a cluster node script: 5d0, on @user_script:1.",
         TWI_REDIRECT_NON_LOCAL},
        {"ERR Error running script (call to f_5d0): @user_script:1: @user_script: 1: Lua script attempted to access a "
         "non local key in a cluster node",
         TWI_REDIRECT_NON_LOCAL},
        {"ERR unknown command", TWI_REDIRECT_NONE},
        {"MOVEDX 3999 127.0.0.1:6381", TWI_REDIRECT_NONE},
        {"LOADING Redis is loading the dataset in memory", TWI_REDIRECT_NONE},
        {"", TWI_REDIRECT_NONE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(read_error(rows[i].text).kind, rows[i].kind);
    reply_end();
}

/* Goal: the place is read whatever form it has; TLS and the name to verify stay as they are. */
TEST(a_redirect_says_where) {
    static const struct {
        const char *text, *host;
        uint32_t slot;
        uint16_t port;
    } rows[] = {
        {"MOVED 0 127.0.0.1:6381", "127.0.0.1", 0, 6381},
        {"MOVED 16383 cache-3.example:1", "cache-3.example", 16383, 1},
        {"ASK 7 ::1:65535", "::1", 7, 65535},
        {"ASK 7 2001:db8::7:6379", "2001:db8::7", 7, 6379},
        {"MOVED 12 :6381", "10.0.0.9", 12, 6381}, /* the host of the node that answered */
        {"MOVED 12 ?:6381", NULL, 12, 0},
        {"MOVED 12 :0", NULL, 12, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct twi_redirect redirect = read_error(rows[i].text);
        assert_int_not_equal(redirect.kind, TWI_REDIRECT_NONE);
        assert_int_equal(redirect.slot, rows[i].slot);
        assert_int_equal(redirect.has_endpoint, rows[i].host != NULL);
        if (!rows[i].host) continue;
        assert_string_equal(redirect.to.host, rows[i].host);
        assert_int_equal(redirect.to.port, rows[i].port);
    }
    struct twi_endpoint asked = {.is_tls = true, .port = 1, .host = "a", .verify_name = "cache.example"};
    struct twi_redirect redirect;
    error_reply("MOVED 1 b:2");
    twi_redirect_read(reply_nodes, &asked, &redirect);
    assert_true(redirect.to.is_tls);
    assert_string_equal(redirect.to.verify_name, "cache.example");
    reply_end();
}

TEST(a_redirect_that_cannot_be_read_leads_nowhere) {
    static const char *const rows[] = {
        "MOVED",
        "MOVED ",
        "MOVED 1",
        "MOVED 1 ",
        "MOVED 1 a",
        "MOVED 16384 a:1",
        "MOVED -1 a:1",
        "MOVED 1  a:1",
        "MOVED 1 a:",
        "MOVED 1 a:65536",
        "MOVED 1 a:-1",
        "MOVED 1 a:1 ",
        "MOVED 1 a b:1",
        "MOVED 1 a/b:1",
        "MOVED 1 user@a:1",
        "MOVED 000001 a:1",
        "MOVED 1 a:100000",
        "ASK x a:1",
        "MOVED 1 [::1]:6379",
        "ASK 1 a:1x",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct twi_redirect redirect = read_error(rows[i]);
        if (redirect.kind != TWI_REDIRECT_NONE) print_error("%s\n", rows[i]);
        assert_int_equal(redirect.kind, TWI_REDIRECT_NONE);
        assert_false(redirect.has_endpoint);
    }
    char text[400] = "MOVED 1 ";
    memset(text + 8, 'h', 256);
    memcpy(text + 264, ":6379", 6);
    assert_int_equal(read_error(text).kind, TWI_REDIRECT_NONE); /* a host of 256 bytes */
    memcpy(text + 263, ":6379", 6);
    assert_int_equal(read_error(text).kind, TWI_REDIRECT_MOVED);
    reply_end();
}

/* ---- how long to wait -------------------------------------------------------------------------------------------- */

/* Goal: the first redirect is followed at once; two owners that point at each other are asked less and less; after six
 * hops the store is held. An answer ends all that. */
TEST(a_store_that_is_sent_to_and_fro_is_held_after_six_hops) {
    struct twi_detour detour = {0};
    static const int64_t waits[] = {0, 2, 4, 8, 16, 32};
    int64_t now_ms = 1000;
    for (size_t i = 0; i < TWI_REDIRECT_HOPS_MAX; i++) {
        twi_detour_note(&detour, i % 2 ? TWI_REDIRECT_ASK : TWI_REDIRECT_MOVED, now_ms, UINT64_MAX);
        assert_i64_equal(detour.again_ms - now_ms, waits[i]);
        assert_false(detour.is_held);
        now_ms = detour.again_ms;
    }
    for (int i = 0; i < 20; i++) {
        twi_detour_note(&detour, TWI_REDIRECT_MOVED, now_ms, (uint64_t)i);
        assert_true(detour.is_held && detour.again_ms - now_ms >= TWI_REDIRECT_PROBE_MS);
        now_ms = detour.again_ms;
    }
    twi_detour_end(&detour);
    assert_false(detour.is_held);
    twi_detour_note(&detour, TWI_REDIRECT_MOVED, now_ms, 5);
    assert_i64_equal(detour.again_ms, now_ms);
}

/* Goal: TRYAGAIN and a slot that nobody serves are tried again after 20 ms and more, at most 200, and not by all stores
 * at the same moment. */
TEST(a_held_store_probes_less_and_less) {
    static const enum twi_redirect_kind kinds[] = {TWI_REDIRECT_TRYAGAIN, TWI_REDIRECT_UNSERVED, TWI_REDIRECT_DOWN};
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t kind = 0; kind < 3; kind++) {
        int64_t least_ms[6], most_ms[6];
        for (int i = 0; i < 6; i++) least_ms[i] = INT64_MAX, most_ms[i] = 0;
        for (int run = 0; run < 2000; run++) {
            struct twi_detour detour = {0};
            for (int i = 0; i < 6; i++) {
                twi_detour_note(&detour, kinds[kind], 5000, test_prng_next(&prng));
                assert_true(detour.is_held);
                int64_t wait_ms = detour.again_ms - 5000;
                if (wait_ms < least_ms[i]) least_ms[i] = wait_ms;
                if (wait_ms > most_ms[i]) most_ms[i] = wait_ms;
            }
        }
        static const int64_t want_ms[6] = {20, 40, 80, 100, 100, 100};
        for (int i = 0; i < 6; i++) {
            assert_i64_equal(least_ms[i], want_ms[i]);
            assert_i64_equal(most_ms[i], 2 * want_ms[i]);
        }
    }
}

TEST(a_mistake_of_ours_is_tried_again_in_half_a_minute) {
    struct twi_detour detour = {0};
    twi_detour_note(&detour, TWI_REDIRECT_NONE, 1000, 1);
    twi_detour_note(&detour, TWI_REDIRECT_NON_LOCAL, 1000, 1);
    assert_true(!detour.is_held && detour.again_ms == 0);
    twi_detour_note(&detour, TWI_REDIRECT_CROSSSLOT, 1000, 1);
    assert_true(detour.is_held);
    assert_i64_equal(detour.again_ms, 31000);
}
