/* cluster_load.c -- four processes count over a real cluster while all its slots move, some of them there and back, and
 * while its masters are killed one after the other, also where the replica that takes over is seconds behind. Every sum
 * is right to the unit.
 *
 * Each process notes in shared memory what it has added to which key. At the end it flushes; then each key in Redis
 * must have the sum of all processes. A quarter of the keys are strings, half are fields of hashes, a quarter are
 * members of a sorted set. Always true: no count is reported lost or uncertain. */
#include "tests/redis/cluster/cluster_support.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PROCESSES = 4, REPLICAS = 3, SUBJECTS = 20 };

static struct {
    _Atomic bool is_over;
    _Atomic int64_t sums[CLUSTER_KEYS];
    _Atomic int64_t lost, uncertain, calls, rollbacks, replayed;
    _Atomic int ready;
    char log[PROCESSES][8192];
} * page;

/* ---- strings, hashes and a sorted set ---------------------------------------------------------------------------- */

static const char *const families[] = {
    [TW_REDIS_STRING] = "load", [TW_REDIS_HASH] = "hashes", [TW_REDIS_ZSET] = "ranking"};

static uint32_t shape_of(int key) {
    static const uint32_t shapes[] = {TW_REDIS_STRING, TW_REDIS_HASH, TW_REDIS_ZSET, TW_REDIS_HASH};
    return shapes[key % 4];
}

static void open_family(uint32_t shape, tw_family **family) {
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = families[shape];
    options.window = TW_WINDOW_FOREVER;
    options.redis_tags = CLUSTER_TAGS;
    options.redis_shape = shape;
    assert_status(tw_family_open(rig.engine, &options, family), TW_OK);
}

static void key_text(int key, char text[24]) {
    int used = shape_of(key) == TW_REDIS_HASH ? snprintf(text, 24, "s%d|", key / 2 % SUBJECTS) : 0;
    snprintf(text + used, 24 - (size_t)used, "k%d", key);
}

/* What the cluster has of that key, read as any other program reads it. */
static int64_t total_of(int key) {
    char name[64], text[24], subject[16];
    key_text(key, text);
    snprintf(subject, sizeof subject, "s%d", key / 2 % SUBJECTS);
    unsigned tag = twi_key_slot_tags(CLUSTER_TAGS)[twi_key_slot_crc16(subject, strlen(subject)) % CLUSTER_TAGS];
    switch (shape_of(key)) {
    case TW_REDIS_STRING: cluster_name_of(key, name, sizeof name); break;
    case TW_REDIS_HASH: snprintf(name, sizeof name, "hashes:{%u}:%s", tag, subject); break;
    default: snprintf(name, sizeof name, "ranking");
    }
    struct redis_server *server = redis_cluster_server(&cluster, cluster.owners[twi_key_slot_of(name, strlen(name))]);
    if (shape_of(key) == TW_REDIS_STRING) return redis_server_get(server, name);
    if (shape_of(key) == TW_REDIS_ZSET) return atoll(redis_server_ask(server, "ZSCORE", name, text, NULL));
    return atoll(redis_server_ask(server, "HGET", name, strchr(text, '|') + 1, NULL));
}

/* ---- the load ---------------------------------------------------------------------------------------------------- */

static int count_as_process(int process) {
    char text[24];
    tw_family *by_shape[3];
    struct test_prng prng;
    test_prng_seed(&prng, (uint64_t)process + 1);
    cluster_open_engine(families[TW_REDIS_STRING], NULL);
    for (uint32_t shape = 0; shape < 3; shape++) open_family(shape, &by_shape[shape]);
    atomic_fetch_add(&page->ready, 1);
    while (!atomic_load(&page->is_over)) {
        for (int i = 0; i < 50; i++) {
            int key = (int)test_prng_below(&prng, CLUSTER_KEYS);
            key_text(key, text);
            if (tw_add(by_shape[shape_of(key)], tw_str(text), 1, NULL) != TW_OK) return 2;
            atomic_fetch_add(&page->sums[key], 1);
            atomic_fetch_add(&page->calls, 1);
        }
        test_sleep_ms(20);
    }
    tw_status status = tw_flush(rig.engine, 60000);
    atomic_fetch_add(&page->lost, test_stat_of(rig.engine, lost));
    atomic_fetch_add(&page->uncertain, test_stat_of(rig.engine, uncertain));
    atomic_fetch_add(&page->rollbacks, test_stat_of(rig.engine, rollbacks));
    atomic_fetch_add(&page->replayed, test_stat_of(rig.engine, replayed));
    tw_status closed = tw_close(rig.engine, 5000);
    snprintf(page->log[process], sizeof page->log[process], "%s/%s: %.8000s", tw_status_name(status),
             tw_status_name(closed), rig.lines.text);
    if (status != TW_OK) return 3;
    return closed == TW_OK ? 0 : 4;
}

/* `what` is done to the cluster while all count. */
static void run_load(void (*what)(void)) {
    pid_t pids[PROCESSES];
    memset(page, 0, sizeof *page);
    snprintf(family_name, sizeof family_name, "%s", families[TW_REDIS_STRING]);
    for (int i = 0; i < PROCESSES; i++) {
        fflush(NULL);
        pids[i] = test_fork();
        if (pids[i] == 0) _exit(count_as_process(i));
    }
    while (atomic_load(&page->ready) < PROCESSES) test_sleep_ms(10);
    test_sleep_ms(500); /* processes count before it is done */
    what();
    test_sleep_ms(500); /* processes count after it was done */
    atomic_store(&page->is_over, true);
    bool went_well = true;
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        waitpid(pids[i], &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        went_well = false;
        print_error("process %d ended with %d:\n%s\n", i, status, page->log[i]);
    }
    for (int key = 0; key < CLUSTER_KEYS; key++) {
        added[key] += atomic_load(&page->sums[key]);
        assert_true(added[key] > 0); /* each was counted: so each type is there */
    }
    assert_true(went_well && atomic_load(&page->calls) > 0);
    int64_t missing = 0, above = 0;
    for (int key = 0; key < CLUSTER_KEYS; key++) {
        int64_t is = total_of(key);
        if (is < added[key]) missing += added[key] - is;
        if (is > added[key]) above += is - added[key];
    }
    if (missing || above)
        for (int i = 0; i < PROCESSES; i++) print_error("%d: %s\n", i, page->log[i]);
    assert_i64_equal(missing, 0);
    assert_i64_equal(above, 0);
    assert_i64_equal(atomic_load(&page->lost), 0);
    assert_i64_equal(atomic_load(&page->uncertain), 0);
}

/* Each master gives all its slots to the next one, and gets an eighth of them back: those are where they once were. */
static void move_everything(void) {
    uint32_t firsts[CLUSTER_MASTERS + 1];
    for (uint32_t i = 0; i <= CLUSTER_MASTERS; i++) firsts[i] = i * CLUSTER_SLOTS / CLUSTER_MASTERS;
    for (size_t i = 0; i < CLUSTER_MASTERS; i++)
        redis_cluster_move(&cluster, firsts[i], firsts[i + 1] - 1, (i + 1) % CLUSTER_MASTERS);
    for (size_t i = 0; i < CLUSTER_MASTERS; i++)
        redis_cluster_move(&cluster, firsts[i], firsts[i] + (firsts[i + 1] - firsts[i]) / 8 - 1, i);
}

static void kill_masters(void) {
    for (size_t master = 0; master < CLUSTER_MASTERS; master++) {
        size_t replica = CLUSTER_MASTERS + master;
        redis_server_kill(redis_cluster_server(&cluster, master));
        redis_cluster_wait_takeover(&cluster, replica, master);
        test_sleep_ms(1000); /* processes count at the new master */
        redis_server_restart(redis_cluster_server(&cluster, master));
        redis_cluster_wait_follower(&cluster, master, replica);
        test_sleep_ms(1000); /* processes count while it follows */
    }
}

/* Every replica is cut off for two seconds; then one of the masters dies. (The test before has left the first nodes as
 * replicas.) */
static void kill_a_master_whose_replica_lags(void) {
    for (size_t i = 0; i < CLUSTER_MASTERS; i++) redis_cluster_cut_off(&cluster, i, CLUSTER_MASTERS + i);
    test_sleep_ms(2000); /* the replicas lack so much */
    redis_server_kill(redis_cluster_server(&cluster, CLUSTER_MASTERS));
    redis_cluster_wait_takeover(&cluster, 0, CLUSTER_MASTERS);
    for (size_t i = 0; i < CLUSTER_MASTERS; i++) redis_cluster_rejoin(&cluster, i);
    test_sleep_ms(500); /* processes count after it */
}

TEST(nothing_is_lost_while_every_slot_moves) {
    run_load(move_everything);
}

TEST(nothing_is_lost_while_masters_are_killed) {
    run_load(kill_masters);
}

/* Goal: what the replica lacks is sent again by each process, once. */
TEST(what_a_lagging_replica_lacks_is_sent_again) {
    run_load(kill_a_master_whose_replica_lags);
    assert_true(atomic_load(&page->rollbacks) >= PROCESSES);
    assert_true(atomic_load(&page->replayed) > 0);
}

int main(void) {
    page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    redis_cluster_start(&cluster, CLUSTER_MASTERS, REPLICAS, cluster_server_options);
    int failed = test_run();
    redis_cluster_destroy(&cluster);
    return failed;
}
