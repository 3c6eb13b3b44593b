/* watchdog_test.c -- a test program that hangs says where.
 * Method: the program starts itself once more, with little time. There its one test stands still, in two threads. It
 * is begun by the runner, so its name and number are the runner's. */
#include "engine/base/threads.h"
#include "engine/port/services.h"
#include "tests/support/support.h"

#include <pthread.h>
#include <unistd.h>

#define HANGS "TW_WATCHDOG_TEST" /* set in the program that hangs, to how it ends */
#define TIMEOUT_MAX 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void *second_stands_still(void *arg) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return arg;
}

/* The second thread blocks all signals, as the engine's own do. */
__attribute__((noinline)) static void first_stands_still(const char *how) {
    tw_options options;
    tw_options_init(&options);
    options.threads = TW_HOST_DRIVEN;
    tw_engine *engine;
    assert_status(tw_open(&options, &engine), TW_OK);
    twi_port_log(engine, TW_LOG_WARNING, TW_EVENT_START, "the line before %s", "the hang");
    pthread_t thread;
    pthread_mutex_lock(&lock);
    assert_true(twi_own_thread_start(&thread, second_stands_still, NULL));
    test_sleep_ms(100);
    printf("# it stands\n");
    fflush(stdout);
    if (strcmp(how, "alarm") == 0) alarm(1);
    pthread_join(thread, NULL);
}

/* What the program said that hung, in `said`. */
static void hang(const char *how, int timeout_s, char *said, size_t size) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = test_fork();
    assert_true(child >= 0);
    if (child == 0) {
        char text[16], program[1024] = ""; /* under valgrind the link itself would start valgrind */
        if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) _exit(9);
        snprintf(text, sizeof text, "%d", timeout_s);
        setenv(HANGS, how, 1);
        setenv("TW_TIMEOUT_S", strcmp(how, "alarm") == 0 ? "0" : text, 1);
        setenv("TW_TIMEOUT_FACTOR", "1", 1);
        setenv("CMOCKA_MESSAGE_OUTPUT", "TAP", 1);
        dup2(ends[1], STDOUT_FILENO);
        execl(program, "watchdog_test", NULL);
        _exit(9);
    }
    assert_int_not_equal(test_hear_child(child, ends, said, size), 0);
}

static void assert_said(const char *said, const char *text) {
    if (strstr(said, text) == NULL) fail_msg("it did not say '%s', but:\n%s", text, said);
}

/* Goal: the name of the test, its number, the last log line and a function of each thread are there, also if the test
 * is one of several that run at the same time, and if an alarm ends it. Method: on a busy machine it gets twice the
 * time, until it came to its hang within it. */
TEST(a_hang_is_reported_with_its_test_its_last_log_line_and_all_stacks) {
    static const char *const ways[] = {"timer", "apart", "alarm"};
    static char said[1 << 16];
    if (getenv(HANGS) != NULL) first_stands_still(getenv(HANGS));
    if (test_is_emulated()) {
        test_leave_out("an emulator starts no second program of its kind: run it on an ARM64 machine");
        return;
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        *said = '\0';
        for (int timeout_s = 1; strstr(said, "# it stands") == NULL && timeout_s <= TIMEOUT_MAX; timeout_s *= 2)
            hang(ways[i], timeout_s, said, sizeof said);
        assert_said(said, "\nnot ok 1 - a_hang_is_reported_with_its_test_its_last_log_line_and_all_stacks\n");
        assert_said(said, strcmp(ways[i], "alarm") == 0 ? "# ended by its alarm, in a_hang_is"
                                                        : "# out of time, in a_hang_is");
        assert_said(said, " s ago: the line before the hang\n");
#ifdef __GLIBC__ /* musl has no backtrace() */
        assert_said(said, "#   first_stands_still at ");
        assert_said(said, "#   second_stands_still at ");
#else
        assert_said(said, ": wchan ");
#endif
    }
}

int main(void) {
    const char *how = getenv(HANGS);
    return how != NULL && strcmp(how, "apart") == 0 ? test_run_side_by_side() : test_run();
}
