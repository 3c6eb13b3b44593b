/* show.c -- shows the decision in headers of the answer, and in variables.
 * Always true: it is the verdict of the rule that denied, otherwise of the rule with the fewest units left. */
#include "ngx_http_tallywheel.h"


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;


/* In seconds, rounded up, so that no client comes back too early. -1 means that there is no such time. */
static int64_t
ngx_http_tallywheel_seconds(int64_t ms)
{
    return (ms < 0 || ms == TW_UNBOUNDED) ? -1 : (int64_t) (((uint64_t) ms + 999) / 1000);
}


static ngx_int_t
ngx_http_tallywheel_add_header(ngx_http_request_t *r, const ngx_str_t *name, u_char *value, u_char *end)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key = *name;
    h->value.data = value;
    h->value.len = (size_t) (end - value);

    return NGX_OK;
}


/* Without a value, which is then -1, there is no header. The value is written up to *end, which becomes where it
 * begins. */
static ngx_int_t
ngx_http_tallywheel_add_number(ngx_http_request_t *r, const ngx_str_t *name, int64_t value, u_char **end)
{
    u_char  *behind = *end;

    if (value < 0) {
        return NGX_OK;
    }

    *end = ngx_http_tallywheel_write_number(behind, value);

    return ngx_http_tallywheel_add_header(r, name, *end, behind);
}


static ngx_int_t
ngx_http_tallywheel_add_headers(ngx_http_request_t *r, ngx_http_tallywheel_ctx_t *ctx)
{
    u_char      *end;
    ngx_int_t    rc;
    ngx_str_t   *known = &ctx->decider->limit.shown;
    tw_verdict  *verdict = &ctx->verdict;

    static const ngx_str_t  limit = ngx_string("RateLimit-Limit");
    static const ngx_str_t  remaining = ngx_string("RateLimit-Remaining");
    static const ngx_str_t  reset = ngx_string("RateLimit-Reset");
    static const ngx_str_t  retry = ngx_string("Retry-After");

    end = ngx_pnalloc(r->pool, 4 * NGX_INT64_LEN);
    if (end == NULL) {
        return NGX_ERROR;
    }

    end += 4 * NGX_INT64_LEN;

    if (known->len && verdict->limit == ctx->decider->limit.number) {
        rc = ngx_http_tallywheel_add_header(r, &limit, known->data, known->data + known->len);
    } else {
        rc = ngx_http_tallywheel_add_number(r, &limit, verdict->limit, &end);
    }

    if (rc != NGX_OK
        || ngx_http_tallywheel_add_number(r, &remaining, ngx_max(verdict->remaining, 0), &end) != NGX_OK
        || ngx_http_tallywheel_add_number(r, &reset,
               ngx_http_tallywheel_seconds(verdict->reset_after_ms), &end) != NGX_OK
        || (ctx->denied && ngx_http_tallywheel_add_number(r, &retry,
               ngx_http_tallywheel_seconds(verdict->retry_after_ms), &end) != NGX_OK))
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_tallywheel_header_filter(ngx_http_request_t *r)
{
    ngx_http_tallywheel_ctx_t  *ctx;

    if (r == r->main) {
        ctx = ngx_http_tallywheel_get_ctx(r);

        if (ctx && ctx->conf->headers && ctx->decider && ngx_http_tallywheel_add_headers(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return ngx_http_next_header_filter(r);
}


void
ngx_http_tallywheel_add_filter(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_tallywheel_header_filter;
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
    NGX_HTTP_TALLYWHEEL_SHADOW
};


/* The text of a variable, or NULL with the number in *number, which is -1 without a value. */
static const char *
ngx_http_tallywheel_show(ngx_http_tallywheel_ctx_t *ctx, uintptr_t variable, int64_t *number)
{
    tw_verdict  *verdict = &ctx->verdict;

    static const char *const  by[] = { "local", "view", "lease", "redis", "outage", "full", "buyer" };
    static const char *const  causes[] = { "limit", "share", "outage", "busy", "full", "buyer", "never" };

    *number = -1;

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
        if (verdict->allowed || verdict->retry_after_ms == 0) {
            return NULL; /* it was admitted, or it was a wrong call */
        }

        return verdict->cause < sizeof(causes) / sizeof(causes[0]) ? causes[verdict->cause] : NULL;

    case NGX_HTTP_TALLYWHEEL_LIMIT_UNITS:
        *number = verdict->limit;
        return NULL;

    case NGX_HTTP_TALLYWHEEL_USED:
        *number = ngx_max(verdict->used, 0);
        return NULL;

    case NGX_HTTP_TALLYWHEEL_REMAINING:
        *number = ngx_max(verdict->remaining, 0);
        return NULL;

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
    int64_t                     number;
    const char                 *text;
    ngx_http_tallywheel_ctx_t  *ctx;

    ctx = ngx_http_tallywheel_get_ctx(r);
    v->not_found = 1;

    if (ctx == NULL || ctx->decider == NULL) {
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
        ngx_string("tallywheel_shadow")
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

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_tallywheel_module);
    mcf->variable = ngx_http_get_variable_index(cf, &decision);

    return (mcf->variable == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}
