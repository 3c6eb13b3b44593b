/* adding_test.c -- the ways of adding stay alike. The same act is written several times, for speed
 * (docs/ARCHITECTURE.md, "Seven places that must stay alike"), and no answer may tell which of them it was:
 *
 *     fast      tw_add of a short key: add_fast.h     group     tw_add_many: group_fast.h
 *     timed     the same by add_timed() there         striped   tw_add of striped counters: striped() in add_fast.h
 *     long key  keys of more than 32 bytes there      at        tw_add_at: api.c
 *     tiny key  and keys of 1 to 3 bytes              group at  tw_add_many_at: add_many.c
 *     block key and keys of 8 to 16 bytes             pin       tw_pin_add: api.c
 *     hundred   and keys of 97 to 160 bytes           long group  long keys by tw_add_many
 *     wide key  and keys of 17 to 32 bytes
 *     unsized   short keys without an area there      slow      twi_add_slow(): add_once() in api.c
 *     inside    short and long ones, by a thread
 *     long in   that is inside a section
 *
 * New keys take insert() in add_fast.h, or twi_add_new() in api.c. The fast path is for engines with a thread, which
 * writes the time down: here the test writes it, but for the way that must not be fast.
 * Method: one script, drawn from a seed, is played by each way in a separate engine. What it answers, shows, counts and
 * owes to Redis is noted, and compared with the notes of the first way. Each seed is played with the fastest hash of
 * this processor and with the portable one, which have fast paths of their own. The script has new keys and known ones,
 * a full table, views wanted and not, deltas of every size, calls that are refused, sums at the end of the range,
 * totals of others, and windows that end. Families that refuse some keys are played, too (call.c check_name()).
 * Covers: engine/fast/fast_aes.c, engine/fast/fast_portable.c, engine/fast/fast.h. */
#include "tests/unit/hand_driver.h"

#include "engine/base/hash_aes.h"
#include "engine/count/api.h"
#include "engine/count/dirty.h"
#include "engine/fast/fast.h"

#define KEYS 220u     /* some find the table full */
#define KEYS_MAX 170u /* of the family: so many that there is an area of records */
#define KEYS_HOT 20u  /* half of the adds */
#define BURST 40u
#define BURSTS 60
#define NOTES_MAX 100000u

enum way {
    FAST,
    TIMED,
    LONG_KEY,
    HUNDRED,
    LONG_GROUP,
    TINY_KEY,
    BLOCK_KEY,
    WIDE_KEY,
    UNSIZED,
    INSIDE,
    LONG_IN,
    GROUP,
    STRIPED,
    SLOW,
    AT,
    GROUP_AT,
    PIN,
    WAYS
};
static const char *const names[WAYS] = {"fast",      "timed",    "long key", "hundred",  "long group", "tiny key",
                                        "block key", "wide key", "unsized",  "inside",   "long in",    "group",
                                        "striped",   "slow",     "at",       "group at", "pin"};

/* Which keys of a valid size the family refuses. */
enum names_of {
    ANY_KEY,
    OF_FIELDS /* those without a field that is declared */,
    OF_RESERVED /* names of the engine */
};

/* What was seen, in order. */
struct notes {
    size_t count;
    struct note {
        const char *what;
        int64_t value;
    } all[NOTES_MAX];
};

static struct rig rig;
static struct notes first, notes;
static enum way way;
static twi_hash_fn *hash_now;
static enum names_of names_of;
static tw_family *family;
static char texts[KEYS][160];
static tw_pin *pins[KEYS];
static int with_area, with_long; /* bursts in a window with an area of records, for short keys and for long ones */
static int64_t totals[KEYS + 1]; /* in Redis, of this window; the last is of the overflow counter */

static void note(const char *what, int64_t value) {
    assert_true(notes.count < NOTES_MAX);
    notes.all[notes.count++] = (struct note){what, value};
}

static tw_key key_of(size_t i) {
    return i < KEYS ? tw_str(texts[i]) : tw_bytes(texts[0], 0); /* no key */
}

static bool is_refused(size_t i) {
    return names_of == OF_FIELDS ? i % 8 == 5 : names_of == OF_RESERVED && i == 5;
}

/* The text of a key: `head` and its number, with a field or a beginning that is reserved. The size of a text is that of
 * its way in any case: tiny keys have 1 to 3 bytes. */
static void write_key(size_t i, const char *head) {
    static const char *const undeclared[] = {"|x", "|", ""};
    if (names_of == OF_FIELDS && is_refused(i))
        snprintf(texts[i], sizeof texts[i], "%s%c%s", head, (char)('!' + i / 8), undeclared[i % 3]);
    else if (names_of == OF_FIELDS)
        snprintf(texts[i], sizeof texts[i], "%s%c|%c", head, (char)('!' + i / 4), "abcd"[i % 4]);
    else if (names_of == OF_RESERVED && is_refused(i))
        snprintf(texts[i], sizeof texts[i], "tw:%s", head);
    else
        snprintf(texts[i], sizeof texts[i], "%s%zu", head, i);
}

static tw_status add_inside(size_t i, int64_t delta, int64_t *view) {
    tw_enter(rig.engine);
    tw_status status = tw_add(family, key_of(i), delta, view);
    assert_int_equal(twi_thread_here()->depth, 1);
    assert_true(twi_load_relaxed(&twi_thread_slot(twi_thread_here())->epoch) != 0); /* the section stays open */
    tw_leave(rig.engine);
    return status;
}

static tw_status add(size_t i, int64_t delta, int64_t *view) {
    switch (way) {
    case SLOW: return twi_add_slow(family, key_of(i), delta, view);
    case AT: return tw_add_at(family, key_of(i), delta, rig_now(&rig), view);
    case INSIDE:
    case LONG_IN: return add_inside(i, delta, view);
    case PIN:
        return i < KEYS && pins[i] != NULL ? tw_pin_add(pins[i], delta, view) : tw_add(family, key_of(i), delta, view);
    default: return tw_add(family, key_of(i), delta, view);
    }
}

static bool find(size_t i, struct twi_place *place) {
    struct twi_call call;
    if (is_refused(i)) return false;
    assert_status(twi_call_begin(&call, family, key_of(i)), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    bool found = twi_place_find(&call, place);
    twi_call_end(&call);
    return found;
}

/* Counters that are hot and there. Making stripes marks a counter for Redis. */
static void stripe_all(void) {
    for (size_t i = 0; i <= KEYS_HOT; i++) {
        struct twi_place place;
        if (!find(i, &place) || (place.meta & TWI_META_STRIPED) != 0) continue;
        twi_contention_request(rig.engine, place.generation, place.cell, TWI_NO_LIMIT);
        rig_turn(&rig);
    }
}

static int64_t draw_delta(struct test_prng *prng) {
    static const int64_t rare[] = {
        0, INT32_MAX, INT32_MIN, (int64_t)INT32_MAX + 1, TW_DELTA_MAX, -TW_DELTA_MAX, TW_DELTA_MAX + 1, INT64_MIN};
    if (test_prng_chance(prng, 1, 6)) return rare[test_prng_below(prng, sizeof rare / sizeof rare[0])];
    return (int64_t)test_prng_below(prng, 2001) - 1000;
}

/* The time is where an engine with a thread of its own writes it; else each call asks for it. */
static void hold_time(bool held) {
    struct twi_clock *clock = &rig.engine->clock;
    int64_t now_ms = rig_now(&rig);
    assert_i64_equal(twi_clock_now_ms(clock), now_ms);
    twi_store_relaxed(&clock->word,
                      TWI_CLOCK_WORD(now_ms) + (held && way != TIMED ? TWI_CLOCK_RELIED : TWI_CLOCK_READ));
}

/* A few adds: one after the other, or as a group. */
static void play_burst(struct test_prng *prng) {
    tw_key keys[BURST];
    size_t which[BURST];
    int64_t deltas[BURST], times[BURST], views[BURST];
    tw_status each[BURST];
    bool sees = test_prng_chance(prng, 1, 2), refuses = test_prng_chance(prng, 1, 8);
    for (size_t i = 0; i < BURST; i++) {
        which[i] = refuses && test_prng_chance(prng, 1, 8)
                       ? KEYS
                       : 1 + test_prng_below(prng, test_prng_chance(prng, 1, 2) ? KEYS_HOT : KEYS - 1);
        keys[i] = key_of(which[i]);
        deltas[i] = draw_delta(prng);
        times[i] = rig_now(&rig);
        views[i] = -1;
    }
    int64_t *seen = sees ? views : NULL;
    hold_time(true);
    if (way == GROUP || way == LONG_GROUP) {
        (void)tw_add_many(family, keys, deltas, BURST, seen, each);
    } else if (way == GROUP_AT) {
        (void)tw_add_many_at(family, keys, deltas, BURST, times, seen, each);
    } else {
        for (size_t i = 0; i < BURST; i++) each[i] = add(which[i], deltas[i], sees ? &views[i] : NULL);
    }
    hold_time(false);
    for (size_t i = 0; i < BURST; i++) {
        note("answer", each[i]);
        if (is_refused(which[i]) && each[i] != TW_ERR_RANGE) assert_status(each[i], TW_ERR_KEY);
        if (sees && each[i] >= 0) note("view", views[i]);
    }
}

/* Key 0 alone: its sum comes to the end of the range, from both sides. What a striped counter has counted before it was
 * striped it cannot count again the other way, so that is nothing here. */
static void play_edge(void) {
    tw_key keys[16];
    int64_t deltas[16], times[16], views[16];
    tw_status each[16];
    assert_status(add(0, 0, NULL), TW_OK);
    if (way == STRIPED) stripe_all();
    for (int round = 0; round < 70; round++) {
        for (int k = 0; k < 16; k++) {
            keys[k] = key_of(0);
            deltas[k] = (round < 35 ? -1 : 1) * (round % 35 < 17 ? TW_DELTA_MAX : INT64_C(1) << (53 - round % 35));
            times[k] = rig_now(&rig);
        }
        hold_time(true);
        if (way == GROUP || way == LONG_GROUP)
            (void)tw_add_many(family, keys, deltas, 16, views, each);
        else if (way == GROUP_AT)
            (void)tw_add_many_at(family, keys, deltas, 16, times, views, each);
        else
            for (int k = 0; k < 16; k++) each[k] = add(0, deltas[k], &views[k]);
        hold_time(false);
        for (int k = 0; k < 16; k++) {
            note("answer at the edge", each[k]);
            if (each[k] >= 0) note("view at the edge", views[k]);
        }
    }
}

/* What is owed to Redis, by key; and Redis answers totals in which others have counted. Where marks are not noted,
 * counters may be marked that nobody has added to: then others have not counted either. */
static void collect(struct test_prng *prng, bool notes_marks) {
    struct twi_cell *cells[KEYS];
    int64_t owed[KEYS + 1] = {0}, items[KEYS + 1] = {0}, more = (int64_t)test_prng_below(prng, 1000);
    struct twi_place place;
    if (!family->kind.synced) return;
    for (size_t i = 0; i < KEYS; i++) cells[i] = find(i, &place) ? place.cell : NULL;
    while (hand_collect(1000) != 0) continue;
    while (hand->count != 0) {
        const struct twi_item *item = &hand->held[hand->count - 1];
        size_t i = 0;
        while (i < KEYS && cells[i] != item->cell) i++; /* KEYS: the overflow counter */
        owed[i] += item->delta;
        items[i]++;
        totals[i] += item->delta + (notes_marks ? more + (int64_t)i : 0);
        hand_acknowledge(totals[i]);
    }
    for (size_t i = 0; i <= KEYS; i++) note("owed", owed[i]);
    for (size_t i = 0; i <= KEYS && notes_marks; i++) note("items", items[i]);
}

static void note_all(void) {
    static const char *const shown[] = {"view", "local", "total", "unsent"};
    for (size_t i = 0; i < KEYS; i++) {
        tw_reading reading;
        int64_t view;
        if (is_refused(i)) {
            assert_status(tw_get(family, key_of(i), &view), TW_ERR_KEY);
            continue;
        }
        assert_status(tw_get(family, key_of(i), &view), TW_OK);
        assert_status(tw_read(family, key_of(i), &reading), TW_OK);
        const int64_t values[] = {reading.view, reading.local, reading.known ? reading.total : -1, reading.unsent};
        assert_i64_equal(view, reading.view);
        for (size_t k = 0; k < 4; k++) note(shown[k], values[k]);
    }
    struct rig_seen seen = rig_each(family, TW_NOW);
    note("counters", (int64_t)seen.counters);
    note("their sum", seen.sum);
    note("overflow", seen.overflow);
    tw_stats stats;
    assert_status(tw_stats_read(rig.engine, &stats), TW_OK);
    note("increments", (int64_t)stats.increments);
    note("overflow_increments", (int64_t)stats.overflow_increments);
    note("rejected_increments", (int64_t)stats.rejected_increments);
    note("late_increments", (int64_t)stats.late_increments);
    note("entries", (int64_t)stats.entries);
    note("windows_closed", (int64_t)stats.windows_closed);
}

static void open_pins(void) {
    for (size_t i = 0; i < KEYS; i++) {
        pins[i] = NULL;
        assert_status(tw_pin_open(family, key_of(i), &pins[i]), is_refused(i) ? TW_ERR_KEY : TW_OK);
    }
}

/* And the unsent counts of it is sent. */
static void end_window(struct test_prng *prng) {
    rig_pass(&rig, TW_MINUTE);
    collect(prng, true);
    rig_settle(&rig);
    memset(totals, 0, sizeof totals);
}

/* The whole script by one way; what it gives is in `notes`. */
static void play(uint64_t seed, bool synced, uint32_t on_full) {
    struct test_prng prng;
    test_prng_seed(&prng, seed);
    notes.count = 0;
    memset(totals, 0, sizeof totals);
    if (synced)
        hand_open(&rig);
    else
        rig_open(&rig);
    rig.engine->hashing.fn = hash_now; /* families choose their fast paths by it */
    tw_family_options options = rig_options("f", TW_WINDOW_ALIGNED, TW_MINUTE);
    options.keys_max = KEYS_MAX;
    bool is_unsized = way == UNSIZED, is_long = way >= LONG_KEY && way <= LONG_GROUP;
    is_long = is_long || way == LONG_IN;
    options.keys_expected = is_unsized ? 1 /* too few for an area */ : KEYS_MAX;
    options.on_full = on_full;
    if (names_of == OF_FIELDS) {
        options.redis_shape = TW_REDIS_HASH;
        options.fields = "a,b,c,d";
    }
    if (names_of == OF_RESERVED) options.redis_key = "%k:%Y%m%d%H%M";
    family = rig_family_of(&rig, &options);
    if (twi_section_may_be_short()) assert_true(family->kind.hot_add != twi_add_slow);
    const char *head = way == HUNDRED     ? "a key that is so long that its record has three lines of memory, "
                                            "and the third has its last bytes "
                       : is_long          ? "a key that is longer than 32 bytes "
                       : way == TINY_KEY  ? ""
                       : way == BLOCK_KEY ? "one block "
                       : way == WIDE_KEY  ? "up to 32 bytes: key "
                                          : "key ";
    for (size_t i = 0; i < KEYS; i++) write_key(i, head);
    if (way == PIN) open_pins();
    for (int burst = 0; burst < BURSTS; burst++) {
        if (burst == BURSTS / 3) {
            end_window(&prng);
            play_edge();
        }
        if (test_prng_chance(&prng, 1, 2)) {
            if (way == STRIPED) stripe_all();
            collect(&prng, false);
        }
        const struct twi_generation *generation = twi_load_acquire(&family->current);
        bool has_area = twi_load_relaxed(&generation->area.places[is_long]) != 0;
        with_area += has_area && !is_long;
        with_long += has_area && is_long;
        assert_false(is_unsized && has_area);
        if (has_area) assert_int_equal(generation->area.lines, way == HUNDRED ? 3 : is_long ? 2 : 1);
        play_burst(&prng);
        if (test_prng_chance(&prng, 1, 3)) collect(&prng, true);
        if (test_prng_chance(&prng, 1, 4)) note_all();
        if (test_prng_chance(&prng, 1, 20)) end_window(&prng);
    }
    note_all();
    if (way == PIN)
        for (size_t i = 0; i < KEYS; i++) tw_pin_close(pins[i]);
    if (synced)
        hand_close(&rig);
    else
        rig_close(&rig);
}

static void compare(void) {
    size_t least = notes.count < first.count ? notes.count : first.count;
    for (size_t i = 0; i < least; i++) {
        if (notes.all[i].what == first.all[i].what && notes.all[i].value == first.all[i].value) continue;
        fail_msg("%s%s: note %zu: %s is %lld; by %s: %s is %lld", hash_now == twi_hash_sip ? "portable " : "",
                 names[way], i, notes.all[i].what, (long long)notes.all[i].value, names[FAST], first.all[i].what,
                 (long long)first.all[i].value);
    }
    assert_int_equal(notes.count, first.count);
}

static void play_every_way(bool synced, enum names_of of, uint32_t on_full) {
    uint64_t fresh = test_scale(10), seeds[10000];
    size_t count = test_seeds("adding", fresh < 10000 ? fresh : 10000, seeds, 10000);
    names_of = of;
    with_area = with_long = 0;
    for (size_t s = 0; s < count; s++) {
        test_seed_begins("adding", seeds[s]);
        for (int portable = 0; portable < (test_is_slow() ? 1 : 2); portable++) {
            hash_now = portable ? twi_hash_sip : twi_hash_choose();
            for (way = FAST; way < WAYS; way++) {
                play(seeds[s], synced, on_full);
                if (way == FAST && !portable)
                    first = notes;
                else
                    compare();
            }
        }
        test_seed_ends();
    }
    assert_true(with_area > 0 && with_long > 0);
}

TEST(every_way_of_adding_gives_the_same_without_redis) {
    play_every_way(false, ANY_KEY, TW_ON_FULL_OVERFLOW);
    play_every_way(false, ANY_KEY, TW_ON_FULL_REJECT);
}

TEST(every_way_of_adding_gives_the_same_with_redis) {
    play_every_way(true, ANY_KEY, TW_ON_FULL_OVERFLOW);
    play_every_way(true, ANY_KEY, TW_ON_FULL_REJECT);
}

TEST(every_way_of_adding_refuses_keys_without_a_declared_field) {
    play_every_way(false, OF_FIELDS, TW_ON_FULL_OVERFLOW);
    play_every_way(true, OF_FIELDS, TW_ON_FULL_REJECT);
}

TEST(every_way_of_adding_refuses_names_of_the_engine) {
    play_every_way(true, OF_RESERVED, TW_ON_FULL_OVERFLOW);
}
