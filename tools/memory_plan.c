/* memory_plan.c -- `tallywheel plan` computes memory by keys, key length and windows. See memory_plan.h. */
#include "tools/memory_plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/common/options.h"
#include "tallywheel.h"
#include "tools/common/tool.h"

#define KEYS_MAX (UINT64_C(1) << 32)
#define WINDOWS_MAX 256
#define MEMORY_GIB_MAX 256 /* of memory_bytes_max */
#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

/* ---- the formula ---- */

/* Records come in six sizes. With Redis a record also has 32 bytes about sent counts; two short ones share a line. */
static uint64_t record_bytes(uint64_t key_bytes, bool redis) {
    static const struct {
        uint64_t bytes, key_local, key_redis;
    } sizes[] = {{64, 32, 32}, {128, 96, 64}, {192, 160, 128}, {256, 224, 192}, {512, 480, 448}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (key_bytes <= (redis ? sizes[i].key_redis : sizes[i].key_local))
            return redis && i == 0 ? sizes[i].bytes + 32 : sizes[i].bytes;
    }
    return 1088;
}

/* A window whose size is known from the previous one lays out records ahead, of up to 256 bytes: a quarter more than
 * keys if the window is small. Chunks of records have heads, and the last one is not full. A leaf of the index is half
 * full at the least, after it has split. */
static uint64_t window_bytes(const struct memory_ask *ask, const struct memory_plan *plan) {
    bool is_small = plan->record <= 256 && ask->keys <= (UINT64_C(1) << 18) / (plan->record / 64);
    uint64_t records = is_small ? ask->keys + ask->keys / 4 : ask->keys;
    uint64_t last_chunk = ask->keys * (plan->record + plan->record / 4 + 120);
    return KIB + records * plan->record + ask->keys * plan->index + ask->keys * plan->record / 50 +
           (last_chunk < 64 * KIB ? last_chunk : 64 * KIB);
}

/* A packed counter has the key, two numbers in as many bytes as they need (the plan assumes counts of up to 2^31), and
 * its part of the directory. */
static uint64_t packed_bytes(const struct memory_ask *ask) {
    return 2 * KIB + ask->keys * (ask->key_bytes + (ask->redis ? 16 : 12)) * 51 / 50;
}

/* Two entries and a name in Redis's allocator (docs/MEMORY.md has the measurement). The family's name and the stamp of
 * the window count as 24 bytes. */
static uint64_t redis_bytes(const struct memory_ask *ask) {
    uint64_t name = ask->key_bytes + 24;
    return ask->keys * (name + 116 + name / 5);
}

/* The memory of replays by default, which is 64 MiB, or an eighth of all. */
static uint64_t replay_bytes(uint64_t others) {
    return others / 7 < 64 * MIB ? others / 7 : 64 * MIB;
}

struct memory_plan memory_plan(const struct memory_ask *ask) {
    struct memory_plan plan = {.record = record_bytes(ask->key_bytes, ask->redis), .index = 40};
    plan.window = window_bytes(ask, &plan);
    plan.packed = packed_bytes(ask);
    /* At a roll-over the next window is there already, and the one that has ended is being packed. */
    plan.most = plan.window * (ask->open + 1) + plan.packed * (ask->closed + 1);
    plan.memory_bytes = plan.most + plan.most / 4;
    if (ask->redis) plan.memory_bytes += replay_bytes(plan.memory_bytes);
    if (plan.memory_bytes < MIB) plan.memory_bytes = MIB;
    plan.redis_a_window = ask->redis ? redis_bytes(ask) : 0;
    return plan;
}

/* ---- the command ---- */

static const char help[] =
    "Usage: tallywheel plan --keys N [--key-bytes N] [--windows N] [--open N] [--redis]\n"
    "Prints how much memory a family of counters needs at most. docs/MEMORY.md has the formula.\n"
    "\n"
    "  --keys N       keys in one window; a number may end in K, M or G (1000, 1000000, ...)\n"
    "  --key-bytes N  bytes of a key, 1 to 1024 (default 32); of keys that differ in length the longest class counts\n"
    "  --windows N    closed windows that stay readable: history_ms / window (default 1; 0: none)\n"
    "  --open N       windows that take counts at once: 1 and lateness_ms / window (default 1)\n"
    "  --redis        the family is merged into Redis\n"
    "  --help\n"
    "\n"
    "Exit status: 0 done; 2 wrong usage.\n";

static const struct option_rule rules[] = {
    OPTION_NUMBER("keys", struct memory_ask, keys, 1, KEYS_MAX, NULL),
    OPTION_NUMBER("key-bytes", struct memory_ask, key_bytes, 1, TW_KEY_SIZE_MAX, NULL),
    OPTION_NUMBER("windows", struct memory_ask, closed, 0, WINDOWS_MAX, NULL),
    OPTION_NUMBER("open", struct memory_ask, open, 1, WINDOWS_MAX, NULL),
    OPTION_FLAG("redis", struct memory_ask, redis),
    OPTIONS_END};

/* Returns -1 to continue, otherwise the exit status. */
static int memory_read_options(int argc, char **argv, struct memory_ask *ask) {
    int status = options_read(argc, argv, rules, help, NULL, ask);
    if (status >= 0) return status;
    if (optind < argc) {
        tool_complain("'%s' is no option; 'tallywheel plan --help' lists them", argv[optind]);
        return EXIT_USAGE;
    }
    if (ask->keys > 0) return -1;
    tool_complain("--keys is wanted: how many keys a window has");
    return EXIT_USAGE;
}

static void print_row(const char *what, uint64_t bytes, const char *why) {
    printf("%-28s %10.1f MiB%s%s\n", what, (double)bytes / (double)MIB, why[0] != 0 ? "  " : "", why);
}

static void print_plan(const struct memory_ask *ask, const struct memory_plan *plan) {
    char text[120];
    snprintf(text, sizeof text, "%" PRIu64 " keys of %" PRIu64 " bytes: a record of %" PRIu64 ", an index of %" PRIu64,
             ask->keys, ask->key_bytes, plan->record, plan->index);
    print_row("a window that takes counts", plan->window, text);
    print_row("a window of history, packed", plan->packed, "");
    snprintf(text, sizeof text, "at a roll-over: %" PRIu64 " that take counts, %" PRIu64 " packed", ask->open + 1,
             ask->closed + 1);
    print_row("at most", plan->most, text);
    snprintf(text, sizeof text, "more than an engine may have (%d GiB): use several, or count fewer keys",
             MEMORY_GIB_MAX);
    if (plan->memory_bytes <= MEMORY_GIB_MAX * KIB * MIB)
        snprintf(text, sizeof text, "with a quarter to spare%s", ask->redis ? ", and room for replays" : "");
    print_row("memory_bytes_max", plan->memory_bytes, text);
    if (ask->redis) print_row("in Redis, a window", plan->redis_a_window, "until retention_ms after its end");
}

int plan_main(int argc, char **argv) {
    struct memory_ask ask = {.key_bytes = 32, .open = 1, .closed = 1};
    int status = memory_read_options(argc, argv, &ask);
    if (status >= 0) return status;
    struct memory_plan plan = memory_plan(&ask);
    print_plan(&ask, &plan);
    if (ferror(stdout) == 0 && fflush(stdout) == 0) return EXIT_DONE;
    tool_complain("cannot write the output");
    return EXIT_TROUBLE;
}
