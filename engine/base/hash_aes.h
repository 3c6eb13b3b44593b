/* hash_aes.h -- the AES hash, inline. hash_aes.c makes a function of it, and fast_aes.c inlines it into the hot path.
 *
 * There are two lanes of 16 bytes. They start as the two halves of the secret. Every second block of the key is
 * combined with each lane by exclusive or. Two rounds follow, and three rounds after the last block of the lane. Then
 * the lanes are combined, and one more round is made over both (R is a round):
 *
 *   a = half 0 ^ block 0 -R-R- ^ block 2 -R-R- ... -R-R- ^ size -R- ^ b -R- the lower half: 64 bits
 *   b = half 1 ^ block 1 -R-R- ^ block 3 -R-R- ... -R-R---------R-----+
 *
 * Two rounds spread a difference of one byte over all 16 bytes. For at most one secret in about 2^28 it takes a
 * predictable way through these bytes (five active S-boxes), so colliding keys cannot be prepared. The last blocks may
 * overlap the previous ones, so that no byte beyond the key is read. The size distinguishes such keys. It is combined
 * at a place where no byte of a key is combined. If it were combined in the same step as a block, that block could undo
 * it under every secret (flood_test.c). A key of up to 16 bytes is one block in lane a alone. Two such keys of one size
 * never agree in all 128 bits. Each call waits for its hash, so there are only four rounds after a block. With three
 * rounds, keys that differ in a few bytes have the same 32 bits too often (hash_test.c). After four rounds it brings no
 * gain to fold the two halves. Two multiplications with keys would take two thirds of the time, but each observed
 * collision is an equation in the secret, which can be solved (docs/SPEED.md).
 * Always true: only bytes data[0] .. data[size - 1] are read. */
#ifndef TWI_BASE_HASH_AES_H
#define TWI_BASE_HASH_AES_H

#include "engine/base/check.h"
#include "engine/base/hash.h"

#include <stdbool.h>
#include <string.h>

/* Returns NULL if the processor has no AES rounds. */
twi_hash_fn *twi_hash_aes(void);
/* Returns the fastest hash for this processor: the AES hash if it has AES rounds, otherwise SipHash-1-3. The result
 * is always the same within one process. */
twi_hash_fn *twi_hash_choose(void);

/* ---- the AES hash: one algorithm on a few operations that each processor family spells differently -------------- */

#if defined(__x86_64__)
#include <immintrin.h>
#define TWI_AES_CODE __attribute__((target("aes,sse4.1")))
typedef __m128i lane;
#define lane_load(bytes) _mm_loadu_si128((const __m128i *)(const void *)(bytes))
#define lane_load_aligned(bytes) _mm_load_si128((const __m128i *)(const void *)(bytes))
#define lane_of(low, high) _mm_set_epi64x((long long)(high), (long long)(low))
#define lane_xor(x, y) _mm_xor_si128((x), (y))
#define lane_round(x, key) _mm_aesenc_si128((x), (key)) /* substitute, shift, mix, then combine with the key */
#define lane_low(x) ((uint64_t)_mm_cvtsi128_si64(x))
#define lane_or(x, y) _mm_or_si128((x), (y))
#define lane_is_zero(x) (_mm_testz_si128((x), (x)) != 0)
#define TWI_PROCESSOR_HAS_AES() (__builtin_cpu_supports("aes") && __builtin_cpu_supports("sse4.1"))
#define TWI_WITH_AES 1
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && \
    (defined(__ARM_FEATURE_AES) || !defined(__clang__) || __clang_major__ >= 16)
/* ARM64: the cryptography extension, if the processor has it. Older versions of clang do not offer these intrinsics to
 * a single function. A library that they build has them with -march=armv8-a+crypto alone. */
#include <arm_neon.h>
#if defined(__ARM_FEATURE_AES)
#define TWI_AES_CODE
#define TWI_PROCESSOR_HAS_AES() true
#else
#include <sys/auxv.h>
#define TWI_AES_CODE __attribute__((target("+crypto")))
#define TWI_PROCESSOR_HAS_AES() ((getauxval(AT_HWCAP) & HWCAP_AES) != 0)
#endif
typedef uint8x16_t lane;
#define lane_load(bytes) vld1q_u8(bytes)
#define lane_load_aligned(bytes) vld1q_u8(bytes)
#define lane_of(low, high) vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)))
#define lane_xor(x, y) veorq_u8((x), (y))
/* the key is added last, as on x86 */
#define lane_round(x, key) veorq_u8(vaesmcq_u8(vaeseq_u8((x), vdupq_n_u8(0))), (key))
#define lane_low(x) vgetq_lane_u64(vreinterpretq_u64_u8(x), 0)
#define lane_or(x, y) vorrq_u8((x), (y))
#define lane_is_zero(x) (vmaxvq_u8(x) == 0)
#define TWI_WITH_AES 1
#else
#define TWI_WITH_AES 0
#endif

#if TWI_WITH_AES
static inline uint64_t twi_load_32(const unsigned char *bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* Reads a key of up to 16 bytes as one block. Two different keys of one size never make the same block, because the
 * loads together cover every byte. */
TWI_AES_CODE static inline lane twi_block_small(const unsigned char *bytes, size_t size) {
    if (size >= 8) return lane_of(twi_load_64(bytes), twi_load_64(bytes + size - 8));
    if (size >= 4) return lane_of(twi_load_32(bytes), twi_load_32(bytes + size - 4));
    if (size == 0) return lane_of(0, 0);
    return lane_of((uint64_t)bytes[0] | (uint64_t)bytes[size / 2] << 8 | (uint64_t)bytes[size - 1] << 16, 0);
}

/* Combines both lanes, after their last block, with the size. */
TWI_AES_CODE static inline uint64_t twi_hash_aes_end(lane a, lane b, lane key_a, lane key_b, size_t size) {
    a = lane_round(lane_round(lane_round(a, key_b), lane_xor(key_a, lane_of(size, 0))), key_b);
    b = lane_round(lane_round(lane_round(b, key_a), key_b), key_a);
    return lane_low(lane_round(lane_xor(a, b), key_a));
}

TWI_AES_CODE static inline uint64_t twi_hash_aes_inline(const struct twi_hash_secret *secret, const void *data,
                                                        size_t size) {
    const unsigned char *bytes = data;
    const lane key_a = lane_of(secret->words[0], secret->words[1]), key_b = lane_of(secret->words[2], secret->words[3]);
    lane a = key_a, b = key_b;
    if (twi_likely(size <= 16)) {
        a = lane_xor(a, twi_block_small(bytes, size));
    } else {
        const unsigned char *end = bytes + size, *last = size > 32 ? end - 32 : bytes;
        for (; bytes < last; bytes += 32) {
            a = lane_round(lane_round(lane_xor(a, lane_load(bytes)), key_b), key_a);
            b = lane_round(lane_round(lane_xor(b, lane_load(bytes + 16)), key_a), key_b);
        }
        /* from 1 to 32 bytes are left. The first of these two blocks may begin before `bytes` (sizes above 32), or
         * the two may overlap (17 to 31). */
        a = lane_xor(a, lane_load(last));
        b = lane_xor(b, lane_load(end - 16));
    }
    return twi_hash_aes_end(a, b, key_a, key_b, size);
}

/* Does the same for keys of more than 32 bytes. */
TWI_AES_CODE static inline uint64_t twi_hash_aes_long(const struct twi_hash_secret *secret, const void *data,
                                                      size_t size) {
    const lane key_a = lane_of(secret->words[0], secret->words[1]), key_b = lane_of(secret->words[2], secret->words[3]);
    const unsigned char *bytes = data, *last = bytes + size - 32;
    lane a = key_a, b = key_b;
    do {
        a = lane_round(lane_round(lane_xor(a, lane_load(bytes)), key_b), key_a);
        b = lane_round(lane_round(lane_xor(b, lane_load(bytes + 16)), key_a), key_b);
        bytes += 32;
    } while (bytes < last);
    return twi_hash_aes_end(lane_xor(a, lane_load(last)), lane_xor(b, lane_load(last + 16)), key_a, key_b, size);
}
/* Compares two keys of more than 32 bytes. The second key is in a record, so its bytes are aligned. */
TWI_AES_CODE static inline lane twi_differ_32(const unsigned char *a, const unsigned char *b) {
    return lane_or(lane_xor(lane_load(a), lane_load(b)), lane_xor(lane_load(a + 16), lane_load(b + 16)));
}
TWI_AES_CODE static inline bool twi_long_key_is(const unsigned char *key, const unsigned char *of_record, size_t size) {
    lane differ = lane_or(lane_xor(lane_load(key), lane_load_aligned(of_record)),
                          lane_xor(lane_load(key + 16), lane_load_aligned(of_record + 16)));
    size_t last = size - 32;
    for (size_t at = 32; at < last; at += 32) differ = lane_or(differ, twi_differ_32(key + at, of_record + at));
    return lane_is_zero(lane_or(differ, twi_differ_32(key + last, of_record + last)));
}

/* A key of 4 to 32 bytes in registers, in the form that the hash needs. It is read once, for the hash and for the
 * comparison. Two keys of one size are equal if their blocks are. */
struct twi_short_key {
    lane first, last; /* for a key of up to 16 bytes: one block, and 0 */
};
TWI_AES_CODE static inline struct twi_short_key twi_short_key(const unsigned char *bytes, size_t size) {
    if (twi_likely(size > 16)) return (struct twi_short_key){lane_load(bytes), lane_load(bytes - 16 + size)};
    return (struct twi_short_key){twi_block_small(bytes, size), lane_of(0, 0)};
}
/* Returns the hash of such a key, the same as twi_hash_aes_inline(). */
TWI_AES_CODE static inline uint64_t twi_hash_aes_short(const struct twi_hash_secret *secret, struct twi_short_key key,
                                                       size_t size) {
    const lane key_a = lane_of(secret->words[0], secret->words[1]), key_b = lane_of(secret->words[2], secret->words[3]);
    return twi_hash_aes_end(lane_xor(key_a, key.first), lane_xor(key_b, key.last), key_a, key_b, size);
}
/* Returns true if the `size` bytes at `bytes` are that key, which has the same size. */
TWI_AES_CODE static inline bool twi_short_key_is(struct twi_short_key key, const unsigned char *bytes, size_t size) {
    lane differ;
    if (twi_likely(size > 16))
        differ = lane_or(lane_xor(key.first, lane_load(bytes)), lane_xor(key.last, lane_load(bytes - 16 + size)));
    else
        differ = lane_xor(key.first, twi_block_small(bytes, size));
    return lane_is_zero(differ);
}
#endif

#endif
