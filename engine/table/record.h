/* record.h -- the memory that a generation owns: pieces of the arena within its family's share, and records in chunks.
 * Always true: an owned piece is counted in the bytes of its family and of its generation. Any thread, lock-free. */
#ifndef TWI_TABLE_RECORD_H
#define TWI_TABLE_RECORD_H

#include "engine/table/layout.h"

/* Memory for a generation, within its family's share. 0: none. */
uint32_t twi_piece_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t lines);
void twi_piece_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t line, uint32_t lines);
/* How much is left for a family, of the arena and of its share. */
int64_t twi_piece_room(const struct twi_arena *arena, struct twi_quota *quota);
/* Fills in the head of a chunk of so many lines. The caller sets `older` and adds the chunk to its list. */
void twi_chunk_begin(struct twi_arena *arena, struct twi_generation *generation, struct twi_chunk *chunk, uint32_t kind,
                     uint32_t lines);
/* A record of that kind, not yet filled in. NULL: no memory. *meta: its index, kind and cold flag. */
struct twi_cell *twi_record_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t kind,
                                 uint64_t *meta);

#endif
