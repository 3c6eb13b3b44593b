/* estimate.h -- measures the distance of one server, and how fast its link passes bytes. Senders learn from it how much
 * may be under way, and how long a reply may need.
 *
 *   a light request  (below TWI_ESTIMATE_LIGHT bytes, with its reply)   measures the round trip
 *   a heavy one                                                        measures the pace of bytes
 * The round trip is the quickest reply of the last five to ten seconds, among requests that were sent while no other
 * request was under way. So a server that is busy for a short time does not seem far away. If the host runs the turns,
 * a reply is read only in the host's next turn. That delay is a part of the round trip, so there the latest reply
 * counts. The pace is the time that the link needs for a MiB in both directions together, without the round trip. It
 * follows new measurements within a few replies, because a link with other users changes quickly. The best pace of five
 * to ten seconds is kept as well.
 * A deadline that passes is a measurement, too: that many bytes did not arrive in that time. Then a reply may last
 * twice as long as before, up to ten times, until one comes. What it says about the pace counts less with each heavy
 * reply, and after some dozens not at all. It is not dropped with the first reply, because that reply may have used the
 * other direction.
 * These measures are independent of batches. Calls that wait may measure their links by the same functions. The file is
 * pure: times come from the caller. One thread at a time uses it.
 * Always true: twi_estimate_bytes() is at least TWI_ESTIMATE_BYTES_MIN. twi_estimate_wait_ms() is at least the
 * configured time. */
#ifndef TWI_SYNC_WIRE_ESTIMATE_H
#define TWI_SYNC_WIRE_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#define TWI_ESTIMATE_LIGHT 1024u          /* bytes; at 20,000 a second they need 50 ms */
#define TWI_ESTIMATE_BYTES_UNKNOWN 16384u /* under way, until the pace is known */
#define TWI_ESTIMATE_BYTES_MIN 4096u      /* a batch has some 300 bytes around its keys; less would be mostly these */
#define TWI_ESTIMATE_TIMES_MAX 10u        /* a reply may last so many times the configured time, besides its bytes */

/* The least value of the last five to ten seconds. */
struct twi_least {
    int64_t of[2];   /* least value of this half of the time, and of the previous half; 0 if there was no measurement */
    int64_t half_us; /* when this half began */
};

struct twi_estimate {
    bool by_latest;          /* the host runs the turns; set before use */
    struct twi_least way_us; /* the round trip */
    struct twi_least best;   /* the best pace, in microseconds for a MiB */
    int64_t pace;            /* the latest pace; 0 if unknown */
    int64_t deadline_pace;   /* the pace by deadlines that passed, an eighth less with each heavy reply */
    uint32_t timeouts;       /* deadlines that passed in a row */
};

/* Called when a reply has come. */
struct twi_measure {
    int64_t took_us; /* since the request was sent. If it was not alone, since the previous reply if that is later. */
    int64_t work_us; /* roughly the part of this that the server worked */
    uint64_t bytes;  /* of the request and its reply */
    bool is_alone;   /* no other request was under way when the request was sent */
};

void twi_estimate_note(struct twi_estimate *estimate, const struct twi_measure *measure, int64_t now_us);
/* A reply came, so the limit for replies is the usual one again. */
void twi_estimate_answered(struct twi_estimate *estimate);
/* No reply came within `waited_ms` to a request of so many bytes. */
void twi_estimate_timed_out(struct twi_estimate *estimate, uint64_t bytes, int64_t waited_ms);
/* Called for another server or link, which may be nearer or faster. The pace by passed deadlines is kept. */
void twi_estimate_forget(struct twi_estimate *estimate);

/* Returns the round trip; 0 if it is not known yet, which is treated as near. */
int64_t twi_estimate_way_us(const struct twi_estimate *estimate);
/* The round trip, and the time that the link needs for a light request. Meanwhile the server is idle for us. */
int64_t twi_estimate_distance_us(const struct twi_estimate *estimate);
/* Returns the redis_timeout_ms that is used if the option is not set. It is four round trips, but at least
 * TWI_TIMEOUT_LEAST_MS, also before the first measurement, and at most TWI_TIMEOUT_MOST_MS. It is for links of
 * calls; batches have twi_estimate_wait_ms(). */
#define TWI_TIMEOUT_LEAST_MS 100u
#define TWI_TIMEOUT_MOST_MS 2000u
uint32_t twi_estimate_timeout_ms(const struct twi_estimate *estimate);
/* Returns how many bytes may be under way. That is as many as the link carries in a round trip and two and a half
 * times `timeout_ms`. So the last request is answered well within ten times `timeout_ms`, also if the link becomes
 * three times slower. */
uint64_t twi_estimate_bytes(const struct twi_estimate *estimate, uint32_t timeout_ms);
/* Returns how long the reply to a request of so many bytes may take. With `is_greeting` it is ten times `timeout_ms`
 * at once. */
int64_t twi_estimate_wait_ms(const struct twi_estimate *estimate, uint32_t timeout_ms, uint64_t bytes,
                             bool is_greeting);

#endif
