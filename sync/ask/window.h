/* window.h -- how many calls may be under way on one link. It follows from how long the replies of calls took, also of
 * calls whose callers are gone. What is beyond it waits unsent, so that its end costs no byte and no cancel.
 *
 * Let `base` be the time that a single call would have needed: the quickest reply of the connection or, if that is
 * more, the longest pause between two replies meanwhile (a server that paused answers all of the window late, and
 * fewer calls would not have helped). What is left of the limit of a call is the room for queues, wherever they are: in
 * the link, in Redis, in a socket.
 *   a reply within base + 1/8 of the room   two more calls may be under way  (the window triples with each round trip)
 *   within base + 1/4 of the room           one more for eight replies
 *   later                                   as many as would have been answered within base + 1/4 of the room
 * Near what the latest cut left, up to twice as many, quick replies, too, bring one more for eight: there the link is
 * about full, and a window that tripled would be cut again, with all that was sent in it too late.
 * It grows only while it is full, and shrinks at most once for the calls of one window. So a loaded link answers in
 * about a quarter of the limit. The rest of its time a call may wait for its turn: it is sent while it has the time
 * that calls need now, half as much again as they need in queues, and 1/8 of the room, or of its own time if that is
 * less. Without these a crowd that waits in a row would be sent at the very moment at which each reply comes a little
 * too late.
 * A link that needs some milliseconds for a call gets one call after the other in that time, and not all that have room
 * at once. It would bring them in one piece, their replies too, and so on: then it carries nothing in one direction
 * while it does in the other, and the time of each piece seems to be a pause of the server. That time follows from the
 * latest reply that came too late; quick replies shorten it, until the window alone holds calls back. The file is pure.
 * Always true: at least one call may be under way. */
#ifndef TWI_SYNC_ASK_WINDOW_H
#define TWI_SYNC_ASK_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* Some 16 KB, as for batches (TWI_ESTIMATE_BYTES_UNKNOWN), and little more than TCP itself sends at once. */
#define TWI_WINDOW_FIRST 64u

/* A call that takes less of a link is no matter. */
#define TWI_WINDOW_PACED_US 4000

/* Of a call that was sent. */
struct twi_window_mark {
    int64_t sent_ms;
    uint32_t place; /* calls under way, with this one */
};

struct twi_window {
    uint32_t calls;   /* so many may be under way */
    uint32_t eighths; /* of a further one */
    uint32_t left;    /* by the latest cut; 0 if there was none */
    int64_t least_ms; /* -1 means no reply yet */
    int64_t needs_ms; /* a call that is sent now needs about so long; 0 if unknown */
    int64_t cut_ms;   /* calls sent before that time have had their say */
    int64_t each_us;  /* a call takes so much of the link; 0 if unknown */
    int64_t next_us;  /* another call may be sent then */
    int64_t base_ms, spare_ms;
    int64_t heard_ms; /* the latest reply */
    /* the longest pause of this round and of the last one; a round ends with the reply to a call sent in it */
    int64_t pause_ms[2], round_ms;
    bool is_full; /* calls wait for room */
};

/* Returns true if a call of `time_ms` that is sent now is probably answered in what is left of that. A call with less
 * time than the limit needs less to spare, or it would never be sent behind another one. */
static inline bool twi_window_suffices(const struct twi_window *window, int64_t left_ms, int64_t time_ms) {
    int64_t queues_ms = window->needs_ms > window->base_ms ? window->needs_ms - window->base_ms : 0;
    int64_t spare_ms = window->spare_ms < time_ms / 8 ? window->spare_ms : time_ms / 8;
    return left_ms >= window->needs_ms + queues_ms / 2 + spare_ms;
}

/* Returns when another call may be sent; any past time means now. */
static inline int64_t twi_window_next_ms(const struct twi_window *window) {
    return window->each_us < TWI_WINDOW_PACED_US ? 0 : (window->next_us + 999) / 1000;
}

/* A call is sent. Time in which nobody came to send one is made up for by one call. */
static inline void twi_window_sent(struct twi_window *window, int64_t now_ms) {
    int64_t since_us = now_ms * 1000 - window->each_us;
    window->next_us = (window->next_us > since_us ? window->next_us : since_us) + window->each_us;
}

/* For a new connection. */
void twi_window_begin(struct twi_window *window);
/* A reply came. Times are without the driver's lateness. */
void twi_window_heard(struct twi_window *window, const struct twi_window_mark *mark, int64_t now_ms, int64_t limit_ms);

#endif
