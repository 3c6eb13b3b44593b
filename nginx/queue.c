/* queue.c -- the requests that wait for units of a limit with wait=.
 * A request waits only if it can be served in its time. Without Redis that is known: the requests of its key that wait
 * in all workers are ahead of it (places.c), and the verdict says when units come. With Redis only their number is
 * bounded, and units that come too late.
 * In a worker the requests of a key are served in the order in which they came. The first one asks for its units, and
 * not before the time at which the requests of other workers that came before it have theirs.
 * Always true: a request that waits has a place, and a timer or a call under way. Who comes to a key whose requests
 * wait takes no units before them. At most a quarter of worker_connections wait in a worker. */
#include "ngx_http_tallywheel.h"


#define NGX_HTTP_TALLYWHEEL_SLACK  5      /* ms; nginx's clock and the verdict's times are so coarse */
#define NGX_HTTP_TALLYWHEEL_LATE   1000   /* ms; who has a place may be served so late, on a machine that is busy */
#define NGX_HTTP_TALLYWHEEL_QUIET  60000  /* ms; between two lines of the log */


/* Who may wait for the units of a key, and when its units come: in ms from now. */
typedef struct {
    ngx_uint_t                       most;
    ngx_uint_t                       is_known;   /* when units come */
    double                           first;      /* the next units */
    double                           step;       /* and the ones after them; 0: they come with windows */
    double                           window;
    double                           left;       /* units that are free now */
} ngx_http_tallywheel_outlook_t;


static ngx_queue_t  *ngx_http_tallywheel_lists;      /* by hash, each in the order of arrival */
static ngx_uint_t    ngx_http_tallywheel_list_mask;
static ngx_uint_t    ngx_http_tallywheel_waiting;    /* in this worker */
static ngx_uint_t    ngx_http_tallywheel_waiting_max;
static ngx_msec_t    ngx_http_tallywheel_told;       /* when the log has said that they are too many */


static void ngx_http_tallywheel_due(ngx_event_t *ev);


ngx_int_t
ngx_http_tallywheel_begin_queue(ngx_cycle_t *cycle)
{
    ngx_uint_t  i, count;

    ngx_http_tallywheel_waiting_max = ngx_max(cycle->connection_n / 4, 1);
    for (count = 16; count < ngx_http_tallywheel_waiting_max; count *= 2) { /* void */ }

    ngx_http_tallywheel_lists = ngx_palloc(cycle->pool, count * sizeof(ngx_queue_t));
    if (ngx_http_tallywheel_lists == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < count; i++) {
        ngx_queue_init(&ngx_http_tallywheel_lists[i]);
    }

    ngx_http_tallywheel_list_mask = count - 1;
    ngx_http_tallywheel_told = ngx_current_msec - NGX_HTTP_TALLYWHEEL_QUIET;

    return NGX_OK;
}


/* ---- the outlook ---- */

static ngx_uint_t
ngx_http_tallywheel_has_redis(ngx_http_tallywheel_rule_t *rule)
{
    return rule->zone->engine->server.url != NULL;
}


/* In ms. */
static double
ngx_http_tallywheel_window(tw_family_options *options)
{
    int64_t  ms = ngx_http_tallywheel_length(options);

    return ms ? (double) ms : options->window == TW_WINDOW_MONTH ? 30.0 * (double) TW_DAY : 1e18;
}


static ngx_uint_t
ngx_http_tallywheel_whole(double number)
{
    return number < 1 ? 0 : number > 1e9 ? 1000000000 : (ngx_uint_t) number;
}


/* How many can be served in `wait` ms. */
static ngx_uint_t
ngx_http_tallywheel_servable(ngx_http_tallywheel_outlook_t *look, tw_claim *claim, double wait)
{
    double  windows;

    if (look->step) {
        return wait < look->first ? 0 : ngx_http_tallywheel_whole((wait - look->first) / look->step + 1);
    }

    windows = (wait < look->first) ? 0 : 1 + (double) ngx_http_tallywheel_whole((wait - look->first) / look->window);

    return ngx_http_tallywheel_whole((look->left + windows * (double) claim->limit) / (double) claim->n);
}


/* When the request with that place has its units. */
static double
ngx_http_tallywheel_when(ngx_http_tallywheel_outlook_t *look, tw_claim *claim, ngx_uint_t place)
{
    double  units;

    if (look->step) {
        return look->first + (double) (place - 1) * look->step;
    }

    units = (double) place * (double) claim->n - look->left;

    return units <= 0 ? 0
           : look->first + (double) ngx_http_tallywheel_whole((units - 1) / (double) claim->limit) * look->window;
}


/* `verdict` is that of a denial, or of a look. */
static void
ngx_http_tallywheel_look_out(ngx_http_tallywheel_ctx_t *ctx, tw_verdict *verdict, ngx_http_tallywheel_outlook_t *look)
{
    double                       unit, burst;
    tw_claim                    *claim = &ctx->claims[ctx->next];
    ngx_uint_t                   queue;
    tw_family_options           *options;
    ngx_http_tallywheel_rule_t  *rule = ctx->entries[ctx->next].rule;

    options = &rule->zone->options;
    look->is_known = !ngx_http_tallywheel_has_redis(rule);
    look->window = ngx_http_tallywheel_window(options);
    look->left = (double) ngx_max(verdict->remaining, 0);
    look->step = 0;

    unit = look->window / (double) claim->limit;

    if (options->limit_shape == TW_SHAPE_FIXED) {
        look->first = look->is_known ? (double) verdict->reset_after_ms : 0;

    } else {
        look->step = (double) claim->n * unit;

        if (!look->is_known) {
            look->first = 0;

        } else if (verdict->retry_after_ms > 0) {
            look->first = (double) verdict->retry_after_ms;

        } else if (options->limit_shape == TW_SHAPE_GCRA) {
            burst = (double) (options->burst ? options->burst : claim->limit);
            look->first = (double) verdict->reset_after_ms + ((double) claim->n - burst) * unit;
            look->first = ngx_max(look->first, 0);

        } else {
            look->first = ngx_max((double) claim->n - look->left, 0) * unit;
        }
    }

    look->most = ngx_http_tallywheel_servable(look, claim,
                     (double) rule->wait + ngx_min(NGX_HTTP_TALLYWHEEL_SLACK, look->step / 2));

    queue = rule->queue ? rule->queue : NGX_HTTP_TALLYWHEEL_QUEUE_MAX;
    look->most = ngx_min(look->most, queue);

    if (!look->is_known && verdict->cause == TW_CAUSE_LIMIT && verdict->retry_after_ms > (int64_t) rule->wait) {
        look->most = 0;
    }
}


/* ---- one request ---- */

static void
ngx_http_tallywheel_hash(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_http_tallywheel_rule_t  *rule = ctx->entries[ctx->next].rule;

    if (!ctx->hashed) {
        ctx->wait->hash = ngx_http_tallywheel_place_hash(&rule->zone_name, &ctx->claims[ctx->next],
                              rule->zone->engine->alone && !ngx_http_tallywheel_has_redis(rule));
        ctx->hashed = 1;
    }
}


/* A request that comes while others wait takes no units, and the verdict is that of a look. */
tw_status
ngx_http_tallywheel_first_try(ngx_http_tallywheel_ctx_t *ctx)
{
    tw_claim                    *claim = &ctx->claims[ctx->next];
    tw_status                    status;
    ngx_uint_t                   is_asked;
    tw_request                  *call = &ctx->wait->call;
    ngx_http_tallywheel_rule_t  *rule = ctx->entries[ctx->next].rule;

    is_asked = (rule->zone->options.limit_mode == TW_LIMIT_STRICT && ngx_http_tallywheel_has_redis(rule));

    if (claim->n && claim->n <= claim->limit && ngx_http_tallywheel_all_places()) {
        ngx_http_tallywheel_hash(ctx);

        if (ngx_http_tallywheel_places_taken(ctx->wait->hash)) {
            ngx_memzero(&call->verdict, sizeof(tw_verdict));
            call->verdict.limit = claim->limit;
            call->verdict.decided_by = is_asked ? TW_BY_REDIS : TW_BY_LOCAL;

            status = is_asked ? TW_OK : tw_acquire(claim->family, claim->key, 0, claim->limit, &call->verdict);

            call->verdict.allowed = 0;

            return (status < 0) ? status : TW_DENIED;
        }
    }

    return is_asked ? tw_acquire_async(call, claim->family, claim->key, claim->n, claim->limit)
                    : tw_acquire(claim->family, claim->key, claim->n, claim->limit, &call->verdict);
}


/* The answer may come at once. */
static tw_status
ngx_http_tallywheel_ask(ngx_http_tallywheel_ctx_t *ctx)
{
    tw_claim        *claim = &ctx->claims[ctx->next];
    tw_status        status;
    tw_request      *call = &ctx->wait->call;
    ngx_msec_int_t   left;

    left = (ngx_msec_int_t) (ctx->wait->deadline - ngx_current_msec);

    tw_request_init(call);
    call->done = ngx_http_tallywheel_done;
    call->ctx = ctx;
    call->timeout_ms = (uint32_t) ngx_max(left, 1);

    status = tw_acquire_wait_async(call, claim->family, claim->key, claim->n, claim->limit);

    if (status == TW_STARTED) {
        ctx->asked = 1;
        ngx_http_tallywheel_count_parked(ctx->entries[ctx->next].rule->zone->engine, 1);
        ngx_http_tallywheel_post_turn(ctx->entries[ctx->next].rule->zone->engine);
    }

    return status;
}


/* Its turn is after its gate, or its time is over. Then it asks once. */
static void
ngx_http_tallywheel_due(ngx_event_t *ev)
{
    tw_status                   status;
    ngx_http_tallywheel_ctx_t  *ctx = ev->data;

    status = ngx_http_tallywheel_ask(ctx);

    if (status != TW_STARTED) {
        ngx_http_tallywheel_answer(ctx, status);
    }
}


static ngx_queue_t *
ngx_http_tallywheel_list(uint64_t hash)
{
    return &ngx_http_tallywheel_lists[(hash >> 32) & ngx_http_tallywheel_list_mask];
}


/* The first request of the key behind `q`, or NULL. */
static ngx_http_tallywheel_wait_t *
ngx_http_tallywheel_behind(ngx_queue_t *q, uint64_t hash)
{
    ngx_queue_t                 *list = ngx_http_tallywheel_list(hash);
    ngx_http_tallywheel_wait_t  *wait;

    for (q = ngx_queue_next(q); q != list; q = ngx_queue_next(q)) {
        wait = ngx_queue_data(q, ngx_http_tallywheel_wait_t, queue);

        if (wait->hash == hash) {
            return wait;
        }
    }

    return NULL;
}


/* It is the first one of its key in this worker. */
static tw_status
ngx_http_tallywheel_come_first(ngx_http_tallywheel_ctx_t *ctx)
{
    ngx_msec_int_t  left = (ngx_msec_int_t) (ctx->wait->gate - ngx_current_msec);

    if (ctx->wait->timer.timer_set) {
        ngx_del_timer(&ctx->wait->timer);
    }

    if (left <= 0) {
        return ngx_http_tallywheel_ask(ctx);
    }

    ngx_add_timer(&ctx->wait->timer, (ngx_msec_t) left);

    return TW_STARTED;
}


static void
ngx_http_tallywheel_too_many(ngx_http_tallywheel_ctx_t *ctx)
{
    if (ngx_current_msec - ngx_http_tallywheel_told >= NGX_HTTP_TALLYWHEEL_QUIET) {
        ngx_http_tallywheel_told = ngx_current_msec;
        ngx_log_error(NGX_LOG_WARN, ctx->request->connection->log, 0, "tallywheel: %ui requests wait in this worker, "
                      "a quarter of worker_connections; more are denied at once", ngx_http_tallywheel_waiting);
    }
}


/* It is denied. After a look the verdict says why: others wait, and one of them goes when units come. */
static void
ngx_http_tallywheel_no_place(ngx_http_tallywheel_ctx_t *ctx, double ms)
{
    tw_verdict  *verdict = &ctx->wait->call.verdict;

    ngx_http_tallywheel_count_no_place();

    if (verdict->retry_after_ms != 0) {
        return;
    }

    verdict->cause = TW_CAUSE_LIMIT;
    verdict->remaining = 0;
    verdict->retry_after_ms = (ms < 1) ? 1 : (ms > 1e15) ? TW_UNBOUNDED : (int64_t) ms + 1;
}


/* `status` is that of the first try, and the verdict is there. Returns TW_STARTED if the request waits now. Otherwise
 * it returns the answer. */
tw_status
ngx_http_tallywheel_queue_up(ngx_http_tallywheel_ctx_t *ctx, tw_status status)
{
    double                         when;
    ngx_uint_t                     place = 0;
    tw_verdict                    *verdict = &ctx->wait->call.verdict;
    ngx_http_tallywheel_wait_t    *wait = ctx->wait;
    ngx_http_tallywheel_rule_t    *rule = ctx->entries[ctx->next].rule;
    ngx_http_tallywheel_outlook_t  look;

    if (ctx->waited || (status != TW_DENIED && status != TW_PENDING) || verdict->retry_after_ms < 0) {
        return status;
    }

    ngx_time_update();
    ngx_http_tallywheel_look_out(ctx, verdict, &look);

    if (ngx_http_tallywheel_waiting >= ngx_http_tallywheel_waiting_max) {
        ngx_http_tallywheel_too_many(ctx);

    } else if (look.most) {
        ngx_http_tallywheel_hash(ctx);
        place = ngx_http_tallywheel_take_place(wait->hash, look.most);
    }

    if (place == 0) {
        ngx_http_tallywheel_no_place(ctx, look.first);
        return status;
    }

    when = look.is_known ? ngx_http_tallywheel_when(&look, &ctx->claims[ctx->next], place) : 0;

    /* Of a rate it asks when the request before it has its units, and the engine then knows for what it waits. Units of
     * a window may also come back before it ends. */
    wait->gate = ngx_current_msec + (ngx_msec_t) (look.step ? ngx_max(when - look.step / 2, 0)
                                                  : ngx_max(when - look.first, 0));
    wait->deadline = ngx_current_msec + ngx_max(rule->wait, (ngx_msec_t) when + NGX_HTTP_TALLYWHEEL_LATE);

    wait->timer.handler = ngx_http_tallywheel_due;
    wait->timer.data = ctx;
    wait->timer.log = ctx->request->connection->log;

    ngx_queue_insert_tail(ngx_http_tallywheel_list(wait->hash), &wait->queue);
    ngx_http_tallywheel_waiting++;
    ctx->queued = 1;
    ctx->waited = 1;

    if (ngx_http_tallywheel_behind(ngx_http_tallywheel_list(wait->hash), wait->hash) != wait) {
        ngx_add_timer(&wait->timer, wait->deadline - ngx_current_msec);
        return TW_STARTED;
    }

    status = ngx_http_tallywheel_come_first(ctx);

    if (status != TW_STARTED) {
        ngx_http_tallywheel_leave_queue(ctx);
    }

    return status;
}


/* It has its answer, or its client has gone: the next one is the first. */
void
ngx_http_tallywheel_leave_queue(ngx_http_tallywheel_ctx_t *ctx)
{
    tw_status                    status;
    ngx_msec_t                   gate, another;
    ngx_uint_t                   was_first;
    ngx_http_tallywheel_ctx_t   *behind;
    ngx_http_tallywheel_wait_t  *wait = ctx->wait, *next, *each;

    if (!ctx->queued) {
        return;
    }

    ctx->queued = 0;

    if (wait->timer.timer_set) {
        ngx_del_timer(&wait->timer);
    }

    was_first = (ngx_http_tallywheel_behind(ngx_http_tallywheel_list(wait->hash), wait->hash) == wait);
    next = ngx_http_tallywheel_behind(&wait->queue, wait->hash);

    /* All that are behind one who goes without units come earlier. */
    gate = wait->gate;
    each = ctx->entries[ctx->next].taken ? NULL : next;

    for ( /* void */ ; each; each = ngx_http_tallywheel_behind(&each->queue, wait->hash)) {
        another = each->gate;
        each->gate = gate;
        gate = another;
    }

    ngx_queue_remove(&wait->queue);
    ngx_http_tallywheel_give_place(wait->hash);
    ngx_http_tallywheel_waiting--;

    behind = next ? next->timer.data : NULL;

    if (was_first && behind && !behind->asked && !behind->answered) {
        status = ngx_http_tallywheel_come_first(behind);

        if (status != TW_STARTED) {
            ngx_http_tallywheel_answer(behind, status);
        }
    }
}
