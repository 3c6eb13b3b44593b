/* probe.h -- static probes (USDT) for bpftrace, perf and systemtap. This is the only file that includes sys/sdt.h.
 * docs/WATCH.md lists the probes, and monitoring/ has scripts that use them.
 * Always true: no probe is on the path of a call that finds its key. A probe that nobody listens to is one instruction
 * without effect. Without sys/sdt.h (-Dusdt=disabled) the probes do not exist. The arguments are words or C strings. */
#ifndef TWI_BASE_PROBE_H
#define TWI_BASE_PROBE_H

#ifdef TWI_WITH_USDT
#include <sys/sdt.h>
#ifdef __clang__ /* -Wpedantic objects to the expansion of that header's macros */
#pragma clang diagnostic ignored "-Wgnu-zero-variadic-macro-arguments"
#endif
#define TWI_PROBE(name) DTRACE_PROBE(tallywheel, name)
#define TWI_PROBE2(name, a, b) DTRACE_PROBE2(tallywheel, name, a, b)
#define TWI_PROBE3(name, a, b, c) DTRACE_PROBE3(tallywheel, name, a, b, c)
#else
#define TWI_PROBE(name) ((void)0)
#define TWI_PROBE2(name, a, b) ((void)0)
#define TWI_PROBE3(name, a, b, c) ((void)0)
#endif

#endif
