/* moving_slot.c -- every script where its slot is on its way from one node of a cluster to another: all or nothing. Of
 * such a slot a node refuses each key that is not there, or not any more, in the middle of a script: also one that the
 * script itself has just emptied; and what it wrote before stays. So no script may touch a key that it did not name,
 * nor one that may be empty by then. Method: a table of calls that empty what can be emptied. Each runs on a plain
 * server, at a time that stands still, and then with a guard in front of it that refuses as such a node does. The
 * answer and all that is left behind must be the same. The long form asks two real nodes as well (and so proves the
 * guard): with all keys at the one, with each of them moved in turn, and with all of them moved. */
#include "tests/redis/sync_support.h"

#include "batch.lua.h"
#include "close_election.lua.h"
#include "gauge.lua.h"
#include "hold.lua.h"
#include "lease.lua.h"
#include "leases.lua.h"
#include "lock.lua.h"
#include "once.lua.h"
#include "gcra.lua.h"
#include "reclaim.lua.h"
#include "registry.lua.h"
#include "reserve.lua.h"
#include "strict.lua.h"
#include "totals.lua.h"
#include "window_names.lua.h"

#define WORDS_MAX 40
#define FAR_MS "99999999999999"

/* In front of each script: refuses as such a node does, if it is to; the rest of a key's life is one number, whenever
 * it is asked; and the history is one word. A command's key is always its first word; SCAN, TIME and INFO have none. */
static const char front[] =
    "local real, named = redis, {}\n"
    "for i = 1, #KEYS do\n"
    "  named[KEYS[i]] = true\n"
    "  if guarded and real.call('EXISTS', KEYS[i]) == 0 then return real.error_reply('TRYAGAIN') end\n"
    "end\n"
    "local function is_here(command, key)\n"
    "  if not guarded or command == 'TIME' or command == 'SCAN' or command == 'INFO' then return true end\n"
    "  return named[key] and real.call('EXISTS', key) == 1\n"
    "end\n"
    "local function told(command, said)\n"
    "  if command == 'INFO' then return 'role:master\\r\\nmaster_replid:abc\\r\\n' end\n"
    "  return command == 'PTTL' and said > 0 and 500 or said\n"
    "end\n"
    "local redis = {error_reply = real.error_reply}\n"
    "function redis.call(...)\n"
    "  if not is_here(...) then error('a non local key: ' .. table.concat({...}, ' ')) end\n"
    "  return told((...), real.call(...))\n"
    "end\n"
    "function redis.pcall(...)\n"
    "  if not is_here(...) then error('a non local key: ' .. table.concat({...}, ' ')) end\n"
    "  return told((...), real.pcall(...))\n"
    "end\n";

struct row {
    const char *what, *script;
    const char *before; /* commands, all keys are there */
    const char *line;   /* number of keys, keys, arguments */
};

#define CALLS "HSET tw:calls:{m}x you 1|1|9;"
#define STRICT "2 tw:calls:{m}x {m}x me 7 "
#define SLIDING "3 tw:calls:{m}x {m}x tw:log:{m}x me 7 "
#define PACED "2 tw:calls:{m}x tw:bucket:{m}x me 7 "
#define ONCE "3 tw:calls:{m}x tw:once:{m}x {m}x me 7 "
#define LOCK "3 tw:calls:{m}x tw:lock:{m}x tw:fence:{m}x me 7 "
#define STOCK "4 {m}s tw:stock:{m}s tw:due:{m}s tw:token:{m}id me 7 1 "
#define SWEEP "3 {m}s tw:stock:{m}s tw:due:{m}s me 7 1 sweep ''"
#define TOKEN "HSET tw:token:{m}id k {m}s;"
#define OURS "HSET tw:stock:{m}s hid 2|b bb id;ZADD tw:due:{m}s " FAR_MS " id;SET {m}s 2"
#define OURS_OVER "HSET tw:stock:{m}s hid 2|b bb id;ZADD tw:due:{m}s 1 id;SET {m}s 2"
#define HOLD "1 tw:hold:{m}h me 7 1 "
#define GAUGE "2 {m}g tw:gauge:{m}g me 15000 5 "
#define ME "1234567890abcdef1234567890abcdef"
#define YOU "abcdef1234567890abcdef1234567890"
#define EPOCH \
    "HSET tw:leases:{m} id e run abc open 1 n 2 late 0 c 2 was '' from 1 to 1 tag t i:" ME " 1800000000000 b:" ME " 1;"
#define WANTED "ZADD tw:leases:wanted:{m} 1 " YOU "tw:lease:{m}x;"
#define LEASES "2 tw:leases:{m} tw:leases:wanted:{m} 2 " ME
#define LEASE "3 tw:leases:{m} tw:leases:wanted:{m} tw:lease:{m}x 2 e " ME " 1 "
#define CLOSERS "HSET tw:closers:{m}f h 1799999999500 f 0 p 0 i:abc " FAR_MS "|1|0|,;"
#define LISTED "ZADD tw:windows:{m}f 1 1799980000000;"
#define WINDOW LISTED "SET tw:closed:{m}w p|0;SADD tw:names:{m}w name"
#define CLAIMED LISTED "SET tw:closed:{m}w c|abc|" FAR_MS ";SADD tw:names:{m}w name"
#define CLOSING_IN(version, verb) \
    "4 tw:closers:{m}f tw:closed:{m}w tw:names:{m}w tw:windows:{m}f " version " " verb \
    " abc 5 1 30000 0 , 1799999000000 1800099000000 "
#define CLOSING(verb) CLOSING_IN("1", verb)
#define CLOSING_BY_TAG(verb) CLOSING_IN("2", verb)
#define LEDGER "HSET tw:ledger:{m}" ME " v 1 n 1 p 1 m 0 1 1|aa|+;HSET tw:marker:{m} m mark r 1 " ME " 1799999990000;"
#define BATCH(number) "4 tw:ledger:{m}" ME " tw:marker:{m} {m}a {m}b 1 " number " aa 1000 3 0 mark "

#define BATCH_OF_NAMES \
    "7 tw:ledger:{m}" ME " tw:marker:{m} {m}a {m}b tw:names:{m}w tw:windows:{m}f tw:closed:{m}w 1 2 1 aa 1000 3 0 mark "

static const struct row rows[] = {
    {"a stock whose last reservation is over", twi_script_reserve, OURS_OVER, SWEEP},
    {"a stock of which some are over", twi_script_reserve,
     "HSET tw:stock:{m}s h1 2|b bb 1 h2 1| h3 4|c bc 3;ZADD tw:due:{m}s 1 1 2 2 " FAR_MS " 3;SET {m}s 7", SWEEP},
    {"a stock that has nothing to sweep", twi_script_reserve, OURS, SWEEP},
    {"the last reservation is confirmed", twi_script_reserve, TOKEN OURS, STOCK "confirm id"},
    {"the last one is confirmed too late", twi_script_reserve, TOKEN OURS_OVER, STOCK "confirm id"},
    {"one is confirmed, all others are over", twi_script_reserve,
     TOKEN "HSET tw:stock:{m}s hid 2|b bb id h1 3|;ZADD tw:due:{m}s " FAR_MS " id 1 1;SET {m}s 5", STOCK "confirm id"},
    {"the last reservation is cancelled", twi_script_reserve, TOKEN OURS, STOCK "cancel id"},
    {"it is cancelled when it is over", twi_script_reserve, TOKEN OURS_OVER, STOCK "cancel id"},
    {"it is asked for again", twi_script_reserve, TOKEN OURS, STOCK "reserve id 2 5 1000 b 0 1000"},
    {"it is asked for again when it is over", twi_script_reserve, TOKEN OURS_OVER,
     STOCK "reserve id 2 5 1000 b 0 1000"},
    {"another one is wanted, the others are over", twi_script_reserve,
     "HSET tw:token:{m}id s ''; HSET tw:stock:{m}s h1 3|b bb 1;ZADD tw:due:{m}s 1 1;SET {m}s 3",
     STOCK "reserve id 2 5 1000 b 0 1000"},
    {"too many are wanted, the others are over", twi_script_reserve,
     "HSET tw:token:{m}id s '';HSET tw:stock:{m}s h1 3|b bb 1;ZADD tw:due:{m}s 1 1;SET {m}s 3",
     STOCK "reserve id 9 5 1000 b 0 1000"},
    {"where a token is", twi_script_reserve, TOKEN, "1 tw:token:{m}id me 7 1 where id"},
    {"one in flight, the others are dead", twi_script_hold, "ZADD tw:hold:{m}h 1 you:1 2 you:2",
     HOLD "hold 15000 9 me:1"},
    {"one in flight, room comes of the dead", twi_script_hold, "ZADD tw:hold:{m}h 1 you:1 " FAR_MS " you:2",
     HOLD "hold 15000 2 me:1"},
    {"all that were in flight are dead", twi_script_hold, "ZADD tw:hold:{m}h 1 you:1 2 you:2",
     HOLD "hold 15000 2 me:1"},
    {"none may be in flight", twi_script_hold, "ZADD tw:hold:{m}h 1 you:1", HOLD "hold 15000 0 me:1"},
    {"in flight already", twi_script_hold, "ZADD tw:hold:{m}h " FAR_MS " me:1 1 you:1", HOLD "hold 15000 1 me:1"},
    {"the last one is released", twi_script_hold, "ZADD tw:hold:{m}h " FAR_MS " me:1", HOLD "release 15000 0 me:1"},
    {"one is said to be in flight", twi_script_hold, "ZADD tw:hold:{m}h 1 you:1", HOLD "state 15000 0 me:1"},
    {"the last part of a gauge ends", twi_script_gauge, "HSET tw:gauge:{m}g me 3|" FAR_MS "|1;SET {m}g 3", GAUGE "0"},
    {"all other parts are over", twi_script_gauge, "HSET tw:gauge:{m}g you 3|1|1 they 2|1|1;SET {m}g 5", GAUGE "4"},
    {"all parts are over, and ours", twi_script_gauge, "HSET tw:gauge:{m}g you 3|1|1 me 2|1|1;SET {m}g 5", GAUGE "0"},
    {"less than is there", twi_script_gauge, "HSET tw:gauge:{m}g you 3|" FAR_MS "|1 they 2|1|1;SET {m}g 3", GAUGE "-3"},
    {"a strict limit", twi_script_strict, CALLS "SET {m}x 1", STRICT "1 1 5 0 0 0 0 0"},
    {"a strict limit that is reached", twi_script_strict, CALLS "SET {m}x 5", STRICT "1 1 5 0 0 0 0 0"},
    {"a strict limit from the first on", twi_script_strict, CALLS "SET {m}x 1", STRICT "1 1 5 0 0 60000 0 0"},
    {"a call that is not minded", twi_script_strict, "HSET tw:calls:{m}x me 7|1|9;SET {m}x 1",
     STRICT "0 1 5 0 0 0 0 0"},
    {"a log that has slid out", twi_script_strict, CALLS "SET {m}x 2;ZADD tw:log:{m}x -2 + 5 you:1:2",
     SLIDING "1 1 5 0 0 0 60000 0"},
    {"a log that slides, reached", twi_script_strict, CALLS "SET {m}x 2;ZADD tw:log:{m}x -5 + 9000000000000000 you:1:5",
     SLIDING "1 1 5 0 0 0 60000 0"},
    {"a log's only call is not minded", twi_script_strict,
     "HSET tw:calls:{m}x me 7|1|9;SET {m}x 1;ZADD tw:log:{m}x -1 + -1 =0 9000000000000000 me:7:1",
     SLIDING "0 1 5 0 0 0 60000 0"},
    {"a bucket", twi_script_gcra, CALLS "SET tw:bucket:{m}x 1", PACED "1 1 5 0 5 60000 0"},
    {"a bucket's only call is not minded", twi_script_gcra,
     "HSET tw:calls:{m}x me 7|1|9|1800000012000000;SET tw:bucket:{m}x 1800000012000000", PACED "0 1 5 0 5 60000 0"},
    {"once", twi_script_once, CALLS "SET tw:once:{m}x you;SET {m}x 1", ONCE "1 O token 0 0"},
    {"once, cancelled", twi_script_once, CALLS "SET tw:once:{m}x you;SET {m}x 1", ONCE "1 C token 0 0"},
    {"once, not minded", twi_script_once, CALLS "SET tw:once:{m}x token;SET {m}x 1", ONCE "0 O token 0 0"},
    {"a lock is held", twi_script_lock, CALLS "SET tw:lock:{m}x you|9;SET tw:fence:{m}x 9", LOCK "1 L token 1000"},
    {"a lock is extended", twi_script_lock, CALLS "SET tw:lock:{m}x token|9;SET tw:fence:{m}x 9",
     LOCK "1 E token 1000"},
    {"a lock is given back", twi_script_lock, CALLS "SET tw:lock:{m}x token|9;SET tw:fence:{m}x 9", LOCK "1 U token 1"},
    {"a lock is not minded", twi_script_lock, CALLS "SET tw:lock:{m}x token|9;SET tw:fence:{m}x 9",
     LOCK "0 L token 1000"},
    {"a lease is freed", twi_script_reclaim, "HSET tw:leases:{m} id x;HSET tw:lease:{m}x t 5 me 1|5|0|0|0;SET {m}x 2",
     "3 tw:leases:{m} tw:lease:{m}x {m}x me 7 1 free me ''"},
    {"a lease is drawn on", twi_script_lease, EPOCH WANTED "HSET tw:lease:{m}x t 0",
     LEASE FAR_MS " 100 0 10 1 0 0 0 0 1 '' 0"},
    {"too little is left of it", twi_script_lease, EPOCH WANTED "HSET tw:lease:{m}x t 100 " YOU " 1|100|0|0|0",
     LEASE "0 100 0 10 1 0 0 0 0 1 '' 0"},
    {"engines of it are gone", twi_script_lease, EPOCH WANTED "HSET tw:lease:{m}x t 100 s 100 " YOU " 1|100|0|100|0",
     LEASE "0 100 0 10 1 0 0 0 1 1 '' 0"},
    {"it has forgotten a grant", twi_script_lease, EPOCH WANTED "HSET tw:lease:{m}x t 0",
     LEASE "0 100 7 10 1 0 0 0 0 1 '' 0"},
    {"a lease that is over", twi_script_lease, EPOCH WANTED "HSET tw:lease:{m}x t 0",
     LEASE "1 100 0 10 1 0 0 0 0 1 '' 0"},
    {"a lease of another epoch", twi_script_lease, "HSET tw:leases:{m} id other;" WANTED "HSET tw:lease:{m}x t 0",
     LEASE "0 100 0 10 1 0 0 0 0 1 '' 0"},
    {"an engine is heard, no lease is wanted any more", twi_script_leases, EPOCH WANTED,
     LEASES " e abc e new 0 0 2 150"},
    {"an epoch begins", twi_script_leases, "HSET tw:leases:{m} id other;" WANTED, LEASES " e abc e new 0 0 2 150 " YOU},
    {"the last engine leaves", twi_script_leases, EPOCH WANTED, LEASES " e abc e new 0 1 2 150"},
    {"an engine lives, all others are dead", twi_script_registry, "ZADD tw:live:{m} 1 you 2 they",
     "1 tw:live:{m} 1 me 5000"},
    {"a closer lives", twi_script_close_election, CLOSERS WINDOW, CLOSING("word") "0"},
    {"a closer announces a window", twi_script_close_election, CLOSERS WINDOW,
     CLOSING_BY_TAG("word") "0 1799990000000 1800000000000 1800099000000"},
    {"the only closer leaves", twi_script_close_election, "HSET tw:closers:{m}f i:abc " FAR_MS "|1|0|,;" WINDOW,
     CLOSING("leave")},
    {"a closer without a hook is through", twi_script_close_election, CLOSERS WINDOW,
     CLOSING("list") "0 0 1799990000000 1"},
    {"a window is claimed", twi_script_close_election, CLOSERS WINDOW, CLOSING("ask") "1 1 1799990000000 1"},
    {"it was closed without counts", twi_script_close_election,
     CLOSERS LISTED "SET tw:closed:{m}w d|def;SADD tw:names:{m}w name", CLOSING("ask") "0 0 1799990000000 1"},
    {"it is given up", twi_script_close_election, CLOSERS CLAIMED, CLOSING("pass")},
    {"its names are read", twi_script_close_election, CLOSERS CLAIMED, CLOSING("read") "0 1"},
    {"it is reported before its time", twi_script_close_election, CLOSERS WINDOW,
     CLOSING("part") "1799990000000 1800000000000"},
    {"it is closed", twi_script_close_election, CLOSERS CLAIMED, CLOSING("done") "1799990000000"},
    {"it was closed before", twi_script_close_election,
     CLOSERS LISTED "SET tw:closed:{m}w d|def;SADD tw:names:{m}w name", CLOSING("done") "1799990000000"},
    {"names are announced", twi_script_close_election, CLOSERS WINDOW, CLOSING_BY_TAG("list") "0 0"},
    {"a round is over", twi_script_close_election, CLOSERS CLAIMED, CLOSING_BY_TAG("done") "1799990000000"},
    {"names are added to a set", twi_script_window_names, "SADD tw:names:{m}w name;HSET tw:marker:{m} m mark r 7",
     "2 tw:names:{m}w tw:marker:{m} 1 add 1800099000000 120000 mark name other"},
    {"a set of names is read", twi_script_window_names, "SADD tw:names:{m}w name;HSET tw:marker:{m} m mark r 7",
     "2 tw:names:{m}w tw:marker:{m} 1 read 0"},
    {"a set of names is removed", twi_script_window_names, "SADD tw:names:{m}w name", "1 tw:names:{m}w 1 drop"},
    {"a batch", twi_script_batch, LEDGER "SET {m}a 1;SET {m}b 9223372036854775807",
     BATCH("2 1") "w 1800000100000 2 2 3"},
    {"a batch of keys with ends of their own", twi_script_batch, LEDGER "SET {m}a 1;SET {m}b 1",
     BATCH("2 1") "F 0 2 1 1800000100000 1 5"},
    {"a batch that brings names", twi_script_batch,
     LEDGER LISTED "SADD tw:names:{m}w name;SET tw:closed:{m}w d|abc;SET {m}a 1;SET {m}b 1",
     BATCH_OF_NAMES "w 1800000100000 2 2 3 n 1800000100000 2 1799990000000 1800000000000 1 1 9 12 1 1 x4:name5:other"},
    {"a batch that is over", twi_script_batch, LEDGER "SET {m}a 1;SET {m}b 1", BATCH("2 1") "W 1 1 2 R 0 1"},
    {"a batch that is known", twi_script_batch, LEDGER "SET {m}a 1;SET {m}b 1", BATCH("1 0") "W 1800000100000 2 2 3"},
    {"a batch that comes too early", twi_script_batch, LEDGER "SET {m}a 1;SET {m}b 1", BATCH("3 2") "e 0 2 2 3"},
    {"a batch, and no ledger", twi_script_batch,
     "SET tw:ledger:{m}" ME " x;HSET tw:marker:{m} m mark r 1;SET {m}a 1;SET {m}b 1", BATCH("2 1") "e 0 2 2 3"},
    {"fields of a subject", twi_script_totals, "HSET {m}h views 3 likes 2", "1 {m}h me 7 1 fields 0"},
    {"a ranking", twi_script_totals, "ZADD {m}z 3 m 2 n", "1 {m}z me 7 1 top 0 10"},
    {"the last rank", twi_script_totals, "ZADD {m}z 3 m", "1 {m}z me 7 1 rank m"},
    /* SCAN looks at one node: of leases that have moved, the other one knows (PROTOCOL.md, Slots that move) */
    {"leases are listed, there is none", twi_script_reclaim, "HSET tw:leases:{m} id x",
     "1 tw:leases:{m} me 7 1 list me 0 tw:lease:*"},
};
#define ROWS (sizeof rows / sizeof *rows)

/* ---- one row ---- */

/* Runs one command, its words separated by blanks; "''" is an empty word, a bar is a blank. */
static const char *ask_words(struct redis_server *server, const char *first, const char *script, const char *line) {
    static char copy[1024];
    const char *words[WORDS_MAX] = {NULL};
    size_t count = 0;
    char *rest = copy;
    snprintf(copy, sizeof copy, "%s", line + strspn(line, " "));
    if (first != NULL) words[count++] = first;
    if (script != NULL) words[count++] = script;
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        assert_true(count < WORDS_MAX - 1);
        for (char *at = word; (at = strchr(at, '|')) != NULL;) *at = ' ';
        words[count++] = strcmp(word, "''") == 0 ? "" : word;
    }
    const char **w = words;
    return redis_server_ask(server, w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12],
                            w[13], w[14], w[15], w[16], w[17], w[18], w[19], w[20], w[21], w[22], w[23], w[24], w[25],
                            w[26], w[27], w[28], w[29], w[30], w[31], w[32], w[33], w[34], w[35], w[36], w[37], w[38],
                            w[39], NULL);
}

static void prepare(struct redis_server *server, const char *commands) {
    static char copy[1024];
    char *rest = copy;
    redis_server_ask(server, "FLUSHALL", NULL);
    snprintf(copy, sizeof copy, "%s", commands);
    for (char *command; (command = strsep(&rest, ";")) != NULL;) {
        const char *reply = ask_words(server, NULL, NULL, command);
        if (*command != '\0' && strncmp(reply, "ERR", 3) == 0) fail_msg("%s: %s", command, reply);
    }
}

/* Reads all keys and their values. */
static void read_all(struct redis_server *server, char out[4096]) {
    /* The members of a set have no order, and DUMP gives them in that of the moment. */
    static const char script[] = "local out, keys = {}, redis.call('KEYS', '*') table.sort(keys) "
                                 "for i, key in ipairs(keys) do local value "
                                 "if redis.call('TYPE', key).ok == 'set' then "
                                 "local members = redis.call('SMEMBERS', key) table.sort(members) "
                                 "value = table.concat(members, ' ') "
                                 "else value = redis.call('DUMP', key) end "
                                 "out[i] = key .. ' ' .. redis.sha1hex(value) end "
                                 "return table.concat(out, '\\n')";
    snprintf(out, 4096, "%s", redis_server_ask(server, "EVAL", script, "1", "{m}", NULL));
}

/* The script, at a time that stands still: shortly after the times that the table calls past, and before those that it
 * calls far. */
static const char *text_of(const char *script, bool guarded) {
    static char text[32768];
    static const char asks[] = "('TIME')";
    const char *at = strstr(script, asks), *begin = at;
    if (at == NULL) { /* it has no time */
        snprintf(text, sizeof text, "local guarded = %s\n%s%s", guarded ? "true" : "false", front, script);
        return text;
    }
    while (strncmp(begin, "redis.call", 10) != 0 && strncmp(begin, "call", 4) != 0) begin--;
    if (begin >= script + 6 && strncmp(begin - 6, "redis.", 6) == 0) begin -= 6;
    snprintf(text, sizeof text, "local guarded = %s\n%s%.*s{'1800000000', '0'}%s", guarded ? "true" : "false", front,
             (int)(begin - script), script, at + sizeof asks - 1);
    return text;
}

struct left {
    char answer[1024], keys[4096];
};

static void run(struct redis_server *server, const struct row *row, bool guarded, struct left *left) {
    snprintf(left->answer, sizeof left->answer, "%s",
             ask_words(server, "EVAL", text_of(row->script, guarded), row->line));
    read_all(server, left->keys);
}

static void compare(const struct row *row, const struct left *got, const struct left *want) {
    if (strcmp(got->answer, want->answer) != 0) fail_msg("%s: %s", row->what, got->answer);
    if (strcmp(got->keys, want->keys) != 0) fail_msg("%s leaves\n%s\nand not\n%s", row->what, got->keys, want->keys);
}

static struct redis_server plain;

static void run_plainly(const struct row *row, struct left *left) {
    prepare(&plain, row->before);
    run(&plain, row, false, left);
    if (strncmp(left->answer, "ERR", 3) == 0) fail_msg("%s: %s", row->what, left->answer);
}

/* Goal: no script touches a key that it did not name, nor a key that it has emptied. */
static void no_script_touches_what_is_gone(void **state) {
    struct left want, got;
    for (size_t i = 0; i < ROWS; i++) {
        run_plainly(&rows[i], &want);
        prepare(&plain, rows[i].before);
        run(&plain, &rows[i], true, &got);
        compare(&rows[i], &got, &want);
    }
}

/* ---- two real nodes ---- */

struct nodes {
    struct redis_server from, to;
    char slot[16], from_id[64], to_id[64], to_port[16];
};

static bool is_whole(void *ctx) {
    return strstr(redis_server_ask(ctx, "CLUSTER", "INFO", NULL), "cluster_state:ok") != NULL;
}

static bool knows_another(void *ctx) {
    const char *nodes = redis_server_ask(ctx, "CLUSTER", "NODES", NULL);
    const char *second = strchr(nodes, '\n');
    return second != NULL && second[1] != '\0' && strstr(nodes, "handshake") == NULL;
}

static void nodes_open(struct nodes *nodes) {
    static const char *const options[] = {"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", NULL};
    struct redis_server *from = &nodes->from, *to = &nodes->to;
    redis_server_start_tcp(from, options);
    redis_server_start_tcp(to, options);
    snprintf(nodes->to_port, sizeof nodes->to_port, "%d", to->port);
    snprintf(nodes->slot, sizeof nodes->slot, "%s", redis_server_ask(from, "CLUSTER", "KEYSLOT", "{m}", NULL));
    snprintf(nodes->from_id, sizeof nodes->from_id, "%s", redis_server_ask(from, "CLUSTER", "MYID", NULL));
    snprintf(nodes->to_id, sizeof nodes->to_id, "%s", redis_server_ask(to, "CLUSTER", "MYID", NULL));
    redis_server_ask(from, "CLUSTER", "ADDSLOTS", nodes->slot, NULL);
    redis_server_ask(from, "CLUSTER", "MEET", "127.0.0.1", nodes->to_port, NULL);
    assert_true(test_wait(knows_another, from, TEST_PATIENCE_MS));
    assert_true(test_wait(knows_another, to, TEST_PATIENCE_MS));
    assert_true(test_wait(is_whole, from, TEST_PATIENCE_MS));
    assert_true(test_wait(is_whole, to, TEST_PATIENCE_MS));
}

static void set_slot(struct redis_server *server, const struct nodes *nodes, const char *what, const char *id) {
    assert_string_equal(redis_server_ask(server, "CLUSTER", "SETSLOT", nodes->slot, what, id, NULL), "OK");
}

/* Puts all keys of the row at `from`, and marks the slot as moving to `to`. */
static void begin_move(struct nodes *nodes, const struct row *row) {
    nodes->to.asking = false;
    for (int i = 0; i < 2; i++) set_slot(i ? &nodes->to : &nodes->from, nodes, "STABLE", NULL);
    redis_server_ask(&nodes->to, "FLUSHALL", NULL);
    prepare(&nodes->from, row->before);
    set_slot(&nodes->to, nodes, "IMPORTING", nodes->from_id);
    set_slot(&nodes->from, nodes, "MIGRATING", nodes->to_id);
    nodes->to.asking = true;
}

static const char *migrate(struct nodes *nodes, const char *key) {
    return redis_server_ask(&nodes->from, "MIGRATE", "127.0.0.1", nodes->to_port, key, "0", "5000", NULL);
}

static const char *answer_of(struct redis_server *server, const struct row *row) {
    return ask_words(server, "EVAL", text_of(row->script, false), row->line);
}

/* The name of the row's key at `index`; false: it names fewer keys. */
static bool key_at(const struct row *row, int index, char key[64]) {
    int at = 0, count = atoi(row->line);
    const char *word = strchr(row->line, ' ') + 1;
    if (index >= count) return false;
    for (; at < index; at++) word = strchr(word, ' ') + 1;
    snprintf(key, 64, "%.*s", (int)strcspn(word, " "), word);
    return true;
}

static void refuse(struct redis_server *server, const struct row *row, const char *word) {
    const char *reply = answer_of(server, row);
    if (strncmp(reply, word, strlen(word)) != 0) fail_msg("%s: not %s: %s", row->what, word, reply);
}

/* Goal: a node whose slot is moving replies as a plain server while all keys are still there. */
static void all_keys_are_where_they_were(struct nodes *nodes, const struct row *row, const struct left *want) {
    struct left got;
    begin_move(nodes, row);
    snprintf(got.answer, sizeof got.answer, "%s", answer_of(&nodes->from, row));
    set_slot(&nodes->from, nodes, "STABLE", NULL);
    read_all(&nodes->from, got.keys);
    compare(row, &got, want);
}

/* Goal: if one of its keys has moved, neither node does anything; when the others have followed, the second node does
 * all of it. */
static void a_key_has_moved_before_the_others(struct nodes *nodes, const struct row *row, int first,
                                              const struct left *want) {
    struct left got;
    char key[64];
    bool alone = !key_at(row, 1, key);
    begin_move(nodes, row);
    (void)key_at(row, first, key);
    assert_string_equal(migrate(nodes, key), "OK");
    refuse(&nodes->from, row, alone ? "ASK " : "TRYAGAIN");
    if (!alone) refuse(&nodes->to, row, "TRYAGAIN");
    for (int i = 0; key_at(row, i, key); i++)
        if (i != first) assert_string_equal(migrate(nodes, key), "OK");
    snprintf(got.answer, sizeof got.answer, "%s", answer_of(&nodes->to, row));
    read_all(&nodes->to, got.keys);
    compare(row, &got, want);
}

/* In the long form only: a node of a cluster takes two seconds before it replies. */
static void a_slot_in_mid_move_does_all_or_nothing(void **state) {
    struct nodes nodes;
    struct left want;
    char key[64];
    memset(&nodes, 0, sizeof nodes);
    nodes_open(&nodes);
    for (size_t i = 0; i < ROWS; i++) {
        run_plainly(&rows[i], &want);
        all_keys_are_where_they_were(&nodes, &rows[i], &want);
        for (int first = 0; key_at(&rows[i], first, key); first++)
            a_key_has_moved_before_the_others(&nodes, &rows[i], first, &want);
    }
    redis_server_destroy(&nodes.to);
    redis_server_destroy(&nodes.from);
}

int main(void) {
    const struct CMUnitTest quick[] = {
        cmocka_unit_test(no_script_touches_what_is_gone),
    };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(no_script_touches_what_is_gone),
        cmocka_unit_test(a_slot_in_mid_move_does_all_or_nothing),
    };
    redis_server_require();
    redis_server_start(&plain, NULL);
    int failed = test_scale(1) > 1 ? test_run_list(all) : test_run_list(quick);
    redis_server_destroy(&plain);
    return failed;
}
