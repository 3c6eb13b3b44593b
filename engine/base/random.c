/* random.c -- see random.h. */
#include "engine/base/random.h"

#include "engine/base/atomic.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

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

bool twi_random_key_draw(struct twi_random_key *key) {
    unsigned char bytes[TWI_HASH_SECRET_BYTES];
    if (!twi_random_bytes(bytes, sizeof bytes)) return false;
    twi_hash_secret_make(&key->secret, bytes);
    explicit_bzero(bytes, sizeof bytes);
    key->is_drawn = true;
    return true;
}

/* A forked child has its parent's key and number of blocks, and another process number. The time is for a child that
 * gets the number of a process that has ended. */
static uint64_t next_block(struct twi_random_key *key, int64_t time_us) {
    const uint64_t words[] = {twi_add_relaxed(&key->blocks, 1), (uint64_t)time_us, (uint64_t)getpid()};
    return twi_hash_sip(&key->secret, words, sizeof words);
}

bool twi_random_bytes_or(struct twi_random_key *key, int64_t time_us, void *out, size_t size) {
    if (twi_random_bytes(out, size)) return true;
    if (!key->is_drawn) return false;
    for (unsigned char *at = out; size != 0;) {
        uint64_t word = next_block(key, time_us);
        size_t part = size < sizeof word ? size : sizeof word;
        memcpy(at, &word, part);
        at += part;
        size -= part;
    }
    return true;
}
