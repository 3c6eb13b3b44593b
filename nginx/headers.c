/* headers.c -- shows the decision in headers of the answer (tallywheel_headers).
 * Always true: headers and variables (show.c) are of the same rule. A name that is written here is there once, also if
 * the server behind nginx has written it, too. A denial without an answer about the limit has no figures of units, and
 * no cache keeps it, also without tallywheel_headers. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_DIGITS_MAX  999999999999999   /* the greatest number of a structured field (RFC 9651) */


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;


/* The names of three numbers. */
typedef struct {
    ngx_str_t                      limit;
    ngx_str_t                      remaining;
    ngx_str_t                      reset;
} ngx_http_tallywheel_names_t;


/* Removes the headers of others that have these names. */
static void
ngx_http_tallywheel_replace(ngx_http_request_t *r, const ngx_str_t *name, ngx_uint_t names)
{
    ngx_uint_t        i, k;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &r->headers_out.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            for (k = 0; k < names; k++) {
                if (h[i].key.len == name[k].len
                    && ngx_strncasecmp(h[i].key.data, name[k].data, name[k].len) == 0)
                {
                    h[i].hash = 0;
                }
            }
        }
    }
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


/* RateLimit-Limit, -Remaining and -Reset, or these names with X- before. */
static ngx_int_t
ngx_http_tallywheel_add_numbers(ngx_http_request_t *r, ngx_http_tallywheel_ctx_t *ctx,
    const ngx_http_tallywheel_names_t *names)
{
    u_char      *end;
    ngx_int_t    rc;
    ngx_str_t   *known = &ctx->decider->limit.shown;
    tw_verdict  *verdict = &ctx->verdict;

    ngx_http_tallywheel_replace(r, &names->limit, 3);

    end = ngx_pnalloc(r->pool, 3 * NGX_INT64_LEN);
    if (end == NULL) {
        return NGX_ERROR;
    }

    end += 3 * NGX_INT64_LEN;

    if (known->len && verdict->limit == ctx->decider->limit.number) {
        rc = ngx_http_tallywheel_add_header(r, &names->limit, known->data, known->data + known->len);
    } else {
        rc = ngx_http_tallywheel_add_number(r, &names->limit, verdict->limit, &end);
    }

    if (rc != NGX_OK || ctx->unknown) {
        return rc;
    }

    if (ngx_http_tallywheel_add_number(r, &names->remaining, ctx->unseen ? -1 : ngx_max(verdict->remaining, 0), &end)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_tallywheel_add_number(r, &names->reset, ngx_http_tallywheel_seconds(verdict->reset_after_ms), &end);
}


/* The two fields of the IETF's draft, draft-ietf-httpapi-ratelimit-headers: "zone";r=UNITS;t=SECONDS and
 * "zone";q=LIMIT;w=SECONDS. A zone's name needs no escape. */
static ngx_int_t
ngx_http_tallywheel_add_draft(ngx_http_request_t *r, ngx_http_tallywheel_ctx_t *ctx)
{
    size_t       size;
    u_char      *policy, *left, *p;
    int64_t      seconds;
    tw_verdict  *verdict = &ctx->verdict;
    ngx_str_t   *zone = &ctx->decider->zone_name;

    static const ngx_str_t  names[] = { ngx_string("RateLimit-Policy"), ngx_string("RateLimit") };

    ngx_http_tallywheel_replace(r, names, 2);

    size = zone->len + sizeof("\"\";q=;w=") + 2 * NGX_INT64_LEN;
    policy = ngx_pnalloc(r->pool, 2 * size);
    if (policy == NULL) {
        return NGX_ERROR;
    }

    left = policy + size;

    p = ngx_sprintf(policy, "\"%V\";q=%L", zone, ngx_min(verdict->limit, NGX_HTTP_TALLYWHEEL_DIGITS_MAX));
    seconds = ngx_http_tallywheel_seconds(ngx_http_tallywheel_length(&ctx->decider->zone->options));

    if (seconds > 0) {
        p = ngx_sprintf(p, ";w=%L", seconds);
    }

    if (ngx_http_tallywheel_add_header(r, &names[0], policy, p) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ctx->unknown || ctx->unseen) {
        return NGX_OK;
    }

    p = ngx_sprintf(left, "\"%V\";r=%L", zone,
                    ngx_min(ngx_max(verdict->remaining, 0), NGX_HTTP_TALLYWHEEL_DIGITS_MAX));
    seconds = ngx_http_tallywheel_seconds(verdict->reset_after_ms);

    if (seconds >= 0) {
        p = ngx_sprintf(p, ";t=%L", seconds);
    }

    return ngx_http_tallywheel_add_header(r, &names[1], left, p);
}


/* After a denial. Without a time, because the call was a wrong one, there is no header. */
static ngx_int_t
ngx_http_tallywheel_add_retry(ngx_http_request_t *r, tw_verdict *verdict)
{
    u_char  *end;

    static const ngx_str_t  name = ngx_string("Retry-After");

    if (verdict->retry_after_ms == 0) {
        return NGX_OK;
    }

    ngx_http_tallywheel_replace(r, &name, 1);

    end = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (end == NULL) {
        return NGX_ERROR;
    }

    end += NGX_INT64_LEN;

    return ngx_http_tallywheel_add_number(r, &name, ngx_http_tallywheel_seconds(verdict->retry_after_ms), &end);
}


/* A cache would keep a 410, for example, and the limit is not spent. */
static ngx_int_t
ngx_http_tallywheel_forbid_caches(ngx_http_request_t *r)
{
    static const ngx_str_t  name = ngx_string("Cache-Control");
    static u_char           value[] = "no-store";

    ngx_http_tallywheel_replace(r, &name, 1);

    return ngx_http_tallywheel_add_header(r, &name, value, value + sizeof(value) - 1);
}


static ngx_int_t
ngx_http_tallywheel_add_headers(ngx_http_request_t *r, ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_int_t   rc = NGX_OK;
    ngx_uint_t  is_short;

    static const ngx_http_tallywheel_names_t  names[] = {
        { ngx_string("RateLimit-Limit"), ngx_string("RateLimit-Remaining"), ngx_string("RateLimit-Reset") },
        { ngx_string("X-RateLimit-Limit"), ngx_string("X-RateLimit-Remaining"), ngx_string("X-RateLimit-Reset") }
    };

    ngx_http_tallywheel_look_up(ctx);

    if (ctx->conf->headers == NGX_HTTP_TALLYWHEEL_HEADERS_DRAFT) {
        rc = ngx_http_tallywheel_add_draft(r, ctx);

    } else if (ctx->conf->headers) {
        rc = ngx_http_tallywheel_add_numbers(r, ctx, &names[ctx->conf->headers == NGX_HTTP_TALLYWHEEL_HEADERS_X]);
    }

    if (rc != NGX_OK || !ctx->denied) {
        return rc;
    }

    /* The denial may not last: there was no answer, or other machines may have units. */
    is_short = ctx->unknown || ctx->verdict.cause == TW_CAUSE_SHARE;

    if (is_short && ngx_http_tallywheel_forbid_caches(r) != NGX_OK) {
        return NGX_ERROR;
    }

    return (is_short || ctx->conf->headers) ? ngx_http_tallywheel_add_retry(r, &ctx->verdict) : NGX_OK;
}


static ngx_int_t
ngx_http_tallywheel_header_filter(ngx_http_request_t *r)
{
    ngx_http_tallywheel_ctx_t  *ctx;

    if (r == r->main) {
        ctx = ngx_http_tallywheel_get_ctx(r);

        if (ctx && (ctx->conf->headers || ctx->denied) && ctx->decider
            && ngx_http_tallywheel_add_headers(r, ctx) != NGX_OK)
        {
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
