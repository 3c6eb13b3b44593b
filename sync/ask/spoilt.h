/* spoilt.h -- keys whose value is not what the script of a call expects. Each gets one log line.
 * Callers find them, and only the turn may write log lines. So a caller leaves the line here, and the turn logs it.
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
    int64_t logged_ms; /* the turn alone */
};

void twi_spoilt_begin(struct twi_spoilt *spoilt);
void twi_spoilt_end(struct twi_spoilt *spoilt);
/* Called if the value of one of the request's keys is wrong; `why` is Redis's word. Any thread. */
void twi_spoilt_note(struct twi_spoilt *spoilt, const struct twi_request *request, const char *why);
/* Logs a line, if one waits. It logs at most one a second, so that the log drops no line. Only the owner of the turn
 * calls it. */
void twi_spoilt_log(struct twi_spoilt *spoilt, tw_engine *engine);

#endif
