/* packed.h -- the packed form of a window that is over, which has its keys and final values, without empty cells.
 * Immutable once it is published.
 *
 *   head ─▶ directories ─▶ bucket   | line of the page : 32 | begins at : 16 | bytes : 16 |
 *     └───▶ page ─▶ older page ─▶ ...
 *   page    | free link | older, lines, used | entry, entry, entry ... |        the entries of a bucket stand together
 *   entry   | bytes of local : 4 | bytes of base : 4 | key size : 8 or 16 | local | base | key |
 *
 * The engine's keyed hash decides the bucket of a key. A bucket has four keys on average, so finding a key touches one
 * word of a directory and about two lines of a page. Numbers take as many bytes as they need. A key of 29 bytes with a
 * count of some thousands costs 35 bytes. Every piece is at most a segment, so memory comes and goes by segments.
 *
 * A packed form is built in steps, from a table that is sealed and has no unsent counts. That table does not change any
 * more. So the table is walked twice. The first walk counts the bytes of each bucket, the second fills them. No other
 * thread sees the packed form meanwhile.
 * Always true: an entry lies within its page. A published packed form contains exactly the published records of its
 * table.
 * Elsewhere: when a window is packed, and when its table is given back (history.c). */
#ifndef TWI_TABLE_PACKED_H
#define TWI_TABLE_PACKED_H

#include "engine/table/table.h"

/* Directory words: line << 32 | offset in the page << 16 | bytes. While sizes are being counted, they have only the
 * bytes. */
#define TWI_PACKED_BUCKET_KEYS 4u
#define TWI_PACKED_DIRECTORY_LOG2 13u /* buckets of a full directory, which is a segment */

/* How far a walk has come. */
struct twi_packed_cursor {
    uint32_t page, at;
    bool begun, done;
};

enum { TWI_TABLE_WHOLE, TWI_TABLE_GOING, TWI_TABLE_GONE };

struct twi_packed {
    uint64_t stamp;                   /* epoch stamp of its publication (history.c) */
    uint32_t table;                   /* the state of the table (history.c) */
    struct twi_packed_cursor revived; /* entries up to here have records again (restore.c) */
    uint64_t keys;                    /* number of keys */
    uint64_t bytes;                   /* bytes of all entries */
    uint32_t buckets;
    uint32_t directories; /* number of directories taken */
    uint32_t page;        /* line of the newest page */
    uint32_t lines;       /* lines of this piece */
    /* used while it is being built */
    uint32_t step;
    uint32_t bucket; /* the next bucket to be placed */
    uint64_t left;   /* first, bytes of the buckets not yet placed; then, bytes of the entries not yet filled in */
    uint64_t table_bytes;
    struct twi_cursor cursor;
    uint32_t directory[]; /* lines */
};

struct twi_page {
    uint32_t older, lines;
    uint32_t used; /* bytes used, this head included */
    unsigned char entries[];
};

/* A counter's final values. The view is their sum. */
struct twi_final {
    int64_t local, base;
};

enum twi_packing {
    TWI_PACK_ON,      /* not done yet: *work is used up */
    TWI_PACK_DONE,    /* done, and ready to be published */
    TWI_PACK_REFUSED, /* memory is short */
    TWI_PACK_USELESS  /* it would not be smaller than the table */
};

/* The parameters of building. */
struct twi_packer {
    struct twi_arena *arena;
    struct twi_generation *generation;
    twi_hash_fn *hash;
    const struct twi_hash_secret *secret;
    int64_t keep; /* bytes of the family's share that it must leave to the open window; otherwise 0 */
};

/* Starts to pack a table that is sealed and drained. Returns the line of the packed form, for the other calls; 0 means
 * no memory. */
uint32_t twi_packed_begin(const struct twi_packer *packer);
/* Continues for *work units. After any result but TWI_PACK_ON it must not be called again. */
enum twi_packing twi_packed_build(const struct twi_packer *packer, uint32_t line, uint32_t *work);
/* Gives everything back, finished or not, piece by piece. No thread can reach it. True when it is gone; then *line is
 * 0. */
bool twi_packed_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *line, uint32_t *work);

/* The final values of `key`, whose hash is given. Returns false if it was not counted in this window. Inside a
 * section. */
bool twi_packed_find(const struct twi_arena *arena, uint32_t line, uint64_t hash, tw_key key, struct twi_final *final);

/* Shows every entry, from *cursor on, until `visit` returns false or all are shown (then *cursor.done). The next call
 * shows the entry again for which `visit` returned false. */
void twi_packed_walk(const struct twi_arena *arena, uint32_t line, struct twi_packed_cursor *cursor,
                     bool (*visit)(void *ctx, tw_key key, struct twi_final final), void *ctx);

/* For tests and checks=3. Returns true if every entry is found by its key, and there are as many entries as there were
 * counters. */
bool twi_packed_is_valid(const struct twi_packer *packer, uint32_t line);

#endif
