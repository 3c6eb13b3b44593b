/* socket_set_test.c -- one descriptor for several sockets, whose numbers are used again, and for rings of other
 * threads. */
#include "engine/base/descriptor.h"
#include "tests/support/support.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_readable(const struct twi_socket_set *set) {
    struct pollfd one = {.fd = set->fd, .events = POLLIN};
    return poll(&one, 1, 0) == 1;
}

static struct twi_socket_set made(void) {
    struct twi_socket_set set;
    assert_true(twi_socket_set_make(&set));
    return set;
}

static void pair(int ends[2]) {
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
}

TEST(a_socket_with_bytes_makes_the_set_readable) {
    int ends[2];
    struct twi_socket_set set = made();
    uint32_t known = 0;
    pair(ends);
    twi_socket_set_watch(set.fd, ends[0], &known, false);
    assert_false(is_readable(&set));
    twi_socket_set_watch(set.fd, ends[0], &known, true);
    assert_true(is_readable(&set)); /* there is room to write */
    twi_socket_set_watch(set.fd, ends[0], &known, false);
    assert_false(is_readable(&set));
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_true(is_readable(&set));
    twi_socket_set_leave(set.fd, ends[0], &known);
    assert_false(is_readable(&set));
    twi_socket_set_watch(set.fd, ends[0], &known, false); /* it may come back with what waits there */
    assert_true(is_readable(&set));
    twi_socket_set_leave(set.fd, ends[0], &known);
    close(ends[0]);
    close(ends[1]);
    twi_socket_set_unmake(&set);
}

/* Goal: a connection that closed its socket takes nothing from the one whose new socket has its number. */
TEST(a_number_that_another_connection_has_now_stays_in_the_set) {
    int old[2], ends[2];
    struct twi_socket_set set = made();
    uint32_t first = 0, second = 0;
    pair(old);
    twi_socket_set_watch(set.fd, old[0], &second, false);
    twi_socket_set_leave(set.fd, old[0], &second);
    close(old[0]);
    pair(ends);
    assert_int_equal(ends[0], old[0]);
    twi_socket_set_watch(set.fd, ends[0], &first, false);
    twi_socket_set_leave(set.fd, old[0], &second); /* once more: it knows nothing of that number now */
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_true(is_readable(&set));
    close(old[1]);
    close(ends[0]);
    close(ends[1]);
    twi_socket_set_unmake(&set);
}

/* Goal: a socket that was closed wakes nobody any more, though a forked child still has a copy of it. Method: the child
 * sleeps; the other end says something after the close. */
TEST(a_child_that_keeps_a_copy_wakes_nobody) {
    int ends[2];
    struct twi_socket_set set = made();
    uint32_t known = 0;
    pair(ends);
    twi_socket_set_watch(set.fd, ends[0], &known, false);
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) pause();
    }
    assert_true(pid > 0);
    twi_socket_set_leave(set.fd, ends[0], &known);
    close(ends[0]);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_false(is_readable(&set));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ends[1]);
    twi_socket_set_unmake(&set);
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

#define RINGS 20000

static struct twi_socket_set rung;
static _Atomic int64_t left; /* put there before each ring */

static void *ring(void *unused) {
    for (int i = 0; i < RINGS; i++) {
        atomic_fetch_add(&left, 1);
        twi_socket_set_ring(&rung);
    }
    return unused;
}

/* Goal: what was put down before a ring is found by whoever waits for the set, and in the end the set is quiet. Method:
 * two threads ring as fast as they can; one waits without a time, calms, and takes. A ring that were lost would let it
 * wait for ever. */
TEST(no_ring_is_lost) {
    pthread_t threads[2];
    int64_t taken = 0;
    rung = made();
    for (size_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, ring, NULL), 0);
    while (taken < 2 * RINGS) {
        struct pollfd one = {.fd = rung.fd, .events = POLLIN};
        assert_int_equal(poll(&one, 1, 30000), 1);
        twi_socket_set_calm(&rung);
        taken += atomic_exchange(&left, 0);
    }
    for (size_t i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    twi_socket_set_calm(&rung);
    assert_false(is_readable(&rung));
    twi_socket_set_ring(&rung);
    assert_true(is_readable(&rung));
    twi_socket_set_calm(&rung);
    assert_false(is_readable(&rung));
    twi_socket_set_unmake(&rung);
}
