/* redis_server.c -- see redis_server.h. Has a minimal codec of its own for commands, so that tests judge the library's
 * codec by another one.
 * Always true: every server in `running` belongs to this process and is killed at exit, and its folder removed. A
 * forked child does not touch them. */
#include "tests/support/redis_server.h"
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVERS_MAX 16
#define START_MS 60000 /* it may read a long file first, on a busy machine */
#define ARGUMENTS_MAX 64
#define WORDS_MAX 256

static struct redis_server *running[SERVERS_MAX];
static pid_t owner;

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static void reap(struct redis_server *server, int signal_number) {
    if (server->pid <= 0) return;
    kill(server->pid, signal_number);
    kill(server->pid, SIGCONT); /* a paused one could not end */
    while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR) continue;
    server->pid = 0;
}

static void destroy_all(void) {
    if (getpid() != owner) return;
    for (size_t index = 0; index < SERVERS_MAX; index++) {
        if (running[index] != NULL) redis_server_destroy(running[index]);
    }
}

static void enlist(struct redis_server *server) {
    if (owner != getpid()) {
        owner = getpid();
        memset(running, 0, sizeof running);
        atexit(destroy_all);
    }
    for (size_t index = 0; index < SERVERS_MAX; index++) {
        if (running[index] == NULL) {
            running[index] = server;
            return;
        }
    }
    fail_msg("more than %d servers", SERVERS_MAX);
}

static void delist(struct redis_server *server) {
    for (size_t index = 0; index < SERVERS_MAX; index++) {
        if (running[index] == server) running[index] = NULL;
    }
}

void redis_server_require(void) {
    const char *path = getenv("PATH");
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", path != NULL ? path : "/usr/bin:/bin");
    char *rest = copy;
    for (char *folder; (folder = strsep(&rest, ":")) != NULL;) {
        char file[4200];
        snprintf(file, sizeof file, "%s/redis-server", folder);
        if (access(file, X_OK) == 0) return;
    }
    test_skip_program("redis-server is not installed: apt-get install redis-server");
}

/* As "v=7.0.15" says: 70015. Asked once. */
static int version(void) {
    static int known;
    char line[256] = "", *at = NULL;
    FILE *said = known == 0 ? popen("redis-server --version", "re") : NULL;
    if (said == NULL) return known;
    if (fgets(line, sizeof line, said) == NULL || (at = strstr(line, " v=")) == NULL) fail_msg("no version: %s", line);
    pclose(said);
    int major = (int)strtol(at + 3, &at, 10), minor = *at == '.' ? (int)strtol(at + 1, &at, 10) : 0;
    return known = 10000 * major + 100 * minor + (*at == '.' ? (int)strtol(at + 1, NULL, 10) : 0);
}

bool redis_server_is_at_least(int major, int minor) {
    return version() >= 10000 * major + 100 * minor;
}

const char *redis_server_no_channels(void) {
    return redis_server_is_at_least(6, 2) ? "resetchannels" : "-@all";
}

/* An older server ends if it gets one of these. What they ask for is so there, or the test says that it is left out. */
static bool is_known(const char *option) {
    static const char *const since_7[] = {"--enable-debug-command", "--cluster-allow-replica-migration",
                                          "--cluster-announce-hostname", "--loading-process-events-interval-bytes"};
    for (size_t index = 0; index < sizeof since_7 / sizeof *since_7; index++)
        if (strcmp(option, since_7[index]) == 0) return redis_server_is_at_least(7, 0);
    return true;
}

static void become_server(struct redis_server *server) {
    char port[16], tls_port[16], log[128];
    snprintf(port, sizeof port, "%d", server->port);
    snprintf(tls_port, sizeof tls_port, "%d", server->tls_port);
    snprintf(log, sizeof log, "%s/redis.log", server->folder);
    const char *common[] = {"--port", port,           "--bind",      "127.0.0.1", "--unixsocket", server->socket,
                            "--dir",  server->folder, "--daemonize", "no",        "--logfile",    log};
    const char *alone[] = {"--save", "", "--appendonly", "no"};
    const char *arguments[ARGUMENTS_MAX] = {"redis-server"};
    size_t count = 1;
    bool is_sentinel = server->config[0] != '\0';
    if (is_sentinel) arguments[count++] = server->config, arguments[count++] = "--sentinel";
    for (size_t index = 0; index < sizeof common / sizeof *common; index++) arguments[count++] = common[index];
    for (size_t index = 0; !is_sentinel && index < sizeof alone / sizeof *alone; index++)
        arguments[count++] = alone[index];
    if (server->tls_port != 0) { /* a server that was built without TLS does not know the word */
        arguments[count++] = "--tls-port";
        arguments[count++] = tls_port;
    }
    for (size_t index = 0; server->extra != NULL && server->extra[index] != NULL && count < ARGUMENTS_MAX - 1;
         index++) {
        if (is_known(server->extra[index]))
            arguments[count++] = server->extra[index];
        else
            index++; /* its value */
    }
    int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, 0), dup2(nothing, 1), dup2(nothing, 2);
    /* the server must not hold open the connections of the program under test */
    for (int fd = 3; fd < 1024; fd++) close(fd);
    execvp("redis-server", (char *const *)arguments);
    _exit(127);
}

static bool answers(struct redis_server *server) {
    return strcmp(redis_server_ask(server, "PING", NULL), "PONG") == 0;
}

static bool try_launch(struct redis_server *server) {
    unlink(server->socket); /* left by a killed server */
    server->pid = test_fork();
    if (server->pid == 0) become_server(server);
    if (server->pid < 0) fail_msg("fork: %s", strerror(errno));
    int64_t deadline = test_mono_ms() + START_MS;
    while (!answers(server)) {
        if (test_mono_ms() > deadline || waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            reap(server, SIGKILL);
            return false;
        }
        test_sleep_ms(5);
    }
    return true;
}

static void launch(struct redis_server *server) {
    if (!try_launch(server)) fail_msg("redis-server does not answer; its log is %s/redis.log", server->folder);
}

int redis_server_free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        fail_msg("no free port: %s", strerror(errno));
    }
    close(fd);
    return ntohs(address.sin_port);
}

static void prepare(struct redis_server *server, const char *const *extra) {
    memset(server, 0, sizeof *server);
    server->extra = extra;
    if (extra != NULL) (void)version(); /* the forked child looks at it */
    strcpy(server->folder, "/tmp/tallywheel-redis-XXXXXX");
    if (mkdtemp(server->folder) == NULL) fail_msg("mkdtemp: %s", strerror(errno));
    snprintf(server->socket, sizeof server->socket, "%s/socket", server->folder);
    snprintf(server->url, sizeof server->url, "unix://%s", server->socket);
    enlist(server);
}

void redis_server_start(struct redis_server *server, const char *const *extra) {
    prepare(server, extra);
    launch(server);
}

/* A port that was free a moment ago may be in use by now. A node of a cluster also listens at its port plus 10,000:
 * that may be in use, or no port at all. */
static void launch_tcp(struct redis_server *server, bool with_tls) {
    for (int tries = 0; tries < 20; tries++) {
        server->port = redis_server_free_port();
        if (with_tls) server->tls_port = redis_server_free_port();
        if (try_launch(server)) return;
    }
    fail_msg("redis-server does not answer; its log is %s/redis.log", server->folder);
}

void redis_server_start_tcp(struct redis_server *server, const char *const *extra) {
    prepare(server, extra);
    launch_tcp(server, false);
}

void redis_server_start_tls(struct redis_server *server, const char *const *extra) {
    prepare(server, extra);
    launch_tcp(server, true);
}

bool redis_server_start_sentinel(struct redis_server *server, int port, const char *lines) {
    prepare(server, NULL);
    server->port = port;
    snprintf(server->config, sizeof server->config, "%s/sentinel.conf", server->folder);
    FILE *file = fopen(server->config, "we");
    if (file == NULL || fputs(lines, file) < 0 || fclose(file) != 0) fail_msg("sentinel.conf: %s", strerror(errno));
    return try_launch(server);
}

bool redis_server_start_at(struct redis_server *server, int port, int tls_port, const char *const *extra) {
    prepare(server, extra);
    server->port = port;
    server->tls_port = tls_port;
    if (try_launch(server)) return true;
    redis_server_destroy(server);
    return false;
}

void redis_server_stop(struct redis_server *server) {
    reap(server, SIGTERM);
}

void redis_server_kill(struct redis_server *server) {
    reap(server, SIGKILL);
}

void redis_server_restart(struct redis_server *server) {
    reap(server, SIGTERM);
    launch(server);
}

void redis_server_pause(struct redis_server *server) {
    kill(server->pid, SIGSTOP);
    int status;
    waitpid(server->pid, &status, WUNTRACED); /* from here on it does not run */
}

void redis_server_resume(struct redis_server *server) {
    kill(server->pid, SIGCONT);
}

void redis_server_destroy(struct redis_server *server) {
    reap(server, SIGKILL);
    delist(server);
    if (server->folder[0] != '\0') nftw(server->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    server->folder[0] = '\0';
}

/* ---- commands
 * -------------------------------------------------------------------------------------------------------- */

struct answer {
    char text[1 << 16];
    size_t size;
};

static FILE *connect_to(const struct redis_server *server) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", server->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return NULL;
    struct timeval patience = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    FILE *stream = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fdopen(fd, "r") : NULL;
    if (stream == NULL) close(fd);
    return stream;
}

static void answer_append(struct answer *answer, const char *text, size_t size) {
    if (answer->size + size >= sizeof answer->text) size = sizeof answer->text - 1 - answer->size;
    memcpy(answer->text + answer->size, text, size);
    answer->size += size;
    answer->text[answer->size] = '\0';
}

static bool read_bulk(FILE *stream, struct answer *answer, long size) {
    char block[4096];
    for (long left = size + 2; left > 0;) { /* + 2: \r\n */
        size_t wanted = left < (long)sizeof block ? (size_t)left : sizeof block;
        if (fread(block, 1, wanted, stream) != wanted) return false;
        long shown = left - 2 < (long)wanted ? left - 2 : (long)wanted;
        if (shown > 0) answer_append(answer, block, (size_t)shown);
        left -= (long)wanted;
    }
    return true;
}

static bool read_reply(FILE *stream, struct answer *answer) {
    char line[4096];
    if (fgets(line, sizeof line, stream) == NULL) return false;
    size_t size = strcspn(line, "\r\n");
    line[size] = '\0';
    if (line[0] == '$') return line[1] == '-' ? true : read_bulk(stream, answer, strtol(line + 1, NULL, 10));
    if (line[0] != '*') {
        answer_append(answer, line + 1, size - 1);
        return true;
    }
    long count = strtol(line + 1, NULL, 10);
    for (long index = 0; index < count; index++) {
        if (index > 0) answer_append(answer, "\n", 1);
        if (!read_reply(stream, answer)) return false;
    }
    return true;
}

/* A server that is ending has closed its side: fflush() would then end this process by SIGPIPE. */
static bool send_words(FILE *stream, const char *const *words, size_t count) {
    char *bytes = NULL;
    size_t size = 0, sent = 0;
    FILE *request = open_memstream(&bytes, &size);
    if (request == NULL) fail_msg("out of memory");
    fprintf(request, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) fprintf(request, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
    fclose(request);
    for (ssize_t part; sent < size && (part = send(fileno(stream), bytes + sent, size - sent, MSG_NOSIGNAL)) > 0;)
        sent += (size_t)part;
    free(bytes);
    return sent == size;
}

/* Returns "" also if the connection failed: callers that care check for the reply that they expect. */
const char *redis_server_ask_words(struct redis_server *server, const char *const *words, size_t count) {
    static struct answer answer;
    answer.size = 0;
    answer.text[0] = '\0';
    FILE *stream = connect_to(server);
    if (stream == NULL) return "";
    if (server->asking) { /* its reply is read first: the next one is the answer */
        (void)send_words(stream, (const char *const[]){"ASKING"}, 1);
        (void)read_reply(stream, &answer);
        answer.size = 0;
        answer.text[0] = '\0';
    }
    bool sent = send_words(stream, words, count);
    bool whole = sent && read_reply(stream, &answer);
    fclose(stream);
    return whole ? answer.text : "";
}

const char *redis_server_ask(struct redis_server *server, ...) {
    const char *array[WORDS_MAX];
    size_t count = 0;
    va_list words;
    va_start(words, server);
    for (const char *word; (word = va_arg(words, const char *)) != NULL;) {
        if (count == WORDS_MAX) fail_msg("more than %d words", WORDS_MAX);
        array[count++] = word;
    }
    va_end(words);
    return redis_server_ask_words(server, array, count);
}

/* TIME and PTTL are read in one script, until they fall into the same millisecond. */
int64_t redis_server_expiry(struct redis_server *server, const char *key) {
    static const char script[] = "local a = redis.call('TIME') local t = redis.call('PTTL', KEYS[1]) "
                                 "local b = redis.call('TIME') local m = math.floor(a[2] / 1000) "
                                 "if t < 0 then return t end "
                                 "return a[1] == b[1] and m == math.floor(b[2] / 1000) and a[1] * 1000 + m + t or -3";
    if (redis_server_is_at_least(7, 0)) return atoll(redis_server_ask(server, "PEXPIRETIME", key, NULL));
    for (;;) {
        int64_t expiry = atoll(redis_server_ask(server, "EVAL", script, "1", key, NULL));
        if (expiry != -3) return expiry;
    }
}

int64_t redis_server_get(struct redis_server *server, const char *key) {
    return strtoll(redis_server_ask(server, "GET", key, NULL), NULL, 10);
}
