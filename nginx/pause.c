/* pause.c -- requests that wait because their engine does not know yet what Redis has.
 * An engine that has just begun, or that Redis has not answered, spends a small part of each limit. It would deny other
 * requests although most units are left. Such a request waits, and is decided again some milliseconds later, until the
 * engine knows, or the limit is half spent. So no limit is exceeded.
 * Always true: a request that waits here has taken nothing. At most a quarter of the connections of a worker wait. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_PAUSE_MS   20     /* until it is decided again */
#define NGX_HTTP_TALLYWHEEL_PAUSE_MAX  5000   /* ms, of one request */

struct ngx_http_tallywheel_pause_s {
    ngx_event_t                 event;
    ngx_http_tallywheel_ctx_t  *ctx;
    ngx_msec_t                  until;   /* ngx_current_msec */
};

static ngx_uint_t  ngx_http_tallywheel_paused; /* in this worker */


/* After each turn. The limits of LIMITS.md, "The first seconds", are those of an engine that is not ready, and some
 * of them hold for some seconds more. */
void
ngx_http_tallywheel_note_doubt(ngx_http_tallywheel_engine_t *e)
{
    if (e->server.url && tw_ready(e->engine, 0) != TW_OK) {
        e->sure_at = ngx_current_msec + NGX_HTTP_TALLYWHEEL_UNSURE_MS;
    }
}


/* Whether the request should wait and not be denied. Only the share of this engine denies it then: others may have
 * spent nothing. */
ngx_uint_t
ngx_http_tallywheel_pauses(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule, tw_status status,
    tw_verdict *verdict)
{
    if (status < 0 || verdict->allowed || verdict->cause != TW_CAUSE_SHARE || rule->zone->options.shadow
        || verdict->used >= verdict->limit / 2
        || (ngx_msec_int_t) (rule->zone->engine->sure_at - ngx_current_msec) <= 0)
    {
        return 0;
    }

    if (ctx->pause) {
        return (ngx_msec_int_t) (ctx->pause->until - ngx_current_msec) > 0;
    }

    return ngx_http_tallywheel_paused < ngx_cycle->connection_n / 4;
}


static void
ngx_http_tallywheel_continue(ngx_event_t *ev)
{
    ngx_connection_t               *c;
    ngx_http_request_t             *r;
    ngx_http_tallywheel_pause_t    *pause = ev->data;

    ngx_http_tallywheel_paused--;

    r = pause->ctx->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;

    ngx_http_core_run_phases(r);
    ngx_http_run_posted_requests(c);
}


static void
ngx_http_tallywheel_end_pause(void *data)
{
    ngx_http_tallywheel_pause_t  *pause = data;

    if (pause->event.timer_set) {
        ngx_del_timer(&pause->event);
        ngx_http_tallywheel_paused--;
    }
}


static ngx_http_tallywheel_pause_t *
ngx_http_tallywheel_create_pause(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_pool_cleanup_t           *cln;
    ngx_http_request_t           *r = ctx->request;
    ngx_http_tallywheel_pause_t  *pause;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_tallywheel_pause_t));
    if (cln == NULL) {
        return NULL;
    }

    pause = cln->data;
    ngx_memzero(pause, sizeof(ngx_http_tallywheel_pause_t));

    pause->ctx = ctx;
    pause->until = ngx_current_msec + NGX_HTTP_TALLYWHEEL_PAUSE_MAX;
    pause->event.handler = ngx_http_tallywheel_continue;
    pause->event.data = pause;
    pause->event.log = r->connection->log;

    cln->handler = ngx_http_tallywheel_end_pause;

    return pause;
}


/* The request gives back what it has, and will be decided as if it came later. */
ngx_int_t
ngx_http_tallywheel_pause(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_uint_t           i;
    ngx_http_request_t  *r = ctx->request;

    for (i = 0; i < ctx->count; i++) {
        ngx_http_tallywheel_give_back(ctx, i);
    }

    ctx->count = 0;
    ctx->joined = 0;
    ctx->next = 0;
    ctx->decider = NULL;
    ctx->status = NULL;
    ctx->answered = 0;
    ctx->hashed = 0;
    ctx->waited = 0;
    ctx->decided = 0;
    ctx->shadow = 0;
    ctx->shadow_denied = 0;

    if (ctx->pause == NULL) {
        ctx->pause = ngx_http_tallywheel_create_pause(ctx);
    }

    if (ctx->pause == NULL || ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ctx->decided = 1;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    ctx->again = 1;
    ngx_http_tallywheel_paused++;
    ngx_add_timer(&ctx->pause->event, NGX_HTTP_TALLYWHEEL_PAUSE_MS);

    return NGX_AGAIN;
}


/* Whether the request still waits here. */
ngx_uint_t
ngx_http_tallywheel_is_paused(ngx_http_tallywheel_ctx_t *ctx)
{
    return ctx->pause && ctx->pause->event.timer_set;
}
