/* calls.c -- calls that wait for Redis, in a simulated world: the dispatcher (sync/ask/) over links that are slow, cut
 * or left behind unread, at a server that pauses, forgets its scripts and refuses, driven by a host that comes late.
 * Method: a real engine on a clock that obeys, over a transport of this file. The server runs a model of strict.lua:
 * the same notes and the same answers, without a language. Calls are begun, forgotten and given up at random. In the
 * end the faults stop, and everything must settle in a bounded time: what the server has is what was admitted.
 * Always true: everything follows from the seed. A call is answered once or forgotten once, and no later than its
 * deadline and the host's lateness say. */
#include "engine/core/state.h"
#include "sync/wire/socket.h"
#include "tests/support/support.h"

#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define KEYS 3
#define CALLS 200
#define CONNECTIONS 64
#define NOTES 4096
#define BYTES (1 << 20)
#define TIMEOUT_MS 100
#define LIMIT INT64_C(1000000)

/* ---- the server -------------------------------------------------------------------------------------------------- */

/* Bytes on their way, with the time at which each piece arrives. */
struct way {
    char *bytes;
    size_t size, taken;
    struct {
        size_t end;
        int64_t at_ms;
    } pieces[4096];
    size_t first, count;
};

struct connection {
    bool is_used, is_closed; /* by the client; what it has sent may still arrive */
    bool is_cut;             /* the client sees the end */
    bool has_lost;           /* a reply. An error has no number, and would pass for that reply: it is cut before one */
    struct way there, back;
};

struct note {
    char who[32], serial[32];
    int key;
    int64_t given;
};

struct world {
    struct fake_clock clock;
    struct test_prng prng;
    tw_engine *engine;
    int64_t now_ms;
    struct connection connections[CONNECTIONS];
    struct note notes[NOTES];
    uint32_t note_count;
    int64_t counts[KEYS];
    bool knows_script;
    int64_t way_ms, paused_until_ms;
    uint32_t refuse_of_1000, lose_of_1000;
    int64_t texts, cancels, cancels_of_nothing, requests;
    bool is_away;    /* nobody accepts a connection */
    int64_t late_ms; /* by how much turns came too late, all together */
};
static struct world world;

static void way_add(struct way *way, const char *data, size_t size, int64_t at_ms) {
    if (way->bytes == NULL) way->bytes = malloc(BYTES);
    if (way->count == 4096 || way->size + size > BYTES) fail_msg("the model's way is full");
    memcpy(way->bytes + way->size, data, size);
    way->size += size;
    if (way->count != 0 && way->pieces[(way->first + way->count - 1) % 4096].at_ms > at_ms)
        at_ms = way->pieces[(way->first + way->count - 1) % 4096].at_ms;
    way->pieces[(way->first + way->count++) % 4096].end = way->size;
    way->pieces[(way->first + way->count - 1) % 4096].at_ms = at_ms;
}

/* How many bytes have arrived. */
static size_t way_arrived(const struct way *way) {
    size_t end = way->taken;
    for (size_t i = 0; i < way->count && way->pieces[(way->first + i) % 4096].at_ms <= world.now_ms; i++)
        end = way->pieces[(way->first + i) % 4096].end;
    return end;
}

static void way_take(struct way *way, size_t size) {
    way->taken += size;
    while (way->count != 0 && way->pieces[way->first].end <= way->taken) {
        way->first = (way->first + 1) % 4096;
        way->count--;
    }
    if (way->taken == way->size) way->taken = way->size = way->first = way->count = 0;
}

static void way_clear(struct way *way) {
    way->size = way->taken = way->first = way->count = 0;
}

#define WORDS_MAX 24
struct command {
    struct {
        const char *data;
        size_t size;
    } words[WORDS_MAX];
    size_t count;
};

/* Returns the bytes of the first command; 0: it is not whole. */
static size_t read_command(const char *data, size_t size, struct command *command) {
    const char *at = data, *end = data + size;
    if (size == 0 || *at != '*') return 0;
    command->count = strtoul(at + 1, NULL, 10);
    assert_true(command->count <= WORDS_MAX);
    for (size_t i = 0; i <= command->count; i++) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        if (line == NULL) return 0;
        size_t length = i == 0 ? 0 : strtoul(at + 1, NULL, 10);
        at = line + 1;
        if (i == 0) continue;
        if ((size_t)(end - at) < length + 2) return 0;
        command->words[i - 1].data = at;
        command->words[i - 1].size = length;
        at += length + 2;
    }
    return (size_t)(at - data);
}

static bool word_is(const struct command *command, size_t i, const char *text) {
    return command->words[i].size == strlen(text) && memcmp(command->words[i].data, text, strlen(text)) == 0;
}

static void word_copy(const struct command *command, size_t i, char *out, size_t size) {
    snprintf(out, size, "%.*s", (int)command->words[i].size, command->words[i].data);
}

static struct note *note_of(const char *who, int key) {
    for (uint32_t i = 0; i < world.note_count; i++)
        if (world.notes[i].key == key && strcmp(world.notes[i].who, who) == 0) return &world.notes[i];
    if (world.note_count == NOTES) fail_msg("the model has no room for notes");
    struct note *note = &world.notes[world.note_count++];
    *note = (struct note){.key = key};
    snprintf(note->who, sizeof note->who, "%s", who);
    return note;
}

/* As strict.lua. Writes the status, returns the units. */
static int64_t decide(struct note *note, const char *serial, int verb, int64_t limit, const char **status) {
    bool is_known = strcmp(note->serial, serial) == 0;
    int64_t given = is_known ? note->given : 0, *count = &world.counts[note->key];
    *status = "STALE";
    if (note->serial[0] != '\0' && !is_known && strtoull(note->serial, NULL, 10) >= strtoull(serial, NULL, 10))
        return 0;
    *status = "OK";
    if (verb == 0) {
        world.cancels++;
        world.cancels_of_nothing += given == 0;
        *count -= given;
    } else if (is_known) {
        *status = given > 0 ? "OK" : "DENIED";
        return given;
    } else {
        given = *count < limit;
        *status = given > 0 ? "OK" : "DENIED";
        *count += given;
        if (given == 0 && verb == 1) return 0; /* a denied call changes nothing, unless a copy may still come */
    }
    snprintf(note->serial, sizeof note->serial, "%s", serial);
    note->given = verb == 0 ? 0 : given;
    return given;
}

static void run_script(const struct command *command, char *reply, size_t size) {
    char who[32], serial[32], limit[24];
    const char *status;
    bool is_text = word_is(command, 0, "EVAL");
    world.texts += is_text;
    world.requests++;
    if (!is_text && !world.knows_script) {
        snprintf(reply, size, "-NOSCRIPT No matching script.\r\n");
        return;
    }
    world.knows_script = true;
    if (test_prng_chance(&world.prng, world.refuse_of_1000, 1000)) {
        snprintf(reply, size, "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
        return;
    }
    word_copy(command, 5, who, sizeof who);
    word_copy(command, 6, serial, sizeof serial);
    word_copy(command, 9, limit, sizeof limit);
    int key = command->words[4].data[1] - '0';
    int64_t given = decide(note_of(who, key), serial, command->words[7].data[0] - '0', atoll(limit), &status);
    snprintf(reply, size, "*6\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$1\r\n%d\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n0\r\n",
             strlen(serial), serial, strlen(status), status, (int)given);
}

static void serve(struct connection *connection) {
    struct command command;
    struct way *there = &connection->there;
    for (;;) {
        size_t arrived = there->bytes != NULL ? way_arrived(there) - there->taken : 0;
        size_t size = read_command(there->bytes + there->taken, arrived, &command);
        char reply[256] = "+OK\r\n";
        if (size == 0) return;
        if (word_is(&command, 0, "INFO")) snprintf(reply, sizeof reply, "$11\r\nrole:master\r\n");
        bool is_script = word_is(&command, 0, "EVAL") || word_is(&command, 0, "EVALSHA");
        if (is_script) run_script(&command, reply, sizeof reply);
        way_take(there, size);
        bool is_lost = is_script && test_prng_chance(&world.prng, world.lose_of_1000, 1000);
        connection->is_cut = connection->is_cut || (connection->has_lost && reply[0] == '-');
        connection->has_lost = connection->has_lost || is_lost;
        if (!connection->is_closed && !is_lost)
            way_add(&connection->back, reply, strlen(reply), world.now_ms + world.way_ms);
    }
}

static void world_run(int64_t ms) {
    for (; ms > 0; ms--) {
        world.now_ms++;
        fake_clock_advance_ms(&world.clock, 1);
        if (world.now_ms < world.paused_until_ms) continue;
        for (int i = 0; i < CONNECTIONS; i++)
            if (world.connections[i].is_used) serve(&world.connections[i]);
    }
}

/* ---- the transport ----------------------------------------------------------------------------------------------- */

struct link {
    struct connection *connection; /* NULL: none */
};

static void *sim_create(void *shared, int set) {
    (void)shared, (void)set;
    return calloc(1, sizeof(struct link));
}

/* The engine's own connection, for batches, which is no matter here, finds nobody. */
static struct link nobody;

static int sim_connect(void *ctx, const struct twi_endpoint *endpoint, int64_t now_ms, int64_t deadline_ms) {
    struct link *link = ctx;
    (void)endpoint, (void)now_ms, (void)deadline_ms;
    if (link == &nobody || world.is_away) return -1;
    for (int i = 0; i < CONNECTIONS && link->connection == NULL; i++) {
        struct connection *connection = &world.connections[i];
        if (connection->is_used && !(connection->is_closed && connection->there.count == 0)) continue;
        way_clear(&connection->there), way_clear(&connection->back);
        connection->is_used = true;
        connection->is_closed = connection->is_cut = connection->has_lost = false;
        link->connection = connection;
    }
    if (link->connection == NULL) fail_msg("the model has no connection left");
    return 1;
}

static ssize_t sim_send(void *ctx, const void *data, size_t size) {
    struct connection *connection = ((struct link *)ctx)->connection;
    if (connection->is_cut) return -1;
    size_t part = test_prng_chance(&world.prng, 1, 8) ? 1 + test_prng_below(&world.prng, size) : size;
    if (connection->there.count > 4000) return 0;
    way_add(&connection->there, data, part, world.now_ms + world.way_ms);
    return (ssize_t)part;
}

static ssize_t sim_recv(void *ctx, void *data, size_t size) {
    struct connection *connection = ((struct link *)ctx)->connection;
    if (connection->is_cut) return -1;
    size_t arrived = connection->back.bytes != NULL ? way_arrived(&connection->back) - connection->back.taken : 0;
    if (arrived > size) arrived = size;
    if (arrived != 0) memcpy(data, connection->back.bytes + connection->back.taken, arrived);
    way_take(&connection->back, arrived);
    return (ssize_t)arrived;
}

static void sim_close(void *ctx) {
    struct link *link = ctx;
    if (link->connection != NULL) link->connection->is_closed = true;
    link->connection = NULL;
}

static int sim_fd(void *ctx, bool *wants_write) {
    (void)ctx;
    *wants_write = false;
    return -1;
}

static const char *sim_why(void *ctx) {
    (void)ctx;
    return "a fault of the model";
}

static void sim_destroy(void *ctx) {
    sim_close(ctx);
    free(ctx);
}

static const struct twi_transport transport = {.connect = sim_connect,
                                               .send = sim_send,
                                               .recv = sim_recv,
                                               .close = sim_close,
                                               .fd = sim_fd,
                                               .why = sim_why,
                                               .create = sim_create,
                                               .destroy = sim_destroy,
                                               .abandon = sim_destroy};

/* ---- callers ----------------------------------------------------------------------------------------------------- */

struct call {
    uint64_t number; /* 0: it is over */
    int64_t deadline_ms, late_ms;
};

static struct call calls[CALLS];
static int64_t begun, answered, forgotten, admitted, unknown, unsent, refused, limit = LIMIT;

static const struct twi_driver *driver(void) {
    return world.engine->remote.driver;
}

static void hear(void *ctx, struct twi_answer *answer) {
    struct call *call = ctx;
    assert_true(call->number != 0);
    call->number = 0;
    answered++;
    admitted += answer->outcome == TWI_REQUEST_DONE && strcmp(answer->values[0].text, "OK") == 0;
    unknown += answer->outcome == TWI_REQUEST_UNKNOWN;
    unsent += answer->outcome == TWI_REQUEST_UNSENT;
    refused += answer->outcome == TWI_REQUEST_REFUSED;
    /* 40 ms: a turn comes within 20, and a lateness below 20 is none */
    assert_true(world.now_ms <= call->deadline_ms + world.late_ms - call->late_ms + 40);
}

/* False: it was refused at once. */
static bool ask(struct call *call, int key, int64_t time_ms) {
    char calls_name[16], name[16], text[24];
    snprintf(calls_name, sizeof calls_name, "c%d", key);
    snprintf(name, sizeof name, "k%d", key);
    snprintf(text, sizeof text, "%" PRId64, limit);
    tw_key keys[] = {tw_str(calls_name), tw_str(name)};
    tw_key args[] = {tw_str("1"), tw_str(text)};
    struct twi_request request = {.script = TWI_SCRIPT_STRICT,
                                  .keys = keys,
                                  .key_count = 2,
                                  .args = args,
                                  .arg_count = 2,
                                  .deadline_ms = world.now_ms + time_ms,
                                  .numbered = true,
                                  .answered = hear,
                                  .ctx = call};
    enum twi_request_outcome why;
    call->deadline_ms = request.deadline_ms;
    call->late_ms = world.late_ms;
    call->number = driver()->ask(world.engine->remote.sync, &request, &why);
    begun += call->number != 0;
    if (call->number == 0) assert_true(why == TWI_REQUEST_UNSENT || why == TWI_REQUEST_BUSY);
    return call->number != 0;
}

static void forget(struct call *call) {
    if (call->number == 0) return;
    assert_true(driver()->ask_forget(world.engine->remote.sync, call->number));
    assert_false(driver()->ask_forget(world.engine->remote.sync, call->number));
    call->number = 0;
    forgotten++;
}

static uint32_t owed(void) {
    return driver()->ask_owed(world.engine->remote.sync);
}

static void turn(void) {
    assert_status(tw_turn(world.engine), TW_OK);
}

/* ---- one seed ---------------------------------------------------------------------------------------------------- */

static void world_begin(uint64_t seed) {
    tw_options options;
    for (int i = 0; i < CONNECTIONS; i++) free(world.connections[i].there.bytes), free(world.connections[i].back.bytes);
    memset(&world, 0, sizeof world);
    memset(calls, 0, sizeof calls);
    begun = answered = forgotten = admitted = unknown = unsent = refused = 0;
    limit = LIMIT;
    test_prng_seed(&world.prng, seed);
    fake_clock_init(&world.clock, INT64_C(1700002800000));
    tw_options_init(&options);
    options.redis_url = "redis://127.0.0.1";
    options.threads = TW_HOST_DRIVEN;
    options.redis_timeout_ms = TIMEOUT_MS;
    options.memory_bytes_max = UINT64_C(64) << 20;
    fake_clock_install(&world.clock, &options);
    world.way_ms = 1;
    struct twi_replacements replacements = {.transport = &transport, .transport_ctx = &nobody, .random_seed = seed | 1};
    assert_status(twi_open_with(&options, &replacements, &world.engine), TW_OK);
    world.now_ms = twi_clock_mono_ms(&world.engine->clock);
}

static void world_end(void) {
    (void)tw_close(world.engine, 0);
}

static struct connection *any_connection(void) {
    for (int tries = 0; tries < 20; tries++) {
        struct connection *connection = &world.connections[test_prng_below(&world.prng, CONNECTIONS)];
        if (connection->is_used && !connection->is_closed) return connection;
    }
    return NULL;
}

/* Cut, with what is on the way or without; or one that the client leaves behind. */
static void cut(void) {
    struct connection *connection = any_connection();
    if (connection == NULL) return;
    connection->is_cut = true;
    if (test_prng_chance(&world.prng, 1, 2)) way_clear(&connection->there);
}

static void make_a_fault(void) {
    switch (test_prng_below(&world.prng, 8)) {
    case 0: cut(); return;
    case 1: world.knows_script = false; return;
    case 2: world.paused_until_ms = world.now_ms + test_prng_between(&world.prng, 1, 250); return;
    case 3: world.way_ms = test_prng_between(&world.prng, 0, 40); return;
    case 4: world.refuse_of_1000 = (uint32_t)test_prng_below(&world.prng, 20); return;
    case 5: world.lose_of_1000 = (uint32_t)test_prng_below(&world.prng, 5); return;
    case 6: world.is_away = test_prng_chance(&world.prng, 1, 3); return;
    case 7: { /* the host is busy */
        int64_t ms = test_prng_between(&world.prng, 1, 400);
        world_run(ms);
        world.late_ms += ms;
        return;
    }
    }
}

static void call_some(void) {
    for (uint32_t n = (uint32_t)test_prng_below(&world.prng, 20); n > 0; n--) {
        struct call *call = &calls[test_prng_below(&world.prng, CALLS)];
        if (call->number == 0)
            (void)ask(call, (int)test_prng_below(&world.prng, KEYS), test_prng_between(&world.prng, 1, 300));
        else if (test_prng_chance(&world.prng, 1, 10))
            forget(call);
    }
}

static void play(uint64_t seed) {
    world_begin(seed);
    if (test_prng_chance(&world.prng, 1, 3)) limit = test_prng_between(&world.prng, 1, 100);
    for (int step = 0; step < 600; step++) {
        call_some();
        if (test_prng_chance(&world.prng, 1, 12)) make_a_fault();
        world_run(test_prng_between(&world.prng, 0, 12));
        turn();
    }
    world.refuse_of_1000 = world.lose_of_1000 = 0;
    world.is_away = false;
    world.way_ms = 1;
    for (int i = 0; i < 1000 && owed() != 0; i++) {
        world_run(10);
        turn();
    }
    assert_int_equal(owed(), 0);
    world_run(100); /* what was left behind arrives */
    int64_t has = 0;
    for (int k = 0; k < KEYS; k++) {
        assert_true(world.counts[k] <= limit);
        has += world.counts[k];
    }
    assert_i64_equal(has, admitted);
    assert_i64_equal(answered + forgotten, begun);
    world_end();
}

/* Goal: whatever happens, each unit that was admitted is charged once, and nothing else is. */
static void what_is_charged_is_what_was_admitted(void **state) {
    (void)state;
    uint64_t seeds[64];
    size_t count = test_seeds("calls", test_is_slow() ? 10 : 60, seeds, 64);
    int64_t all[6] = {0};
    for (size_t i = 0; i < count; i++) {
        test_seed_begins("calls", seeds[i]);
        play(seeds[i]);
        test_seed_ends();
        all[0] += begun, all[1] += admitted, all[2] += unknown, all[3] += unsent, all[4] += refused,
            all[5] += forgotten;
    }
    print_message("# %" PRId64 " begun, %" PRId64 " admitted, %" PRId64 " unknown, %" PRId64 " unsent, %" PRId64
                  " refused, %" PRId64 " forgotten\n",
                  all[0], all[1], all[2], all[3], all[4], all[5]);
    assert_true(all[1] > 0 && all[2] > 0 && all[3] > 0 && all[4] > 0 && all[5] > 0);
}

/* What malloc() has given away; 0 where a sanitizer has its place, or another library. */
static size_t test_allocated(void) {
#ifdef __GLIBC__
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#else
    return 0;
#endif
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

/* The link is up, and the server knows the script. */
static void warm_up(void) {
    struct call call;
    assert_true(ask(&call, 0, 1000));
    for (int i = 0; i < 20; i++) turn(), world_run(2);
    assert_i64_equal(call.number, 0);
}

static void turns(int ms) {
    for (; ms > 0; ms--) world_run(1), turn();
}

/* Goal: a deadline that passes while the reply lies in the socket, for the host was busy, is not passed (trap 6 of
 * calls that answer later): what is there is read first. */
static void a_reply_that_is_there_is_in_time(void **state) {
    (void)state;
    struct call call;
    world_begin(1);
    warm_up();
    assert_true(ask(&call, 0, 50));
    turn();
    world_run(500); /* the host is busy */
    world.late_ms += 500;
    turn();
    assert_i64_equal(call.number, 0);
    assert_i64_equal(unknown, 0);
    assert_i64_equal(admitted, 2);
    world_end();
}

/* Goal: a call that was begun just before the host was busy is sent all the same: that time does not count. */
static void lateness_does_not_count(void **state) {
    (void)state;
    struct call call;
    world_begin(2);
    warm_up();
    assert_true(ask(&call, 0, 50));
    world_run(500);
    world.late_ms += 500;
    turns(10);
    assert_i64_equal(call.number, 0);
    assert_i64_equal(admitted, 2);
    world_end();
}

/* Goal: when the server forgets its scripts under many calls, its text goes out once. */
static void one_text_is_enough(void **state) {
    (void)state;
    world_begin(3);
    warm_up();
    world.knows_script = false;
    int64_t texts = world.texts;
    for (int i = 0; i < CALLS; i++) assert_true(ask(&calls[i], 0, 1000));
    turns(30);
    assert_i64_equal(admitted, 1 + CALLS);
    assert_i64_equal(world.texts - texts, 1);
    world_end();
}

/* Goal: late denials owe nothing: no cancel follows. Late admissions are taken back. */
static void a_late_denial_owes_nothing(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++) {
        world_begin(4);
        warm_up();
        limit = round == 0 ? 1 : LIMIT;
        world.way_ms = 40;
        for (int i = 0; i < CALLS; i++) assert_true(ask(&calls[i], 0, 50));
        turns(60);
        assert_i64_equal(unknown, CALLS);
        turns(200);
        assert_int_equal(owed(), 0);
        assert_i64_equal(world.cancels, round == 0 ? 0 : CALLS);
        assert_i64_equal(world.counts[0], 1);
        assert_i64_equal(test_stat_of(world.engine, asks_settled), CALLS);
        world_end();
    }
}

/* Goal: a caller whose time is short ends no link and opens no breaker. */
static void a_short_caller_harms_nobody(void **state) {
    (void)state;
    struct call call;
    world_begin(5);
    warm_up();
    world.way_ms = 30; /* a round trip of 60 ms; the link may be silent for 100 */
    for (int i = 0; i < 20; i++) {
        assert_true(ask(&calls[i], 0, 10));
        turns(20);
    }
    assert_i64_equal(unknown, 20);
    assert_true(ask(&call, 0, 90));
    turns(90);
    assert_i64_equal(call.number, 0);
    assert_i64_equal(admitted, 2);
    assert_i64_equal(test_stat_of(world.engine, ask_connects), 1);
    turns(200);
    assert_i64_equal(world.counts[0], 2);
    world_end();
}

/* Goal: a server that stops reading and answering is left after redis_timeout_ms; then the breaker is open, and calls
 * are refused at once; once it answers, what was charged in vain is taken back. */
static void silence_ends_the_link(void **state) {
    (void)state;
    world_begin(6);
    warm_up();
    world.paused_until_ms = world.now_ms + 1000;
    for (int i = 0; i < 50; i++) assert_true(ask(&calls[i], 0, 80));
    turns(80);
    assert_i64_equal(unknown, 50);
    turns(40);
    struct call late = {0};
    for (int i = 0; i < 50 && ask(&late, 0, 1); i++) turns(2);
    assert_i64_equal(late.number, 0);
    assert_true(test_stat_of(world.engine, ask_away) > 0);
    turns(4000);
    assert_int_equal(owed(), 0);
    assert_i64_equal(world.counts[0], 1);
    world_end();
}

/* Goal: a reply that is lost without a word is asked for again once the link was silent for redis_timeout_ms, by a call
 * that has more time than that; it is charged once. */
static void a_lost_reply_is_asked_for_again(void **state) {
    (void)state;
    struct call call;
    world_begin(12);
    warm_up();
    world.lose_of_1000 = 1000;
    assert_true(ask(&call, 0, 1000));
    turns(20);
    world.lose_of_1000 = 0;
    turns(500);
    assert_i64_equal(call.number, 0);
    assert_i64_equal(admitted, 2);
    assert_i64_equal(world.counts[0], 2);
    assert_i64_equal(test_stat_of(world.engine, asked_again), 1);
    world_end();
}

/* Goal: with calls_max calls under way the next one is refused at once, and that is no outage. */
static void a_full_table_is_no_outage(void **state) {
    (void)state;
    static struct call many[1100];
    world_begin(7);
    warm_up();
    int64_t taken = 0;
    for (int i = 0; i < 1100; i++) taken += ask(&many[i], 0, 1000);
    assert_i64_equal(taken, 1024);
    assert_i64_equal(test_stat_of(world.engine, ask_busy), 1100 - 1024);
    assert_i64_equal(test_stat_of(world.engine, ask_away), 0);
    turns(100);
    assert_i64_equal(admitted, 1 + 1024);
    world_end();
}

/* Goal: without a call there are no lanes; with 1,024 under way they need at most 1.5 MiB, and once each has been used
 * a call allocates nothing. Method: the allocator's own figures; the model allocates nothing by then. */
static void lanes_need_little_memory(void **state) {
    (void)state;
    static struct call many[1024];
    world_begin(11);
    uint32_t made = world.engine->remote.driver->ask_owed(world.engine->remote.sync);
    assert_int_equal(made, 0);
    warm_up();
    world.way_ms = 5;
    size_t before = test_allocated();
    for (int i = 0; i < 1024; i++) assert_true(ask(&many[i], i % KEYS, 2000));
    assert_true(test_allocated() - before <= 3 << 19);
    turns(200);
    before = test_allocated();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1024; i++) assert_true(ask(&many[i], i % KEYS, 2000));
        turns(200);
    }
    assert_i64_equal(admitted, 1 + 4 * 1024);
    assert_true(test_allocated() <= before);
    world_end();
}

/* Goal: calls that are forgotten before there is a link leave their lanes to others at once. */
static void forgotten_calls_leave_their_lanes(void **state) {
    (void)state;
    static struct call many[1024];
    struct call more;
    world_begin(13);
    world.is_away = true;
    for (int i = 0; i < 1024; i++) assert_true(ask(&many[i], 0, 1000));
    assert_false(ask(&more, 0, 1000));
    turn();
    for (int i = 0; i < 1024; i++) forget(&many[i]);
    turn();
    assert_int_equal(owed(), 0);
    assert_true(ask(&more, 0, 1000));
    world.is_away = false;
    turns(50);
    assert_i64_equal(admitted, 1);
    assert_i64_equal(world.requests, 2); /* one without the script's text */
    world_end();
}

/* Goal: two lives of one process have the same names and numbers; the later one takes a new name, and is charged. */
static void another_life_is_not_taken_for_this_one(void **state) {
    (void)state;
    struct call call;
    world_begin(8);
    warm_up();
    struct note twin = world.notes[0]; /* another life makes its next call first */
    snprintf(world.notes[0].serial, sizeof twin.serial, "%d:0badcafe", atoi(twin.serial) + 1);
    world.notes[0].given = 1;
    world.counts[0]++;
    assert_true(ask(&call, 0, 100));
    turns(20);
    assert_i64_equal(admitted, 2);
    assert_i64_equal(world.counts[0], 3);
    assert_int_equal(world.note_count, 2);
    assert_string_not_equal(world.notes[1].who, twin.who);
    world_end();
}

/* Goal: a call that goes out again says so: then its denial is noted, and a copy of it that was left behind on the
 * connection before charges nothing when there is room. */
static void a_copy_that_was_left_behind_charges_nothing(void **state) {
    (void)state;
    struct call call;
    world_begin(9);
    limit = 1;
    warm_up(); /* that is the one unit */
    world.way_ms = 60;
    assert_true(ask(&call, 0, 1000));
    turns(2);
    for (int i = 0; i < CONNECTIONS; i++) world.connections[i].is_cut = world.connections[i].is_used;
    world.way_ms = 1;
    turns(30);
    assert_i64_equal(call.number, 0);
    assert_i64_equal(admitted, 1);
    world.counts[0] = 0; /* there is room, and the copy arrives */
    turns(100);
    assert_i64_equal(world.counts[0], 0);
    world_end();
}

/* The number and nonce of a call that is begun `ms` after a moment that all lives of a process have in common. */
static void serial_after(int64_t ms, char serial[32]) {
    struct call call;
    world_begin(10);
    warm_up();
    world_run(ms);
    assert_true(ask(&call, 0, 100));
    turns(20);
    assert_i64_equal(call.number, 0);
    memcpy(serial, world.notes[0].serial, 32);
    world_end();
}

/* Goal: two lives of one process, which have all of their memory in common, are told apart by the nonce of a call. */
static void the_nonce_tells_two_lives_apart(void **state) {
    (void)state;
    char one[32], other[32], again[32];
    serial_after(1, one);
    serial_after(1, again);
    serial_after(2, other);
    assert_string_equal(one, again);
    assert_int_equal(atoi(one), atoi(other));
    assert_string_not_equal(one, other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_that_was_left_behind_charges_nothing),
        cmocka_unit_test(the_nonce_tells_two_lives_apart),
        cmocka_unit_test(a_reply_that_is_there_is_in_time),
        cmocka_unit_test(lateness_does_not_count),
        cmocka_unit_test(one_text_is_enough),
        cmocka_unit_test(a_late_denial_owes_nothing),
        cmocka_unit_test(a_short_caller_harms_nobody),
        cmocka_unit_test(silence_ends_the_link),
        cmocka_unit_test(a_lost_reply_is_asked_for_again),
        cmocka_unit_test(a_full_table_is_no_outage),
        cmocka_unit_test(lanes_need_little_memory),
        cmocka_unit_test(forgotten_calls_leave_their_lanes),
        cmocka_unit_test(another_life_is_not_taken_for_this_one),
        cmocka_unit_test(what_is_charged_is_what_was_admitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
