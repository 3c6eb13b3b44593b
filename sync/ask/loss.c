/* loss.c -- see loss.h. */
#include "sync/ask/loss.h"

#include "engine/base/check.h"
#include "sync/ask/verdict.h"
#include "sync/ask/way.h"
#include "sync/wire/cluster_directory.h"

static void count_end(struct twi_dispatcher *dispatcher, enum twi_link_end ended, uint32_t calls) {
    if (ended == TWI_LINK_SILENT) TWI_ASK_COUNT(dispatcher, ask_timeouts, calls);
    if (ended == TWI_LINK_CUT || ended == TWI_LINK_UNMADE) TWI_ASK_COUNT(dispatcher, ask_dropped, calls);
    if (ended == TWI_LINK_DENIED) TWI_ASK_COUNT(dispatcher, ask_refused, calls);
}

/* The sent calls whose end was not counted yet: those whose time was over before are in ask_timeouts. */
static uint32_t uncounted(const struct twi_link *link) {
    uint32_t count = 0;
    for (const struct twi_lane *lane = link->sent.first; lane != NULL; lane = lane->next)
        count += lane->state != TWI_LANE_UNSETTLED;
    twi_check(count <= link->sent.count);
    return count;
}

/* Puts the sent calls, in their order, before the waiting ones. */
static void take_back(struct twi_dispatcher *dispatcher, struct twi_link *link) {
    struct twi_lane_list again = {0};
    for (struct twi_lane *lane; (lane = link->sent.first) != NULL;) {
        twi_lane_list_remove(&link->sent, lane);
        if (twi_verdict_lost(dispatcher, lane, lane->tries.end_at <= link->sent_total)) twi_lane_list_add(&again, lane);
    }
    twi_lane_list_put_before(&link->waiting, &again);
    twi_check(link->sent.first == NULL && again.first == NULL);
}

void twi_loss_of(struct twi_dispatcher *dispatcher, struct twi_link *link, int64_t now_ms) {
    enum twi_link_end ended = link->ended;
    twi_check(ended != TWI_LINK_LIVES && link->phase == TWI_LINK_DOWN);
    uint32_t calls = ended == TWI_LINK_SILENT ? uncounted(link) : link->sent.count;
    count_end(dispatcher, ended, link->sent.count != 0 ? calls : link->waiting.first != NULL);
    take_back(dispatcher, link);
    twi_link_failed(link, now_ms);
    twi_check(link->ended == TWI_LINK_LIVES);
    if (ended == TWI_LINK_DENIED) twi_verdict_refuse_all(dispatcher, &link->waiting);
    if (dispatcher->directory == NULL || ended == TWI_LINK_DISMISSED) return;
    twi_directory_want(dispatcher->directory);
    twi_way_again(dispatcher, link, now_ms);
}
