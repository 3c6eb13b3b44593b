/* resolver.c -- see resolver.h. */
#include "sync/wire/resolver.h"

#include "engine/base/check.h"

#include <stdlib.h>

struct twi_resolver {
    struct twi_endpoint one;
    struct twi_sentinels *sentinels; /* NULL means `one` is it */
};

struct twi_resolver *twi_resolver_create(const struct twi_resolver_rules *rules) {
    twi_check(rules->where != NULL && rules->where->url.seed_count >= 1);
    struct twi_resolver *resolver = calloc(1, sizeof *resolver);
    if (!resolver) return NULL;
    if (rules->where->url.kind == TWI_URL_SENTINEL)
        resolver->sentinels = twi_sentinels_create(rules);
    else
        resolver->one = twi_url_seed(&rules->where->url, 0);
    if (rules->where->url.kind != TWI_URL_SENTINEL || resolver->sentinels) return resolver;
    free(resolver);
    return NULL;
}

struct twi_resolver *twi_resolver_create_at(const struct twi_endpoint *endpoint) {
    twi_check(endpoint->host[0] != '\0');
    struct twi_resolver *resolver = calloc(1, sizeof *resolver);
    if (resolver) resolver->one = *endpoint;
    return resolver;
}

void twi_resolver_destroy(struct twi_resolver *resolver) {
    if (resolver && resolver->sentinels) twi_sentinels_destroy(resolver->sentinels);
    free(resolver);
}

void twi_resolver_abandon(struct twi_resolver *resolver) {
    if (resolver && resolver->sentinels) twi_sentinels_abandon(resolver->sentinels);
    free(resolver);
}

const struct twi_endpoint *twi_resolver_fixed(const struct twi_resolver *resolver) {
    return resolver->sentinels ? NULL : &resolver->one;
}

bool twi_resolver_may_move(const struct twi_resolver *resolver) {
    return resolver->sentinels != NULL;
}

enum twi_resolved twi_resolver_ask(struct twi_resolver *resolver, int64_t now_ms, struct twi_endpoint *endpoint,
                                   int64_t *again_ms) {
    if (resolver->sentinels) return twi_sentinels_ask(resolver->sentinels, now_ms, endpoint, again_ms);
    *endpoint = resolver->one;
    *again_ms = 0;
    return TWI_WHERE_HERE;
}

int twi_resolver_fd(const struct twi_resolver *resolver, bool *wants_write) {
    *wants_write = false;
    return resolver->sentinels ? twi_sentinels_fd(resolver->sentinels, wants_write) : -1;
}

const char *twi_resolver_why(const struct twi_resolver *resolver) {
    return resolver->sentinels ? twi_sentinels_why(resolver->sentinels) : "";
}

void twi_resolver_distrust(struct twi_resolver *resolver) {
    if (resolver->sentinels) twi_sentinels_distrust(resolver->sentinels);
}

void twi_resolver_rest(struct twi_resolver *resolver) {
    if (resolver->sentinels) twi_sentinels_rest(resolver->sentinels);
}

void twi_resolver_found(struct twi_resolver *resolver, int64_t now_ms) {
    if (resolver->sentinels) twi_sentinels_found(resolver->sentinels, now_ms);
}

bool twi_resolver_look(struct twi_resolver *resolver, int64_t now_ms, const struct twi_endpoint *here) {
    return resolver->sentinels && twi_sentinels_look(resolver->sentinels, now_ms, here);
}

int64_t twi_resolver_look_due_ms(const struct twi_resolver *resolver, int64_t now_ms) {
    return resolver->sentinels ? twi_sentinels_look_due_ms(resolver->sentinels, now_ms) : INT64_MAX;
}
