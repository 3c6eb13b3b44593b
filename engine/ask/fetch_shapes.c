/* fetch_shapes.c -- tw_fetch_fields(), tw_fetch_top(), tw_fetch_rank(): what Redis holds of a hash or of a sorted set
 * (totals.lua). The fields of a hash are read by HSCAN, some hundred in one script: HGETALL of a large
 * hash would hold up everybody else at that Redis, and its reply has no bound. A ranking is one script, for only one
 * moment has an order.
 * Always true: the visitor is called when all is there, or not at all. Nothing is changed, so no call is numbered. */
#include "engine/ask/redis_call.h"
#include "engine/ask/totals.h"
#include "engine/count/call.h"
#include "engine/count/each_field.h"

#include <stdlib.h>

#define TOP_MAX 10000u
#define HISTORY_MAX 48u
#define CURSOR_MAX 24u

/* One call: which key in Redis, and what came of it. */
struct fetch {
    tw_family *family;
    tw_key key; /* any counter of that hash or sorted set */
    int64_t start_ms;
    int64_t deadline_ms; /* monotonic */
    struct twi_totals totals;
};

/* ---- what may be asked ------------------------------------------------------------------------------------------- */

/* The window of a moment. `unix_ms` may lie in any window: Redis knows more of them than this process. */
static tw_status choose_window(struct fetch *fetch, int64_t unix_ms) {
    tw_family *family = fetch->family;
    if (unix_ms == TW_NOW) unix_ms = twi_clock_now_ms(&family->engine->clock);
    if (!twi_calendar_holds(unix_ms)) return twi_time_refuse();
    fetch->start_ms = twi_calendar_span(&family->rule, unix_ms).start_ms;
    return TW_OK;
}

static tw_status begin(struct fetch *fetch, int64_t unix_ms, uint32_t timeout_ms) {
    tw_engine *engine = fetch->family->engine;
    tw_status status = choose_window(fetch, unix_ms);
    if (status == TW_OK) status = twi_redis_call_may(engine);
    if (timeout_ms == 0) timeout_ms = twi_port_timeout_ms(engine);
    fetch->deadline_ms = twi_clock_mono_ms(&engine->clock) + timeout_ms;
    return status;
}

/* ---- one request ------------------------------------------------------------------------------------------------- */

static tw_status refuse_time(void) {
    return twi_refuse(TW_ERR_TIMEOUT, "timeout_ms: Redis did not reply in time");
}

static tw_status refuse_reply(void) {
    return twi_refuse(TW_ERR_REDIS, "Redis: its reply is no list of names and totals");
}

static void put_request(struct fetch *fetch, struct twi_redis_call *call, const char *what) {
    twi_redis_call_begin(call, fetch->family->engine, TWI_SCRIPT_TOTALS, 1);
    call->request.deadline_ms = fetch->deadline_ms;
    twi_redis_call_key(call, fetch->family, NULL, fetch->key, fetch->start_ms);
    twi_redis_call_text(call, what);
}

/* Of a word that a server sent: what can be printed. */
static const char *printable(const struct twi_script_value *value, char text[sizeof value->text]) {
    size_t size = 0;
    for (; size < value->size && size + 1 < sizeof value->text; size++) {
        char byte = value->text[size];
        text[size] = (char)(byte >= ' ' && byte <= '~' ? byte : '?');
    }
    text[size] = '\0';
    return text;
}

/* Runs it. TW_OK: it was answered by so many values. */
static tw_status run(struct fetch *fetch, struct twi_redis_call *call, size_t values) {
    tw_engine *engine = fetch->family->engine;
    if (twi_clock_mono_ms(&engine->clock) >= fetch->deadline_ms) return refuse_time();
    enum twi_request_outcome outcome = twi_redis_call_run(call, engine);
    bool is_stopped = twi_load_acquire(&engine->life.stopped);
    if (outcome == TWI_REQUEST_UNKNOWN && !is_stopped) return refuse_time();
    if (outcome != TWI_REQUEST_DONE) return twi_redis_call_refuse(engine, outcome);
    if (call->request.value_count == values && twi_redis_call_is(call, "OK")) return TW_OK;
    char why[sizeof call->request.values[1].text];
    if (call->request.value_count == 2 && twi_redis_call_is(call, "BAD"))
        return twi_refuse_with(TW_ERR_REDIS, "Redis: %s", printable(&call->request.values[1], why));
    return refuse_reply();
}

/* Runs a request whose last value is a page, and gathers the page. */
static tw_status run_page(struct fetch *fetch, struct twi_redis_call *call, size_t values, int64_t most) {
    call->request.wants_long = true;
    tw_status status = run(fetch, call, values);
    if (status == TW_OK && call->request.long_text == NULL) status = refuse_reply();
    if (status != TW_OK) {
        free(call->request.long_text);
        return status;
    }
    switch (twi_totals_add(&fetch->totals, call->request.long_text, call->request.long_size, most)) {
    case TWI_TOTALS_ADDED: return TW_OK;
    case TWI_TOTALS_MALFORMED: return refuse_reply();
    case TWI_TOTALS_TOO_MANY:
        return twi_refuse(TW_ERR_MEMORY, "subject: Redis holds more than 1,000,000 fields of it, or than 64 MiB");
    case TWI_TOTALS_NO_MEMORY: break;
    }
    return twi_refuse(TW_ERR_MEMORY, NULL);
}

static tw_status show(struct fetch *fetch, tw_status status, size_t most,
                      bool (*visit)(void *ctx, tw_key name, int64_t total), void *ctx) {
    const struct twi_totals *totals = &fetch->totals;
    if (status == TW_OK)
        for (size_t i = 0; i < totals->count && i < most; i++)
            if (!visit(ctx, totals->each[i].name, totals->each[i].total)) break;
    twi_totals_clear(&fetch->totals);
    return status;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

/* A cursor belongs to the hash as one server has it: where another server replies (a failover, a slot that moved), the
 * fields are read from the beginning. The pages of HSCAN may have a field twice. */
static tw_status gather_fields(struct fetch *fetch) {
    char cursor[CURSOR_MAX] = "0", history[HISTORY_MAX] = "";
    for (bool is_first = true;; is_first = false) {
        struct twi_redis_call call;
        put_request(fetch, &call, "fields");
        twi_redis_call_text(&call, cursor);
        tw_status status = run_page(fetch, &call, 4, INT64_MAX);
        if (status != TW_OK) return status;
        const struct twi_script_value *now = &call.request.values[1], *next = &call.request.values[2];
        if (now->size >= HISTORY_MAX || next->size >= CURSOR_MAX) return refuse_reply();
        bool is_another = !is_first && strcmp(history, now->text) != 0;
        if (is_another) twi_totals_clear(&fetch->totals);
        memcpy(history, now->text, now->size + 1);
        memcpy(cursor, is_another ? "0" : next->text, is_another ? 2 : next->size + 1);
        if (!is_another && strcmp(cursor, "0") == 0) break;
    }
    twi_totals_unite(&fetch->totals);
    return TW_OK;
}

static tw_status choose_hash(struct fetch *fetch, tw_key subject, unsigned char key[TW_KEY_SIZE_MAX]) {
    const tw_family *family = fetch->family;
    tw_status status = twi_hash_check(family, subject);
    if (status != TW_OK) return status;
    /* Each key of the subject leads to its hash. */
    tw_key field = family->fields != NULL ? family->fields->each[0] : tw_str("x");
    if (!twi_hash_key(family, subject, field, key, &fetch->key))
        return twi_refuse(TW_ERR_KEY, "subject: it leaves no room for a field in a key");
    return twi_call_check_key(family, fetch->key);
}

tw_status tw_fetch_fields(tw_family *family, tw_key subject, int64_t unix_ms, uint32_t timeout_ms,
                          bool (*visit)(void *ctx, tw_key field, int64_t total), void *ctx) {
    twi_check(family != NULL && visit != NULL);
    unsigned char key[TW_KEY_SIZE_MAX];
    struct fetch fetch = {.family = family};
    tw_status status = choose_hash(&fetch, subject, key);
    if (status == TW_OK) status = begin(&fetch, unix_ms, timeout_ms);
    if (status == TW_OK) status = gather_fields(&fetch);
    return show(&fetch, status, SIZE_MAX, visit, ctx);
}

/* ---- rankings ---------------------------------------------------------------------------------------------------- */

static tw_status choose_ranking(struct fetch *fetch) {
    if (fetch->family->template.shape.kind != TW_REDIS_ZSET)
        return twi_refuse(TW_ERR_MODE, "redis_shape: rankings are of families of TW_REDIS_ZSET");
    fetch->key = tw_str("x"); /* each key of the window leads to its set */
    return TW_OK;
}

/* One reply has the whole ranking, unless names are long, or values of others are left out. Then those that are missing
 * are asked for, and a member that has moved meanwhile counts as it was last seen. */
static tw_status gather_top(struct fetch *fetch, size_t n) {
    int64_t place = 0;
    do {
        struct twi_redis_call call;
        size_t missing = n - fetch->totals.count;
        put_request(fetch, &call, "top");
        twi_redis_call_number(&call, place);
        twi_redis_call_number(&call, (int64_t)missing);
        size_t before = fetch->totals.count;
        tw_status status = run_page(fetch, &call, 3, TW_DELTA_MAX);
        if (status != TW_OK) return status;
        int64_t next = twi_redis_call_number_at(&call, 1);
        if (fetch->totals.count - before > missing || (next >= 0 && next <= place)) return refuse_reply();
        place = next;
        twi_totals_unite(&fetch->totals);
    } while (place >= 0 && fetch->totals.count < n);
    twi_totals_rank(&fetch->totals);
    return TW_OK;
}

tw_status tw_fetch_top(tw_family *family, int64_t unix_ms, size_t n, uint32_t timeout_ms,
                       bool (*visit)(void *ctx, tw_key member, int64_t total), void *ctx) {
    twi_check(family != NULL && visit != NULL);
    struct fetch fetch = {.family = family};
    tw_status status = choose_ranking(&fetch);
    if (status == TW_OK && (n < 1 || n > TOP_MAX))
        status = twi_refuse(TW_ERR_RANGE, "n: tw_fetch_top() shows 1 to 10,000 members");
    if (status == TW_OK) status = begin(&fetch, unix_ms, timeout_ms);
    if (status == TW_OK) status = gather_top(&fetch, n);
    return show(&fetch, status, n, visit, ctx);
}

tw_status tw_fetch_rank(tw_family *family, tw_key member, int64_t unix_ms, uint32_t timeout_ms, int64_t *rank,
                        int64_t *total) {
    twi_check(family != NULL);
    struct fetch fetch = {.family = family};
    struct twi_redis_call call;
    tw_status status = choose_ranking(&fetch);
    if (status == TW_OK) status = twi_call_check_key(family, member);
    if (status == TW_OK) status = begin(&fetch, unix_ms, timeout_ms);
    if (status != TW_OK) return status;
    put_request(&fetch, &call, "rank");
    call.args[call.request.arg_count++] = member;
    status = run(&fetch, &call, 3);
    if (status != TW_OK) return status;
    const struct twi_script_value *place = &call.request.values[1], *score = &call.request.values[2];
    char text[sizeof score->text];
    if (!place->is_number || place->number < -1) return refuse_reply();
    if (!score->is_number || score->number > TW_DELTA_MAX || score->number < -TW_DELTA_MAX)
        return twi_refuse_with(TW_ERR_REDIS, "Redis: the member's score is no count: %s", printable(score, text));
    if (rank != NULL) *rank = place->number;
    if (total != NULL) *total = score->number;
    return TW_OK;
}
