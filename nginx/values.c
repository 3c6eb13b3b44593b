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


/* The number of a rule for this request. An empty text, and "off", are `none`. */
ngx_int_t
ngx_http_tallywheel_number(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule,
    ngx_http_tallywheel_number_t *from, int64_t none, int64_t *number)
{
    ngx_str_t  text;

    if (from->text == NULL) {
        *number = from->number;
        return NGX_OK;
    }

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
ngx_http_tallywheel_shorten_key(ngx_http_request_t *r, tw_key *key)
{
    u_char     *p, digest[16];
    ngx_md5_t   md5;

    p = ngx_pnalloc(r->pool, TW_KEY_SIZE_MAX);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_md5_init(&md5);
    ngx_md5_update(&md5, key->data, key->size);
    ngx_md5_final(digest, &md5);

    ngx_memcpy(p, key->data, TW_KEY_SIZE_MAX - 33);
    p[TW_KEY_SIZE_MAX - 33] = '~';
    ngx_hex_dump(p + TW_KEY_SIZE_MAX - 32, digest, 16);

    *key = tw_bytes(p, TW_KEY_SIZE_MAX);

    return NGX_OK;
}


/* A key that is a text with variables. */
ngx_int_t
ngx_http_tallywheel_make_key(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule, tw_key *key)
{
    ngx_str_t  text;

    if (ngx_http_complex_value(r, &rule->key, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    *key = tw_bytes(text.data, text.len);

    return (text.len <= TW_KEY_SIZE_MAX) ? NGX_OK : ngx_http_tallywheel_shorten_key(r, key);
}


/* Rules of the location, with the values of this request. A rule without a key or a limit is left out. */
ngx_int_t
ngx_http_tallywheel_add_entries(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_int_t                     rc;
    ngx_uint_t                    i;
    ngx_http_request_t           *r = ctx->request;
    ngx_http_tallywheel_rule_t   *rule;
    ngx_http_tallywheel_entry_t  *entry = ctx->entries;

    for (i = 0; i < ctx->conf->most; i++) {
        rule = ctx->conf->deciders[i];
        rc = ngx_http_tallywheel_key(r, rule, &entry->key);

        if (rc == NGX_OK && entry->key.size == 0) {
            continue;
        }

        entry->limit = rule->limit.number;
        entry->n = rule->n.number;

        if (rc == NGX_OK && rule->is_text) {
            rc = ngx_http_tallywheel_number(r, rule, &rule->limit, TW_UNBOUNDED, &entry->limit);

            if (rc == NGX_OK) {
                rc = ngx_http_tallywheel_number(r, rule, &rule->n, 0, &entry->n);
            }
        }

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_DECLINED) {
            ctx->status = "error";
            continue;
        }

        entry->family = rule->zone->family->family;

        if (entry->limit == TW_UNBOUNDED || entry->family == NULL) {
            continue;
        }

        entry->rule = rule;
        entry->taken = 0;
        entry->fixed = 0;
        entry++;
    }

    ctx->count = (ngx_uint_t) (entry - ctx->entries);

    return NGX_OK;
}
