/* hll.c -- see hll.h. */
#include "engine/base/hll.h"

#include <string.h>

/* ---- the hash ---- */

#define HASH_SEED UINT64_C(0xadc83b19) /* the seed of Redis */
#define HASH_FACTOR UINT64_C(0xc6a4a7935bd1e995)

static uint64_t mixed(uint64_t word) {
    word *= HASH_FACTOR;
    word ^= word >> 47;
    return word * HASH_FACTOR;
}

/* Returns up to 8 bytes as a number, the first byte in the lowest place, on any processor. */
static uint64_t word_of(const unsigned char *bytes, size_t size) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (twi_likely(size == 8)) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        return word;
    }
#endif
    uint64_t word = 0;
    for (size_t i = size; i > 0; i--) word = word << 8 | bytes[i - 1];
    return word;
}

uint64_t twi_hll_hash(const void *data, size_t size) {
    const unsigned char *at = data;
    uint64_t hash = HASH_SEED ^ (uint64_t)size * HASH_FACTOR;
    size_t left = size;
    for (; left >= 8; left -= 8, at += 8) hash = (hash ^ mixed(word_of(at, 8))) * HASH_FACTOR;
    if (left != 0) hash = (hash ^ word_of(at, left)) * HASH_FACTOR;
    hash ^= hash >> 47;
    hash *= HASH_FACTOR;
    return hash ^ hash >> 47;
}

/* ---- the estimate ---- */

/* Returns the square root of a number in (0, 1). Newton's method starts above the root, and the value falls until it
 * stops. So the library needs no libm. */
static double root(double x) {
    double at = 1, next = (at + x) / 2;
    while (next < at) {
        at = next;
        next = (at + x / at) / 2;
    }
    return at;
}

/* x + the sum over k >= 1 of x^(2^k) * 2^(k-1): the correction for registers of value 0, where x is their share, below
 * 1. */
static double sigma(double x) {
    double sum = x, factor = 1, before;
    do {
        x *= x;
        before = sum;
        sum += x * factor;
        factor += factor;
    } while (sum != before);
    return sum;
}

/* (1 - x - the sum over k >= 1 of (1 - x^(2^-k))^2 * 2^-k) / 3: the correction for registers of the greatest value,
 * where x is the share of all others. */
static double tau(double x) {
    if (x <= 0 || x >= 1) return 0;
    double sum = 1 - x, factor = 1, before;
    do {
        x = root(x);
        before = sum;
        factor *= 0.5;
        sum -= (1 - x) * (1 - x) * factor;
    } while (sum != before);
    return sum / 3;
}

#define ALPHA 0.721347520444481703680 /* 1 / (2 ln 2) */

int64_t twi_hll_estimate(const struct twi_hll_histogram *histogram) {
    const uint32_t *registers = histogram->registers;
    const double all = TWI_HLL_REGISTERS;
    if (registers[0] == TWI_HLL_REGISTERS) return 0;
    double sum = all * tau((all - registers[TWI_HLL_VALUE_MAX]) / all);
    for (uint32_t value = TWI_HLL_REST_BITS; value >= 1; value--) sum = (sum + registers[value]) * 0.5;
    sum += all * sigma(registers[0] / all);
    double estimate = ALPHA * all * all / sum;
    return estimate < 9e18 ? (int64_t)(estimate + 0.5) : INT64_MAX;
}
