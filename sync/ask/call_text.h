/* call_text.h -- calls and their replies as text: the commands of the scripts that callers wait for (pool.h). Pure.
 * Always true: a reply is taken only for the call whose number it has. */
#ifndef TWI_SYNC_ASK_CALL_TEXT_H
#define TWI_SYNC_ASK_CALL_TEXT_H

#include "engine/port/driver.h"
#include "sync/wire/wire.h"

enum twi_call_verb { TWI_CALL_CANCEL, TWI_CALL_ASK, TWI_CALL_RETRY };

/* Writes all of a command but its first two words (twi_wire_begin_script()). `who` calls, for the time `serial`.
 * Returns the number of words. */
size_t twi_call_put_body(struct twi_bytes *body, const char *who, uint64_t serial, enum twi_call_verb verb,
                         const struct twi_request *request);
/* Writes the command, from scratch. `whole`: with the script's text. `asking`: behind ASKING, so that there are two
 * replies. */
void twi_call_put(struct twi_bytes *out, enum twi_script script, bool whole, bool asking, const struct twi_bytes *body,
                  size_t words);
/* Reads a reply into `request`. False: this is not a reply to the call. */
bool twi_call_read(const struct twi_node *nodes, size_t count, const char *serial, struct twi_request *request);

#endif
