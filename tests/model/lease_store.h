/* lease_store.h -- a second implementation of sync/script/lease.lua and leases.lua, in C. leases.c uses it, and
 * tests/redis/scripts/lease_script.c runs the same messages on it and on a real server.
 * Always true: the whole store is one flat struct, so a snapshot is a copy, and going back is another copy. */
#ifndef TEST_LEASE_STORE_H
#define TEST_LEASE_STORE_H

#include "engine/port/messages.h"

#ifndef STORE_INSTANCES /* another program may have more */
#define STORE_INSTANCES 16
#endif
#define STORE_KEYS 4
#define STORE_WAS 16
#define STORE_LOG 64

struct store_part { /* of an engine in one lease */
    bool there;
    uint64_t serial;
    int64_t granted, returned, spent, risk;
};

struct store_lease {
    bool there;
    int64_t total, spent, floor, limit, folded, passed;
    char made_in[33]; /* the epoch */
    struct store_part parts[STORE_INSTANCES];
    int64_t wanted_ms[STORE_INSTANCES]; /* INT64_MIN: it does not request any */
};

struct store {
    char id[33], run[41];
    char was[STORE_WAS][33]; /* earlier epochs, the newest first; "": none */
    bool has_id;
    int64_t from_ms, to_ms;
    bool open;
    char names[STORE_INSTANCES][33]; /* of instances: the test's own list, which nothing erases */
    int64_t last_reply_ms[STORE_INSTANCES];
    int64_t born_ms[STORE_INSTANCES]; /* its life; 0: none */
    int64_t gone_ms[STORE_INSTANCES];
    bool heard[STORE_INSTANCES], waits[STORE_INSTANCES], gone[STORE_INSTANCES];
    bool was_tidied;
    int64_t tidied_ms;
    int64_t changes;
    char log[STORE_LOG][34]; /* change c at c % STORE_LOG */
    struct store_lease leases[STORE_KEYS];
};

/* One message to the store, as on the wire. */
struct store_word {
    struct twi_lease_message ask; /* ask.lease == NULL: leases.lua */
    char instance[33], epoch_run[41], epoch_id[33], fresh[33], life[33];
    bool leaves_life; /* only if the engine is still in that life */
    int64_t changes, every_ms;
    char others[STORE_INSTANCES][33];
    uint32_t other_count;
    uint64_t serial;
    int key; /* which lease */
};

struct store_answer {
    struct twi_lease_answer answer;
    char id[33], run[41], life[33];
    bool wanted[STORE_KEYS];
    char others[STORE_LOG][34]; /* "+INSTANCE", "-INSTANCE" */
    uint32_t other_count;
    bool stale, twin;
};

static inline int store_instance(struct store *store, const char *name) {
    for (int i = 0; i < STORE_INSTANCES; i++) {
        if (store->names[i][0] == '\0') snprintf(store->names[i], sizeof store->names[i], "%s", name);
        if (strcmp(store->names[i], name) == 0) return i;
    }
    fail_msg("too many instances");
    return 0;
}

/* ---- leases.lua ---- */

static inline bool store_has_met(const struct store *store, const char *id) {
    for (int i = 0; i < STORE_WAS && store->was[i][0] != '\0'; i++)
        if (strcmp(store->was[i], id) == 0) return true;
    return false;
}

static inline void store_meet(struct store *store, const char *id) {
    if (id[0] == '\0' || store_has_met(store, id)) return;
    memmove(store->was[1], store->was[0], sizeof store->was - sizeof store->was[0]);
    snprintf(store->was[0], sizeof store->was[0], "%s", id);
}

static inline int64_t store_wiped_ms(const struct store_word *word) {
    return word->every_ms * 5 / 2 > 2500 ? word->every_ms * 5 / 2 : 2500;
}

static inline void store_note(struct store *store, char sign, int who) {
    char *change = store->log[++store->changes % STORE_LOG];
    change[0] = sign;
    memcpy(change + 1, store->names[who], sizeof store->names[0]);
}

static inline int64_t store_live(const struct store *store) {
    int64_t live = 0;
    for (int i = 0; i < STORE_INSTANCES; i++) live += store->heard[i];
    return live;
}

static inline int64_t store_every_ms(const struct store *store) {
    int64_t every_ms = store_live(store);
    return every_ms > 150 ? every_ms : 150;
}

/* An engine that was silent for long no longer takes part; after a day its life is over. */
static inline void store_tidy(struct store *store, int me, int64_t now_ms) {
    for (int i = 0; i < STORE_INSTANCES; i++) {
        if (i == me) continue;
        if (store->heard[i] && now_ms - store->last_reply_ms[i] > 60000 && !store->waits[i]) {
            store->heard[i] = false;
            store->gone[i] = true;
            store->gone_ms[i] = now_ms;
            store_note(store, '-', i);
        } else if (store->gone[i] && now_ms - store->gone_ms[i] > 86400000) {
            store->gone[i] = false;
            store->born_ms[i] = 0;
        }
    }
}

/* Adds the engines that take part, as far as the message does not know them. */
static inline void store_tell(const struct store *store, const struct store_word *word, int me,
                              struct store_answer *out) {
    int64_t before = strcmp(word->ask.epoch, store->id) == 0 ? word->changes : -1;
    if (strcmp(word->ask.resent_in, store->id) != 0) return;
    out->answer.whole = before < 0 || before > store->changes || store->changes - before > STORE_LOG;
    for (int i = 0; i < STORE_INSTANCES && out->answer.whole; i++)
        if (store->heard[i] && i != me) snprintf(out->others[out->other_count++], 34, "+%s", store->names[i]);
    for (int64_t c = before + 1; c <= store->changes && !out->answer.whole; c++) {
        const char *change = store->log[c % STORE_LOG];
        if (strcmp(change + 1, store->names[me]) != 0) snprintf(out->others[out->other_count++], 34, "%s", change);
    }
}

static inline void store_begin(struct store *store, const struct store_word *word, const char *run, int64_t now_ms) {
    int64_t wait_ms = 1000;
    if (!store->has_id)
        wait_ms = word->ask.epoch[0] == '\0' ? 1200 : strcmp(word->epoch_run, run) == 0 ? store_wiped_ms(word) : 11000;
    else if (store->id[0] == '\0')
        wait_ms = 0;
    for (int i = 0; i < STORE_INSTANCES; i++)
        store->waits[i] = store->waits[i] || (store->heard[i] && now_ms - store->last_reply_ms[i] <= 60000);
    store_meet(store, word->ask.epoch);
    store_meet(store, store->id);
    memcpy(store->id, word->fresh, sizeof store->id);
    snprintf(store->run, sizeof store->run, "%s", run);
    store->has_id = true;
    store->from_ms = now_ms + wait_ms;
    store->to_ms = now_ms + 11000;
    store->open = false;
}

static inline void store_epoch(struct store *store, const struct store_word *word, const char *run, int64_t now_ms,
                               struct store_answer *out) {
    int me = store_instance(store, word->instance);
    char life[33];
    snprintf(life, sizeof life, "%lld", (long long)store->born_ms[me]);
    bool is_late = word->leaves_life && (store->born_ms[me] == 0 || strcmp(life, word->life) != 0);
    if (word->ask.leaves && is_late) { /* that life has ended */
        out->answer.kind = TWI_LEASE_NUMBERS;
        return;
    }
    if (word->ask.leaves) {
        if (store->heard[me]) store_note(store, '-', me);
        store->heard[me] = store->waits[me] = store->gone[me] = false;
        store->born_ms[me] = 0;
        out->answer.kind = TWI_LEASE_NUMBERS;
        return;
    }
    const char *known = word->ask.epoch;
    bool is_strange = known[0] != '\0' && strcmp(known, store->id) != 0 && !store_has_met(store, known);
    if (store->id[0] == '\0' || strcmp(store->run, run) != 0 || is_strange) store_begin(store, word, run, now_ms);
    if (!store->heard[me]) store_note(store, '+', me);
    if (store->born_ms[me] == 0) store->born_ms[me] = now_ms;
    store->last_reply_ms[me] = now_ms;
    store->heard[me] = true;
    store->gone[me] = false;
    for (uint32_t i = 0; i < word->other_count && !store->open; i++) {
        int other = store_instance(store, word->others[i]);
        if (!store->heard[other]) store->waits[other] = true;
    }
    if (word->ask.epoch[0] != '\0' && strcmp(word->ask.resent_in, store->id) != 0) {
        if (!store->waits[me] && store->to_ms < now_ms + 2000) store->to_ms = now_ms + 2000;
        store->waits[me] = true;
    } else {
        store->waits[me] = false;
    }
    int waiting = 0;
    for (int i = 0; i < STORE_INSTANCES; i++) waiting += store->waits[i];
    store->open = now_ms >= store->from_ms && (waiting == 0 || now_ms >= store->to_ms);
    for (int i = 0; i < STORE_INSTANCES && store->open; i++) store->waits[i] = false;
    out->answer.every_ms = store_every_ms(store);
    if (!store->was_tidied || now_ms - store->tidied_ms >= 1000) {
        store_tidy(store, me, now_ms);
        store->was_tidied = true;
        store->tidied_ms = now_ms;
    }
    store_tell(store, word, me, out);
    out->answer.changes = store->changes;
    snprintf(out->life, sizeof out->life, "%lld", (long long)store->born_ms[me]);
    out->answer.kind = TWI_LEASE_NUMBERS;
    out->answer.open = store->open;
    memcpy(out->id, store->id, sizeof out->id);
    memcpy(out->run, store->run, sizeof out->run);
    for (int key = 0; key < STORE_KEYS; key++) {
        for (int i = 0; i < STORE_INSTANCES; i++) {
            int64_t *wanted_ms = &store->leases[key].wanted_ms[i];
            if (*wanted_ms < now_ms - 5000) *wanted_ms = INT64_MIN;
            if (i != me && *wanted_ms != INT64_MIN && *wanted_ms >= word->ask.requested_since_ms)
                out->wanted[key] = true;
        }
    }
}

/* ---- lease.lua ---- */

static inline int64_t store_used(const struct store_lease *lease) {
    return lease->total > lease->floor ? lease->total : lease->floor;
}

static inline int64_t store_beyond(const struct store_lease *lease, int64_t limit) {
    int64_t used = store_used(lease);
    return used > limit ? used - limit : 0;
}

static inline bool store_grant(struct store_lease *lease, struct store_part *mine, const struct twi_lease_message *ask,
                               int64_t live) {
    int64_t want = ask->target - mine->granted, left = ask->limit - store_used(lease), holders = 0;
    if (want <= 0) return false;
    for (int i = 0; i < STORE_INSTANCES; i++) holders += lease->parts[i].there || &lease->parts[i] == mine;
    if (holders > live) holders = live;
    int64_t give = left >= 0 ? left / (2 * holders) : -1;
    if (give < ask->need) give = ask->need;
    if (give > want) give = want;
    if (give > left) give = left;
    if (give < ask->need || give < 0) give = 0;
    mine->granted += give;
    lease->total += give;
    return give < ask->need;
}

/* What is stranded. An engine with no unit out and no life is folded. */
static inline int64_t store_look(const struct store *store, struct store_lease *lease, int me, int64_t now_ms) {
    int64_t stranded = 0;
    for (int i = 0; i < STORE_INSTANCES; i++) {
        struct store_part *part = &lease->parts[i];
        int64_t unspent = part->granted - part->returned - part->spent;
        if (!part->there || i == me) continue;
        if (unspent == 0 && store->born_ms[i] == 0) {
            lease->folded += part->spent;
            *part = (struct store_part){0};
        } else if (unspent > 0 && (!store->heard[i] || now_ms - store->last_reply_ms[i] > 5000)) {
            stranded += unspent;
        }
    }
    return stranded;
}

/* Takes over the grant that the engine reports. More than stored: the store forgot. Less: the engine never got the
 * reply with the rest. Returns true if the store forgot. */
static inline bool store_take_granted(struct store_lease *lease, struct store_part *mine, int64_t said) {
    int64_t more = said - mine->granted, unspent = mine->granted - mine->returned - mine->spent;
    if (more < 0 && -more > unspent) more = unspent > 0 ? -unspent : 0;
    lease->total += more;
    mine->granted += more;
    return more > 0;
}

/* Takes over what the message reports: returned, spent, and what was forgotten. Returns false if nothing was
 * forgotten. */
static inline bool store_take_in(struct store_lease *lease, struct store_part *mine,
                                 const struct twi_lease_message *ask, bool made_here) {
    int64_t limit = ask->limit > lease->limit ? ask->limit : lease->limit, before = store_beyond(lease, limit);
    if (!mine->there && ask->base >= 0) { /* this engine was folded */
        mine->granted = ask->granted;
        mine->returned = ask->base;
        mine->spent = mine->granted - mine->returned;
        mine->risk = ask->risk;
        lease->folded -= mine->spent;
    }
    if (ask->returned > mine->returned) {
        lease->total -= ask->returned - mine->returned;
        mine->returned = ask->returned;
    }
    lease->spent += ask->spent - mine->spent;
    mine->spent = ask->spent;
    bool forgotten = store_take_granted(lease, mine, ask->granted);
    if (ask->spent_all > lease->floor && made_here) lease->floor = ask->spent_all;
    lease->passed += store_beyond(lease, limit) - before;
    if (ask->risk > mine->risk) {
        lease->passed -= ask->risk - mine->risk;
        mine->risk = ask->risk;
    }
    return forgotten;
}

/* Once the epoch is open, what has passed the limit is at risk. */
static inline void store_count_risk(struct store_lease *lease, struct store_part *mine) {
    if (lease->passed > 0) mine->risk += lease->passed;
    lease->passed = 0;
}

/* 0: all other engines know this one, or had time for that; else when it should try again. */
static inline int64_t store_new_for_ms(const struct store *store, int me, int64_t now_ms) {
    int64_t born_ms = store->born_ms[me], left_ms = born_ms + 1200 - now_ms;
    int64_t soon_ms = born_ms + store_every_ms(store) + 50 - now_ms;
    bool untold = false;
    if (left_ms <= 0) return 0;
    for (int i = 0; i < STORE_INSTANCES; i++)
        if (i != me && store->heard[i] && store->last_reply_ms[i] <= born_ms) untold = true;
    if (!untold) return 0;
    if (soon_ms < 50) soon_ms = 50;
    return left_ms < soon_ms ? left_ms : soon_ms;
}

static inline void store_lease(struct store *store, const struct store_word *word, const char *run, int64_t now_ms,
                               struct store_answer *out) {
    out->answer.kind = TWI_LEASE_ENDED;
    int me = store_instance(store, word->instance);
    char life[33];
    snprintf(life, sizeof life, "%lld", (long long)store->born_ms[me]);
    if (strcmp(store->id, word->epoch_id) != 0 || strcmp(store->run, run) != 0) return;
    if (store->born_ms[me] == 0 || strcmp(life, word->life) != 0) return;
    out->answer.kind = TWI_LEASE_TOO_LATE;
    if (word->ask.item.expiry_ms != 0 && now_ms >= word->ask.item.expiry_ms) return;
    struct store_lease *lease = &store->leases[word->key];
    struct store_part *mine = &lease->parts[me];
    out->answer.kind = TWI_LEASE_RESEND;
    out->stale = word->serial < mine->serial;
    out->twin = word->serial > mine->serial && mine->spent > word->ask.granted;
    if (out->stale || out->twin) return;
    bool was_there = lease->there;
    int64_t new_for_ms = store_new_for_ms(store, me, now_ms);
    bool open = store->open && new_for_ms == 0;
    if (!was_there) memcpy(lease->made_in, word->epoch_id, sizeof lease->made_in);
    bool made_here = strcmp(lease->made_in, word->epoch_id) == 0;
    if (store_take_in(lease, mine, &word->ask, made_here) && store->open) {
        open = store->open = false;
        store_meet(store, store->id);
        store->id[0] = '\0';
    }
    if (store->open) store_count_risk(lease, mine);
    bool failed = open && store_grant(lease, mine, &word->ask, store_live(store) > 1 ? store_live(store) : 1);
    lease->there = mine->there = true;
    mine->serial = word->serial;
    lease->limit = word->ask.limit;
    if (failed) lease->wanted_ms[me] = now_ms;
    out->answer = (struct twi_lease_answer){.kind = TWI_LEASE_NUMBERS,
                                            .open = open,
                                            .granted = mine->granted,
                                            .total = lease->total,
                                            .spent_all = lease->spent > lease->floor ? lease->spent : lease->floor,
                                            .stranded = -1,
                                            .wait_ms = new_for_ms,
                                            .risk = mine->risk};
    if (failed || word->ask.look) out->answer.stranded = store_look(store, lease, me, now_ms);
}

/* `run`: the history of the server's data, as the server reports it. */
static inline struct store_answer store_run(struct store *store, const struct store_word *word, const char *run,
                                            int64_t now_ms) {
    struct store_answer out = {0};
    if (word->ask.lease == NULL)
        store_epoch(store, word, run, now_ms, &out);
    else
        store_lease(store, word, run, now_ms, &out);
    out.answer.redis_ms = now_ms;
    return out;
}

/* Erases everything except the test's list of names. */
static inline void store_wipe(struct store *store) {
    char names[STORE_INSTANCES][33];
    memcpy(names, store->names, sizeof names);
    memset(store, 0, sizeof *store);
    memcpy(store->names, names, sizeof names);
    for (int key = 0; key < STORE_KEYS; key++)
        for (int i = 0; i < STORE_INSTANCES; i++) store->leases[key].wanted_ms[i] = INT64_MIN;
}

#endif
