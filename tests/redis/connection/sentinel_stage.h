/* sentinel_stage.h -- a master, a replica of it, and three sentinels that watch over both: real processes.
 * The sentinels know a user "watcher" with the password "hush", who may ask where a master is, and no more.
 * Always true: the sentinels know each other and the replica from the start, so that a failover needs no more than
 * down-after (1 s) and an election. */
#ifndef TEST_SENTINEL_STAGE_H
#define TEST_SENTINEL_STAGE_H

#include "tests/redis/sync_support.h"

#define SENTINELS 3
#define MASTER_NAME "shop"

struct sentinel_stage {
    struct redis_server data[2]; /* one is the master */
    struct redis_server sentinels[SENTINELS];
    int master; /* which of `data` was the master at the last look */
    char url[256];
    char replica_of[2][16]; /* ports, for the servers' arguments */
    const char *arguments[2][8];
};

/* Arguments that make the server number `i` a replica of the other one. */
static inline const char *const *stage_as_replica(struct sentinel_stage *stage, int i) {
    snprintf(stage->replica_of[i], sizeof stage->replica_of[i], "%d", stage->data[1 - i].port);
    const char *arguments[] = {"--replicaof", "127.0.0.1", stage->replica_of[i], "--repl-diskless-sync-delay",
                               "0",           NULL};
    memcpy(stage->arguments[i], arguments, sizeof arguments);
    return stage->arguments[i];
}

static inline void stage_await_replica(struct sentinel_stage *stage) {
    struct redis_server *replica = &stage->data[1 - stage->master];
    int64_t deadline_ms = test_mono_ms() + TEST_PATIENCE_MS;
    const char *info;
    while (!strstr(info = redis_server_ask(replica, "INFO", "replication", NULL), "master_link_status:up")) {
        if (test_mono_ms() > deadline_ms) fail_msg("the replica does not follow: %s", info);
        test_sleep_ms(10);
    }
}

static inline void stage_configure(const struct sentinel_stage *stage, const int ports[SENTINELS], int i, char *lines,
                                   size_t size) {
    size_t used = (size_t)snprintf(lines, size,
                                   "sentinel myid %040d\n"
                                   "sentinel monitor " MASTER_NAME " 127.0.0.1 %d 2\n"
                                   "sentinel down-after-milliseconds " MASTER_NAME " 1000\n"
                                   "sentinel failover-timeout " MASTER_NAME " 4000\n"
                                   "sentinel known-replica " MASTER_NAME " 127.0.0.1 %d\n"
                                   "user watcher on >hush -@all +sentinel|get-master-addr-by-name\n",
                                   i + 1, stage->data[0].port, stage->data[1].port);
    for (int other = 0; other < SENTINELS; other++) {
        if (other == i) continue;
        used +=
            (size_t)snprintf(lines + used, size - used, "sentinel known-sentinel " MASTER_NAME " 127.0.0.1 %d %040d\n",
                             ports[other], other + 1);
    }
}

static inline bool stage_try_sentinels(struct sentinel_stage *stage) {
    int ports[SENTINELS];
    char lines[1024];
    for (int i = 0; i < SENTINELS; i++) ports[i] = redis_server_free_port();
    for (int i = 0; i < SENTINELS; i++) {
        stage_configure(stage, ports, i, lines, sizeof lines);
        if (redis_server_start_sentinel(&stage->sentinels[i], ports[i], lines)) continue;
        for (int made = 0; made <= i; made++) redis_server_destroy(&stage->sentinels[made]);
        return false;
    }
    return true;
}

static inline void stage_begin(struct sentinel_stage *stage) {
    memset(stage, 0, sizeof *stage);
    redis_server_start_tcp(&stage->data[0], NULL);
    redis_server_start_tcp(&stage->data[1], stage_as_replica(stage, 1));
    stage_await_replica(stage);
    for (int tries = 0; !stage_try_sentinels(stage); tries++)
        if (tries == 4) fail_msg("no sentinel answers");
    snprintf(stage->url, sizeof stage->url, "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/" MASTER_NAME,
             stage->sentinels[0].port, stage->sentinels[1].port, stage->sentinels[2].port);
}

/* Do the sentinels name the other server, and does it say that it is the master? */
static inline bool stage_has_failed_over(struct sentinel_stage *stage) {
    struct redis_server *next = &stage->data[1 - stage->master];
    char expected[64];
    snprintf(expected, sizeof expected, "127.0.0.1\n%d", next->port);
    for (int i = 0; i < SENTINELS; i++) {
        if (stage->sentinels[i].pid == 0) continue;
        const char *named =
            redis_server_ask(&stage->sentinels[i], "SENTINEL", "get-master-addr-by-name", MASTER_NAME, NULL);
        if (strcmp(named, expected) != 0) return false;
    }
    return strstr(redis_server_ask(next, "INFO", "replication", NULL), "role:master") != NULL;
}

/* The former master comes back, empty, as a replica of the one of now. */
static inline void stage_rejoin(struct sentinel_stage *stage) {
    int former = stage->master;
    stage->master = 1 - former;
    stage->data[former].extra = stage_as_replica(stage, former);
    redis_server_restart(&stage->data[former]);
    stage_await_replica(stage);
}

static inline void stage_end(struct sentinel_stage *stage) {
    for (int i = 0; i < SENTINELS; i++) redis_server_destroy(&stage->sentinels[i]);
    for (int i = 0; i < 2; i++) redis_server_destroy(&stage->data[i]);
}

#endif
