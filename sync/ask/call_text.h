/* call_text.h -- calls and their replies as text: the commands of the scripts that callers wait for. Pure.
 *
 * Every script called here gets three arguments before its own:
 *   ARGV[1]  who calls: "<16 digits>:<lane>" (lanes.h)
 *   ARGV[2]  the number of the call and a nonce, "7:1f2e3d4c". Numbers of one lane rise. Two lives of one process,
 *            after a snapshot of its machine, may use the same name and number; their nonces differ
 *   ARGV[3]  "1" a request, "2" a repeated request, "0" a cancel
 * A cancel returns the charge of the call with this number. If that call comes late, it does nothing. The reply is a
 * flat array. Its first element is ARGV[2].
 * Always true: a reply counts only for the call whose number and nonce it has. */
#ifndef TWI_SYNC_ASK_CALL_TEXT_H
#define TWI_SYNC_ASK_CALL_TEXT_H

#include "engine/port/driver.h"
#include "sync/wire/wire.h"

enum twi_call_verb { TWI_CALL_CANCEL, TWI_CALL_ASK, TWI_CALL_RETRY };

#define TWI_CALL_WHO_SIZE 24    /* with its NUL */
#define TWI_CALL_SERIAL_SIZE 32 /* with its NUL */

/* One call, in the form that all its commands use. */
struct twi_call_text {
    enum twi_script script;
    bool wants_long;
    size_t words;          /* the arguments of a command, without the first two (twi_wire_begin_script()) */
    struct twi_bytes body; /* these words, with a verb that is put in last */
    size_t who_at, own_at; /* in the body: the first argument of the script, and the fourth */
    char serial[TWI_CALL_SERIAL_SIZE];
};

/* Writes the text, for a first request. The text's memory is used again. Sets `body.failed` if there is no memory. */
void twi_call_write(struct twi_call_text *text, const struct twi_request *request, const char *who, uint64_t number,
                    uint32_t nonce);
/* Writes the same call under another name and number. */
void twi_call_rename(struct twi_call_text *text, const char *who, uint64_t number, uint32_t nonce);
/* Appends a command to `out`. If `whole` is true, the command contains the script's text. If `asking` is true, ASKING
 * comes first, so there are two replies. */
void twi_call_put(struct twi_bytes *out, struct twi_call_text *text, enum twi_call_verb verb, bool whole, bool asking);
/* Reads a reply. Returns false if it is not a reply to the call. */
bool twi_call_read(const struct twi_node *nodes, size_t count, const struct twi_call_text *text,
                   struct twi_answer *answer);
/* Returns true if the first element of an answer is this word. */
bool twi_call_says(const struct twi_answer *answer, const char *word);
/* Returns true if the reply shows that the request has not charged, and that no copy of it will. */
bool twi_call_charged_nothing(const struct twi_answer *answer);
/* The keys of a call. They are in its text. Returns how many. */
size_t twi_call_keys(const struct twi_call_text *text, tw_key *keys, size_t most);

#endif
