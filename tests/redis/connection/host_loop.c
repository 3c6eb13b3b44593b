/* host_loop.c -- a host that does exactly what the header says. It waits for one descriptor, for reading, as long as
 * tw_timeout_ms() allows, and calls tw_turn(). Everything arrives, and the loop does not spin: not while a connection
 * is being made, not while a socket is full, not while a name server is silent.
 * Method: a real server. The name server is the test's, and sockets are made small where the test wants them to be
 * full. Turns are counted: a loop that spins makes many thousands in a second. */
#include "tests/redis/redis_rig.h"
#include "tests/support/redis_cluster.h"
#include "tests/support/side_by_side.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "redis.test"
#define TURNS_PER_S 20   /* promised while a connection is being made */
#define TURNS_AROUND 200 /* for what goes on before and after: greetings, batches, and turns of the engine's own */

/* ---- the system around it ---------------------------------------------------------------------------------------- */

static const char *_Atomic leads_to; /* NULL: no name server answers */
static _Atomic bool is_silent;       /* the name server says nothing until this is false again */
static _Atomic bool is_small;        /* new sockets have little room for what is sent */

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(host, NAME) != 0 || (hints->ai_flags & AI_NUMERICHOST)) return real(host, service, hints, found);
    while (is_silent) test_sleep_ms(1);
    host = leads_to;
    return host ? real(host, service, hints, found) : EAI_AGAIN;
}

int socket(int domain, int type, int protocol) {
    static int (*real)(int, int, int);
    int size = 4096;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "socket");
    int fd = real(domain, type, protocol);
    if (fd >= 0 && is_small) (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return fd;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static struct rig rig;
static int fd; /* asked for once */
static int64_t turns;

/* The batches come by flushes and by intervals of a second: between them the engine has nothing to do. */
static void open_host(const char *url, void (*change)(tw_options *options)) {
    tw_options options;
    rig_options(&rig, &options, url);
    options.threads = TW_HOST_DRIVEN;
    options.sync_interval_ms = 1000;
    if (change) change(&options);
    rig_start(&rig, &options);
    fd = tw_fd(rig.engine);
    turns = 0;
    assert_true(fd >= 0);
}

static void turn_once(uint32_t most_ms) {
    uint32_t wait_ms = tw_timeout_ms(rig.engine);
    struct pollfd one = {.fd = fd, .events = POLLIN};
    (void)poll(&one, 1, (int)(wait_ms < most_ms ? wait_ms : most_ms));
    assert_status(tw_turn(rig.engine), TW_OK);
    turns++;
}

static void turn_for(int64_t ms) {
    for (int64_t end_ms = test_mono_ms() + ms; test_mono_ms() < end_ms;) turn_once(1000);
}

static void turn_until(bool (*is_over)(void)) {
    for (int64_t end_ms = test_mono_ms() + 30000; !is_over();) {
        turn_once(1000);
        if (test_mono_ms() > end_ms) fail_msg("it does not happen");
    }
}

static bool is_connected(void) {
    return test_stat_of(rig.engine, redis_connected) == 1;
}

static bool is_cut(void) {
    return !is_connected();
}

static bool is_sent(void) {
    tw_reading reading;
    assert_status(tw_read(rig.family, tw_str("k"), &reading), TW_OK);
    return reading.unsent == 0;
}

/* For so long, the loop was promised to be at rest. */
static void check_rest(int64_t ms) {
    turns = 0;
    turn_for(ms);
    if (turns > ms * TURNS_PER_S / 1000 + TURNS_AROUND) fail_msg("%d turns in %d ms", (int)turns, (int)ms);
}

static void end(void) {
    assert_status(tw_close(rig.engine, TEST_PATIENCE_MS), TW_OK);
}

/* ---- one descriptor ---------------------------------------------------------------------------------------------- */

/* Goal: the descriptor has one number over fifty connections, and suffices for each of them. */
TEST(one_number_over_fifty_connections) {
    redis_server_start_tcp(&rig.server, NULL);
    rig.proxy = proxy_start(&rig.server, 1);
    open_host(proxy_url(rig.proxy), NULL);
    for (int i = 0; i < 50; i++) {
        turn_until(is_connected);
        rig_add(&rig, 1);
        proxy_cut_all(rig.proxy);
        turn_until(is_cut);
        assert_int_equal(tw_fd(rig.engine), fd);
    }
    turn_until(is_sent);
    rig_check(&rig, &rig.server);
    assert_true(test_stat_of(rig.engine, connects) >= 50);
    end();
    proxy_stop(rig.proxy);
    redis_server_destroy(&rig.server);
}

/* A listener whose backlog is full drops what asks for a connection. */
struct hole {
    int listener, clients[8];
    char url[64];
};

static void hole_make(struct hole *hole) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(hole->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(hole->listener, 0), 0);
    assert_int_equal(getsockname(hole->listener, (struct sockaddr *)&address, &size), 0);
    for (size_t i = 0; i < 8; i++) {
        hole->clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(hole->clients[i], (struct sockaddr *)&address, size);
    }
    snprintf(hole->url, sizeof hole->url, "redis://127.0.0.1:%u", ntohs(address.sin_port));
}

static void hole_close(struct hole *hole) {
    for (size_t i = 0; i < 8; i++) close(hole->clients[i]);
    close(hole->listener);
}

/* Goal: while a connection is being made to a host that does not answer, the loop makes at most 20 turns a second. */
TEST(a_host_that_does_not_answer_is_waited_for) {
    struct hole hole;
    hole_make(&hole);
    open_host(hole.url, NULL);
    rig_add(&rig, 1);
    check_rest(2000);
    assert_false(is_connected());
    (void)tw_close(rig.engine, 0);
    hole_close(&hole);
}

static _Atomic int answers;

static void on_answer(tw_request *call) {
    answers++;
}

static tw_family *strict_of(tw_engine *engine) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = "s";
    options.limit_mode = TW_LIMIT_STRICT;
    assert_status(tw_family_open(engine, &options, &family), TW_OK);
    return family;
}

/* Goal: the same while calls wait for that connection; each is answered when its time is over. */
TEST(calls_that_wait_for_a_connection_let_the_loop_rest) {
    struct hole hole;
    static tw_request calls[20];
    int started = 0;
    hole_make(&hole);
    open_host(hole.url, NULL);
    tw_family *family = strict_of(rig.engine);
    for (size_t i = 0; i < 20; i++) {
        tw_request_init(&calls[i]);
        calls[i].done = on_answer;
        calls[i].timeout_ms = 1500;
        started += tw_acquire_async(&calls[i], family, tw_str("k"), 1, 10) == TW_STARTED;
    }
    assert_int_equal(started, 20);
    check_rest(1000);
    turn_for(1500);
    assert_int_equal(answers, 20);
    (void)tw_close(rig.engine, 0);
    hole_close(&hole);
}

/* Goal: a call that another thread starts, or that the loop starts between two turns, wakes the loop: it does not wait
 * for the time of the next turn. */
static void *start_one(void *family) {
    static tw_request call;
    tw_request_init(&call);
    call.done = on_answer;
    call.timeout_ms = 20000;
    test_sleep_ms(100); /* the loop waits by now */
    assert_status(tw_acquire_async(&call, family, tw_str("k"), 1, 10), TW_STARTED);
    return NULL;
}

static bool is_answered(void) {
    return answers == 1;
}

TEST(a_call_of_another_thread_wakes_the_loop) {
    pthread_t thread;
    redis_server_start(&rig.server, NULL);
    open_host(rig.server.url, NULL);
    turn_until(is_connected);
    assert_int_equal(pthread_create(&thread, NULL, start_one, strict_of(rig.engine)), 0);
    turn_until(is_answered);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(turns < TURNS_AROUND);
    end();
    redis_server_destroy(&rig.server);
}

static void be_patient(tw_options *options) {
    options->redis_timeout_ms = 60000;
}

static int64_t batches; /* sent so far */

static bool has_sent_a_batch(void) {
    return test_stat_of(rig.engine, batches_sent) > batches;
}

/* Goal: while a socket takes no more bytes the loop rests, and then continues. Method: a server that is stopped, and a
 * socket with room for a part of a batch. */
TEST(a_full_socket_is_waited_for) {
    char key[900];
    redis_server_start(&rig.server, NULL);
    is_small = true;
    open_host(rig.server.url, be_patient);
    turn_until(is_connected);
    is_small = false;
    rig_add(&rig, 1);
    turn_until(is_sent);
    redis_server_pause(&rig.server);
    batches = test_stat_of(rig.engine, batches_sent);
    memset(key, 'x', sizeof key);
    for (int i = 0; i < 500; i++) {
        memcpy(key, &i, sizeof i);
        assert_status(tw_add(rig.family, tw_bytes(key, sizeof key), 1, NULL), TW_OK);
    }
    turn_until(has_sent_a_batch); /* and it does not get through */
    check_rest(1000);
    redis_server_resume(&rig.server);
    rig_add(&rig, 1);
    turn_until(is_sent);
    rig_flush(&rig);
    assert_i64_equal(sum_of(&rig.server, "f:*"), 502);
    end();
    redis_server_destroy(&rig.server);
}

/* Goal: a host that is told only of edges (EPOLLET) misses nothing. Every turn takes what is there, or tw_timeout_ms()
 * is 0. Method: so much work that turns end before it is done; a reply that were missed would be noticed after a minute
 * only. */
TEST(a_host_that_is_told_of_edges_misses_nothing) {
    struct epoll_event wanted = {.events = EPOLLIN | EPOLLET}, got;
    int loop = epoll_create1(EPOLL_CLOEXEC);
    char key[16];
    redis_server_start_tcp(&rig.server, NULL);
    rig.proxy = proxy_start(&rig.server, 1);
    open_host(proxy_url(rig.proxy), be_patient);
    assert_int_equal(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &wanted), 0);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 5000; i++) {
            snprintf(key, sizeof key, "k%d", i);
            assert_status(tw_add(rig.family, tw_str(key), 1, NULL), TW_OK);
        }
        rig_add(&rig, 1);
        for (int64_t end_ms = test_mono_ms() + 30000; !is_sent();) {
            (void)epoll_wait(loop, &got, 1, (int)tw_timeout_ms(rig.engine));
            assert_status(tw_turn(rig.engine), TW_OK);
            if (test_mono_ms() > end_ms) fail_msg("it does not arrive");
        }
        proxy_cut_all(rig.proxy);
    }
    rig_flush(&rig);
    assert_i64_equal(sum_of(&rig.server, "f:*"), 4 * 5001);
    end();
    close(loop);
    proxy_stop(rig.proxy);
    redis_server_destroy(&rig.server);
}

/* ---- forks ------------------------------------------------------------------------------------------------------- */

/* Goal: a forked child has a separate descriptor, and parent and child continue with theirs. */
TEST(a_child_waits_for_its_own) {
    redis_server_start(&rig.server, NULL);
    open_host(rig.server.url, NULL);
    turn_until(is_connected);
    pid_t pid = fork();
    if (pid == 0) {
        bool is_parents = fcntl(fd, F_GETFD) >= 0; /* fork() has closed it */
        fd = tw_fd(rig.engine);
        if (is_parents || fd < 0) _exit(1);
        if (tw_add(rig.family, tw_str("k"), 5, NULL) != TW_OK) _exit(2);
        turn_until(is_sent);
        _exit(tw_close(rig.engine, 10000) == TW_OK ? 0 : 3);
    }
    rig_add(&rig, 2);
    turn_until(is_sent);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(tw_fd(rig.engine), fd);
    rig_add(&rig, 3);
    turn_until(is_sent);
    assert_i64_equal(redis_server_get(&rig.server, "f:k"), 10);
    end();
    redis_server_destroy(&rig.server);
}

/* Goal: a child that has nothing to do with the engine does not make its parent's loop spin. It keeps copies of the
 * earlier sockets. */
TEST(a_child_that_only_sleeps_does_not_disturb) {
    redis_server_start_tcp(&rig.server, NULL);
    rig.proxy = proxy_start(&rig.server, 1);
    open_host(proxy_url(rig.proxy), NULL);
    turn_until(is_connected);
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) pause();
    }
    proxy_cut_all(rig.proxy);
    turn_until(is_cut);
    turn_until(is_connected);
    check_rest(1000);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    end();
    proxy_stop(rig.proxy);
    redis_server_destroy(&rig.server);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void name_url(char *url, size_t size, const char *scheme, int port) {
    snprintf(url, size, "%s" NAME ":%d", scheme, port);
}

/* Goal: opening waits for no name server, nor does any turn, and the loop rests meanwhile. When the server answers, the
 * engine connects. Closing does not wait for a look-up, either. */
TEST(a_silent_name_server_holds_up_nobody) {
    char url[64];
    redis_server_start_tcp(&rig.server, NULL);
    name_url(url, sizeof url, "redis://", rig.server.port);
    leads_to = "127.0.0.1";
    is_silent = true;
    open_host(url, NULL); /* a call that waited would wait for ever */
    rig_add(&rig, 1);
    check_rest(1500);
    assert_false(is_connected());
    is_silent = false;
    turn_until(is_connected);
    turn_until(is_sent);
    rig_check(&rig, &rig.server);
    end();
    is_silent = true;
    open_host(url, NULL);
    turn_once(0);
    (void)tw_close(rig.engine, 0);
    is_silent = false;
    assert_true(test_wait(test_is_alone, NULL, TEST_PATIENCE_MS)); /* the thread of the look-up frees it */
    redis_server_destroy(&rig.server);
}

/* Goal: a name that nobody knows at the start, and that leads elsewhere later (a failover by the name server). The
 * engine follows, in both modes. */
TEST(a_name_is_followed) {
    static const char *const other_address[] = {"--bind", "127.0.0.2", NULL};
    char url[64];
    redis_server_start_tcp(&rig.server, NULL);
    assert_true(redis_server_start_at(&rig.replica, rig.server.port, 0, other_address));
    name_url(url, sizeof url, "redis://", rig.server.port);
    leads_to = NULL;
    open_host(url, NULL);
    rig_add(&rig, 7);
    turn_for(300);
    assert_false(is_connected());
    leads_to = "127.0.0.1";
    turn_until(is_sent);
    assert_i64_equal(redis_server_get(&rig.server, "f:k"), 7);
    redis_server_kill(&rig.server);
    turn_until(is_cut);
    leads_to = "127.0.0.2";
    rig_add(&rig, 1);
    turn_until(is_sent);
    assert_true(redis_server_get(&rig.replica, "f:k") >= 1);
    end();
    redis_server_destroy(&rig.replica);
    redis_server_destroy(&rig.server);
}

/* Goal: the nodes of a cluster are reached by name, too, where the host drives: the seed of the URL. */
TEST(a_seed_of_a_cluster_is_looked_up) {
    static struct redis_cluster cluster;
    char url[64];
    redis_cluster_start(&cluster, 1, 0, NULL);
    name_url(url, sizeof url, "redis+cluster://", redis_cluster_server(&cluster, 0)->port);
    leads_to = "127.0.0.1";
    open_host(url, NULL);
    rig_add(&rig, 1);
    turn_until(is_sent);
    assert_true(is_connected());
    end();
    redis_cluster_destroy(&cluster);
}

int main(void) {
    redis_server_require();
    return test_run_side_by_side();
}
