/* token.h -- tokens, the printable names of reservations. tw_reserve() makes one, and any process may pass it to
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
#ifndef TWI_ASK_TOKEN_H
#define TWI_ASK_TOKEN_H

#include "tallywheel.h"

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
