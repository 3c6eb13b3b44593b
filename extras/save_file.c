/* save_file.c -- the file of tw_save() and tw_load(), in blocks, with its checksum. See save.h.
 * Always true: a file that could not be written as a whole is removed, and the file at the path stays as it was. Only a
 * regular file of this user is replaced or read, whatever a link names. */
#include "extras/save.h"

#include "engine/base/check.h"
#include "engine/base/why.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

tw_status twi_save_create(struct twi_save_out *out, const char *path) {
    struct stat about;
    tw_status status = check_path(path);
    if (status == TW_OK && lstat(path, &about) == 0) status = check_file(path, &about);
    if (status != TW_OK) return status;
    out->path = path;
    out->failed = false;
    out->used = 0;
    out->sum = TWI_SAVE_SUM_FIRST;
    (void)snprintf(out->temporary, sizeof out->temporary, "%s.XXXXXX", path);
    out->fd = mkostemp(out->temporary, O_CLOEXEC);
    return out->fd >= 0 ? TW_OK : refuse_errno(path);
}

static bool fail(struct twi_save_out *out) {
    out->failed = true;
    (void)refuse_errno(out->path);
    return false;
}

static bool write_all(struct twi_save_out *out, const unsigned char *bytes, size_t size) {
    while (size > 0) {
        ssize_t written = write(out->fd, bytes, size);
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
static tw_status sync_folder(const char *path) {
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

tw_status twi_save_finish(struct twi_save_out *out, tw_status status) {
    bool is_whole = status == TW_OK && put_sum(out);
    if (is_whole && (fchmod(out->fd, S_IRUSR | S_IWUSR) != 0 || fdatasync(out->fd) != 0)) is_whole = fail(out);
    if (close(out->fd) != 0 && is_whole) is_whole = fail(out);
    if (is_whole && rename(out->temporary, out->path) != 0) is_whole = fail(out);
    if (is_whole) return sync_folder(out->path);
    (void)unlink(out->temporary);
    return status == TW_OK ? TW_ERR_OPTIONS : status; /* fail() has set the reason */
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
