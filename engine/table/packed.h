/* packed.h -- the packed form of a window that has ended: its keys and final values, without empty cells. It does not
 * change after it was published.
 *
 *   head ─▶ directories ─▶ bucket   | line of the page : 32 | begins at : 16 | bytes : 16 |
 *     └───▶ page ─▶ older page ─▶ ...
 *   page    | free link | older, lines, used | entry, entry, entry ... |        the entries of a bucket stand together
 *   entry   | bytes of local : 4 | bytes of base : 4 | key size : 8 or 16 | local | base | key |
 *
 * The engine's keyed hash decides the bucket of a key. A bucket has four keys on average, so finding a key touches one
 * word of a directory and about two lines of a page. Numbers take as many bytes as they need. A key of 29 bytes with a
 * count of some thousands costs 35 bytes. Every piece is at most a segment, so memory is taken and given back by
 * segments.
 *
 * A packed form is built in steps, from a table that is sealed and has no unsent counts. That table does not change any
 * more. So two walks over the table see the same. The first walk counts the bytes of each bucket, and the second fills
 * the buckets. Meanwhile no other thread sees the packed form.
 * Always true: an entry is within its page. A published form has exactly the table's published records.
 * Elsewhere: when a window is packed, and when its table is given back (windows.c). */
#ifndef TWI_TABLE_PACKED_H
#define TWI_TABLE_PACKED_H

#include "engine/table/table.h"

/* Words of a directory: line << 32 | offset in the page << 16 | bytes. While sizes are counted, the words have only
 * the bytes. */
#define TWI_PACKED_BUCKET_KEYS 4u
#define TWI_PACKED_DIRECTORY_LOG2 13u /* how many buckets a full directory has; it is a segment */

/* The position of a walk. */
struct twi_packed_cursor {
    uint32_t page, at;
    bool begun, done;
};

enum { TWI_TABLE_WHOLE, TWI_TABLE_GOING, TWI_TABLE_GONE };

struct twi_packed {
    uint64_t stamp;                   /* the epoch stamp of its publication (windows.c) */
    uint32_t table;                   /* the state of the table (windows.c) */
    struct twi_packed_cursor revived; /* the entries before this position have records again (restore.c) */
    uint64_t keys;                    /* number of keys */
    uint64_t bytes;                   /* the bytes of all entries */
    uint32_t buckets;
    uint32_t directories; /* how many directories were taken */
    uint32_t page;        /* the line of the newest page */
    uint32_t lines;       /* how many lines this piece has */
    /* used only while the packed form is being built */
    uint32_t step;
    uint32_t bucket; /* the next bucket to be placed */
    uint64_t left;   /* first the bytes of buckets without a place; later those of entries that are not filled in */
    uint64_t table_bytes;
    struct twi_cursor cursor;
    uint32_t directory[]; /* lines */
};

/* For the turn, which alone publishes packed forms. NULL means that the window is not packed. Other threads load the
 * line by K2. */
TWI_INLINE struct twi_packed *twi_packed_of(struct twi_arena *arena, struct twi_generation *generation) {
    uint32_t line = twi_load_relaxed(&generation->packed);
    return line != 0 ? (struct twi_packed *)twi_arena_at(arena, line) : NULL;
}

struct twi_page {
    uint32_t older, lines;
    uint32_t used; /* how many bytes are used, including this head */
    unsigned char entries[];
};

/* The final values of a counter. Their sum is the view. */
struct twi_final {
    int64_t local, base;
};

enum twi_packing {
    TWI_PACK_ON,      /* not finished: *work is used up */
    TWI_PACK_DONE,    /* finished, and ready to be published */
    TWI_PACK_REFUSED, /* memory is short */
    TWI_PACK_USELESS  /* the packed form would not be smaller than the table */
};

/* The parameters of building. */
struct twi_packer {
    struct twi_arena *arena;
    struct twi_generation *generation;
    twi_hash_fn *hash;
    const struct twi_hash_secret *secret;
    int64_t keep; /* how many bytes of the family's share it must leave to the open window; otherwise 0 */
};

/* Starts to pack a table that is sealed and drained. Returns the line of the packed form for the other calls. 0
 * means that there is no memory. */
uint32_t twi_packed_begin(const struct twi_packer *packer);
/* Continues the building for *work units. It must not be called again after another result than TWI_PACK_ON. */
enum twi_packing twi_packed_build(const struct twi_packer *packer, uint32_t line, uint32_t *work);
/* Gives everything back piece by piece, whether the packed form is finished or not. The caller makes sure that no
 * thread can reach it. Returns true when everything is given back. Then *line is 0. */
bool twi_packed_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *line, uint32_t *work);

/* Finds the final values of `key`, whose hash is given. Returns false if the key was not counted in this window. Call
 * it inside a section. */
bool twi_packed_find(const struct twi_arena *arena, uint32_t line, uint64_t hash, tw_key key, struct twi_final *final);

/* Shows every entry, from *cursor on, until `visit` returns false or all are shown (then *cursor.done). If `visit`
 * returned false for an entry, the next call shows this entry again. */
void twi_packed_walk(const struct twi_arena *arena, uint32_t line, struct twi_packed_cursor *cursor,
                     bool (*visit)(void *ctx, tw_key key, struct twi_final final), void *ctx);

/* For tests and checks=3. Returns true if every entry is found by its key, and if there are as many entries as
 * counters. */
bool twi_packed_is_valid(const struct twi_packer *packer, uint32_t line);

#endif
