/* lease_store.h -- what sync/script/lease.lua and leases.lua mean, written a second time in C: for leases.c, and for
 * tests/redis/lease_script.c, which runs the same words on it and on a real server.
 * Always true: the whole store is one flat struct, so a snapshot is a copy, and going back is another. */
#ifndef TEST_LEASE_STORE_H
#define TEST_LEASE_STORE_H

#include "engine/port.h"

#ifndef STORE_INSTANCES /* another program may have more */
#define STORE_INSTANCES 16
#endif
#define STORE_KEYS 4
#define STORE_WAS 16

struct store_part { /* of an engine in one lease */
    bool there;
    uint64_t serial;
    int64_t granted, returned, spent, risk;
};

struct store_lease {
    bool there;
    int64_t total, spent, floor, limit;
    char made_in[33]; /* the epoch */
    struct store_part parts[STORE_INSTANCES];
    int64_t wanted_ms[STORE_INSTANCES]; /* INT64_MIN: it does not want any */
};

struct store {
    char id[33], run[41];
    char was[STORE_WAS][33]; /* epochs before, the newest first; "": none */
    bool has_id;
    int64_t from_ms, to_ms;
    bool open;
    char names[STORE_INSTANCES][33]; /* of instances: a book of the test's, never forgotten */
    int64_t heard_ms[STORE_INSTANCES];
    int64_t born_ms[STORE_INSTANCES];
    bool heard[STORE_INSTANCES], waits[STORE_INSTANCES];
    struct store_lease leases[STORE_KEYS];
};

/* A word to the store, as it stands on the wire. */
struct store_word {
    struct twi_lease_ask ask; /* ask.lease == NULL: leases.lua */
    char instance[33], epoch_run[41], epoch_id[33], fresh[33];
    char others[STORE_INSTANCES][33];
    uint32_t other_count;
    uint64_t serial;
    int key; /* which lease */
};

struct store_answer {
    struct twi_lease_answer answer;
    char id[33], run[41];
    bool wanted[STORE_KEYS];
    char others[STORE_INSTANCES][33];
    uint32_t other_count;
    bool stale;
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

static inline void store_begin(struct store *store, const struct store_word *word, const char *run, int64_t now_ms) {
    int64_t wait_ms = 1000;
    if (!store->has_id)
        wait_ms = word->ask.epoch[0] == '\0' ? 1200 : strcmp(word->epoch_run, run) == 0 ? 2500 : 11000;
    else if (store->id[0] == '\0')
        wait_ms = 0;
    for (int i = 0; i < STORE_INSTANCES; i++)
        if (store->heard[i]) store->waits[i] = true;
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
    if (word->ask.leaves) {
        store->heard[me] = store->waits[me] = false;
        out->answer.kind = TWI_LEASE_TOLD;
        return;
    }
    const char *known = word->ask.epoch;
    bool is_strange = known[0] != '\0' && strcmp(known, store->id) != 0 && !store_has_met(store, known);
    if (store->id[0] == '\0' || strcmp(store->run, run) != 0 || is_strange) store_begin(store, word, run, now_ms);
    if (!store->heard[me]) store->born_ms[me] = now_ms;
    store->heard_ms[me] = now_ms;
    store->heard[me] = true;
    for (uint32_t i = 0; i < word->other_count && !store->open; i++) {
        int other = store_instance(store, word->others[i]);
        if (!store->heard[other]) store->waits[other] = true;
    }
    if (word->ask.epoch[0] != '\0' && strcmp(word->ask.said, store->id) != 0) {
        if (!store->waits[me] && store->to_ms < now_ms + 2000) store->to_ms = now_ms + 2000;
        store->waits[me] = true;
    } else {
        store->waits[me] = false;
    }
    int waiting = 0;
    for (int i = 0; i < STORE_INSTANCES; i++) {
        waiting += store->waits[i];
        if (store->heard[i] && now_ms - store->heard_ms[i] > 60000 && !store->waits[i]) store->heard[i] = false;
    }
    store->open = now_ms >= store->from_ms && (waiting == 0 || now_ms >= store->to_ms);
    for (int i = 0; i < STORE_INSTANCES; i++) {
        if (store->open) store->waits[i] = false;
        if (store->heard[i] && i != me) memcpy(out->others[out->other_count++], store->names[i], sizeof out->others[0]);
    }
    out->answer.kind = TWI_LEASE_TOLD;
    out->answer.open = store->open;
    memcpy(out->id, store->id, sizeof out->id);
    memcpy(out->run, store->run, sizeof out->run);
    for (int key = 0; key < STORE_KEYS; key++) {
        for (int i = 0; i < STORE_INSTANCES; i++) {
            int64_t *wanted_ms = &store->leases[key].wanted_ms[i];
            if (*wanted_ms < now_ms - 5000) *wanted_ms = INT64_MIN;
            if (i != me && *wanted_ms != INT64_MIN && *wanted_ms >= word->ask.wanted_since_ms) out->wanted[key] = true;
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

static inline bool store_grant(struct store_lease *lease, struct store_part *mine, const struct twi_lease_ask *ask) {
    int64_t want = ask->target - mine->granted, left = ask->limit - store_used(lease), holders = 0;
    if (want <= 0) return false;
    for (int i = 0; i < STORE_INSTANCES; i++) holders += lease->parts[i].there || &lease->parts[i] == mine;
    int64_t give = left >= 0 ? left / (2 * holders) : -1;
    if (give < ask->need) give = ask->need;
    if (give > want) give = want;
    if (give > left) give = left;
    if (give < ask->need || give < 0) give = 0;
    mine->granted += give;
    lease->total += give;
    return give < ask->need;
}

static inline int64_t store_stranded(const struct store *store, const struct store_lease *lease, int me,
                                     int64_t now_ms) {
    int64_t stranded = 0;
    for (int i = 0; i < STORE_INSTANCES; i++) {
        const struct store_part *part = &lease->parts[i];
        int64_t unspent = part->granted - part->returned - part->spent;
        if (!part->there || i == me || unspent <= 0) continue;
        if (!store->heard[i] || now_ms - store->heard_ms[i] > 5000) stranded += unspent;
    }
    return stranded;
}

/* What is said comes first: what is given back, what is spent, and what was forgotten. False: nothing was. */
static inline bool store_take_in(struct store_lease *lease, struct store_part *mine, const struct twi_lease_ask *ask) {
    if (ask->returned > mine->returned) {
        lease->total -= ask->returned - mine->returned;
        mine->returned = ask->returned;
    }
    lease->spent += ask->spent - mine->spent;
    mine->spent = ask->spent;
    if (ask->granted <= mine->granted) return false;
    int64_t limit = ask->limit > lease->limit ? ask->limit : lease->limit, before = store_beyond(lease, limit);
    lease->total += ask->granted - mine->granted;
    mine->granted = ask->granted;
    mine->risk += store_beyond(lease, limit) - before;
    return true;
}

static inline void store_lease(struct store *store, const struct store_word *word, const char *run, int64_t now_ms,
                               struct store_answer *out) {
    out->answer.kind = TWI_LEASE_ENDED;
    if (strcmp(store->id, word->epoch_id) != 0 || strcmp(store->run, run) != 0) return;
    out->answer.kind = TWI_LEASE_TOO_LATE;
    if (word->ask.item.expiry_ms != 0 && now_ms >= word->ask.item.expiry_ms) return;
    struct store_lease *lease = &store->leases[word->key];
    int me = store_instance(store, word->instance);
    struct store_part *mine = &lease->parts[me];
    out->answer.kind = TWI_LEASE_AGAIN;
    out->stale = word->serial < mine->serial;
    if (out->stale) return;
    bool was_there = lease->there;
    bool open = store->open && store->heard[me] && now_ms - store->born_ms[me] >= 1200;
    if (store_take_in(lease, mine, &word->ask) && store->open) {
        open = store->open = false;
        store_meet(store, store->id);
        store->id[0] = '\0';
    }
    if (!was_there) memcpy(lease->made_in, word->epoch_id, sizeof lease->made_in);
    if (word->ask.spent_all > lease->floor && strcmp(lease->made_in, word->epoch_id) == 0)
        lease->floor = word->ask.spent_all;
    bool failed = open && store_grant(lease, mine, &word->ask);
    lease->there = mine->there = true;
    mine->serial = word->serial;
    lease->limit = word->ask.limit;
    if (failed) lease->wanted_ms[me] = now_ms;
    out->answer = (struct twi_lease_answer){.kind = TWI_LEASE_TOLD,
                                            .open = open,
                                            .granted = mine->granted,
                                            .total = lease->total,
                                            .spent_all = lease->spent > lease->floor ? lease->spent : lease->floor,
                                            .stranded = -1,
                                            .risk = mine->risk};
    if (failed || word->ask.look) out->answer.stranded = store_stranded(store, lease, me, now_ms);
}

/* `run`: the history of the server's data, as it says. */
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

/* Everything is gone; but the test's book of names. */
static inline void store_wipe(struct store *store) {
    char names[STORE_INSTANCES][33];
    memcpy(names, store->names, sizeof names);
    memset(store, 0, sizeof *store);
    memcpy(store->names, names, sizeof names);
    for (int key = 0; key < STORE_KEYS; key++)
        for (int i = 0; i < STORE_INSTANCES; i++) store->leases[key].wanted_ms[i] = INT64_MIN;
}

#endif
