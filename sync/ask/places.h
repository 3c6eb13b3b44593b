/* places.h -- which servers are left alone for a while: a breaker for each endpoint that calls have gone to.
 *
 * One Redis is one place, whatever its address is. In a cluster a node that is away stops no calls to the others.
 * Always true: the table is bounded. Where it is full, the place that was used longest ago is forgotten, one with a
 * closed breaker first; a forgotten place is tried again. Pure; the caller holds a lock. */
#ifndef TWI_SYNC_ASK_PLACES_H
#define TWI_SYNC_ASK_PLACES_H

#include "sync/wire/breaker.h"
#include "sync/wire/endpoint.h"

#define TWI_PLACES_MAX 64u

struct twi_place {
    uint64_t name;
    struct twi_breaker breaker;
    bool is_tried; /* one call tries whether the server is back */
    uint64_t used; /* when, as a number that rises */
};

struct twi_places {
    struct twi_place table[TWI_PLACES_MAX];
    uint32_t count;
    uint32_t retry_max_ms; /* of each breaker. Set before use */
    uint64_t uses;
};

/* How a call fared at a place. */
enum twi_place_result {
    TWI_PLACE_UNTRIED,
    TWI_PLACE_DONE,
    TWI_PLACE_REPLIED, /* a refusal, a redirect: the server is there */
    TWI_PLACE_FAILED,
    TWI_PLACE_FAILED_SLOWLY /* this does not heal by itself */
};

/* NULL: the one Redis. Two endpoints have different names, but for one chance in 2^64. */
uint64_t twi_place_name(const struct twi_endpoint *endpoint);
/* May a call go there? While the breaker is not closed, one call at a time may: then `*tries` is true. */
bool twi_places_let(struct twi_places *places, uint64_t name, int64_t now_ms, bool *tries);
bool twi_places_is_closed(struct twi_places *places, uint64_t name); /* the breaker */
/* A call that was let has ended there. `tries`: as twi_places_let() said. */
void twi_places_note(struct twi_places *places, uint64_t name, bool tries, enum twi_place_result result, int64_t now_ms,
                     uint64_t random);

#endif
