/* family_kind.h -- the kind of a family. It decides which functions the family's calls use. */
#ifndef TWI_FAMILY_KIND_H
#define TWI_FAMILY_KIND_H

#include "tallywheel.h"

struct tw_family;

/* Fills family->kind when the family is opened. `options` are checked, and the family has its rule and template. */
void twi_family_kind_choose(struct tw_family *family, const tw_family_options *options);

#endif
