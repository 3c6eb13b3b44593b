/* file_new.c -- see file_new.h. */
#include "tools/common/file_new.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define TRIES 16

bool file_new_begin(struct file_new *file, const char *path) {
    *file = (struct file_new){.path = path, .fd = -1};
    for (int i = 0; i < TRIES && file->fd < 0; i++) {
        unsigned number = 0;
        (void)!getrandom(&number, sizeof number, 0); /* another name would do as well; O_EXCL protects it */
        free(file->part);
        if (asprintf(&file->part, "%s.%08x.new", path, number + (unsigned)i) < 0) {
            file->part = NULL;
            return false;
        }
        file->fd = open(file->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (file->fd < 0 && errno != EEXIST) break;
    }
    if (file->fd >= 0) return true;
    int error = errno;
    free(file->part);
    errno = error;
    return false;
}

bool file_new_write(struct file_new *file, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size > 0) {
        ssize_t written = write(file->fd, at, size);
        if (written < 0 && errno != EINTR) return false;
        at += written > 0 ? written : 0;
        size -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

bool file_new_end(struct file_new *file, bool is_whole) {
    int error = errno;
    bool good = is_whole;
    if (good && rename(file->part, file->path) != 0) {
        good = false;
        error = errno;
    }
    if (!good) (void)unlink(file->part);
    if (file->fd >= 0 && close(file->fd) != 0 && good) return false;
    free(file->part);
    errno = error;
    return good;
}
