/* watchdog.c -- see watchdog.h.
 * Method: a timer sends a signal to the process, and the thread that receives it reports. The engine's own threads
 * block all signals, so the linker gives calls of pthread_sigmask() to this file (--wrap, meson.build), which leaves
 * this signal out.
 * Always true: the handlers allocate nothing and take no lock, and after REPORT_S the process ends anyway. */
#include "tests/support/watchdog.h"

#include "tests/support/lines.h"
#include "tests/support/stacks.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PERCENT_OF_TIMEOUT 85
#define REPORT_S 20

static struct {
    pid_t owner; /* the process that the timer belongs to */
    bool is_child, has_timer;
    timer_t timer;
    int64_t deadline_ms; /* 0: none */
    const char *_Atomic test;
    _Atomic unsigned tests; /* that have begun */
    _Atomic bool reports;
} dog;

/* ---- the last log line ------------------------------------------------------------------------------------------- */

static struct {
    atomic_flag is_taken;
    int event; /* 0: none was logged */
    int64_t at_ms;
    char text[LINE_BYTES];
} last_line = {.is_taken = ATOMIC_FLAG_INIT};

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Of two lines at the same time one is kept. */
void test_watchdog_log_line(int event, const char *text) {
    if (atomic_flag_test_and_set(&last_line.is_taken)) return;
    size_t size = strnlen(text, sizeof last_line.text - 1);
    memcpy(last_line.text, text, size);
    last_line.text[size] = '\0';
    last_line.event = event;
    last_line.at_ms = now_ms();
    atomic_flag_clear(&last_line.is_taken);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static void print_test(int number) {
    const char *test = atomic_load(&dog.test);
    struct line line = {0};
    if (test != NULL && getpid() == dog.owner && !dog.is_child) { /* a child's parent says so itself */
        line_put(&line, "not ok ");
        line_number(&line, atomic_load(&dog.tests), 10);
        line_put(&line, " - ");
        line_put(&line, test);
        line_end(&line);
    }
    line_put(&line, number == SIGTERM   ? "# ended by SIGTERM"
                    : number == SIGALRM ? "# ended by its alarm"
                                        : "# out of time");
    line_put(&line, test != NULL ? ", in " : ", in no test");
    line_put(&line, test != NULL ? test : "");
    line_put(&line, "; process ");
    line_number(&line, (uint64_t)getpid(), 10);
    line_end(&line);
}

static void print_last_line(void) {
    struct timespec nap = {.tv_nsec = 1000000};
    bool is_taken = true;
    for (int i = 0; i < 100 && (is_taken = atomic_flag_test_and_set(&last_line.is_taken)); i++) nanosleep(&nap, NULL);
    if (is_taken || last_line.event == 0) {
        line_say("# no log line");
        return;
    }
    struct line line = {0};
    line_put(&line, "# last log line, ");
    line_number(&line, (uint64_t)(now_ms() - last_line.at_ms) / 1000, 10);
    line_put(&line, " s ago: ");
    line_put(&line, last_line.text);
    line_end(&line);
}

static void handle(int number, void (*handler)(int number, siginfo_t *info, void *context));

/* If the report itself hangs. */
static void set_bound(void) {
    sigset_t set;
    handle(SIGALRM, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    alarm(REPORT_S);
}

static void report(int number, const void *context) {
    print_test(number);
    print_last_line();
    stacks_print(context, number != SIGTERM); /* meson kills half a second after that one */
    proc_print_children();
}

/* A signal of the system comes again, and ends the process as it would have without the report. */
static void end_by(int number) {
    if (number == STACKS_SIGNAL) abort();
    handle(number, NULL);
    raise(number);
}

static void on_signal(int number, siginfo_t *info, void *context) {
    int error = errno;
    (void)info;
    if (atomic_exchange(&dog.reports, true)) {
        if (number == STACKS_SIGNAL) stacks_note(context);
        errno = error;
        return;
    }
    bool is_meant = number != SIGTERM || getpid() == dog.owner; /* a test may end its child so */
    if (is_meant) {
        set_bound();
        report(number, context);
    }
    end_by(number);
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define PLAIN_SIGACTION __sigaction
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) && defined(__GLIBC__)
#define PLAIN_SIGACTION __sigaction
#endif
#endif
#ifdef PLAIN_SIGACTION
/* ThreadSanitizer's sigaction() would hold the signal back until the thread calls something that it knows. */
int __sigaction(int number, const struct sigaction *action, struct sigaction *before);
#else
#define PLAIN_SIGACTION sigaction
#endif

static void handle(int number, void (*handler)(int number, siginfo_t *info, void *context)) {
    struct sigaction action = {.sa_flags = SA_RESTART};
    if (handler != NULL) {
        action.sa_flags |= SA_SIGINFO;
        action.sa_sigaction = handler;
    }
    PLAIN_SIGACTION(number, &action, NULL);
}

int __real_pthread_sigmask(int how, const sigset_t *set, sigset_t *before);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before);

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
    sigset_t others;
    if (set == NULL || how == SIG_UNBLOCK) return __real_pthread_sigmask(how, set, before);
    others = *set;
    sigdelset(&others, STACKS_SIGNAL);
    return __real_pthread_sigmask(how, &others, before);
}

static double number_of_environment(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtod(text, NULL) : otherwise;
}

static void set_timer(void) {
    dog.owner = getpid();
    dog.has_timer = false;
    if (dog.deadline_ms == 0) return;
    int64_t rest_ms = dog.deadline_ms - now_ms();
    if (rest_ms < 1) rest_ms = 1;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = STACKS_SIGNAL};
    struct itimerspec time = {.it_value = {.tv_sec = rest_ms / 1000, .tv_nsec = rest_ms % 1000 * 1000000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &dog.timer) != 0) return;
    dog.has_timer = true;
    timer_settime(dog.timer, 0, &time, NULL);
}

void test_watchdog_begin(void) {
    if (dog.owner != 0) return;
    double timeout_s = number_of_environment("TW_TIMEOUT_S", 0) * number_of_environment("TW_TIMEOUT_FACTOR", 1);
    if (timeout_s > 0) dog.deadline_ms = now_ms() + (int64_t)(timeout_s * 10 * PERCENT_OF_TIMEOUT);
    stacks_begin();
    handle(STACKS_SIGNAL, on_signal);
    handle(SIGTERM, on_signal);
    handle(SIGALRM, on_signal);
    set_timer();
}

void test_watchdog_test_begins(const char *name) {
    atomic_fetch_add(&dog.tests, 1);
    atomic_store(&dog.test, name);
}

void test_watchdog_test_ends(void) {
    atomic_store(&dog.test, NULL);
}

void test_watchdog_child(void) {
    dog.is_child = true;
    handle(SIGTERM, on_signal);
    set_timer();
}

void test_watchdog_leave_to_children(void) {
    if (dog.has_timer) timer_delete(dog.timer);
    dog.has_timer = false;
}
