/* cluster_waiting.c -- calls that wait, while their slot moves from one master of a real cluster to the other, key by
 * key: strict limits, tw_once, locks, reservations and slots in use (tw_hold), each from several threads. The slot has
 * some thousand other keys, so the move takes two seconds, and a call has a third of a second.
 *
 * A script that names several keys runs only where all of them are; a key that does not exist is nowhere. So in a slot
 * that moves nobody becomes the first, gets a free lock or reserves. Always true: each call ends by its deadline. What
 * callers were told is what Redis has: no unit is granted twice, and nothing is oversold. */
#include "tests/redis/sync_support.h"
#include "tests/support/redis_cluster.h"

#include "engine/base/key_slot.h"

#include <pthread.h>

enum { MASTERS = 2, FILLING = 3000, AT_ONCE = 40, TIMEOUT_MS = 300, EACH = 2, STOCK = 60, ONCE_MAX = 20000 };

static struct redis_cluster cluster;
static tw_engine *engine;

enum kind { STRICT, ONCE, LOCK, RESERVE, HOLD, COUNT, KINDS };
static const char *const names[KINDS] = {"strict", "once", "lock", "reserve", "hold", "count"};

static struct {
    tw_family *families[KINDS];
    _Atomic bool stops, moves;
    _Atomic int64_t longest_ms;
    _Atomic int64_t done[KINDS], done_in_move[KINDS], refused[KINDS], mistakes[KINDS];
    _Atomic int64_t granted, confirmed, counted;
    _Atomic int firsts[ONCE_MAX];
    _Atomic int once_done[EACH];
    _Atomic int holders, in_use;
    _Atomic uint64_t fence;
} page;

/* Without the time in which no processor was free for this thread: that is none that a call takes. */
static int64_t own_ms(void) {
    return test_mono_ms() - test_starved_ms();
}

static void note(enum kind kind, bool is_done, int64_t begin_ms, bool began_in_move) {
    int64_t took_ms = own_ms() - begin_ms, longest_ms = atomic_load(&page.longest_ms);
    while (took_ms > longest_ms && !atomic_compare_exchange_weak(&page.longest_ms, &longest_ms, took_ms)) continue;
    atomic_fetch_add(is_done ? &page.done[kind] : &page.refused[kind], 1);
    if (is_done && began_in_move && atomic_load(&page.moves)) atomic_fetch_add(&page.done_in_move[kind], 1);
}

/* Runs the call, and notes how it ended. */
#define timed(kind, call, is_done) \
    do { \
        int64_t begin_ms = own_ms(); \
        bool in_move = atomic_load(&page.moves); \
        call; \
        note((kind), (is_done), begin_ms, in_move); \
    } while (0)

/* The call may be made again. TW_ERR_TIMEOUT: its last try was still under way at the deadline. TW_ERR_BUSY: others
 * were answered until then, and it was never sent. */
static bool is_unanswered(tw_status status) {
    return status == TW_ERR_REDIS || status == TW_ERR_TIMEOUT || status == TW_ERR_BUSY;
}

/* A call that was not done. */
static void refuse(enum kind kind, tw_status status) {
    if (status == TW_DENIED || is_unanswered(status)) return;
    print_error("%s: %s\n", names[kind], tw_status_name(status));
    atomic_fetch_add(&page.mistakes[kind], 1);
}

static void take(int caller, int round) {
    tw_verdict verdict;
    tw_status status;
    char key[8];
    snprintf(key, sizeof key, "k%d", round % 8);
    timed(STRICT, status = tw_acquire(page.families[STRICT], tw_str(key), 1, 1000000, &verdict),
          verdict.decided_by == TW_BY_REDIS);
    if (status == TW_OK) atomic_fetch_add(&page.granted, 1);
    if (status == TW_OK && verdict.decided_by != TW_BY_REDIS) atomic_fetch_add(&page.mistakes[STRICT], 1);
}

/* Both callers go through the same keys, each at its own pace. */
static void be_first(int caller, int round) {
    int at = atomic_load(&page.once_done[caller]);
    bool first = false;
    tw_status status;
    char key[16];
    if (at == ONCE_MAX) at--; /* the last key again, for which nobody is the first any more */
    snprintf(key, sizeof key, "once%d", at);
    timed(ONCE, status = tw_once(page.families[ONCE], tw_str(key), &first), status == TW_OK);
    if (status != TW_OK) {
        refuse(ONCE, status);
        return;
    }
    if (first) atomic_fetch_add(&page.firsts[at], 1);
    atomic_store(&page.once_done[caller], at + 1);
}

static void lock(int caller, int round) {
    char token[TW_TOKEN_SIZE];
    uint64_t fence = 0;
    tw_status status;
    (void)caller, (void)round;
    timed(LOCK, status = tw_lock(page.families[LOCK], tw_str("job"), 30000, token, &fence),
          status == TW_OK || status == TW_DENIED);
    if (status != TW_OK) {
        refuse(LOCK, status);
        return;
    }
    if (atomic_fetch_add(&page.holders, 1) != 0) atomic_fetch_add(&page.mistakes[LOCK], 1);
    if (atomic_exchange(&page.fence, fence) >= fence) atomic_fetch_add(&page.mistakes[LOCK], 1);
    test_sleep_ms(2);
    atomic_fetch_sub(&page.holders, 1);
    bool perhaps = false;
    do { /* until it is free: also after a move */
        timed(LOCK, status = tw_lock_release(page.families[LOCK], tw_str("job"), token), status == TW_OK);
        perhaps |= status == TW_ERR_TIMEOUT;
    } while (is_unanswered(status));
    if (status != TW_OK && !(perhaps && status == TW_ERR_LATE)) atomic_fetch_add(&page.mistakes[LOCK], 1);
}

/* Perhaps it was reserved. */
static void give_back(const char *token) {
    tw_status status;
    do {
        status = tw_reserve_cancel(engine, token);
    } while (is_unanswered(status));
    if (status != TW_OK && status != TW_ERR_UNKNOWN_TOKEN) atomic_fetch_add(&page.mistakes[RESERVE], 1);
}

/* Every other reservation is cancelled. */
static void buy(int caller, int round) {
    char token[TW_TOKEN_SIZE];
    tw_status status;
    bool keeps = round % 2 == 0;
    timed(RESERVE, status = tw_reserve(page.families[RESERVE], tw_str("sku"), 1, STOCK, 60000, tw_str(""), token, NULL),
          status == TW_OK || status == TW_DENIED);
    if (status != TW_OK) {
        refuse(RESERVE, status);
        if (status == TW_ERR_TIMEOUT) give_back(token);
        return;
    }
    do {
        timed(RESERVE, status = keeps ? tw_reserve_confirm(engine, token) : tw_reserve_cancel(engine, token),
              status == TW_OK);
    } while (is_unanswered(status));
    if (status != TW_OK) atomic_fetch_add(&page.mistakes[RESERVE], 1);
    if (keeps) atomic_fetch_add(&page.confirmed, 1);
    test_sleep_ms(20);
}

/* One of the two callers has the slot at a time. */
static void use(int caller, int round) {
    tw_verdict verdict;
    tw_status status;
    (void)caller, (void)round;
    timed(HOLD, status = tw_hold(page.families[HOLD], tw_str("jobs"), 1, &verdict), verdict.decided_by == TW_BY_REDIS);
    if (status != TW_OK) return;
    if (atomic_fetch_add(&page.in_use, 1) != 0) atomic_fetch_add(&page.mistakes[HOLD], 1);
    test_sleep_ms(2);
    atomic_fetch_sub(&page.in_use, 1);
    timed(HOLD, status = tw_hold_release(page.families[HOLD], tw_str("jobs")), status == TW_OK);
    if (status != TW_OK) atomic_fetch_add(&page.mistakes[HOLD], 1);
}

static void add(int caller, int round) {
    tw_status status;
    (void)caller, (void)round;
    timed(COUNT, status = tw_add(page.families[COUNT], tw_str("k"), 1, NULL), status == TW_OK);
    if (status == TW_OK) atomic_fetch_add(&page.counted, 1);
    test_sleep_ms(1);
}

static void (*const calls[KINDS])(int caller, int round) = {take, be_first, lock, buy, use, add};

static void *call(void *ctx) {
    int number = (int)(intptr_t)ctx;
    for (int round = 0; !atomic_load(&page.stops); round++) calls[number / EACH](number % EACH, round);
    return NULL;
}

static void open_all(void) {
    char url[512];
    tw_options options;
    redis_cluster_url(&cluster, url, sizeof url);
    quick_options(&options, url);
    options.redis_timeout_ms = TIMEOUT_MS;
    assert_status(test_open(&options, &engine), TW_OK);
    for (int kind = 0; kind < KINDS; kind++) {
        tw_family_options family;
        tw_family_options_init(&family);
        family.name = names[kind];
        family.window = TW_WINDOW_FOREVER;
        family.limit_mode = kind == STRICT || kind == ONCE ? TW_LIMIT_STRICT : TW_LIMIT_SOFT;
        family.on_outage = TW_OUTAGE_FAIL_CLOSED;
        family.redis_tags = 1; /* all in one slot */
        assert_status(tw_family_open(engine, &family, &page.families[kind]), TW_OK);
    }
}

static const char *name_of(enum kind kind, const char *key) {
    static char name[64];
    snprintf(name, sizeof name, "%s:{%u}:%s", names[kind], (unsigned)twi_key_slot_tags(1)[0], key);
    return name;
}

static int64_t in_redis(enum kind kind, const char *key) {
    const char *name = name_of(kind, key);
    return redis_server_get(redis_cluster_server(&cluster, cluster.owners[twi_key_slot_of(name, strlen(name))]), name);
}

/* Of these scripts a key is missing, at either end of a move; of the others none is, or they name one key only. */
static bool waits_for_the_move(enum kind kind) {
    return kind == ONCE || kind == LOCK || kind == RESERVE;
}

static bool have_met_the_move(void *unused) {
    bool have = true;
    for (enum kind kind = 0; kind < KINDS; kind++)
        have = have && atomic_load(waits_for_the_move(kind) ? &page.refused[kind] : &page.done_in_move[kind]) > 0;
    return have;
}

/* How often each kind of call was done, when somebody looked before. */
static int64_t done_before[KINDS];

static bool each_kind_is_done_again(void *unused) {
    bool is_done = true;
    for (int kind = 0; kind < KINDS; kind++) is_done = is_done && atomic_load(&page.done[kind]) > done_before[kind];
    return is_done;
}

static void await_calls(void) {
    for (int kind = 0; kind < KINDS; kind++) done_before[kind] = atomic_load(&page.done[kind]);
    assert_true(test_wait(each_kind_is_done_again, NULL, TEST_PATIENCE_MS));
}

/* The last keys are not moved before each kind of call has met the move. */
static void move_slowly(uint32_t slot, size_t to) {
    redis_cluster_move_begin(&cluster, slot, to);
    atomic_store(&page.moves, true);
    for (int moved = 0; redis_cluster_move_keys(&cluster, slot, to, AT_ONCE) != 0; moved += AT_ONCE) {
        test_sleep_ms(15);
        if (moved == FILLING / 2 / AT_ONCE * AT_ONCE) assert_true(test_wait(have_met_the_move, NULL, TEST_PATIENCE_MS));
    }
    atomic_store(&page.moves, false);
    redis_cluster_move_end(&cluster, slot, to);
}

static bool all_is_settled(void *unused) {
    return test_stat_of(engine, ask_unsettled) == 0;
}

static void check_books(void) {
    int64_t strict = 0;
    char key[8];
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "k%d", i);
        strict += in_redis(STRICT, key);
    }
    assert_i64_equal(strict, atomic_load(&page.granted));
    int both = atomic_load(&page.once_done[0]), other = atomic_load(&page.once_done[1]);
    if (other < both) both = other;
    assert_true(both > 0);
    for (int i = 0; i < both; i++) assert_int_equal(atomic_load(&page.firsts[i]), 1);
    assert_true(atomic_load(&page.confirmed) <= STOCK);
    assert_i64_equal(in_redis(RESERVE, "sku"), atomic_load(&page.confirmed));
    assert_status(tw_flush(engine, TEST_PATIENCE_MS), TW_OK);
    assert_i64_equal(in_redis(COUNT, "k"), atomic_load(&page.counted));
}

TEST(calls_end_by_their_deadline_and_are_done_once) {
    pthread_t threads[KINDS * EACH];
    open_all();
    const char *name = name_of(COUNT, "k");
    uint32_t slot = twi_key_slot_of(name, strlen(name));
    size_t home = cluster.owners[slot];
    char count[16];
    snprintf(count, sizeof count, "%d", FILLING);
    redis_server_ask(redis_cluster_server(&cluster, home), "EVAL",
                     "for i = 1, ARGV[1] do redis.call('SET', KEYS[1] .. i, 'x') end", "1", name_of(COUNT, "filling"),
                     count, NULL);
    for (intptr_t i = 0; i < KINDS * EACH; i++) assert_int_equal(pthread_create(&threads[i], NULL, call, (void *)i), 0);
    await_calls();
    move_slowly(slot, (home + 1) % MASTERS);
    await_calls();
    atomic_store(&page.stops, true);
    for (size_t i = 0; i < KINDS * EACH; i++) pthread_join(threads[i], NULL);
    for (int kind = 0; kind < KINDS; kind++) assert_i64_equal(atomic_load(&page.mistakes[kind]), 0);
    assert_true(atomic_load(&page.longest_ms) < 20 * TIMEOUT_MS);
    assert_true(test_stat_of(engine, tryagain) > 0);
    /* What callers do not know is settled soon. (Of holds and reservations nothing is: they end by themselves.) */
    assert_true(test_wait(all_is_settled, NULL, TEST_PATIENCE_MS));
    assert_true(test_stat_of(engine, asks_settled) <= test_stat_of(engine, asks_unknown));
    check_books();
    assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
}

int main(void) {
    redis_server_require();
    redis_cluster_start(&cluster, MASTERS, 0, NULL);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
