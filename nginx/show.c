/* show.c -- shows the decision in variables.
 * Always true: it is the verdict of the rule that denied, otherwise of the rule with the fewest units left. A rule in
 * shadow mode is shown only if no other one has a key. */
#include "ngx_http_tallywheel.h"


/* A rule with n=0 only looks. Unless Redis decides each call (strict), this nginx may not know the count of the key
 * yet. Then this asks for it, so a later look knows it. */
void
ngx_http_tallywheel_look_up(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_uint_t                   i;
    tw_reading                   reading;
    tw_verdict                  *verdict = &ctx->verdict;
    ngx_http_tallywheel_rule_t  *rule = ctx->decider;

    if (ctx->looked || rule == NULL || rule->kind != NGX_HTTP_TALLYWHEEL_LIMIT || ctx->conf->is_simple
        || rule->zone->engine->server.url == NULL || rule->zone->options.limit_mode == TW_LIMIT_STRICT)
    {
        return;
    }

    ctx->looked = 1;

    for (i = 0; i < ctx->count && ctx->entries[i].rule != rule; i++) { /* void */ }

    if (i == ctx->count || ctx->claims[i].n != 0) {
        return;
    }

    if (tw_read(ctx->claims[i].family, ctx->claims[i].key, &reading) != TW_OK || !reading.known) {
        ctx->unseen = 1;

    } else if (rule->zone->options.limit_shape == TW_SHAPE_FIXED) {
        verdict->used = reading.view;
        verdict->remaining = ngx_max(verdict->limit - reading.view, 0);
    }
}


enum {
    NGX_HTTP_TALLYWHEEL_STATUS,
    NGX_HTTP_TALLYWHEEL_ZONE,
    NGX_HTTP_TALLYWHEEL_LIMIT_UNITS,
    NGX_HTTP_TALLYWHEEL_USED,
    NGX_HTTP_TALLYWHEEL_REMAINING,
    NGX_HTTP_TALLYWHEEL_RESET,
    NGX_HTTP_TALLYWHEEL_RETRY_AFTER,
    NGX_HTTP_TALLYWHEEL_DECIDED_BY,
    NGX_HTTP_TALLYWHEEL_CAUSE,
    NGX_HTTP_TALLYWHEEL_SHADOW,
    NGX_HTTP_TALLYWHEEL_KEY
};


/* The text of a variable, or NULL with the number in *number, which is -1 without a value. */
static const char *
ngx_http_tallywheel_show(ngx_http_tallywheel_ctx_t *ctx, uintptr_t variable, int64_t *number)
{
    tw_verdict  *verdict = &ctx->verdict;

    static const char *const  by[] = { "local", "view", "lease", "redis", "outage", "full", "buyer" };

    *number = -1;
    ngx_http_tallywheel_look_up(ctx);

    switch (variable) {

    case NGX_HTTP_TALLYWHEEL_STATUS:
        return ctx->status ? ctx->status : ctx->decided ? "ok" : NULL;

    case NGX_HTTP_TALLYWHEEL_SHADOW:
        return !ctx->shadow ? NULL : ctx->shadow_denied ? "denied" : "ok";

    case NGX_HTTP_TALLYWHEEL_ZONE:
        return (char *) ctx->decider->zone_name.data;

    case NGX_HTTP_TALLYWHEEL_DECIDED_BY:
        return verdict->decided_by < sizeof(by) / sizeof(by[0]) ? by[verdict->decided_by] : NULL;

    case NGX_HTTP_TALLYWHEEL_CAUSE:
        return ngx_http_tallywheel_cause(verdict);

    case NGX_HTTP_TALLYWHEEL_LIMIT_UNITS:
        *number = verdict->limit;
        return NULL;

    case NGX_HTTP_TALLYWHEEL_USED:
        *number = ngx_max(verdict->used, 0);
        return ctx->unseen ? "unknown" : NULL;

    case NGX_HTTP_TALLYWHEEL_REMAINING:
        *number = ngx_max(verdict->remaining, 0);
        return ctx->unseen ? "unknown" : NULL;

    case NGX_HTTP_TALLYWHEEL_RESET:
        *number = ngx_http_tallywheel_seconds(verdict->reset_after_ms);
        return NULL;

    default: /* NGX_HTTP_TALLYWHEEL_RETRY_AFTER */
        *number = ngx_http_tallywheel_seconds(verdict->retry_after_ms);
        return NULL;
    }
}


static ngx_int_t
ngx_http_tallywheel_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                     *end;
    tw_key                      key;
    int64_t                     number;
    const char                 *text;
    ngx_http_tallywheel_ctx_t  *ctx;

    ctx = ngx_http_tallywheel_get_ctx(r);
    v->not_found = 1;

    if (ctx == NULL || (ctx->decider == NULL && (data != NGX_HTTP_TALLYWHEEL_STATUS || ctx->status == NULL))) {
        return NGX_OK;
    }

    if (data == NGX_HTTP_TALLYWHEEL_KEY) {
        key = ngx_http_tallywheel_key_of(ctx, ctx->decider);
        v->data = (u_char *) key.data;
        v->len = (unsigned) key.size;
        v->valid = 1;
        v->no_cacheable = 1;
        v->not_found = 0;
        return NGX_OK;
    }

    text = ngx_http_tallywheel_show(ctx, data, &number);

    if (text) {
        v->data = (u_char *) text;
        v->len = ngx_strlen(text);

    } else if (number >= 0) {
        end = ngx_pnalloc(r->pool, NGX_INT64_LEN);
        if (end == NULL) {
            return NGX_ERROR;
        }

        end += NGX_INT64_LEN;
        v->data = ngx_http_tallywheel_write_number(end, number);
        v->len = (unsigned) (end - v->data);

    } else {
        return NGX_OK;
    }

    v->valid = 1;
    v->no_cacheable = 1;
    v->not_found = 0;

    return NGX_OK;
}


/* Of the variable that keeps the decision. It has no text. */
static ngx_int_t
ngx_http_tallywheel_no_text(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    v->not_found = 1;
    return NGX_OK;
}


ngx_int_t
ngx_http_tallywheel_add_variables(ngx_conf_t *cf)
{
    ngx_uint_t                        i;
    ngx_http_variable_t              *var;
    ngx_http_tallywheel_main_conf_t  *mcf;

    static ngx_str_t  decision = ngx_string("tallywheel decision"); /* no configuration can name it */

    static ngx_str_t  names[] = {
        ngx_string("tallywheel_status"),
        ngx_string("tallywheel_zone"),
        ngx_string("tallywheel_limit"),
        ngx_string("tallywheel_used"),
        ngx_string("tallywheel_remaining"),
        ngx_string("tallywheel_reset"),
        ngx_string("tallywheel_retry_after"),
        ngx_string("tallywheel_decided_by"),
        ngx_string("tallywheel_cause"),
        ngx_string("tallywheel_shadow"),
        ngx_string("tallywheel_key")
    };

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        var = ngx_http_add_variable(cf, &names[i], NGX_HTTP_VAR_NOCACHEABLE);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = ngx_http_tallywheel_variable;
        var->data = i;
    }

    var = ngx_http_add_variable(cf, &decision, NGX_HTTP_VAR_NOHASH);
    if (var == NULL) {
        return NGX_ERROR;
    }

    var->get_handler = ngx_http_tallywheel_no_text;

    if (ngx_http_tallywheel_add_answers(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_tallywheel_module);
    mcf->variable = ngx_http_get_variable_index(cf, &decision);

    return (mcf->variable == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}
