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

/* ---- hll bytes ---- */

enum { DENSE = 0, SPARSE = 1 };
static const unsigned char magic[4] = {'H', 'Y', 'L', 'L'};

#define ZERO_RUN_MAX 64u         /* in one byte */
#define LONG_ZERO_RUN_MAX 16384u /* in two bytes */
#define VALUE_RUN_MAX 4u
#define SPARSE_VALUE_MAX 32u
#define LONG_ZERO 0x40u
#define VALUE 0x80u

/* ---- writing ---- */

static void put_head(unsigned char *bytes, unsigned char encoding) {
    memset(bytes, 0, TWI_HLL_BYTES_HEAD);
    memcpy(bytes, magic, sizeof magic);
    bytes[4] = encoding;
    bytes[TWI_HLL_BYTES_HEAD - 1] = 0x80; /* this means that Redis computes the estimate when it needs it */
}

/* Writes one run of equal registers, or the part that fits into one code. Returns how many registers were written. */
static uint32_t put_run(unsigned char *at, uint32_t value, uint32_t run, size_t *size) {
    if (value != 0) {
        uint32_t part = run < VALUE_RUN_MAX ? run : VALUE_RUN_MAX;
        at[(*size)++] = (unsigned char)(VALUE | (value - 1) << 2 | (part - 1));
        return part;
    }
    uint32_t part = run < LONG_ZERO_RUN_MAX ? run : LONG_ZERO_RUN_MAX;
    if (part > ZERO_RUN_MAX) at[(*size)++] = (unsigned char)(LONG_ZERO | (part - 1) >> 8);
    at[(*size)++] = (unsigned char)(part - 1);
    return part;
}

/* Returns 0 if the registers do not fit. */
static size_t put_sparse(const uint8_t *registers, unsigned char *at) {
    size_t size = 0;
    for (uint32_t index = 0; index < TWI_HLL_REGISTERS;) {
        uint32_t run = 1, value = registers[index];
        if (value > SPARSE_VALUE_MAX || size + 2 > TWI_HLL_SPARSE_MAX) return 0;
        while (index + run < TWI_HLL_REGISTERS && registers[index + run] == value) run++;
        index += put_run(at, value, run, &size);
    }
    return size;
}

static void put_dense(const uint8_t *registers, unsigned char *at) {
    for (uint32_t index = 0; index < TWI_HLL_REGISTERS; index += 4, at += 3) {
        uint32_t four = registers[index] | (uint32_t)registers[index + 1] << 6 | (uint32_t)registers[index + 2] << 12 |
                        (uint32_t)registers[index + 3] << 18;
        at[0] = (unsigned char)four;
        at[1] = (unsigned char)(four >> 8);
        at[2] = (unsigned char)(four >> 16);
    }
}

size_t twi_hll_encode(const uint8_t registers[TWI_HLL_REGISTERS], unsigned char bytes[TWI_HLL_BYTES_MAX]) {
    size_t size = put_sparse(registers, bytes + TWI_HLL_BYTES_HEAD);
    put_head(bytes, size != 0 ? SPARSE : DENSE);
    if (size != 0) return TWI_HLL_BYTES_HEAD + size;
    put_dense(registers, bytes + TWI_HLL_BYTES_HEAD);
    return TWI_HLL_BYTES_MAX;
}

/* ---- reading ---- */

static bool get_sparse(const unsigned char *at, const unsigned char *end, uint8_t *registers) {
    uint32_t index = 0;
    while (at < end) {
        uint32_t code = *at++, run, value = 0;
        if ((code & VALUE) != 0) {
            value = (code >> 2 & 31) + 1;
            run = (code & 3) + 1;
        } else if ((code & LONG_ZERO) != 0) {
            if (at == end) return false;
            run = ((code & 63) << 8 | *at++) + 1;
        } else {
            run = code + 1;
        }
        if (run > TWI_HLL_REGISTERS - index) return false;
        memset(registers + index, (int)value, run);
        index += run;
    }
    return index == TWI_HLL_REGISTERS;
}

static bool get_dense(const unsigned char *at, uint8_t *registers) {
    uint8_t most = 0;
    for (uint32_t index = 0; index < TWI_HLL_REGISTERS; index += 4, at += 3) {
        uint32_t four = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
        for (uint32_t i = 0; i < 4; i++) {
            registers[index + i] = (uint8_t)(four >> 6 * i & 63);
            if (registers[index + i] > most) most = registers[index + i];
        }
    }
    return most <= TWI_HLL_VALUE_MAX;
}

bool twi_hll_decode(const unsigned char *bytes, size_t size, uint8_t registers[TWI_HLL_REGISTERS]) {
    if (size < TWI_HLL_BYTES_HEAD || memcmp(bytes, magic, sizeof magic) != 0) return false;
    if (bytes[4] == SPARSE) return get_sparse(bytes + TWI_HLL_BYTES_HEAD, bytes + size, registers);
    return bytes[4] == DENSE && size == TWI_HLL_BYTES_MAX && get_dense(bytes + TWI_HLL_BYTES_HEAD, registers);
}
