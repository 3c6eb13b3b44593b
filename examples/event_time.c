/* event_time.c -- a log that arrives late: each line is counted in the hour in which it happened.
 * tw_add_at() and tw_get_at() name the moment. Windows accept counts for lateness_ms after their end. An older line is
 * refused, and the caller learns of it. tw_reset() removes a figure after it was handled. */
#include <stdio.h>
#include <tallywheel.h>
#include <time.h>

struct line {
    int64_t age_ms;
    const char *service;
};

int main(void) {
    const struct line log[] = {{0, "search"},        {2 * TW_HOUR, "search"}, {2 * TW_HOUR, "search"},
                               {2 * TW_DAY, "mail"}, {2 * TW_HOUR, "mail"},   {0, "mail"}};
    int64_t now_ms = (int64_t)time(NULL) * 1000, before = 0, now = 0, taken = 0;
    int too_old = 0;
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *errors;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    tw_family_options_init(&family_options);
    family_options.name = "errors";
    family_options.window_ms = TW_HOUR;
    family_options.lateness_ms = TW_DAY; /* a log may be a day old */
    if (tw_open(&options, &engine) != TW_OK) return 1;
    if (tw_family_open(engine, &family_options, &errors) != TW_OK) return 1;

    tw_enter(engine); /* many calls of one thread are a little cheaper between tw_enter() and tw_leave() */
    for (size_t i = 0; i < sizeof log / sizeof log[0]; i++)
        too_old += tw_add_at(errors, tw_str(log[i].service), 1, now_ms - log[i].age_ms, NULL) == TW_ERR_LATE;
    tw_leave(engine);

    tw_get_at(errors, tw_str("search"), now_ms - 2 * TW_HOUR, &before);
    tw_get_at(errors, tw_str("search"), now_ms, &now);
    printf("search: %lld errors two hours ago, %lld now; %d line too old\n", (long long)before, (long long)now,
           too_old);
    tw_add(errors, tw_str("disk"), 3, NULL);
    tw_reset(errors, tw_str("disk"), &taken); /* handled, so later lines count from 0 */
    printf("disk: %lld errors dealt with\n", (long long)taken);
    tw_close(engine, 1000);
    return before == 2 && now == 1 && too_old == 1 && taken == 3 ? 0 : 1;
}
