/* unpack.h -- recognises compressed input by its first bytes, and decompresses it step by step (gzip, zstd).
 *
 * The caller reads the file and hands over the bytes. Only the caller waits, and a signal interrupts it there.
 *
 *     unpack_room() ◀── read() ──▶ unpack_fed() ──▶ unpack_take() until it answers 0 ──▶ unpack_room() ...
 *
 * Always true: several members or frames in a row are one text, as in `zcat` and `zstdcat`. Input that is cut short or
 * damaged never counts as whole. Memory is that of the two libraries (zstd: a window of 128 MiB at most) and one
 * buffer. One thread at a time. */
#ifndef TOOL_UNPACK_H
#define TOOL_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define UNPACK_MAGIC_BYTES 6 /* so many bytes distinguish all kinds; fewer are enough if the file has no more */
#define UNPACK_BUFFER_BYTES (256 * 1024)

/* The kinds behind UNPACK_ZSTD are recognised only to be refused by name. */
enum unpack_kind { UNPACK_PLAIN, UNPACK_GZIP, UNPACK_ZSTD, UNPACK_BZIP2, UNPACK_XZ };

enum unpack_kind unpack_kind_of(const char *first, size_t size);
/* Returns the name: "gzip". */
const char *unpack_name(enum unpack_kind kind);
/* Returns the program that decompresses it: "zcat". */
const char *unpack_program(enum unpack_kind kind);
/* Returns false if this build has no library for it. */
bool unpack_can(enum unpack_kind kind);

struct unpack;

/* `first` has the bytes that were read already, at most UNPACK_BUFFER_BYTES. Returns NULL if there is no memory.
 * unpack_can() is true for the kind. */
struct unpack *unpack_new(enum unpack_kind kind, const char *first, size_t size);
void unpack_free(struct unpack *unpack); /* NULL is fine */

/* Returns room of UNPACK_BUFFER_BYTES for the file's next bytes. Call it when unpack_take() returned 0. */
char *unpack_room(struct unpack *unpack);
void unpack_fed(struct unpack *unpack, size_t size);
/* Decompresses into `text`. Returns how much; 0 means that it needs more of the file; -1 means unpack_wrong(). */
ssize_t unpack_take(struct unpack *unpack, char *text, size_t room);
/* Returns the error as words that follow "FILE: ", or NULL. `at_end` means that the file has no more. */
const char *unpack_wrong(const struct unpack *unpack, bool at_end);

#endif
