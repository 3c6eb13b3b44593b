/* request.c -- limits and slots before a request is served, counts and refunds after it.
 * A request is decided once, in the first location with limits that it comes to. Limits that are decided at once admit
 * together, or not at all. Those that wait come after them, one by one, and slots last. Until Redis has answered, the
 * request waits in the preaccess phase.
 * Always true: a request that is not served for the sake of a limit, or whose client leaves before the decision, gives
 * all units back. No request is served inside a turn of the engine. */
#include "ngx_http_tallywheel.h"


static ngx_int_t ngx_http_tallywheel_preaccess_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_tallywheel_log_handler(ngx_http_request_t *r);
static void ngx_http_tallywheel_cleanup(void *data);


ngx_int_t
ngx_http_tallywheel_add_phases(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    if (mcf->is_limited) {
        h = ngx_array_push(&cmcf->phases[NGX_HTTP_PREACCESS_PHASE].handlers);
        if (h == NULL) {
            return NGX_ERROR;
        }

        *h = ngx_http_tallywheel_preaccess_handler;
    }

    if (mcf->is_limited && mcf->is_shown) {
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


static ngx_http_tallywheel_ctx_t *
ngx_http_tallywheel_create_ctx(ngx_http_request_t *r, ngx_http_tallywheel_loc_conf_t *conf)
{
    u_char                           *p;
    size_t                            size;
    ngx_pool_cleanup_t               *cln;
    ngx_http_tallywheel_ctx_t        *ctx;
    ngx_http_tallywheel_main_conf_t  *mcf;

    size = sizeof(ngx_http_tallywheel_ctx_t) + conf->most * sizeof(ngx_http_tallywheel_entry_t);

    p = ngx_palloc(r->pool, size + (conf->parks ? sizeof(ngx_http_tallywheel_wait_t) : 0));
    if (p == NULL) {
        return NULL;
    }

    ctx = (ngx_http_tallywheel_ctx_t *) p;
    ngx_memzero(ctx, offsetof(ngx_http_tallywheel_ctx_t, verdict));
    ctx->request = r;
    ctx->conf = conf;
    ctx->entries = (ngx_http_tallywheel_entry_t *) (ctx + 1);

    if (conf->parks) {
        ctx->wait = (ngx_http_tallywheel_wait_t *) (p + size);
        ngx_memzero(&ctx->wait->event, sizeof(ngx_event_t));
    }

    if (conf->waits) {
        cln = ngx_pool_cleanup_add(r->pool, 0);
        if (cln == NULL) {
            return NULL;
        }

        cln->handler = ngx_http_tallywheel_cleanup;
        cln->data = ctx;
    }

    mcf = ngx_http_get_module_main_conf(r, ngx_http_tallywheel_module);
    r->variables[mcf->variable].data = p;

    return ctx;
}


static void
ngx_http_tallywheel_give_back(ngx_http_tallywheel_entry_t *entry)
{
    if (!entry->taken) {
        return;
    }

    entry->taken = 0;

    if (entry->rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {

        if (entry->rule->parks) {
            (void) tw_hold_release_async(NULL, entry->family, entry->key);
            ngx_http_tallywheel_post_turn(entry->rule->zone->engine); /* it sends the release */

        } else {
            (void) tw_hold_release(entry->family, entry->key);
        }

    } else if (entry->fixed) {
        (void) tw_refund(entry->family, entry->key, entry->n, entry->start_ms);
    }
}


/* The verdict that is shown is the one with the fewest units left, or the one that denied. Returns NGX_OK if the entry
 * lets the request pass. A zone in shadow mode always does, also if it has no answer: units of others are not given back
 * for it. */
static ngx_int_t
ngx_http_tallywheel_note(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_entry_t *entry, tw_status status,
    tw_verdict *verdict)
{
    ngx_log_t   *log = ctx->request->connection->log;
    ngx_uint_t   passes, shadow;

    shadow = entry->rule->zone->options.shadow;
    passes = (status == TW_OK || shadow || (status < 0 && verdict->allowed));

    if (ctx->decider == NULL || !passes || verdict->allowed < ctx->verdict.allowed
        || verdict->remaining < ctx->verdict.remaining)
    {
        ctx->decider = entry->rule;

        if (verdict != &ctx->verdict) {
            ctx->verdict = *verdict;
        }
    }

    if (shadow && status >= 0) {
        ctx->shadow = 1;
        ctx->shadow_denied |= !verdict->allowed;
    }

    if (status < 0) {
        ctx->status = "error";
        ngx_log_error(NGX_LOG_ERR, log, 0, "tallywheel_zone \"%V\": %s: %s", &entry->rule->zone_name,
                      tw_status_name(status), ctx->answered ? tw_status_text(status) : tw_error_text());

    } else if (status == TW_PENDING) {
        ctx->status = "pending";

    } else if (!passes) {
        ctx->status = "denied";
    }

    if (!passes || !verdict->allowed) {
        ngx_log_error(ctx->conf->log_level, log, 0, "tallywheel_zone \"%V\" %s: limit %L, used %L",
                      &entry->rule->zone_name, passes ? "would deny" : "denies", verdict->limit, verdict->used);
    }

    return passes ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_http_tallywheel_deny(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_entry_t *entry)
{
    ngx_uint_t  i;

    for (i = 0; i < ctx->count; i++) {
        ngx_http_tallywheel_give_back(&ctx->entries[i]);
    }

    ctx->decided = 1;
    ctx->denied = 1;

    return (ngx_int_t) entry->rule->status;
}


/* Keeps what there is to give back. A table that is full, and shadow mode, admit without counting. */
static void
ngx_http_tallywheel_took(ngx_http_tallywheel_entry_t *entry, tw_status status, tw_verdict *verdict)
{
    entry->taken = (status == TW_OK && verdict->allowed && verdict->decided_by != TW_BY_FULL);
    entry->fixed = 1;
    entry->start_ms = verdict->window_start_ms;
}


/* Finds where the windows of several limits begin, to give units back to the same window later. The start is certain if
 * it was the same before the admission and after. */
static void
ngx_http_tallywheel_look(ngx_http_tallywheel_ctx_t *ctx, ngx_uint_t is_taken)
{
    ngx_uint_t                    i;
    tw_verdict                    verdict;
    ngx_http_tallywheel_entry_t  *entry;

    for (i = 0; i < ctx->count; i++) {
        entry = &ctx->entries[i];

        if (!entry->rule->joins || (!ctx->conf->waits && entry->rule->refund == NULL)) {
            continue;
        }

        (void) tw_acquire(entry->family, entry->key, 0, entry->limit, &verdict);

        if (!is_taken) {
            entry->start_ms = verdict.window_start_ms;

        } else {
            entry->fixed = (entry->start_ms == verdict.window_start_ms);
            entry->taken = (verdict.used >= entry->n);
        }
    }
}


static ngx_int_t
ngx_http_tallywheel_take_one(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_entry_t *entry)
{
    tw_status    status;
    tw_verdict  *verdict, another;

    verdict = ctx->decider ? &another : &ctx->verdict;

    if (entry->rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {
        status = tw_hold(entry->family, entry->key, entry->limit, verdict);
    } else {
        status = tw_acquire(entry->family, entry->key, entry->n, entry->limit, verdict);
    }

    if (!ctx->conf->is_alone || ctx->conf->waits || ctx->conf->refunds) {
        ngx_http_tallywheel_took(entry, status, verdict);
    }

    if (status == TW_OK && verdict == &ctx->verdict && !entry->rule->zone->options.shadow) {
        ctx->decider = entry->rule; /* the usual case */
        return NGX_OK;
    }

    return (ngx_http_tallywheel_note(ctx, entry, status, verdict) == NGX_OK)
           ? NGX_OK : ngx_http_tallywheel_deny(ctx, entry);
}


/* Several limits, all or none. at[] are the numbers of their entries. */
static ngx_int_t
ngx_http_tallywheel_take_all(ngx_http_tallywheel_ctx_t *ctx, tw_claim *claims, ngx_uint_t *at, ngx_uint_t count)
{
    tw_status                     status;
    ngx_uint_t                    may_return;
    ngx_http_tallywheel_entry_t  *entry;

    may_return = (ctx->conf->waits || ctx->conf->refunds);

    if (may_return) {
        ngx_http_tallywheel_look(ctx, 0);
    }

    status = tw_acquire_all(claims, count, &ctx->verdict);
    entry = &ctx->entries[at[ctx->verdict.claim < count ? ctx->verdict.claim : 0]];

    if (status == TW_OK) {
        ctx->decider = entry->rule;

        if (may_return) {
            ngx_http_tallywheel_look(ctx, 1);
        }

        return NGX_OK;
    }

    return (ngx_http_tallywheel_note(ctx, entry, status, &ctx->verdict) == NGX_OK)
           ? NGX_OK : ngx_http_tallywheel_deny(ctx, entry);
}


/* Limits that are decided at once. Those that may deny come first, together, then those in shadow mode. */
static ngx_int_t
ngx_http_tallywheel_take(ngx_http_tallywheel_ctx_t *ctx)
{
    tw_claim                      claims[TW_CLAIMS_MAX];
    ngx_int_t                     rc;
    ngx_uint_t                    i, count, at[TW_CLAIMS_MAX];
    ngx_http_tallywheel_entry_t  *entry;

    count = 0;

    for (i = 0; i < ctx->count; i++) {
        entry = &ctx->entries[i];

        if (entry->rule->joins) {
            claims[count].family = entry->family;
            claims[count].key = entry->key;
            claims[count].n = entry->n;
            claims[count].limit = entry->limit;
            at[count++] = i;
        }
    }

    rc = NGX_OK;

    if (count == 1) {
        rc = ngx_http_tallywheel_take_one(ctx, &ctx->entries[at[0]]);

    } else if (count > 1) {
        rc = ngx_http_tallywheel_take_all(ctx, claims, at, count);
    }

    for (i = 0; count < ctx->count && i < ctx->count && rc == NGX_OK; i++) {
        entry = &ctx->entries[i];

        if (!entry->rule->waits && !entry->rule->joins) {
            rc = ngx_http_tallywheel_take_one(ctx, entry);
        }
    }

    return rc;
}


/* This runs inside a turn. It keeps the answer, and the request continues when the turn is over. */
static void
ngx_http_tallywheel_done(tw_request *call)
{
    ngx_http_tallywheel_ctx_t    *ctx = call->ctx;
    ngx_http_tallywheel_entry_t  *entry = &ctx->entries[ctx->next];

    ctx->parked = 0;
    ctx->answered = 1;
    ngx_http_tallywheel_count_parked(entry->rule->zone->engine, -1);

    ngx_http_tallywheel_took(entry, call->status, &call->verdict);
    ngx_post_event(&ctx->wait->event, &ngx_posted_events);
}


static void
ngx_http_tallywheel_resume(ngx_event_t *ev)
{
    ngx_connection_t           *c;
    ngx_http_request_t         *r;
    ngx_http_tallywheel_ctx_t  *ctx = ev->data;

    r = ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);
    ngx_http_run_posted_requests(c);
}


static ngx_int_t
ngx_http_tallywheel_park(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_engine_t *e)
{
    ngx_http_request_t  *r = ctx->request;

    ctx->parked = 1;
    ngx_http_tallywheel_count_parked(e, 1);
    ngx_http_tallywheel_post_turn(e);

    ctx->wait->event.handler = ngx_http_tallywheel_resume;
    ctx->wait->event.data = ctx;
    ctx->wait->event.log = r->connection->log;

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_AGAIN;
}


static tw_status
ngx_http_tallywheel_start(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_entry_t *entry)
{
    tw_request  *call = &ctx->wait->call;

    tw_request_init(call);
    call->done = ngx_http_tallywheel_done;
    call->ctx = ctx;

    if (entry->rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {
        return tw_hold_async(call, entry->family, entry->key, entry->limit);
    }

    if (entry->rule->wait) {
        call->timeout_ms = (uint32_t) entry->rule->wait;
        return tw_acquire_wait_async(call, entry->family, entry->key, entry->n, entry->limit);
    }

    return tw_acquire_async(call, entry->family, entry->key, entry->n, entry->limit);
}


/* Limits that wait, and slots, one by one, from ctx->next on. */
static ngx_int_t
ngx_http_tallywheel_next(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_int_t                     rc;
    tw_status                     status;
    tw_verdict                   *verdict;
    ngx_http_tallywheel_entry_t  *entry;

    for ( /* void */ ; ctx->next < ctx->count; ctx->next++) {
        entry = &ctx->entries[ctx->next];

        if (!entry->rule->waits) {
            continue;
        }

        if (!entry->rule->parks) {
            rc = ngx_http_tallywheel_take_one(ctx, entry);
            if (rc != NGX_OK) {
                return rc;
            }

            continue;
        }

        verdict = &ctx->wait->call.verdict;

        if (!ctx->answered) {
            status = ngx_http_tallywheel_start(ctx, entry);

            if (status == TW_STARTED) {
                return ngx_http_tallywheel_park(ctx, entry->rule->zone->engine);
            }

            ngx_http_tallywheel_took(entry, status, verdict);

        } else {
            status = ctx->wait->call.status;
        }

        if (ngx_http_tallywheel_note(ctx, entry, status, verdict) != NGX_OK) {
            return ngx_http_tallywheel_deny(ctx, entry);
        }

        ctx->answered = 0;
    }

    ctx->decided = 1;

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_tallywheel_preaccess_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_http_tallywheel_ctx_t       *ctx;
    ngx_http_tallywheel_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_tallywheel_get_ctx(r);

    if (ctx) {

        if (ctx->decided) {
            return NGX_DECLINED;
        }

        return ctx->parked ? NGX_AGAIN : ngx_http_tallywheel_next(ctx);
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_tallywheel_module);

    if (conf->most == 0) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_tallywheel_create_ctx(r, conf);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ngx_http_tallywheel_add_entries(ctx) != NGX_OK) {
        ctx->decided = 1;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (conf->is_alone) {
        rc = ctx->count ? ngx_http_tallywheel_take_one(ctx, ctx->entries) : NGX_OK;
    } else {
        rc = ngx_http_tallywheel_take(ctx);
    }

    if (rc == NGX_OK && conf->waits && !conf->is_alone) {
        return ngx_http_tallywheel_next(ctx);
    }

    ctx->decided = 1;

    return (rc == NGX_OK) ? NGX_DECLINED : rc;
}


/* The request is over. Slots end with it. A request that was not decided was not served, and gives everything back. */
static void
ngx_http_tallywheel_cleanup(void *data)
{
    ngx_http_tallywheel_ctx_t  *ctx = data;

    ngx_uint_t  i;

    if (ctx->wait && ctx->wait->event.posted) {
        ngx_delete_posted_event(&ctx->wait->event);
    }

    if (ctx->parked) {
        ctx->parked = 0;
        (void) tw_request_cancel(&ctx->wait->call);
        ngx_http_tallywheel_count_parked(ctx->entries[ctx->next].rule->zone->engine, -1);
        ngx_http_tallywheel_post_turn(ctx->entries[ctx->next].rule->zone->engine);
    }

    for (i = 0; i < ctx->count; i++) {
        if (!ctx->decided || ctx->entries[i].rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {
            ngx_http_tallywheel_give_back(&ctx->entries[i]);
        }
    }
}


/* ---- after the request ---- */

static ngx_uint_t
ngx_http_tallywheel_is_refunded(ngx_array_t *refund, ngx_uint_t status)
{
    ngx_uint_t  i, *code;

    for (i = 0; refund && i < refund->nelts; i++) {
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

    for (i = 0; rules && i < rules->nelts; i++) {
        rule = rules->elts;

        if (ngx_http_tallywheel_key(r, rule[i], &key) != NGX_OK || key.size == 0
            || ngx_http_tallywheel_number(r, rule[i], &rule[i]->n, 0, &n) != NGX_OK || n == 0
            || rule[i]->zone->family->family == NULL)
        {
            continue;
        }

        status = tw_add(rule[i]->zone->family->family, key, n, NULL);

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
    ngx_http_tallywheel_loc_conf_t  *conf;

    if (r != r->main) {
        return NGX_OK;
    }

    conf = ngx_http_get_module_loc_conf(r, ngx_http_tallywheel_module);
    ngx_http_tallywheel_add_counts(r, conf->rules[NGX_HTTP_TALLYWHEEL_COUNT]);

    ctx = ngx_http_tallywheel_get_ctx(r);

    if (ctx == NULL || !ctx->decided || !ctx->conf->refunds) {
        return NGX_OK;
    }

    status = r->err_status ? r->err_status : r->headers_out.status;

    for (i = 0; i < ctx->count; i++) {
        if (ngx_http_tallywheel_is_refunded(ctx->entries[i].rule->refund, status)) {
            ngx_http_tallywheel_give_back(&ctx->entries[i]);
        }
    }

    return NGX_OK;
}
