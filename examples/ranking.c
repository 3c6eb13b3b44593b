/* ranking.c -- what is hot: a list of the hour and one of the day, merged with weights by whoever reads them.
 * TALLYWHEEL_REDIS=redis://localhost ./ranking      asks Redis: all servers; without the variable this process alone
 *
 * With Redis each window is one sorted set, "plays-by-hour:2026112014", whose members are the songs. New songs must
 * count more than those of the whole day, so an hour's play has ten times the weight of a day's. The weights belong to
 * the reader. No count depends on them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tallywheel.h>
#include <time.h>

#define SONGS 20
#define SHOWN 3

static tw_family *family_of(tw_engine *engine, const char *name, uint32_t window) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window;       /* TW_WINDOW_ALIGNED, an hour by default */
    options.lateness_ms = TW_HOUR; /* the hour may turn while this example runs */
    options.redis_shape = TW_REDIS_ZSET;
    return tw_family_open(engine, &options, &family) == TW_OK ? family : NULL;
}

/* The reader's list: songs of either list, with a score. */
struct row {
    char song[32];
    int64_t score;
};
struct merged {
    struct row rows[2 * SONGS];
    int count, weight;
};

static bool merge(void *ctx, tw_key song, int64_t plays) {
    struct merged *merged = ctx;
    char name[32];
    int row = 0;
    snprintf(name, sizeof name, "%.*s", (int)song.size, (const char *)song.data);
    while (row < merged->count && strcmp(merged->rows[row].song, name) != 0) row++;
    if (row == merged->count) {
        if (merged->count == 2 * SONGS) return false;
        memcpy(merged->rows[row].song, name, sizeof name);
        merged->rows[merged->count++].score = 0;
    }
    merged->rows[row].score += merged->weight * plays;
    return true;
}

static bool merge_count(void *ctx, const tw_count *count) {
    return merge(ctx, count->key, count->view);
}

/* The twenty most played of one window, from Redis or from this process. */
static tw_status merge_top(struct merged *merged, tw_family *family, int64_t now_ms, int weight, bool has_redis) {
    merged->weight = weight;
    return has_redis ? tw_fetch_top(family, now_ms, SONGS, 5000, merge, merged)
                     : tw_top(family, SONGS, now_ms, merge_count, merged);
}

static int by_score(const void *left, const void *right) {
    const struct row *a = left, *b = right;
    return (a->score < b->score) - (a->score > b->score);
}

int main(void) {
    tw_options options;
    tw_engine *engine;
    struct merged merged = {.count = 0};
    int64_t now_ms = (int64_t)time(NULL) * 1000; /* one moment for its hour and its day */
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.redis_url = getenv("TALLYWHEEL_REDIS");
    if (tw_open(&options, &engine) != TW_OK) return 1;
    tw_family *by_hour = family_of(engine, "plays-by-hour", TW_WINDOW_ALIGNED);
    tw_family *by_day = family_of(engine, "plays-by-day", TW_WINDOW_DAY);
    if (by_hour == NULL || by_day == NULL) return 1;

    /* "evergreen" is played most over the day, "newcomer" in this hour alone. */
    for (int play = 0; play < 1000; play++) {
        char song[32];
        tw_key key = tw_bytes(song, (size_t)snprintf(song, sizeof song, "song %d", play % 10));
        tw_add_at(by_day, tw_str("evergreen"), 5, now_ms, NULL); /* earlier today */
        tw_add_at(by_hour, tw_str("newcomer"), 1, now_ms, NULL);
        tw_add_at(by_day, tw_str("newcomer"), 1, now_ms, NULL);
        tw_add_at(by_hour, key, 1, now_ms, NULL);
        tw_add_at(by_day, key, 1, now_ms, NULL);
    }

    tw_status status = tw_flush(engine, 5000); /* only to show all of it; no program has to wait for it */
    if (status == TW_OK) status = merge_top(&merged, by_hour, now_ms, 10, options.redis_url != NULL);
    if (status == TW_OK) status = merge_top(&merged, by_day, now_ms, 1, options.redis_url != NULL);
    qsort(merged.rows, (size_t)merged.count, sizeof merged.rows[0], by_score);
    for (int i = 0; i < SHOWN && i < merged.count; i++)
        printf("%d. %-10s %6lld\n", i + 1, merged.rows[i].song, (long long)merged.rows[i].score);

    int64_t rank = -1;
    if (status == TW_OK && options.redis_url != NULL)
        status = tw_fetch_rank(by_hour, tw_str("newcomer"), now_ms, 5000, &rank, NULL);
    if (rank >= 0) printf("newcomer is number %lld of the hour\n", (long long)rank + 1);
    tw_close(engine, 5000);
    return status == TW_OK && merged.count > 0 ? 0 : 1;
}
