/* outcome.h -- what an answer does to a batch. See outcome.c. */
#ifndef TWI_OUTCOME_H
#define TWI_OUTCOME_H

#include "sync/pipeline.h"

twi_taker twi_outcome_reply;

#endif
