/* check.h -- assertions, race points for tests, and the few compiler attributes that the engine uses. Wrong data
 * leads to a tw_status. Wrong code fails a check, and the process traps without printing. Build option `checks`: 0
 * none, 1 checks that cost O(1) (default), 2 more expensive checks, 3 walks over whole structures. */
#ifndef TWI_BASE_CHECK_H
#define TWI_BASE_CHECK_H

#include <assert.h>
#include <stddef.h>

#ifndef TWI_CHECKS
#define TWI_CHECKS 1
#endif

#define twi_likely(x) __builtin_expect(!!(x), 1)
#define twi_unlikely(x) __builtin_expect(!!(x), 0)
/* The same for functions with so many rare branches that 90 % each would make their end look rare. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_expect_with_probability)
#define twi_hardly(x) __builtin_expect_with_probability(!!(x), 0, 0.999)
#endif
#endif
#ifndef twi_hardly
#define twi_hardly(x) twi_unlikely(x)
#endif
#define TWI_INLINE static inline __attribute__((always_inline))
#define TWI_COLD __attribute__((cold, noinline))

#define TWI_TRAP_UNLESS(x) ((x) ? (void)0 : __builtin_trap())
#if TWI_CHECKS >= 1
#define twi_check(x) TWI_TRAP_UNLESS(twi_likely(x))
#else
#define twi_check(x) ((void)0)
#endif
#if TWI_CHECKS >= 2
#define twi_check_dear(x) TWI_TRAP_UNLESS(x)
#else
#define twi_check_dear(x) ((void)0)
#endif
#if TWI_CHECKS >= 3
#define twi_check_full(x) TWI_TRAP_UNLESS(x)
#else
#define twi_check_full(x) ((void)0)
#endif

/* Widens a race on purpose, for tests. With -Drace_points=true it expands to a short random pause (race_point.c).
 * Otherwise it expands to an empty statement. */
#ifdef TWI_RACE_POINTS
void twi_race_nap(const char *name);
#define TWI_RACE_POINT(name) twi_race_nap(#name)
#else
#define TWI_RACE_POINT(name) ((void)0)
#endif

#define TWI_LINE_BYTES 64

#endif
