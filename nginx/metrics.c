/* metrics.c -- the page of tallywheel_metrics, with the figures of every engine that the configuration uses.
 * Always true: each metric is on the page once, with the samples of all engines below it. */
#include "ngx_http_tallywheel.h"


typedef struct {
    ngx_pool_t                    *pool;
    u_char                        *data;
    size_t                         len;
    size_t                         size;
} ngx_http_tallywheel_page_t;


static bool
ngx_http_tallywheel_write(void *ctx, const char *text, size_t size)
{
    u_char                      *data;
    ngx_http_tallywheel_page_t  *page = ctx;

    if (page->size - page->len < size) {
        data = ngx_pnalloc(page->pool, 2 * page->size + size + 16384);
        if (data == NULL) {
            return false;
        }

        if (page->len) {
            ngx_memcpy(data, page->data, page->len);
        }

        page->data = data;
        page->size = 2 * page->size + size + 16384;
    }

    ngx_memcpy(page->data + page->len, text, size);
    page->len += size;

    return true;
}


/* The size of the metric that begins at `from`, which is two lines of comment and its samples. */
static size_t
ngx_http_tallywheel_metric(const u_char *from, const u_char *end)
{
    const u_char  *next;

    next = memmem(from + 1, end - from - 1, "\n# TYPE ", 8);

    return (size_t) (next ? next + 1 - from : end - from);
}


/* The samples of the metric whose first line is the one at `line`. */
static ngx_str_t
ngx_http_tallywheel_samples(ngx_http_tallywheel_page_t *page, const u_char *line)
{
    u_char     *at, *end;
    size_t      len;
    ngx_str_t   samples = ngx_null_string;

    len = (const u_char *) ngx_strchr(line, '\n') + 1 - line;

    for (at = page->data, end = page->data + page->len; at < end; at += samples.len) {
        samples.len = ngx_http_tallywheel_metric(at, end);

        if (samples.len > len && ngx_memcmp(at, line, len) == 0) {
            samples.data = at + len;
            samples.len -= len;

            while (samples.len && *samples.data == '#') {
                at = (u_char *) ngx_strchr(samples.data, '\n') + 1;
                samples.len -= at - samples.data;
                samples.data = at;
            }

            return samples;
        }
    }

    ngx_str_null(&samples);

    return samples;
}


/* Puts several engines on one page, where each metric is once, with the samples of all. */
static ngx_int_t
ngx_http_tallywheel_merge(ngx_http_tallywheel_page_t *pages, ngx_uint_t count, ngx_http_tallywheel_page_t *out)
{
    u_char      *at, *end;
    size_t       len;
    ngx_str_t    samples;
    ngx_uint_t   i, k, is_there;

    for (i = 0; i < count; i++) {
        end = pages[i].data + pages[i].len;

        for (at = pages[i].data; at < end; at += len) {
            len = ngx_http_tallywheel_metric(at, end);
            is_there = 0;

            for (k = 0; k < i; k++) {
                is_there |= (ngx_http_tallywheel_samples(&pages[k], at).data != NULL);
            }

            if (is_there) {
                continue;
            }

            if (!ngx_http_tallywheel_write(out, (char *) at, len)) {
                return NGX_ERROR;
            }

            for (k = i + 1; k < count; k++) {
                samples = ngx_http_tallywheel_samples(&pages[k], at);

                if (samples.len && !ngx_http_tallywheel_write(out, (char *) samples.data, samples.len)) {
                    return NGX_ERROR;
                }
            }
        }
    }

    return NGX_OK;
}


/* Of all workers, and of all zones. */
static ngx_int_t
ngx_http_tallywheel_write_waiting(ngx_http_tallywheel_page_t *out, const char *suffix)
{
    u_char  text[512], *end;

    end = ngx_sprintf(text, "# TYPE tallywheel_waiting_requests gauge\n"
                      "# HELP tallywheel_waiting_requests Requests that wait for units of a limit with wait=\n"
                      "tallywheel_waiting_requests %ui\n"
                      "# TYPE tallywheel_waiting_denied%s counter\n"
                      "# HELP tallywheel_waiting_denied%s Requests that were denied at once in spite of wait=\n"
                      "tallywheel_waiting_denied_total %ui\n",
                      ngx_http_tallywheel_all_places(), suffix, suffix, ngx_http_tallywheel_no_places());

    return ngx_http_tallywheel_write(out, (char *) text, (size_t) (end - text)) ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_http_tallywheel_write_page(ngx_http_request_t *r, uint32_t format, ngx_http_tallywheel_page_t *out)
{
    ngx_uint_t                        i, count;
    ngx_http_tallywheel_page_t       *pages;
    ngx_http_tallywheel_engine_t    **e;
    ngx_http_tallywheel_main_conf_t  *mcf;

    mcf = ngx_http_get_module_main_conf(r, ngx_http_tallywheel_module);
    e = mcf->engines.elts;

    pages = ngx_pcalloc(r->pool, (mcf->engines.nelts + 1) * sizeof(ngx_http_tallywheel_page_t));
    if (pages == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, count = 0; i < mcf->engines.nelts; i++) {
        if (e[i]->engine) {
            pages[count].pool = r->pool;

            if (tw_metrics_write(e[i]->engine, format | (format ? TW_METRICS_NO_EOF : 0), ngx_http_tallywheel_write,
                                 &pages[count++])
                != TW_OK)
            {
                return NGX_ERROR;
            }
        }
    }

    if (ngx_http_tallywheel_merge(pages, count, out) != NGX_OK
        || (mcf->is_queued
            && ngx_http_tallywheel_write_waiting(out, format == TW_METRICS_PROMETHEUS ? "_total" : "") != NGX_OK))
    {
        return NGX_ERROR;
    }

    return (format == TW_METRICS_PROMETHEUS || ngx_http_tallywheel_write(out, "# EOF\n", 6)) ? NGX_OK : NGX_ERROR;
}


static ngx_uint_t
ngx_http_tallywheel_accepts_openmetrics(ngx_http_request_t *r)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (h[i].key.len == 6 && ngx_strncasecmp(h[i].key.data, (u_char *) "Accept", 6) == 0
                && ngx_strlcasestrn(h[i].value.data, h[i].value.data + h[i].value.len,
                                    (u_char *) "application/openmetrics-text", 28 - 1))
            {
                return 1;
            }
        }
    }

    return 0;
}


ngx_int_t
ngx_http_tallywheel_metrics_handler(ngx_http_request_t *r)
{
    uint32_t                    format;
    ngx_buf_t                  *b;
    ngx_int_t                   rc;
    ngx_chain_t                 out;
    ngx_http_tallywheel_page_t  page;

    static ngx_str_t  types[] = {
        ngx_string(TW_METRICS_PROMETHEUS_TYPE),
        ngx_string(TW_METRICS_OPENMETRICS_TYPE)
    };

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    format = ngx_http_tallywheel_accepts_openmetrics(r) ? TW_METRICS_OPENMETRICS : TW_METRICS_PROMETHEUS;

    ngx_memzero(&page, sizeof(ngx_http_tallywheel_page_t));
    page.pool = r->pool;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL || ngx_http_tallywheel_write_page(r, format, &page) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_type = types[format];
    r->headers_out.content_type_len = types[format].len;
    r->headers_out.content_length_n = (off_t) page.len;

    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b->pos = page.data;
    b->last = page.data + page.len;
    b->memory = (page.len != 0);
    b->last_buf = 1;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}
