/* tail.c -- one growing file. See tail.h. */
#include "tail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "feed.h"
#include "stop.h"
#include "tool.h"
#include "unpack.h"

#define READ_BYTES (256 * 1024)
#define TURN_READS 32 /* 8 MiB, some milliseconds: then other files get their turn */

static void identity_note(struct tail *tail) {
    struct stat status;
    if (fstat(tail->fd, &status) != 0) return;
    tail->device = status.st_dev;
    tail->inode = status.st_ino;
}

bool tail_open(struct tail *tail, const char *file) {
    *tail = (struct tail){.file = file, .fd = feed_open(file), .capacity = READ_BYTES};
    if (tail->fd < 0) return false;
    tail->text = malloc(tail->capacity);
    if (tail->text == NULL) {
        tool_complain("%s: no memory to read into", feed_name(file));
        close(tail->fd);
        return false;
    }
    tail->may_block = feed_may_block(tail->fd);
    identity_note(tail);
    return true;
}

/* The state while one file is read. */
struct take {
    struct tail *tail;
    struct counter *counter;
    struct outcome *total;
    const char **skipped_file;
};

static void fold(struct take *take, const struct outcome *piece) {
    if (outcome_fold(take->total, piece, take->tail->lines)) *take->skipped_file = take->tail->file;
    take->tail->lines += piece->lines;
}

static void count_text(struct take *take, size_t size) {
    struct tail *tail = take->tail;
    struct outcome piece;
    take->counter->head = &tail->head;
    counter_take(take->counter, tail->text, size, &piece);
    fold(take, &piece);
    memmove(tail->text, tail->text + size, tail->size - size);
    tail->size -= size;
}

/* Drops the rest of a line that is too long, up to its newline. */
static void skip_rest(struct tail *tail) {
    char *newline = memchr(tail->text, '\n', tail->size);
    size_t drop = newline == NULL ? tail->size : (size_t)(newline + 1 - tail->text);
    memmove(tail->text, tail->text + drop, tail->size - drop);
    tail->size -= drop;
    tail->skipping = newline == NULL;
}

/* The buffer is full and has no line end. */
static void line_is_long(struct take *take) {
    static const struct outcome too_long = {
        .lines = 1, .skipped = 1, .skipped_line = 1, .skipped_why = "longer than 1 MiB"};
    struct tail *tail = take->tail;
    size_t hole = feed_hole(tail->text, tail->size);
    tail->size -= hole;
    if (hole > 0) return;
    size_t capacity = feed_grown(tail->capacity);
    char *text = capacity > 0 ? realloc(tail->text, capacity) : NULL;
    if (text != NULL) {
        tail->text = text;
        tail->capacity = capacity;
        return;
    }
    fold(take, &too_long);
    tail->size = 0;
    tail->skipping = true;
}

static void count_lines(struct take *take) {
    struct tail *tail = take->tail;
    if (tail->skipping) skip_rest(tail);
    if (tail->skipping || tail->size == 0) return;
    char *newline = memrchr(tail->text, '\n', tail->size);
    if (newline != NULL) {
        count_text(take, (size_t)(newline + 1 - tail->text));
    } else if (tail->size == tail->capacity) {
        line_is_long(take);
    }
}

/* The file has ended: what comes after its last newline was its last line. */
static void count_rest(struct take *take) {
    if (!take->tail->skipping && take->tail->size > 0) count_text(take, take->tail->size);
    take->tail->size = 0;
    take->tail->skipping = false;
    take->tail->lines = 0;
    take->tail->head = (struct line_head){.is_known = false};
}

/* At the end of an open file: was it cut, or does another file have its name? TAIL_MORE: read on at another place. */
static enum tail_state look_around(struct take *take) {
    struct tail *tail = take->tail;
    struct stat named, opened;
    if (fstat(tail->fd, &opened) == 0 && opened.st_size < lseek(tail->fd, 0, SEEK_CUR)) {
        tool_complain("%s: was truncated; continuing from its start", tail->file);
        tail->size = 0; /* the beginning of a line of the old file */
        tail->skipping = false;
        tail->lines = 0;
        tail->head = (struct line_head){.is_known = false};
        return lseek(tail->fd, 0, SEEK_SET) == 0 ? TAIL_MORE : TAIL_TROUBLE;
    }
    if (stat(tail->file, &named) != 0) return TAIL_IDLE; /* gone for now; its writer may still have it open */
    if (named.st_dev == tail->device && named.st_ino == tail->inode) return TAIL_IDLE;
    int fd = open(tail->file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return TAIL_IDLE;
    /* Reads lines written between the last read and the rotation. */
    ssize_t got = read(tail->fd, tail->text + tail->size, tail->capacity - tail->size);
    if (got > 0) {
        close(fd);
        tail->size += (size_t)got;
        count_lines(take);
        return TAIL_MORE;
    }
    count_rest(take);
    close(tail->fd);
    tail->fd = fd;
    tail->may_block = feed_may_block(fd);
    identity_note(tail);
    return TAIL_MORE;
}

static enum tail_state input_ended(struct take *take, int error) {
    struct tail *tail = take->tail;
    if (error != 0) tool_complain("%s: %s", feed_name(tail->file), strerror(error));
    if (error == 0) count_rest(take);
    close(tail->fd);
    tail->fd = -1;
    tail->ended = true;
    return error == 0 ? TAIL_IDLE : TAIL_TROUBLE;
}

/* Checks the first bytes, once; complains if the file is compressed: such a file does not grow line by line. */
static bool is_compressed(struct tail *tail) {
    if (tail->looked || tail->size < UNPACK_MAGIC_BYTES) return false;
    tail->looked = true;
    enum unpack_kind kind = unpack_kind_of(tail->text, tail->size);
    if (kind == UNPACK_PLAIN) return false;
    tool_complain("%s: is compressed (%s); --follow reads plain text only", feed_name(tail->file), unpack_name(kind));
    return true;
}

static enum tail_state input_ended_badly(struct take *take) {
    take->tail->size = 0;
    (void)input_ended(take, 0);
    return TAIL_TROUBLE;
}

enum tail_state tail_read(struct tail *tail, struct counter *counter, struct outcome *total,
                          const char **skipped_file) {
    struct take take = {tail, counter, total, skipped_file};
    if (tail->ended) return TAIL_IDLE;
    for (unsigned turn = 0; turn < TURN_READS; turn++) {
        if (tail->may_block && !stop_wait(tail->fd, 0)) return TAIL_IDLE;
        ssize_t got = read(tail->fd, tail->text + tail->size, tail->capacity - tail->size);
        if (got > 0) {
            tail->size += (size_t)got;
            if (is_compressed(tail)) return input_ended_badly(&take);
            count_lines(&take);
        } else if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
            return TAIL_IDLE;
        } else if (got < 0) {
            return input_ended(&take, errno);
        } else if (tail->may_block || strcmp(tail->file, "-") == 0) {
            return input_ended(&take, 0);
        } else {
            enum tail_state state = look_around(&take);
            if (state == TAIL_TROUBLE) return input_ended(&take, errno);
            if (state == TAIL_IDLE) return state;
        }
    }
    return TAIL_MORE;
}

void tail_close(struct tail *tail) {
    if (tail->fd >= 0) close(tail->fd);
    free(tail->text);
}
