/* family.c -- frees a family (family.h). */
#include "engine/core/family.h"

#include <stdlib.h>

struct twi_generation twi_generation_none;

void twi_family_free(struct tw_family *family) {
    free((void *)(uintptr_t)family->options.name);
    free((void *)(uintptr_t)family->options.redis_key);
    free((void *)(uintptr_t)family->options.fields);
    free(family->fields);
    twi_parts_free(&family->quota.parts);
    free(family);
}
