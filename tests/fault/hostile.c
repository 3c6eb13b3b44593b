/* hostile.c -- a worker of a shared engine is hostile, and writes garbage over every page that it shares with its
 * parent, which only opens engines, forks, and calls tw_process_died() and tw_close().
 * Goal: the parent is not harmed: it ends with 0, and each of its calls ends within 2 s.
 * Method: each round forks a parent, and that one forks workers. Garbage is zeros, ones, random words, or addresses
 * that are valid in the parent. The worker has joined, or has never called; it writes once, or as long as it lives. The
 * parent is root and the worker is of another user, or both are of the same one. The worker checks that the pages of
 * the engine and its family are among those that it hits, and says how many there were. Skipped under sanitizers and
 * valgrind: their own locks do not survive the fork of a process with several threads.
 * Covers: engine/core/processes.c, engine/memory/supervisor.c. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PARENT_SECONDS 60
#define CALL_MS 2000
#define WORKER 65534
#define OTHER 65533
#define RANGES_MAX 512
#define PAGE_BYTES 4096u

enum garbage { ZEROS, ONES, WORDS, ADDRESSES, GARBAGES };
static const char *const garbage_names[] = {"zeros", "ones", "random words", "addresses"};

/* What the processes of a round tell each other. Garbage spares it. */
static struct common {
    _Atomic uint64_t pages;
    _Atomic bool has_hit, ends;
} * common;

static tw_engine *engine;
static tw_family *family;

#define NEED(condition) \
    if (!(condition)) { \
        fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, tw_error_text()); \
        _exit(1); \
    }

static void open_shared(void) {
    tw_options options;
    tw_options_init(&options);
    options.shared = TW_SHARED_BY_FORK;
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 1 << 20;
    NEED(tw_open(&options, &engine) == TW_OK);
    tw_family_options one;
    tw_family_options_init(&one);
    one.name = "one";
    one.keys_expected = 100;
    NEED(tw_family_open(engine, &one, &family) == TW_OK);
}

/* Of the process that opens it alone. */
static void open_own(void) {
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.memory_bytes_max = 1 << 20;
    NEED(tw_open(&options, &engine) == TW_OK);
    tw_family_options one;
    tw_family_options_init(&one);
    one.name = "one";
    NEED(tw_family_open(engine, &one, &family) == TW_OK);
}

/* ---- a hostile worker -------------------------------------------------------------------------------------------- */

struct ranges {
    uintptr_t first[RANGES_MAX], end[RANGES_MAX];
    size_t count;
};

static bool has(const struct ranges *ranges, const void *at) {
    for (size_t i = 0; i < ranges->count; i++)
        if ((uintptr_t)at >= ranges->first[i] && (uintptr_t)at < ranges->end[i]) return true;
    return false;
}

/* The shared pages that can be written, and what else is mapped, to choose addresses from. */
static void read_maps(struct ranges *shared, struct ranges *others) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], flags[8];
    uintptr_t first, end;
    NEED(maps != NULL);
    shared->count = others->count = 0;
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &first, &end, flags) != 3) continue;
        struct ranges *into = flags[1] == 'w' && flags[3] == 's' ? shared : others;
        bool is_common = (uintptr_t)common >= first && (uintptr_t)common < end;
        if (is_common || flags[0] != 'r' || into->count == RANGES_MAX) continue;
        into->first[into->count] = first;
        into->end[into->count++] = end;
    }
    fclose(maps);
}

static uint64_t word_of(enum garbage kind, struct test_prng *prng, const struct ranges *others) {
    if (kind == ZEROS) return 0;
    if (kind == ONES) return UINT64_MAX;
    uint64_t word = test_prng_next(prng);
    if (kind == WORDS) return word;
    size_t i = (size_t)(word >> 48) % others->count;
    return (others->first[i] + word % (others->end[i] - others->first[i])) & ~UINT64_C(7);
}

/* Words repeat after a page, so that much is written in little time. */
static void write_garbage(enum garbage kind, uint64_t seed) {
    static struct ranges shared, others;
    static uint64_t page[PAGE_BYTES / 8];
    struct test_prng prng;
    test_prng_seed(&prng, seed);
    read_maps(&shared, &others);
    NEED(engine == NULL || (has(&shared, engine) && has(&shared, family)));
    for (size_t i = 0; i < PAGE_BYTES / 8; i++) page[i] = word_of(kind, &prng, &others);
    for (size_t i = 0; i < shared.count; i++) {
        for (uintptr_t at = shared.first[i]; at < shared.end[i]; at += PAGE_BYTES)
            memcpy((void *)at, page, PAGE_BYTES); // NOLINT(performance-no-int-to-ptr)
        common->pages += (shared.end[i] - shared.first[i]) / PAGE_BYTES;
    }
    common->has_hit = true;
}

struct plan {
    enum garbage kind;
    uint64_t seed;
    bool joins, races; /* the worker calls before; it writes again and again */
};

static pid_t fork_hostile(const struct plan *plan) {
    common->has_hit = false;
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (geteuid() == 0 && (setgid(WORKER) != 0 || setuid(WORKER) != 0)) _exit(2);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change, which clears it */
    alarm(PARENT_SECONDS);
    bool joins = plan->joins && common->pages == 0; /* with the first garbage it would harm itself */
    bool has_own = engine == NULL;
    if (joins && has_own) open_own();
    if (joins && !has_own) (void)tw_lead(engine);
    if (joins) (void)tw_add(family, tw_str("key"), 1, NULL);
    if (has_own) engine = NULL; /* nobody shares its pages */
    uint64_t seed = plan->seed;
    do write_garbage(plan->kind, seed++);
    while (plan->races);
    _exit(0);
}

static void await_hit(void) {
    for (int i = 0; !common->has_hit; i++) {
        NEED(i < 10000);
        usleep(1000);
    }
}

static void end_worker(pid_t pid, bool races) {
    int status;
    if (races) (void)kill(pid, SIGKILL);
    NEED(waitpid(pid, &status, 0) == pid);
    NEED(races || status == 0);
}

/* ---- parents ----------------------------------------------------------------------------------------------------- */

static void died(void) {
    int64_t since_ms = test_mono_ms();
    NEED(tw_process_died(engine) == TW_OK);
    NEED(test_mono_ms() - since_ms - test_starved_ms() < CALL_MS);
}

static void close_it(tw_engine *which) {
    int64_t since_ms = test_mono_ms();
    NEED(tw_close(which, 500) == TW_OK);
    NEED(test_mono_ms() - since_ms - test_starved_ms() < CALL_MS);
}

/* The first parent: opens, forks, supervises, and goes. A worker that has ended is replaced. */
static void supervise(const struct plan *plan) {
    open_shared();
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork_hostile(plan);
        await_hit();
        if (plan->races) died();
        if (plan->races && i == 1) close_it(engine);
        end_worker(pid, plan->races);
        if (!plan->races || i == 0) died();
    }
    if (!plan->races) close_it(engine);
}

/* As a server that is reloaded: the next engine is opened while workers of the previous one live. */
static void reload(const struct plan *plan) {
    open_shared();
    for (int i = 0; i < 3; i++) {
        tw_engine *older = engine;
        pid_t pid = fork_hostile(plan);
        await_hit();
        open_shared();
        close_it(engine); /* it was only looked at, whether it can be opened */
        open_shared();
        NEED(tw_add(family, tw_str("key"), 1, NULL) == TW_ERR_MODE);
        close_it(older);
        end_worker(pid, plan->races);
    }
    close_it(engine);
}

/* Opens engines only to look whether they can be opened. Each worker opens its own one. */
static void look(void) {
    open_shared();
    close_it(engine);
    open_own();
    close_it(engine);
    engine = NULL;
}
static void look_only(const struct plan *plan) {
    pid_t pid = 0;
    for (int i = 0; i < 4; i++) {
        pid_t older = pid;
        look();
        pid = fork_hostile(plan);
        await_hit();
        if (i != 0) end_worker(older, plan->races);
    }
    end_worker(pid, plan->races);
    open_shared();
    close_it(engine);
}

/* As a daemon: the process that opens the engine forks the one that supervises, and ends. */
static void supervise_as_daemon(const struct plan *plan) {
    open_shared();
    pid_t pid = fork();
    if (pid == 0) {
        pid_t worker = fork_hostile(plan);
        await_hit();
        died();
        if (geteuid() == 0) {
            tw_engine *older = engine;
            open_shared();
            close_it(older);
        }
        close_it(engine);
        end_worker(worker, plan->races);
        exit(0);
    }
    int status;
    NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

struct way {
    const char *name;
    void (*parent)(const struct plan *plan);
    bool only_root;
};
static const struct way ways[] = {{"supervises", supervise, false},
                                  {"is reloaded", reload, true},
                                  {"only looks", look_only, true},
                                  {"is a daemon", supervise_as_daemon, false}};

static const int harms[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT}; /* cmocka has handlers for some */

static uint64_t play(const struct way *way, bool as_root, enum garbage kind, struct test_prng *prng) {
    struct plan plan = {.kind = kind, .seed = test_prng_next(prng)};
    plan.joins = test_prng_chance(prng, 1, 2);
    plan.races = test_prng_chance(prng, 1, 2);
    common->pages = 0;
    pid_t pid = child_fork(PARENT_SECONDS);
    if (pid == 0) {
        for (size_t i = 0; i < sizeof harms / sizeof harms[0]; i++) (void)signal(harms[i], SIG_DFL);
        if (geteuid() == 0 && !as_root && (setgid(OTHER) != 0 || setuid(OTHER) != 0)) _exit(3);
        way->parent(&plan);
        exit(0);
    }
    int status = child_await(pid);
    if (status != 0)
        fail_msg("a parent that %s, as %s, with %s of a worker that %s and %s: status %x", way->name,
                 as_root ? "root" : "another user", garbage_names[kind], plan.joins ? "has joined" : "never called",
                 plan.races ? "goes on" : "ends", (unsigned)status);
    assert_true(common->pages != 0);
    return common->pages;
}

static void play_all(bool as_root) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    common = children_pages(sizeof *common);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        uint64_t rounds = test_scale(2), pages = 0;
        if (ways[i].only_root && !as_root) continue;
        for (enum garbage kind = ZEROS; kind < GARBAGES; kind++)
            for (uint64_t round = 0; round < rounds; round++) pages += play(&ways[i], as_root, kind, &prng);
        print_message("# a parent that %s: %" PRIu64 " rounds of each garbage, %" PRIu64 " pages were hit\n",
                      ways[i].name, rounds, pages);
    }
}

TEST(a_worker_of_another_user_does_not_harm_its_root_parent) {
    if (geteuid() != 0) {
        test_leave_out("only root can change its user: run it as root");
        return;
    }
    play_all(true);
}

TEST(a_worker_does_not_harm_a_parent_of_its_own_user) {
    play_all(false);
}

/* ---- a friendly parent ------------------------------------------------------------------------------------------- */

static size_t mappings(void) {
    static struct ranges shared, others;
    read_maps(&shared, &others);
    return shared.count;
}

/* 0 under a sanitizer, which looks for leaks itself. */
static size_t heap_bytes(void) {
#ifdef __GLIBC__
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

static void count_and_leave(void) {
    pid_t pid = fork();
    if (pid == 0) {
        if (setgid(WORKER) != 0 || setuid(WORKER) != 0) _exit(2);
        if (tw_add(family, tw_str("key"), 1, NULL) != TW_OK) _exit(3);
        _exit(tw_close(engine, 500) == TW_OK ? 0 : 4);
    }
    int status;
    NEED(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Plays a parent of root in a child, whose memory the test does not share. */
static void play_parent_of_root(void (*body)(void)) {
    common = children_pages(sizeof *common);
    pid_t pid = child_fork(PARENT_SECONDS);
    if (pid == 0) {
        body();
        exit(0);
    }
    child_expect_end(pid);
}

/* The C library keeps seven freed pieces of each size before it gives them to calloc() again. A round frees two. */
#define ROUNDS_BEFORE 16
#define ROUNDS 40
#define CRUMBS 1024 /* pieces that are cut elsewhere in another round */

/* Opens, forks, opens the next engine, closes the previous one, many times. Then it closes all, and may count again. */
static void be_reloaded(void) {
    size_t before = 0, bytes = 0;
    open_shared();
    for (int i = 0; i < ROUNDS; i++) {
        count_and_leave();
        tw_engine *older = engine;
        open_shared();
        close_it(older);
        if (i == ROUNDS_BEFORE) {
            before = mappings();
            bytes = heap_bytes();
        }
        NEED(i <= ROUNDS_BEFORE || (mappings() == before && heap_bytes() <= bytes + CRUMBS));
        NEED(tw_add(family, tw_str("key"), 1, NULL) == TW_ERR_MODE);
    }
    count_and_leave();
    close_it(engine);
    open_shared();
    NEED(tw_add(family, tw_str("key"), 1, NULL) == TW_OK);
    int64_t view;
    NEED(tw_get(family, tw_str("key"), &view) == TW_OK && view == 1);
    close_it(engine);
}

/* Goal: a server of root that is reloaded keeps no mapping of an engine that it has closed, and when it has none that
 * others have, it may make all calls again. */
TEST(a_root_parent_that_is_reloaded_does_not_grow) {
    if (geteuid() != 0) {
        test_leave_out("only root can change its user: run it as root");
        return;
    }
    play_parent_of_root(be_reloaded);
}

/* Pages that are mapped and resident. */
static void read_pages(long *mapped, long *resident) {
    FILE *file = fopen("/proc/self/statm", "re");
    NEED(file != NULL && fscanf(file, "%ld %ld", mapped, resident) == 2);
    fclose(file);
}

static void be_looking(void) {
    long mapped = 0, resident = 0, mapped_now, resident_now;
    for (int i = 0; i < 50; i++) {
        look();
        for (int k = 0; k < 2; k++) {
            pid_t pid = fork();
            if (pid == 0) {
                if (setgid(WORKER) != 0 || setuid(WORKER) != 0) _exit(2);
                open_own();
                NEED(tw_add(family, tw_str("key"), 1, NULL) == TW_OK);
                _exit(tw_close(engine, 500) == TW_OK ? 0 : 4);
            }
            int status;
            NEED(waitpid(pid, &status, 0) == pid && status == 0);
        }
        if (i == ROUNDS_BEFORE) read_pages(&mapped, &resident);
    }
    read_pages(&mapped_now, &resident_now);
    fprintf(stderr, "# mapped: %ld pages, then %ld; resident: %ld, then %ld\n", mapped, mapped_now, resident,
            resident_now);
    NEED(mapped_now == mapped && resident_now <= resident + 16);
    open_shared();
    NEED(tw_add(family, tw_str("key"), 1, NULL) == TW_OK);
    close_it(engine);
}

/* Goal: a server of root whose workers have engines of their own keeps no memory of the engines that it opens and
 * closes before each of 50 forks, to look whether the workers could. */
TEST(a_root_parent_without_an_engine_does_not_grow) {
    if (geteuid() != 0) {
        test_leave_out("only root can change its user: run it as root");
        return;
    }
    play_parent_of_root(be_looking);
}

/* Goal: a parent that has forked and supervised counts with its children again. */
TEST(a_parent_that_supervises_takes_part_with_its_next_call) {
    pid_t pid = child_fork(PARENT_SECONDS);
    if (pid == 0) {
        open_shared();
        NEED(tw_add(family, tw_str("key"), 1, NULL) == TW_OK);
        for (int64_t i = 0; i < 5; i++) {
            pid_t child = fork();
            if (child == 0) _exit(tw_add(family, tw_str("key"), 1, NULL) == TW_OK ? 0 : 2);
            int status;
            int64_t view;
            NEED(waitpid(child, &status, 0) == child && status == 0);
            NEED(tw_process_died(engine) == TW_OK);
            NEED(tw_get(family, tw_str("key"), &view) == TW_OK && view == 2 + i);
        }
        NEED(tw_lead(engine) == TW_OK);
        close_it(engine);
        exit(0);
    }
    child_expect_end(pid);
}

int main(void) {
    test_skip_unshared();
    return test_run();
}
