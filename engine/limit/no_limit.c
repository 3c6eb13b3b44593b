/* no_limit.c -- see no_limit.h. A count of distinct elements is an estimate, so no units can be taken from it.
 * Always true: a refused call has changed no count, and its verdict admits no units. */
#include "engine/limit/no_limit.h"

static tw_status acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict) {
    struct twi_decision nothing = {0};
    (void)family;
    (void)key;
    if (verdict != NULL) twi_verdict_fill(verdict, false, TW_ERR_MODE, n, limit, &nothing);
    return twi_refuse_for(TWI_WHY_DISTINCT);
}

static tw_status refund(tw_family *family, tw_key key, int64_t n, int64_t window_start_ms) {
    (void)family, (void)key, (void)n, (void)window_start_ms;
    return twi_refuse_for(TWI_WHY_DISTINCT);
}

static tw_status undo(tw_family *family, tw_key key, int64_t n, int64_t limit, int64_t window_start_ms) {
    (void)limit;
    return refund(family, key, n, window_start_ms);
}

const struct twi_limit_kind twi_limit_none = {.acquire = acquire, .refund = refund, .undo = undo};
