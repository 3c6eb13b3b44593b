/* slot_fast.h -- finds the cell of a known key in the table of a family's slots (reserve/hold_shared.c). It is a part
 * of the same template, and all_fast.h is included before it.
 * Always true: a cell that it returns is published, as those of twi_table_find() after twi_cell_publish(). */
#ifndef TWI_HOT_CELL
#error "slot_fast.h is a template: define TWI_HOT_CELL first"
#endif

/* See twi_hot_cell in decision.h. */
TWI_HOT_CODE struct twi_cell *TWI_HOT_CELL(const tw_engine *engine, struct twi_generation *table, tw_key key,
                                           uint64_t *hash) {
    struct hot_any_key any;
    if (twi_unlikely(!TWI_HOT_OWN(read_key)(engine, key, &any))) return NULL;
    *hash = any.hash;
    return TWI_HOT_OWN(plain_cell)(engine, table, &any);
}
