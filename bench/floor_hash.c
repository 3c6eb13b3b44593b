/* floor_hash.c -- the engine's own hash, called as the engine calls it: a call of the engine cannot be faster than
 * that, its add aside. In C, because the header of the hash is in C. Always true: every hash goes into the result,
 * so the compiler can leave none out. */
#include "bench/floor.h"

#include "engine/base/hash_aes.h"
#include "bench/peer.h"

static struct twi_hash_secret secret;
static twi_hash_fn *hash;

void bench_floor_hash_init(void) {
    unsigned char bytes[TWI_HASH_SECRET_BYTES];
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 37 + 11);
    twi_hash_secret_make(&secret, bytes);
    hash = twi_hash_choose();
}

uint64_t bench_floor_hash(const unsigned char *slots, size_t count, uint32_t stride) {
    uint64_t seen = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *slot = slots + i * stride;
        seen ^= hash(&secret, slot, bench_slot_size(slot, stride));
    }
    return seen;
}

uint64_t bench_floor_hash_dependent(const unsigned char *slots, size_t count, uint32_t stride) {
    uint64_t last = 0, zero = bench_zero;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *slot = slots + i * stride + (last & zero);
        last = hash(&secret, slot, bench_slot_size(slot, stride));
    }
    return last;
}
