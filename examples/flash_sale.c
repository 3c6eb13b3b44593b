/* flash_sale.c -- 500 units, many buyers at once, several servers: all units are sold, none twice.
 * TALLYWHEEL_REDIS=redis://localhost ./flash_sale      two servers that share Redis; without the variable one alone
 *
 * 1. Sold at once: tw_acquire() of a hard limit. Each server draws some units ahead from Redis and sells them without
 *    waiting; TW_PENDING means that units may yet come, so try again. TW_DENIED means sold out. Only TW_OK is a sale.
 * 2. With a basket: tw_reserve() keeps a unit for a buyer, tw_reserve_confirm() sells it, tw_reserve_cancel() or time
 * gives it back. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <tallywheel.h>
#include <unistd.h>

#define STOCK 500
#define BUYERS 4 /* threads; each buys until no unit is left */

struct server {
    tw_engine *engine;
    tw_family *sale, *baskets;
};

struct buyer {
    pthread_t thread;
    struct server *server;
    int number, bought, paid;
};

static char phone[64], book[64]; /* of this run */

static tw_family *family_open(tw_engine *engine, const char *name, uint32_t mode) {
    char error[200] = "";
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = TW_WINDOW_FOREVER;
    options.limit_mode = mode;
    options.error_text = error;
    options.error_size = sizeof error;
    if (tw_family_open(engine, &options, &family) != TW_OK) fprintf(stderr, "%s\n", error);
    return family;
}

static bool server_begin(struct server *server, const char *redis_url) {
    tw_options options;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.redis_url = redis_url;
    options.sync_interval_ms = 20;
    options.redis_timeout_ms = 2000; /* how long tw_reserve() and tw_reserve_confirm() may wait */
    if (tw_open(&options, &server->engine) != TW_OK) return false;
    server->sale = family_open(server->engine, "sale", TW_LIMIT_HARD);
    server->baskets = family_open(server->engine, "baskets", TW_LIMIT_SOFT);
    /* Before the sale, so that the first units are here when the first buyer comes. */
    return server->sale != NULL && server->baskets != NULL &&
           tw_lease_warm(server->sale, tw_str(phone), STOCK) == TW_OK;
}

static void buy_phones(struct buyer *buyer) {
    for (int waits = 0; waits < 5000;) {
        tw_status status = tw_acquire(buyer->server->sale, tw_str(phone), 1, STOCK, NULL);
        if (status == TW_OK) {
            buyer->bought++;
        } else if (status == TW_PENDING) {
            waits++;
            usleep(2000);
        } else {
            return; /* TW_DENIED means sold out */
        }
    }
}

/* Every third buyer cancels. Another buyer buys the returned unit. */
static void buy_books(struct buyer *buyer) {
    for (int visit = 0;; visit++) {
        char name[64], token[TW_TOKEN_SIZE];
        snprintf(name, sizeof name, "buyer:%d:%d", buyer->number, visit);
        tw_status status =
            tw_reserve(buyer->server->baskets, tw_str(book), 1, STOCK / 10, 60000, tw_str(name), token, NULL);
        if (status != TW_OK) return;
        if (visit % 3 == 2) {
            tw_reserve_cancel(buyer->server->engine, token);
        } else if (tw_reserve_confirm(buyer->server->engine, token) == TW_OK) {
            buyer->paid++;
        }
    }
}

static void *buy(void *argument) {
    buy_phones(argument);
    buy_books(argument);
    return NULL;
}

int main(void) {
    struct server servers[2];
    struct buyer buyers[BUYERS];
    const char *redis_url = getenv("TALLYWHEEL_REDIS");
    int server_count = redis_url != NULL ? 2 : 1, bought = 0, paid = 0;
    snprintf(phone, sizeof phone, "phone:%ld", (long)getpid());
    snprintf(book, sizeof book, "book:%ld", (long)getpid());
    for (int i = 0; i < server_count; i++)
        if (!server_begin(&servers[i], redis_url)) return 1;
    for (int i = 0; i < BUYERS; i++) {
        buyers[i] = (struct buyer){.server = &servers[i % server_count], .number = i};
        if (pthread_create(&buyers[i].thread, NULL, buy, &buyers[i]) != 0) return 1;
    }
    for (int i = 0; i < BUYERS; i++) {
        pthread_join(buyers[i].thread, NULL);
        bought += buyers[i].bought;
        paid += buyers[i].paid;
    }
    printf("%d of %d phones sold, %d of %d books paid\n", bought, STOCK, paid, STOCK / 10);
    for (int i = 0; i < server_count; i++) tw_close(servers[i].engine, 5000);
    return bought == STOCK && paid == STOCK / 10 ? 0 : 1;
}
