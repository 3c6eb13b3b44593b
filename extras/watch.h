/* watch.h -- the inside of the watch socket, which is its requests, its answers, and the socket.
 *
 * THE PROTOCOL. A client connects, sends one line, reads to the end of the stream. So `echo status | nc -NU PATH` does.
 *   status              the engine's identity, its statistics, its families
 *   top FAMILY [N [MS]] the N (1..1000, default 20) heaviest keys of a window, by tw_top(); MS is a moment of it
 *   metrics             tw_metrics_write(), Prometheus's text
 *   openmetrics         the same, OpenMetrics
 *   help                these lines
 * `status` and `top` answer lines of words that tabs part; the first word is the kind of the line, and `end` is the
 * last line of a whole answer. New words are appended, new kinds of lines come before `end`. In texts and keys \t \n \r
 * \\ and \xHH stand for bytes below 32, 127 and the backslash; all others are unchanged. A refusal is one line,
 * error<TAB>sentence.
 *   tallywheel VERSION            now_ms MS              process ID
 *   stat NAME VALUE               last_error TEXT [AGE_MS] (empty if none)
 *   family NAME KIND WINDOW WINDOW_MS START_MS END_MS LIMIT_MODE REDIS_SHAPE WINDOWS KEYS ADMITTED DENIED NEAR SHADOW
 *   top NAME KIND                 key VIEW LOCAL ERROR START_MS END_MS KEY
 * Always true: a request of more than TWI_WATCH_REQUEST_MAX bytes is refused; an answer never has more than
 * TWI_WATCH_ANSWER_MAX bytes; no request changes any state. */
#ifndef TWI_EXTRAS_WATCH_H
#define TWI_EXTRAS_WATCH_H

#include "engine/port/watch.h"

#define TWI_WATCH_REQUEST_MAX 160u
#define TWI_WATCH_ANSWER_MAX (UINT32_C(64) << 20)
#define TWI_WATCH_KEYS_MAX 1000u

/* ---- watch_answer.c ---- */

struct twi_watch_text {
    char *bytes;
    size_t size, room;
    bool failed; /* no memory, or too long; the bytes are not a whole answer */
};

/* Appends the answer to a request (without the end of its line). Any bytes. The caller frees text->bytes. */
void twi_watch_answer(tw_engine *engine, const char *request, size_t size, struct twi_watch_text *text);

/* ---- watch_socket.c ---- */

struct twi_watch_socket {
    int fd;
    char path[TWI_WATCH_PATH_MAX + 1];
    uint64_t device, inode; /* of the path when it was bound; another program's socket under that name is left alone */
};

/* Listens at the path, with mode 0600 from its first moment on. A socket without a listener is replaced; any other file
 * under that name is left alone. Returns false on an error; `why` then has the reason. */
bool twi_watch_socket_open(const char *pattern, struct twi_watch_socket *out, char *why, size_t why_size);
void twi_watch_socket_close(struct twi_watch_socket *listener);

#endif
