/* watch_socket.c -- the watch socket in the file system. See watch.h.
 * A socket's file outlives a process that was killed. An attempt to connect shows whether a process still listens. A
 * refusal means that there is no listener. If several processes find this at once, only one may replace the file. They
 * lock the folder by flock(), which leaves no extra file behind.
 * Always true: no file but a dead socket is ever removed. The mode is set before the name is there, so that no umask
 * and no moment opens it to others. */
#include "extras/watch.h"

#include "engine/base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128
#define LOCK_TRIES 200 /* a second */
#define LOCK_NAP_MS 5

static bool socket_say(char *why, size_t size, const char *path, const char *what) {
    (void)snprintf(why, size, "%s: %s", path, what);
    return false;
}

static bool say_errno(char *why, size_t size, const char *path) {
    return socket_say(why, size, path, strerror(errno));
}

/* %p becomes the process id, %% a percent sign; options.c has refused all other forms. Returns false if it is too
 * long. */
static bool expand(const char *pattern, char path[TWI_WATCH_PATH_MAX + 1]) {
    size_t size = 0;
    for (const char *at = pattern; *at != '\0'; at++) {
        char number[24] = {*at, '\0'};
        if (*at == '%' && at[1] == 'p') (void)snprintf(number, sizeof number, "%ld", (long)getpid());
        if (*at == '%') at++;
        size_t more = strlen(number);
        if (size + more > TWI_WATCH_PATH_MAX) return false;
        memcpy(path + size, number, more);
        size += more;
    }
    path[size] = '\0';
    return true;
}

static struct sockaddr_un socket_address_of(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    return address;
}

/* Returns true if there is no listener. It does not wait. A listener whose queue is full is alive (EAGAIN). */
static bool is_dead(const char *path) {
    struct sockaddr_un address = socket_address_of(path);
    int fd = twi_descriptor_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0) return false;
    bool refused = connect(fd, (const struct sockaddr *)&address, sizeof address) != 0 && errno == ECONNREFUSED;
    twi_descriptor_close(fd);
    return refused;
}

/* Returns the locked folder, or -1 on an error; errno then has the reason. Other engines lock it only for a few system
 * calls, the same as this file. Another program may lock it for long, and this file does not wait for that. */
static int lock_folder(const char *path) {
    char folder[TWI_WATCH_PATH_MAX + 1];
    size_t size = (size_t)(strrchr(path, '/') - path);
    memcpy(folder, path, size);
    folder[size] = '\0';
    int fd = open(size > 0 ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK || tries == LOCK_TRIES) {
            int error = errno;
            close(fd);
            errno = error;
            return -1;
        }
        (void)poll(NULL, 0, LOCK_NAP_MS);
    }
    return fd;
}

static bool bind_name(int fd, const char *path) {
    struct sockaddr_un address = socket_address_of(path);
    return bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
}

/* Returns true if there is a file with the name. Under the lock of the folder. */
static bool socket_replace(int fd, const char *path, char *why, size_t why_size) {
    struct stat stat;
    if (lstat(path, &stat) == 0 && !S_ISSOCK(stat.st_mode))
        return socket_say(why, why_size, path, "there is a file of that name, which is no socket");
    if (!is_dead(path))
        return socket_say(why, why_size, path, "another engine listens there; %p makes the names differ");
    return (unlink(path) == 0 && bind_name(fd, path)) || say_errno(why, why_size, path);
}

/* Takes the name and listens before the lock is released, because a name without a listener counts as dead. */
static bool take_name(int fd, const char *path, char *why, size_t why_size) {
    int folder = lock_folder(path);
    if (folder < 0 && errno == EWOULDBLOCK)
        return socket_say(why, why_size, path, "somebody else holds the lock (flock) of its folder");
    if (folder < 0) return say_errno(why, why_size, path);
    bool taken = bind_name(fd, path);
    if (!taken) taken = errno == EADDRINUSE ? socket_replace(fd, path, why, why_size) : say_errno(why, why_size, path);
    if (taken && listen(fd, BACKLOG) != 0) taken = say_errno(why, why_size, path);
    (void)flock(folder, LOCK_UN); /* a child that was forked meanwhile has it open, too, and would keep the lock */
    close(folder);
    return taken;
}

bool twi_watch_socket_open(const char *pattern, struct twi_watch_socket *out, char *why, size_t why_size) {
    struct stat stat;
    if (!expand(pattern, out->path)) {
        (void)snprintf(why, why_size, "a path of a socket has at most %u bytes", TWI_WATCH_PATH_MAX);
        return false;
    }
    out->fd = twi_descriptor_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (out->fd < 0) return say_errno(why, why_size, out->path);
    bool taken = fchmod(out->fd, S_IRUSR | S_IWUSR) == 0 ? take_name(out->fd, out->path, why, why_size)
                                                         : say_errno(why, why_size, out->path);
    if (!taken) {
        twi_descriptor_close(out->fd);
        return false;
    }
    bool known = lstat(out->path, &stat) == 0;
    out->device = known ? (uint64_t)stat.st_dev : 0;
    out->inode = known ? (uint64_t)stat.st_ino : 0;
    return true;
}

void twi_watch_socket_close(struct twi_watch_socket *listener) {
    struct stat stat;
    bool is_ours = lstat(listener->path, &stat) == 0 && S_ISSOCK(stat.st_mode) &&
                   (uint64_t)stat.st_dev == listener->device && (uint64_t)stat.st_ino == listener->inode;
    if (is_ours) (void)unlink(listener->path); /* first, so that a client that finds the name finds a listener */
    twi_descriptor_close(listener->fd);
}
