/* random.c -- see random.h. */
#include "engine/base/random.h"

#include "engine/base/atomic.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- wiped ----
 * 
 * Always true: the handler of fork() takes no lock and no memory. Entries are few: the records of threads, the page
 * with their mark, and one for each tw_limits. */

#define ENTRIES 128u
#define NO_ADVICE 0x7e57 /* no kernel has this advice */

static struct {
    _Atomic uint64_t pages; /* 0: none */
    void (*renew)(void *pages, size_t bytes);
    _Atomic uint64_t bytes; /* 0 while the entry is being made */
} entries[ENTRIES];
static _Atomic bool watches_forks;

static bool answers_anything(void *pages, size_t bytes) {
    return madvise(pages, bytes, NO_ADVICE) == 0;
}

/* In the child, whose only thread this is. The pages are new, so they can be written even if they could not before. */
static void wipe_all(void) {
    int error = errno;
    for (uint32_t i = 0; i < ENTRIES; i++) {
        void *pages = (void *)(uintptr_t)twi_load_relaxed(&entries[i].pages);
        size_t bytes = (size_t)twi_load_relaxed(&entries[i].bytes);
        if (pages == NULL || bytes == 0) continue;
        entries[i].renew(pages, bytes);
    }
    errno = error;
}

/* Two threads may do this at once. A handler that runs twice finds zeroes. */
static bool watch_forks(void) {
    if (twi_load_relaxed(&watches_forks)) return true;
    if (pthread_atfork(NULL, NULL, wipe_all) != 0) return false;
    twi_store_relaxed(&watches_forks, true);
    return true;
}

static bool enter(void *pages, size_t bytes, void (*renew)(void *pages, size_t bytes)) {
    for (uint32_t i = 0; i < ENTRIES; i++) {
        uint64_t none = 0;
        if (!twi_cas_relaxed(&entries[i].pages, &none, (uint64_t)(uintptr_t)pages)) continue;
        entries[i].renew = renew;
        twi_store_relaxed(&entries[i].bytes, bytes);
        return true;
    }
    return false;
}

bool twi_wiped_on_fork(void *pages, size_t bytes, void (*renew)(void *pages, size_t bytes)) {
    if (madvise(pages, bytes, MADV_WIPEONFORK) != 0) return false;
    if (!answers_anything(pages, bytes)) return true;
    return watch_forks() && enter(pages, bytes, renew);
}

void twi_wiped_forget(void *pages, size_t bytes) {
    (void)madvise(pages, bytes, MADV_KEEPONFORK);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        if (twi_load_relaxed(&entries[i].pages) != (uint64_t)(uintptr_t)pages) continue;
        twi_store_relaxed(&entries[i].bytes, 0);
        twi_store_relaxed(&entries[i].pages, 0);
    }
}

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
