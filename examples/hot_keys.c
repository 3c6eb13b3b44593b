/* hot_keys.c -- which pages, and which clients, make up most of the traffic?
 * tw_top() shows the heaviest keys of a window. If a family has no room for all keys (here 100 clients), it still finds
 * the heavy ones among the others, and reports how far their counts may be too high. */
#include <inttypes.h>
#include <stdio.h>
#include <tallywheel.h>

#define REQUESTS 200000

static bool show(void *ctx, const tw_count *count) {
    int *shown = ctx;
    printf("  %2d. %-16.*s %8" PRId64, ++*shown, (int)count->key.size, (const char *)count->key.data, count->view);
    if (count->error != 0) printf("   (at most; at least %" PRId64 ")", count->view - count->error);
    printf("\n");
    return true;
}

/* Looks for one client among the heaviest. Is it shown, with a possible count? */
struct search {
    tw_key key;
    int64_t requests;
    bool found;
};
static bool find(void *ctx, const tw_count *count) {
    struct search *search = ctx;
    if (count->key.size != search->key.size || memcmp(count->key.data, search->key.data, search->key.size) != 0)
        return true;
    search->found = count->view >= search->requests && count->view - count->error <= search->requests;
    return false;
}

int main(void) {
    tw_options options;
    tw_family_options of_pages, of_clients;
    tw_engine *engine;
    tw_family *pages, *clients;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    tw_family_options_init(&of_pages);
    tw_family_options_init(&of_clients);
    of_pages.name = "pages";
    of_clients.name = "clients";
    of_pages.window = of_clients.window = TW_WINDOW_FOREVER;
    of_clients.keys_max = 100; /* the first hundred clients; later ones share an overflow counter */
    if (tw_open(&options, &engine) != TW_OK || tw_family_open(engine, &of_pages, &pages) != TW_OK ||
        tw_family_open(engine, &of_clients, &clients) != TW_OK)
        return 1;

    struct search robot = {.key = tw_str("10.9.9.9")}; /* begins when there is no more room, and asks for 5 % of all */
    for (int request = 0; request < REQUESTS; request++) {
        char key[32];
        snprintf(key, sizeof key, "/article/%d",
                 request % (1 + request % 30)); /* low numbers are requested more often */
        tw_add(pages, tw_str(key), 1, NULL);
        if (request > 1000 && request % 20 == 0) {
            tw_add(clients, robot.key, 1, NULL);
            robot.requests++;
            continue;
        }
        snprintf(key, sizeof key, "10.0.%d.%d", request / 256 % 256, request % 256);
        tw_add(clients, tw_str(key), 1, NULL);
    }

    int shown = 0;
    printf("pages:\n");
    if (tw_top(pages, 5, TW_NOW, show, &shown) != TW_OK || shown != 5) return 1;
    shown = 0;
    printf("clients:\n");
    if (tw_top(clients, 5, TW_NOW, show, &shown) != TW_OK || shown != 5) return 1;
    if (tw_top(clients, 10, TW_NOW, find, &robot) != TW_OK) return 1;
    tw_close(engine, 1000);
    return robot.found ? 0 : 1;
}
