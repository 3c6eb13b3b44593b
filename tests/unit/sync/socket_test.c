/* socket_test.c -- a host name that leads elsewhere after a while, or whose name server is silent; and what a
 * connection puts into its socket set. The resolver is the test's. It gives the address that the test names, when the
 * test lets it. Two listeners on loopback have one port.
 * Covers: sync/wire/socket.c, sync/wire/sentinel.c, sync/wire/socket.c. */
#include "engine/base/descriptor.h"
#include "sync/wire/socket.h"
#include "tests/support/support.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "redis.test"

static const char *_Atomic leads_to; /* NULL: no name server answers */
static _Atomic bool is_silent;       /* the name server says nothing until this is false again */
static _Atomic int asks, answers;    /* how often it was asked for the name, and has answered */

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(host, NAME) != 0 || (hints->ai_flags & AI_NUMERICHOST)) return real(host, service, hints, found);
    asks++;
    while (is_silent) test_sleep_ms(1);
    host = leads_to;
    int done = host ? real(host, service, hints, found) : EAI_AGAIN;
    answers++;
    return done;
}

/* A look-up has a thread of its own, which publishes what it has found, or frees it, and ends. */
static void await_look_ups(void) {
    assert_true(test_wait(test_is_alone, NULL, TEST_PATIENCE_MS));
}

static int listen_at(const char *host, uint16_t *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(inet_pton(AF_INET, host, &address.sin_addr), 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* Connects, says where to, and closes. "": no connection was made. */
static const char *connect_once(void *link, const struct twi_endpoint *endpoint) {
    static char peer[INET_ADDRSTRLEN];
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    bool wants_write;
    int done = 0;
    peer[0] = '\0';
    for (int64_t end_ms = test_mono_ms() + 10000; done == 0 && test_mono_ms() < end_ms; test_sleep_ms(1))
        done = twi_socket_transport.connect(link, endpoint, test_mono_ms(), end_ms);
    if (done > 0) {
        int fd = twi_socket_transport.fd(link, &wants_write);
        assert_int_equal(getpeername(fd, (struct sockaddr *)&address, &size), 0);
        assert_non_null(inet_ntop(AF_INET, &address.sin_addr, peer, sizeof peer));
    }
    twi_socket_transport.close(link);
    return peer;
}

/* Goal: whoever runs Redis gives its name to another server, and the earlier one still accepts connections (a master
 * that has become a replica). The next connection goes to the new one. While no name server answers, it goes where the
 * last one went. */
TEST(a_name_is_looked_up_for_each_connection) {
    uint16_t port = 0;
    int one = listen_at("127.0.0.1", &port), other = listen_at("127.0.0.2", &port);
    struct twi_endpoint endpoint = {.host = NAME, .port = port};
    void *link = twi_socket_transport.create(NULL, -1);
    assert_non_null(link);
    leads_to = NULL;
    assert_string_equal(connect_once(link, &endpoint), "");
    leads_to = "127.0.0.1";
    assert_string_equal(connect_once(link, &endpoint), "127.0.0.1");
    leads_to = NULL;
    for (int i = 0; i < 2; i++) assert_string_equal(connect_once(link, &endpoint), "127.0.0.1");
    leads_to = "127.0.0.2";
    assert_string_equal(connect_once(link, &endpoint), "127.0.0.2");
    leads_to = NULL;
    assert_string_equal(connect_once(link, &endpoint), "127.0.0.2");
    close(other);
    assert_string_equal(connect_once(link, &endpoint), ""); /* and what does not answer is forgotten */
    assert_string_equal(connect_once(link, &endpoint), "");
    leads_to = "127.0.0.1";
    assert_string_equal(connect_once(link, &endpoint), "127.0.0.1");
    twi_socket_transport.destroy(link);
    await_look_ups();
    close(one);
}

/* ---- what waits in the socket set -------------------------------------------------------------------------------- */

static struct twi_socket_set set;

static void set_begin(void) {
    assert_true(twi_socket_set_make(&set));
    leads_to = "127.0.0.1";
}

static bool is_readable(int wait_ms) {
    struct pollfd one = {.fd = set.fd, .events = POLLIN};
    return poll(&one, 1, wait_ms) == 1;
}

static int go_on(void *link, const struct twi_endpoint *endpoint) {
    return twi_socket_transport.connect(link, endpoint, test_mono_ms(), test_mono_ms() + 60000);
}

/* Connects as a host does. A call when the set is readable, and none before. Returns the calls. */
static int connect_by_set(void *link, const struct twi_endpoint *endpoint) {
    int calls = 1, done = go_on(link, endpoint);
    for (; done == 0; calls++) {
        assert_true(is_readable(10000));
        done = go_on(link, endpoint);
    }
    assert_int_equal(done, 1);
    return calls;
}

/* Goal: while a name server is silent no thread waits, and nobody is woken; its answer wakes. Where nobody connects any
 * more, it does not. The set is quiet, and the next attempt finds the answer at once. */
TEST(an_answer_of_the_name_server_wakes_whoever_connects) {
    uint16_t port = 0;
    set_begin();
    int listener = listen_at("127.0.0.1", &port), before = answers;
    struct twi_endpoint endpoint = {.host = NAME, .port = port};
    void *link = twi_socket_transport.create(NULL, set.fd);
    for (int round = 0; round < 2; round++) {
        is_silent = true;
        for (int i = 0; i < 3; i++) assert_int_equal(go_on(link, &endpoint), 0);
        assert_false(is_readable(30));
        if (round == 1) twi_socket_transport.close(link);
        is_silent = false;
        while (answers == before) test_sleep_ms(1);
        await_look_ups();
        before = answers;
        if (round == 1) assert_false(is_readable(30));
        assert_true(connect_by_set(link, &endpoint) <= 4);
        assert_int_equal(answers, before);
        assert_false(is_readable(0));
        twi_socket_transport.close(link);
        assert_false(is_readable(0));
    }
    twi_socket_transport.destroy(link);
    twi_socket_set_unmake(&set);
    close(listener);
}

/* Goal: a connection can be given up while its name is being looked up, also in a forked child: no thread waits for the
 * look-up, and what it finds later is freed. (A sanitizer or valgrind sees what is touched, and leaks.) */
TEST(a_connection_ends_while_its_look_up_hangs) {
    struct twi_endpoint endpoint = {.host = NAME, .port = 1};
    set_begin();
    int before = answers, asked = asks;
    is_silent = true;
    void *link = twi_socket_transport.create(NULL, set.fd);
    assert_int_equal(go_on(link, &endpoint), 0);
    while (asks == asked) test_sleep_ms(1);
    pid_t pid = fork();
    if (pid == 0) {
        twi_socket_transport.abandon(link);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    twi_socket_transport.destroy(link);
    is_silent = false;
    while (answers == before) test_sleep_ms(1);
    await_look_ups();
    assert_false(is_readable(0));
    twi_socket_set_unmake(&set);
}

/* Goal: a socket that is full wakes nobody until it takes bytes again. Then what is left can be sent. */
TEST(a_full_socket_wakes_nobody_until_there_is_room) {
    static char data[1 << 20], drain[1 << 16];
    uint16_t port = 0;
    set_begin();
    int listener = listen_at("127.0.0.1", &port);
    struct twi_endpoint endpoint = {.host = "127.0.0.1", .port = port};
    void *link = twi_socket_transport.create(NULL, set.fd);
    (void)connect_by_set(link, &endpoint);
    int peer = accept(listener, NULL, NULL);
    assert_true(peer >= 0);
    assert_false(is_readable(0));
    while (twi_socket_transport.send(link, data, sizeof data) != 0) continue;
    for (int64_t end_ms = test_mono_ms() + 5000; is_readable(0) && test_mono_ms() < end_ms;) /* it is still moving */
        (void)twi_socket_transport.send(link, data, sizeof data);
    assert_false(is_readable(100));
    while (!is_readable(0)) assert_true(recv(peer, drain, sizeof drain, 0) > 0);
    while (twi_socket_transport.send(link, data, 1) != 1) assert_true(recv(peer, drain, sizeof drain, 0) > 0);
    assert_false(is_readable(0));
    twi_socket_transport.destroy(link);
    close(peer);
    close(listener);
    twi_socket_set_unmake(&set);
}

/* Goal: a connection that was closed wakes nobody, though a child of the host still has a copy of its socket. */
TEST(a_child_of_the_host_does_not_keep_a_closed_connection_awake) {
    uint16_t port = 0;
    set_begin();
    int listener = listen_at("127.0.0.1", &port);
    struct twi_endpoint endpoint = {.host = "127.0.0.1", .port = port};
    void *link = twi_socket_transport.create(NULL, set.fd);
    (void)connect_by_set(link, &endpoint);
    int peer = accept(listener, NULL, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) pause();
    }
    twi_socket_transport.close(link);
    close(peer);
    assert_false(is_readable(100));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    twi_socket_transport.destroy(link);
    close(listener);
    twi_socket_set_unmake(&set);
}
