/* hll_twin.h -- the slow definition of a distinct count, for tests: an array of registers, one byte each. */
#ifndef TEST_HLL_TWIN_H
#define TEST_HLL_TWIN_H

#include "tests/support/support.h"

#include "engine/base/hll.h"

struct twin {
    uint8_t registers[TWI_HLL_REGISTERS];
};

/* True: the register was raised. */
static inline bool twin_add(struct twin *twin, tw_key element) {
    struct twi_hll_element raise = twi_hll_element(twi_hll_hash(element.data, element.size));
    if (twin->registers[raise.index] >= raise.value) return false;
    twin->registers[raise.index] = (uint8_t)raise.value;
    return true;
}

static inline void twin_join(struct twin *twin, const struct twin *other) {
    for (uint32_t i = 0; i < TWI_HLL_REGISTERS; i++)
        if (twin->registers[i] < other->registers[i]) twin->registers[i] = other->registers[i];
}

static inline int64_t twin_estimate(const struct twin *twin) {
    struct twi_hll_histogram histogram = {{0}};
    for (uint32_t i = 0; i < TWI_HLL_REGISTERS; i++) histogram.registers[twin->registers[i]]++;
    return twi_hll_estimate(&histogram);
}

static inline tw_key twin_number(const uint64_t *number) {
    return tw_bytes(number, sizeof *number);
}

#endif
