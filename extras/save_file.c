/* save_file.c -- the file of tw_save() and tw_load(), in blocks, with its checksum. See save.h.
 * The temporary name is always the same, so a saver that was killed leaves at most one file, and the next one uses it.
 * The lock (flock) keeps two savers apart. It is on the file and not on the name, so who gets it looks whether the name
 * still leads to the file.
 * Always true: a file that could not be written as a whole is removed, and the file at the path stays as it was. Only a
 * regular file of this user, which has no second name, is written, replaced or read, whatever a link names. No limit on
 * file sizes ends the program. */
#include "extras/save.h"

#include "engine/base/check.h"
#include "engine/base/why.h"
#include "engine/base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_TRIES 1000 /* some 10 s */
#define LOCK_NAP_MS 10

tw_status twi_save_refuse(const char *path, const char *why) {
    return twi_refuse_with(TW_ERR_OPTIONS, "path: %s: %s", path, why);
}

static tw_status refuse_errno(const char *path) {
    return twi_save_refuse(path, strerror(errno));
}

static tw_status check_path(const char *path) {
    if (path == NULL || path[0] == '\0') return twi_refuse(TW_ERR_OPTIONS, "path: it is NULL or empty");
    return strlen(path) < TWI_SAVE_PATH_MAX ? TW_OK : twi_refuse(TW_ERR_OPTIONS, "path: it is too long");
}

/* A file of another user may be a trap, or be read by that user. */
static tw_status check_file(const char *path, const struct stat *about) {
    if (!S_ISREG(about->st_mode)) return twi_save_refuse(path, "not a regular file");
    return about->st_uid == geteuid() ? TW_OK : twi_save_refuse(path, "it belongs to another user");
}

/* Each step can be undone: with another word, or from another sum, the result is another. */
uint64_t twi_save_sum(uint64_t sum, const unsigned char *bytes, size_t size) {
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, size - at < 8 ? size - at : 8);
        sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 32;
    }
    return sum;
}

/* ---- writing ---- */

/* Waits for another saver. A file system without locks is used without one. Returns false on an error. */
static bool lock_file(int fd) {
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return errno == ENOLCK || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS;
        if (tries >= LOCK_TRIES) return false;
        (void)poll(NULL, 0, LOCK_NAP_MS);
    }
    return true;
}

static void close_file(int fd) {
    (void)flock(fd, LOCK_UN); /* a child that was forked meanwhile has it open, too, and would keep the lock */
    close(fd);
}

/* Opens and locks the temporary file. If its last owner has renamed or removed it meanwhile, *again becomes true. */
static tw_status open_temporary(struct twi_save_out *out, bool *again) {
    struct stat about, named;
    const char *name = out->temporary;
    *again = false;
    out->fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (out->fd < 0) return errno == ELOOP ? twi_save_refuse(name, "not a regular file") : refuse_errno(name);
    tw_status status = fstat(out->fd, &about) == 0 ? check_file(name, &about) : refuse_errno(name);
    if (status == TW_OK && !lock_file(out->fd))
        status = errno == EWOULDBLOCK ? twi_save_refuse(name, "another saver has it locked") : refuse_errno(name);
    if (status == TW_OK && lstat(name, &named) == 0 && named.st_ino == about.st_ino && named.st_dev == about.st_dev) {
        if (named.st_nlink != 1) status = twi_save_refuse(name, "the file has another name, too");
    } else if (status == TW_OK) {
        *again = true;
    }
    if (status == TW_OK && !*again) return TW_OK;
    close_file(out->fd);
    out->fd = -1;
    return status;
}

tw_status twi_save_create(struct twi_save_out *out, const char *path) {
    struct stat about;
    tw_status status = check_path(path);
    if (status == TW_OK && lstat(path, &about) == 0) status = check_file(path, &about);
    if (status != TW_OK) return status;
    out->path = path;
    out->failed = out->is_there = false;
    out->used = 0;
    out->sum = TWI_SAVE_SUM_FIRST;
    (void)snprintf(out->temporary, sizeof out->temporary, "%s.new", path);
    bool again = true;
    for (int tries = 0; again && tries < LOCK_TRIES && status == TW_OK; tries++) status = open_temporary(out, &again);
    if (status != TW_OK) return status;
    if (again) return twi_save_refuse(out->temporary, "other savers take it again and again");
    if (fchmod(out->fd, S_IRUSR | S_IWUSR) == 0 && ftruncate(out->fd, 0) == 0) return TW_OK;
    status = refuse_errno(out->temporary);
    twi_save_end(out);
    return status;
}

static bool fail(struct twi_save_out *out) {
    out->failed = true;
    (void)refuse_errno(out->path);
    return false;
}

/* A write beyond RLIMIT_FSIZE sends SIGXFSZ to the thread, which would end the program. */
static ssize_t write_some(int fd, const unsigned char *bytes, size_t size) {
    struct twi_without_signal without;
    twi_without_signal_begin(&without, SIGXFSZ);
    ssize_t written = write(fd, bytes, size);
    twi_without_signal_end(&without);
    return written;
}

static bool write_all(struct twi_save_out *out, const unsigned char *bytes, size_t size) {
    while (size > 0) {
        ssize_t written = write_some(out->fd, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return fail(out);
        bytes += written;
        size -= (size_t)written;
    }
    return true;
}

static bool flush_block(struct twi_save_out *out) {
    out->sum = twi_save_sum(out->sum, out->block, out->used);
    size_t size = out->used;
    out->used = 0;
    return write_all(out, out->block, size);
}

bool twi_save_put(struct twi_save_out *out, const void *bytes, size_t size) {
    const unsigned char *from = bytes;
    twi_check(out->used < TWI_SAVE_BLOCK);
    while (size > 0 && !out->failed) {
        size_t room = TWI_SAVE_BLOCK - out->used, part = size < room ? size : room;
        memcpy(out->block + out->used, from, part);
        out->used += part;
        from += part;
        size -= part;
        if (out->used == TWI_SAVE_BLOCK) (void)flush_block(out);
    }
    return !out->failed;
}

static bool put_sum(struct twi_save_out *out) {
    unsigned char sum[TWI_SAVE_SUM_BYTES];
    if (out->failed || !flush_block(out)) return false;
    for (size_t i = 0; i < sizeof sum; i++) sum[i] = (unsigned char)(out->sum >> 8 * i);
    return write_all(out, sum, sizeof sum);
}

/* The new name is on the disk when the folder is. A folder that may not be read, and a file system that knows no such
 * request, are left to the system. */
tw_status twi_save_sync_folder(const char *path) {
    char folder[TWI_SAVE_PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t size = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(folder, slash != NULL ? path : ".", size);
    folder[size] = '\0';
    int fd = open(size > 0 ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return TW_OK;
    bool failed = fsync(fd) != 0 && errno == EIO;
    close(fd);
    return failed ? twi_save_refuse(path, "it was written, but the disk of its folder fails") : TW_OK;
}

bool twi_save_finish(struct twi_save_out *out) {
    if (!put_sum(out)) return false;
    if (fdatasync(out->fd) != 0 || rename(out->temporary, out->path) != 0) return fail(out);
    out->is_there = true;
    return true;
}

void twi_save_end(struct twi_save_out *out) {
    if (!out->is_there) (void)unlink(out->temporary); /* while it is locked: it is not another saver's */
    close_file(out->fd);
    out->fd = -1;
}

/* ---- reading ---- */

/* Reads a part of the file into the block. Returns false on an error, or if the file is shorter than it was. */
static bool read_at(struct twi_save_in *in, uint64_t at, unsigned char *bytes, size_t size) {
    while (size > 0) {
        ssize_t got = pread(in->fd, bytes, size, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        bytes += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    return true;
}

tw_status twi_save_check_sum(struct twi_save_in *in) {
    uint64_t sum = TWI_SAVE_SUM_FIRST, stored = 0;
    unsigned char bytes[TWI_SAVE_SUM_BYTES];
    for (uint64_t at = 0; at < in->size; at += TWI_SAVE_BLOCK) {
        size_t size = in->size - at < TWI_SAVE_BLOCK ? (size_t)(in->size - at) : TWI_SAVE_BLOCK;
        if (!read_at(in, at, in->block, size)) return refuse_errno(in->path);
        sum = twi_save_sum(sum, in->block, size);
    }
    if (!read_at(in, in->size, bytes, sizeof bytes)) return refuse_errno(in->path);
    for (size_t i = 0; i < sizeof bytes; i++) stored |= (uint64_t)bytes[i] << 8 * i;
    return stored == sum ? TW_OK : twi_save_refuse(in->path, "it is damaged or incomplete");
}

void twi_save_rewind(struct twi_save_in *in) {
    in->at = in->begin = in->end = 0;
}

const unsigned char *twi_save_take(struct twi_save_in *in, size_t size) {
    twi_check(size <= TWI_SAVE_BLOCK && in->begin <= in->end);
    if (in->end - in->begin < size) {
        size_t rest = in->end - in->begin, room = TWI_SAVE_BLOCK - rest;
        size_t more = in->size - in->at < room ? (size_t)(in->size - in->at) : room;
        memmove(in->block, in->block + in->begin, rest);
        if (!read_at(in, in->at, in->block + rest, more)) return NULL;
        in->at += more;
        in->begin = 0;
        in->end = rest + more;
        if (in->end < size) return NULL;
    }
    in->begin += size;
    return in->block + in->begin - size;
}

bool twi_save_is_at_end(const struct twi_save_in *in) {
    return in->begin == in->end && in->at == in->size;
}

tw_status twi_save_open(struct twi_save_in *in, const char *path) {
    struct stat about;
    tw_status status = check_path(path);
    if (status != TW_OK) return status;
    in->path = path;
    in->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (in->fd < 0) return errno == ELOOP ? twi_save_refuse(path, "not a regular file") : refuse_errno(path);
    status = fstat(in->fd, &about) == 0 ? check_file(path, &about) : refuse_errno(path);
    in->size = 0;
    if (status == TW_OK && about.st_size >= (off_t)TWI_SAVE_SUM_BYTES)
        in->size = (uint64_t)about.st_size - TWI_SAVE_SUM_BYTES;
    twi_save_rewind(in);
    if (status != TW_OK) close(in->fd);
    return status;
}
