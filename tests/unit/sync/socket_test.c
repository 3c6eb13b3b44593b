/* socket_test.c -- a host name that leads elsewhere after a while. The resolver is the test's: it gives the address
 * that the test names. Two listeners on loopback have one port. */
#include "sync/wire/socket.h"
#include "tests/support/support.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAME "redis.test"

static const char *_Atomic leads_to; /* NULL: no name server answers */

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(host, NAME) == 0 && !(hints->ai_flags & AI_NUMERICHOST)) host = leads_to;
    return host ? real(host, service, hints, found) : EAI_AGAIN;
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

/* Goal: whoever runs Redis gives its name to another server, and the one of before still accepts connections (a master
 * that has become a replica). The next connection goes to the new one. While no name server answers, it goes where the
 * last one went. */
static void a_name_is_looked_up_for_each_connection(void **state) {
    (void)state;
    uint16_t port = 0;
    int one = listen_at("127.0.0.1", &port), other = listen_at("127.0.0.2", &port);
    struct twi_endpoint endpoint = {.host = NAME, .port = port};
    void *link = twi_socket_transport.create(NULL, &endpoint, true);
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
    close(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_looked_up_for_each_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
