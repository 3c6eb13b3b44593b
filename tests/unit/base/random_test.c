/* random_test.c -- unpredictable bytes when the system refuses them, in a sandbox that is entered late.
 * Method: children under a filter (seccomp) that refuses getrandom(). */
#include "engine/base/random.h"
#include "tests/support/children.h"
#include "tests/support/support.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 1000
#define FORKS 8

struct drawn {
    bool is_without; /* no seccomp here */
    bool fails_without_key, draws_again;
    uint64_t words[FORKS][WORDS];
};

static int compare(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void draw_all(struct twi_random_key *key, uint64_t *words) {
    for (int i = 0; i < WORDS; i++)
        if (!twi_random_bytes_or(key, 1, &words[i], sizeof words[i])) _exit(2);
}

static void draw_in_sandbox(struct drawn *drawn) {
    struct twi_random_key key = {.is_drawn = false}, none = {.is_drawn = false};
    uint64_t word;
    if (!twi_random_key_draw(&key)) _exit(3);
    drawn->is_without = !test_answer_call(SYS_getrandom, SECCOMP_RET_ERRNO | EPERM);
    if (drawn->is_without) _exit(0);
    drawn->fails_without_key = !twi_random_bytes_or(&none, 1, &word, sizeof word);
    drawn->draws_again = twi_random_key_draw(&key) || !key.is_drawn;
    for (int i = 1; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            draw_all(&key, drawn->words[i]);
            _exit(0);
        }
        if (pid < 0) _exit(4);
    }
    draw_all(&key, drawn->words[0]);
    for (int status; wait(&status) > 0;)
        if (status != 0) _exit(5);
    _exit(0);
}

/* Goal: where the system gave bytes once, it is not needed any more, and no process repeats another's. Method: a key of
 * before; the process and its children, all of them at one moment, draw many words. Without a key there are none. */
TEST(a_key_of_before_serves_when_the_system_refuses) {
    if (test_misses_wiped_pages()) return;
    struct drawn *drawn = children_pages(sizeof *drawn);
    pid_t pid = child_fork(30);
    if (pid == 0) draw_in_sandbox(drawn);
    child_expect_end(pid);
    if (drawn->is_without) {
        test_leave_out("the kernel has no seccomp: run it on one that has CONFIG_SECCOMP_FILTER");
    } else {
        assert_true(drawn->fails_without_key);
        assert_false(drawn->draws_again);
        uint64_t *all = &drawn->words[0][0];
        size_t count = (size_t)FORKS * WORDS;
        int64_t ones = 0;
        for (size_t i = 0; i < count; i++) ones += __builtin_popcountll(all[i]);
        assert_true(ones > (int64_t)count * 31 && ones < (int64_t)count * 33); /* 32 of 64 bits, by 8,000 words */
        qsort(all, count, sizeof *all, compare);
        for (size_t i = 1; i < count; i++) assert_true(all[i] != all[i - 1]);
    }
    munmap(drawn, sizeof *drawn);
}

int main(void) {
    return test_run();
}
