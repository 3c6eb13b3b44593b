/* hash.c -- see hash.h. SipHash-1-3 as specified by Aumasson and Bernstein, keyed with the first half of the secret. It
 * is used if the processor has no AES rounds (hash_aes.h).
 * Always true: only bytes data[0] .. data[size - 1] are read. */
#include "engine/base/hash.h"

#include "engine/base/check.h"

#include <string.h>

void twi_hash_secret_make(struct twi_hash_secret *secret, const void *bytes) {
    memcpy(secret->words, bytes, sizeof secret->words);
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

/* Returns the last word: the rest of the key, with the low byte of its size in the highest byte. */
static inline uint64_t sip_tail(const unsigned char *bytes, size_t left, size_t size) {
    uint64_t word = (uint64_t)size << 56;
    for (size_t index = 0; index < left; index++) word |= (uint64_t)bytes[index] << (8 * index);
    return word;
}

TWI_INLINE uint64_t sip(const uint64_t key[2], const unsigned char *bytes, size_t size, int absorb, int finish) {
    struct sip s = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                    key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    size_t left = size;
    for (; left >= 8; left -= 8, bytes += 8) s = sip_absorb(s, LITTLE_64(twi_load_64(bytes)), absorb);
    s = sip_absorb(s, sip_tail(bytes, left, size), absorb);
    s.v2 ^= 0xff;
    for (int round = 0; round < finish; round++) s = sip_round(s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

uint64_t twi_hash_sip(const struct twi_hash_secret *secret, const void *data, size_t size) {
    return sip(secret->words, data, size, 1, 3);
}

/* This variant, for tests, has published test vectors. */
uint64_t twi_hash_sip_2_4(const struct twi_hash_secret *secret, const void *data, size_t size) {
    return sip(secret->words, data, size, 2, 4);
}
