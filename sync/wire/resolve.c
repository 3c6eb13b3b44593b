/* resolve.c -- see resolve.h.
 *
 *   thread: asks --> answered --> rings --> lets go
 *   owner:  begins --> looks whether it is answered, or gives up --> lets go
 * Always true: `found` and `error` are the thread's until it has answered, and the owner's from then on. The last
 * one to let go frees everything. */
#include "sync/wire/resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/check.h"
#include "engine/base/atomic.h"
#include "engine/base/descriptor.h"
#include "engine/base/own_thread.h"

struct twi_lookup {
    char host[256];
    uint16_t port;
    int bell; /* an eventfd; -1 if there is none */
    _Atomic int holders;
    _Atomic bool is_answered;
    struct addrinfo *found;
    int error;
};

static int ask(const char *host, uint16_t port, int flags, struct addrinfo **found) {
    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    *found = NULL;
    return getaddrinfo(host, service, &hints, found);
}

struct addrinfo *twi_resolve_digits(const char *host, uint16_t port) {
    struct addrinfo *found = NULL;
    return ask(host, port, AI_NUMERICHOST, &found) == 0 ? found : NULL;
}

static void lookup_free(struct twi_lookup *lookup) {
    if (lookup->found) freeaddrinfo(lookup->found);
    twi_descriptor_close(lookup->bell);
    free(lookup);
}

static void let_go(struct twi_lookup *lookup) {
    twi_check(twi_load_relaxed(&lookup->holders) > 0);
    /* R3: the first one releases its work on the look-up; the last one acquires it, and frees */
    if (twi_sub_acqrel(&lookup->holders, 1) == 1) lookup_free(lookup);
}

static void *run(void *argument) {
    struct twi_lookup *lookup = argument;
    uint64_t one = 1;
    lookup->error = ask(lookup->host, lookup->port, AI_ADDRCONFIG, &lookup->found);
    /* R1: releases found and error to twi_lookup_end (R2). Otherwise the owner could read them half-written. */
    twi_store_release(&lookup->is_answered, true);
    if (lookup->bell >= 0) (void)!write(lookup->bell, &one, sizeof one);
    let_go(lookup);
    return NULL;
}

struct twi_lookup *twi_lookup_begin(const char *host, uint16_t port) {
    twi_check(host[0] != '\0');
    struct twi_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup) return NULL;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    lookup->port = port;
    lookup->bell = twi_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    twi_store_relaxed(&lookup->holders, 2);
    pthread_t thread;
    if (twi_own_thread_start(&thread, run, lookup)) {
        (void)pthread_detach(thread);
        return lookup;
    }
    lookup_free(lookup);
    return NULL;
}

int twi_lookup_fd(const struct twi_lookup *lookup) {
    return lookup->bell;
}

bool twi_lookup_end(struct twi_lookup *lookup, struct addrinfo **found, const char **why) {
    if (!twi_load_acquire(&lookup->is_answered)) return false; /* R2, pairs with R1 */
    *found = lookup->error ? NULL : lookup->found;
    *why = lookup->error ? gai_strerror(lookup->error) : NULL;
    if (!lookup->error) lookup->found = NULL;
    let_go(lookup);
    return true;
}

void twi_lookup_abandon(struct twi_lookup *lookup) {
    let_go(lookup);
}

void twi_lookup_forget(struct twi_lookup *lookup) {
    if (!twi_load_acquire(&lookup->is_answered)) lookup->found = NULL; /* the lost thread may have been writing it */
    lookup->bell = -1;
    lookup_free(lookup);
}
