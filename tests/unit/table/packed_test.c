/* packed_test.c -- the packed form of a window by itself: it has every key with its value, and the table's memory is
 * given back. Windows of an engine: packed_window_test.c. */
#include "tests/support/support.h"

#include "engine/core/state.h"
#include "engine/table/packed.h"

struct pack {
    struct twi_arena arena;
    struct twi_quota quota;
    struct twi_generation *generation;
    struct twi_hash_secret secret;
    struct twi_packer packer;
    struct twi_thread *self;
    uint32_t line;
};

static uint64_t hashed; /* how many keys were hashed: the work that a step really does */
static uint64_t counting_hash(const struct twi_hash_secret *secret, const void *data, size_t size) {
    hashed++;
    return twi_hash_sip(secret, data, size);
}

static void pack_begin(struct pack *pack, uint64_t bytes, bool synced) {
    memset(pack, 0, sizeof *pack);
    unsigned char random[TWI_HASH_SECRET_BYTES];
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    for (size_t i = 0; i < sizeof random; i++) random[i] = (unsigned char)test_prng_next(&prng);
    twi_hash_secret_make(&pack->secret, random);
    assert_true(twi_arena_make(&pack->arena, bytes));
    pack->self = twi_thread_here();
    twi_section_enter(pack->self);
    pack->generation = twi_table_make(&pack->arena, &pack->quota, 0, synced);
    assert_non_null(pack->generation);
    pack->packer = (struct twi_packer){&pack->arena, pack->generation, counting_hash, &pack->secret, 0};
}

/* Gives all back; nothing may be left in any account. */
static void pack_end(struct pack *pack) {
    uint32_t work = UINT32_MAX;
    assert_true(twi_packed_unmake(&pack->arena, pack->generation, &pack->line, &work));
    assert_true(twi_table_unmake(&pack->arena, pack->generation, &work));
    assert_i64_equal(twi_arena_bytes_used(&pack->arena), 0);
    assert_i64_equal(twi_load_relaxed(&pack->quota.bytes), 0);
    twi_section_leave(pack->self);
    twi_arena_unmake(&pack->arena);
}

static bool always(void *ctx) {
    return true;
}

/* A key of `size` bytes that contains its number; keys of several sizes begin alike. */
static tw_key key_of(unsigned char *bytes, uint32_t number, size_t size) {
    memset(bytes, 'k', size);
    memcpy(bytes + size - (size < sizeof number ? size : sizeof number), &number,
           size < sizeof number ? size : sizeof number);
    return tw_bytes(bytes, size);
}

/* Values of every length, of both signs, and nothing. */
static int64_t value_of(uint32_t number) {
    int64_t value = (int64_t)(number * UINT64_C(0x9E3779B97F4A7C15) >> (number % 61 + 3));
    if (number % 7 == 0) return 0;
    return number % 3 == 0 ? -value : value;
}
static int64_t base_of(const struct pack *pack, uint32_t number) {
    return pack->generation->synced && number % 4 != 0 ? value_of(number * 5 + 1) : 0;
}

static void put(struct pack *pack, tw_key key, int64_t local, int64_t base) {
    uint64_t before, hash = twi_hash_sip(&pack->secret, key.data, key.size);
    struct twi_insert insert = {&pack->arena,  pack->generation, pack->self, twi_lookup_key(hash, key), 0, NULL, 0,
                                TWI_NO_VACANCY};
    struct twi_cell *cell;
    assert_int_equal(twi_table_insert(&insert, always, NULL, &cell), TWI_INSERTED);
    assert_int_equal(twi_cell_add_careful(cell, local, &before), TWI_ADDED);
    if (pack->generation->synced) twi_store_relaxed(&cell->base, base);
}

static void nothing(void *ctx, struct twi_cell *cell, uint64_t meta, int64_t final) {
    (void)ctx, (void)cell, (void)meta, (void) final;
}
static void seal(struct pack *pack) {
    uint32_t work = UINT32_MAX;
    assert_true(twi_table_seal(&pack->arena, pack->generation, &work, nothing, NULL));
}

/* Packs in steps of `work_most`; no step does more. */
static enum twi_packing build(struct pack *pack, uint32_t work_most) {
    pack->line = twi_packed_begin(&pack->packer);
    if (pack->line == 0) return TWI_PACK_REFUSED;
    for (;;) {
        uint32_t work = work_most;
        hashed = 0;
        enum twi_packing answer = twi_packed_build(&pack->packer, pack->line, &work);
        assert_true(work <= work_most);
        assert_true(hashed <= work_most / 16 + 1);
        if (answer != TWI_PACK_ON) return answer;
    }
}

static void check_found(struct pack *pack, tw_key key, int64_t local, int64_t base) {
    struct twi_final final = {1, 1};
    uint64_t hash = twi_hash_sip(&pack->secret, key.data, key.size);
    assert_true(twi_packed_find(&pack->arena, pack->line, hash, key, &final));
    assert_i64_equal(final.local, local);
    assert_i64_equal(final.base, base);
}
static void check_absent(struct pack *pack, tw_key key) {
    struct twi_final final;
    uint64_t hash = twi_hash_sip(&pack->secret, key.data, key.size);
    assert_false(twi_packed_find(&pack->arena, pack->line, hash, key, &final));
}

struct sum {
    int64_t entries, local, base, stop_after;
};
static bool add_entry(void *ctx, tw_key key, struct twi_final final) {
    struct sum *sum = ctx;
    assert_true(key.size >= 1 && key.size <= TW_KEY_SIZE_MAX);
    if (sum->stop_after-- == 0) return false;
    sum->entries++;
    sum->local = (int64_t)((uint64_t)sum->local + (uint64_t) final.local);
    sum->base = (int64_t)((uint64_t)sum->base + (uint64_t) final.base);
    return true;
}

/* Goal: every key is found with the value it had, and no other; also after the table is gone.
 * Method: 200,000 keys, local and synced, steps of a turn's work and of the least that goes on; a walk that is
 * interrupted all the time sees each once. */
TEST(every_key_is_found_with_its_value_and_no_other) {
    for (int synced = 0; synced < 2; synced++) {
        static struct pack pack;
        unsigned char bytes[TW_KEY_SIZE_MAX];
        pack_begin(&pack, UINT64_C(256) << 20, synced != 0);
        uint32_t count = (uint32_t)test_scale(200000);
        struct sum want = {0};
        for (uint32_t i = 0; i < count; i++) {
            put(&pack, key_of(bytes, i, 29), value_of(i), base_of(&pack, i));
            want.local = (int64_t)((uint64_t)want.local + (uint64_t)value_of(i));
            want.base = (int64_t)((uint64_t)want.base + (uint64_t)base_of(&pack, i));
        }
        seal(&pack);
        int64_t table = twi_load_relaxed(&pack.generation->bytes);
        assert_int_equal(build(&pack, synced ? TWI_WORK_TURN : 1200), TWI_PACK_DONE);
        assert_true(twi_packed_is_valid(&pack.packer, pack.line));
        uint32_t work = UINT32_MAX;
        assert_true(twi_table_shed(&pack.arena, pack.generation, &work));
        int64_t packed = twi_load_relaxed(&pack.generation->bytes) - (int64_t)sizeof(struct twi_generation);
        printf("# %s: %u keys of 29 bytes and values of 1 to 8 bytes: %.1f bytes each as a table, %.1f packed\n",
               synced ? "synced" : "local", count, (double)table / count, (double)packed / count);
        for (uint32_t i = 0; i < count; i++) check_found(&pack, key_of(bytes, i, 29), value_of(i), base_of(&pack, i));
        for (uint32_t i = count; i < 2 * count; i++) check_absent(&pack, key_of(bytes, i, 29));
        for (uint32_t i = 0; i < 1000; i++) check_absent(&pack, key_of(bytes, i, 28 + 2 * (i % 2)));
        struct sum seen = {0};
        for (struct twi_packed_cursor cursor = {0}; !cursor.done;) {
            seen.stop_after = seen.entries % 300;
            if (seen.stop_after == 0) seen.stop_after = 1;
            twi_packed_walk(&pack.arena, pack.line, &cursor, add_entry, &seen);
        }
        assert_i64_equal(seen.entries, count);
        assert_i64_equal(seen.local, want.local);
        assert_i64_equal(seen.base, want.base);
        pack_end(&pack);
    }
}

/* Goal: what a counter costs in history (29-byte key, counted to some thousands): at most 45 bytes. */
TEST(a_counter_with_a_29_byte_key_costs_at_most_45_bytes) {
    for (int synced = 0; synced < 2; synced++) {
        static struct pack pack;
        unsigned char bytes[TW_KEY_SIZE_MAX];
        pack_begin(&pack, UINT64_C(256) << 20, synced != 0);
        for (uint32_t i = 0; i < 20000; i++) put(&pack, key_of(bytes, i, 29), i, synced ? 3 * (int64_t)i : 0);
        seal(&pack);
        assert_int_equal(build(&pack, TWI_WORK_TURN), TWI_PACK_DONE);
        uint32_t work = UINT32_MAX;
        assert_true(twi_table_shed(&pack.arena, pack.generation, &work));
        int64_t packed = twi_load_relaxed(&pack.generation->bytes);
        printf("# %s: %.1f bytes a counter\n", synced ? "synced" : "local", (double)packed / 20000);
        assert_true(packed <= 45 * 20000);
        pack_end(&pack);
    }
}

/* Goal: keys of every size, those around the kinds of record and of entry too, and the extremes of values. */
TEST(keys_of_every_size_and_values_of_every_length) {
    static struct pack pack;
    unsigned char bytes[TW_KEY_SIZE_MAX];
    pack_begin(&pack, UINT64_C(64) << 20, true);
    const int64_t edges[] = {0,
                             1,
                             -1,
                             127,
                             128,
                             -128,
                             -129,
                             32767,
                             -32768,
                             (1ll << 31),
                             -(1ll << 31),
                             1ll << 39,
                             1ll << 40,
                             TW_COUNT_MAX,
                             8388607,
                             8388608,
                             -TW_COUNT_MAX,
                             -8388608,
                             -8388609,
                             255,
                             256};
    enum { EDGES = sizeof edges / sizeof *edges };
    for (uint32_t size = 1; size <= TW_KEY_SIZE_MAX; size++)
        put(&pack, key_of(bytes, size & 0xff, size), edges[size % EDGES], edges[size / 3 % EDGES]);
    for (int64_t i = 0; i < 3; i++) /* a base may be anything that Redis can hold */
        put(&pack, key_of(bytes, 1000 + (uint32_t)i, 33), 5, i == 0 ? INT64_MIN : i == 1 ? INT64_MAX : INT64_MIN + 1);
    seal(&pack);
    assert_int_equal(build(&pack, TWI_WORK_TURN), TWI_PACK_DONE);
    assert_true(twi_packed_is_valid(&pack.packer, pack.line));
    for (uint32_t size = 1; size <= TW_KEY_SIZE_MAX; size++) {
        check_found(&pack, key_of(bytes, size & 0xff, size), edges[size % EDGES], edges[size / 3 % EDGES]);
        check_absent(&pack, key_of(bytes, (size & 0xff) ^ 1, size));
    }
    check_found(&pack, key_of(bytes, 1000, 33), 5, INT64_MIN);
    check_found(&pack, key_of(bytes, 1001, 33), 5, INT64_MAX);
    check_found(&pack, key_of(bytes, 1002, 33), 5, INT64_MIN + 1);
    pack_end(&pack);
}

/* Goal: a window with nothing in it, and with one key, whose index was made for many. */
TEST(an_empty_window_and_one_of_one_key_are_packed) {
    for (uint32_t keys = 0; keys < 2; keys++) {
        static struct pack pack;
        unsigned char bytes[TW_KEY_SIZE_MAX];
        pack_begin(&pack, UINT64_C(64) << 20, false);
        uint32_t work = UINT32_MAX;
        assert_true(twi_table_unmake(&pack.arena, pack.generation, &work));
        pack.packer.generation = pack.generation = twi_table_make(&pack.arena, &pack.quota, 100000, false);
        if (keys == 1) put(&pack, key_of(bytes, 5, 12), 99, 0);
        seal(&pack);
        assert_int_equal(build(&pack, 1100), TWI_PACK_DONE);
        work = UINT32_MAX;
        assert_true(twi_table_shed(&pack.arena, pack.generation, &work));
        assert_true(twi_load_relaxed(&pack.generation->bytes) <= (int64_t)sizeof(struct twi_generation) + 1024);
        if (keys == 1) check_found(&pack, key_of(bytes, 5, 12), 99, 0);
        check_absent(&pack, key_of(bytes, 6, 12));
        struct sum seen = {.stop_after = -1};
        struct twi_packed_cursor cursor = {0};
        twi_packed_walk(&pack.arena, pack.line, &cursor, add_entry, &seen);
        assert_true(cursor.done);
        assert_i64_equal(seen.entries, keys);
        pack_end(&pack);
    }
}

/* Goal: wherever memory ends, packing is refused, the table is as it was, and what was taken comes back.
 * Method: an arena that ends a little later each time, until it does not. */
TEST(wherever_memory_ends_the_table_stays_as_it_was) {
    bool refused = false, done = false;
    for (int64_t room = 0; !done; room += 40000) {
        static struct pack pack;
        unsigned char bytes[TW_KEY_SIZE_MAX];
        pack_begin(&pack, UINT64_C(64) << 20, false);
        for (uint32_t i = 0; i < 20000; i++) put(&pack, key_of(bytes, i, 29), i, 0);
        seal(&pack);
        int64_t table = twi_load_relaxed(&pack.generation->bytes);
        twi_store_relaxed(&pack.quota.bytes_max, (table + room) * 8 / 7 + 1);
        enum twi_packing answer = build(&pack, TWI_WORK_TURN);
        done = answer == TWI_PACK_DONE;
        if (!done) {
            refused = true;
            assert_int_equal(answer, TWI_PACK_REFUSED);
            uint32_t work = UINT32_MAX;
            assert_true(twi_packed_unmake(&pack.arena, pack.generation, &pack.line, &work));
            assert_i64_equal(twi_load_relaxed(&pack.generation->bytes), table);
            assert_true(twi_table_is_valid(&pack.arena, pack.generation, &pack.secret, twi_hash_sip));
        }
        pack_end(&pack);
    }
    assert_true(refused);
}

/* Goal: what is given back is given back in steps, too. */
TEST(giving_back_is_done_in_bounded_steps) {
    static struct pack pack;
    unsigned char bytes[TW_KEY_SIZE_MAX];
    pack_begin(&pack, UINT64_C(64) << 20, false);
    for (uint32_t i = 0; i < 50000; i++) put(&pack, key_of(bytes, i, 29), i, 0);
    seal(&pack);
    assert_int_equal(build(&pack, TWI_WORK_TURN), TWI_PACK_DONE);
    int64_t before = twi_arena_bytes_used(&pack.arena);
    /* Of 2048 lines; pieces are rounded up to their class, by a quarter at most. */
    const int64_t step = 2048 * TWI_LINE_BYTES * 5 / 4;
    uint32_t steps = 0;
    for (bool gone = false; !gone; steps++) {
        uint32_t work = 2048;
        gone = twi_table_shed(&pack.arena, pack.generation, &work);
        int64_t now = twi_arena_bytes_used(&pack.arena);
        assert_true(before - now <= step);
        before = now;
    }
    assert_true(steps > 10);
    for (bool gone = false; !gone; steps++) {
        uint32_t work = 2048;
        gone = twi_packed_unmake(&pack.arena, pack.generation, &pack.line, &work);
        int64_t now = twi_arena_bytes_used(&pack.arena);
        assert_true(before - now <= step);
        before = now;
    }
    assert_i64_equal(pack.line, 0);
    pack_end(&pack);
}

int main(void) {
    test_skip_alone();
    return test_run();
}
