/* dimensions.c -- views, likes and shares of each article, read together.
 * TALLYWHEEL_REDIS=redis://localhost ./dimensions      two servers that share Redis; without the variable one alone
 *
 * A key is "subject|field". With Redis all fields of an article are one hash, "articles:article:7", that any program
 * reads by one HGETALL. Declared fields are looked up at once, and a field that was misspelt is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <tallywheel.h>

struct server {
    tw_engine *engine;
    tw_family *articles;
};

static bool server_begin(struct server *server, const char *redis_url) {
    char error[200] = "";
    tw_options options;
    tw_family_options family_options;
    tw_options_init(&options);
    options.log_write = tw_log_stderr;
    options.redis_url = redis_url;
    options.error_text = error;
    options.error_size = sizeof error;
    tw_family_options_init(&family_options);
    family_options.name = "articles";
    family_options.window = TW_WINDOW_FOREVER;
    family_options.redis_shape = TW_REDIS_HASH;
    family_options.fields = "views,likes,shares";
    family_options.error_text = error;
    family_options.error_size = sizeof error;
    if (tw_open(&options, &server->engine) == TW_OK &&
        tw_family_open(server->engine, &family_options, &server->articles) == TW_OK)
        return true;
    fprintf(stderr, "%s\n", error);
    return false;
}

static void article_is_read(struct server *server, int reader) {
    tw_add(server->articles, tw_str("article:7|views"), 1, NULL);
    if (reader % 10 == 0) tw_add(server->articles, tw_str("article:7|likes"), 1, NULL);
    if (reader % 100 == 0) tw_add(server->articles, tw_str("article:7|shares"), 1, NULL);
}

static bool print_field(void *ctx, tw_key field, int64_t count) {
    *(int64_t *)ctx += count;
    printf(" %.*s %lld", (int)field.size, (const char *)field.data, (long long)count);
    return true;
}

int main(void) {
    const char *redis_url = getenv("TALLYWHEEL_REDIS");
    int count = redis_url != NULL ? 2 : 1;
    struct server servers[2];
    int64_t seen = 0, total = 0;
    tw_status status = TW_OK;
    for (int i = 0; i < count; i++)
        if (!server_begin(&servers[i], redis_url)) return 1;

    for (int reader = 0; reader < 1000; reader++) article_is_read(&servers[reader % count], reader);
    if (tw_add(servers[0].articles, tw_str("article:7|veiws"), 1, NULL) != TW_ERR_KEY) return 1;

    printf("this server:"); /* its own counts, and after a later sync those of the others */
    tw_each_field(servers[0].articles, tw_str("article:7"), TW_NOW, print_field, &seen);
    if (redis_url != NULL) {
        for (int i = 0; i < count && status == TW_OK; i++) status = tw_flush(servers[i].engine, 5000);
        printf("\nall servers:");
        if (status == TW_OK)
            status = tw_fetch_fields(servers[0].articles, tw_str("article:7"), TW_NOW, 5000, print_field, &total);
    }
    printf("\n");
    for (int i = 0; i < count; i++) tw_close(servers[i].engine, 5000);
    if (redis_url == NULL) return seen == 1000 + 100 + 10 ? 0 : 1;
    return status == TW_OK && total % (1000 + 100 + 10) == 0 ? 0 : 1; /* a second run continues from there */
}
