/* directives.c -- the words of the directives.
 * Always true: a wrong word is refused with its file and line, and then the new configuration is not used. The library
 * checks the values together when the engine is opened (engine.c). */
#include "ngx_http_tallywheel.h"


typedef struct {
    const char                    *word;
    uint32_t                       value;
} ngx_http_tallywheel_word_t;


static void
ngx_http_tallywheel_here(ngx_conf_t *cf, ngx_http_tallywheel_place_t *place)
{
    place->file = cf->conf_file->file.name;
    place->line = cf->conf_file->line;
}


static char *
ngx_http_tallywheel_invalid(ngx_conf_t *cf, ngx_str_t *argument, const char *why)
{
    ngx_str_t  *value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\" of \"%V\": %s", argument, &value[0], why);
    return NGX_CONF_ERROR;
}


/* "word=value". *value becomes the text behind the sign. It is a C string, as every argument is. */
static ngx_uint_t
ngx_http_tallywheel_is(ngx_str_t *argument, const char *word, ngx_str_t *value)
{
    size_t  len = ngx_strlen(word);

    if (argument->len <= len || ngx_strncmp(argument->data, word, len) != 0 || argument->data[len] != '=') {
        return 0;
    }

    value->data = argument->data + len + 1;
    value->len = argument->len - len - 1;

    return 1;
}


static ngx_int_t
ngx_http_tallywheel_word(ngx_str_t *text, const ngx_http_tallywheel_word_t *words, uint32_t *value)
{
    for ( /* void */ ; words->word; words++) {
        if (text->len == ngx_strlen(words->word) && ngx_strncmp(text->data, words->word, text->len) == 0) {
            *value = words->value;
            return NGX_OK;
        }
    }

    return NGX_ERROR;
}


char *
ngx_http_tallywheel_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_tallywheel_main_conf_t  *mcf = conf;

    ngx_str_t                     *argument, value;
    ngx_uint_t                     i;
    ngx_http_tallywheel_server_t  *server = &mcf->server;

    static const char  use[] = "the parameters are prefix=, password_file=, timeout=, interval=, "
                               "ca=, cert=, key= and name=";

    if (server->url) {
        return "is duplicate";
    }

    ngx_http_tallywheel_here(cf, &mcf->server_place);

    argument = cf->args->elts;
    server->url = (char *) argument[1].data;

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_http_tallywheel_is(&argument[i], "timeout", &value)
            || ngx_http_tallywheel_is(&argument[i], "interval", &value))
        {
            ngx_int_t  ms = ngx_parse_time(&value, 0);

            if (ms == NGX_ERROR || ms == 0) {
                return ngx_http_tallywheel_invalid(cf, &argument[i], "not a time, such as 100ms");
            }

            if (argument[i].data[0] == 't') {
                server->timeout = (ngx_msec_t) ms;
            } else {
                server->interval = (ngx_msec_t) ms;
            }

            continue;
        }

        if (ngx_http_tallywheel_is(&argument[i], "prefix", &value)) {
            server->prefix = (char *) value.data;
            continue;
        }

        if (ngx_http_tallywheel_is(&argument[i], "name", &value)) {
            server->name = (char *) value.data;
            continue;
        }

        {
            struct {
                const char   *word;
                char        **file;
            } files[] = {
                { "password_file", &server->password_file },
                { "ca", &server->ca },
                { "cert", &server->cert },
                { "key", &server->key },
            };

            ngx_uint_t  k;

            for (k = 0; k < 4 && !ngx_http_tallywheel_is(&argument[i], files[k].word, &value); k++) { /* void */ }

            if (k == 4) {
                return ngx_http_tallywheel_invalid(cf, &argument[i], use);
            }

            if (ngx_conf_full_name(cf->cycle, &value, 1) != NGX_OK) {
                return NGX_CONF_ERROR;
            }

            *files[k].file = (char *) value.data;
        }
    }

    return NGX_CONF_OK;
}


char *
ngx_http_tallywheel_memory(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_tallywheel_main_conf_t  *mcf = conf;

    ngx_http_tallywheel_here(cf, &mcf->memory_place);

    return ngx_conf_set_size_slot(cf, cmd, conf);
}


static const ngx_http_tallywheel_word_t  ngx_http_tallywheel_windows[] = {
    { "day", TW_WINDOW_DAY },
    { "week", TW_WINDOW_WEEK },
    { "month", TW_WINDOW_MONTH },
    { "forever", TW_WINDOW_FOREVER },
    { NULL, 0 }
};


static const ngx_http_tallywheel_word_t  ngx_http_tallywheel_modes[] = {
    { "soft", TW_LIMIT_SOFT },
    { "hard", TW_LIMIT_HARD },
    { "strict", TW_LIMIT_STRICT },
    { NULL, 0 }
};


static const ngx_http_tallywheel_word_t  ngx_http_tallywheel_shapes[] = {
    { "fixed", TW_SHAPE_FIXED },
    { "sliding", TW_SHAPE_SLIDING },
    { "gcra", TW_SHAPE_GCRA },
    { NULL, 0 }
};


static const ngx_http_tallywheel_word_t  ngx_http_tallywheel_outages[] = {
    { "local", TW_OUTAGE_LOCAL },
    { "open", TW_OUTAGE_FAIL_OPEN },
    { "closed", TW_OUTAGE_FAIL_CLOSED },
    { "share", TW_OUTAGE_SHARE },
    { NULL, 0 }
};


/* One parameter of tallywheel_zone. Returns NULL, or the words that are expected. */
static const char *
ngx_http_tallywheel_zone_parameter(ngx_str_t *argument, tw_family_options *options)
{
    int64_t    number;
    ngx_int_t  ms;
    ngx_str_t  value;

    if (ngx_http_tallywheel_is(argument, "window", &value)) {
        if (ngx_http_tallywheel_word(&value, ngx_http_tallywheel_windows, &options->window) == NGX_OK) {
            return NULL;
        }

        ms = ngx_parse_time(&value, 0);
        options->window_ms = ms;
        return (ms > 0) ? NULL : "the window is a time, such as 10s, or day, week, month or forever";
    }

    if (ngx_http_tallywheel_is(argument, "mode", &value)) {
        return ngx_http_tallywheel_word(&value, ngx_http_tallywheel_modes, &options->limit_mode) == NGX_OK
               ? NULL : "the mode is soft, hard or strict";
    }

    if (ngx_http_tallywheel_is(argument, "shape", &value)) {
        return ngx_http_tallywheel_word(&value, ngx_http_tallywheel_shapes, &options->limit_shape) == NGX_OK
               ? NULL : "the shape is fixed, sliding or gcra";
    }

    if (ngx_http_tallywheel_is(argument, "outage", &value)) {
        return ngx_http_tallywheel_word(&value, ngx_http_tallywheel_outages, &options->on_outage) == NGX_OK
               ? NULL : "the outage is local, open, closed or share";
    }

    if (ngx_http_tallywheel_is(argument, "grace", &value)) {
        ms = ngx_parse_time(&value, 0);
        options->outage_grace_ms = (uint32_t) ms;
        return (ms >= 0 && ms <= TW_DAY) ? NULL : "the grace is a time of at most 1d";
    }

    if (ngx_http_tallywheel_is(argument, "burst", &value)) {
        return ngx_http_tallywheel_parse_number(&value, &options->burst) == NGX_OK ? NULL : "not a number";
    }

    if (ngx_http_tallywheel_is(argument, "keys", &value)) {
        if (ngx_http_tallywheel_parse_number(&value, &number) != NGX_OK || number == 0) {
            return "not a number above 0";
        }

        options->keys_max = (uint64_t) number;
        return NULL;
    }

    if (ngx_http_tallywheel_is(argument, "redis_key", &value)) {
        options->redis_key = (char *) value.data;
        return NULL;
    }

    if (argument->len == 6 && ngx_strncmp(argument->data, "shadow", 6) == 0) {
        options->shadow = true;
        return NULL;
    }

    return "the parameters are window=, mode=, shape=, burst=, outage=, grace=, keys=, memory=, full=, redis_key= "
           "and shadow";
}


char *
ngx_http_tallywheel_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_tallywheel_main_conf_t  *mcf = conf;

    ngx_str_t                    *argument;
    const char                   *expected;
    ngx_uint_t                    i;
    ngx_http_tallywheel_zone_t   *zone, **slot;

    argument = cf->args->elts;
    slot = mcf->zones.elts;

    for (i = 0; i < mcf->zones.nelts; i++) {
        if (slot[i]->name.len == argument[1].len
            && ngx_strncmp(slot[i]->name.data, argument[1].data, argument[1].len) == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "tallywheel_zone \"%V\" is already in %V:%ui",
                               &argument[1], &slot[i]->place.file, slot[i]->place.line);
            return NGX_CONF_ERROR;
        }
    }

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_http_tallywheel_zone_t));
    slot = ngx_array_push(&mcf->zones);
    if (zone == NULL || slot == NULL) {
        return NGX_CONF_ERROR;
    }

    *slot = zone;
    zone->name = argument[1];
    ngx_http_tallywheel_here(cf, &zone->place);

    tw_family_options_init(&zone->options);
    zone->options.name = (char *) argument[1].data;
    zone->options.window_ms = TW_MINUTE;
    zone->options.on_busy = TW_BUSY_AS_OUTAGE;   /* outage= decides for a slow Redis, too */

    for (i = 2; i < cf->args->nelts; i++) {
        expected = ngx_http_tallywheel_full_parameter(&argument[i], zone);
        if (expected && *expected == '\0') {
            expected = ngx_http_tallywheel_zone_parameter(&argument[i], &zone->options);
        }

        if (expected) {
            return ngx_http_tallywheel_invalid(cf, &argument[i], expected);
        }
    }

    if (zone->options.window != TW_WINDOW_ALIGNED) {
        zone->options.window_ms = 0;
    }

    return NGX_CONF_OK;
}


/* invalid= */
static const ngx_http_tallywheel_word_t  ngx_http_tallywheel_answers[] = {
    { "admit", 0 },
    { "deny", 1 },
    { NULL, 0 }
};


/* A text with variables, or a number. The word "off" is no limit, TW_UNBOUNDED. */
static const char *
ngx_http_tallywheel_compile(ngx_conf_t *cf, ngx_str_t *source, ngx_http_tallywheel_number_t *number)
{
    u_char  *end;

    if (ngx_http_script_variables_count(source) == 0) {
        end = ngx_pnalloc(cf->pool, NGX_INT64_LEN);

        if (end == NULL || ngx_http_tallywheel_parse_number(source, &number->number) != NGX_OK) {
            return "not a number";
        }

        end += NGX_INT64_LEN;
        number->shown.data = ngx_http_tallywheel_write_number(end, number->number);
        number->shown.len = (size_t) (end - number->shown.data);

        return NULL;
    }

    if (ngx_http_tallywheel_is_never_number(source)) {
        return "it can never be a number";
    }

    number->source = *source;
    number->text = ngx_palloc(cf->pool, sizeof(ngx_http_tallywheel_text_t));

    return (number->text && ngx_http_tallywheel_compile_text(cf, source, number->text) == NGX_OK)
           ? NULL : "not a value";
}


/* refund=5xx,404 */
static const char *
ngx_http_tallywheel_refund(ngx_conf_t *cf, ngx_str_t *list, ngx_http_tallywheel_rule_t *rule)
{
    u_char      *p, *end, *comma;
    ngx_int_t    code;
    ngx_uint_t  *slot;

    rule->refund = ngx_array_create(cf->pool, 4, sizeof(ngx_uint_t));
    end = list->data + list->len;

    for (p = list->data; p <= end && rule->refund; p = comma + 1) {
        comma = ngx_strlchr(p, end, ',');
        if (comma == NULL) {
            comma = end;
        }

        if (comma - p != 3) {
            return "the refund is a list of statuses, such as 5xx,404";
        }

        code = (p[1] == 'x' && p[2] == 'x') ? ngx_atoi(p, 1) : ngx_atoi(p, 3);
        if (!((code >= 1 && code <= 5) || (code >= 100 && code <= 599))) {
            return "the refund is a list of statuses, such as 5xx,404";
        }

        slot = ngx_array_push(rule->refund);
        if (slot == NULL) {
            return "no memory";
        }

        *slot = (ngx_uint_t) code;
    }

    return rule->refund ? NULL : "no memory";
}


/* One parameter of a rule. Returns NULL, or the words that are expected. */
static const char *
ngx_http_tallywheel_rule_parameter(ngx_conf_t *cf, ngx_str_t *argument, ngx_http_tallywheel_rule_t *rule)
{
    ngx_int_t                         number;
    ngx_str_t                         value;
    uint32_t                          denies;
    ngx_http_tallywheel_main_conf_t  *mcf;

    static const char *const  use[] = {
        "the parameters are n=, status=, outage_status=, wait=, queue=, refund= and invalid=",
        "the parameters are status=, outage_status= and invalid=",
        "the only parameter is n="
    };

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_tallywheel_module);

    if (rule->kind != NGX_HTTP_TALLYWHEEL_HOLD && ngx_http_tallywheel_is(argument, "n", &value)) {
        return ngx_http_tallywheel_compile(cf, &value, &rule->n);
    }

    if (rule->kind != NGX_HTTP_TALLYWHEEL_COUNT && ngx_http_tallywheel_is(argument, "status", &value)) {
        number = ngx_atoi(value.data, value.len);
        rule->status = (ngx_uint_t) number;
        return (number >= 400 && number <= 599) ? NULL : "the status is a number from 400 to 599";
    }

    if (rule->kind != NGX_HTTP_TALLYWHEEL_COUNT && ngx_http_tallywheel_is(argument, "outage_status", &value)) {
        number = ngx_atoi(value.data, value.len);
        rule->outage_status = (ngx_uint_t) number;
        return (number >= 400 && number <= 599) ? NULL : "the status is a number from 400 to 599";
    }

    if (rule->kind != NGX_HTTP_TALLYWHEEL_COUNT && ngx_http_tallywheel_is(argument, "invalid", &value)) {
        if (ngx_http_tallywheel_word(&value, ngx_http_tallywheel_answers, &denies) != NGX_OK) {
            return "the answer is deny or admit";
        }

        rule->denies_invalid = denies;
        return NULL;
    }

    if (rule->kind == NGX_HTTP_TALLYWHEEL_LIMIT && ngx_http_tallywheel_is(argument, "wait", &value)) {
        number = ngx_parse_time(&value, 0);
        rule->wait = (ngx_msec_t) number;
        mcf->is_queued = 1;
        return (number > 0 && number <= 600000) ? NULL : "the wait is a time of at most 10m, such as 200ms";
    }

    if (rule->kind == NGX_HTTP_TALLYWHEEL_LIMIT && ngx_http_tallywheel_is(argument, "queue", &value)) {
        number = ngx_atoi(value.data, value.len);
        rule->queue = (ngx_uint_t) number;
        return (number > 0 && number <= NGX_HTTP_TALLYWHEEL_QUEUE_MAX)
               ? NULL : "the queue is a number from 1 to 1000000";
    }

    if (rule->kind == NGX_HTTP_TALLYWHEEL_LIMIT && ngx_http_tallywheel_is(argument, "refund", &value)) {
        mcf->is_counted = 1;
        mcf->is_refunded = 1;
        return ngx_http_tallywheel_refund(cf, &value, rule);
    }

    return use[rule->kind];
}


static ngx_uint_t
ngx_http_tallywheel_is_off(ngx_str_t *argument)
{
    return argument->len == 3 && ngx_strncmp(argument->data, "off", 3) == 0;
}


/* "tallywheel_limit off": no rules of this kind here, whatever the level above has. They are an array without rules. */
static char *
ngx_http_tallywheel_rules_off(ngx_conf_t *cf, ngx_array_t **rules)
{
    ngx_str_t  *argument = cf->args->elts;

    if (!ngx_http_tallywheel_is_off(&argument[1])) {
        return "needs a zone, a key and a limit, or off";
    }

    if (*rules) {
        return (*rules)->nelts ? "is off, and has a rule in the same place" : "is duplicate";
    }

    *rules = ngx_array_create(cf->pool, 1, sizeof(ngx_http_tallywheel_rule_t *));

    return *rules ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_tallywheel_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_tallywheel_loc_conf_t  *lcf = conf;

    ngx_str_t                        *argument;
    const char                       *expected;
    ngx_uint_t                        i, first;
    ngx_http_tallywheel_rule_t       *rule, **slot, **all;
    ngx_http_tallywheel_main_conf_t  *mcf;

    argument = cf->args->elts;
    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_tallywheel_module);

    if (cf->args->nelts == 2) {
        return ngx_http_tallywheel_rules_off(cf, &lcf->rules[cmd->offset]);
    }

    if (lcf->rules[cmd->offset] && lcf->rules[cmd->offset]->nelts == 0) {
        return "is off, and has a rule in the same place";
    }

    rule = ngx_pcalloc(cf->pool, sizeof(ngx_http_tallywheel_rule_t));

    if (lcf->rules[cmd->offset] == NULL) {
        lcf->rules[cmd->offset] = ngx_array_create(cf->pool, 2, sizeof(ngx_http_tallywheel_rule_t *));
    }

    if (rule == NULL || lcf->rules[cmd->offset] == NULL) {
        return NGX_CONF_ERROR;
    }

    if (lcf->rules[cmd->offset]->nelts == TW_CLAIMS_MAX) {
        return "is used more than 64 times here";
    }

    slot = ngx_array_push(lcf->rules[cmd->offset]);
    all = ngx_array_push(&mcf->rules);
    if (slot == NULL || all == NULL) {
        return NGX_CONF_ERROR;
    }

    *slot = *all = rule;
    rule->kind = (ngx_http_tallywheel_kind_e) cmd->offset;
    rule->zone_name = argument[1];
    rule->n.number = 1;
    rule->status = (rule->kind == NGX_HTTP_TALLYWHEEL_LIMIT) ? NGX_HTTP_TOO_MANY_REQUESTS
                                                             : NGX_HTTP_SERVICE_UNAVAILABLE;
    rule->outage_status = NGX_HTTP_SERVICE_UNAVAILABLE;
    ngx_http_tallywheel_here(cf, &rule->place);

    if (rule->kind == NGX_HTTP_TALLYWHEEL_COUNT) {
        mcf->is_counted = 1;
    } else {
        mcf->is_limited = 1;
    }

    expected = ngx_http_tallywheel_compile_key(cf, &argument[2], rule);
    if (expected) {
        return ngx_http_tallywheel_invalid(cf, &argument[2], expected);
    }

    first = 3;

    if (rule->kind != NGX_HTTP_TALLYWHEEL_COUNT) {
        if (cf->args->nelts < 4) {
            return "needs a zone, a key and a limit";
        }

        first = 4;

        if (ngx_http_tallywheel_is_off(&argument[3])) {
            rule->limit.number = TW_UNBOUNDED;

        } else {
            expected = ngx_http_tallywheel_compile(cf, &argument[3], &rule->limit);
            if (expected) {
                return ngx_http_tallywheel_invalid(cf, &argument[3], "the limit is a number, a variable or off, "
                                                   "and comes behind the key");
            }
        }
    }

    for (i = first; i < cf->args->nelts; i++) {
        expected = ngx_http_tallywheel_rule_parameter(cf, &argument[i], rule);
        if (expected) {
            return ngx_http_tallywheel_invalid(cf, &argument[i], expected);
        }
    }

    ngx_http_tallywheel_warn_of_twins(cf, lcf->rules[cmd->offset], rule);

    return (rule->queue && !rule->wait) ? "has queue= without wait=, so nobody waits" : NGX_CONF_OK;
}


char *
ngx_http_tallywheel_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_tallywheel_metrics_handler;

    return NGX_CONF_OK;
}
