/* downloads.c -- at most three downloads of a user at once, over all servers; and one server that cleans up for all.
 * TALLYWHEEL_REDIS=redis://localhost ./downloads      without it: slots of this process, and no lock
 *
 * A slot is in use from tw_hold() to tw_hold_release(). Slots of a server that dies are free again within 15 s. A lock
 * expires after its time. A slower holder no longer has the lock and does not notice it. So the protected resource
 * receives the fencing token, and refuses a smaller one than it has seen. */
#include <stdio.h>
#include <stdlib.h>
#include <tallywheel.h>
#include <unistd.h>

/* The protected resource. */
static uint64_t newest_fence;

static bool clean_up(uint64_t fence) {
    if (fence < newest_fence) return false; /* somebody has locked since */
    newest_fence = fence;
    return true;
}

static bool clean_up_alone(tw_family *jobs, tw_key job) {
    char token[TW_TOKEN_SIZE], other[TW_TOKEN_SIZE];
    uint64_t fence, none;
    if (tw_lock(jobs, job, 10000, token, &fence) != TW_OK) return false;
    bool alone = tw_lock(jobs, job, 10000, other, &none) == TW_DENIED;
    alone = alone && tw_lock_extend(jobs, job, token, 20000) == TW_OK; /* it needs more time than expected */
    alone = alone && clean_up(fence);
    return tw_lock_release(jobs, job, token) == TW_OK && alone;
}

int main(void) {
    char error[200] = "", user[64];
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *downloads;
    int busy = 0, again = 0;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.redis_url = getenv("TALLYWHEEL_REDIS");
    options.redis_timeout_ms = 2000; /* how long a call may wait for Redis */
    options.error_text = error;
    options.error_size = sizeof error;
    tw_family_options_init(&family_options);
    family_options.name = "downloads";
    family_options.window = TW_WINDOW_FOREVER;
    if (tw_open(&options, &engine) != TW_OK || tw_family_open(engine, &family_options, &downloads) != TW_OK) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }

    snprintf(user, sizeof user, "user:%ld", (long)getpid());
    for (int i = 0; i < 5; i++) busy += tw_hold(downloads, tw_str(user), 3, NULL) == TW_DENIED;
    tw_hold_release(downloads, tw_str(user)); /* one has ended */
    again += tw_hold(downloads, tw_str(user), 3, NULL) == TW_OK;
    printf("%d of 5 downloads had to wait, %d could begin later\n", busy, again);
    for (int i = 0; i < 3; i++) tw_hold_release(downloads, tw_str(user));
    bool good = busy == 2 && again == 1;
    if (options.redis_url != NULL) {
        bool alone = clean_up_alone(downloads, tw_str("clean up"));
        printf("cleaned up %s\n", alone ? "alone" : "not at all");
        good = good && alone;
    }
    tw_close(engine, 1000);
    return good ? 0 : 1;
}
