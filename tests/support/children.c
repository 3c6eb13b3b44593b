/* children.c -- see children.h. */
#include "tests/support/children.h"

#include "tests/support/support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void *children_pages(size_t bytes) {
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    return map;
}

pid_t child_fork(unsigned seconds) {
    fflush(NULL); /* otherwise the child would print it, too */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0) return pid;
    (void)signal(SIGILL, SIG_DFL); /* cmocka would run the parent's tests */
    alarm(seconds);
    return 0;
}

int child_await(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    return status;
}

void child_expect_end(pid_t pid) {
    int status = child_await(pid);
    if (WIFSIGNALED(status))
        fail_msg("a child was ended by signal %d%s", WTERMSIG(status), WTERMSIG(status) == SIGALRM ? " (it hung)" : "");
    assert_int_equal(WEXITSTATUS(status), 0);
}

int64_t child_processor_ms(pid_t pid) {
    clockid_t clock;
    struct timespec used;
    assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
    assert_int_equal(clock_gettime(clock, &used), 0);
    return (int64_t)used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

void child_kill(pid_t pid) {
    assert_int_equal(kill(pid, SIGKILL), 0);
    int status = child_await(pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) fail_msg("a child ended by itself: status %x", status);
}
