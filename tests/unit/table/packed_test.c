/* packed_test.c -- history: the packed form holds every key of its window; the table's memory is given back; readers
 * before, during and after packing see the same. */
#include "tests/unit/hand_driver.h"

#include "engine/table/packed.h"
#include "engine/turn/turn.h"
#include "engine/core/window_map.h"

/* ---- the structure by itself ------------------------------------------------------------------------------------- */

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
    (void)ctx;
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
static void every_key_is_found_with_its_value_and_no_other(void **state) {
    (void)state;
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
static void a_counter_with_a_29_byte_key_costs_at_most_45_bytes(void **state) {
    (void)state;
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
static void keys_of_every_size_and_values_of_every_length(void **state) {
    (void)state;
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
static void an_empty_window_and_one_of_one_key_are_packed(void **state) {
    (void)state;
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
static void wherever_memory_ends_the_table_stays_as_it_was(void **state) {
    (void)state;
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
static void giving_back_is_done_in_bounded_steps(void **state) {
    (void)state;
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

/* ---- in an engine ------------------------------------------------------------------------------------------------ */

static void add_keys(tw_family *family, int count, int64_t delta) {
    char key[32];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "a key of 29 bytes, %010d", i);
        rig_add(family, key, delta + i);
    }
}
static void check_keys(tw_family *family, int count, int64_t delta, int64_t at_ms) {
    char key[32];
    int64_t view, sum = 0;
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "a key of 29 bytes, %010d", i);
        assert_status(tw_get_at(family, tw_str(key), at_ms, &view), TW_OK);
        assert_i64_equal(view, delta + i);
        sum += delta + i;
    }
    assert_status(tw_get_at(family, tw_str("never counted"), at_ms, &view), TW_OK);
    assert_i64_equal(view, 0);
    struct rig_seen seen = rig_each(family, at_ms);
    assert_i64_equal(seen.counters, count);
    assert_i64_equal(seen.sum, sum);
}
static struct twi_generation *generation_of(tw_family *family, int64_t start_ms) {
    struct twi_generation *generation = twi_window_find(family, start_ms);
    assert_non_null(generation);
    return generation;
}

/* Goal: a window in history reads as it read before, costs less than two thirds, and goes at its time; overflow counts
 * too. */
static void a_window_in_history_is_packed_and_reads_as_before(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.keys_max = 5000;
    tw_family *family = rig_family_of(&rig, &options);
    add_keys(family, 5000, 7);
    assert_status(tw_add(family, tw_str("too many"), 5, NULL), TW_OVERFLOWED);
    int64_t full = test_memory_bytes(rig.engine);
    check_keys(family, 5000, 7, RIG_START_MS);
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(test_stat_of(rig.engine, windows_packed), 1);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    check_keys(family, 5000, 7, RIG_START_MS);
    assert_i64_equal(rig_each(family, RIG_START_MS).overflow, 5);
    assert_i64_equal(test_stat_of(rig.engine, entries), 5000);
    printf("# open: %lld bytes, in history: %lld\n", (long long)full, (long long)test_memory_bytes(rig.engine));
    assert_true(test_memory_bytes(rig.engine) < full * 2 / 3);
    rig_pass(&rig, TW_HOUR);
    int64_t view;
    assert_status(tw_get_at(family, tw_str("too many"), RIG_START_MS, &view), TW_ERR_LATE);
    rig_pass(&rig, TW_HOUR);
    assert_true(test_memory_bytes(rig.engine) < 2000);
    rig_close(&rig);
}

/* Goal: memory stays the same, window after window: the open one, one in history and what is being packed stay below
 * 2.3 windows. */
static void memory_stays_bounded_window_after_window(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    int64_t one = 0, most = 0, later = 0;
    int hours = test_is_slow() ? 8 : 12;
    for (int hour = 0; hour < hours; hour++) {
        add_keys(family, 20000, hour);
        if (hour == 0) one = test_memory_bytes(rig.engine);
        if (hour >= 1) check_keys(family, 20000, hour - 1, rig_now(&rig) - TW_HOUR);
        for (int quarter = 0; quarter < 4; quarter++) {
            int64_t now = test_memory_bytes(rig.engine);
            if (now > most) most = now;
            if (hour >= 6 && now > later) later = now;
            rig_pass(&rig, TW_HOUR / 4);
        }
    }
    printf("# one window: %lld bytes; open, next and one of history: %.2f times as much\n", (long long)one,
           (double)most / (double)one);
    assert_true(later <= most);
    assert_i64_equal(test_stat_of(rig.engine, windows_packed), hours);
    rig_close(&rig);
}

/* Goal: packing does its units per turn and no more.
 * Method: one turn at a time, while time stands still; a reader looks after each turn. */
static void packing_takes_many_turns_and_readers_see_no_difference(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 50000, 1);
    fake_clock_advance_ms(&rig.clock, TW_HOUR);
    struct twi_generation *generation = generation_of(family, RIG_START_MS);
    int turns = 0, building = 0, shedding = 0;
    int64_t before = test_memory_bytes(rig.engine);
    char key[32];
    do {
        rig_turn(&rig);
        int64_t view, now = test_memory_bytes(rig.engine);
        assert_true(before - now <= (int64_t)(2 * TWI_WORK_TURN + 1024) * TWI_LINE_BYTES);
        before = now;
        building += generation->turn.history.packing != 0;
        shedding += twi_generation_is_packed(generation);
        snprintf(key, sizeof key, "a key of 29 bytes, %010d", turns % 50000);
        assert_status(tw_get_at(family, tw_str(key), RIG_START_MS, &view), TW_OK);
        assert_i64_equal(view, 1 + turns % 50000);
        assert_i64_equal(rig_each(family, RIG_START_MS).counters, 50000);
        turns++;
    } while (tw_timeout_ms(rig.engine) == 0);
    assert_true(building >= 20 && shedding >= 2);
    assert_i64_equal(family->turn.history.packing, 0);
    check_keys(family, 50000, 1, RIG_START_MS);
    rig_close(&rig);
}

/* Goal: a window that was prepared in vain is also given back in bounded turns.
 * Method: an event time opens the next window while it is being prepared. */
static void a_preparation_given_up_goes_in_bounded_turns(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.earliness_ms = TW_HOUR;
    tw_family *family = rig_family_of(&rig, &options);
    add_keys(family, 100000, 1);
    rig_settle(&rig);
    fake_clock_advance_ms(&rig.clock, TW_HOUR * 3 / 4);
    int64_t prepared_from = test_memory_bytes(rig.engine);
    do {
        rig_turn(&rig);
        assert_non_null(family->turn.prepared.generation);
    } while (test_memory_bytes(rig.engine) < prepared_from + (8 << 20));
    assert_status(tw_add_at(family, tw_str("early"), 1, RIG_START_MS + TW_HOUR, NULL), TW_OK);
    int64_t before = test_memory_bytes(rig.engine), most = before;
    int falls = 0;
    for (int turns = 0; turns < 10000 && (turns < 10 || tw_timeout_ms(rig.engine) == 0); turns++) {
        rig_turn(&rig);
        int64_t now = test_memory_bytes(rig.engine);
        assert_true(before - now <= (int64_t)(4 * TWI_WORK_TURN + 1024) * TWI_LINE_BYTES);
        falls += now < before;
        if (now > most) most = now;
        before = now;
    }
    assert_null(family->turn.prepared.generation);
    assert_true(falls >= 2 && before < most - (7 << 20)); /* what had been prepared, but for a window of one key */
    int64_t view;
    assert_status(tw_get_at(family, tw_str("early"), RIG_START_MS + TW_HOUR, &view), TW_OK);
    assert_i64_equal(view, 1);
    rig_close(&rig);
}

/* Goal: a reader in a section that began before the switch keeps the table; one that begins later has no need of it. */
static void a_section_of_before_keeps_the_table(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 5000, 3);
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("a key of 29 bytes, 0000000042")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_true(twi_place_find(&call, &place));
    fake_clock_advance_ms(&rig.clock, TW_HOUR);
    for (int i = 0; i < 200; i++) { /* not tw_turn(): it refuses in a section, as here another thread's would be */
        rig_run_turn(rig.engine);
        fake_clock_advance_ms(&rig.clock, 5);
    }
    assert_true(twi_generation_is_packed(place.generation));
    assert_i64_equal(twi_cell_local(place.cell, place.meta), 45);
    assert_true(
        twi_table_is_valid(&rig.engine->arena, place.generation, &rig.engine->hashing.secret, rig.engine->hashing.fn));
    int64_t held = test_memory_bytes(rig.engine);
    twi_call_end(&call);
    rig_pass(&rig, 5);
    assert_true(test_memory_bytes(rig.engine) < held / 2);
    check_keys(family, 5000, 3, RIG_START_MS);
    rig_close(&rig);
}

struct slow_walk {
    struct rig *rig;
    struct rig_seen seen;
    int64_t at_first;
};
static bool walk_slowly(void *ctx, const tw_count *count) {
    struct slow_walk *walk = ctx;
    (void)rig_see(&walk->seen, count);
    if (walk->seen.counters == 10) {
        fake_clock_advance_ms(&walk->rig->clock, TW_HOUR);
        for (int i = 0; i < 200; i++) rig_pass(walk->rig, 5);
        walk->at_first = test_memory_bytes(walk->rig->engine);
    }
    return true;
}

/* Goal: a walk that began in the table ends in the table, though the window is packed under it; then the table goes.
 * Method: the visitor itself lets the hour end. */
static void a_walk_across_the_switch_sees_each_counter_once(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 5000, 0);
    struct slow_walk walk = {.rig = &rig};
    assert_status(tw_each(family, TW_NOW, walk_slowly, &walk), TW_OK);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    assert_i64_equal(walk.seen.counters, 5000);
    assert_i64_equal(walk.seen.sum, 5000 * 4999 / 2);
    rig_pass(&rig, 5);
    assert_true(test_memory_bytes(rig.engine) < walk.at_first / 2);
    check_keys(family, 5000, 0, RIG_START_MS);
    rig_close(&rig);
}

/* Goal: a walk through the packed form keeps it, though the window is dropped under it. */
static bool walk_past_history(void *ctx, const tw_count *count) {
    struct slow_walk *walk = ctx;
    (void)rig_see(&walk->seen, count);
    if (walk->seen.counters == 10) rig_pass(walk->rig, 3 * TW_HOUR);
    return true;
}
static void a_walk_keeps_a_packed_window_that_is_dropped(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 5000, 0);
    rig_pass(&rig, TW_HOUR);
    struct slow_walk walk = {.rig = &rig};
    assert_status(tw_each(family, RIG_START_MS, walk_past_history, &walk), TW_OK);
    assert_i64_equal(walk.seen.counters, 5000);
    assert_i64_equal(walk.seen.sum, 5000 * 4999 / 2);
    rig_pass(&rig, 10);
    assert_true(test_memory_bytes(rig.engine) < 2000);
    rig_close(&rig);
}

/* Goal: E32. A pin that still points at a cell of a packed window counts in the window of now, and touches nothing
 * else. */
static void trap_e32_a_pin_of_a_packed_window_touches_no_reused_memory(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    tw_pin *pin;
    assert_status(tw_pin_open(family, tw_str("pinned"), &pin), TW_OK);
    int64_t view;
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    assert_status(tw_pin_add(pin, 1, &view), TW_OK);
    add_keys(family, 5000, 0);
    rig_pass(&rig, TW_HOUR);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    add_keys(family, 5000, 100); /* where the old records were */
    assert_status(tw_pin_add(pin, 5, &view), TW_OK);
    assert_i64_equal(view, 5);
    char key[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "a key of 29 bytes, %010d", i);
        assert_i64_equal(rig_get(family, key), 100 + i);
    }
    assert_status(tw_get_at(family, tw_str("pinned"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 2);
    tw_pin_close(pin);
    rig_close(&rig);
}

/* Goal: P7. A packed window takes no more counts, even if its family's lateness becomes longer afterwards. */
static void a_packed_window_takes_nothing_whatever_lateness_says_later(void **state) {
    (void)state;
    struct rig rig;
    rig_open(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.history_ms = TW_DAY;
    tw_family *family = rig_family_of(&rig, &options);
    add_keys(family, 3000, 0);
    rig_pass(&rig, TW_HOUR);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    options.lateness_ms = TW_DAY;
    assert_status(tw_family_set(family, &options), TW_OK);
    tw_key keys[40];
    int64_t moments[40];
    tw_status each[40];
    for (int i = 0; i < 40; i++) {
        keys[i] = i % 2 == 0 ? tw_str("a key of 29 bytes, 0000000007") : tw_str("new");
        moments[i] = RIG_START_MS + i;
        assert_status(tw_add_at(family, keys[i], 1, moments[i], NULL), TW_ERR_LATE);
    }
    assert_status(tw_add_many_at(family, keys, NULL, 40, moments, NULL, each), TW_ERR_LATE);
    for (int i = 0; i < 40; i++) assert_status(each[i], TW_ERR_LATE);
    rig_settle(&rig);
    check_keys(family, 3000, 0, RIG_START_MS);
    rig_close(&rig);
}

/* Goal: a window is dropped, or its family or engine closed, at any stage of its packing, and no memory is left behind.
 * Method: so many turns, one more each time; then history is cut short, the family closed, or the engine. */
static void packing_may_be_cut_short_at_any_turn(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        bool over = false;
        for (int turns = 1; !over; turns += 1 + turns / 8) {
            struct rig rig;
            rig_open(&rig);
            tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
            tw_family *family = rig_family_of(&rig, &options);
            add_keys(family, 10000, 0);
            fake_clock_advance_ms(&rig.clock, TW_HOUR);
            for (int i = 0; i < turns; i++) rig_turn(&rig);
            over = tw_timeout_ms(rig.engine) != 0;
            if (how == 0) {
                options.history_ms = TW_NONE;
                assert_status(tw_family_set(family, &options), TW_OK);
                for (int i = 0; i < 3; i++) rig_pass(&rig, 10);
                assert_i64_equal(family->turn.history.packing, 0);
                assert_i64_equal(family->turn.history.waiting, 0);
                assert_true(test_memory_bytes(rig.engine) < 2000);
                assert_i64_equal(twi_load_relaxed(&family->quota.bytes), 0);
            } else if (how == 1) {
                assert_status(tw_family_close(family), TW_OK);
                for (int i = 0; i < 3; i++) rig_pass(&rig, 10);
                assert_i64_equal(test_memory_bytes(rig.engine), 0);
            }
            rig_close(&rig);
        }
    }
}

/* Goal: where memory is short, history stays as it is, and is packed when there is room again. */
static void history_is_packed_later_when_memory_is_short(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.options.memory_bytes_max = UINT64_C(4) << 20;
    rig_start(&rig);
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_HOUR);
    options.history_ms = 3 * TW_HOUR;
    tw_family *family = rig_family_of(&rig, &options);
    add_keys(family, 20000, 1);
    uint32_t hog[64], hogs = 0;
    while (twi_arena_bytes_used(&rig.engine->arena) < (INT64_C(3) << 20) && hogs < 64) {
        hog[hogs] = twi_arena_take(&rig.engine->arena, TWI_SEGMENT_LINES);
        if (hog[hogs] == 0) break;
        hogs++;
    }
    rig_pass(&rig, TW_HOUR);
    assert_i64_equal(test_stat_of(rig.engine, packs_refused), 1);
    assert_false(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    check_keys(family, 20000, 1, RIG_START_MS);
    rig_pass(&rig, TW_MINUTE);
    assert_i64_equal(test_stat_of(rig.engine, packs_refused), 2);
    int64_t full = test_memory_bytes(rig.engine);
    while (hogs != 0) twi_arena_give(&rig.engine->arena, hog[--hogs], TWI_SEGMENT_LINES);
    rig_pass(&rig, TW_MINUTE);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    check_keys(family, 20000, 1, RIG_START_MS);
    assert_true(test_memory_bytes(rig.engine) < full);
    rig_close(&rig);
}

static bool see_view(void *ctx, const tw_count *count) {
    struct rig_seen *seen = ctx;
    seen->counters++;
    seen->sum += count->view;
    return true;
}

/* Goal: with Redis, a window is packed only when it owes nothing, with the last totals from Redis. */
static void a_synced_window_is_packed_when_it_owes_nothing_with_its_view(void **state) {
    (void)state;
    struct rig rig;
    hand_open(&rig);
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 3000, 1);
    rig_pass(&rig, TW_HOUR);
    rig_pass(&rig, TW_MINUTE);
    struct twi_generation *generation = generation_of(family, RIG_START_MS);
    assert_false(twi_generation_is_packed(generation));
    while (hand_collect(1000) != 0)
        while (hand->count > 1) { /* others have added 1000 to each */
            int64_t local = hand->held[hand->count - 1].delta;
            hand_acknowledge(local + 1000);
        }
    for (int i = 0; i < 5; i++) rig_pass(&rig, 20);
    assert_false(twi_generation_is_packed(generation)); /* one is still on its way */
    hand_acknowledge(hand->held[hand->count - 1].delta + 1000);
    for (int i = 0; i < 5; i++) rig_pass(&rig, 20);
    assert_true(twi_generation_is_packed(generation));
    int64_t view;
    assert_status(tw_get_at(family, tw_str("a key of 29 bytes, 0000000042"), RIG_START_MS, &view), TW_OK);
    assert_i64_equal(view, 1 + 42 + 1000);
    struct rig_seen seen = {0};
    assert_status(tw_each(family, RIG_START_MS, see_view, &seen), TW_OK);
    assert_i64_equal(seen.counters, 3000);
    assert_i64_equal(seen.sum, 3000 + 3000 * 2999 / 2 + 3000 * 1000);
    assert_i64_equal(rig_each(family, RIG_START_MS).sum, 3000 + 3000 * 2999 / 2);
    hand_close(&rig);
}

/* Goal: an adder sleeps between its DIRTY and its marks, while its window is sealed, drained and packed. Then it lists
 * a table that is waiting to be given back. The table is given back all the same, and no list names it any more.
 * Method: the adder's steps by hand, with turns beside it; with collections between the steps, and without. */
static void trap_e10_a_mark_that_comes_after_packing_harms_nobody(void **state) {
    (void)state;
    for (int collect = 0; collect < 2; collect++) {
        struct rig rig;
        hand_open(&rig);
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        add_keys(family, 100, 1);
        hand->settle_at_turns = true;
        rig_pass(&rig, 10);
        struct twi_call call;
        struct twi_place place;
        assert_status(twi_call_begin(&call, family, tw_str("a key of 29 bytes, 0000000042")), TW_OK);
        assert_status(twi_call_now(&call), TW_OK);
        assert_true(twi_place_find(&call, &place));
        uint64_t before;
        assert_int_equal(twi_cell_add(place.cell, place.meta, 20, &before), TWI_ADDED);
        (void)twi_or_acqrel(&place.cell->local, TWI_DIRTY); /* D1, and here it sleeps */
        fake_clock_advance_ms(&rig.clock, TW_HOUR);
        for (int i = 0; i < 10; i++) {
            rig_run_turn(rig.engine);
            fake_clock_advance_ms(&rig.clock, 20);
        }
        assert_true(twi_generation_is_packed(place.generation));
        hand->settle_at_turns = collect != 0;
        hand_list_late(rig.engine, &place);
        if (collect != 0) rig_run_turn(rig.engine);
        twi_call_end(&call);
        int64_t full = test_memory_bytes(rig.engine);
        for (int i = 0; i < 3; i++) rig_pass(&rig, 20);
        assert_true(test_memory_bytes(rig.engine) < full);
        assert_i64_equal(twi_load_relaxed(&place.generation->chunks[0]), 0);
        assert_i64_equal(twi_load_relaxed(&place.generation->marks.chunks), 0);
        assert_i64_equal(twi_load_relaxed(&rig.engine->collector.marked), 0);
        assert_false(place.generation->turn.pending);
        hand->settle_at_turns = false;
        assert_i64_equal(hand_collect(10), 0);
        int64_t view;
        assert_status(tw_get_at(family, tw_str("a key of 29 bytes, 0000000042"), RIG_START_MS, &view), TW_OK);
        assert_i64_equal(view, 1 + 42 + 20);
        rig_add(family, "b", 1); /* into memory that was the old table's */
        assert_i64_equal(hand_collect(10), 1);
        assert_i64_equal(hand->held[0].delta, 1);
        hand_close(&rig);
    }
}

/* What the hand holds of each key is what was counted of it: 1 + its number. */
static void check_hand(uint32_t count) {
    bool *seen = calloc(count, sizeof *seen);
    assert_non_null(seen);
    assert_i64_equal(hand->count, count);
    for (size_t i = 0; i < hand->count; i++) {
        tw_key key = twi_port_key(&hand->held[i]);
        char text[32] = "";
        memcpy(text, key.data, key.size < 31 ? key.size : 31);
        long number = strtol(text + 19, NULL, 10);
        assert_true(number >= 0 && number < (long)count && !seen[number]);
        seen[number] = true;
        assert_i64_equal(hand->held[i].delta, 1 + number);
    }
    free(seen);
}
static void forget_all(struct rig *rig) {
    assert_i64_equal((int64_t)twi_port_restore(rig->engine, 0), 0);
    for (int i = 0; twi_port_restore_some(rig->engine); i++) assert_true(i < 1000);
}

/* Goal: P2. A Redis that lost everything receives every counter of a packed window again, once, also if the window is
 * just being packed, or if Redis loses everything once more half-way. Then the window is packed again.
 * Method: so many turns after the window's end, one more each time. */
static void what_was_packed_is_told_again_to_a_redis_that_forgot(void **state) {
    (void)state;
    enum { KEYS = 3000 };
    int packed_before = 0, building_before = 0;
    for (int turns = 1; turns < 40; turns += 1 + turns / 10) {
        struct rig rig;
        hand_open(&rig);
        hand->settle_at_turns = true;
        tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
        add_keys(family, KEYS, 1);
        for (int i = 0; i < 5; i++) rig_pass(&rig, 10);
        struct twi_generation *generation = generation_of(family, RIG_START_MS);
        _Atomic uintptr_t *hold = &twi_thread_slot(twi_thread_here())->holds[0][0];
        if (turns % 3 == 0) twi_store_release(hold, (uintptr_t)generation | TWI_HOLDS_TABLE); /* as if it were walked */
        fake_clock_advance_ms(&rig.clock, TW_HOUR);
        for (int i = 0; i < turns; i++) {
            rig_turn(&rig);
            fake_clock_advance_ms(&rig.clock, 5);
        }
        packed_before += twi_generation_is_packed(generation);
        building_before += generation->turn.history.packing != 0;
        hand->settle_at_turns = false;
        forget_all(&rig);
        while (hand_collect(1000) != 0) continue;
        check_hand(KEYS);
        rig_turn(&rig); /* history has its turns meanwhile */
        for (int i = 0; i < KEYS / 2; i++) hand_acknowledge(7);
        while (hand->count != 0) {
            struct twi_item item = hand_pop();
            twi_port_return(&item, 0);
        }
        forget_all(&rig);
        while (hand_collect(1000) != 0) continue;
        check_hand(KEYS);
        twi_store_release(hold, 0);
        hand->settle_at_turns = true;
        while (hand->count != 0) {
            struct twi_item item = hand_pop();
            struct twi_reply answer = {0};
            twi_port_acknowledge(&item, &answer);
        }
        for (int i = 0; i < 20; i++) rig_pass(&rig, 5);
        assert_true(twi_generation_is_packed(generation));
        assert_i64_equal(twi_load_relaxed(&generation->chunks[0]), 0);
        assert_i64_equal(generation->turn.outstanding, 0);
        struct rig_seen seen = rig_each(family, RIG_START_MS);
        assert_i64_equal(seen.counters, KEYS);
        assert_i64_equal(seen.sum, KEYS + KEYS * (KEYS - 1) / 2);
        hand_close(&rig);
    }
    assert_true(packed_before >= 3 && building_before >= 1);
}

/* Goal: if memory is too short to send units again, their number is reported to the unit. */
static void what_cannot_be_told_again_is_reported_to_the_unit(void **state) {
    (void)state;
    struct rig rig;
    struct lost_log log = {0};
    hand_init(&rig);
    rig.options.on_lost = lost_write;
    rig.options.lost_ctx = &log;
    rig_start(&rig);
    hand->settle_at_turns = true;
    tw_family *family = rig_family(&rig, "f", TW_WINDOW_ALIGNED, TW_HOUR);
    add_keys(family, 3000, 1);
    for (int i = 0; i < 5; i++) rig_pass(&rig, 10);
    rig_pass(&rig, TW_HOUR);
    for (int i = 0; i < 10; i++) rig_pass(&rig, 5);
    assert_true(twi_generation_is_packed(generation_of(family, RIG_START_MS)));
    twi_store_relaxed(&family->quota.bytes_max, twi_load_relaxed(&family->quota.bytes) + 100000);
    hand->settle_at_turns = false;
    forget_all(&rig);
    twi_store_relaxed(&family->quota.bytes_max, 0);
    while (hand_collect(1000) != 0) continue;
    int64_t sum = 0;
    for (size_t i = 0; i < hand->count; i++) sum += hand->held[i].delta;
    assert_true(hand->count > 500 && log.calls > 500);
    assert_i64_equal(log.reason, TW_LOST_ROLLBACK);
    assert_i64_equal(log.start_ms, RIG_START_MS);
    assert_i64_equal(sum + log.delta, 3000 + 3000 * 2999 / 2);
    assert_i64_equal(test_stat_of(rig.engine, lost), log.delta);
    assert_i64_equal(test_stat_of(rig.engine, restored), sum);
    hand_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_found_with_its_value_and_no_other),
        cmocka_unit_test(a_counter_with_a_29_byte_key_costs_at_most_45_bytes),
        cmocka_unit_test(keys_of_every_size_and_values_of_every_length),
        cmocka_unit_test(an_empty_window_and_one_of_one_key_are_packed),
        cmocka_unit_test(wherever_memory_ends_the_table_stays_as_it_was),
        cmocka_unit_test(giving_back_is_done_in_bounded_steps),
        cmocka_unit_test(a_window_in_history_is_packed_and_reads_as_before),
        cmocka_unit_test(memory_stays_bounded_window_after_window),
        cmocka_unit_test(packing_takes_many_turns_and_readers_see_no_difference),
        cmocka_unit_test(a_preparation_given_up_goes_in_bounded_turns),
        cmocka_unit_test(a_section_of_before_keeps_the_table),
        cmocka_unit_test(a_walk_across_the_switch_sees_each_counter_once),
        cmocka_unit_test(a_walk_keeps_a_packed_window_that_is_dropped),
        cmocka_unit_test(trap_e32_a_pin_of_a_packed_window_touches_no_reused_memory),
        cmocka_unit_test(a_packed_window_takes_nothing_whatever_lateness_says_later),
        cmocka_unit_test(packing_may_be_cut_short_at_any_turn),
        cmocka_unit_test(history_is_packed_later_when_memory_is_short),
        cmocka_unit_test(a_synced_window_is_packed_when_it_owes_nothing_with_its_view),
        cmocka_unit_test(trap_e10_a_mark_that_comes_after_packing_harms_nobody),
        cmocka_unit_test(what_was_packed_is_told_again_to_a_redis_that_forgot),
        cmocka_unit_test(what_cannot_be_told_again_is_reported_to_the_unit),
    };
    test_skip_alone();
    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
