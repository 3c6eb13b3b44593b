/* demo.h -- the shared memory of the processes of `tallywheel demo`. The workers write it and the parent reads it.
 *
 * Threads visit pages and buy phones, of which there are DEMO_STOCK, a hard limit over all processes.
 * There are three independent books:
 *   recorded   each thread notes every add and sale that returned TW_OK, in a separate slot (without a library call)
 *   counted    the counts that each engine reports to have added
 *   in Redis   what Redis replies to a fresh engine that never counted
 * Always true: each slot has one writer. */
#ifndef TOOL_DEMO_H
#define TOOL_DEMO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tallywheel.h"

#define DEMO_ENGINES_MAX 8
#define DEMO_THREADS_MAX 16
#define DEMO_PAGES 8
#define DEMO_STOCK 30000
/* The sale begins when each process has acquired its first units. The stock is offered evenly until the end; units that
 * were delayed are bought as soon as possible. */
#define DEMO_OPENS_MS 2500
#define DEMO_ENDS_MS 8000
#define DEMO_ITEM "phone"

extern const char *const demo_pages[DEMO_PAGES];

enum { DEMO_WORK = 0, DEMO_STOP = 1 };                                                 /* demo_board.order */
enum { DEMO_STARTING = 0, DEMO_WORKING, DEMO_DRAINED, DEMO_NOT_DRAINED, DEMO_FAILED }; /* demo_engine.state */

struct demo_engine {
    _Atomic int64_t recorded[DEMO_THREADS_MAX][DEMO_PAGES]; /* by each thread */
    _Atomic int64_t sold[DEMO_THREADS_MAX], turned_away;    /* phones; calls that got no phone */
    /* by the engine's main thread */
    _Atomic int64_t view[DEMO_PAGES];    /* the total that this process has */
    _Atomic int64_t counted[DEMO_PAGES]; /* the engine's own share, after it has stopped */
    _Atomic int64_t sale_counted;        /* phones, as counted by the engine */
    _Atomic int64_t refused, unsent_keys, connected, state;
};

struct demo_board {
    _Atomic int order;
    unsigned sellers; /* threads of all processes; set, like begun_ms, before they start */
    int64_t begun_ms;
    struct demo_engine engines[DEMO_ENGINES_MAX];
};

struct demo_shop {
    tw_engine *engine;
    tw_family *views, *sale;
};

/* Opens an engine and the demo's families in it, with the same options in every process. Prints what fails. */
bool demo_open(const char *redis_url, struct demo_shop *shop);

/* demo_redis.c: the redis-servers of the demo, in a separate folder. It is one server, or the masters of a cluster. */
#define DEMO_MASTERS 3
struct demo_server {
    char folder[144], socket[160];
    int port;  /* 0 means a unix socket only */
    pid_t pid; /* 0 means not running */
};
struct demo_redis {
    char folder[128], url[192];
    unsigned count;
    struct demo_server servers[DEMO_MASTERS];
};
bool demo_redis_is_installed(void);
bool demo_redis_begin(struct demo_redis *redis, unsigned count); /* makes the folders */
bool demo_redis_start(struct demo_redis *redis); /* starts those that do not run, and waits until they listen */
void demo_redis_kill(struct demo_redis *redis, unsigned server); /* by SIGKILL, like a machine that loses power */
void demo_redis_end(struct demo_redis *redis);                   /* kills them, removes the folders */

/* demo_cluster.c makes them a cluster. */
bool demo_cluster_prepare(struct demo_redis *redis);          /* chooses ports, and writes who has which slots */
bool demo_cluster_await(const struct demo_redis *redis);      /* until they serve */
unsigned demo_cluster_seller(const struct demo_redis *redis); /* which of them has the stock */

/* demo_local.c is the demo without Redis. Returns the exit code. */
int demo_local(unsigned threads);

#endif
