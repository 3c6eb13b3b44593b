/* watched.c -- a server under load that an operator can look at while it runs: what `./dev demo` starts twice.
 * TALLYWHEEL_REDIS=redis://localhost ./watched 60 /run/shop.sock      then: tallywheel top /run/shop.sock
 *
 * Two threads serve requests for so many seconds, or until SIGTERM: a view of a page, a visitor, a limit for each user.
 * They do not use Redis directly. Without a socket it cannot be looked at. Without TALLYWHEEL_REDIS no count leaves the
 * process. Without arguments it runs for a tenth of a second. Its last line shows its counts. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <tallywheel.h>
#include <time.h>
#include <unistd.h>

static tw_family *views, *visitors, *searches;
static volatile sig_atomic_t stopped;
static atomic_bool is_over;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

/* Few pages have most of the views. */
static void serve(uint64_t number) {
    char page[32], user[32];
    uint64_t random = number * 0x9e3779b97f4a7c15u;
    uint64_t place = random >> 44, spread = 1 + (random >> 20) % 1000;
    tw_key page_key = tw_bytes(page, (size_t)snprintf(page, sizeof page, "/article/%d", (int)(place / spread / 100)));
    tw_key user_key = tw_bytes(user, (size_t)snprintf(user, sizeof user, "user-%d", (int)(random >> 40 & 8191)));
    tw_add(views, page_key, 1, NULL);
    if (number % 8 == 0) tw_distinct_add(visitors, tw_str("site"), user_key, NULL);
    if (number % 16 == 0) tw_acquire(searches, user_key, 1, 100, NULL);
}

static void *serve_requests(void *arg) {
    int64_t *served = arg;
    uint64_t number = (uint64_t)getpid() << 32 | (uint64_t)*served << 31;
    for (*served = 0; !atomic_load(&is_over);) {
        for (int i = 0; i < 256; i++, ++*served) serve(number++);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); /* other processes run here, too */
    }
    return NULL;
}

static tw_family *family_of(tw_engine *engine, const char *name, uint32_t kind, int64_t window_ms) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    options.kind = kind;
    if (window_ms == 0)
        options.window = TW_WINDOW_FOREVER;
    else
        options.window_ms = window_ms;
    return tw_family_open(engine, &options, &family) == TW_OK ? family : NULL;
}

static bool open_all(tw_engine *engine) {
    views = family_of(engine, "views", TW_KIND_COUNTER, 0);
    visitors = family_of(engine, "visitors", TW_KIND_DISTINCT, TW_HOUR);
    searches = family_of(engine, "searches", TW_KIND_COUNTER, TW_MINUTE);
    return views != NULL && visitors != NULL && searches != NULL;
}

int main(int argc, char **argv) {
    char error[256] = "";
    double seconds = argc > 1 ? atof(argv[1]) : 0.1;
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.redis_url = getenv("TALLYWHEEL_REDIS");
    options.watch_path = argc > 2 ? argv[2] : NULL;
    options.error_text = error;
    options.error_size = sizeof error;
    if (tw_open(&options, &engine) != TW_OK) return fprintf(stderr, "%s\n", error), 1;
    if (!open_all(engine)) return fprintf(stderr, "%s\n", tw_error_text()), 1;
    signal(SIGTERM, stop);
    signal(SIGINT, stop);

    pthread_t threads[2];
    int64_t served[2] = {0, 1};
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, serve_requests, &served[i]) != 0) return 1;
    for (double waited = 0; waited < seconds && !stopped; waited += 0.05) usleep(50000);
    atomic_store(&is_over, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    tw_status closed = tw_close(engine, 10000); /* sends the rest */
    printf("%lld views\n", (long long)(served[0] + served[1]));
    return closed == TW_OK ? 0 : 1;
}
