/* descriptor_test.c -- the library's descriptors in a forked child: fork() has closed them there, and no other. */
#include "engine/base/descriptor.h"
#include "tests/support/children.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_SECONDS 20

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

static int new_event(void) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

static int own_event(void) {
    return twi_descriptor_own(new_event());
}

static int new_file(void) {
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) _exit(3);
    return fd;
}

/* ---- a handler of the host's, which was registered before the library's ------------------------------------------ */

static void (*in_child)(void);

static void host_handler(void) {
    if (in_child != NULL) in_child();
}

/* ---- closing ----------------------------------------------------------------------------------------------------- */

TEST(what_was_not_noted_is_not_closed) {
    int fd = new_event();
    twi_descriptor_close(fd);
    assert_true(is_open(fd));
    assert_int_equal(twi_descriptor_own(fd), fd);
    twi_descriptor_close(fd);
    assert_false(is_open(fd));
    twi_descriptor_close(-1);
    twi_descriptor_close(1 << 30);
    int again = new_event();
    assert_int_equal(again, fd);
    twi_descriptor_close(fd); /* its number is somebody else's now */
    assert_true(is_open(again));
    close(again);
}

TEST(what_could_not_be_made_is_passed_on) {
    errno = EMFILE;
    assert_int_equal(twi_descriptor_own(-1), -1);
    assert_int_equal(errno, EMFILE);
}

/* Goal: a number that leads to another file is not closed, although it was noted and not closed since. */
TEST(a_number_that_leads_to_another_file_is_not_closed) {
    int fd = own_event();
    assert_int_equal(close(fd), 0);
    int file = new_file();
    assert_int_equal(file, fd);
    twi_descriptor_close(fd);
    assert_true(is_open(file));
    close(file);
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

TEST(fork_closes_the_copies_in_the_child_and_nothing_in_the_parent) {
    int ours[3] = {own_event(), twi_descriptor_own(epoll_create1(EPOLL_CLOEXEC)),
                   twi_descriptor_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))};
    int theirs = new_event();
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        bool right = is_open(theirs);
        for (size_t i = 0; i < 3; i++) right = right && !is_open(ours[i]);
        int file = new_file();
        right = right && file == ours[0]; /* the lowest number that is free */
        for (size_t i = 0; i < 3; i++) twi_descriptor_close(ours[i]);
        _exit(right && is_open(file) ? 0 : 1);
    }
    child_expect_end(pid);
    for (size_t i = 0; i < 3; i++) {
        assert_true(is_open(ours[i]));
        twi_descriptor_close(ours[i]);
        assert_false(is_open(ours[i]));
    }
    close(theirs);
}

TEST(a_grandchild_has_what_neither_its_parent_nor_its_grandparent_made) {
    int first = own_event();
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        int second = own_event();
        bool right = second == first;
        pid = child_fork(CHILD_SECONDS);
        if (pid == 0) _exit(is_open(second) ? 1 : 0);
        int status = child_await(pid);
        _exit(right && status == 0 && is_open(second) ? 0 : 1);
    }
    child_expect_end(pid);
    twi_descriptor_close(first);
}

static int ours;

static void open_files_in_the_handler(void) {
    close_range(3, ~0u, 0);
    while (new_file() < ours) {}
}

/* Goal: a handler of the host that closes everything and opens its files keeps them. Method: it was registered before
 * the library's handler, so that it runs before it. */
TEST(a_handler_of_the_host_that_comes_first_keeps_its_files) {
    ours = own_event();
    in_child = open_files_in_the_handler;
    pid_t pid = child_fork(CHILD_SECONDS);
    in_child = NULL;
    if (pid == 0) _exit(is_open(ours) ? 0 : 1);
    child_expect_end(pid);
    assert_true(is_open(ours));
    twi_descriptor_close(ours);
}

static int of_child;

static void call_in_the_handler(void) {
    twi_descriptors_forget();
    of_child = own_event();
}

/* Goal: a handler of the host may make the child's first call, and what it makes there stays. */
TEST(a_handler_of_the_host_makes_the_first_call) {
    ours = own_event();
    in_child = call_in_the_handler;
    pid_t pid = child_fork(CHILD_SECONDS);
    in_child = NULL;
    if (pid == 0) {
        bool right = is_open(of_child);
        twi_descriptor_close(of_child);
        _exit(right && !is_open(of_child) ? 0 : 1);
    }
    child_expect_end(pid);
    twi_descriptor_close(ours);
}

/* Goal: children that run no handlers take nothing from the table of their parent, whose memory they may share. */
TEST(system_popen_and_vfork_leave_the_parents_table_alone) {
    ours = own_event();
    assert_int_equal(system("true"), 0);
    FILE *out = popen("true", "r");
    assert_non_null(out);
    assert_int_equal(pclose(out), 0);
    pid_t pid = vfork();
    if (pid == 0) _exit(0);
    assert_int_equal(child_await(pid), 0);
    assert_true(is_open(ours));
    twi_descriptor_close(ours);
    assert_false(is_open(ours));
}

/* Goal: a child that closes everything after its first call is asked whether a number is still the engine's. */
TEST(a_child_that_closes_all_after_its_first_call_is_noticed) {
    assert_true(twi_descriptor_is_own(0)); /* no such child: nobody looks */
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        twi_descriptors_forget();
        int fd = own_event();
        bool right = twi_descriptor_is_own(fd) && !twi_descriptor_is_own(0) && !twi_descriptor_is_own(-1);
        close(fd);
        right = right && !twi_descriptor_is_own(fd);
        int file = new_file();
        right = right && file == fd && !twi_descriptor_is_own(fd);
        twi_descriptor_close(fd);
        _exit(right && is_open(file) ? 0 : 1);
    }
    child_expect_end(pid);
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

#define MANY 3000 /* of 1,000 engines */
#define ROUNDS 20

static int64_t forks_took_us(void) {
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = fork();
        if (pid == 0) _exit(0);
        assert_int_equal(child_await(pid), 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    return ((ended.tv_sec - begun.tv_sec) * 1000000 + (ended.tv_nsec - begun.tv_nsec) / 1000) / ROUNDS;
}

/* Goal: with 1,000 engines each fork closes all copies. It prints what that costs. */
TEST(many_descriptors) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max < MANY + 100 || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        test_leave_out("3,100 file descriptors are missing: raise the hard limit (ulimit -Hn)");
        return;
    }
    static int many[MANY];
    int64_t without_us = forks_took_us();
    for (size_t i = 0; i < MANY; i++) many[i] = own_event();
    int64_t with_us = forks_took_us();
    print_message("# a fork takes %lld us, with %d descriptors %lld us\n", (long long)without_us, MANY,
                  (long long)with_us);
    pid_t pid = child_fork(CHILD_SECONDS);
    if (pid == 0) {
        for (size_t i = 0; i < MANY; i++)
            if (is_open(many[i])) _exit(1);
        _exit(0);
    }
    child_expect_end(pid);
    for (size_t i = 0; i < MANY; i++) twi_descriptor_close(many[MANY - 1 - i]);
    for (size_t i = 0; i < MANY; i++) assert_false(is_open(many[i]));
}

#define THREADS 3
static _Atomic bool ends;

static void *come_and_go(void *unused) {
    while (!atomic_load(&ends)) {
        int fds[4];
        for (size_t i = 0; i < 4; i++) fds[i] = own_event();
        for (size_t i = 0; i < 4; i++) twi_descriptor_close(fds[i]);
    }
    return unused;
}

/* Goal: a fork at any moment, while threads make and close descriptors, closes nothing of the child's host, and no
 * handler waits for a thread that is not there. */
TEST(forks_while_threads_make_and_close_descriptors) {
    if (test_is_slow()) {
        test_leave_out(TEST_NO_FORK_HERE);
        return;
    }
    pthread_t threads[THREADS];
    int theirs = new_file();
    atomic_store(&ends, false);
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, NULL), 0);
    for (uint64_t i = 0; i < test_scale(300); i++) {
        pid_t pid = child_fork(CHILD_SECONDS);
        if (pid == 0) {
            twi_descriptors_forget();
            int fd = own_event();
            twi_descriptor_close(fd);
            _exit(is_open(theirs) && !is_open(fd) ? 0 : 1);
        }
        child_expect_end(pid);
    }
    atomic_store(&ends, true);
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    close(theirs);
}

int main(void) {
    if (pthread_atfork(NULL, NULL, host_handler) != 0) return 1;
    return test_run();
}
