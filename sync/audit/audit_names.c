/* audit_names.c -- see audit_names.h. */
#include "sync/audit/audit_names.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "sync/wire/fnv.h"

struct twi_audit_names *twi_audit_names_create(void) {
    return calloc(1, sizeof(struct twi_audit_names));
}

void twi_audit_names_destroy(struct twi_audit_names *names) {
    if (!names) return;
    twi_bytes_free(&names->bytes);
    free(names->met);
    free(names);
}

tw_key twi_audit_names_at(const struct twi_audit_names *names, size_t i) {
    twi_check(i < names->count);
    size_t begin = i ? names->ends[i - 1] : 0;
    return (tw_key){names->bytes.data + begin, names->ends[i] - begin};
}

void twi_audit_names_end(struct twi_audit_names *names) {
    names->ends[names->count++] = names->bytes.size;
}

void twi_audit_names_add(struct twi_audit_names *names, const char *text, size_t size) {
    twi_bytes_add(&names->bytes, text, size);
    twi_audit_names_end(names);
}

void twi_audit_names_empty(struct twi_audit_names *names) {
    names->count = names->bytes.size = 0;
}

void twi_audit_names_keep(struct twi_audit_names *names, bool (*is_kept)(void *ctx, tw_key name), void *ctx) {
    size_t kept = 0, used = 0, begin = 0;
    for (size_t i = 0; i < names->count && !names->bytes.failed; i++) {
        size_t end = names->ends[i], size = end - begin;
        if (is_kept(ctx, (tw_key){names->bytes.data + begin, size})) {
            memmove(names->bytes.data + used, names->bytes.data + begin, size);
            used += size;
            names->ends[kept++] = used;
        }
        begin = end;
    }
    names->count = kept;
    names->bytes.size = used;
}

/* ---- names that were met ----------------------------------------------------------------------------------------- */

/* Returns FNV-1a with its bits mixed; never 0. */
static uint64_t hash_of(const unsigned char *name, size_t size) {
    uint64_t hash = twi_fnv_add(TWI_FNV_BEGIN, name, size);
    hash = (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
    return hash ? hash : 1;
}

/* Returns false if the hash has a place. */
static bool put(uint64_t *places, size_t room, uint64_t hash) {
    size_t i = hash & (room - 1);
    for (; places[i] != 0; i = (i + 1) & (room - 1))
        if (places[i] == hash) return false;
    places[i] = hash;
    return true;
}

/* Keeps half of the places empty. Returns false if there is no memory. */
static bool make_room(struct twi_audit_names *names) {
    if ((names->met_count + 1) * 2 <= names->met_room) return true;
    size_t room = names->met_room ? names->met_room * 2 : 1024;
    uint64_t *places = calloc(room, sizeof *places);
    if (!places) return false;
    for (size_t i = 0; i < names->met_room; i++)
        if (names->met[i] != 0) put(places, room, names->met[i]);
    free(names->met);
    names->met = places;
    names->met_room = room;
    return true;
}

bool twi_audit_names_meet(struct twi_audit_names *names, const void *name, size_t size) {
    if (!make_room(names)) {
        names->bytes.failed = true;
        return false;
    }
    bool is_first = put(names->met, names->met_room, hash_of(name, size));
    names->met_count += is_first;
    return is_first;
}

void twi_audit_names_forget_met(struct twi_audit_names *names) {
    free(names->met);
    names->met = NULL;
    names->met_count = names->met_room = 0;
}
