/* chaos.c -- several processes count through a network that loses replies, and Redis is killed. The sums are exact.
 * When processes are killed, too, the sums lie between the acknowledged units and what was begun. So it is with
 * strings, hashes and sorted sets: each delta goes to a family of each.
 * Method: each process writes the truth around each add into a page that all share, so it survives a kill -9. Time:
 * TW_SCALE percent of 10 s and 4 s, at most 60 s each, and then, without kills, until what the test is about has
 * happened: on a slow machine hardly a batch gets through meanwhile.
 * Covers: sync/driver.c, engine/port/services.h. */
#include "tests/redis/sync_support.h"
#include "tests/support/proxy.h"
#include "tests/support/side_by_side.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 4
#define LIVES_MAX 2048
#define SHAPES 3

static const char *const names[SHAPES] = {"chaos", "hashes", "zset"}; /* of the families, by shape */

static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};

/* The truth of one process: acknowledged <= done <= begun. Only that process writes it. */
struct life {
    _Atomic int64_t begun;        /* before the add */
    _Atomic int64_t done;         /* after it */
    _Atomic int64_t acknowledged; /* `done` as it was before the last flush that succeeded */
    _Atomic int64_t lost, uncertain, dups, ended_well;
};

struct page {
    char url[64];
    uint64_t seed;
    _Atomic bool stop;
    struct life lives[LIVES_MAX];
};

static struct page *page_make(const struct proxy *proxy) {
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    snprintf(page->url, sizeof page->url, "%s", proxy_url(proxy));
    page->seed = test_seed();
    return page;
}

/* ---- the counting process ---------------------------------------------------------------------------------------- */

/* Adds the same to a key that all share and to its own key, in each family. */
static bool add_once(tw_family *const *families, struct life *life, const char *own, int64_t delta) {
    bool well = true;
    atomic_fetch_add(&life->begun, delta);
    for (int i = 0; i < SHAPES && well; i++)
        well = tw_add(families[i], tw_str(own), delta, NULL) == TW_OK &&
               tw_add(families[i], tw_str("s|all"), delta, NULL) == TW_OK;
    atomic_fetch_add(&life->done, delta);
    return well;
}

static bool open_families(tw_engine *engine, tw_family **families) {
    for (uint32_t i = 0; i < SHAPES; i++) {
        tw_family_options options;
        tw_family_options_init(&options);
        options.name = names[i];
        options.window = TW_WINDOW_FOREVER;
        options.redis_shape = i;
        if (tw_family_open(engine, &options, &families[i]) != TW_OK) return false;
    }
    return true;
}

static bool note_stats(tw_engine *engine, struct life *life) {
    tw_stats stats;
    if (tw_stats_read(engine, &stats) != TW_OK) return false;
    atomic_store(&life->lost, stats.lost);
    atomic_store(&life->uncertain, stats.uncertain);
    atomic_store(&life->dups, stats.batches_dup);
    return true;
}

static int live(struct page *page, int index) {
    struct life *life = &page->lives[index];
    struct test_prng prng;
    tw_options options;
    tw_engine *engine;
    tw_family *families[SHAPES];
    char own[24];
    snprintf(own, sizeof own, "s|life%d", index);
    test_prng_seed(&prng, page->seed ^ (uint64_t)index);
    quick_options(&options, page->url);
    options.redis_timeout_ms = 200;
    if (test_open(&options, &engine) != TW_OK || !open_families(engine, families)) return 2;
    for (uint64_t i = 1; !atomic_load(&page->stop); i++) {
        if (!add_once(families, life, own, test_prng_between(&prng, 1, 100))) return 3;
        if (i % 16 == 0) test_sleep_ms(1);
        int64_t done = atomic_load(&life->done);
        if (i % 256 != 0) continue;
        if (tw_flush(engine, 100) == TW_OK) atomic_store(&life->acknowledged, done);
        if (!note_stats(engine, life)) return 4;
    }
    int64_t done = atomic_load(&life->done);
    if (tw_flush(engine, 30000) == TW_OK) atomic_store(&life->acknowledged, done);
    if (!note_stats(engine, life)) return 4;
    if (tw_close(engine, 10000) != TW_OK) return 5;
    atomic_store(&life->ended_well, 1);
    return 0;
}

static pid_t start_life(struct page *page, int index) {
    pid_t pid = test_fork();
    assert_true(pid >= 0);
    if (pid != 0) return pid;
    for (int fd = 3; fd < 1024; fd++) close(fd); /* otherwise a copy here would keep the proxy's connections open */
    _exit(live(page, index));
}

static void await_all(const pid_t *processes) {
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_int_equal(waitpid(processes[i], &status, 0), processes[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

/* ---- the world --------------------------------------------------------------------------------------------------- */

static void make_trouble(struct proxy *proxy) {
    proxy_chance(proxy, PROXY_DROP_REPLY, 800); /* with the next line: a tenth of all replies */
    proxy_chance(proxy, PROXY_LOSE_REPLY, 200);
    proxy_chance(proxy, PROXY_DROP_REQUEST, 200);
    proxy_chance(proxy, PROXY_CUT_REQUEST, 100);
    proxy_chance(proxy, PROXY_CUT_REPLY, 100);
    proxy_chance(proxy, PROXY_HOLD, 200);
    proxy_chance(proxy, PROXY_TWICE, 50);
    proxy_chance(proxy, PROXY_RESET, 100);
}

static void make_peace(struct proxy *proxy) {
    for (int fault = PROXY_DROP_REQUEST; fault < PROXY_FAULTS; fault++) proxy_chance(proxy, (enum proxy_fault)fault, 0);
}

static int64_t duration_ms(uint64_t ms) {
    uint64_t scaled = test_scale(ms);
    return (int64_t)(scaled < 60000 ? scaled : 60000);
}

/* Harms Redis or the connections once, at random. */
static void strike(struct redis_server *server, struct proxy *proxy, struct test_prng *prng) {
    switch (test_prng_below(prng, 8)) {
    case 0:
    case 1:
        redis_server_kill(server);
        test_sleep_ms((int64_t)test_prng_below(prng, 150));
        redis_server_restart(server);
        break;
    case 2: redis_server_ask(server, "SCRIPT", "FLUSH", NULL); break;
    case 3:
        redis_server_pause(server);
        test_sleep_ms((int64_t)test_prng_below(prng, 400));
        redis_server_resume(server);
        break;
    default: proxy_cut_all(proxy); break;
    }
}

static int64_t replies_lost(const struct proxy_seen *seen) {
    return seen->happened[PROXY_DROP_REPLY] + seen->happened[PROXY_LOSE_REPLY];
}

struct world {
    struct page *page;
    struct proxy *proxy;
    int lives;
};

static bool trouble_has_come(void *ctx) {
    const struct world *world = ctx;
    int64_t dups = 0, acknowledged = 0;
    for (int i = 0; i < world->lives; i++) {
        dups += atomic_load(&world->page->lives[i].dups);
        acknowledged += atomic_load(&world->page->lives[i].acknowledged);
    }
    struct proxy_seen seen = proxy_look(world->proxy);
    return dups > 0 && acknowledged > 0 && replies_lost(&seen) > 0;
}

/* Nobody is killed now, and the network still loses replies: sooner or later a batch is repeated, and one succeeds. */
static void await_trouble(struct page *page, struct proxy *proxy, int lives) {
    struct world world = {page, proxy, lives};
    assert_true(test_wait(trouble_has_come, &world, TEST_PATIENCE_MS));
}

static int64_t count_of(struct redis_server *server, int shape, const char *field) {
    char name[48];
    if (shape == TW_REDIS_HASH) return atoll(redis_server_ask(server, "HGET", "hashes:s", field, NULL));
    snprintf(name, sizeof name, shape == TW_REDIS_STRING ? "chaos:s|%s" : "s|%s", field);
    if (shape == TW_REDIS_STRING) return redis_server_get(server, name);
    return atoll(redis_server_ask(server, "ZSCORE", "zset", name, NULL));
}

static int64_t count_of_life(struct redis_server *server, int shape, int index) {
    char field[24];
    snprintf(field, sizeof field, "life%d", index);
    return count_of(server, shape, field);
}

static void tell(const struct proxy_seen *seen) {
    int64_t faults = 0;
    for (int i = 1; i < PROXY_FAULTS; i++) faults += seen->happened[i];
    print_message("# %lld batches, %lld faults, %lld executed late, %lld connections\n", (long long)seen->requests,
                  (long long)faults, (long long)seen->late, (long long)seen->connections);
    assert_true(replies_lost(seen) > 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Goal: the sum in Redis is exactly the sum of all increments, less what the metrics report as lost (P2). Method: four
 * processes; Redis (AOF always) and connections killed at random; a tenth of the replies lost. */
TEST(four_processes_in_chaos_agree_to_the_unit) {
    struct redis_server server;
    struct test_prng prng;
    pid_t processes[PROCESSES];
    test_prng_seed(&prng, test_seed());
    redis_server_start(&server, durable);
    struct proxy *proxy = proxy_start(&server, test_seed());
    struct page *page = page_make(proxy);
    for (int i = 0; i < PROCESSES; i++) processes[i] = start_life(page, i);
    make_trouble(proxy);
    for (int64_t until_ms = test_mono_ms() + duration_ms(10000); test_mono_ms() < until_ms;) {
        test_sleep_ms(test_prng_between(&prng, 100, 500));
        strike(&server, proxy, &prng);
    }
    await_trouble(page, proxy, PROCESSES);
    make_peace(proxy);
    atomic_store(&page->stop, true);
    await_all(processes);
    int64_t done = 0, lost = 0, dups = 0;
    for (int i = 0; i < PROCESSES; i++) {
        struct life *life = &page->lives[i];
        assert_i64_equal(life->uncertain, 0);
        assert_i64_equal(life->acknowledged, life->done);
        done += life->done, lost += life->lost, dups += life->dups;
    }
    assert_i64_equal(lost, 0); /* this Redis keeps what it acknowledged */
    for (int shape = 0; shape < SHAPES; shape++) {
        for (int i = 0; i < PROCESSES; i++) assert_i64_equal(count_of_life(&server, shape, i), page->lives[i].done);
        assert_i64_equal(count_of(&server, shape, "all"), done);
    }
    assert_true(dups > 0);
    struct proxy_seen seen = proxy_look(proxy);
    tell(&seen);
    munmap(page, sizeof *page);
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

/* Goal: a process that is killed loses at most what it had not sent, and doubles nothing (fault 41). Method: as above;
 * processes are killed -9 at random and new ones started. */
TEST(killed_processes_double_nothing) {
    struct redis_server server;
    struct test_prng prng;
    pid_t processes[PROCESSES];
    int lives = 0, killed = 0;
    test_prng_seed(&prng, test_seed() + 1);
    redis_server_start(&server, durable);
    struct proxy *proxy = proxy_start(&server, test_seed() + 1);
    struct page *page = page_make(proxy);
    for (; lives < PROCESSES; lives++) processes[lives] = start_life(page, lives);
    make_trouble(proxy);
    for (int64_t until_ms = test_mono_ms() + duration_ms(4000); test_mono_ms() < until_ms;) {
        test_sleep_ms(test_prng_between(&prng, 20, 120));
        if (test_prng_chance(&prng, 1, 8)) strike(&server, proxy, &prng);
        if (lives == LIVES_MAX) continue;
        uint64_t i = test_prng_below(&prng, PROCESSES);
        kill(processes[i], SIGKILL);
        assert_int_equal(waitpid(processes[i], NULL, 0), processes[i]);
        killed++;
        processes[i] = start_life(page, lives++);
    }
    await_trouble(page, proxy, lives);
    make_peace(proxy);
    atomic_store(&page->stop, true);
    await_all(processes);
    int64_t acknowledged = 0, begun = 0, counted = 0;
    for (int i = 0; i < lives; i++) {
        struct life *life = &page->lives[i];
        for (int shape = 0; shape < SHAPES; shape++) {
            int64_t count = count_of_life(&server, shape, i);
            assert_true(count <= life->begun);
            assert_true(count >= life->acknowledged);
            if (life->ended_well) assert_i64_equal(count, life->done);
            counted += count;
        }
        acknowledged += life->acknowledged, begun += life->begun;
    }
    for (int shape = 0; shape < SHAPES; shape++) {
        int64_t all = count_of(&server, shape, "all");
        assert_true(all >= acknowledged && all <= begun);
    }
    assert_true(killed > 0 && counted > 0);
    print_message("# %d processes killed; acknowledged %lld, counted %lld, begun %lld\n", killed,
                  (long long)acknowledged, (long long)counted / SHAPES, (long long)begun);
    struct proxy_seen seen = proxy_look(proxy);
    tell(&seen);
    munmap(page, sizeof *page);
    proxy_stop(proxy);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    /* The proxy's thread runs while children are forked: a lock that it holds inside a sanitizer stays locked there. */
    if (test_is_slow()) test_skip_program(TEST_NO_FORK_HERE);
    return test_run_side_by_side();
}
