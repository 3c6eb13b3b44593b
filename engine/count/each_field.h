/* each_field.h -- makes the key of a counter in a TW_REDIS_HASH family from a subject and a field. */
#ifndef TWI_COUNT_EACH_FIELD_H
#define TWI_COUNT_EACH_FIELD_H

#include "tallywheel.h"

/* Returns TW_OK. TW_ERR_MODE: the family is not of TW_REDIS_HASH. TW_ERR_KEY: no key can have this subject. */
tw_status twi_hash_check(const tw_family *family, tw_key subject);
/* Writes the key to `bytes`. Returns false if the key would be too long. */
bool twi_hash_key(const tw_family *family, tw_key subject, tw_key field, unsigned char bytes[TW_KEY_SIZE_MAX],
                  tw_key *key);

#endif
