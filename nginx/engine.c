/* engine.c -- opens the engines of a process when a configuration is read, and closes them with the last configuration
 * that uses them.
 * A zone that names the same counters as a zone of the running configuration keeps its engine over a reload, and so its
 * counts (keep.c). All other zones of a configuration get one new engine.
 * Always true: if a configuration is refused, the engines of the present one are as they were. */
#include "ngx_http_tallywheel.h"


static ngx_uint_t   ngx_http_tallywheel_opened;    /* how many engines this process, or its master, has opened */


static char *
ngx_http_tallywheel_copy(ngx_pool_t *pool, const char *text)
{
    size_t   size;
    char    *copy;

    if (text == NULL) {
        return NULL;
    }

    size = ngx_strlen(text) + 1;
    copy = ngx_pnalloc(pool, size);

    if (copy) {
        ngx_memcpy(copy, text, size);
    }

    return copy;
}


/* ---- engines of configurations ---- */

static void
ngx_http_tallywheel_destroy(ngx_http_tallywheel_engine_t *e)
{
    if (e->order) {
        (void) munmap(e->order, sizeof(ngx_http_tallywheel_order_t));
    }

    ngx_http_tallywheel_unmap_heirs(e);

    e->pool->log = ngx_cycle->log;
    ngx_destroy_pool(e->pool);
}


/* A configuration is freed. */
static void
ngx_http_tallywheel_release(void *data)
{
    ngx_http_tallywheel_main_conf_t  *mcf = data;

    ngx_uint_t                      i;
    ngx_http_tallywheel_engine_t  **e;

    ngx_http_tallywheel_watch_end();

    e = mcf->engines.elts;

    for (i = 0; i < mcf->engines.nelts; i++) {
        if (--e[i]->uses == 0) {
            ngx_http_tallywheel_close_engine(e[i], e[i]->connection ? NGX_HTTP_TALLYWHEEL_CLOSE_MS : 0);
            ngx_http_tallywheel_destroy(e[i]);
        }
    }

    mcf->engines.nelts = 0;
    ngx_http_tallywheel_forget(mcf);
}


ngx_int_t
ngx_http_tallywheel_use(ngx_http_tallywheel_main_conf_t *mcf, ngx_http_tallywheel_engine_t *e)
{
    ngx_uint_t                      i;
    ngx_http_tallywheel_engine_t  **slot = mcf->engines.elts;

    for (i = 0; i < mcf->engines.nelts; i++) {
        if (slot[i] == e) {
            return NGX_OK;
        }
    }

    slot = ngx_array_push(&mcf->engines);
    if (slot == NULL) {
        return NGX_ERROR;
    }

    *slot = e;
    e->uses++;

    return NGX_OK;
}


/* Gives the engine the new zones that have slots, or those that have none. */
static void
ngx_http_tallywheel_add_zones(ngx_http_tallywheel_engine_t *e, ngx_http_tallywheel_main_conf_t *mcf,
    ngx_uint_t has_slots)
{
    ngx_uint_t                     i;
    ngx_http_tallywheel_zone_t   **zone;
    ngx_http_tallywheel_family_t  *family;

    zone = mcf->zones.elts;

    for (i = 0; i < mcf->zones.nelts; i++) {
        if (zone[i]->engine == NULL && zone[i]->has_slots == has_slots) {
            family = ngx_array_push(&e->families); /* there is room, so no element moves */
            family->options = zone[i]->options;
            family->options.name = ngx_http_tallywheel_copy(e->pool, zone[i]->options.name);
            family->options.redis_key = ngx_http_tallywheel_copy(e->pool, zone[i]->options.redis_key);
            family->family = NULL;
            family->start_ms = 0;
            family->uncounted = 0;
            family->known_until = 0;
            zone[i]->engine = e;
            zone[i]->family = family;
        }
    }
}


static ngx_http_tallywheel_engine_t *
ngx_http_tallywheel_create(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf, ngx_str_t *password)
{
    ngx_pool_t                    *pool;
    ngx_http_tallywheel_engine_t  *e;

    pool = ngx_create_pool(1024, cf->log);
    if (pool == NULL) {
        return NULL;
    }

    e = ngx_pcalloc(pool, sizeof(ngx_http_tallywheel_engine_t));
    if (e == NULL
        || ngx_array_init(&e->families, pool, mcf->zones.nelts, sizeof(ngx_http_tallywheel_family_t)) != NGX_OK)
    {
        ngx_destroy_pool(pool);
        return NULL;
    }

    e->pool = pool;
    e->server = mcf->server;
    e->server.url = ngx_http_tallywheel_copy(pool, mcf->server.url);
    e->server.prefix = ngx_http_tallywheel_copy(pool, mcf->server.prefix);
    e->server.password_file = ngx_http_tallywheel_copy(pool, mcf->server.password_file);
    e->server.ca = ngx_http_tallywheel_copy(pool, mcf->server.ca);
    e->server.cert = ngx_http_tallywheel_copy(pool, mcf->server.cert);
    e->server.key = ngx_http_tallywheel_copy(pool, mcf->server.key);
    e->server.name = ngx_http_tallywheel_copy(pool, mcf->server.name);
    e->password.len = password->len;
    e->password.data = (u_char *) ngx_http_tallywheel_copy(pool, (char *) password->data);

    return e;
}


/* Why the library refuses an engine, at the directive that it is about. */
static void
ngx_http_tallywheel_refused(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf, ngx_http_tallywheel_family_t *family)
{
    ngx_uint_t                    i;
    const char                   *why;
    ngx_http_tallywheel_zone_t  **zone;
    ngx_http_tallywheel_place_t  *place;

    zone = mcf->zones.elts;
    why = ngx_http_tallywheel_sentence(cf->pool, tw_error_text());

    for (i = 0; family && i < mcf->zones.nelts; i++) {
        if (zone[i]->family == family) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "tallywheel_zone \"%V\": %s in %V:%ui", &zone[i]->name, why,
                          &zone[i]->place.file, zone[i]->place.line);
            return;
        }
    }

    if (ngx_strncmp(why, "tallywheel_memory", sizeof("tallywheel_memory") - 1) == 0 && mcf->memory_place.file.len) {
        place = &mcf->memory_place;
    } else {
        place = &mcf->server_place;
    }

    if (place->file.len) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "tallywheel: %s in %V:%ui", why, &place->file, place->line);
    } else {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "tallywheel: %s", why);
    }
}


/* Whether the zone is one for the rule. The limit -1 is refused, too, but only after that. */
static tw_status
ngx_http_tallywheel_probe(ngx_http_tallywheel_rule_t *rule, tw_engine *engine)
{
    tw_family   *family;
    tw_request   probe;

    if (tw_family_open(engine, &rule->zone->options, &family) != TW_OK) {
        return TW_OK; /* the zone itself is refused later */
    }

    if (tw_acquire(family, tw_str("probe"), 0, 0, NULL) == TW_ERR_MODE) {
        return TW_OK; /* a master that is root, and has workers: nginx -t and nginx -s have checked it */
    }

    tw_request_init(&probe);

    if (rule->kind == NGX_HTTP_TALLYWHEEL_HOLD) {
        return tw_hold_async(&probe, family, tw_str("probe"), -1);
    }

    return rule->wait ? tw_acquire_wait_async(&probe, family, tw_str("probe"), 1, -1) : TW_OK;
}


/* An engine without Redis, which is closed at once, decides it. */
static char *
ngx_http_tallywheel_check_rules(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf)
{
    char                         *rv;
    tw_engine                    *engine;
    tw_options                    options;
    const char                   *why;
    ngx_uint_t                    i;
    ngx_http_tallywheel_rule_t  **rule;

    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.shared = TW_SHARED_BY_FORK;
    options.memory_bytes_max = mcf->server.memory;

    if (tw_open(&options, &engine) != TW_OK) {
        options.shared = TW_SHARED_NO;

        if (tw_open(&options, &engine) != TW_OK) {
            return NGX_CONF_OK;
        }
    }

    rv = NGX_CONF_OK;
    rule = mcf->rules.elts;

    for (i = 0; i < mcf->rules.nelts && rv == NGX_CONF_OK; i++) {
        why = NULL;

        if (rule[i]->refund && rule[i]->zone->options.limit_shape == TW_SHAPE_GCRA) {
            why = "the shape gcra takes no refund";

        } else if (ngx_http_tallywheel_probe(rule[i], engine) == TW_ERR_MODE) {
            why = ngx_http_tallywheel_sentence(cf->pool, tw_error_text());
        }

        if (why) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "tallywheel_zone \"%V\": %s in %V:%ui", &rule[i]->zone_name, why,
                          &rule[i]->place.file, rule[i]->place.line);
            rv = NGX_CONF_ERROR;
        }
    }

    (void) tw_close(engine, 0);

    return rv;
}


/* Whether an engine that is not shared may be possible after a shared one was refused. It is not if an option is
 * wrong. */
static ngx_uint_t
ngx_http_tallywheel_may_be_alone(tw_status status)
{
    return status != TW_ERR_OPTIONS || ngx_strncmp(tw_error_text(), "shared: ", 8) == 0
           || ngx_strstr(tw_error_text(), "TW_SHARED_BY_FORK") != NULL;
}


/* A zone that keeps its counts may have other policies. Whether the library takes them is seen before a worker has
 * them, in an engine that is closed at once. */
static char *
ngx_http_tallywheel_check_changed(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf, ngx_str_t *password)
{
    char                           *rv = NGX_CONF_OK;
    ngx_uint_t                      i;
    ngx_http_tallywheel_zone_t    **zone = mcf->zones.elts;
    ngx_http_tallywheel_engine_t   *e;
    ngx_http_tallywheel_family_t   *family, *refused;

    e = ngx_http_tallywheel_create(cf, mcf, password);
    if (e == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 0; i < mcf->zones.nelts; i++) {
        if (zone[i]->changed) {
            family = ngx_array_push(&e->families); /* there is room */
            ngx_memzero(family, sizeof(ngx_http_tallywheel_family_t));
            family->options = zone[i]->options;
        }
    }

    if (e->families.nelts && ngx_http_tallywheel_open_engine(e, TW_SHARED_BY_FORK, &refused) != TW_OK) {
        family = e->families.elts;

        for (i = 0; refused && i < mcf->zones.nelts; i++) {
            if (zone[i]->changed && family++ == refused) {
                refused = zone[i]->family;
                break;
            }
        }

        ngx_http_tallywheel_refused(cf, mcf, refused);
        rv = NGX_CONF_ERROR;
    }

    ngx_http_tallywheel_close_engine(e, 0);
    ngx_http_tallywheel_destroy(e);

    return rv;
}


/* Opens the engine of the new zones. If the workers cannot share it, this only checks it, and each worker opens one. */
static char *
ngx_http_tallywheel_open_new(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf, ngx_str_t *password,
    ngx_uint_t has_slots)
{
    uint32_t                       shared;
    tw_status                      status;
    ngx_http_tallywheel_engine_t  *e;
    ngx_http_tallywheel_family_t  *refused;

    e = ngx_http_tallywheel_create(cf, mcf, password);
    if (e == NULL || ngx_http_tallywheel_use(mcf, e) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    e->number = ++ngx_http_tallywheel_opened;
    e->order = ngx_http_tallywheel_make_order();

    if (e->order == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_http_tallywheel_add_zones(e, mcf, has_slots);

    e->alone = has_slots;
    shared = (has_slots && !ngx_test_config) ? TW_SHARED_NO : TW_SHARED_BY_FORK;
    status = ngx_http_tallywheel_open_engine(e, shared, &refused);

    if (status != TW_OK && refused == NULL && shared == TW_SHARED_BY_FORK && ngx_http_tallywheel_may_be_alone(status)) {
        e->refused = ngx_http_tallywheel_sentence(e->pool, tw_error_text());
        ngx_http_tallywheel_close_engine(e, 0);
        e->alone = 1;
        ngx_http_tallywheel_add_zones(e, mcf, 1);
        status = ngx_http_tallywheel_open_engine(e, TW_SHARED_NO, &refused);
    }

    if (status != TW_OK) {
        ngx_http_tallywheel_refused(cf, mcf, refused);
        ngx_http_tallywheel_close_engine(e, 0);
        return NGX_CONF_ERROR;
    }

    if (e->alone || ngx_test_config) {
        ngx_http_tallywheel_close_engine(e, 0);
    }

    return NGX_CONF_OK;
}


/* Without a zone there is no engine that would refuse the URL. A shared one that no process leads does not connect. */
static char *
ngx_http_tallywheel_check_url(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf)
{
    tw_engine   *engine;
    tw_options   options;

    if (mcf->server.url == NULL) {
        return NGX_CONF_OK;
    }

    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.shared = TW_SHARED_BY_FORK;
    options.memory_bytes_max = mcf->server.memory;
    options.redis_url = mcf->server.url;

    if (tw_open(&options, &engine) == TW_OK) {
        (void) tw_close(engine, 0);

    } else if (ngx_strncmp(tw_error_text(), "redis_url: ", 11) == 0
               && !ngx_http_tallywheel_may_be_alone(TW_ERR_OPTIONS))
    {
        ngx_http_tallywheel_refused(cf, mcf, NULL);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_tallywheel_open(ngx_conf_t *cf, ngx_http_tallywheel_main_conf_t *mcf)
{
    u_char                        password[512];
    ngx_int_t                     len;
    ngx_str_t                     known;
    ngx_uint_t                    i, k;
    ngx_pool_cleanup_t           *cln;
    ngx_http_tallywheel_zone_t  **zone;

    if (mcf->zones.nelts == 0) {
        return ngx_http_tallywheel_check_url(cf, mcf);
    }

    if (ngx_http_tallywheel_full(cf, mcf) != NGX_CONF_OK
        || ngx_http_tallywheel_check_rules(cf, mcf) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (ngx_process == NGX_PROCESS_SIGNALLER) {
        return NGX_CONF_OK;
    }

    known.data = password;
    known.len = 0;
    password[0] = '\0';

    if (mcf->server.password_file) {
        len = ngx_http_tallywheel_read_password(mcf->server.password_file, password, sizeof(password));
        if (len == NGX_ERROR) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, ngx_errno, "tallywheel: cannot read \"%s\" in %V:%ui",
                          mcf->server.password_file, &mcf->server_place.file, mcf->server_place.line);
            return NGX_CONF_ERROR;
        }

        known.len = (size_t) len;
    }

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_http_tallywheel_release;
    cln->data = mcf;

    zone = mcf->zones.elts;

    for (i = 0; i < mcf->zones.nelts; i++) {
        if (ngx_http_tallywheel_keep(mcf, &known, zone[i]) == NGX_ERROR) {
            return NGX_CONF_ERROR;
        }
    }

    if (ngx_http_tallywheel_check_changed(cf, mcf, &known) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    /* Slots in Redis belong to a process, so the zones that have them are in an engine of each worker. */
    for (i = 0; i < 2 * mcf->zones.nelts; i++) {
        k = i % mcf->zones.nelts;

        if (zone[k]->engine == NULL && (!zone[k]->has_slots || i >= mcf->zones.nelts)
            && ngx_http_tallywheel_open_new(cf, mcf, &known, zone[k]->has_slots) != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}
