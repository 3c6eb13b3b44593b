/* redis_call.h -- a request to Redis for an operation, or for a thread that waits, used by strict limits, once, locks
 * and reservations. Always true: a thread that waits is in no section and in no hook, in an engine with a separate
 * thread. Every name in one request belongs to one counter, so in a cluster all of them lie in one key slot
 * (core/key_template.h).
 * Elsewhere: connections, deadlines, repeats (sync/ask/). */
#ifndef TWI_ASK_REDIS_CALL_H
#define TWI_ASK_REDIS_CALL_H

#include "engine/core/calls.h"
#include "engine/core/family.h"
#include "tallywheel.h"

#define TWI_REDIS_CALL_NAME_MAX (TWI_REDIS_KEY_MAX + 32)

/* A request under construction, with names and numbers as text. */
struct twi_redis_call {
    struct twi_request request;
    /* the answer of twi_redis_call_run(); the caller frees its long_text, whatever the outcome is */
    struct twi_answer answer;
    struct twi_result result; /* the same, apart from its texts */
    tw_key keys[4], args[10];
    size_t used; /* used bytes of `text` */
    char text[4 * TWI_REDIS_CALL_NAME_MAX + 512];
};

/* Returns TW_OK, TW_ERR_MODE (host-driven, a hook, a section), TW_ERR_REDIS (no Redis), TW_ERR_CLOSED, TW_ERR_FORKED or
 * TW_ERR_MEMORY. If no thread waits for the call, it may start inside of hooks and sections, too, and in host-driven
 * engines. */
tw_status twi_redis_call_may(tw_engine *engine, const tw_request *call);

void twi_redis_call_begin(struct twi_redis_call *redis_call, enum twi_script script);
/* Appends the counter's name in Redis. With `what` it appends the name of a key next to it, which is prefix "tw:what:"
 * rest. */
void twi_redis_call_key(struct twi_redis_call *redis_call, const tw_family *family, const char *what, tw_key key,
                        int64_t start_ms);
void twi_redis_call_text(struct twi_redis_call *redis_call, const char *text);
void twi_redis_call_number(struct twi_redis_call *redis_call, int64_t number);
/* Sends the request of an operation. Returns true if it is under way, and the operation may be gone. Returns false if
 * it was not sent; the reason is in its result. */
bool twi_redis_call_send(struct twi_redis_call *redis_call, struct twi_operation *operation);
/* Sends the request and waits for the reply. No lock is held, and no section is open. */
enum twi_request_outcome twi_redis_call_run(struct twi_redis_call *redis_call, tw_engine *engine);
/* Returns the policy that decides in Redis's place. It is on_outage, but within outage_grace_ms TW_OUTAGE_LOCAL (_SHARE
 * stays). `outcome` is how the request ended. DONE means that there was a reply, but it contains no decision. */
uint32_t twi_redis_call_policy(tw_family *family, tw_key key, enum twi_request_outcome outcome);
/* True means local knowledge may have to decide later, so it must be kept fresh while Redis replies. */
bool twi_redis_call_falls_back_here(tw_family *family);
/* Redis replied to a request of that family. */
void twi_redis_call_answered(tw_family *family);
/* Returns why a call without a decision of Redis is denied: TW_CAUSE_BUSY or TW_CAUSE_OUTAGE. */
uint32_t twi_redis_call_cause(enum twi_request_outcome outcome);
/* Returns the error for a request that was not decided. It is TW_ERR_CLOSED, TW_ERR_BUSY, TW_ERR_TIMEOUT (perhaps
 * executed), TW_ERR_REDIS. */
tw_status twi_redis_call_refuse(tw_engine *engine, enum twi_request_outcome outcome);
/* Reads one text of a page ("size:text"...) and advances `*at`. Returns false if the page is malformed. */
bool twi_redis_call_next_text(const char *page, size_t size, size_t *at, tw_key *text);

/* ---- token ----
 * tokens, the printable names of reservations. tw_reserve() makes one, and any process may pass it to
 * tw_reserve_confirm().
 *
 *   twl-<tag:16><serial:16><due:12>-<check:8>    of an engine without Redis: only that engine knows it
 *   twr-<id:32>-<check:8>                        of Redis: any process with the same Redis and prefix knows it
 *   twr-<id:32><slot:4>-<check:8> of Redis Cluster: and the key slot in which its keys lie. A process that confirms it
 *                                                asks there to which counter it belongs
 *
 * All characters after the first letters are lower-case hexadecimal digits. The check finds mistyped tokens. The check
 * is no secret. Tag and id protect a reservation, because they cannot be guessed.
 * Always true: a token that was read has exactly one of these forms, and fits into TW_TOKEN_SIZE with its NUL. Pure;
 * any thread. */

#define TWI_TOKEN_ID_DIGITS 32u

struct twi_token {
    bool local;
    uint64_t tag, serial;             /* local */
    int64_t due_ms;                   /* in a local token: the monotonic time when the reservation ends; below 2^48 */
    char id[TWI_TOKEN_ID_DIGITS + 1]; /* in a token of Redis: digits and a NUL */
    bool has_slot;                    /* of Redis Cluster */
    uint32_t slot;                    /* valid if has_slot is true; below TWI_KEY_SLOTS */
};

void twi_token_write(const struct twi_token *token, char out[TW_TOKEN_SIZE]);
/* Returns false if the text is no valid token. NULL is no valid token either. */
bool twi_token_read(const char *text, struct twi_token *token);
/* Writes the digits of a random id. */
void twi_token_id(const unsigned char random[16], char out[TWI_TOKEN_ID_DIGITS + 1]);

#endif
