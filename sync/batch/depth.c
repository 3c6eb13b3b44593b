/* depth.c -- see depth.h. */
#include "sync/batch/depth.h"

#include "engine/base/check.h"
#include "sync/batch/batch.h"

#define STEP_US \
    256 /* for each such part of the distance, one more small batch is under way; this is half of Redis's own pace */

struct twi_load twi_depth_load(const struct twi_estimate *estimate, uint32_t near_keys) {
    twi_check(near_keys >= 1 && near_keys <= TWI_BATCH_ITEMS_MAX);
    uint32_t near = near_keys, most = TWI_PIPELINE_MAX * TWI_BATCH_ITEMS_MAX;
    int64_t way_us = twi_estimate_distance_us(estimate);
    int64_t far = way_us < most * STEP_US ? way_us * near / STEP_US : most;
    uint32_t under_way = near + far < most ? near + (uint32_t)far : most;
    uint32_t keys = under_way / TWI_PIPELINE_MAX;
    if (keys < near) keys = near;
    if (keys > TWI_BATCH_ITEMS_MAX) keys = TWI_BATCH_ITEMS_MAX;
    twi_check(keys >= near && keys <= under_way);
    uint32_t batches = under_way / keys;
    return (struct twi_load){keys, batches < TWI_PIPELINE_MAX ? batches : TWI_PIPELINE_MAX};
}

uint32_t twi_depth_batch_bytes(const struct twi_estimate *estimate, uint32_t timeout_ms) {
    uint64_t bytes = twi_estimate_bytes(estimate, timeout_ms) / 2;
    if (bytes < TWI_ESTIMATE_BYTES_MIN) bytes = TWI_ESTIMATE_BYTES_MIN;
    return bytes < TWI_BATCH_BYTES_MAX ? (uint32_t)bytes : TWI_BATCH_BYTES_MAX;
}
