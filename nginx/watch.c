/* watch.c -- tallywheel_watch: a socket with which `tallywheel top`, `show` and `reset` look at the zones.
 * It is a listening socket of nginx: the master binds it, a reload keeps it, a binary upgrade inherits it, and each
 * worker accepts. The worker that accepts gives the client to a thread of the library, so that no request of its loop
 * waits while keys are looked at. That thread starts with the worker's first client.
 * Always true: only root and the user of the master get an answer, whatever the mode of the file is. The thread ends
 * before an engine is closed. */
#include "ngx_http_tallywheel.h"

#include <sys/stat.h>


static uid_t      ngx_http_tallywheel_watch_user;  /* of the master */
static tw_watch  *ngx_http_tallywheel_watch_here;  /* of this process, or NULL */


/* ---- a client ---- */

static void
ngx_http_tallywheel_watch_start(ngx_http_tallywheel_main_conf_t *mcf, ngx_log_t *log)
{
    ngx_uint_t                    i, count;
    tw_family                   **families;
    ngx_http_tallywheel_zone_t  **zone;

    families = ngx_alloc((mcf->zones.nelts + 1) * sizeof(tw_family *), log);
    if (families == NULL) {
        return;
    }

    zone = mcf->zones.elts;

    for (i = 0, count = 0; i < mcf->zones.nelts; i++) {
        if (zone[i]->family->family) {
            families[count++] = zone[i]->family->family;
        }
    }

    if (tw_watch_open(families, count, mcf->watch_writes, &ngx_http_tallywheel_watch_here) != TW_OK) {
        ngx_http_tallywheel_watch_here = NULL;
        ngx_log_error(NGX_LOG_ERR, log, 0, "tallywheel_watch: %s", tw_error_text());
    }

    ngx_free(families);
}


/* The mode of the file keeps others out, too, but for the moment before the master has set it. */
static ngx_uint_t
ngx_http_tallywheel_watch_may(ngx_connection_t *c)
{
    socklen_t     len = sizeof(struct ucred);
    struct ucred  peer;

    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == -1) {
        return 0;
    }

    return peer.uid == 0 || peer.uid == ngx_http_tallywheel_watch_user;
}


static void
ngx_http_tallywheel_watch_accepted(ngx_connection_t *c)
{
    int                               fd;
    ngx_pool_t                       *pool;
    ngx_http_tallywheel_main_conf_t  *mcf;

    mcf = c->listening->servers;
    fd = ngx_http_tallywheel_watch_may(c) ? fcntl(c->fd, F_DUPFD_CLOEXEC, 0) : -1;

    if (fd != -1 && ngx_http_tallywheel_watch_here == NULL) {
        ngx_http_tallywheel_watch_start(mcf, c->log);
    }

    if (fd != -1 && ngx_http_tallywheel_watch_here == NULL) {
        (void) close(fd);

    } else if (fd != -1) {
        (void) tw_watch_take(ngx_http_tallywheel_watch_here, fd);
    }

#if (NGX_STAT_STUB)
    (void) ngx_atomic_fetch_add(ngx_stat_active, -1);
#endif

    pool = c->pool;
    c->destroyed = 1;
    ngx_close_connection(c);
    ngx_destroy_pool(pool);
}


void
ngx_http_tallywheel_watch_end(void)
{
    tw_watch  *watch = ngx_http_tallywheel_watch_here;

    ngx_http_tallywheel_watch_here = NULL;

    if (watch) {
        tw_watch_close(watch);
    }
}


/* ---- the socket ---- */

/* A master that was killed leaves the file of its socket, and nobody listens there. nginx would refuse to start. */
static void
ngx_http_tallywheel_watch_clean(ngx_url_t *u, const char *path)
{
    int          fd, refused;
    struct stat  info;

    if (lstat(path, &info) != 0 || !S_ISSOCK(info.st_mode)) {
        return;
    }

    fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
    if (fd == -1) {
        return;
    }

    refused = (connect(fd, &u->sockaddr.sockaddr, u->socklen) == -1 && errno == ECONNREFUSED);
    (void) close(fd);

    if (refused) {
        (void) unlink(path);
    }
}


/* Whether this nginx listens there already, from the configuration before or by inheritance. */
static ngx_uint_t
ngx_http_tallywheel_watch_is_ours(ngx_conf_t *cf, ngx_url_t *u)
{
    ngx_uint_t        i;
    ngx_listening_t  *ls;

    ls = cf->cycle->old_cycle->listening.elts;

    for (i = 0; i < cf->cycle->old_cycle->listening.nelts; i++) {
        if (ls[i].fd != (ngx_socket_t) -1
            && ngx_cmp_sockaddr(ls[i].sockaddr, ls[i].socklen, &u->sockaddr.sockaddr, u->socklen, 1) == NGX_OK)
        {
            return 1;
        }
    }

    return 0;
}


char *
ngx_http_tallywheel_watch(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_tallywheel_main_conf_t  *mcf = conf;

    ngx_str_t        *value;
    ngx_url_t         u;
    ngx_listening_t  *ls;

    value = cf->args->elts;

    if (mcf->watch_path.data) {
        return "is duplicate";
    }

    if (value[1].data[0] != '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "the path \"%V\" is not absolute", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 3 && ngx_strcmp(value[2].data, "write") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", &value[2]);
        return NGX_CONF_ERROR;
    }

    mcf->watch_path = value[1];
    mcf->watch_writes = (cf->args->nelts == 3);

    ngx_memzero(&u, sizeof(ngx_url_t));
    u.listen = 1;
    u.url.len = value[1].len + 5;
    u.url.data = ngx_pnalloc(cf->pool, u.url.len + 1);
    if (u.url.data == NULL) {
        return NGX_CONF_ERROR;
    }

    (void) ngx_sprintf(u.url.data, "unix:%V%Z", &value[1]);

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s in the path \"%V\"", u.err ? u.err : "error", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (!ngx_test_config && ngx_process != NGX_PROCESS_SIGNALLER && !ngx_http_tallywheel_watch_is_ours(cf, &u)) {
        ngx_http_tallywheel_watch_clean(&u, (char *) value[1].data);
    }

    ls = ngx_create_listening(cf, &u.sockaddr.sockaddr, u.socklen);
    if (ls == NULL) {
        return NGX_CONF_ERROR;
    }

    ls->handler = ngx_http_tallywheel_watch_accepted;
    ls->servers = mcf;
    ls->pool_size = 256;
    ls->logp = &cf->cycle->new_log;
    ls->log.data = &ls->addr_text;
    ls->log.handler = ngx_accept_log_error;

    return NGX_CONF_OK;
}


/* nginx listens, and has made the file open to all. */
void
ngx_http_tallywheel_watch_close_file(ngx_http_tallywheel_main_conf_t *mcf, ngx_log_t *log)
{
    ngx_http_tallywheel_watch_user = geteuid();

    if (mcf->watch_path.data && !ngx_test_config && chmod((char *) mcf->watch_path.data, S_IRUSR|S_IWUSR) == -1) {
        ngx_log_error(NGX_LOG_ALERT, log, ngx_errno, "tallywheel_watch: chmod() \"%V\" failed", &mcf->watch_path);
    }
}
