/* idle_eviction_test.c -- endless families where idle keys make room (engine/turn/idle_eviction.c), step by step,
 * against a Redis that is a table in this file: what is acknowledged is added to it, in order, and the total goes
 * back.
 * Covers: engine/count/lookup.c. */
#include "tests/unit/hand_driver.h"

#include "engine/turn/turn.h"
#include "engine/core/window_map.h"
#include "engine/limit/decision.h"

#include <sys/wait.h>
#include <unistd.h>

#define KEYS 64u
#define IDLE_MS 1000

/* What Redis holds, by key "k0" ... "k63"; the last is the overflow counter. */
static int64_t store[KEYS + 1];

static size_t slot_of(const struct twi_item *item) {
    if ((item->flags & TWI_ITEM_OVERFLOW) != 0) return KEYS;
    char text[16] = "";
    tw_key key = twi_port_key(item);
    memcpy(text, (const char *)key.data + 1, key.size - 1);
    return (size_t)atoi(text);
}

/* The oldest item that was collected is answered: applied, with the total; or refused. */
static void answer_first(bool refused) {
    struct twi_item item = hand->held[0];
    memmove(hand->held, hand->held + 1, --hand->count * sizeof item);
    if (refused) {
        twi_port_return(&item, 0);
        return;
    }
    store[slot_of(&item)] += item.delta;
    struct twi_reply answer = {.total = store[slot_of(&item)], .has_total = true};
    twi_port_acknowledge(&item, &answer);
}

static void sync_all(void) {
    for (int round = 0; round < 100; round++) {
        size_t count = hand_collect(512);
        while (hand->count != 0) answer_first(false);
        if (count < 512) return;
    }
}

static const char *name_of(uint32_t number) {
    static char names[4][16];
    static unsigned next;
    char *name = names[next++ % 4];
    snprintf(name, 16, "k%u", number);
    return name;
}

static tw_family_options eviction_options(uint64_t keys_max) {
    tw_family_options options = rig_options("aged", TW_WINDOW_FOREVER, 0);
    options.on_full = TW_ON_FULL_EVICT_IDLE;
    options.idle_ms = IDLE_MS;
    options.keys_max = keys_max;
    return options;
}

static tw_family *eviction_open(struct rig *rig, uint64_t keys_max) {
    memset(store, 0, sizeof store);
    hand_open(rig);
    tw_family_options options = eviction_options(keys_max);
    tw_family *family = rig_family_of(rig, &options);
    rig_turn(rig);
    return family;
}

/* Some turns, and what they need of Redis. */
static void turns(struct rig *rig, int count) {
    for (; count > 0; count--) {
        rig_turn(rig);
        sync_all();
    }
}
static void an_era_passes(struct rig *rig) {
    fake_clock_advance_ms(&rig->clock, IDLE_MS);
    turns(rig, 6);
}

/* Goal: a family that cannot age is refused, and the field is named (trap E26). Method: each wrong set of options. */
TEST(what_cannot_age_is_refused_by_name) {
    struct rig rig;
    hand_open(&rig);
    struct {
        uint32_t window, on_full;
        int64_t window_ms, idle_ms;
        uint64_t keys_max;
        const char *field;
    } cases[] = {
        {TW_WINDOW_ALIGNED, TW_ON_FULL_EVICT_IDLE, 0, 0, 0, "on_full: "},
        {TW_WINDOW_FROM_FIRST, TW_ON_FULL_EVICT_IDLE, 0, 0, 0, "on_full: "},
        {TW_WINDOW_FOREVER, 3, 0, 0, 0, "on_full: "},
        {TW_WINDOW_FOREVER, TW_ON_FULL_OVERFLOW, 0, 500, 0, "idle_ms: "},
        {TW_WINDOW_FOREVER, TW_ON_FULL_EVICT_IDLE, 0, 99, 0, "idle_ms: "},
        {TW_WINDOW_FOREVER, TW_ON_FULL_EVICT_IDLE, 0, -5, 0, "idle_ms: "},
        {TW_WINDOW_FOREVER, TW_ON_FULL_EVICT_IDLE, 0, INT64_MAX, 0, "idle_ms: "},
        {TW_WINDOW_FOREVER, TW_ON_FULL_EVICT_IDLE, 0, 0, 1, "keys_max: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char error[256] = "";
        tw_family_options options = rig_options("wrong", cases[i].window, cases[i].window_ms);
        options.on_full = cases[i].on_full;
        options.idle_ms = cases[i].idle_ms;
        options.keys_max = cases[i].keys_max;
        options.error_text = error;
        options.error_size = sizeof error;
        tw_family *family;
        assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
        assert_memory_equal(error, cases[i].field, strlen(cases[i].field));
    }
    hand_close(&rig);
    rig_open(&rig); /* no Redis */
    char error[256] = "";
    tw_family_options options = eviction_options(0);
    options.error_text = error;
    options.error_size = sizeof error;
    tw_family *family;
    assert_status(tw_family_open(rig.engine, &options, &family), TW_ERR_OPTIONS);
    assert_memory_equal(error, "on_full: ", 9);
    rig_close(&rig);
}

/* Goal: policies may be set, idle eviction itself neither begun nor ended. */
TEST(a_family_neither_begins_nor_ends_to_age) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 40);
    tw_family_options options = eviction_options(20);
    options.idle_ms = 5000;
    assert_status(tw_family_set(family, &options), TW_OK);
    assert_i64_equal(twi_load_relaxed(&family->quota.keys_max), 10);
    assert_i64_equal(twi_load_relaxed(&family->policy.idle_ms), 5000);
    options.on_full = TW_ON_FULL_REJECT;
    options.idle_ms = 0;
    assert_status(tw_family_set(family, &options), TW_ERR_OPTIONS);
    options = rig_options("plain", TW_WINDOW_FOREVER, 0);
    tw_family *plain = rig_family_of(&rig, &options);
    options.on_full = TW_ON_FULL_EVICT_IDLE;
    assert_status(tw_family_set(plain, &options), TW_ERR_OPTIONS);
    hand_close(&rig);
}

/* Goal: an idle key leaves when Redis has its count; when it comes back its total is unknown, then known again
 * (E26). */
TEST(an_idle_key_leaves_and_comes_back_unknown) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 0);
    assert_i64_equal(rig_add(family, "k1", 7), 7);
    turns(&rig, 1);
    assert_true(rig_read(family, "k1").known);
    for (int i = 0; i < 4; i++) an_era_passes(&rig);
    assert_i64_equal(test_stat_of(rig.engine, evicted), 1);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    assert_i64_equal(store[1], 7);
    assert_i64_equal(rig_get(family, "k1"), 0);
    tw_reading reading = rig_read(family, "k1");
    assert_false(reading.known);
    assert_i64_equal(rig_add(family, "k1", 2), 2);
    tw_verdict verdict;
    assert_status(tw_acquire(family, tw_str("k1"), 1, 9, &verdict), TW_OK);
    assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
    sync_all();
    reading = rig_read(family, "k1");
    assert_true(reading.known);
    assert_i64_equal(reading.view, 10);
    assert_i64_equal(reading.total, 10);
    assert_status(tw_acquire(family, tw_str("k1"), 1, 10, &verdict), TW_DENIED);
    assert_int_equal(verdict.decided_by, TW_BY_VIEW);
    assert_i64_equal(verdict.window_start_ms, 0);
    hand_close(&rig);
}

/* Goal: a denied call on a key of unknown total asks for it, so that the next is decided on it. */
TEST(a_denied_call_on_an_unknown_key_asks_for_its_total) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 0);
    hand_live(&rig, 1);
    store[1] = -90; /* others have given back */
    assert_i64_equal(rig_add(family, "k1", 100), 100);
    tw_verdict verdict;
    assert_status(tw_acquire(family, tw_str("k1"), 1, 100, &verdict), TW_DENIED);
    assert_int_equal(verdict.decided_by, TW_BY_OUTAGE);
    sync_all();
    assert_status(tw_acquire(family, tw_str("k1"), 1, 100, &verdict), TW_OK);
    hand_close(&rig);
}

/* Goal: a key that is used moves along from era to era. It keeps its total, and is counted as evicted by nobody. */
TEST(a_key_in_use_moves_along_and_keeps_its_total) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 0);
    store[1] = 1000;
    int64_t sum = 0;
    for (int era = 0; era < 12; era++) {
        (void)rig_add(family, "k1", 3);
        sum += 3;
        turns(&rig, 1);
        assert_true(rig_read(family, "k1").known);
        assert_i64_equal(rig_read(family, "k1").view, 1000 + sum);
        assert_i64_equal(rig_read(family, "k1").local, sum);
        an_era_passes(&rig);
    }
    assert_true(twi_load_relaxed(&family->eviction_epoch) >= 5);
    assert_i64_equal(test_stat_of(rig.engine, evicted), 0);
    assert_i64_equal(store[1], 1000 + sum);
    hand_close(&rig);
}

/* The hook of another family's window: it takes long, and meanwhile "k1" is used. */
struct slow_hook {
    struct rig *rig;
    tw_family *family;
    int64_t epoch_at_use;
};

static bool use_in_a_slow_hook(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    struct slow_hook *hook = ctx;
    (void)family, (void)start_ms, (void)end_ms, (void)flags;
    fake_clock_advance_ms(&hook->rig->clock, IDLE_MS * 6 / 10);
    (void)rig_add(hook->family, "k1", 1);
    hook->epoch_at_use = twi_load_relaxed(&hook->family->eviction_epoch);
    return true;
}

/* Goal: a key stays for idle_ms from its last use, even if the turn that begins the next epoch had read the clock long
 * before (E25). Method: an earlier part of that turn, the hook of another family, takes long, and uses the key. */
TEST(a_turn_that_takes_long_takes_no_time_from_a_key) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 0);
    struct slow_hook hook = {.rig = &rig, .family = family, .epoch_at_use = -1};
    tw_family_options options = rig_options("slow", TW_WINDOW_ALIGNED, IDLE_MS);
    options.history_ms = TW_NONE;
    options.on_window_closed = use_in_a_slow_hook;
    options.closed_ctx = &hook;
    tw_family *slow = rig_family_of(&rig, &options);
    (void)rig_add(family, "k1", 7);
    (void)rig_add(slow, "k2", 1);
    turns(&rig, 2);
    fake_clock_advance_ms(&rig.clock, IDLE_MS);
    rig_turn(&rig);
    assert_i64_equal(hook.epoch_at_use, 0); /* used before the epoch that this turn has begun: */
    assert_i64_equal(twi_load_relaxed(&family->eviction_epoch), 1);
    sync_all();
    fake_clock_advance_ms(&rig.clock, IDLE_MS / 2);
    turns(&rig, 6);
    assert_i64_equal(test_stat_of(rig.engine, evicted), 0);
    fake_clock_advance_ms(&rig.clock, IDLE_MS / 2);
    turns(&rig, 6);
    assert_i64_equal(test_stat_of(rig.engine, evicted), 1);
    assert_i64_equal(store[1], 8);
    hand_close(&rig);
}

/* Brings "k1" to where its cell of the previous era is frozen and still owes `rest`, Redis having 10 of it. */
static void freeze_owing(struct rig *rig, tw_family *family, int64_t rest) {
    (void)rig_add(family, "k1", 10);
    turns(rig, 1);
    an_era_passes(rig); /* k1 is in the previous generation now */
    assert_i64_equal(twi_load_relaxed(&family->eviction_epoch), 1);
    (void)rig_add(family, "k1", rest);
    fake_clock_advance_ms(&rig->clock, IDLE_MS);
    rig_turn(rig); /* sealed, and its heir made: it was used */
    assert_i64_equal(twi_load_relaxed(&family->eviction_epoch), 1);
}

/* Goal: what a call has taken and must give back leaves the family's sum, though the key's counter has been evicted and
 * there is room for no other one (P1). Method: the key leaves, and then others fill the generation. tw_acquire_all()
 * undoes in this way what it took for its earlier claims. */
TEST(units_are_undone_without_room_for_their_key) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 4);
    assert_status(tw_acquire(family, tw_str("k1"), 3, 100, NULL), TW_OK);
    for (int i = 0; i < 4; i++) an_era_passes(&rig);
    assert_i64_equal(test_stat_of(rig.engine, entries), 0);
    (void)rig_add(family, "k2", 1);
    (void)rig_add(family, "k3", 1);
    assert_status(tw_add(family, tw_str("k4"), 1, NULL), TW_OVERFLOWED);
    assert_status(family->kind.limit->undo(family, tw_str("k1"), 3, 100, 0), TW_OK);
    sync_all();
    assert_i64_equal(store[1] + store[KEYS], 1);
    hand_close(&rig);
}

/* Goal: what a frozen cell owes is sent once, by itself; its heir shows all of it throughout (P2, P3, trap E5).
 * Method: the heir is added to before the rest is collected; both items are on the way at once, in either order of
 * answers' totals; then the first is refused once. */
TEST(a_frozen_rest_is_sent_once_and_shown_throughout) {
    for (int refused = 0; refused < 2; refused++) {
        struct rig rig;
        tw_family *family = eviction_open(&rig, 0);
        freeze_owing(&rig, family, 5);
        tw_reading reading = rig_read(family, "k1");
        assert_i64_equal(reading.view, 15);
        assert_i64_equal(reading.unsent, 5);
        assert_i64_equal(reading.total, 10);
        assert_i64_equal(rig_add(family, "k1", 100), 115);
        assert_int_equal(hand_collect(100), 2); /* the rest, and the heir's own */
        while (hand->count != 0) {
            answer_first(refused != 0 && hand->count == 2);
            assert_i64_equal(rig_get(family, "k1"), 115);
            assert_i64_equal(rig_read(family, "k1").total, store[1]);
            assert_i64_equal(rig_read(family, "k1").unsent, 115 - store[1]);
        }
        sync_all();
        assert_i64_equal(store[1], 115);
        assert_i64_equal(rig_get(family, "k1"), 115);
        an_era_passes(&rig);
        assert_i64_equal(rig_get(family, "k1"), 115);
        assert_i64_equal(store[1], 115);
        hand_close(&rig);
    }
}

/* Goal: a total that comes with a frozen cell's rest is its heir's too: idle from then on, it would never learn it
 * (trap E7). */
TEST(an_heir_learns_the_total_that_its_predecessor_is_told) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 0);
    freeze_owing(&rig, family, 5);
    store[1] += 1000; /* by others */
    assert_int_equal(hand_collect(100), 1);
    answer_first(false);
    tw_reading reading = rig_read(family, "k1");
    assert_i64_equal(reading.view, 1015);
    assert_i64_equal(reading.total, 1015);
    assert_i64_equal(reading.unsent, 0);
    hand_close(&rig);
}

struct seen {
    int times[KEYS];
    int64_t view[KEYS], local[KEYS], spilled;
};

static bool see(void *ctx, const tw_count *count) {
    struct seen *seen = ctx;
    assert_i64_equal(count->start_ms, 0);
    assert_true(count->end_ms == INT64_MAX);
    if (count->key.size == 0) {
        seen->spilled += count->local;
        return true;
    }
    char text[16] = "";
    memcpy(text, (const char *)count->key.data + 1, count->key.size - 1);
    seen->times[atoi(text)]++;
    seen->view[atoi(text)] = count->view;
    seen->local[atoi(text)] = count->local;
    return true;
}

/* Goal: a walk shows each key once, wherever it is: previous, current, or frozen with an heir. */
TEST(a_walk_shows_each_key_once) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 0);
    (void)rig_add(family, "k2", 20); /* idle: frozen, no heir */
    freeze_owing(&rig, family, 5);
    (void)rig_add(family, "k1", 100);
    (void)rig_add(family, "k3", 30); /* of the current era */
    struct seen seen = {0};
    assert_status(tw_each(family, TW_NOW, see, &seen), TW_OK);
    assert_int_equal(seen.times[1], 1);
    assert_int_equal(seen.times[2], 1);
    assert_int_equal(seen.times[3], 1);
    assert_i64_equal(seen.view[1], 115);
    assert_i64_equal(seen.view[2], 20);
    assert_i64_equal(seen.view[3], 30);
    hand_close(&rig);
}

/* Goal: with Redis unreachable keys_max holds, keys that are there continue, new ones overflow, and no count is lost
 * (E25). */
TEST(without_redis_keys_max_holds_and_nothing_is_lost) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 16);
    int64_t added[KEYS + 1] = {0};
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t key = round % KEYS;
        tw_status status = tw_add(family, tw_str(name_of(key)), 1, NULL);
        assert_true(status == TW_OK || status == TW_OVERFLOWED);
        added[status == TW_OK ? key : KEYS]++;
        if (round % 7 == 0) fake_clock_advance_ms(&rig.clock, 300);
        rig_turn(&rig); /* nobody collects */
        assert_true(test_stat_of(rig.engine, entries) <= 16);
    }
    assert_i64_equal(test_stat_of(rig.engine, evicted), 0);
    assert_true(added[KEYS] != 0);
    sync_all();
    for (uint32_t key = 0; key <= KEYS; key++) assert_i64_equal(store[key], added[key]);
    turns(&rig, 10);
    assert_status(tw_add(family, tw_str("k63"), 1, NULL), TW_OK); /* there is room again */
    hand_close(&rig);
}

/* Goal: ever new keys, as long as Redis answers, are all taken, within keys_max. */
TEST(ever_new_keys_find_room) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 20);
    for (uint32_t round = 0; round < 640; round++) {
        assert_status(tw_add(family, tw_str(name_of(round / 4 % KEYS)), 1, NULL), TW_OK);
        turns(&rig, 4);
        assert_true(test_stat_of(rig.engine, entries) <= 20);
    }
    int64_t sum = 0;
    for (uint32_t key = 0; key <= KEYS; key++) sum += store[key];
    assert_i64_equal(sum, 640);
    assert_true(test_stat_of(rig.engine, evicted) >= 100);
    hand_close(&rig);
}

/* Whatever is collected is acknowledged, new keys and one old one ("old", whose total is `*old`); returns the sum. */
static int64_t sync_new_keys(int64_t *old) {
    int64_t sum = 0;
    for (size_t count = 512; count == 512;) {
        count = hand_collect(512);
        for (; hand->count != 0; hand->count--) {
            struct twi_item item = hand->held[hand->count - 1];
            tw_key key = twi_port_key(&item);
            bool is_old = key.size == 3 && memcmp(key.data, "old", 3) == 0;
            if (is_old) *old += item.delta;
            sum += item.delta;
            struct twi_reply answer = {.total = is_old ? *old : item.delta, .has_total = true};
            twi_port_acknowledge(&item, &answer);
        }
    }
    return sum;
}

/* Goal: idle keys make room by bytes as they do by number: with memory_share alone, and with nothing but the engine's
 * memory, ever new keys are all taken, memory stays below its bound, no count is lost, and a key in use keeps its
 * total.
 * Method: a hundred new keys a turn, many times more than fit; idle_ms never comes into it. */
TEST(ever_new_keys_find_room_by_bytes) {
    for (int by_engine = 0; by_engine < 2; by_engine++) {
        struct rig rig;
        hand_init(&rig);
        if (by_engine) rig.options.memory_bytes_max = UINT64_C(4) << 20;
        rig_start(&rig);
        twi_port_connected(rig.engine, true);
        tw_family_options options = eviction_options(0);
        options.idle_ms = TW_DAY;
        if (!by_engine) options.memory_share = UINT64_C(1) << 20;
        tw_family *family = rig_family_of(&rig, &options);
        rig_turn(&rig);
        int64_t old = 0, sum = 0, added = 0, most = 0, old_added = 0;
        for (int round = 0; round < 800; round++) {
            char key[24];
            for (int i = 0; i < 100; i++, added++) {
                snprintf(key, sizeof key, "new %d %d", round, i);
                assert_status(tw_add(family, tw_str(key), 1, NULL), TW_OK);
            }
            assert_i64_equal(rig_add(family, "old", 1), ++old_added);
            added++;
            for (int turn = 0; turn < 3; turn++) {
                fake_clock_advance_ms(&rig.clock, 20);
                rig_turn(&rig);
                sum += sync_new_keys(&old);
            }
            int64_t bytes = by_engine ? test_memory_bytes(rig.engine) : twi_load_relaxed(&family->quota.bytes);
            if (bytes > most) most = bytes;
        }
        assert_true(most <= (by_engine ? INT64_C(4) << 20 : INT64_C(1) << 20));
        assert_true(most > (by_engine ? INT64_C(1) << 20 : INT64_C(1) << 18)); /* and most of the room is used */
        assert_i64_equal(sum, added);
        assert_i64_equal(old, old_added);
        assert_true(test_stat_of(rig.engine, evicted) > 60000);
        assert_i64_equal(test_stat_of(rig.engine, overflow_increments), 0);
        hand_close(&rig);
    }
}

/* Goal: a pin follows its key over its moves and its absence, and never counts in another's memory (trap E32). */
TEST(a_pin_follows_its_key) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 8);
    tw_pin *pin;
    assert_status(tw_pin_open(family, tw_str("k1"), &pin), TW_OK);
    int64_t others = 0;
    for (uint32_t round = 0; round < 300; round++) {
        if (round % 9 == 0) assert_status(tw_pin_add(pin, 1, NULL), TW_OK);
        assert_status(tw_add(family, tw_str(name_of(2 + round % 30)), 1, NULL), TW_OK);
        others++;
        turns(&rig, 6);
    }
    tw_pin_close(pin);
    assert_i64_equal(store[1], 34);
    int64_t sum = 0;
    for (uint32_t key = 2; key <= KEYS; key++) sum += store[key];
    assert_i64_equal(sum, others);
    hand_close(&rig);
}

static bool era_has_moved(void *ctx) {
    return false;
}

/* Goal: who still acts by an era that is over gives no key a second place (trap E22).
 * Method: a call that has read era 0 finds nothing and stalls; the era moves on and the key begins in era 1; then the
 * stalled call continues to make it. */
TEST(a_late_inserter_gives_no_key_two_places) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 0);
    (void)rig_add(family, "k9", 1);
    struct twi_call call;
    struct twi_place place;
    assert_status(twi_call_begin(&call, family, tw_str("k1")), TW_OK);
    assert_status(twi_call_now(&call), TW_OK);
    assert_i64_equal(call.unix_ms, 0);
    assert_false(twi_place_find(&call, &place));
    fake_clock_advance_ms(&rig.clock, IDLE_MS);
    for (int i = 0; i < 6; i++) { /* tw_turn() is refused inside a section, though another thread's is not */
        rig_run_turn(rig.engine);
        sync_all();
    }
    assert_i64_equal(rig_add(family, "k1", 4), 4);
    assert_status(twi_place_make(&call, &place), TWI_AGAIN);
    /* the same had it stalled after its last look at the era, right before its insert */
    struct twi_cell *cell = NULL;
    struct twi_inherited nothing = {0};
    struct twi_insert insert = {&rig.engine->arena, twi_window_find(family, 0), call.self, call.lookup, 0, &nothing, 0,
                                TWI_NO_VACANCY};
    assert_non_null(insert.generation);
    enum twi_found found = twi_table_insert(&insert, era_has_moved, NULL, &cell);
    assert_true(found == TWI_CLOCK_MOVED || found == TWI_GONE_SEALED);
    assert_status(twi_call_now(&call), TW_OK);
    assert_i64_equal(call.unix_ms, 1);
    assert_true(twi_place_find(&call, &place));
    assert_i64_equal(twi_cell_view(place.cell, place.meta), 4);
    twi_call_end(&call);
    hand_close(&rig);
}

/* Goal: what is not sent when the engine closes is reported to the unit, wherever it stands. */
TEST(closing_reports_what_both_generations_owe) {
    struct rig rig;
    struct lost_log log = {0};
    memset(store, 0, sizeof store);
    hand_init(&rig);
    rig.options.on_lost = lost_write;
    rig.options.lost_ctx = &log;
    rig_start(&rig);
    twi_port_connected(rig.engine, true);
    tw_family_options options = eviction_options(0);
    tw_family *family = rig_family_of(&rig, &options);
    rig_turn(&rig);
    freeze_owing(&rig, family, 5);
    (void)rig_add(family, "k1", 100);
    assert_status(tw_close(rig.engine, 0), TW_ERR_TIMEOUT);
    assert_i64_equal(log.delta, 105);
    assert_i64_equal(log.start_ms, 0);
}

/* Goal: of a Redis that lost everything, what this family had there is counted as lost, to the unit, and nothing is
 * told again: evicted keys could not be. Method: an evicted key, one that moved, one in each generation; then the
 * wipe. */
TEST(what_a_wiped_redis_had_is_lost_to_the_unit) {
    struct rig rig;
    tw_family *family = eviction_open(&rig, 0);
    (void)rig_add(family, "k2", 20);
    freeze_owing(&rig, family, 5);
    turns(&rig, 4); /* k2 has gone, k1 has moved */
    assert_i64_equal(test_stat_of(rig.engine, evicted), 1);
    (void)rig_add(family, "k3", 30);
    sync_all();
    (void)rig_add(family, "k3", 4);
    assert_i64_equal((int64_t)twi_port_restore(rig.engine, 0), 20 + 10 + 5 + 30);
    while (twi_port_restore_some(rig.engine)) continue;
    memset(store, 0, sizeof store);
    turns(&rig, 4);
    assert_i64_equal(store[1] + store[2], 0);
    assert_i64_equal(store[3], 4);
    hand_close(&rig);
}

/* Goal: a forked child begins again, and ages on. */
TEST(a_forked_child_ages_on) {
    if (test_misses_wiped_pages()) return;
    struct rig rig;
    tw_family *family = eviction_open(&rig, 0);
    (void)rig_add(family, "k1", 10);
    an_era_passes(&rig);
    an_era_passes(&rig);
    pid_t pid = fork();
    if (pid == 0) {
        int64_t view = 0;
        bool good = tw_add(family, tw_str("k1"), 3, &view) == TW_OK && view == 3;
        for (int i = 0; i < 40 && good; i++) {
            fake_clock_advance_ms(&rig.clock, IDLE_MS / 4);
            good = tw_turn(rig.engine) == TW_OK;
        }
        _exit(good && tw_add(family, tw_str("k2"), 1, &view) == TW_OK && view == 1 ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    hand_close(&rig);
}

/* ---- the twin ---- */

struct twin {
    int64_t applied[KEYS + 1]; /* everything that was added, by where it was answered to be */
};

/* Goal: under any order of adds, reads, turns, answers, refusals and time, every unit is in one place, a known view is
 * the true total to the unit, and keys_max holds.
 * Method: random operations next to sums kept by hand. One engine only: so a view that is known is exact. */
TEST(under_random_operations_known_views_are_exact) {
    uint64_t seeds[24];
    size_t count = test_seeds("idle_eviction", 16, seeds, 24);
    for (size_t s = 0; s < count; s++) {
        struct test_prng prng;
        test_prng_seed(&prng, seeds[s]);
        uint64_t keys_max = test_prng_chance(&prng, 1, 4) ? 0 : 4 + test_prng_below(&prng, 60);
        struct rig rig;
        struct twin twin = {0};
        tw_family *family = eviction_open(&rig, keys_max);
        for (uint64_t step = 0; step < test_scale(6000); step++) {
            /* the keys in favour drift */
            uint32_t key = (uint32_t)((step / 200 + test_prng_below(&prng, 1 + test_prng_below(&prng, 40))) % KEYS);
            const char *name = name_of(key);
            switch (test_prng_below(&prng, 12)) {
            case 0:
            case 1:
            case 2:
            case 3: {
                int64_t delta = test_prng_between(&prng, -3, 9);
                tw_status status = tw_add(family, tw_str(name), delta, NULL);
                if (status != TW_OK && status != TW_OVERFLOWED)
                    fail_msg("seed 0x%llx: add answers %d", (unsigned long long)seeds[s], status);
                twin.applied[status == TW_OK ? key : KEYS] += delta;
                break;
            }
            case 4:
            case 5: {
                tw_reading reading;
                assert_status(tw_read(family, tw_str(name), &reading), TW_OK);
                if (reading.known && reading.view != twin.applied[key])
                    fail_msg("seed 0x%llx step %llu: view %lld, truth %lld", (unsigned long long)seeds[s],
                             (unsigned long long)step, (long long)reading.view, (long long)twin.applied[key]);
                if (reading.known) {
                    assert_i64_equal(reading.total, store[key]);
                    assert_i64_equal(reading.unsent, twin.applied[key] - store[key]);
                }
                break;
            }
            case 6: {
                tw_verdict verdict;
                tw_status status =
                    tw_acquire(family, tw_str(name), 1, 1 + (int64_t)test_prng_below(&prng, 500), &verdict);
                assert_true(status >= 0);
                if (status == TW_OK && verdict.decided_by != TW_BY_FULL) twin.applied[key]++;
                break;
            }
            case 7: (void)hand_collect(1 + test_prng_below(&prng, 8)); break;
            case 8:
                if (hand->count != 0) answer_first(test_prng_chance(&prng, 1, 8));
                break;
            case 9:
                if (test_prng_chance(&prng, 1, 2)) sync_all();
                break;
            case 10: fake_clock_advance_ms(&rig.clock, (int64_t)test_prng_below(&prng, IDLE_MS)); break;
            default: rig_turn(&rig); break;
            }
            if (keys_max != 0) assert_true(test_stat_of(rig.engine, entries) <= (int64_t)keys_max);
        }
        sync_all();
        for (uint32_t key = 0; key <= KEYS; key++)
            if (store[key] != twin.applied[key])
                fail_msg("seed 0x%llx key %u: %lld in Redis, %lld added", (unsigned long long)seeds[s], key,
                         (long long)store[key], (long long)twin.applied[key]);
        hand_close(&rig);
    }
}
