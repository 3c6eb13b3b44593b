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
#include <pthread.h>
#include <tallywheel.h>


typedef struct ngx_http_tallywheel_engine_s  ngx_http_tallywheel_engine_t;
typedef struct ngx_http_tallywheel_pause_s   ngx_http_tallywheel_pause_t;
typedef struct ngx_http_tallywheel_heirs_s   ngx_http_tallywheel_heirs_t;

/* Where a directive is. */
typedef struct {
    ngx_str_t                      file;
    ngx_uint_t                     line;
} ngx_http_tallywheel_place_t;

/* A zone in an engine. It outlives the configuration that opened it, so the strings are the engine's. */
typedef struct {
    tw_family_options              options;
    tw_family                     *family;
    uint64_t                       share;        /* the part of the memory that it was opened with (full.c) */
    int64_t                        start_ms;     /* of the window that this worker has seen last */
    ngx_msec_t                     known_until;  /* ngx_current_msec; so long that window is open */
    int64_t                        uncounted;    /* requests that this worker could not count (full.c) */
    ngx_msec_t                     said_full;    /* ngx_current_msec when the log said so last */
} ngx_http_tallywheel_family_t;

/* full= of a zone */
typedef enum {
    NGX_HTTP_TALLYWHEEL_FULL_UNSET = 0,
    NGX_HTTP_TALLYWHEEL_FULL_EVICT,
    NGX_HTTP_TALLYWHEEL_FULL_DENY,
    NGX_HTTP_TALLYWHEEL_FULL_ADMIT
} ngx_http_tallywheel_full_e;

/* tallywheel_zone */
typedef struct {
    ngx_str_t                      name;
    ngx_http_tallywheel_place_t    place;
    tw_family_options              options;
    ngx_http_tallywheel_full_e     full;
    ngx_uint_t                     has_slots;  /* of tallywheel_hold, in Redis */
    ngx_uint_t                     kept;       /* its counts are those of the configuration before */
    ngx_uint_t                     changed;    /* and its policies are others */
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

/* tallywheel_headers */
typedef enum {
    NGX_HTTP_TALLYWHEEL_HEADERS_OFF = 0,
    NGX_HTTP_TALLYWHEEL_HEADERS_RATELIMIT,
    NGX_HTTP_TALLYWHEEL_HEADERS_DRAFT,
    NGX_HTTP_TALLYWHEEL_HEADERS_X
} ngx_http_tallywheel_headers_e;

/* A literal, and the variable behind it. */
typedef struct {
    ngx_str_t                      literal;
    ngx_int_t                      variable; /* its index, or negative */
} ngx_http_tallywheel_part_t;

/* A text with variables. */
typedef struct {
    ngx_int_t                      variable; /* the text is only this one, by its index; otherwise negative */
    ngx_uint_t                     count;    /* 0: only nginx can evaluate it */
    ngx_http_tallywheel_part_t    *parts;
    ngx_http_complex_value_t       value;
} ngx_http_tallywheel_text_t;

/* A number that is known when the configuration is read, or a text with variables. */
typedef struct {
    ngx_http_tallywheel_text_t    *text;
    int64_t                        number;
    ngx_str_t                      shown;    /* the number's digits, without a text */
    ngx_str_t                      source;   /* as the directive has it, with a text */
} ngx_http_tallywheel_number_t;

/* net(TEXT,BITS4,BITS6) */
typedef struct {
    ngx_http_tallywheel_text_t     text;
    unsigned                       bits4;
    unsigned                       bits6;
} ngx_http_tallywheel_network_t;

/* tallywheel_limit, tallywheel_hold or tallywheel_count */
typedef struct {
    ngx_http_tallywheel_kind_e     kind;
    ngx_http_tallywheel_place_t    place;
    ngx_str_t                      zone_name;
    ngx_http_tallywheel_zone_t    *zone;
    ngx_http_tallywheel_family_t  *home;     /* of the zone */
    ngx_http_tallywheel_text_t     key;
    ngx_http_tallywheel_network_t *network;  /* the key is the network of this text, or NULL */
    ngx_str_t                      key_source; /* as the directive has it */
    ngx_http_tallywheel_number_t   limit;
    ngx_http_tallywheel_number_t   n;
    ngx_uint_t                     status;
    ngx_msec_t                     wait;
    ngx_uint_t                     queue;    /* so many requests of a key may wait, or 0 */
    ngx_uint_t                     is_text;  /* its limit or n has variables */
    ngx_uint_t                     denies_invalid; /* a request whose limit or n is no number; otherwise it passes */
    ngx_uint_t                     joins;    /* it admits together with others, or not at all */
    ngx_uint_t                     waits;    /* it comes after all limits that are decided at once */
    ngx_uint_t                     parks;    /* and the request may wait for the answer */
    ngx_array_t                   *refund;   /* of ngx_uint_t: 502, or 5 for every 5xx */
    ngx_uint_t                     outage_status; /* of a denial without an answer about the limit */
} ngx_http_tallywheel_rule_t;

typedef struct {
    ngx_http_tallywheel_server_t   server;
    ngx_http_tallywheel_place_t    server_place;
    ngx_http_tallywheel_place_t    memory_place;
    ngx_array_t                    zones;    /* of ngx_http_tallywheel_zone_t * */
    ngx_array_t                    rules;    /* of ngx_http_tallywheel_rule_t * */
    ngx_array_t                    engines;  /* of ngx_http_tallywheel_engine_t *; that it uses */
    ngx_uint_t                     number;   /* the configurations of this master are numbered from 1 */
    ngx_int_t                      variable; /* the index of the variable that keeps a decision */
    ngx_str_t                      watch_path;   /* of tallywheel_watch; ends with a NUL */
    ngx_uint_t                     watch_writes;
    ngx_flag_t                     is_limited;
    ngx_flag_t                     is_shown;     /* a location has headers */
    ngx_flag_t                     is_counted;   /* there is something to do when a request is over */
    ngx_flag_t                     is_queued;    /* a rule has wait= */
    ngx_flag_t                     is_refunded;  /* a rule has refund= */
} ngx_http_tallywheel_main_conf_t;

typedef struct {
    ngx_array_t                   *rules[NGX_HTTP_TALLYWHEEL_KINDS];
    ngx_uint_t                     headers;  /* ngx_http_tallywheel_headers_e */
    ngx_uint_t                     log_level;

    /* Computed once from the rules above. */
    ngx_http_tallywheel_rule_t   **deciders; /* those that join, others that are decided at once, those that wait */
    ngx_uint_t                     most;     /* how many */
    size_t                         size;     /* of the memory for a decision */
    ngx_uint_t                     waits;    /* one of them waits */
    ngx_uint_t                     parks;    /* one of them may let the request wait for its answer */
    ngx_uint_t                     refunds;  /* one of them has refund= */
    ngx_uint_t                     returns;  /* units or a slot may have to be given back */
    ngx_uint_t                     is_simple; /* it is one, of numbers, without Redis's answer and refund= */
} ngx_http_tallywheel_loc_conf_t;

/* In memory that all workers share. The policies of zones follow the newest configuration that has set them. */
typedef struct {
    pthread_mutex_t                lock;
    ngx_uint_t                     number;   /* of that configuration; under the lock */
} ngx_http_tallywheel_order_t;

struct ngx_http_tallywheel_engine_s {
    ngx_pool_t                    *pool;     /* of the engine's life */
    ngx_uint_t                     number;   /* the label "engine" of its metrics */
    ngx_uint_t                     uses;     /* configurations of this process */
    ngx_uint_t                     parked;   /* requests that wait for an answer here */
    ngx_http_tallywheel_server_t   server;
    ngx_str_t                      password; /* as it was when the configuration was read */
    ngx_array_t                    families; /* of ngx_http_tallywheel_family_t */
    ngx_http_tallywheel_order_t   *order;    /* the master never reads it */
    ngx_uint_t                     pending;  /* this worker has not set the policies of its zones yet (keep.c) */
    ngx_http_tallywheel_heirs_t   *heirs;    /* NULL if no worker has slots in Redis that others can give back */
    tw_engine                     *engine;   /* NULL if each worker opens one */
    ngx_msec_t                     sure_at;  /* ngx_current_msec; until then requests may wait (pause.c) */
    ngx_uint_t                     alone;    /* each worker opens one */
    const char                    *refused;  /* NULL, or why the workers cannot share one */
    ngx_connection_t              *connection;
    ngx_event_t                    timer;
    ngx_event_t                    turn;
};

/* A rule of the location. Its values for this request are in the claim of the same number. */
typedef struct {
    ngx_http_tallywheel_rule_t      *rule;
    int64_t                          start_ms;   /* of the window that the units are from */
    unsigned                         taken:1;    /* units or a slot, and they may have to be given back */
    unsigned                         exact:1;    /* start_ms is certain; otherwise the window may be a later one */
} ngx_http_tallywheel_entry_t;

/* Of a request that may wait. */
typedef struct {
    ngx_event_t                      event;
    tw_request                       call;
    ngx_event_t                      timer;      /* in the queue: when it asks for its units */
    ngx_queue_t                      queue;
    uint64_t                         hash;       /* of the key */
    ngx_msec_t                       gate;       /* the one behind which it waits is served before */
    ngx_msec_t                       deadline;
} ngx_http_tallywheel_wait_t;

typedef struct {
    ngx_uint_t                       count;
    ngx_uint_t                       joined;     /* so many of the first ones admit together, or not at all */
    ngx_uint_t                       next;       /* the entry that waits, or will be looked at next */
    ngx_http_tallywheel_wait_t      *wait;       /* NULL if the request cannot wait */
    ngx_http_tallywheel_pause_t     *pause;      /* NULL until it waits because its engine knows too little */
    ngx_http_tallywheel_rule_t      *decider;    /* whose verdict is shown; NULL if no rule had a key */
    const char                      *status;
    ngx_uint_t                       answer;     /* the status of the first answer, if an error_page replaced it */
    unsigned                         parked:1;   /* the request waits */
    unsigned                         asked:1;    /* a call is under way */
    unsigned                         answered:1;
    unsigned                         hashed:1;   /* of the entry that waits */
    unsigned                         queued:1;   /* it has a place */
    unsigned                         waited:1;   /* it had one */
    unsigned                         again:1;    /* it will be decided again, after a pause */
    unsigned                         decided:1;
    unsigned                         denied:1;
    unsigned                         held:1;     /* a slot of the only rule, if conf->is_simple */
    unsigned                         shadow:1;   /* a zone in shadow mode has decided */
    unsigned                         shadow_denied:1;
    unsigned                         unknown:1;  /* denied without an answer about the limit */
    unsigned                         looked:1;
    unsigned                         unseen:1;   /* it only looked, and nobody here knows the count in Redis yet */
    ngx_http_request_t              *request;    /* this and what follows are not zeroed at first */
    ngx_http_tallywheel_loc_conf_t  *conf;
    tw_claim                        *claims;     /* these two are not set if conf->is_simple */
    ngx_http_tallywheel_entry_t     *entries;    /* in the order of the claims */
    tw_verdict                       verdict;
    tw_key                           key;        /* of the only rule, if conf->is_simple */
    ngx_pool_cleanup_t               cleanup;    /* if one of the rules waits */
} ngx_http_tallywheel_ctx_t;


extern ngx_module_t  ngx_http_tallywheel_module;

/* answers.c */
ngx_int_t ngx_http_tallywheel_add_answers(ngx_conf_t *cf);
ngx_int_t ngx_http_tallywheel_watch_answers(ngx_conf_t *cf);

/* directives.c */
char *ngx_http_tallywheel_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_tallywheel_memory(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_tallywheel_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_tallywheel_rule(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_tallywheel_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* engine.c */
#define NGX_HTTP_TALLYWHEEL_CLOSE_MS  1000   /* to send counts that are not in Redis yet */
char *ngx_http_tallywheel_open(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf);
ngx_int_t ngx_http_tallywheel_use(ngx_http_tallywheel_main_conf_t *mcf, ngx_http_tallywheel_engine_t *e);

/* heirs.c */
void ngx_http_tallywheel_map_heirs(ngx_cycle_t *cycle, ngx_http_tallywheel_engine_t *e, ngx_uint_t workers);
void ngx_http_tallywheel_unmap_heirs(ngx_http_tallywheel_engine_t *e);
/* In a worker, when its engine is open; and before each turn. */
void ngx_http_tallywheel_begin_heirs(ngx_http_tallywheel_engine_t *e);
void ngx_http_tallywheel_inherit(ngx_http_tallywheel_engine_t *e);

/* keep.c */
ngx_http_tallywheel_order_t *ngx_http_tallywheel_make_order(void);
ngx_int_t ngx_http_tallywheel_keep(ngx_http_tallywheel_main_conf_t *mcf, ngx_str_t *password,
    ngx_http_tallywheel_zone_t *zone);
void ngx_http_tallywheel_forget(ngx_http_tallywheel_main_conf_t *mcf);
void ngx_http_tallywheel_accept(ngx_cycle_t *cycle, ngx_http_tallywheel_main_conf_t *mcf);
void ngx_http_tallywheel_begin_policies(ngx_cycle_t *cycle, ngx_http_tallywheel_main_conf_t *mcf,
    ngx_http_tallywheel_engine_t *e);
void ngx_http_tallywheel_continue_policies(ngx_http_tallywheel_engine_t *e);

/* full.c */
/* One parameter of tallywheel_zone. Returns NULL, or "" if it is another one, or the words that are expected. */
const char *ngx_http_tallywheel_full_parameter(ngx_str_t *argument, ngx_http_tallywheel_zone_t *zone);
char *ngx_http_tallywheel_full(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf);
uint64_t ngx_http_tallywheel_part(ngx_http_tallywheel_engine_t *e);
void ngx_http_tallywheel_note_full(ngx_http_tallywheel_rule_t *rule, ngx_uint_t denies, ngx_log_t *log);

/* sentences.c */
const char *ngx_http_tallywheel_sentence(ngx_pool_t *pool, const char *text);

/* worker.c */
void ngx_http_tallywheel_post_turn(ngx_http_tallywheel_engine_t *e);
void ngx_http_tallywheel_count_parked(ngx_http_tallywheel_engine_t *e, ngx_int_t more);
void ngx_http_tallywheel_leave_loop(ngx_http_tallywheel_engine_t *e);
ngx_int_t ngx_http_tallywheel_init_module(ngx_cycle_t *cycle);
ngx_int_t ngx_http_tallywheel_init_process(ngx_cycle_t *cycle);
void ngx_http_tallywheel_exit_process(ngx_cycle_t *cycle);

/* mistakes.c */
ngx_uint_t ngx_http_tallywheel_is_never_number(ngx_str_t *source);
void ngx_http_tallywheel_warn_of_twins(ngx_conf_t *cf, ngx_array_t *rules, ngx_http_tallywheel_rule_t *rule);
void ngx_http_tallywheel_warn_of_rule(ngx_conf_t *cf, ngx_http_tallywheel_rule_t *rule, ngx_uint_t has_redis);

/* network.c */
const char *ngx_http_tallywheel_compile_key(ngx_conf_t *cf, ngx_str_t *source, ngx_http_tallywheel_rule_t *rule);
ngx_int_t ngx_http_tallywheel_network_key(ngx_http_request_t *r, ngx_http_tallywheel_network_t *network, tw_key *key);

/* texts.c */
ngx_int_t ngx_http_tallywheel_compile_text(ngx_conf_t *cf, ngx_str_t *source, ngx_http_tallywheel_text_t *text);
ngx_int_t ngx_http_tallywheel_text(ngx_http_request_t *r, ngx_http_tallywheel_text_t *text, ngx_str_t *value);

/* values.c */
ngx_int_t ngx_http_tallywheel_parse_number(ngx_str_t *text, int64_t *number);
u_char *ngx_http_tallywheel_write_number(u_char *end, int64_t value);
ngx_int_t ngx_http_tallywheel_number(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule,
    ngx_http_tallywheel_number_t *from, int64_t none, int64_t *number);
ngx_int_t ngx_http_tallywheel_shorten_key(ngx_http_request_t *r, tw_key *key);
ngx_int_t ngx_http_tallywheel_add_entries(ngx_http_tallywheel_ctx_t *ctx);

/* request.c */
ngx_int_t ngx_http_tallywheel_add_phases(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf);

/* admit.c */
ngx_int_t ngx_http_tallywheel_take(ngx_http_tallywheel_ctx_t *ctx);
ngx_int_t ngx_http_tallywheel_take_one(ngx_http_tallywheel_ctx_t *ctx, ngx_uint_t i);
void ngx_http_tallywheel_took(ngx_http_tallywheel_entry_t *entry, tw_status status, tw_verdict *verdict);
ngx_int_t ngx_http_tallywheel_note(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule, tw_status status,
    tw_verdict *verdict);
ngx_int_t ngx_http_tallywheel_deny(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule);
void ngx_http_tallywheel_give_back(ngx_http_tallywheel_ctx_t *ctx, ngx_uint_t i);

/* denial.c */
const char *ngx_http_tallywheel_cause(tw_verdict *verdict);
ngx_uint_t ngx_http_tallywheel_is_unknown(tw_status status, tw_verdict *verdict);
ngx_uint_t ngx_http_tallywheel_may_not_know(ngx_http_tallywheel_main_conf_t *mcf);
tw_key ngx_http_tallywheel_key_of(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule);
void ngx_http_tallywheel_log_denial(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule,
    tw_verdict *verdict, ngx_uint_t passes);
ngx_int_t ngx_http_tallywheel_share_outage(ngx_conf_t *cf);
void ngx_http_tallywheel_outage_denies(ngx_http_tallywheel_rule_t *rule);
void ngx_http_tallywheel_check_outage(void);

/* wait.c */
ngx_int_t ngx_http_tallywheel_next(ngx_http_tallywheel_ctx_t *ctx);
void ngx_http_tallywheel_answer(ngx_http_tallywheel_ctx_t *ctx, tw_status status);
void ngx_http_tallywheel_done(tw_request *call);
void ngx_http_tallywheel_unpark(ngx_http_tallywheel_ctx_t *ctx);

/* queue.c */
#define NGX_HTTP_TALLYWHEEL_QUEUE_MAX  1000000
ngx_int_t ngx_http_tallywheel_begin_queue(ngx_cycle_t *cycle);
tw_status ngx_http_tallywheel_first_try(ngx_http_tallywheel_ctx_t *ctx);
tw_status ngx_http_tallywheel_queue_up(ngx_http_tallywheel_ctx_t *ctx, tw_status status);
void ngx_http_tallywheel_leave_queue(ngx_http_tallywheel_ctx_t *ctx);

/* places.c */
void ngx_http_tallywheel_map_places(ngx_cycle_t *cycle, ngx_uint_t workers);
void ngx_http_tallywheel_begin_places(ngx_cycle_t *cycle);
ngx_uint_t ngx_http_tallywheel_all_places(void);
void ngx_http_tallywheel_count_no_place(void);
ngx_uint_t ngx_http_tallywheel_no_places(void);
uint64_t ngx_http_tallywheel_place_hash(ngx_str_t *zone, tw_claim *claim, ngx_uint_t apart);
ngx_uint_t ngx_http_tallywheel_places_taken(uint64_t hash);
ngx_uint_t ngx_http_tallywheel_take_place(uint64_t hash, ngx_uint_t most);
void ngx_http_tallywheel_give_place(uint64_t hash);

/* open.c */
ngx_int_t ngx_http_tallywheel_read_password(const char *name, u_char *out, size_t size);
tw_status ngx_http_tallywheel_open_engine(ngx_http_tallywheel_engine_t *e, uint32_t shared,
    ngx_http_tallywheel_family_t **refused);
void ngx_http_tallywheel_close_engine(ngx_http_tallywheel_engine_t *e, uint32_t timeout);

/* pause.c */
#define NGX_HTTP_TALLYWHEEL_UNSURE_MS  6000  /* so long after the last doubt: an engine is young for 5 s at most */
void ngx_http_tallywheel_note_doubt(ngx_http_tallywheel_engine_t *e);
ngx_uint_t ngx_http_tallywheel_pauses(ngx_http_tallywheel_ctx_t *ctx, ngx_http_tallywheel_rule_t *rule,
    tw_status status, tw_verdict *verdict);
ngx_int_t ngx_http_tallywheel_pause(ngx_http_tallywheel_ctx_t *ctx);
ngx_uint_t ngx_http_tallywheel_is_paused(ngx_http_tallywheel_ctx_t *ctx);

/* headers.c */
void ngx_http_tallywheel_add_filter(void);

/* show.c */
void ngx_http_tallywheel_look_up(ngx_http_tallywheel_ctx_t *ctx);
ngx_int_t ngx_http_tallywheel_add_variables(ngx_conf_t *cf);

/* watch.c */
char *ngx_http_tallywheel_watch(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
void ngx_http_tallywheel_watch_close_file(ngx_http_tallywheel_main_conf_t *mcf, ngx_log_t *log);
void ngx_http_tallywheel_watch_end(void);

/* metrics.c */
ngx_int_t ngx_http_tallywheel_metrics_handler(ngx_http_request_t *r);


/* In seconds, rounded up, so that no client comes back too early. -1 means that there is no such time. */
static ngx_inline int64_t
ngx_http_tallywheel_seconds(int64_t ms)
{
    return (ms < 0 || ms == TW_UNBOUNDED) ? -1 : (int64_t) (((uint64_t) ms + 999) / 1000);
}


/* The length of a zone's windows in ms. 0: months, or none. */
static ngx_inline int64_t
ngx_http_tallywheel_length(const tw_family_options *options)
{
    switch (options->window) {
    case TW_WINDOW_DAY:
        return TW_DAY;

    case TW_WINDOW_WEEK:
        return 7 * TW_DAY;

    case TW_WINDOW_ALIGNED:
        return options->window_ms;

    default:
        return 0;
    }
}


/* Does the same as ngx_http_get_indexed_variable() for a variable that has no value yet, in half of the instructions. A
 * variable that needs itself still ends there: its handler asks that function for the variables that it needs. */
static ngx_inline ngx_http_variable_value_t *
ngx_http_tallywheel_evaluate_variable(ngx_http_request_t *r, ngx_int_t index, ngx_http_variable_value_t *value)
{
    ngx_http_variable_t        *v;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    v = (ngx_http_variable_t *) cmcf->variables.elts + index;

    if (v->get_handler(r, value, v->data) != NGX_OK) {
        value->valid = 0;
        value->not_found = 1;
        return NULL;
    }

    if (v->flags & NGX_HTTP_VAR_NOCACHEABLE) {
        value->no_cacheable = 1;
    }

    return value;
}


/* The value of the variable with that index, or NULL. It is evaluated again if it cannot be cached. */
static ngx_inline ngx_http_variable_value_t *
ngx_http_tallywheel_find_variable(ngx_http_request_t *r, ngx_int_t index)
{
    ngx_http_variable_value_t  *value = &r->variables[index];

    if (!value->valid && !value->not_found) {
        value = ngx_http_tallywheel_evaluate_variable(r, index, value);

    } else if (value->no_cacheable) {
        value = ngx_http_get_flushed_variable(r, (ngx_uint_t) index);
    }

    return (value == NULL || value->not_found) ? NULL : value;
}


/* Without a value the key is empty. */
static ngx_inline ngx_int_t
ngx_http_tallywheel_key(ngx_http_request_t *r, ngx_http_tallywheel_rule_t *rule, tw_key *key)
{
    ngx_str_t                   text;
    ngx_http_variable_value_t  *value;

    if (rule->key.variable >= 0) {
        value = ngx_http_tallywheel_find_variable(r, rule->key.variable);
        *key = value ? tw_bytes(value->data, value->len) : tw_bytes(NULL, 0);

    } else if (rule->network) {
        return ngx_http_tallywheel_network_key(r, rule->network, key);

    } else {
        if (ngx_http_tallywheel_text(r, &rule->key, &text) != NGX_OK) {
            return NGX_ERROR;
        }

        *key = tw_bytes(text.data, text.len);
    }

    return (key->size <= TW_KEY_SIZE_MAX) ? NGX_OK : ngx_http_tallywheel_shorten_key(r, key);
}


/* Where a main request keeps its decision. A variable keeps it, because an internal redirect clears the contexts of
 * modules, but no variable. */
static ngx_inline ngx_http_variable_value_t *
ngx_http_tallywheel_kept(ngx_http_request_t *r)
{
    ngx_http_tallywheel_main_conf_t  *mcf;

    mcf = ngx_http_get_module_main_conf(r, ngx_http_tallywheel_module);

    return &r->variables[mcf->variable];
}


/* The decision on the request, or NULL if it came to no location with limits yet. */
static ngx_inline ngx_http_tallywheel_ctx_t *
ngx_http_tallywheel_get_ctx(ngx_http_request_t *r)
{
    return (ngx_http_tallywheel_ctx_t *) ngx_http_tallywheel_kept(r->main)->data;
}


#endif
