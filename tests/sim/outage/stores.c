/* stores.c -- several stores on one Redis: keys have hash tags, each tag is a store with a ledger of its own, and each
 * forgets for itself. The real sync code in seeded worlds of faults (tagged.h).
 * Covers: sync/turn/collect.c, sync/turn/transfer.c, sync/turn/nodes.c, sync/message/state.h, sync/message/message.c,
 * sync/message/active.c. */
#include "tests/sim/hardships.h"
#include "tests/sim/tagged.h"

#define SEEDS_MAX 20000

static void play_seed(const char *name, uint64_t seed) {
    test_seed_begins(name, seed);
    tagged_make(name, seed, false);
    tagged_play();
    sim_free();
    test_seed_ends();
}

/* Goal: P2 for each store, on a faulty network: no count is lost or doubled, while one store after the other is wiped,
 * goes back, or loses its ledgers; a flush that is done has sent everything; in the end all that can be there is. */
TEST(each_store_forgets_for_itself) {
    uint64_t seeds[SEEDS_MAX];
    size_t count = test_seeds("sync_stores", test_scale(60), seeds, SEEDS_MAX);
    for (size_t i = 0; i < count; i++) play_seed("sync_stores", seeds[i]);
    for (int kind = TAGGED_WIPED; count >= 50 && kind < TAGGED_KINDS; kind++) assert_true(tagged.struck[kind] > 0);
}

/* A calm world in which node 0 has all its stores. So many have something to send at a time; 0: no bound. */
static struct twi_sync *make_bounded(uint32_t places) {
    static const struct world_faults none = {0};
    sim_begin(test_seed(), &none, "noeviction");
    sim.timeout_ms = 1000;
    sim.tags = TAGS;
    test_tuning.stores_by_tag = true;
    if (places != 0) tagged_bound(places);
    for (int n = 0; n < WORLD_NODES; n++) node_make(n);
    struct twi_sync *sync = sim.engines[0].sync;
    for (size_t i = 0; i < FAKE_CELLS; i++) fake_add(&sim.engines[0], i, 1);
    for (int i = 0; i < STEPS && !(sync->store_count > TAGS && is_settled(0)); i++) {
        world_step(&sim.world);
        turn_node(0);
    }
    assert_int_equal(sync->store_count, 1 + TAGS);
    return sync;
}

static struct twi_sync *make_calm(void) {
    return make_bounded(0);
}

static bool has_name(const char *name) {
    sim.world.redis.now_ms = world_wall_ms(&sim.world) + sim.world.redis_skew_ms;
    return redis_model_find(&sim.world.redis, name) != NULL;
}

/* Goal: ledger and marker of a store lie in its key slot, by the rule for names without a tag: the short of the slot
 * behind the second colon. With one store the names have no tag. */
TEST(own_names_lie_in_the_slot_of_their_store) {
    struct twi_sync *sync = make_calm();
    for (uint32_t i = 1; i <= TAGS; i++) {
        char tag[16], marker[64];
        const struct twi_store *store = sync->stores[i];
        uint32_t slot = twi_key_slot_of(store->ledger.name, store->ledger.name_size);
        int size = snprintf(tag, sizeof tag, "p:tw:ledger:{%s", store->tag + 1);
        assert_memory_equal(store->ledger.name, tag, (size_t)size);
        assert_int_equal(store->ledger.name_size, (size_t)size + 1 + 32); /* a colon, and the id */
        snprintf(marker, sizeof marker, "p:tw:marker:%s", store->tag);
        assert_int_equal(twi_key_slot_of(marker, strlen(marker)), slot);
        assert_true(has_name(marker) && has_name(store->ledger.name));
        assert_true(slot == tagged_slot(0) || slot == tagged_slot(1) || slot == tagged_slot(2));
    }
    sim_free();
    sim_begin(test_seed(), &(struct world_faults){0}, "noeviction");
    for (int n = 0; n < WORLD_NODES; n++) node_make(n);
    for (int i = 0; i < STEPS && !has_name("tw:marker"); i++) { /* these options have no prefix */
        world_step(&sim.world);
        turn_node(0);
    }
    assert_true(has_name("tw:marker"));
    assert_null(strchr(sim.engines[0].sync->stores[0]->ledger.name, '{'));
    sim_free();
}

/* Goal: a store that is unreachable delays no other. The others' counts arrive, its own wait, and are not collected
 * again and again (C14). A flush waits for it, and for nothing else (C13). */
TEST(a_store_that_is_away_holds_up_no_other) {
    struct twi_sync *sync = make_calm();
    tw_engine *engine = &sim.engines[0];
    struct twi_store *away = sync->stores[2];
    twi_active_wake(sync, away);
    away->assumed.unknown_since_ms = 1; /* as if it did not know this engine */
    int64_t acked[FAKE_CELLS];
    for (size_t i = 0; i < FAKE_CELLS; i++) acked[i] = engine->cells[i].acked;
    for (size_t i = 1; i < FAKE_CELLS; i += 5) fake_add(engine, i, 10); /* endless, one or two for each tag */
    struct flush *flush = &sim.flushes[0];
    for (size_t i = 0; i < FAKE_CELLS; i++) flush->local[i] = engine->cells[i].local;
    flush->ticket = twi_driver_find()->ticket_take(sync);
    for (int i = 0; i < 1000; i++) {
        world_step(&sim.world);
        for (size_t cell = 1; cell < FAKE_CELLS; cell += 5)
            if (i % 50 == 0 && fake_store_of(engine, &engine->cells[cell]) == away->index) fake_add(engine, cell, 1);
        turn_node(0);
        assert_true(away->parking.count <= 2);
    }
    assert_true(away->parking.count != 0);
    assert_int_equal(twi_driver_find()->ticket_state(sync, flush->ticket), TWI_TICKET_OPEN);
    for (size_t i = 1; i < FAKE_CELLS; i += 5) {
        bool is_away = fake_store_of(engine, &engine->cells[i]) == away->index;
        assert_i64_equal(engine->cells[i].acked - acked[i], is_away ? 0 : 10);
    }
    assert_true(twi_driver_find()->wake_ms(sync) > sim.world.now_ms);
    away->assumed.unknown_since_ms = 0;
    for (int i = 0; i < STEPS && flush->ticket; i++) {
        world_step(&sim.world);
        turn_node(0); /* checks what the flush promises */
    }
    assert_int_equal(flush->ticket, 0);
    assert_true(sim.done > 0);
    live();
    check_books();
    sim_free();
}

static void step_until_all_rest(const struct twi_sync *sync) {
    for (int i = 0; i < STEPS && sync->active.count != 0; i++) {
        world_step(&sim.world);
        turn_node(0);
    }
    assert_int_equal(sync->active.count, 0);
}

/* Goal: a turn walks the stores that have something to do, and no other. Stores that are settled rest; a count wakes
 * its own store. Each ledger is written twice a minute all the same, and a flush is done though its store rested. */
TEST(a_store_with_nothing_to_do_rests) {
    struct twi_sync *sync = make_calm();
    tw_engine *engine = &sim.engines[0];
    struct flush *flush = &sim.flushes[0];
    step_until_all_rest(sync);
    for (size_t cell = 0; cell < FAKE_CELLS; cell += 7) {
        const struct twi_store *store = sync->stores[fake_store_of(engine, &engine->cells[cell])];
        uint64_t last = store->ledger.last, done = sim.done;
        fake_add(engine, cell, 1);
        for (size_t i = 0; i < FAKE_CELLS; i++) flush->local[i] = engine->cells[i].local;
        flush->ticket = twi_driver_find()->ticket_take(sync);
        for (int i = 0; i < STEPS && flush->ticket; i++) {
            world_step(&sim.world);
            turn_node(0);
            for (uint32_t k = 0; k < sync->active.count; k++) assert_ptr_equal(sync->active.stores[k], store);
        }
        assert_true(sim.done > done && store->ledger.last > last);
        step_until_all_rest(sync);
    }
    uint64_t last[1 + TAGS];
    for (uint32_t i = 0; i < sync->store_count; i++) last[i] = sync->stores[i]->ledger.last;
    for (int64_t end_ms = sim.world.now_ms + 3 * TWI_LEDGER_REFRESH_MS; sim.world.now_ms < end_ms;) {
        world_step(&sim.world);
        turn_node(0);
        for (uint32_t i = 0; i < sync->store_count; i++)
            assert_true(sim.world.now_ms - sync->stores[i]->assumed.written_ms < TWI_LEDGER_REFRESH_MS + 1000);
    }
    for (uint32_t i = 0; i < sync->store_count; i++) assert_in_range(sync->stores[i]->ledger.last - last[i], 2, 3);
    sim_free();
}

static tw_stats stats_of(struct twi_sync *sync) {
    tw_stats stats = {0};
    twi_driver_find()->stats(sync, &stats);
    return stats;
}

static int64_t waiting_by_their_own_words(const struct twi_sync *sync) {
    int64_t count = 0;
    for (uint32_t i = 0; i < sync->store_count; i++) count += sync->stores[i]->place.is_waiting;
    return count;
}

/* Counts on every counter, and waits until that has arrived. Returns in how many turns a store waited for its place. */
static int flush_all(struct twi_sync *sync) {
    tw_engine *engine = &sim.engines[0];
    struct flush *flush = &sim.flushes[0];
    int waited = 0;
    for (size_t i = 0; i < FAKE_CELLS; i++) fake_add(engine, i, 1);
    for (size_t i = 0; i < FAKE_CELLS; i++) flush->local[i] = engine->cells[i].local;
    flush->ticket = twi_driver_find()->ticket_take(sync);
    for (int i = 0; i < STEPS && flush->ticket; i++) {
        world_step(&sim.world);
        turn_node(0); /* checks what the flush promises */
        waited += sync->active.waiting.count != 0;
        tw_stats stats = stats_of(sync);
        assert_i64_equal(stats.stores, 1 + TAGS);
        assert_i64_equal(stats.stores_waiting, waiting_by_their_own_words(sync));
        assert_true(sync->active.taken <= sync->active.places);
    }
    assert_int_equal(flush->ticket, 0);
    return waited;
}

/* Goal: of more tags than there are places, some wait. Their counts stay in their counters, a flush waits for them, and
 * they are sent as places become free. A store that is unreachable takes no place, so it keeps nobody waiting. */
TEST(a_store_without_a_place_waits_and_loses_nothing) {
    struct twi_sync *sync = make_bounded(1);
    tw_engine *engine = &sim.engines[0];
    int waited = 0;
    for (int round = 0; round < 20; round++) waited += flush_all(sync);
    assert_true(waited > 0);
    step_until_all_rest(sync);
    struct twi_store *away = sync->stores[1];
    twi_active_wake(sync, away);
    away->assumed.unknown_since_ms = 1; /* as if it did not know this engine */
    int64_t acked[FAKE_CELLS];
    for (size_t i = 0; i < FAKE_CELLS; i++) acked[i] = engine->cells[i].acked;
    for (size_t i = 1; i < FAKE_CELLS; i += 5) fake_add(engine, i, 10); /* endless, one or two for each tag */
    for (int i = 0; i < 1000; i++) {
        world_step(&sim.world);
        turn_node(0);
    }
    assert_true(away->parking.count != 0 && sync->active.waiting.count == 0);
    assert_i64_equal(stats_of(sync).stores_waiting, 0);
    for (size_t i = 1; i < FAKE_CELLS; i += 5) {
        bool is_away = fake_store_of(engine, &engine->cells[i]) == away->index;
        assert_i64_equal(engine->cells[i].acked - acked[i], is_away ? 0 : 10);
    }
    away->assumed.unknown_since_ms = 0;
    live();
    check_books();
    sim_free();
}

/* Goal: a wiped store is told its own counters again; the others are told nothing, and get no batch for it. */
TEST(a_wiped_store_alone_is_told_again) {
    struct twi_sync *sync = make_calm();
    redis_model_wipe_slot(&sim.world.redis, tagged_slot(1));
    sim.forgets = true;
    sim.certain = false;
    uint64_t last[1 + TAGS];
    int64_t owed = 0;
    for (uint32_t i = 0; i < sync->store_count; i++) last[i] = sync->stores[i]->ledger.last;
    for (size_t i = 0; i < FAKE_CELLS; i++)
        if (redis_model_applied(&sim.world.redis, sim.engines[0].cells[i].name, 0) == 0)
            owed += sim.engines[0].cells[i].acked * sim.engines[0].cells[i].sign;
    assert_true(owed > 0);
    for (size_t i = 1; i < FAKE_CELLS; i += 5) fake_add(&sim.engines[0], i, 1);
    live();
    check_books();
    assert_i64_equal(fake_stat_of(&sim.engines[0], restored), owed);
    for (uint32_t i = 0; i < sync->store_count; i++) assert_true(sync->stores[i]->ledger.last <= last[i] + 4);
    sim_free();
}
