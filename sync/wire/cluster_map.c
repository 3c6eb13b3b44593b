/* cluster_map.c -- see cluster_map.h. A slot has the place of its node in the table, plus 1. Changes by MOVED are in a
 * ring, in the order of their times; each slot has at most one of them. */
#include "sync/wire/cluster_map.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/check.h"
#include "engine/base/key_slot.h"
#include "sync/wire/cluster_nodes.h"

#define NO_SLOT UINT16_MAX
#define MANY_FAILURES 3u /* after so many failures in a row, every other try uses a seed */

struct node {
    uint64_t number;
    struct twi_endpoint endpoint;
    char id[TWI_NODE_ID_SIZE]; /* "" if only MOVED has named it so far */
    uint32_t slots;
    uint16_t place;        /* in the table */
    bool is_named;         /* the refresh that is being applied names it */
    int64_t idle_since_ms; /* without slots */
};

/* A change by MOVED, and the different owner by one master's reply. */
struct patch {
    uint16_t slot; /* NO_SLOT if a later change of the slot replaced it */
    int64_t at_ms;
    uint64_t claimant; /* 0 if there is none */
    uint64_t claimed;  /* the node that has the slot, by its reply; 0 if there is none */
};

struct twi_cluster_map {
    struct node *nodes[TWI_MAP_NODES_MAX]; /* NULL for an empty place */
    uint32_t nodes_end;
    uint64_t numbers;                 /* the last number */
    uint16_t owners[TWI_KEY_SLOTS];   /* place + 1; 0 if it has no owner */
    uint16_t patch_of[TWI_KEY_SLOTS]; /* place in the ring + 1; 0 if there is none */
    struct patch patches[TWI_MAP_PATCHES_MAX];
    uint32_t patch_first, patch_count;

    struct twi_endpoint *seeds;
    uint32_t seed_count;
    uint32_t seed_first, seeds_asked; /* the nodes get the question in turn, beginning with a random one */

    bool is_wanted, is_under_way;
    bool is_routine;      /* the refresh under way was made without a request */
    int64_t next_ms;      /* the next refresh begins no earlier ... */
    int64_t stale_ms;     /* ... and no later, even without a request */
    uint32_t unchanged;   /* refreshes in a row without a change */
    uint32_t failures;    /* in a row */
    uint32_t asked_place; /* place of the node that got the last question; TWI_MAP_NODES_MAX before the first one */
};

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

struct twi_cluster_map *twi_cluster_map_create(const struct twi_endpoint *seeds, uint32_t count) {
    twi_check(seeds != NULL && count >= 1);
    struct twi_cluster_map *map = calloc(1, sizeof *map);
    if (!map) return NULL;
    map->seeds = malloc(count * sizeof *seeds);
    if (!map->seeds) {
        free(map);
        return NULL;
    }
    memcpy(map->seeds, seeds, count * sizeof *seeds);
    map->seed_count = count;
    map->is_wanted = true;
    map->next_ms = INT64_MIN;
    map->stale_ms = INT64_MAX;
    map->asked_place = TWI_MAP_NODES_MAX;
    return map;
}

void twi_cluster_map_destroy(struct twi_cluster_map *map) {
    if (!map) return;
    for (uint32_t i = 0; i < map->nodes_end; i++) free(map->nodes[i]);
    free(map->seeds);
    free(map);
}

static struct node *node_of_number(const struct twi_cluster_map *map, uint64_t number) {
    for (uint32_t i = 0; i < map->nodes_end; i++)
        if (map->nodes[i] && map->nodes[i]->number == number) return map->nodes[i];
    return NULL;
}

static struct node *node_at(const struct twi_cluster_map *map, const struct twi_endpoint *endpoint) {
    for (uint32_t i = 0; i < map->nodes_end; i++)
        if (map->nodes[i] && twi_endpoint_equals(&map->nodes[i]->endpoint, endpoint)) return map->nodes[i];
    return NULL;
}

static struct node *node_of_id(const struct twi_cluster_map *map, const char *id) {
    for (uint32_t i = 0; i < map->nodes_end && id[0]; i++)
        if (map->nodes[i] && strcmp(map->nodes[i]->id, id) == 0) return map->nodes[i];
    return NULL;
}

static struct node *owner_of(const struct twi_cluster_map *map, uint32_t slot) {
    twi_check(slot < TWI_KEY_SLOTS);
    return map->owners[slot] ? map->nodes[map->owners[slot] - 1] : NULL;
}

static void map_forget(struct twi_cluster_map *map, struct node *node) {
    twi_check(map->nodes[node->place] == node && node->slots == 0);
    map->nodes[node->place] = NULL;
    free(node);
    while (map->nodes_end > 0 && !map->nodes[map->nodes_end - 1]) map->nodes_end--;
}

/* Returns an empty place; if there is none, that of the node that has had no slots for longest. Returns false if all
 * are in use. */
static bool find_place(struct twi_cluster_map *map, uint16_t *place) {
    struct node *oldest = NULL;
    for (*place = 0; *place < TWI_MAP_NODES_MAX; ++*place) {
        struct node *node = map->nodes[*place];
        if (!node) return true;
        if (node->slots != 0 || node->is_named) continue;
        if (!oldest || node->idle_since_ms < oldest->idle_since_ms) oldest = node;
    }
    if (!oldest) return false;
    *place = oldest->place;
    map_forget(map, oldest);
    return true;
}

static struct node *add_node(struct twi_cluster_map *map, const struct twi_endpoint *endpoint, int64_t now_ms) {
    struct node *node = calloc(1, sizeof *node);
    if (!node || !find_place(map, &node->place)) {
        free(node);
        return NULL;
    }
    node->number = ++map->numbers;
    node->endpoint = *endpoint;
    node->idle_since_ms = now_ms;
    twi_check(map->nodes[node->place] == NULL);
    map->nodes[node->place] = node;
    if (node->place >= map->nodes_end) map->nodes_end = node->place + 1u;
    return node;
}

/* `node` is NULL if it has no owner. */
static void map_give(struct twi_cluster_map *map, uint32_t slot, struct node *node, int64_t now_ms) {
    twi_check(slot < TWI_KEY_SLOTS);
    struct node *before = owner_of(map, slot);
    if (before == node) return;
    twi_check(before == NULL || before->slots != 0);
    if (before && --before->slots == 0) before->idle_since_ms = now_ms;
    if (node) node->slots++;
    map->owners[slot] = node ? (uint16_t)(node->place + 1) : 0;
}

/* Called when the master with the id has moved to this address. It gets the known facts about the address. */
static void relocate(struct twi_cluster_map *map, struct node *node, const struct twi_endpoint *endpoint,
                     int64_t now_ms) {
    twi_check(node != NULL);
    struct node *there = node_at(map, endpoint);
    node->endpoint = *endpoint;
    node->number = there ? there->number : ++map->numbers; /* the connections to an address stay */
    if (!there) return;
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS && there->slots != 0; slot++)
        if (owner_of(map, slot) == there) map_give(map, slot, node, now_ms);
    map_forget(map, there);
}

/* ---- changes by MOVED -------------------------------------------------------------------------------------------- */

static void drop_patch(struct twi_cluster_map *map, uint32_t slot) {
    twi_check(slot < TWI_KEY_SLOTS);
    if (map->patch_of[slot]) map->patches[map->patch_of[slot] - 1].slot = NO_SLOT;
    map->patch_of[slot] = 0;
}

static void drop_first_patch(struct twi_cluster_map *map) {
    twi_check(map->patch_count != 0);
    uint16_t slot = map->patches[map->patch_first].slot;
    if (slot != NO_SLOT) map->patch_of[slot] = 0;
    map->patch_first = (map->patch_first + 1) % TWI_MAP_PATCHES_MAX;
    map->patch_count--;
}

static void add_patch(struct twi_cluster_map *map, uint32_t slot, int64_t now_ms) {
    twi_check(slot < TWI_KEY_SLOTS);
    drop_patch(map, slot);
    if (map->patch_count == TWI_MAP_PATCHES_MAX) drop_first_patch(map);
    uint32_t at = (map->patch_first + map->patch_count++) % TWI_MAP_PATCHES_MAX;
    map->patches[at] = (struct patch){.slot = (uint16_t)slot, .at_ms = now_ms};
    map->patch_of[slot] = (uint16_t)(at + 1);
    twi_check(map->patch_count <= TWI_MAP_PATCHES_MAX);
}

static void drop_old_patches(struct twi_cluster_map *map, int64_t now_ms) {
    while (map->patch_count != 0 && now_ms - map->patches[map->patch_first].at_ms >= TWI_MAP_TRUST_MS)
        drop_first_patch(map);
}

bool twi_cluster_map_moved(struct twi_cluster_map *map, uint32_t slot, const struct twi_endpoint *to, int64_t now_ms) {
    twi_check(slot < TWI_KEY_SLOTS);
    struct node *node = node_at(map, to);
    if (!node) {
        twi_cluster_map_want(map, now_ms);
        node = add_node(map, to, now_ms);
        if (!node) return false;
    }
    map_give(map, slot, node, now_ms);
    add_patch(map, slot, now_ms);
    return true;
}

/* ---- refreshes: their replies ------------------------------------------------------------------------------------ */

/* A master of the reply that is being applied. */
struct named {
    struct twi_slot_range range; /* one of its ranges */
    struct node *node;
};

struct refresh {
    struct twi_cluster_map *map;
    const struct twi_endpoint *asked;
    const struct twi_node *nodes; /* of the reply */
    size_t count;
    int64_t now_ms;
    const struct node *witness; /* the node that replied; NULL if no master is known under this address */
    bool is_changed;
    bool is_contested; /* a change by MOVED contradicts it */
    struct named masters[TWI_MAP_NAMED_MAX];
    uint32_t master_count;
    uint16_t master_of[TWI_KEY_SLOTS]; /* place in `masters`, plus 1; 0 if no master serves it */
};

static bool has_same_endpoint(const struct twi_slot_range *a, const struct twi_slot_range *b) {
    return a->has_endpoint && b->has_endpoint && a->port == b->port && strcmp(a->host, b->host) == 0;
}

static bool is_same(const struct twi_slot_range *a, const struct twi_slot_range *b) {
    return strcmp(a->id, b->id) == 0 && (has_same_endpoint(a, b) || (!a->has_endpoint && !b->has_endpoint));
}

/* Returns the master of a range among those of the reply; NULL if it is new. Returns false if the reply contradicts
 * itself. Two masters have one id, or one address. */
static bool find_named(struct refresh *refresh, const struct twi_slot_range *range, struct named **found) {
    *found = NULL;
    for (uint32_t i = 0; i < refresh->master_count; i++) {
        const struct twi_slot_range *other = &refresh->masters[i].range;
        if (is_same(range, other)) {
            *found = &refresh->masters[i];
            return true;
        }
        if (has_same_endpoint(range, other) || (range->id[0] && strcmp(range->id, other->id) == 0)) return false;
    }
    return true;
}

/* Lists the masters of the reply, and whose the slots are. Returns false if the reply cannot be used. */
static bool list_masters(struct refresh *refresh) {
    struct twi_slot_range range;
    struct named *named;
    bool has_endpoint = false;
    for (size_t at = 1; twi_cluster_slots_next(refresh->nodes, refresh->count, refresh->asked, &at, &range);) {
        if (!find_named(refresh, &range, &named)) return false;
        if (!named && refresh->master_count == TWI_MAP_NAMED_MAX) return false;
        if (!named) {
            named = &refresh->masters[refresh->master_count++];
            named->range = range;
        }
        has_endpoint |= range.has_endpoint;
        for (uint32_t slot = range.first; slot <= range.last; slot++)
            refresh->master_of[slot] = (uint16_t)(named - refresh->masters + 1);
    }
    return has_endpoint;
}

/* Finds or makes the node of a master; NULL if its address is unknown. Returns false if another master of the reply is
 * there, or if there is no memory. */
static bool place_master(struct refresh *refresh, struct named *named) {
    struct twi_cluster_map *map = refresh->map;
    const struct twi_slot_range *range = &named->range;
    struct twi_endpoint endpoint;
    struct node *node = named->node = node_of_id(map, range->id);
    if (!range->has_endpoint) return true;
    twi_endpoint_read(refresh->asked, range->host, strlen(range->host), range->port, &endpoint);
    struct node *there = node_at(map, &endpoint);
    if (there && there->is_named) return false;
    if (node && node != there) {
        relocate(map, node, &endpoint, refresh->now_ms);
        refresh->is_changed = true;
    }
    if (node) return true;
    node = named->node = there ? there : add_node(map, &endpoint, refresh->now_ms);
    if (node) memcpy(node->id, range->id, strlen(range->id) + 1);
    return node != NULL;
}

static bool place_masters(struct refresh *refresh) {
    for (uint32_t i = 0; i < refresh->master_count; i++) {
        struct named *named = &refresh->masters[i];
        if (!place_master(refresh, named)) return false;
        if (named->node) named->node->is_named = true;
    }
    refresh->witness = node_at(refresh->map, refresh->asked);
    if (refresh->witness && !refresh->witness->id[0]) refresh->witness = NULL;
    return true;
}

/* Returns true if the reply may change a slot that MOVED has changed: a second master must agree. */
static bool may_overrule(const struct refresh *refresh, struct patch *patch, const struct node *named) {
    twi_check(patch->slot != NO_SLOT);
    uint64_t claimed = named ? named->number : 0;
    if (!refresh->witness) return false;
    if (patch->claimant != 0 && patch->claimant != refresh->witness->number && patch->claimed == claimed) return true;
    patch->claimant = refresh->witness->number;
    patch->claimed = claimed;
    return false;
}

static void take_slot(struct refresh *refresh, uint32_t slot, struct node *named) {
    twi_check(slot < TWI_KEY_SLOTS);
    struct twi_cluster_map *map = refresh->map;
    if (owner_of(map, slot) == named) return;
    if (map->patch_of[slot]) {
        if (!may_overrule(refresh, &map->patches[map->patch_of[slot] - 1], named)) {
            refresh->is_contested = true;
            return;
        }
        drop_patch(map, slot);
    }
    map_give(map, slot, named, refresh->now_ms);
    refresh->is_changed = true;
}

static void take_slots(struct refresh *refresh) {
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        uint16_t master = refresh->master_of[slot];
        take_slot(refresh, slot, master ? refresh->masters[master - 1].node : NULL);
    }
}

static bool apply(struct refresh *refresh) {
    struct twi_cluster_map *map = refresh->map;
    if (!twi_cluster_slots_valid(refresh->nodes, refresh->count, refresh->asked) || !list_masters(refresh))
        return false;
    bool placed = place_masters(refresh);
    if (placed) {
        drop_old_patches(map, refresh->now_ms);
        take_slots(refresh);
    }
    for (uint32_t i = 0; i < map->nodes_end; i++)
        if (map->nodes[i]) map->nodes[i]->is_named = false;
    return placed;
}

/* ---- refreshes: when, and by which node -------------------------------------------------------------------------- */

/* The pauses double, up to a bound. Each pause is uniform between a half and the whole of that. */
static void pause_for(struct twi_cluster_map *map, int64_t base_ms, int64_t most_ms, uint32_t doublings, int64_t now_ms,
                      uint64_t random) {
    twi_check(base_ms > 0 && most_ms >= base_ms);
    int64_t ceiling_ms = base_ms;
    for (uint32_t i = 0; i < doublings && ceiling_ms < most_ms; i++) ceiling_ms *= 2;
    if (ceiling_ms > most_ms) ceiling_ms = most_ms;
    map->next_ms = now_ms + ceiling_ms / 2 + (int64_t)(random % (uint64_t)(ceiling_ms / 2 + 1));
}

void twi_cluster_map_want(struct twi_cluster_map *map, int64_t now_ms) {
    if (!map->is_wanted && !map->is_under_way && now_ms >= map->next_ms) map->unchanged = 0; /* it was calm */
    map->is_wanted = true;
}

int64_t twi_cluster_map_due_ms(const struct twi_cluster_map *map) {
    if (map->is_under_way) return INT64_MAX;
    return map->is_wanted ? map->next_ms : map->stale_ms;
}

static uint32_t count_masters(const struct twi_cluster_map *map) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < map->nodes_end; i++) count += map->nodes[i] && map->nodes[i]->slots != 0;
    return count;
}

/* Chooses a master with slots by chance, but not the last one that got the question if there are others; NULL if
 * none is known. While no master answers, they get the question in turn. */
static const struct node *choose(const struct twi_cluster_map *map, uint64_t random) {
    twi_check(map->asked_place <= TWI_MAP_NODES_MAX);
    bool was_last =
        map->asked_place < map->nodes_end && map->nodes[map->asked_place] && map->nodes[map->asked_place]->slots != 0;
    uint32_t others = count_masters(map) - was_last;
    uint64_t skip = map->failures == 0 && others != 0 ? random % others : 0;
    for (uint32_t i = 1; i <= map->nodes_end; i++) {
        const struct node *node = map->nodes[(map->asked_place + i) % map->nodes_end];
        if (node && node->slots != 0 && skip-- == 0) return node;
    }
    return NULL;
}

/* An unreachable seed gets the question again only after all others. */
static const struct twi_endpoint *next_seed(struct twi_cluster_map *map, uint64_t random) {
    twi_check(map->seed_count != 0);
    if (map->seeds_asked == 0) map->seed_first = (uint32_t)(random % map->seed_count);
    return &map->seeds[(map->seed_first + map->seeds_asked++) % map->seed_count];
}

void twi_cluster_map_ask(struct twi_cluster_map *map, uint64_t random, struct twi_endpoint *whom) {
    twi_check(!map->is_under_way);
    bool is_seeds_turn = map->failures >= MANY_FAILURES && (map->failures - MANY_FAILURES) % 2 == 0;
    const struct node *node = is_seeds_turn ? NULL : choose(map, random);
    *whom = node ? node->endpoint : *next_seed(map, random);
    if (node) map->asked_place = node->place;
    map->is_routine = !map->is_wanted;
    map->is_wanted = false;
    map->is_under_way = true;
}

/* After so many failures in a row each master and each seed was tried. */
static uint32_t count_tries(const struct twi_cluster_map *map, uint32_t masters) {
    if (masters == 0) return map->seed_count;
    return MANY_FAILURES + 2 * (masters > map->seed_count ? masters : map->seed_count);
}

void twi_cluster_map_failed(struct twi_cluster_map *map, bool was_asked, int64_t now_ms, uint64_t random) {
    uint32_t masters = count_masters(map);
    int64_t most_ms = was_asked ? TWI_MAP_REFRESH_MAX_MS : TWI_MAP_DIAL_MAX_MS;
    if (was_asked && masters != 0)
        pause_for(map, TWI_MAP_REFRESH_MS, most_ms, map->unchanged++, now_ms, random);
    else
        pause_for(map, TWI_MAP_DIAL_MS, most_ms, map->failures / count_tries(map, masters), now_ms, random);
    if (map->failures < UINT32_MAX) map->failures++;
    map->is_wanted = true;
    map->is_under_way = false;
}

bool twi_cluster_map_reply(struct twi_cluster_map *map, const struct twi_endpoint *asked, const struct twi_node *nodes,
                           size_t count, int64_t now_ms, uint64_t random) {
    struct refresh *refresh = calloc(1, sizeof *refresh);
    bool is_changed = false, is_contested = false, applied = false;
    if (refresh) {
        refresh->map = map, refresh->asked = asked, refresh->nodes = nodes, refresh->count = count;
        refresh->now_ms = now_ms;
        applied = apply(refresh);
        is_changed = refresh->is_changed, is_contested = refresh->is_contested;
    }
    free(refresh);
    if (!applied) {
        twi_cluster_map_failed(map, true, now_ms, random);
        return false;
    }
    map->unchanged = is_changed || map->is_routine ? 0 : map->unchanged + 1;
    map->failures = 0;
    pause_for(map, TWI_MAP_REFRESH_MS, TWI_MAP_REFRESH_MAX_MS, map->unchanged, now_ms, random);
    map->stale_ms = now_ms + TWI_MAP_STALE_MS / 2 + (int64_t)((random >> 32) % (TWI_MAP_STALE_MS / 2));
    map->is_under_way = false;
    if (is_contested) map->is_wanted = true;
    return true;
}

/* ---- where ------------------------------------------------------------------------------------------------------- */

uint64_t twi_cluster_map_owner(const struct twi_cluster_map *map, uint32_t slot) {
    const struct node *node = owner_of(map, slot);
    return node ? node->number : 0;
}

const struct twi_endpoint *twi_cluster_map_endpoint(const struct twi_cluster_map *map, uint64_t number) {
    const struct node *node = node_of_number(map, number);
    return node ? &node->endpoint : NULL;
}

uint32_t twi_cluster_map_slots(const struct twi_cluster_map *map, uint64_t number) {
    const struct node *node = node_of_number(map, number);
    return node ? node->slots : 0;
}

uint64_t twi_cluster_map_next(const struct twi_cluster_map *map, uint64_t after) {
    uint64_t next = 0;
    for (uint32_t i = 0; i < map->nodes_end; i++) {
        const struct node *node = map->nodes[i];
        if (node && node->slots != 0 && node->number > after && (next == 0 || node->number < next)) next = node->number;
    }
    return next;
}

void twi_cluster_map_sweep(struct twi_cluster_map *map, int64_t now_ms) {
    for (uint32_t i = 0; i < map->nodes_end; i++) {
        struct node *node = map->nodes[i];
        if (node && node->slots == 0 && now_ms - node->idle_since_ms >= TWI_MAP_UNUSED_MS) map_forget(map, node);
    }
}

/* ---- validity ---------------------------------------------------------------------------------------------------- */

static bool is_node_valid(const struct twi_cluster_map *map, uint32_t place, uint32_t slots) {
    const struct node *node = map->nodes[place];
    if (node->place != place || node->slots != slots || node->number > map->numbers || node->is_named) return false;
    return node_at(map, &node->endpoint) == node && node_of_number(map, node->number) == node &&
           (!node->id[0] || node_of_id(map, node->id) == node);
}

static bool are_patches_valid(const struct twi_cluster_map *map) {
    int64_t before_ms = INT64_MIN;
    uint32_t live = 0, patched = 0;
    for (uint32_t i = 0; i < map->patch_count; i++) {
        uint32_t at = (map->patch_first + i) % TWI_MAP_PATCHES_MAX;
        const struct patch *patch = &map->patches[at];
        if (patch->at_ms < before_ms) return false;
        before_ms = patch->at_ms;
        if (patch->slot == NO_SLOT) continue;
        if (map->patch_of[patch->slot] != at + 1) return false;
        live++;
    }
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) patched += map->patch_of[slot] != 0;
    return patched == live;
}

bool twi_cluster_map_is_valid(const struct twi_cluster_map *map) {
    uint32_t slots[TWI_MAP_NODES_MAX] = {0};
    for (uint32_t slot = 0; slot < TWI_KEY_SLOTS; slot++) {
        if (map->owners[slot] == 0) continue;
        if (!owner_of(map, slot)) return false;
        slots[map->owners[slot] - 1]++;
    }
    for (uint32_t i = 0; i < map->nodes_end; i++)
        if (map->nodes[i] && !is_node_valid(map, i, slots[i])) return false;
    return are_patches_valid(map);
}
