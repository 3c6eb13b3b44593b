/* submit_once.c -- a form that is submitted twice (two clicks, a retry, two servers) becomes one order.
 * TALLYWHEEL_REDIS=redis://localhost ./submit_once      over all servers; without the variable in this process alone
 *
 * The first caller of tw_once() does the work. If it fails, it calls tw_once_cancel(), and the next try is the first
 * again. With Redis the family is strict. Redis itself decides who is first, and a lost answer is requested again. */
#include <stdio.h>
#include <stdlib.h>
#include <tallywheel.h>
#include <unistd.h>

static int orders_written, database_fails;

static bool write_order(void) {
    if (database_fails > 0) return database_fails--, false;
    orders_written++;
    return true;
}

/* Answers an HTTP status. */
static int submit(tw_family *forms, const char *form) {
    bool first = false;
    tw_status status = tw_once(forms, tw_str(form), &first);
    if (status != TW_OK) return 503; /* it is not known who is first; better no order than two */
    if (!first) return 409;          /* already ordered */
    if (write_order()) return 201;
    tw_once_cancel(forms, tw_str(form));
    return 500;
}

int main(void) {
    char error[200] = "", form[64];
    tw_options options;
    tw_family_options family_options;
    tw_engine *engine;
    tw_family *forms;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.redis_url = getenv("TALLYWHEEL_REDIS");
    options.redis_timeout_ms = 2000; /* how long a strict call may wait */
    options.error_text = error;
    options.error_size = sizeof error;
    tw_family_options_init(&family_options);
    family_options.name = "forms";
    family_options.window_ms = TW_DAY; /* remembered until midnight */
    family_options.error_text = error;
    family_options.error_size = sizeof error;
    if (options.redis_url != NULL) {
        family_options.limit_mode = TW_LIMIT_STRICT;
        family_options.on_outage = TW_OUTAGE_FAIL_CLOSED; /* Redis is unreachable: 503 */
    }
    if (tw_open(&options, &engine) != TW_OK || tw_family_open(engine, &family_options, &forms) != TW_OK) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }

    snprintf(form, sizeof form, "form:%ld", (long)getpid()); /* as hidden in the page */
    database_fails = 1;
    int answers[4];
    for (int i = 0; i < 4; i++) answers[i] = submit(forms, form);
    printf("submitted four times: %d %d %d %d; orders: %d\n", answers[0], answers[1], answers[2], answers[3],
           orders_written);
    tw_close(engine, 1000);
    return orders_written == 1 && answers[0] == 500 && answers[1] == 201 && answers[2] == 409 && answers[3] == 409 ? 0
                                                                                                                   : 1;
}
