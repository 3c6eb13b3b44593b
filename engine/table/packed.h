/* packed.h -- what is left of a window that is over: its names and final values, without an empty cell. Never changed
 * once it is published.
 *
 *   head ─▶ directories ─▶ bucket   | line of the page : 32 | begins at : 16 | bytes : 16 |
 *     └───▶ page ─▶ older page ─▶ ...
 *   page    | free link | older, lines, used | entry, entry, entry ... |        the entries of a bucket stand together
 *   entry   | bytes of local : 4 | bytes of base : 4 | key size : 8 or 16 | local | base | key |
 *
 * A key's bucket follows from the engine's keyed hash; a bucket has four keys on the average, so finding one touches a
 * word of a directory and some two lines of a page. A key of 29 bytes that was counted to some thousands costs 35
 * bytes. Numbers take as many bytes as they need. Every piece is at most a segment, so memory comes and goes by segments.
 *
 * It is built in steps, from the records of a table that is sealed and owes nothing: nothing there changes any more, so
 * the table is walked twice, once to see how many bytes each bucket takes and once to fill them. Nobody else sees it
 * meanwhile.
 * Always true: an entry lies within its page; what is published holds exactly the published records of its table.
 * Elsewhere: when a window is packed, and when its table goes (history.c). */
#ifndef TWI_TABLE_PACKED_H
#define TWI_TABLE_PACKED_H

#include "engine/table/table.h"

/* Directory words: line << 32 | offset in the page << 16 | bytes. While sizes are being counted: the bytes alone. */
#define TWI_PACKED_BUCKET_KEYS 4u
#define TWI_PACKED_DIRECTORY_LOG2 13u /* buckets of a whole directory: a segment */

/* How far a walk has come. */
struct twi_packed_cursor {
    uint32_t page, at;
    bool begun, done;
};

enum { TWI_TABLE_WHOLE, TWI_TABLE_GOING, TWI_TABLE_GONE };

struct twi_packed {
    uint64_t stamp;                   /* history.c: epoch stamp of its publishing */
    uint32_t table;                   /* history.c: what has become of the table */
    struct twi_packed_cursor revived; /* restore.c: entries up to here have records again */
    uint64_t keys;                    /* held */
    uint64_t bytes;                   /* of the entries */
    uint32_t buckets;
    uint32_t directories; /* how many are taken */
    uint32_t page;        /* the newest */
    uint32_t lines;       /* of this piece */
    /* while it is being built */
    uint32_t step;
    uint32_t bucket; /* the next to be given a place */
    uint64_t left;   /* bytes of the buckets that have none yet; then of the entries that are not filled in */
    uint64_t table_bytes;
    struct twi_cursor cursor;
    uint32_t directory[]; /* lines */
};

struct twi_page {
    uint32_t older, lines;
    uint32_t used; /* bytes, this head included */
    unsigned char entries[];
};

/* A counter's final values. View: their sum. */
struct twi_final {
    int64_t local, base;
};

enum twi_packing {
    TWI_PACK_ON,      /* not done: *work is used up */
    TWI_PACK_DONE,    /* to be published */
    TWI_PACK_REFUSED, /* memory is short */
    TWI_PACK_USELESS  /* it would not be smaller than the table */
};

/* What building needs to know. */
struct twi_packer {
    struct twi_arena *arena;
    struct twi_generation *generation;
    twi_hash_fn *hash;
    const struct twi_hash_secret *secret;
};

/* Begins with a table that is sealed and drained. The line of the packed form, for the other calls; 0: no memory. */
uint32_t twi_packed_begin(const struct twi_packer *packer);
/* Goes on, for *work units. On any answer but TWI_PACK_ON it is not to be called again. */
enum twi_packing twi_packed_build(const struct twi_packer *packer, uint32_t line, uint32_t *work);
/* Gives all of it back, finished or not, a piece at a time; nobody can reach it. True when it is gone, and *line 0. */
bool twi_packed_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *line, uint32_t *work);

/* The final values of `key`, whose hash is given. False: it was not counted in this window. Inside a section. */
bool twi_packed_find(const struct twi_arena *arena, uint32_t line, uint64_t hash, tw_key key, struct twi_final *final);

/* Shows every entry, from *cursor on, until `visit` answers false or all are seen (then *cursor.done). An entry for which
 * `visit` answers false is shown again by the next call. */
void twi_packed_walk(const struct twi_arena *arena, uint32_t line, struct twi_packed_cursor *cursor,
                     bool (*visit)(void *ctx, tw_key key, struct twi_final final), void *ctx);

/* For tests and checks=3: every entry is found by its key, and there are as many as there were counters. */
bool twi_packed_is_valid(const struct twi_packer *packer, uint32_t line);

#endif
