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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVERS_MAX 8
#define START_MS 10000
#define ARGUMENTS_MAX 64

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
    test_skip_program("redis-server is not installed (Debian: apt-get install redis-server)");
}

static void become_server(struct redis_server *server, pid_t parent) {
    char port[16], log[128];
    snprintf(port, sizeof port, "%d", server->port);
    snprintf(log, sizeof log, "%s/redis.log", server->folder);
    const char *arguments[ARGUMENTS_MAX] = {
        "redis-server", "--port",      port,           "--bind",    "127.0.0.1", "--unixsocket",
        server->socket, "--dir",       server->folder, "--save",    "",          "--appendonly",
        "no",           "--daemonize", "no",           "--logfile", log,
    };
    size_t count = 0;
    while (arguments[count] != NULL) count++;
    for (size_t index = 0; server->extra != NULL && server->extra[index] != NULL && count < ARGUMENTS_MAX - 1;
         index++) {
        arguments[count++] = server->extra[index];
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* the parent died before PR_SET_PDEATHSIG was set */
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
    pid_t parent = getpid();
    server->pid = fork();
    if (server->pid == 0) become_server(server, parent);
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

static int free_port(void) {
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

/* A port that was free a moment ago may be in use by now. */
void redis_server_start_tcp(struct redis_server *server, const char *const *extra) {
    prepare(server, extra);
    for (int tries = 0; tries < 5; tries++) {
        server->port = free_port();
        if (try_launch(server)) return;
    }
    fail_msg("redis-server does not answer; its log is %s/redis.log", server->folder);
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
    FILE *stream = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fdopen(fd, "r+") : NULL;
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

static bool send_words(FILE *stream, va_list words) {
    va_list again;
    va_copy(again, words);
    int count = 0;
    while (va_arg(again, const char *) != NULL) count++;
    va_end(again);
    fprintf(stream, "*%d\r\n", count);
    for (const char *word; (word = va_arg(words, const char *)) != NULL;) {
        fprintf(stream, "$%zu\r\n%s\r\n", strlen(word), word);
    }
    return fflush(stream) == 0;
}

/* Returns "" also if the connection failed: callers that care check for the reply that they expect. */
const char *redis_server_ask(struct redis_server *server, ...) {
    static struct answer answer;
    answer.size = 0;
    answer.text[0] = '\0';
    FILE *stream = connect_to(server);
    if (stream == NULL) return "";
    va_list words;
    va_start(words, server);
    bool sent = send_words(stream, words);
    va_end(words);
    fseek(stream, 0, SEEK_CUR); /* C requires this between writing and reading; on a socket it does nothing */
    bool whole = sent && read_reply(stream, &answer);
    fclose(stream);
    return whole ? answer.text : "";
}

int64_t redis_server_get(struct redis_server *server, const char *key) {
    return strtoll(redis_server_ask(server, "GET", key, NULL), NULL, 10);
}
