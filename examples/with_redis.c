/* with_redis.c -- the same counter in several processes, merged in Redis.
 * TALLYWHEEL_REDIS=redis://localhost ./with_redis       (without the variable it says so and exits with 2)
 *
 * tw_add() is as quick as without Redis, because it never waits for it. Ten times a second a background thread sends
 * the new counts and brings the totals of all processes back. While Redis is unreachable, counting continues. When
 * Redis is back, the unsent counts are sent once. Run the example twice: the total grows by 100 each time. */
#include <stdio.h>
#include <stdlib.h>
#include <tallywheel.h>

static void on_lost(void *ctx, tw_family *family, tw_key key, int64_t start_ms, int64_t delta, int reason) {
    (void)ctx, (void)family, (void)start_ms;
    fprintf(stderr, "%lld counts of %.*s will not reach Redis (reason %d)\n", (long long)delta, (int)key.size,
            (const char *)key.data, reason);
}

int main(void) {
    char error[256] = "";
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *plays;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.redis_url = getenv("TALLYWHEEL_REDIS");
    options.error_text = error;
    options.error_size = sizeof error;
    options.on_lost = on_lost;
    if (options.redis_url == NULL) {
        fprintf(stderr, "say where Redis is: TALLYWHEEL_REDIS=redis://localhost\n");
        return 2;
    }
    if (tw_open(&options, &engine) != TW_OK) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    tw_family_options_init(&family_options);
    family_options.name = "plays";
    family_options.window = TW_WINDOW_FOREVER; /* in Redis: "plays:film-7", without an end */
    if (tw_family_open(engine, &family_options, &plays) != TW_OK) return 1;

    int64_t before = 0, after = 0;
    tw_key film = tw_str("film-7");
    if (tw_fetch(plays, &film, 1, 5000, &before) != TW_OK)
        fprintf(stderr, "Redis does not answer; counting all the same\n");
    for (int i = 0; i < 100; i++) tw_add(plays, film, 1, NULL);
    tw_status flushed = tw_flush(engine, 5000); /* only to show the total: nobody has to wait for it */
    if (flushed == TW_OK) flushed = tw_fetch(plays, &film, 1, 5000, &after);
    printf("%lld plays before, %lld now, over all processes\n", (long long)before, (long long)after);

    tw_status closed = tw_close(engine, 5000); /* sends what is left */
    return flushed == TW_OK && closed == TW_OK && after >= before + 100 ? 0 : 1;
}
