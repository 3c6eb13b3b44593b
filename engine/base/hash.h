/* hash.h -- the keyed hash that places keys in the table.
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

#endif
