/* watchdog.h -- says where a test program hangs: the test, the engine's last log line, the stacks of all threads.
 *
 * Its time is 85 % of TW_TIMEOUT_S, which tests/meson.build sets to the time after which meson ends the program, times
 * TW_TIMEOUT_FACTOR (scripts/check.sh: meson's -t). Without TW_TIMEOUT_S no time is set: a program that is run by hand
 * may stand in a debugger. SIGTERM and SIGALRM, which end a program or a child that hangs, make the same report.
 * Always true: no thread is added, and nothing is sent to a thread before the time is over. */
#ifndef TEST_WATCHDOG_H
#define TEST_WATCHDOG_H

/* Once in main(), before the first test and the first thread. */
void test_watchdog_begin(void);
/* The name lives on. */
void test_watchdog_test_begins(const char *name);
void test_watchdog_test_ends(void);
/* In a forked child that is to make its own report: timers are not inherited. */
void test_watchdog_child(void);
/* For a program that only waits for such children: its own time has no end any more. */
void test_watchdog_leave_to_children(void);
/* Keeps a copy of the line (watchdog_log.c). */
void test_watchdog_log_line(int event, const char *text);

#endif
