/* places.c -- how many requests wait for a key, in all workers together. Each waiting request has a place.
 * The workers share some memory, which the master maps before it forks and does not touch after that. Each worker has a
 * row in it, by its number in the master's list of processes. No other process that lives has that number. A row has
 * lines of eight words. The hash of a key says in which line it is. A word is the rest of the hash, and the count.
 * Always true: only a row's own worker writes it. A row counts as long as its worker lives. If a worker has not said so
 * for a while, the others ask the system, so places of a worker that was killed are free within a second. Only a count
 * that takes a place is made under the lock, and no worker waits for long for it: the lock of a process that has gone
 * is taken away. */
#include "ngx_http_tallywheel.h"
#include <ngx_md5.h>
#include <sys/mman.h>
#include <sys/random.h>


#define NGX_HTTP_TALLYWHEEL_BEAT        250          /* ms; so often a worker whose requests wait says that it lives */
#define NGX_HTTP_TALLYWHEEL_DOUBT       700          /* ms; so long it has not said so: does its process exist? */
#define NGX_HTTP_TALLYWHEEL_DEAD        10000        /* ms; it is stopped, or another process has its id */
#define NGX_HTTP_TALLYWHEEL_LINE        8            /* words */
#define NGX_HTTP_TALLYWHEEL_COUNT_MASK  0xfffffULL   /* of a word; the other bits are of the hash */
#define NGX_HTTP_TALLYWHEEL_SPINS       2048
#define NGX_HTTP_TALLYWHEEL_YIELDS      64           /* then its holder is dead, or stopped */


typedef struct {
    volatile ngx_msec_t        beat;    /* ngx_current_msec of its worker */
    volatile ngx_uint_t        total;   /* places */
    ngx_atomic_t               pid;     /* 0: its worker has ended */
    volatile ngx_uint_t        denied;  /* requests that got no place, of all workers that had the row */
} ngx_http_tallywheel_row_t;

typedef struct {
    u_char                     secret[16];
    ngx_atomic_t               lock;    /* 0, or whose it is */
    ngx_atomic_t               rows;    /* how many may be in use */
    u_char                     line[32];
    ngx_http_tallywheel_row_t  row[];
} ngx_http_tallywheel_shared_t;

/* A process has one. The workers inherit that of the master. */
typedef struct {
    ngx_http_tallywheel_shared_t  *shared;
    size_t                         size;
    ngx_uint_t                     rows;
    ngx_uint_t                     lines;   /* of a row; a power of two */
    volatile uint64_t             *words;
    ngx_http_tallywheel_row_t     *own;     /* NULL: this process has no row, and no request waits here */
    volatile uint64_t             *own_words;
    ngx_uint_t                     tickets;
    ngx_event_t                    beat;
} ngx_http_tallywheel_places_t;


static ngx_http_tallywheel_places_t  ngx_http_tallywheel_places;


/* ---- the memory ---- */

/* In the master. A configuration that needs more memory gets other memory: workers of the earlier one keep theirs.
 * Without memory no request waits. That does not end nginx. */
void
ngx_http_tallywheel_map_places(ngx_cycle_t *cycle, ngx_uint_t workers)
{
    void                          *memory;
    size_t                         size, head;
    ngx_uint_t                     rows, lines;
    ngx_http_tallywheel_places_t  *p = &ngx_http_tallywheel_places;

    for (lines = 1; lines * NGX_HTTP_TALLYWHEEL_LINE < cycle->connection_n / 2; lines *= 2) { /* void */ }

    rows = ngx_min(4 * workers + 256, NGX_MAX_PROCESSES); /* also for workers of earlier configurations */

    if (p->own || (p->shared && rows <= p->rows && lines <= p->lines)) {
        return; /* a process that is its own master keeps what it uses */
    }

    head = ngx_align(sizeof(ngx_http_tallywheel_shared_t) + rows * sizeof(ngx_http_tallywheel_row_t), 64);
    size = head + rows * lines * NGX_HTTP_TALLYWHEEL_LINE * sizeof(uint64_t);

    memory = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_ANON|MAP_SHARED|MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, ngx_errno, "tallywheel: mmap(%uz) failed, so with wait= nobody "
                      "may wait", size);
        return;
    }

    if (p->shared) {
        (void) munmap(p->shared, p->size);
    }

    p->shared = memory;
    p->size = size;
    p->rows = rows;
    p->lines = lines;
    p->words = (uint64_t *) ((u_char *) memory + head);

    (void) getrandom(p->shared->secret, sizeof(p->shared->secret), GRND_NONBLOCK);
}


/* ---- rows ---- */

static void
ngx_http_tallywheel_live(ngx_event_t *ev)
{
    ngx_http_tallywheel_places_t  *p = &ngx_http_tallywheel_places;

    p->own->beat = ngx_current_msec;
    p->own->pid = (ngx_atomic_uint_t) ngx_pid;

    if (p->own->total && !ev->timer_set) {
        ngx_add_timer(ev, NGX_HTTP_TALLYWHEEL_BEAT);
    }
}


/* In a worker. Its row may have been that of another one, which was killed. */
void
ngx_http_tallywheel_begin_places(ngx_cycle_t *cycle)
{
    ngx_atomic_uint_t              rows;
    ngx_http_tallywheel_places_t  *p = &ngx_http_tallywheel_places;

    if (p->shared == NULL || (ngx_uint_t) ngx_process_slot >= p->rows) {
        return;
    }

    p->own = &p->shared->row[ngx_process_slot];
    p->own_words = p->words + (ngx_uint_t) ngx_process_slot * p->lines * NGX_HTTP_TALLYWHEEL_LINE;

    if (p->own->total) {
        ngx_memzero((void *) p->own_words, p->lines * NGX_HTTP_TALLYWHEEL_LINE * sizeof(uint64_t));
        p->own->total = 0;
    }

    p->beat.handler = ngx_http_tallywheel_live;
    p->beat.log = cycle->log;
    p->beat.cancelable = 1;

    do {
        rows = p->shared->rows;
    } while (rows <= (ngx_atomic_uint_t) ngx_process_slot
             && !ngx_atomic_cmp_set(&p->shared->rows, rows, (ngx_atomic_uint_t) ngx_process_slot + 1));
}


static ngx_uint_t
ngx_http_tallywheel_counts(ngx_http_tallywheel_row_t *row)
{
    ngx_msec_int_t     silent;
    ngx_atomic_uint_t  pid = row->pid;

    if (row->total == 0 || pid == 0) {
        return 0;
    }

    silent = (ngx_msec_int_t) (ngx_current_msec - row->beat);

    if (row == ngx_http_tallywheel_places.own || silent < NGX_HTTP_TALLYWHEEL_DOUBT
        || (silent < NGX_HTTP_TALLYWHEEL_DEAD && (kill((ngx_pid_t) pid, 0) == 0 || ngx_errno != ESRCH)))
    {
        return 1;
    }

    (void) ngx_atomic_cmp_set(&row->pid, pid, 0); /* another worker may have the row by now */

    return 0;
}


/* The requests that wait in all workers, whatever their keys are. */
ngx_uint_t
ngx_http_tallywheel_all_places(void)
{
    ngx_uint_t                     i, rows, total = 0;
    ngx_http_tallywheel_places_t  *p = &ngx_http_tallywheel_places;

    rows = p->shared ? ngx_min(p->shared->rows, p->rows) : 0;

    for (i = 0; i < rows; i++) {
        if (ngx_http_tallywheel_counts(&p->shared->row[i])) {
            total += p->shared->row[i].total;
        }
    }

    return total;
}


void
ngx_http_tallywheel_count_no_place(void)
{
    if (ngx_http_tallywheel_places.own) {
        ngx_http_tallywheel_places.own->denied++;
    }
}


/* The requests that got no place since nginx has this memory. */
ngx_uint_t
ngx_http_tallywheel_no_places(void)
{
    ngx_uint_t                     i, total = 0;
    ngx_http_tallywheel_places_t  *p = &ngx_http_tallywheel_places;

    for (i = 0; p->shared && i < ngx_min(p->shared->rows, p->rows); i++) {
        total += p->shared->row[i].denied;
    }

    return total;
}


/* ---- places of a key ---- */

/* Without the secret nobody finds a key whose hash is that of another one. `apart`: the limit is that of this process
 * alone. */
uint64_t
ngx_http_tallywheel_place_hash(ngx_str_t *zone, tw_claim *claim, ngx_uint_t apart)
{
    u_char     digest[16];
    uint64_t   hash;
    ngx_md5_t  md5;

    ngx_md5_init(&md5);

    if (ngx_http_tallywheel_places.shared) {
        ngx_md5_update(&md5, ngx_http_tallywheel_places.shared->secret, 16);
    }

    ngx_md5_update(&md5, &claim->limit, sizeof(claim->limit));

    if (apart) {
        ngx_md5_update(&md5, &ngx_pid, sizeof(ngx_pid));
    }

    ngx_md5_update(&md5, zone->data, zone->len + 1); /* and its NUL */
    ngx_md5_update(&md5, claim->key.data, claim->key.size);
    ngx_md5_final(digest, &md5);

    ngx_memcpy(&hash, digest, sizeof(hash));

    return hash | (NGX_HTTP_TALLYWHEEL_COUNT_MASK + 1); /* the part in a word is not 0 */
}


static ngx_inline volatile uint64_t *
ngx_http_tallywheel_line(volatile uint64_t *words, uint64_t hash)
{
    return words + (hash & NGX_HTTP_TALLYWHEEL_COUNT_MASK & (ngx_http_tallywheel_places.lines - 1))
                   * NGX_HTTP_TALLYWHEEL_LINE;
}


/* Returns the word of the key, or NULL. */
static volatile uint64_t *
ngx_http_tallywheel_word(volatile uint64_t *words, uint64_t hash)
{
    ngx_uint_t          i;
    volatile uint64_t  *line = ngx_http_tallywheel_line(words, hash);

    for (i = 0; i < NGX_HTTP_TALLYWHEEL_LINE; i++) {
        if (((line[i] ^ hash) & ~NGX_HTTP_TALLYWHEEL_COUNT_MASK) == 0) {
            return &line[i];
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_tallywheel_places_taken(uint64_t hash)
{
    ngx_uint_t                     i, rows, taken = 0;
    volatile uint64_t             *word;
    ngx_http_tallywheel_places_t  *p = &ngx_http_tallywheel_places;

    rows = p->shared ? ngx_min(p->shared->rows, p->rows) : 0;

    for (i = 0; i < rows; i++) {
        if (ngx_http_tallywheel_counts(&p->shared->row[i])) {
            word = ngx_http_tallywheel_word(p->words + i * p->lines * NGX_HTTP_TALLYWHEEL_LINE, hash);
            taken += word ? (ngx_uint_t) (*word & NGX_HTTP_TALLYWHEEL_COUNT_MASK) : 0;
        }
    }

    return taken;
}


/* Returns what the lock is while this process has it. If its holder does not end, two may count at once: then one
 * request too many may wait. */
static ngx_atomic_uint_t
ngx_http_tallywheel_lock_places(void)
{
    ngx_uint_t                     i, k;
    ngx_atomic_uint_t              mine, seen, first;
    ngx_http_tallywheel_places_t  *p = &ngx_http_tallywheel_places;

    mine = (++p->tickets << 10 | (ngx_uint_t) ngx_process_slot) + 1;

    for ( ;; ) {
        first = p->shared->lock;

        for (k = 0; k < NGX_HTTP_TALLYWHEEL_YIELDS; k++) {
            for (i = 0; i < NGX_HTTP_TALLYWHEEL_SPINS; i++) {
                seen = p->shared->lock;

                if (seen == 0 && ngx_atomic_cmp_set(&p->shared->lock, 0, mine)) {
                    return mine;
                }

                ngx_cpu_pause();
            }

            ngx_sched_yield();
        }

        if (first && ngx_atomic_cmp_set(&p->shared->lock, first, mine)) {
            return mine;
        }
    }
}


static ngx_int_t
ngx_http_tallywheel_add_place(uint64_t hash)
{
    ngx_uint_t                     i;
    volatile uint64_t             *word, *line;
    ngx_http_tallywheel_places_t  *p = &ngx_http_tallywheel_places;

    word = ngx_http_tallywheel_word(p->own_words, hash);
    line = ngx_http_tallywheel_line(p->own_words, hash);

    for (i = 0; word == NULL && i < NGX_HTTP_TALLYWHEEL_LINE; i++) {
        word = (line[i] == 0) ? &line[i] : NULL;
    }

    if (word == NULL) {
        return NGX_DECLINED;
    }

    p->own->total++; /* it is 0 only if all words are, also if this worker is killed now */
    *word = (*word ? *word : (hash & ~NGX_HTTP_TALLYWHEEL_COUNT_MASK)) + 1;
    ngx_http_tallywheel_live(&p->beat);

    return NGX_OK;
}


/* Takes a place of at most `most`, and returns how many are then taken. Returns 0 if there is none. */
ngx_uint_t
ngx_http_tallywheel_take_place(uint64_t hash, ngx_uint_t most)
{
    ngx_uint_t         taken;
    ngx_atomic_uint_t  lock;

    if (ngx_http_tallywheel_places.own == NULL || ngx_http_tallywheel_places_taken(hash) >= most) {
        return 0;
    }

    lock = ngx_http_tallywheel_lock_places();

    taken = ngx_http_tallywheel_places_taken(hash) + 1;
    if (taken > most || ngx_http_tallywheel_add_place(hash) != NGX_OK) {
        taken = 0;
    }

    (void) ngx_atomic_cmp_set(&ngx_http_tallywheel_places.shared->lock, lock, 0);

    return taken;
}


void
ngx_http_tallywheel_give_place(uint64_t hash)
{
    volatile uint64_t             *word;
    ngx_http_tallywheel_places_t  *p = &ngx_http_tallywheel_places;

    word = ngx_http_tallywheel_word(p->own_words, hash);

    if (word) {
        *word = (*word & NGX_HTTP_TALLYWHEEL_COUNT_MASK) > 1 ? *word - 1 : 0;
        p->own->total--;
    }
}
