/* demo_redis.c -- a redis-server of the demo's own. See demo.h.
 * Always true: it ends with the demo (PR_SET_PDEATHSIG), listens only on a unix socket, and leaves no file behind. It
 * writes an append-only file, and writes before it replies, so that SIGKILL loses nothing acknowledged. Hard limits are
 * only as safe as that. */
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

#include "demo.h"
#include "say.h"
#include "stop.h"
#include "tool.h"

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

bool demo_redis_begin(struct demo_redis *redis) {
    const char *base = getenv("TMPDIR");
    *redis = (struct demo_redis){0};
    /* A unix socket's name has room for 107 bytes. */
    if (base == NULL || *base != '/' || strlen(base) > 64) base = "/tmp";
    snprintf(redis->folder, sizeof redis->folder, "%s/tallywheel-demo-XXXXXX", base);
    if (mkdtemp(redis->folder) == NULL) {
        tool_complain("%s: %s", redis->folder, strerror(errno));
        redis->folder[0] = '\0';
        return false;
    }
    snprintf(redis->socket, sizeof redis->socket, "%s/redis.sock", redis->folder);
    snprintf(redis->url, sizeof redis->url, "unix://%s", redis->socket);
    return true;
}

static void child_run(const struct demo_redis *redis, pid_t parent) {
    sigset_t none;
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
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", redis->socket, "--dir", redis->folder,
           "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no", (char *)NULL);
    _exit(127);
}

static bool listens(const struct demo_redis *redis) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, redis->socket, strlen(redis->socket) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool answer = fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) close(fd);
    return answer;
}

bool demo_redis_start(struct demo_redis *redis) {
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) child_run(redis, parent);
    if (pid < 0) {
        tool_complain("redis-server: %s", strerror(errno));
        return false;
    }
    redis->pid = pid;
    int64_t begun_ms = say_mono_ms();
    while (!listens(redis)) {
        bool dead = waitpid(pid, NULL, WNOHANG) == pid;
        if (dead) redis->pid = 0;
        if (dead || say_mono_ms() - begun_ms > START_MS) {
            tool_complain("redis-server does not start");
            return false;
        }
        stop_wait(-1, 20);
    }
    return true;
}

void demo_redis_kill(struct demo_redis *redis) {
    if (redis->pid == 0) return;
    kill(redis->pid, SIGKILL);
    while (waitpid(redis->pid, NULL, 0) < 0 && errno == EINTR) {}
    redis->pid = 0;
}

/* Redis makes no subfolders in the folder of its append-only files. */
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
    demo_redis_kill(redis);
    if (redis->folder[0] != '\0') folder_remove(redis->folder, 1);
    redis->folder[0] = '\0';
}
