/* demo_local.c -- the demo without a redis-server. It has one engine, many threads and a small stock.
 * Always true: a thread notes a sale exactly when tw_acquire() admitted it; the sum of the notes must equal the
 * stock. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/common/moment.h"
#include "tools/demo/demo.h"
#include "tools/common/stop.h"
#include "tools/common/tool.h"

#define STOCK 100000
#define SALE_MS 20000 /* a sale that lasts longer than this has failed */

struct buyer {
    pthread_t thread;
    tw_family *family;
    _Atomic int64_t bought, turned_away;
};

static _Atomic int sale_over;

/* Buys one at a time, with short pauses, until there are no more. */
static void *buyer_run(void *argument) {
    struct buyer *buyer = argument;
    const struct timespec breath = {.tv_nsec = 1000000};
    while (atomic_load(&sale_over) == 0) {
        for (int i = 0; i < 16; i++) {
            if (tw_acquire(buyer->family, tw_str(DEMO_ITEM), 1, STOCK, NULL) == TW_OK) {
                atomic_fetch_add(&buyer->bought, 1);
            } else {
                atomic_fetch_add(&buyer->turned_away, 1);
            }
        }
        nanosleep(&breath, NULL);
    }
    return NULL;
}

static int64_t local_sold_of(struct buyer *buyers, unsigned count, int64_t *turned_away) {
    int64_t sold = 0;
    *turned_away = 0;
    for (unsigned i = 0; i < count; i++) {
        sold += atomic_load(&buyers[i].bought);
        *turned_away += atomic_load(&buyers[i].turned_away);
    }
    return sold;
}

/* Shows the sale until half a second after the last unit was sold, so that many calls come too late. */
static void local_watch(struct buyer *buyers, unsigned count) {
    int64_t begun_ms = moment_mono_ms(), sold_out_ms = 0, shown_ms = begun_ms, turned_away;
    for (;;) {
        stop_wait(-1, 50);
        int64_t sold = local_sold_of(buyers, count, &turned_away), now_ms = moment_mono_ms();
        if (sold_out_ms == 0 && turned_away > 0) sold_out_ms = now_ms;
        bool over =
            stop_signal() != 0 || now_ms - begun_ms > SALE_MS || (sold_out_ms > 0 && now_ms - sold_out_ms > 500);
        if (over || now_ms - shown_ms >= 250) {
            printf("%5.1f s   sold %7lld of %d   turned away %lld\n", (double)(now_ms - begun_ms) / 1000.0,
                   (long long)sold, STOCK, (long long)turned_away);
            fflush(stdout);
            shown_ms = now_ms;
        }
        if (over) return;
    }
}

static bool books_agree(tw_family *family, int64_t sold) {
    int64_t counted = -1;
    tw_get(family, tw_str(DEMO_ITEM), &counted);
    bool whole = stop_signal() != 0 || sold == STOCK;
    bool agree = sold == counted && sold <= STOCK && whole;
    printf("\nbuyers' own records %lld, the counter %lld, stock %d: %s\n", (long long)sold, (long long)counted, STOCK,
           agree ? "no unit sold twice, none lost" : "THE BOOKS DO NOT AGREE");
    return agree;
}

int demo_local(unsigned threads) {
    static struct buyer buyers[DEMO_THREADS_MAX];
    struct demo_shop shop;
    if (!demo_open(NULL, &shop)) return EXIT_TROUBLE;
    printf("One process, %u buyers at once, %d units; no redis-server here, so no other process takes part.\n\n",
           threads, STOCK);
    unsigned started = 0;
    for (; started < threads; started++) {
        buyers[started].family = shop.sale;
        if (pthread_create(&buyers[started].thread, NULL, buyer_run, &buyers[started]) != 0) break;
    }
    if (started > 0) local_watch(buyers, started);
    atomic_store(&sale_over, 1);
    for (unsigned i = 0; i < started; i++) pthread_join(buyers[i].thread, NULL);
    int64_t turned_away, sold = local_sold_of(buyers, started, &turned_away);
    bool agree = started > 0 && books_agree(shop.sale, sold);
    tw_close(shop.engine, 0);
    return agree && fflush(stdout) == 0 ? EXIT_DONE : EXIT_TROUBLE;
}
