/* rate_limit.c -- at most 20 calls for each user and minute, and the HTTP headers that show this to the user.
 * tw_acquire() takes a unit if the limit allows it and changes nothing if not. Only TW_OK admits; the verdict has
 * the answer for the user. The limit is an argument of the call, so it may differ from user to user and change at
 * any time. */
#include <stdio.h>
#include <tallywheel.h>

#define CALLS_PER_MINUTE 20

/* Headers count in whole seconds, rounded up, so that no user comes back too early. */
static long long seconds(int64_t ms) {
    return ms / 1000 + (ms % 1000 > 0); /* rounded up, for any ms */
}

/* Answers an HTTP status, and writes the headers. */
static int serve(tw_family *calls, const char *user, char *headers, size_t size) {
    tw_verdict verdict;
    tw_status status = tw_acquire(calls, tw_str(user), 1, CALLS_PER_MINUTE, &verdict);
    int used = snprintf(headers, size, "RateLimit-Limit: %lld\nRateLimit-Remaining: %lld\nRateLimit-Reset: %lld\n",
                        (long long)verdict.limit, (long long)verdict.remaining, seconds(verdict.reset_after_ms));
    if (status == TW_OK) return 200;
    if (status == TW_DENIED) {
        snprintf(headers + used, size - (size_t)used, "Retry-After: %lld\n", seconds(verdict.retry_after_ms));
        return 429;
    }
    return verdict.allowed ? 200 : 503; /* an error (no room for a new user ...): what the family's policy advises */
}

int main(void) {
    char headers[200];
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *calls;
    int served = 0, refused = 0;
    tw_options_init(&options); /* with options.redis_url the same limit over several servers, softly */
    options.log_write = tw_log_stderr;
    tw_family_options_init(&family_options);
    family_options.name = "calls";
    family_options.window = TW_WINDOW_FROM_FIRST; /* each user's minute begins with the user's first call */
    family_options.window_ms = TW_MINUTE;
    if (tw_open(&options, &engine) != TW_OK) return 1;
    if (tw_family_open(engine, &family_options, &calls) != TW_OK) return 1;

    for (int i = 1; i <= 30; i++) {
        int answer = serve(calls, "ann", headers, sizeof headers);
        served += answer == 200;
        refused += answer == 429 && strstr(headers, "Retry-After: ") != NULL;
        if (i == 1 || i == CALLS_PER_MINUTE + 1) printf("call %d: %d\n%s\n", i, answer, headers);
    }
    int other = serve(calls, "bob", headers, sizeof headers); /* has a minute of his own */
    tw_close(engine, 1000);
    return served == CALLS_PER_MINUTE && refused == 30 - CALLS_PER_MINUTE && other == 200 ? 0 : 1;
}
