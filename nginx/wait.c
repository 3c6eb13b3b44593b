/* wait.c -- limits that wait, and slots, one by one, after all that is decided at once. Until Redis has answered, the
 * request waits in the preaccess phase.
 * With wait= a request whose units are not there waits for them in a queue (queue.c).
 * Always true: no request is served inside a turn of the engine. A request waits for one answer at a time, and a call
 * whose request has ended is cancelled. */
#include "ngx_http_tallywheel.h"


/* Keeps the answer. The request continues when all that runs now is over. */
void
ngx_http_tallywheel_answer(ngx_http_tallywheel_ctx_t *ctx, tw_status status)
{
    tw_request  *call = &ctx->wait->call;

    ctx->answered = 1;
    call->status = status;

    ngx_http_tallywheel_took(&ctx->entries[ctx->next], status, &call->verdict);
    ngx_post_event(&ctx->wait->event, &ngx_posted_events);
}


/* This runs inside a turn. */
void
ngx_http_tallywheel_done(tw_request *call)
{
    ngx_http_tallywheel_ctx_t  *ctx = call->ctx;

    ctx->asked = 0;
    ngx_http_tallywheel_count_parked(ctx->entries[ctx->next].rule->zone->engine, -1);
    ngx_http_tallywheel_answer(ctx, call->status);
}


static void
ngx_http_tallywheel_resume(ngx_event_t *ev)
{
    ngx_connection_t           *c;
    ngx_http_request_t         *r;
    ngx_http_tallywheel_ctx_t  *ctx = ev->data;

    r = ctx->request;
    c = r->connection;

    ctx->parked = 0;
    ngx_http_tallywheel_leave_queue(ctx);

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

    ctx->parked = 0;

    if (ctx->wait && ctx->wait->event.posted) {
        ngx_delete_posted_event(&ctx->wait->event);
    }

    if (ctx->asked) {
        ctx->asked = 0;
        e = ctx->entries[ctx->next].rule->zone->engine;

        (void) tw_request_cancel(&ctx->wait->call);
        ngx_http_tallywheel_count_parked(e, -1);
        ngx_http_tallywheel_post_turn(e);
    }

    ngx_http_tallywheel_leave_queue(ctx);
}


static ngx_int_t
ngx_http_tallywheel_park(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_http_request_t  *r = ctx->request;

    ctx->parked = 1;

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
    tw_status                    status;
    tw_request                  *call = &ctx->wait->call;
    ngx_http_tallywheel_rule_t  *rule = ctx->entries[ctx->next].rule;

    tw_request_init(call);
    call->done = ngx_http_tallywheel_done;
    call->ctx = ctx;

    if (rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {
        status = tw_hold_async(call, claim->family, claim->key, claim->limit);

    } else if (rule->wait) {
        status = ngx_http_tallywheel_first_try(ctx);

    } else {
        status = tw_acquire_async(call, claim->family, claim->key, claim->n, claim->limit);
    }

    if (status == TW_STARTED) {
        ctx->asked = 1;
        ngx_http_tallywheel_count_parked(rule->zone->engine, 1);
        ngx_http_tallywheel_post_turn(rule->zone->engine);
    }

    return status;
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

        status = ctx->answered ? ctx->wait->call.status : ngx_http_tallywheel_start(ctx);

        if (entry->rule->wait) {
            status = ngx_http_tallywheel_queue_up(ctx, status);
        }

        if (status == TW_STARTED) {
            ctx->answered = 0;
            return ngx_http_tallywheel_park(ctx);
        }

        ngx_http_tallywheel_took(entry, status, verdict);

        if (ngx_http_tallywheel_pauses(ctx, entry->rule, status, verdict)) {
            return ngx_http_tallywheel_pause(ctx);
        }

        if (ngx_http_tallywheel_note(ctx, entry->rule, status, verdict) != NGX_OK) {
            return ngx_http_tallywheel_deny(ctx, entry->rule);
        }

        ctx->answered = 0;
        ctx->hashed = 0;
        ctx->waited = 0;
    }

    ctx->decided = 1;

    return NGX_DECLINED;
}
