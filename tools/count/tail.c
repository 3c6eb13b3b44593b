/* tail.c -- a log by its name. See tail.h. */
#include "tools/count/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "tools/common/moment.h"
#include "tools/count/feed.h"
#include "tools/common/tool.h"
#include "tools/count/unpack.h"

#define TURN_READS 32       /* 8 MiB, some milliseconds, after which other files get their turn */
#define LAST_LINE_MS 2000   /* a file without its name that was silent for this long has its last line as it is */
#define LEFT_OPEN_MS 300000 /* a file without its name is closed when it was silent for this long */

bool tail_open(struct tail *tail, const char *name) {
    *tail = (struct tail){.name = name};
    int fd = feed_open(name);
    if (fd < 0) return false;
    if (tail_file_begin(&tail->now, fd)) {
        if (strcmp(name, "-") == 0) tail->now.may_block = true; /* it is read from where it is, to its end */
        return true;
    }
    tool_complain("%s: no memory to read into", feed_name(name));
    return false;
}

/* ---- files that have lost the name ---- */

static void left_forget(struct tail *tail, size_t i, const struct tail_count *count) {
    tail_file_count_rest(&tail->left[i], count);
    tail_file_close(&tail->left[i]);
    memmove(&tail->left[i], &tail->left[i + 1], (--tail->left_count - i) * sizeof *tail->left);
}

static void left_add(struct tail *tail, const struct tail_count *count) {
    if (tail->left_count == TAIL_LEFT_MAX) left_forget(tail, TAIL_LEFT_MAX - 1, count);
    memmove(&tail->left[1], &tail->left[0], tail->left_count++ * sizeof *tail->left);
    tail->left[0] = tail->now;
}

/* A program continues writing into a file that was renamed until it opens its log again. */
static bool left_read(struct tail_file *file, const struct tail_count *count) {
    int64_t quiet_ms = moment_mono_ms() - file->quiet_since_ms;
    if (file->fd < 0) return false;
    enum tail_got got = tail_file_read(file);
    if (got == TAIL_GOT) tail_file_count(file, count);
    if (got == TAIL_GOT) return true;
    if (got != TAIL_NOTHING || quiet_ms >= LAST_LINE_MS) tail_file_count_rest(file, count);
    if (got == TAIL_NOTHING && quiet_ms < LEFT_OPEN_MS) return false;
    tail_file_close(file); /* its place is kept, because the name may become a link to it again */
    return false;
}

static bool left_read_all(struct tail *tail, const struct tail_count *count) {
    bool more = false;
    for (size_t i = 0; i < tail->left_count; i++)
        for (unsigned turn = 0; turn < TURN_READS && left_read(&tail->left[i], count); turn++) more = true;
    return more;
}

/* The name is `fd`'s now. A file that had it before continues at its place, if it is still the same text. */
static bool switch_to(struct tail *tail, int fd, const struct tail_count *count) {
    struct tail_file next;
    if (!tail_file_begin(&next, fd)) return false;
    for (size_t i = 0; i < tail->left_count; i++) {
        struct tail_file *known = &tail->left[i];
        if (known->device != next.device || known->inode != next.inode) continue;
        if (!tail_file_continues(known, fd)) continue;
        if (known->fd >= 0) { /* with the beginning of a line, perhaps */
            tail_file_close(&next);
            next = *known;
        } else {
            next.at = known->at;
            next.lines = known->lines;
            next.head_line = known->head_line;
            memcpy(next.head, known->head, next.head_size = known->head_size);
            memcpy(next.before, known->before, next.before_size = known->before_size);
        }
        memmove(known, known + 1, (--tail->left_count - i) * sizeof *known);
        break;
    }
    left_add(tail, count);
    tail->now = next;
    return true;
}

/* ---- the file that has the name ---- */

/* All that was read of the file is counted, except for the beginning of a line; the rest of the old text is in the copy
 * that was made of it, or is lost to everybody. */
static void begin_again(struct tail *tail, const struct tail_count *count) {
    char copy[256];
    if (tail_copy_count(tail->name, &tail->now, count, copy, sizeof copy))
        tool_complain("%s: was truncated; its last lines were read from %s, continuing from its start", tail->name,
                      copy);
    else
        tool_complain("%s: was truncated; %scontinuing from its start", tail->name,
                      tail->now.size > 0 ? "the beginning of its last line was dropped; " : "");
    tail_file_rewind(&tail->now);
}

/* At the end of an open file, whether another file has its name. */
static enum tail_state look_around(struct tail *tail, const struct tail_count *count) {
    struct stat named;
    if (stat(tail->name, &named) != 0) return TAIL_IDLE; /* gone for now; its writer may still have it open */
    if (named.st_dev == tail->now.device && named.st_ino == tail->now.inode) return TAIL_IDLE;
    int fd = open(tail->name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return TAIL_IDLE;
    return switch_to(tail, fd, count) ? TAIL_MORE : TAIL_IDLE; /* without memory it is tried again */
}

static enum tail_state input_ended(struct tail *tail, int error) {
    if (error != 0) tool_complain("%s: %s", feed_name(tail->name), strerror(error));
    tail_file_close(&tail->now);
    tail->ended = true;
    return error == 0 ? TAIL_IDLE : TAIL_TROUBLE;
}

/* Checks the first bytes, once; complains if the file is compressed, because such a file does not grow line by line. */
static bool is_compressed(struct tail *tail) {
    if (tail->looked || tail->now.size < UNPACK_MAGIC_BYTES) return false;
    tail->looked = true;
    enum unpack_kind kind = unpack_kind_of(tail->now.text, tail->now.size);
    if (kind == UNPACK_PLAIN) return false;
    tool_complain("%s: is compressed (%s); --follow reads plain text only", feed_name(tail->name), unpack_name(kind));
    return true;
}

static enum tail_state now_read(struct tail *tail, const struct tail_count *count) {
    for (unsigned turn = 0; turn < TURN_READS; turn++) {
        enum tail_state state = TAIL_MORE;
        switch (tail_file_read(&tail->now)) {
        case TAIL_GOT:
            if (is_compressed(tail)) {
                (void)input_ended(tail, 0);
                return TAIL_TROUBLE;
            }
            tail_file_count(&tail->now, count);
            break;
        case TAIL_CUT: begin_again(tail, count); break;
        case TAIL_ERROR: return input_ended(tail, errno);
        case TAIL_END: tail_file_count_rest(&tail->now, count); return input_ended(tail, 0);
        case TAIL_NOTHING:
            if (tail->now.may_block) return TAIL_IDLE;
            state = look_around(tail, count);
        }
        if (state == TAIL_IDLE) return state;
    }
    return TAIL_MORE;
}

enum tail_state tail_read(struct tail *tail, struct counter *counter, struct outcome *total,
                          const char **skipped_file) {
    struct tail_count count = {tail->name, counter, total, skipped_file};
    if (tail->ended) return TAIL_IDLE;
    bool more = left_read_all(tail, &count);
    enum tail_state state = now_read(tail, &count);
    return state == TAIL_IDLE && more ? TAIL_MORE : state;
}

void tail_finish(struct tail *tail, struct counter *counter, struct outcome *total, const char **skipped_file) {
    struct tail_count count = {tail->name, counter, total, skipped_file};
    while (tail->left_count > 0) left_forget(tail, tail->left_count - 1, &count);
}

void tail_close(struct tail *tail) {
    tail_file_close(&tail->now);
    for (size_t i = 0; i < tail->left_count; i++) tail_file_close(&tail->left[i]);
}
