/* window.c -- see window.h. */
#include "sync/ask/window.h"

#include "engine/base/check.h"

#define EIGHTH 8u
#define CALM 8   /* the window triples while replies need less than this part of the room ... */
#define NEAR 2   /* ... unless it is near what the latest cut left: at that, and less than so many times as much */
#define MOST 4   /* it shrinks when they need more than this part */
#define EASE 16  /* after a slow reply, each quicker one takes this part off what calls are thought to need ... */
#define PROBE 32 /* ... and each quick one this part off the time between two calls, or ... */
#define ALONE 4  /* ... this part, if nothing else was under way */

void twi_window_begin(struct twi_window *window) {
    *window = (struct twi_window){.calls = TWI_WINDOW_FIRST, .least_ms = -1};
}

static void grow(struct twi_window *window, uint32_t eighths) {
    window->eighths += eighths;
    window->calls += window->eighths / EIGHTH;
    window->eighths %= EIGHTH;
}

/* What was answered until `most_ms` after its sending may be under way, and is sent in about that time: a call takes
 * the time of the link that those before it had to wait for, and never more than its part. */
static void cut(struct twi_window *window, const struct twi_window_mark *mark, int64_t took_ms, int64_t most_ms,
                int64_t now_ms) {
    twi_check(took_ms > 0 && took_ms > most_ms && mark->place != 0);
    uint64_t calls = (uint64_t)mark->place * (uint64_t)most_ms / (uint64_t)took_ms;
    window->cut_ms = now_ms;
    window->eighths = 0;
    if (calls < window->calls) window->calls = calls != 0 ? (uint32_t)calls : 1;
    window->left = window->calls;
    int64_t queued_us = (took_ms - window->least_ms) * 1000 / mark->place, part_us = most_ms * 1000 / window->calls;
    window->each_us = window->calls == 1 ? 0 : queued_us < part_us ? queued_us : part_us;
}

static void note_pause(struct twi_window *window, int64_t sent_ms, int64_t now_ms) {
    int64_t since_ms = window->heard_ms > sent_ms ? window->heard_ms : sent_ms;
    window->heard_ms = now_ms;
    if (now_ms - since_ms > window->pause_ms[0]) window->pause_ms[0] = now_ms - since_ms;
    window->base_ms = window->pause_ms[0] > window->pause_ms[1] ? window->pause_ms[0] : window->pause_ms[1];
    if (window->least_ms > window->base_ms) window->base_ms = window->least_ms;
    if (sent_ms < window->round_ms) return;
    window->pause_ms[1] = window->pause_ms[0];
    window->pause_ms[0] = 0;
    window->round_ms = now_ms;
}

void twi_window_heard(struct twi_window *window, const struct twi_window_mark *mark, int64_t now_ms, int64_t limit_ms) {
    int64_t took_ms = now_ms > mark->sent_ms ? now_ms - mark->sent_ms : 0;
    if (window->least_ms < 0 || took_ms < window->least_ms) window->least_ms = took_ms;
    note_pause(window, mark->sent_ms, now_ms);
    int64_t room_ms = limit_ms > window->base_ms ? limit_ms - window->base_ms : 0,
            most_ms = window->base_ms + room_ms / MOST, needs_ms = took_ms < most_ms ? took_ms : most_ms,
            fresh_ms = limit_ms - limit_ms / MOST; /* a new call has more */
    window->spare_ms = room_ms / CALM;
    if (fresh_ms < window->least_ms) fresh_ms = window->least_ms;
    if (needs_ms > fresh_ms) needs_ms = fresh_ms;
    window->needs_ms -= (window->needs_ms + EASE - 1) / EASE;
    if (needs_ms > window->needs_ms) window->needs_ms = needs_ms;
    bool is_quick = took_ms <= window->base_ms + window->spare_ms;
    if (is_quick) window->each_us -= window->each_us / (mark->place == 1 ? ALONE : PROBE);
    if (took_ms > most_ms) {
        if (mark->sent_ms >= window->cut_ms) cut(window, mark, took_ms, most_ms, now_ms);
    } else if (window->is_full) {
        bool is_near = window->calls >= window->left && window->calls < NEAR * window->left;
        grow(window, is_quick && !is_near ? 2 * EIGHTH : 1);
    }
    twi_check(window->calls != 0);
}
