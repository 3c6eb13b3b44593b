/* ngx_http_tallywheel.h -- the types that the files of the module share, which are the configuration, the engines of a
 * process, and the decision on a request.
 * Always true: a configuration is written while nginx reads it, and never again. An engine lives as long as a
 * configuration of this process uses it. */
#ifndef NGX_HTTP_TALLYWHEEL_H
#define NGX_HTTP_TALLYWHEEL_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_http.h>
#include <tallywheel.h>


typedef struct ngx_http_tallywheel_engine_s  ngx_http_tallywheel_engine_t;

/* Where a directive is. */
typedef struct {
    ngx_str_t                      file;
    ngx_uint_t                     line;
} ngx_http_tallywheel_place_t;

/* A zone in an engine. It outlives the configuration that opened it, so the strings are the engine's. */
typedef struct {
    tw_family_options              options;
    tw_family                     *family;
} ngx_http_tallywheel_family_t;

/* tallywheel_zone */
typedef struct {
    ngx_str_t                      name;
    ngx_http_tallywheel_place_t    place;
    tw_family_options              options;
    ngx_uint_t                     has_slots;  /* of tallywheel_hold, in Redis */
    ngx_http_tallywheel_engine_t  *engine;
    ngx_http_tallywheel_family_t  *family;
} ngx_http_tallywheel_zone_t;

/* tallywheel_redis and tallywheel_memory. C strings, or NULL. */
typedef struct {
    char                          *url;
    char                          *prefix;
    char                          *password_file;
    char                          *ca;
    char                          *cert;
    char                          *key;
    char                          *name;
    ngx_msec_t                     timeout;
    ngx_msec_t                     interval;
    size_t                         memory;
} ngx_http_tallywheel_server_t;

typedef enum {
    NGX_HTTP_TALLYWHEEL_LIMIT = 0,
    NGX_HTTP_TALLYWHEEL_HOLD,
    NGX_HTTP_TALLYWHEEL_COUNT,
    NGX_HTTP_TALLYWHEEL_KINDS
} ngx_http_tallywheel_kind_e;

/* A number that is known when the configuration is read, or a text with variables. */
typedef struct {
    ngx_http_complex_value_t      *text;
    int64_t                        number;
} ngx_http_tallywheel_number_t;

/* tallywheel_limit, tallywheel_hold or tallywheel_count */
typedef struct {
    ngx_http_tallywheel_kind_e     kind;
    ngx_http_tallywheel_place_t    place;
    ngx_str_t                      zone_name;
    ngx_http_tallywheel_zone_t    *zone;
    ngx_http_complex_value_t       key;
    ngx_int_t                      variable; /* the key is only this variable, by its index; otherwise negative */
    ngx_http_tallywheel_number_t   limit;
    ngx_http_tallywheel_number_t   n;
    ngx_uint_t                     status;
    ngx_msec_t                     wait;
    ngx_uint_t                     is_text;  /* its limit or n has variables */
    ngx_uint_t                     joins;    /* it admits together with others, or not at all */
    ngx_uint_t                     waits;    /* it comes after all limits that are decided at once */
    ngx_uint_t                     parks;    /* and the request may wait for the answer */
    ngx_array_t                   *refund;   /* of ngx_uint_t: 502, or 5 for every 5xx */
} ngx_http_tallywheel_rule_t;

typedef struct {
    ngx_http_tallywheel_server_t   server;
    ngx_http_tallywheel_place_t    server_place;
    ngx_http_tallywheel_place_t    memory_place;
    ngx_array_t                    zones;    /* of ngx_http_tallywheel_zone_t * */
    ngx_array_t                    rules;    /* of ngx_http_tallywheel_rule_t * */
    ngx_array_t                    engines;  /* of ngx_http_tallywheel_engine_t *; that it uses */
    ngx_int_t                      variable; /* the index of the variable that keeps a decision */
    ngx_flag_t                     is_limited;
    ngx_flag_t                     is_shown;     /* a location has headers */
    ngx_flag_t                     is_counted;   /* there is something to do when a request is over */
} ngx_http_tallywheel_main_conf_t;

typedef struct {
    ngx_array_t                   *rules[NGX_HTTP_TALLYWHEEL_KINDS];
    ngx_uint_t                     headers;
    ngx_uint_t                     log_level;

    /* Computed once from the rules above. */
    ngx_http_tallywheel_rule_t   **deciders; /* limits, then slots */
    ngx_uint_t                     most;     /* how many */
    ngx_uint_t                     waits;    /* one of them waits */
    ngx_uint_t                     parks;    /* one of them may let the request wait for its answer */
    ngx_uint_t                     refunds;  /* one of them has refund= */
    ngx_uint_t                     is_alone; /* it is only one, without shadow mode, and no request waits for it */
} ngx_http_tallywheel_loc_conf_t;

struct ngx_http_tallywheel_engine_s {
    ngx_queue_t                    queue;    /* of all engines of this process */
    ngx_pool_t                    *pool;     /* of the engine's life */
    ngx_uint_t                     number;   /* the label "engine" of its metrics */
    ngx_uint_t                     uses;     /* configurations of this process */
    ngx_uint_t                     parked;   /* requests that wait for an answer here */
    ngx_http_tallywheel_server_t   server;
    ngx_str_t                      password; /* as it was when the configuration was read */
    ngx_array_t                    families; /* of ngx_http_tallywheel_family_t */
    tw_engine                     *engine;   /* NULL if each worker opens one */
    ngx_uint_t                     alone;    /* each worker opens one */
    const char                    *refused;  /* NULL, or why the workers cannot share one */
    ngx_connection_t              *connection;
    ngx_event_t                    timer;
    ngx_event_t                    turn;
};

/* A rule of the location, with the values of this request. */
typedef struct {
    ngx_http_tallywheel_rule_t      *rule;
    tw_family                       *family;
    tw_key                           key;
    int64_t                          limit;
    int64_t                          n;
    int64_t                          start_ms;   /* of the window that the units are from */
    unsigned                         taken:1;
    unsigned                         fixed:1;    /* start_ms is known */
} ngx_http_tallywheel_entry_t;

/* Of a request that may wait. */
typedef struct {
    ngx_event_t                      event;
    tw_request                       call;
} ngx_http_tallywheel_wait_t;

typedef struct {
    ngx_http_request_t              *request;
    ngx_http_tallywheel_loc_conf_t  *conf;
    ngx_http_tallywheel_entry_t     *entries;
    ngx_uint_t                       count;
    ngx_uint_t                       next;       /* the entry that waits, or will be looked at next */
    ngx_http_tallywheel_wait_t      *wait;       /* NULL if the request cannot wait */
    ngx_http_tallywheel_rule_t      *decider;    /* whose verdict is shown; NULL if no rule had a key */
    const char                      *status;
    unsigned                         parked:1;
    unsigned                         answered:1;
    unsigned                         decided:1;
    unsigned                         denied:1;
    unsigned                         shadow:1;   /* a zone in shadow mode has decided */
    unsigned                         shadow_denied:1;
    tw_verdict                       verdict;    /* not zeroed at first */
} ngx_http_tallywheel_ctx_t;


extern ngx_module_t  ngx_http_tallywheel_module;

/* directives.c */
char *ngx_http_tallywheel_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_tallywheel_memory(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_tallywheel_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_tallywheel_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_tallywheel_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* engine.c */
#define NGX_HTTP_TALLYWHEEL_CLOSE_MS  1000   /* to send counts that are not in Redis yet */
char *ngx_http_tallywheel_open(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf);
tw_status ngx_http_tallywheel_open_engine(ngx_http_tallywheel_engine_t *e, uint32_t shared,
    ngx_http_tallywheel_family_t **refused);
void ngx_http_tallywheel_close_engine(ngx_http_tallywheel_engine_t *e, uint32_t timeout);

/* sentences.c */
const char *ngx_http_tallywheel_sentence(ngx_pool_t *pool, const char *text);

/* worker.c */
void ngx_http_tallywheel_post_turn(ngx_http_tallywheel_engine_t *e);
void ngx_http_tallywheel_count_parked(ngx_http_tallywheel_engine_t *e, ngx_int_t more);
void ngx_http_tallywheel_leave_loop(ngx_http_tallywheel_engine_t *e);
ngx_int_t ngx_http_tallywheel_init_module(ngx_cycle_t *cycle);
ngx_int_t ngx_http_tallywheel_init_process(ngx_cycle_t *cycle);
void ngx_http_tallywheel_exit_process(ngx_cycle_t *cycle);

/* values.c */
ngx_int_t ngx_http_tallywheel_parse_number(ngx_str_t *text, int64_t *number);
ngx_int_t ngx_http_tallywheel_number(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule,
    ngx_http_tallywheel_number_t *from, int64_t none, int64_t *number);
ngx_int_t ngx_http_tallywheel_make_key(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule, tw_key *key);
ngx_int_t ngx_http_tallywheel_shorten_key(ngx_http_request_t *r, tw_key *key);
ngx_int_t ngx_http_tallywheel_add_entries(ngx_http_tallywheel_ctx_t *ctx);

/* request.c */
ngx_int_t ngx_http_tallywheel_add_phases(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf);

/* show.c */
void ngx_http_tallywheel_add_filter(void);
ngx_int_t ngx_http_tallywheel_add_variables(ngx_conf_t *cf);

/* metrics.c */
ngx_int_t ngx_http_tallywheel_metrics_handler(ngx_http_request_t *r);


static ngx_inline ngx_int_t
ngx_http_tallywheel_key(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule, tw_key *key)
{
    ngx_http_variable_value_t  *value;

    if (rule->variable < 0) {
        return ngx_http_tallywheel_make_key(r, rule, key);
    }

    value = &r->variables[rule->variable];

    if (!value->valid || value->no_cacheable) {
        value = ngx_http_get_flushed_variable(r, (ngx_uint_t) rule->variable);

        if (value == NULL || value->not_found) {
            *key = tw_bytes(NULL, 0);
            return NGX_OK;
        }
    }

    *key = tw_bytes(value->data, value->len);

    return (key->size <= TW_KEY_SIZE_MAX) ? NGX_OK : ngx_http_tallywheel_shorten_key(r, key);
}


/* The decision on the request, or NULL if it came to no location with limits yet. A variable keeps it, because an
 * internal redirect clears the contexts of modules, but no variable. */
static ngx_inline ngx_http_tallywheel_ctx_t *
ngx_http_tallywheel_get_ctx(ngx_http_request_t *r)
{
    ngx_http_tallywheel_main_conf_t  *mcf;

    mcf = ngx_http_get_module_main_conf(r, ngx_http_tallywheel_module);

    return (ngx_http_tallywheel_ctx_t *) r->main->variables[mcf->variable].data;
}


#endif
