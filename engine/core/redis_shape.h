/* redis_shape.h -- the type that Redis uses for the counters of a family: strings, hashes or a sorted set.
 *
 *   string      each key has a name
 *   hash        a key is a subject, the separator, and a field: the subject has the name, and the field is the field of
 *               the hash. The key is split at the last separator, because only subjects may contain it
 *   sorted set  the window has the name, and the key is a member
 *
 * The part that is not in the name is called the inner key. Always true: name and inner key together identify the
 * counter in its window, in the same way as the key. These are pure functions. Any thread may call them. */
#ifndef TWI_CORE_REDIS_SHAPE_H
#define TWI_CORE_REDIS_SHAPE_H

#include "tallywheel.h"

#include <stdbool.h>

#define TWI_FIELDS_MAX 64

struct twi_redis_shape {
    uint8_t kind;   /* TW_REDIS_* */
    char separator; /* the separator of a hash */
};

/* Splits a key into the part for the name (the subject) and the inner key. With strings the whole key is the
 * subject. Hashes are described above. With sorted sets the whole key is the inner key. Returns false if the key of
 * a hash has no separator, or one of its parts is empty. Then the whole key is the subject. */
bool twi_redis_shape_split(struct twi_redis_shape shape, tw_key key, tw_key *subject, tw_key *inner);

/* The fields that a family declares. They point into the family's text. */
struct twi_fields {
    uint32_t count;
    tw_key each[TWI_FIELDS_MAX];
};
/* Reads a comma-separated list. Returns NULL if it is valid, otherwise half a sentence with the reason. */
const char *twi_fields_read(const char *text, char separator, struct twi_fields *fields);
bool twi_fields_have(const struct twi_fields *fields, tw_key field);

#endif
