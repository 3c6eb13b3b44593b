/* driver_none.c -- replaces sync/ in a build without Redis. Always true: there is no driver. If redis_url is set,
 * tw_open() reports this. */
#include "engine/port/driver.h"

const struct twi_driver *twi_driver_find(void) {
    return NULL;
}
