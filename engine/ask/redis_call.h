/* redis_call.h -- asking Redis and waiting for it: what strict limits, once, locks and stock have in common on this side of
 * port.h.
 * Always true: who asks is in no section and in no hook, in an engine with a thread of its own; every name that goes
 * into one question ends in the counter's own name, so that a template with {...} keeps them in one slot.
 * Elsewhere: connections, deadlines, asking again (sync/ask/pool.c). */
#ifndef TWI_ASK_REDIS_CALL_H
#define TWI_ASK_REDIS_CALL_H

#include "engine/core/family.h"

#define TWI_ASK_NAME_MAX (TWI_REDIS_KEY_MAX + 32)

/* A question in the making: names and numbers in their written form. */
struct twi_asking {
    struct twi_ask ask;
    tw_key keys[4], args[10];
    size_t used; /* of text */
    char text[4 * TWI_ASK_NAME_MAX + 512];
};

/* TW_OK; TW_ERR_MODE (host-driven, a hook, a section), TW_ERR_REDIS (no Redis), TW_ERR_CLOSED, TW_ERR_FORKED,
 * TW_ERR_MEMORY. */
tw_status twi_ask_may(tw_engine *engine);

/* `timeout_ms` 0: redis_timeout_ms. */
void twi_asking_begin(struct twi_asking *asking, tw_engine *engine, enum twi_script script, uint32_t timeout_ms);
/* The counter's name in Redis; with `what` the name of something beside it: prefix "tw:what:" rest. */
void twi_asking_key(struct twi_asking *asking, const tw_family *family, const char *what, tw_key key, int64_t start_ms);
void twi_asking_text(struct twi_asking *asking, const char *text);
void twi_asking_number(struct twi_asking *asking, int64_t number);
/* Asks. No lock is held, no section is open. */
enum twi_asked twi_asking_do(struct twi_asking *asking, tw_engine *engine);
/* Who decides in Redis's place: on_outage, or within outage_grace_ms TW_OUTAGE_LOCAL (_SHARE stays what it is).
 * `asked`: how the question ended; DONE: it was answered, with a word that decides nothing. */
uint32_t twi_asking_policy(tw_family *family, enum twi_asked asked);
/* What is known here may come to decide, so Redis is to tell it while it is there. */
bool twi_asking_falls_back_here(tw_family *family);
/* A question of that family's was answered. */
void twi_asking_answered(tw_family *family);
/* Why a question that was not decided is an error: TW_ERR_CLOSED, TW_ERR_TIMEOUT (perhaps executed), TW_ERR_REDIS. */
tw_status twi_asking_refuse(tw_engine *engine, enum twi_asked asked);
/* The answer's first element is this word. */
bool twi_asking_said(const struct twi_asking *asking, const char *word);
/* The number at this place of the answer; 0 where there is none. */
int64_t twi_asking_told(const struct twi_asking *asking, size_t index);

#endif
