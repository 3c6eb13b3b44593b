/* fake_port.h -- a small, visible engine side of engine/port/: an array of counters for each node.
 *
 * In the real engine it is hard to see where a delta is. Here every counter records it (added, handed out,
 * acknowledged, given up), so that P2 can be checked after every step. One program of this folder includes it once.
 * Always true: local >= handed >= acked + lost + unsure, in magnitudes; a counter only ever grows in one direction. */
#ifndef TEST_FAKE_PORT_H
#define TEST_FAKE_PORT_H

#include <stdarg.h>

#include "engine/base/key_slot.h"
#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"
#include "tests/sim/world.h"

#define FAKE_CELLS 16
#define FAKE_STORES 8

struct tw_family {
    tw_engine *engine;
};

struct twi_generation {
    int unused;
};

struct twi_cell {
    char name[24];     /* in the model of Redis: with a shape, that of a field or member (redis_model_inner()) */
    char tag[8];       /* before its name: "{1}"; or "" */
    uint16_t shape;    /* TWI_ITEM_HASH, TWI_ITEM_ZSET; 0: a string */
    int64_t expiry_ms; /* by the nodes' wall clock; 0: endless */
    bool from_first;
    int sign;                                   /* of all its deltas */
    int64_t local, handed, acked, lost, unsure; /* signed sums; handed: frozen, acknowledged or given up */
    int64_t base;
    bool asked, has_base, marked;
    bool parked; /* its store cannot take it. It is not collected */
    int64_t not_before_ms;
    int64_t period_ms; /* of its windows; 0: it has a single life */
    int64_t end_ms;    /* of this life; a key that another node began may expire before it */
    int in_flight;     /* items handed out and not settled */
    bool to_resend;    /* the current store still lacks what another store has */
    int64_t adrift;    /* was in flight to a store that was left */
};

/* What is known of one store: of the only one, or of one key slot. */
struct fake_store {
    uint32_t slot;
    bool was_back;        /* a store that was left has come back before */
    bool restores, keeps; /* the walk: its cells are to be sent again; or another store is back, and has these counts */
    int64_t begun, away, twice, lacked;
};

struct tw_engine {
    struct world *world;
    struct test_prng prng;
    struct tw_family family;
    struct twi_generation generation;
    struct twi_cell cells[FAKE_CELLS];
    struct twi_sync *sync;
    int grace_turns; /* until a full collection may be done */
    bool asked_full, done_full;
    int64_t outstanding;
    bool clock_lies;   /* Redis's clock is set from time to time: late items cannot be recognized from here */
    bool adds_between; /* an adder may come between any two steps of a collection */
    uint64_t rolled_over, turns, breaker_seen[3];
    size_t restore_left; /* cells still to be walked, from the first on */
    struct fake_store stores[FAKE_STORES];
    uint32_t store_count; /* 0: there is one store, and nobody asks which */
    size_t malloc_fails;
    uint32_t live; /* as in the last reply; 0: never */
    int64_t stats[sizeof(tw_stats) / sizeof(int64_t)];
    char last_error[128];
    int twins;
    char id[33];
    char log[64][160]; /* the last lines */
    size_t log_count;
};

static int64_t fake_stat(const tw_engine *engine, size_t offset) {
    return engine->stats[offset / sizeof(int64_t)];
}
#define fake_stat_of(engine, field) fake_stat((engine), offsetof(tw_stats, field))

/* The window that the cell's time belongs to; its name shows which. */
static void fake_cell_begin(tw_engine *engine, size_t index) {
    struct twi_cell *cell = &engine->cells[index];
    if (cell->period_ms == 0) return;
    int64_t number = (world_wall_ms(engine->world) - engine->world->base_ms) / cell->period_ms;
    char tag[sizeof cell->tag];
    memcpy(tag, cell->tag, sizeof tag);
    snprintf(cell->name, sizeof cell->name, "%s%c:%zu:%lld%s", tag, cell->from_first ? 'f' : 's', index,
             (long long)number, cell->shape ? "\x1fi" : "");
    cell->expiry_ms = cell->end_ms = engine->world->base_ms + (number + 1) * cell->period_ms;
}

/* A window that is over and has no unsent counts is replaced by the next one. */
static void fake_roll_over(tw_engine *engine, size_t index) {
    struct twi_cell *cell = &engine->cells[index];
    bool owes = cell->marked || cell->handed != cell->local || cell->in_flight || cell->parked;
    if (cell->period_ms == 0 || owes || world_wall_ms(engine->world) < cell->expiry_ms ||
        world_wall_ms(engine->world) < cell->end_ms)
        return;
    struct twi_cell next = {.from_first = cell->from_first, .sign = cell->sign, .period_ms = cell->period_ms};
    memcpy(next.tag, cell->tag, sizeof next.tag);
    next.shape = cell->shape;
    *cell = next;
    engine->rolled_over++;
    fake_cell_begin(engine, index);
}

static void fake_add(tw_engine *engine, size_t index, int64_t units) {
    struct twi_cell *cell = &engine->cells[index];
    cell->local += units * cell->sign;
    cell->marked = true;
}

static uint32_t fake_store_of(const tw_engine *engine, const struct twi_cell *cell) {
    uint32_t slot = twi_key_slot_of(cell->name, redis_model_outer(cell->name));
    for (uint32_t i = 0; i < engine->store_count; i++)
        if (engine->stores[i].slot == slot) return i;
    return engine->store_count; /* not met; 0 if there is one store */
}

uint32_t twi_port_store(tw_engine *engine, uint32_t slot) {
    for (uint32_t i = 0; i < engine->store_count; i++)
        if (engine->stores[i].slot == slot) return i;
    assert_true(engine->store_count < FAKE_STORES);
    engine->stores[engine->store_count].slot = slot;
    return engine->store_count++;
}

uint32_t twi_port_stores(const tw_engine *engine) {
    return engine->store_count != 0 ? engine->store_count : 1;
}

uint32_t twi_port_store_slot(const tw_engine *engine, uint32_t store) {
    return engine->stores[store].slot;
}

bool twi_port_assign(struct twi_item *item, char *name, size_t *size) {
    tw_engine *engine = item->family->engine;
    *size = twi_port_render(item, name);
    item->store = twi_port_store(engine, twi_key_slot_of(name, *size));
    return true;
}

static void fake_add_between(tw_engine *engine, size_t index) {
    if (engine->adds_between && test_prng_chance(&engine->prng, 1, 40)) fake_add(engine, index, 1);
}

size_t twi_port_collect(tw_engine *engine, struct twi_item *items, size_t count_max) {
    size_t count = 0;
    bool whole = true;
    assert_int_equal(engine->restore_left, 0);
    for (size_t i = 0; i < FAKE_CELLS; i++) {
        struct twi_cell *cell = &engine->cells[i];
        if (!cell->marked || cell->parked || engine->world->now_ms < cell->not_before_ms) continue;
        if (count == count_max) {
            whole = false;
            break;
        }
        cell->marked = false;
        fake_add_between(engine, i);
        items[count] = (struct twi_item){.family = &engine->family, .generation = &engine->generation, .cell = cell};
        if (cell->to_resend) items[count].units = cell->acked;
        items[count].delta = cell->local - cell->handed + items[count].units;
        cell->acked -= items[count].units;
        cell->to_resend = false;
        items[count].expiry_ms = cell->expiry_ms;
        items[count].flags = cell->shape;
        if (!cell->asked) items[count].flags |= TWI_ITEM_FIRST;
        if (cell->from_first) items[count].flags |= TWI_ITEM_FROM_FIRST;
        cell->handed = cell->local;
        cell->in_flight++;
        engine->outstanding++;
        count++;
    }
    if (whole && count < count_max && engine->asked_full && --engine->grace_turns < 0) {
        engine->asked_full = false;
        engine->done_full = true;
    }
    return count;
}

void twi_port_collect_begin(tw_engine *engine) {
    engine->asked_full = true;
    engine->done_full = false;
    engine->grace_turns = (int)test_prng_below(&engine->prng, 3);
}

bool twi_port_collect_is_done(tw_engine *engine) {
    return engine->done_full;
}

bool twi_port_is_dirty(tw_engine *engine) {
    for (size_t i = 0; i < FAKE_CELLS; i++)
        if (engine->cells[i].marked) return true;
    return false;
}

bool twi_port_cannot_wait(tw_engine *engine) {
    return false;
}

size_t twi_port_render(const struct twi_item *item, char *out) {
    size_t size = redis_model_outer(item->cell->name);
    memcpy(out, item->cell->name, size);
    return size;
}

tw_key twi_port_inner(const struct twi_item *item) {
    return tw_str(item->cell->name + redis_model_outer(item->cell->name) + (item->cell->shape != 0));
}

tw_key twi_port_key(const struct twi_item *item) {
    return tw_str(item->cell->name);
}

int64_t twi_port_start_ms(const struct twi_item *item) {
    return 0;
}

void twi_port_acknowledge(const struct twi_item *item, const struct twi_reply *answer) {
    struct twi_cell *cell = item->cell;
    cell->in_flight--;
    cell->acked += item->delta;
    item->family->engine->stores[item->store].away += (item->delta - item->units) * cell->sign;
    if (answer->has_total) {
        cell->base = answer->total - cell->acked;
        cell->asked = cell->has_base = true;
    }
    if (answer->end_ms && cell->from_first) cell->expiry_ms = answer->end_ms;
    assert_true(--item->family->engine->outstanding >= 0);
}

void twi_port_return(const struct twi_item *item, uint32_t after_ms) {
    struct twi_cell *cell = item->cell;
    cell->in_flight--;
    cell->handed -= item->delta;
    if (item->units && (after_ms == 0 || cell->in_flight == 0)) {
        cell->handed += item->units;
        cell->acked += item->units;
        cell->to_resend = true;
    } else {
        item->family->engine->stores[item->store].twice += item->units * cell->sign;
    }
    cell->marked = true;
    cell->not_before_ms = after_ms ? item->family->engine->world->now_ms + after_ms : 0;
    assert_true(--item->family->engine->outstanding >= 0);
}

bool twi_port_park(struct twi_parking *parking, const struct twi_item *item) {
    struct twi_cell *cell = item->cell;
    if (parking->count == parking->room) {
        struct twi_parked *more = realloc(parking->items, (parking->room + 8) * sizeof *more);
        if (!more) return false;
        parking->items = more;
        parking->room += 8;
    }
    assert_false(cell->parked);
    cell->in_flight--;
    cell->handed -= item->delta;
    if (item->units) {
        cell->handed += item->units;
        cell->acked += item->units;
        cell->to_resend = true;
    }
    cell->parked = true;
    parking->items[parking->count++] = (struct twi_parked){item->generation, cell};
    assert_true(--item->family->engine->outstanding >= 0);
    return true;
}

bool twi_port_unpark(tw_engine *engine, struct twi_parking *parking, uint32_t count_max) {
    for (; parking->count && count_max; count_max--) {
        struct twi_cell *cell = parking->items[--parking->count].cell;
        assert_true(cell->parked);
        cell->parked = false;
        cell->marked = true;
    }
    return parking->count != 0;
}

void twi_port_parking_free(struct twi_parking *parking) {
    free(parking->items);
    *parking = (struct twi_parking){0};
}

/* P7, P8: nothing is called late that was not late. A reply may be in flight for a while, so this checks only the end's
 * side. */
static void fake_check_late(const struct twi_item *item) {
    tw_engine *engine = item->family->engine;
    int64_t redis_ms = world_wall_ms(engine->world) + engine->world->redis_skew_ms;
    if (!item->cell->from_first && !engine->clock_lies) assert_true(redis_ms >= item->expiry_ms);
}

void twi_port_give_up(const struct twi_item *item, int reason) {
    if (reason == TW_LOST_UNCERTAIN)
        item->cell->unsure += item->delta;
    else
        item->cell->lost += item->delta;
    if (reason == TW_LOST_LATE || reason == TW_LOST_EXPIRED) fake_check_late(item);
    item->cell->in_flight--;
    assert_true(item->delta != 0);
    assert_true(--item->family->engine->outstanding >= 0);
}

void twi_port_forgotten(tw_engine *engine, uint32_t store) {
    (void)engine, (void)store;
}

/* The item was in flight to a store that is left, and may have arrived there. */
void twi_port_adrift(const struct twi_item *item) {
    item->cell->adrift += item->delta - item->units;
}

void twi_port_keep_item(struct twi_item *item) {
    item->cell->acked += item->units;
    item->delta -= item->units;
    item->units = 0;
}

bool twi_port_end_item(struct twi_item *item) {
    struct twi_cell *cell = item->cell;
    twi_port_keep_item(item);
    int64_t adrift = cell->adrift * cell->sign, most = item->delta * cell->sign;
    if (adrift > most) adrift = most;
    if (adrift <= 0) return false;
    cell->adrift -= adrift * cell->sign;
    cell->unsure += adrift * cell->sign;
    item->delta -= adrift * cell->sign;
    return true;
}

/* It may have arrived there. It is not sent again. */
static void fake_keep_adrift(struct twi_cell *cell) {
    int64_t most = (cell->local - cell->handed) * cell->sign, adrift = cell->adrift * cell->sign;
    if (adrift > most) adrift = most;
    cell->handed += adrift * cell->sign;
    cell->unsure += adrift * cell->sign;
    cell->adrift = 0;
}

static int64_t fake_to_resend(const tw_engine *engine, uint32_t store) {
    int64_t to_resend = 0;
    for (size_t i = 0; i < FAKE_CELLS; i++) {
        const struct twi_cell *cell = &engine->cells[i];
        if (fake_store_of(engine, cell) != store) continue;
        if (cell->to_resend || (engine->stores[store].restores && i < engine->restore_left))
            to_resend += cell->acked * cell->sign;
    }
    return to_resend;
}

/* No engine of the simulator is shared. */
struct twi_restore_before twi_port_restore_before(const tw_engine *engine, uint32_t index) {
    (void)engine, (void)index;
    return (struct twi_restore_before){0};
}
void twi_port_restore_undo(tw_engine *engine, uint32_t index, const struct twi_restore_before *before) {
    (void)engine, (void)index, (void)before;
}
bool twi_port_keep(tw_engine *engine, uint32_t index, uint64_t *uncertain) {
    struct fake_store *store = &engine->stores[index];
    bool was_left = store->begun != 0;
    for (size_t i = 0; i < FAKE_CELLS; i++)
        if (fake_store_of(engine, &engine->cells[i]) == index) fake_keep_adrift(&engine->cells[i]);
    *uncertain = (uint64_t)(store->lacked + (store->away + store->twice) * was_left);
    store->lacked = fake_to_resend(engine, index);
    store->begun = store->away = store->twice = 0;
    if (was_left) engine->restore_left = FAKE_CELLS;
    store->keeps = was_left;
    store->restores = false;
    store->was_back = true;
    return was_left;
}

/* What was given up stays given up; no count is dropped here, so no count is lost. */
uint64_t twi_port_restore(tw_engine *engine, uint32_t index) {
    struct fake_store *store = &engine->stores[index];
    if (engine->world->restores) engine->world->restores(engine->world, store->slot);
    for (size_t i = 0; i < FAKE_CELLS; i++)
        if (fake_store_of(engine, &engine->cells[i]) == index) assert_int_equal(engine->cells[i].in_flight, 0);
    if (store->begun++ == 0 && !store->was_back) store->away = 0;
    int64_t to_resend = fake_to_resend(engine, index);
    if (store->lacked < to_resend) store->lacked = to_resend;
    engine->restore_left = FAKE_CELLS;
    store->restores = true;
    store->keeps = false;
    return 0;
}

bool twi_port_restore_some(tw_engine *engine) {
    for (uint64_t n = test_prng_below(&engine->prng, FAKE_CELLS); n > 0 && engine->restore_left > 0; n--) {
        struct twi_cell *cell = &engine->cells[--engine->restore_left];
        uint32_t index = fake_store_of(engine, cell);
        const struct fake_store *store = &engine->stores[index];
        if (index == FAKE_STORES || (!store->keeps && !store->restores)) continue;
        if (store->keeps) cell->to_resend = false;
        if (store->keeps || cell->acked == 0) continue;
        twi_port_count(engine, restored, cell->acked * cell->sign);
        cell->to_resend = cell->marked = true;
    }
    for (uint32_t i = 0; engine->restore_left == 0 && i < FAKE_STORES; i++)
        engine->stores[i].keeps = engine->stores[i].restores = false;
    return engine->restore_left > 0;
}

/* ---- limits: there are none here ---- */

bool twi_port_is_near_limit(tw_engine *engine) {
    return false;
}

size_t twi_port_collect_near_limit(tw_engine *engine, struct twi_item *items) {
    (void)engine, (void)items;
    return 0;
}

void twi_port_live_engines(tw_engine *engine, uint32_t count) {
    engine->live = count;
}

bool twi_port_closing(tw_engine *engine, struct twi_closing_message *message) {
    (void)engine, (void)message;
    return false;
}

void twi_port_closing_answered(tw_engine *engine, const struct twi_closing_message *message,
                               const struct twi_closing_answer *answer) {
    (void)engine, (void)message, (void)answer;
}

void twi_port_window_names(const struct twi_item *item, struct twi_window_names *names) {
    *names = (struct twi_window_names){.key_count = 0};
}

void twi_port_closing_window(tw_engine *engine, const struct twi_closing_message *message, int64_t start_ms) {
    (void)engine, (void)message, (void)start_ms;
}
void twi_port_closing_name(tw_engine *engine, const struct twi_closing_message *message, tw_key name) {
    (void)engine, (void)message, (void)name;
}

size_t twi_port_closing_keys(const struct twi_closing_message *message, char (*keys)[TWI_OWN_NAME_MAX], size_t *sizes) {
    (void)message, (void)keys, (void)sizes;
    return 0;
}

void twi_port_closing_pause(tw_engine *engine, int64_t until_ms) {
    (void)engine, (void)until_ms;
}

int64_t twi_port_closing_due(tw_engine *engine) {
    return INT64_MAX;
}

uint32_t twi_port_lease_next_store(tw_engine *engine, uint32_t from) {
    (void)engine, (void)from;
    return UINT32_MAX;
}

size_t twi_port_leases(tw_engine *engine, uint32_t store, uint64_t serial, struct twi_lease_message *asks,
                       size_t count_max) {
    (void)engine, (void)store, (void)serial, (void)asks, (void)count_max;
    return 0;
}

void twi_port_lease_answered(tw_engine *engine, const struct twi_lease_message *ask,
                             const struct twi_lease_answer *answer) {
    (void)engine, (void)ask, (void)answer;
}

void twi_port_lease_requested(tw_engine *engine, uint32_t store, const char *name, size_t size) {
    (void)engine, (void)store, (void)name, (void)size;
}

void twi_port_lease_other(tw_engine *engine, uint32_t store, const char *instance, bool takes_part) {
    (void)engine, (void)store, (void)instance, (void)takes_part;
}

const struct twi_lease_epoch *twi_port_lease_epoch(tw_engine *engine, uint32_t store) {
    static const struct twi_lease_epoch none;
    (void)engine, (void)store;
    return &none;
}

int64_t twi_port_lease_due(tw_engine *engine, uint32_t store) {
    (void)engine, (void)store;
    return INT64_MAX;
}

void twi_port_outage(tw_engine *engine, uint32_t store, int64_t since_ms) {
    (void)engine, (void)store, (void)since_ms;
}

void twi_port_connected(tw_engine *engine, bool is_connected) {
    twi_stat_set(engine, offsetof(tw_stats, redis_connected), is_connected);
}

void twi_port_clock_offset(tw_engine *engine, int64_t offset_ms) {
    twi_stat_set(engine, offsetof(tw_stats, redis_clock_offset_ms), offset_ms);
}

void twi_port_log(tw_engine *engine, int level, int event, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *line = engine->log[engine->log_count++ % 64];
    int size = snprintf(line, 160, "%lld %d/%d ", (long long)engine->world->now_ms, level, event);
    vsnprintf(line + size, 160 - (size_t)size, format, arguments);
    va_end(arguments);
}

int twi_port_socket_set(const tw_engine *engine) {
    return -1;
}

void twi_port_measured(tw_engine *engine, int64_t way_us, uint32_t timeout_ms) {
    (void)engine, (void)way_us, (void)timeout_ms; /* there are no calls here */
}

uint32_t twi_port_timeout_ms(const tw_engine *engine) {
    (void)engine; /* as above */
    return 1000;
}

void twi_port_wake(tw_engine *engine) {
    (void)engine; /* the world makes the turns, by its clock */
}

const char *twi_port_prefix(const tw_engine *engine) {
    return "p:";
}

int64_t twi_port_wall_ms(tw_engine *engine) {
    return world_wall_ms(engine->world);
}

int64_t twi_port_mono_ms(tw_engine *engine) {
    return engine->world->now_ms;
}

int64_t twi_port_mono_us(tw_engine *engine) {
    return engine->world->now_ms * 1000;
}

void twi_port_random(tw_engine *engine, void *out, size_t size) {
    for (size_t i = 0; i < size; i++) ((uint8_t *)out)[i] = (uint8_t)test_prng_next(&engine->prng);
}

bool twi_port_is_closing(const tw_engine *engine) {
    return false;
}

/* No engine of a simulation is shared. */
void *twi_port_estate(const tw_engine *engine) {
    return NULL;
}
int64_t twi_port_acked(const struct twi_item *item) {
    return 0;
}
void twi_port_undo_acked(const struct twi_item *item, int64_t acked) {
    (void)item, (void)acked;
}
void twi_port_inherit_begin(tw_engine *engine) {
}
void twi_port_inherit(const struct twi_item *item) {
}
void twi_port_inherit_end(tw_engine *engine) {
}

const char *twi_port_engine_id(tw_engine *engine) {
    uint64_t random[2];
    if (engine->id[0] != '\0') return engine->id;
    twi_port_random(engine, random, sizeof random);
    (void)snprintf(engine->id, sizeof engine->id, "%016llx%016llx", (unsigned long long)random[0],
                   (unsigned long long)random[1]);
    return engine->id;
}

void twi_stat_add(tw_engine *engine, size_t offset, int64_t n) {
    engine->stats[offset / sizeof(int64_t)] += n;
}

void twi_stat_set(tw_engine *engine, size_t offset, int64_t value) {
    engine->stats[offset / sizeof(int64_t)] = value;
}

void twi_port_timed_out_unsent(tw_engine *engine) {
    (void)engine;
}
void twi_port_last_error(tw_engine *engine, const char *text) {
    snprintf(engine->last_error, sizeof engine->last_error, "%s", text);
}

void twi_port_twin(tw_engine *engine) {
    engine->twins++;
}

void twi_port_error_over(tw_engine *engine, const char *text) {
    if (strncmp(engine->last_error, text, sizeof engine->last_error - 1) == 0) engine->last_error[0] = '\0';
}

const struct twi_tuning *twi_port_tuning(const tw_engine *engine) {
    return &test_tuning;
}

/* ---- distinct counts, gauges, holds: there are none ---- */

void twi_port_distinct_again(tw_engine *engine, uint32_t store) {
    (void)engine, (void)store;
}

size_t twi_port_distinct_bytes(const struct twi_item *item, unsigned char *bytes) {
    (void)item, (void)bytes;
    fail_msg("no counter here has registers");
    return 0;
}

bool twi_port_distinct_merged(const struct twi_item *item, const struct twi_merged *merged) {
    (void)item, (void)merged;
    fail_msg("no counter here has registers");
    return false;
}

void twi_port_presence_resend(tw_engine *engine) {
}

bool twi_port_hold_due(tw_engine *engine, struct twi_hold_member *part) {
    (void)engine, (void)part;
    return false;
}

void twi_port_holds_sent(tw_engine *engine) {
}

void twi_port_holds_answered(tw_engine *engine) {
}

void twi_port_holds_unsure(tw_engine *engine) {
}

bool twi_port_sweep_due(tw_engine *engine, struct twi_sweep *sweep) {
    (void)engine, (void)sweep;
    return false;
}

void twi_port_sweep_answered(tw_engine *engine, uint64_t serial, int64_t wait_ms) {
    (void)engine, (void)serial, (void)wait_ms;
}

void twi_port_title(const struct twi_item *item, char *out, size_t room) {
    snprintf(out, room, "%s", item->cell->name);
}

size_t twi_port_render_own(const struct twi_item *item, const char *what, char *out) {
    return twi_port_render(item, out);
}

#endif
