/* api.h -- the slower ways to count, which the fast paths (add_fast.h) leave to api.c; pins and watermarks. */
#ifndef TWI_COUNT_API_H
#define TWI_COUNT_API_H

#include "tallywheel.h"

struct twi_call;
struct twi_insert;

/* Makes one add of a call that has begun, into the window of the clock or of the event time. Inside a section. */
tw_status twi_add_call(struct twi_call *call, int64_t delta, int64_t *view);

tw_status twi_add_slow(tw_family *family, tw_key key, int64_t delta, int64_t *view);
/* Called by the fast path. Counts the first delta of a key that was looked up in this window and section, and was
 * not found. The clock was read after the window was found, and the window contained that moment. Returns false if
 * the delta was not counted. The call then begins again. */
bool twi_add_new(const struct twi_insert *insert, int64_t *view);
/* twi_add_slow() for a key whose hash is known. A hash of 0 means that it is not known. */
tw_status twi_add_hashed(tw_family *family, tw_key key, int64_t delta, int64_t *view, uint64_t hash);

/* Returns TW_ERR_MODE because the family keeps no counts, and sets the reason. */
tw_status twi_count_refuse(const tw_family *family);

#endif
