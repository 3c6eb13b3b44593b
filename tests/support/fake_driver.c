/* fake_driver.c -- see fake_driver.h. */
#include "tests/support/fake_driver.h"

#include "engine/port/driver.h"
#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"

#define HELD_MAX 4096u
#define TICKETS_MAX 256u

struct fake_driver fake_driver;

struct held {
    struct twi_item item;
    uint64_t number;
};

/* Tickets are served one at a time. A full collection that begins after the ticket was taken, done when all its items
 * are settled permanently. */
struct twi_sync {
    tw_engine *engine;
    struct test_prng prng;
    struct held held[HELD_MAX];
    size_t held_count;
    uint64_t items;         /* item numbers, rising */
    _Atomic uint64_t asked; /* tickets given out */
    _Atomic uint64_t done;  /* all tickets up to here are done */
    uint64_t serving;       /* the current collection serves tickets up to this one; 0: there is none */
    uint64_t last_item;     /* the last item of that collection; 0: it is still collecting */
    bool spoilt;            /* an item of it was returned: begin again */
};

void fake_driver_reset(int64_t base_ms, int64_t window_ms) {
    memset(&fake_driver, 0, sizeof fake_driver);
    fake_driver.base_ms = base_ms;
    fake_driver.window_ms = window_ms;
    fake_driver.seed = test_seed();
}

void fake_driver_install(tw_options *options) {
    options->redis_url = "unix:///nowhere";
}

void fake_driver_share(tw_options *options) {
    tw_options_init(options);
    options->threads = TW_HOST_DRIVEN;
    options->memory_bytes_max = UINT64_C(64) << 20;
    options->shared = TW_SHARED_BY_FORK;
    fake_driver_reset(0, 0);
    fake_driver_install(options);
}

static int64_t sum_of(_Atomic int64_t (*table)[FAKE_KEYS + 1]) {
    int64_t sum = 0;
    for (uint32_t window = 0; window < FAKE_WINDOWS; window++)
        for (uint32_t key = 0; key <= FAKE_KEYS; key++) sum += atomic_load(&table[window][key]);
    return sum;
}

int64_t fake_driver_sum(void) {
    return sum_of(fake_driver.acked);
}
int64_t fake_driver_given_up(void) {
    return sum_of(fake_driver.given_up);
}

static uint32_t window_of(int64_t start_ms) {
    return fake_driver.window_ms == 0
               ? 0
               : (uint32_t)((start_ms - fake_driver.base_ms) / fake_driver.window_ms) % FAKE_WINDOWS;
}

int64_t fake_driver_of(int64_t start_ms, uint32_t key) {
    return atomic_load(&fake_driver.acked[window_of(start_ms)][key]);
}

static uint32_t number_of(const struct twi_item *item) {
    tw_key key = twi_port_key(item);
    uint32_t number = FAKE_KEYS;
    if ((item->flags & TWI_ITEM_OVERFLOW) == 0) {
        assert_i64_equal(key.size, sizeof number);
        memcpy(&number, key.data, sizeof number);
        assert_true(number < FAKE_KEYS);
    }
    return number;
}

static void acknowledge(const struct twi_item *item) {
    if (fake_driver.taken != NULL) {
        fake_driver.taken(twi_port_key(item), twi_port_start_ms(item), item->delta);
        twi_port_acknowledge(item, &(struct twi_reply){0});
        return;
    }
    uint32_t window = window_of(twi_port_start_ms(item)), number = number_of(item);
    int64_t total = atomic_fetch_add(&fake_driver.acked[window][number], item->delta) + item->delta;
    struct twi_reply answer = {.total = total, .has_total = fake_driver.totals};
    twi_port_acknowledge(item, &answer);
}

static void give_up(const struct twi_item *item, int reason) {
    uint32_t window = window_of(twi_port_start_ms(item));
    atomic_fetch_add(&fake_driver.given_up[window][number_of(item)], item->delta);
    atomic_fetch_add(&fake_driver.items_given_up[window], 1);
    twi_port_give_up(item, reason);
}

static void settle(struct twi_sync *sync, size_t at, uint32_t draw) {
    struct held held = sync->held[at];
    sync->held[at] = sync->held[--sync->held_count];
    atomic_fetch_add(&fake_driver.in_flight, -1);
    atomic_fetch_add(&fake_driver.settled, 1);
    if (draw < fake_driver.return_percent) {
        atomic_fetch_add(&fake_driver.returned, 1);
        if (sync->serving != 0 && (sync->last_item == 0 || held.number <= sync->last_item)) sync->spoilt = true;
        twi_port_return(&held.item, draw % 2 == 0 ? 0 : 1 + draw % 5);
    } else if (draw < fake_driver.return_percent + fake_driver.give_up_percent) {
        give_up(&held.item, TW_LOST_POISON);
    } else {
        acknowledge(&held.item);
    }
}

static void collect(struct twi_sync *sync) {
    struct twi_item items[200];
    size_t most = fake_driver.collect_max != 0 ? fake_driver.collect_max : 200;
    if (most > HELD_MAX - sync->held_count) most = HELD_MAX - sync->held_count;
    if (most == 0) return;
    size_t count = twi_port_collect(sync->engine, items, most);
    assert_true(count <= most);
    for (size_t i = 0; i < count; i++) sync->held[sync->held_count++] = (struct held){items[i], ++sync->items};
    atomic_fetch_add(&fake_driver.collected, count);
    atomic_fetch_add(&fake_driver.in_flight, (int64_t)count);
}

static bool holds_up_to(const struct twi_sync *sync, uint64_t number) {
    for (size_t i = 0; i < sync->held_count; i++)
        if (sync->held[i].number <= number) return true;
    return false;
}

static void serve_tickets(struct twi_sync *sync) {
    if (sync->serving == 0 && atomic_load(&sync->asked) != atomic_load(&sync->done)) {
        sync->serving = atomic_load(&sync->asked);
        sync->last_item = 0;
        sync->spoilt = false;
        twi_port_collect_begin(sync->engine);
    } else if (sync->serving != 0 && sync->last_item == 0 && twi_port_collect_is_done(sync->engine)) {
        sync->last_item = sync->items != 0 ? sync->items : 1;
    }
    if (sync->serving == 0 || sync->last_item == 0 || holds_up_to(sync, sync->last_item)) return;
    if (!sync->spoilt) atomic_store(&sync->done, sync->serving);
    sync->serving = 0;
}

static void driver_turn(struct twi_sync *sync) {
    twi_port_connected(sync->engine, !atomic_load(&fake_driver.away));
    if (atomic_load(&fake_driver.away)) return;
    collect(sync);
    for (size_t i = 0; i < sync->held_count && !atomic_load(&fake_driver.settle_nothing);) {
        if (test_prng_below(&sync->prng, 100) < fake_driver.hold_percent)
            i++;
        else
            settle(sync, i, (uint32_t)test_prng_below(&sync->prng, 100));
    }
    serve_tickets(sync);
}

static tw_status driver_create(tw_engine *engine, const tw_options *options, const struct twi_transport *transport,
                               void *transport_ctx, struct twi_sync **sync) {
    (void)options, (void)transport, (void)transport_ctx;
    *sync = calloc(1, sizeof **sync);
    if (*sync == NULL) return TW_ERR_MEMORY;
    (*sync)->engine = engine;
    test_prng_seed(&(*sync)->prng, fake_driver.seed);
    return TW_OK;
}

static int64_t driver_wake_ms(const struct twi_sync *sync) {
    return twi_port_mono_ms(sync->engine) + 1;
}

static uint64_t driver_ticket_take(struct twi_sync *sync) {
    return atomic_fetch_add(&sync->asked, 1) + 1;
}

static enum twi_ticket driver_ticket_state(struct twi_sync *sync, uint64_t ticket) {
    return atomic_load(&sync->done) >= ticket ? TWI_TICKET_DONE : TWI_TICKET_OPEN;
}

static void driver_stats(const struct twi_sync *sync, tw_stats *stats) {
    stats->redis_connected = !atomic_load(&fake_driver.away);
}

static void driver_destroy(struct twi_sync *sync) {
    while (sync->held_count > 0) {
        struct held *held = &sync->held[--sync->held_count];
        give_up(&held->item, TW_LOST_CLOSED);
    }
    free(sync);
}

/* What was in flight has not reached the ledger, so all of it is collected again. */
static void driver_inherit(struct twi_sync *sync) {
    twi_port_inherit_begin(sync->engine);
    twi_port_inherit_end(sync->engine);
}

static bool driver_finish(struct twi_sync *sync) {
    return sync->held_count == 0;
}

static void driver_hand_over(struct twi_sync *sync) {
    free(sync);
}

static void driver_abandon(struct twi_sync *sync, bool is_torn) {
    free(sync);
}

const struct twi_driver *twi_driver_find(void) {
    static const struct twi_driver driver = {
        .create = driver_create,
        .turn = driver_turn,
        .wake_ms = driver_wake_ms,
        .ticket_take = driver_ticket_take,
        .ticket_state = driver_ticket_state,
        .stats = driver_stats,
        .inherit = driver_inherit,
        .finish = driver_finish,
        .hand_over = driver_hand_over,
        .destroy = driver_destroy,
        .abandon = driver_abandon,
    };
    return &driver;
}
