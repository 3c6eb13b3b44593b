/* peers.c -- see peers.h. */
#include "engine/core/peers.h"

#include "engine/base/calendar.h"
#include "engine/core/state.h"
#include "engine/core/store_map.h"
#include "engine/port/messages.h"

/* ---- services ----
 * the services of the engine for sync/ apart from counters, which are clocks, random bytes and the
 * engine's id (port/). */

const struct twi_tuning *twi_port_tuning(const tw_engine *engine) {
    return &engine->here->remote.tuning;
}

bool twi_port_is_closing(const tw_engine *engine) {
    return engine->turn.closing || twi_load_relaxed(&engine->turn.leaves_redis);
}

int64_t twi_port_wall_ms(tw_engine *engine) {
    return twi_clock_read(&engine->clock); /* not the turn's time, because a hook may have run for long since */
}
/* Sync reads the time at every step. So this is where the keeper of the clock notices that its iteration is long. */
int64_t twi_port_mono_ms(tw_engine *engine) {
    twi_clock_tick();
    return twi_clock_mono_ms(&engine->clock);
}
int64_t twi_port_mono_us(tw_engine *engine) {
    return twi_clock_mono_us(&engine->clock);
}

/* This is splitmix64. In a simulator all random bytes follow from the seed. */
static uint64_t seeded(tw_engine *engine) {
    uint64_t z =
        twi_add_relaxed(&engine->here->random.state, UINT64_C(0x9E3779B97F4A7C15)) + UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

void twi_port_random(tw_engine *engine, void *out, size_t size) {
    twi_check(out != NULL && size != 0);
    if (twi_load_relaxed(&engine->here->random.state) == 0) {
        if (twi_random_bytes_or(&engine->here->random.key, twi_clock_mono_us(&engine->clock), out, size)) return;
        engine->here->random.failed = true; /* there is no key yet: tw_open() refuses */
        memset(out, 0, size);
        return;
    }
    for (unsigned char *at = out; size != 0;) {
        uint64_t word = seeded(engine);
        size_t part = size < sizeof word ? size : sizeof word;
        memcpy(at, &word, part);
        at += part;
        size -= part;
    }
}

const char *twi_port_engine_id(tw_engine *engine) {
    return engine->in_redis.id;
}

void *twi_port_estate(const tw_engine *engine) {
    return engine->in_redis.estate;
}

/* ---- waiting and waking ---- */

int twi_port_socket_set(const tw_engine *engine) {
    return engine->here->waits.fd;
}

void twi_port_wake(tw_engine *engine) {
    twi_socket_set_ring(&engine->here->waits);
}

#define ARRIVAL 2 /* intervals after which counts are surely sent: 5/4 at most, plus the way */
#define TIMEOUT_LEAST_MS 100u
#define TIMEOUT_UNKNOWN_MS 1000u
#define RETURN_MS 12500 /* Redis is tried again within 10 s, counts are sent within 2 s (wire/pace.c, wire/pace.c) */

/* ---- how many live ---- */

void twi_peers_begin(tw_engine *engine) {
    engine->peers =
        (struct twi_peers){.live_since_ms = twi_clock_mono_ms(&engine->clock), .live_meeting_ms = TWI_MEETING_MS};
}

/* Returns true if the first seconds (share.h) have ended. */
static bool is_grown(const tw_engine *engine, int64_t now_ms, int64_t since_ms, uint32_t count) {
    twi_check(engine->peers.live_rose_ms <= now_ms);
    uint32_t expected = engine->options.engines_expected;
    if (since_ms < 0 || now_ms - since_ms >= TWI_YOUNG_MAX_MS) return true;
    return count >= expected && now_ms - engine->peers.live_rose_ms >= (expected != 0 ? TWI_EXPECTED_MS : TWI_YOUNG_MS);
}

/* An engine that began together with this one needs as long as this one, or somewhat longer. */
static int64_t meeting_ms(int64_t our_start_ms) {
    twi_check(our_start_ms >= 0);
    return twi_smaller(twi_larger(2 * our_start_ms, TWI_MEETING_MS), TWI_YOUNG_MS);
}

void twi_port_live_engines(tw_engine *engine, uint32_t count) {
    int64_t now_ms = twi_clock_mono_ms(&engine->clock), since_ms = twi_load_relaxed(&engine->peers.live_since_ms);
    uint32_t reported = twi_load_relaxed(&engine->peers.live_reported);
    twi_stat_set(engine, offsetof(tw_stats, live_engines), count);
    if (count == 0) {
        since_ms =
            INT64_MIN; /* the count is unknown; even if it becomes known later, this engine is not new any more */
    } else if (reported == 0 && since_ms != INT64_MIN) {
        twi_store_relaxed(&engine->peers.live_meeting_ms, meeting_ms(now_ms - since_ms));
        since_ms = now_ms;
    }
    if (count > reported) engine->peers.live_rose_ms = now_ms;
    if (since_ms >= 0) twi_store_relaxed(&engine->peers.live_repeated_ms, now_ms - since_ms);
    twi_store_relaxed(&engine->peers.live_since_ms, since_ms);
    twi_store_relaxed(&engine->peers.live_reported, count);
    bool grown = twi_load_relaxed(&engine->peers.live_engines) != 0 || is_grown(engine, now_ms, since_ms, count);
    twi_store_relaxed(&engine->peers.live_engines, grown ? count : 0);
}

bool twi_peers_have_met(const struct twi_peers *peers, int64_t age_ms) {
    twi_check(twi_load_relaxed(&peers->live_meeting_ms) >= TWI_MEETING_MS);
    int64_t meeting_ms = twi_load_relaxed(&peers->live_meeting_ms); /* both are hints */
    bool is_reported_again = twi_load_relaxed(&peers->live_repeated_ms) >= meeting_ms / 2;
    return age_ms >= (is_reported_again ? meeting_ms : TWI_OPENED_MS);
}

bool twi_peers_are_known(const tw_engine *engine) {
    int64_t since_ms = twi_load_relaxed(&engine->peers.live_since_ms);
    if (since_ms < 0 || twi_load_relaxed(&engine->peers.live_engines) != 0) return true;
    return twi_load_relaxed(&engine->peers.live_reported) != 0 &&
           twi_peers_have_met(&engine->peers, twi_clock_mono_ms(&engine->clock) - since_ms);
}

/* ---- whether Redis answers ---- */

void twi_port_timed_out_unsent(tw_engine *engine) {
    (void)twi_add_relaxed(&engine->peers.unsent_timeouts, 1);
}

/* With several stores an outage of one of them shows, although others reply. */
static void publish_connected(tw_engine *engine) {
    bool is_connected = twi_load_relaxed(&engine->peers.is_connected);
    if (engine->peers.stores != NULL && twi_load_relaxed(&engine->peers.away_since_ms) != 0) is_connected = false;
    twi_stat_set(engine, offsetof(tw_stats, redis_connected), is_connected);
}

void twi_port_connected(tw_engine *engine, bool is_connected) {
    twi_store_relaxed(&engine->peers.is_connected, is_connected); /* a hint */
    publish_connected(engine);
}

void twi_peers_note_redis_ms(tw_engine *engine, int64_t redis_ms) {
    int64_t wall_ms = twi_port_wall_ms(engine), ahead_ms = redis_ms - twi_clock_mono_ms(&engine->clock);
    if (redis_ms <= wall_ms - TW_DAY || redis_ms >= wall_ms + TW_DAY) return;
    int64_t before_ms = twi_load_relaxed(&engine->peers.redis_ahead_ms);
    while (ahead_ms > before_ms && !twi_cas_relaxed(&engine->peers.redis_ahead_ms, &before_ms, ahead_ms)) continue;
}

int64_t twi_peers_redis_ms(const tw_engine *engine) {
    int64_t ahead_ms = twi_load_relaxed(&engine->peers.redis_ahead_ms);
    return ahead_ms > 0 ? ahead_ms + twi_clock_mono_ms(&engine->clock) : 0;
}

void twi_port_clock_offset(tw_engine *engine, int64_t offset_ms) {
    engine->peers.clock_offset_ms = offset_ms;
    twi_peers_note_redis_ms(engine, twi_port_wall_ms(engine) + offset_ms);
    twi_stat_set(engine, offsetof(tw_stats, redis_clock_offset_ms), offset_ms);
}

/* With several stores an outage begins when the first store stops replying, and ends when all of them reply again. */
static void note_outage(tw_engine *engine, int64_t since_ms) {
    twi_check(since_ms >= 0);
    bool was_away = twi_load_relaxed(&engine->peers.away_since_ms) != 0;
    int64_t ended_ms =
        twi_load_relaxed(&engine->peers.outage_ended_ms); /* only this function writes both; hints to callers */
    if (!was_away && since_ms != 0 &&
        (ended_ms == 0 || since_ms - ended_ms > RETURN_MS)) /* otherwise the same outage continues */
        twi_store_relaxed(&engine->peers.outage_began_ms, since_ms);
    if (was_away && since_ms == 0) twi_store_relaxed(&engine->peers.outage_ended_ms, engine->turn.mono_ms);
    twi_store_relaxed(&engine->peers.away_since_ms, since_ms); /* a hint */
}

void twi_port_outage(tw_engine *engine, uint32_t store, int64_t since_ms) {
    twi_check(since_ms >= 0);
    twi_check(engine->peers.stores == NULL || engine->peers.stores->away <= engine->peers.stores->count);
    struct twi_store_map *map = engine->peers.stores;
    if (map == NULL) {
        note_outage(engine, since_ms);
        twi_store_relaxed(&engine->peers.all_away_since_ms, since_ms); /* a hint */
        return;
    }
    int64_t before_ms = twi_load_relaxed(&map->away_since_ms[store]);
    if (store >= map->count || before_ms == since_ms) return;
    if (before_ms == 0) map->away++;
    if (since_ms == 0) map->away--;
    twi_store_relaxed(&map->away_since_ms[store], since_ms); /* a hint, before the two that lead to it */
    /* While several stores do not reply, the engine's clock is that of the store that changed last. It only shows that
     * some do not reply. */
    int64_t any_ms = since_ms != 0 ? since_ms : twi_load_relaxed(&engine->peers.away_since_ms);
    note_outage(engine, map->away != 0 ? any_ms : 0);
    twi_store_relaxed(&engine->peers.all_away_since_ms, map->away == map->count ? any_ms : 0); /* a hint */
    publish_connected(engine);
}

int64_t twi_peers_away_ms(const tw_engine *engine, int64_t since_ms) {
    twi_check(since_ms >= 0);
    return since_ms != 0 ? twi_larger(twi_clock_mono_ms(&engine->clock) - since_ms, 1) : 0;
}

/* redis_timeout_ms, which is set, or measured, or `unknown_ms`. */
static uint32_t reply_ms(const tw_engine *engine, uint32_t unknown_ms) {
    uint32_t set_ms = engine->options.redis_timeout_ms, measured_ms = twi_load_relaxed(&engine->peers.timeout_ms);
    if (set_ms != 0) return set_ms;
    return measured_ms != 0 ? measured_ms : unknown_ms;
}

int64_t twi_peers_sent_by_ms(const tw_engine *engine, int64_t mono_ms) {
    int64_t ended_ms = twi_load_relaxed(&engine->peers.outage_ended_ms);
    int64_t sent_ms = mono_ms + ARRIVAL * (int64_t)engine->options.sync_interval_ms;
    if (ended_ms != 0 && twi_load_relaxed(&engine->peers.outage_began_ms) < sent_ms && sent_ms < ended_ms + RETURN_MS)
        sent_ms = ended_ms + RETURN_MS;
    return sent_ms + reply_ms(engine, TIMEOUT_LEAST_MS);
}

/* ---- the way to Redis ---- */

void twi_port_measured(tw_engine *engine, int64_t way_us, uint32_t timeout_ms) {
    twi_check(way_us >= 0);
    if (twi_load_relaxed(&engine->peers.way_us) == way_us) return;
    twi_store_relaxed(&engine->peers.way_us, way_us); /* hints, both */
    twi_store_relaxed(&engine->peers.timeout_ms, timeout_ms);
}

uint32_t twi_port_timeout_ms(const tw_engine *engine) {
    return reply_ms(engine, TIMEOUT_UNKNOWN_MS);
}
