/* decimal.h -- writes a number in decimal digits, for names and commands in which snprintf() would cost more than
 * all the rest. Always true: the text has no leading zeros, no sign and no NUL. */
#ifndef TWI_BASE_DECIMAL_H
#define TWI_BASE_DECIMAL_H

#include "engine/base/check.h"

#include <stdint.h>

#define TWI_DECIMAL_MAX 20 /* the most digits of a uint64_t */

/* Writes the digits of `value` in front of `end`. Returns the first digit. */
TWI_INLINE char *twi_decimal_before(char *end, uint64_t value) {
    do *--end = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    return end;
}

#endif
