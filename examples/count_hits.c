/* count_hits.c -- the shortest start: count hits by the hour, read one back.
 * The counters of an hour disappear after its end and one more hour of history. */
#include <stdio.h>
#include <tallywheel.h>

int main(void) {
    tw_options options;
    tw_family_options hits_options;
    tw_engine *engine;
    tw_family *hits;
    int64_t so_far = 0;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    tw_family_options_init(&hits_options);
    hits_options.name = "hits"; /* windows of one hour are the default */
    if (tw_open(&options, &engine) != TW_OK) return 1;
    if (tw_family_open(engine, &hits_options, &hits) != TW_OK) return 1;

    for (int visitor = 0; visitor < 1000; visitor++) tw_add(hits, tw_str("/index.html"), 1, &so_far);

    printf("/index.html: %lld hits this hour\n", (long long)so_far);
    tw_close(engine, 1000);
    return so_far > 0 && so_far <= 1000 ? 0 : 1; /* less than 1,000 if the hour has just turned */
}
