/* ngx_http_tallywheel_module.c -- the table of directives, and inheritance.
 * Always true: a location has the rules of one level only. If it has no rule of a kind, and is not "off", it has those
 * of the level above. */
#include "ngx_http_tallywheel.h"


static void *ngx_http_tallywheel_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_tallywheel_init_main_conf(ngx_conf_t *cf, void *conf);
static void *ngx_http_tallywheel_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_tallywheel_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
static ngx_int_t ngx_http_tallywheel_postconfiguration(ngx_conf_t *cf);


static ngx_conf_enum_t  ngx_http_tallywheel_headers[] = {
    { ngx_string("off"), NGX_HTTP_TALLYWHEEL_HEADERS_OFF },
    { ngx_string("ratelimit"), NGX_HTTP_TALLYWHEEL_HEADERS_RATELIMIT },
    { ngx_string("draft"), NGX_HTTP_TALLYWHEEL_HEADERS_DRAFT },
    { ngx_string("x"), NGX_HTTP_TALLYWHEEL_HEADERS_X },
    { ngx_null_string, 0 }
};


static ngx_conf_enum_t  ngx_http_tallywheel_log_levels[] = {
    { ngx_string("info"), NGX_LOG_INFO },
    { ngx_string("notice"), NGX_LOG_NOTICE },
    { ngx_string("warn"), NGX_LOG_WARN },
    { ngx_string("error"), NGX_LOG_ERR },
    { ngx_null_string, 0 }
};


#define NGX_HTTP_TALLYWHEEL_ANY_CONF  NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF


static ngx_command_t  ngx_http_tallywheel_commands[] = {

    { ngx_string("tallywheel_redis"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_tallywheel_redis,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("tallywheel_memory"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_tallywheel_memory,
      NGX_HTTP_MAIN_CONF_OFFSET,
      offsetof(ngx_http_tallywheel_main_conf_t, server.memory),
      NULL },

    { ngx_string("tallywheel_watch"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE12,
      ngx_http_tallywheel_watch,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("tallywheel_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_tallywheel_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("tallywheel_limit"),
      NGX_HTTP_TALLYWHEEL_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_tallywheel_rule,
      NGX_HTTP_LOC_CONF_OFFSET,
      NGX_HTTP_TALLYWHEEL_LIMIT,
      NULL },

    { ngx_string("tallywheel_hold"),
      NGX_HTTP_TALLYWHEEL_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_tallywheel_rule,
      NGX_HTTP_LOC_CONF_OFFSET,
      NGX_HTTP_TALLYWHEEL_HOLD,
      NULL },

    { ngx_string("tallywheel_count"),
      NGX_HTTP_TALLYWHEEL_ANY_CONF|NGX_CONF_1MORE,
      ngx_http_tallywheel_rule,
      NGX_HTTP_LOC_CONF_OFFSET,
      NGX_HTTP_TALLYWHEEL_COUNT,
      NULL },

    { ngx_string("tallywheel_headers"),
      NGX_HTTP_TALLYWHEEL_ANY_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_tallywheel_loc_conf_t, headers),
      &ngx_http_tallywheel_headers },

    { ngx_string("tallywheel_log_level"),
      NGX_HTTP_TALLYWHEEL_ANY_CONF|NGX_CONF_TAKE1,
      ngx_conf_set_enum_slot,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_tallywheel_loc_conf_t, log_level),
      &ngx_http_tallywheel_log_levels },

    { ngx_string("tallywheel_metrics"),
      NGX_HTTP_LOC_CONF|NGX_CONF_NOARGS,
      ngx_http_tallywheel_metrics,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_tallywheel_module_ctx = {
    ngx_http_tallywheel_add_variables,         /* preconfiguration */
    ngx_http_tallywheel_postconfiguration,     /* postconfiguration */

    ngx_http_tallywheel_create_main_conf,      /* create main configuration */
    ngx_http_tallywheel_init_main_conf,        /* init main configuration */

    NULL,                                      /* create server configuration */
    NULL,                                      /* merge server configuration */

    ngx_http_tallywheel_create_loc_conf,       /* create location configuration */
    ngx_http_tallywheel_merge_loc_conf         /* merge location configuration */
};


ngx_module_t  ngx_http_tallywheel_module = {
    NGX_MODULE_V1,
    &ngx_http_tallywheel_module_ctx,           /* module context */
    ngx_http_tallywheel_commands,              /* module directives */
    NGX_HTTP_MODULE,                           /* module type */
    NULL,                                      /* init master */
    ngx_http_tallywheel_init_module,           /* init module */
    ngx_http_tallywheel_init_process,          /* init process */
    NULL,                                      /* init thread */
    NULL,                                      /* exit thread */
    ngx_http_tallywheel_exit_process,          /* exit process */
    NULL,                                      /* exit master */
    NGX_MODULE_V1_PADDING
};


static void *
ngx_http_tallywheel_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_tallywheel_main_conf_t  *mcf;

    mcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_tallywheel_main_conf_t));
    if (mcf == NULL) {
        return NULL;
    }

    mcf->server.memory = NGX_CONF_UNSET_SIZE;

    if (ngx_array_init(&mcf->zones, cf->pool, 4, sizeof(ngx_http_tallywheel_zone_t *)) != NGX_OK
        || ngx_array_init(&mcf->rules, cf->pool, 4, sizeof(ngx_http_tallywheel_rule_t *)) != NGX_OK
        || ngx_array_init(&mcf->engines, cf->pool, 2, sizeof(ngx_http_tallywheel_engine_t *)) != NGX_OK)
    {
        return NULL;
    }

    return mcf;
}


static char *
ngx_http_tallywheel_init_main_conf(ngx_conf_t *cf, void *conf)
{
    ngx_http_tallywheel_main_conf_t  *mcf = conf;

    ngx_uint_t                    i, k;
    ngx_http_tallywheel_rule_t  **rule;
    ngx_http_tallywheel_zone_t  **zone;

    ngx_conf_init_size_value(mcf->server.memory, 64 * 1024 * 1024);

    zone = mcf->zones.elts;
    rule = mcf->rules.elts;

    for (i = 0; i < mcf->rules.nelts; i++) {
        for (k = 0; k < mcf->zones.nelts && rule[i]->zone == NULL; k++) {
            if (zone[k]->name.len == rule[i]->zone_name.len
                && ngx_strncmp(zone[k]->name.data, rule[i]->zone_name.data, zone[k]->name.len) == 0)
            {
                rule[i]->zone = zone[k];
            }
        }

        if (rule[i]->zone == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "no tallywheel_zone has the name \"%V\" in %V:%ui",
                          &rule[i]->zone_name, &rule[i]->place.file, rule[i]->place.line);
            return NGX_CONF_ERROR;
        }

        if (rule[i]->kind == NGX_HTTP_TALLYWHEEL_HOLD && mcf->server.url) {
            rule[i]->zone->has_slots = 1;
        }

        rule[i]->parks = (rule[i]->wait || rule[i]->zone->options.limit_mode == TW_LIMIT_STRICT
                          || (rule[i]->kind == NGX_HTTP_TALLYWHEEL_HOLD && mcf->server.url));
        rule[i]->waits = (rule[i]->kind == NGX_HTTP_TALLYWHEEL_HOLD || rule[i]->parks);
        rule[i]->joins = (!rule[i]->waits && !rule[i]->zone->options.shadow);
        rule[i]->is_text = (rule[i]->limit.text || rule[i]->n.text);

        ngx_http_tallywheel_warn_of_rule(cf, rule[i], mcf->server.url != NULL);
    }

    if (ngx_http_tallywheel_open(cf, mcf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (mcf->server.url && ngx_http_tallywheel_share_outage(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    for (i = 0; i < mcf->rules.nelts; i++) {
        rule[i]->home = rule[i]->zone->family;
    }

    return NGX_CONF_OK;
}


static void *
ngx_http_tallywheel_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_tallywheel_loc_conf_t  *lcf;

    lcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_tallywheel_loc_conf_t));
    if (lcf == NULL) {
        return NULL;
    }

    lcf->headers = NGX_CONF_UNSET_UINT;
    lcf->log_level = NGX_CONF_UNSET_UINT;

    return lcf;
}


/* Rules in the order in which a request is decided: those that join, others that are decided at once, those that wait;
 * limits before slots. */
static void
ngx_http_tallywheel_order(ngx_http_tallywheel_loc_conf_t *conf)
{
    ngx_uint_t                    i, kind, part;
    ngx_array_t                 **rules = conf->rules;
    ngx_http_tallywheel_rule_t   *rule;

    conf->most = 0;

    for (part = 0; part < 3; part++) {
        for (kind = NGX_HTTP_TALLYWHEEL_LIMIT; kind <= NGX_HTTP_TALLYWHEEL_HOLD; kind++) {
            for (i = 0; rules[kind] && i < rules[kind]->nelts; i++) {
                rule = ((ngx_http_tallywheel_rule_t **) rules[kind]->elts)[i];

                if (part == (rule->joins ? 0u : rule->waits ? 2u : 1u)) {
                    conf->deciders[conf->most++] = rule;
                }
            }
        }
    }
}


static ngx_int_t
ngx_http_tallywheel_sum_up(ngx_conf_t *cf, ngx_http_tallywheel_loc_conf_t *conf)
{
    ngx_uint_t                   i, kind;
    ngx_http_tallywheel_rule_t  *rule;

    for (kind = NGX_HTTP_TALLYWHEEL_LIMIT; kind <= NGX_HTTP_TALLYWHEEL_HOLD; kind++) {
        conf->most += conf->rules[kind] ? conf->rules[kind]->nelts : 0;
    }

    conf->deciders = ngx_palloc(cf->pool, conf->most * sizeof(ngx_http_tallywheel_rule_t *));
    if (conf->deciders == NULL) {
        return NGX_ERROR;
    }

    ngx_http_tallywheel_order(conf);

    for (i = 0; i < conf->most; i++) {
        rule = conf->deciders[i];
        conf->waits |= rule->waits;
        conf->parks |= rule->parks;
        conf->refunds |= (rule->refund != NULL);
    }

    conf->returns = (conf->waits || conf->refunds);

    if (conf->most == 1) {
        rule = conf->deciders[0];
        conf->is_simple = (!rule->parks && !rule->zone->options.shadow && !conf->refunds && !rule->is_text
                           && rule->limit.number != TW_UNBOUNDED && rule->n.number != 0);
    }

    conf->size = sizeof(ngx_http_tallywheel_ctx_t)
                 + (conf->is_simple ? 0 : conf->most * (sizeof(tw_claim) + sizeof(ngx_http_tallywheel_entry_t)))
                 + (conf->parks ? sizeof(ngx_http_tallywheel_wait_t) : 0);

    return NGX_OK;
}


static char *
ngx_http_tallywheel_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_tallywheel_loc_conf_t  *prev = parent;
    ngx_http_tallywheel_loc_conf_t  *conf = child;

    ngx_uint_t                        i;
    ngx_http_tallywheel_main_conf_t  *mcf;

    for (i = 0; i < NGX_HTTP_TALLYWHEEL_KINDS; i++) {
        if (conf->rules[i] == NULL) {
            conf->rules[i] = prev->rules[i];
        }
    }

    if (ngx_http_tallywheel_sum_up(cf, conf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    mcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_tallywheel_module);

    if (mcf->is_refunded && ngx_http_tallywheel_watch_answers(cf) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_conf_merge_uint_value(conf->headers, prev->headers, 0);
    ngx_conf_merge_uint_value(conf->log_level, prev->log_level, NGX_LOG_NOTICE);

    if (conf->headers) {
        mcf->is_shown = 1;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_tallywheel_postconfiguration(ngx_conf_t *cf)
{
    return ngx_http_tallywheel_add_phases(cf,
               ngx_http_conf_get_module_main_conf(cf, ngx_http_tallywheel_module));
}
