/* unpack.c -- decompressing gzip and zstd step by step. See unpack.h.
 * Either library may be missing in a build (TOOL_WITH_ZLIB, TOOL_WITH_ZSTD). Its kind is refused by name then. */
#include "tools/count/unpack.h"

#include <stdlib.h>
#include <string.h>

#if TOOL_WITH_ZLIB
#include <zlib.h>
#endif
#if TOOL_WITH_ZSTD
#include <zstd.h>
#endif

struct unpack {
    enum unpack_kind kind;
    size_t begin, end; /* of the bytes that were read and not decompressed yet */
    bool inside;       /* a member or frame has begun and not ended */
    bool ended_once;   /* a member has ended, so the next bytes may also be padding */
    const char *wrong;
#if TOOL_WITH_ZLIB
    z_stream gzip;
#endif
#if TOOL_WITH_ZSTD
    ZSTD_DStream *zstd;
#endif
    char buffer[UNPACK_BUFFER_BYTES];
};

/* ---- kinds ---- */

static const struct {
    const char *magic, *name, *program;
} kinds[] = {[UNPACK_PLAIN] = {"", "not at all", "cat"},
             [UNPACK_GZIP] = {"\x1f\x8b", "gzip", "zcat"},
             [UNPACK_ZSTD] = {"\x28\xb5\x2f\xfd", "zstd", "zstdcat"},
             [UNPACK_BZIP2] = {"BZh", "bzip2", "bzcat"},
             [UNPACK_XZ] = {"\xfd\x37zXZ", "xz", "xzcat"}};

/* Skips a frame without text. Parallel compressors begin with one. */
static bool is_zstd_skippable(const char *first, size_t size) {
    return size >= 4 && ((unsigned char)first[0] & 0xF0) == 0x50 && memcmp(first + 1, "\x2a\x4d\x18", 3) == 0;
}

enum unpack_kind unpack_kind_of(const char *first, size_t size) {
    for (int kind = UNPACK_GZIP; kind <= UNPACK_XZ; kind++) {
        size_t magic_size = strlen(kinds[kind].magic);
        if (size >= magic_size && memcmp(first, kinds[kind].magic, magic_size) == 0) return (enum unpack_kind)kind;
    }
    return is_zstd_skippable(first, size) ? UNPACK_ZSTD : UNPACK_PLAIN;
}

const char *unpack_name(enum unpack_kind kind) {
    return kinds[kind].name;
}

const char *unpack_program(enum unpack_kind kind) {
    return kinds[kind].program;
}

bool unpack_can(enum unpack_kind kind) {
#if TOOL_WITH_ZLIB
    if (kind == UNPACK_GZIP) return true;
#endif
#if TOOL_WITH_ZSTD
    if (kind == UNPACK_ZSTD) return true;
#endif
    return kind == UNPACK_PLAIN;
}

/* ---- gzip ---- */

#if TOOL_WITH_ZLIB

static bool gzip_begin(struct unpack *unpack) {
    return inflateInit2(&unpack->gzip, 15 + 16) == Z_OK; /* the largest window; the header is gzip's */
}

/* Between members there is another one, or zeros that fill up a block (of a tape, or of a disk), as in gzip. */
static bool gzip_member_begin(struct unpack *unpack) {
    if (unpack->ended_once) {
        while (unpack->begin < unpack->end && unpack->buffer[unpack->begin] == 0) unpack->begin++;
        if (unpack->begin == unpack->end) return false;
        if ((unsigned char)unpack->buffer[unpack->begin] != 0x1f) {
            unpack->wrong = "what follows the compressed data is not gzip and was not counted";
            return false;
        }
        (void)inflateReset(&unpack->gzip);
    }
    unpack->inside = true;
    return true;
}

static ssize_t gzip_take(struct unpack *unpack, char *text, size_t room) {
    z_stream *gzip = &unpack->gzip;
    gzip->next_out = (Bytef *)text;
    gzip->avail_out = (uInt)room;
    while (gzip->avail_out > 0 && unpack->wrong == NULL) {
        if (!unpack->inside && (unpack->begin == unpack->end || !gzip_member_begin(unpack))) break;
        gzip->next_in = (Bytef *)unpack->buffer + unpack->begin;
        gzip->avail_in = (uInt)(unpack->end - unpack->begin);
        int answer = inflate(gzip, Z_NO_FLUSH);
        unpack->begin = unpack->end - gzip->avail_in;
        if (answer == Z_STREAM_END) {
            unpack->inside = false;
            unpack->ended_once = true;
        } else if (answer == Z_BUF_ERROR) {
            break; /* it needs more */
        } else if (answer != Z_OK) {
            unpack->wrong = answer == Z_MEM_ERROR ? "no memory to decompress it" : "the compressed data are damaged";
        }
    }
    return (ssize_t)(room - gzip->avail_out);
}

#endif

/* ---- zstd ---- */

#if TOOL_WITH_ZSTD

static bool zstd_begin(struct unpack *unpack) {
    unpack->zstd = ZSTD_createDStream();
    return unpack->zstd != NULL;
}

static ssize_t zstd_take(struct unpack *unpack, char *text, size_t room) {
    ZSTD_outBuffer out = {text, room, 0};
    while (out.pos < out.size && unpack->wrong == NULL && (unpack->inside || unpack->begin < unpack->end)) {
        ZSTD_inBuffer in = {unpack->buffer, unpack->end, unpack->begin};
        size_t before = out.pos, answer = ZSTD_decompressStream(unpack->zstd, &out, &in);
        bool moved = in.pos > unpack->begin || out.pos > before;
        unpack->begin = in.pos;
        if (ZSTD_isError(answer)) {
            unpack->wrong = unpack->ended_once && !unpack->inside
                                ? "what follows the compressed data is not zstd and was not counted"
                                : ZSTD_getErrorName(answer);
            break;
        }
        unpack->inside = answer != 0;
        unpack->ended_once = unpack->ended_once || answer == 0;
        if (!moved) break; /* it needs more */
    }
    return (ssize_t)out.pos;
}

#endif

/* ---- either ---- */

struct unpack *unpack_new(enum unpack_kind kind, const char *first, size_t size) {
    struct unpack *unpack = malloc(sizeof *unpack);
    bool begun = false;
    if (unpack == NULL) return NULL;
    memset(unpack, 0, offsetof(struct unpack, buffer));
    unpack->kind = kind;
    unpack->end = size;
    memcpy(unpack->buffer, first, size);
#if TOOL_WITH_ZLIB
    if (kind == UNPACK_GZIP) begun = gzip_begin(unpack);
#endif
#if TOOL_WITH_ZSTD
    if (kind == UNPACK_ZSTD) begun = zstd_begin(unpack);
#endif
    if (begun) return unpack;
    free(unpack);
    return NULL;
}

void unpack_free(struct unpack *unpack) {
    if (unpack == NULL) return;
#if TOOL_WITH_ZLIB
    if (unpack->kind == UNPACK_GZIP) (void)inflateEnd(&unpack->gzip);
#endif
#if TOOL_WITH_ZSTD
    if (unpack->kind == UNPACK_ZSTD) (void)ZSTD_freeDStream(unpack->zstd);
#endif
    free(unpack);
}

char *unpack_room(struct unpack *unpack) {
    unpack->begin = unpack->end = 0;
    return unpack->buffer;
}

void unpack_fed(struct unpack *unpack, size_t size) {
    unpack->end = size;
}

ssize_t unpack_take(struct unpack *unpack, char *text, size_t room) {
    ssize_t made = 0;
    if (unpack->wrong != NULL) return -1;
#if TOOL_WITH_ZLIB
    if (unpack->kind == UNPACK_GZIP) made = gzip_take(unpack, text, room);
#endif
#if TOOL_WITH_ZSTD
    if (unpack->kind == UNPACK_ZSTD) made = zstd_take(unpack, text, room);
#endif
    (void)text, (void)room;
    return made == 0 && unpack->wrong != NULL ? -1 : made; /* the bytes before the damage are text */
}

const char *unpack_wrong(const struct unpack *unpack, bool at_end) {
    if (unpack->wrong == NULL && at_end && (unpack->inside || !unpack->ended_once))
        return "the compressed data end too early: the file was cut short";
    return unpack->wrong;
}
