/* online_users.c -- how many users are online in each room, over all servers.
 * TALLYWHEEL_REDIS=redis://localhost ./online_users      two servers that share Redis; without the variable one alone
 *
 * A gauge counts the users of this moment: add 1 when one comes and -1 when one leaves. With Redis each server sends
 * its own part and the view is the sum. The part of a server that dies disappears, so no user stays online for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <tallywheel.h>
#include <unistd.h>

struct server {
    tw_engine *engine;
    tw_family *online;
};

static bool server_begin(struct server *server, const char *redis_url) {
    char error[200] = "";
    tw_options options;
    tw_family_options family_options;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.redis_url = redis_url;
    options.sync_interval_ms = 20;
    options.error_text = error;
    options.error_size = sizeof error;
    tw_family_options_init(&family_options);
    family_options.name = "online";
    family_options.kind = TW_KIND_GAUGE;
    family_options.window = TW_WINDOW_FOREVER;
    family_options.error_text = error;
    family_options.error_size = sizeof error;
    if (tw_open(&options, &server->engine) == TW_OK &&
        tw_family_open(server->engine, &family_options, &server->online) == TW_OK)
        return true;
    fprintf(stderr, "%s\n", error);
    return false;
}

/* Others' users are known after a sync or two, here within ten seconds even on a slow machine. */
static bool shows(struct server *server, tw_key room, int64_t want) {
    int64_t online = -1;
    for (int i = 0; i < 1000; i++) {
        if (tw_get(server->online, room, &online) == TW_OK && online == want) break;
        usleep(10000);
    }
    printf("%lld online\n", (long long)online);
    return online == want;
}

int main(void) {
    struct server servers[2];
    char name[64];
    const char *redis_url = getenv("TALLYWHEEL_REDIS");
    bool good = server_begin(&servers[0], redis_url);
    snprintf(name, sizeof name, "room:%ld", (long)getpid());
    tw_key room = tw_str(name);
    if (!good) return 1;

    for (int i = 0; i < 5; i++) tw_add(servers[0].online, room, 1, NULL);  /* five come */
    for (int i = 0; i < 2; i++) tw_add(servers[0].online, room, -1, NULL); /* two go */
    good = shows(&servers[0], room, 3);
    if (redis_url != NULL) {
        if (!server_begin(&servers[1], redis_url)) return 1;
        tw_add(servers[1].online, room, 4, NULL);
        good = shows(&servers[0], room, 7) && shows(&servers[1], room, 7) && good;
        tw_close(servers[1].engine, 5000); /* its users are gone with it */
        good = shows(&servers[0], room, 3) && good;
    }
    tw_close(servers[0].engine, 5000);
    return good ? 0 : 1;
}
