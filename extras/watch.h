/* watch.h -- the inside of the watch socket, which is its requests, its answers, and the socket.
 *
 * THE PROTOCOL. A client connects, sends one line, reads to the end of the stream. So `echo status | nc -NU PATH` does.
 *   status              the engine's identity, its statistics, its families
 *   top FAMILY [N [MS]] the N (1..1000, default 20) heaviest keys of a window, by tw_top(); MS is a moment of it
 *   key FAMILY KEY      one key in the window of now, as `top` shows it; no line of it if there is no counter
 *   reset FAMILY KEY    tw_reset() of one key, if the host allows it (tw_options.watch_writes)
 *   metrics             tw_metrics_write(), Prometheus's text
 *   openmetrics         the same, OpenMetrics
 *   help                these lines
 * `status`, `top`, `key` and `reset` answer lines of words that tabs part; the first word is the kind of the line, and
 * `end` is the last line of a whole answer. New words are appended, new kinds of lines come before `end`. In texts and
 * keys \t \n \r \\ and \xHH stand for bytes below 32, 127 and the backslash; all others are unchanged. The KEY of a
 * request is the rest of its line, with the same escapes; there \xHH may stand for any byte. A refusal is one line,
 * error<TAB>sentence. Its third word is `read_only` if the host does not allow what was asked.
 *   tallywheel VERSION            now_ms MS              process ID
 *   stat NAME VALUE               last_error TEXT [AGE_MS] (empty if none)
 *   family NAME KIND WINDOW WINDOW_MS START_MS END_MS LIMIT_MODE REDIS_SHAPE WINDOWS KEYS ADMITTED DENIED NEAR SHADOW
 *   top NAME KIND                 key VIEW LOCAL ERROR START_MS END_MS KEY
 *   reset NAME KNOWN TAKEN        KNOWN is 0 if there was no counter, otherwise 1; TAKEN is what tw_reset() took away
 * Always true: a request of more than TWI_WATCH_REQUEST_MAX bytes is refused; an answer never has more than
 * TWI_WATCH_ANSWER_MAX bytes; no request but `reset` changes any state, and without `writes` none does. */
#ifndef TWI_EXTRAS_WATCH_H
#define TWI_EXTRAS_WATCH_H

#include "engine/port/extras.h"

#define TWI_WATCH_REQUEST_MAX (4u * TW_KEY_SIZE_MAX + 160u) /* a key of which each byte is escaped */
#define TWI_WATCH_ANSWER_MAX (UINT32_C(64) << 20)
#define TWI_WATCH_KEYS_MAX 1000u

/* ---- watch_answer.c ---- */

/* What the clients of a socket see, and may do. */
struct twi_watch_scope {
    tw_engine *engine;    /* all of its families; NULL means those below */
    tw_family **families; /* of a host, sorted by name */
    size_t family_count;
    tw_engine **engines; /* of these families, each once */
    size_t engine_count;
    bool writes; /* they may reset a key */
};

struct twi_watch_text {
    char *bytes;
    size_t size, room;
    bool failed; /* no memory, or too long; the bytes are not a whole answer */
};

/* Appends the answer to a request (without the end of its line). Any bytes. The caller frees text->bytes. */
void twi_watch_answer(const struct twi_watch_scope *scope, const char *request, size_t size,
                      struct twi_watch_text *text);

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
