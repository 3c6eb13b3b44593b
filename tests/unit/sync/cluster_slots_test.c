/* cluster_slots_test.c -- the reply to CLUSTER SLOTS: read whole, or refused whole. */
#include "sync/wire/cluster_nodes.h"
#include "tests/support/cluster_reply.h"

static const struct twi_endpoint asked = {.port = 7009, .host = "10.0.0.9"};

static bool is_valid(const char *text) {
    slots_reply(text);
    return twi_cluster_slots_valid(reply_nodes, reply_count, &asked);
}

/* Goal: hosts that are addresses, names, nil, empty and unknown; replicas and what a later Redis adds are skipped. */
TEST(each_range_says_its_master_in_any_form) {
    static const struct {
        uint32_t first, last;
        const char *host, *id;
        uint16_t port;
    } want[] = {
        {0, 99, "10.0.0.1", "a1", 7001},     {100, 100, "10.0.0.9", "b2", 7002},
        {101, 200, "10.0.0.9", "c3", 7003},  {300, 400, "node-4.example", "d4", 7},
        {401, 500, "2001:db8::1", "", 6379}, {501, 600, "10.0.0.5", "e5", 7005},
        {601, 700, NULL, "f6", 0},           {701, 800, NULL, "g7", 0},
        {801, 900, NULL, "h8", 0},           {901, 16383, NULL, "i9", 0},
    };
    assert_true(is_valid("[[0 99 ['10.0.0.1' 7001 'a1' []] ['10.0.0.5' 7005 'r1' []] ['10.0.0.6' 7006 'r2' []]]"
                         "[100 100 [~ 7002 'b2' []]]"
                         "[101 200 ['' 7003 'c3']]"
                         "[300 400 ['node-4.example' 7 'd4' ['ip' '10.0.0.4']] [~ 9 'r3' ['ip' 12]] 17]"
                         "[401 500 ['2001:db8::1' 6379]]"
                         "[501 600 ['?' 7005 'e5' ['hostname' '' 'ip' '10.0.0.5']]]"
                         "[601 700 ['?' 7005 'f6' ['hostname' 'ip']]]"
                         "[701 800 ['?' 7005 'g7' ['ip' 12] ['ip' '10.0.0.5']]]"
                         "[801 900 ['?' 7005 'h8' ['ip']]]"
                         "[901 16383 ['10.0.0.6' 0 'i9' []]]]"));
    struct twi_slot_range range;
    size_t at = 1, found = 0;
    for (; twi_cluster_slots_next(reply_nodes, reply_count, &asked, &at, &range); found++) {
        assert_true(range.first == want[found].first && range.last == want[found].last);
        assert_int_equal(range.has_endpoint, want[found].host != NULL);
        assert_string_equal(range.id, want[found].id);
        if (!range.has_endpoint) continue;
        assert_string_equal(range.host, want[found].host);
        assert_int_equal(range.port, want[found].port);
    }
    assert_int_equal(found, sizeof want / sizeof *want);
    assert_int_equal(at, reply_count);
    assert_true(is_valid("[]"));
    reply_end();
}

TEST(a_reply_with_one_fault_is_refused_whole) {
    static const char *const bad[] = {
        "'text'",
        "[17]",
        "['text']",
        "[[0 99]]",
        "[[0 99 []]]",
        "[[0 99 'a']]",
        "[[0 99 ['a']]]",
        "[[0 99 ['a' 'b']]]",
        "[[0 99 [5 7000 'id']]]",
        "[[0 99 [['a'] 7000 'id']]]",
        "[[0 99 ['a' 7000 5]]]",
        "[[0 99 ['a' 7000 ['id']]]]",
        "[[0 99 ['a' 70000 'id']]]",
        "[[0 99 ['a' -1 'id']]]",
        "[[0 99 ['a b' 7000 'id']]]",
        "[[0 99 ['a' 7000 'i d']]]",
        "[[0 99 ['a' 7000 'aaaaaaaaaabbbbbbbbbbccccccccccddddddddddx']]]",
        "[[-1 99 ['a' 7000 'id']]]",
        "[[0 16384 ['a' 7000 'id']]]",
        "[[99 98 ['a' 7000 'id']]]",
        "[['0' 99 ['a' 7000 'id']]]",
        "[[0 99 ['a' 7000 'id']] [99 100 ['b' 7000 'ie']]]", /* 99 is in two ranges */
        "[[0 99 ['a' 7000 'id']] 5]",
        "[[0 99 ['a' 7000 'id']] [100 ['b' 7000 'ie'] 200]]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (is_valid(bad[i])) print_error("%s\n", bad[i]);
        assert_false(is_valid(bad[i]));
    }
    assert_true(is_valid("[[0 99 ['a' 7000 'aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd']]]"));
    error_reply("ERR This instance has cluster support disabled");
    assert_false(twi_cluster_slots_valid(reply_nodes, reply_count, &asked));
    reply_end();
}

/* Goal: whatever single byte of a reply is changed or cut, it is refused, or what is read lies within the bounds. */
TEST(no_byte_changed_leads_out_of_the_bounds) {
    static char whole[4096], bytes[4096];
    struct test_prng prng;
    struct twi_slot_range range;
    test_prng_seed(&prng, test_seed());
    size_t size = reply_bytes("[[0 99 ['10.0.0.1' 7001 'a1' ['hostname' 'a']] ['10.0.0.5' 7005 'r1' []]]"
                              "[100 16383 [~ 7002 'b2' []] ['' 7005 'r1' []]]]",
                              whole);
    for (uint64_t round = 0; round < test_scale(20000); round++) {
        memcpy(bytes, whole, size);
        bytes[test_prng_below(&prng, size)] = "0123456789*$:-~\r\n"[test_prng_below(&prng, 17)];
        if (!reply_of(bytes, size - test_prng_below(&prng, 3))) continue;
        size_t at = 1;
        while (twi_cluster_slots_next(reply_nodes, reply_count, &asked, &at, &range)) {
            assert_true(range.first <= range.last && range.last < 16384 && at <= reply_count);
            assert_true(!range.has_endpoint || (range.port != 0 && strlen(range.host) < TWI_HOST_SIZE));
            assert_true(strlen(range.id) < TWI_NODE_ID_SIZE);
        }
    }
    reply_end();
}
