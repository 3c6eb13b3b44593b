/* pace.h -- how fast what has piled up is sent once Redis is back: other nodes return at the same time.
 * Pure: time comes from the caller. Always true: while catching up, never more than one chunk ahead of `keys_per_s`. */
#ifndef TWI_SYNC_WIRE_PACE_H
#define TWI_SYNC_WIRE_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWI_PACE_KEYS_PER_S 200000u /* the default: two fifths of what one Redis takes in batches */
#define TWI_PACE_CHUNK_MIN 8u       /* so that a quarter of it is two keys of open windows */
/* The first collection after an outage comes within this, or half the outage. With the wait for the next try
 * (breaker.h) half of all engines have begun after 0.6 s, all of them after 1.5 s. */
#define TWI_PACE_SPREAD_MAX_MS 500u

struct twi_pace {
    uint32_t keys_per_s;
    bool catching_up;        /* from the return of Redis until everything has been collected once */
    int64_t allowance_mkeys; /* thousandths of keys */
    int64_t at_ms;
};

void twi_pace_begin(struct twi_pace *pace, int64_t now_ms);
/* How many keys may go now, `most` at most; 0: none for another *wait_ms. */
size_t twi_pace_room(struct twi_pace *pace, size_t most, int64_t now_ms, int64_t *wait_ms);
/* So many went. `whole`: there are no more. */
void twi_pace_took(struct twi_pace *pace, size_t keys, bool whole);
/* How long the first collection waits after an outage of that length. */
int64_t twi_pace_spread_ms(int64_t outage_ms, uint64_t random);

#endif
