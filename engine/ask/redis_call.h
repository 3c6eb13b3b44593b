/* redis_call.h -- asking Redis and waiting for it: what strict limits, once, locks and stock have in common on this side of
 * port.h.
 * Always true: who asks is in no section and in no hook, in an engine with a thread of its own; every name that goes
 * into one question ends in the counter's own name, so that a template with {...} keeps them in one slot.
 * Elsewhere: connections, deadlines, asking again (sync/ask/pool.c). */
#ifndef TWI_ASK_REDIS_CALL_H
#define TWI_ASK_REDIS_CALL_H

#include "engine/core/family.h"

#define TWI_REDIS_CALL_NAME_MAX (TWI_REDIS_KEY_MAX + 32)

/* A question in the making: names and numbers in their written form. */
struct twi_redis_call {
    struct twi_request request;
    tw_key keys[4], args[10];
    size_t used; /* of text */
    char text[4 * TWI_REDIS_CALL_NAME_MAX + 512];
};

/* TW_OK; TW_ERR_MODE (host-driven, a hook, a section), TW_ERR_REDIS (no Redis), TW_ERR_CLOSED, TW_ERR_FORKED,
 * TW_ERR_MEMORY. */
tw_status twi_redis_call_may(tw_engine *engine);

/* `timeout_ms` 0: redis_timeout_ms. */
void twi_redis_call_begin(struct twi_redis_call *redis_call, tw_engine *engine, enum twi_script script,
                          uint32_t timeout_ms);
/* The counter's name in Redis; with `what` the name of something beside it: prefix "tw:what:" rest. */
void twi_redis_call_key(struct twi_redis_call *redis_call, const tw_family *family, const char *what, tw_key key,
                        int64_t start_ms);
void twi_redis_call_text(struct twi_redis_call *redis_call, const char *text);
void twi_redis_call_number(struct twi_redis_call *redis_call, int64_t number);
/* Asks. No lock is held, no section is open. */
enum twi_request_outcome twi_redis_call_run(struct twi_redis_call *redis_call, tw_engine *engine);
/* Who decides in Redis's place: on_outage, or within outage_grace_ms TW_OUTAGE_LOCAL (_SHARE stays what it is).
 * `outcome`: how the question ended; DONE: it was answered, with a word that decides nothing. */
uint32_t twi_redis_call_policy(tw_family *family, enum twi_request_outcome outcome);
/* What is known here may come to decide, so Redis is to tell it while it is there. */
bool twi_redis_call_falls_back_here(tw_family *family);
/* A question of that family's was answered. */
void twi_redis_call_answered(tw_family *family);
/* Why a question that was not decided is an error: TW_ERR_CLOSED, TW_ERR_TIMEOUT (perhaps executed), TW_ERR_REDIS. */
tw_status twi_redis_call_refuse(tw_engine *engine, enum twi_request_outcome outcome);
/* The answer's first element is this word. */
bool twi_redis_call_is(const struct twi_redis_call *redis_call, const char *word);
/* The number at this place of the answer; 0 where there is none. */
int64_t twi_redis_call_number_at(const struct twi_redis_call *redis_call, size_t index);

#endif
