/* stores_test.c -- what the stores of one engine share: the bytes of the replay buffer. */
#include "sync/message/state.h"

#include "tests/support/support.h"

#define STORES 3

struct rig {
    struct twi_sync sync;
    struct twi_store stores[STORES], *all[STORES];
};

static void rig_make(struct rig *rig, size_t bytes_max) {
    memset(rig, 0, sizeof *rig);
    for (uint32_t i = 0; i < STORES; i++) {
        rig->all[i] = &rig->stores[i];
        rig->stores[i].ledger.all_replay_bytes = &rig->sync.replay_bytes;
        rig->stores[i].ledger.replay_bytes_max = bytes_max;
        rig->stores[i].ledger.replay_ms = 30000;
    }
    rig->sync.stores = rig->all;
    rig->sync.store_count = STORES;
}

static void rig_free(struct rig *rig) {
    for (uint32_t i = 0; i < STORES; i++) twi_ledger_free(&rig->stores[i].ledger);
}

/* The store acknowledges another batch, frozen at that time. */
static void acknowledge(struct rig *rig, uint32_t store, int64_t frozen_ms) {
    struct twi_ledger *ledger = &rig->stores[store].ledger;
    assert_true(twi_ledger_append_empty(ledger, 1, frozen_ms));
    twi_ledger_confirm(ledger, twi_ledger_unconfirmed(ledger));
}

static size_t batches_of(const struct rig *rig, uint32_t store) {
    size_t count = 0;
    for (const struct twi_batch *batch = rig->stores[store].ledger.head; batch; batch = batch->next) count++;
    return count;
}

/* Goal: the windows of all stores share one budget, and what was frozen first goes first, whichever store it is of. */
TEST(the_oldest_batch_of_all_stores_goes_first) {
    struct rig rig;
    rig_make(&rig, 4 * sizeof(struct twi_batch));
    for (int64_t i = 0; i < 6; i++) acknowledge(&rig, (uint32_t)(i % 2), 100 * i);
    acknowledge(&rig, 2, 50);
    twi_sync_trim(&rig.sync, &rig.stores[0], 600);
    assert_int_equal(rig.sync.replay_bytes, 4 * sizeof(struct twi_batch));
    assert_int_equal(batches_of(&rig, 0), 2); /* 200, 400 */
    assert_int_equal(batches_of(&rig, 1), 2); /* 300, 500: 0, 50 and 100 are gone */
    assert_int_equal(batches_of(&rig, 2), 0);
    for (int i = 0; i < STORES; i++) assert_true(twi_ledger_is_valid(&rig.stores[i].ledger));
    rig_free(&rig);
}

/* Goal: a batch that may be needed is kept, however old it is: one that the replicas lack, or one that a reply may
 * still be about; then a younger one of another store goes. */
TEST(what_may_be_needed_is_kept) {
    struct rig rig;
    rig_make(&rig, sizeof(struct twi_batch));
    rig.stores[0].ledger.awaits_replicas = true;
    rig.stores[1].rewind = true;
    for (uint32_t i = 0; i < STORES; i++) acknowledge(&rig, i, 100 * (int64_t)i);
    twi_sync_trim(&rig.sync, &rig.stores[2], 300);
    assert_int_equal(batches_of(&rig, 0), 1);
    assert_int_equal(batches_of(&rig, 1), 1);
    assert_int_equal(batches_of(&rig, 2), 0);
    rig.stores[1].rewind = false;
    twi_sync_trim(&rig.sync, &rig.stores[2], 300);
    assert_int_equal(batches_of(&rig, 0), 1);
    assert_int_equal(batches_of(&rig, 1), 0);
    rig_free(&rig);
}
