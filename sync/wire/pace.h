/* pace.h -- how fast an engine sends the counts of an outage. Other engines come back at the same time. Always true:
 * while the engine catches up, it has sent at most one chunk more than `keys_per_s` allows since twi_pace_begin(). The
 * file is pure: time comes from the caller. */
#ifndef TWI_SYNC_WIRE_PACE_H
#define TWI_SYNC_WIRE_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWI_PACE_KEYS_PER_S 200000u /* the default; two fifths of the keys that one Redis can process in batches */
#define TWI_PACE_CHUNK_MIN 8u       /* a quarter of a collection is reserved for open windows, here two keys */
/* The first collection after an outage comes within this time, or within half the outage if that is shorter. Together
 * with the wait for the next try (breaker.h), half of all engines have begun after 0.6 s, all of them after 1.5 s. */
#define TWI_PACE_SPREAD_MAX_MS 500u

struct twi_pace {
    uint32_t keys_per_s;
    bool catching_up;        /* this part of a second, from the return of Redis until everything was collected once */
    int64_t allowance_mkeys; /* thousandths of keys */
    int64_t at_ms;
};

void twi_pace_begin(struct twi_pace *pace, int64_t now_ms);
/* Returns how many keys may be sent now, at most `most`. 0 means that no key may be sent for another *wait_ms. */
size_t twi_pace_room(struct twi_pace *pace, size_t most, int64_t now_ms, int64_t *wait_ms);
/* `keys` keys were collected. If `whole` is true, no counts are left, so the engine has caught up. */
void twi_pace_took(struct twi_pace *pace, size_t keys, bool whole);
/* Returns how long the first collection waits after an outage of this length. */
int64_t twi_pace_spread_ms(int64_t outage_ms, uint64_t random);

#endif
