/* port.h -- everything sync/ may see of the engine, and everything the engine asks of sync/: four contracts, all at once. Who needs
 * one of them includes that. */
#ifndef TWI_PORT_H
#define TWI_PORT_H

#include "engine/port_driver.h"
#include "engine/port_items.h"
#include "engine/port_messages.h"
#include "engine/port_services.h"

#endif
