/* loop_costs.c -- how many system calls an event loop pays for an iteration: a bounded number, however many calls wait
 * for Redis in it.
 * Method: a child is the host of an engine. Its parent traces it (ptrace) and counts its system calls between two
 * marks. Reading a clock does not count: whether that is a system call depends on the machine. */
#include "tests/redis/redis_rig.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BATCHES 100
#define CALLS_MAX 256
#define MARK SYS_getppid /* no other program calls that */

static struct redis_server server;
static tw_request calls[CALLS_MAX];
static int answered;

/* What parent and child share. */
static struct shared {
    int64_t turns;
    bool is_over;
} * shared;

static void on_answer(tw_request *call) {
    answered++;
}

static void run_batches(tw_engine *engine, tw_family *family, int count) {
    for (int batch = 0; batch < BATCHES; batch++) {
        answered = 0;
        for (int i = 0; i < count; i++)
            if (tw_acquire_async(&calls[i], family, tw_str("k"), 1, TW_DELTA_MAX) != TW_STARTED) _exit(3);
        while (answered < count) {
            struct pollfd one = {.fd = tw_fd(engine), .events = POLLIN};
            (void)poll(&one, 1, (int)tw_timeout_ms(engine));
            if (tw_turn(engine) != TW_OK) _exit(4);
            shared->turns++;
        }
    }
}

static void be_host(const char *url, int count) {
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *family;
    tw_options_init(&options);
    options.redis_url = url;
    options.threads = TW_HOST_DRIVEN;
    options.redis_timeout_ms = 20000;
    options.sync_interval_ms = 10000; /* batches of counts are not meant */
    tw_family_options_init(&family_options);
    family_options.name = "s";
    family_options.limit_mode = TW_LIMIT_STRICT;
    family_options.on_outage = TW_OUTAGE_FAIL_CLOSED;
    if (tw_open(&options, &engine) != TW_OK || tw_family_open(engine, &family_options, &family) != TW_OK) _exit(2);
    for (int i = 0; i < count; i++) {
        tw_request_init(&calls[i]);
        calls[i].done = on_answer;
        calls[i].timeout_ms = 20000;
    }
    run_batches(engine, family, count); /* connected, and warm */
    shared->turns = 0;
    (void)syscall(MARK);
    run_batches(engine, family, count);
    (void)syscall(MARK);
    shared->is_over = true;
    _exit(0);
}

/* Returns the system calls between the marks; -1: this system does not let a process be traced. */
static int64_t count_calls(pid_t child) {
    int64_t count = 0;
    int status, marks = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return -1;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0) return -1;
    for (int pass = 0; ptrace(PTRACE_SYSCALL, child, 0, pass) == 0;) {
        struct __ptrace_syscall_info info;
        if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) break;
        bool is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        pass = is_call || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (!is_call) continue;
        if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0) return -1;
        if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
        if (info.entry.nr == MARK)
            marks++;
        else if (marks == 1 && info.entry.nr != SYS_clock_gettime)
            count++;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the host ended with status %#x", (unsigned)status);
    return count;
}

static double calls_of_a_turn(const char *url, int count) {
    memset(shared, 0, sizeof *shared);
    pid_t child = test_fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(77);
        raise(SIGSTOP);
        be_host(url, count);
    }
    int64_t all = count_calls(child);
    if (all < 0 || !shared->is_over) {
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
        return -1;
    }
    print_message("# %d calls at once: %lld system calls in %lld turns\n", count, (long long)all,
                  (long long)shared->turns);
    return (double)all / (double)shared->turns;
}

/* Goal: an iteration takes the host's own wait, two numbers to wake it and to calm that, one send and at most two
 * receives, whether one call is under way or 256. */
TEST(an_iteration_makes_a_bounded_number_of_system_calls) {
    static const int counts[] = {1, 16, CALLS_MAX};
    char url[200];
    snprintf(url, sizeof url, "unix://%s", server.socket);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        double calls_each = calls_of_a_turn(url, counts[i]);
        if (calls_each < 0)
            test_leave_out("this system lets no process be traced: run it in a container with CAP_SYS_PTRACE");
        if (calls_each > 7) fail_msg("%d calls at once: %.1f system calls in a turn", counts[i], calls_each);
    }
}

int main(void) {
    redis_server_require();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    redis_server_start(&server, NULL);
    int failed = test_run();
    redis_server_destroy(&server);
    return failed;
}
