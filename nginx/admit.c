/* admit.c -- acquires the units and slots of a request that are decided at once, and gives units and slots back.
 * Always true: units and slots of a request that is not served return. Units return only to the window that they are
 * from. A request that has units without a note of them cannot be denied any more. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_CLOSE_TO_END  100       /* ms; this worker's time may be so far behind the engine's */
#define NGX_HTTP_TALLYWHEEL_KNOWN_MAX     3600000   /* ms */


/* ---- giving back ---- */

/* A look at the window that is open now shows when it began, and how much of it is used. It is seldom older than the
 * window, so until shortly before its end this worker need not look again. */
static void
ngx_http_tallywheel_look(ngx_http_tallywheel_family_t *home, tw_claim *claim, tw_verdict *verdict)
{
    int64_t  left;

    (void) tw_acquire(claim->family, claim->key, 0, claim->limit, verdict);

    /* Of another shape it is not the time until the end of the window. Without units it is 0. */
    left = (home->options.limit_shape == TW_SHAPE_FIXED) ? verdict->reset_after_ms : 0;
    left = ngx_min(left, NGX_HTTP_TALLYWHEEL_KNOWN_MAX) - NGX_HTTP_TALLYWHEEL_CLOSE_TO_END;

    home->start_ms = verdict->window_start_ms;
    home->known_until = ngx_current_msec + (left > 0 ? (ngx_msec_t) left : 0);
}


/* Units of several limits were acquired when the window that began at start_ms was open, or later. They are from it if
 * it is open still. */
static ngx_uint_t
ngx_http_tallywheel_is_open(ngx_http_tallywheel_entry_t *entry, tw_claim *claim)
{
    tw_verdict  verdict;

    ngx_http_tallywheel_look(entry->rule->home, claim, &verdict);

    return verdict.window_start_ms == entry->start_ms && verdict.used >= claim->n;
}


void
ngx_http_tallywheel_give_back(ngx_http_tallywheel_ctx_t *ctx, ngx_uint_t i)
{
    tw_claim                     *claim = &ctx->claims[i];
    ngx_http_tallywheel_entry_t  *entry = &ctx->entries[i];

    if (!entry->taken) {
        return;
    }

    entry->taken = 0;

    if (entry->rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {

        if (entry->rule->parks) {
            (void) tw_hold_release_async(NULL, claim->family, claim->key);
            ngx_http_tallywheel_post_turn(entry->rule->zone->engine); /* it sends the release */

        } else {
            (void) tw_hold_release(claim->family, claim->key);
        }

    } else if (entry->exact || ngx_http_tallywheel_is_open(entry, claim)) {
        (void) tw_refund(claim->family, claim->key, claim->n, entry->start_ms);
    }
}


ngx_int_t
ngx_http_tallywheel_deny(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule)
{
    ngx_uint_t  i;

    for (i = 0; i < ctx->count; i++) {
        ngx_http_tallywheel_give_back(ctx, i);
    }

    ctx->decided = 1;
    ctx->denied = 1;

    return (ngx_int_t) (ctx->unknown ? rule->outage_status : rule->status);
}


/* ---- the answer of a rule ---- */

/* Whether this verdict is shown, not the one that has been until now. A zone in shadow mode is not shown if another one
 * has decided, too. */
static ngx_uint_t
ngx_http_tallywheel_is_nearer(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule, tw_verdict *verdict)
{
    if (ctx->decider == NULL) {
        return 1;
    }

    if (rule->zone->options.shadow != ctx->decider->zone->options.shadow) {
        return ctx->decider->zone->options.shadow;
    }

    return verdict->allowed < ctx->verdict.allowed || verdict->remaining < ctx->verdict.remaining;
}


/* The verdict that is shown is the one with the fewest units left, or the one that denied. Returns NGX_OK if the rule
 * lets the request pass. A zone in shadow mode always does, also if it has no answer. So units of other rules are not
 * given back because of it. */
ngx_int_t
ngx_http_tallywheel_note(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule, tw_status status,
    tw_verdict *verdict)
{
    ngx_log_t   *log = ctx->request->connection->log;
    ngx_uint_t   passes, shadow;

    shadow = rule->zone->options.shadow;
    passes = (status == TW_OK || shadow || (status < 0 && verdict->allowed));

    if (!passes || ngx_http_tallywheel_is_nearer(ctx, rule, verdict)) {
        ctx->decider = rule;

        if (verdict != &ctx->verdict) {
            ctx->verdict = *verdict;
        }
    }

    if (shadow && status >= 0) {
        ctx->shadow = 1;
        ctx->shadow_denied |= !verdict->allowed;
    }

    if (status == TW_ERR_FULL) {
        ctx->status = "error";
        ngx_http_tallywheel_note_full(rule, 1, log);

    } else if (status < 0) {
        ctx->status = "error";
        ngx_log_error(NGX_LOG_ERR, log, 0, "tallywheel_zone \"%V\": %s: %s", &rule->zone_name,
                      tw_status_name(status), ctx->answered ? tw_status_text(status) : tw_error_text());

    } else if (status == TW_PENDING) {
        ctx->status = "pending";

    } else if (!passes) {
        ctx->status = "denied";
    }

    if (status == TW_OK && verdict->decided_by == TW_BY_FULL) {
        ngx_http_tallywheel_note_full(rule, 0, log);
    }

    if (!passes || !verdict->allowed) {
        ngx_http_tallywheel_log_denial(ctx, rule, verdict, passes);
    }

    if (passes) {
        return NGX_OK;
    }

    ctx->unknown = (ngx_http_tallywheel_is_unknown(status, verdict) != 0);

    if (verdict->cause == TW_CAUSE_OUTAGE) {
        ngx_http_tallywheel_outage_denies(rule);
    }

    return NGX_DECLINED;
}


/* Notes units, or a slot, that can be given back. A table that is full, and shadow mode, admit without counting. */
void
ngx_http_tallywheel_took(ngx_http_tallywheel_entry_t *entry, tw_status status, tw_verdict *verdict)
{
    entry->taken = (status == TW_OK && verdict->allowed && verdict->decided_by != TW_BY_FULL);
    entry->exact = 1;
    entry->start_ms = verdict->window_start_ms;
}


/* ---- admissions ---- */

/* Limits that admit together have one verdict, with the beginning of one window. For the other limits it is noted
 * before, as far as their units may return. */
static void
ngx_http_tallywheel_prepare(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_uint_t                     i;
    tw_verdict                     verdict;
    ngx_http_tallywheel_entry_t   *entry;
    ngx_http_tallywheel_family_t  *home;

    for (i = 0; i < ctx->joined; i++) {
        entry = &ctx->entries[i];
        home = entry->rule->home;

        if ((entry->rule->refund == NULL && !ctx->conf->waits) || home->options.limit_shape == TW_SHAPE_GCRA) {
            continue;
        }

        if ((ngx_msec_int_t) (home->known_until - ngx_current_msec) <= 0) {
            ngx_http_tallywheel_look(home, &ctx->claims[i], &verdict);
        }

        entry->start_ms = home->start_ms;
        entry->exact = 0;
        entry->taken = 1;
    }
}


static void
ngx_http_tallywheel_took_none(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_uint_t  i;

    for (i = 0; i < ctx->joined; i++) {
        ctx->entries[i].taken = 0;
    }
}


/* Several limits, all together or not at all. */
static ngx_int_t
ngx_http_tallywheel_take_joined(ngx_http_tallywheel_ctx_t *ctx)
{
    tw_status                      status;
    ngx_http_tallywheel_entry_t   *entry;
    ngx_http_tallywheel_family_t  *home;

    if (ctx->conf->returns) {
        ngx_http_tallywheel_prepare(ctx);
    }

    status = tw_acquire_all(ctx->claims, ctx->joined, &ctx->verdict);
    entry = &ctx->entries[ctx->verdict.claim < ctx->joined ? ctx->verdict.claim : 0];

    if (status == TW_OK) {
        ctx->decider = entry->rule;

        if (ctx->verdict.decided_by == TW_BY_FULL) {
            ngx_http_tallywheel_note_full(entry->rule, 0, ctx->request->connection->log);
        }

        if (entry->taken) {
            home = entry->rule->home;

            if (home->start_ms != ctx->verdict.window_start_ms) {
                home->known_until = ngx_current_msec; /* the clock was set */
            }

            ngx_http_tallywheel_took(entry, status, &ctx->verdict);
        }

        return NGX_OK;
    }

    ngx_http_tallywheel_took_none(ctx);

    if (ngx_http_tallywheel_pauses(ctx, entry->rule, status, &ctx->verdict)) {
        return ngx_http_tallywheel_pause(ctx);
    }

    return (ngx_http_tallywheel_note(ctx, entry->rule, status, &ctx->verdict) == NGX_OK)
           ? NGX_OK : ngx_http_tallywheel_deny(ctx, entry->rule);
}


ngx_int_t
ngx_http_tallywheel_take_one(ngx_http_tallywheel_ctx_t *ctx, ngx_uint_t i)
{
    tw_claim                     *claim = &ctx->claims[i];
    tw_status                     status;
    tw_verdict                   *verdict, another;
    ngx_http_tallywheel_entry_t  *entry = &ctx->entries[i];

    verdict = ctx->decider ? &another : &ctx->verdict;

    if (entry->rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {
        status = tw_hold(claim->family, claim->key, claim->limit, verdict);
    } else {
        status = tw_acquire(claim->family, claim->key, claim->n, claim->limit, verdict);
    }

    if (ctx->conf->returns) {
        ngx_http_tallywheel_took(entry, status, verdict);
    }

    if (status == TW_OK && verdict == &ctx->verdict && verdict->decided_by != TW_BY_FULL
        && !entry->rule->zone->options.shadow)
    {
        ctx->decider = entry->rule; /* the usual case */
        return NGX_OK;
    }

    if (ngx_http_tallywheel_pauses(ctx, entry->rule, status, verdict)) {
        return ngx_http_tallywheel_pause(ctx);
    }

    return (ngx_http_tallywheel_note(ctx, entry->rule, status, verdict) == NGX_OK)
           ? NGX_OK : ngx_http_tallywheel_deny(ctx, entry->rule);
}


/* Limits that are decided at once. Those that may deny come first, together, then those in shadow mode. */
ngx_int_t
ngx_http_tallywheel_take(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_int_t  rc;

    if (ctx->joined > 1) {
        ctx->next = ctx->joined;
        rc = ngx_http_tallywheel_take_joined(ctx);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    for ( /* void */ ; ctx->next < ctx->count && !ctx->entries[ctx->next].rule->waits; ctx->next++) {
        rc = ngx_http_tallywheel_take_one(ctx, ctx->next);

        if (rc != NGX_OK) {
            return rc;
        }
    }

    return NGX_OK;
}
