/* resolve.c -- see resolve.h.
 *
 *   ASKING --thread--> ANSWERED --owner--> freed by the owner
 *   ASKING --owner---> ABANDONED --thread-> freed by the thread
 * Each side exchanges `state` once. Whichever side comes last frees the look-up. */
#include "sync/wire/resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/base/atomic.h"
#include "engine/base/own_thread.h"

enum { ASKING, ANSWERED, ABANDONED };

struct twi_lookup {
    char host[256];
    uint16_t port;
    _Atomic int state;
    struct addrinfo *found; /* written by the thread before ANSWERED */
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

struct addrinfo *twi_resolve_now(const char *host, uint16_t port, const char **why) {
    struct addrinfo *found = NULL;
    int error = ask(host, port, AI_ADDRCONFIG, &found);
    *why = error ? gai_strerror(error) : NULL;
    return error ? NULL : found;
}

static void lookup_free(struct twi_lookup *lookup) {
    if (lookup->found) freeaddrinfo(lookup->found);
    free(lookup);
}

static void *run(void *argument) {
    struct twi_lookup *lookup = argument;
    lookup->error = ask(lookup->host, lookup->port, AI_ADDRCONFIG, &lookup->found);
    /* R1: releases found and error to twi_lookup_end (R2). Without it the owner could read them half-written. */
    if (twi_swap_acqrel(&lookup->state, ANSWERED) == ABANDONED) lookup_free(lookup);
    return NULL;
}

struct twi_lookup *twi_lookup_begin(const char *host, uint16_t port) {
    struct twi_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup) return NULL;
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    lookup->port = port;
    pthread_t thread;
    if (twi_own_thread_start(&thread, run, lookup)) {
        (void)pthread_detach(thread);
        return lookup;
    }
    free(lookup);
    return NULL;
}

bool twi_lookup_end(struct twi_lookup *lookup, struct addrinfo **found, const char **why) {
    if (twi_load_acquire(&lookup->state) != ANSWERED) return false; /* R2, pairs with R1 */
    *found = lookup->error ? NULL : lookup->found;
    *why = lookup->error ? gai_strerror(lookup->error) : NULL;
    if (!lookup->error) lookup->found = NULL;
    lookup_free(lookup);
    return true;
}

void twi_lookup_abandon(struct twi_lookup *lookup) {
    if (twi_swap_acqrel(&lookup->state, ABANDONED) == ANSWERED) lookup_free(lookup); /* R2 again: it came last */
}

void twi_lookup_forget(struct twi_lookup *lookup) {
    free(lookup); /* `found` is left: the lost thread may have been writing it */
}
