/* driver_none.c -- replaces sync/ in a build without Redis. Always true: there is no driver, and tw_open() reports that
 * if redis_url is set. */
#include "engine/port/driver.h"

const struct twi_driver *twi_driver_find(void) {
    return NULL;
}
