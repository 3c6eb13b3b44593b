/* redis.c -- what the model of Redis has to know for the comparison: a plain INCRBY, the commands of the other
 * schemes, and the scripts of hard limits (as tests/model/lease_store.h has them).
 * Always true: the store of leases belongs to this run alone. The model's snapshots do not contain it, so no case
 * makes Redis forget. */
#include "bench/rivals/rivals.h"

#include "tests/model/lease_store.h"

#include <inttypes.h>

static struct {
    struct store leases;
    char lease_name[MODEL_NAME_MAX]; /* of the only hard limit */
    int64_t parts[RIVALS_NODES];
} beside;

static void say(struct twi_bytes *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct twi_bytes *out, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    assert_true(size >= 0 && (size_t)size < sizeof text);
    twi_bytes_add(out, text, (size_t)size);
}

static void text_of(const struct model_word *word, char *out, size_t room) {
    assert_true(word->size < room);
    memcpy(out, word->data, word->size);
    out[word->size] = '\0';
}

static int64_t number_of(const struct model_word *word) {
    char text[32];
    text_of(word, text, sizeof text);
    return strtoll(text, NULL, 10);
}

static bool is(const struct model_word *word, const char *text) {
    return word->size == strlen(text) && memcmp(word->data, text, word->size) == 0;
}

/* ---- the commands of the other schemes --------------------------------------------------------------------------- */

/* TAKE key want limit: takes as much of it as is left, and returns how much. */
static int64_t take(struct model_key *key, int64_t want, int64_t limit) {
    int64_t left = limit - key->value, give = want < left ? want : left;
    if (give < 0) give = 0;
    key->value += give;
    return give;
}

/* PART key node sum: sets the sum of this node. Sending it again changes nothing. */
static void part(struct model_key *key, int64_t node, int64_t sum) {
    key->value += sum - beside.parts[node];
    beside.parts[node] = sum;
}

static bool run_theirs(struct redis_model *model, const struct model_word *words, size_t count,
                       struct twi_bytes *reply) {
    bool incrby = is(&words[0], "INCRBY") && count == 3, takes = is(&words[0], "TAKE") && count == 4,
         says = is(&words[0], "PART") && count == 4;
    if (!incrby && !takes && !says) return false;
    char name[MODEL_NAME_MAX];
    text_of(&words[1], name, sizeof name);
    struct model_key *key = redis_model_make(model, name, MODEL_INTEGER);
    if (incrby) key->value += number_of(&words[2]);
    if (says) part(key, number_of(&words[2]), number_of(&words[3]));
    int64_t given = takes ? take(key, number_of(&words[2]), number_of(&words[3])) : 0;
    say(reply, ":%" PRId64 "\r\n", takes ? given : key->value);
    return true;
}

/* ---- leases.lua, lease.lua ---- */

static void say_bulk(struct twi_bytes *out, const char *text) {
    say(out, "$%zu\r\n%s\r\n", strlen(text), text);
}

static void say_number(struct twi_bytes *out, int64_t number) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    say_bulk(out, text);
}

static void run_leases(struct redis_model *model, const struct model_word *args, size_t count,
                       struct twi_bytes *reply) {
    struct store_word word = {0};
    text_of(&args[1], word.instance, sizeof word.instance);
    text_of(&args[2], word.ask.epoch, sizeof word.ask.epoch);
    text_of(&args[3], word.epoch_run, sizeof word.epoch_run);
    text_of(&args[4], word.ask.resent_in, sizeof word.ask.resent_in);
    text_of(&args[5], word.fresh, sizeof word.fresh);
    word.ask.requested_since_ms = number_of(&args[6]);
    word.ask.leaves = is(&args[7], "1");
    word.changes = number_of(&args[8]);
    word.every_ms = number_of(&args[9]);
    for (size_t i = 10; i < count; i++) text_of(&args[i], word.others[word.other_count++], sizeof word.others[0]);
    struct store_answer answer = store_run(&beside.leases, &word, "run", model->now_ms);
    bool is_wanted = answer.wanted[0] && beside.lease_name[0] != '\0';
    say(reply, "*%u\r\n", 10 + answer.other_count + is_wanted);
    say_bulk(reply, "OK");
    say(reply, ":%" PRId64 "\r\n", model->now_ms);
    say_bulk(reply, answer.id);
    say(reply, ":%d\r\n", answer.answer.open);
    say_bulk(reply, answer.run);
    say_bulk(reply, answer.life);
    say(reply, ":%" PRId64 "\r\n:%" PRId64 "\r\n", answer.answer.every_ms, answer.answer.changes);
    say_bulk(reply, answer.answer.whole ? "1" : "0");
    say(reply, ":%u\r\n", answer.other_count);
    for (uint32_t i = 0; i < answer.other_count; i++) say_bulk(reply, answer.others[i]);
    if (is_wanted) say_bulk(reply, beside.lease_name);
}

static void say_lease(const struct store_answer *answer, struct twi_bytes *reply) {
    const struct twi_lease_answer *told = &answer->answer;
    static const char *const names[] = {[TWI_LEASE_NUMBERS] = "OK",
                                        [TWI_LEASE_RESEND] = "STALE",
                                        [TWI_LEASE_ENDED] = "EPOCH",
                                        [TWI_LEASE_TOO_LATE] = "LATE"};
    bool is_told = told->kind == TWI_LEASE_NUMBERS;
    say(reply, is_told ? "*9\r\n" : "*2\r\n");
    say_bulk(reply, names[told->kind]);
    say(reply, ":%" PRId64 "\r\n", told->redis_ms);
    if (!is_told) return;
    const int64_t figures[] = {told->granted, told->total, told->spent_all, told->stranded, told->risk};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) say_number(reply, figures[i]);
    say(reply, ":%d\r\n:%" PRId64 "\r\n", told->open, told->wait_ms);
}

static void run_lease(struct redis_model *model, const struct model_word *name, const struct model_word *args,
                      struct twi_bytes *reply) {
    /* Any pointer but NULL: the message is about a lease. */
    static struct twi_lease *const not_null = (struct twi_lease *)&beside;
    struct store_word word = {.ask.lease = not_null};
    text_of(name, beside.lease_name, sizeof beside.lease_name);
    text_of(&args[1], word.epoch_id, sizeof word.epoch_id);
    text_of(&args[2], word.instance, sizeof word.instance);
    word.serial = (uint64_t)number_of(&args[3]);
    word.ask.item.expiry_ms = number_of(&args[4]);
    word.ask.limit = number_of(&args[5]);
    word.ask.granted = number_of(&args[6]);
    word.ask.target = number_of(&args[7]);
    word.ask.need = number_of(&args[8]);
    word.ask.returned = number_of(&args[9]);
    word.ask.spent = number_of(&args[10]);
    word.ask.spent_all = number_of(&args[11]);
    word.ask.look = is(&args[12], "1");
    text_of(&args[13], word.life, sizeof word.life);
    word.ask.base = args[14].size != 0 ? number_of(&args[14]) : -1;
    word.ask.risk = number_of(&args[15]);
    struct store_answer answer = store_run(&beside.leases, &word, "run", model->now_ms);
    say_lease(&answer, reply);
}

static bool ends_with(const struct model_word *word, const char *text) {
    size_t size = strlen(text);
    return word->size >= size && memcmp(word->data + word->size - size, text, size) == 0;
}

static bool run_beside(struct redis_model *model, const struct model_word *words, size_t count,
                       struct twi_bytes *reply) {
    if (run_theirs(model, words, count, reply)) return true;
    if (count < 6 || !ends_with(&words[3], "tw:leases")) return false;
    size_t keys = (size_t)number_of(&words[2]);
    if (keys == 2)
        run_leases(model, words + 5, count - 5, reply);
    else
        run_lease(model, &words[5], words + 6, reply);
    return true;
}

void rivals_redis_init(struct redis_model *model) {
    memset(&beside, 0, sizeof beside);
    store_wipe(&beside.leases);
    model->beside = run_beside;
}
