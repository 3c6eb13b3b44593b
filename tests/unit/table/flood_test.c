/* flood_test.c -- keys that are made to collide cost a table no more than random ones, and no pair of keys collides
 * under every secret.
 * Method: the cost of a flood is counted, never timed: slots looked at, depth, memory. TW_SCALE=1000 makes it a million
 * keys. The attacker knows everything but the engine's secret: the code, and the secrets of other engines. An attacker
 * who knows a secret can walk the rounds of the AES hash backwards, and write down any number of 16-byte keys with one
 * and the same 64-bit hash. That is the worst possible flood, and it is tried. */
#include "tests/support/support.h"

#include "engine/table/index.h"
#include "engine/base/hash_aes.h"
#include "engine/memory/epoch.h"
#include "engine/table/table.h"

static twi_hash_fn *hashes[2];
static size_t hash_count;
static struct test_prng prng;

static struct twi_hash_secret secret_draw(void) {
    struct twi_hash_secret secret;
    for (size_t index = 0; index < 4; index++) secret.words[index] = test_prng_next(&prng);
    return secret;
}

/* ---- walking the AES hash backwards ------------------------------------------------------------------------------ */

static unsigned char sbox[256], sbox_back[256], times[16][256]; /* by 2, 3, 9, 11, 13, 14 */

static unsigned char field_times(unsigned char x, unsigned char y) {
    unsigned char product = 0;
    for (; y != 0; y >>= 1, x = (unsigned char)(x << 1 ^ (x & 0x80 ? 0x1b : 0)))
        if (y & 1) product ^= x;
    return product;
}

static void tables_fill(void) {
    for (int x = 0; x < 256; x++) {
        unsigned char inverse = 0, result = 0x63;
        for (int guess = 1; guess < 256 && x != 0; guess++)
            if (field_times((unsigned char)x, (unsigned char)guess) == 1) inverse = (unsigned char)guess;
        for (int turn = 0; turn < 5; turn++) result ^= (unsigned char)(inverse << turn | inverse >> (8 - turn));
        sbox[x] = result;
        sbox_back[result] = (unsigned char)x;
        for (int by = 0; by < 16; by++) times[by][x] = field_times((unsigned char)x, (unsigned char)by);
    }
}

struct block {
    unsigned char bytes[16];
};

static struct block block_of(const void *bytes) {
    struct block block;
    memcpy(block.bytes, bytes, 16);
    return block;
}
static struct block xor_of(struct block x, struct block y) {
    for (int i = 0; i < 16; i++) x.bytes[i] ^= y.bytes[i];
    return x;
}
static struct block size_block(size_t size) {
    uint64_t words[2] = {size, 0};
    return block_of(words);
}

/* Each column times the row of factors, turned by one for each byte. */
static struct block mix(struct block x, const unsigned char factors[4]) {
    struct block mixed;
    for (int column = 0; column < 16; column += 4)
        for (int row = 0; row < 4; row++) {
            unsigned char sum = 0;
            for (int i = 0; i < 4; i++) sum ^= times[factors[i]][x.bytes[column + (row + i) % 4]];
            mixed.bytes[column + row] = sum;
        }
    return mixed;
}

static struct block round_on(struct block x, struct block key) {
    struct block shifted;
    for (int i = 0; i < 16; i++) shifted.bytes[i] = sbox[x.bytes[(i + i % 4 * 4) % 16]];
    return xor_of(mix(shifted, (const unsigned char[]){2, 3, 1, 1}), key);
}

static struct block round_back(struct block x, struct block key) {
    struct block mixed = mix(xor_of(x, key), (const unsigned char[]){14, 11, 13, 9}), back;
    for (int i = 0; i < 16; i++) back.bytes[(i + i % 4 * 4) % 16] = sbox_back[mixed.bytes[i]];
    return back;
}

/* A key of 16 bytes whose AES hash under that secret is `hash`; `draw` picks one of 2^64. */
static struct block key_hashing_to(const struct twi_hash_secret *secret, uint64_t hash, uint64_t draw) {
    struct block a = block_of(secret->words), b = block_of(secret->words + 2);
    uint64_t end[2] = {hash, draw};
    struct block lane_b = round_on(round_on(round_on(b, a), b), a);
    struct block lane_a = xor_of(round_back(block_of(end), a), lane_b);
    return xor_of(round_back(round_back(round_back(lane_a, b), xor_of(a, size_block(16))), b), a);
}

/* ---- what a set of keys costs ------------------------------------------------------------------------------------ */

struct cost {
    uint64_t looked_at,
        looked_at_max; /* slots looked at, by whole lines, over all leaves on the way, until the key is found */
    uint32_t depth_max;
    int64_t bytes;
};

static bool always(void *ctx) {
    return true;
}

static void count_slots(struct twi_arena *arena, struct twi_generation *generation, const struct twi_lookup_key *wanted,
                        struct cost *cost) {
    uint64_t entry = twi_index_leaf(arena, generation, wanted->tag), slots_seen = 0;
    struct twi_leaf *leaf = twi_arena_at(arena, TWI_ENTRY_LINE(entry));
    uint32_t lines = twi_leaf_lines(entry), line = twi_leaf_line(wanted->tag, lines);
    for (bool found = false; !found; line = (line + 1) % lines) {
        struct twi_line_look look = twi_leaf_look(leaf, line, wanted->tag);
        assert_true(slots_seen <= twi_leaf_slots(lines));
        slots_seen += line == 0 ? TWI_LINE_WORDS - TWI_LEAF_HEAD_WORDS : TWI_LINE_WORDS;
        for (; look.match != 0 && !found; look.match &= look.match - 1) {
            uint64_t slot = twi_load_acquire(&twi_leaf_words(leaf, line)[__builtin_ctz(look.match)]);
            found = slot > TWI_SLOT_CLOSED && twi_cell_matches(twi_arena_at(arena, (uint32_t)slot), wanted);
        }
        assert_true(found || look.vacant == 0);
    }
    cost->looked_at += slots_seen;
    if (slots_seen > cost->looked_at_max) cost->looked_at_max = slots_seen;
    if (leaf->depth > cost->depth_max) cost->depth_max = leaf->depth;
}

struct keys {
    unsigned char (*bytes)[64];
    size_t *sizes, count;
};

static struct keys keys_make(size_t count) {
    struct keys keys = {calloc(count, 64), calloc(count, sizeof(size_t)), count};
    assert_true(keys.bytes != NULL && keys.sizes != NULL);
    return keys;
}
static void keys_free(struct keys *keys) {
    free(keys->bytes);
    free(keys->sizes);
}

static struct cost cost_of(const struct keys *keys, twi_hash_fn *hash, const struct twi_hash_secret *secret,
                           uint64_t expected) {
    static struct twi_arena arena;
    struct twi_quota quota = {0};
    assert_true(twi_arena_make(&arena, UINT64_C(1) << 30));
    struct twi_generation *generation = twi_table_make(&arena, &quota, expected, false);
    assert_non_null(generation);
    struct twi_thread *self = twi_thread_here();
    struct cost cost = {0};
    twi_section_enter(self);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < keys->count; i++) {
            tw_key key = tw_bytes(keys->bytes[i], keys->sizes[i]);
            struct twi_lookup_key wanted = twi_lookup_key(hash(secret, key.data, key.size), key);
            struct twi_insert insert = {&arena, generation, self, wanted, 0, NULL, 0, TWI_NO_VACANCY};
            struct twi_cell *cell;
            enum twi_found found = pass == 0 ? twi_table_insert(&insert, always, NULL, &cell) : TWI_INSERTED;
            assert_int_equal(found, TWI_INSERTED); /* all keys are different, and there is room */
            if (pass == 1) count_slots(&arena, generation, &wanted, &cost);
        }
    twi_section_leave(self);
    cost.bytes = twi_load_relaxed(&generation->bytes);
    twi_arena_unmake(&arena);
    return cost;
}

/* As many random keys of the same sizes, under the same secret. */
static void check_cost(const struct keys *keys, twi_hash_fn *hash) {
    struct keys random = keys_make(keys->count);
    for (size_t i = 0; i < keys->count; i++) {
        random.sizes[i] = keys->sizes[i];
        for (size_t at = 0; at < keys->sizes[i]; at++) random.bytes[i][at] = (unsigned char)test_prng_next(&prng);
    }
    for (int forecast = 0; forecast < 2; forecast++) {
        struct twi_hash_secret secret = secret_draw();
        uint64_t expected = forecast != 0 ? keys->count : 0;
        struct cost flood = cost_of(keys, hash, &secret, expected), plain = cost_of(&random, hash, &secret, expected);
        if (flood.looked_at * 100 > plain.looked_at * 115 || flood.looked_at_max > 2 * plain.looked_at_max + 60 ||
            flood.depth_max > plain.depth_max + 2 || flood.bytes * 100 > plain.bytes * 115)
            fail_msg("%llu slots (at most %llu) at depth %u in %lld bytes; random keys %llu (%llu), %u, %lld",
                     (unsigned long long)flood.looked_at, (unsigned long long)flood.looked_at_max, flood.depth_max,
                     (long long)flood.bytes, (unsigned long long)plain.looked_at,
                     (unsigned long long)plain.looked_at_max, plain.depth_max, (long long)plain.bytes);
    }
    keys_free(&random);
}

/* ---- floods ------------------------------------------------------------------------------------------------------ */

/* Goal: an attacker who knows another engine's secret, or takes the hash for unkeyed, gains nothing.
 * Method: 16-byte keys that all have one 64-bit hash under a secret of zeros, and under a known one. */
TEST(keys_of_one_hash_under_a_known_secret_cost_another_nothing) {
    twi_hash_fn *aes = twi_hash_aes();
    if (aes == NULL) {
        test_leave_out("no AES rounds on this processor: run it on one that has them, as /proc/cpuinfo says");
        return;
    }
    struct keys keys = keys_make((size_t)test_scale(100000));
    for (int known = 0; known < 2; known++) {
        struct twi_hash_secret secret = known != 0 ? secret_draw() : (struct twi_hash_secret){{0}};
        uint64_t hash = test_prng_next(&prng), draw = test_prng_next(&prng);
        for (size_t i = 0; i < keys.count; i++) {
            struct block key = key_hashing_to(&secret, hash, draw + i);
            memcpy(keys.bytes[i], key.bytes, 16);
            keys.sizes[i] = 16;
        }
        for (size_t i = 0; i < keys.count; i += keys.count / 100 + 1)
            assert_true(aes(&secret, keys.bytes[i], 16) == hash); /* the attack is right */
        check_cost(&keys, aes);
    }
    keys_free(&keys);
}

static void fill_by(struct keys *keys, twi_hash_fn *hash, uint64_t mask) {
    static const struct twi_hash_secret zeros;
    uint64_t number = test_prng_next(&prng), wanted = test_prng_next(&prng) & mask;
    for (size_t i = 0; i < keys->count; number++) {
        memcpy(keys->bytes[i], &number, 8);
        if ((hash(&zeros, keys->bytes[i], 8) & mask) != wanted) continue;
        keys->sizes[i++] = 8;
    }
}

/* Goal: keys that share low bits, high bits or the tag under the unkeyed form cost no more than random ones. */
TEST(keys_that_share_bits_unkeyed_cost_no_more) {
    const uint64_t masks[] = {0xff, UINT64_C(0xff) << 56, UINT64_C(0xff) << 32, UINT64_C(0xf0000000f)};
    struct keys keys = keys_make((size_t)test_scale(100000));
    for (size_t index = 0; index < hash_count; index++)
        for (size_t mask = 0; mask < sizeof masks / sizeof masks[0]; mask++) {
            fill_by(&keys, hashes[index], masks[mask]);
            check_cost(&keys, hashes[index]);
        }
    keys_free(&keys);
}

/* ---- collisions under every secret ------------------------------------------------------------------------------- */

enum { RELATED_MAX = 8192 };
struct related {
    unsigned char bytes[RELATED_MAX][160];
    size_t sizes[RELATED_MAX], count;
};

static void related_add(struct related *set, const void *bytes, size_t size) {
    assert_true(set->count < RELATED_MAX && size <= 160);
    for (size_t i = 0; i < set->count; i++)
        if (set->sizes[i] == size && memcmp(set->bytes[i], bytes, size) == 0) return;
    memcpy(set->bytes[set->count], bytes, size);
    set->sizes[set->count++] = size;
}

/* Keys whose blocks differ only by what their sizes differ in, wherever the size might be mixed in unchanged. */
static void add_sizes_undone(struct related *set) {
    unsigned char key[160];
    for (size_t size = 17; size <= 32; size++) { /* 16 bytes, and the same with a block that undoes the other size */
        memset(key, 0, sizeof key);
        related_add(set, key, 16);
        key[size - 16] ^= (unsigned char)(16 ^ size);
        related_add(set, key, size);
    }
    for (size_t blocks = 16; blocks <= 96; blocks += 16)
        for (size_t size = blocks; size < blocks + 32; size++)
            for (size_t other = size + 1; other <= blocks + 32; other++) {
                if ((size + other) % 5 != 0) continue; /* some of them */
                for (size_t at = 0; at < size; at += 16) {
                    memset(key, 7, sizeof key);
                    related_add(set, key, size);
                    key[at] ^= (unsigned char)(size ^ other);
                    if (set->count < RELATED_MAX - 2) related_add(set, key, other);
                }
            }
}

/* Two sizes, one apart, whose overlapping last blocks differ by exactly what their sizes do. */
static void add_overlaps(struct related *set) {
    unsigned char key[160];
    for (size_t size = 17; size < 32; size++) {
        memset(key, 'x' ^ (int)(size ^ (size + 1)), sizeof key);
        memset(key, 'x', size - 15);
        related_add(set, key, size);
        related_add(set, key, size + 1);
    }
}

/* Zeros of all sizes; one bit; blocks that trade places; tails that repeat. */
static void add_plain(struct related *set) {
    unsigned char key[160];
    for (size_t size = 0; size <= 130; size++) {
        memset(key, 0, sizeof key);
        related_add(set, key, size);
        if (size == 0) continue;
        key[size - 1] = 1;
        related_add(set, key, size);
        memset(key, 0x80, sizeof key);
        related_add(set, key, size);
    }
    for (size_t size = 15; size <= 65; size++)
        for (size_t first = 0; first + 16 <= size; first += 16)
            for (size_t second = first + 16; second + 16 <= size; second += 16) {
                memset(key, 'a', sizeof key);
                memset(key + first, 'b', 16);
                related_add(set, key, size);
                memset(key + first, 'a', 16);
                memset(key + second, 'b', 16);
                related_add(set, key, size);
            }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Goal: no two keys collide under every secret, so knowing the code alone does not help.
 * Method: sets of keys related as differential attacks want them, under many secrets: no two equal 64-bit hashes. */
TEST(no_related_keys_collide_whatever_the_secret) {
    void (*const adders[])(struct related *) = {add_sizes_undone, add_overlaps, add_plain};
    static struct related set;
    static uint64_t values[RELATED_MAX];
    for (size_t adder = 0; adder < sizeof adders / sizeof adders[0]; adder++) {
        set.count = 0;
        adders[adder](&set);
        for (size_t index = 0; index < hash_count; index++)
            for (uint64_t trial = 0; trial < test_scale(100) / 2 + 1; trial++) {
                struct twi_hash_secret secret = secret_draw();
                for (size_t i = 0; i < set.count; i++) values[i] = hashes[index](&secret, set.bytes[i], set.sizes[i]);
                qsort(values, set.count, sizeof values[0], by_value);
                for (size_t i = 1; i < set.count; i++)
                    if (values[i] == values[i - 1]) fail_msg("set %d: two keys of one hash", (int)adder);
            }
    }
}

/* Goal: a flood of such keys costs no more either. Method: 17 to 48 bytes, in families whose blocks are the same. */
TEST(keys_whose_sizes_undo_each_other_cost_no_more) {
    struct keys keys = keys_make((size_t)test_scale(100000));
    for (size_t i = 0; i < keys.count; i++) {
        uint64_t family = i / 2, words[2] = {family * UINT64_C(0x9E3779B97F4A7C15), family};
        memcpy(keys.bytes[i], words, 16);
        keys.sizes[i] = i % 2 == 0 ? 16 : 32;
        if (i % 2 != 0) keys.bytes[i][16] = 16 ^ 32;
    }
    for (size_t index = 0; index < hash_count; index++) check_cost(&keys, hashes[index]);
    keys_free(&keys);
}

int main(void) {
    tables_fill();
    test_prng_seed(&prng, test_seed());
    hashes[hash_count++] = twi_hash_sip;
    if (twi_hash_aes() != NULL) hashes[hash_count++] = twi_hash_aes();
    return test_run();
}
