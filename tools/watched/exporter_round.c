/* exporter_round.c -- see exporter_round.h. */
#include "tools/watched/exporter_round.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/common/text.h"
#include "tools/watched/exporter_page.h"
#include "tools/common/stop.h"

/* A program that stops, or another's socket among ours, must not delay the others, because a scrape that lasts too long
 * gets no page at all. An engine that answered in the last round gets longer, because its page may be large. All get
 * longer while no engine has answered, for example on a busy machine. */
#define KNOWN_MS 2000
#define OTHER_MS 700
#define QUEUE_FULL_MS 20                  /* until a connection is tried again */
#define ASKED_MAX 200u                    /* at the same time */
#define ALL_BYTES_MAX ((size_t)256 << 20) /* of all pages */
#define FIRST_BYTES ((size_t)64 << 10)

enum state { CONNECTS, READS, ENDED };

struct ask {
    const char *path, *label;
    enum state state;
    bool is_known, answered;
    int fd;
    char *bytes;
    size_t used, room;
    int64_t began_ms;
};

struct exporter_round {
    glob_t found;
    size_t folder; /* size of the folder that the label leaves out */
    struct ask *asks;
    size_t count, asked, ended, answered; /* asks[asked..] wait for their turn */
    size_t bytes;                         /* of all pages */
    int epoll;
};

/* ---- which sockets ---- */

static uint64_t round_hash_of(const char *path) {
    return text_hash(TEXT_HASH_BEGIN, path, strlen(path));
}

/* The length of the part up to the last slash, including it. */
static size_t folder_of(const char *text, size_t size) {
    while (size > 0 && text[size - 1] != '/') size--;
    return size;
}

/* The folder that all patterns have in common. It depends on the patterns alone, so that a label stays as it is
 * whichever sockets there are. */
static size_t common_folder(char *const *patterns, size_t count) {
    size_t common = count > 0 ? strlen(patterns[0]) : 0;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0, plain = strcspn(patterns[i], "*?[\\");
        while (same < common && same < plain && patterns[i][same] == patterns[0][same]) same++;
        common = folder_of(patterns[0], same);
    }
    return common;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(((const struct ask *)a)->path, ((const struct ask *)b)->path);
}

static bool round_is_known(const struct exporter *exporter, const char *path) {
    uint64_t hash = round_hash_of(path);
    for (size_t i = 0; i < exporter->known_count; i++)
        if (exporter->known[i] == hash) return true;
    return false;
}

/* Each path once, in the order of their names. */
static bool find_all(const struct exporter *exporter, struct exporter_round *round) {
    char *const *patterns = exporter->patterns;
    for (size_t i = 0; i < exporter->pattern_count; i++) {
        int flags = i > 0 ? GLOB_APPEND : 0;
        if (strpbrk(patterns[i], "*?[") == NULL) flags |= GLOB_NOCHECK; /* it is wanted, whether it is there or not */
        (void)glob(patterns[i], flags, NULL, &round->found);
    }
    round->folder = common_folder(patterns, exporter->pattern_count);
    size_t all = round->found.gl_pathc;
    round->asks = calloc(all + 1, sizeof *round->asks);
    if (round->asks == NULL) return false;
    for (size_t i = 0; i < all; i++) round->asks[i].path = round->found.gl_pathv[i];
    qsort(round->asks, all, sizeof *round->asks, compare_paths);
    for (size_t i = 0; i < all; i++) {
        const char *path = round->asks[i].path;
        if (i > 0 && strcmp(path, round->asks[round->count - 1].path) == 0) continue;
        bool has_folder = strncmp(path, patterns[0], round->folder) == 0;
        round->asks[round->count++] = (struct ask){.path = path,
                                                   .label = has_folder ? path + round->folder : path,
                                                   .is_known = exporter->is_patient || round_is_known(exporter, path),
                                                   .fd = -1};
    }
    return true;
}

/* ---- one engine ---- */

static void ask_end(struct exporter_round *round, struct ask *ask, bool answered) {
    if (ask->fd >= 0) close(ask->fd);
    ask->fd = -1;
    ask->state = ENDED;
    ask->answered = answered;
    round->ended++;
    round->answered += answered;
    size_t room = answered ? ask->used + 1 : 0;
    char *bytes = answered ? realloc(ask->bytes, room) : NULL; /* frees the unused part */
    if (!answered) free(ask->bytes);
    if (answered && bytes == NULL) return;
    round->bytes -= ask->room - room;
    ask->bytes = bytes;
    ask->room = room;
}

static bool buffer_grow(struct exporter_round *round, struct ask *ask) {
    size_t room = ask->room != 0 ? ask->room * 2 : FIRST_BYTES;
    if (room > EXPORTER_PAGE_BYTES_MAX * 2 || round->bytes + room - ask->room > ALL_BYTES_MAX) return false;
    char *bytes = realloc(ask->bytes, room);
    if (bytes == NULL) return false;
    round->bytes += room - ask->room;
    ask->bytes = bytes;
    ask->room = room;
    return true;
}

/* A unix socket connects at once, or not. EAGAIN means that the engine's queue is full. */
static void ask_connect(struct exporter_round *round, struct ask *ask) {
    static const char request[] = "metrics\n";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = ask};
    if (ask->fd < 0 && strlen(ask->path) < sizeof address.sun_path)
        ask->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (ask->fd < 0) {
        ask_end(round, ask, false);
        return;
    }
    memcpy(address.sun_path, ask->path, strlen(ask->path) + 1);
    ask->state = CONNECTS;
    if (connect(ask->fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        if (errno != EAGAIN && errno != EINTR) ask_end(round, ask, false);
        return;
    }
    ask->state = READS;
    if (send(ask->fd, request, sizeof request - 1, MSG_NOSIGNAL) != (ssize_t)sizeof request - 1 ||
        epoll_ctl(round->epoll, EPOLL_CTL_ADD, ask->fd, &wanted) != 0)
        ask_end(round, ask, false);
}

/* Makes one read, so that the others get their turn. */
static void ask_read(struct exporter_round *round, struct ask *ask) {
    if (ask->used + 1 >= ask->room && !buffer_grow(round, ask)) {
        ask_end(round, ask, false);
        return;
    }
    ssize_t got = recv(ask->fd, ask->bytes + ask->used, ask->room - ask->used - 1, 0);
    if (got > 0) {
        ask->used += (size_t)got;
        if (ask->used > EXPORTER_PAGE_BYTES_MAX) ask_end(round, ask, false);
    } else if (got == 0) {
        ask->bytes[ask->used] = '\0';
        ask_end(round, ask, exporter_page_is_sound(ask->bytes, ask->used));
    } else if (errno != EAGAIN && errno != EINTR) {
        ask_end(round, ask, false);
    }
}

/* ---- all of them ---- */

static int64_t round_deadline_of(const struct exporter_round *round, const struct ask *ask) {
    return ask->began_ms + (ask->is_known || round->answered == 0 ? KNOWN_MS : OTHER_MS);
}

static void more_begin(struct exporter_round *round) {
    while (round->asked < round->count && round->asked - round->ended < ASKED_MAX) {
        struct ask *ask = &round->asks[round->asked++];
        ask->began_ms = moment_mono_ms();
        ask_connect(round, ask);
    }
}

struct exporter_round *exporter_begin(const struct exporter *exporter) {
    struct exporter_round *round = calloc(1, sizeof *round);
    if (round == NULL) return NULL;
    round->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (round->epoll < 0 || !find_all(exporter, round)) {
        if (round->epoll >= 0) close(round->epoll);
        globfree(&round->found);
        free(round);
        return NULL;
    }
    more_begin(round);
    return round;
}

int exporter_fd(const struct exporter_round *round) {
    return round->epoll;
}

int exporter_wait_ms(const struct exporter_round *round) {
    int64_t now_ms = moment_mono_ms(), next_ms = now_ms + KNOWN_MS;
    for (size_t i = 0; i < round->asked; i++) {
        const struct ask *ask = &round->asks[i];
        if (ask->state == ENDED) continue;
        int64_t wakes_ms = ask->state == CONNECTS ? now_ms + QUEUE_FULL_MS : round_deadline_of(round, ask);
        if (wakes_ms < next_ms) next_ms = wakes_ms;
    }
    return round->ended == round->count || next_ms <= now_ms ? 0 : (int)(next_ms - now_ms);
}

bool exporter_step(struct exporter_round *round) {
    struct epoll_event events[64];
    int count = epoll_wait(round->epoll, events, 64, 0);
    for (int i = 0; i < count && stop_signal() == 0; i++) ask_read(round, events[i].data.ptr);
    int64_t now_ms = moment_mono_ms();
    for (size_t i = 0; i < round->asked; i++) {
        struct ask *ask = &round->asks[i];
        if (ask->state == CONNECTS) ask_connect(round, ask);
        if (ask->state != ENDED && now_ms >= round_deadline_of(round, ask)) ask_end(round, ask, false);
    }
    more_begin(round);
    return round->ended == round->count;
}

/* ---- the page ---- */

static void put_up(struct sink *out, const struct exporter_round *round) {
    sink_text(out, "# TYPE tallywheel_exporter_up gauge\n"
                   "# HELP tallywheel_exporter_up 1: the engine behind this socket answered\n");
    for (size_t i = 0; i < round->count; i++) {
        sink_text(out, "tallywheel_exporter_up{");
        exporter_put_label(out, round->asks[i].label);
        sink_text(out, round->asks[i].answered ? "} 1\n" : "} 0\n");
    }
}

static void put_page(struct sink *out, const struct exporter_round *round) {
    size_t count = 0;
    struct exporter_source *sources = calloc(round->answered + 1, sizeof *sources);
    if (sources == NULL) {
        out->error = ENOMEM;
        return;
    }
    for (size_t i = 0; i < round->count; i++) {
        const struct ask *ask = &round->asks[i];
        if (ask->answered) sources[count++] = (struct exporter_source){ask->bytes, ask->used, ask->label};
    }
    exporter_join(sources, count, out);
    put_up(out, round);
    free(sources);
}

/* Without memory the list is empty. Then all get the shorter time. */
static void known_set(struct exporter *exporter, const struct exporter_round *round) {
    free(exporter->known);
    exporter->known_count = 0;
    exporter->known = calloc(round->answered + 1, sizeof *exporter->known);
    for (size_t i = 0; exporter->known != NULL && i < round->count; i++)
        if (round->asks[i].answered) exporter->known[exporter->known_count++] = round_hash_of(round->asks[i].path);
}

size_t exporter_end(struct exporter *exporter, struct exporter_round *round, struct sink *out) {
    size_t answered = round->answered;
    if (out != NULL) {
        put_page(out, round);
        known_set(exporter, round);
    }
    for (size_t i = 0; i < round->count; i++) {
        if (round->asks[i].fd >= 0) close(round->asks[i].fd);
        free(round->asks[i].bytes);
    }
    close(round->epoll);
    globfree(&round->found);
    free(round->asks);
    free(round);
    return answered;
}

size_t exporter_run(struct exporter *exporter, struct sink *out) {
    struct exporter_round *round = exporter_begin(exporter);
    if (round == NULL) {
        out->error = ENOMEM;
        return 0;
    }
    bool all = exporter_step(round);
    while (!all && stop_signal() == 0) {
        (void)stop_wait(exporter_fd(round), exporter_wait_ms(round));
        all = exporter_step(round);
    }
    return exporter_end(exporter, round, all ? out : NULL);
}

void exporter_free(struct exporter *exporter) {
    free(exporter->known);
    exporter->known = NULL;
}
