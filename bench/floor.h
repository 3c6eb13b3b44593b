/* floor.h -- the functions of floor_hash.c and floor_section.c, for floor.cc. Always true: after the one call of
 * init, hashes are pure functions. A section function returns how often it entered and left. */
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
uint64_t bench_floor_section(uint64_t count);
uint64_t bench_floor_section_fence(uint64_t count);
uint64_t bench_floor_section_ck(uint64_t count);

#ifdef __cplusplus
}
#endif
#endif
