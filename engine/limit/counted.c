/* counted.c -- limits of one window from which only this engine spends (counted.h): TW_LIMIT_SOFT without Redis, and
 * without Redis also the other modes. */
#include "engine/limit/counted.h"

tw_status twi_counted_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    static const struct twi_counting counting = {.unknown = twi_counted_unknown, .take = twi_counted_take_known};
    struct twi_decision decision = {0};
    tw_status status = twi_counting_acquire(&counting, family, key, n, limit, &decision, verdict);
    twi_verdict_add_grain(family, verdict);
    return status;
}
