/* demo.h -- what the processes of `tallywheel demo` share: one page of memory, written by its workers, read by the
 * parent.
 *
 * Threads visit pages and buy phones, of which there are DEMO_STOCK: a hard limit over all processes.
 * The books are kept three times over, by hands that do not know each other:
 *   recorded   each thread notes every add and sale that was answered TW_OK, in a slot of its own (no library call involved)
 *   counted    what each engine says it has added
 *   in Redis   what a fresh engine, which never counted, is told by Redis
 * Always true: a slot has one writer. */
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
/* The doors open when each process has drawn its first units, and the stock is offered evenly until the end; what was held up
 * is bought as soon as it can be. */
#define DEMO_OPENS_MS 2500
#define DEMO_ENDS_MS 8000
#define DEMO_ITEM "phone"

extern const char *const demo_pages[DEMO_PAGES];

enum { DEMO_WORK = 0, DEMO_STOP = 1 };                                                 /* demo_board.order */
enum { DEMO_STARTING = 0, DEMO_WORKING, DEMO_DRAINED, DEMO_NOT_DRAINED, DEMO_FAILED }; /* demo_engine.state */

struct demo_engine {
    _Atomic int64_t recorded[DEMO_THREADS_MAX][DEMO_PAGES]; /* by each thread */
    _Atomic int64_t sold[DEMO_THREADS_MAX], turned_away;    /* phones; calls that got none */
    /* by the engine's main thread */
    _Atomic int64_t view[DEMO_PAGES];    /* the total as it is known in this process */
    _Atomic int64_t counted[DEMO_PAGES]; /* the engine's own share, when it has stopped */
    _Atomic int64_t sale_counted;        /* phones, as the engine has counted them */
    _Atomic int64_t refused, unsent_keys, connected, state;
};

struct demo_board {
    _Atomic int order;
    unsigned sellers; /* threads of all processes; as begun_ms set before they start */
    int64_t begun_ms;
    struct demo_engine engines[DEMO_ENGINES_MAX];
};

struct demo_shop {
    tw_engine *engine;
    tw_family *views, *sale;
};

/* Opens an engine and the demo's families in it; the same options in every process. Says what is wrong. */
bool demo_open(const char *redis_url, struct demo_shop *shop);

/* demo_redis.c: a redis-server of our own, in a folder of its own. */
struct demo_redis {
    char folder[128], socket[160], url[192];
    pid_t pid; /* 0: not running */
};
bool demo_redis_is_installed(void);
bool demo_redis_begin(struct demo_redis *redis); /* makes the folder */
bool demo_redis_start(struct demo_redis *redis); /* and waits until it listens */
void demo_redis_kill(struct demo_redis *redis);  /* SIGKILL: as a machine that loses power */
void demo_redis_end(struct demo_redis *redis);   /* kills it, removes the folder */

/* demo_local.c: without Redis. Exit code. */
int demo_local(unsigned threads);

#endif
