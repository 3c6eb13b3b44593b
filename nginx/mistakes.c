/* mistakes.c -- rules that their author cannot have meant.
 * A rule that never worked is refused. The rest is a warning, so that a configuration that was in use still starts.
 * Always true: each sentence names the directive by its file and line. */
#include "ngx_http_tallywheel.h"


/* The next variable of the text from *p on. *p becomes the place behind it, or NULL without a variable. Returns whether
 * there is a sign before it that is no digit. */
static ngx_uint_t
ngx_http_tallywheel_next_variable(u_char **p, u_char *end, ngx_str_t *name)
{
    ngx_uint_t  has_text = 0, has_braces;

    for ( /* void */ ; *p < end && **p != '$'; (*p)++) {
        has_text |= (**p < '0' || **p > '9');
    }

    if (*p == end) {
        *p = NULL;
        return has_text;
    }

    (*p)++;
    has_braces = (*p < end && **p == '{');
    *p += has_braces;
    name->data = *p;

    while (*p < end && ((**p >= 'a' && **p <= 'z') || (**p >= 'A' && **p <= 'Z') || (**p >= '0' && **p <= '9')
                        || **p == '_'))
    {
        (*p)++;
    }

    name->len = (size_t) (*p - name->data);
    *p += (has_braces && *p < end);

    return has_text;
}


static ngx_uint_t
ngx_http_tallywheel_is_one_of(ngx_str_t *name, const char *const *names)
{
    for ( /* void */ ; *names; names++) {
        if (name->len == ngx_strlen(*names) && ngx_strncasecmp(name->data, (u_char *) *names, name->len) == 0) {
            return 1;
        }
    }

    return 0;
}


/* Whether a text with variables is a number in no request. A variable of this list never is one. */
ngx_uint_t
ngx_http_tallywheel_is_never_number(ngx_str_t *source)
{
    u_char      *p, *end;
    ngx_str_t    name;
    ngx_uint_t   is_never, variables;

    static const char *const  texts[] = {
        "binary_remote_addr", "remote_addr", "realip_remote_addr", "proxy_protocol_addr", "proxy_protocol_server_addr",
        "server_addr", "uri", "document_uri", "request_uri", "request", "request_filename", "document_root",
        "realpath_root", "request_method", "request_id", "scheme", "server_protocol", "time_iso8601", "time_local",
        "nginx_version", "ssl_protocol", "ssl_cipher", "ssl_client_fingerprint", NULL
    };

    is_never = 0;
    variables = 0;
    end = source->data + source->len;

    for (p = source->data; p; /* void */ ) {
        is_never |= ngx_http_tallywheel_next_variable(&p, end, &name);

        if (p) {
            variables++;
            is_never |= ngx_http_tallywheel_is_one_of(&name, texts);
        }
    }

    return variables && is_never;
}


/* Whether the client writes a variable of the text. */
static ngx_uint_t
ngx_http_tallywheel_is_of_client(ngx_str_t *source)
{
    u_char    *p, *end;
    ngx_str_t  name;

    end = source->data + source->len;

    for (p = source->data; p; /* void */ ) {
        (void) ngx_http_tallywheel_next_variable(&p, end, &name);

        if (p && ((name.len >= 4 && ngx_strncasecmp(name.data, (u_char *) "arg_", 4) == 0)
                  || (name.len >= 5 && ngx_strncasecmp(name.data, (u_char *) "http_", 5) == 0)
                  || (name.len >= 7 && ngx_strncasecmp(name.data, (u_char *) "cookie_", 7) == 0)))
        {
            return 1;
        }
    }

    return 0;
}


/* Whether a place has the rule twice: then each request takes its units twice. */
void
ngx_http_tallywheel_warn_of_twins(ngx_conf_t *cf, ngx_array_t *rules, ngx_http_tallywheel_rule_t *rule)
{
    ngx_uint_t                    i;
    ngx_http_tallywheel_rule_t  **other = rules->elts;

    for (i = 0; i < rules->nelts; i++) {
        if (other[i] == rule || other[i]->zone_name.len != rule->zone_name.len
            || ngx_strncmp(other[i]->zone_name.data, rule->zone_name.data, rule->zone_name.len) != 0
            || other[i]->key_source.len != rule->key_source.len
            || ngx_strncmp(other[i]->key_source.data, rule->key_source.data, rule->key_source.len) != 0)
        {
            continue;
        }

        if ((rule->n.text == NULL && rule->n.number == 0) || (other[i]->n.text == NULL && other[i]->n.number == 0)) {
            continue; /* it only looks */
        }

        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "zone \"%V\" and key \"%V\" are already in %V:%ui, so each request "
                           "counts twice", &rule->zone_name, &rule->key_source, &other[i]->place.file,
                           other[i]->place.line);
        return;
    }
}


static void
ngx_http_tallywheel_warn(ngx_conf_t *cf, ngx_http_tallywheel_rule_t *rule, const char *what)
{
    ngx_log_error(NGX_LOG_WARN, cf->log, 0, "tallywheel_zone \"%V\": %s in %V:%ui", &rule->zone_name, what,
                  &rule->place.file, rule->place.line);
}


/* The least units that a request takes. */
static int64_t
ngx_http_tallywheel_least(ngx_http_tallywheel_rule_t *rule)
{
    return rule->n.text ? 1 : rule->n.number;
}


/* The rule has its zone. */
void
ngx_http_tallywheel_warn_of_rule(ngx_conf_t *cf, ngx_http_tallywheel_rule_t *rule, ngx_uint_t has_redis)
{
    int64_t             most;
    tw_family_options  *zone = &rule->zone->options;

    if (rule->n.text && ngx_http_tallywheel_is_of_client(&rule->n.source)) {
        ngx_http_tallywheel_warn(cf, rule, "a client chooses its n=, also 0, so it can avoid the count");
    }

    if (rule->kind == NGX_HTTP_TALLYWHEEL_COUNT || zone->shadow) {
        return;
    }

    if (rule->limit.text) {
        if (ngx_http_tallywheel_is_of_client(&rule->limit.source)) {
            ngx_http_tallywheel_warn(cf, rule, "a client chooses its limit, also \"off\"");
        }

    } else if (rule->limit.number != TW_UNBOUNDED) {
        most = rule->limit.number;

        if (zone->limit_shape == TW_SHAPE_GCRA && zone->burst > 0) {
            most = ngx_min(most, zone->burst);
        }

        if (ngx_http_tallywheel_least(rule) > most) {
            ngx_http_tallywheel_warn(cf, rule, "this limit denies every request");
            return;
        }
    }

    if (rule->kind == NGX_HTTP_TALLYWHEEL_LIMIT && has_redis && zone->limit_mode == TW_LIMIT_HARD && rule->wait == 0
        && ngx_http_tallywheel_least(rule) > 0)
    {
        ngx_http_tallywheel_warn(cf, rule, "mode=hard without wait= denies the first requests of each key, until Redis "
                                 "has given units: add wait=200ms");
    }
}
