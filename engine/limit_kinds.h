/* limit_kinds.h -- the table of limit kinds: which functions decide for a family. */
#ifndef TWI_LIMIT_KINDS_H
#define TWI_LIMIT_KINDS_H

struct tw_family;
struct twi_limit_kind;

/* Chooses by the family's options, which are checked. */
const struct twi_limit_kind *twi_limit_kind_of(const struct tw_family *family);

#endif
