/* log_stderr.h -- lines of the log on standard error: tw_log_stderr(), and the environment's TALLYWHEEL_LOG.
 * Always true: nothing here waits for a reader, lets a signal end the program, or writes to an engine's descriptor. */
#ifndef TWI_CORE_LOG_STDERR_H
#define TWI_CORE_LOG_STDERR_H

#include "tallywheel.h"

/* Options without a log_write get the one that the environment wants. tw_open() calls it once. */
void twi_log_stderr_by_environment(tw_options *options);

#endif
