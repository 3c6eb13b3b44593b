/* limit_kinds.c -- chooses the kind of limit of a family (acquire.h) once, when the family is opened. */
#include "engine/limit_kinds.h"

#include "engine/core/family.h"
#include "engine/limit/gcra.h"
#include "engine/limit/lease.h"
#include "engine/limit/no_limit.h"
#include "engine/limit/acquire.h"
#include "engine/ask/strict.h"
#include "engine/ask/strict_gcra.h"

const struct twi_limit_kind *twi_limit_kind_of(const struct tw_family *family) {
    if (family->kind.is_distinct) return &twi_limit_none;
    if (family->kind.is_hard && family->kind.synced) return &twi_limit_leased;
    if (family->kind.is_strict && family->kind.synced) return &twi_limit_strict;
    if (family->kind.is_gcra) return family->engine->life.has_redis ? &twi_limit_strict_gcra : &twi_limit_gcra;
    return &twi_limit_counted;
}
