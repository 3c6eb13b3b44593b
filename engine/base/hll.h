/* hll.h -- HyperLogLog: the register and the value of an element, and the estimate from all registers.
 *
 * A sketch has 2^14 registers of 6 bits. An element is hashed. The lower 14 bits of the hash choose the register. The
 * register keeps the greatest value that any element gave it. The value is 1 + the number of zero bits before the first
 * one bit in the rest of the hash. So adding an element twice has no effect, and the union of two sketches has the
 * maximum of each register.
 *
 * Hash, number of registers and estimator are the same as in Redis. So the same elements give the estimate of PFCOUNT.
 *   the sketch     P. Flajolet, É. Fusy, O. Gandouet, F. Meunier: HyperLogLog, 2007
 *   the estimator  O. Ertl: New cardinality estimation algorithms for HyperLogLog sketches, 2017, sections 2 and 3
 *   the hash       A. Appleby: MurmurHash2, the variant of 64 bits for 64-bit processors (MurmurHash64A)
 * Always true: these are pure functions of their arguments. The hash has no secret, so a user who chooses the elements
 * also chooses the registers, and thereby an estimate.
 * Elsewhere: the form of the registers in memory (sketch.h). */
#ifndef TWI_BASE_HLL_H
#define TWI_BASE_HLL_H

#include "engine/base/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWI_HLL_INDEX_BITS 14u
#define TWI_HLL_REGISTERS (1u << TWI_HLL_INDEX_BITS)
#define TWI_HLL_REST_BITS (64u - TWI_HLL_INDEX_BITS)
#define TWI_HLL_VALUE_MAX (TWI_HLL_REST_BITS + 1) /* 51; the value if the rest of the hash is 0 */

/* The register of an element, and the least value of this register afterwards. */
struct twi_hll_element {
    uint32_t index, value;
};

/* Returns the hash of any bytes. `data` may be NULL if there are no bytes. */
uint64_t twi_hll_hash(const void *data, size_t size);

TWI_INLINE struct twi_hll_element twi_hll_element(uint64_t hash) {
    uint64_t rest = hash >> TWI_HLL_INDEX_BITS | UINT64_C(1) << TWI_HLL_REST_BITS; /* never 0 */
    return (struct twi_hll_element){(uint32_t)hash & (TWI_HLL_REGISTERS - 1), (uint32_t)__builtin_ctzll(rest) + 1};
}

/* How many registers have each value. The sum of all of them is TWI_HLL_REGISTERS. */
struct twi_hll_histogram {
    uint32_t registers[TWI_HLL_VALUE_MAX + 1];
};

/* Returns the estimated number of distinct elements. It is 0 if all registers are 0. */
int64_t twi_hll_estimate(const struct twi_hll_histogram *histogram);

/* ---- hll bytes ----
 * registers in the form of a string of Redis. PFADD writes this form, and PFCOUNT and PFMERGE read it.
 *
 *   | "HYLL" | encoding : 8 | 0 0 0 | cached estimate : 64, its highest bit: not valid | registers ... |
 *
 *   encoding 0, dense: 6 bits for each register, the first register in the lowest bits of the first byte: 12,288 bytes
 *   encoding 1, sparse: runs of equal registers, in order
 *     00nnnnnn           n + 1 registers of value 0
 *     01nnnnnn nnnnnnnn  n + 1 registers of value 0, the higher bits first
 *     1vvvvvnn           n + 1 registers of value v + 1
 *
 * Always true: twi_hll_decode() reads the bytes of twi_hll_encode() and of Redis, and returns the same registers. It
 * refuses all other bytes, including a value that no hash can have, and reads no byte beyond the end. */

#define TWI_HLL_BYTES_HEAD 16u
#define TWI_HLL_BYTES_MAX (TWI_HLL_BYTES_HEAD + TWI_HLL_REGISTERS / 4 * 3)
#define TWI_HLL_SPARSE_MAX 3000u /* the most bytes of runs; this is the default of hll-sparse-max-bytes in Redis */

/* `registers` has one byte for each register. Returns the number of bytes, sparse if possible, otherwise dense. */
size_t twi_hll_encode(const uint8_t registers[TWI_HLL_REGISTERS], unsigned char bytes[TWI_HLL_BYTES_MAX]);
/* Returns false if these are not the bytes of a sketch. Then `registers` may contain a part of them. */
bool twi_hll_decode(const unsigned char *bytes, size_t size, uint8_t registers[TWI_HLL_REGISTERS]);

#endif
