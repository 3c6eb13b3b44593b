/* tallywheel_php.c -- the engine that all workers of PHP-FPM share, opened when the master loads this library.
 *
 *     cc -O2 -shared -fPIC -o libtallywheel_php.so tallywheel_php.c -ltallywheel
 *
 * A preload file of opcache cannot open it: if the master is root, PHP runs that file in a child, whose engine no
 * worker inherits. ffi.preload loads a library in the master itself.
 * Environment of the master: TALLYWHEEL_LIMITS, a file of limits (default /etc/tallywheel/php.limits);
 * TALLYWHEEL_REDIS_URL; TALLYWHEEL_LOG.
 * Always true: what fails says why: tallywheel_why(). A master whose limits cannot be read starts, and says so on its
 * standard error. Only a strict limit waits, for Redis. */
#define _GNU_SOURCE /* secure_getenv() */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tallywheel.h>

#include "tallywheel_php.h"

static tw_engine *engine;
static tw_limits *limits;
static char why[512] = "the library was not loaded in the master of PHP-FPM: ffi.preload";
static pid_t candidate; /* the process that has called tw_lead() */

static const char *setting(const char *name, const char *otherwise) {
    const char *value = secure_getenv(name); /* an empty one is none */
    return value != NULL && *value != '\0' ? value : otherwise;
}

__attribute__((constructor)) static void open_engine(void) {
    tw_options options;
    const char *path = setting("TALLYWHEEL_LIMITS", "/etc/tallywheel/php.limits");
    tw_options_init(&options);
    options.shared = TW_SHARED_BY_FORK;
    options.redis_url = setting("TALLYWHEEL_REDIS_URL", NULL);
    options.error_text = why;
    options.error_size = sizeof why;
    if (tw_open(&options, &engine) != TW_OK)
        engine = NULL;
    else if (tw_limits_open(engine, path, why, sizeof why, &limits) == TW_OK)
        return;
    limits = NULL;
    tw_log_stderr(NULL, TW_LOG_ERROR, TW_EVENT_START, why);
}

/* Why the last call with a negative status failed. */
const char *tallywheel_why(void) {
    return limits == NULL ? why : tw_error_text();
}

/* The first call of a worker makes it a candidate for the turns. */
static tw_status begin(void) {
    if (limits == NULL) return TW_ERR_OPTIONS;
    if (candidate == getpid()) return TW_OK;
    tw_status status = tw_lead(engine);
    if (status >= 0) candidate = getpid();
    return status;
}

/* The family that counts a key. */
static tw_status find(const char *name, tw_key key, tw_family **family) {
    tw_status status = begin();
    return status < 0 ? status : tw_limits_find(limits, name, key, family, NULL);
}

int tallywheel_acquire(const char *name, const char *bytes, size_t size, int64_t n, tallywheel_verdict *out) {
    tw_key key = {bytes, size};
    tw_verdict verdict;
    tw_status status = begin();
    if (status >= 0) status = tw_limits_acquire(limits, name, key, n, &verdict);
    if (status < 0) return status;
    *out = (tallywheel_verdict){
        .limit = verdict.limit,
        .used = verdict.used,
        .remaining = verdict.remaining,
        .retry_after_ms = verdict.retry_after_ms,
        .reset_after_ms = verdict.reset_after_ms,
        .window_start_ms = verdict.window_start_ms,
        .admitted = status == TW_OK,
        .allowed = verdict.allowed,
        .pending = status == TW_PENDING,
        .cause = verdict.cause,
    };
    return status;
}

int tallywheel_refund(const char *name, const char *bytes, size_t size, int64_t n, int64_t window_start_ms) {
    tw_family *family;
    tw_status status = find(name, (tw_key){bytes, size}, &family);
    return status < 0 ? status : tw_refund(family, (tw_key){bytes, size}, n, window_start_ms);
}

int tallywheel_add(const char *name, const char *bytes, size_t size, int64_t delta, int64_t *count) {
    tw_family *family;
    tw_status status = find(name, (tw_key){bytes, size}, &family);
    return status < 0 ? status : tw_add(family, (tw_key){bytes, size}, delta, count);
}

int tallywheel_get(const char *name, const char *bytes, size_t size, int64_t *count) {
    tw_family *family;
    tw_status status = find(name, (tw_key){bytes, size}, &family);
    return status < 0 ? status : tw_get(family, (tw_key){bytes, size}, count);
}

struct page {
    char *text;
    size_t size, used;
};

static bool put(void *ctx, const char *text, size_t size) {
    struct page *page = ctx;
    if (size > page->size - page->used) return false;
    memcpy(page->text + page->used, text, size);
    page->used += size;
    return true;
}

int tallywheel_metrics(char *text, size_t size, size_t *used) {
    struct page page = {text, size, 0};
    tw_status status = begin();
    if (status >= 0) status = tw_metrics_write(engine, 0, put, &page);
    *used = page.used;
    return status;
}
