/* crowds.c -- a crowd of strict calls on a way to Redis that is thin, or beside busy programs: how many Redis decides
 * in every two seconds with the default redis_timeout_ms, and with 2,000 ms, which no way here needs. The bound: at
 * least 80 % in every two seconds but the first (there 50 %), and never none. And how many it decides after it was
 * stopped for three seconds. The bound: 80 % again from two seconds after the stop on.
 *
 *   ./dev bench crowds [SECONDS]     each row takes twice that; default 12
 * Always true: the server, the link and the busy programs are its own. Nothing else is measured at the same time. */
#include "tests/redis/waiting/crowd_stage.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define MUCH (INT64_C(1) << 40)
#define BUSY 4
#define STRETCH_MS 2000
#define STRETCHES_MAX 60

struct way {
    const char *name;
    int64_t bytes_per_s; /* 0: the server's own socket, with busy programs beside it */
    int count;
};

static const struct way ways[] = {{"20 KB/s", 20000, 16},
                                  {"125 KB/s", 125000, 64},
                                  {"500 KB/s", 500000, 200},
                                  {"1 MB/s", 1000000, 1000},
                                  {"a unix socket, busy machine", 0, 1000}};

static void make_busy(pid_t *pids) {
    for (int i = 0; i < BUSY; i++) {
        pids[i] = fork();
        if (pids[i] != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile uint64_t turns = 0;; turns++) continue;
    }
}

static void measure(const struct way *way, uint32_t timeout_ms, int stretches, int64_t *decided) {
    static struct crowd crowd;
    struct redis_server server;
    pid_t pids[BUSY] = {0};
    redis_server_start(&server, NULL);
    struct thin_link *link =
        way->bytes_per_s != 0 ? thin_link_start(server.folder, server.socket, way->bytes_per_s, 1) : NULL;
    if (link != NULL)
        thin_link_apart(link);
    else
        make_busy(pids);
    crowd_open(&crowd, link != NULL ? thin_link_url(link) : server.url, way->count, timeout_ms, TW_OUTAGE_FAIL_CLOSED);
    for (int i = 0; i < stretches; i++) {
        int64_t before = crowd.by_redis;
        crowd_run(&crowd, STRETCH_MS, MUCH);
        decided[i] = crowd.by_redis - before;
    }
    printf("  %-28s x %-5d redis_timeout_ms %-5u", way->name, way->count, timeout_ms);
    for (int i = 0; i < stretches; i++) printf(" %lld", (long long)decided[i]);
    printf(" | refused %lld, by outage %lld\n", (long long)crowd.refused, (long long)crowd.by_outage);
    fflush(stdout);
    crowd_rest(&crowd);
    (void)tw_close(crowd.engine, 1000);
    for (int i = 0; i < BUSY; i++)
        if (pids[i] > 0) kill(pids[i], SIGKILL), waitpid(pids[i], NULL, 0);
    if (link != NULL) thin_link_stop(link);
    redis_server_destroy(&server);
}

#define STOP_MS 3000
#define STOPS 3
#define AFTER 3 /* stretches */

/* Decided in the two seconds before a stop, and in each two seconds after it. */
static void measure_stop(uint32_t timeout_ms) {
    static struct crowd crowd;
    struct redis_server server;
    redis_server_start(&server, NULL);
    crowd_open(&crowd, server.url, CROWD_MAX, timeout_ms, TW_OUTAGE_FAIL_CLOSED);
    crowd_run(&crowd, STRETCH_MS, MUCH);
    for (int i = 0; i < STOPS; i++) {
        int64_t before = crowd.by_redis, decided[AFTER];
        crowd_run(&crowd, STRETCH_MS, MUCH);
        before = crowd.by_redis - before;
        redis_server_pause(&server);
        crowd_run(&crowd, STOP_MS, MUCH);
        redis_server_resume(&server);
        printf("  a stop of %d s, a unix socket x %d redis_timeout_ms %-5u %lld, then", STOP_MS / 1000, CROWD_MAX,
               timeout_ms, (long long)before);
        for (int k = 0; k < AFTER; k++) {
            int64_t since = crowd.by_redis;
            crowd_run(&crowd, STRETCH_MS, MUCH);
            decided[k] = crowd.by_redis - since;
            printf(" %lld (%.0f %%)", (long long)decided[k], 100 * (double)decided[k] / (double)before);
        }
        printf("\n");
        fflush(stdout);
    }
    crowd_rest(&crowd);
    (void)tw_close(crowd.engine, 1000);
    redis_server_destroy(&server);
}

int main(int argc, char **argv) {
    int stretches = (argc > 1 ? atoi(argv[1]) : 12) * 1000 / STRETCH_MS;
    int64_t with[STRETCHES_MAX], most[STRETCHES_MAX];
    if (stretches < 2) stretches = 2;
    if (stretches > STRETCHES_MAX) stretches = STRETCHES_MAX;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        measure(&ways[i], 2000, stretches, most);
        measure(&ways[i], 0, stretches, with);
        int64_t sum = 0, least = INT64_MAX;
        for (int k = 1; k < stretches; k++) {
            sum += most[k];
            if (with[k] < least) least = with[k];
        }
        double mean = (double)sum / (stretches - 1);
        printf("  %-28s x %-5d the first two seconds %3.0f %%, the worst after them %3.0f %%\n", ways[i].name,
               ways[i].count, 100 * (double)with[0] / mean, 100 * (double)least / mean);
    }
    measure_stop(2000);
    measure_stop(0);
    return 0;
}
