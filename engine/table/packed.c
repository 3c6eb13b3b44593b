/* packed.c -- see packed.h. It builds the packed form, finds keys in it, walks it and gives it back. */
#include "engine/table/packed.h"

#include "engine/table/area.h"

#include <string.h>

enum step { STEP_ROOM, STEP_COUNT, STEP_LAY, STEP_FILL };

#define DIRECTORY_BUCKETS (UINT32_C(1) << TWI_PACKED_DIRECTORY_LOG2)
#define DIRECTORIES_MAX ((uint32_t)((TWI_SEGMENT_BYTES - sizeof(struct twi_packed)) / sizeof(uint32_t)))
#define PAGE_BYTES_MAX (TWI_SEGMENT_BYTES - (uint32_t)sizeof(struct twi_page))
#define COUNTER_WORK 15u /* work for a counter besides looking at its record: hash, bucket and place */

static_assert(DIRECTORY_BUCKETS * sizeof(uint64_t) == TWI_SEGMENT_BYTES, "a whole directory is a segment");
static_assert(TW_KEY_SIZE_MAX < 1u << 15, "a key's size takes at most two bytes");

static struct twi_packed *packed_at(const struct twi_arena *arena, uint32_t line) {
    return twi_arena_at(arena, line);
}

static uint32_t lines_of(uint64_t bytes) {
    return (uint32_t)((bytes + TWI_LINE_BYTES - 1) / TWI_LINE_BYTES);
}

static uint32_t bucket_of(const struct twi_packed *packed, uint64_t hash) {
    return (uint32_t)((hash >> 32) * packed->buckets >> 32);
}

static _Atomic uint64_t *bucket_at(const struct twi_arena *arena, const struct twi_packed *packed, uint32_t bucket) {
    _Atomic uint64_t *words = twi_arena_at(arena, packed->directory[bucket >> TWI_PACKED_DIRECTORY_LOG2]);
    return &words[bucket & (DIRECTORY_BUCKETS - 1)];
}

#define BUCKET(line, offset, bytes) ((uint64_t)(line) << 32 | (uint64_t)(offset) << 16 | (uint64_t)(bytes))
#define BUCKET_LINE(word) ((uint32_t)((word) >> 32))
#define BUCKET_OFFSET(word) ((uint32_t)(word) >> 16)
#define BUCKET_BYTES(word) ((uint32_t)(word)&0xffff)

/* ---- entries ---- */

/* Returns the smallest number of bytes that can contain the number with its sign. */
static uint32_t number_bytes(int64_t number) {
    uint64_t magnitude = (uint64_t)(number < 0 ? ~number : number);
    if (number == 0) return 0;
    return magnitude == 0 ? 1 : (uint32_t)(64 - __builtin_clzll(magnitude)) / 8 + 1;
}

static unsigned char *put_number(unsigned char *at, int64_t number, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++) *at++ = (unsigned char)((uint64_t)number >> (8 * i));
    return at;
}

static int64_t get_number(const unsigned char *at, uint32_t bytes) {
    uint64_t number = 0;
    if (bytes == 0) return 0;
    for (uint32_t i = 0; i < bytes; i++) number |= (uint64_t)at[i] << (8 * i);
    uint32_t above = 64 - 8 * bytes;
    return (int64_t)(number << above) >> above; /* the shift is arithmetic, as in twi_word_value() */
}

static uint32_t entry_bytes(tw_key key, struct twi_final final) {
    return 1 + (key.size < 128 ? 1 : 2) + number_bytes(final.local) + number_bytes(final.base) + (uint32_t)key.size;
}

static void put_entry(unsigned char *at, tw_key key, struct twi_final final) {
    uint32_t local_bytes = number_bytes(final.local), base_bytes = number_bytes(final.base);
    *at++ = (unsigned char)(local_bytes | base_bytes << 4);
    if (key.size >= 128) *at++ = (unsigned char)(128 | key.size >> 8);
    *at++ = (unsigned char)key.size;
    at = put_number(at, final.local, local_bytes);
    at = put_number(at, final.base, base_bytes);
    memcpy(at, key.data, key.size);
}

/* A decoded entry. Decoding it does not read its key. */
struct entry {
    const unsigned char *numbers;
    uint32_t local_bytes, base_bytes;
    tw_key key;
};

/* Returns where the next entry begins. */
static const unsigned char *read_entry(const unsigned char *at, struct entry *entry) {
    entry->local_bytes = *at & 15u;
    entry->base_bytes = *at >> 4;
    uint32_t size = at[1];
    at += 2;
    if (size >= 128) size = (size & 127) << 8 | *at++;
    entry->numbers = at;
    at += entry->local_bytes + entry->base_bytes;
    entry->key = tw_bytes(at, size);
    return at + size;
}

static struct twi_final final_of(const struct entry *entry) {
    return (struct twi_final){get_number(entry->numbers, entry->local_bytes),
                              get_number(entry->numbers + entry->local_bytes, entry->base_bytes)};
}

/* ---- building ---- */

/* Packing is optional. So it leaves the last eighth of the arena, and of the family's share, to calls that count. */
static bool leaves_room(const struct twi_packer *packer, uint64_t bytes) {
    struct twi_quota *quota = packer->generation->quota;
    struct twi_quota_use use = twi_quota_use(packer->arena, quota);
    int64_t most = twi_load_relaxed(&quota->bytes_max);
    if (most == 0) most = use.most;
    return use.used + (int64_t)bytes + packer->keep <= most - most / 8;
}

uint32_t twi_packed_begin(const struct twi_packer *packer) {
    struct twi_generation *generation = packer->generation;
    uint64_t keys = twi_load_relaxed(&generation->keys), buckets = keys / TWI_PACKED_BUCKET_KEYS + (keys != 0);
    uint64_t directories = (buckets + DIRECTORY_BUCKETS - 1) / DIRECTORY_BUCKETS;
    if (directories > DIRECTORIES_MAX || !leaves_room(packer, buckets * sizeof(uint64_t))) return 0;
    uint32_t lines = lines_of(sizeof(struct twi_packed) + directories * sizeof(uint32_t));
    int64_t table_bytes = twi_load_relaxed(&generation->bytes);
    uint32_t line = twi_piece_take(packer->arena, generation, lines);
    if (line == 0) return 0;
    struct twi_packed *packed = packed_at(packer->arena, line);
    packed->lines = lines;
    packed->keys = keys;
    packed->buckets = (uint32_t)buckets;
    packed->table_bytes = (uint64_t)table_bytes;
    return line;
}

static uint32_t directory_lines(const struct twi_packed *packed, uint32_t number) {
    uint32_t buckets = packed->buckets - number * DIRECTORY_BUCKETS;
    return lines_of((buckets < DIRECTORY_BUCKETS ? buckets : DIRECTORY_BUCKETS) * sizeof(uint64_t));
}

static enum twi_packing take_directories(const struct twi_packer *packer, struct twi_packed *packed, uint32_t *work) {
    while (packed->directories * DIRECTORY_BUCKETS < packed->buckets) {
        uint32_t lines = directory_lines(packed, packed->directories);
        if (*work < lines) return TWI_PACK_ON;
        *work -= lines;
        uint32_t line = twi_piece_take(packer->arena, packer->generation, lines);
        if (line == 0) return TWI_PACK_REFUSED;
        packed->directory[packed->directories] = line;
        twi_fence_compiler(); /* if this thread ends in between, the piece leaks (table.h); so below */
        packed->directories++;
    }
    return TWI_PACK_DONE;
}

/* The state of both walks over the table, in bounded steps. An empty record costs one look, a counter some. */
struct walk {
    const struct twi_packer *packer;
    struct twi_packed *packed;
};

static _Atomic uint64_t *walk_counter(const struct walk *walk, struct twi_cell *cell, uint64_t meta, tw_key *key,
                                      struct twi_final *final) {
    struct twi_cursor *cursor = &walk->packed->cursor;
    uint32_t work = COUNTER_WORK + (uint32_t)(meta & TWI_META_SIZE) / TWI_LINE_BYTES;
    cursor->looks = cursor->looks > work ? cursor->looks - work : 1;
    *key = tw_bytes(cell->key, meta & TWI_META_SIZE);
    *final =
        (struct twi_final){twi_cell_local(cell, meta), (meta & TWI_META_COLD) != 0 ? twi_load_relaxed(&cell->base) : 0};
    uint64_t hash = walk->packer->hash(walk->packer->secret, key->data, key->size);
    return bucket_at(walk->packer->arena, walk->packed, bucket_of(walk->packed, hash));
}

static bool count_counter(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct walk *walk = ctx;
    struct twi_final final;
    tw_key key;
    _Atomic uint64_t *bucket = walk_counter(walk, cell, meta, &key, &final);
    uint32_t bytes = entry_bytes(key, final);
    twi_store_relaxed(bucket, twi_load_relaxed(bucket) + bytes);
    walk->packed->bytes += bytes;
    return true;
}

static bool fill_counter(void *ctx, struct twi_cell *cell, uint64_t meta) {
    struct walk *walk = ctx;
    struct twi_final final;
    tw_key key;
    _Atomic uint64_t *bucket = walk_counter(walk, cell, meta, &key, &final);
    uint64_t word = twi_load_relaxed(bucket);
    uint32_t bytes = entry_bytes(key, final), at = BUCKET_OFFSET(word) + BUCKET_BYTES(word);
    struct twi_page *page = twi_arena_at(walk->packer->arena, BUCKET_LINE(word));
    twi_check(BUCKET_LINE(word) != 0 && at + bytes <= page->used && walk->packed->left >= bytes);
    put_entry((unsigned char *)page + at, key, final);
    twi_store_relaxed(bucket, word + bytes);
    walk->packed->left -= bytes;
    return true;
}

static enum twi_packing walk_table(const struct twi_packer *packer, struct twi_packed *packed, uint32_t *work,
                                   bool (*visit)(void *ctx, struct twi_cell *cell, uint64_t meta)) {
    struct walk walk = {packer, packed};
    packed->cursor.looks = *work;
    twi_table_walk(packer->arena, packer->generation, &packed->cursor, visit, &walk);
    *work = packed->cursor.looks;
    if (!packed->cursor.done) return TWI_PACK_ON;
    memset(&packed->cursor, 0, sizeof packed->cursor);
    return TWI_PACK_DONE;
}

/* Takes a page for the next buckets. It is a segment, or less if less memory is left. */
static struct twi_page *take_page(const struct twi_packer *packer, struct twi_packed *packed, uint32_t *work) {
    uint64_t left = packed->left < PAGE_BYTES_MAX ? packed->left : PAGE_BYTES_MAX;
    uint32_t lines = lines_of(sizeof(struct twi_page) + left);
    uint32_t line = twi_piece_take(packer->arena, packer->generation, lines);
    if (line == 0) return NULL;
    *work = *work > lines ? *work - lines : 0;
    struct twi_page *page = twi_arena_at(packer->arena, line);
    page->older = packed->page;
    page->lines = lines;
    page->used = sizeof(struct twi_page);
    twi_fence_compiler();
    packed->page = line;
    return page;
}

/* Places the buckets one after the other. A bucket is never in two pages. */
static enum twi_packing lay_buckets(const struct twi_packer *packer, struct twi_packed *packed, uint32_t *work) {
    struct twi_page *page = twi_arena_at(packer->arena, packed->page);
    for (; packed->bucket < packed->buckets; packed->bucket++) {
        if (*work == 0) return TWI_PACK_ON;
        --*work;
        _Atomic uint64_t *bucket = bucket_at(packer->arena, packed, packed->bucket);
        uint64_t bytes = twi_load_relaxed(bucket);
        if (bytes == 0) continue;
        if (bytes > PAGE_BYTES_MAX) return TWI_PACK_USELESS; /* chance cannot bring so many keys into one bucket */
        if (packed->page == 0 || page->used + bytes > (uint64_t)page->lines * TWI_LINE_BYTES) {
            page = take_page(packer, packed, work);
            if (page == NULL) return TWI_PACK_REFUSED;
        }
        twi_store_relaxed(bucket, BUCKET(packed->page, page->used, 0));
        page->used += (uint32_t)bytes;
        packed->left -= bytes;
    }
    return TWI_PACK_DONE;
}

/* Called when all sizes are known. Decides whether packing saves memory, and whether there is room. */
static enum twi_packing judge(const struct twi_packer *packer, struct twi_packed *packed) {
    /* the end of a page stays empty if the next bucket does not fit into it */
    uint64_t slack = packed->buckets == 0 ? 0 : packed->bytes / PAGE_BYTES_MAX * (packed->bytes / packed->buckets);
    uint64_t bytes = packed->bytes + slack + sizeof(struct twi_page);
    uint64_t whole = bytes + packed->buckets * sizeof(uint64_t) + (uint64_t)packed->lines * TWI_LINE_BYTES +
                     sizeof(struct twi_generation);
    if (whole >= packed->table_bytes) return TWI_PACK_USELESS;
    packed->left = packed->bytes;
    return leaves_room(packer, bytes) ? TWI_PACK_DONE : TWI_PACK_REFUSED;
}

static enum twi_packing take_step(const struct twi_packer *packer, struct twi_packed *packed, uint32_t *work) {
    enum twi_packing answer;
    switch (packed->step) {
    case STEP_ROOM: return take_directories(packer, packed, work);
    case STEP_COUNT:
        answer = walk_table(packer, packed, work, count_counter);
        return answer == TWI_PACK_DONE ? judge(packer, packed) : answer;
    case STEP_LAY: return lay_buckets(packer, packed, work);
    default: return walk_table(packer, packed, work, fill_counter);
    }
}

enum twi_packing twi_packed_build(const struct twi_packer *packer, uint32_t line, uint32_t *work) {
    struct twi_packed *packed = packed_at(packer->arena, line);
    while (*work != 0) {
        enum twi_packing answer = take_step(packer, packed, work);
        if (answer != TWI_PACK_DONE) return answer;
        if (packed->step == STEP_LAY) packed->left = packed->bytes;
        if (packed->step == STEP_FILL) {
            twi_check(packed->left == 0); /* every entry that was counted is filled in */
            return TWI_PACK_DONE;
        }
        packed->step++;
    }
    return TWI_PACK_ON;
}

bool twi_packed_unmake(struct twi_arena *arena, struct twi_generation *generation, uint32_t *line, uint32_t *work) {
    if (*line == 0) return true;
    struct twi_packed *packed = packed_at(arena, *line);
    while (packed->page != 0) {
        struct twi_page *page = twi_arena_at(arena, packed->page);
        uint32_t at = packed->page, lines = page->lines;
        if (*work < lines) return false;
        *work -= lines;
        packed->page = page->older;
        twi_piece_give(arena, generation, at, lines);
    }
    while (packed->directories != 0) {
        uint32_t lines = directory_lines(packed, packed->directories - 1);
        if (*work < lines) return false;
        *work -= lines;
        twi_piece_give(arena, generation, packed->directory[--packed->directories], lines);
    }
    if (*work < packed->lines) return false;
    *work -= packed->lines;
    uint32_t head = *line;
    *line = 0;
    twi_piece_give(arena, generation, head, packed->lines);
    return true;
}

/* ---- reading ---- */

bool twi_packed_find(const struct twi_arena *arena, uint32_t line, uint64_t hash, tw_key key, struct twi_final *final) {
    const struct twi_packed *packed = packed_at(arena, line);
    if (packed->buckets == 0) return false;
    uint64_t word = twi_load_relaxed(bucket_at(arena, packed, bucket_of(packed, hash)));
    if (BUCKET_LINE(word) == 0) return false;
    const unsigned char *at = (const unsigned char *)twi_arena_at(arena, BUCKET_LINE(word)) + BUCKET_OFFSET(word);
    const unsigned char *end = at + BUCKET_BYTES(word);
    while (at < end) {
        struct entry entry;
        at = read_entry(at, &entry);
        if (entry.key.size != key.size || !twi_key_equal(entry.key.data, key.data, key.size)) continue;
        *final = final_of(&entry);
        return true;
    }
    return false;
}

void twi_packed_walk(const struct twi_arena *arena, uint32_t line, struct twi_packed_cursor *cursor,
                     bool (*visit)(void *ctx, tw_key key, struct twi_final final), void *ctx) {
    if (!cursor->begun) {
        cursor->page = packed_at(arena, line)->page;
        cursor->at = sizeof(struct twi_page);
        cursor->begun = true;
    }
    while (cursor->page != 0) {
        const struct twi_page *page = twi_arena_at(arena, cursor->page);
        const unsigned char *start = (const unsigned char *)page;
        while (cursor->at < page->used) {
            struct entry entry;
            const unsigned char *next = read_entry(start + cursor->at, &entry);
            if (!visit(ctx, entry.key, final_of(&entry))) return;
            cursor->at = (uint32_t)(next - start);
        }
        cursor->page = page->older;
        cursor->at = sizeof(struct twi_page);
    }
    cursor->done = true;
}

struct valid {
    const struct twi_packer *packer;
    uint32_t line;
    uint64_t keys;
    bool ok;
};

static bool check_entry(void *ctx, tw_key key, struct twi_final final) {
    struct valid *valid = ctx;
    struct twi_final found;
    uint64_t hash = valid->packer->hash(valid->packer->secret, key.data, key.size);
    valid->keys++;
    valid->ok = valid->ok && twi_packed_find(valid->packer->arena, valid->line, hash, key, &found) &&
                found.local == final.local && found.base == final.base;
    return valid->ok;
}

bool twi_packed_is_valid(const struct twi_packer *packer, uint32_t line) {
    struct valid valid = {packer, line, 0, true};
    struct twi_packed_cursor cursor = {0};
    twi_packed_walk(packer->arena, line, &cursor, check_entry, &valid);
    return valid.ok && valid.keys == twi_load_relaxed(&packer->generation->keys);
}
