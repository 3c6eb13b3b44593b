/* wire_test.c -- the codec: what goes out is counted, what comes in is bounded, cut at any byte or hostile. */
#include "sync/batch/reply.h"
#include "sync/wire/wire.h"
#include "tests/support/support.h"

#include <inttypes.h>

static const struct twi_wire_limits limits = {.bytes_max = 4096, .nodes_max = 64, .depth_max = 2};

static enum twi_wire decode(const char *text, size_t size, size_t piece, const struct twi_node **nodes, size_t *count,
                            struct twi_reader **reader) {
    *reader = twi_reader_create(&limits);
    for (size_t at = 0; at < size; at += piece) {
        size_t part = size - at < piece ? size - at : piece;
        if (!twi_reader_feed(*reader, text + at, part)) return TWI_WIRE_BAD;
        enum twi_wire wire = twi_reader_next(*reader, nodes, count);
        if (wire != TWI_WIRE_MORE || at + part >= size) return wire;
    }
    return TWI_WIRE_MORE;
}

TEST(a_command_is_its_counted_arguments) {
    static const char want[] = "*4\r\n$3\r\nSET\r\n$4\r\na\0\r\n\r\n$2\r\n-7\r\n$20\r\n18446744073709551615\r\n";
    struct twi_bytes out = {0};
    twi_wire_begin(&out, 4);
    twi_wire_put_text(&out, "SET");
    twi_wire_put(&out, "a\0\r\n", 4);
    twi_wire_put_i64(&out, -7);
    twi_wire_put_u64(&out, UINT64_MAX);
    assert_int_equal(out.size, sizeof want - 1);
    assert_memory_equal(out.data, want, out.size);
    twi_bytes_wipe(&out);
    for (size_t i = 0; i < out.room; i++) assert_int_equal(out.data[i], 0);
    twi_bytes_free(&out);
}

/* Goal: numbers are spelled as printf() spells them. Method: each power of two, its neighbours, their negatives. */
TEST(numbers_are_decimal) {
    char digits[24], want[64];
    for (int bit = 0; bit < 64 * 3; bit++) {
        uint64_t value = (UINT64_C(1) << (bit / 3)) + (uint64_t)(bit % 3) - 1;
        for (int is_signed = 0; is_signed < 3; is_signed++) {
            struct twi_bytes out = {0};
            int64_t as_signed = is_signed == 1 ? (int64_t)value : (int64_t)-value;
            if (is_signed != 0) twi_wire_put_i64(&out, as_signed);
            if (is_signed == 0) twi_wire_put_u64(&out, value);
            int size = is_signed != 0 ? snprintf(digits, sizeof digits, "%" PRId64, as_signed)
                                      : snprintf(digits, sizeof digits, "%" PRIu64, value);
            snprintf(want, sizeof want, "$%d\r\n%s\r\n", size, digits);
            assert_int_equal(out.size, strlen(want));
            assert_string_equal(out.data, want);
            twi_bytes_free(&out);
        }
    }
}

/* Goal: a reply means the same however its bytes arrive. Method: every size of piece. */
TEST(a_reply_is_the_same_in_pieces_of_any_size) {
    static const char reply[] =
        "*6\r\n$2\r\nOK\r\n:-42\r\n$-1\r\n+LATE\r\n-WRONGTYPE no\r\n*2\r\n$0\r\n\r\n:9223372036854775807\r\n";
    for (size_t piece = 1; piece < sizeof reply; piece++) {
        const struct twi_node *nodes = NULL;
        struct twi_reader *reader;
        size_t count = 0;
        assert_int_equal(decode(reply, sizeof reply - 1, piece, &nodes, &count, &reader), TWI_WIRE_DONE);
        assert_int_equal(count, 9);
        assert_int_equal(nodes[0].integer, 6);
        assert_true(twi_node_is(&nodes[1], "OK") && !twi_node_is(&nodes[1], "O"));
        assert_i64_equal(nodes[2].integer, -42);
        assert_int_equal(nodes[3].type, TWI_NODE_NIL);
        assert_int_equal(nodes[4].type, TWI_NODE_STATUS);
        assert_true(nodes[5].type == TWI_NODE_ERROR && twi_node_is(&nodes[5], "WRONGTYPE"));
        assert_true(nodes[7].depth == 2 && nodes[7].size == 0 && nodes[8].integer == INT64_MAX);
        twi_reader_free(reader);
    }
}

static void assert_bad(const char *text, size_t size) {
    const struct twi_node *nodes;
    struct twi_reader *reader;
    size_t count;
    assert_int_equal(decode(text, size, size, &nodes, &count, &reader), TWI_WIRE_BAD);
    assert_int_equal(twi_reader_next(reader, &nodes, &count), TWI_WIRE_BAD); /* and stays so */
    assert_false(twi_reader_feed(reader, "+OK\r\n", 5));
    twi_reader_free(reader);
}

/* Goal: a hostile or broken server costs the connection and no more (fault 10). */
TEST(garbage_and_excess_are_bad) {
    static const char *const texts[] = {"garbage\r\n",
                                        "*65\r\n",
                                        "*-2\r\n",
                                        "*9999999999999\r\n",
                                        "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
                                        ":12x\r\n",
                                        "$5x\r\n",
                                        "%1\r\n:1\r\n:2\r\n",
                                        "\r\n",
                                        "*2147483648\r\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct twi_node *nodes;
        struct twi_reader *reader;
        size_t count;
        enum twi_wire wire = decode(texts[i], strlen(texts[i]), SIZE_MAX / 2, &nodes, &count, &reader);
        if (wire == TWI_WIRE_DONE) print_error("taken for a reply: %s\n", texts[i]);
        assert_int_not_equal(wire, TWI_WIRE_DONE);
        twi_reader_free(reader);
    }
    assert_bad("garbage\r\n", 9);
    assert_bad("*65\r\n", 5);
    assert_bad("*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", 20);
}

/* Goal: a length that is never filled is bounded by what is kept waiting. Method: a giant string, fed for ever. */
TEST(a_reply_that_never_ends_is_cut_off) {
    struct twi_reader *reader = twi_reader_create(&limits);
    const struct twi_node *nodes;
    size_t count, fed = 0;
    char block[512];
    memset(block, 'x', sizeof block);
    assert_true(twi_reader_feed(reader, "$99999999\r\n", 11));
    while (fed < 100000 && twi_reader_feed(reader, block, sizeof block)) {
        if (twi_reader_next(reader, &nodes, &count) == TWI_WIRE_BAD) break;
        fed += sizeof block;
    }
    assert_true(fed <= limits.bytes_max);
    twi_reader_free(reader);
}

TEST(numbers_are_whole_or_none) {
    static const char *const bad[] = {"", "-", "1 ", " 1", "0x1", "1.0", "9223372036854775808", "text", "+1"};
    int64_t value = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct twi_node node = {.type = TWI_NODE_STRING, .text = bad[i], .size = strlen(bad[i])};
        assert_false(twi_node_i64(&node, &value));
    }
    struct twi_node low = {.type = TWI_NODE_STRING, .text = "-9223372036854775808", .size = 20};
    assert_true(twi_node_i64(&low, &value));
    assert_i64_equal(value, INT64_MIN);
}

/* Goal: a number of any size is within the bounds of what it is read as; a text that is none stays none. */
TEST(numbers_of_any_size_are_bounded) {
    static const int64_t values[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, TW_COUNT_MAX, TW_COUNT_MAX + 1, INT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct twi_node node = {.type = TWI_NODE_INTEGER, .integer = values[i]};
        int64_t count = 0, time = 0, pause = 0;
        assert_true(twi_node_count(&node, &count) && twi_node_time(&node, &time) && twi_node_pause(&node, &pause));
        bool fits = values[i] >= -TW_COUNT_MAX && values[i] <= TW_COUNT_MAX;
        assert_i64_equal(count, fits ? values[i] : values[i] < 0 ? -TW_COUNT_MAX : TW_COUNT_MAX);
        assert_true(time >= 0 && time <= TWI_NODE_TIME_MAX_MS && pause >= 0 && pause <= TWI_NODE_PAUSE_MAX_MS);
        if (values[i] == 1) assert_true(time == 1 && pause == 1);
    }
    struct twi_node text = {.type = TWI_NODE_STRING, .text = "1e400", .size = 5};
    int64_t none = 0;
    assert_false(twi_node_count(&text, &none) || twi_node_time(&text, &none) || twi_node_pause(&text, &none));
    struct twi_node digits = {.type = TWI_NODE_STRING, .text = "9223372036854775808", .size = 19};
    assert_true(twi_node_count(&digits, &none) && none == TW_COUNT_MAX);
    digits = (struct twi_node){.type = TWI_NODE_STRING, .text = "-99999999999999999999999999", .size = 27};
    assert_true(twi_node_count(&digits, &none) && none == -TW_COUNT_MAX);
}

/* Goal: a line without an end is refused once it is longer than any of the protocol's, and long texts are not. */
TEST(a_line_without_an_end_is_refused) {
    static const struct twi_wire_limits wide = {.bytes_max = 8u << 20, .nodes_max = 64, .depth_max = 3};
    static char block[16384];
    const struct twi_node *nodes;
    size_t count, fed = 0;
    memset(block, 'x', sizeof block);
    static const char *const begins[] = {"+", "-", "", ":1", "$1", "*1\r\n-"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        struct twi_reader *reader = twi_reader_create(&wide);
        assert_true(twi_reader_feed(reader, begins[i], strlen(begins[i])));
        for (fed = 0; fed < wide.bytes_max / 2; fed += sizeof block) {
            assert_true(twi_reader_feed(reader, block, sizeof block));
            if (twi_reader_next(reader, &nodes, &count) == TWI_WIRE_BAD) break;
        }
        assert_true(fed <= 2 * 65536);
        twi_reader_free(reader);
    }
    struct twi_reader *reader = twi_reader_create(&wide);
    assert_true(twi_reader_feed(reader, "$1048576\r\n", 10));
    for (fed = 0; fed < 1048576; fed += sizeof block) {
        assert_true(twi_reader_feed(reader, block, sizeof block));
        assert_int_equal(twi_reader_next(reader, &nodes, &count), TWI_WIRE_MORE);
    }
    assert_true(twi_reader_feed(reader, "\r\n", 2));
    assert_int_equal(twi_reader_next(reader, &nodes, &count), TWI_WIRE_DONE);
    assert_int_equal(nodes[0].size, 1048576);
    twi_reader_free(reader);
}

/* Goal: only errors on the closed list are taken for "nothing was done", as Redis from 7 on and Valkey word them, and
 * as Redis 6 wraps them. */
TEST(only_known_refusals_mean_that_nothing_was_done) {
    static const struct {
        const char *text;
        enum twi_reply_kind kind;
    } cases[] = {
        {"NOSCRIPT No matching script. Please use EVAL.", TWI_REPLY_NOSCRIPT},
        {"OOM command not allowed when used memory > 'maxmemory'. script: 3f, on @user_script:35.", TWI_REPLY_REFUSED},
        {"LOADING Redis is loading the dataset in memory", TWI_REPLY_REFUSED},
        {"BUSY Redis is busy running a script.", TWI_REPLY_REFUSED},
        {"MISCONF Redis is configured to save RDB snapshots", TWI_REPLY_REFUSED},
        {"NOREPLICAS Not enough good replicas to write.", TWI_REPLY_REFUSED},
        {"READONLY You can't write against a read only replica.", TWI_REPLY_TURNED_AWAY},
        {"NOAUTH Authentication required.", TWI_REPLY_TURNED_AWAY},
        {"NOPERM this user has no permissions to run the 'evalsha' command", TWI_REPLY_TURNED_AWAY},
        {"MOVED 3999 127.0.0.1:6381", TWI_REPLY_TURNED_AWAY},
        {"ERR Error running script (call to f_3f): @user_script:35: @user_script: 35: -OOM command not allowed",
         TWI_REPLY_REFUSED},
        {"ERR Error running script (call to f_3f): @user_script:35: attempt to index a nil value", TWI_REPLY_SPOILT},
        {"WRONGTYPE Operation against a key holding the wrong kind of value script: 3f, on @user_script:35.",
         TWI_REPLY_SPOILT},
        {"ERR The user executing the script can't run this command or subcommand script: 3f, on @user_script:1.",
         TWI_REPLY_UNKNOWN},
        {"ERR ACL failure in script: User u has no permissions to run the 'hdel' command script: 3f, on @user_script:1",
         TWI_REPLY_UNKNOWN},
        {"ERR Error running script (call to f_3f): @user_script:1: @user_script: 1: The user executing the "
         "script can't run this command or subcommand",
         TWI_REPLY_UNKNOWN},
        {"ERR Script attempted to access a non local key in a cluster node script: 3f, on @user_script:1.",
         TWI_REPLY_UNKNOWN},
        {"ERR max number of clients reached", TWI_REPLY_UNKNOWN},
        {"OOMX no such thing", TWI_REPLY_UNKNOWN},
        {"", TWI_REPLY_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct twi_node node = {.type = TWI_NODE_ERROR, .text = cases[i].text, .size = strlen(cases[i].text)};
        if (twi_reply_error(&node) != cases[i].kind) print_error("%s\n", cases[i].text);
        assert_int_equal(twi_reply_error(&node), cases[i].kind);
    }
}

/* Goal: what an operator reads begins with the error, not with what Redis 6 puts in front of it. */
TEST(an_error_is_shown_without_its_wrapping) {
    static const char *const cases[][2] = {
        {"ERR Error running script (call to f_3f): @user_script:35: @user_script: 35: -OOM command not allowed",
         "OOM command not allowed"},
        {"ERR Error running script (call to f_3f): @user_script:1: WRONGTYPE Operation against a key",
         "WRONGTYPE Operation against a key"},
        {"ERR Error running script (call to f_3f): @user_script:35: attempt to index a nil value",
         "ERR Error running script (call to f_3f): @user_script:35: attempt to index a nil value"},
        {"OOM command not allowed: No", "OOM command not allowed: No"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct twi_node node = {.type = TWI_NODE_ERROR, .text = cases[i][0], .size = strlen(cases[i][0])};
        assert_string_equal(twi_reply_said(&node), cases[i][1]);
    }
}

/* Goal: a reply that is whole as protocol, but not what the script answers, is refused. */
TEST(replies_of_another_shape_are_not_answers) {
    static const char *const texts[] = {
        "+OK\r\n",
        ":1\r\n",
        "*0\r\n",
        "*1\r\n$2\r\nOK\r\n",
        "*8\r\n$2\r\nNO\r\n:1\r\n$1\r\n1\r\n$1\r\nm\r\n$1\r\n0\r\n$1\r\n0\r\n:1\r\n:0\r\n",
        "*8\r\n$2\r\nOK\r\n:1\r\n$-1\r\n$1\r\nm\r\n$1\r\n0\r\n$1\r\n0\r\n:1\r\n:0\r\n",
        "*8\r\n$2\r\nOK\r\n*0\r\n$1\r\n1\r\n$1\r\nm\r\n$1\r\n0\r\n$1\r\n0\r\n:1\r\n:0\r\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct twi_node *nodes;
        struct twi_reader *reader;
        struct twi_reply_head head;
        size_t count;
        assert_int_equal(decode(texts[i], strlen(texts[i]), 1000, &nodes, &count, &reader), TWI_WIRE_DONE);
        assert_false(twi_reply_read(nodes, count, &head));
        twi_reader_free(reader);
    }
}

/* Goal: whether a server is a master is believed only where it says so. */
TEST(a_role_is_what_the_server_says) {
    static const struct {
        const char *reply;
        enum twi_role by_role, by_info;
    } cases[] = {
        {"*3\r\n$6\r\nmaster\r\n:42\r\n*0\r\n", TWI_ROLE_MASTER, TWI_ROLE_UNKNOWN},
        {"*5\r\n$5\r\nslave\r\n$1\r\na\r\n:1\r\n$9\r\nconnected\r\n:42\r\n", TWI_ROLE_REPLICA, TWI_ROLE_UNKNOWN},
        {"*2\r\n$8\r\nsentinel\r\n*0\r\n", TWI_ROLE_REPLICA, TWI_ROLE_UNKNOWN},
        {"-NOPERM no\r\n", TWI_ROLE_UNKNOWN, TWI_ROLE_UNKNOWN},
        {"*0\r\n", TWI_ROLE_UNKNOWN, TWI_ROLE_UNKNOWN},
        {"$16\r\n# R\r\nrole:master\r\n", TWI_ROLE_UNKNOWN, TWI_ROLE_MASTER},
        {"$15\r\n# R\r\nrole:slave\r\n", TWI_ROLE_UNKNOWN, TWI_ROLE_REPLICA},
        {"$13\r\n# R\r\nrole:odd\r\n", TWI_ROLE_UNKNOWN, TWI_ROLE_UNKNOWN},
        {"$16\r\n# R\r\nxole:master\r\n", TWI_ROLE_UNKNOWN, TWI_ROLE_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct twi_node *nodes;
        struct twi_reader *reader;
        size_t count;
        assert_int_equal(decode(cases[i].reply, strlen(cases[i].reply), 1000, &nodes, &count, &reader), TWI_WIRE_DONE);
        assert_int_equal(twi_reply_role(nodes, count), cases[i].by_role);
        assert_int_equal(twi_reply_info_role(nodes), cases[i].by_info);
        twi_reader_free(reader);
    }
}
