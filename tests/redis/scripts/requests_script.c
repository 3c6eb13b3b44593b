/* requests_script.c -- what all scripts of requests have in common. A store that takes no writes gives no reply. A
 * cancelled call is never charged, whenever a copy of it arrives. Calls of dead processes are removed.
 * Method: a real server, EVAL, a table of every possible reply. A replica is the same server after REPLICAOF an address
 * where nobody listens: it keeps its data. */
#include "tests/redis/sync_support.h"

#include "gauge.lua.h"
#include "hold.lua.h"
#include "lock.lua.h"
#include "once.lua.h"
#include "gcra.lua.h"
#include "reclaim.lua.h"
#include "reserve.lua.h"
#include "strict.lua.h"
#include "totals.lua.h"

#define WORDS_MAX 32
#define FAR_MS "99999999999999"

static struct redis_server server;

/* Runs one command, its words separated by blanks; "''" is an empty word. */
static const char *ask_words(const char *first, const char *script, const char *line) {
    static char copy[1024];
    const char *words[WORDS_MAX] = {NULL};
    size_t count = 0;
    char *rest = copy;
    snprintf(copy, sizeof copy, "%s", line);
    if (first != NULL) words[count++] = first;
    if (script != NULL) words[count++] = script;
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        assert_true(count < WORDS_MAX - 1);
        words[count++] = strcmp(word, "''") == 0 ? "" : word;
    }
    const char **w = words;
    return redis_server_ask(&server, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12],
                            w[13], w[14], w[15], w[16], w[17], w[18], w[19], w[20], w[21], w[22], w[23], w[24], w[25],
                            w[26], w[27], w[28], w[29], w[30], w[31], NULL);
}

/* Runs commands, separated by ";". */
static void prepare(const char *commands) {
    static char copy[1024];
    char *rest = copy;
    redis_server_ask(&server, "FLUSHALL", NULL);
    snprintf(copy, sizeof copy, "%s", commands);
    for (char *command; (command = strsep(&rest, ";")) != NULL;)
        if (*command != '\0') assert_memory_not_equal(ask_words(NULL, NULL, command), "ERR", 3);
}

/* The line of a reply, from 0. */
static const char *line_of(const char *reply, int index) {
    static char line[128];
    for (; index > 0 && reply != NULL; index--) reply = (reply = strchr(reply, '\n')) != NULL ? reply + 1 : NULL;
    snprintf(line, sizeof line, "%.*s", reply != NULL ? (int)strcspn(reply, "\n") : 0, reply != NULL ? reply : "");
    return line;
}

/* ---- no reply without a write ------------------------------------------------------------------------------------ */

struct row {
    const char *what, *script;
    const char *before; /* commands */
    const char *line;   /* number of keys, keys, arguments */
    const char *says;   /* the status in the reply; of gauges the sum */
    bool changes;       /* the call changes data; else it makes only a write that changes nothing */
};

#define STRICT "2 tw:calls:c c me 7 "
#define PACED "2 tw:calls:b tw:bucket:b me 7 "
#define ONCE "3 tw:calls:o tw:once:o o me 7 "
#define LOCK "3 tw:calls:l tw:lock:l tw:fence:l me 7 "
#define STOCK "4 s tw:stock:s tw:due:s tw:token:id me 7 1 "
#define HOLD "1 tw:hold:h me 7 1 "

static const struct row rows[] = {
    {"strict: denied", twi_script_strict, "SET c 5", STRICT "1 1 5 0 0 0 0 0", "DENIED", false},
    {"strict: denied, asked again", twi_script_strict, "SET c 5", STRICT "2 1 5 0 0 0 0 0", "DENIED", true},
    {"strict: nothing wanted", twi_script_strict, "SET c 5", STRICT "1 0 5 0 0 0 0 0", "OK", false},
    {"strict: given", twi_script_strict, "SET c 4", STRICT "1 1 5 0 0 0 0 0", "OK", true},
    {"strict: had been given", twi_script_strict, "HSET tw:calls:c me 7|1|9", STRICT "2 1 5 0 0 0 0 0", "OK", false},
    {"strict: had been denied", twi_script_strict, "HSET tw:calls:c me 7|0|9", STRICT "2 1 5 0 0 0 0 0", "DENIED",
     false},
    {"strict: late", twi_script_strict, "", STRICT "1 1 5 0 1 0 0 0", "LATE", false},
    {"strict: no number", twi_script_strict, "SET c x", STRICT "1 1 5 0 0 0 0 0", "BAD", false},
    {"strict: overtaken", twi_script_strict, "HSET tw:calls:c me 8|0|9", STRICT "1 1 5 0 0 0 0 0", "STALE", false},
    {"strict: taken back, though no number", twi_script_strict, "SET c x;HSET tw:calls:c me 7|3|9",
     STRICT "0 3 5 0 0 0 0 0", "KEPT", true},
    {"strict: never mind", twi_script_strict, "", STRICT "0 1 5 0 0 0 0 0", "OK", true},
    {"strict: another life", twi_script_strict, "HSET tw:calls:c me 7:b|1|9", "2 tw:calls:c c me 7:a 1 1 5 0 0 0 0 0",
     "STALE", false},
    {"strict: another life's is not taken back", twi_script_strict, "SET c 1;HSET tw:calls:c me 7:b|1|9",
     "2 tw:calls:c c me 7:a 0 1 5 0 0 0 0 0", "STALE", false},
    {"sliding: denied", twi_script_strict, "SET c 5", "3 tw:calls:c c tw:log:c me 7 1 1 5 0 0 0 60000 0", "DENIED",
     false},
    {"sliding: denied, logged by a clock that was ahead", twi_script_strict,
     "ZADD tw:log:c -5 + 9000000000000000 you:1:5", "3 tw:calls:c c tw:log:c me 7 1 1 5 0 0 0 60000 0", "DENIED", true},
    {"paced: denied", twi_script_gcra, "SET tw:bucket:b 1+0/5", PACED "1 6 5 0 5 60000 0", "DENIED", false},
    {"paced: nothing wanted", twi_script_gcra, "", PACED "1 0 5 0 5 60000 0", "OK", false},
    {"paced: given", twi_script_gcra, "", PACED "1 1 5 0 5 60000 0", "OK", true},
    {"paced: denied, full here", twi_script_gcra, "", PACED "1 1 5 0 5 60000 60000", "DENIED", true},
    {"paced: had been given", twi_script_gcra, "HSET tw:calls:b me 7|1|9|9", PACED "2 1 5 0 5 60000 0", "OK", false},
    {"paced: no moment", twi_script_gcra, "SET tw:bucket:b x", PACED "1 1 5 0 5 60000 0", "BAD", false},
    {"paced: overtaken", twi_script_gcra, "HSET tw:calls:b me 8|0|9", PACED "1 1 5 0 5 60000 0", "STALE", false},
    {"paced: taken back, though no moment", twi_script_gcra, "SET tw:bucket:b x;HSET tw:calls:b me 7|1|9|9",
     PACED "0 1 5 0 5 60000 0", "KEPT", true},
    {"paced: never mind", twi_script_gcra, "", PACED "0 1 5 0 5 60000 0", "OK", true},
    {"paced: another life", twi_script_gcra, "HSET tw:calls:b me 7:b|1|9|9",
     "2 tw:calls:b tw:bucket:b me 7:a 0 1 5 0 5 60000 0", "STALE", false},
    {"once: second", twi_script_once, "SET tw:once:o you;SET o 1", ONCE "1 O token 0 0", "SECOND", false},
    {"once: second, by the counter", twi_script_once, "SET o 1", ONCE "1 O token 0 0", "SECOND", false},
    {"once: still the first", twi_script_once, "SET tw:once:o token", ONCE "1 O token 0 0", "FIRST", false},
    {"once: first", twi_script_once, "", ONCE "1 O token 0 0", "FIRST", true},
    {"once: late", twi_script_once, "", ONCE "1 O token 1 0", "LATE", false},
    {"once: no number", twi_script_once, "SET o x", ONCE "1 O token 0 0", "BAD", false},
    {"once: overtaken", twi_script_once, "HSET tw:calls:o me 8|0|9", ONCE "1 O token 0 0", "STALE", false},
    {"once: cancelled", twi_script_once, "", ONCE "1 C token 0 0", "OK", true},
    {"once: had been cancelled", twi_script_once, "HSET tw:calls:o me 7|1|9;SET tw:once:o you;SET o 1",
     ONCE "2 C token 0 0", "OK", false},
    {"once: never mind", twi_script_once, "", ONCE "0 O token 0 0", "OK", true},
    {"once: another life", twi_script_once, "HSET tw:calls:o me 7:b|0|9",
     "3 tw:calls:o tw:once:o o me 7:a 2 O token 0 0", "STALE", false},
    {"lock: held", twi_script_lock, "SET tw:lock:l you|9", LOCK "1 L token 1000", "HELD", false},
    {"lock: another life", twi_script_lock, "HSET tw:calls:l me 7:b|0|9",
     "3 tw:calls:l tw:lock:l tw:fence:l me 7:a 2 L token 1000", "STALE", false},
    {"lock: still the holder", twi_script_lock, "SET tw:lock:l token|9", LOCK "1 L token 1000", "OK", false},
    {"lock: locked", twi_script_lock, "", LOCK "1 L token 1000", "OK", true},
    {"lock: extended, though not held", twi_script_lock, "", LOCK "1 E token 1000", "GONE", false},
    {"lock: extended, though longer already", twi_script_lock, "SET tw:lock:l token|9 PX 90000", LOCK "1 E token 1000",
     "OK", false},
    {"lock: unlocked, though not held", twi_script_lock, "SET tw:lock:l you|9", LOCK "1 U token 1", "GONE", true},
    {"lock: had been unlocked", twi_script_lock, "HSET tw:calls:l me 7|1|9", LOCK "2 U token 1", "OK", false},
    {"lock: overtaken", twi_script_lock, "HSET tw:calls:l me 8|0|9", LOCK "1 L token 1000", "STALE", false},
    {"lock: never mind", twi_script_lock, "", LOCK "0 L token 1000", "OK", true},
    {"stock: where, of no token", twi_script_reserve, "", "1 tw:token:id me 7 1 where id", "UNKNOWN", false},
    {"stock: confirm of no token", twi_script_reserve, "", STOCK "confirm id", "UNKNOWN", false},
    {"stock: confirm of another's token", twi_script_reserve, "HSET tw:token:id k t", STOCK "confirm id", "UNKNOWN",
     false},
    {"stock: confirm too late", twi_script_reserve, "HSET tw:token:id k s", STOCK "confirm id", "LATE", false},
    {"stock: had been confirmed", twi_script_reserve, "HSET tw:token:id k s s 1", STOCK "confirm id", "OK", false},
    {"stock: confirmed", twi_script_reserve,
     "HSET tw:token:id k s;HSET tw:stock:s hid 1|b;ZADD tw:due:s " FAR_MS " id;SET s 1", STOCK "confirm id", "OK",
     true},
    {"stock: cancel of no token", twi_script_reserve, "", STOCK "cancel id", "UNKNOWN", false},
    {"stock: cancel of what is sold", twi_script_reserve, "HSET tw:token:id k s s 1", STOCK "cancel id", "SOLD", false},
    {"stock: had been cancelled", twi_script_reserve, "HSET tw:token:id k s", STOCK "cancel id", "OK", false},
    {"stock: too few left", twi_script_reserve, "SET s 5", STOCK "reserve id 1 5 1000 '' 0 1000", "DENIED", false},
    {"stock: the buyer has some", twi_script_reserve, "HSET tw:stock:s bb other", STOCK "reserve id 1 5 1000 b 0 1000",
     "BUYER", false},
    {"stock: reserved and over", twi_script_reserve, "HSET tw:token:id k s", STOCK "reserve id 1 5 1000 '' 0 1000",
     "LATE", false},
    {"stock: had been reserved", twi_script_reserve,
     "HSET tw:token:id k s;HSET tw:stock:s hid 1|b;ZADD tw:due:s " FAR_MS " id;SET s 1",
     STOCK "reserve id 1 5 1000 b 0 1000", "OK", false},
    {"stock: reserved", twi_script_reserve, "", STOCK "reserve id 1 5 1000 '' 0 1000", "OK", true},
    {"stock: nothing to sweep", twi_script_reserve, "", "3 s tw:stock:s tw:due:s me 7 1 sweep ''", "OK", false},
    {"hold: too many, held by a clock that was ahead", twi_script_hold, "ZADD tw:hold:h " FAR_MS " you:1",
     HOLD "hold 15000 1 me:1", "DENIED", true},
    {"hold: none may", twi_script_hold, "", HOLD "hold 15000 0 me:1", "DENIED", false},
    {"hold: all were dead", twi_script_hold, "ZADD tw:hold:h 1 you:1", HOLD "hold 15000 1 me:1", "MORE", true},
    {"hold: in flight", twi_script_hold, "", HOLD "hold 15000 1 me:1", "OK", true},
    {"hold: released, though not in flight", twi_script_hold, "", HOLD "release 15000 0 me:1", "OK", false},
    {"reclaim: it lives", twi_script_reclaim, "HSET tw:leases i:me " FAR_MS, "1 tw:leases me 7 1 list me 0 tw:lease:*",
     "ALIVE", false},
    {"reclaim: no leases", twi_script_reclaim, "", "1 tw:leases me 7 1 list me 0 tw:lease:*", "OK", false},
    {"reclaim: nothing to free", twi_script_reclaim, "HSET tw:lease:x t 0", "2 tw:leases tw:lease:x me 7 1 free me 0",
     "OK", false},
    {"reclaim: freed", twi_script_reclaim, "HSET tw:lease:x t 5 me 1|5|0|0|0",
     "2 tw:leases tw:lease:x me 7 1 free me 0", "OK", true},
    {"totals: no fields", twi_script_totals, "", "1 h me 7 1 fields 0", "OK", false},
    {"totals: fields", twi_script_totals, "HSET h views 3", "1 h me 7 1 fields 0", "OK", false},
    {"totals: no hash", twi_script_totals, "SET h 3", "1 h me 7 1 fields 0", "BAD", false},
    {"totals: nobody ranks", twi_script_totals, "", "1 z me 7 1 top 0 10", "OK", false},
    {"totals: a ranking", twi_script_totals, "ZADD z 3 m", "1 z me 7 1 top 0 10", "OK", false},
    {"totals: no ranking", twi_script_totals, "SET z 3", "1 z me 7 1 top 0 10", "BAD", false},
    {"totals: no rank", twi_script_totals, "ZADD z 3 m", "1 z me 7 1 rank n", "OK", false},
    {"totals: a rank", twi_script_totals, "ZADD z 3 m", "1 z me 7 1 rank m", "OK", false},
    {"totals: a rank, but no ranking", twi_script_totals, "SET z 3", "1 z me 7 1 rank m", "BAD", false},
    {"gauge: others' parts alone", twi_script_gauge, "HSET tw:gauge:g you 3|" FAR_MS "|1;SET g 3",
     "2 g tw:gauge:g me 15000 1 0", "3", true},
    {"gauge: nobody there", twi_script_gauge, "", "2 g tw:gauge:g me 15000 1 0", "0", false},
    {"gauge: our part", twi_script_gauge, "", "2 g tw:gauge:g me 15000 1 3", "3", true},
};

/* The table writes blanks in values as bars. */
static void prepare_row(const struct row *row) {
    static const char unbar[] = "for _, k in ipairs(redis.call('KEYS', '*')) do local t = redis.call('TYPE', k).ok "
                                "if t == 'hash' then for _, f in ipairs(redis.call('HKEYS', k)) do "
                                "redis.call('HSET', k, f, (string.gsub(redis.call('HGET', k, f), '|', ' '))) end "
                                "elseif t == 'string' then local p = redis.call('PTTL', k) "
                                "redis.call('SET', k, (string.gsub(redis.call('GET', k), '|', ' '))) "
                                "if p > 0 then redis.call('PEXPIRE', k, p) end end end";
    prepare(row->before);
    redis_server_ask(&server, "EVAL", unbar, "0", NULL);
}

static int64_t changes(void) {
    const char *info = redis_server_ask(&server, "INFO", "persistence", NULL);
    const char *at = strstr(info, "rdb_changes_since_last_save:");
    assert_non_null(at);
    return atoll(strchr(at, ':') + 1);
}

/* Goal: only a store that takes writes gives any reply, the denials above all. A call that needs no change makes
 * none. */
TEST(a_replica_answers_nothing) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        bool is_gauge = row->script == twi_script_gauge;
        prepare_row(row);
        int64_t before = changes();
        const char *reply = ask_words("EVAL", row->script, row->line);
        if (strcmp(line_of(reply, is_gauge ? 0 : 1), row->says) != 0) fail_msg("%s: %s", row->what, reply);
        if ((changes() != before) != row->changes) fail_msg("%s: changes %s", row->what, row->changes ? "no" : "some");
        prepare_row(row);
        redis_server_ask(&server, "REPLICAOF", "127.0.0.1", "1", NULL);
        reply = ask_words("EVAL", row->script, row->line);
        if (strstr(reply, "READONLY") == NULL || strstr(reply, row->says) == reply)
            fail_msg("%s: a replica says: %s", row->what, reply);
        redis_server_ask(&server, "REPLICAOF", "NO", "ONE", NULL);
    }
}

/* ---- cancelled calls --------------------------------------------------------------------------------------------- */

struct asked {
    const char *what, *script, *keys; /* keys, with their number */
    const char *arguments;            /* arguments from the fourth on; "@" is another text for each call */
    const char *charged;              /* a command that shows what the call charges */
};

static const struct asked kinds[] = {
    {"a strict limit", twi_script_strict, "2 tw:calls:x x", "1 10 0 0 0 0 0", "GET x"},
    {"a strict limit, as many as there are", twi_script_strict, "2 tw:calls:x x", "9 10 1 0 0 0 0", "GET x"},
    {"a strict limit from the first on", twi_script_strict, "2 tw:calls:x x", "1 10 0 0 60000 0 0", "GET x"},
    {"a strict limit that slides", twi_script_strict, "3 tw:calls:x x tw:log:x", "1 10 0 0 0 60000 0",
     "ZRANGEBYSCORE tw:log:x 1 +inf"},
    {"a rate with a burst", twi_script_gcra, "2 tw:calls:x tw:bucket:x", "1 10 0 10 86400000 0", NULL},
    {"once", twi_script_once, "3 tw:calls:x tw:once:x x", "O token@ 0 0", "GET tw:once:x"},
    {"a lock", twi_script_lock, "3 tw:calls:x tw:lock:x tw:fence:x", "L token@ 60000", "GET tw:lock:x"},
    {"a slot", twi_script_hold, "1 x", "hold 15000 9 me:@", "ZRANGEBYSCORE x 0 +inf"},
    {"a reservation", twi_script_reserve, "4 x tw:stock:x tw:due:x tw:token:@", "reserve @ 1 10 60000 '' 0 1000",
     "GET x"},
    {"a reservation of a buyer", twi_script_reserve, "4 x tw:stock:x tw:due:x tw:token:@",
     "reserve @ 1 10 60000 ann@ 0 1000", "GET x"},
};

static const char *say_it(const struct asked *kind, const char *who, int serial, char verb) {
    char line[512];
    snprintf(line, sizeof line, "%s %s %d %c %s", kind->keys, who, serial, verb, kind->arguments);
    for (char *token; (token = strchr(line, '@')) != NULL;) *token = (char)('0' + serial); /* of this call alone */
    return ask_words("EVAL", kind->script, line);
}

static const char *say(const struct asked *kind, const char *who, int serial, char verb) {
    const char *reply = say_it(kind, who, serial, verb);
    if (atoi(reply) != serial) fail_msg("%s: %s", kind->what, reply);
    return reply;
}

static bool is_charged(const struct asked *kind) {
    if (kind->script == twi_script_gcra) { /* a tenth of a day ahead, or almost nothing */
        int64_t now_s = atoll(redis_server_ask(&server, "TIME", NULL));
        return redis_server_get(&server, "tw:bucket:x") > (now_s + 60) * 1000000;
    }
    const char *there = ask_words(NULL, NULL, kind->charged);
    return *there != '\0' && strcmp(there, "0") != 0;
}

/* Goal: no copy that arrives later charges a cancelled call, neither if Redis never had the call nor if it had and took
 * it back. The call made anew is charged, and a cancel that arrives twice takes back only once. */
TEST(cancelled_calls_are_never_charged) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct asked *kind = &kinds[i];
        print_message("# %s\n", kind->what);
        for (int heard = 0; heard < 2; heard++) {
            prepare("");
            if (heard != 0) say(kind, "me", 7, '1');
            assert_int_equal(is_charged(kind), heard != 0);
            say(kind, "me", 7, '0');
            assert_false(is_charged(kind));
            say(kind, "me", 7, '1'); /* a copy from the buffer of a dead connection */
            assert_false(is_charged(kind));
            say(kind, "me", 7, '0'); /* its reply was lost */
            assert_false(is_charged(kind));
            say(kind, "me", 7, '1');
            assert_false(is_charged(kind));
            say(kind, "me", 7, '2'); /* one that was repeated */
            assert_false(is_charged(kind));
            say(kind, "me", 8, '1');
            assert_true(is_charged(kind));
            say(kind, "me", 7, '0'); /* a late copy of that */
            assert_true(is_charged(kind));
        }
    }
}

/* The units that are there, or the text that is charged. */
static const char *charge_of(const struct asked *kind) {
    static char text[128];
    if (kind->script == twi_script_gcra) return is_charged(kind) ? "charged" : "";
    snprintf(text, sizeof text, "%s", ask_words(NULL, NULL, kind->charged));
    return strcmp(text, "0") == 0 ? "" : text;
}

/* Goal: a cancel that Redis refuses to execute, because the user lacks one of the rights or the memory is full, takes
 * back all or nothing, and the same cancel takes back all of it once it is executed: not less, and not twice. */
TEST(a_cancel_that_is_refused_takes_back_all_of_it_later) {
    static const char *const rights[] = {"incrby", "decrby",    "hset", "hdel", "set",
                                         "del",    "pexpireat", "zrem", "zadd", "pexpire"};
    if (!redis_server_is_at_least(6, 0)) return; /* it knows no rights */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct asked *kind = &kinds[i];
        bool is_one = kind->script == twi_script_once || kind->script == twi_script_lock ||
                      kind->script == twi_script_gcra || kind->arguments[0] == '9';
        for (size_t r = 0; r < sizeof rights / sizeof *rights; r++) {
            char before[128], right[16];
            prepare("");
            if (!is_one) say(kind, "you", 3, '1');
            snprintf(before, sizeof before, "%s", charge_of(kind));
            say(kind, "me", 7, '1');
            assert_string_not_equal(charge_of(kind), before);
            snprintf(right, sizeof right, "-%s", rights[r]);
            redis_server_ask(&server, "ACL", "SETUSER", "default", right, NULL);
            for (int times = 0; times < 2; times++) (void)say_it(kind, "me", 7, '0');
            right[0] = '+';
            redis_server_ask(&server, "ACL", "SETUSER", "default", right, NULL);
            for (int times = 0; times < 2; times++) {
                say(kind, "me", 7, '0');
                if (strcmp(charge_of(kind), before) != 0)
                    fail_msg("%s, without %s: %s, not %s", kind->what, rights[r], charge_of(kind), before);
            }
        }
    }
}

/* Goal: a release, and a cancel of the first caller, that Redis refuses are done by the request that comes again. */
TEST(a_release_that_is_refused_is_done_later) {
    static const char *const rights[] = {"del", "hset", "incrby"};
    static const char *const lines[][2] = {{LOCK "1 U token 1", LOCK "2 U token 1"},
                                           {ONCE "1 C token 0 0", ONCE "2 C token 0 0"}};
    if (!redis_server_is_at_least(6, 0)) return; /* it knows no rights */
    for (int kind = 0; kind < 2; kind++) {
        const char *script = kind == 0 ? twi_script_lock : twi_script_once;
        for (size_t r = 0; r < sizeof rights / sizeof *rights; r++) {
            char right[16];
            prepare("SET tw:lock:l token|9;SET tw:once:o token;SET o 1");
            redis_server_ask(&server, "SET", "tw:lock:l", "token 9", NULL);
            snprintf(right, sizeof right, "-%s", rights[r]);
            redis_server_ask(&server, "ACL", "SETUSER", "default", right, NULL);
            (void)ask_words("EVAL", script, lines[kind][0]);
            right[0] = '+';
            redis_server_ask(&server, "ACL", "SETUSER", "default", right, NULL);
            (void)ask_words("EVAL", script, lines[kind][1]);
            const char *left = redis_server_ask(&server, "EXISTS", kind == 0 ? "tw:lock:l" : "tw:once:o", NULL);
            if (*left != '0') fail_msg("without %s: it is still there", rights[r]);
            if (kind == 1) assert_i64_equal(redis_server_get(&server, "o"), 0);
        }
    }
}

/* Goal: where memory is full, units return all the same. */
TEST(a_cancel_needs_no_memory) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct asked *kind = &kinds[i];
        for (int heard = 0; heard < 2; heard++) {
            prepare("");
            if (heard != 0) say(kind, "me", 7, '1');
            redis_server_ask(&server, "CONFIG", "SET", "maxmemory", "1", NULL);
            bool is_full = strstr(redis_server_ask(&server, "SET", "other", "1", NULL), "OOM") != NULL;
            char says[128];
            snprintf(says, sizeof says, "%s", say_it(kind, "me", 7, '0'));
            redis_server_ask(&server, "CONFIG", "SET", "maxmemory", "0", NULL);
            assert_true(is_full);
            if (strcmp(line_of(says, 1), "OK") != 0) fail_msg("%s: %s", kind->what, says);
            if (is_charged(kind)) fail_msg("%s is charged", kind->what);
            say(kind, "me", 7, '1'); /* a late copy */
            if (is_charged(kind)) fail_msg("%s is charged by a late copy", kind->what);
        }
    }
}

/* Goal: a request to reserve that was repeated and denied is over: a copy of it that comes when there is room does
 * nothing, and the same request again is told the same. */
TEST(a_denied_reservation_stays_denied) {
    const struct asked of_few = {"a reservation", twi_script_reserve, "4 x tw:stock:x tw:due:x tw:token:@",
                                 "reserve @ 1 10 60000 ann 0 1000", "GET x"};
    prepare("SET x 10");
    assert_string_equal(line_of(say(&of_few, "me", 7, '2'), 1), "DENIED");
    redis_server_ask(&server, "SET", "x", "0", NULL);
    assert_string_equal(line_of(say(&of_few, "me", 7, '2'), 1), "DENIED");
    assert_string_equal(line_of(say(&of_few, "me", 7, '1'), 1), "DENIED");
    assert_false(is_charged(&of_few));
    assert_string_equal(line_of(say(&of_few, "me", 8, '1'), 1), "OK");
    assert_string_equal(line_of(say(&of_few, "me", 9, '2'), 1), "BUYER");
    say(&of_few, "me", 8, '0');
    assert_string_equal(line_of(say(&of_few, "me", 9, '1'), 1), "BUYER");
    assert_false(is_charged(&of_few));
}

/* Goal: a token that is cancelled before its reservation has come is unknown, and stays so: what comes later holds
 * nothing. A look that leads to a confirmation leaves no mark. */
TEST(a_reservation_that_comes_after_its_cancel_holds_nothing) {
    const struct asked one = {"a reservation", twi_script_reserve, "4 x tw:stock:x tw:due:x tw:token:@",
                              "reserve @ 1 10 60000 '' 0 1000", "GET x"};
    prepare("");
    assert_string_equal(line_of(ask_words("EVAL", twi_script_reserve, "1 tw:token:8 me 1 1 where 8 confirm"), 1),
                        "UNKNOWN");
    say(&one, "me", 8, '1');
    assert_true(is_charged(&one));
    prepare("");
    for (int times = 0; times < 2; times++) {
        assert_string_equal(line_of(ask_words("EVAL", twi_script_reserve, "1 tw:token:8 me 1 1 where 8 cancel"), 1),
                            "UNKNOWN");
        assert_string_equal(line_of(say(&one, "me", 8, '1'), 1), "LATE");
        assert_false(is_charged(&one));
    }
    int64_t left_ms = atoll(redis_server_ask(&server, "PTTL", "tw:token:8", NULL));
    assert_true(left_ms > 600000 && left_ms <= 660000);
}

/* Goal: what was sold before the cancel of its request came stays sold. */
TEST(what_is_sold_stays_sold) {
    const struct asked one = {"a reservation", twi_script_reserve, "4 x tw:stock:x tw:due:x tw:token:@",
                              "reserve @ 1 10 60000 '' 0 1000", "GET x"};
    prepare("");
    say(&one, "me", 8, '1');
    ask_words("EVAL", twi_script_reserve, "4 x tw:stock:x tw:due:x tw:token:8 me 9 1 confirm 8");
    assert_string_equal(line_of(say(&one, "me", 8, '0'), 1), "SOLD");
    assert_true(is_charged(&one));
}

/* Goal: calls of several lanes return in any order of their cancels: one that came later and was taken back first is
 * not taken for time that has passed. */
TEST(cancels_come_in_any_order) {
    static const char *const lanes[] = {"a", "b", "c"};
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct asked *kind = &kinds[i];
        if (kind->script == twi_script_once || kind->script == twi_script_lock || kind->arguments[0] == '9') continue;
        for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
            prepare("");
            for (int k = 0; k < 3; k++) say(kind, lanes[k], k + 1, '1');
            assert_true(is_charged(kind));
            for (int k = 0; k < 3; k++) say(kind, lanes[orders[o][k]], orders[o][k] + 1, '0');
            if (is_charged(kind)) fail_msg("%s is charged after order %d", kind->what, (int)o);
        }
    }
}

/* ---- calls of dead processes ------------------------------------------------------------------------------------- */

#define LIFE_S 600

/* The script, with a time that the test chooses. */
static const char *at_time(const char *script, int64_t second, int64_t us) {
    static char text[32768];
    static const char asks[] = "redis.call('TIME')";
    const char *at = strstr(script, asks);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s{'%lld', '%lld'}%s", (int)(at - script), script, (long long)second, (long long)us,
             at + sizeof asks - 1);
    return text;
}

static const char *say_at(const struct asked *kind, int process, char verb, int64_t second, int64_t us) {
    char line[512];
    snprintf(line, sizeof line, "%s process%d:0 1 %c %s", kind->keys, process, verb, kind->arguments);
    return ask_words("EVAL", at_time(kind->script, second, us), line);
}

/* Goal: a counter that is in use for ever drops the calls of dead processes, in a small hash and in a large one; the
 * calls of the last ten minutes are all kept. */
TEST(calls_of_processes_that_are_gone_are_forgotten) {
    enum { CROWD = 200, PROCESSES = 500, STEP_S = 20 };
    static const size_t which[] = {0, 4, 5, 6};
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    redis_server_ask(&server, "CONFIG", "SET", "hash-max-ziplist-entries", "64", NULL);
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        struct asked kind = kinds[which[i]];
        int64_t second = 1800000000;
        prepare("");
        if (kind.script == twi_script_strict) kind.arguments = "1 1000000 0 0 0 0 0";
        for (int process = 0; process < PROCESSES; process++) {
            if (process >= CROWD) second += STEP_S;
            say_at(&kind, process, '2', second, (int64_t)test_prng_below(&prng, 1000000));
        }
        int64_t fields = atoll(redis_server_ask(&server, "HLEN", "tw:calls:x", NULL));
        print_message("# %s: %lld fields of %d processes\n", kind.what, (long long)fields, PROCESSES);
        assert_in_range(fields, LIFE_S / STEP_S, 6 * LIFE_S / STEP_S);
        for (int back = 0; back < LIFE_S / STEP_S; back++) {
            char who[32];
            snprintf(who, sizeof who, "process%d:0", PROCESSES - 1 - back);
            assert_string_equal(redis_server_ask(&server, "HEXISTS", "tw:calls:x", who, NULL), "1");
        }
    }
}

/* Goal: the calls of a counter live at least ten minutes after the last of them, though a lane renews that life once a
 * minute only. */
TEST(the_calls_live_ten_minutes_after_the_last) {
    struct asked kind = kinds[0];
    kind.arguments = "1 1000000 0 0 0 0 0";
    const int64_t minute = 1800000000;
    for (int second = 0, serial = 1; second < 240; second += 7, serial++) {
        if (serial == 1) prepare("");
        bool begins = serial == 1 || second / 60 != (second - 7) / 60;
        char line[256];
        snprintf(line, sizeof line, "%s me %d 1 %s", kind.keys, serial, kind.arguments);
        redis_server_ask(&server, "PEXPIRE", "tw:calls:x", "5000", NULL);
        ask_words("EVAL", at_time(kind.script, minute + second, 0), line);
        int64_t left_ms = atoll(redis_server_ask(&server, "PTTL", "tw:calls:x", NULL));
        if (begins != (left_ms > 650000)) fail_msg("second %d: %lld ms", second, (long long)left_ms);
        if (begins) assert_in_range(left_ms, 650000, 660000);
    }
}

/* ---- what a call costs ------------------------------------------------------------------------------------------- */

/* Commands that Redis has run since the counts began, but those that count and run scripts. */
static int64_t commands_run(void) {
    int64_t sum = 0;
    const char *info = redis_server_ask(&server, "INFO", "commandstats", NULL);
    for (const char *at = info; (at = strstr(at, "cmdstat_")) != NULL; at++) {
        const char *calls = strstr(at, ":calls=");
        bool is_ours = strncmp(at, "cmdstat_eval", 12) == 0 || strncmp(at, "cmdstat_config", 14) == 0;
        if (calls != NULL && !is_ours) sum += atoll(calls + 7);
    }
    return sum;
}

/* Goal: the usual call makes Redis run few commands: each costs it as much as the rest of a simple script. A call is
 * usual if its lane has called before and the counter is there. */
TEST(a_usual_call_runs_few_commands) {
    const struct {
        struct asked kind;
        int64_t commands;
    } each[] = {
        {{"a strict limit", twi_script_strict, "2 tw:calls:x x", "1 10 0 0 0", "GET x"}, 5},
        {{"a strict limit, denied", twi_script_strict, "2 tw:calls:x x", "1 0 0 0 0", "GET x"}, 4},
        {{"a strict limit from the first on", twi_script_strict, "2 tw:calls:x x", "1 10 0 0 60000", "GET x"}, 6},
        {{"a rate with a burst", twi_script_gcra, "2 tw:calls:x tw:bucket:x", "1 10 0 10 86400000 0", NULL},
         redis_server_is_at_least(6, 2) ? 6 : 8}, /* SET ... PXAT, or what does the same before */
        {{"once", twi_script_once, "3 tw:calls:x tw:once:x x", "O token@ 0 0", "GET tw:once:x"}, 5},
        {{"a lock", twi_script_lock, "3 tw:calls:x tw:lock:x tw:fence:x", "L token@ 60000", "GET tw:lock:x"}, 6},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        prepare("");
        say(&each[i].kind, "me", 1, '1');
        redis_server_ask(&server, "CONFIG", "RESETSTAT", NULL);
        say(&each[i].kind, "me", 2, '1');
        int64_t run = commands_run();
        if (run > each[i].commands + 1) fail_msg("%s: %lld commands", each[i].kind.what, (long long)run);
        if (run > each[i].commands) print_message("# %s: a minute began\n", each[i].kind.what); /* one more a minute */
        for (int more = 3; run > each[i].commands && more < 6; more++) {
            redis_server_ask(&server, "CONFIG", "RESETSTAT", NULL);
            say(&each[i].kind, "me", more, '1');
            run = commands_run();
        }
        assert_i64_equal(run, each[i].commands);
    }
}

int main(void) {
    redis_server_require();
    redis_server_start(&server, NULL);
    int failed = test_run();
    redis_server_destroy(&server);
    return failed;
}
