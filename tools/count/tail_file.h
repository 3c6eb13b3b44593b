/* tail_file.h -- one open file that grows, and the place up to which it was read.
 * Always true: bytes are given out only if the file still has the same earlier bytes, which are its first bytes, and
 * those just before the place. So a file that was cut and refilled is noticed whatever its size is. One thread. */
#ifndef TOOL_TAIL_FILE_H
#define TOOL_TAIL_FILE_H

#include <sys/stat.h>
#include <time.h>

#include "tools/count/counter.h"

#define TAIL_KNOWN 1024u /* so many bytes are compared at the file's start and before the place */

struct tail_file {
    int fd;         /* -1 means closed; the place is kept */
    bool may_block; /* no regular file; it has no places, and is never cut */
    bool skipping;  /* inside a line that is too long */
    dev_t device;
    ino_t inode;
    struct timespec written; /* the file's mtime when it last was as known */
    int64_t at;              /* the offset of the next byte to read */
    char head[TAIL_KNOWN], before[TAIL_KNOWN];
    size_t head_size, before_size;
    char *text; /* the bytes that were read and not counted yet, the beginning of a line */
    size_t size, capacity;
    uint64_t lines;             /* of this file so far */
    struct line_head head_line; /* the description of the columns in its first lines */
    int64_t quiet_since_ms;     /* moment_mono_ms() of the last bytes */
};

/* Takes over `fd`. Returns false if there is no memory; `fd` is closed. tail_file_close() frees. */
bool tail_file_begin(struct tail_file *file, int fd);
void tail_file_close(struct tail_file *file);

enum tail_got { TAIL_GOT, TAIL_NOTHING, TAIL_END, TAIL_CUT, TAIL_ERROR };

/* Appends some bytes to file->text, which must have room. TAIL_NOTHING means that there are none now. TAIL_END means
 * that no more will come (a pipe). TAIL_CUT means that the file is not the one that was read. TAIL_ERROR means an
 * error, with its reason in errno. Never blocks. */
enum tail_got tail_file_read(struct tail_file *file);
/* Returns whether what `fd` names begins with all that was read of `file`, as far as that is known. */
bool tail_file_continues(const struct tail_file *file, int fd);
/* Back to the start, as if the file had not been read. */
void tail_file_rewind(struct tail_file *file);

/* Where lines are counted; `total` grows, `*skipped_file` is set with its first skipped line. */
struct tail_count {
    const char *name; /* for skipped lines */
    struct counter *counter;
    struct outcome *total;
    const char **skipped_file;
};

/* Adds up the outcome of some lines of the file. */
void tail_file_fold(struct tail_file *file, const struct tail_count *count, const struct outcome *piece);
/* Counts the whole lines of file->text, and makes room. */
void tail_file_count(struct tail_file *file, const struct tail_count *count);
/* The file has ended. The text after its last newline was its last line. */
void tail_file_count_rest(struct tail_file *file, const struct tail_count *count);

/* ---- tail_copy.c ---- */

/* `file` was cut. Looks beside `path` for the copy that was made of it before, plain or compressed, counts the lines of
 * the copy after the place, and writes its name, or its first bytes. Returns false if there is no copy. */
bool tail_copy_count(const char *path, struct tail_file *file, const struct tail_count *count, char *name, size_t room);

#endif
