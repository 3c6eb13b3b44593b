/* text_file.c -- a file as text, read line by line. See text_file.h. */
#include "tools/count/text_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/count/feed.h"
#include "tools/common/stop.h"
#include "tools/common/tool.h"

#ifndef READ_BYTES
#define READ_BYTES (256 * 1024)
#endif
#define WAIT_MS 400
#define CAPACITY (FEED_LINE_MAX + READ_BYTES + TEXT_FILE_TAIL)

static enum text_file_state trouble(const struct text_file *text, const char *why) {
    tool_complain("%s: %s", feed_name(text->file), why);
    return TEXT_FILE_TROUBLE;
}

/* Makes room after the buffered bytes. The consumed bytes leave, except for their tail. */
static void text_room_make(struct text_file *text) {
    if (text->used <= TEXT_FILE_TAIL) return;
    size_t drop = text->used - TEXT_FILE_TAIL;
    memmove(text->bytes, text->bytes + drop, text->size - drop);
    text->base += (int64_t)drop;
    text->used -= drop;
    text->size -= drop;
}

/* One read, of at most `room` bytes. TEXT_FILE_LINE means that `*got` bytes came, perhaps 0. */
static enum text_file_state input_read(struct text_file *text, char *to, size_t room, size_t *got) {
    *got = 0;
    if (stop_signal() != 0) return TEXT_FILE_STOPPED;
    if (!text->go_on(text->ctx)) return TEXT_FILE_TROUBLE;
    if (text->may_block && !stop_wait(text->fd, WAIT_MS)) return TEXT_FILE_LINE;
    ssize_t come = read(text->fd, to, room);
    if (come > 0) *got = (size_t)come;
    if (come == 0) return TEXT_FILE_END;
    if (come > 0 || errno == EINTR) return TEXT_FILE_LINE;
    if (errno != EAGAIN) return trouble(text, strerror(errno));
    text->may_block = true;
    return TEXT_FILE_LINE;
}

static enum text_file_state unpacked_more(struct text_file *text) {
    size_t got;
    for (;;) {
        ssize_t made = unpack_take(text->unpack, text->bytes + text->size, READ_BYTES);
        if (made < 0) return trouble(text, unpack_wrong(text->unpack, false));
        text->size += (size_t)made;
        if (made > 0) return TEXT_FILE_LINE;
        enum text_file_state state = input_read(text, unpack_room(text->unpack), UNPACK_BUFFER_BYTES, &got);
        unpack_fed(text->unpack, got);
        if (state == TEXT_FILE_END && unpack_wrong(text->unpack, true) != NULL)
            return trouble(text, unpack_wrong(text->unpack, true));
        if (state != TEXT_FILE_LINE) return state;
    }
}

/* Reads some more text. TEXT_FILE_END means that there is no more. */
static enum text_file_state more(struct text_file *text) {
    size_t before = text->size, got;
    enum text_file_state state = text->ended ? TEXT_FILE_END : TEXT_FILE_LINE;
    while (state == TEXT_FILE_LINE && text->size == before) {
        text_room_make(text);
        before = text->size;
        if (text->unpack != NULL) {
            state = unpacked_more(text);
        } else {
            state = input_read(text, text->bytes + text->size, READ_BYTES, &got);
            text->size += got;
        }
    }
    if (state == TEXT_FILE_END) text->ended = true;
    return state;
}

/* The first bytes show whether the file is compressed. */
static bool text_look(struct text_file *text) {
    enum text_file_state state = TEXT_FILE_LINE;
    while (text->size < UNPACK_MAGIC_BYTES && state == TEXT_FILE_LINE) state = more(text);
    if (state == TEXT_FILE_TROUBLE) return false;
    enum unpack_kind kind = unpack_kind_of(text->bytes, text->size);
    if (kind == UNPACK_PLAIN) return true;
    if (!unpack_can(kind)) {
        feed_refuse_packed(feed_name(text->file), kind);
        return false;
    }
    text->unpack = unpack_new(kind, text->bytes, text->size);
    if (text->unpack == NULL) (void)trouble(text, "no memory to decompress it");
    text->size = 0;
    text->ended = false;
    return text->unpack != NULL;
}

bool text_file_open(struct text_file *text, const char *file, bool (*go_on)(void *ctx), void *ctx) {
    *text = (struct text_file){.file = file, .fd = feed_open(file), .capacity = CAPACITY, .go_on = go_on, .ctx = ctx};
    if (text->fd < 0) return false;
    text->may_block = feed_may_block(text->fd);
    text->bytes = malloc(text->capacity);
    if (text->bytes != NULL) return text_look(text);
    (void)trouble(text, "no memory to read into");
    return false;
}

void text_file_close(struct text_file *text) {
    unpack_free(text->unpack);
    free(text->bytes);
    if (text->fd >= 0) close(text->fd);
}

int64_t text_file_at(const struct text_file *text) {
    return text->base + (int64_t)text->used;
}

void text_file_take(struct text_file *text, size_t size) {
    text->used += size + 1;
}

/* Consumes the present bytes of a line that is too long. Returns true if its end was there. */
static bool long_line_pass(struct text_file *text) {
    const char *newline = memchr(text->bytes + text->used, '\n', text->size - text->used);
    text->used = newline != NULL ? (size_t)(newline + 1 - text->bytes) : text->size;
    text->skipping = newline == NULL;
    return newline != NULL;
}

enum text_file_state text_file_line(struct text_file *text, const char **line, size_t *size) {
    size_t looked = 0;
    for (;;) {
        if (text->skipping) {
            if (long_line_pass(text)) return TEXT_FILE_LONG;
        } else {
            size_t held = text->size - text->used;
            const char *from = text->bytes + text->used, *newline = memchr(from + looked, '\n', held - looked);
            if (newline != NULL) {
                *line = from;
                *size = (size_t)(newline - from);
                return TEXT_FILE_LINE;
            }
            looked = held;
            text->skipping = held > FEED_LINE_MAX;
            if (text->skipping) continue;
        }
        enum text_file_state state = more(text);
        if (state != TEXT_FILE_LINE) return state;
    }
}

enum text_file_state text_file_skip(struct text_file *text, int64_t at) {
    bool seeks = text->unpack == NULL && strcmp(text->file, "-") != 0 && !feed_may_block(text->fd);
    int64_t from = at - TEXT_FILE_TAIL;
    if (seeks && from > text->base + (int64_t)text->size && lseek(text->fd, 0, SEEK_END) >= at &&
        lseek(text->fd, from, SEEK_SET) == from) {
        text->base = from;
        text->used = text->size = 0;
    }
    while (text_file_at(text) < at) {
        int64_t ahead = at - text_file_at(text), held = (int64_t)(text->size - text->used);
        text->used += (size_t)(ahead < held ? ahead : held);
        if (ahead <= held) break;
        enum text_file_state state = more(text);
        if (state != TEXT_FILE_LINE) return state;
    }
    return TEXT_FILE_LINE;
}

const char *text_file_tail(const struct text_file *text, size_t *size) {
    *size = text->used < TEXT_FILE_TAIL ? text->used : TEXT_FILE_TAIL;
    return text->bytes + text->used - *size;
}

size_t text_file_rest(const struct text_file *text) {
    return text->size - text->used;
}
