/* open.c -- opens one engine with the options of its configuration, and closes it.
 * Always true: with nginx -t no engine reaches Redis, and the log has only what is wrong with the configuration. */
#include "ngx_http_tallywheel.h"


/* The first line of the file. Returns NGX_ERROR, and ngx_errno, if the file cannot be read. */
ngx_int_t
ngx_http_tallywheel_read_password(const char *name, u_char *out, size_t size)
{
    ssize_t   n;
    ngx_fd_t  fd;

    fd = ngx_open_file(name, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);
    if (fd == NGX_INVALID_FILE) {
        return NGX_ERROR;
    }

    n = ngx_read_fd(fd, out, size - 1);
    (void) ngx_close_file(fd);

    if (n < 0) {
        return NGX_ERROR;
    }

    out[n] = '\0';
    out[strcspn((char *) out, "\r\n")] = '\0';

    return (ngx_int_t) ngx_strlen(out);
}


/* The file is read at each connect. A worker that may not read it uses the password that the
 * master has read. */
static int
ngx_http_tallywheel_password(void *ctx, char *out, size_t size)
{
    ngx_int_t                      len;
    ngx_http_tallywheel_engine_t  *e = ctx;

    len = ngx_http_tallywheel_read_password(e->server.password_file, (u_char *) out, size);

    if (len == NGX_ERROR && e->password.len < size) {
        ngx_memcpy(out, e->password.data, e->password.len);
        out[e->password.len] = '\0';
        len = (ngx_int_t) e->password.len;
    }

    return (int) len;
}


static void
ngx_http_tallywheel_log(void *ctx, int level, int event, const char *text)
{
    static const ngx_uint_t  levels[] = { NGX_LOG_ERR, NGX_LOG_WARN, NGX_LOG_NOTICE, NGX_LOG_INFO };

    if (ngx_test_config && (event == TW_EVENT_LOST_CONNECTION || level >= TW_LOG_INFO)) {
        return; /* it did not try to reach Redis; and who tests a configuration reads what is wrong with it */
    }

    ngx_log_error(levels[level & 3], ngx_cycle->log, 0, "tallywheel: %s", text);
}


/* nginx -t opens engines only to check their options, and connects to no Redis. A shared engine connects when a process
 * leads it. An engine of a cluster cannot be shared, and connects at once. Its hosts have been checked before. So here
 * it gets an address of the discard prefix (RFC 6666). */
static char *
ngx_http_tallywheel_url(ngx_http_tallywheel_engine_t *e, uint32_t shared)
{
    char    *hosts, *url;
    size_t   len;

    static const char  cluster[] = "+cluster://";
    static const char  discard[] = "[100::1]:1";

    hosts = e->server.url ? ngx_strstr(e->server.url, cluster) : NULL;

    if (!ngx_test_config || shared != TW_SHARED_NO || hosts == NULL) {
        return e->server.url;
    }

    len = (size_t) (hosts - e->server.url) + sizeof(cluster) - 1;
    url = ngx_pnalloc(e->pool, len + sizeof(discard));

    if (url) {
        ngx_memcpy(ngx_cpymem(url, e->server.url, len), discard, sizeof(discard));
    }

    return url;
}


/* Opens the engine and its families. In a shared engine, after this no family is opened. */
tw_status
ngx_http_tallywheel_open_engine(ngx_http_tallywheel_engine_t *e, uint32_t shared,
    ngx_http_tallywheel_family_t **refused)
{
    char                           labels[64];
    tw_status                      status;
    tw_options                     options;
    ngx_uint_t                     i;
    tw_family_options              zone;
    ngx_http_tallywheel_family_t  *family;

    *refused = NULL;

    ngx_sprintf((u_char *) labels, "engine=\"%ui\"%Z", e->number);

    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    options.shared = shared;
    options.memory_bytes_max = e->server.memory;
    options.log_write = ngx_http_tallywheel_log;
    options.metrics_labels = labels;
    options.redis_url = ngx_http_tallywheel_url(e, shared);
    options.redis_prefix = e->server.prefix;
    options.redis_timeout_ms = (uint32_t) e->server.timeout;
    options.sync_interval_ms = (uint32_t) e->server.interval;
    options.redis_tls_ca_file = e->server.ca;
    options.redis_tls_cert_file = e->server.cert;
    options.redis_tls_key_file = e->server.key;
    options.redis_tls_server_name = e->server.name;

    if (e->server.password_file) {
        options.redis_password = ngx_http_tallywheel_password;
        options.redis_password_ctx = e;
    }

    status = tw_open(&options, &e->engine);
    if (status != TW_OK) {
        e->engine = NULL;
        return status;
    }

    if (e->server.url) {
        e->sure_at = ngx_current_msec + NGX_HTTP_TALLYWHEEL_UNSURE_MS; /* also for a worker that is forked later */
    }

    family = e->families.elts;

    for (i = 0; i < e->families.nelts; i++) {
        zone = family[i].options;

        if (zone.memory_share == 0 && zone.on_full == TW_ON_FULL_EVICT_IDLE) {
            zone.memory_share = ngx_http_tallywheel_part(e);
        }

        family[i].share = zone.memory_share;
        status = tw_family_open(e->engine, &zone, &family[i].family);
        if (status != TW_OK) {
            *refused = &family[i];
            return status;
        }
    }

    return TW_OK;
}


void
ngx_http_tallywheel_close_engine(ngx_http_tallywheel_engine_t *e, uint32_t timeout)
{
    tw_status                      status;
    ngx_uint_t                     i;
    ngx_http_tallywheel_family_t  *family;

    ngx_http_tallywheel_leave_loop(e);

    if (e->engine) {
        status = tw_close(e->engine, timeout);

        if (status != TW_OK && status != TW_ERR_TIMEOUT) { /* the engine has logged which counts are lost */
            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0, "tallywheel: %s", tw_error_text());
        }

        e->engine = NULL;
    }

    family = e->families.elts;

    for (i = 0; i < e->families.nelts; i++) {
        family[i].family = NULL;
    }
}
