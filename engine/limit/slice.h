/* slice.h -- slices: the parts of a limit that contending threads spend without disturbing each other. */
#ifndef TWI_LIMIT_SLICE_H
#define TWI_LIMIT_SLICE_H

#include "tallywheel.h"

struct twi_cell;
struct twi_stripes;
struct twi_taken;
struct twi_thread;

tw_status twi_slices_take(struct twi_cell *cell, uint64_t meta, int64_t n, int64_t limit, const struct twi_thread *self,
                          struct twi_taken *taken);
/* Takes n units off the count, if the view is at least `least` afterwards. Returns TW_OK or TW_ERR_RANGE. TWI_AGAIN
 * means that the cell was sealed. */
tw_status twi_slices_put_back(struct twi_cell *cell, uint64_t meta, int64_t n, int64_t least, bool *unlisted);

#endif
