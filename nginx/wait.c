/* wait.c -- limits that wait, and slots, one by one, after all that is decided at once. Until Redis has answered, the
 * request waits in the preaccess phase.
 * Always true: no request is served inside a turn of the engine. A request waits for one answer at a time, and a call
 * whose request has ended is cancelled. */
#include "ngx_http_tallywheel.h"


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


/* The request does not wait for the answer any more. */
void
ngx_http_tallywheel_unpark(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_http_tallywheel_engine_t  *e;

    if (ctx->wait && ctx->wait->event.posted) {
        ngx_delete_posted_event(&ctx->wait->event);
    }

    if (ctx->parked) {
        ctx->parked = 0;
        e = ctx->entries[ctx->next].rule->zone->engine;

        (void) tw_request_cancel(&ctx->wait->call);
        ngx_http_tallywheel_count_parked(e, -1);
        ngx_http_tallywheel_post_turn(e);
    }
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
        ctx->status = "error";
        ngx_http_tallywheel_unpark(ctx);
        (void) ngx_http_tallywheel_deny(ctx, ctx->entries[ctx->next].rule);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_AGAIN;
}


static tw_status
ngx_http_tallywheel_start(ngx_http_tallywheel_ctx_t *ctx)
{
    tw_claim                    *claim = &ctx->claims[ctx->next];
    tw_request                  *call = &ctx->wait->call;
    ngx_http_tallywheel_rule_t  *rule = ctx->entries[ctx->next].rule;

    tw_request_init(call);
    call->done = ngx_http_tallywheel_done;
    call->ctx = ctx;

    if (rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {
        return tw_hold_async(call, claim->family, claim->key, claim->limit);
    }

    if (rule->wait) {
        call->timeout_ms = (uint32_t) rule->wait;
        return tw_acquire_wait_async(call, claim->family, claim->key, claim->n, claim->limit);
    }

    return tw_acquire_async(call, claim->family, claim->key, claim->n, claim->limit);
}


/* From ctx->next on. */
ngx_int_t
ngx_http_tallywheel_next(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_int_t                     rc;
    tw_status                     status;
    tw_verdict                   *verdict;
    ngx_http_tallywheel_entry_t  *entry;

    for ( /* void */ ; ctx->next < ctx->count; ctx->next++) {
        entry = &ctx->entries[ctx->next];

        if (!entry->rule->parks) {
            rc = ngx_http_tallywheel_take_one(ctx, ctx->next);
            if (rc != NGX_OK) {
                return rc;
            }

            continue;
        }

        verdict = &ctx->wait->call.verdict;

        if (!ctx->answered) {
            status = ngx_http_tallywheel_start(ctx);

            if (status == TW_STARTED) {
                return ngx_http_tallywheel_park(ctx, entry->rule->zone->engine);
            }

            ngx_http_tallywheel_took(entry, status, verdict);

        } else {
            status = ctx->wait->call.status;
        }

        if (ngx_http_tallywheel_note(ctx, entry->rule, status, verdict) != NGX_OK) {
            return ngx_http_tallywheel_deny(ctx, entry->rule);
        }

        ctx->answered = 0;
    }

    ctx->decided = 1;

    return NGX_DECLINED;
}
