/* socket_set_test.c -- one descriptor for several sockets, whose numbers are used again. */
#include "sync/wire/socket_set.h"
#include "tests/support/support.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_readable(int set) {
    struct pollfd one = {.fd = set, .events = POLLIN};
    return poll(&one, 1, 0) == 1;
}

static void pair(int ends[2]) {
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
}

static void a_socket_with_bytes_makes_the_set_readable(void **state) {
    (void)state;
    int ends[2], set = twi_socket_set_open();
    struct twi_watched watched = {.fd = -1};
    pair(ends);
    twi_socket_set_watch(set, &watched, ends[0], false, true);
    assert_false(is_readable(set));
    twi_socket_set_watch(set, &watched, ends[0], true, false);
    assert_true(is_readable(set)); /* there is room to write */
    twi_socket_set_watch(set, &watched, ends[0], false, false);
    assert_false(is_readable(set));
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_true(is_readable(set));
    close(ends[0]);
    assert_false(is_readable(set));
    close(ends[1]);
    twi_socket_set_close(set);
}

/* Goal: a connection that closed its socket takes nothing from the one whose new socket has its number. */
static void a_number_that_another_connection_has_now_stays_in_the_set(void **state) {
    (void)state;
    int old[2], ends[2], set = twi_socket_set_open();
    struct twi_watched first = {.fd = -1}, second = {.fd = -1};
    pair(old);
    twi_socket_set_watch(set, &second, old[0], false, true);
    close(old[0]);
    pair(ends);
    assert_int_equal(ends[0], old[0]);
    twi_socket_set_watch(set, &first, ends[0], false, true);
    twi_socket_set_watch(set, &second, -1, false, false);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_true(is_readable(set));
    close(old[1]);
    close(ends[0]);
    close(ends[1]);
    twi_socket_set_close(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_socket_with_bytes_makes_the_set_readable),
        cmocka_unit_test(a_number_that_another_connection_has_now_stays_in_the_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
