/* server.c -- the tests' own redis-server works: the other programs of this folder depend on it. */
#include "tests/support/redis_server.h"
#include "tests/support/support.h"

#include <unistd.h>

/* Goal: a test can rely on start, command, stop and kill. Method: write, restart with and without an append-only
 * file. */
TEST(a_server_answers_over_its_socket) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    assert_string_equal(redis_server_ask(&server, "SET", "a", "41", NULL), "OK");
    redis_server_ask(&server, "INCR", "a", NULL);
    assert_i64_equal(redis_server_get(&server, "a"), 42);
    assert_i64_equal(redis_server_get(&server, "missing"), 0);
    redis_server_ask(&server, "RPUSH", "list", "x", "y", NULL);
    assert_string_equal(redis_server_ask(&server, "LRANGE", "list", "0", "-1", NULL), "x\ny");
    assert_non_null(strstr(redis_server_ask(&server, "NONSENSE", NULL), "ERR unknown command"));
    redis_server_destroy(&server);
}

TEST(what_an_append_only_file_holds_survives_a_kill) {
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct redis_server server;
    redis_server_start_tcp(&server, durable);
    assert_true(server.port > 0);
    redis_server_ask(&server, "SET", "a", "7", NULL);
    redis_server_kill(&server);
    assert_string_equal(redis_server_ask(&server, "PING", NULL), "");
    redis_server_restart(&server);
    assert_i64_equal(redis_server_get(&server, "a"), 7);
    redis_server_destroy(&server);
    assert_int_equal(access(server.socket, F_OK), -1);
}

TEST(without_one_a_restart_forgets) {
    struct redis_server server;
    redis_server_start(&server, NULL);
    redis_server_ask(&server, "SET", "a", "7", NULL);
    redis_server_restart(&server);
    assert_i64_equal(redis_server_get(&server, "a"), 0);
    redis_server_destroy(&server);
}

int main(void) {
    redis_server_require();
    return test_run();
}
