/* machine.c -- see machine.h.
 * The kernel names a cgroup as this process sees it. In a container whose names are the host's, that folder is not
 * there, and the limit of the container is at the top of what is mounted. So each level is read that exists. */
#include "engine/core/machine.h"

#include "engine/port/services.h"
#include "engine/core/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define FILE_MAX 4096 /* /proc/self/cgroup has some 15 lines at most. What lies beyond is not read */
#define PATH_MAX_HERE 1024

/* Huge pages help a table that neither the processor's cache nor its cache of page addresses holds. */
#define HUGE_FROM_BYTES (UINT64_C(64) << 20)
#define HUGE "/sys/kernel/mm/transparent_hugepage"
#define CLOCK "/sys/devices/system/clocksource/clocksource0"

/* Reads the beginning of a file as a text. Returns false if there is none. A pipe in its place makes nobody wait. */
static bool read_text(char *text, size_t size, const char *root, const char *folder, const char *name) {
    char path[PATH_MAX_HERE];
    int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    if (length < 0 || (size_t)length >= sizeof path) return false;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0) return false;
    size_t used = 0;
    ssize_t got = 1;
    while (got > 0 && used < size - 1) {
        got = read(file, text + used, size - 1 - used);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            used += (size_t)got;
    }
    close(file);
    text[used] = '\0';
    return used != 0;
}

/* Returns a number of bytes that is all of a file. "max", and what is no number, is no limit. */
static uint64_t bytes_of(const char *text) {
    uint64_t bytes = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || (text[digits] != '\0' && text[digits] != '\n')) return UINT64_MAX;
    for (size_t i = 0; i < digits; i++)
        if (__builtin_mul_overflow(bytes, 10u, &bytes) ||
            __builtin_add_overflow(bytes, (unsigned)(text[i] - '0'), &bytes))
            return UINT64_MAX;
    return bytes;
}

/* ---- the cgroup ---- */

/* Reads the limit of `folder`, and of each above it down to the first `top` bytes. */
static void read_levels(struct twi_machine *machine, const char *root, char *folder, size_t top, const char *file) {
    char text[64];
    for (;;) {
        uint64_t bytes = read_text(text, sizeof text, root, folder, file) ? bytes_of(text) : UINT64_MAX;
        if (bytes < machine->cgroup_bytes) {
            size_t length = strlen(folder), room = sizeof machine->cgroup - strlen(file) - 2;
            machine->cgroup_bytes = bytes;
            (void)snprintf(machine->cgroup, sizeof machine->cgroup, "%.*s/%s", (int)room,
                           folder + (length > room ? length - room : 0), file);
        }
        if (folder[top] == '\0') return;
        *strrchr(folder + top, '/') = '\0';
    }
}

/* Returns whether "memory" is one of the words between the colons of "4:memory,cpu:/path". */
static bool has_memory(const char *words, size_t size) {
    static const char memory[] = "memory";
    for (const char *word = words, *end = words + size; word < end;) {
        const char *comma = memchr(word, ',', (size_t)(end - word));
        size_t length = (size_t)((comma != NULL ? comma : end) - word);
        if (length == sizeof memory - 1 && memcmp(word, memory, length) == 0) return true;
        word += length + 1;
    }
    return false;
}

/* A line of /proc/self/cgroup: "0::/path" of version 2, "4:memory:/path" of version 1. */
static void read_cgroup_line(struct twi_machine *machine, const char *root, const char *line) {
    char folder[PATH_MAX_HERE];
    const char *words = strchr(line, ':'), *path = words != NULL ? strchr(words + 1, ':') : NULL;
    if (path == NULL || path[1] != '/') return;
    bool is_second = path == words + 1;
    if (!is_second && !has_memory(words + 1, (size_t)(path - words - 1))) return;
    const char *top = is_second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    path++;
    if (path[1] == '\0' || strstr(path, "/..") != NULL) path = ""; /* outside of what this process may see */
    int length = snprintf(folder, sizeof folder, "%s%s", top, path);
    if (length < 0 || (size_t)length >= sizeof folder) folder[strlen(top)] = '\0';
    read_levels(machine, root, folder, strlen(top), is_second ? "memory.max" : "memory.limit_in_bytes");
}

static void read_cgroup(struct twi_machine *machine, const char *root) {
    char text[FILE_MAX];
    if (!read_text(text, sizeof text, root, "/proc/self", "cgroup")) return;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        read_cgroup_line(machine, root, line);
    }
}

/* ---- the rest ---- */

/* Returns whether the word in brackets is this one, as in "always advise [never]". */
static bool is_chosen(const char *text, const char *word) {
    const char *bracket = strchr(text, '[');
    size_t length = strlen(word);
    return bracket != NULL && strncmp(bracket + 1, word, length) == 0 && bracket[1 + length] == ']';
}

/* Newer kernels have a setting for each size of pages, which usually says that it inherits the older one. */
static bool has_no_huge_pages(const char *root) {
    char text[256];
    if (!read_text(text, sizeof text, root, HUGE "/hugepages-2048kB", "shmem_enabled") || is_chosen(text, "inherit"))
        if (!read_text(text, sizeof text, root, HUGE, "shmem_enabled")) return false;
    return is_chosen(text, "never") || is_chosen(text, "deny");
}

static void read_clock_source(struct twi_machine *machine, const char *root) {
    static const char *const slow[] = {"hpet",    "acpi_pm",         "pit",
                                       "jiffies", "refined-jiffies", "hyperv_clocksource_msr"};
    char text[TWI_MACHINE_NAME_MAX] = "";
    if (!read_text(text, sizeof text, root, CLOCK, "current_clocksource")) return;
    text[strcspn(text, "\n")] = '\0';
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
        if (strcmp(text, slow[i]) == 0) memcpy(machine->clock_source, text, sizeof text);
}

void twi_machine_read(struct twi_machine *machine, const char *root) {
    struct rlimit limit;
    *machine = (struct twi_machine){.cgroup_bytes = UINT64_MAX, .address_bytes = UINT64_MAX};
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) machine->address_bytes = limit.rlim_cur;
    read_cgroup(machine, root);
    machine->has_no_huge_pages = has_no_huge_pages(root);
    read_clock_source(machine, root);
}

/* ---- the lines ---- */

enum line { LINE_CGROUP = 1, LINE_ADDRESSES = 2, LINE_HUGE = 4, LINE_CLOCK = 8 };

/* Each line once in a process: which have been written. A forked child has written what its parent has. */
static _Atomic uint32_t written;

static bool is_first(enum line line) {
    return (twi_or_relaxed(&written, (uint32_t)line) & (uint32_t)line) == 0;
}

void twi_machine_report(tw_engine *engine, const char *root) {
    struct twi_machine machine;
    unsigned long long bytes = engine->options.memory_bytes_max;
    if (engine->options.log_write == NULL) return;
    twi_machine_read(&machine, root);
    if (bytes > machine.cgroup_bytes && is_first(LINE_CGROUP))
        twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_START,
                     "memory_bytes_max is %llu, and %s allows %llu: lower the one or raise the other, or the kernel "
                     "ends the process before the table is full",
                     bytes, machine.cgroup, (unsigned long long)machine.cgroup_bytes);
    if (bytes > machine.address_bytes && is_first(LINE_ADDRESSES))
        twi_port_log(
            engine, TW_LOG_WARNING, TW_EVENT_START,
            "memory_bytes_max is %llu, and RLIMIT_AS allows the process %llu: lower the one or raise the other "
            "(ulimit -v, LimitAS= of systemd)",
            bytes, (unsigned long long)machine.address_bytes);
    if (engine->life.is_shared && bytes >= HUGE_FROM_BYTES && machine.has_no_huge_pages && is_first(LINE_HUGE))
        twi_port_log(engine, TW_LOG_INFO, TW_EVENT_START,
                     "shared memory gets no huge pages, so a large table is slower: echo advise "
                     ">/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    if (machine.clock_source[0] != '\0' && is_first(LINE_CLOCK))
        twi_port_log(engine, TW_LOG_INFO, TW_EVENT_START,
                     "the clock source is %s, so each look at the clock asks a slow device: choose one of "
                     "available_clocksource in /sys/devices/system/clocksource/clocksource0",
                     machine.clock_source);
}
