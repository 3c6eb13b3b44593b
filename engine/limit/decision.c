/* decision.c -- see cause.h. */
#include "engine/limit/decision.h"

#include "engine/base/check.h"

#define FULL_AGAIN_MS 1000 /* memory returns when some window ends, or some key has been idle */

const char *const twi_cause_words[TWI_CAUSES] = {"limit", "share", "outage", "busy", "full", "buyer", "never"};

static int64_t bounded(int64_t ms) {
    return ms < 1 ? 1 : ms > TWI_AGAIN_MAX_MS ? TWI_AGAIN_MAX_MS : ms;
}

void twi_verdict_deny(tw_verdict *verdict, uint32_t cause, int64_t retry_ms) {
    twi_check_dear(cause < TWI_CAUSES);
    bool is_known = cause == TW_CAUSE_LIMIT || (cause == TW_CAUSE_BUYER && retry_ms < 0);
    verdict->allowed = 0;
    verdict->cause = (uint8_t)cause;
    if (cause == TW_CAUSE_LIMIT && retry_ms < 1) retry_ms = 1; /* the cause has ended since the decision */
    verdict->retry_after_ms = cause == TW_CAUSE_NEVER ? -1 : is_known ? retry_ms : bounded(retry_ms);
    if (cause == TW_CAUSE_OUTAGE || cause == TW_CAUSE_BUSY) verdict->remaining = 0;
}

void twi_verdict_admit(tw_verdict *verdict) {
    verdict->allowed = 1;
    verdict->cause = 0;
    verdict->retry_after_ms = 0;
}

int64_t twi_again_when_away_ms(const tw_engine *engine) {
    return bounded(engine->options.sync_interval_ms);
}

void twi_verdict_deny_unknown(tw_verdict *verdict, const tw_engine *engine, uint32_t cause) {
    twi_check(cause == TW_CAUSE_OUTAGE || cause == TW_CAUSE_BUSY || cause == TW_CAUSE_FULL);
    int64_t retry_ms = FULL_AGAIN_MS;
    if (cause == TW_CAUSE_OUTAGE) retry_ms = twi_again_when_away_ms(engine);
    if (cause == TW_CAUSE_BUSY) retry_ms = twi_port_timeout_ms(engine); /* the calls under way have ended by then */
    twi_verdict_deny(verdict, cause, retry_ms);
}

void twi_verdict_refuse(tw_verdict *verdict, const tw_engine *engine, tw_status status) {
    switch (status) {
    case TW_ERR_FULL:
    case TW_ERR_MEMORY: twi_verdict_deny_unknown(verdict, engine, TW_CAUSE_FULL); return;
    case TW_ERR_BUSY: twi_verdict_deny_unknown(verdict, engine, TW_CAUSE_BUSY); return;
    case TW_ERR_REDIS:
    case TW_ERR_TIMEOUT:
        twi_verdict_deny_unknown(verdict, engine, verdict->cause == TW_CAUSE_BUSY ? TW_CAUSE_BUSY : TW_CAUSE_OUTAGE);
        return;
    default: return;
    }
}

void twi_verdict_not_admitted(tw_verdict *verdict, tw_status status, uint32_t cause, int64_t retry_ms) {
    if (status == TW_DENIED || status == TW_PENDING)
        twi_verdict_deny(verdict, cause, retry_ms);
    else if (status == TW_ERR_FULL || status == TW_ERR_MEMORY)
        twi_verdict_deny(verdict, TW_CAUSE_FULL, FULL_AGAIN_MS);
}
