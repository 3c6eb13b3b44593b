/* file_new.h -- a file that is written as a whole: under a separate name, which then becomes the wanted one.
 * Always true: nothing is written through a link, and no file that was there before is opened. Whoever may write into
 * the folder, too, cannot make the command write elsewhere. A link under the wanted name is replaced, not followed. */
#ifndef TOOL_FILE_NEW_H
#define TOOL_FILE_NEW_H

#include <stdbool.h>
#include <stddef.h>

struct file_new {
    const char *path;
    char *part; /* its name until then */
    int fd;
};

/* Makes the file, with the mode that the umask allows. False means errno says why not. */
bool file_new_begin(struct file_new *file, const char *path);
/* False means errno. */
bool file_new_write(struct file_new *file, const void *bytes, size_t size);
/* Gives it its name, if it is whole; otherwise removes it. It is closed in any case. False means errno, also that of
 * what came before. */
bool file_new_end(struct file_new *file, bool is_whole);

#endif
