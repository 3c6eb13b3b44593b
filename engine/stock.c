/* stock.c -- tw_reserve, tw_confirm, tw_cancel: the calls. See stock.h.
 * Without Redis: reserve.c. With Redis: stock_store.c. */
#include "engine/stock.h"

#include "engine/count.h"

#include <string.h>

bool twi_stock_may(const tw_family *family) {
    const tw_family_options *options = &family->options;
    return !family->from_first && !family->ages && options->kind == TW_COUNTER &&
           options->limit_mode != TW_LIMIT_HARD && options->limit_shape == TW_SHAPE_FIXED && !options->shadow;
}

void twi_stock_verdict(tw_verdict *verdict, const tw_family *family, int64_t limit) {
    *verdict = (tw_verdict){.limit = limit, .remaining = limit > 0 ? limit : 0};
    int64_t now_ms = twi_clock_now_ms(&family->engine->clock);
    struct twi_span span = twi_calendar_span(&family->rule, now_ms);
    verdict->window_start_ms = span.start_ms;
    verdict->reset_after_ms = span.end_ms == INT64_MAX ? TW_UNBOUNDED : span.end_ms - now_ms;
    verdict->error_bound = TW_UNBOUNDED;
}

static tw_status check_order(const struct twi_order *order) {
    if (!twi_stock_may(order->family)) return TW_ERR_MODE;
    if (order->n <= 0 || order->n > TW_DELTA_MAX || order->limit < 0 || order->limit > TW_DELTA_MAX ||
        order->hold_ms == 0)
        return TW_ERR_RANGE;
    if (order->buyer.size > TW_KEY_SIZE_MAX || (order->buyer.size != 0 && order->buyer.data == NULL)) return TW_ERR_KEY;
    return twi_call_check_key(order->family, order->key);
}

tw_status tw_reserve(tw_family *family, tw_key key, int64_t n, int64_t limit, uint32_t hold_ms, tw_key buyer,
                     char token[TW_TOKEN_SIZE], tw_verdict *verdict) {
    twi_check(family != NULL && token != NULL);
    struct twi_order order = {family, key, buyer, n, limit, hold_ms};
    struct twi_token made;
    tw_verdict unasked;
    token[0] = '\0';
    if (verdict == NULL) verdict = &unasked;
    twi_stock_verdict(verdict, family, limit);
    tw_status status = check_order(&order);
    if (status != TW_OK) return status;
    status = family->synced ? twi_stock_reserve(&order, &made, verdict) : twi_book_reserve(&order, &made, verdict);
    if (status == TW_OK || status == TW_ERR_TIMEOUT) twi_token_write(&made, token);
    return status;
}

tw_status tw_confirm(tw_engine *engine, const char *token) {
    struct twi_token read;
    twi_check(engine != NULL);
    if (!twi_token_read(token, &read) || read.local == engine->has_redis) return TW_ERR_UNKNOWN_TOKEN;
    return read.local ? twi_book_confirm(engine, &read) : twi_stock_confirm(engine, &read);
}

tw_status tw_cancel(tw_engine *engine, const char *token) {
    struct twi_token read;
    twi_check(engine != NULL);
    if (!twi_token_read(token, &read) || read.local == engine->has_redis) return TW_ERR_UNKNOWN_TOKEN;
    return read.local ? twi_book_cancel(engine, &read) : twi_stock_cancel(engine, &read);
}
