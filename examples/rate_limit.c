/* rate_limit.c -- at most 20 calls for each user and minute.
 * tw_acquire() takes a unit if the limit allows it and changes nothing if not. Only TW_OK admits; the verdict says what
 * to tell the user. The limit stands in the call, so it may differ from user to user and change at any time. */
#include <stdio.h>
#include <tallywheel.h>

#define CALLS_PER_MINUTE 20

/* Answers an HTTP status. */
static int serve(tw_family *calls, const char *user, tw_verdict *verdict) {
    tw_status status = tw_acquire(calls, tw_str(user), 1, CALLS_PER_MINUTE, verdict);
    if (status == TW_OK) return 200;
    if (status == TW_DENIED) return 429;
    return verdict->allowed ? 200 : 503; /* an error (no room for a new user ...): what the family's policy advises */
}

int main(void) {
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *calls;
    tw_verdict verdict;
    int served = 0;
    tw_options_init(&options);
    tw_family_options_init(&family_options);
    family_options.name = "calls";
    family_options.window = TW_FROM_FIRST; /* each user's minute begins with the user's first call */
    family_options.window_ms = TW_MINUTE;
    if (tw_open(&options, &engine) != TW_OK) return 1;
    if (tw_family_open(engine, &family_options, &calls) != TW_OK) return 1;

    for (int i = 0; i < 30; i++) {
        int answer = serve(calls, "ann", &verdict);
        if (answer == 200) served++;
        if (i >= CALLS_PER_MINUTE - 1 && i <= CALLS_PER_MINUTE + 1) {
            printf("call %d: %d, %lld of %lld left, try again after %lld ms\n", i + 1, answer,
                   (long long)verdict.remaining, (long long)verdict.limit, (long long)verdict.retry_after_ms);
        }
    }
    int other = serve(calls, "bob", &verdict); /* has a minute of his own */
    tw_close(engine, 1000);
    return served == CALLS_PER_MINUTE && other == 200 ? 0 : 1;
}
