/* heirs.c -- the slots in Redis of a worker that was killed are given back by other workers.
 * Each worker that opens an engine of its own notes its slots in a row of memory that all workers share
 * (tw_hold_notes()). The master maps it before it forks and does not touch the rows. The lock of a row is robust, and
 * its worker keeps it locked. So a worker that gets it as EOWNERDEAD knows that the other one has ended, whatever
 * serves its process id now. It has the row until Redis has answered.
 * Always true: a row is written only by the worker that has its lock. The thread that locks is the only one of a worker
 * that nginx's cycle runs in, so it ends with its process. Slots of a worker without a row return with their time.
 */
#include "ngx_http_tallywheel.h"
#include <sys/mman.h>


#define NGX_HTTP_TALLYWHEEL_HEIRS_EVERY  500    /* ms; how often a worker looks for one that was killed */
#define NGX_HTTP_TALLYWHEEL_HEIRS_MAX    4096   /* slots of a worker that are noted */


/* The lock of a row lies in a line of its own. */
typedef union {
    pthread_mutex_t              mutex;
    u_char                       line[64];
} ngx_http_tallywheel_lock_t;

typedef enum {
    NGX_HTTP_TALLYWHEEL_ROW_OF_OTHERS = 0,
    NGX_HTTP_TALLYWHEEL_ROW_LEFT,           /* it is locked, and has slots that an ended worker has left */
    NGX_HTTP_TALLYWHEEL_ROW_OWN             /* it is locked, and has slots of this worker only */
} ngx_http_tallywheel_row_e;

struct ngx_http_tallywheel_heirs_s {
    ngx_http_tallywheel_lock_t  *locks;     /* shared, and the notes of the rows follow */
    size_t                       size;
    size_t                       bytes;     /* of the notes of a row */
    ngx_uint_t                   rows;
    ngx_uint_t                   own;       /* a number of a row, or `rows` */
    ngx_uint_t                   notes;     /* the engine has its row: it notes slots in the first one that it gets */
    ngx_msec_t                   looked;    /* ngx_current_msec */
    ngx_http_tallywheel_row_e    row[];     /* of this process */
};


/* ---- the memory ---- */

static void
ngx_http_tallywheel_make_locks(ngx_http_tallywheel_heirs_t *heirs)
{
    ngx_uint_t           i;
    pthread_mutexattr_t  kind;

    (void) pthread_mutexattr_init(&kind);
    (void) pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    (void) pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);

    for (i = 0; i < heirs->rows; i++) {
        (void) pthread_mutex_init(&heirs->locks[i].mutex, &kind);
    }

    (void) pthread_mutexattr_destroy(&kind);
}


/* In the master. There are rows for the workers of two configurations, and some for workers that were killed. An engine
 * that is kept keeps its rows. Without memory, slots of a killed worker return with their time. */
void
ngx_http_tallywheel_map_heirs(ngx_cycle_t *cycle, ngx_http_tallywheel_engine_t *e, ngx_uint_t workers)
{
    size_t                        locks;
    ngx_uint_t                    rows = 2 * workers + 16;
    ngx_http_tallywheel_heirs_t  *heirs;

    if (!e->alone || e->server.url == NULL || e->heirs) {
        return;
    }

    heirs = ngx_pcalloc(e->pool, sizeof(ngx_http_tallywheel_heirs_t) + rows * sizeof(ngx_http_tallywheel_row_e));
    if (heirs == NULL) {
        return;
    }

    locks = rows * sizeof(ngx_http_tallywheel_lock_t);

    heirs->rows = rows;
    heirs->own = rows;
    heirs->bytes = ngx_min(cycle->connection_n, NGX_HTTP_TALLYWHEEL_HEIRS_MAX) * TW_HOLD_NOTE_BYTES;
    heirs->size = locks + rows * heirs->bytes;
    heirs->locks = mmap(NULL, heirs->size, PROT_READ|PROT_WRITE, MAP_ANON|MAP_SHARED|MAP_NORESERVE, -1, 0);

    if (heirs->locks == MAP_FAILED) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, ngx_errno, "tallywheel: mmap(%uz) failed, so slots of killed "
                      "workers return after 15 s", heirs->size);
        return;
    }

    ngx_http_tallywheel_make_locks(heirs);
    e->heirs = heirs;
}


/* The engine is closed. The kernel follows the locks of a thread when it ends, so none is locked. */
void
ngx_http_tallywheel_unmap_heirs(ngx_http_tallywheel_engine_t *e)
{
    ngx_uint_t                    i;
    ngx_http_tallywheel_heirs_t  *heirs = e->heirs;

    for (i = 0; heirs && i < heirs->rows; i++) {
        if (heirs->row[i] != NGX_HTTP_TALLYWHEEL_ROW_OF_OTHERS) {
            (void) pthread_mutex_unlock(&heirs->locks[i].mutex);
        }
    }

    if (heirs) {
        (void) munmap(heirs->locks, heirs->size);
        e->heirs = NULL;
    }
}


/* ---- rows ---- */

/* Returns NGX_OK if this worker has the row now, NGX_DONE if it has it from a worker that has ended. */
static ngx_int_t
ngx_http_tallywheel_take_row(ngx_http_tallywheel_heirs_t *heirs, ngx_uint_t i)
{
    int  rc;

    if (heirs->row[i] != NGX_HTTP_TALLYWHEEL_ROW_OF_OTHERS) {
        return NGX_DECLINED;
    }

    rc = pthread_mutex_trylock(&heirs->locks[i].mutex);

    if (rc == EOWNERDEAD) {
        (void) pthread_mutex_consistent(&heirs->locks[i].mutex);
        return NGX_DONE;
    }

    return (rc == 0) ? NGX_OK : NGX_DECLINED;
}


/* Releases what is left in a row. A row that is not this worker's own is free after that. */
static void
ngx_http_tallywheel_clear_row(ngx_http_tallywheel_engine_t *e, ngx_uint_t i)
{
    u_char                       *notes;
    tw_status                     status;
    ngx_http_tallywheel_heirs_t  *heirs = e->heirs;

    notes = (u_char *) (heirs->locks + heirs->rows) + i * heirs->bytes;
    status = tw_hold_notes(e->engine, notes, heirs->bytes);

    if (status >= 0) {
        heirs->notes = 1;
    }

    if (status != TW_OK) {
        heirs->row[i] = NGX_HTTP_TALLYWHEEL_ROW_LEFT;
        return;
    }

    heirs->row[i] = NGX_HTTP_TALLYWHEEL_ROW_OWN;

    if (i != heirs->own) {
        heirs->row[i] = NGX_HTTP_TALLYWHEEL_ROW_OF_OTHERS;
        (void) pthread_mutex_unlock(&heirs->locks[i].mutex);
    }
}


/* A worker that nginx has started in place of a killed one has the row of that one, or another one soon. */
void
ngx_http_tallywheel_begin_heirs(ngx_http_tallywheel_engine_t *e)
{
    ngx_uint_t                    i;
    ngx_http_tallywheel_heirs_t  *heirs = e->heirs;

    if (heirs == NULL || heirs->own != heirs->rows) {
        return;
    }

    for (i = 0; i < heirs->rows; i++) {
        if (ngx_http_tallywheel_take_row(heirs, i) != NGX_DECLINED) {
            heirs->own = i;
            ngx_http_tallywheel_clear_row(e, i);
            return;
        }
    }
}


void
ngx_http_tallywheel_inherit(ngx_http_tallywheel_engine_t *e)
{
    ngx_int_t                     rc;
    ngx_uint_t                    i, looks;
    ngx_http_tallywheel_heirs_t  *heirs = e->heirs;

    if (heirs == NULL || heirs->own == heirs->rows) {
        return;
    }

    if (!heirs->notes) {
        ngx_http_tallywheel_clear_row(e, heirs->own);

        if (!heirs->notes) {
            return;
        }
    }

    looks = (ngx_current_msec - heirs->looked >= NGX_HTTP_TALLYWHEEL_HEIRS_EVERY);

    if (looks) {
        heirs->looked = ngx_current_msec;
    }

    for (i = 0; i < heirs->rows; i++) {
        rc = looks ? ngx_http_tallywheel_take_row(heirs, i) : NGX_DECLINED;

        if (rc == NGX_OK) {
            (void) pthread_mutex_unlock(&heirs->locks[i].mutex);
        }

        if (rc == NGX_DONE || heirs->row[i] == NGX_HTTP_TALLYWHEEL_ROW_LEFT) {
            ngx_http_tallywheel_clear_row(e, i);
        }
    }
}
