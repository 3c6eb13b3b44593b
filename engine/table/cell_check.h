/* cell_check.h -- the check of one counter, for tests and level 3.
 * Always true: it changes nothing. It is exact while no thread adds to the counter. */
#ifndef TWI_TABLE_CELL_CHECK_H
#define TWI_TABLE_CELL_CHECK_H

#include "engine/table/cell.h"

/* Returns true if the key fits into the record, the flags agree with each other, and the count is in its range. */
bool twi_cell_is_valid(struct twi_cell *cell);

#endif
