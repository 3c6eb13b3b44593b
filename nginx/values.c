/* values.c -- numbers as text, and the rules of a location with the key and the numbers of one request.
 * Always true: a rule whose value is no number is not used for this request, or denies it (invalid=deny), and a line of
 * the log names it. */
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


/* Writes the number, which is not negative, up to `end`, and returns where it begins. ngx_sprintf() is ten times
 * slower. */
u_char *
ngx_http_tallywheel_write_number(u_char *end, int64_t value)
{
    uint64_t  rest = (uint64_t) value, left;

    static const char  two[] = "0001020304050607080910111213141516171819" "2021222324252627282930313233343536373839"
                               "4041424344454647484950515253545556575859" "6061626364656667686970717273747576777879"
                               "8081828384858687888990919293949596979899";

    for ( /* void */ ; rest >= 100; rest = left) {
        left = rest / 100;
        end -= 2;
        ngx_memcpy(end, &two[2 * (rest - 100 * left)], 2);
    }

    if (rest >= 10) {
        end -= 2;
        ngx_memcpy(end, &two[2 * rest], 2);

    } else {
        *--end = (u_char) ('0' + rest);
    }

    return end;
}


/* The number of a rule for this request. An empty text is `none`. So is "off", if that is no limit. */
ngx_int_t
ngx_http_tallywheel_number(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule,
    ngx_http_tallywheel_number_t *from, int64_t none, int64_t *number)
{
    ngx_str_t  text;

    if (from->text == NULL) {
        *number = from->number;
        return NGX_OK;
    }

    if (ngx_http_tallywheel_text(r, from->text, &text) != NGX_OK) {
        return NGX_ERROR;
    }

    if (text.len == 0
        || (none == TW_UNBOUNDED && text.len == 3 && ngx_strncmp(text.data, "off", 3) == 0))
    {
        *number = none;
        return NGX_OK;
    }

    if (ngx_http_tallywheel_parse_number(&text, number) == NGX_OK) {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "tallywheel_zone \"%V\": not a number: \"%V\", the rule in "
                  "%V:%ui %s", &rule->zone_name, &text, &rule->place.file, rule->place.line,
                  rule->denies_invalid ? "denies the request" : "is not used");

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


/* The limit and the units of a rule that has them as a text. */
static ngx_int_t
ngx_http_tallywheel_numbers(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule, tw_claim *claim)
{
    ngx_int_t            rc;
    ngx_http_request_t  *r = ctx->request;

    rc = ngx_http_tallywheel_number(r, rule, &rule->limit, TW_UNBOUNDED, &claim->limit);

    if (rc == NGX_OK) {
        rc = ngx_http_tallywheel_number(r, rule, &rule->n, 1, &claim->n);
    }

    if (rc == NGX_DECLINED) {
        ctx->status = "error";
    }

    return rc;
}


/* Rules of the location, with the values of this request. A rule without a key or a limit is left out. Returns
 * the status of the answer if a value is no number, and its rule denies then. */
ngx_int_t
ngx_http_tallywheel_add_entries(ngx_http_tallywheel_ctx_t *ctx)
{
    tw_claim                      *claim = ctx->claims;
    ngx_int_t                      rc;
    ngx_http_request_t            *r = ctx->request;
    ngx_http_tallywheel_rule_t    *rule, **next, **end;
    ngx_http_tallywheel_entry_t   *entry = ctx->entries;

    next = ctx->conf->deciders;

    for (end = next + ctx->conf->most; next < end; next++) {
        rule = *next;
        claim->family = rule->home->family;

        if (ngx_http_tallywheel_key(r, rule, &claim->key) != NGX_OK) {
            return NGX_ERROR;
        }

        if (claim->key.size == 0 || claim->family == NULL) {
            continue;
        }

        claim->limit = rule->limit.number;
        claim->n = rule->n.number;

        if (rule->is_text) {
            rc = ngx_http_tallywheel_numbers(ctx, rule, claim);

            if (rc == NGX_ERROR) {
                return NGX_ERROR;
            }

            if (rc == NGX_DECLINED) {
                if (rule->denies_invalid && !rule->zone->options.shadow) {
                    return (ngx_int_t) rule->outage_status;
                }

                continue;
            }
        }

        if (claim->limit == TW_UNBOUNDED) {
            continue;
        }

        entry->rule = rule;
        entry->taken = 0;
        ctx->joined += rule->joins;
        claim++;
        entry++;
    }

    ctx->count = (ngx_uint_t) (entry - ctx->entries);

    return NGX_OK;
}
