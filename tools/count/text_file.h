/* text_file.h -- a file as text, plain or compressed, read line by line from any place in it.
 * Always true: text_file_at() is the offset in the text, after decompression, of the next byte that is not consumed.
 * The bytes before it, up to TEXT_FILE_TAIL of them, are still there. One thread. */
#ifndef TOOL_TEXT_FILE_H
#define TOOL_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_FILE_TAIL 512

struct text_file {
    const char *file;
    int fd;
    bool may_block, ended;
    bool skipping; /* inside a line that is too long */
    struct unpack *unpack;
    char *bytes;
    size_t used, size, capacity; /* `used` bytes are consumed */
    int64_t base;                /* the offset of bytes[0] */
    /* Called at least twice a second while input is read or waited for. False means reported, and reading ends. */
    bool (*go_on)(void *ctx);
    void *ctx;
};

enum text_file_state { TEXT_FILE_LINE, TEXT_FILE_LONG, TEXT_FILE_END, TEXT_FILE_STOPPED, TEXT_FILE_TROUBLE };

/* Returns false after a message on standard error, or of go_on(). text_file_close() in any case. */
bool text_file_open(struct text_file *text, const char *file, bool (*go_on)(void *ctx), void *ctx);
void text_file_close(struct text_file *text);

int64_t text_file_at(const struct text_file *text);
/* Reads the next line, without its newline. It is not consumed yet. TEXT_FILE_LONG means that it is longer than
 * FEED_LINE_MAX, and was consumed. TEXT_FILE_END means that no whole line is left. TEXT_FILE_STOPPED means that a
 * signal came. TEXT_FILE_TROUBLE means that an error was reported. */
enum text_file_state text_file_line(struct text_file *text, const char **line, size_t *size);
/* Takes the line that text_file_line() has shown. */
void text_file_take(struct text_file *text, size_t size);
/* Continues to a later offset. TEXT_FILE_LINE means that it is there, TEXT_FILE_END that the text is shorter. */
enum text_file_state text_file_skip(struct text_file *text, int64_t at);
/* Returns the bytes before the next line, at most TEXT_FILE_TAIL. */
const char *text_file_tail(const struct text_file *text, size_t *size);
/* Returns the size of the text after the last newline, at TEXT_FILE_END. */
size_t text_file_rest(const struct text_file *text);

#endif
