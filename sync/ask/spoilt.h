/* spoilt.h -- what Redis says against a call: a key whose value is not what its script expects, or a refusal. Each gets
 * one log line in ten minutes.
 * Callers find it, and only the turn may write log lines. So a caller leaves the line here, and the turn logs it.
 * Always true: a line that was left is not left again while it is among the last TWI_SPOILT_KNOWN. */
#ifndef TWI_SYNC_ASK_SPOILT_H
#define TWI_SYNC_ASK_SPOILT_H

#include "engine/port/driver.h"

#include <pthread.h>
#include <stdatomic.h>

#define TWI_SPOILT_KNOWN 64u
#define TWI_SPOILT_LINES 4u /* the most that wait for the turn; another one is left when its key is found again */
#define TWI_SPOILT_BYTES 600u

struct twi_spoilt {
    pthread_mutex_t lock;
    _Atomic uint32_t waiting; /* lines. Changed under the lock */
    /* under the lock */
    uint64_t known[TWI_SPOILT_KNOWN]; /* hashes */
    uint32_t known_next;
    char lines[TWI_SPOILT_LINES][TWI_SPOILT_BYTES];
    bool are_refusals[TWI_SPOILT_LINES];
    int64_t logged_ms; /* the turn alone */
};

void twi_spoilt_begin(struct twi_spoilt *spoilt);
void twi_spoilt_end(struct twi_spoilt *spoilt);
/* Called if the value of one of the request's keys is wrong; `why` is Redis's word. Any thread. */
void twi_spoilt_note(struct twi_spoilt *spoilt, const struct twi_request *request, const char *why, int64_t now_ms);
/* Called if Redis refuses the call, in these words. Any thread. */
void twi_spoilt_refused(struct twi_spoilt *spoilt, const char *why, int64_t now_ms);
/* Logs a line, if one waits. It logs at most one a second, so that the log drops no line. Only the owner of the turn
 * calls it. */
void twi_spoilt_log(struct twi_spoilt *spoilt, tw_engine *engine);

#endif
