/* driver_none.c -- stands in for sync/ in a build without Redis. Always true: there is no driver, and tw_open() says so
 * when a redis_url asks for one. */
#include "engine/port/driver.h"

const struct twi_driver *twi_driver_find(void) {
    return NULL;
}
