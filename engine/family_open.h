/* family_open.h -- a family without counts.
 * Always true: a family that has begun has no window, and no time of it is due. */
#ifndef TWI_FAMILY_OPEN_H
#define TWI_FAMILY_OPEN_H

#include "tallywheel.h"
#include "engine/core/family.h"

/* ---- family kind ----
 * the kind of a family. It decides which functions the family's calls use. */

struct tw_family;

/* Fills family->kind when the family is opened. `options` are checked, and the family has its rule and template. */
void twi_family_kind_choose(struct tw_family *family, const tw_family_options *options);

/* For a new family, and for each family of a forked child, which keeps its options and which of its windows have ended.
 * The engine gives it memory, and examines it, afterwards. */
void twi_family_begin(struct tw_family *family);

#endif
