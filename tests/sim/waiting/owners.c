/* owners.c -- see owners.h. */
#include "tests/sim/waiting/owners.h"

#include "engine/base/key_slot.h"
#include "sync/message/refusal.h"
#include "sync/wire/cluster_directory.h"

#include <stdio.h>
#include <string.h>

void owner_is(struct twi_sync *sync, const char *key, uint16_t port) {
    struct twi_endpoint to = {.port = port};
    snprintf(to.host, sizeof to.host, "a");
    twi_directory_note_moved(sync->cluster->directory, twi_key_slot_of(key, strlen(key)), &to);
}
