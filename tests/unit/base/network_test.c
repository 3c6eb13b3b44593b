/* network_test.c -- tw_key_network(): all spellings of an address have the key that inet_pton() and inet_ntop() give,
 * and no text makes it read elsewhere.
 * Method: random addresses in random spellings, and texts that are almost addresses, are compared with the C library.
 * Each text ends at a page that nobody may read.
 * Covers: engine/base/network.c. */
#include "tests/support/support.h"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tallywheel.h"

static char *edge; /* behind the last byte that may be read */

/* The bytes as a text that ends where reading is fatal, and begins behind nothing that matters. */
static const char *at_the_edge(const char *text, size_t size) {
    if (edge == NULL) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
        edge = pages + page;
    }
    memcpy(edge - size, text, size);
    return edge - size;
}

/* What the C library says; "" if the text is no address. */
static const char *twin(const char *text, size_t size, unsigned bits4, unsigned bits6) {
    static char out[64];
    unsigned char bytes[16];
    char whole[256], *scope;
    int family = AF_INET;
    unsigned bits = bits4, most = 32;
    assert_true(size < sizeof whole);
    memcpy(whole, text, size);
    whole[size] = '\0';
    if (strcspn(whole, "%") < size && whole[strcspn(whole, "%")] == '\0') return ""; /* a NUL, not in a scope */
    if (inet_pton(AF_INET, whole, bytes) != 1) {
        if ((scope = strchr(whole, '%')) != NULL) *scope = '\0';
        if (inet_pton(AF_INET6, whole, bytes) != 1) return "";
        if (IN6_IS_ADDR_V4MAPPED((struct in6_addr *)bytes)) {
            memmove(bytes, bytes + 12, 4);
        } else {
            family = AF_INET6, bits = bits6, most = 128;
        }
    }
    for (unsigned at = bits; at < most; at++) bytes[at / 8] &= (unsigned char)~(0x80u >> at % 8);
    assert_non_null(inet_ntop(family, bytes, out, sizeof out));
    (void)snprintf(out + strlen(out), sizeof out - strlen(out), "/%u", bits);
    return out;
}

/* Returns whether the text is an address. */
static bool is_as_the_twin_says(const char *text, size_t size, unsigned bits4, unsigned bits6) {
    char mine[64] = "as before";
    tw_key key = tw_str("none");
    const char *wanted = twin(text, size, bits4, bits6);
    bool is_address = wanted[0] != '\0';
    tw_status status = tw_key_network(at_the_edge(text, size), size, bits4, bits6, mine, sizeof mine, &key);
    if (status != (is_address ? TW_OK : TW_ERR_KEY) || strcmp(mine, is_address ? wanted : "as before") != 0)
        print_message("\"%.*s\" with %u and %u: %s, \"%s\", not \"%s\"\n", (int)size, text, bits4, bits6,
                      tw_status_name(status), mine, wanted);
    assert_int_equal(status, is_address ? TW_OK : TW_ERR_KEY);
    assert_string_equal(mine, is_address ? wanted : "as before");
    assert_true(is_address ? key.data == mine && key.size == strlen(mine) : key.size == 4);
    return is_address;
}

static void must_be(const char *text, unsigned bits4, unsigned bits6, const char *wanted) {
    char mine[64];
    tw_key key;
    assert_int_equal(tw_key_network(text, strlen(text), bits4, bits6, mine, sizeof mine, &key), TW_OK);
    assert_string_equal(mine, wanted);
    is_as_the_twin_says(text, strlen(text), bits4, bits6);
}

/* Goal: the sentences of the header, each as one address. */
TEST(a_network_has_one_name) {
    must_be("10.1.2.3", 24, 64, "10.1.2.0/24");
    must_be("255.255.255.255", 32, 64, "255.255.255.255/32");
    must_be("255.255.255.255", 0, 64, "0.0.0.0/0");
    must_be("255.255.255.255", 9, 64, "255.128.0.0/9");
    must_be("2001:DB8:1:2:0003:4:5:6", 24, 64, "2001:db8:1:2::/64");
    must_be("2001:db8::3:4:5:6", 24, 56, "2001:db8::/56");
    must_be("2001:db8:1:2:3:4:5:6", 24, 128, "2001:db8:1:2:3:4:5:6/128");
    must_be("2001:db8:1:2:3:4:5:6", 24, 0, "::/0");
    must_be("::ffff:10.1.2.3", 24, 64, "10.1.2.0/24");
    must_be("::FFFF:0A01:0203", 24, 64, "10.1.2.0/24");
    must_be("0:0:0:0:0:ffff:10.1.2.3%eth0", 24, 64, "10.1.2.0/24");
    must_be("fe80::1%eth0", 24, 64, "fe80::/64");
    must_be("fe80::1%eth0", 24, 128, "fe80::1/128");
    must_be("0:0:1:0:0:0:0:1", 24, 128, "0:0:1::1/128");
    must_be("1:0:0:2:0:0:3:4", 24, 128, "1::2:0:0:3:4/128");    /* the first of two equal runs */
    must_be("1:0:2:3:4:5:6:7", 24, 128, "1:0:2:3:4:5:6:7/128"); /* a single zero stays */
    must_be("::1", 24, 128, "::1/128");
    must_be("::1.2.3.4", 24, 120, "::1.2.3.0/120");
}

/* Goal: what is no address is refused, also where it begins or ends like one. */
TEST(a_text_that_is_no_address_is_refused) {
    static const char *const texts[] = {"",
                                        " ",
                                        "1",
                                        "1.2.3",
                                        "1.2.3.",
                                        ".1.2.3.4",
                                        "1.2.3.4.",
                                        "1.2.3.4.5",
                                        "1.2.3.256",
                                        "1.2.3.04",
                                        "1.2.3.4 ",
                                        " 1.2.3.4",
                                        "1.2.3.4:80",
                                        "1.2.3.4/24",
                                        "1.2.3.4%eth0",
                                        "1..3.4",
                                        "0x1.2.3.4",
                                        "+1.2.3.4",
                                        "-1.2.3.4",
                                        "1.2.3.999999999999999999999",
                                        ":",
                                        ":::",
                                        "::::",
                                        "1:",
                                        ":1",
                                        "1::2::3",
                                        "1:2:3:4:5:6:7",
                                        "1:2:3:4:5:6:7:8:9",
                                        "1::2:3:4:5:6:7:8",
                                        "1:2:3:4:5:6:7:8::",
                                        "12345::",
                                        "g::",
                                        "::1.2.3",
                                        "::1.2.3.4:5",
                                        "1:2:3:4:5:6:7:1.2.3.4",
                                        "[::1]",
                                        "::1]:80",
                                        "::1/64",
                                        "%eth0",
                                        "%",
                                        "unix:",
                                        "unix:/run/x",
                                        "localhost",
                                        "::1 ",
                                        "::-1",
                                        "::0x1",
                                        "10.1.2.3,10.1.2.4"};
    for (size_t at = 0; at < sizeof texts / sizeof *texts; at++) {
        if (is_as_the_twin_says(texts[at], strlen(texts[at]), 24, 64)) print_message("\"%s\"\n", texts[at]);
        assert_false(is_as_the_twin_says(texts[at], strlen(texts[at]), 24, 64));
    }
    assert_false(is_as_the_twin_says("1.2.3.4", 8, 24, 64)); /* the NUL is a byte like others */
    assert_false(is_as_the_twin_says("1.2.3.4\0"
                                     "5",
                                     9, 24, 64));
    assert_false(is_as_the_twin_says("\0"
                                     "::1",
                                     4, 24, 64));
    assert_false(is_as_the_twin_says("::1\0%eth0", 9, 24, 64));
    char mine[64];
    tw_key key;
    assert_int_equal(tw_key_network(NULL, 0, 24, 64, mine, sizeof mine, &key), TW_ERR_KEY);
    assert_string_equal(tw_error_text(), "address: is no address of IPv4 or IPv6");
    assert_int_equal(tw_key_network(NULL, 8, 24, 64, mine, sizeof mine, &key), TW_ERR_OPTIONS);
}

/* Goal: a text of a megabyte is refused, or cut at its scope, without being read to its end. */
TEST(a_long_text_is_not_read_to_its_end) {
    static char text[1 << 20];
    char mine[64];
    tw_key key;
    memset(text, '1', sizeof text);
    assert_int_equal(tw_key_network(text, SIZE_MAX / 4, 24, 64, mine, sizeof mine, &key), TW_ERR_KEY);
    memcpy(text, "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255", 45);
    assert_int_equal(tw_key_network(text, sizeof text, 24, 64, mine, sizeof mine, &key), TW_ERR_KEY);
    text[45] = '%';
    assert_int_equal(tw_key_network(text, SIZE_MAX / 4, 24, 128, mine, sizeof mine, &key), TW_OK);
    assert_string_equal(mine, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128");
    text[45] = '1', text[46] = '%';
    assert_int_equal(tw_key_network(text, SIZE_MAX / 4, 24, 128, mine, sizeof mine, &key), TW_ERR_KEY);
}

/* Goal: arguments out of their bounds are named, and change nothing. */
TEST(bits_and_buffers_have_bounds) {
    char mine[64] = "as before";
    tw_key key = tw_str("none");
    static const struct {
        unsigned bits4, bits6;
        size_t buffer_size;
        const char *text;
    } cases[] = {{33, 64, 64, "bits4: an IPv4 address has 32 bits"},
                 {UINT32_MAX, 64, 64, "bits4: an IPv4 address has 32 bits"},
                 {24, 129, 64, "bits6: an IPv6 address has 128 bits"},
                 {24, 64, 63, "buffer_size: the buffer has 64 bytes or more"},
                 {24, 64, 0, "buffer_size: the buffer has 64 bytes or more"}};
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
        assert_int_equal(
            tw_key_network("10.1.2.3", 8, cases[at].bits4, cases[at].bits6, mine, cases[at].buffer_size, &key),
            TW_ERR_OPTIONS);
        assert_string_equal(tw_error_text(), cases[at].text);
    }
    assert_int_equal(tw_key_network("10.1.2.3", 8, 24, 64, NULL, 64, &key), TW_ERR_OPTIONS);
    assert_string_equal(tw_error_text(), "buffer: it may not be NULL");
    assert_string_equal(mine, "as before");
    assert_int_equal(key.size, 4);
    assert_int_equal(tw_key_network("10.1.2.3", 8, 24, 64, mine, sizeof mine, NULL), TW_OK);
    assert_string_equal(mine, "10.1.2.0/24");
    assert_int_equal(tw_key_network(mine, 8, 16, 64, mine, sizeof mine, &key),
                     TW_OK); /* the address lies in the buffer */
    assert_string_equal(mine, "10.1.0.0/16");
}

/* ---- random ones ---- */

/* An address with many zeros, as real ones have; often below ::/96 or ::ffff:0:0/96. */
static void address_draw(struct test_prng *prng, unsigned char bytes[16]) {
    uint64_t kind = test_prng_next(prng), zeros = test_prng_next(prng);
    for (int group = 0; group < 8; group++) {
        uint64_t value = test_prng_next(prng) >> (test_prng_next(prng) % 4 * 16 + 1);
        if (zeros >> (2 * group) & 1) value = 0;
        if (kind % 8 == 0 && group < 6) value = group == 5 && (kind & 8) != 0 ? 0xffff : 0;
        bytes[2 * group] = (unsigned char)(value >> 8), bytes[2 * group + 1] = (unsigned char)value;
    }
}

/* One of the many spellings of it. */
static size_t spell(struct test_prng *prng, const unsigned char bytes[16], char text[128]) {
    uint64_t draw = test_prng_next(prng);
    if (draw % 4 == 0) return (size_t)sprintf(text, "%u.%u.%u.%u", bytes[12], bytes[13], bytes[14], bytes[15]);
    if (draw % 4 == 1) {
        assert_non_null(inet_ntop(AF_INET6, bytes, text, 64));
    } else {
        const char *formats[] = {"%x", "%X", "%04x", "%03X"};
        char *out = text;
        int gap = (int)(draw >> 8 & 7), length = 0;
        while (gap + length < 8 && bytes[2 * (gap + length)] == 0 && bytes[2 * (gap + length) + 1] == 0) length++;
        if ((draw & 32) == 0) length = 0;
        for (int group = 0; group < 8; group++) {
            if (length > 0 && group == gap) {
                out += sprintf(out, "::");
                group += length - 1;
                continue;
            }
            if (group > 0 && !(length > 0 && group == gap + length)) *out++ = ':';
            if (group == 6 && (draw & 64) != 0) {
                out += sprintf(out, "%u.%u.%u.%u", bytes[12], bytes[13], bytes[14], bytes[15]);
                break;
            }
            out +=
                sprintf(out, formats[test_prng_next(prng) % 4], (unsigned)bytes[2 * group] << 8 | bytes[2 * group + 1]);
        }
        *out = '\0';
    }
    if ((draw & 1 << 16) != 0) strcat(text, "%enp0s31f6");
    return strlen(text);
}

/* Goal: random addresses in random spellings, with random bits, have the C library's key. So have the same texts after
 * one to three changes, most of which make them no address. */
TEST(random_addresses_have_the_key_of_the_c_library) {
    static const char signs[] = "0123456789abcdefABCDEFg:::...%/ -\0";
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    unsigned taken = 0, refused = 0, rounds = (unsigned)test_scale(100000);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned char bytes[16];
        char text[128];
        address_draw(&prng, bytes);
        size_t size = spell(&prng, bytes, text);
        uint64_t draw = test_prng_next(&prng);
        unsigned bits4 = (unsigned)(draw % 33), bits6 = (unsigned)((draw >> 8) % 129);
        assert_true(is_as_the_twin_says(text, size, bits4, bits6));
        for (uint64_t change = draw >> 20 & 3; change < 3; change++) {
            size_t at = test_prng_next(&prng) % (size + 1), kind = test_prng_next(&prng) % 3;
            if (kind == 0 && at < size) memmove(text + at, text + at + 1, --size - at);
            if (kind == 1) memmove(text + at + 1, text + at, size++ - at);
            if (kind > 0 && at < size) text[at] = signs[test_prng_next(&prng) % (sizeof signs - 1)];
        }
        if (is_as_the_twin_says(text, size, bits4, bits6))
            taken++;
        else
            refused++;
    }
    assert_true(taken > rounds / 100 && refused > rounds / 100);
}

int main(void) {
    return test_run();
}
