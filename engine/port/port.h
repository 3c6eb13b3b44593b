/* port.h -- all four contracts between the engine and sync/ at once. A file that needs only one of them includes that
 * one. */
#ifndef TWI_PORT_PORT_H
#define TWI_PORT_PORT_H

#include "engine/port/driver.h"
#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"

#endif
