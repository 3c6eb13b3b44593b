/* request.c -- the phases: the decision before a request is served, counts and refunds after it.
 * A request is decided once, in the first location with limits that it comes to. Limits that are decided at once admit
 * together, or not at all (admit.c). Those that wait come after them, one by one, and slots last (wait.c).
 * Always true: a request that is not served for the sake of a limit, or whose client leaves before the decision, gives
 * all units back. */
#include "ngx_http_tallywheel.h"


static ngx_int_t ngx_http_tallywheel_preaccess_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_tallywheel_log_handler(ngx_http_request_t *r);
static void ngx_http_tallywheel_cleanup(void *data);
static void ngx_http_tallywheel_end_hold(void *data);


/* A phase runs its handlers backwards, so the first one runs last: behind the address of the client (realip), and
 * behind what refuses a request for other reasons (limit_req, limit_conn). A key that was evaluated before that would
 * have the proxy's address, and nginx would keep this one for the access log, too. */
static ngx_int_t
ngx_http_tallywheel_add_last(ngx_array_t *handlers, ngx_http_handler_pt handler)
{
    ngx_http_handler_pt  *h;

    h = ngx_array_push(handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h = handlers->elts;
    ngx_memmove(h + 1, h, (handlers->nelts - 1) * sizeof(ngx_http_handler_pt));
    *h = handler;

    return NGX_OK;
}


ngx_int_t
ngx_http_tallywheel_add_phases(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    if (mcf->is_limited
        && ngx_http_tallywheel_add_last(&cmcf->phases[NGX_HTTP_PREACCESS_PHASE].handlers,
                                        ngx_http_tallywheel_preaccess_handler) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (mcf->is_limited && (mcf->is_shown || ngx_http_tallywheel_may_not_know(mcf))) {
        ngx_http_tallywheel_add_filter();
    }

    if (mcf->is_counted) {
        h = ngx_array_push(&cmcf->phases[NGX_HTTP_LOG_PHASE].handlers);
        if (h == NULL) {
            return NGX_ERROR;
        }

        *h = ngx_http_tallywheel_log_handler;
    }

    return NGX_OK;
}


/* ---- before the request ---- */

static ngx_inline void
ngx_http_tallywheel_end_with(ngx_http_request_t *r, ngx_http_tallywheel_ctx_t *ctx, ngx_pool_cleanup_pt handler)
{
    ctx->cleanup.handler = handler;
    ctx->cleanup.data = ctx;
    ctx->cleanup.next = r->pool->cleanup;
    r->pool->cleanup = &ctx->cleanup;
}


/* One piece of memory has all that belongs to the decision. */
static ngx_http_tallywheel_ctx_t *
ngx_http_tallywheel_create_ctx(ngx_http_request_t *r, ngx_http_tallywheel_loc_conf_t *conf)
{
    u_char                     *p;
    ngx_http_tallywheel_ctx_t  *ctx;

    ctx = ngx_palloc(r->pool, conf->size);
    if (ctx == NULL) {
        return NULL;
    }

    ngx_memzero(ctx, offsetof(ngx_http_tallywheel_ctx_t, request));
    ctx->request = r;
    ctx->conf = conf;

    if (conf->is_simple) { /* no units of it return, but a slot does */

        if (conf->waits) {
            ngx_http_tallywheel_end_with(r, ctx, ngx_http_tallywheel_end_hold);
        }

        return ctx;
    }

    p = (u_char *) (ctx + 1);
    ctx->claims = (tw_claim *) p;
    p += conf->most * sizeof(tw_claim);
    ctx->entries = (ngx_http_tallywheel_entry_t *) p;
    p += conf->most * sizeof(ngx_http_tallywheel_entry_t);

    if (conf->parks) {
        ctx->wait = (ngx_http_tallywheel_wait_t *) p;
        ngx_memzero(&ctx->wait->event, sizeof(ngx_event_t));
        ngx_memzero(&ctx->wait->timer, sizeof(ngx_event_t));
    }

    if (conf->waits) {
        ngx_http_tallywheel_end_with(r, ctx, ngx_http_tallywheel_cleanup);
    }

    return ctx;
}


static ngx_int_t
ngx_http_tallywheel_decide_simply(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule)
{
    tw_status   status;
    tw_family  *family = rule->home->family;

    ctx->decided = 1;

    if (ngx_http_tallywheel_key(ctx->request, rule, &ctx->key) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->key.size == 0 || family == NULL) {
        return NGX_DECLINED;
    }

    status = (rule->kind == NGX_HTTP_TALLYWHEEL_HOLD)
             ? tw_hold(family, ctx->key, rule->limit.number, &ctx->verdict)
             : tw_acquire(family, ctx->key, rule->n.number, rule->limit.number, &ctx->verdict);

    if (status == TW_OK && ctx->verdict.decided_by != TW_BY_FULL) {
        ctx->decider = rule;
        ctx->held = (rule->kind == NGX_HTTP_TALLYWHEEL_HOLD);
        return NGX_DECLINED;
    }

    if (ngx_http_tallywheel_pauses(ctx, rule, status, &ctx->verdict)) {
        return ngx_http_tallywheel_pause(ctx);
    }

    return (ngx_http_tallywheel_note(ctx, rule, status, &ctx->verdict) == NGX_OK)
           ? NGX_DECLINED : ngx_http_tallywheel_deny(ctx, rule);
}


static ngx_int_t
ngx_http_tallywheel_decide(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_tallywheel_add_entries(ctx);

    if (rc != NGX_OK) {
        ctx->decided = 1;
        ctx->denied = (rc > 0); /* with that status, by a rule that denies what is no number */
        return ctx->denied ? rc : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_tallywheel_take(ctx);

    return (rc == NGX_OK) ? ngx_http_tallywheel_next(ctx) : rc;
}


static ngx_int_t
ngx_http_tallywheel_preaccess_handler(ngx_http_request_t *r)
{
    ngx_http_tallywheel_ctx_t       *ctx;
    ngx_http_variable_value_t       *kept;
    ngx_http_tallywheel_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    kept = ngx_http_tallywheel_kept(r);
    ctx = (ngx_http_tallywheel_ctx_t *) kept->data;

    if (ctx) {

        if (ctx->decided) {
            return NGX_DECLINED;
        }

        if (!ctx->again) {
            return ctx->parked ? NGX_AGAIN : ngx_http_tallywheel_next(ctx);
        }

        if (ngx_http_tallywheel_is_paused(ctx)) {
            return NGX_AGAIN;
        }

        ctx->again = 0;

    } else {
        conf = ngx_http_get_module_loc_conf(r, ngx_http_tallywheel_module);

        if (conf->most == 0) {
            return NGX_DECLINED;
        }

        ctx = ngx_http_tallywheel_create_ctx(r, conf);
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        kept->data = (u_char *) ctx;
    }

    return ctx->conf->is_simple ? ngx_http_tallywheel_decide_simply(ctx, ctx->conf->deciders[0])
                                : ngx_http_tallywheel_decide(ctx);
}


/* The request is over. Slots end with it. A request that was not decided was not served, and gives everything back. */
static void
ngx_http_tallywheel_cleanup(void *data)
{
    ngx_http_tallywheel_ctx_t  *ctx = data;

    ngx_uint_t  i;

    ngx_http_tallywheel_unpark(ctx);

    for (i = 0; i < ctx->count; i++) {
        if (!ctx->decided || ctx->entries[i].rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {
            ngx_http_tallywheel_give_back(ctx, i);
        }
    }
}


/* The same for a slot of the only rule. */
static void
ngx_http_tallywheel_end_hold(void *data)
{
    ngx_http_tallywheel_ctx_t  *ctx = data;

    if (ctx->held) {
        (void) tw_hold_release(ctx->decider->home->family, ctx->key);
    }
}


/* ---- after the request ---- */

static ngx_uint_t
ngx_http_tallywheel_is_refunded(ngx_array_t *refund, ngx_uint_t status)
{
    ngx_uint_t  i, *code;

    for (i = 0; i < refund->nelts; i++) {
        code = refund->elts;

        if (code[i] == status || code[i] == status / 100) {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_tallywheel_add_counts(ngx_http_request_t *r, ngx_array_t *rules)
{
    int64_t                       n;
    tw_key                        key;
    tw_status                     status;
    ngx_uint_t                    i;
    ngx_http_tallywheel_rule_t  **rule;

    for (i = 0; i < rules->nelts; i++) {
        rule = rules->elts;

        if (ngx_http_tallywheel_key(r, rule[i], &key) != NGX_OK || key.size == 0
            || ngx_http_tallywheel_number(r, rule[i], &rule[i]->n, 1, &n) != NGX_OK || n == 0
            || rule[i]->home->family == NULL)
        {
            continue;
        }

        status = tw_add(rule[i]->home->family, key, n, NULL);

        if (status < 0) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "tallywheel_zone \"%V\": %s: %s",
                          &rule[i]->zone_name, tw_status_name(status), tw_error_text());
        }
    }
}


static ngx_int_t
ngx_http_tallywheel_log_handler(ngx_http_request_t *r)
{
    ngx_uint_t                       i, status;
    ngx_http_tallywheel_ctx_t       *ctx;
    ngx_http_tallywheel_entry_t     *entry;
    ngx_http_tallywheel_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_OK;
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_tallywheel_module);

    if (conf->rules[NGX_HTTP_TALLYWHEEL_COUNT]) {
        ngx_http_tallywheel_add_counts(r, conf->rules[NGX_HTTP_TALLYWHEEL_COUNT]);
    }

    ctx = ngx_http_tallywheel_get_ctx(r);

    if (ctx == NULL || !ctx->decided || !ctx->conf->refunds) {
        return NGX_OK;
    }

    status = ctx->answer ? ctx->answer : r->err_status ? r->err_status : r->headers_out.status;

    for (i = 0; i < ctx->count; i++) {
        entry = &ctx->entries[i];

        if (entry->rule->refund && entry->taken && ngx_http_tallywheel_is_refunded(entry->rule->refund, status)) {
            ngx_http_tallywheel_give_back(ctx, i);
        }
    }

    return NGX_OK;
}
