/* key_slot.c -- 100,000 names are in the slots that a cluster's own node reports. A node answers CLUSTER KEYSLOT before
 * it is part of any cluster. */
#include "tests/redis/sync_support.h"

#include "engine/base/key_slot.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NAMES = 100000, ROUND = 2000, NAME_BYTES = 40 };

static size_t draw(struct test_prng *prng, char name[NAME_BYTES]) {
    size_t size = 1 + test_prng_below(prng, NAME_BYTES - 1);
    for (size_t i = 0; i < size; i++) /* braces are frequent */
        name[i] =
            (char)(test_prng_chance(prng, 1, 6) ? "{}"[test_prng_below(prng, 2)] : (int)test_prng_below(prng, 256));
    return size;
}

static int connect_to(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void send_all(int fd, const char *bytes, size_t size) {
    for (ssize_t sent; size != 0; bytes += sent, size -= (size_t)sent)
        assert_true((sent = send(fd, bytes, size, MSG_NOSIGNAL)) > 0);
}

/* Reads the next ":number\r\n". */
static uint32_t hear_number(int fd) {
    static char bytes[65536];
    static size_t at, end;
    uint32_t number = 0;
    for (char byte = 0; byte != '\n';) {
        if (at == end) {
            ssize_t got = recv(fd, bytes, sizeof bytes, 0);
            assert_true(got > 0);
            at = 0;
            end = (size_t)got;
        }
        byte = bytes[at++];
        assert_true(byte != '-');
        if (byte >= '0' && byte <= '9') number = 10 * number + (uint32_t)(byte - '0');
    }
    return number;
}

TEST(every_name_lies_where_a_cluster_says) {
    static const char *const options[] = {"--cluster-enabled", "yes", NULL};
    static char out[ROUND * (NAME_BYTES + 60)];
    static uint32_t slots[ROUND];
    struct redis_server server;
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    redis_server_start_tcp(&server, options);
    int fd = connect_to(server.port);
    for (int done = 0; done < NAMES; done += ROUND) {
        size_t used = 0;
        for (int i = 0; i < ROUND; i++) {
            char name[NAME_BYTES];
            size_t size = draw(&prng, name);
            slots[i] = twi_key_slot_of(name, size);
            used += (size_t)sprintf(out + used, "*3\r\n$7\r\nCLUSTER\r\n$7\r\nKEYSLOT\r\n$%zu\r\n", size);
            memcpy(out + used, name, size);
            memcpy(out + used + size, "\r\n", 2);
            used += size + 2;
        }
        send_all(fd, out, used);
        for (int i = 0; i < ROUND; i++) assert_int_equal(hear_number(fd), slots[i]);
    }
    close(fd);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
