/* pace.h -- when an engine tries Redis again, and how fast it sends, by what a link carries. Other engines come back
 * at the same time. Always true: while the engine catches up, it has sent at most one chunk more than `keys_per_s`
 * allows since twi_pace_begin(). The file is pure: time comes from the caller. */
#ifndef TWI_SYNC_WIRE_PACE_H
#define TWI_SYNC_WIRE_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- breaker ----
 * when to try Redis again: exponential back-off with full jitter.
 *
 * How soon the breaker finds that Redis is back. After some failures in a row each wait is uniform between the floor
 * and C (retry_max_ms). Redis comes back at some moment within one of these waits. The rest of that wait is C/3 in the
 * mean, 0.29 C in the median and C at most. With the default C this is 0.3 s, and many engines come spread over it.
 * Always true: a wait is at least TWI_BREAKER_FLOOR_MS (no busy loop). It is at most retry_max_ms, except after
 * twi_breaker_fail_slowly(). Only twi_breaker_nudge() ends it early. A success closes the breaker at once. The file is
 * pure: time and random bits come from the caller. */

#define TWI_BREAKER_FLOOR_MS 10
#define TWI_BREAKER_BASE_MS 50        /* the first ceiling; it doubles at each failure in a row */
#define TWI_BREAKER_RETRY_MAX_MS 1000 /* the last ceiling, unless tw_options.retry_max_ms is set */
#define TWI_BREAKER_SLOW_MS 2000      /* after a refused login, which a person must repair; up to twice this long */

/* When it is closed, Redis is used. When it is open, no request is sent to Redis. When it is trying (half-open), one
 * try is made. */
enum twi_breaker_state { TWI_BREAKER_CLOSED, TWI_BREAKER_OPEN, TWI_BREAKER_TRYING };

struct twi_breaker {
    enum twi_breaker_state state;
    uint32_t failures;     /* in a row */
    int64_t retry_at_ms;   /* in OPEN, when the next try may begin */
    uint32_t retry_max_ms; /* set before use; 0 for the default */
};

void twi_breaker_fail(struct twi_breaker *breaker, int64_t now_ms, uint64_t random);
void twi_breaker_fail_slowly(struct twi_breaker *breaker, int64_t now_ms, uint64_t random);
void twi_breaker_succeed(struct twi_breaker *breaker);
bool twi_breaker_may_try(struct twi_breaker *breaker, int64_t now_ms); /* true if the try has begun */
void twi_breaker_nudge(struct twi_breaker *breaker, int64_t now_ms);   /* a flush waits; the next try may begin now */

#define TWI_PACE_KEYS_PER_S 200000u /* the default; two fifths of the keys that one Redis can process in batches */
#define TWI_PACE_CHUNK_MIN 8u       /* a quarter of a collection is reserved for open windows, here two keys */
/* The first collection after an outage comes within this time, or within half the outage if that is shorter. Together
 * with the wait for the next try (pace.h), half of all engines have begun after 0.6 s, all of them after 1.5 s. */
#define TWI_PACE_SPREAD_MAX_MS 500u

struct twi_pace {
    uint32_t keys_per_s;
    bool catching_up;        /* this part of a second, from the return of Redis until everything was collected once */
    int64_t allowance_mkeys; /* thousandths of keys */
    int64_t at_ms;
};

void twi_pace_begin(struct twi_pace *pace, int64_t now_ms);
/* Returns how many keys may be sent now, at most `most`. 0 means that no key may be sent for another *wait_ms. */
size_t twi_pace_room(struct twi_pace *pace, size_t most, int64_t now_ms, int64_t *wait_ms);
/* `keys` keys were collected. If `whole` is true, no counts are left, so the engine has caught up. */
void twi_pace_took(struct twi_pace *pace, size_t keys, bool whole);
/* Returns how long the first collection waits after an outage of this length. */
int64_t twi_pace_spread_ms(int64_t outage_ms, uint64_t random);

/* ---- estimate ----
 * measures the distance of one server, and how fast its link passes bytes. Senders learn from it how much
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
