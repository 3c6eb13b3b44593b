/* sliding.h -- limits with TW_SHAPE_SLIDING: the part of the previous windows. */
#ifndef TWI_LIMIT_SLIDING_H
#define TWI_LIMIT_SLIDING_H

#include "engine/limit/decision.h"
#include "tallywheel.h"

/* ---- slide ----
 * the arithmetic of sliding limits (sliding.c): the weight of the windows before, and when the stretch
 * leaves them.
 * Always true: it is the same for the complete decision and the fast one (engine/fast/shapes_fast.h). All
 * functions are pure. counts[i] is the count of the window that is i windows before this one. */

struct twi_slide {
    int64_t left_ms;            /* until the stretch has left the oldest window */
    int64_t length_ms, next_ms; /* of this window and of the next one */
    int64_t even;               /* the part of the oldest count for which an even flow is assumed */
    uint32_t parts;             /* the number of the oldest window of the stretch */
};

/* Returns the weight of the oldest count, if the stretch covers so much of its window. */
TWI_INLINE int64_t twi_slide_part(int64_t oldest, int64_t covered_ms, int64_t length_ms, int64_t even) {
    int64_t part = twi_share_up(oldest, covered_ms, length_ms);
    return oldest - part > even ? oldest - even : part;
}
/* Returns the error of that weight, because nobody knows when the counts came. */
TWI_INLINE int64_t twi_slide_bound(int64_t oldest, int64_t part) {
    return part > oldest - part ? part : oldest - part;
}

/* Returns how long it takes until the stretch has left the window of that number. */
TWI_INLINE int64_t twi_slide_gone_ms(const struct twi_slide *slide, uint32_t window) {
    return slide->left_ms + (int64_t)(slide->parts - window) * slide->next_ms;
}

/* Returns how long it takes until n units are free, if no other thread calls. The stretch leaves one window after the
 * other, and the count of the oldest one falls meanwhile. n is at most the limit. */
TWI_INLINE int64_t twi_slide_retry_ms(const struct twi_slide *slide, const int64_t *counts, int64_t n, int64_t limit) {
    uint32_t oldest = slide->parts;
    int64_t room = limit - n, whole = 0, since_ms = 0, length_ms = slide->length_ms;
    twi_check_dear(room >= 0);
    for (uint32_t i = 0; i < oldest; i++) whole = twi_saturated_sum(whole, counts[i]);
    while (whole > room) { /* the loop ends, because the sum of no windows is 0 */
        since_ms = twi_slide_gone_ms(slide, oldest--);
        length_ms = slide->next_ms;
        whole = 0;
        for (uint32_t i = 0; i < oldest; i++) whole = twi_saturated_sum(whole, counts[i]);
    }
    if (since_ms < 0) since_ms = 0; /* that window had left the stretch before */
    int64_t fades = counts[oldest], gone_ms = twi_slide_gone_ms(slide, oldest);
    if (fades <= room - whole) return since_ms;
    if (fades - (room - whole) > slide->even) return gone_ms;
    int64_t free_ms = gone_ms - twi_share_down(room - whole, length_ms, fades);
    return free_ms > since_ms ? free_ms : since_ms;
}

/* Returns how long it takes until the stretch contains no counts. */
TWI_INLINE int64_t twi_slide_reset_ms(const struct twi_slide *slide, const int64_t *counts) {
    uint32_t newest = 0;
    while (newest <= slide->parts && counts[newest] == 0) newest++;
    return newest > slide->parts ? 0 : twi_slide_gone_ms(slide, newest);
}

#define TWI_SLIDING_COUNTS (TW_SUB_WINDOWS_MAX + 1) /* the counts of all windows that the stretch covers */

struct tw_family;

/* For strict limits. Redis decides the limit, but the engine must know the previous count for the time when Redis
 * does not reply. */
void twi_sliding_request_total(tw_family *family, tw_key key);
/* The complete decision (counted.h). */
tw_status twi_sliding_acquire(tw_family *family, tw_key key, int64_t n, int64_t limit, tw_verdict *verdict);

#endif
