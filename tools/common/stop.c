/* stop.c -- SIGINT and SIGTERM through a descriptor. See stop.h. */
#include "tools/common/stop.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "tools/common/moment.h"

static int signal_fd = -1;
static atomic_int signal_seen;
static volatile sig_atomic_t has_interrupted; /* seen after stop_interrupts() */

static void ending_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

/* A shell starts its background jobs with SIGINT ignored, and signalfd never sees an ignored signal. If somebody sends
 * one nevertheless, it is meant, so the default is restored. */
bool stop_begin(void) {
    sigset_t set;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    ending_signals(&set);
    int error = pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (error != 0) {
        errno = error;
        return false;
    }
    signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signal_fd >= 0;
}

static void on_signal(int number) {
    signal_seen = number;
    has_interrupted = 1;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

void stop_interrupts(void) {
    struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART, so that waiting calls fail with EINTR */
    sigset_t set;
    if (stop_signal() != 0) return;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    ending_signals(&set);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

bool stop_interrupted(void) {
    return has_interrupted != 0;
}

int stop_signal(void) {
    struct signalfd_siginfo info;
    if (signal_seen == 0 && signal_fd >= 0 && read(signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        sigset_t set;
        signal_seen = (int)info.ssi_signo;
        ending_signals(&set);
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    }
    return signal_seen;
}

const char *stop_name(void) {
    return stop_signal() == SIGINT ? "SIGINT" : "SIGTERM";
}

bool stop_came(void) {
    return signal_seen != 0;
}

bool stop_wait(int fd, int timeout_ms) {
    struct pollfd ready[2] = {{.fd = fd, .events = POLLIN},
                              {.fd = signal_seen == 0 ? signal_fd : -1, .events = POLLIN}};
    if (poll(ready, 2, timeout_ms) < 0) return false;
    if (ready[1].revents != 0) stop_signal();
    return ready[0].revents != 0;
}

bool stop_sleep_until(int64_t until_ms) {
    static const int64_t piece_ms = 3600000; /* a wait is an int: 24 days at most */
    for (int64_t left_ms; stop_signal() == 0 && (left_ms = until_ms - moment_mono_ms()) > 0;)
        (void)stop_wait(-1, (int)(left_ms < piece_ms ? left_ms : piece_ms));
    return stop_signal() == 0;
}
