/* feed_file.c -- opens and names a file, and grows a buffer, for all readers of files. See feed.h. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/count/feed.h"
#include "tools/common/tool.h"

const char *feed_name(const char *file) {
    return strcmp(file, "-") == 0 ? "(standard input)" : file;
}

int feed_open(const char *file) {
    struct stat status;
    /* Non-blocking, because opening a named pipe must not wait for its writer where a signal cannot interrupt it;
     * poll() waits later. */
    int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    int fd = strcmp(file, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : open(file, flags);
    if (fd < 0) {
        tool_complain("%s: %s", feed_name(file), strerror(errno));
        return -1;
    }
    if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        tool_complain("%s: is a directory, not a file", feed_name(file));
        close(fd);
        return -1;
    }
    return fd;
}

void feed_refuse_packed(const char *name, enum unpack_kind kind) {
    tool_complain("%s: is compressed (%s), which this command does not read; decompress it first: %s FILE |"
                  " tallywheel count ... -",
                  name, unpack_name(kind), unpack_program(kind));
}

size_t feed_grown(size_t capacity) {
    if (capacity > FEED_LINE_MAX) return 0;
    return capacity * 2 > FEED_LINE_MAX ? FEED_LINE_MAX + 1 : capacity * 2;
}

bool feed_may_block(int fd) {
    struct stat status;
    return fstat(fd, &status) != 0 || !S_ISREG(status.st_mode);
}

size_t feed_hole(char *text, size_t size) {
    size_t nuls = 0;
    while (nuls < size && text[nuls] == '\0') nuls++;
    memmove(text, text + nuls, size - nuls);
    return nuls;
}
