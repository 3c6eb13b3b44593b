// table.cpp -- models of engine/table/table.*, index.c, area.* and of the freezing in cell.*: one generation.
// A key is inserted with a record of an area or from chunks, published by its slot and PUBLISHED; leaves grow by
// closing, copying and publishing, into a larger leaf or into two under a node, before which a wider root may replace
// the root; walkers visit records; the turn seals and freezes.
// An area may also come later: the first insert begins it, each insert makes a chunk, and the others go on without.
// Left out: memory that runs out, keys_max, keys of more than one line (or of another kind of record than the area's),
// spare records (what loses a race stays unused), nodes of more than two entries below the root (which has at most four
// here), which place a key has in an area, the window around it.
// Copies, each with the digest of what it was when the two were last read side by side (scripts/model_digests.py):
//   engine/table/cell.h:twi_cell_count 7562a9d22fc5
//   engine/table/cell.h:twi_cell_local 37154efab913
//   engine/table/cell.c:twi_cell_freeze 63808179fb4b
//   engine/table/index.h:twi_leaf_find 9519ca517d70
//   engine/table/index.h:twi_index_follow 6d21bc7628d2
//   engine/table/index.h:twi_index_descend 7255704c0112
//   engine/table/index.h:twi_table_find 07b0b4856e5f
//   engine/table/layout.h:twi_cell_publish 3d4a8ab7d49e
//   engine/table/area.c:add_chunk ab0f07beed54
//   engine/table/area.h:twi_record_take_next ea73b0aa6561
//   engine/table/area.c:twi_record_take 993a60847f3c
//   engine/table/index.h:twi_line_look 7038ec65ef57
//   engine/table/index.h:twi_leaf_look 0290c26f62ee
//   engine/fast/add_fast.h:hot_line_of bbef54e470c2
//   engine/fast/add_fast.h:hot_line_first 0375b8d5dd40
//   engine/fast/add_fast.h:hot_find_by_index e928cb633688
//   engine/table/table.c:reserve fdebf9abbc0d
//   engine/table/index.h:twi_insert_take 1bbbf257151c
//   engine/table/index.h:twi_insert_fill db00c84e95b5
//   engine/table/index.h:twi_insert_at_vacancy 52e432575208
//   engine/table/table.c:prepare_record a735f47ee505
//   engine/table/index.h:twi_insert_claim_slot a4ba8ba765fa
//   engine/table/table.c:twi_table_insert 7d8f4ffab251
//   engine/table/index.c:twi_index_find_further 2db96fc960d5
//   engine/table/area.c:take_at 10cbee1b6d33
//   engine/table/area.c:twi_area_take edfc1252c942
//   engine/table/area.c:begin_chunk a7b394077f26
//   engine/table/area.c:show 91092ef6a959
//   engine/table/area.c:begin_announced 1808e051d572
//   engine/table/area.c:twi_area_decide 3868d53c37c4
//   engine/table/table.c:twi_table_walk cdbb734850b7
//   engine/table/table.c:freeze_counter e09e1788b7ee
//   engine/table/table.c:twi_table_seal e58cc008c888
//   engine/table/index.c:widen_root 64c7152ac036
//   engine/table/index.c:room_above c0f9cd8e184b
//   engine/table/index.c:take_copy 45db61024ce2
//   engine/table/index.c:twi_leaf_close d6d24d7fd376
//   engine/table/index.c:place_slot f972658471f2
//   engine/table/index.c:fill_copy 543aeb37f0a9
//   engine/table/index.c:twi_leaf_grow 10e26be5e456
//   engine/table/index.c:entry_below eb2203eeec24
//   engine/table/index.c:step_over 8a367a659d26
//   engine/table/index.c:twi_index_leaf e6f8eee6aaae
#include "tests/orderings/model.hpp"

enum { SLOT_EMPTY = 0, SLOT_CLOSED = 1 };
enum { SIZE = 1, PUBLISHED = 2, META_EDGE = 4 };
enum { FROZEN = 1, DIRTY = 2, COUNT_SHIFT = 2 };
enum { ENTRY_NONE = 0, ENTRY_LEAF = 1, ENTRY_NODE = 2, ENTRY_SEALED = 3 };
enum found { FOUND, INSERTED, GONE_SEALED };

static unsigned entry(unsigned kind, unsigned number) {
    return kind << 8 | number;
}
static unsigned kind_of(unsigned entry) {
    return entry >> 8 & 0xf;
}
static unsigned number_of(unsigned entry) {
    return entry & 0xff;
}

// A slot is tag << 8 | number of the record + 2: above EMPTY and CLOSED. The tag of a key is the key.
static unsigned slot_of(unsigned key, unsigned record) {
    return key << 8 | (record + 2);
}
static unsigned record_of(unsigned slot) {
    return (slot & 0xff) - 2;
}
static unsigned tag_of(unsigned slot) {
    return slot >> 8;
}

enum { ROOT_BITS_MAX = 2, ROOT_STAYS = 0x1000 };
enum { LEAVES = 10, NODES = 10, RECORDS = 16, SLOTS_MAX = 8, LINE = 2, AREA = 2, LAYING = 0x100 };

// What a look-up has seen free: a slot of a leaf.
struct vacancy {
    bool has_slot;
    unsigned leaf, at;
};

// One generation, and what its threads do to it.
struct table {
    struct cell {
        rl::atomic<unsigned> local;
        rl::atomic<unsigned> meta;
        rl::var<unsigned> key;
        rl::atomic<int> final;
    };
    struct leaf {
        rl::atomic<unsigned> next;
        rl::atomic<unsigned> used;
        rl::var<unsigned> slot_count, depth;
        rl::atomic<unsigned> slots[SLOTS_MAX];
    };
    struct node {
        rl::var<unsigned> bits;
        rl::atomic<unsigned> entries[1 << ROOT_BITS_MAX];
    };
    struct chunk {
        rl::var<unsigned> first, capacity, older;
        rl::atomic<unsigned> used;
    };
    cell cells[RECORDS];
    leaf leaves[LEAVES];
    node nodes[NODES];
    chunk chunks[RECORDS + 1];
    rl::atomic<unsigned> leaves_taken, nodes_taken, cells_taken, chunks_taken; // the arena
    rl::atomic<unsigned> root, newest;
    rl::atomic<unsigned> area_places; // 0: it has no area, or none yet
    rl::var<unsigned> area_first;     // set before the chunks are made
    rl::var<unsigned> area_heads[AREA]; // its chunks, of one record each; made before area_places is set
    rl::atomic<unsigned> told;        // `announced`. 1: an insert begins it
    rl::atomic<unsigned> area_cursor; // how many chunks are not made
    bool splits, with_area;

    void begin(bool split, bool use_area, unsigned first_slots, bool put_off = false) {
        splits = split;
        with_area = use_area;
        twi_store_relaxed(&leaves_taken, 0u);
        twi_store_relaxed(&nodes_taken, 0u);
        twi_store_relaxed(&cells_taken, use_area ? (unsigned)AREA : 0u);
        twi_store_relaxed(&chunks_taken, 1u);
        twi_store_relaxed(&newest, 0u);
        for (unsigned i = 0; i < RECORDS; i++) {
            twi_store_relaxed(&cells[i].local, 0u);
            twi_store_relaxed(&cells[i].meta, 0u);
            twi_store_relaxed(&cells[i].final, -1);
        }
        for (unsigned i = 0; !put_off && i < AREA; i++) VAR(area_heads[i]) = i;
        twi_store_relaxed(&area_cursor, 0u);
        twi_store_relaxed(&area_places, use_area && !put_off ? (unsigned)AREA : 0u);
        twi_store_relaxed(&told, put_off ? 1u : 0u);
        twi_store_relaxed(&root, leaf_make(first_slots, 0));
    }

    // ---- pieces

    unsigned leaf_make(unsigned slots, unsigned depth) {
        unsigned number = twi_add_relaxed(&leaves_taken, 1u);
        RL_ASSERT(number < LEAVES);
        leaf *made = &leaves[number];
        twi_store_relaxed(&made->next, 0u);
        twi_store_relaxed(&made->used, 0u);
        for (unsigned i = 0; i < SLOTS_MAX; i++) twi_store_relaxed(&made->slots[i], (unsigned)SLOT_EMPTY);
        VAR(made->slot_count) = slots;
        VAR(made->depth) = depth;
        return entry(ENTRY_LEAF, number);
    }

    unsigned node_make(unsigned bits) {
        unsigned number = twi_add_relaxed(&nodes_taken, 1u);
        RL_ASSERT(number < NODES);
        VAR(nodes[number].bits) = bits;
        return entry(ENTRY_NODE, number);
    }
    // The entry of a node for a key, of which `used` bits led there; the lowest bit of a key is its first.
    rl::atomic<unsigned> *entry_of(unsigned node, unsigned key, unsigned used) {
        unsigned mask = (1u << VAR(nodes[number_of(node)].bits)) - 1;
        return &nodes[number_of(node)].entries[key >> used & mask];
    }

    // ---- finding: table.h

    // A line is two slots here. The words of a leaf's head are left out.
    unsigned leaf_find(leaf *leaf, unsigned key, unsigned *stop, unsigned *at) {
        unsigned slots = VAR(leaf->slot_count), lines = slots / LINE, line = key % lines, left = lines;
        for (*at = slots; left != 0;) {
            unsigned seen[LINE], vacant = LINE; // twi_line_look(): each word is loaded once
            for (unsigned i = 0; i < LINE; i++) seen[i] = twi_load_relaxed(&leaf->slots[line * LINE + i]);
            for (unsigned i = LINE; i-- != 0;) {
                unsigned again = seen[i];
                if (is_weak(T5, STEP)) again = twi_load_relaxed(&leaf->slots[line * LINE + i]); // T5 step: twice
                if (again <= SLOT_CLOSED) vacant = i;
            }
            for (unsigned i = 0; i < LINE; i++) {
                if (seen[i] <= SLOT_CLOSED || tag_of(seen[i]) != key) continue;
                unsigned record = record_of(twi_load_acquire(&leaf->slots[line * LINE + i], T5));
                cell *cell = &cells[record];
                if ((twi_load_relaxed(&cell->meta) & SIZE) != 0 && VAR(cell->key) == key) return record + 1;
                RL_ASSERT(false); // of one tag there is one key here: its record must be all there (E12, E14)
            }
            if (vacant != LINE) {
                *stop = twi_load_acquire(&leaf->slots[line * LINE + vacant], T5);
                if (*stop > SLOT_CLOSED) continue;
                *at = line * LINE + vacant;
                return 0;
            }
            line = (line + 1) % lines;
            left--;
        }
        *stop = SLOT_CLOSED;
        return 0;
    }
    unsigned descend(unsigned key, rl::atomic<unsigned> **where, unsigned *bits) {
        rl::atomic<unsigned> *at = &root;
        unsigned entry = twi_load_acquire(at, T7), used = 0;
        while (kind_of(entry) == ENTRY_NODE) {
            at = entry_of(entry, key, used);
            used += VAR(nodes[number_of(entry)].bits);
            entry = twi_load_acquire(at, T7);
        }
        *where = at;
        *bits = used;
        return entry;
    }
    unsigned entry_below(unsigned entry, unsigned depth, unsigned bits, unsigned key) {
        while (kind_of(entry) == ENTRY_NODE && depth < bits) {
            unsigned used = VAR(nodes[number_of(entry)].bits);
            RL_ASSERT(used <= bits - depth);
            entry = twi_load_acquire(entry_of(entry, key, depth), T7);
            depth += used;
        }
        return entry;
    }
    unsigned step_over(rl::atomic<unsigned> *where, unsigned bits, unsigned entry, unsigned key) {
        leaf *leaf = &leaves[number_of(entry)];
        unsigned next = twi_load_acquire(&leaf->next, T7);
        unsigned better = entry_below(next, VAR(leaf->depth), bits, key), found = entry;
        if (kind_of(better) != ENTRY_SEALED) (void)twi_cas_acqrel(where, &found, better, T8);
        return better;
    }
    unsigned index_leaf(unsigned key) {
        for (;;) {
            rl::atomic<unsigned> *where;
            unsigned bits, entry = descend(key, &where, &bits);
            unsigned next = twi_load_acquire(&leaves[number_of(entry)].next, T7);
            if (next == 0 || kind_of(next) == ENTRY_SEALED) return entry;
            (void)step_over(where, bits, entry, key);
        }
    }
    unsigned find(unsigned key) {
        rl::atomic<unsigned> *where;
        unsigned bits, stop, at;
        unsigned cell = leaf_find(&leaves[number_of(descend(key, &where, &bits))], key, &stop, &at);
        if (cell != 0 || stop == SLOT_EMPTY) return cell;
        for (;;) { // twi_index_find_further()
            leaf *leaf = &leaves[number_of(index_leaf(key))];
            cell = leaf_find(leaf, key, &stop, &at);
            if (cell != 0 || stop == SLOT_EMPTY) return cell;
            unsigned next = twi_load_acquire(&leaf->next, T7);
            if (next == 0 || kind_of(next) == ENTRY_SEALED) return 0;
        }
    }
    // As look_in_index() in add_fast.h: like find(), but it does not follow a closed leaf, and tells what it has seen
    // free.
    unsigned find_fast(unsigned key, vacancy *seen) {
        unsigned stop, bits;
        rl::atomic<unsigned> *where;
        seen->leaf = number_of(descend(key, &where, &bits));
        unsigned cell = leaf_find(&leaves[seen->leaf], key, &stop, &seen->at);
        seen->has_slot = cell == 0 && stop == SLOT_EMPTY;
        return cell;
    }
    unsigned publish(unsigned cell) { // twi_cell_publish()
        unsigned meta = twi_load_relaxed(&cells[cell - 1].meta);
        if ((meta & PUBLISHED) == 0) meta = twi_or_acqrel(&cells[cell - 1].meta, (unsigned)PUBLISHED, T13) | PUBLISHED;
        return meta;
    }

    // ---- records: insert.h, table.c, record.*, area.c

    unsigned begin_announced(unsigned announced) {
        if (!twi_cas_relaxed(&told, &announced, 0u)) return 0;
        VAR(area_first) = 0;
        twi_store_relaxed(&area_cursor, (unsigned)AREA);
        twi_store_release(&told, (unsigned)LAYING | AREA, H3);
        return LAYING | AREA;
    }
    void area_decide() { // twi_area_decide(), begin_chunk(), show()
        unsigned announced = twi_load_acquire(&told, H4);
        if (announced != 0 && announced < LAYING) announced = begin_announced(announced);
        do {
            if (announced < LAYING) return;
        } while (!twi_cas_acqrel(&told, &announced, announced - 1 == LAYING ? 0u : announced - 1, H4));
        unsigned number = announced - 1 - LAYING;
        VAR(area_heads[number]) = VAR(area_first) + number;
        if (twi_sub_acqrel(&area_cursor, 1u, H5) == 1) twi_store_release(&area_places, (unsigned)AREA, H1);
    }
    unsigned area_take() {
        if (twi_load_acquire(&area_places, H2) == 0) return 0;
        for (unsigned i = 0; i < AREA; i++) {
            unsigned found = 0, cell = VAR(area_heads[i]);
            if (twi_load_relaxed(&cells[cell].meta) == 0 && twi_cas_relaxed(&cells[cell].meta, &found, (unsigned)SIZE))
                return cell + 1;
        }
        return 0;
    }
    void add_chunk(unsigned older) {
        unsigned number = twi_add_relaxed(&chunks_taken, 1u), first = twi_add_relaxed(&cells_taken, 1u);
        RL_ASSERT(number <= RECORDS && first < RECORDS);
        VAR(chunks[number].first) = first;
        VAR(chunks[number].capacity) = 1;
        VAR(chunks[number].older) = older;
        twi_store_relaxed(&chunks[number].used, 0u);
        (void)twi_cas_acqrel(&newest, &older, number, T10); // who comes second uses the first one's
    }
    unsigned take_next_record() {
        unsigned line = twi_load_acquire(&newest, T11);
        chunk *chunk = &chunks[line];
        if (line == 0 || twi_load_relaxed(&chunk->used) >= VAR(chunk->capacity)) return 0;
        unsigned index = twi_add_relaxed(&chunk->used, 1u);
        return index < VAR(chunk->capacity) ? VAR(chunk->first) + index + 1 : 0;
    }
    unsigned take_record() {
        for (;;) {
            unsigned line = twi_load_acquire(&newest, T11), cell = take_next_record();
            if (cell != 0) return cell;
            add_chunk(line);
        }
    }
    void fill(unsigned cell, unsigned key) { // its first delta is 1
        VAR(cells[cell - 1].key) = key;
        twi_store_relaxed(&cells[cell - 1].local, 1u << COUNT_SHIFT);
        twi_store_relaxed(&cells[cell - 1].meta, (unsigned)SIZE);
    }
    unsigned prepare_record(unsigned key) {
        area_decide();
        unsigned cell = area_take();
        if (cell == 0) cell = take_record();
        fill(cell, key);
        return cell;
    }

    // ---- growing: index.c

    void leaf_close(leaf *leaf) {
        for (unsigned first = 0; first < VAR(leaf->slot_count); first += LINE) {
            unsigned seen[LINE];
            for (unsigned i = 0; i < LINE; i++) seen[i] = twi_load_relaxed(&leaf->slots[first + i]);
            for (unsigned i = 0; i < LINE; i++) {
                unsigned found = SLOT_EMPTY;
                if (seen[i] > SLOT_CLOSED) continue;
                if (is_weak(T6, STEP)) // T6 step: closed by a store
                    twi_store_release(&leaf->slots[first + i], (unsigned)SLOT_CLOSED, NONE);
                else
                    (void)twi_cas_acqrel(&leaf->slots[first + i], &found, (unsigned)SLOT_CLOSED, T6);
            }
        }
    }
    void place_slot(leaf *leaf, unsigned slot) {
        unsigned slots = VAR(leaf->slot_count), i = tag_of(slot) % (slots / LINE) * LINE;
        while (twi_load_relaxed(&leaf->slots[i]) != SLOT_EMPTY)
            if (++i == slots) i = 0;
        twi_store_relaxed(&leaf->slots[i], slot); // published with the leaf, T8
    }
    bool widen_root(unsigned word) {
        unsigned bits = VAR(nodes[number_of(word)].bits), wide = node_make(bits + 1);
        for (unsigned i = 0; i < 2u << bits; i++)
            twi_store_relaxed(&nodes[number_of(wide)].entries[i], twi_load_acquire(entry_of(word, i, 0), T7));
        if (is_weak(T8, STEP)) // T8 step: a root that was copied earlier replaces what another thread has made of it
            twi_store_release(&root, wide, NONE);
        else
            (void)twi_cas_acqrel(&root, &word, wide, T8);
        return true;
    }
    unsigned room_above(leaf *leaf) {
        for (;;) {
            unsigned word = twi_load_acquire(&root, T7), depth = VAR(leaf->depth);
            if (kind_of(word) != ENTRY_NODE) return 0;
            unsigned bits = VAR(nodes[number_of(word)].bits);
            if (depth < bits) return bits - depth;
            RL_ASSERT((word & ROOT_STAYS) != 0 || depth == bits);
            if ((word & ROOT_STAYS) != 0) return 0;
            if (bits < ROOT_BITS_MAX && widen_root(word)) continue;
            (void)twi_cas_acqrel(&root, &word, word | ROOT_STAYS, T8);
        }
    }
    bool leaf_grow(unsigned number) {
        leaf *leaf = &leaves[number];
        unsigned next = twi_load_acquire(&leaf->next, T7);
        if (next != 0) return kind_of(next) != ENTRY_SEALED;
        unsigned depth = VAR(leaf->depth), slots = VAR(leaf->slot_count), parts[2], published;
        if (splits) {
            (void)room_above(leaf); // a node below has two entries here, whatever the room
            parts[0] = leaf_make(slots, depth + 1);
            parts[1] = leaf_make(slots, depth + 1);
            published = node_make(1);
            for (int i = 0; i < 2; i++) twi_store_relaxed(&nodes[number_of(published)].entries[i], parts[i]);
        } else {
            RL_ASSERT(slots < SLOTS_MAX);
            parts[0] = parts[1] = published = leaf_make(slots * 2, depth);
        }
        leaf_close(leaf);
        for (unsigned i = 0; i < slots; i++) {
            unsigned slot = twi_load_acquire(&leaf->slots[i], T5);
            if (slot == SLOT_CLOSED) continue;
            RL_ASSERT(slot != SLOT_EMPTY);
            place_slot(&leaves[number_of(parts[(tag_of(slot) >> depth) & 1])], slot);
        }
        if (is_weak(T8, STEP)) // T8 step: the later copy replaces the earlier
            twi_store_release(&leaf->next, published, NONE);
        else if (!twi_cas_acqrel(&leaf->next, &next, published, T8))
            return kind_of(next) != ENTRY_SEALED;
        return true;
    }

    // ---- inserting: table.c

    bool claim_slot(unsigned key, leaf *leaf, unsigned at, unsigned record) {
        unsigned found = SLOT_EMPTY;
        if (!twi_cas_acqrel(&leaf->slots[at], &found, slot_of(key, record - 1), T6)) return false;
        if (with_area && rl::rand(4) == 0) // the race point claimed_not_published
            for (int i = 0; i < 10; i++) rl::yield(1, $);
        (void)twi_or_acqrel(&cells[record - 1].meta, (unsigned)PUBLISHED, T9);
        return true;
    }
    // INSERTED: 1 is counted. FOUND: it is not.
    found insert(unsigned key, const vacancy &seen, unsigned *cell) {
        unsigned record = 0;
        found answer = FOUND;
        if (seen.has_slot) { // twi_insert_at_vacancy()
            record = twi_load_relaxed(&told) != 0 ? 0 : area_take();
            if (record == 0 && twi_load_relaxed(&told) == 0) record = take_next_record();
            if (record != 0) fill(record, key);
            *cell = record;
            if (record != 0 && claim_slot(key, &leaves[seen.leaf], seen.at, record)) return INSERTED;
        }
        for (;;) {
            unsigned number = number_of(index_leaf(key)), stop, at;
            leaf *leaf = &leaves[number];
            *cell = leaf_find(leaf, key, &stop, &at);
            if (*cell != 0) break;
            if (stop == SLOT_CLOSED) {
                answer = GONE_SEALED;
                if (!leaf_grow(number)) break;
                answer = FOUND;
                continue;
            }
            if (record == 0) record = prepare_record(key);
            if (claim_slot(key, leaf, at, record)) {
                *cell = record;
                return INSERTED;
            }
        }
        if (answer == FOUND) publish(*cell);
        return answer;
    }

    // ---- adding and freezing: cell.*

    bool add(unsigned cell) {
        unsigned word = twi_add_relaxed(&cells[cell - 1].local, 1u << COUNT_SHIFT);
        return (word & FROZEN) == 0;
    }
    // One call: the key is found, or inserted with its first delta. False: it has not counted.
    bool count(unsigned key, unsigned *cell) {
        vacancy seen;
        *cell = find_fast(key, &seen);
        if (*cell != 0)
            publish(*cell);
        else {
            found answer = insert(key, seen, cell);
            if (answer != FOUND) return answer == INSERTED;
        }
        return add(*cell);
    }
    int freeze(unsigned number) {
        cell *cell = &cells[number];
        unsigned word = twi_load_relaxed(&cell->local);
        if (is_weak(C1, STEP)) { // C1 step: FROZEN first, then final
            word = twi_or_relaxed(&cell->local, (unsigned)FROZEN);
            twi_store_relaxed(&cell->final, (int)(word >> COUNT_SHIFT));
            return (int)(word >> COUNT_SHIFT);
        }
        do {
            if ((word & FROZEN) != 0) return twi_load_relaxed(&cell->final);
            twi_store_relaxed(&cell->final, (int)(word >> COUNT_SHIFT));
        } while (!twi_cas_weak_acqrel(&cell->local, &word, word | FROZEN, C1));
        return (int)(word >> COUNT_SHIFT);
    }
    int local(unsigned number) { // twi_cell_local()
        unsigned word = twi_load_acquire(&cells[number].local, C2);
        if ((word & FROZEN) == 0) return (int)(word >> COUNT_SHIFT);
        return twi_load_relaxed(&cells[number].final);
    }

    // ---- walking, sealing: table.c

    template <typename visitor> void walk(visitor visit) {
        if (with_area)
            for (unsigned i = 0; i < AREA; i++) visit_cell(i, visit);
        for (unsigned line = twi_load_acquire(&newest, T11); line != 0; line = VAR(chunks[line].older)) {
            unsigned used = twi_load_acquire(&chunks[line].used, NONE);
            if (used > VAR(chunks[line].capacity)) used = VAR(chunks[line].capacity);
            for (unsigned i = 0; i < used; i++) visit_cell(VAR(chunks[line].first) + i, visit);
        }
    }
    template <typename visitor> void visit_cell(unsigned number, visitor visit) {
        unsigned meta = twi_load_acquire(&cells[number].meta, T12);
        if ((meta & PUBLISHED) != 0) visit(number, VAR(cells[number].key));
    }
    int seal() { // of an index that does not split; the sum of what it has frozen
        int sum = 0;
        for (;;) {
            unsigned number = number_of(index_leaf(0)), next = 0;
            leaf *leaf = &leaves[number];
            leaf_close(leaf);
            if (!twi_cas_acqrel(&leaf->next, &next, entry(ENTRY_SEALED, 0), T8) && kind_of(next) != ENTRY_SEALED)
                continue;
            for (unsigned i = 0; i < VAR(leaf->slot_count); i++) {
                unsigned slot = twi_load_acquire(&leaf->slots[i], T5);
                if (slot <= SLOT_CLOSED) continue;
                publish(record_of(slot) + 1);
                sum += freeze(record_of(slot));
            }
            return sum;
        }
    }

    // ---- what must hold when all have returned

    void check(unsigned keys, const unsigned *wanted) {
        for (unsigned key = 1; key <= keys; key++) {
            unsigned times = 0, cell = find(key);
            RL_ASSERT((cell != 0) == (wanted[key] != 0));
            if (cell == 0) continue;
            RL_ASSERT(local(cell - 1) == (int)wanted[key]);
            walk([&](unsigned, unsigned seen) { times += seen == key; });
            RL_ASSERT(times == 1);
        }
    }
};

// ---- inserting, growing, walking ------------------------------------------------------------------------------------

// Two inserters that meet at one key, one of which also fills the leaf, and a finder that walks. P3, T1 to T4, E33.
template <bool splits, bool with_area> struct inserting : rl::test_suite<inserting<splits, with_area>, 3> {
    table t;
    rl::atomic<unsigned> returned;

    void before() {
        twi_store_relaxed(&returned, 0u);
        t.begin(splits, with_area, 2);
    }
    void count(unsigned key) {
        unsigned cell;
        RL_ASSERT(t.count(key, &cell) && cell != 0);
        RL_ASSERT(t.find(key) == cell);
    }
    void thread(unsigned index) {
        if (index == 0) {
            count(1);
            twi_store_release(&returned, 1u, NONE);
            count(3);
        } else if (index == 1) {
            count(3);
            count(1);
        } else {
            unsigned cell = t.find(3);
            if (cell != 0) t.publish(cell);
            bool must = twi_load_acquire(&returned, NONE) != 0, seen = false;
            t.walk([&](unsigned number, unsigned key) {
                RL_ASSERT(key == 1 || key == 3 || key == 5);
                seen = seen || key == 1;
                RL_ASSERT(t.local(number) <= 2);
            });
            RL_ASSERT(seen || !must);
            if (!with_area) count(5);
        }
    }
    void after() {
        const unsigned wanted[] = {0, 2, 0, 2, 0, with_area ? 0u : 1u};
        t.check(5, wanted);
    }
};

// An area that comes while the threads insert, in chunks that several of them make. H1 to H5.
struct late_areas : rl::test_suite<late_areas, 3> {
    table t;
    void before() {
        t.begin(false, true, 4, true);
    }
    void thread(unsigned index) {
        unsigned keys[3][2] = {{1, 2}, {1, 2}, {2, 1}};
        for (unsigned i = 0; i < 2; i++) {
            unsigned cell;
            RL_ASSERT(t.count(keys[index][i], &cell));
        }
    }
    void after() {
        const unsigned wanted[] = {0, 3, 3};
        t.check(2, wanted);
    }
};

// ---- sealing --------------------------------------------------------------------------------------------------------

// Adders that insert and grow while the turn seals: what was added to a counter that was not frozen is in a final,
// once.
struct sealing : rl::test_suite<sealing, 4> {
    table t;
    rl::atomic<unsigned> added;
    int sealed;

    void before() {
        twi_store_relaxed(&added, 0u);
        t.begin(false, false, 2);
    }
    void count(unsigned key) {
        unsigned cell;
        if (t.count(key, &cell)) (void)twi_add_relaxed(&added, 1u);
    }
    void thread(unsigned index) {
        if (index == 0) {
            count(1);
            count(2);
        } else if (index == 1) {
            count(2);
            count(3);
        } else if (index == 2) {
            sealed = t.seal();
        } else {
            t.walk([&](unsigned number, unsigned) { // a reader beside the closer
                int value = t.local(number);
                RL_ASSERT(value >= 0 && value <= 2);
                int again = t.local(number);
                RL_ASSERT(again >= value);
            });
        }
    }
    void after() {
        RL_ASSERT(sealed == (int)twi_load_relaxed(&added));
        int walked = 0;
        t.walk([&](unsigned number, unsigned) { walked += t.local(number); });
        RL_ASSERT(walked == sealed);
    }
};

typedef inserting<false, false> inserting_false_false;
typedef inserting<true, false> inserting_true_false;
typedef inserting<false, true> inserting_false_true;

// ---- freezing -------------------------------------------------------------------------------------------------------

// One counter: adders who decide again, the closer, and a reader. E1, E18.
struct freezing : rl::test_suite<freezing, 4> {
    table t;
    rl::atomic<unsigned> added;
    int final;

    void before() {
        t.begin(false, false, 2);
        twi_store_relaxed(&added, 0u);
        unsigned cell;
        t.insert(1, vacancy(), &cell);
    }
    void thread(unsigned index) {
        if (index < 2) {
            for (int i = 0; i < 2; i++)
                if (t.add(1)) (void)twi_add_relaxed(&added, 1u);
        } else if (index == 2) {
            final = t.freeze(0);
        } else {
            for (int i = 0, last = 0; i < 3; i++) {
                int value = t.local(0);
                RL_ASSERT(value >= last);
                last = value;
            }
        }
    }
    void after() {
        RL_ASSERT(final == 1 + (int)twi_load_relaxed(&added) && t.local(0) == final);
    }
};

typedef inserting<false, false> inserting_wider;
typedef inserting<true, false> inserting_split;
typedef inserting<false, true> inserting_area;

int main() {
    const model_mutant wider[] = {
        {T5, ACQUIRE, NULL},
        {T5, STEP, NULL},
        {T6, RELEASE, NULL},
        {T7, ACQUIRE, NULL},
        {T8, RELEASE, NULL},
        {T9, RELEASE, NULL},
        {T10, RELEASE, NULL},
        {T11, ACQUIRE, NULL},
        {T12, ACQUIRE, NULL},
        {T6, ACQUIRE, "behind EMPTY there is nothing to see, and who loses walks again, by T5"},
        {T8, ACQUIRE, "who loses goes on by the word of the winner, which it loads anew, by T7"},
        {T9, ACQUIRE, "the record is the claimer's own"},
        {T10, ACQUIRE, "who loses begins again, by T11"},
        {T13, ACQUIRE, "the record is known through its slot, by T5"},
    };
    const model_mutant split[] = {{T5, ACQUIRE, NULL}, {T6, RELEASE, NULL}, {T7, ACQUIRE, NULL}, {T8, RELEASE, NULL}};
    const model_mutant area[] = {{T9, RELEASE, NULL}, {T11, ACQUIRE, NULL}, {T12, ACQUIRE, NULL}, {T13, RELEASE, NULL}};
    const model_mutant late[] = {
        {H1, RELEASE, NULL},
        {H2, ACQUIRE, NULL},
        {H3, RELEASE, NULL},
        {H4, ACQUIRE, NULL},
        {H5, RELEASE, NULL},
        {H5, ACQUIRE, NULL},
        {H4, RELEASE, "who reads the word after it reads what H3 released, which the swaps of H4 hand on"},
    };
    const model_mutant seal[] = {{T6, STEP, NULL}, {T8, STEP, NULL}};
    const model_mutant freeze[] = {
        {C1, RELEASE, NULL},
        {C1, STEP, NULL},
        {C2, ACQUIRE, NULL},
        {C1, ACQUIRE, "the closer takes the count alone, which is in the word"},
    };
    int wrong = MODEL_RUN(inserting_wider, "growing into a larger leaf", 50000, wider);
    wrong += MODEL_RUN(inserting_split, "growing into two leaves", 50000, split);
    wrong += MODEL_RUN(inserting_area, "growing with an area", 100000, area);
    wrong += MODEL_RUN(late_areas, "an area that comes later", 50000, late);
    wrong += MODEL_RUN(sealing, "sealing", 50000, seal);
    wrong += MODEL_RUN(freezing, "freezing", 50000, freeze);
    return wrong != 0;
}
