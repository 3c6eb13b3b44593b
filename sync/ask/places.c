/* places.c -- see places.h. */
#include "sync/ask/places.h"

#include <string.h>

#include "sync/wire/fnv.h"

uint64_t twi_place_name(const struct twi_endpoint *endpoint) {
    if (!endpoint) return 0;
    const unsigned char rest[] = {endpoint->is_unix, endpoint->is_tls, (unsigned char)(endpoint->port >> 8),
                                  (unsigned char)endpoint->port};
    uint64_t hash = twi_fnv_add(TWI_FNV_BEGIN, endpoint->host, strlen(endpoint->host) + 1);
    return twi_fnv_add(twi_fnv_add(hash, endpoint->verify_name, strlen(endpoint->verify_name) + 1), rest, sizeof rest);
}

static struct twi_place *find(struct twi_places *places, uint64_t name) {
    for (uint32_t i = 0; i < places->count; i++)
        if (places->table[i].name == name) return &places->table[i];
    return NULL;
}

static bool goes_first(const struct twi_place *one, const struct twi_place *other) {
    bool one_closed = one->breaker.state == TWI_BREAKER_CLOSED,
         other_closed = other->breaker.state == TWI_BREAKER_CLOSED;
    return one_closed != other_closed ? one_closed : one->used < other->used;
}

static struct twi_place *place_of(struct twi_places *places, uint64_t name) {
    struct twi_place *place = find(places, name);
    if (!place && places->count < TWI_PLACES_MAX) place = &places->table[places->count++];
    if (!place) {
        place = &places->table[0];
        for (uint32_t i = 1; i < places->count; i++)
            if (goes_first(&places->table[i], place)) place = &places->table[i];
    }
    if (place->name != name || place->used == 0)
        *place = (struct twi_place){.name = name, .breaker = {.retry_max_ms = places->retry_max_ms}};
    place->used = ++places->uses;
    return place;
}

bool twi_places_let(struct twi_places *places, uint64_t name, int64_t now_ms, bool *tries) {
    struct twi_place *place = place_of(places, name);
    *tries = false;
    if (place->breaker.state == TWI_BREAKER_CLOSED) return true;
    if (place->is_tried || !twi_breaker_may_try(&place->breaker, now_ms)) return false;
    return *tries = place->is_tried = true;
}

bool twi_places_is_closed(struct twi_places *places, uint64_t name) {
    const struct twi_place *place = find(places, name);
    return !place || place->breaker.state == TWI_BREAKER_CLOSED;
}

void twi_places_note(struct twi_places *places, uint64_t name, bool tries, enum twi_place_result result, int64_t now_ms,
                     uint64_t random) {
    struct twi_place *place = find(places, name);
    if (!place) return; /* forgotten meanwhile */
    if (tries) place->is_tried = false;
    switch (result) {
    case TWI_PLACE_UNTRIED: return;
    case TWI_PLACE_DONE: twi_breaker_succeed(&place->breaker); return;
    case TWI_PLACE_REPLIED:
        if (tries) twi_breaker_succeed(&place->breaker);
        return;
    case TWI_PLACE_FAILED: /* of calls that fail together only the first one counts */
        if (tries || place->breaker.state == TWI_BREAKER_CLOSED) twi_breaker_fail(&place->breaker, now_ms, random);
        return;
    case TWI_PLACE_FAILED_SLOWLY: twi_breaker_fail_slowly(&place->breaker, now_ms, random); return;
    }
}
