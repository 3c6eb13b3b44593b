/* random.c -- see random.h. */
#include "engine/base/random.h"

#include <errno.h>
#include <sys/random.h>

bool twi_random_bytes(void *out, size_t size) {
    unsigned char *next = out;
    while (size > 0) {
        ssize_t got = getrandom(next, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        next += got;
        size -= (size_t)got;
    }
    return true;
}
