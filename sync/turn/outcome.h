/* outcome.h -- the effect of a reply on a batch. See outcome.c. */
#ifndef TWI_SYNC_TURN_OUTCOME_H
#define TWI_SYNC_TURN_OUTCOME_H

#include "sync/message/pipeline.h"

twi_taker twi_outcome_reply;

#endif
