/* grow.h -- the index of a window's keys, and the pieces of memory that a window owns (table.h has the picture). */
#ifndef TWI_GROW_H
#define TWI_GROW_H

#include "tallywheel.h"

struct twi_arena;
struct twi_chunk;
struct twi_generation;
struct twi_leaf;
struct twi_quota;

enum twi_grown { TWI_GREW, TWI_GROW_NO_MEMORY, TWI_GROW_SEALED };

/* Turns every EMPTY slot into CLOSED: what is in the leaf then is all that ever will be. Any thread, any number of
 * times. */
void twi_leaf_close(struct twi_leaf *leaf);
/* Closes the leaf of `entry` and publishes a larger copy of it, unless somebody has. Lock-free. */
enum twi_grown twi_leaf_grow(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry);
/* The leaf that takes inserts of a tag now: found through `next` words; repairs the entry it came by. */
uint64_t twi_index_leaf(struct twi_arena *arena, struct twi_generation *generation, uint32_t tag);
/* Memory for a generation: within its family's share. 0: none. */
uint32_t twi_piece_take(struct twi_arena *arena, struct twi_generation *generation, uint32_t lines);
void twi_piece_give(struct twi_arena *arena, struct twi_generation *generation, uint32_t line, uint32_t lines);
/* Enters a published index piece into the generation's list. */
void twi_piece_own(struct twi_arena *arena, struct twi_generation *generation, uint64_t entry);
/* What is left for a family, of the arena and of its share. */
int64_t twi_piece_room(const struct twi_arena *arena, struct twi_quota *quota);
/* About what the index for `keys_expected` takes. */
int64_t twi_index_bytes(uint64_t keys_expected);
/* The root of an index with room for `keys_expected`, in two steps, the second in as many turns as it takes. 0: no
 * memory. */
uint64_t twi_index_begin(struct twi_arena *arena, struct twi_generation *generation, uint64_t keys_expected);
/* True when every leaf is there; else *next is how many are (no memory if *work was not used up). */
bool twi_index_fill(struct twi_arena *arena, struct twi_generation *generation, uint64_t root, uint32_t *next,
                    uint32_t *work);
/* An empty leaf; 0: no memory. */
uint64_t twi_leaf_make(struct twi_arena *arena, struct twi_generation *generation, uint32_t log2, uint32_t depth,
                       uint32_t room);
/* Enters what a chunk of so many lines is; `older` and its place in the list are the caller's. */
void twi_chunk_begin(struct twi_arena *arena, struct twi_generation *generation, struct twi_chunk *chunk, uint32_t kind,
                     uint32_t lines);

#endif
