/* metrics.c -- the engine's own figures as a page for a scraper, and a family that another part of the program opened.
 * An HTTP server answers GET /metrics with the pieces that write_piece() gets. With tw_family_find() no pointer has to
 * be passed around. tw_stop() is for the end. Calls that count then return TW_ERR_CLOSED while requests end, and the
 * last page is still written. */
#include <stdio.h>
#include <tallywheel.h>

/* Pieces of whole lines; this one prints those of one metric. */
static bool write_piece(void *ctx, const char *text, size_t size) {
    const char *wanted = ctx;
    for (const char *line = text, *end = text + size; line < end;) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        size_t length = next != NULL ? (size_t)(next - line) + 1 : (size_t)(end - line);
        if (length > strlen(wanted) && memcmp(line, wanted, strlen(wanted)) == 0) fwrite(line, 1, length, stdout);
        line += length;
    }
    return true; /* false if the client has left */
}

/* In another file of the program. */
static bool open_plays(tw_engine *engine) {
    tw_family *plays;
    tw_family_options options;
    tw_family_options_init(&options);
    options.name = "plays";
    options.window_ms = TW_HOUR;
    return tw_family_open(engine, &options, &plays) == TW_OK;
}

int main(void) {
    char wanted[] = "tallywheel_increments_total";
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.metrics_labels = "service=\"films\"";
    if (tw_open(&options, &engine) != TW_OK || !open_plays(engine)) return 1;

    tw_family *plays = tw_family_find(engine, "plays");
    if (plays == NULL || tw_family_find(engine, "songs") != NULL) return 1;
    for (int i = 0; i < 42; i++) tw_add(plays, tw_str("film 7"), 1, NULL);

    tw_stop(engine); /* no more requests are accepted */
    tw_status late = tw_add(plays, tw_str("film 7"), 1, NULL);
    tw_status page = tw_metrics_write(engine, TW_METRICS_PROMETHEUS, write_piece, wanted);
    tw_close(engine, 1000);
    return late == TW_ERR_CLOSED && page == TW_OK ? 0 : 1;
}
