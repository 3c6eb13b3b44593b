/* hll_test.c -- HyperLogLog: the hash, the registers, the estimate, and the bytes in which Redis keeps them.
 * Method: the slow definition next to the fast code, and wrong bytes. tests/redis/shapes/distinct.c compares all of it
 * with a server. */
#include "tests/support/support.h"

#include "engine/base/hll.h"

#define F UINT64_C(0xc6a4a7935bd1e995)

/* MurmurHash64A as it is described: words of 8 bytes, the first byte lowest; the rest as if zeroes followed. */
static uint64_t hash_by_bytes(const unsigned char *bytes, size_t size) {
    uint64_t hash = UINT64_C(0xadc83b19) ^ size * F;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = 0;
        size_t part = size - at < 8 ? size - at : 8;
        for (size_t i = 0; i < part; i++) word += (uint64_t)bytes[at + i] << 8 * i;
        if (part == 8) {
            word *= F;
            word = (word ^ word >> 47) * F;
        }
        hash = (hash ^ word) * F;
    }
    hash = (hash ^ hash >> 47) * F;
    return hash ^ hash >> 47;
}

TEST(the_hash_is_murmur_for_any_bytes) {
    unsigned char bytes[100];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (int round = 0; round < 20000; round++) {
        size_t at = test_prng_below(&prng, 8), size = test_prng_below(&prng, sizeof bytes - 8);
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)test_prng_next(&prng);
        assert_true(twi_hll_hash(bytes + at, size) == hash_by_bytes(bytes + at, size));
    }
    assert_true(twi_hll_hash(NULL, 0) == hash_by_bytes(bytes, 0));
}

TEST(an_element_raises_its_register_by_the_zeroes_of_its_hash) {
    struct twi_hll_element element = twi_hll_element(0);
    assert_int_equal(element.index, 0);
    assert_int_equal(element.value, TWI_HLL_VALUE_MAX);
    element = twi_hll_element(UINT64_MAX);
    assert_int_equal(element.index, TWI_HLL_REGISTERS - 1);
    assert_int_equal(element.value, 1);
    for (uint32_t zeroes = 0; zeroes < TWI_HLL_REST_BITS; zeroes++) {
        element = twi_hll_element(UINT64_C(1) << (TWI_HLL_INDEX_BITS + zeroes) | 77);
        assert_int_equal(element.index, 77);
        assert_int_equal(element.value, zeroes + 1);
    }
}

static int64_t estimate_of(const uint8_t *registers) {
    struct twi_hll_histogram histogram = {{0}};
    for (uint32_t i = 0; i < TWI_HLL_REGISTERS; i++) histogram.registers[registers[i]]++;
    return twi_hll_estimate(&histogram);
}

static void add(uint8_t *registers, const void *data, size_t size) {
    struct twi_hll_element element = twi_hll_element(twi_hll_hash(data, size));
    if (registers[element.index] < element.value) registers[element.index] = (uint8_t)element.value;
}

TEST(an_estimate_is_within_three_percent) {
    static uint8_t registers[TWI_HLL_REGISTERS];
    memset(registers, 0, sizeof registers);
    assert_i64_equal(estimate_of(registers), 0);
    uint64_t added = 0, salt = test_seed() << 32;
    for (uint64_t upto = 1; upto <= 1000000; upto *= 10) {
        for (; added < upto; added++) {
            uint64_t element = salt + added;
            add(registers, &element, sizeof element);
        }
        double error = (double)estimate_of(registers) / (double)upto - 1;
        assert_true(error < 0.04 && error > -0.04); /* five standard deviations of 0.81 % */
        if (upto <= 100) assert_true(llabs(estimate_of(registers) - (int64_t)upto) <= 1 + (int64_t)upto / 50);
    }
    memset(registers, TWI_HLL_VALUE_MAX, sizeof registers);
    assert_i64_equal(estimate_of(registers), INT64_MAX);
}

/* ---- bytes ---- */

static unsigned char bytes[TWI_HLL_BYTES_MAX + 1];
static uint8_t before[TWI_HLL_REGISTERS], after[TWI_HLL_REGISTERS];

static size_t assert_comes_back(void) {
    size_t size = twi_hll_encode(before, bytes);
    memset(after, 0xee, sizeof after);
    assert_true(twi_hll_decode(bytes, size, after));
    assert_memory_equal(before, after, sizeof before);
    return size;
}

TEST(registers_come_back_from_their_bytes) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    memset(before, 0, sizeof before);
    assert_int_equal(assert_comes_back(), TWI_HLL_BYTES_HEAD + 2);
    for (int round = 0; round < 300; round++) {
        uint32_t count = (uint32_t)test_prng_below(&prng, round % 3 == 0 ? 20 : 4000);
        uint32_t most = test_prng_chance(&prng, 1, 2) ? 32 : TWI_HLL_VALUE_MAX;
        memset(before, test_prng_chance(&prng, 1, 10) ? 7 : 0, sizeof before);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t at = (uint32_t)test_prng_below(&prng, TWI_HLL_REGISTERS),
                     run = 1 + (uint32_t)test_prng_below(&prng, 6);
            uint8_t value = (uint8_t)test_prng_below(&prng, most + 1);
            for (uint32_t j = at; j < at + run && j < TWI_HLL_REGISTERS; j++) before[j] = value;
        }
        size_t size = assert_comes_back();
        assert_true(size == TWI_HLL_BYTES_MAX || size <= TWI_HLL_BYTES_HEAD + TWI_HLL_SPARSE_MAX);
    }
}

TEST(a_few_registers_are_sparse_and_many_are_dense) {
    memset(before, 0, sizeof before);
    before[100] = 32;
    assert_true(assert_comes_back() < 30);
    before[100] = 33; /* a sparse code has values up to 32 */
    assert_int_equal(assert_comes_back(), TWI_HLL_BYTES_MAX);
    for (uint32_t i = 0; i < TWI_HLL_REGISTERS; i++) before[i] = (uint8_t)(1 + i % 9);
    assert_int_equal(assert_comes_back(), TWI_HLL_BYTES_MAX);
}

TEST(wrong_bytes_are_refused) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    memset(before, 0, sizeof before);
    for (int i = 0; i < 300; i++) before[test_prng_below(&prng, TWI_HLL_REGISTERS)] = 5;
    size_t size = assert_comes_back();
    for (size_t cut = 0; cut < size; cut++) { /* in memory of that size: a read behind the end is seen */
        unsigned char *part = malloc(cut + 1);
        memcpy(part, bytes, cut);
        assert_false(twi_hll_decode(part, cut, after));
        free(part);
    }
    bytes[size] = 0;
    assert_false(twi_hll_decode(bytes, size + 1, after)); /* one register too many */
    bytes[4] = 2;
    assert_false(twi_hll_decode(bytes, size, after));
    bytes[4] = 1;
    bytes[0] = 'h';
    assert_false(twi_hll_decode(bytes, size, after));
    for (uint32_t i = 0; i < TWI_HLL_REGISTERS; i++) before[i] = (uint8_t)(1 + i % 9);
    size = assert_comes_back();
    assert_false(twi_hll_decode(bytes, size - 1, after));
    assert_false(twi_hll_decode(bytes, size + 1, after));
    bytes[TWI_HLL_BYTES_HEAD + 9] |= 63; /* a register of 63 is no value of this hash */
    assert_false(twi_hll_decode(bytes, size, after));
    for (int round = 0; round < 20000; round++) { /* anything, behind a good head */
        size_t some = TWI_HLL_BYTES_HEAD + test_prng_below(&prng, 40);
        for (size_t i = 5; i < some; i++) bytes[i] = (unsigned char)test_prng_next(&prng);
        bytes[4] = 1;
        (void)twi_hll_decode(bytes, some, after);
    }
}
