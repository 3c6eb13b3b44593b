/* metrics_page.c -- a program's page of metrics, joined with the engine's, on standard output: `metrics_page
 * prometheus|openmetrics`. `metrics_page type prometheus|openmetrics` prints the Content-Type that belongs to it. For
 * metrics.py. */
#include <stdio.h>
#include <string.h>
#include <tallywheel.h>

static bool print(void *ctx, const char *text, size_t size) {
    (void)ctx;
    return fwrite(text, 1, size, stdout) == size;
}

/* What a server would have done: limits that denied, windows that closed, a new key refused. */
static bool do_something(tw_engine *engine) {
    tw_family_options options;
    tw_family *logins, *views;
    tw_family_options_init(&options);
    options.name = "logins";
    if (tw_family_open(engine, &options, &logins) != TW_OK) return false;
    options.name = "views";
    if (tw_family_open(engine, &options, &views) != TW_OK) return false;
    for (int i = 0; i < 7; i++) (void)tw_acquire(logins, tw_str("user"), 1, 5, NULL);
    for (int i = 0; i < 37; i++) (void)tw_add(views, tw_str("/"), 1, NULL);
    return true;
}

int main(int argc, char **argv) {
    bool is_open = argc > 1 && strcmp(argv[argc - 1], "openmetrics") == 0;
    if (argc == 3 && strcmp(argv[1], "type") == 0)
        return puts(is_open ? TW_METRICS_OPENMETRICS_TYPE : TW_METRICS_PROMETHEUS_TYPE) < 0;
    tw_engine *engine;
    tw_options options;
    tw_options_init(&options);
    options.metrics_labels = "service=\"shop\",zone=\"caf\xc3\xa9 \\\"a\\\"\"";
    uint32_t format = is_open ? TW_METRICS_OPENMETRICS | TW_METRICS_NO_EOF : TW_METRICS_PROMETHEUS;
    if (tw_open(&options, &engine) != TW_OK || !do_something(engine)) return 1;
    if (tw_metrics_write(engine, format, print, NULL) != TW_OK) return 1;
    printf("# TYPE shop_orders gauge\n# HELP shop_orders Orders that are open.\nshop_orders 3\n%s",
           is_open ? "# EOF\n" : "");
    return tw_close(engine, 1000) == TW_OK ? 0 : 1;
}
