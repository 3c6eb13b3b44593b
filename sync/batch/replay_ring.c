/* replay_ring.c -- see replay_ring.h. */
#include "sync/batch/replay_ring.h"

#include <string.h>
#include <sys/mman.h>

#include "engine/base/atomic.h"
#include "engine/base/check.h"

#define POSITIONS (UINT64_C(1) << 62) /* no engine lives to fill so many bytes */
#define RECORD_GRAIN 16u              /* so a gap before the edge has room for its mark */

struct numbers {
    uint64_t number, before, nonce, plus_sum, minus_sum;
    uint8_t is_step; /* no bool: another process may write any byte */
};

/* A record. Behind it are `args` and then `keys`. */
struct kept {
    uint32_t bytes; /* of the record; 0: nothing comes before the edge, so the next record is at offset 0 */
    uint32_t key_count, arg_count, name_keys;
    uint64_t key_bytes, arg_bytes;
    struct numbers numbers[2];
    uint64_t plus, minus, struck;
    int64_t frozen_ms;
    uint8_t strayed, was_short;
};

static uint64_t bytes_of(uint64_t keys, uint64_t args) {
    return (sizeof(struct kept) + keys + args + RECORD_GRAIN - 1) / RECORD_GRAIN * RECORD_GRAIN;
}

static uint64_t need_of(const struct twi_batch *batch) {
    return bytes_of(batch->keys.size, batch->args.size);
}

static struct kept *record_at(const struct twi_replay_ring *ring, uint64_t offset) {
    return (struct kept *)(void *)(ring->bytes + offset);
}

static struct kept *record_of(const struct twi_batch *batch) {
    twi_check(batch->is_kept && batch->args.data != NULL);
    return (struct kept *)(void *)batch->args.data - 1;
}

/* ---- the ends ---------------------------------------------------------------------------------------------------- */

static void set_end(struct twi_replay_ring *ring, uint64_t end) {
    ring->end = end;
    twi_store_release(&ring->ends->end, end); /* after the record: the order within this process counts */
}

/* Gives whole pages before `first` back, except those that are used again already. */
static void give_pages(struct twi_replay_ring *ring) {
    uint64_t until = ring->first / TWI_REPLAY_RING_GRAIN * TWI_REPLAY_RING_GRAIN;
    while (ring->given < until) {
        uint64_t offset = ring->given % ring->size, bytes = until - ring->given;
        if (bytes > ring->size - offset) bytes = ring->size - offset;
        (void)madvise(ring->bytes + offset, bytes, MADV_REMOVE); /* refused: the pages stay in use */
        ring->given += bytes;
    }
}

static void set_first(struct twi_replay_ring *ring, uint64_t first) {
    twi_check(first >= ring->first && first <= ring->end);
    ring->first = first;
    twi_store_release(&ring->ends->first, first);
    give_pages(ring);
}

void twi_replay_ring_begin(struct twi_replay_ring *ring, struct twi_replay_ends *ends, char *bytes, uint64_t size,
                           uint32_t side) {
    twi_check(size % TWI_REPLAY_RING_GRAIN == 0 && (uintptr_t)bytes % TWI_REPLAY_RING_GRAIN == 0 && side < 2);
    uint64_t first = twi_load_relaxed(&ends->first), end = twi_load_relaxed(&ends->end);
    *ring = (struct twi_replay_ring){.ends = ends, .bytes = bytes, .size = size, .side = side};
    if (first <= end && end - first <= size && end < POSITIONS && first % RECORD_GRAIN == 0 &&
        end % RECORD_GRAIN == 0) {
        ring->first = first;
        ring->end = end;
    } else { /* no leader has written this: nothing is kept */
        twi_store_release(&ends->end, 0);
        twi_store_release(&ends->first, 0);
    }
    ring->given = (ring->end > size ? ring->end - size : 0) + TWI_REPLAY_RING_GRAIN - 1;
    ring->given = ring->given / TWI_REPLAY_RING_GRAIN * TWI_REPLAY_RING_GRAIN;
}

/* ---- keeping ----------------------------------------------------------------------------------------------------- */

bool twi_replay_ring_fits(const struct twi_replay_ring *ring, const struct twi_batch *batch) {
    return need_of(batch) <= ring->size && need_of(batch) <= UINT32_MAX;
}

/* Returns false if there is no room for that many bytes in one piece. */
static bool make_room(struct twi_replay_ring *ring, uint64_t need) {
    if (ring->size == 0) return false;
    uint64_t offset = ring->end % ring->size, gap = need > ring->size - offset ? ring->size - offset : 0;
    bool is_empty = ring->first == ring->end;
    if (!is_empty && ring->end + gap + need > ring->first + ring->size) return false;
    if (gap != 0) {
        record_at(ring, offset)->bytes = 0;
        set_end(ring, ring->end + gap);
        if (is_empty) set_first(ring, ring->end);
    }
    uint64_t again = ring->end + need > ring->size ? ring->end + need - ring->size : 0; /* used again up to here */
    again = (again + TWI_REPLAY_RING_GRAIN - 1) / TWI_REPLAY_RING_GRAIN * TWI_REPLAY_RING_GRAIN;
    if (ring->given < again) ring->given = again;
    return true;
}

static struct numbers numbers_of(const struct twi_batch *batch) {
    return (struct numbers){batch->number,   batch->before,    batch->nonce,
                            batch->plus_sum, batch->minus_sum, batch->is_step};
}

static void put_bytes(char *to, struct twi_bytes *bytes, uint64_t room) {
    struct twi_bytes here = {.data = to, .size = bytes->size, .room = room};
    if (bytes->size != 0) memcpy(to, bytes->data, bytes->size);
    twi_bytes_free(bytes);
    *bytes = here;
}

bool twi_replay_ring_keep(struct twi_replay_ring *ring, struct twi_batch *batch) {
    twi_check(!batch->is_kept && batch->items == NULL);
    uint64_t need = need_of(batch);
    if (!twi_replay_ring_fits(ring, batch) || !make_room(ring, need)) return false;
    struct kept *record = record_at(ring, ring->end % ring->size);
    *record = (struct kept){
        .bytes = (uint32_t)need,
        .key_count = batch->key_count,
        .arg_count = batch->arg_count,
        .name_keys = batch->name_keys,
        .key_bytes = batch->keys.size,
        .arg_bytes = batch->args.size,
        .plus = batch->plus,
        .minus = batch->minus,
        .frozen_ms = batch->frozen_ms,
    };
    record->numbers[ring->side] = numbers_of(batch);
    char *bytes = (char *)(record + 1);
    put_bytes(bytes, &batch->args, batch->args.size);
    put_bytes(bytes + batch->args.size, &batch->keys, need - batch->args.size); /* the record's bytes are counted */
    batch->is_kept = true;
    twi_replay_ring_note(batch);
    set_end(ring, ring->end + need);
    return true;
}

void twi_replay_ring_note(struct twi_batch *batch) {
    if (!batch->is_kept) return;
    struct kept *record = record_of(batch);
    record->struck = batch->struck;
    record->strayed = batch->strayed;
    record->was_short = batch->was_short;
}

void twi_replay_ring_drop(struct twi_replay_ring *ring, const struct twi_batch *batch) {
    uint64_t at = (uint64_t)((char *)record_of(batch) - ring->bytes), offset = ring->first % ring->size;
    uint64_t gap = at >= offset ? at - offset : ring->size - offset;
    twi_check(at >= offset || at == 0); /* it is the oldest one */
    set_first(ring, ring->first + gap + need_of(batch));
}

void twi_replay_ring_drop_all(struct twi_replay_ring *ring) {
    if (ring->first != ring->end) set_first(ring, ring->end);
}

/* ---- other numbers ----------------------------------------------------------------------------------------------- */

void twi_replay_ring_renumber(struct twi_replay_ring *ring, const struct twi_batch *batch) {
    if (batch->is_kept) record_of(batch)->numbers[1 - ring->side] = numbers_of(batch);
}

void twi_replay_ring_turn(struct twi_replay_ring *ring) {
    ring->side = 1 - ring->side;
}

/* ---- in the next process ----------------------------------------------------------------------------------------- */

static void fill(struct twi_batch *batch, const struct kept *record, uint32_t side) {
    const struct numbers *numbers = &record->numbers[side];
    char *args = (char *)(uintptr_t)(const void *)(record + 1);
    *batch = (struct twi_batch){
        .number = numbers->number,
        .before = numbers->before,
        .nonce = numbers->nonce,
        .plus_sum = numbers->plus_sum,
        .minus_sum = numbers->minus_sum,
        .key_count = record->key_count,
        .arg_count = record->arg_count,
        .name_keys = record->name_keys,
        .args = {.data = args, .size = record->arg_bytes, .room = record->arg_bytes},
        .keys = {.data = args + record->arg_bytes,
                 .size = record->key_bytes,
                 .room = record->bytes - record->arg_bytes},
        .plus = record->plus,
        .minus = record->minus,
        .struck = record->struck,
        .strayed = record->strayed != 0,
        .was_short = record->was_short != 0,
        .is_step = numbers->is_step != 0,
        .is_kept = true,
        .frozen_ms = record->frozen_ms,
    };
}

static bool is_sound(const struct kept *record, uint64_t room, uint32_t side) {
    if (room < sizeof *record || record->bytes > room || record->bytes < sizeof *record) return false;
    uint64_t most = record->bytes;
    if (record->key_bytes > most || record->arg_bytes > most) return false;
    return bytes_of(record->key_bytes, record->arg_bytes) == record->bytes &&
           record->numbers[side].before < record->numbers[side].number &&
           record->struck <= record->plus + record->minus;
}

bool twi_replay_ring_read(const struct twi_replay_ring *ring, uint64_t *position, struct twi_batch *batch,
                          bool *is_damaged) {
    *is_damaged = false;
    while (*position < ring->end) {
        uint64_t offset = *position % ring->size, edge = ring->size - offset, left = ring->end - *position;
        const struct kept *record = record_at(ring, offset);
        if (record->bytes == 0 && left >= edge) {
            *position += edge;
            continue;
        }
        *is_damaged = !is_sound(record, left < edge ? left : edge, ring->side);
        if (*is_damaged) return false;
        fill(batch, record, ring->side);
        *position += record->bytes;
        return true;
    }
    return false;
}
