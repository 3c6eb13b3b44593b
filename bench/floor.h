/* floor.h -- floor_hash.c's part for floor.cc. Always true: pure functions after the one call of init. */
#ifndef BENCH_FLOOR_H
#define BENCH_FLOOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void bench_floor_hash_init(void);
uint64_t bench_floor_hash(const unsigned char *slots, size_t count, uint32_t stride);
uint64_t bench_floor_hash_dependent(const unsigned char *slots, size_t count, uint32_t stride);

#ifdef __cplusplus
}
#endif
#endif
