/* agenda.c -- see agenda.h. Two heaps hold the families that are due (agenda.h). */
#include "engine/core/agenda.h"

#include "engine/base/grow.h"

/* ---- appointment ---- */

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

#define SEARCH_MS 1000 /* how long a window may stay unannounced */
#define SEARCH_STEP_MS 20

/* ---- news ---- */

void twi_agenda_notify(struct tw_family *family) {
    twi_check(family->engine != NULL);
    struct twi_agenda *agenda = &family->engine->agenda;
    struct twi_thread *self = twi_thread_self;
    /* If the thread marks a window of this family, it has said enough. */
    bool says = twi_thread_has_slot(self) && twi_load_relaxed(&twi_thread_slot(self)->marking.cell) == NULL;
    if (says) (void)twi_marking_begin(self, family->engine, NULL, family);
    if (twi_thread_claim(&family->agenda.is_news)) { /* D3, because the change itself was made before */
        TWI_RACE_POINT(news_claimed_not_pushed);
        struct tw_family *older;
        /* D7, pairs with D8 in take_news() */
        twi_push(&agenda->news, family, older, twi_store_relaxed(&family->agenda.next_news, older));
    }
    if (says) twi_marking_end(self, NULL);
}

static bool is_in(const struct tw_family *list, const struct tw_family *family) {
    while (list != NULL && list != family) list = twi_load_relaxed(&list->agenda.next_news);
    return list != NULL;
}

bool twi_agenda_has_news(const struct tw_family *family) {
    const struct twi_agenda *agenda = &family->engine->agenda;
    return is_in(agenda->taken, family) || is_in(twi_load_acquire(&agenda->news), family); /* D8, with the links */
}

void twi_agenda_heal(struct tw_family *family, uint32_t number) {
    if (twi_load_relaxed(&family->agenda.is_news) == number && !twi_agenda_has_news(family))
        (void)twi_swap_acqrel(&family->agenda.is_news, 0);
    twi_agenda_notify(family);
}

/* ---- the turn's round ---- */

/* families that one round takes from the news, and from each heap, which are those that are due for longest */
#define ROUND_MAX 1024

static void take(struct tw_family **round, struct tw_family *family) {
    twi_check(family != NULL);
    if (family->agenda.in_round) return;
    family->agenda.in_round = true;
    family->agenda.next_due = *round;
    *round = family;
}

/* While the engine closes, each family that is due is taken, because no thread waits for a turn to end, and the last
 * turn calls hooks for the last time. */
static uint32_t round_max(const tw_engine *engine) {
    return engine->turn.closing ? UINT32_MAX : ROUND_MAX;
}

static void take_due(tw_engine *engine, struct twi_appointment **heap, int64_t now_ms) {
    twi_check(now_ms <= engine->turn.now_ms || now_ms <= engine->turn.mono_ms);
    for (uint32_t left = round_max(engine); left != 0; left--) {
        struct tw_family *family = twi_appointment_take(heap, now_ms);
        if (family == NULL) return;
        take(&engine->agenda.round, family);
    }
}

static void take_news(tw_engine *engine) {
    struct twi_agenda *agenda = &engine->agenda;
    if (agenda->taken == NULL && twi_load_relaxed(&agenda->news) != NULL)
        agenda->taken = twi_swap_acqrel(&agenda->news, NULL); /* D8 */
    for (uint32_t left = round_max(engine); left != 0 && agenda->taken != NULL; left--) {
        struct tw_family *family = agenda->taken;
        agenda->taken = twi_load_relaxed(&family->agenda.next_news);
        (void)twi_swap_acqrel(&family->agenda.is_news, 0); /* D4: the flag is cleared before the change is read */
        take(&agenda->round, family);
    }
}

void twi_agenda_begin_round(tw_engine *engine) {
    struct twi_agenda *agenda = &engine->agenda;
    if (agenda->round != NULL && !engine->turn.closing) return;
    take_news(engine);
    while (agenda->always != NULL) {
        struct tw_family *family = agenda->always;
        agenda->always = family->agenda.next_always;
        family->agenda.is_always = false;
        take(&agenda->round, family);
    }
    take_due(engine, &agenda->by_time, engine->turn.now_ms);
    take_due(engine, &agenda->by_mono, engine->turn.mono_ms);
}

struct tw_family *twi_agenda_take(struct twi_agenda *agenda) {
    struct tw_family *family = agenda->round;
    if (family != NULL) agenda->round = family->agenda.next_due;
    return family;
}

void twi_agenda_enter(struct twi_agenda *agenda, struct tw_family *family) {
    twi_check(family->agenda.in_round);
    int64_t mono_ms = family->turn.look_mono_ms < family->turn.history.mono_ms ? family->turn.look_mono_ms
                                                                               : family->turn.history.mono_ms;
    family->agenda.in_round = false;
    twi_appointment_set(&agenda->by_time, &family->agenda.by_time, family->turn.due_ms);
    twi_appointment_set(&agenda->by_mono, &family->agenda.by_mono, mono_ms);
    bool every_turn = family->kind.evicts_idle || family->turn.is_ending;
    if (family->agenda.is_always || !every_turn) return;
    family->agenda.is_always = true;
    family->agenda.next_always = agenda->always;
    agenda->always = family;
}

void twi_agenda_leave(struct twi_agenda *agenda, struct tw_family *family) {
    twi_check(twi_load_relaxed(&family->requests.close_requested));
    twi_check(!family->agenda.is_always);
    twi_appointment_set(&agenda->by_time, &family->agenda.by_time, TWI_APPOINTMENT_NEVER);
    twi_appointment_set(&agenda->by_mono, &family->agenda.by_mono, TWI_APPOINTMENT_NEVER);
    twi_appointment_set(family->kind.gauge ? &agenda->gauges : &agenda->closings, &family->agenda.special,
                        TWI_APPOINTMENT_NEVER);
    if (agenda->searched == family) agenda->searched = twi_load_acquire(&family->entry.next);
}

int64_t twi_agenda_next_ms(const tw_engine *engine) {
    twi_check(engine->agenda.by_time == NULL || engine->agenda.by_time->at_ms != TWI_APPOINTMENT_NEVER);
    const struct twi_agenda *agenda = &engine->agenda;
    int64_t next_ms = agenda->by_mono != NULL ? agenda->by_mono->at_ms : INT64_MAX;
    if (agenda->round != NULL || agenda->taken != NULL || twi_load_relaxed(&agenda->news) != NULL)
        return engine->turn.mono_ms;
    if (agenda->by_time == NULL) return next_ms;
    int64_t left_ms = agenda->by_time->at_ms > engine->turn.now_ms ? agenda->by_time->at_ms - engine->turn.now_ms : 0;
    int64_t time_ms = twi_time_add(engine->turn.mono_ms, left_ms);
    return time_ms < next_ms ? time_ms : next_ms;
}

/* ---- the search ---- */

struct tw_family *twi_agenda_search(tw_engine *engine, uint32_t *left) {
    struct twi_agenda *agenda = &engine->agenda;
    int64_t passed_ms = engine->turn.mono_ms - agenda->searched_ms;
    if (*left == 0) { /* the number of families is computed once per turn */
        if (passed_ms < SEARCH_STEP_MS) return NULL;
        uint32_t all = twi_load_relaxed(&engine->roster.count);
        *left = passed_ms >= SEARCH_MS ? all : (uint32_t)((uint64_t)all * (uint64_t)passed_ms / SEARCH_MS + 1);
        agenda->searched_ms = engine->turn.mono_ms;
        if (agenda->searched == NULL) agenda->searched = twi_load_acquire(&engine->roster.first);
        (*left)++;
    }
    struct tw_family *family = --*left != 0 ? agenda->searched : NULL;
    if (family != NULL) agenda->searched = twi_load_acquire(&family->entry.next);
    return family;
}

/* The family is in no list of the turn but the news. */
static void take_off(struct tw_family *family) {
    const struct twi_appointment none = {.at_ms = INT64_MAX, .family = family};
    family->agenda.by_time = family->agenda.by_mono = family->agenda.special = none;
    family->agenda.in_round = family->agenda.is_always = false;
}

void twi_agenda_begin_family(struct tw_family *family) {
    family->agenda = (struct twi_family_agenda){.next_news = NULL};
    take_off(family);
}

void twi_agenda_begin(tw_engine *engine) {
    twi_check(!twi_load_relaxed(&engine->turn.owned));
    engine->agenda = (struct twi_agenda){.news = NULL};
}

void twi_agenda_recover(tw_engine *engine) {
    struct twi_agenda *agenda = &engine->agenda;
    agenda->by_time = agenda->by_mono = agenda->gauges = agenda->closings = NULL;
    agenda->always = agenda->taken = agenda->round = agenda->searched = NULL;
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL;
         family = twi_load_acquire(&family->entry.next)) {
        take_off(family);
        take(&agenda->round, family);
    }
}

/* ---- checks ---- */

bool twi_agenda_is_valid(const tw_engine *engine) {
    const struct twi_agenda *agenda = &engine->agenda;
    uint32_t by_time, by_mono, gauges, closings, times = 0, monos = 0, specials = 0, always = 0, listed = 0;
    if (!twi_appointments_are_valid(agenda->by_time, &by_time) ||
        !twi_appointments_are_valid(agenda->by_mono, &by_mono) ||
        !twi_appointments_are_valid(agenda->gauges, &gauges) ||
        !twi_appointments_are_valid(agenda->closings, &closings))
        return false;
    for (const struct tw_family *family = agenda->always; family != NULL; family = family->agenda.next_always) {
        listed++;
        if (!family->agenda.is_always) return false;
    }
    for (struct tw_family *family = twi_load_acquire(&engine->roster.first); family != NULL; /* as roster.c stores it */
         family = twi_load_acquire(&family->entry.next)) {
        const struct twi_family_agenda *own = &family->agenda;
        if (own->by_time.family != family || own->by_mono.family != family || own->special.family != family)
            return false;
        times += own->by_time.at_ms != TWI_APPOINTMENT_NEVER;
        monos += own->by_mono.at_ms != TWI_APPOINTMENT_NEVER;
        specials += own->special.at_ms != TWI_APPOINTMENT_NEVER;
        always += own->is_always;
        if ((family->kind.evicts_idle || family->turn.is_ending) && !own->is_always && !own->in_round &&
            !twi_load_relaxed(&own->is_news))
            return false; /* it would not be examined every turn */
    }
    return times == by_time && monos == by_mono && specials == gauges + closings && always == listed;
}
