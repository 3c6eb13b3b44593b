/* port.h -- everything sync/ may see of the engine, and everything the engine asks of sync/: four contracts, all at once. Who needs
 * one of them includes that. */
#ifndef TWI_PORT_PORT_H
#define TWI_PORT_PORT_H

#include "engine/port/driver.h"
#include "engine/port/items.h"
#include "engine/port/messages.h"
#include "engine/port/services.h"

#endif
