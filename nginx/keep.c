/* keep.c -- which zones keep their counts when a configuration takes over from the running one.
 * A zone that names the same counters of the same engine keeps them, whatever else of it has changed. The workers of
 * the new configuration set its policies before they serve, or as soon as a worker that was stopped while it set them
 * lets them. A zone that loses its counts has a line in the log.
 * Always true: only a zone of the running configuration is kept. So a zone that was changed, and is changed back later,
 * is a new one, whichever engines other zones keep. A late worker of an older configuration sets nothing. No worker
 * waits for one that is stopped. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_POLICIES_WAIT  50   /* ms; a worker sets all policies in less than one */


static ngx_http_tallywheel_main_conf_t  *ngx_http_tallywheel_running; /* NULL if there is none */
static ngx_uint_t                        ngx_http_tallywheel_accepted; /* how many configurations ran */


static ngx_uint_t
ngx_http_tallywheel_same_text(const char *one, const char *two)
{
    return (one == NULL || two == NULL) ? one == two : ngx_strcmp(one, two) == 0;
}


static ngx_uint_t
ngx_http_tallywheel_same_names(ngx_http_tallywheel_server_t *one, ngx_http_tallywheel_server_t *two)
{
    return ngx_http_tallywheel_same_text(one->url, two->url)
           && ngx_http_tallywheel_same_text(one->prefix, two->prefix);
}


static ngx_uint_t
ngx_http_tallywheel_same_server(ngx_http_tallywheel_server_t *one, ngx_http_tallywheel_server_t *two)
{
    return ngx_http_tallywheel_same_names(one, two)
           && ngx_http_tallywheel_same_text(one->password_file, two->password_file)
           && ngx_http_tallywheel_same_text(one->ca, two->ca)
           && ngx_http_tallywheel_same_text(one->cert, two->cert)
           && ngx_http_tallywheel_same_text(one->key, two->key)
           && ngx_http_tallywheel_same_text(one->name, two->name)
           && one->timeout == two->timeout
           && one->interval == two->interval;
}


/* The parameter by which the counters are others, or NULL. These are the ones that tw_family_set() cannot change. */
static const char *
ngx_http_tallywheel_other_counters(const tw_family_options *one, const tw_family_options *two)
{
    return one->window != two->window || one->window_ms != two->window_ms ? "window="
           : one->limit_mode != two->limit_mode ? "mode="
           : one->limit_shape != two->limit_shape ? "shape="
           : one->on_full != two->on_full ? "full="
           : one->memory_share != two->memory_share ? "memory="
           : !ngx_http_tallywheel_same_text(one->redis_key, two->redis_key) ? "redis_key=" : NULL;
}


static ngx_uint_t
ngx_http_tallywheel_same_policies(const tw_family_options *one, const tw_family_options *two)
{
    return one->burst == two->burst && one->on_outage == two->on_outage
           && one->outage_grace_ms == two->outage_grace_ms && one->keys_max == two->keys_max
           && one->on_full_limit == two->on_full_limit && one->shadow == two->shadow;
}


static ngx_http_tallywheel_zone_t *
ngx_http_tallywheel_zone_of(ngx_http_tallywheel_main_conf_t *mcf, ngx_str_t *name)
{
    ngx_uint_t                    i;
    ngx_http_tallywheel_zone_t  **zone;

    for (i = 0; mcf && i < mcf->zones.nelts; i++) {
        zone = mcf->zones.elts;

        if (zone[i]->name.len == name->len && ngx_memcmp(zone[i]->name.data, name->data, name->len) == 0) {
            return zone[i];
        }
    }

    return NULL;
}


/* The zone has the engine and the counts of its predecessor, or NGX_DECLINED. Engines of single workers are opened with
 * all parameters by each worker, so another one needs another engine. */
ngx_int_t
ngx_http_tallywheel_keep(ngx_http_tallywheel_main_conf_t *mcf, ngx_str_t *password, ngx_http_tallywheel_zone_t *zone)
{
    ngx_http_tallywheel_zone_t    *before;
    ngx_http_tallywheel_engine_t  *e;

    before = ngx_http_tallywheel_zone_of(ngx_http_tallywheel_running, &zone->name);

    if (before == NULL || ngx_http_tallywheel_other_counters(&before->options, &zone->options)) {
        return NGX_DECLINED;
    }

    e = before->engine;

    if (!ngx_http_tallywheel_same_server(&e->server, &mcf->server)
        || e->server.memory != mcf->server.memory
        || e->password.len != password->len
        || ngx_memcmp(e->password.data, password->data, password->len) != 0
        || (zone->has_slots != e->alone && e->refused == NULL)
        || (e->alone && !ngx_http_tallywheel_same_policies(&before->options, &zone->options)))
    {
        return NGX_DECLINED;
    }

    zone->engine = e;
    zone->family = before->family;
    zone->kept = !e->alone;
    zone->changed = (zone->kept && !ngx_http_tallywheel_same_policies(&before->options, &zone->options));

    return ngx_http_tallywheel_use(mcf, e);
}


void
ngx_http_tallywheel_forget(ngx_http_tallywheel_main_conf_t *mcf)
{
    if (ngx_http_tallywheel_running == mcf) {
        ngx_http_tallywheel_running = NULL;
    }
}


/* What has changed so that the zone has another engine, or NULL if it has lost nothing. */
static const char *
ngx_http_tallywheel_why_new(ngx_http_tallywheel_zone_t *before, ngx_http_tallywheel_zone_t *zone)
{
    const char                    *parameter;
    ngx_http_tallywheel_engine_t  *e = zone->engine;

    if (e->alone) {
        return e->server.url ? NULL : "because each worker has an engine of its own";
    }

    if (before->family == zone->family) {
        return NULL;
    }

    parameter = ngx_http_tallywheel_other_counters(&before->options, &zone->options);

    return parameter ? parameter
           : !ngx_http_tallywheel_same_server(&before->engine->server, &e->server) ? "tallywheel_redis"
           : before->engine->server.memory != e->server.memory ? "tallywheel_memory"
           : before->engine->alone ? "tallywheel_hold" : "the password of Redis";
}


/* The configuration runs from now on. */
void
ngx_http_tallywheel_accept(ngx_cycle_t *cycle, ngx_http_tallywheel_main_conf_t *mcf)
{
    ngx_uint_t                    i;
    const char                   *why;
    ngx_http_tallywheel_zone_t  **zone, *before;

    for (i = 0; mcf && i < mcf->zones.nelts; i++) {
        zone = mcf->zones.elts;
        before = ngx_http_tallywheel_zone_of(ngx_http_tallywheel_running, &zone[i]->name);
        why = before ? ngx_http_tallywheel_why_new(before, zone[i]) : NULL;

        if (why) {
            ngx_log_error(NGX_LOG_WARN, cycle->log, 0, "tallywheel_zone \"%V\" begins %s: %s%s", &zone[i]->name,
                          zone[i]->engine->server.url ? "with what Redis has" : "from 0", why,
                          ngx_strncmp(why, "because", 7) == 0 ? "" : " has changed");
        }
    }

    ngx_http_tallywheel_running = mcf;

    if (mcf) {
        mcf->number = ++ngx_http_tallywheel_accepted;
    }
}


/* ---- policies ---- */

ngx_http_tallywheel_order_t *
ngx_http_tallywheel_make_order(void)
{
    pthread_mutexattr_t           kind;
    ngx_http_tallywheel_order_t  *order;

    order = mmap(NULL, sizeof(ngx_http_tallywheel_order_t), PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANON, -1, 0);
    if (order == MAP_FAILED) {
        return NULL;
    }

    (void) pthread_mutexattr_init(&kind);
    (void) pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    (void) pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    (void) pthread_mutex_init(&order->lock, &kind);
    (void) pthread_mutexattr_destroy(&kind);

    return order;
}


/* Under the lock of its engine. */
static void
ngx_http_tallywheel_set_policy(ngx_cycle_t *cycle, ngx_http_tallywheel_zone_t *zone)
{
    tw_family_options  options = zone->options;

    options.memory_share = zone->family->share; /* a part of the memory stays */

    if (tw_family_set(zone->family->family, &options) != TW_OK) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0, "tallywheel_zone \"%V\" keeps its earlier parameters: %s",
                      &zone->name, ngx_http_tallywheel_sentence(cycle->pool, tw_error_text()));
    }
}


/* Returns NGX_BUSY if another worker has the lock. A worker that was killed with it has set a part, and the next one
 * sets all. */
static ngx_int_t
ngx_http_tallywheel_try_policies(ngx_cycle_t *cycle, ngx_http_tallywheel_main_conf_t *mcf,
    ngx_http_tallywheel_engine_t *e)
{
    int                           rc;
    ngx_uint_t                    i;
    ngx_http_tallywheel_zone_t  **zone = mcf->zones.elts;

    rc = pthread_mutex_trylock(&e->order->lock);

    if (rc == EOWNERDEAD) {
        (void) pthread_mutex_consistent(&e->order->lock);

    } else if (rc != 0) {
        return NGX_BUSY;
    }

    if (e->order->number <= mcf->number) {
        e->order->number = mcf->number;

        for (i = 0; i < mcf->zones.nelts; i++) {
            if (zone[i]->engine == e && zone[i]->kept) {
                ngx_http_tallywheel_set_policy(cycle, zone[i]);
            }
        }
    }

    (void) pthread_mutex_unlock(&e->order->lock);

    return NGX_OK;
}


/* Each worker does this before it serves a request, so the first one does it for all. It waits for another one that is
 * just doing it, but not for one that is stopped meanwhile: then its turns try again. */
void
ngx_http_tallywheel_begin_policies(ngx_cycle_t *cycle, ngx_http_tallywheel_main_conf_t *mcf,
    ngx_http_tallywheel_engine_t *e)
{
    ngx_uint_t                    i, ms;
    ngx_http_tallywheel_zone_t  **zone = mcf->zones.elts;

    for (i = 0; i < mcf->zones.nelts; i++) {
        e->pending |= (zone[i]->engine == e && zone[i]->kept);
    }

    for (ms = 0; e->pending && ms <= NGX_HTTP_TALLYWHEEL_POLICIES_WAIT; ms++) {
        if (ms) {
            ngx_msleep(1);
        }

        e->pending = (ngx_http_tallywheel_try_policies(cycle, mcf, e) == NGX_BUSY);
    }

    if (e->pending) {
        ngx_log_error(NGX_LOG_WARN, cycle->log, 0, "tallywheel: zones keep earlier parameters, because the worker that "
                      "sets them is stopped; this worker sets them when that one continues or ends");
    }
}


/* Before each turn. If a newer configuration has set its policies meanwhile, nothing is left to set. */
void
ngx_http_tallywheel_continue_policies(ngx_http_tallywheel_engine_t *e)
{
    ngx_cycle_t                      *cycle = (ngx_cycle_t *) ngx_cycle;
    ngx_http_tallywheel_main_conf_t  *mcf;

    if (e->pending) {
        mcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_tallywheel_module);
        e->pending = (ngx_http_tallywheel_try_policies(cycle, mcf, e) == NGX_BUSY);
    }
}
