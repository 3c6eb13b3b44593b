/* worker.c -- makes the turns of engines in the loop of a worker, and ends them with it.
 * Always true: the master makes no turn. A worker makes the turns of every engine that its configuration uses. A timer
 * of an engine keeps a worker that shuts down alive only while a request waits for an answer. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_TURN_MAX  1000   /* ms; the longest time without a turn */
#define NGX_HTTP_TALLYWHEEL_TRY_MAX   20     /* the same while policies are to be set */


static void ngx_http_tallywheel_turn(ngx_http_tallywheel_engine_t *e);


static void
ngx_http_tallywheel_ready(ngx_event_t *ev)
{
    ngx_connection_t  *c = ev->data;

    ngx_http_tallywheel_turn(c->data);
}


static void
ngx_http_tallywheel_due(ngx_event_t *ev)
{
    ngx_http_tallywheel_turn(ev->data);
}


static void
ngx_http_tallywheel_turn(ngx_http_tallywheel_engine_t *e)
{
    uint32_t  ms, most;

    ngx_http_tallywheel_inherit(e);
    ngx_http_tallywheel_continue_policies(e);

    (void) tw_turn(e->engine);

    ngx_http_tallywheel_note_doubt(e);

    ms = tw_timeout_ms(e->engine);

    if (ms == 0) {
        ngx_post_event(&e->turn, &ngx_posted_next_events);
        ms = 1;
    }

    if (e->timer.timer_set) {
        ngx_del_timer(&e->timer); /* otherwise nginx keeps it, if it is due some 300 ms later */
    }

    most = e->pending ? NGX_HTTP_TALLYWHEEL_TRY_MAX : NGX_HTTP_TALLYWHEEL_TURN_MAX;
    ngx_add_timer(&e->timer, ngx_min(ms, most));

    ngx_http_tallywheel_check_outage();
}


/* A request has started a call. One turn at the end of this round of the loop sends all of them. */
void
ngx_http_tallywheel_post_turn(ngx_http_tallywheel_engine_t *e)
{
    if (e->connection) {
        ngx_post_event(&e->turn, &ngx_posted_events);
    }
}


void
ngx_http_tallywheel_count_parked(ngx_http_tallywheel_engine_t *e, ngx_int_t more)
{
    e->parked += more;
    e->timer.cancelable = (e->parked == 0);
}


void
ngx_http_tallywheel_leave_loop(ngx_http_tallywheel_engine_t *e)
{
    if (e->connection) {
        (void) ngx_del_event(e->connection->read, NGX_READ_EVENT, 0);
        ngx_free_connection(e->connection);
        e->connection->fd = (ngx_socket_t) -1;
        e->connection = NULL;
    }

    if (e->timer.timer_set) {
        ngx_del_timer(&e->timer);
    }

    if (e->turn.posted) {
        ngx_delete_posted_event(&e->turn);
    }
}


static ngx_int_t
ngx_http_tallywheel_start(ngx_http_tallywheel_engine_t *e, ngx_log_t *log)
{
    tw_status                      status;
    ngx_uint_t                     i;
    ngx_connection_t              *c;
    ngx_http_tallywheel_family_t  *refused, *family;

    if (e->engine == NULL) {
        status = ngx_http_tallywheel_open_engine(e, TW_SHARED_NO, &refused);
    } else {
        status = tw_lead(e->engine);
    }

    if (status < 0) {
        family = e->families.elts;

        for (i = 0; i < e->families.nelts; i++) {
            ngx_log_error(NGX_LOG_ALERT, log, 0, "tallywheel_zone \"%s\" limits nothing in this worker: %s",
                          family[i].options.name, ngx_http_tallywheel_sentence(e->pool, tw_error_text()));
        }

        ngx_http_tallywheel_close_engine(e, 0);
        return NGX_OK;
    }

    ngx_http_tallywheel_begin_heirs(e);

    c = ngx_get_connection(tw_fd(e->engine), log);
    if (c == NULL) {
        return NGX_ERROR;
    }

    c->data = e;
    c->read->handler = ngx_http_tallywheel_ready;
    c->read->log = log;
    c->write->log = log;
    e->connection = c;

    e->timer.handler = ngx_http_tallywheel_due;
    e->timer.data = e;
    e->timer.log = log;
    e->timer.cancelable = 1;
    e->turn = e->timer;

    if (ngx_add_event(c->read, NGX_READ_EVENT, NGX_LEVEL_EVENT) != NGX_OK) {
        return NGX_ERROR;
    }

    ngx_http_tallywheel_turn(e);

    return NGX_OK;
}


/* The configuration is complete. */
ngx_int_t
ngx_http_tallywheel_init_module(ngx_cycle_t *cycle)
{
    ngx_uint_t                        i;
    ngx_core_conf_t                  *ccf;
    ngx_http_tallywheel_engine_t    **e;
    ngx_http_tallywheel_main_conf_t  *mcf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);
    mcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_tallywheel_module);

    ngx_http_tallywheel_accept(cycle, mcf);

    for (i = 0; mcf && i < mcf->engines.nelts; i++) {
        e = mcf->engines.elts;

        if (e[i]->refused && ccf->master && ccf->worker_processes > 1) {
            ngx_log_error(NGX_LOG_WARN, cycle->log, 0, "tallywheel: each of the %i workers has an engine of its own%s: "
                          "%s", ccf->worker_processes, e[i]->server.url ? ", and Redis adds up their counts" : "",
                          e[i]->refused);
        }
    }

    for (i = 0; mcf && i < mcf->engines.nelts && !ngx_test_config; i++) {
        e = mcf->engines.elts;
        ngx_http_tallywheel_map_heirs(cycle, e[i], ngx_max(ccf->worker_processes, 1));
    }

    if (mcf && mcf->is_queued && !ngx_test_config) {
        ngx_http_tallywheel_map_places(cycle, ngx_max(ccf->worker_processes, 1));
    }

    if (mcf) {
        ngx_http_tallywheel_watch_close_file(mcf, cycle->log);
    }

    return NGX_OK;
}


/* The manager and the loader of caches call this, too. They serve no request. */
ngx_int_t
ngx_http_tallywheel_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                        i;
    ngx_http_tallywheel_engine_t    **e;
    ngx_http_tallywheel_main_conf_t  *mcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE) {
        return NGX_OK;
    }

    mcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_tallywheel_module);

    if (mcf && mcf->is_queued) {
        ngx_http_tallywheel_begin_places(cycle);

        if (ngx_http_tallywheel_begin_queue(cycle) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    for (i = 0; mcf && i < mcf->engines.nelts; i++) {
        e = mcf->engines.elts;
        ngx_http_tallywheel_begin_policies(cycle, mcf, e[i]);

        if (ngx_http_tallywheel_start(e[i], cycle->log) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


void
ngx_http_tallywheel_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                        i;
    ngx_http_tallywheel_engine_t    **e;
    ngx_http_tallywheel_main_conf_t  *mcf;

    mcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_tallywheel_module);

    ngx_http_tallywheel_watch_end();

    for (i = 0; mcf && i < mcf->engines.nelts; i++) {
        e = mcf->engines.elts;

        if (e[i]->connection) {
            ngx_http_tallywheel_close_engine(e[i], NGX_HTTP_TALLYWHEEL_CLOSE_MS);
        }
    }
}
