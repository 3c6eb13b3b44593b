/* demo_worker.c -- one process of the demo. It has an engine, and threads that visit pages, buy phones, and note these
 * events.
 * Always true: a thread notes an add or a sale exactly when it returned TW_OK; the main thread never notes one. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/demo/demo.h"
#include "tools/common/text.h"
#include "tools/common/tool.h"

#define BURST 64 /* adds between two pauses: 64 every 2 ms are about 30,000 a second and thread */
#define PAUSE_MS 2
#define PUBLISH_MS 100
#define DRAIN_MS 10000

const char *const demo_pages[DEMO_PAGES] = {"/",          "/index.html", "/sale",     "/sale/phone",
                                            "/sale/book", "/search",     "/checkout", "/about"};

struct visitor {
    pthread_t thread;
    struct demo_board *board;
    struct demo_engine *engine;
    const struct demo_shop *shop;
    unsigned number;
    uint64_t random;
};

static bool family_open(struct demo_shop *shop, const char *name, uint32_t limit_mode, tw_family **family) {
    char error[256] = "";
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = name;
    options.window = TW_WINDOW_FOREVER; /* if the hour changed in mid-demo, the books would be split in two */
    options.limit_mode = limit_mode;
    options.error_text = error;
    options.error_size = sizeof error;
    tw_status status = tw_family_open(shop->engine, &options, family);
    if (status != TW_OK) tool_complain("%s %s", tw_status_text(status), error);
    return status == TW_OK;
}

bool demo_open(const char *redis_url, struct demo_shop *shop) {
    char error[256] = "";
    tw_options options;
    tw_options_init(&options);
    options.redis_url = redis_url;
    options.memory_bytes_max = 64 << 20;
    options.error_text = error;
    options.error_size = sizeof error;
    tw_status status = tw_open(&options, &shop->engine);
    if (status != TW_OK) {
        tool_complain("%s %s", tw_status_text(status), error);
        return false;
    }
    if (family_open(shop, "views", TW_LIMIT_SOFT, &shop->views) &&
        family_open(shop, "sale", TW_LIMIT_HARD, &shop->sale))
        return true;
    tw_close(shop->engine, 0);
    return false;
}

static void worker_pause_ms(long ms) {
    struct timespec span = {.tv_sec = 0, .tv_nsec = ms * 1000000};
    nanosleep(&span, NULL);
}

/* The first pages are visited most. So this chooses two of eight at random and uses the lower one. */
static unsigned page_draw(struct visitor *visitor) {
    visitor->random = visitor->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    unsigned a = (unsigned)(visitor->random >> 40) % DEMO_PAGES, b = (unsigned)(visitor->random >> 50) % DEMO_PAGES;
    return a < b ? a : b;
}

static void visit_pages(struct visitor *visitor) {
    for (int i = 0; i < BURST; i++) {
        unsigned page = page_draw(visitor);
        if (tw_add(visitor->shop->views, tw_str(demo_pages[page]), 1, NULL) == TW_OK) {
            atomic_fetch_add(&visitor->engine->recorded[visitor->number][page], 1);
        } else {
            atomic_fetch_add(&visitor->engine->refused, 1);
        }
    }
}

/* Buys up to this thread's share of the phones offered by now. After TW_PENDING and TW_DENIED it tries again later. */
static void buy_phones(struct visitor *visitor) {
    const struct demo_board *board = visitor->board;
    int64_t offered_ms = moment_mono_ms() - board->begun_ms - DEMO_OPENS_MS, whole_ms = DEMO_ENDS_MS - DEMO_OPENS_MS;
    int64_t part = offered_ms >= whole_ms ? DEMO_STOCK : DEMO_STOCK * offered_ms / whole_ms / board->sellers;
    for (int i = 0; i < BURST && atomic_load(&visitor->engine->sold[visitor->number]) < part; i++) {
        if (tw_acquire(visitor->shop->sale, tw_str(DEMO_ITEM), 1, DEMO_STOCK, NULL) != TW_OK) {
            atomic_fetch_add(&visitor->engine->turned_away, 1);
            return;
        }
        atomic_fetch_add(&visitor->engine->sold[visitor->number], 1);
    }
}

static void *visitor_run(void *argument) {
    struct visitor *visitor = argument;
    while (atomic_load(&visitor->board->order) == DEMO_WORK) {
        visit_pages(visitor);
        buy_phones(visitor);
        worker_pause_ms(PAUSE_MS);
    }
    return NULL;
}

static void worker_publish(struct demo_engine *shown, const struct demo_shop *shop) {
    tw_stats stats;
    tw_reading sale;
    for (unsigned page = 0; page < DEMO_PAGES; page++) {
        tw_reading reading;
        if (tw_read(shop->views, tw_str(demo_pages[page]), &reading) != TW_OK) continue;
        atomic_store(&shown->view[page], reading.view);
        atomic_store(&shown->counted[page], reading.local);
    }
    if (tw_read(shop->sale, tw_str(DEMO_ITEM), &sale) == TW_OK) atomic_store(&shown->sale_counted, sale.local);
    if (tw_stats_read(shop->engine, &stats) != TW_OK) return;
    atomic_store(&shown->connected, stats.redis_connected);
    atomic_store(&shown->unsent_keys, stats.unsent_keys);
}

/* Counts until the board says DEMO_STOP, then sends the remaining counts. */
static int worker_work(struct demo_board *board, struct demo_engine *shown, unsigned threads,
                       const struct demo_shop *shop) {
    struct visitor visitors[DEMO_THREADS_MAX];
    unsigned started = 0;
    atomic_store(&shown->state, DEMO_WORKING);
    for (; started < threads; started++) {
        visitors[started] = (struct visitor){.board = board, .engine = shown, .shop = shop, .number = started};
        visitors[started].random = (uint64_t)getpid() * 1000 + started;
        if (pthread_create(&visitors[started].thread, NULL, visitor_run, &visitors[started]) != 0) break;
    }
    while (atomic_load(&board->order) == DEMO_WORK) {
        worker_publish(shown, shop);
        worker_pause_ms(PUBLISH_MS);
    }
    for (unsigned i = 0; i < started; i++) pthread_join(visitors[i].thread, NULL);
    tw_status status = tw_flush(shop->engine, DRAIN_MS);
    worker_publish(shown, shop);
    tw_status closed = tw_close(shop->engine, 2000);
    bool drained = status == TW_OK && closed == TW_OK;
    atomic_store(&shown->state, drained ? DEMO_DRAINED : DEMO_NOT_DRAINED);
    return drained && started == threads ? EXIT_DONE : EXIT_TROUBLE;
}

/* demo-worker FD ENGINE THREADS URL */
int demo_worker_main(int argc, char **argv) {
    uint64_t fd, number, threads;
    struct demo_shop shop;
    if (argc != 5 || !text_number(argv[1], 3, 1 << 20, &fd) ||
        !text_number(argv[2], 0, DEMO_ENGINES_MAX - 1, &number) ||
        !text_number(argv[3], 1, DEMO_THREADS_MAX, &threads)) {
        tool_complain("demo-worker is started by 'tallywheel demo' only");
        return EXIT_USAGE;
    }
    struct demo_board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0);
    if (board == MAP_FAILED) {
        tool_complain("the shared page: %s", strerror(errno));
        return EXIT_TROUBLE;
    }
    close((int)fd);
    struct demo_engine *shown = &board->engines[number];
    if (!demo_open(argv[4], &shop)) {
        atomic_store(&shown->state, DEMO_FAILED);
        return EXIT_TROUBLE;
    }
    (void)tw_lease_warm(shop.sale, tw_str(DEMO_ITEM), DEMO_STOCK); /* before the sale begins */
    return worker_work(board, shown, (unsigned)threads, &shop);
}
