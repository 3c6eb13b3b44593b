/* watched.c -- see watched.h. */
#include "tools/watched/watched.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/common/stop.h"

#define CONNECT_MS 5000
#define ANSWER_MS 60000                      /* the ten heaviest of a hundred million keys */
#define ANSWER_BYTES_MAX ((size_t)128 << 20) /* twice what an engine sends */
#define WORDS_MAX 32

/* ---- asking ---- */

static char *watched_refuse(int fd, char *bytes, char *why, size_t why_size, const char *what) {
    if (fd >= 0) close(fd);
    free(bytes);
    (void)snprintf(why, why_size, "%s", what);
    return NULL;
}

static int connect_to(const char *path, int64_t patience_ms) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (patience_ms > CONNECT_MS) patience_ms = CONNECT_MS; /* the engine serves 16 at a time */
    struct timeval patience = {.tv_sec = patience_ms / 1000, .tv_usec = patience_ms % 1000 * 1000};
    if (fd < 0) return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Returns how many bytes came, 0 at the end, or -1 if the time is over, the connection is broken, or a signal came. */
static ssize_t watched_receive(int fd, char *out, size_t size, int64_t until_ms) {
    for (int64_t left_ms; stop_signal() == 0 && (left_ms = until_ms - moment_mono_ms()) > 0;) {
        if (!stop_wait(fd, (int)left_ms)) continue;
        ssize_t got = read(fd, out, size);
        if (got >= 0 || errno != EINTR) return got;
    }
    return -1;
}

char *watched_ask(const char *path, const char *request, int64_t patience_ms, size_t *size, char *why,
                  size_t why_size) {
    size_t room = 65536, used = 0, length = strlen(request);
    int64_t until_ms = moment_mono_ms() + patience_ms;
    int fd = connect_to(path, patience_ms);
    if (fd < 0) {
        (void)snprintf(why, why_size, "%s: %s", path,
                       errno == ECONNREFUSED ? "no process listens there any more"
                       : errno == EAGAIN     ? "its queue is full: the process stands still, or others ask all the time"
                                             : strerror(errno));
        return NULL;
    }
    char *bytes = malloc(room);
    if (bytes == NULL) return watched_refuse(fd, NULL, why, why_size, "no memory");
    memcpy(bytes, request, length); /* in one piece, because the engine may close at its end */
    bytes[length] = '\n';
    if (send(fd, bytes, length + 1, MSG_NOSIGNAL) != (ssize_t)length + 1)
        return watched_refuse(fd, bytes, why, why_size, "the engine has closed the connection");
    for (ssize_t got; (got = watched_receive(fd, bytes + used, room - used - 1, until_ms)) != 0;) {
        if (got < 0)
            return watched_refuse(fd, bytes, why, why_size,
                                  stop_came() ? "interrupted" : "no whole answer came in time");
        used += (size_t)got;
        if (room - used > 1) continue;
        char *larger = room < ANSWER_BYTES_MAX ? realloc(bytes, room * 2) : NULL;
        if (larger == NULL) return watched_refuse(fd, bytes, why, why_size, "the answer is too long");
        bytes = larger;
        room *= 2;
    }
    close(fd);
    bytes[used] = '\0';
    *size = used;
    return bytes;
}

/* ---- taking answers apart ---- */

/* Returns the next line, ended by a NUL, or NULL if no whole line is left. */
static char *watched_next_line(char **at) {
    char *line = *at, *end = strchr(line, '\n');
    if (end == NULL) return NULL;
    *end = '\0';
    *at = end + 1;
    return line;
}

static size_t watched_split(char *line, char *words[WORDS_MAX]) {
    size_t count = 0;
    for (char *at = line; at != NULL && count < WORDS_MAX; count++) {
        words[count] = at;
        at = strchr(at, '\t');
        if (at != NULL) *at++ = '\0';
    }
    return count;
}

static bool number(const char *word, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(word, &end, 10);
    return end != word && *end == '\0' && errno == 0;
}

static int watched_hex(char digit) {
    return digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* Undoes the escapes in place. Returns the size; the text still ends with a NUL. */
static size_t watched_unescape(char *text) {
    char *out = text;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\\' && at[1] == 'x' && watched_hex(at[2]) >= 0 && watched_hex(at[3]) >= 0) {
            *out++ = (char)(watched_hex(at[2]) << 4 | watched_hex(at[3]));
            at += 3;
        } else if (*at == '\\' && at[1] != '\0') {
            at++;
            *out++ = *at == 't' ? '\t' : *at == 'n' ? '\n' : *at == 'r' ? '\r' : *at;
        } else {
            *out++ = *at;
        }
    }
    *out = '\0';
    return (size_t)(out - text);
}

/* Makes room for one more, in a list that doubles. */
static void *watched_append(void *list, size_t count, size_t size) {
    if ((count & (count - 1)) != 0) return list;
    return realloc(list, (count != 0 ? count * 2 : 1) * size);
}

static bool take_stat(struct watched *look, char *const *words, size_t count) {
    if (count < 3) return false;
    struct watched_stat *stats = watched_append(look->stats, look->stat_count, sizeof *stats);
    if (stats == NULL) return false;
    look->stats = stats;
    stats[look->stat_count] = (struct watched_stat){.name = words[1]};
    return number(words[2], &stats[look->stat_count++].value);
}

static bool take_family(struct watched *look, char *const *words, size_t count) {
    struct watched_family *families = watched_append(look->families, look->family_count, sizeof *families);
    if (families == NULL) return false;
    look->families = families;
    if (count < 15) return false;
    struct watched_family *family = &families[look->family_count++];
    *family = (struct watched_family){
        .name = words[1], .kind = words[2], .window = words[3], .limit_mode = words[7], .redis_shape = words[8]};
    return number(words[4], &family->window_ms) && number(words[5], &family->start_ms) &&
           number(words[6], &family->end_ms) && number(words[9], &family->windows) &&
           number(words[10], &family->keys) && number(words[11], &family->admitted) &&
           number(words[12], &family->denied) && number(words[13], &family->near) &&
           number(words[14], &family->shadow_denied);
}

static bool take_key(struct watched *look, char *const *words, size_t count) {
    struct watched_key *keys = watched_append(look->keys, look->key_count, sizeof *keys);
    if (keys == NULL) return false;
    look->keys = keys;
    if (count < 7) return false;
    struct watched_key *key = &keys[look->key_count++];
    *key = (struct watched_key){.key = (unsigned char *)words[6], .size = watched_unescape(words[6])};
    return number(words[1], &key->view) && number(words[2], &key->local) && number(words[3], &key->error) &&
           number(words[4], &key->start_ms) && number(words[5], &key->end_ms);
}

static bool watched_take_line(struct watched *look, char *const *words, size_t count) {
    if (strcmp(words[0], "stat") == 0) return take_stat(look, words, count);
    if (strcmp(words[0], "family") == 0) return take_family(look, words, count);
    if (strcmp(words[0], "tallywheel") == 0 && count > 1) look->version = words[1];
    if (strcmp(words[0], "now_ms") == 0) return count > 1 && number(words[1], &look->now_ms);
    if (strcmp(words[0], "process") == 0) return count > 1 && number(words[1], &look->process);
    if (strcmp(words[0], "last_error") == 0 && count > 1) {
        (void)watched_unescape(words[1]);
        look->last_error = words[1];
        if (count > 2 && !number(words[2], &look->last_error_age_ms)) return false;
    }
    return true; /* of a later version */
}

bool watched_read_status(struct watched *look, char *answer) {
    char *at = answer, *words[WORDS_MAX];
    look->version = NULL;
    look->last_error = "";
    look->last_error_age_ms = -1;
    for (char *line; (line = watched_next_line(&at)) != NULL;) {
        if (strcmp(line, "end") == 0) return look->version != NULL;
        if (!watched_take_line(look, words, watched_split(line, words))) return false;
    }
    return false;
}

/* The reason in a line "error TEXT". An empty text is none. */
static const char *refusal_of(char *const *words, size_t count) {
    if (count > 1) (void)watched_unescape(words[1]);
    return count > 1 && words[1][0] != '\0' ? words[1] : "refused";
}

bool watched_read_top(struct watched *look, char *answer) {
    char *at = answer, *words[WORDS_MAX];
    for (char *line; (line = watched_next_line(&at)) != NULL;) {
        if (strcmp(line, "end") == 0) return true;
        size_t count = watched_split(line, words);
        if (strcmp(words[0], "error") == 0) {
            look->top_error = refusal_of(words, count);
            return true;
        }
        if (strcmp(words[0], "key") == 0 && !take_key(look, words, count)) return false;
    }
    return false;
}

enum watched_reset watched_read_reset(char *answer, int64_t *taken, char *why, size_t why_size) {
    char *at = answer, *words[WORDS_MAX];
    int64_t known = -1;
    for (char *line; (line = watched_next_line(&at)) != NULL;) {
        if (strcmp(line, "end") == 0 && known >= 0) {
            if (known > 0) return WATCHED_RESET;
            (void)snprintf(why, why_size, "no such key: the engine has no count of it in this window");
            return WATCHED_NO_KEY;
        }
        size_t count = watched_split(line, words);
        if (strcmp(words[0], "error") == 0) {
            bool is_read_only = count > 2 && strcmp(words[2], "read_only") == 0;
            (void)snprintf(why, why_size, "%s", refusal_of(words, count));
            return is_read_only ? WATCHED_READ_ONLY : WATCHED_NOT_RESET;
        }
        bool is_reset = strcmp(words[0], "reset") == 0;
        if (is_reset && (count < 4 || !number(words[2], &known) || !number(words[3], taken))) break;
    }
    (void)snprintf(why, why_size, "what answers there is no engine, or its answer was cut off");
    return WATCHED_NOT_RESET;
}

/* ---- looks ---- */

bool watched_look(const char *path, struct watched *look, char *why, size_t why_size) {
    size_t size;
    *look = (struct watched){.status = watched_ask(path, "status", ANSWER_MS, &size, why, why_size)};
    if (look->status == NULL) return false;
    if (watched_read_status(look, look->status)) return true;
    (void)snprintf(why, why_size, "%s: what answers there is no engine, or its answer was cut off", path);
    watched_free(look);
    return false;
}

/* Requests the keys of one family. */
static bool look_keys(const char *path, const char *request, struct watched *look, char *why, size_t why_size) {
    size_t size;
    free(look->top);
    free(look->keys);
    look->keys = NULL;
    look->key_count = 0;
    look->top_error = NULL;
    look->top = watched_ask(path, request, ANSWER_MS, &size, why, why_size);
    if (look->top == NULL) return false;
    if (watched_read_top(look, look->top)) return true;
    (void)snprintf(why, why_size, "%s: the answer was cut off", path);
    return false;
}

bool watched_look_top(const char *path, const char *family, size_t n, int64_t unix_ms, struct watched *look, char *why,
                      size_t why_size) {
    char request[160];
    if (unix_ms == INT64_MIN)
        (void)snprintf(request, sizeof request, "top %.64s %zu", family, n);
    else
        (void)snprintf(request, sizeof request, "top %.64s %zu %lld", family, n, (long long)unix_ms);
    return look_keys(path, request, look, why, why_size);
}

/* Returns "VERB FAMILY KEY" in one line. The caller frees it. Returns NULL, and says why, if there is no memory, or if
 * no family can have that name. */
static char *key_request(const char *verb, const char *family, const char *key, char *why, size_t why_size) {
    static const char plain[] = "\t\n\r", letters[] = "tnr";
    char *request = malloc(strlen(verb) + strlen(family) + 2 * strlen(key) + 3), *out = request;
    for (const char *at = family; *at != '\0'; at++) {
        if (*at > ' ' && *at <= '~') continue;
        (void)snprintf(why, why_size, "no family has such a name");
        free(request);
        return NULL;
    }
    if (request == NULL) {
        (void)snprintf(why, why_size, "no memory");
        return NULL;
    }
    out += sprintf(out, "%s %s ", verb, family);
    for (const char *at = key; *at != '\0'; at++) {
        const char *known = strchr(plain, *at);
        if (known != NULL) *out++ = '\\';
        *out++ = known != NULL ? letters[known - plain] : *at;
    }
    *out = '\0';
    return request;
}

bool watched_look_key(const char *path, const char *family, const char *key, struct watched *look, char *why,
                      size_t why_size) {
    char *request = key_request("key", family, key, why, why_size);
    bool done = request != NULL && look_keys(path, request, look, why, why_size);
    free(request);
    return done;
}

enum watched_reset watched_reset(const char *path, const char *family, const char *key, int64_t *taken, char *why,
                                 size_t why_size) {
    enum watched_reset done = WATCHED_NOT_RESET;
    size_t size;
    char *request = key_request("reset", family, key, why, why_size);
    char *answer = request != NULL ? watched_ask(path, request, ANSWER_MS, &size, why, why_size) : NULL;
    if (answer != NULL) done = watched_read_reset(answer, taken, why, why_size);
    free(answer);
    free(request);
    return done;
}

void watched_free(struct watched *look) {
    free(look->status);
    free(look->top);
    free(look->stats);
    free(look->families);
    free(look->keys);
    *look = (struct watched){.last_error = ""};
}

int64_t watched_stat(const struct watched *look, const char *name) {
    for (size_t i = 0; i < look->stat_count; i++)
        if (strcmp(look->stats[i].name, name) == 0) return look->stats[i].value;
    return 0;
}

const struct watched_family *watched_family(const struct watched *look, const char *name) {
    for (size_t i = 0; i < look->family_count; i++)
        if (strcmp(look->families[i].name, name) == 0) return &look->families[i];
    return NULL;
}
