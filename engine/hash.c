/* hash.c -- see hash.h. Two hashes of our own making behind one type; which one runs is decided once, by what the
 * processor has.
 *
 * The AES hash. Two lanes of 16 bytes begin at the two halves of the secret, the size mixed into the second; each
 * takes in every second block of the key (exclusive or) and goes through two rounds, so that one lane's blocks never
 * meet the other's before both are scrambled; the lanes are joined and go through three more rounds:
 *
 *   a = half 0            ^ block 0 -R-R- ^ block 2 -R-R- ... -R-R-R-+
 *   b = half 1 ^ size     ^ block 1 -R-R- ^ block 3 -R-R- ... -R-R---^-R-R- fold to 64 bits
 *
 * One byte of difference is spread over all 16 by two rounds, and passes two rounds in a foreseeable way for at most
 * one secret in about 2^28 (five active S-boxes): so nobody can prepare keys that collide. The last blocks may
 * overlap those before them, which spares the reading of bytes beyond the key; the size tells such keys apart.
 * Keys of up to 16 bytes are one block in lane a alone: two of one size never agree in all 128 bits before the fold.
 *
 * SipHash-1-3 as specified by Aumasson and Bernstein, with the first half of the secret as its key.
 * Always true: only bytes data[0] .. data[size - 1] are read. */
#include "engine/hash.h"

#include "engine/check.h"

#include <stdbool.h>
#include <string.h>

void twi_hash_secret_make(struct twi_hash_secret *secret, const void *bytes) {
    memcpy(secret->words, bytes, sizeof secret->words);
}

static inline uint64_t load_64(const unsigned char *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* ---- SipHash-1-3 ------------------------------------------------------------------------------------------------- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define LITTLE_64(word) __builtin_bswap64(word)
#else
#define LITTLE_64(word) (word)
#endif

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate_left(uint64_t word, int bits) {
    return word << bits | word >> (64 - bits);
}

static inline struct sip sip_round(struct sip s) {
    s.v0 += s.v1;
    s.v2 += s.v3;
    s.v1 = rotate_left(s.v1, 13) ^ s.v0;
    s.v3 = rotate_left(s.v3, 16) ^ s.v2;
    s.v0 = rotate_left(s.v0, 32);
    s.v2 += s.v1;
    s.v0 += s.v3;
    s.v1 = rotate_left(s.v1, 17) ^ s.v2;
    s.v3 = rotate_left(s.v3, 21) ^ s.v0;
    s.v2 = rotate_left(s.v2, 32);
    return s;
}

static inline struct sip sip_absorb(struct sip s, uint64_t word, int rounds) {
    s.v3 ^= word;
    for (int round = 0; round < rounds; round++) s = sip_round(s);
    s.v0 ^= word;
    return s;
}

/* The last word: what is left of the key, below the low byte of its size. */
static inline uint64_t sip_tail(const unsigned char *bytes, size_t left, size_t size) {
    uint64_t word = (uint64_t)size << 56;
    for (size_t index = 0; index < left; index++) word |= (uint64_t)bytes[index] << (8 * index);
    return word;
}

TWI_INLINE uint64_t sip(const uint64_t key[2], const unsigned char *bytes, size_t size, int absorb, int finish) {
    struct sip s = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                    key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    size_t left = size;
    for (; left >= 8; left -= 8, bytes += 8) s = sip_absorb(s, LITTLE_64(load_64(bytes)), absorb);
    s = sip_absorb(s, sip_tail(bytes, left, size), absorb);
    s.v2 ^= 0xff;
    for (int round = 0; round < finish; round++) s = sip_round(s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

uint64_t twi_hash_sip(const struct twi_hash_secret *secret, const void *data, size_t size) {
    return sip(secret->words, data, size, 1, 3);
}

/* The variant whose published answers are known; for tests. */
uint64_t twi_hash_sip_2_4(const struct twi_hash_secret *secret, const void *data, size_t size) {
    return sip(secret->words, data, size, 2, 4);
}

/* ---- the AES hash: one algorithm over four words that each processor spells its own way -------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>
#define AES_CODE __attribute__((target("aes,sse4.1")))
typedef __m128i lane;
#define lane_load(bytes) _mm_loadu_si128((const __m128i *)(const void *)(bytes))
#define lane_of(low, high) _mm_set_epi64x((long long)(high), (long long)(low))
#define lane_xor(x, y) _mm_xor_si128((x), (y))
#define lane_round(x, key) _mm_aesenc_si128((x), (key)) /* substitute, shift, mix, then ^ key */
#define lane_low(x) ((uint64_t)_mm_cvtsi128_si64(x))
#define lane_high(x) ((uint64_t)_mm_extract_epi64((x), 1))
static bool processor_has_aes(void) {
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("sse4.1");
}
#define WITH_AES 1
#elif defined(__ARM_FEATURE_AES) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* ARM64 built for processors with the cryptography extension (-march=armv8-a+crypto): decided by the build, since not
 * every compiler offers these words to a function that asks for them alone. */
#include <arm_neon.h>
#define AES_CODE
typedef uint8x16_t lane;
#define lane_load(bytes) vld1q_u8(bytes)
#define lane_of(low, high) vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)))
#define lane_xor(x, y) veorq_u8((x), (y))
#define lane_round(x, key) veorq_u8(vaesmcq_u8(vaeseq_u8((x), vdupq_n_u8(0))), (key)) /* the key last, as on x86 */
#define lane_low(x) vgetq_lane_u64(vreinterpretq_u64_u8(x), 0)
#define lane_high(x) vgetq_lane_u64(vreinterpretq_u64_u8(x), 1)
static bool processor_has_aes(void) {
    return true;
}
#define WITH_AES 1
#else
#define WITH_AES 0
#endif

#if WITH_AES
static inline uint64_t load_32(const unsigned char *bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* A key of up to 16 bytes as one block. Of one size, no two keys make the same block: together the loads cover every
 * byte. */
AES_CODE static inline lane block_small(const unsigned char *bytes, size_t size) {
    if (size >= 8) return lane_of(load_64(bytes), load_64(bytes + size - 8));
    if (size >= 4) return lane_of(load_32(bytes), load_32(bytes + size - 4));
    if (size == 0) return lane_of(0, 0);
    return lane_of((uint64_t)bytes[0] | (uint64_t)bytes[size / 2] << 8 | (uint64_t)bytes[size - 1] << 16, 0);
}

AES_CODE static uint64_t hash_aes(const struct twi_hash_secret *secret, const void *data, size_t size) {
    const unsigned char *bytes = data;
    const lane key_a = lane_of(secret->words[0], secret->words[1]), key_b = lane_of(secret->words[2], secret->words[3]);
    lane a = key_a, b = lane_xor(key_b, lane_of(size, 0));
    if (twi_likely(size <= 16)) {
        a = lane_xor(a, block_small(bytes, size));
    } else {
        for (size_t left = size; left > 32; left -= 32, bytes += 32) {
            a = lane_round(lane_round(lane_xor(a, lane_load(bytes)), key_b), key_a);
            b = lane_round(lane_round(lane_xor(b, lane_load(bytes + 16)), key_a), key_b);
        }
        /* 1 to 32 bytes are left, of which the first of these two blocks may lie before `bytes` (sizes above 32), or
         * both may overlap (17 to 31). */
        const unsigned char *end = (const unsigned char *)data + size;
        a = lane_xor(a, lane_load(size > 32 ? end - 32 : bytes));
        b = lane_xor(b, lane_load(end - 16));
    }
    a = lane_round(lane_round(a, key_b), key_a);
    b = lane_round(lane_round(b, key_a), key_b);
    lane joined = lane_round(a, b);
    joined = lane_round(lane_round(joined, key_a), key_b);
    return lane_low(joined) ^ lane_high(joined);
}

twi_hash_fn *twi_hash_aes(void) {
    return processor_has_aes() ? hash_aes : NULL;
}
#else
twi_hash_fn *twi_hash_aes(void) {
    return NULL;
}
#endif

twi_hash_fn *twi_hash_choose(void) {
    twi_hash_fn *aes = twi_hash_aes();
    return aes != NULL ? aes : twi_hash_sip;
}
