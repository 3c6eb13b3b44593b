/* side_by_side.c -- see side_by_side.h.
 * Method: one fork for each test, whose output goes to an unnamed file. The parent prints the files one after the
 * other, with the numbers of its own plan. Each test has a watchdog of its own (watchdog.h), and is a process group of
 * its own. The SIGTERM of a time-out reaches the parent alone, which names those that still ran. They report. */
#include "tests/support/side_by_side.h"

#include "tests/support/lines.h"
#include "tests/support/watchdog.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TESTS_MAX 64
#define AT_ONCE_DEFAULT 6
#define LAST_WORDS_MS 300

struct apart {
    pid_t pid; /* 0: over */
    FILE *output;
    bool over, passed;
};

/* TW_SIDE_BY_SIDE=1: one after the other, for a debugger or for comparison. */
static size_t at_once(void) {
    const char *text = getenv("TW_SIDE_BY_SIDE");
    long wanted = text != NULL ? strtol(text, NULL, 10) : 0;
    if (wanted > 0) return (size_t)wanted;
    return test_is_slow() ? AT_ONCE_DEFAULT / 3 : AT_ONCE_DEFAULT;
}

static volatile sig_atomic_t out_of_time;

static void on_term(int number) {
    out_of_time = 1;
}

/* Without SA_RESTART: wait() ends early. */
static void heed_term(void) {
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
}

static _Noreturn void become_test(const struct CMUnitTest *test, FILE *output) {
    setpgid(0, 0);
    dup2(fileno(output), STDOUT_FILENO);
    dup2(fileno(output), STDERR_FILENO);
    test_watchdog_child();
    test_watchdog_test_begins(test->name);
    int failed = _cmocka_run_group_tests(test->name, test, 1, NULL, NULL);
    exit(failed == 0 ? 0 : 1); /* not _exit(): exit handlers end the servers that the test has left */
}

static void begin_test(struct apart *apart, const struct CMUnitTest *test) {
    apart->output = tmpfile();
    if (apart->output == NULL) {
        fprintf(stderr, "no file for the output of %s: %s\n", test->name, strerror(errno));
        apart->over = true;
        return;
    }
    fflush(NULL);
    apart->pid = test_fork();
    if (apart->pid == 0) become_test(test, apart->output);
    if (apart->pid > 0) return;
    fprintf(stderr, "no process for %s: %s\n", test->name, strerror(errno));
    apart->pid = 0;
    apart->over = true;
}

static size_t running(const struct apart *apart, size_t count) {
    size_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += apart[i].pid != 0;
    return sum;
}

static void await_one(struct apart *apart, size_t count) {
    int status = 0;
    pid_t pid = wait(&status);
    for (size_t i = 0; i < count; i++) {
        if (pid <= 0 || apart[i].pid != pid) continue;
        apart[i].pid = 0;
        apart[i].over = true;
        apart[i].passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (WIFSIGNALED(status)) dprintf(fileno(apart[i].output), "# ended by signal %d\n", WTERMSIG(status));
    }
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Replaces the child's plan and result by the parent's, and prints the rest as comments. */
static void print_test(const struct apart *apart, const struct CMUnitTest *test, size_t number) {
    char line[1024];
    printf("%s %zu - %s\n", apart->passed ? "ok" : "not ok", number, test->name);
    if (apart->output == NULL) return;
    rewind(apart->output);
    while (fgets(line, sizeof line, apart->output) != NULL) {
        if (strncmp(line, "ok ", 3) == 0 || strncmp(line, "not ok ", 7) == 0 || strncmp(line, "1..", 3) == 0) continue;
        if (strncmp(line, "# ok - ", 7) == 0 || strncmp(line, "# not ok - ", 11) == 0) continue;
        printf("%s%s", line[0] == '#' ? "" : "# ", line);
    }
    fclose(apart->output);
    fflush(stdout);
}

/* ---- out of time ------------------------------------------------------------------------------------------------- */

/* meson kills half a second after its SIGTERM. In that time each test that still runs prints its stacks. */
static void await_last_words(const struct apart *apart, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (apart[i].pid != 0) kill(apart[i].pid, SIGTERM);
    for (int naps = 0; naps < LAST_WORDS_MS / 10; naps++) {
        bool all = true;
        for (size_t i = 0; i < count; i++) {
            siginfo_t end = {0};
            if (apart[i].pid == 0) continue;
            all = all && waitid(P_PID, (id_t)apart[i].pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0;
        }
        if (all) return;
        test_sleep_ms(10);
    }
}

static _Noreturn void give_up(const struct apart *apart, const struct CMUnitTest *tests, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (apart[i].pid == 0) continue;
        printf("# still running when the program's time was over: %s\n", tests[i].name);
        fflush(stdout);
        proc_print(apart[i].pid);
    }
    await_last_words(apart, count);
    for (size_t i = 0; i < count; i++) {
        if (apart[i].pid == 0) continue;
        kill(-apart[i].pid, SIGKILL);
        print_test(&apart[i], &tests[i], i + 1);
    }
    _exit(1);
}

int test_run_each_apart(const struct CMUnitTest *tests, size_t count) {
    static struct apart apart[TESTS_MAX];
    size_t begun = 0, printed = 0, limit = at_once();
    int failed = 0;
    if (count > TESTS_MAX) {
        printf("1..%zu\nBail out! more than %d tests\n", count, TESTS_MAX);
        return (int)count;
    }
    printf("1..%zu\n", count);
    fflush(stdout);
    test_watchdog_begin();
    test_watchdog_leave_to_children();
    heed_term();
    while (printed < count) {
        while (begun < count && running(apart, count) < limit) {
            begin_test(&apart[begun], &tests[begun]);
            begun++;
        }
        if (running(apart, count) != 0) await_one(apart, count);
        if (out_of_time) give_up(apart, tests, begun);
        for (; printed < begun && apart[printed].over; printed++) {
            failed += !apart[printed].passed;
            print_test(&apart[printed], &tests[printed], printed + 1);
        }
    }
    return failed;
}
