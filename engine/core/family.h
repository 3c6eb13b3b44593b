/* family.h -- a family: which window a moment belongs to, and the generations that the family holds.
 *
 *   current ─▶ the generation of now (a short cut)        map ─▶ all generations that are reachable, by start
 *
 * Always true: a generation is reachable through the map from its opening until the turn unlinks it (DROPPED). Its
 * memory outlives every section in which it could be reached. A map that has no room left is replaced. */
#ifndef TWI_CORE_FAMILY_H
#define TWI_CORE_FAMILY_H

#include "tallywheel.h"
#include "engine/base/calendar.h"
#include "engine/base/why.h"
#include "engine/core/state.h"
#include "engine/core/key_template.h"

/* ---- family options ----
 * the list of the options of a family: which of them identify the family, and which may change
 * while it is open. All code that handles the options one by one is made from this list: tw_family_open() of an open
 * family compares with it, tw_family_set() changes with it, and callers read with it.
 *   TEXT(field)         a string that identifies the family
 *   IDENTITY(field)     a number that identifies the family: tw_family_set() refuses another value
 *   POLICY(field, how)  an option that may change. STORED means that apply_policies() in family_open.c stores it into
 *                       family->policy. OTHER means that it is stored in another form or order, or not at all
 * Always true: the list has each field of tw_family_options, except the head of the struct. A test compares the list
 * with the comment of tw_family_set() in the header, and with docs/OPTIONS.md (tests/unit/core/family_options_test.c).
 * on_full is a policy; only whether it is TW_ON_FULL_EVICT_IDLE is identity. */

#define TWI_FAMILY_IDENTITY(TEXT, IDENTITY) \
    TEXT(name) \
    IDENTITY(window) \
    IDENTITY(window_ms) \
    IDENTITY(utc_offset_ms) \
    IDENTITY(week_start) \
    TEXT(redis_key) \
    IDENTITY(redis_tags) \
    IDENTITY(redis_shape) \
    IDENTITY(key_separator) \
    TEXT(fields) \
    IDENTITY(kind) \
    IDENTITY(closed_by) \
    IDENTITY(limit_mode) \
    IDENTITY(limit_shape) \
    IDENTITY(sub_windows)

#define TWI_FAMILY_POLICIES(POLICY) \
    POLICY(lateness_ms, OTHER) \
    POLICY(earliness_ms, STORED) \
    POLICY(history_ms, OTHER) \
    POLICY(retention_ms, STORED) \
    POLICY(keys_max, OTHER) \
    POLICY(keys_expected, STORED) \
    POLICY(memory_share, OTHER) \
    POLICY(on_full, STORED) \
    POLICY(on_full_limit, STORED) \
    POLICY(idle_ms, STORED) \
    POLICY(on_window_closed, OTHER) \
    POLICY(closed_ctx, OTHER) \
    POLICY(burst, STORED) \
    POLICY(on_outage, STORED) \
    POLICY(outage_grace_ms, STORED) \
    POLICY(on_busy, OTHER) \
    POLICY(shadow, STORED)

typedef tw_status twi_hot_distinct(tw_family *family, tw_key key, tw_key element, bool *changed);
typedef tw_status twi_hot_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict);

/* Statistics of a family's limits (limit_stats.h), of one thread, or of all threads without a line of their own. */
struct twi_limit_shard {
    /* admitted and counted in a cell, so these are increments as well */
    alignas(TWI_LINE_BYTES) _Atomic int64_t admitted;
    _Atomic int64_t admitted_there, denied, near, shadow_denied; /* `denied`: with TW_CAUSE_LIMIT */
};
/* A line for each thread, by twi_thread.shard, in the arena. The turn makes them for families whose limits are much in
 * use. */
struct twi_limit_lines {
    alignas(TWI_LINE_BYTES) _Atomic uint64_t reserved; /* used by the arena */
    uint32_t count, lines;
    uint32_t older; /* line of the older lines, for fewer threads; their counts stay there. 0 means none */
    struct twi_limit_shard shards[];
};
#define TWI_CAUSES 7u /* enum tw_cause (limit/cause.h) */
/* The statistics of a family's limits that several threads write. */
struct twi_limits_shared {
    struct twi_limit_shard shard;           /* until threads have separate lines */
    _Atomic int64_t denied_for[TWI_CAUSES]; /* by cause. All are rarer than TW_CAUSE_LIMIT, which is in a shard */
    _Atomic int64_t uncounted;              /* admitted without a count, because the table was full */
};
#define TWI_OVERSHOOT_BUCKETS 9u /* limit_stats.h */

/* State of the close coordinator of this family (turn/closing.h). Used by the turn. */
#define TWI_CLOSED_KEPT 8u
struct twi_family_close_state {
    struct twi_close_election *elections;
    struct twi_closing_keys *foreign; /* keys of windows that others counted and this engine closes (window_map.h) */
    bool in_flight : 1;               /* a message of no window is on its way */
    bool unanswered : 1;              /* the last one has had no reply: leaving waits, too */
    bool known : 1;                   /* Redis knows that this engine takes part */
    bool announces : 1; /* windows have to be announced (closing_election.h), so a heartbeat is due at once */
    bool left : 1;
    bool kept_in_flight : 1;
    uint32_t every_ms;                /* how often Redis requires the heartbeat; 0: not known */
    int64_t at_ms;                    /* monotonic time of the next heartbeat, as all times here */
    int64_t last_reply_ms;            /* the last reply; 0: none yet */
    int64_t since_ms;                 /* since when replies have come without a pause */
    int64_t kept[TWI_CLOSED_KEPT];    /* starts of the windows closed last, in case Redis loses them */
    uint32_t kept_count, kept_repeat; /* how many ever; how many of the last ones must be re-sent */
    int64_t kept_at_ms;               /* they are not re-sent before this time */
    int64_t held_ms;                  /* since when counts wait for an announcement (closing_election.h); 0: none do */
    int64_t word_ms;                  /* engine time at which the last heartbeat was sent that Redis has answered */
};

/* A family in a pairing heap (agenda.h). */
struct twi_appointment {
    int64_t at_ms; /* INT64_MAX: not in the heap */
    struct tw_family *family;
    /* `back` is the parent of a first child, otherwise the previous sibling */
    struct twi_appointment *child, *next, *back;
};

/* The kind of family, chosen at opening (family_open.c). Only hot_acquire changes later, when tw_family_set() sets it
 * with shadow mode. */
struct twi_family_kind {
    bool synced, from_first, has_starts;
    /* with TW_ON_FULL_EVICT_IDLE, generations follow eviction epochs, not windows (idle_eviction.c) */
    bool evicts_idle;
    /* the limit is counted over Redis and not hard, so shares decide (share.h); in strict families only in outages */
    bool shares;
    bool is_hard;        /* TW_LIMIT_HARD; with Redis its cells have leases in place of stripes (limit/lease.h) */
    bool gauge;          /* TW_KIND_GAUGE with Redis (gauge.c) */
    uint8_t sub_windows; /* windows that cover the length of a sliding limit; otherwise 1 */
    tw_status (*hot_add)(tw_family *family, tw_key key, int64_t delta, int64_t *view); /* add_fast.h */
    _Atomic(twi_hot_acquire *) hot_acquire; /* `acquire` or `quick` of `limit`, or twi_shadow_acquire() */
    const struct twi_limit_kind *limit;     /* decision.h */
    bool (*hot_group)(tw_family *family, const tw_key *keys, const int64_t *deltas, size_t count, int64_t *views,
                      tw_status *status, struct twi_why *why); /* NULL means that keys are added one by one */
    bool closes_once;                                          /* TW_CLOSED_BY_ONE with Redis (turn/closing.h) */
    bool slides;                                               /* TW_SHAPE_SLIDING */
    bool is_gcra;     /* with TW_SHAPE_GCRA, its words are times, not counts (gcra.c) */
    bool is_distinct; /* with TW_KIND_DISTINCT, its cells have sketches (sketch.h) */
    /* with TW_ON_FULL_EVICT_IDLE in families with windows: keys without room have short-lived counters (guests.h) */
    bool takes_guests;
    twi_hot_distinct *hot_distinct; /* distinct_fast.h; refuses in other families */
    bool keeps_no_counts; /* one of these two is set, so calls that add to counts, or read them, are refused */
    bool is_strict;       /* TW_LIMIT_STRICT (strict.h) */
    uint16_t item_flags;  /* TWI_ITEM_HASH or TWI_ITEM_ZSET; 0 means strings, where a key is a name in Redis */
    bool has_fields;      /* with TW_REDIS_HASH, a key ends with a field */
    bool checks_keys;     /* some keys of a valid size are refused, so each new key is checked (count/call.c) */
    bool takes_holds;     /* it is for tw_hold() (hold.c) */
};

/* What tw_family_set() changes, field by field. Any thread reads it. */
struct twi_family_policy {
    _Atomic int64_t lateness_ms, earliness_ms, history_ms, retention_ms;
    _Atomic int64_t idle_ms;
    _Atomic int64_t burst;
    _Atomic uint64_t keys_expected; /* 0: as many as earlier windows had */
    _Atomic uint32_t on_full, on_full_limit;
    _Atomic uint32_t on_outage, outage_grace_ms;
    _Atomic bool shadow;
    _Atomic bool busy_is_outage; /* TW_BUSY_AS_OUTAGE */
};

/* Which windows are over. Any thread reads it. */
struct twi_family_marks {
    /* Windows that end at or before over_ms take no more counts; those at or before gone_ms are gone. Longer times that
     * are set later do not change this. */
    _Atomic int64_t over_ms, gone_ms;
    _Atomic int64_t watermark_ms; /* tw_close_until(); INT64_MIN: never called */
    _Atomic bool is_late;         /* counts by event time came too late, and no lateness is set; logged only once */
    _Atomic bool had_counts;      /* a window with counts was sealed, or a file was loaded: none is loaded any more */
};

/* The findings of calls that wait for Redis (ask/). Any thread. */
struct twi_family_outage {
    /* monotonic time since which its requests have had no reply (redis_call.c); 0 means that they have */
    _Atomic int64_t silent_since_ms;
    _Atomic int64_t
        bridged_until_ms; /* engine time until which local buckets may contain more than Redis (strict_gcra.c) */
};

/* By how much its limits were passed (limit_stats.h). Any thread reads it. */
struct twi_family_overshoot {
    _Atomic int64_t overshoots[TWI_OVERSHOOT_BUCKETS], overshoot_ppm; /* read by any thread */
};

/* Requests of callers to the turn. */
struct twi_family_requests {
    _Atomic bool changed; /* tw_family_set() sets it; every window is examined again */
    /* tw_family_close() releases it. A thread that acquires it sees a family that cannot be opened again. The family
     * drains, then it is freed. */
    _Atomic bool close_requested;
    int64_t close_mono_ms;    /* monotonic: when it was called, stored before close_requested is released */
    _Atomic bool limit_lines; /* threads need separate lines for the statistics of its limits */
    uint16_t void_after; /* for a closed family, the walk after which no reservation of it is left (reserve_local.h) */
};

/* Its place among all families (roster.h). Under the lock of the roster, except the atomic fields. */
struct twi_family_entry {
    _Atomic(struct tw_family *) next;
    struct tw_family *before, *next_named; /* in the list of all families; in a chain of names */
    uint32_t opened;                       /* how often it was opened */
    uint32_t holds;     /* line of its newest hold, under the lock of the holds (hold_book.h); 0 means none */
    uint64_t bytes;     /* allocated for the family; set before sharing, as the next */
    size_t block_bytes; /* of these, in the block that this struct begins */
};

/* When the turn examines it (agenda.h). Any thread uses the first two fields; the turn owns the rest. */
struct twi_family_agenda {
    _Atomic(struct tw_family *) next_news; /* any thread */
    _Atomic uint16_t is_news; /* the family is among the news, or will be: the number of the thread that pushes it */
    bool in_round, is_always; /* owned by the turn, as all fields after it */
    struct tw_family *next_due, *next_always;
    struct twi_appointment by_time, by_mono;
    struct twi_appointment special; /* used by gauges and by TW_CLOSED_BY_ONE; the other kinds have none */
};

/* The next window, being built; not yet reachable. */
struct twi_family_prepared {
    struct twi_generation *generation; /* the next window, being built; not yet reachable */
    uint64_t root;
    uint32_t leaves;
    struct twi_area_plan area;
    int64_t start_ms; /* the last window that was prepared */
};

/* Ended windows that are being packed (windows.c). */
struct twi_family_history {
    uint32_t packing; /* the generation being packed; 0: none */
    uint32_t waiting; /* generations that wait for packing, by next_to_pack */
    int64_t mono_ms;  /* monotonic: when packing continues */
};

/* How far the leases of a family that closes were returned (lease_renewal.c). */
struct twi_family_returned {
    /* line numbers of the window that was begun, and of its last lease that was; 0 means none */
    uint32_t generation, lease;
};

/* Re-sending the statement of a gauge (gauge.c). */
struct twi_family_gauge {
    struct twi_cursor cursor; /* for gauges, how far the statement has been sent again */
    bool runs;                /* the statement is being sent */
    int64_t last_ms;          /* monotonic: when it was complete last */
};

/* Idle eviction (idle_eviction.c). */
struct twi_family_eviction {
    int64_t begun_ms; /* monotonic */
    bool begun;
};

/* The turn's private state of a family. It can be derived from the state that callers share. */
struct twi_family_turn {
    uint32_t generations; /* linked by next_all; in order of time, except `unsorted` ones at the head */
    uint32_t unsorted;
    uint32_t held; /* generations in memory, retired ones included */
    bool is_late_logged;
    bool is_ending;       /* it is being closed, or its engine is and a window of it is not done yet */
    bool map_requested;   /* the map holds a window that was not announced */
    int64_t due_ms;       /* engine time of the next roll-over work */
    int64_t look_mono_ms; /* monotonic: when it is examined again although nothing is due */
    uint64_t keys_last;   /* number of keys of the last closed window, which is the forecast */
    int64_t bytes_last;   /* bytes of the last closed window that had keys, before it was packed */
    int64_t opened_ms;    /* engine time; in a forked child the parent's */
    struct twi_family_prepared prepared;
    struct twi_family_history history;
    struct twi_family_gauge gauge;
    struct twi_family_returned returned;
    struct twi_family_eviction eviction;
    struct twi_family_close_state closing;
};

struct tw_family {
    /* hot; written at opening and at roll-over */
    tw_engine *engine;
    _Atomic(struct twi_generation *) current; /* never NULL; twi_generation_none if there is no generation */
    struct twi_family_kind kind;
    _Atomic(struct twi_limit_lines *) limit_lines; /* NULL: none yet */
    uint64_t serial;                               /* not 0; no other family of this process ever has it */
    struct twi_window_rule rule;

    /* written by tw_family_set() and callers */
    struct twi_family_policy policy;
    struct twi_family_marks marks;
    struct twi_family_outage outage;
    struct twi_quota quota;
    _Atomic uint64_t map;      /* line of the map of windows (0 means none yet) | number of unlinkings << 32 */
    _Atomic uint32_t arrivals; /* generations that the turn has not yet seen */
    /* operations that are not given back (operation.h); the family is not freed before they are */
    _Atomic uint32_t started;
    _Atomic bool has_slots; /* tw_hold() took a slot without Redis: its counts end with the process (engine/save.c) */
    _Atomic(struct twi_slots *) slots; /* of a shared engine (reserve/hold_shared.h); NULL: none yet */
    _Atomic int64_t eviction_epoch;    /* the current epoch of idle eviction; raised by the turn */
    struct twi_family_overshoot overshoot;
    struct twi_family_requests requests;

    /* owned by the turn */
    struct twi_family_turn turn;

    /* under the lock of the roster */
    tw_family_options options; /* strings are copies */
    struct twi_fields *fields; /* the fields that it declares (key_template.h); never changes; NULL means any field */
    struct twi_family_entry entry;
    struct twi_family_agenda agenda;
    struct twi_limits_shared limits_shared;
    struct twi_key_template template; /* it is the last field, because only the filled part of its frame is allocated */
};

static_assert(offsetof(struct tw_family, template) <= 21 * (size_t)TWI_LINE_BYTES, "a family costs some 1.3 KB");

/* Frees a family. It has no generation, and no thread can find it any more. */
void twi_family_free(struct tw_family *family);

/* How long after its end a window stays open for reads (sliding.c). */
TWI_INLINE int64_t twi_family_shown_for_ms(const struct tw_family *family) {
    return family->kind.slides && family->kind.synced ? twi_calendar_longest_ms(&family->rule) : 0;
}
/* How long after its end a window may still be counted in or read. */
TWI_INLINE int64_t twi_family_open_for_ms(const struct tw_family *family) {
    /* F2, pairs with F1: a thread that sees a longer lateness also sees which windows were over before */
    int64_t lateness_ms = twi_load_acquire(&family->policy.lateness_ms), shown_for_ms = twi_family_shown_for_ms(family);
    return lateness_ms > shown_for_ms ? lateness_ms : shown_for_ms;
}
/* Until when a window that ends at `end_ms` may be counted in or read. */
TWI_INLINE int64_t twi_family_open_until(const struct tw_family *family, int64_t end_ms) {
    int64_t open_for_ms = twi_family_open_for_ms(family);
    if (end_ms <= twi_load_relaxed(&family->marks.over_ms)) return end_ms;
    bool passed = end_ms <= twi_load_relaxed(&family->marks.watermark_ms);
    return twi_time_add(end_ms, passed ? twi_family_shown_for_ms(family) : open_for_ms);
}
/* Until when callers may count in a window that ends at `end_ms`. */
TWI_INLINE int64_t twi_family_takes_until(const struct tw_family *family, int64_t end_ms) {
    int64_t lateness_ms = twi_load_acquire(&family->policy.lateness_ms); /* F2 */
    bool over =
        end_ms <= twi_load_relaxed(&family->marks.over_ms) || end_ms <= twi_load_relaxed(&family->marks.watermark_ms);
    return over ? end_ms : twi_time_add(end_ms, lateness_ms);
}
/* The inverse function. At now_ms, exactly the windows that end at or before the result are over. */
TWI_INLINE int64_t twi_family_over_by(const struct tw_family *family, int64_t now_ms) {
    int64_t open_for_ms = twi_family_open_for_ms(family), asked_ms = now_ms - twi_family_shown_for_ms(family);
    int64_t by_ms = open_for_ms == INT64_MAX ? INT64_MIN : now_ms - open_for_ms;
    int64_t over_ms = twi_load_relaxed(&family->marks.over_ms), mark_ms = twi_load_relaxed(&family->marks.watermark_ms);
    if (over_ms > now_ms) over_ms = now_ms;
    if (mark_ms > asked_ms) mark_ms = asked_ms;
    if (over_ms > by_ms) by_ms = over_ms;
    return mark_ms > by_ms ? mark_ms : by_ms;
}
/* Raises the mark to `to_ms`, if it is lower. Returns true if it was raised. */
TWI_INLINE bool twi_family_raise(_Atomic int64_t *mark_ms, int64_t to_ms) {
    int64_t found = twi_load_relaxed(mark_ms);
    while (found < to_ms)
        if (twi_cas_weak_acqrel(mark_ms, &found, to_ms)) return true;
    return false;
}

/* A window's start and end, as callers see them. */
TWI_INLINE int64_t twi_generation_start_ms(const struct twi_generation *generation) {
    return generation->family->kind.evicts_idle ? 0 : generation->start_ms;
}
TWI_INLINE int64_t twi_generation_end_ms(const struct twi_generation *generation) {
    return generation->family->kind.evicts_idle ? INT64_MAX : generation->end_ms;
}

/* Returns true if Redis has all of its counts, and no message is under way. Called by the turn. */
TWI_INLINE bool twi_generation_is_drained(struct twi_generation *generation) {
    return !generation->synced ||
           (generation->turn.outstanding == 0 && !generation->turn.pending && generation->turn.owed == 0 &&
            generation->turn.taken == 0 && twi_load_acquire(&generation->marks.chunks) == 0 &&
            twi_load_acquire(&generation->marks.overflow) == 0);
}

/* Called by the turn. Once the generation is sealed, `keys` may still include keys that inserters reserve in vain. */
TWI_INLINE bool twi_generation_has_counted(struct twi_generation *generation) {
    bool is_sealed = twi_load_relaxed(&generation->phase) >= TWI_SEALED;
    bool has_keys = is_sealed ? generation->has_cells : twi_load_relaxed(&generation->keys) != 0;
    return has_keys || generation->turn.closing.is_adopted ||
           twi_cell_local(&generation->overflow, twi_load_relaxed(&generation->overflow.meta)) != 0;
}

/* Used in place of a generation if there is none. It contains no moment. */
extern struct twi_generation twi_generation_none;
TWI_INLINE bool twi_generation_holds(const struct twi_generation *generation, int64_t unix_ms) {
    return unix_ms >= generation->start_ms && unix_ms < generation->end_ms;
}

#endif
