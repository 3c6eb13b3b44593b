/* fnv.h -- FNV-1a, 64 bits: hashes of short texts that no attacker chooses, such as names to remember and log lines.
 * Always true: the hash has no key. The hash of keys that users send is in engine/base/hash.h. Source: the FNV hash of
 * G. Fowler, L. C. Noll and K.-P. Vo. */
#ifndef TWI_SYNC_WIRE_FNV_H
#define TWI_SYNC_WIRE_FNV_H

#include <stddef.h>
#include <stdint.h>

#define TWI_FNV_BEGIN UINT64_C(0xcbf29ce484222325)

/* Continues the hash of the earlier bytes (at first TWI_FNV_BEGIN) with these bytes. */
static inline uint64_t twi_fnv_add(uint64_t hash, const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
