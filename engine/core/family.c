/* family.c -- frees a family (family.h). */
#include "engine/core/family.h"

#include <stdlib.h>

struct twi_generation twi_generation_none;

void twi_family_free(struct tw_family *family) {
    /* operations of other processes may be under way, or have ended with their process */
    twi_check(family->engine->life.is_shared || twi_load_relaxed(&family->started) == 0);
#define TEXT(field) free((void *)(uintptr_t)family->options.field);
#define IDENTITY(field)
    TWI_FAMILY_IDENTITY(TEXT, IDENTITY)
#undef TEXT
#undef IDENTITY
    free(family->fields);
    twi_parts_free(&family->quota.parts);
    twi_arena_give_block(family, family->entry.block_bytes, family->engine->life.is_shared);
}
