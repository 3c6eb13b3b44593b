/* without_signal.c -- see without_signal.h. */
#include "engine/base/without_signal.h"

#include <errno.h>
#include <time.h>

void twi_without_signal_begin(struct twi_without_signal *without, int signal) {
    sigset_t waiting;
    sigemptyset(&without->blocked);
    sigaddset(&without->blocked, signal);
    without->waited = sigpending(&waiting) == 0 && sigismember(&waiting, signal) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &without->blocked, &without->before);
}

void twi_without_signal_end(const struct twi_without_signal *without) {
    const struct timespec at_once = {0, 0};
    int error = errno;
    if (!without->waited) (void)sigtimedwait(&without->blocked, NULL, &at_once);
    (void)pthread_sigmask(SIG_SETMASK, &without->before, NULL);
    errno = error;
}
