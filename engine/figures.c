/* figures.c -- see figures.h. */
#include "engine/figures.h"

#include "engine/overshoot.h"

#include <stdlib.h>

void twi_figures_add(const struct tw_family *family, struct twi_limit_figures *sum) {
    struct tw_family *own = (struct tw_family *)family;
    for (uint32_t i = 0; i < TWI_SHARDS; i++) {
        struct twi_limit_shard *shard = &own->limits[i];
        if (i == TWI_SHARD_ASIDE) continue;
        int64_t here = twi_load_relaxed(&shard->admitted); /* relaxed: statistics */
        sum->admitted_here += here;
        sum->admitted += here + twi_load_relaxed(&shard->admitted_there);
        sum->denied += twi_load_relaxed(&shard->denied);
        sum->near += twi_load_relaxed(&shard->near);
        sum->shadow_denied += twi_load_relaxed(&shard->shadow_denied);
    }
    for (uint32_t i = 0; i < TWI_OVERSHOOT_BUCKETS; i++) sum->overshoots[i] += twi_load_relaxed(&own->overshoots[i]);
    sum->overshoot_ppm += twi_load_relaxed(&own->overshoot_ppm);
}

void twi_figures_read(tw_engine *engine, tw_stats *stats) {
    struct twi_limit_figures sum = {0};
    for (struct tw_family *family = twi_load_acquire(&engine->families); family != NULL;
         family = twi_load_acquire(&family->next))
        twi_figures_add(family, &sum);
    stats->increments += sum.admitted_here;
    stats->limit_admitted += sum.admitted;
    stats->limit_denied += sum.denied;
    stats->limit_near += sum.near;
    stats->limit_shadow_denied += sum.shadow_denied;
}

void twi_figures_keep(struct tw_family *family) {
    struct twi_limit_figures sum = {0};
    tw_engine *engine = family->engine;
    twi_figures_add(family, &sum);
    twi_port_count(engine, increments, sum.admitted_here);
    twi_port_count(engine, limit_admitted, sum.admitted);
    twi_port_count(engine, limit_denied, sum.denied);
    twi_port_count(engine, limit_near, sum.near);
    twi_port_count(engine, limit_shadow_denied, sum.shadow_denied);
}

void twi_figures_clear(struct tw_family *family) {
    memset(family->limits, 0, sizeof family->limits);
    for (uint32_t i = 0; i < TWI_OVERSHOOT_BUCKETS; i++) twi_store_relaxed(&family->overshoots[i], 0);
    twi_store_relaxed(&family->overshoot_ppm, 0);
}

/* ---- by family ---- */

static bool was_asked(const struct twi_limit_figures *figures) {
    return figures->admitted != 0 || figures->denied != 0 || figures->shadow_denied != 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct twi_family_figures *)a)->name, ((const struct twi_family_figures *)b)->name);
}

static size_t count_families(tw_engine *engine) {
    size_t count = 0;
    for (struct tw_family *family = twi_load_acquire(&engine->families); family != NULL;
         family = twi_load_acquire(&family->next))
        count++;
    return count;
}

/* One that is being closed has lost its name: there may be another of that name by now. */
static size_t list_families(tw_engine *engine, struct twi_family_figures *list) {
    size_t count = 0;
    for (struct tw_family *family = twi_load_acquire(&engine->families); family != NULL;
         family = twi_load_acquire(&family->next)) {
        struct twi_family_figures *figures = &list[count];
        if (twi_load_relaxed(&family->close_asked)) continue;
        memset(figures, 0, sizeof *figures);
        twi_figures_add(family, &figures->limits);
        if (!was_asked(&figures->limits)) continue;
        figures->is_measured = twi_overshoot_is_measured(family);
        memcpy(figures->name, family->options.name, strnlen(family->options.name, sizeof figures->name - 1));
        count++;
    }
    return count;
}

bool twi_figures_list(tw_engine *engine, struct twi_family_figures **list, size_t *count) {
    pthread_mutex_lock(&engine->lock); /* families stay, and none is added */
    *list = calloc(count_families(engine) + 1, sizeof **list);
    *count = *list != NULL ? list_families(engine, *list) : 0;
    pthread_mutex_unlock(&engine->lock);
    if (*list != NULL) qsort(*list, *count, sizeof **list, compare_names);
    return *list != NULL;
}
