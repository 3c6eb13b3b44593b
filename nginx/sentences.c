/* sentences.c -- what the library says about options, in the words of the directives.
 * Always true: a sentence that has none of the library's names stays as it is. */
#include "ngx_http_tallywheel.h"


typedef struct {
    const char  *name;
    const char  *word;
} ngx_http_tallywheel_name_t;


static const ngx_http_tallywheel_name_t  ngx_http_tallywheel_names[] = {
    { "TW_SHARED_BY_FORK (shared)", "one engine for all workers" },
    { "TW_WINDOW_FOREVER", "window=forever" },
    { "TW_LIMIT_SOFT", "mode=soft" },
    { "TW_LIMIT_HARD", "mode=hard" },
    { "TW_LIMIT_STRICT", "mode=strict" },
    { "TW_SHAPE_FIXED", "shape=fixed" },
    { "TW_SHAPE_SLIDING", "shape=sliding" },
    { "TW_SHAPE_GCRA", "shape=gcra" },
    { "TW_OUTAGE_LOCAL", "outage=local" },
    { "TW_OUTAGE_FAIL_OPEN", "outage=open" },
    { "TW_OUTAGE_FAIL_CLOSED", "outage=closed" },
    { "TW_OUTAGE_SHARE", "outage=share" },
    { "tw_hold()", "tallywheel_hold" },
    { "tw_acquire_wait()", "wait=" },
    { "families", "zones" },
    { "window_ms", "window" },
    { "limit_mode", "mode" },
    { "limit_shape", "shape" },
    { "on_outage", "outage" },
    { "outage_grace_ms", "grace" },
    { "keys_max", "keys" },
    { "memory_bytes_max", "tallywheel_memory" },
    { "memory_share", "memory" },
    { "on_full", "full" },
    { "redis_prefix", "prefix" },
    { "redis_timeout_ms", "timeout" },
    { "sync_interval_ms", "interval" },
    { "redis_tls_ca_file", "ca" },
    { "redis_tls_cert_file", "cert" },
    { "redis_tls_key_file", "key" },
    { "redis_tls_server_name", "name" },
    { "redis_url", "URL" },
    { NULL, NULL }
};


static const ngx_http_tallywheel_name_t *
ngx_http_tallywheel_find_name(const char *at)
{
    const ngx_http_tallywheel_name_t  *name;

    for (name = ngx_http_tallywheel_names; name->name; name++) {
        if (ngx_strncmp(at, name->name, ngx_strlen(name->name)) == 0) {
            return name;
        }
    }

    return NULL;
}


/* The C string lives as long as the pool. */
const char *
ngx_http_tallywheel_sentence(ngx_pool_t *pool, const char *text)
{
    char                              *sentence, *out;
    const ngx_http_tallywheel_name_t  *name;

    sentence = out = ngx_pnalloc(pool, 2 * ngx_strlen(text) + 1); /* no word is twice as long as its name */
    if (sentence == NULL) {
        return text;
    }

    while (*text) {
        name = ngx_http_tallywheel_find_name(text);

        if (name) {
            out = (char *) ngx_cpymem(out, name->word, ngx_strlen(name->word));
            text += ngx_strlen(name->name);

        } else {
            *out++ = *text++;
        }
    }

    *out = '\0';

    return sentence;
}
