/* grow.c -- see grow.h. */
#include "engine/base/grow.h"

#include "engine/base/check.h"

#include <stdlib.h>
#include <string.h>

bool twi_grow(void *array, size_t element_bytes, uint32_t *room, size_t wanted, uint32_t first) {
    twi_check(element_bytes != 0 && first != 0);
    if (wanted <= *room) return true;
    if (wanted > UINT32_MAX / 2) return false;
    uint32_t more = *room != 0 ? *room : first;
    while (more < wanted) more *= 2;
    void *elements; /* the pointer is copied, because `array` is the address of a pointer of any type */
    memcpy(&elements, array, sizeof elements);
    elements = realloc(elements, more * element_bytes);
    if (elements == NULL) return false;
    memcpy(array, &elements, sizeof elements);
    *room = more;
    twi_check(*room >= wanted);
    return true;
}
