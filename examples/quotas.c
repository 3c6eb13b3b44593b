/* quotas.c -- several limits at once, and the rest of a limit.
 * tw_acquire_all() takes a unit of each quota or of none, so a mail that the customer's month does not allow uses no
 * unit of the minute. tw_acquire_some() takes the units that are left, for work that can be done in part. */
#include <stdio.h>
#include <tallywheel.h>

#define MAILS_PER_MINUTE 100
#define MAILS_PER_MONTH 3
#define ROWS_PER_MINUTE 1000

static tw_family *open_family(tw_engine *engine, const char *name, uint32_t window, int64_t window_ms) {
    tw_family_options options;
    tw_family *family = NULL;
    tw_family_options_init(&options);
    options.name = name;
    options.window = window;
    options.window_ms = window_ms;
    return tw_family_open(engine, &options, &family) == TW_OK ? family : NULL;
}

int main(void) {
    tw_options options;
    tw_engine *engine;
    tw_verdict verdict;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    if (tw_open(&options, &engine) != TW_OK) return 1;
    tw_family *minute = open_family(engine, "minute", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    tw_family *month = open_family(engine, "month", TW_WINDOW_MONTH, 0);
    tw_family *rows = open_family(engine, "rows", TW_WINDOW_FROM_FIRST, TW_MINUTE);
    if (minute == NULL || month == NULL || rows == NULL) return 1;

    const tw_claim claims[] = {{minute, tw_str("all"), 1, MAILS_PER_MINUTE},
                               {month, tw_str("customer 17"), 1, MAILS_PER_MONTH}};
    int sent = 0, denied_by = -1;
    int64_t used = 0, first = 0, second = 0;
    for (int i = 0; i < 5; i++) {
        if (tw_acquire_all(claims, 2, &verdict) == TW_OK)
            sent++;
        else
            denied_by = (int)verdict.claim; /* which of the two denied */
    }
    tw_get(minute, tw_str("all"), &used);
    printf("%d of 5 mails sent, then claim %d denied; %lld of the minute used\n", sent, denied_by, (long long)used);

    tw_acquire_some(rows, tw_str("export"), 700, ROWS_PER_MINUTE, &first, &verdict);
    tw_acquire_some(rows, tw_str("export"), 700, ROWS_PER_MINUTE, &second, &verdict);
    printf("exported %lld rows, then %lld\n", (long long)first, (long long)second);
    tw_close(engine, 1000);
    return sent == 3 && denied_by == 1 && used == 3 && first == 700 && second == 300 ? 0 : 1;
}
