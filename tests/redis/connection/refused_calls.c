/* refused_calls.c -- a sandbox that is entered after tw_open() refuses a system call, for good.
 * Goal: no answer of the system ends the program or blocks it: each call of the library answers a status, and counts
 * stay exact. Method: for each system call that the library, libc and hiredis make here, a child enters a filter
 * (seccomp) that refuses it with EPERM or ENOSYS to all of its threads: right after tw_open(), or when it is connected;
 * host-driven, where the server has a name that is looked up, or with threads of its own and a unix socket. The child
 * counts, asks limits, flushes and closes, and writes down what it was answered. Each has a limit of time. One more
 * child is killed if it makes a call that is not in the list.
 * Left out, because glibc itself aborts or waits for ever where they are refused: see left_out. */
#include "tests/redis/sync_support.h"
#include "tests/support/children.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADDS 50
#define WAIT_MS 250
#define CHILD_S 20 /* far more than the times that it gives the library */
#define SIDE_BY_SIDE 6

#ifdef SYS_open
#define OLD(name) {SYS_##name, #name},
#else
#define OLD(name)
#endif
#define CALL(name) {SYS_##name, #name},

struct system_call {
    long number;
    const char *name;
};

/* What the library and its libraries may call after tw_open(). */
static const struct system_call calls[] = {
    CALL(read) CALL(write) CALL(close) CALL(mmap) CALL(mprotect) CALL(munmap) CALL(madvise) CALL(mremap) CALL(getrandom)
        CALL(membarrier) CALL(getpid) CALL(gettid) CALL(geteuid) CALL(getuid) CALL(sched_yield) CALL(sched_getaffinity)
            CALL(sched_setaffinity) CALL(sched_getscheduler) CALL(sched_getparam) CALL(rt_sigprocmask)
                CALL(rt_sigaction) CALL(clone) CALL(clone3) CALL(set_robust_list) CALL(get_robust_list)
                    CALL(set_tid_address) CALL(clock_gettime) CALL(clock_nanosleep) CALL(nanosleep) CALL(gettimeofday)
                        CALL(epoll_create1) CALL(epoll_ctl) CALL(eventfd2) CALL(fcntl) CALL(ioctl) CALL(socket)
                            CALL(connect) CALL(getsockopt) CALL(setsockopt) CALL(getsockname) CALL(getpeername)
                                CALL(sendto) CALL(recvfrom) CALL(sendmsg) CALL(recvmsg) CALL(sendmmsg) CALL(bind)
                                    CALL(shutdown) CALL(openat) CALL(fstat) CALL(newfstatat) CALL(lseek) CALL(ppoll)
                                        CALL(uname) CALL(sysinfo) CALL(prlimit64) CALL(getdents64) CALL(prctl) OLD(poll)
                                            OLD(open) OLD(stat) OLD(readlink) OLD(access)};
#define CALLS (sizeof calls / sizeof *calls)

/* futex: glibc aborts ("the futex facility returned an unexpected error code"). exit, exit_group: a thread or a program
 * that may not end. rt_sigreturn, restart_syscall: no program calls them. rseq: glibc aborts when a thread starts.
 * brk: glibc takes the error for the new end of the heap, and malloc() crashes there when the heap has to grow. */
static const long left_out[] = {SYS_brk, SYS_futex, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_restart_syscall,
#ifdef SYS_rseq
                                SYS_rseq
#endif
};

/* ---- filters ----------------------------------------------------------------------------------------------------- */

#define FILTER_MAX (CALLS + 16)

static bool enter_filter(struct sock_filter *code, size_t count) {
    struct sock_fprog program = {.len = (unsigned short)count, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

static bool refuse(long number, int error) {
    struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    return enter_filter(code, sizeof code / sizeof *code);
}

static bool allow_listed_only(void) {
    struct sock_filter code[FILTER_MAX];
    size_t count = 0, lists = sizeof left_out / sizeof *left_out;
    code[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < CALLS + lists; i++) {
        long number = i < CALLS ? calls[i].number : left_out[i - CALLS];
        uint8_t to_end = (uint8_t)(CALLS + lists - i);
        code[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, to_end, 0);
    }
    code[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return enter_filter(code, count);
}

/* ---- a child ----------------------------------------------------------------------------------------------------- */

struct play {
    const struct system_call *refused; /* NULL: all that are not in the list, by death */
    int error;
    bool is_host_driven, is_connected;
    pid_t pid;
    char key[16];
    /* written by the child */
    int64_t added, seen;
    tw_status family, flushed, closed, got;
    int line; /* where it found something wrong; 0: nowhere */
    bool no_filter;
};

static struct redis_server server;

#define NEED(condition) \
    if (!(condition)) { \
        play->line = __LINE__; \
        _exit(1); \
    }

static bool is_status(tw_status status) {
    return strcmp(tw_status_name(status), "?") != 0 && tw_status_name(status)[0] == 'T';
}

static void count_all(struct play *play, tw_family *counter, tw_family *soft, tw_family *strict) {
    tw_verdict verdict;
    for (int i = 0; i < ADDS; i++) {
        tw_status status = tw_add(counter, tw_str(play->key), 1, NULL);
        play->added += status == TW_OK;
        NEED(is_status(status));
        NEED(is_status(tw_acquire(soft, tw_str(play->key), 1, 1000, &verdict)));
    }
    NEED(is_status(tw_acquire(strict, tw_str(play->key), 1, 1000, &verdict)));
    NEED(is_status(tw_add(counter, tw_str("a new key of this child"), 0, NULL)));
}

/* The first getaddrinfo() of a process follows a NULL pointer in glibc (nss_database.c) if there is no memory. */
static bool may_look_up(const struct play *play) {
    return play->refused == NULL || play->refused->number != SYS_mmap;
}

static void play_it(struct play *play) {
    tw_options options;
    tw_engine *engine;
    char url[64];
    snprintf(url, sizeof url, "redis://localhost:%d", server.port); /* a name, which is looked up */
    quick_options(&options, play->is_host_driven && may_look_up(play) ? url : server.url);
    options.redis_timeout_ms = WAIT_MS;
    options.threads = play->is_host_driven ? TW_HOST_DRIVEN : TW_OWN_THREAD;
    NEED(tw_open(&options, &engine) == TW_OK);
    tw_family *counter = family_of(engine, "f", TW_WINDOW_FOREVER, 0), *more = NULL;
    tw_family *soft = family_of(engine, "soft", TW_WINDOW_ALIGNED, 1000);
    tw_family_options strict_options;
    tw_family_options_init(&strict_options);
    strict_options.name = "strict";
    strict_options.window = TW_WINDOW_FOREVER;
    strict_options.limit_mode = TW_LIMIT_STRICT;
    tw_family *strict = NULL;
    NEED(tw_family_open(engine, &strict_options, &strict) == TW_OK);
    if (play->is_connected) {
        count_all(play, counter, soft, strict);
        NEED(tw_flush(engine, TEST_PATIENCE_MS) == TW_OK);
    }
    play->no_filter = !(play->refused != NULL ? refuse(play->refused->number, play->error) : allow_listed_only());
    if (play->no_filter) _exit(0);
    count_all(play, counter, soft, strict);
    play->flushed = tw_flush(engine, WAIT_MS);
    strict_options.name = "more";
    play->family = tw_family_open(engine, &strict_options, &more);
    if (play->is_host_driven) (void)tw_turn(engine);
    count_all(play, counter, soft, strict);
    play->got = tw_get(counter, tw_str(play->key), &play->seen);
    play->closed = tw_close(engine, WAIT_MS);
    NEED(is_status(play->flushed) && is_status(play->family) && is_status(play->closed));
    NEED(play->got == TW_OK && play->seen == play->added);
    _exit(0);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static void describe(const struct play *play, const char *what) {
    print_error("%s refused with %s, %s, %s: %s (line %d, added %lld, seen %lld, flush %s, close %s)\n",
                play->refused != NULL ? play->refused->name : "a call that is not in the list, which is",
                play->error == EPERM ? "EPERM" : "ENOSYS", play->is_host_driven ? "host-driven" : "own threads",
                play->is_connected ? "connected" : "not connected yet", what, play->line, (long long)play->added,
                (long long)play->seen, tw_status_name(play->flushed), tw_status_name(play->closed));
}

/* Returns true if it has ended as it should. */
static bool has_ended_well(struct play *play) {
    char name[32];
    int status = child_await(play->pid);
    if (WIFSIGNALED(status)) {
        describe(play, WTERMSIG(status) == SIGALRM ? "it hangs" : strsignal(WTERMSIG(status)));
        return false;
    }
    if (WEXITSTATUS(status) != 0) {
        describe(play, "wrong");
        return false;
    }
    if (play->no_filter) return true;
    snprintf(name, sizeof name, "f:%s", play->key);
    int64_t in_redis = redis_server_get(&server, name);
    bool is_right = play->closed == TW_OK ? in_redis == play->added : in_redis <= play->added;
    if (!is_right) describe(play, "Redis has another count");
    return is_right;
}

static void begin(struct play *play) {
    pid_t pid = child_fork(CHILD_S);
    if (pid == 0) play_it(play);
    play->pid = pid; /* the memory is shared */
}

TEST(no_refused_call_ends_or_blocks_the_program) {
    enum { WAYS = 8 };
    size_t count = (CALLS + 1) * WAYS, wrong = 0, skipped = 0;
    struct play *plays = children_pages(count * sizeof *plays);
    redis_server_start_tcp(&server, NULL);
    for (size_t i = 0; i < count + SIDE_BY_SIDE; i++) {
        if (i < count) {
            struct play *play = &plays[i];
            play->refused = i / WAYS < CALLS ? &calls[i / WAYS] : NULL;
            play->error = (i & 1) != 0 ? EPERM : ENOSYS;
            play->is_host_driven = (i & 2) != 0;
            play->is_connected = (i & 4) != 0;
            snprintf(play->key, sizeof play->key, "k%zu", i);
            begin(play);
        }
        if (i < SIDE_BY_SIDE) continue;
        wrong += !has_ended_well(&plays[i - SIDE_BY_SIDE]);
        skipped += plays[i - SIDE_BY_SIDE].no_filter;
    }
    bool without = skipped != 0;
    munmap(plays, count * sizeof *plays);
    if (without)
        test_leave_out("no seccomp filter for all threads at once: run it on Linux 3.17 or newer, outside of valgrind");
    assert_int_equal(wrong, 0);
    redis_server_stop(&server);
}

/* ---- nothing to do ----------------------------------------------------------------------------------------------- */

static int64_t processor_ms(void) {
    struct rusage used;
    (void)getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
}

/* Goal: an engine with nothing to do rests, also where it may not wait with poll(). A loop that does not rest uses all
 * of a processor, or all that it gets. */
TEST(an_engine_rests_where_poll_is_refused) {
    struct play *play = children_pages(sizeof *play);
    redis_server_start(&server, NULL);
    pid_t pid = child_fork(CHILD_S);
    if (pid == 0) {
        tw_options options;
        tw_engine *engine;
        quick_options(&options, server.url);
        NEED(tw_open(&options, &engine) == TW_OK && tw_ready(engine, TEST_PATIENCE_MS) == TW_OK);
        tw_family *family = family_of(engine, "f", TW_WINDOW_FOREVER, 0);
#ifdef SYS_poll
        play->no_filter = !refuse(SYS_poll, EPERM);
        if (play->no_filter) _exit(0);
#endif
        play->no_filter = !refuse(SYS_ppoll, EPERM);
        if (play->no_filter) _exit(0);
        int64_t before_ms = processor_ms();
        test_sleep_ms(1000);
        NEED(processor_ms() - before_ms < 150);
        NEED(tw_add(family, tw_str("k"), 1, NULL) == TW_OK && tw_close(engine, TEST_PATIENCE_MS) == TW_OK);
        _exit(0);
    }
    child_expect_end(pid);
    munmap(play, sizeof *play);
    redis_server_destroy(&server);
}

/* ---- while it is opened ------------------------------------------------------------------------------------------ */

/* Goal: tw_open() names the call that is refused, and the system's reason. Method: epoll, which is no matter of how
 * many descriptors are left. */
TEST(a_refused_epoll_is_called_by_its_name) {
    struct play *play = children_pages(sizeof *play);
    pid_t pid = child_fork(CHILD_S);
    if (pid == 0) {
        tw_options options;
        tw_engine *engine;
        tw_options_init(&options);
        play->no_filter = !refuse(SYS_epoll_create1, EPERM);
        if (play->no_filter) _exit(0);
        NEED(tw_open(&options, &engine) == TW_ERR_MEMORY);
        NEED(strstr(tw_error_text(), "epoll") != NULL && strstr(tw_error_text(), strerror(EPERM)) != NULL);
        NEED(strstr(tw_error_text(), "is left") == NULL);
        _exit(0);
    }
    child_expect_end(pid);
    munmap(play, sizeof *play);
}

int main(void) {
    test_skip_unshared();
    redis_server_require();
    return test_run();
}
