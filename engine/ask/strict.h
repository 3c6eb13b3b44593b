/* strict.h -- limits with Redis for which Redis decides every call (TW_LIMIT_STRICT).
 * Always true: a call is charged at most once: by Redis, or by the policy that decided in its place. */
#ifndef TWI_ASK_STRICT_H
#define TWI_ASK_STRICT_H

#include "engine/ask/redis_call.h"
#include "engine/limit/decision.h"

/* ---- strict call ----
 * the common part of the two kinds of strict limits (strict.c, strict_gcra.c). Each call is one
 * request, for a thread that waits or for a tw_request. If Redis does not decide the call, the policy of the kind does.
 * Always true: the verdict is filled, whatever the result. */

struct twi_strict_request {
    tw_family *family;
    tw_key key;
    int64_t n, limit;
    bool some;                /* the call takes as many units as are left */
    int64_t now_ms, began_ms; /* engine time, and monotonic time */
    union {
        struct twi_span span; /* the window */
        int64_t burst;        /* the burst of a bucket */
    };
};

/* A kind of strict limits. The kind of `operation` has twi_strict_send and twi_strict_finish. */
struct twi_strict_kind {
    struct twi_operation_kind operation;
    /* Completes a request that has a family, a key, units, a limit and the time. */
    void (*complete)(struct twi_strict_request *request);
    void (*write)(const struct twi_strict_request *request, struct twi_redis_call *redis_call);
    /* Fills the verdict while nothing is known. */
    void (*fill_undecided)(const struct twi_strict_request *request, tw_verdict *verdict);
    /* Called when Redis has decided. It fills the verdict and learns from it. Returns TW_OK or TW_DENIED. */
    tw_status (*conclude)(const struct twi_strict_request *request, const struct twi_result *result,
                          tw_verdict *verdict);
    /* Called when Redis has not decided. */
    tw_status (*fall_back)(const struct twi_strict_request *request, enum twi_request_outcome outcome, int64_t *taken,
                           tw_verdict *verdict);
};

/* Returns the request that an operation of such a kind contains. */
const struct twi_strict_request *twi_strict_request_of(const struct twi_operation *operation);
bool twi_strict_send(struct twi_operation *operation);
tw_status twi_strict_finish(struct twi_operation *operation, tw_request *call);

/* Functions of struct twi_limit_kind, for the limits whose `strict` is set. */
twi_hot_acquire twi_strict_acquire;
tw_status twi_strict_start(tw_request *call, tw_family *family, tw_key key, int64_t n, int64_t limit, bool some);

extern const struct twi_limit_kind twi_limit_strict;
extern const struct twi_limit_kind twi_limit_strict_gcra; /* with TW_SHAPE_GCRA (strict_gcra.c) */

#endif
