/* hll_bytes.h -- registers in the form of a string of Redis. PFADD writes this form, and PFCOUNT and PFMERGE read it.
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
#ifndef TWI_BASE_HLL_BYTES_H
#define TWI_BASE_HLL_BYTES_H

#include "engine/base/hll.h"

#include <stdbool.h>

#define TWI_HLL_BYTES_HEAD 16u
#define TWI_HLL_BYTES_MAX (TWI_HLL_BYTES_HEAD + TWI_HLL_REGISTERS / 4 * 3)
#define TWI_HLL_SPARSE_MAX 3000u /* the most bytes of runs; this is the default of hll-sparse-max-bytes in Redis */

/* `registers` has one byte for each register. Returns the number of bytes, sparse if possible, otherwise dense. */
size_t twi_hll_encode(const uint8_t registers[TWI_HLL_REGISTERS], unsigned char bytes[TWI_HLL_BYTES_MAX]);
/* Returns false if these are not the bytes of a sketch. Then `registers` may contain a part of them. */
bool twi_hll_decode(const unsigned char *bytes, size_t size, uint8_t registers[TWI_HLL_REGISTERS]);

#endif
