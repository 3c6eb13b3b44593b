/* depth.c -- see depth.h. */
#include "sync/batch/depth.h"

#include "engine/base/atomic.h"
#include "sync/batch/batch.h"

#define HALF_US 5000000 /* a reply counts for five to ten seconds */
#define KEY_US 2        /* how long, roughly, a key takes Redis's thread; so much it adds to the time of a reply */
#define STEP_US \
    256 /* for so much of the way one small batch more is under way: half of what Redis could take meanwhile */

void twi_depth_note(struct twi_depth *depth, int64_t took_us, uint32_t keys, int64_t now_us) {
    int64_t way_us = took_us - (int64_t)keys * KEY_US;
    if (way_us < 1) way_us = 1;
    if (depth->by_latest) {
        depth->quickest_us[0] = way_us;
        return;
    }
    int64_t passed_us = now_us - depth->half_us;
    if (passed_us >= HALF_US || passed_us < 0) {
        depth->quickest_us[1] = passed_us < 2 * HALF_US ? depth->quickest_us[0] : 0;
        depth->quickest_us[0] = 0;
        depth->half_us = now_us;
    }
    if (depth->quickest_us[0] == 0 || way_us < depth->quickest_us[0]) depth->quickest_us[0] = way_us;
}

int64_t twi_depth_way_us(const struct twi_depth *depth) {
    int64_t now_us = depth->quickest_us[0], before_us = depth->quickest_us[1];
    return before_us != 0 && before_us < now_us ? before_us : now_us;
}

void twi_depth_forget(struct twi_depth *depth) {
    *depth = (struct twi_depth){.by_latest = depth->by_latest, .near_keys = depth->near_keys};
}

struct twi_load twi_depth_load(const struct twi_depth *depth) {
    uint32_t near = depth->near_keys, most = TWI_PIPELINE_MAX * TWI_BATCH_ITEMS_MAX;
    int64_t way_us = twi_depth_way_us(depth);
    int64_t far = way_us < most * STEP_US ? way_us * near / STEP_US : most;
    uint32_t under_way = near + far < most ? near + (uint32_t)far : most;
    uint32_t keys = under_way / TWI_PIPELINE_MAX;
    if (keys < near) keys = near;
    if (keys > TWI_BATCH_ITEMS_MAX) keys = TWI_BATCH_ITEMS_MAX;
    uint32_t batches = under_way / keys;
    return (struct twi_load){keys, batches < TWI_PIPELINE_MAX ? batches : TWI_PIPELINE_MAX};
}
