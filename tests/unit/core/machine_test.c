/* machine_test.c -- what an engine finds about the machine where it runs, and what it says of that.
 * Method: trees of our own in place of /proc and /sys, with all that may be in such files. One test reads those of this
 * machine, and one has a real limit on addresses.
 * Covers: engine/core/machine.c. */
#include "tests/support/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/core/machine.h"
#include "engine/port/driver.h"
#include "tallywheel.h"

#define HUGE "/sys/kernel/mm/transparent_hugepage"
#define CLOCK "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#define MIB(n) (UINT64_C(n) << 20)

static char root[] = "/tmp/tw-machine-XXXXXX";
static char said[8192];

static void take(void *ctx, int level, int event, const char *text) {
    size_t used = strlen(said);
    (void)ctx;
    if (event == TW_EVENT_START) snprintf(said + used, sizeof said - used, "%d %s\n", level, text);
}

/* ---- a tree ---- */

static int begin_tree(void **state) {
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) == NULL;
}

static int end_tree(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

/* The path in the tree; the folders above it are made. */
static const char *path_of(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    return path;
}

static void put_bytes(const char *name, const void *bytes, size_t size) {
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void put(const char *name, const char *text) {
    put_bytes(name, text, strlen(text));
}

static struct twi_machine read_tree(void) {
    struct twi_machine machine;
    twi_machine_read(&machine, root);
    return machine;
}

/* ---- the cgroup ---- */

/* Goal: version 2. The least limit of the process's cgroup and of those above it counts. */
TEST_WITH(the_least_limit_of_all_levels_counts, begin_tree, end_tree, NULL) {
    put("/proc/self/cgroup", "0::/a.slice/b/c\n");
    put("/sys/fs/cgroup/a.slice/b/c/memory.max", "max\n");
    put("/sys/fs/cgroup/a.slice/b/memory.max", "3000000\n");
    put("/sys/fs/cgroup/a.slice/memory.max", "2000000\n");
    struct twi_machine machine = read_tree();
    assert_int_equal(machine.cgroup_bytes, 2000000);
    assert_string_equal(machine.cgroup, "/sys/fs/cgroup/a.slice/memory.max");
    put("/sys/fs/cgroup/a.slice/b/c/memory.max", "0\n");
    assert_int_equal(read_tree().cgroup_bytes, 0);
    unlink(path_of("/sys/fs/cgroup/a.slice/b/c/memory.max"));
    put("/sys/fs/cgroup/memory.max", "1000\n"); /* a container, whose top is mounted here */
    assert_int_equal(read_tree().cgroup_bytes, 1000);
}

/* Goal: version 1, alone and beside version 2, with several controllers in one hierarchy. */
TEST_WITH(version_1_is_read_too, begin_tree, end_tree, NULL) {
    put("/proc/self/cgroup", "9:name=systemd:/x\n7:cpu,memory:/docker/12\n6:memory_not:/odd\n0::/\n");
    put("/sys/fs/cgroup/memory/odd/memory.limit_in_bytes", "1\n");
    put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    assert_int_equal(read_tree().cgroup_bytes, UINT64_C(9223372036854771712));
    put("/sys/fs/cgroup/memory/docker/12/memory.limit_in_bytes", "5000\n");
    struct twi_machine machine = read_tree();
    assert_int_equal(machine.cgroup_bytes, 5000);
    assert_string_equal(machine.cgroup, "/sys/fs/cgroup/memory/docker/12/memory.limit_in_bytes");
    put("/proc/self/cgroup", "0::/\n4:memory:/none/of/these\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "77");
    assert_int_equal(read_tree().cgroup_bytes, 77);
}

/* Goal: what is odd is no limit, and what is beside it is still read. */
TEST_WITH(odd_files_are_no_limits, begin_tree, end_tree, NULL) {
    static const char *const odd[] = {
        "",
        "\n",
        "max",
        "-1\n",
        "12k\n",
        " 12\n",
        "12 \n",
        "0x10\n",
        "18446744073709551616\n",
        "99999999999999999999999999\n",
        "1e3\n",
        "\xff\xfe\n",
        "123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890",
    };
    static char longest[1 << 16];
    put("/proc/self/cgroup", "0::/a\n");
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        put("/sys/fs/cgroup/a/memory.max", odd[i]);
        if (read_tree().cgroup_bytes != UINT64_MAX) fail_msg("\"%s\" was taken for a limit", odd[i]);
    }
    put("/sys/fs/cgroup/a/memory.max", "18446744073709551614");
    assert_true(read_tree().cgroup_bytes == UINT64_MAX - 1);
    put("/sys/fs/cgroup/a/memory.max", "12\n");
    static const char *const lines[] = {"", "\n", "0", "0:", "0::", "0::\n", "0::a\n", ":::\n", "0::/a/../../b\n", "x"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        put("/proc/self/cgroup", lines[i]);
        if (read_tree().cgroup_bytes != UINT64_MAX) fail_msg("\"%s\" was taken for a cgroup", lines[i]);
    }
    memset(longest, 'l', sizeof longest); /* a line without an end, and a path that no file can have */
    memcpy(longest, "0::/", 4);
    put_bytes("/proc/self/cgroup", longest, sizeof longest);
    assert_true(read_tree().cgroup_bytes == UINT64_MAX);
    put("/sys/fs/cgroup/memory.max", "34\n");
    longest[2000] = '\n';
    put_bytes("/proc/self/cgroup", longest, sizeof longest);
    assert_int_equal(read_tree().cgroup_bytes, 34); /* of the top */
    put_bytes("/proc/self/cgroup",
              "\0"
              "0::/a\n",
              7);
    assert_true(read_tree().cgroup_bytes == UINT64_MAX);
}

/* Goal: a name of a cgroup that is longer than a line of the log keeps its end. */
TEST_WITH(a_long_name_keeps_its_end, begin_tree, end_tree, NULL) {
    char text[700] = "0::", file[800];
    for (int level = 0; level < 3; level++) snprintf(text + strlen(text), 202, "/%0200d", level);
    snprintf(file, sizeof file, "/sys/fs/cgroup%s/memory.max", text + 3);
    put(file, "55\n");
    strcat(text, "\n");
    put("/proc/self/cgroup", text);
    struct twi_machine machine = read_tree();
    assert_int_equal(machine.cgroup_bytes, 55);
    assert_int_equal(strlen(machine.cgroup), TWI_MACHINE_NAME_MAX - 1);
    assert_non_null(strstr(machine.cgroup, "02/memory.max"));
}

/* ---- huge pages, the clock ---- */

/* Goal: the word in brackets decides; of newer kernels, that of the size of pages, unless it inherits. */
TEST_WITH(the_word_in_brackets_decides, begin_tree, end_tree, NULL) {
    assert_false(read_tree().has_no_huge_pages);
    put(HUGE "/shmem_enabled", "always within_size advise [never] deny force\n");
    assert_true(read_tree().has_no_huge_pages);
    put(HUGE "/shmem_enabled", "always within_size advise never [deny] force");
    assert_true(read_tree().has_no_huge_pages);
    put(HUGE "/hugepages-2048kB/shmem_enabled", "always [inherit] within_size advise never\n");
    assert_true(read_tree().has_no_huge_pages);
    put(HUGE "/hugepages-2048kB/shmem_enabled", "always inherit within_size [advise] never\n");
    assert_false(read_tree().has_no_huge_pages);
    unlink(path_of(HUGE "/hugepages-2048kB/shmem_enabled"));
    static const char *const other[] = {
        "always [advise] never\n", "never\n", "[never", "[nevermore]", "[", "[]", "never]"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        put(HUGE "/shmem_enabled", other[i]);
        if (read_tree().has_no_huge_pages) fail_msg("\"%s\" was taken for never", other[i]);
    }
}

/* Goal: only sources that are known to be slow are named. */
TEST_WITH(only_slow_clocks_are_named, begin_tree, end_tree, NULL) {
    static const char *const slow[] = {"hpet", "acpi_pm\n", "hyperv_clocksource_msr\n", "jiffies\n"};
    static const char *const other[] = {"tsc\n", "kvm-clock\n", "arch_sys_counter\n", "hpet2\n", "", "\n", "hp"};
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        put(CLOCK, slow[i]);
        assert_memory_equal(read_tree().clock_source, slow[i], strcspn(slow[i], "\n"));
        assert_int_equal(strlen(read_tree().clock_source), strcspn(slow[i], "\n"));
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        put(CLOCK, other[i]);
        assert_string_equal(read_tree().clock_source, "");
    }
}

/* Goal: a folder, a pipe without a writer and a link to itself in place of a file make nobody wait, and say nothing. */
TEST_WITH(no_file_is_waited_for, begin_tree, end_tree, NULL) {
    static const char *const files[] = {"/proc/self/cgroup", HUGE "/shmem_enabled", CLOCK};
    for (size_t i = 0; i < 3; i++) {
        if (i == 0) assert_int_equal(mkfifo(path_of(files[i]), 0600), 0);
        if (i == 1) assert_int_equal(mkdir(path_of(files[i]), 0700), 0);
        if (i == 2) assert_int_equal(symlink("current_clocksource", path_of(files[i])), 0);
    }
    struct twi_machine machine = read_tree();
    assert_true(machine.cgroup_bytes == UINT64_MAX && !machine.has_no_huge_pages && machine.clock_source[0] == '\0');
}

/* ---- the lines ---- */

static void open_and_close(uint64_t bytes, bool is_shared) {
    tw_options options;
    tw_engine *engine;
    tw_options_init(&options);
    options.log_write = take;
    options.memory_bytes_max = bytes;
    options.threads = TW_HOST_DRIVEN;
    if (is_shared) options.shared = TW_SHARED_BY_FORK;
    said[0] = '\0';
    assert_status(twi_open_with(&options, &(struct twi_replacements){.root = root}, &engine), TW_OK);
    assert_status(tw_close(engine, 0), TW_OK);
}

/* Goal: each line has the remedy, comes when it is true, and once in a process. */
TEST_WITH(each_line_comes_once, begin_tree, end_tree, NULL) {
    if (test_misses_robust_lists()) return; /* the log says so, too */
    put("/proc/self/cgroup", "0::/web\n");
    put("/sys/fs/cgroup/web/memory.max", "67108864\n");
    put(HUGE "/shmem_enabled", "always within_size advise [never] deny force\n");
    put(CLOCK, "tsc\n");
    open_and_close(MIB(64), false); /* not above the limit, and not shared */
    assert_string_equal(said, "");
    open_and_close(MIB(32), true); /* not large */
    assert_string_equal(said, "");
    open_and_close(MIB(64), true);
    assert_string_equal(said, "2 shared memory gets no huge pages, so a large table is slower: echo advise "
                              ">/sys/kernel/mm/transparent_hugepage/shmem_enabled [TW-E016]\n");
    put(CLOCK, "hpet\n");
    open_and_close(MIB(65), true);
    assert_string_equal(
        said, "1 memory_bytes_max is 68157440, and /sys/fs/cgroup/web/memory.max allows 67108864: lower the one or "
              "raise the other, or the kernel ends the process before the table is full [TW-E016: change the setting "
              "that the line names]\n"
              "2 the clock source is hpet, so each look at the clock asks a slow device: choose one of "
              "available_clocksource in /sys/devices/system/clocksource/clocksource0 [TW-E016]\n");
    open_and_close(MIB(65), true);
    assert_string_equal(said, "");
}

/* ---- this machine ---- */

/* Goal: a process whose addresses are limited is told so, whether the engine has room or not. */
TEST_WITH(a_real_limit_on_addresses, begin_tree, end_tree, NULL) {
    int ends[2];
    char heard[4096];
    if (test_is_slow()) {
        test_leave_out("a sanitizer reserves all addresses for itself: a build without one runs this");
        return;
    }
    if (test_misses_robust_lists()) return;
    assert_int_equal(pipe(ends), 0);
    pid_t child = test_fork();
    if (child == 0) {
        tw_options options;
        tw_engine *engine;
        const struct rlimit limit = {.rlim_cur = MIB(512), .rlim_max = MIB(512)};
        tw_options_init(&options);
        options.log_write = take;
        options.memory_bytes_max = MIB(1024);
        options.threads = TW_HOST_DRIVEN;
        said[0] = '\0';
        tw_status status = setrlimit(RLIMIT_AS, &limit) == 0
                               ? twi_open_with(&options, &(struct twi_replacements){.root = root}, &engine)
                               : TW_OK;
        dprintf(ends[1], "%d %s\n%s", (int)status, tw_error_text(), said);
        _exit(0);
    }
    assert_int_equal(test_hear_child(child, ends, heard, sizeof heard), 0);
    char wanted[600];
    snprintf(wanted, sizeof wanted,
             "%d memory_bytes_max: not so much address space (ulimit -v, ulimit -d)\n"
             "1 memory_bytes_max is 1073741824, and RLIMIT_AS allows the process 536870912: lower the one or raise the "
             "other (ulimit -v, LimitAS= of systemd) [TW-E016: change the setting that the line names]\n",
             (int)TW_ERR_MEMORY);
    assert_string_equal(heard, wanted);
}

/* Goal: on this machine the limit is that of a file that has it. */
TEST_WITH(the_cgroup_of_this_process, begin_tree, end_tree, NULL) {
    struct twi_machine machine;
    char text[64] = "";
    twi_machine_read(&machine, "");
    if (machine.cgroup_bytes == UINT64_MAX) {
        test_leave_out("this process has no cgroup with a limit on memory: systemd-run --scope -p MemoryMax=1G TEST");
        return;
    }
    FILE *file = fopen(machine.cgroup, "r");
    if (file == NULL && strlen(machine.cgroup) == TWI_MACHINE_NAME_MAX - 1) return; /* its beginning was cut */
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_true(strtoull(text, NULL, 10) == machine.cgroup_bytes);
}

int main(void) {
    return test_run();
}
