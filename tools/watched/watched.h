/* watched.h -- one look at an engine, through its watch socket (tw_options.watch_path; docs/WATCH.md has the protocol).
 * Always true: an answer that is not whole is refused, whatever its bytes are. A look has only the engine's values, and
 * no value that was computed here. */
#ifndef TOOL_WATCHED_H
#define TOOL_WATCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct watched_stat {
    const char *name;
    int64_t value;
};

struct watched_family {
    const char *name, *kind, *window, *limit_mode, *redis_shape;
    int64_t window_ms, start_ms, end_ms, windows, keys;
    int64_t admitted, denied, near, shadow_denied;
};

struct watched_key {
    int64_t view, local, error, start_ms, end_ms;
    const unsigned char *key; /* the original bytes; the escapes are decoded */
    size_t size;
};

/* Pointers to text point into `status` and `top`, the answers. */
struct watched {
    char *status, *top;
    const char *version, *last_error;
    int64_t last_error_age_ms; /* -1 means not known, of an older engine */
    int64_t now_ms, process;
    struct watched_stat *stats;
    size_t stat_count;
    struct watched_family *families;
    size_t family_count;

    /* the keys of one family, from watched_look_top() */
    const char *top_error; /* the engine's refusal; NULL if there is none */
    struct watched_key *keys;
    size_t key_count;
};

/* Sends one line and reads to the end, within `patience_ms`, or until a signal comes (stop.h). The caller frees the
 * answer, which ends with a NUL. Returns NULL on an error; `why` then has the reason. */
char *watched_ask(const char *path, const char *request, int64_t patience_ms, size_t *size, char *why, size_t why_size);

/* Requests the status. Returns false on an error; `why` then has the reason, and *look is empty. */
bool watched_look(const char *path, struct watched *look, char *why, size_t why_size);
/* Requests the `n` heaviest keys of a family, in the window of a moment (INT64_MIN means now). Returns false as above.
 * A refusal by the engine is in look->top_error. */
bool watched_look_top(const char *path, const char *family, size_t n, int64_t unix_ms, struct watched *look, char *why,
                      size_t why_size);
/* Requests one key, in the window of now. look->key_count is 0 if the engine has no counter of it. `key` is as the
 * command prints keys: a backslash begins an escape. Returns false as above. */
bool watched_look_key(const char *path, const char *family, const char *key, struct watched *look, char *why,
                      size_t why_size);
void watched_free(struct watched *look);

enum watched_reset { WATCHED_RESET, WATCHED_NO_KEY, WATCHED_READ_ONLY, WATCHED_NOT_RESET };
/* Sets the key's count to 0. *taken is what it was. Unless it returns WATCHED_RESET, `why` has the reason. */
enum watched_reset watched_reset(const char *path, const char *family, const char *key, int64_t *taken, char *why,
                                 size_t why_size);

/* Does the same from existing answers, which it splits in place. */
bool watched_read_status(struct watched *look, char *answer);
bool watched_read_top(struct watched *look, char *answer);
enum watched_reset watched_read_reset(char *answer, int64_t *taken, char *why, size_t why_size);

int64_t watched_stat(const struct watched *look, const char *name); /* 0 if an older engine does not have it */
const struct watched_family *watched_family(const struct watched *look, const char *name); /* NULL if there is none */

#endif
