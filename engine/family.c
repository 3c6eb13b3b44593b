/* family.c -- finding families, and freeing them (family.h). */
#include "engine/family.h"

#include "engine/roster.h"

#include <stdlib.h>

void twi_family_free(struct tw_family *family) {
    free((void *)(uintptr_t)family->options.name);
    free((void *)(uintptr_t)family->options.redis_key);
    free(family);
}

tw_family *tw_family_find(tw_engine *engine, const char *name) {
    twi_check(engine != NULL);
    if (name == NULL || twi_thread_here() == NULL) return NULL;
    pthread_mutex_lock(&engine->lock);
    tw_family *family = twi_roster_find(engine, name);
    pthread_mutex_unlock(&engine->lock);
    return family;
}
