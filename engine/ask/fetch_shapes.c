/* fetch_shapes.c -- tw_fetch_fields(), tw_fetch_top() and tw_fetch_rank() read a hash or a sorted set from Redis
 * (totals.lua). The fields of a hash are read with HSCAN, some hundred fields in each script call. HGETALL of a large
 * hash would delay all other clients of that Redis, and its reply would have no bound. A ranking is read with one
 * script call, because an order is valid only for one moment. The thread that drives the calls collects the pages. The
 * thread that gets the result sorts them and shows them.
 * Always true: the visitor is called after all pages have arrived, or it is never called. Redis is not changed, so
 * no call has a number. */
#include "engine/ask/fetch_shapes.h"

#include "engine/ask/redis_call.h"
#include "engine/base/check.h"
#include "engine/base/grow.h"
#include "engine/count/call.h"
#include "engine/count/walk.h"

#include <errno.h>
#include <stdlib.h>

/* ---- totals ---- */

#define ROOM_FIRST 64u
#define NUMBER_DIGITS_MAX 20u /* with the sign */

/* Returns false if the text is no whole number within +-most. */
static bool read_total(tw_key text, int64_t most, int64_t *total) {
    twi_check(most >= 0 && total != NULL);
    char digits[NUMBER_DIGITS_MAX + 1], *end;
    if (text.size == 0 || text.size > NUMBER_DIGITS_MAX) return false;
    memcpy(digits, text.data, text.size);
    digits[text.size] = '\0';
    if (digits[0] != '-' && (digits[0] < '0' || digits[0] > '9')) return false;
    errno = 0;
    *total = strtoll(digits, &end, 10);
    return errno == 0 && end == digits + text.size && *total <= most && *total >= -most;
}

static enum twi_totals_added read_page(struct twi_totals *totals, const char *page, size_t size, int64_t most) {
    for (size_t at = 0; at < size;) {
        struct twi_total found = {.order = totals->count};
        tw_key number;
        if (!twi_redis_call_next_text(page, size, &at, &found.name) ||
            !twi_redis_call_next_text(page, size, &at, &number))
            return TWI_TOTALS_MALFORMED;
        if (!read_total(number, most, &found.total)) continue;
        if (totals->count == TWI_TOTALS_MAX) return TWI_TOTALS_TOO_MANY;
        twi_check(totals->count <= totals->room);
        if (!twi_grow(&totals->each, sizeof *totals->each, &totals->room, totals->count + 1, ROOM_FIRST))
            return TWI_TOTALS_NO_MEMORY;
        totals->each[totals->count++] = found;
    }
    return TWI_TOTALS_ADDED;
}

enum twi_totals_added twi_totals_add(struct twi_totals *totals, char *page, size_t size, int64_t most) {
    twi_check(page != NULL && totals->page_count <= totals->page_room);
    if (!twi_grow(&totals->pages, sizeof(char *), &totals->page_room, totals->page_count + 1, ROOM_FIRST)) {
        free(page);
        return TWI_TOTALS_NO_MEMORY;
    }
    totals->pages[totals->page_count++] = page;
    totals->bytes += size;
    if (totals->bytes > TWI_TOTALS_BYTES_MAX) return TWI_TOTALS_TOO_MANY;
    return read_page(totals, page, size, most);
}

static int compare_names(tw_key a, tw_key b) {
    size_t size = a.size < b.size ? a.size : b.size;
    int order = size != 0 ? memcmp(a.data, b.data, size) : 0;
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

static int by_name(const void *left, const void *right) {
    const struct twi_total *a = left, *b = right;
    int order = compare_names(a->name, b->name);
    return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static int by_rank(const void *left, const void *right) {
    const struct twi_total *a = left, *b = right;
    if (a->total != b->total) return a->total > b->total ? -1 : 1;
    return compare_names(b->name, a->name);
}

static void sort(struct twi_totals *totals, int (*compare)(const void *left, const void *right)) {
    twi_check(totals->count <= totals->room);
    if (totals->count != 0) qsort(totals->each, totals->count, sizeof *totals->each, compare);
}

void twi_totals_unite(struct twi_totals *totals) {
    size_t kept = 0;
    sort(totals, by_name);
    for (size_t i = 0; i < totals->count; i++) {
        bool is_last = i + 1 == totals->count || compare_names(totals->each[i].name, totals->each[i + 1].name) != 0;
        if (is_last) totals->each[kept++] = totals->each[i];
    }
    totals->count = kept;
    twi_check(kept <= totals->room);
}

void twi_totals_rank(struct twi_totals *totals) {
    sort(totals, by_rank);
}

void twi_totals_clear(struct twi_totals *totals) {
    twi_check(totals->page_count == 0 || totals->pages != NULL);
    for (size_t i = 0; i < totals->page_count; i++) free(totals->pages[i]);
    free(totals->pages);
    free(totals->each);
    *totals = (struct twi_totals){0};
}

#define TOP_MAX 10000u
#define HISTORY_MAX 48u
#define CURSOR_MAX 24u

/* Why a fetch did not finish. */
enum trouble {
    NO_TROUBLE,
    TROUBLE_TIME,    /* its time was over between two pages */
    TROUBLE_OUTCOME, /* the reason is in result.outcome */
    TROUBLE_SAID,    /* the reason came from Redis, and is in `why` */
    TROUBLE_REPLY,   /* the reply is no list of names and totals */
    TROUBLE_TOO_MANY,
    TROUBLE_MEMORY
};

enum what { WHAT_FIELDS, WHAT_TOP, WHAT_RANK };

typedef bool visit_fn(void *ctx, tw_key name, int64_t total);

/* The caller's request. */
struct wish {
    enum what what;
    tw_family *family;
    tw_key key; /* any counter of that hash or sorted set; for a rank: the member */
    int64_t start_ms;
    size_t n; /* for a ranking: how many members */
    visit_fn *visit;
    void *visit_ctx;
};

struct fetch {
    struct twi_operation operation;
    struct wish wish;
    struct twi_totals totals;
    enum trouble trouble;
    int64_t place; /* for a ranking: where the next page begins; -1 means that there is no next page */
    char cursor[CURSOR_MAX], history[HISTORY_MAX]; /* for a hash */
    bool is_first;                                 /* the first page has not come yet */
    char why[sizeof((struct twi_script_value *)0)->text];
};
static_assert(sizeof(struct fetch) <= TWI_OPERATION_BYTES, "operation.h");

/* ---- one request ------------------------------------------------------------------------------------------------- */

static bool ask(struct twi_operation *operation) {
    static const char *const words[] = {"fields", "top", "rank"};
    const struct fetch *fetch = (const struct fetch *)operation;
    const struct wish *wish = &fetch->wish;
    struct twi_redis_call call;
    twi_check(wish->family != NULL && wish->what <= WHAT_RANK);
    twi_check(wish->what != WHAT_TOP || fetch->totals.count < wish->n);
    twi_redis_call_begin(&call, TWI_SCRIPT_TOTALS);
    /* any key of the window leads to its sorted set */
    tw_key key = wish->what == WHAT_FIELDS ? wish->key : tw_str("x");
    twi_redis_call_key(&call, wish->family, NULL, key, wish->start_ms);
    twi_redis_call_text(&call, words[wish->what]);
    if (wish->what == WHAT_FIELDS) twi_redis_call_text(&call, fetch->cursor);
    if (wish->what == WHAT_TOP) twi_redis_call_number(&call, fetch->place);
    if (wish->what == WHAT_TOP) twi_redis_call_number(&call, (int64_t)(wish->n - fetch->totals.count));
    if (wish->what == WHAT_RANK) call.args[call.request.arg_count++] = wish->key;
    call.request.wants_long = wish->what != WHAT_RANK;
    return twi_redis_call_send(&call, operation);
}

/* Copies the printable characters of a word that came from a server. */
static void copy_printable(const struct twi_script_value *value, char *text) {
    twi_check(value->size < sizeof value->text);
    size_t size = 0;
    for (; size < value->size && size + 1 < sizeof value->text; size++) {
        char byte = value->text[size];
        text[size] = (char)(byte >= ' ' && byte <= '~' ? byte : '?');
    }
    text[size] = '\0';
}

/* Returns true if the reply has that many values. */
static bool is_answered(struct fetch *fetch, const struct twi_answer *answer, size_t values) {
    twi_check(values <= TWI_SCRIPT_VALUES_MAX && fetch->trouble == NO_TROUBLE);
    const struct twi_result *result = &fetch->operation.result;
    if (result->outcome != TWI_REQUEST_DONE) {
        fetch->trouble = TROUBLE_OUTCOME;
    } else if (result->count == 2 && twi_result_is(result, "BAD")) {
        fetch->trouble = TROUBLE_SAID;
        copy_printable(&answer->values[1], fetch->why);
    } else if (result->count != values || !twi_result_is(result, "OK")) {
        fetch->trouble = TROUBLE_REPLY;
    }
    return fetch->trouble == NO_TROUBLE;
}

/* Adds the page that is the last value of the reply. */
static bool add_page(struct fetch *fetch, struct twi_answer *answer, int64_t most) {
    twi_check(fetch->trouble == NO_TROUBLE && most > 0);
    char *page = answer->long_text;
    if (page == NULL) fetch->trouble = TROUBLE_REPLY;
    if (page == NULL) return false;
    answer->long_text = NULL; /* the text now belongs to `totals` */
    switch (twi_totals_add(&fetch->totals, page, answer->long_size, most)) {
    case TWI_TOTALS_ADDED: return true;
    case TWI_TOTALS_MALFORMED: fetch->trouble = TROUBLE_REPLY; break;
    case TWI_TOTALS_TOO_MANY: fetch->trouble = TROUBLE_TOO_MANY; break;
    case TWI_TOTALS_NO_MEMORY: fetch->trouble = TROUBLE_MEMORY; break;
    }
    return false;
}

/* A cursor is valid only for the hash of one server. If another server replies (a failover, a slot that moved), the
 * fields are read from the beginning. Returns true if there is another page. */
static bool take_fields(struct fetch *fetch, struct twi_answer *answer) {
    twi_check(fetch->wish.what == WHAT_FIELDS);
    if (!is_answered(fetch, answer, 4) || !add_page(fetch, answer, INT64_MAX)) return false;
    const struct twi_script_value *now = &answer->values[1], *next = &answer->values[2];
    if (now->size >= HISTORY_MAX || next->size >= CURSOR_MAX) fetch->trouble = TROUBLE_REPLY;
    if (fetch->trouble != NO_TROUBLE) return false;
    bool is_another = !fetch->is_first && strcmp(fetch->history, now->text) != 0;
    if (is_another) twi_totals_clear(&fetch->totals);
    memcpy(fetch->history, now->text, now->size + 1);
    memcpy(fetch->cursor, is_another ? "0" : next->text, is_another ? 2 : next->size + 1);
    fetch->is_first = false;
    return is_another || strcmp(fetch->cursor, "0") != 0;
}

/* One reply has the whole ranking, unless names are long, or values of other programs are left out. In these cases
 * the missing members are requested next. If a member has moved meanwhile, its last place is used. Returns true if
 * there is another page. */
static bool take_top(struct fetch *fetch, struct twi_answer *answer) {
    twi_check(fetch->wish.what == WHAT_TOP && fetch->totals.count < fetch->wish.n);
    size_t before = fetch->totals.count, missing = fetch->wish.n - before;
    if (!is_answered(fetch, answer, 3) || !add_page(fetch, answer, TW_DELTA_MAX)) return false;
    int64_t next = twi_result_number(&fetch->operation.result, 1);
    if (fetch->totals.count - before > missing || (next >= 0 && next <= fetch->place)) fetch->trouble = TROUBLE_REPLY;
    if (fetch->trouble != NO_TROUBLE) return false;
    fetch->place = next;
    twi_totals_unite(&fetch->totals);
    return fetch->place >= 0 && fetch->totals.count < fetch->wish.n;
}

static void take_rank(struct fetch *fetch, const struct twi_answer *answer) {
    twi_check(fetch->wish.what == WHAT_RANK);
    const struct twi_result *result = &fetch->operation.result;
    if (!is_answered(fetch, answer, 3)) return;
    if ((result->are_numbers & 2u) == 0 || result->numbers[1] < -1)
        fetch->trouble = TROUBLE_REPLY;
    else
        copy_printable(&answer->values[2], fetch->why); /* the text is a score that is no valid count */
}

static bool take_reply(struct twi_operation *operation, struct twi_answer *answer) {
    struct fetch *fetch = (struct fetch *)operation;
    if (fetch->wish.what == WHAT_RANK) take_rank(fetch, answer);
    bool has_more = fetch->wish.what == WHAT_FIELDS ? take_fields(fetch, answer)
                    : fetch->wish.what == WHAT_TOP  ? take_top(fetch, answer)
                                                    : false;
    if (!has_more) return false;
    if (twi_clock_mono_ms(&operation->engine->clock) >= operation->deadline_ms)
        fetch->trouble = TROUBLE_TIME;
    else if (ask(operation))
        return true;
    else
        fetch->trouble = TROUBLE_OUTCOME;
    return false;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static tw_status refuse_time(void) {
    return twi_refuse(TW_ERR_TIMEOUT, "timeout_ms: Redis did not reply in time");
}

static tw_status answer_of(const struct fetch *fetch) {
    tw_engine *engine = fetch->operation.engine;
    enum twi_request_outcome outcome = fetch->operation.result.outcome;
    switch (fetch->trouble) {
    case TROUBLE_TIME: return refuse_time();
    case TROUBLE_SAID: return twi_refuse_with(TW_ERR_REDIS, "Redis: %s", fetch->why);
    case TROUBLE_REPLY: return twi_refuse(TW_ERR_REDIS, "Redis: its reply is no list of names and totals");
    case TROUBLE_TOO_MANY:
        return twi_refuse(TW_ERR_MEMORY, "subject: Redis holds more than 1,000,000 fields of it, or than 64 MiB");
    case TROUBLE_MEMORY: return twi_refuse(TW_ERR_MEMORY, NULL);
    case NO_TROUBLE:
    case TROUBLE_OUTCOME: break;
    }
    if (outcome == TWI_REQUEST_DONE) return TW_OK;
    bool is_stopped = twi_load_acquire(&engine->life.stopped);
    return outcome == TWI_REQUEST_UNKNOWN && !is_stopped ? refuse_time() : twi_redis_call_refuse(engine, outcome);
}

/* Computes the result, in the thread that gets it. The pages of HSCAN may contain a field twice. */
static tw_status conclude(struct fetch *fetch) {
    const struct wish *wish = &fetch->wish;
    tw_status status = answer_of(fetch);
    if (status != TW_OK || wish->what == WHAT_RANK) return status;
    if (wish->what == WHAT_FIELDS)
        twi_totals_unite(&fetch->totals);
    else
        twi_totals_rank(&fetch->totals);
    size_t most = wish->what == WHAT_TOP ? wish->n : SIZE_MAX;
    twi_check(wish->visit != NULL && fetch->trouble == NO_TROUBLE);
    for (size_t i = 0; i < fetch->totals.count && i < most; i++)
        if (!wish->visit(wish->visit_ctx, fetch->totals.each[i].name, fetch->totals.each[i].total)) break;
    return TW_OK;
}

static tw_status finish(struct twi_operation *operation, tw_request *call) {
    struct fetch *fetch = (struct fetch *)operation;
    const struct twi_result *result = &operation->result;
    tw_status status = conclude(fetch);
    if (status != TW_OK || fetch->wish.what != WHAT_RANK) return status;
    int64_t score = result->numbers[2];
    if ((result->are_numbers & 4u) == 0 || score > TW_DELTA_MAX || score < -TW_DELTA_MAX)
        return twi_refuse_with(TW_ERR_REDIS, "Redis: the member's score is no count: %s", fetch->why);
    call->rank = result->numbers[1];
    call->total = score;
    return TW_OK;
}

static void drop(struct twi_operation *operation) {
    twi_totals_clear(&((struct fetch *)operation)->totals);
}

static const struct twi_operation_kind kind = {.send = ask, .reply = take_reply, .finish = finish, .drop = drop};

/* ---- allowed requests
 * ---------------------------------------------------------------------------------------------- */

/* Chooses the window of a moment. `unix_ms` may be in any window. Redis has more windows than this process. */
static tw_status choose_window(struct wish *wish, int64_t unix_ms) {
    tw_family *family = wish->family;
    if (unix_ms == TW_NOW) unix_ms = twi_clock_now_ms(&family->engine->clock);
    if (!twi_calendar_holds(unix_ms)) return twi_refuse_for(TWI_WHY_TIME);
    wish->start_ms = twi_calendar_span(&family->rule, unix_ms).start_ms;
    return TW_OK;
}

static tw_status choose_hash(struct wish *wish, tw_key subject, unsigned char key[TW_KEY_SIZE_MAX]) {
    const tw_family *family = wish->family;
    tw_status status = twi_hash_check(family, subject);
    if (status != TW_OK) return status;
    /* Any key of the subject leads to its hash. */
    tw_key field = family->fields != NULL ? family->fields->each[0] : tw_str("x");
    if (!twi_hash_key(family, subject, field, key, &wish->key))
        return twi_refuse(TW_ERR_KEY, "subject: it leaves no room for a field in a key");
    return twi_call_check_key(family, wish->key);
}

static tw_status choose_ranking(const struct wish *wish) {
    if (wish->family->template.shape.kind != TW_REDIS_ZSET)
        return twi_refuse(TW_ERR_MODE, "redis_shape: rankings are of families of TW_REDIS_ZSET");
    if (wish->what == WHAT_TOP && (wish->n < 1 || wish->n > TOP_MAX))
        return twi_refuse(TW_ERR_RANGE, "n: tw_fetch_top() shows 1 to 10,000 members");
    return wish->what == WHAT_RANK ? twi_call_check_key(wish->family, wish->key) : TW_OK;
}

static tw_status start(tw_request *call, struct wish *wish, tw_status status, int64_t unix_ms) {
    tw_family *family = wish->family;
    if (status == TW_OK) status = choose_window(wish, unix_ms);
    if (status == TW_OK) status = twi_redis_call_may(family->engine, call);
    struct fetch *fetch =
        status == TW_OK ? (struct fetch *)twi_operation_make(family->engine, &kind, family, call, &status) : NULL;
    if (fetch == NULL) return twi_call_answer(call, status);
    fetch->wish = *wish;
    fetch->totals = (struct twi_totals){0};
    fetch->trouble = NO_TROUBLE;
    fetch->place = 0;
    memcpy(fetch->cursor, "0", 2);
    fetch->history[0] = fetch->why[0] = '\0';
    fetch->is_first = true;
    return twi_call_start_with(&fetch->operation, call, wish->key, &fetch->wish.key);
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

tw_status tw_fetch_fields_async(tw_request *request, tw_family *family, tw_key subject, int64_t unix_ms,
                                bool (*visit)(void *ctx, tw_key field, int64_t total), void *visit_ctx) {
    TWI_NEED(request);
    TWI_NEED(family);
    TWI_NEED(visit);
    unsigned char key[TW_KEY_SIZE_MAX];
    struct wish wish = {.what = WHAT_FIELDS, .family = family, .visit = visit, .visit_ctx = visit_ctx};
    return start(request, &wish, choose_hash(&wish, subject, key), unix_ms);
}

tw_status tw_fetch_top_async(tw_request *request, tw_family *family, int64_t unix_ms, size_t n,
                             bool (*visit)(void *ctx, tw_key member, int64_t total), void *visit_ctx) {
    TWI_NEED(request);
    TWI_NEED(family);
    TWI_NEED(visit);
    struct wish wish = {.what = WHAT_TOP, .family = family, .n = n, .visit = visit, .visit_ctx = visit_ctx};
    return start(request, &wish, choose_ranking(&wish), unix_ms);
}

tw_status tw_fetch_rank_async(tw_request *request, tw_family *family, tw_key member, int64_t unix_ms) {
    TWI_NEED(request);
    TWI_NEED(family);
    struct wish wish = {.what = WHAT_RANK, .family = family, .key = member};
    return start(request, &wish, choose_ranking(&wish), unix_ms);
}

tw_status tw_fetch_fields(tw_family *family, tw_key subject, int64_t unix_ms, uint32_t timeout_ms,
                          bool (*visit)(void *ctx, tw_key field, int64_t total), void *ctx) {
    tw_request call;
    twi_call_by_thread(&call, timeout_ms);
    return tw_fetch_fields_async(&call, family, subject, unix_ms, visit, ctx);
}

tw_status tw_fetch_top(tw_family *family, int64_t unix_ms, size_t n, uint32_t timeout_ms,
                       bool (*visit)(void *ctx, tw_key member, int64_t total), void *ctx) {
    tw_request call;
    twi_call_by_thread(&call, timeout_ms);
    return tw_fetch_top_async(&call, family, unix_ms, n, visit, ctx);
}

tw_status tw_fetch_rank(tw_family *family, tw_key member, int64_t unix_ms, uint32_t timeout_ms, int64_t *rank,
                        int64_t *total) {
    tw_request call;
    twi_call_by_thread(&call, timeout_ms);
    call.rank = call.total = 0;
    tw_status status = tw_fetch_rank_async(&call, family, member, unix_ms);
    if (status == TW_OK && rank != NULL) *rank = call.rank;
    if (status == TW_OK && total != NULL) *total = call.total;
    return status;
}
