/* appointment.c -- see appointment.h. */
#include "engine/core/appointment.h"

static struct twi_appointment *meld(struct twi_appointment *one, struct twi_appointment *other) {
    twi_check(one == NULL || one != other);
    twi_check(one == NULL || (one->next == NULL && one->back == NULL));
    twi_check(other == NULL || (other->next == NULL && other->back == NULL));
    if (one == NULL || other == NULL) return one != NULL ? one : other;
    struct twi_appointment *first = other->at_ms < one->at_ms ? other : one, *second = first == one ? other : one;
    second->next = first->child;
    if (second->next != NULL) second->next->back = second;
    second->back = first;
    first->child = second;
    return first;
}

/* Combines siblings into one heap: first in pairs from the left, then the pairs from the right. */
static struct twi_appointment *meld_all(struct twi_appointment *sibling) {
    struct twi_appointment *pairs = NULL, *heap = NULL;
    while (sibling != NULL) {
        struct twi_appointment *one = sibling, *other = one->next;
        sibling = other != NULL ? other->next : NULL;
        one->next = one->back = NULL;
        if (other != NULL) other->next = other->back = NULL;
        one = meld(one, other);
        one->next = pairs;
        pairs = one;
    }
    while (pairs != NULL) {
        struct twi_appointment *one = pairs;
        pairs = one->next;
        one->next = NULL;
        heap = meld(heap, one);
    }
    return heap;
}

static void cancel(struct twi_appointment **heap, struct twi_appointment *appointment) {
    twi_check(appointment->at_ms == INT64_MAX || *heap != NULL);
    twi_check(appointment->at_ms == INT64_MAX || *heap == appointment || appointment->back != NULL);
    if (appointment->at_ms == INT64_MAX) return;
    struct twi_appointment *children = meld_all(appointment->child), *back = appointment->back;
    if (*heap == appointment) {
        *heap = children;
    } else {
        if (back->child == appointment)
            back->child = appointment->next;
        else
            back->next = appointment->next;
        if (appointment->next != NULL) appointment->next->back = back;
        *heap = meld(*heap, children);
    }
    appointment->child = appointment->next = appointment->back = NULL;
    appointment->at_ms = INT64_MAX;
}

void twi_appointment_set(struct twi_appointment **heap, struct twi_appointment *appointment, int64_t at_ms) {
    twi_check(appointment->family != NULL);
    if (appointment->at_ms == at_ms) return;
    cancel(heap, appointment);
    appointment->at_ms = at_ms;
    if (at_ms != TWI_APPOINTMENT_NEVER) *heap = meld(*heap, appointment);
}

struct tw_family *twi_appointment_take(struct twi_appointment **heap, int64_t now_ms) {
    twi_check(*heap == NULL || (*heap)->back == NULL);
    twi_check(*heap == NULL || (*heap)->at_ms != TWI_APPOINTMENT_NEVER);
    struct twi_appointment *first = *heap;
    if (first == NULL || first->at_ms > now_ms) return NULL;
    cancel(heap, first);
    return first->family;
}

/* Returns the number of members of this heap. UINT32_MAX means that the heap is not in order. */
static uint32_t count_in_order(const struct twi_appointment *member) {
    uint32_t count = 1;
    const struct twi_appointment *back = member;
    for (const struct twi_appointment *child = member->child; child != NULL; back = child, child = child->next) {
        uint32_t below = count_in_order(child);
        if (child->back != back || child->at_ms < member->at_ms || below == UINT32_MAX) return UINT32_MAX;
        count += below;
    }
    return count;
}

bool twi_appointments_are_valid(const struct twi_appointment *heap, uint32_t *count) {
    *count = heap != NULL ? count_in_order(heap) : 0;
    return *count != UINT32_MAX && (heap == NULL || (heap->next == NULL && heap->back == NULL));
}
