/* redis_name.c -- the name of an item's counter in Redis (port/), by key_template.h. */
#include "engine/core/state.h"

#include "engine/core/family.h"

#include <string.h>

size_t twi_port_render(const struct twi_item *item, char *out) {
    twi_check(item->generation->family == item->family);
    int64_t start_ms = item->generation->start_ms;
    if ((item->flags & TWI_ITEM_OVERFLOW) != 0)
        return twi_key_template_render_overflow(&item->family->template, start_ms, out);
    return twi_key_template_render(&item->family->template, twi_port_key(item), start_ms, out);
}
tw_key twi_port_inner(const struct twi_item *item) {
    tw_key subject, inner = tw_bytes("", 0);
    if ((item->flags & TWI_ITEM_OVERFLOW) == 0)
        (void)twi_redis_shape_split(item->family->template.shape, twi_port_key(item), &subject, &inner);
    return inner;
}
/* Appends text to the used part of `out`. */
static size_t put_printable(const char *text, size_t size, char *out, size_t used, size_t room) {
    twi_check(used < room);
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size && used + 5 < room; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte > ' ' && byte < 127 && byte != '\\') {
            out[used++] = (char)byte;
            continue;
        }
        out[used++] = '\\', out[used++] = 'x', out[used++] = digits[byte >> 4], out[used++] = digits[byte & 15];
    }
    return used;
}
void twi_port_title(const struct twi_item *item, char *out, size_t room) {
    twi_check(room != 0);
    static const char between[] = ", ";
    char name[TWI_REDIS_KEY_MAX];
    tw_key inner = twi_port_inner(item);
    size_t used = put_printable(name, twi_port_render(item, name), out, 0, room);
    if (inner.size != 0 && used + sizeof between < room) {
        memcpy(out + used, between, sizeof between - 1);
        used = put_printable(inner.data, inner.size, out, used + sizeof between - 1, room);
    }
    out[used] = '\0';
}
size_t twi_port_render_own(const struct twi_item *item, const char *what, char *out) {
    twi_check(strlen(what) <= 8);
    char name[TWI_REDIS_KEY_MAX];
    return twi_key_template_own(&item->family->template, what, name, twi_port_render(item, name), out);
}
tw_key twi_port_key(const struct twi_item *item) {
    return tw_bytes(item->cell->key, twi_load_relaxed(&item->cell->meta) & TWI_META_SIZE);
}
int64_t twi_port_start_ms(const struct twi_item *item) {
    return twi_generation_start_ms(item->generation);
}

const char *twi_port_prefix(const tw_engine *engine) {
    return engine->options.redis_prefix != NULL ? engine->options.redis_prefix : "";
}
