/* sized.h -- results in a struct of the caller. The caller may have an older or a newer header.
 * Always true: every byte of the caller's struct is written, and no byte beyond it. Fields that the library does not
 * have become 0. */
#ifndef TWI_BASE_SIZED_H
#define TWI_BASE_SIZED_H

#include "engine/base/check.h"

#include <stddef.h>
#include <string.h>

TWI_INLINE void twi_sized_copy(void *out, size_t out_bytes, const void *whole, size_t whole_bytes) {
    size_t known = out_bytes < whole_bytes ? out_bytes : whole_bytes;
    memcpy(out, whole, known);
    memset((char *)out + known, 0, out_bytes - known);
}

#endif
