/* allocations.c -- what may happen where a turn allocates or frees memory. The process forks there: what the turn is
 * changing is half changed then, and the child makes the engine new, counts and closes it. Or no memory is left.
 * Method: this program defines malloc and its relatives in front of libc's. The thread that makes the turns forks
 * inside them, once for each place in the code. What the turn has just freed is filled in the child, which must neither
 * write it nor free it again. In other tests a part of the allocations fails. Skipped under sanitizers, which define
 * the same functions.
 * Always true: each child ends by itself, with its counts unsent or sent. At the end Redis has all counts of the
 * parent.
 * Covers: engine/core/processes.c, lose_torn() in engine/engine.c, driver_abandon() in sync/driver.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/children.h"

#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <unistd.h>

#define PLACES 4096u
#define CALLERS 8 /* so many callers are a place */
#define ROUNDS 60
#define KEYS 200

static tw_engine *engine;
static bool is_shared;
static tw_family *plain, *hard, *reported, *unique;
static bool armed; /* this program has one thread; the engine's others do not make turns */
static uint64_t places[PLACES];
static uint32_t forks, fails_of_100; /* so many allocations fail; 0: none, and the process forks */
static struct test_prng prng;

/* ---- in front of libc -------------------------------------------------------------------------------------------- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they allocate before main() */
#define FREED 0xA5
static unsigned char *freed; /* by the parent, just before the fork */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *block);

/* Returns true for a place that is new. */
static bool is_new_place(void) {
    void *callers[CALLERS];
    uint64_t hash = 1;
    for (int i = 0, count = backtrace(callers, CALLERS); i < count; i++)
        hash = (hash ^ (uintptr_t)callers[i]) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = (uint32_t)(hash >> 52); places[i] != hash; i = (i + 1) % PLACES) {
        if (places[i] != 0) continue;
        places[i] = hash;
        return true;
    }
    return false;
}

static void count_as_a_child(void) {
    for (int i = 0; i < 5; i++) {
        tw_verdict verdict;
        char key[16];
        snprintf(key, sizeof key, "w%d", i);
        tw_status status = tw_add(plain, tw_str("child"), 1, NULL);
        if (status == TW_OK) status = tw_add(plain, tw_str(key), 1, NULL);
        if (status == TW_OK) status = tw_add(reported, tw_str("child"), 1, NULL);
        if (status == TW_OK) status = tw_distinct_add(unique, tw_str("child"), tw_str(key), NULL);
        if (status != TW_OK) _exit(2);
        (void)tw_acquire(hard, tw_str(key), 1, 100, &verdict);
        if (tw_turn(engine) != (is_shared ? TW_PENDING : TW_OK)) _exit(3);
    }
    /* A private engine has counts, and no connection yet; between two of its turns a crowded machine gives it one. */
    tw_status status = tw_close(engine, 0);
    if (status != TW_OK && (is_shared || status != TW_ERR_TIMEOUT)) _exit(4);
    for (size_t i = 0; freed != NULL && i < malloc_usable_size(freed); i++)
        if (freed[i] != FREED) _exit(6);
    _exit(0);
}

/* `block` is what was freed just now; NULL: nothing. The child sees if it is written or freed again. */
static void fork_with(void *block) {
    if (!armed || fails_of_100 != 0) return;
    armed = false;
    if (is_new_place()) {
        forks++;
        pid_t pid = child_fork(60);
        if (pid == 0) {
            if (block != NULL) memset(block, FREED, malloc_usable_size(block));
            freed = block;
            count_as_a_child();
        }
        child_expect_end(pid);
    }
    armed = true;
}

static bool fails(void) {
    if (!armed || fails_of_100 == 0 || !test_prng_chance(&prng, fails_of_100, 100)) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size) {
    if (fails()) return NULL;
    void *block = __libc_malloc(size);
    fork_with(NULL);
    return block;
}
void *calloc(size_t count, size_t size) {
    if (fails()) return NULL;
    void *block = __libc_calloc(count, size);
    fork_with(NULL);
    return block;
}
void *realloc(void *old, size_t size) {
    if (old == NULL) return malloc(size);
    if (fails()) return NULL;
    if (!armed || fails_of_100 != 0) return __libc_realloc(old, size);
    size_t before = malloc_usable_size(old);
    void *block = __libc_malloc(size); /* always another one */
    if (block == NULL) return NULL;
    memcpy(block, old, before < size ? before : size);
    free(old);
    return block;
}
void free(void *block) {
    if (block != NULL && block == freed) _exit(5);
    if (block != NULL) fork_with(block);
    __libc_free(block);
}
#endif

/* ---- the parent -------------------------------------------------------------------------------------------------- */

static bool close_hook(void *ctx, tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    (void)ctx, (void)family, (void)start_ms, (void)end_ms, (void)flags;
    return true;
}

static void open_all(const char *url) {
    tw_options options;
    quick_options(&options, url);
    options.threads = TW_HOST_DRIVEN;
    options.shared = is_shared ? TW_SHARED_BY_FORK : TW_SHARED_NO;
    assert_status(test_open(&options, &engine), TW_OK);
    plain = family_of(engine, "plain", TW_WINDOW_FOREVER, 0);
    unique = kind_of(engine, "unique", TW_KIND_DISTINCT);
    tw_family_options one = plain_family_options("hard", TW_WINDOW_FOREVER, 0);
    one.limit_mode = TW_LIMIT_HARD;
    hard = opened_family(engine, one);
    one = plain_family_options("reported", TW_WINDOW_ALIGNED, 1000);
    one.closed_by = TW_CLOSED_BY_ONE;
    one.on_window_closed = close_hook;
    reported = opened_family(engine, one);
}

/* Keys of each kind; those with a w are of a wrong type in Redis. */
static void count(struct redis_server *server, int round) {
    char key[32];
    for (int i = 0; i < KEYS; i++) {
        tw_verdict verdict;
        snprintf(key, sizeof key, "k%d", i);
        assert_status(tw_add(plain, tw_str(key), 1, NULL), TW_OK);
        (void)tw_acquire(hard, tw_str(key), 1, 100, &verdict);
        if (i % 16 != 0) continue;
        assert_status(tw_add(reported, tw_str(key), 1, NULL), TW_OK);
        assert_status(tw_distinct_add(unique, tw_str("u"), tw_str(key), NULL), TW_OK);
        snprintf(key, sizeof key, "plain:w%d", round * KEYS + i);
        redis_server_ask(server, "RPUSH", key, "no number", NULL);
        assert_status(tw_add(plain, tw_str(key + sizeof "plain:" - 1), 1, NULL), TW_OK);
    }
}

static void turn_for_ms(int64_t ms) {
    int64_t until_ms = test_mono_ms() + ms;
    while (test_mono_ms() < until_ms) {
        armed = true;
        tw_status status = tw_turn(engine);
        armed = false;
        assert_status(status, TW_OK);
        usleep(1000);
    }
}

/* Then Redis accepts the counters that it has refused. */
static void delete_lists(struct redis_server *server) {
    redis_server_ask(server, "EVAL", "for _, k in ipairs(redis.call('KEYS', 'plain:w*')) do redis.call('DEL', k) end",
                     "0", NULL);
}

static void begin(struct redis_server *server, bool shared, uint32_t failing_of_100) {
    is_shared = shared;
    forks = 0;
    memset(places, 0, sizeof places);
    redis_server_start(server, NULL);
    open_all(server->url);
    if (is_shared) assert_status(tw_lead(engine), TW_OK);
    fails_of_100 = failing_of_100;
}

static void fork_in_turns(bool shared) {
    struct redis_server server;
    begin(&server, shared, 0);
    for (int round = 0; round < ROUNDS; round++) {
        count(&server, round);
        turn_for_ms(30);
        if (round == ROUNDS / 3) redis_server_ask(&server, "FLUSHALL", NULL); /* it is restored */
        if (round == ROUNDS / 2) {
            redis_server_kill(&server);
            turn_for_ms(200);
            redis_server_restart(&server);
        }
    }
    print_message("# forked at %u places\n", forks);
    assert_true(forks > 50);
    delete_lists(&server);
    assert_true(test_wait(is_flushed, engine, TEST_PATIENCE_MS));
    assert_status(tw_close(engine, 3000), TW_OK); /* after a wipe no window is closed by one engine for 45 s */
    redis_server_destroy(&server);
}

TEST(a_private_engine_is_forked_at_each_allocation_of_a_turn) {
    fork_in_turns(false);
}

TEST(a_shared_engine_is_forked_at_each_allocation_of_a_turn) {
    fork_in_turns(true);
}

/* Goal: turns without memory do what they can, and the rest later: no count is lost, doubled or uncertain. */
TEST(allocations_of_turns_fail) {
    test_prng_seed(&prng, test_seed());
    for (int i = 0; i < 6; i++) {
        struct redis_server server;
        begin(&server, i % 2 != 0, (const uint32_t[]){3, 20, 50}[i / 2]);
        for (int round = 0; round < ROUNDS / 4; round++) {
            count(&server, round);
            turn_for_ms(30);
        }
        fails_of_100 = 0;
        delete_lists(&server);
        assert_true(test_wait(is_flushed, engine, TEST_PATIENCE_MS));
        assert_i64_equal(sum_of(&server, "plain:k*"), ROUNDS / 4 * KEYS);
        assert_i64_equal(sum_of(&server, "plain:w*"), ROUNDS / 4 * ((KEYS + 15) / 16));
        assert_i64_equal(test_stat_of(engine, lost), 0);
        assert_i64_equal(test_stat_of(engine, uncertain), 0);
        assert_status(tw_close(engine, TEST_PATIENCE_MS), TW_OK);
        redis_server_destroy(&server);
    }
}

int main(void) {
    redis_server_require();
    test_skip_unshared();
    void *callers[CALLERS];
    (void)backtrace(callers, CALLERS); /* the first call allocates */
    return test_run();
}
