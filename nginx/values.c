/* values.c -- the rules of a location, with the key and the numbers of one request.
 * Always true: a rule whose value is no number is not used for this request, and a line of the log names it. */
#include "ngx_http_tallywheel.h"
#include <ngx_md5.h>


ngx_int_t
ngx_http_tallywheel_parse_number(ngx_str_t *text, int64_t *number)
{
    size_t  i;

    if (text->len == 0 || text->len > 16) {
        return NGX_ERROR;
    }

    *number = 0;

    for (i = 0; i < text->len; i++) {
        if (text->data[i] < '0' || text->data[i] > '9') {
            return NGX_ERROR;
        }

        *number = *number * 10 + (text->data[i] - '0');
    }

    return (*number <= TW_DELTA_MAX) ? NGX_OK : NGX_ERROR;
}


/* An empty text, and "off", are `none`. */
ngx_int_t
ngx_http_tallywheel_evaluate(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule,
    ngx_http_tallywheel_number_t *from, int64_t none, int64_t *number)
{
    ngx_str_t  text;

    if (ngx_http_complex_value(r, from->text, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0 || (text.len == 3 && ngx_strncmp(text.data, "off", 3) == 0)) {
        *number = none;
        return NGX_OK;
    }

    if (ngx_http_tallywheel_parse_number(&text, number) == NGX_OK) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "tallywheel_zone \"%V\": not a number: \"%V\", the rule in "
                  "%V:%ui is not used", &rule->zone_name, &text, &rule->place.file, rule->place.line);

    return NGX_DECLINED;
}


/* A key that is longer than the library's keys becomes its beginning and a digest, so it cannot evade a limit. */
ngx_int_t
ngx_http_tallywheel_key(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule, tw_key *key)
{
    u_char                     *p, digest[16];
    ngx_md5_t                   md5;
    ngx_str_t                   text;
    ngx_http_variable_value_t  *value;

    if (rule->variable >= 0) {
        value = ngx_http_get_flushed_variable(r, (ngx_uint_t) rule->variable);
        text.data = value ? value->data : NULL;
        text.len = (value == NULL || value->not_found) ? 0 : value->len;

    } else if (ngx_http_complex_value(r, &rule->key, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len > TW_KEY_SIZE_MAX) {
        p = ngx_pnalloc(r->pool, TW_KEY_SIZE_MAX);
        if (p == NULL) {
            return NGX_ERROR;
        }

        ngx_md5_init(&md5);
        ngx_md5_update(&md5, text.data, text.len);
        ngx_md5_final(digest, &md5);

        ngx_memcpy(p, text.data, TW_KEY_SIZE_MAX - 33);
        p[TW_KEY_SIZE_MAX - 33] = '~';
        ngx_hex_dump(p + TW_KEY_SIZE_MAX - 32, digest, 16);

        text.data = p;
        text.len = TW_KEY_SIZE_MAX;
    }

    *key = tw_bytes(text.data, text.len);

    return NGX_OK;
}


ngx_int_t
ngx_http_tallywheel_add_entries(ngx_http_tallywheel_ctx_t *ctx, ngx_array_t *rules)
{
    ngx_int_t                      rc;
    ngx_uint_t                     i;
    ngx_http_request_t            *r = ctx->request;
    ngx_http_tallywheel_rule_t   **rule;
    ngx_http_tallywheel_entry_t   *entry;

    for (i = 0; rules && i < rules->nelts; i++) {
        rule = rules->elts;
        entry = &ctx->entries[ctx->count];

        rc = ngx_http_tallywheel_key(r, rule[i], &entry->key);

        if (rc == NGX_OK && entry->key.size == 0) {
            continue;
        }

        if (rc == NGX_OK) {
            rc = ngx_http_tallywheel_number(r, rule[i], &rule[i]->limit, TW_UNBOUNDED, &entry->limit);
        }

        if (rc == NGX_OK) {
            rc = ngx_http_tallywheel_number(r, rule[i], &rule[i]->n, 0, &entry->n);
        }

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            ctx->status = "error";
            continue;
        }

        if (entry->limit == TW_UNBOUNDED || rule[i]->zone->family->family == NULL) {
            continue;
        }

        entry->rule = rule[i];
        entry->taken = 0;
        entry->fixed = 0;
        ctx->count++;
    }

    return NGX_OK;
}
