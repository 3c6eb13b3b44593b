/* support_test.c -- the tests' own tools keep their word: seeds repeat a run, the fake clock moves as told. */
#include "tests/support/support.h"

#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Goal: one seed, one run. Method: two generators of one seed side by side, and one of another. */
TEST(one_seed_gives_one_sequence) {
    struct test_prng first, second, other;
    test_prng_seed(&first, 7);
    test_prng_seed(&second, 7);
    test_prng_seed(&other, 8);
    size_t same = 0;
    for (size_t index = 0; index < 1000; index++) {
        uint64_t drawn = test_prng_next(&first);
        assert_true(drawn == test_prng_next(&second));
        same += drawn == test_prng_next(&other);
    }
    assert_true(same == 0);
}

TEST(ranges_include_both_ends) {
    struct test_prng prng;
    test_prng_seed(&prng, test_seed());
    bool low = false, high = false;
    for (size_t index = 0; index < 10000; index++) {
        int64_t drawn = test_prng_between(&prng, -3, 3);
        assert_in_range(drawn + 3, 0, 6);
        low |= drawn == -3;
        high |= drawn == 3;
    }
    assert_true(low && high);
    test_prng_between(&prng, INT64_MIN, INT64_MAX); /* the span that does not fit in 64 bits */
}

static void find_self(char *path, size_t room) {
    ssize_t size = readlink("/proc/self/exe", path, room - 1);
    assert_true(size > 0);
    path[size] = '\0';
}

/* Goal: a child repeats no line of its parent, also if nobody called fflush() before the fork.
 * Method: this program runs itself; its output is a pipe. */
TEST(a_child_prints_no_line_of_its_parent) {
    if (test_is_emulated()) {
        test_leave_out("an emulator starts no second program of its kind: run it on an ARM64 machine");
        return;
    }
    char self[512], command[560], said[256] = "";
    find_self(self, sizeof self);
    snprintf(command, sizeof command, "'%s' lines", self);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t size = fread(said, 1, sizeof said - 1, pipe);
    assert_int_equal(pclose(pipe), 0);
    said[size] = '\0';
    assert_string_equal(said, "of the parent\nof the child\n");
}

static void seed_printed_by(const char *program, const char *round, char *line, size_t size) {
    char command[640];
    snprintf(command, sizeof command, "env -u TW_SEED TW_SEED_ROUND=%s '%s' seed", round, program);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(line, (int)size, pipe));
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(strncmp(line, "# seed 0x", 9), 0);
}

/* Goal: the seed of a round is the same in every run of a program, and another one in another program or round.
 * Method: this program runs itself, also under another name, and prints its seed. */
TEST(a_round_gives_each_program_one_seed) {
    if (test_is_emulated()) {
        test_leave_out("an emulator starts no second program of its kind: run it on an ARM64 machine");
        return;
    }
    char link[64], first[64], again[64], next[64], renamed[64];
    snprintf(link, sizeof link, "/tmp/tallywheel-seed-%d", (int)getpid());
    char self[512];
    find_self(self, sizeof self);
    assert_int_equal(symlink(self, link), 0);
    seed_printed_by(self, "1", first, sizeof first);
    seed_printed_by(self, "1", again, sizeof again);
    seed_printed_by(self, "2", next, sizeof next);
    seed_printed_by(link, "1", renamed, sizeof renamed);
    (void)remove(link);
    assert_string_equal(first, again);
    assert_string_not_equal(first, next);
    assert_string_not_equal(first, renamed);
}

/* Goal: TW_SEED alone decides; without it the seeds that once failed come first. */
TEST(seeds_that_failed_run_first_and_a_given_one_alone) {
    char folder[] = "/tmp/tallywheel-seeds-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/seeds", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/seeds/sample.txt", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("# what it found\n0x51c3 # a lost delta\n\n12\n", file);
    fclose(file);
    char *given = getenv("TW_SEED") != NULL ? strdup(getenv("TW_SEED")) : NULL;
    unsetenv("TW_SEED");
    setenv("TW_TESTS", folder, 1);
    uint64_t seeds[8];
    assert_int_equal(test_seeds("sample", 3, seeds, 8), 5);
    assert_true(seeds[0] == 0x51c3 && seeds[1] == 12);
    assert_int_equal(test_seeds("sample", 30, seeds, 4), 4);
    assert_int_equal(test_seeds("another", 3, seeds, 8), 3);
    setenv("TW_SEED", "0x99", 1);
    assert_int_equal(test_seeds("sample", 3, seeds, 8), 1);
    assert_true(seeds[0] == 0x99);
    unsetenv("TW_SEED");
    unsetenv("TW_TESTS");
    if (given != NULL) setenv("TW_SEED", given, 1);
    free(given);
    remove(path);
    *strrchr(path, '/') = '\0';
    remove(path);
    remove(folder);
}

enum end { BY_TRAP, BY_ABORT, BY_ALARM, BY_EXIT, IN_TIME };

static void end_somehow(enum end end) {
    test_seed_begins("sample", 0x51c3);
    switch (end) {
    case BY_TRAP: __builtin_trap();
    case BY_ABORT: abort();
    case BY_ALARM: raise(SIGALRM); break;
    case BY_EXIT: exit(1); /* what an assertion comes to */
    case IN_TIME: test_seed_ends(); exit(0);
    }
}

/* What a process that ends like that has said. */
static void last_words(enum end end, char *said, size_t size) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGILL, SIG_DFL); /* cmocka's would continue with its next test */
        dup2(ends[1], STDOUT_FILENO);
        end_somehow(end);
        _exit(9); /* not reached */
    }
    int status = test_hear_child(child, ends, said, size);
    assert_true(end == IN_TIME ? status == 0 : end == BY_EXIT ? WEXITSTATUS(status) == 1 : WIFSIGNALED(status));
}

/* Goal: the log names the seed, once, however its run ends; and not that of one that went well. */
TEST(the_seed_of_a_run_that_dies_is_named) {
    if (test_is_emulated()) {
        test_leave_out("an emulator starts no second program of its kind: run it on an ARM64 machine");
        return;
    }
    static char said[1 << 16];
    for (enum end end = BY_TRAP; end <= BY_EXIT; end++) {
        last_words(end, said, sizeof said);
        const char *line = strstr(said, "TW_SEED=0x51c3");
        assert_non_null(line);
        assert_null(strstr(line + 1, "TW_SEED="));
    }
    last_words(IN_TIME, said, sizeof said);
    assert_null(strstr(said, "TW_SEED="));
}

TEST(a_step_of_the_wall_clock_leaves_the_monotonic_one_alone) {
    struct fake_clock clock;
    fake_clock_init(&clock, 1700000000000);
    int64_t mono_ns = fake_clock_now_ns(&clock, TW_CLOCK_MONOTONIC);
    fake_clock_step_wall_ms(&clock, -3600000);
    assert_i64_equal(fake_clock_wall_ms(&clock), 1700000000000 - 3600000);
    assert_i64_equal(fake_clock_now_ns(&clock, TW_CLOCK_MONOTONIC), mono_ns);
    fake_clock_advance_ms(&clock, 250);
    assert_i64_equal(fake_clock_now_ns(&clock, TW_CLOCK_WALL), (1700000000000 - 3600000 + 250) * 1000000);
    assert_i64_equal(fake_clock_now_ns(&clock, TW_CLOCK_MONOTONIC), mono_ns + 250000000);
}

/* Goal: from fake_clock_go() on, both clocks go as the system's does, and can be moved all the same. */
TEST(a_clock_that_goes_passes_as_the_systems_does) {
    struct fake_clock clock;
    fake_clock_init(&clock, 1700000000000);
    test_sleep_ms(2);
    assert_i64_equal(fake_clock_wall_ms(&clock), 1700000000000);
    int64_t began_ns = fake_clock_now_ns(&clock, TW_CLOCK_MONOTONIC), began_ms = test_mono_ms();
    fake_clock_go(&clock);
    test_sleep_ms(20);
    fake_clock_go(&clock); /* the same again changes nothing */
    fake_clock_advance_ms(&clock, 1000);
    int64_t mono_ms = (fake_clock_now_ns(&clock, TW_CLOCK_MONOTONIC) - began_ns) / 1000000;
    int64_t wall_ms = fake_clock_wall_ms(&clock) - 1700000000000, passed_ms = test_mono_ms() - began_ms;
    assert_true(mono_ms >= 1020 && wall_ms >= mono_ms && wall_ms <= 1000 + passed_ms + 1);
}

TEST(what_the_process_holds_is_seen) {
    int64_t before = test_fd_count();
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_i64_equal(test_fd_count(), before + 1);
    fclose(file);
    assert_i64_equal(test_fd_count(), before);
    assert_true(test_thread_count() >= 1); /* ThreadSanitizer has one of its own */
    assert_true(test_rss_bytes() > 100000);
}

struct look {
    int64_t stall_ms;
    int looks, true_at; /* 0: never */
};

static bool look(void *ctx) {
    struct look *looking = ctx;
    if (++looking->looks == 1) test_sleep_ms(looking->stall_ms);
    return looking->looks == looking->true_at;
}

/* Goal: a wait ends by what it waits for, or when its time is over; a stall of the process is not its time. */
TEST(a_wait_outlives_a_stall_and_still_ends) {
    struct look late = {.stall_ms = 150, .true_at = 3}, never = {0};
    assert_true(test_wait(look, &late, 100));
    int64_t began_ms = test_mono_ms();
    assert_false(test_wait(look, &never, 50));
    assert_true(test_mono_ms() - began_ms >= 50);
    assert_true(never.looks > 1);
    never = (struct look){.stall_ms = 300};
    assert_false(test_wait(look, &never, 20)); /* ten times its time is over */
    assert_int_equal(never.looks, 2);
}

/* Goal: the time without a processor is told. Method: two processes that calculate on one processor. */
TEST(a_thread_without_a_processor_is_starved) {
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int number = 0;
    while (!CPU_ISSET(number, &before)) number++;
    CPU_ZERO(&one);
    CPU_SET(number, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    pid_t parent = getpid(), rival = fork();
    assert_true(rival >= 0);
    if (rival == 0) {
        while (getppid() == parent) continue;
        _exit(0);
    }
    int64_t began_ms = test_mono_ms(), began_starved_ms = test_starved_ms();
    while (test_mono_ms() < began_ms + 1000) continue;
    int64_t starved_ms = test_starved_ms() - began_starved_ms, passed_ms = test_mono_ms() - began_ms;
    kill(rival, SIGKILL);
    waitpid(rival, NULL, 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    if (access("/proc/thread-self/schedstat", R_OK) != 0)
        test_leave_out("the kernel does not tell how long a thread was starved: run it with CONFIG_SCHED_INFO");
    else
        assert_true(starved_ms >= 100 && starved_ms <= passed_ms + 10); /* half of it is its fair part */
}

static int print_as_parent_and_child(void) {
    printf("of the parent\n");
    pid_t child = fork();
    if (child == 0) {
        printf("of the child\n");
        exit(0); /* it writes what is in the buffers */
    }
    return waitpid(child, NULL, 0) == child ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "lines") == 0) return print_as_parent_and_child();
    if (argc == 2 && strcmp(argv[1], "seed") == 0) {
        (void)test_seed(); /* prints it */
        return 0;
    }
    return test_run();
}
