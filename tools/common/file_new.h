/* file_new.h -- writes a file as a whole, under a separate name, which is then renamed to the requested one. Always
 * true: the file is never written through a link, and no existing file is opened. Another user who may write into the
 * folder, too, cannot make the command write elsewhere. A link under the requested name is replaced, not followed. */
#ifndef TOOL_FILE_NEW_H
#define TOOL_FILE_NEW_H

#include <stdbool.h>
#include <stddef.h>

struct file_new {
    const char *path;
    char *part; /* its name until then */
    int fd;
};

/* Makes the file, with the mode that the umask allows. Returns false on an error; errno then has the reason. */
bool file_new_begin(struct file_new *file, const char *path);
/* Returns false on an error; errno then has the reason. */
bool file_new_write(struct file_new *file, const void *bytes, size_t size);
/* Gives it its name, if it is whole; otherwise removes it. It is closed in any case. Returns false on an error, also an
 * earlier one; errno then has the reason. */
bool file_new_end(struct file_new *file, bool is_whole);

#endif
