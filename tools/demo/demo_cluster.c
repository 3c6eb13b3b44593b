/* demo_cluster.c -- makes the demo's redis-servers the masters of one Redis Cluster. See demo.h.
 *
 * A node reads who belongs to its cluster, and who has which slots, from its file nodes.conf. The demo writes that file
 * before the first start, so the nodes need not be introduced to each other.
 * Always true: the ports are on loopback and were free when they were chosen. A node listens on one of them and, for
 * the other nodes, on that plus BUS. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/demo/demo.h"
#include "tools/common/stop.h"
#include "tools/common/tool.h"

#define BUS 10000
#define PORT_FIRST 11000 /* below those that systems deal out */
#define PORTS 11000
#define SLOTS 16384
#define SERVE_MS 10000

/* ---- before the start -------------------------------------------------------------------------------------------- */

static bool is_free(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0) return false;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool free = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return free;
}

static bool choose_ports(struct demo_redis *redis) {
    unsigned at = (unsigned)getpid() * 7919u, tries = 0;
    for (unsigned i = 0; i < redis->count; i++) {
        int port;
        do {
            port = PORT_FIRST + (int)(at++ % PORTS);
            if (tries++ > PORTS) {
                tool_complain("no free port for a cluster");
                return false;
            }
        } while (!is_free(port) || !is_free(port + BUS));
        redis->servers[i].port = port;
    }
    return true;
}

/* A line for each node: id, address, flags, master, ping, pong, epoch, link, slots. The ids are the demo's. */
static bool write_nodes(const struct demo_redis *redis, unsigned self) {
    char path[176];
    snprintf(path, sizeof path, "%s/nodes.conf", redis->servers[self].folder);
    FILE *file = fopen(path, "we");
    for (unsigned i = 0; file != NULL && i < redis->count; i++) {
        int port = redis->servers[i].port;
        fprintf(file, "%040u 127.0.0.1:%d@%d %smaster - 0 0 %u connected %u-%u\n", i + 1, port, port + BUS,
                i == self ? "myself," : "", i + 1, i * SLOTS / redis->count, (i + 1) * SLOTS / redis->count - 1);
    }
    if (file != NULL) fprintf(file, "vars currentEpoch %u lastVoteEpoch 0\n", redis->count);
    bool bad = file == NULL || ferror(file) != 0;
    if (file != NULL) bad = fclose(file) != 0 || bad;
    if (bad) tool_complain("%s: %s", path, strerror(errno));
    return !bad;
}

bool demo_cluster_prepare(struct demo_redis *redis) {
    if (!choose_ports(redis)) return false;
    size_t used = (size_t)snprintf(redis->url, sizeof redis->url, "redis+cluster://");
    for (unsigned i = 0; i < redis->count; i++) {
        if (!write_nodes(redis, i)) return false;
        used += (size_t)snprintf(redis->url + used, sizeof redis->url - used, "%s127.0.0.1:%d", i ? "," : "",
                                 redis->servers[i].port);
    }
    return true;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* Sends one command, and reads a reply of a few hundred bytes. The reply is "" if none came within a second. */
static void cluster_ask(const struct demo_server *server, const char *command, char *reply, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval second = {.tv_sec = 1};
    ssize_t got = -1;
    snprintf(address.sun_path, sizeof address.sun_path, "%.107s", server->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second) == 0 &&
        connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, command, strlen(command), MSG_NOSIGNAL) > 0)
        got = recv(fd, reply, size - 1, 0);
    reply[got > 0 ? got : 0] = '\0';
    if (fd >= 0) close(fd);
}

bool demo_cluster_await(const struct demo_redis *redis) {
    char reply[4096];
    int64_t begun_ms = moment_mono_ms();
    for (unsigned i = 0; i < redis->count;) {
        cluster_ask(&redis->servers[i], "CLUSTER INFO\r\n", reply, sizeof reply);
        if (strstr(reply, "cluster_state:ok") != NULL) {
            i++;
            continue;
        }
        if (stop_signal() != 0 || moment_mono_ms() - begun_ms > SERVE_MS) {
            tool_complain("the cluster does not start");
            return false;
        }
        stop_wait(-1, 50);
    }
    return true;
}

unsigned demo_cluster_seller(const struct demo_redis *redis) {
    char reply[256];
    for (unsigned i = 0; i < redis->count; i++) {
        cluster_ask(&redis->servers[i], "KEYS *" DEMO_ITEM "*\r\n", reply, sizeof reply);
        if (reply[0] == '*' && reply[1] != '0') return i;
    }
    return 0;
}
