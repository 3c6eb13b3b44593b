/* hash.h -- the keyed hash that places keys in the table, and one of short texts.
 *
 * Always true: within one process, equal bytes under equal secrets have equal hashes. No byte outside the key is
 * read. Without the secret nobody can prepare colliding keys: no pair of keys collides under every secret, and the
 * likeliest differences collide for about one secret in 2^28. A hash places a key but never identifies it, because
 * the table compares bytes. All 64 bits are equally good. These are pure functions. Any thread may call them. */
#ifndef TWI_BASE_HASH_H
#define TWI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TWI_HASH_SECRET_BYTES 32

struct twi_hash_secret {
    _Alignas(16) uint64_t words[TWI_HASH_SECRET_BYTES / 8];
};

static inline uint64_t twi_load_64(const unsigned char *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

typedef uint64_t twi_hash_fn(const struct twi_hash_secret *secret, const void *data, size_t size);

/* `bytes` has TWI_HASH_SECRET_BYTES bytes, from twi_random_bytes(). */
void twi_hash_secret_make(struct twi_hash_secret *secret, const void *bytes);

twi_hash_fn twi_hash_sip;     /* for every processor */
twi_hash_fn twi_hash_sip_2_4; /* this variant, for tests, has published test vectors */

/* ---- texts ----
 * FNV-1a, 64 bits, without a key: hashes of short texts that no attacker chooses, such as names to remember and log
 * lines. Source: the FNV hash of G. Fowler, L. C. Noll and K.-P. Vo. */

#define TWI_FNV_BEGIN UINT64_C(0xcbf29ce484222325)

/* Continues the hash of the earlier bytes (at first TWI_FNV_BEGIN) with these bytes. */
static inline uint64_t twi_fnv_add(uint64_t hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
