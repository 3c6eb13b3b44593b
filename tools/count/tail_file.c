/* tail_file.c -- one open file that grows. See tail_file.h. */
#include "tools/count/tail_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/count/feed.h"
#include "tools/common/stop.h"

#define READ_BYTES (256 * 1024)

bool tail_file_begin(struct tail_file *file, int fd) {
    struct stat status;
    *file = (struct tail_file){.fd = fd, .capacity = READ_BYTES, .quiet_since_ms = moment_mono_ms()};
    file->may_block = feed_may_block(fd);
    if (fstat(fd, &status) == 0) {
        file->device = status.st_dev;
        file->inode = status.st_ino;
        file->written = status.st_mtim;
    }
    file->text = malloc(file->capacity);
    if (file->text != NULL) return true;
    close(fd);
    file->fd = -1;
    return false;
}

void tail_file_close(struct tail_file *file) {
    if (file->fd >= 0) close(file->fd);
    free(file->text);
    file->fd = -1;
    file->text = NULL;
    file->size = file->capacity = 0;
}

void tail_file_rewind(struct tail_file *file) {
    file->at = 0;
    file->head_size = file->before_size = file->size = 0;
    file->skipping = false;
    file->lines = 0;
    file->head_line = (struct line_head){.is_known = false};
}

/* ---- facts about the file ---- */

static bool tail_holds(int fd, const char *known, size_t size, int64_t at) {
    char bytes[TAIL_KNOWN];
    return pread(fd, bytes, size, (off_t)at) == (ssize_t)size && memcmp(bytes, known, size) == 0;
}

bool tail_file_continues(const struct tail_file *file, int fd) {
    return tail_holds(fd, file->head, file->head_size, 0) &&
           tail_holds(fd, file->before, file->before_size, file->at - (int64_t)file->before_size);
}

static void tail_learn(struct tail_file *file, const char *bytes, size_t size) {
    size_t head = TAIL_KNOWN - file->head_size < size ? TAIL_KNOWN - file->head_size : size;
    memcpy(file->head + file->head_size, bytes, head);
    file->head_size += head;
    size_t fresh = size < TAIL_KNOWN ? size : TAIL_KNOWN, kept = file->before_size;
    if (kept > TAIL_KNOWN - fresh) kept = TAIL_KNOWN - fresh;
    memmove(file->before, file->before + file->before_size - kept, kept);
    memcpy(file->before + kept, bytes + size - fresh, fresh);
    file->before_size = kept + fresh;
    file->at += (int64_t)size;
    file->quiet_since_ms = moment_mono_ms();
}

/* ---- reading ---- */

static enum tail_got pipe_read(struct tail_file *file) {
    if (!stop_wait(file->fd, 0)) return TAIL_NOTHING;
    ssize_t got = read(file->fd, file->text + file->size, file->capacity - file->size);
    if (got > 0) file->size += (size_t)got;
    if (got > 0) return TAIL_GOT;
    if (got == 0) return TAIL_END;
    return errno == EINTR || errno == EAGAIN ? TAIL_NOTHING : TAIL_ERROR;
}

/* The bytes are read first, and the bytes before them are compared afterwards. A file that is cut and refilled in
 * between is noticed, and the bytes, which may be of either text, are dropped. */
enum tail_got tail_file_read(struct tail_file *file) {
    struct stat status;
    char *to = file->text + file->size;
    if (file->may_block) return pipe_read(file);
    bool dated = fstat(file->fd, &status) == 0;
    ssize_t got = pread(file->fd, to, file->capacity - file->size, (off_t)file->at);
    if (got < 0) return errno == EINTR || errno == EAGAIN ? TAIL_NOTHING : TAIL_ERROR;
    if (!tail_file_continues(file, file->fd)) return TAIL_CUT;
    if (dated) file->written = status.st_mtim;
    if (got == 0) return TAIL_NOTHING;
    tail_learn(file, to, (size_t)got);
    file->size += (size_t)got;
    return TAIL_GOT;
}

/* ---- counting ---- */

void tail_file_fold(struct tail_file *file, const struct tail_count *count, const struct outcome *piece) {
    if (outcome_fold(count->total, piece, file->lines, count->name)) *count->skipped_file = count->name;
    file->lines += piece->lines;
}

static void tail_drop(struct tail_file *file, size_t size) {
    memmove(file->text, file->text + size, file->size - size);
    file->size -= size;
}

static void count_text(struct tail_file *file, const struct tail_count *count, size_t size) {
    struct outcome piece;
    count->counter->head = &file->head_line;
    counter_take(count->counter, file->text, size, &piece);
    tail_file_fold(file, count, &piece);
    tail_drop(file, size);
}

/* Drops the rest of a line that is too long, up to its newline. */
static void skip_rest(struct tail_file *file) {
    const char *newline = memchr(file->text, '\n', file->size);
    file->skipping = newline == NULL;
    tail_drop(file, newline == NULL ? file->size : (size_t)(newline + 1 - file->text));
}

/* The buffer is full and has no line end. */
static void line_is_long(struct tail_file *file, const struct tail_count *count) {
    size_t capacity = feed_grown(file->capacity);
    char *text = capacity > 0 ? realloc(file->text, capacity) : NULL;
    if (text != NULL) {
        file->text = text;
        file->capacity = capacity;
        return;
    }
    struct outcome piece;
    outcome_one_skipped(&piece, counter_too_long);
    tail_file_fold(file, count, &piece);
    file->size = 0;
    file->skipping = true;
}

void tail_file_count(struct tail_file *file, const struct tail_count *count) {
    if (file->skipping) skip_rest(file);
    if (file->skipping) return;
    file->size -=
        feed_hole(file->text, file->size); /* a program that does not append leaves one in a file that was cut */
    if (file->size == 0) return;
    const char *newline = memrchr(file->text, '\n', file->size);
    if (newline != NULL)
        count_text(file, count, (size_t)(newline + 1 - file->text));
    else if (file->size == file->capacity)
        line_is_long(file, count);
}

void tail_file_count_rest(struct tail_file *file, const struct tail_count *count) {
    if (!file->skipping && file->size > 0) count_text(file, count, file->size);
    file->size = 0;
    file->skipping = false;
}
