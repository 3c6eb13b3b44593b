/* without_signal.h -- a write that may send a signal to its thread, in a program whose signals are not ours.
 * SIGXFSZ comes beyond a limit on file sizes, SIGPIPE where nobody reads.
 * Always true: between begin and end the signal is blocked in this thread alone. What it sent meanwhile is taken away,
 * unless one had been waiting before; errno stays as the write left it. */
#ifndef TWI_BASE_WITHOUT_SIGNAL_H
#define TWI_BASE_WITHOUT_SIGNAL_H

#include <signal.h>
#include <stdbool.h>

struct twi_without_signal {
    sigset_t blocked, before;
    bool waited; /* one had been sent before */
};

void twi_without_signal_begin(struct twi_without_signal *without, int signal);
void twi_without_signal_end(const struct twi_without_signal *without);

#endif
