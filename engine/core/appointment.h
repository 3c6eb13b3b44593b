/* appointment.h -- a pairing heap of families in order of time. The links are in the families, so the heap allocates no
 * memory.
 * Always true: a heap is named by its earliest member, and no member is later than its children. An appointment is
 * in one heap at most. The turn only. */
#ifndef TWI_CORE_APPOINTMENT_H
#define TWI_CORE_APPOINTMENT_H

#include "engine/core/family.h"

#define TWI_APPOINTMENT_NEVER INT64_MAX

/* Sets the time of the appointment. TWI_APPOINTMENT_NEVER removes it from the heap. */
void twi_appointment_set(struct twi_appointment **heap, struct twi_appointment *appointment, int64_t at_ms);
/* Returns the family that has been due for the longest time, if one is due at `now_ms`, and removes it from the
 * heap. NULL means that no family is due. */
struct tw_family *twi_appointment_take(struct twi_appointment **heap, int64_t now_ms);

/* For tests and checks of level 3: walks the heap and counts its members. Returns false if the heap is not in order. */
bool twi_appointments_are_valid(const struct twi_appointment *heap, uint32_t *count);

#endif
