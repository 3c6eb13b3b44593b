/* hll_bytes.c -- see hll_bytes.h. */
#include "engine/base/hll_bytes.h"

#include <string.h>

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
