/* host.c -- see host.h. */
#include "engine/core/host.h"

#include "engine/base/threads.h"
#include "engine/core/state.h"

#define WAIT_MS 100 /* no event is missed. There is a bound nevertheless */

/* ---- the brackets of every call ---- */

struct inside {
    struct twi_thread *self;
    bool was;
};

static struct inside begin(void) {
    struct inside inside = {.self = twi_thread_here()};
    if (inside.self != NULL) {
        inside.was = inside.self->in_hook;
        inside.self->in_hook = true;
    }
    twi_clock_away();
    return inside;
}

static void end(struct inside inside) {
    twi_check(inside.self == NULL || inside.self->in_hook || inside.self != twi_thread_self);
    twi_clock_back();
    /* in a child that the function has forked, the thread has another record */
    if (inside.self != NULL && inside.self == twi_thread_self) inside.self->in_hook = inside.was;
}

/* ---- log, passwords, lost counts ---- */

void twi_host_log(tw_engine *engine, int level, int event, const char *text) {
    twi_check(text != NULL && *text != '\0');
    twi_check(event > 0);
    if (engine->options.log_write == NULL) return;
    struct inside inside = begin();
    engine->options.log_write(engine->options.log_ctx, level, event, text);
    end(inside);
}

void twi_host_lost(tw_engine *engine, struct tw_family *family, tw_key key, int64_t start_ms, int64_t delta,
                   int reason) {
    twi_check(family->engine == engine);
    twi_check(key.size <= TW_KEY_SIZE_MAX);
    if (engine->options.on_lost == NULL) return;
    struct inside inside = begin();
    engine->options.on_lost(engine->options.lost_ctx, family, key, start_ms, delta, reason);
    end(inside);
}

int twi_port_ask_password(int (*ask)(void *ctx, char *out, size_t size), void *ctx, char *out, size_t size) {
    twi_check(ask != NULL && out != NULL && size != 0);
    struct inside inside = begin();
    int length = ask(ctx, out, size);
    end(inside);
    return length;
}

/* ---- answers of calls ---- */

int64_t twi_host_done(tw_engine *engine, tw_request *call) {
    twi_check(call->done != NULL);
    twi_check(call->status != TW_STARTED);
    int64_t began_ms = twi_clock_mono_ms(&engine->clock);
    struct inside inside = begin();
    call->done(call);
    end(inside);
    bool has_forked = inside.self != twi_thread_self || inside.self->mark != TWI_THREAD_MARK;
    return has_forked ? -1 : twi_clock_mono_ms(&engine->clock) - began_ms;
}

/* ---- closing hooks ---- */

/* From here to leave_hook(), tw_family_set() waits for the hook that it takes away. */
static tw_family_options take_hook(struct tw_family *family) {
    twi_check(twi_turn_is_owned(family->engine));
    tw_engine *engine = family->engine;
    twi_lock(&engine->roster.lock);
    tw_family_options options = family->options;
    twi_check(engine->here->hook.family == NULL);
    engine->here->hook.family = options.on_window_closed != NULL ? family : NULL;
    engine->here->hook.call++;
    twi_unlock(&engine->roster.lock);
    return options;
}

static void leave_hook(tw_engine *engine) {
    twi_check(engine->here->hook.family != NULL);
    twi_lock(&engine->roster.lock);
    engine->here->hook.family = NULL;
    twi_unlock(&engine->roster.lock);
    twi_event_count_raise(&engine->turn.ended);
}

void twi_host_hook_has_ended(tw_engine *engine) {
    twi_store_relaxed(&engine->here->hook.thread, NULL);
    if (engine->here->hook.family != NULL) leave_hook(engine);
}

bool twi_host_closed(struct tw_family *family, int64_t start_ms, int64_t end_ms, uint32_t flags) {
    twi_check(start_ms < end_ms);
    tw_engine *engine = family->engine;
    const tw_family_options options = take_hook(family);
    if (options.on_window_closed == NULL) return true;
    struct inside inside = begin();
    twi_store_relaxed(&engine->here->hook.thread, inside.self);
    bool answered = options.on_window_closed(options.closed_ctx, family, start_ms, end_ms, flags);
    twi_store_relaxed(&engine->here->hook.thread, NULL);
    end(inside);
    leave_hook(engine);
    return answered;
}

uint64_t twi_host_running_hook(const struct tw_family *family) {
    twi_check(family->engine != NULL);
    const struct twi_hook_run *run = &family->engine->here->hook;
    return run->family == family ? run->call : 0;
}

void twi_host_wait_for_hook(struct tw_family *family, uint64_t call) {
    tw_engine *engine = family->engine;
    const struct twi_thread *self = twi_thread_here();
    for (bool runs = call != 0; runs && twi_load_relaxed(&engine->here->hook.thread) != self;) {
        uint32_t seen = twi_event_count_value(&engine->turn.ended);
        twi_lock(&engine->roster.lock);
        runs = twi_host_running_hook(family) == call;
        twi_unlock(&engine->roster.lock);
        if (runs) twi_event_count_wait(&engine->turn.ended, seen, WAIT_MS);
    }
}
