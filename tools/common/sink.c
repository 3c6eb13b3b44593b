/* sink.c -- buffered output that remembers its first error. See sink.h. */
#include "tools/common/sink.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/stop.h"

#define BUFFER_BYTES 65536

bool sink_open(struct sink *sink, int fd) {
    *sink = (struct sink){.fd = fd, .capacity = BUFFER_BYTES};
    sink->buffer = malloc(sink->capacity);
    return sink->buffer != NULL;
}

/* A descriptor that another program made non-blocking (a shared terminal) fails with EAGAIN. Then the function waits
 * for it. A signal that is to end the output (stop_interrupts()) is the error EINTR. */
static bool write_all(int fd, const char *bytes, size_t size, int *error) {
    while (size > 0) {
        if (stop_interrupted()) {
            *error = EINTR;
            return false;
        }
        ssize_t written = write(fd, bytes, size);
        if (written >= 0) {
            bytes += written;
            size -= (size_t)written;
        } else if (errno == EAGAIN) {
            struct pollfd ready = {.fd = fd, .events = POLLOUT};
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            *error = errno;
            return false;
        }
    }
    return true;
}

bool sink_flush(struct sink *sink) {
    if (sink->fd >= 0 && sink->error == 0) write_all(sink->fd, sink->buffer, sink->size, &sink->error);
    if (sink->fd >= 0) sink->size = 0;
    return sink->error == 0;
}

/* Makes room for `size` bytes, by writing or by growing. */
static bool sink_room_make(struct sink *sink, size_t size) {
    if (sink->capacity - sink->size >= size) return true;
    if (sink->fd >= 0) return sink_flush(sink);
    size_t capacity = sink->capacity;
    while (capacity - sink->size < size) capacity *= 2;
    char *buffer = realloc(sink->buffer, capacity);
    if (buffer == NULL) {
        sink->error = ENOMEM;
        return false;
    }
    sink->buffer = buffer;
    sink->capacity = capacity;
    return true;
}

void sink_bytes(struct sink *sink, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0 && sink->error == 0) {
        size_t piece = size < BUFFER_BYTES ? size : BUFFER_BYTES;
        if (!sink_room_make(sink, piece)) return;
        memcpy(sink->buffer + sink->size, at, piece);
        sink->size += piece;
        at += piece;
        size -= piece;
    }
}

void sink_text(struct sink *sink, const char *text) {
    sink_bytes(sink, text, strlen(text));
}

void sink_byte(struct sink *sink, char byte) {
    if (sink->error != 0 || (sink->size == sink->capacity && !sink_room_make(sink, 1))) return;
    sink->buffer[sink->size++] = byte;
}

/* Writes the digits backwards, up to `end`; with `grouped`, a comma every three digits. Returns the first character. */
static char *number_write(char *end, int64_t number, bool grouped) {
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    char *at = end;
    unsigned count = 0;
    do {
        if (grouped && count > 0 && count % 3 == 0) *--at = ',';
        *--at = (char)('0' + rest % 10);
        rest /= 10;
        count++;
    } while (rest > 0);
    if (number < 0) *--at = '-';
    return at;
}

void sink_number(struct sink *sink, int64_t number) {
    char digits[24];
    char *first = number_write(digits + sizeof digits, number, false);
    sink_bytes(sink, first, (size_t)(digits + sizeof digits - first));
}

void sink_grouped(struct sink *sink, int64_t number, size_t width) {
    char digits[32];
    char *first = number_write(digits + sizeof digits, number, true);
    size_t size = (size_t)(digits + sizeof digits - first);
    if (size < width) sink_spaces(sink, width - size);
    sink_bytes(sink, first, size);
}

size_t sink_grouped_size(int64_t number) {
    char digits[32];
    return (size_t)(digits + sizeof digits - number_write(digits + sizeof digits, number, true));
}

void sink_spaces(struct sink *sink, size_t count) {
    while (count-- > 0) sink_byte(sink, ' ');
}

void sink_close(struct sink *sink) {
    free(sink->buffer);
    sink->buffer = NULL;
}
