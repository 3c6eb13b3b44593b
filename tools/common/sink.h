/* sink.h -- a target of output, which is a file descriptor behind a buffer, or memory.
 * Always true: the first error is kept (`error`, an errno), and all later output is dropped. Except for sink_flush(),
 * each write has the size of the buffer at least. One thread at a time. */
#ifndef TOOL_SINK_H
#define TOOL_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sink {
    int fd; /* -1 means memory, which grows */
    int error;
    char *buffer;
    size_t size, capacity;
};

bool sink_open(struct sink *sink, int fd); /* false means no memory */
void sink_bytes(struct sink *sink, const void *bytes, size_t size);
void sink_text(struct sink *sink, const char *text);
void sink_byte(struct sink *sink, char byte);
void sink_number(struct sink *sink, int64_t number);
/* Right-aligned in `width`, with commas every three digits. */
void sink_grouped(struct sink *sink, int64_t number, size_t width);
size_t sink_grouped_size(int64_t number); /* without padding */
void sink_spaces(struct sink *sink, size_t count);
/* Writes the buffer. Returns true if there was no error so far. */
bool sink_flush(struct sink *sink);
void sink_close(struct sink *sink); /* frees; does not flush */

#endif
