/* hash_aes.c -- see hash_aes.h. It has the AES hash as a function, and the choice of the hash for this process. */
#include "engine/base/hash_aes.h"

#if TWI_WITH_AES
TWI_AES_CODE static uint64_t hash_aes(const struct twi_hash_secret *secret, const void *data, size_t size) {
    return twi_hash_aes_inline(secret, data, size);
}

twi_hash_fn *twi_hash_aes(void) {
    return TWI_PROCESSOR_HAS_AES() ? hash_aes : NULL;
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
