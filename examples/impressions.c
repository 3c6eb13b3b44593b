/* impressions.c -- an advertisement is shown to each device once an hour; showings and the devices reached are counted.
 * tw_once() is true for the first caller of a key and window, and forgets with the window, so no list of devices has to
 * be kept or cleared. Its result is counted, too: `reached` is the number of different devices. */
#include <stdio.h>
#include <tallywheel.h>

#define DEVICES 250
#define REQUESTS 1000

/* Families of an hour, aligned to the clock, as tw_family_options_init() sets it. */
static tw_family *hourly(tw_engine *engine, const char *name) {
    tw_family_options options;
    tw_family *family;
    tw_family_options_init(&options);
    options.name = name;
    return tw_family_open(engine, &options, &family) == TW_OK ? family : NULL;
}

int main(void) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    if (tw_open(&options, &engine) != TW_OK) return 1;
    tw_family *seen = hourly(engine, "seen"), *counts = hourly(engine, "ad");
    if (seen == NULL || counts == NULL) return 1;

    for (int request = 0; request < REQUESTS; request++) {
        char key[64];
        bool first;
        snprintf(key, sizeof key, "ad7:device%d", request % DEVICES); /* the advertisement and the device: one key */
        if (tw_once(seen, tw_str(key), &first) != TW_OK) continue;
        if (first) tw_add(counts, tw_str("ad7:reached"), 1, NULL);
        tw_add(counts, first ? tw_str("ad7:shown") : tw_str("ad7:held back"), 1, NULL);
    }

    int64_t reached = 0, shown = 0, held_back = 0;
    tw_get(counts, tw_str("ad7:reached"), &reached);
    tw_get(counts, tw_str("ad7:shown"), &shown);
    tw_get(counts, tw_str("ad7:held back"), &held_back);
    printf("%lld devices reached, %lld times shown, %lld times held back\n", (long long)reached, (long long)shown,
           (long long)held_back);
    tw_close(engine, 1000);
    /* Where the full hour strikes in between, some devices are reached again. */
    return reached >= DEVICES && reached <= 2 * DEVICES && shown == reached && shown + held_back == REQUESTS ? 0 : 1;
}
