/* child_files.c -- a forked child has files of its own under the numbers that descriptors of the engine had, and the
 * engine neither closes nor writes nor reads them.
 * Method: the child opens many files with a known text, or puts them over the numbers by dup2(), and then uses the
 * engine and closes it. A file is right if the number still leads to it, its text and its offset are as they were, and
 * it has its one line more that the child wrote. Each child has an alarm. Skipped under sanitizers and valgrind: their
 * own locks do not survive the fork of a process with several threads.
 * Covers: engine/base/descriptor.c. */
#include "tests/redis/sync_support.h"
#include "tests/support/children.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 48
#define TEXT "a line of the child's own\n"
#define TEXT_SIZE (sizeof TEXT - 1)
#define CHILD_SECONDS 30

/* In a child: a failed expectation ends it. */
#define must(x) ((x) ? (void)0 : child_fails(__LINE__, #x))
static _Noreturn void child_fails(int line, const char *text) {
    dprintf(2, "child, line %d: %s: %s\n", line, text, tw_error_text());
    _exit(1);
}

/* ---- files of a child -------------------------------------------------------------------------------------------- */

struct files {
    int fds[FILES];
    struct stat stats[FILES];
    size_t count;
};

/* A file without a name, with a text that no part of the engine writes. */
static void take_file(struct files *files, int fd) {
    must(fd >= 0 && files->count < FILES);
    must(write(fd, TEXT, TEXT_SIZE) == TEXT_SIZE && lseek(fd, 0, SEEK_SET) == 0);
    files->fds[files->count] = fd;
    must(fstat(fd, &files->stats[files->count]) == 0);
    files->count++;
}

static int new_file(void) {
    return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* Under the lowest numbers that are free. */
static void open_files(struct files *files) {
    while (files->count < FILES) take_file(files, new_file());
}

/* Each file is still there, nobody has read or written it, and what the child writes now is in it. */
static void expect_own(const struct files *files) {
    for (size_t i = 0; i < files->count; i++) {
        struct stat now;
        char text[3 * TEXT_SIZE];
        int fd = files->fds[i];
        must(fstat(fd, &now) == 0 && now.st_ino == files->stats[i].st_ino && now.st_dev == files->stats[i].st_dev);
        must(lseek(fd, 0, SEEK_CUR) == 0 && now.st_size == TEXT_SIZE);
        must(pread(fd, text, sizeof text, 0) == TEXT_SIZE && memcmp(text, TEXT, TEXT_SIZE) == 0);
        must(pwrite(fd, TEXT, TEXT_SIZE, TEXT_SIZE) == TEXT_SIZE);
        must(pread(fd, text, sizeof text, 0) == 2 * TEXT_SIZE && memcmp(text + TEXT_SIZE, TEXT, TEXT_SIZE) == 0);
        must(ftruncate(fd, TEXT_SIZE) == 0);
    }
}

/* ---- kinds of engines -------------------------------------------------------------------------------------------- */

struct kind {
    const char *name;
    bool shared, host_driven, synced, watched, audited;
};

static const struct kind kinds[] = {
    {"private, a thread", false, false, false, false, false},
    {"private, a thread, watched", false, false, false, true, false},
    {"private, host-driven", false, true, false, false, false},
    {"private, a thread, Redis, audited", false, false, true, true, true},
    {"private, host-driven, Redis", false, true, true, false, false},
    {"shared, a thread", true, false, false, true, false},
    {"shared, host-driven", true, true, false, false, false},
    {"shared, a thread, Redis", true, false, true, true, false},
    {"shared, host-driven, Redis", true, true, true, false, false},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

struct world {
    const struct kind *kind;
    struct redis_server server;
    char watch_path[128], url[160];
    tw_engine *engine;
    tw_family *family;
    tw_queue *queue;
    int64_t done;
};

static void count_done(tw_request *request) {
    struct world *world = request->ctx;
    world->done++;
    free(request);
}

/* Asks for a flush, whose answer comes by the queue, or by the thread for calls. */
static void flush_later(struct world *world) {
    tw_request *request = calloc(1, sizeof *request);
    tw_request_init(request);
    request->done = count_done;
    request->ctx = world;
    request->queue = world->queue;
    if (tw_flush_async(request, world->engine) != TW_STARTED) free(request);
}

/* Everything that makes the engine use its descriptors. */
static void use(struct world *world, int rounds) {
    for (int i = 0; i < rounds; i++) {
        (void)tw_add(world->family, tw_str("key"), 1, NULL);
        if (world->kind->host_driven) {
            struct pollfd one = {.fd = tw_fd(world->engine), .events = POLLIN};
            (void)poll(&one, 1, 5);
            (void)tw_turn(world->engine);
        } else {
            usleep(5000);
        }
        if (i % 8 == 0) flush_later(world);
        if (world->queue != NULL) (void)tw_queue_run(world->queue, 100);
    }
}

static void world_close(struct world *world) {
    if (world->queue != NULL) {
        (void)tw_stop(world->engine);
        (void)tw_queue_run(world->queue, 1000);
        (void)tw_queue_close(world->queue);
    }
    (void)tw_close(world->engine, 1000);
}

static void world_open(struct world *world, const struct kind *kind) {
    tw_options options;
    *world = (struct world){.kind = kind};
    if (kind->synced) redis_server_start(&world->server, NULL);
    quick_options(&options, kind->synced ? world->server.url : NULL);
    options.threads = kind->host_driven ? TW_HOST_DRIVEN : TW_OWN_THREAD;
    options.shared = kind->shared ? TW_SHARED_BY_FORK : TW_SHARED_NO;
    snprintf(world->watch_path, sizeof world->watch_path, "/tmp/tw-child-files-%ld-%%p", (long)getpid());
    if (kind->watched) options.watch_path = world->watch_path;
    if (kind->audited) options.audit_interval_ms = 1000;
    assert_status(test_open(&options, &world->engine), TW_OK);
    world->family = family_of(world->engine, "f", TW_WINDOW_FOREVER, 0);
    if (kind->shared) (void)tw_lead(world->engine);
    if (kind->host_driven) assert_status(tw_queue_open(world->engine, &world->queue), TW_OK);
    use(world, 20);
}

static void for_each_kind(void (*child)(struct world *world)) {
    for (size_t i = 0; i < KINDS; i++) {
        struct world world;
        print_message("# %s\n", kinds[i].name);
        world_open(&world, &kinds[i]);
        pid_t pid = child_fork(CHILD_SECONDS);
        if (pid == 0) {
            child(&world);
            _exit(0);
        }
        use(&world, 10);
        child_expect_end(pid);
        world_close(&world);
        if (kinds[i].synced) redis_server_destroy(&world.server);
    }
}

/* ---- before the first call --------------------------------------------------------------------------------------- */

static void close_all(void) {
    must(close_range(3, ~0u, 0) == 0);
}

static void daemonize(struct world *world) {
    struct files files = {.count = 0};
    close_all();
    open_files(&files);
    use(world, 30);
    expect_own(&files);
    world_close(world);
    expect_own(&files);
}

/* Goal: a child that closes all that it has inherited, and opens its log and its database, keeps them. */
TEST(a_child_closes_all_and_opens_its_files_before_its_first_call) {
    for_each_kind(daemonize);
}

static void close_without_a_call(struct world *world) {
    struct files files = {.count = 0};
    close_all();
    open_files(&files);
    world_close(world);
    expect_own(&files);
}

TEST(a_child_whose_only_call_closes_the_engine) {
    for_each_kind(close_without_a_call);
}

static void put_over(struct files *files, int fd) {
    int file = new_file();
    must(file >= 0);
    if (file != fd) must(dup3(file, fd, O_CLOEXEC) == fd && close(file) == 0);
    take_file(files, fd);
}

/* The numbers that the parent's engines used, as the child can know them: all that were open. */
static int inherited[256];
static size_t inherited_count;

static void note_open_numbers(void) {
    inherited_count = 0;
    for (int fd = 3; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0) inherited[inherited_count++] = fd;
}

static void dup_over_each(struct world *world) {
    struct files files = {.count = 0};
    for (size_t i = 0; i < inherited_count && files.count < FILES; i++) put_over(&files, inherited[i]);
    use(world, 30);
    expect_own(&files);
    world_close(world);
    expect_own(&files);
}

/* Goal: dup2() over the numbers is as good as closing them. */
TEST(a_child_puts_its_files_over_the_numbers_by_dup2) {
    for (size_t i = 0; i < KINDS; i++) {
        struct world world;
        print_message("# %s\n", kinds[i].name);
        world_open(&world, &kinds[i]);
        note_open_numbers();
        pid_t pid = child_fork(CHILD_SECONDS);
        if (pid == 0) {
            dup_over_each(&world);
            _exit(0);
        }
        child_expect_end(pid);
        world_close(&world);
        if (kinds[i].synced) redis_server_destroy(&world.server);
    }
}

/* ---- after the first call ---------------------------------------------------------------------------------------- */

static void files_after_calls(struct world *world) {
    struct files files = {.count = 0};
    use(world, 10);
    open_files(&files); /* the numbers that the parent's descriptors had, as far as the engine has none there now */
    use(world, 30);
    expect_own(&files);
    world_close(world);
    expect_own(&files);
}

TEST(a_child_opens_its_files_after_its_first_call) {
    for_each_kind(files_after_calls);
}

static void close_all_after_calls(struct world *world) {
    struct files files = {.count = 0};
    use(world, 10);
    close_all();
    open_files(&files);
    use(world, 30);
    expect_own(&files);
    world_close(world);
    expect_own(&files);
}

/* Goal: a child that closes what the engine has made in the child itself, too, loses that, but keeps its files. Method:
 * engines without a thread of their own, which would use a descriptor while it is being closed. */
TEST(a_child_closes_all_after_its_first_call) {
    for (size_t i = 0; i < KINDS; i++) {
        struct world world;
        if (!kinds[i].host_driven) continue;
        print_message("# %s\n", kinds[i].name);
        world_open(&world, &kinds[i]);
        pid_t pid = child_fork(CHILD_SECONDS);
        if (pid == 0) {
            close_all_after_calls(&world);
            _exit(0);
        }
        child_expect_end(pid);
        world_close(&world);
        if (kinds[i].synced) redis_server_destroy(&world.server);
    }
}

/* ---- what the parent and Redis see ------------------------------------------------------------------------------- */

static bool is_quiet(void *ctx) {
    struct world *world = ctx;
    struct pollfd one = {.fd = tw_fd(world->engine), .events = POLLIN};
    (void)tw_turn(world->engine);
    return poll(&one, 1, 0) == 0;
}

static void count_and_stay(struct world *world, int said) {
    use(world, 20);
    must(write(said, "x", 1) == 1);
    pause();
}

/* Goal: no descriptor of a child makes the parent's set readable. Method: the parent's connection ends while the child
 * lives; the parent connects again, and is quiet then. */
TEST(the_parents_set_reports_nothing_of_a_child) {
    struct world world;
    int pipes[2];
    char byte;
    world_open(&world, &kinds[4]);
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) count_and_stay(&world, pipes[1]);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    (void)redis_server_ask(&world.server, "CLIENT", "KILL", "TYPE", "normal", NULL);
    use(&world, 20);
    assert_true(test_wait(is_quiet, &world, TEST_PATIENCE_MS));
    test_sleep_ms(5); /* a copy that the child has would be ready again at once, and for ever */
    assert_true(test_wait(is_quiet, &world, TEST_PATIENCE_MS));
    child_kill(pid);
    world_close(&world);
    close(pipes[0]);
    close(pipes[1]);
    redis_server_destroy(&world.server);
}

static bool is_left(void *server) {
    const char *clients = redis_server_ask(server, "CLIENT", "LIST", NULL);
    return strchr(clients, '\n') == NULL || strchr(clients, '\n')[1] == '\0'; /* only who asks */
}

/* Goal: Redis sees that an engine has closed its connections, although a child that never calls lives on. Method: a
 * child of fork(), and one of clone(), where no handler runs. */
TEST(redis_sees_the_end_of_a_connection_that_a_child_has_inherited) {
    for (int cloned = 0; cloned < 2; cloned++) {
        struct world world;
        world_open(&world, &kinds[3]);
        assert_false(is_left(&world.server));
        pid_t pid = cloned ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : child_fork(CHILD_SECONDS);
        if (pid == 0) {
            for (;;) (void)syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
        }
        world_close(&world);
        if (!test_wait(is_left, &world.server, TEST_PATIENCE_MS / 2))
            fail_msg("cloned %d: %s", cloned, redis_server_ask(&world.server, "CLIENT", "LIST", NULL));
        child_kill(pid);
        redis_server_destroy(&world.server);
    }
}

int main(void) {
    if (test_is_emulated()) test_skip_program("qemu-user wipes no pages in a child: run it on an ARM64 machine");
    if (test_is_slow()) test_skip_program(TEST_NO_FORK_HERE);
    redis_server_require();
    return test_run();
}
