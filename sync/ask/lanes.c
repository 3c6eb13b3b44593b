/* lanes.c -- see lanes.h. A lane's number for callers is its call's number and its index: number << 16 | index. */
#include "sync/ask/lanes.h"

#include "engine/base/check.h"
#include "engine/base/event_count.h"
#include "engine/base/threads.h"
#include "engine/port/services.h"
#include "gcra.lua.h"
#include "hold.lua.h"
#include "lock.lua.h"
#include "once.lua.h"
#include "reclaim.lua.h"
#include "reserve.lua.h"
#include "strict.lua.h"
#include "totals.lua.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- call text ---- */

static const struct twi_script_source scripts[TWI_SCRIPTS] = {
    [TWI_SCRIPT_STRICT] = {twi_script_strict, twi_script_strict_sha1},
    [TWI_SCRIPT_GCRA] = {twi_script_gcra, twi_script_gcra_sha1},
    [TWI_SCRIPT_ONCE] = {twi_script_once, twi_script_once_sha1},
    [TWI_SCRIPT_LOCK] = {twi_script_lock, twi_script_lock_sha1},
    [TWI_SCRIPT_RESERVE] = {twi_script_reserve, twi_script_reserve_sha1},
    [TWI_SCRIPT_HOLD] = {twi_script_hold, twi_script_hold_sha1},
    [TWI_SCRIPT_RECLAIM] = {twi_script_reclaim, twi_script_reclaim_sha1},
    [TWI_SCRIPT_TOTALS] = {twi_script_totals, twi_script_totals_sha1},
};

static void set_serial(struct twi_call_text *text, uint64_t number, uint32_t nonce) {
    twi_check(number != 0);
    (void)snprintf(text->serial, sizeof text->serial, "%" PRIu64 ":%08" PRIx32, number, nonce);
}

static void put_head(struct twi_call_text *text, const char *who) {
    twi_check(who[0] != '\0' && text->serial[0] != '\0');
    twi_wire_put_text(&text->body, who);
    twi_wire_put_text(&text->body, text->serial);
    twi_wire_put_u64(&text->body, TWI_CALL_ASK);
}

void twi_call_write(struct twi_call_text *text, const struct twi_request *request, const char *who, uint64_t number,
                    uint32_t nonce) {
    struct twi_bytes *body = &text->body;
    twi_check(request->script < TWI_SCRIPTS && strlen(who) < TWI_CALL_WHO_SIZE);
    body->size = 0;
    body->failed = false;
    text->script = request->script;
    text->wants_long = request->wants_long;
    text->words = 1 + request->key_count + 3 + request->arg_count;
    set_serial(text, number, nonce);
    twi_wire_put_u64(body, request->key_count);
    for (size_t i = 0; i < request->key_count; i++) twi_wire_put(body, request->keys[i].data, request->keys[i].size);
    text->who_at = body->size;
    put_head(text, who);
    text->own_at = body->size;
    for (size_t i = 0; i < request->arg_count; i++) twi_wire_put(body, request->args[i].data, request->args[i].size);
}

void twi_call_rename(struct twi_call_text *text, const char *who, uint64_t number, uint32_t nonce) {
    struct twi_bytes before = text->body;
    twi_check(text->who_at < text->own_at && text->own_at <= before.size);
    text->body = (struct twi_bytes){0};
    set_serial(text, number, nonce);
    twi_bytes_add(&text->body, before.data, text->who_at);
    put_head(text, who);
    size_t own_at = text->body.size;
    twi_bytes_add(&text->body, before.data + text->own_at, before.size - text->own_at);
    text->own_at = own_at;
    twi_bytes_free(&before);
}

void twi_call_put(struct twi_bytes *out, struct twi_call_text *text, enum twi_call_verb verb, bool whole, bool asking) {
    twi_check(verb <= TWI_CALL_RETRY && text->own_at >= 3 && text->own_at <= text->body.size);
    text->body.data[text->own_at - 3] = (char)('0' + verb); /* "$1", and the digit */
    if (asking) {
        twi_wire_begin(out, 1);
        twi_wire_put_text(out, "ASKING");
    }
    twi_wire_begin_script(out, &scripts[text->script], whole, text->words);
    twi_bytes_add(out, text->body.data, text->body.size);
}

/* Returns false if it is no text, or without memory. */
static bool keep_long(const struct twi_node *node, struct twi_answer *answer) {
    char *text = node->type == TWI_NODE_STRING ? malloc(node->size + 1) : NULL;
    if (text == NULL) return false;
    memcpy(text, node->text, node->size);
    answer->long_text = text;
    answer->long_size = node->size;
    return true;
}

/* Reads one element of a reply. Returns false if no script replies with such an element. */
static bool read_script_value(const struct twi_node *node, struct twi_script_value *values) {
    values->is_nil = values->is_number = false;
    values->number = 0;
    values->size = 0;
    values->text[0] = '\0';
    if (node->depth != 1 || node->type == TWI_NODE_ARRAY || node->type == TWI_NODE_ERROR) return false;
    values->is_nil = node->type == TWI_NODE_NIL;
    values->is_number = twi_node_count(node, &values->number);
    if (node->type == TWI_NODE_INTEGER || node->type == TWI_NODE_NIL) return true;
    if (node->size >= sizeof values->text) return false;
    memcpy(values->text, node->text, node->size);
    values->text[node->size] = '\0';
    values->size = node->size;
    return true;
}

bool twi_call_read(const struct twi_node *nodes, size_t count, const struct twi_call_text *text,
                   struct twi_answer *answer) {
    answer->value_count = 0;
    answer->long_text = NULL;
    answer->long_size = 0;
    if (nodes->type != TWI_NODE_ARRAY || count < 3 || count > 2 + TWI_SCRIPT_VALUES_MAX ||
        !twi_node_is(&nodes[1], text->serial))
        return false;
    for (size_t i = 2; i < count; i++) {
        bool is_long = text->wants_long && i + 1 == count;
        if (is_long && (nodes[i].depth != 1 || !keep_long(&nodes[i], answer))) return false;
        if (!read_script_value(&nodes[i], &answer->values[i - 2]) && !is_long) return false;
    }
    answer->value_count = count - 2;
    twi_check(answer->value_count <= TWI_SCRIPT_VALUES_MAX);
    return true;
}

bool twi_call_says(const struct twi_answer *answer, const char *word) {
    twi_check(strlen(word) < sizeof answer->values[0].text);
    return answer->value_count != 0 && strcmp(answer->values[0].text, word) == 0;
}

bool twi_call_charged_nothing(const struct twi_answer *answer) {
    static const char *const words[] = {"DENIED", "LATE", "BAD", "STALE", "SECOND", "HELD", "GONE", "MORE", "BUYER"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (twi_call_says(answer, words[i])) return true;
    return false;
}

size_t twi_call_keys(const struct twi_call_text *text, tw_key *keys, size_t most) {
    size_t count = 0, words = 0;
    for (const char *at = text->body.data, *end = at + text->who_at; at < end; words++) {
        char *data = NULL;
        size_t size = (size_t)strtoull(at + 1, &data, 10);                        /* "$12\r\n", the bytes, "\r\n" */
        twi_check(*at == '$' && data[0] == '\r' && size <= (size_t)(end - data)); /* we wrote it */
        data += 2;
        if (words != 0 && count < most) keys[count++] = tw_bytes(data, size);
        at = data + size + 2;
    }
    return count;
}

#define INDEX_BITS 16
#define NONCE_RANDOM_US 10000

/* ---- lists ------------------------------------------------------------------------------------------------------- */

void twi_lane_list_add(struct twi_lane_list *list, struct twi_lane *lane) {
    twi_check((list->first == NULL) == (list->last == NULL) && (list->count == 0) == (list->first == NULL));
    lane->next = NULL;
    lane->before = list->last;
    if (list->last != NULL)
        list->last->next = lane;
    else
        list->first = lane;
    list->last = lane;
    list->count++;
}

void twi_lane_list_add_first(struct twi_lane_list *list, struct twi_lane *lane) {
    twi_check(list->last_first == NULL || list->first != NULL);
    struct twi_lane *before = list->last_first, *next = before != NULL ? before->next : list->first;
    lane->before = before;
    lane->next = next;
    *(before != NULL ? &before->next : &list->first) = lane;
    *(next != NULL ? &next->before : &list->last) = lane;
    list->last_first = lane;
    list->count++;
}

void twi_lane_list_remove(struct twi_lane_list *list, struct twi_lane *lane) {
    twi_check(list->count != 0);
    twi_check((lane->before != NULL ? lane->before->next : list->first) == lane);
    twi_check((lane->next != NULL ? lane->next->before : list->last) == lane);
    if (list->last_first == lane) list->last_first = lane->before;
    if (lane->before != NULL)
        lane->before->next = lane->next;
    else
        list->first = lane->next;
    if (lane->next != NULL)
        lane->next->before = lane->before;
    else
        list->last = lane->before;
    lane->next = lane->before = NULL;
    list->count--;
}

void twi_lane_list_put_before(struct twi_lane_list *list, struct twi_lane_list *front) {
    twi_check(list != front && (front->count == 0) == (front->last == NULL));
    if (front->last == NULL) return;
    front->last->next = list->first;
    if (list->first != NULL)
        list->first->before = front->last;
    else
        list->last = front->last;
    if (list->last_first == NULL) list->last_first = front->last;
    list->first = front->first;
    list->count += front->count;
    *front = (struct twi_lane_list){0};
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void draw_name(struct twi_lanes *lanes) {
    twi_check(lanes->engine != NULL);
    uint64_t random;
    twi_port_random(lanes->engine, &random, sizeof random);
    (void)snprintf(lanes->name, sizeof lanes->name, "%016" PRIx64, random);
}

void twi_lanes_begin(struct twi_lanes *lanes, tw_engine *engine, uint32_t most) {
    twi_check(engine != NULL && most != 0 && most <= TWI_LANES_MAX);
    *lanes = (struct twi_lanes){.engine = engine, .most = most};
    pthread_mutex_init(&lanes->lock, NULL);
}

void twi_lanes_end(struct twi_lanes *lanes) {
    twi_check(lanes->first_waiter == NULL && lanes->made <= lanes->most);
    for (uint32_t i = 0; i < lanes->made; i++)
        twi_bytes_free(&lanes->slabs[i / TWI_LANES_SLAB][i % TWI_LANES_SLAB].text.body);
    for (uint32_t i = 0; i < lanes->made; i += TWI_LANES_SLAB) free(lanes->slabs[i / TWI_LANES_SLAB]);
    free(lanes->slabs);
    free(lanes->heap);
    pthread_mutex_destroy(&lanes->lock);
}

/* Under the lock. Returns false if there is no memory. */
static bool make_tables(struct twi_lanes *lanes) {
    if (lanes->slabs != NULL) return true;
    struct twi_lane **slabs = calloc((lanes->most + TWI_LANES_SLAB - 1) / TWI_LANES_SLAB, sizeof(struct twi_lane *));
    struct twi_lane **heap = calloc(lanes->most, sizeof(struct twi_lane *));
    if (slabs == NULL || heap == NULL) {
        free(slabs);
        free(heap);
        return false;
    }
    lanes->slabs = slabs;
    lanes->heap = heap;
    twi_check(lanes->made == 0 && lanes->heap_count == 0);
    draw_name(lanes);
    return true;
}

/* Makes some more lanes, under the lock, if there may be more. */
static void make_slab(struct twi_lanes *lanes) {
    twi_check(lanes->free_lanes == NULL && lanes->made <= lanes->most);
    uint32_t count = lanes->most - lanes->made < TWI_LANES_SLAB ? lanes->most - lanes->made : TWI_LANES_SLAB;
    if (count == 0 || !make_tables(lanes)) return;
    struct twi_lane *slab = calloc(count, sizeof *slab);
    if (slab == NULL) return;
    lanes->slabs[lanes->made / TWI_LANES_SLAB] = slab;
    for (uint32_t i = count; i-- > 0;) {
        slab[i].index = lanes->made + i;
        slab[i].next = lanes->free_lanes;
        lanes->free_lanes = &slab[i];
    }
    lanes->made += count;
    twi_check(lanes->made <= lanes->most);
}

/* ---- taking and giving back -------------------------------------------------------------------------------------- */

/* A caller that waits for a lane. It is on the caller's stack, and is touched only under the lock. */
struct twi_lane_waiter {
    struct twi_lane_waiter *next;
    struct twi_lane *lane;
    bool is_in; /* the list */
    struct twi_event_count woken;
};

static struct twi_lane *take_free(struct twi_lanes *lanes) {
    if (lanes->free_lanes == NULL) make_slab(lanes);
    struct twi_lane *lane = lanes->free_lanes;
    if (lane == NULL) return NULL;
    lanes->free_lanes = lane->next;
    lane->next = NULL;
    twi_check(lane->state == TWI_LANE_FREE && lane->index < lanes->made);
    (void)twi_add_relaxed(&lanes->taken, 1); /* a figure */
    return lane;
}

static void leave_waiters(struct twi_lanes *lanes, struct twi_lane_waiter *waiter) {
    twi_check(waiter->is_in && lanes->first_waiter != NULL);
    struct twi_lane_waiter *before = NULL;
    for (struct twi_lane_waiter *at = lanes->first_waiter; at != waiter; at = at->next) before = at;
    if (before != NULL)
        before->next = waiter->next;
    else
        lanes->first_waiter = waiter->next;
    if (lanes->last_waiter == waiter) lanes->last_waiter = before;
    waiter->is_in = false;
}

static void join_waiters(struct twi_lanes *lanes, struct twi_lane_waiter *waiter) {
    twi_check(!waiter->is_in && waiter->next == NULL);
    if (lanes->last_waiter != NULL)
        lanes->last_waiter->next = waiter;
    else
        lanes->first_waiter = waiter;
    lanes->last_waiter = waiter;
    waiter->is_in = true;
}

/* Called under the lock, which is released while the thread sleeps. Waiting callers get lanes in the order in which
 * they came. Each is woken once. */
static struct twi_lane *wait_for_lane(struct twi_lanes *lanes, int64_t deadline_ms) {
    struct twi_lane_waiter waiter = {.lane = NULL};
    twi_event_count_make(&waiter.woken);
    join_waiters(lanes, &waiter);
    while (waiter.is_in && !lanes->is_stopped) {
        int64_t left_ms = deadline_ms - twi_port_mono_ms(lanes->engine);
        if (left_ms <= 0) break;
        uint32_t seen = twi_event_count_value(&waiter.woken);
        twi_unlock(&lanes->lock);
        twi_event_count_wait(&waiter.woken, seen, left_ms < 1000 ? (uint32_t)left_ms : 1000);
        twi_lock(&lanes->lock);
    }
    if (waiter.is_in) leave_waiters(lanes, &waiter);
    twi_check(!waiter.is_in);
    return waiter.lane;
}

static void give(struct twi_lanes *lanes, struct twi_lane *lane) {
    twi_check(lane->state == TWI_LANE_FREE && twi_load_relaxed(&lanes->taken) != 0);
    struct twi_lane_waiter *waiter = lanes->first_waiter;
    if (waiter == NULL || lanes->is_stopped) {
        lane->next = lanes->free_lanes;
        lanes->free_lanes = lane;
        (void)twi_sub_relaxed(&lanes->taken, 1);
        return;
    }
    leave_waiters(lanes, waiter);
    waiter->lane = lane;
    twi_event_count_raise(&waiter->woken);
}

/* Random bytes at most every 10 ms: between these the clock distinguishes one life of a process from another. Values
 * that were mixed in stay, so if the clocks of two copies differed once, their results always differ. */
static uint32_t draw_nonce(struct twi_lanes *lanes) {
    int64_t now_us = twi_port_mono_us(lanes->engine);
    uint64_t random = 0;
    if (lanes->nonce.random_us == 0 || now_us - lanes->nonce.random_us >= NONCE_RANDOM_US) {
        twi_port_random(lanes->engine, &random, sizeof random);
        lanes->nonce.random_us = now_us != 0 ? now_us : 1;
    }
    uint64_t mixed = (lanes->nonce.state ^ random) + (uint64_t)now_us * UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
    lanes->nonce.state = mixed ^ mixed >> 31;
    return (uint32_t)lanes->nonce.state;
}

/* Writes who calls, and the number and nonce of one call. */
struct identity {
    char who[TWI_CALL_WHO_SIZE];
    uint64_t number;
    uint32_t nonce;
};

static void identify(struct twi_lanes *lanes, const struct twi_lane *lane, struct identity *identity) {
    twi_check(lane->index < TWI_LANES_MAX);
    (void)snprintf(identity->who, sizeof identity->who, "%s:%" PRIu32, lanes->name, lane->index);
    identity->number = ++lanes->numbers;
    identity->nonce = draw_nonce(lanes);
}

static void prepare(struct twi_lanes *lanes, struct twi_lane *lane, const struct twi_request *request,
                    const struct identity *identity) {
    twi_check(lane->state == TWI_LANE_FREE && twi_load_relaxed(&lane->heard) == 0);
    twi_check(request->answered != NULL && identity->number != 0);
    twi_check(!request->numbered || !request->repeats);
    twi_call_write(&lane->text, request, identity->who, identity->number, identity->nonce);
    lane->state = TWI_LANE_QUEUED;
    lane->tries = (struct twi_lane_tries){.numbered = request->numbered,
                                          .units = request->numbered || request->repeats ? request->units : 0,
                                          .keeps = request->keeps,
                                          .settles = request->settles,
                                          .repeats = request->repeats,
                                          .is_new = true};
    lane->then = request->then;
    lane->detour = (struct twi_detour){0};
    lane->link = NULL;
    uint64_t number = identity->number << INDEX_BITS | lane->index;
    int64_t began_ms = twi_port_mono_ms(lanes->engine);
    lane->caller = (struct twi_lane_caller){.answered = request->answered,
                                            .ctx = request->ctx,
                                            .number = number,
                                            .began_ms = began_ms,
                                            .deadline_ms = request->deadline_ms,
                                            .time_ms = request->deadline_ms - began_ms,
                                            .at = TWI_LANES_MAX};
    /* The driver sees it through the list; ask_forget() has the number from here. */
    twi_store_relaxed(&lane->heard, number);
    if (request->number != NULL) twi_store_release(request->number, number);
}

struct twi_lane *twi_lanes_take(struct twi_lanes *lanes, const struct twi_request *request,
                                enum twi_request_outcome *why) {
    twi_check(request->key_count != 0 && request->script < TWI_SCRIPTS);
    struct identity identity;
    *why = TWI_REQUEST_UNSENT;
    twi_lock(&lanes->lock);
    bool is_stopped = lanes->is_stopped;
    struct twi_lane *lane = is_stopped ? NULL : take_free(lanes);
    bool is_full = lane == NULL && !is_stopped && lanes->made == lanes->most;
    if (is_full) *why = TWI_REQUEST_BUSY;
    if (is_full && request->waits_for_room) lane = wait_for_lane(lanes, request->deadline_ms);
    if (lane != NULL) identify(lanes, lane, &identity);
    if (lanes->is_stopped) *why = TWI_REQUEST_UNSENT;
    twi_unlock(&lanes->lock);
    if (lane == NULL) return NULL;
    prepare(lanes, lane, request, &identity);
    if (!lane->text.body.failed) return lane;
    *why = TWI_REQUEST_UNSENT;
    twi_store_relaxed(&lane->heard, 0);
    twi_lanes_release(lanes, lane);
    return NULL;
}

bool twi_lanes_submit(struct twi_lanes *lanes, struct twi_lane *lane) {
    twi_check(lane->state == TWI_LANE_QUEUED || lane->state == TWI_LANE_KEPT);
    twi_check(lane->link == NULL && !lane->text.body.failed);
    twi_lock(&lanes->lock);
    bool was_empty = lanes->arrived.first == NULL;
    twi_lane_list_add(&lanes->arrived, lane);
    twi_unlock(&lanes->lock);
    return was_empty;
}

struct twi_lane *twi_lanes_of(struct twi_lanes *lanes, uint64_t number) {
    uint32_t index = (uint32_t)(number & ((1u << INDEX_BITS) - 1));
    if (number == 0) return NULL;
    twi_lock(&lanes->lock);
    struct twi_lane *lane = index < lanes->made ? &lanes->slabs[index / TWI_LANES_SLAB][index % TWI_LANES_SLAB] : NULL;
    twi_unlock(&lanes->lock);
    return lane;
}

bool twi_lanes_forget(struct twi_lanes *lanes, uint64_t number) {
    struct twi_lane *lane = twi_lanes_of(lanes, number);
    return lane != NULL && twi_cas_acqrel(&lane->heard, &number, 0); /* AN7, pairs with AN8 */
}

void twi_lanes_stop(struct twi_lanes *lanes) {
    twi_lock(&lanes->lock);
    lanes->is_stopped = true;
    for (struct twi_lane_waiter *waiter = lanes->first_waiter; waiter != NULL; waiter = waiter->next)
        twi_event_count_raise(&waiter->woken);
    twi_unlock(&lanes->lock);
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

void twi_lanes_arrived(struct twi_lanes *lanes, struct twi_lane_list *list) {
    twi_check(lanes->engine != NULL);
    twi_lock(&lanes->lock);
    *list = lanes->arrived;
    lanes->arrived = (struct twi_lane_list){0};
    twi_unlock(&lanes->lock);
}

#define BODY_KEPT 4096u

void twi_lanes_release(struct twi_lanes *lanes, struct twi_lane *lane) {
    twi_check(lane->caller.at == TWI_LANES_MAX);
    twi_check(lane->state != TWI_LANE_FREE && twi_load_relaxed(&lane->heard) == 0);
    twi_check(lane->next == NULL && lane->before == NULL); /* it is in no list */
    lane->state = TWI_LANE_FREE;
    lane->link = NULL;
    if (lane->text.body.room > BODY_KEPT) twi_bytes_free(&lane->text.body);
    twi_lock(&lanes->lock);
    give(lanes, lane);
    twi_unlock(&lanes->lock);
}

bool twi_lanes_rename(struct twi_lanes *lanes, struct twi_lane *lane) {
    twi_check(lane->state == TWI_LANE_SENT && lane->text.who_at < lane->text.own_at);
    struct identity identity;
    twi_lock(&lanes->lock);
    size_t size = strlen(lanes->name);
    bool is_old = memmem(lane->text.body.data + lane->text.who_at, lane->text.own_at - lane->text.who_at, lanes->name,
                         size) != NULL;
    if (is_old) draw_name(lanes); /* else another call has met its twin, and changed the name */
    identify(lanes, lane, &identity);
    twi_unlock(&lanes->lock);
    twi_call_rename(&lane->text, identity.who, identity.number, identity.nonce);
    return !lane->text.body.failed;
}

bool twi_lanes_rewrite(struct twi_lanes *lanes, struct twi_lane *lane, const struct twi_request *request) {
    twi_check(lane->state != TWI_LANE_FREE && lane->tries.repeats == request->repeats);
    struct identity identity;
    twi_lock(&lanes->lock);
    identify(lanes, lane, &identity);
    twi_unlock(&lanes->lock);
    twi_call_write(&lane->text, request, identity.who, identity.number, identity.nonce);
    lane->then = request->then;
    lane->tries.perhaps = false;
    return !lane->text.body.failed;
}

/* ---- callers' deadlines: a heap, the earliest first -------------------------------------------------------------- */

static void put_at(struct twi_lanes *lanes, uint32_t at, struct twi_lane *lane) {
    twi_check(at < lanes->heap_count);
    lanes->heap[at] = lane;
    lane->caller.at = at;
}

static bool is_earlier(const struct twi_lane *one, const struct twi_lane *other) {
    return one->caller.deadline_ms < other->caller.deadline_ms;
}

static void rise(struct twi_lanes *lanes, uint32_t at, struct twi_lane *lane) {
    twi_check(at < lanes->heap_count);
    for (; at != 0 && is_earlier(lane, lanes->heap[(at - 1) / 2]); at = (at - 1) / 2)
        put_at(lanes, at, lanes->heap[(at - 1) / 2]);
    put_at(lanes, at, lane);
}

static void sink(struct twi_lanes *lanes, uint32_t at, struct twi_lane *lane) {
    twi_check(at < lanes->heap_count);
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= lanes->heap_count) break;
        if (child + 1 < lanes->heap_count && is_earlier(lanes->heap[child + 1], lanes->heap[child])) child++;
        if (!is_earlier(lanes->heap[child], lane)) break;
        put_at(lanes, at, lanes->heap[child]);
        at = child;
    }
    put_at(lanes, at, lane);
}

void twi_lanes_time(struct twi_lanes *lanes, struct twi_lane *lane) {
    twi_check(lanes->heap_count < lanes->most);
    twi_check(lane->caller.at == TWI_LANES_MAX);
    rise(lanes, lanes->heap_count++, lane);
}

static void untime(struct twi_lanes *lanes, struct twi_lane *lane) {
    uint32_t at = lane->caller.at;
    if (at == TWI_LANES_MAX) return;
    twi_check(at < lanes->heap_count && lanes->heap[at] == lane);
    lane->caller.at = TWI_LANES_MAX;
    struct twi_lane *last = lanes->heap[--lanes->heap_count];
    if (last == lane) return;
    sink(lanes, at, last);
    rise(lanes, last->caller.at, last);
}

struct twi_lane *twi_lanes_first(const struct twi_lanes *lanes) {
    twi_check(lanes->heap_count == 0 || lanes->heap[0]->caller.at == 0);
    return lanes->heap_count != 0 ? lanes->heap[0] : NULL;
}

bool twi_lanes_claim(struct twi_lanes *lanes, struct twi_lane *lane) {
    untime(lanes, lane);
    twi_check(lane->caller.at == TWI_LANES_MAX);
    return twi_swap_acqrel(&lane->heard, 0) != 0; /* AN8, pairs with AN7: one of them has the number */
}
