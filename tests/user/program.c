/* program.c -- what a user writes: it must compile without a warning as C99, C11, C++11 and C++20.
 * Counts three visitors, asks for one, lists them all, reads a subject, and the statistics. Exits 0 when every figure
 * is right. */
#include <tallywheel.h>

#include <stdio.h>

static bool add_up(void *ctx, const tw_count *count) {
    *(int64_t *)ctx += count->view;
    return true;
}

static bool print_nothing(void *ctx, const char *text, size_t size) {
    (void)text;
    *(size_t *)ctx += size;
    return true;
}

static bool print_no_total(void *ctx, tw_key name, int64_t total) {
    *(int64_t *)ctx += (int64_t)name.size + total;
    return true;
}

/* A family whose keys are subjects with fields, and one whose windows are rankings. */
static bool shapes_are_right(tw_engine *engine) {
    tw_family *articles = NULL, *ranks = NULL;
    int64_t sum = 0, rank = 0;
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "articles";
    options.window = TW_WINDOW_FOREVER;
    options.redis_shape = TW_REDIS_HASH;
    options.fields = "views,likes";
    if (tw_family_open(engine, &options, &articles) != TW_OK) return false;
    tw_family_options_init(&options);
    options.name = "ranks";
    options.redis_shape = TW_REDIS_ZSET;
    if (tw_family_open(engine, &options, &ranks) != TW_OK) return false;
    tw_add(articles, tw_str("7|views"), 30, NULL);
    if (tw_each_field(articles, tw_str("7"), TW_NOW, print_no_total, &sum) != TW_OK || sum != 35) return false;
    /* These ask Redis, and there is none. */
    return tw_fetch_fields(articles, tw_str("7"), TW_NOW, 10, print_no_total, &sum) == TW_ERR_REDIS &&
           tw_fetch_top(ranks, TW_NOW, 10, 10, print_no_total, &sum) == TW_ERR_REDIS &&
           tw_fetch_rank(ranks, tw_str("song"), TW_NOW, 10, &rank, NULL) == TW_ERR_REDIS;
}

int main(void) {
    tw_engine *engine = NULL;
    tw_family *views = NULL;
    char why[128] = "";
    tw_options options;
    tw_options_init(&options);
    options.error_text = why;
    options.error_size = sizeof why;
    if (tw_open(&options, &engine) != TW_OK) {
        printf("tw_open: %s\n", why);
        return 1;
    }
    tw_family_options family;
    tw_family_options_init(&family);
    family.name = "views";
    family.window_ms = TW_DAY;
    if (tw_family_open(engine, &family, &views) != TW_OK) return 1;

    int64_t view = 0, sum = 0;
    size_t bytes = 0;
    tw_verdict verdict;
    tw_stats stats;
    tw_add(views, tw_str("/"), 1, NULL);
    tw_add(views, tw_str("/about"), 2, NULL);
    tw_status status = tw_add(views, tw_bytes("/\0raw", 5), 3, &view);
    printf("%s: %s\n", tw_status_name(status), tw_status_text(status));
    if (view != 3 || tw_get(views, tw_str("/about"), &view) != TW_OK || view != 2) return 1;
    if (tw_each(views, TW_NOW, add_up, &sum) != TW_OK || sum != 6) return 1;
    if (tw_acquire(views, tw_str("buyer"), 1, 1, &verdict) != TW_OK || !verdict.allowed) return 1;
    if (tw_acquire(views, tw_str("buyer"), 1, 1, &verdict) != TW_DENIED || verdict.allowed) return 1;
    if (tw_stats_read(engine, &stats) != TW_OK || stats.entries < 4) return 1;
    if (tw_metrics_write(engine, TW_METRICS_PROMETHEUS, print_nothing, &bytes) != TW_OK || bytes == 0) return 1;
    if (!shapes_are_right(engine)) return 1;
    if (tw_close(engine, 1000) != TW_OK) return 1;
    printf("tallywheel %s: all figures are right\n", tw_version());
    return 0;
}
