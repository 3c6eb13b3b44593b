/* demo_redis.c -- the redis-servers of the demo's own. See demo.h.
 * Always true: they end with the demo (PR_SET_PDEATHSIG) and leave no file behind. One alone listens only on a unix
 * socket, a cluster's also on loopback ports. Each writes an append-only file, and writes before it replies, so that
 * SIGKILL loses no acknowledged write. Hard limits are only as safe as that. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/demo/demo.h"
#include "tools/common/stop.h"
#include "tools/common/tool.h"

#define START_MS 5000

bool demo_redis_is_installed(void) {
    const char *path = getenv("PATH");
    char name[512];
    while (path != NULL && *path != '\0') {
        size_t size = strcspn(path, ":");
        snprintf(name, sizeof name, "%.*s/redis-server", (int)size, path);
        if (access(name, X_OK) == 0) return true;
        path += size + (path[size] == ':');
    }
    return false;
}

/* A cluster's servers have separate folders. */
static bool place_servers(struct demo_redis *redis) {
    for (unsigned i = 0; i < redis->count; i++) {
        struct demo_server *server = &redis->servers[i];
        snprintf(server->folder, sizeof server->folder, redis->count > 1 ? "%s/%u" : "%s", redis->folder, i + 1);
        snprintf(server->socket, sizeof server->socket, redis->count > 1 ? "%s/%u/redis.sock" : "%s/redis.sock",
                 redis->folder, i + 1);
        if (redis->count > 1 && mkdir(server->folder, 0700) != 0) {
            tool_complain("%s: %s", server->folder, strerror(errno));
            return false;
        }
    }
    snprintf(redis->url, sizeof redis->url, "unix://%s", redis->servers[0].socket);
    return redis->count == 1 || demo_cluster_prepare(redis);
}

bool demo_redis_begin(struct demo_redis *redis, unsigned count) {
    const char *base = getenv("TMPDIR");
    *redis = (struct demo_redis){.count = count};
    /* A unix socket's name has room for 107 bytes. */
    if (base == NULL || *base != '/' || strlen(base) > 64) base = "/tmp";
    snprintf(redis->folder, sizeof redis->folder, "%s/tallywheel-demo-XXXXXX", base);
    if (mkdtemp(redis->folder) == NULL) {
        tool_complain("%s: %s", redis->folder, strerror(errno));
        redis->folder[0] = '\0';
        return false;
    }
    return place_servers(redis);
}

static void child_run(const struct demo_server *server, pid_t parent) {
    char port[16];
    const char *words[32] = {"redis-server",
                             server->port ? "--bind" : NULL,
                             "127.0.0.1",
                             "--cluster-enabled",
                             "yes",
                             "--cluster-node-timeout",
                             "2000",
                             "--cluster-require-full-coverage",
                             "no"};
    size_t count = server->port ? 9 : 1;
    const char *const others[] = {"--port",      port, "--unixsocket", server->socket, "--dir",         server->folder,
                                  "--save",      "",   "--appendonly", "yes",          "--appendfsync", "always",
                                  "--daemonize", "no"};
    sigset_t none;
    snprintf(port, sizeof port, "%d", server->port);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) words[count++] = others[i];
    words[count] = NULL;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* Ctrl-C is for the demo, which ends Redis */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    execvp(words[0], (char *const *)(uintptr_t)words);
    _exit(127);
}

static bool listens(const struct demo_server *server) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.107s", server->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answer = fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) close(fd);
    return answer;
}

static bool redis_start(struct demo_server *server) {
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) child_run(server, parent);
    if (pid < 0) {
        tool_complain("redis-server: %s", strerror(errno));
        return false;
    }
    server->pid = pid;
    int64_t begun_ms = moment_mono_ms();
    while (!listens(server)) {
        bool dead = waitpid(pid, NULL, WNOHANG) == pid;
        if (dead) server->pid = 0;
        if (dead || moment_mono_ms() - begun_ms > START_MS) {
            tool_complain("redis-server does not start");
            return false;
        }
        stop_wait(-1, 20);
    }
    return true;
}

bool demo_redis_start(struct demo_redis *redis) {
    bool all = true;
    for (unsigned i = 0; i < redis->count; i++)
        if (redis->servers[i].pid == 0) all = redis_start(&redis->servers[i]) && all;
    return all;
}

void demo_redis_kill(struct demo_redis *redis, unsigned server) {
    pid_t pid = redis->servers[server].pid;
    if (pid == 0) return;
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
    redis->servers[server].pid = 0;
}

/* A folder for each server of a cluster, in it that of the append-only files, which has no subfolders. */
static void folder_remove(const char *folder, int depth) {
    DIR *entries = opendir(folder);
    struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        char path[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        int size = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (size < 0 || (size_t)size >= sizeof path) continue;
        if (unlink(path) != 0 && depth > 0) folder_remove(path, depth - 1);
    }
    if (entries != NULL) closedir(entries);
    rmdir(folder);
}

void demo_redis_end(struct demo_redis *redis) {
    for (unsigned i = 0; i < redis->count; i++) demo_redis_kill(redis, i);
    if (redis->folder[0] != '\0') folder_remove(redis->folder, 2);
    redis->folder[0] = '\0';
}
