/* denial.c -- whether a denial is due to a spent limit or to a missing answer, its line in the log, and the two lines
 * of an outage that denies.
 * Always true: an outage of Redis that denies requests is one line of the log when it begins, and one when it is over,
 * for all workers together. They share a page for that, also over a reload. No master reads it. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_KEY_SHOWN   256    /* bytes of a key in the log */
#define NGX_HTTP_TALLYWHEEL_OUTAGE_MS   2000   /* without a denial, while Redis answers: then an outage is over */


/* Zeroed at first. */
typedef struct {
    ngx_atomic_t                   denies;   /* the line of the beginning was written */
    ngx_atomic_t                   last;     /* ngx_current_msec of the last denial */
    ngx_atomic_t                   denied;   /* how many requests */
} ngx_http_tallywheel_outage_t;


static ngx_http_tallywheel_outage_t  *ngx_http_tallywheel_outage;
static ngx_uint_t                     ngx_http_tallywheel_outage_uses;   /* configurations of this process */


/* ---- its cause ---- */

/* NULL if the rule admits, or refuses a wrong call. */
const char *
ngx_http_tallywheel_cause(tw_verdict *verdict)
{
    static const char *const  causes[] = { "limit", "share", "outage", "busy", "full", "buyer", "never" };

    if (verdict->allowed || verdict->retry_after_ms == 0) {
        return NULL;
    }

    return verdict->cause < sizeof(causes) / sizeof(causes[0]) ? causes[verdict->cause] : NULL;
}


/* The call had no answer, so the limit may be spent or not. */
ngx_uint_t
ngx_http_tallywheel_is_unknown(tw_status status, tw_verdict *verdict)
{
    return status < 0 || verdict->cause == TW_CAUSE_OUTAGE || verdict->cause == TW_CAUSE_BUSY
           || verdict->cause == TW_CAUSE_FULL;
}


/* Whether requests may be denied by such a call. */
ngx_uint_t
ngx_http_tallywheel_may_not_know(ngx_http_tallywheel_main_conf_t *mcf)
{
    ngx_uint_t                    i;
    ngx_http_tallywheel_rule_t  **rule = mcf->rules.elts;

    for (i = 0; i < mcf->rules.nelts; i++) {
        if (rule[i]->kind == NGX_HTTP_TALLYWHEEL_HOLD || rule[i]->zone->options.on_full_limit == TW_FULL_LIMIT_DENY) {
            return 1;
        }
    }

    return mcf->server.url != NULL;
}


/* The key that the rule had. It lives as long as the request. */
tw_key
ngx_http_tallywheel_key_of(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule)
{
    ngx_uint_t  i;

    if (ctx->conf->is_simple) {
        return ctx->key;
    }

    for (i = 0; i < ctx->count; i++) {
        if (ctx->entries[i].rule == rule) {
            return ctx->claims[i].key;
        }
    }

    return tw_bytes(NULL, 0);
}


/* ---- its line ---- */

/* Bytes that are no printable ASCII, quotes and backslashes become \xHH. */
static u_char *
ngx_http_tallywheel_escape(u_char *p, tw_key key)
{
    size_t         i;
    const u_char  *from = key.data;

    static const u_char  hex[] = "0123456789ABCDEF";

    for (i = 0; i < key.size && i < NGX_HTTP_TALLYWHEEL_KEY_SHOWN; i++) {
        if (from[i] < ' ' || from[i] > '~' || from[i] == '"' || from[i] == '\\') {
            *p++ = '\\';
            *p++ = 'x';
            *p++ = hex[from[i] >> 4];
            *p++ = hex[from[i] & 0xf];

        } else {
            *p++ = from[i];
        }
    }

    return (i < key.size) ? ngx_cpymem(p, "...", 3) : p;
}


void
ngx_http_tallywheel_log_denial(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule, tw_verdict *verdict,
    ngx_uint_t passes)
{
    u_char       text[4 * NGX_HTTP_TALLYWHEEL_KEY_SHOWN + 3];
    ngx_str_t    key;
    ngx_log_t   *log = ctx->request->connection->log;
    const char  *cause;

    if (log->log_level < ctx->conf->log_level) {
        return;
    }

    key.data = text;
    key.len = (size_t) (ngx_http_tallywheel_escape(text, ngx_http_tallywheel_key_of(ctx, rule)) - text);
    cause = ngx_http_tallywheel_cause(verdict);

    ngx_log_error(ctx->conf->log_level, log, 0, "tallywheel_zone \"%V\" %s: key \"%V\", limit %L, used %L, cause %s",
                  &rule->zone_name, passes ? "would deny" : "denies", &key, verdict->limit, verdict->used,
                  cause ? cause : "error");
}


/* ---- an outage ---- */

static void
ngx_http_tallywheel_unshare_outage(void *data)
{
    ngx_shm_t  *shm = data;

    if (--ngx_http_tallywheel_outage_uses == 0) {
        ngx_http_tallywheel_outage = NULL;
        shm->log = ngx_cycle->log;
        ngx_shm_free(shm);
    }
}


/* Before any worker of this configuration is forked. The page is the one that configurations before had. */
ngx_int_t
ngx_http_tallywheel_share_outage(ngx_conf_t *cf)
{
    ngx_shm_t           *shm;
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(cf->pool, sizeof(ngx_shm_t));
    if (cln == NULL) {
        return NGX_ERROR;
    }

    shm = cln->data;
    ngx_memzero(shm, sizeof(ngx_shm_t));
    shm->addr = (u_char *) ngx_http_tallywheel_outage;
    shm->size = ngx_pagesize;
    ngx_str_set(&shm->name, "tallywheel");
    shm->log = cf->log;

    if (shm->addr == NULL && ngx_shm_alloc(shm) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_tallywheel_outage = (ngx_http_tallywheel_outage_t *) shm->addr;
    ngx_http_tallywheel_outage_uses++;
    cln->handler = ngx_http_tallywheel_unshare_outage;

    return NGX_OK;
}


/* A request was denied because Redis has no answer. */
void
ngx_http_tallywheel_outage_denies(ngx_http_tallywheel_rule_t *rule)
{
    ngx_http_tallywheel_outage_t  *outage = ngx_http_tallywheel_outage;

    if (outage == NULL) {
        return;
    }

    outage->last = ngx_current_msec;
    (void) ngx_atomic_fetch_add(&outage->denied, 1);

    if (outage->denies == 0 && ngx_atomic_cmp_set(&outage->denies, 0, 1)) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "tallywheel_zone \"%V\": Redis has no answer, and requests are "
                      "denied because of that", &rule->zone_name);
    }
}


/* Whether Redis answers every engine of this worker. */
static ngx_uint_t
ngx_http_tallywheel_redis_answers(void)
{
    tw_stats                          stats;
    ngx_uint_t                        i;
    ngx_http_tallywheel_engine_t    **e;
    ngx_http_tallywheel_main_conf_t  *mcf;

    mcf = ngx_http_cycle_get_module_main_conf(ngx_cycle, ngx_http_tallywheel_module);
    e = mcf->engines.elts;

    for (i = 0; i < mcf->engines.nelts; i++) {
        if (e[i]->engine && (tw_stats_read(e[i]->engine, &stats) != TW_OK || !stats.redis_connected)) {
            return 0;
        }
    }

    return 1;
}


/* A worker calls this once in a second, or more often. */
void
ngx_http_tallywheel_check_outage(void)
{
    ngx_atomic_uint_t              denied;
    ngx_http_tallywheel_outage_t  *outage = ngx_http_tallywheel_outage;

    if (outage == NULL || outage->denies == 0
        || (ngx_msec_int_t) (ngx_current_msec - outage->last) < NGX_HTTP_TALLYWHEEL_OUTAGE_MS
        || !ngx_http_tallywheel_redis_answers())
    {
        return;
    }

    denied = outage->denied;

    if (ngx_atomic_cmp_set(&outage->denies, 1, 0)) {
        (void) ngx_atomic_fetch_add(&outage->denied, -denied);
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "tallywheel: Redis answers again, after %uA requests were denied "
                      "because it had no answer", denied);
    }
}
