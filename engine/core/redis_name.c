/* redis_name.c -- the name of an item's counter in Redis (port/), by its family's template (key_template.h). */
#include "engine/core/state.h"
#include "engine/core/family.h"

size_t twi_port_render(const struct twi_item *item, char *out) {
    int64_t start_ms = item->generation->start_ms;
    if ((item->flags & TWI_ITEM_OVERFLOW) != 0)
        return twi_key_template_render_overflow(&item->family->template, start_ms, out);
    return twi_key_template_render(&item->family->template, twi_port_key(item), start_ms, out);
}
size_t twi_port_render_own(const struct twi_item *item, const char *what, char *out) {
    char name[TWI_REDIS_KEY_MAX];
    return twi_key_template_own(&item->family->template, what, name, twi_port_render(item, name), out);
}
tw_key twi_port_key(const struct twi_item *item) {
    return tw_bytes(item->cell->key, twi_load_relaxed(&item->cell->meta) & TWI_META_SIZE);
}
int64_t twi_port_start_ms(const struct twi_item *item) {
    return twi_generation_start_ms(item->generation);
}

const char *twi_port_prefix(tw_engine *engine) {
    return engine->options.redis_prefix != NULL ? engine->options.redis_prefix : "";
}
