/* unwiped.c -- a kernel that answers "done" to MADV_WIPEONFORK and does nothing, as qemu-user.
 * Goal: a forked child does not continue with the parent's counts, threads and limits. Method: this program enters a
 * filter (seccomp) that answers every madvise() with success, before its first call of the library; then parent and
 * child count, and fork again.
 * Covers: engine/base/random.c. */
#include "tests/support/children.h"
#include "tests/support/support.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEPTH 3

static tw_engine *engine;
static tw_family *family;

static int64_t count_of_k(void) {
    int64_t view = INT64_MIN;
    return tw_get(family, tw_str("k"), &view) == TW_OK ? view : INT64_MIN;
}

/* Counts, and forks a child that does the same. Returns a line number if something is wrong, or 0. */
static int live(int depth) {
    if (count_of_k() != 0) return __LINE__;
    for (int i = 0; i < 5 + depth; i++)
        if (tw_add(family, tw_str("k"), 1, NULL) != TW_OK) return __LINE__;
    if (depth < DEPTH) {
        int status;
        pid_t child = fork();
        if (child == 0) _exit(live(depth + 1) == 0 ? 0 : 1);
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return __LINE__;
    }
    return count_of_k() == 5 + depth ? 0 : __LINE__; /* the child has changed nothing here */
}

static int live_without_wiped_pages(bool has_threads) {
    tw_options options;
    tw_family_options family_options;
    tw_options_init(&options);
    options.threads = has_threads ? TW_OWN_THREAD : TW_HOST_DRIVEN;
    options.memory_bytes_max = UINT64_C(16) << 20;
    if (tw_open(&options, &engine) != TW_OK) return __LINE__;
    tw_family_options_init(&family_options);
    family_options.name = "f";
    family_options.window = TW_WINDOW_FOREVER;
    if (tw_family_open(engine, &family_options, &family) != TW_OK) return __LINE__;
    int line = live(0);
    return line != 0 ? line : tw_close(engine, 1000) == TW_OK ? 0 : __LINE__;
}

TEST(a_child_begins_anew_where_no_page_is_wiped) {
    int *lines = children_pages(2 * sizeof *lines);
    bool is_without = false;
    for (int has_threads = 0; has_threads < 2; has_threads++) {
        pid_t child = child_fork(60);
        if (child == 0) { /* errno 0 is success */
            lines[has_threads] = test_answer_call(SYS_madvise, SECCOMP_RET_ERRNO) ? 0 : -1;
            if (lines[has_threads] == 0) lines[has_threads] = live_without_wiped_pages(has_threads != 0);
            _exit(0);
        }
        child_expect_end(child);
        is_without = is_without || lines[has_threads] == -1;
        if (!is_without) assert_int_equal(lines[has_threads], 0);
    }
    munmap(lines, 2 * sizeof *lines);
    if (is_without) test_leave_out("the kernel has no seccomp: run it on one that has CONFIG_SECCOMP_FILTER");
}

int main(void) {
    test_skip_unshared();
    return test_run();
}
