/* memory_plan_test.c -- the formula of `tallywheel plan` and docs/MEMORY.md, next to what real engines take. */
#include "tests/support/support.h"

#include "tools/memory_plan.h"

#define WINDOW_MS TW_HOUR

#ifdef TWI_WITH_REDIS
static const bool with_redis = true;
#else
static const bool with_redis = false;
#endif

struct rig {
    struct fake_clock clock;
    tw_engine *engine;
    tw_family *family;
};

static void begin(struct rig *rig, const struct memory_ask *ask, bool told) {
    tw_options options;
    tw_family_options family;
    fake_clock_init(&rig->clock, INT64_C(1700002800000));
    tw_options_init(&options);
    fake_clock_install(&rig->clock, &options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = UINT64_C(1) << 30;
    if (ask->redis)
        options.redis_url = "unix:///nowhere/redis.sock"; /* away: what is synced is reckoned all the same */
    assert_status(tw_open(&options, &rig->engine), TW_OK);
    tw_family_options_init(&family);
    family.name = "views";
    family.window_ms = WINDOW_MS;
    family.history_ms = ask->closed > 0 ? (int64_t)ask->closed * WINDOW_MS : TW_NONE;
    if (told) family.keys_expected = ask->keys;
    assert_status(tw_family_open(rig->engine, &family, &rig->family), TW_OK);
}

static void turns(struct rig *rig, int count, int64_t ms) {
    for (int i = 0; i < count; i++) {
        fake_clock_advance_ms(&rig->clock, ms);
        assert_status(tw_turn(rig->engine), TW_OK);
    }
}

static void fill(struct rig *rig, const struct memory_ask *ask) {
    char key[TW_KEY_SIZE_MAX];
    memset(key, 'k', sizeof key);
    for (uint64_t i = 0; i < ask->keys; i++) {
        memcpy(key, &i, ask->key_bytes < sizeof i ? ask->key_bytes : sizeof i);
        assert_status(tw_add(rig->family, tw_bytes(key, ask->key_bytes), (int64_t)(i % 100000), NULL), TW_OK);
        if (i % 500 == 0) turns(rig, 1, 1);
    }
}

/* A plan of some hundred keys is at most four times what they take; of some thousands 1.6 times. */
static void compare(const char *what, const struct memory_ask *ask, uint64_t planned, int64_t taken) {
    if (taken <= (int64_t)planned && (ask->keys < 300 || (int64_t)planned <= 4 * taken) &&
        (ask->keys < 5000 || (int64_t)planned * 5 <= 8 * taken))
        return;
    fail_msg("%s: %llu keys of %llu bytes%s: planned %llu, taken %lld", what, (unsigned long long)ask->keys,
             (unsigned long long)ask->key_bytes, ask->redis ? ", synced" : "", (unsigned long long)planned,
             (long long)taken);
}

/* Goal: a window takes no more than planned, and not much less. Method: keys of each class of length and at its bounds,
 * few and many, local and synced, told ahead and grown. */
TEST(a_window_takes_what_was_planned) {
    if (!with_redis) test_leave_out("built without Redis: install libhiredis-dev and configure with -Dredis=enabled");
    static const uint64_t lengths[] = {8,   32,  33,  64,  65,  96,  97,  128, 129, 160,
                                       161, 192, 193, 224, 225, 448, 449, 480, 481, 1024};
    static const uint64_t keys[] = {1, 20, 300, 6000, 13000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            if (keys[k] > test_scale(13000) && k > 2) continue; /* under valgrind */
            for (int way = 0; way < 4; way++) {
                if (way % 2 == 1 && !with_redis) continue;
                struct memory_ask ask = {
                    .keys = keys[k], .key_bytes = lengths[i], .open = 1, .closed = 0, .redis = way % 2 == 1};
                struct rig rig;
                bool told = way >= 2;
                begin(&rig, &ask, told);
                int64_t before = test_memory_bytes(rig.engine);
                fill(&rig, &ask);
                compare("a window", &ask, memory_plan(&ask).window,
                        test_memory_bytes(rig.engine) - (told ? 0 : before));
                (void)tw_close(rig.engine, 0);
            }
        }
    }
}

/* Goal: at no moment of several roll-overs is more taken than planned, and not much more is planned.
 * Method: an engine without Redis, windows of the same size, looked at after every turn. */
TEST(roll_overs_stay_within_the_plan) {
    static const uint64_t lengths[] = {12, 29, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct memory_ask ask = {.keys = test_scale(13000), .key_bytes = lengths[i], .open = 1, .closed = 2};
        struct memory_plan plan = memory_plan(&ask);
        struct rig rig;
        begin(&rig, &ask, false);
        int64_t most = 0;
        for (int window = 0; window < 5; window++) {
            fill(&rig, &ask);
            for (int step = 0; step < 1500; step++) { /* most of them about the end of the window */
                turns(&rig, 1, step < 60 ? WINDOW_MS / 64 : WINDOW_MS / 16 / 1500);
                int64_t now = test_memory_bytes(rig.engine);
                most = now > most ? now : most;
            }
            turns(&rig, 1, WINDOW_MS / 16);
        }
        compare("a roll-over", &ask, plan.most, most);
        (void)tw_close(rig.engine, 0);
    }
}

/* Goal: a window of history takes no more than planned. */
TEST(packed_windows_take_what_was_planned) {
    struct memory_ask ask = {.keys = test_scale(13000), .key_bytes = 29, .open = 1, .closed = 3};
    struct rig rig;
    begin(&rig, &ask, false);
    int64_t before = test_memory_bytes(rig.engine);
    fill(&rig, &ask);
    fake_clock_advance_ms(&rig.clock, WINDOW_MS);
    for (int i = 0; i < 20000 && test_stat_of(rig.engine, windows_packed) == 0; i++) turns(&rig, 1, 2);
    assert_i64_equal(test_stat_of(rig.engine, windows_packed), 1);
    turns(&rig, 500, 2);
    compare("a packed window", &ask, memory_plan(&ask).packed, test_memory_bytes(rig.engine) - before);
    (void)tw_close(rig.engine, 0);
}
