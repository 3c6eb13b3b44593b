/* ck.cc -- Concurrency Kit's ck_ht. It has one writer: lookups run beside it without a lock, inserts run under one
 * mutex. Records are ours (a count, then the key's bytes); the table points at the bytes. Outgrown maps are kept,
 * because nothing says when the last reader has left them. */
#include "bench/peers/peers.h"
#include "bench/peers/table.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
extern "C" {
#include <ck_ht.h>
}

namespace {

using namespace bench;

struct Record {
    std::atomic<int64_t> count;
    unsigned char bytes[1];
};

Record *record_of(void *bytes) {
    return reinterpret_cast<Record *>(static_cast<char *>(bytes) - offsetof(Record, bytes));
}

void *take(size_t size) {
    return std::malloc(size);
}
void give(void *memory, size_t, bool defer) {
    if (!defer) std::free(memory);
}
struct ck_malloc memory = {};

void hash_key(struct ck_ht_hash *hash, const void *key, size_t size, uint64_t) {
    hash->value = hash_bytes(static_cast<const unsigned char *>(key), size);
}

template <unsigned Stride> struct Table : Plain {
    static constexpr unsigned stride = Stride;
    std::mutex lock;
    ck_ht_t map;
    explicit Table(const bench_setup &setup) {
        memory.malloc = take;
        memory.free = give;
        /* It grows at half full. */
        CK_HT_TYPE capacity = setup.keys_expected != 0 ? setup.keys_expected * 2 : 64;
        if (!ck_ht_init(&map, CK_HT_MODE_BYTESTRING, hash_key, &memory, capacity, 1)) std::abort();
    }
    int64_t add(const unsigned char *slot) {
        uint16_t size = static_cast<uint16_t>(bench_slot_size(slot, Stride));
        ck_ht_hash_t hash;
        ck_ht_hash(&hash, &map, slot, size);
        Record *record = find(hash, slot, size);
        if (record == nullptr) record = insert(hash, slot, size);
        return record->count.fetch_add(1) + 1;
    }
    Record *find(ck_ht_hash_t hash, const unsigned char *slot, uint16_t size) {
        ck_ht_entry_t entry;
        ck_ht_entry_key_set(&entry, slot, size);
        return ck_ht_get_spmc(&map, hash, &entry) ? record_of(ck_ht_entry_key(&entry)) : nullptr;
    }
    Record *insert(ck_ht_hash_t hash, const unsigned char *slot, uint16_t size) {
        std::lock_guard<std::mutex> guard(lock);
        Record *record = find(hash, slot, size);
        if (record != nullptr) return record;
        record = static_cast<Record *>(std::malloc(offsetof(Record, bytes) + size));
        record->count = 0;
        std::memcpy(record->bytes, slot, size);
        ck_ht_entry_t entry;
        ck_ht_entry_set(&entry, hash, record->bytes, size, record);
        if (!ck_ht_put_spmc(&map, hash, &entry)) std::abort();
        return record;
    }
    template <class F> void each(F visit) {
        ck_ht_iterator_t at = CK_HT_ITERATOR_INITIALIZER;
        for (ck_ht_entry_t *entry; ck_ht_next(&map, &at, &entry);) visit(record_of(ck_ht_entry_key(entry))->count);
    }
};

} // namespace

const bench_peer *bench_ck(uint32_t stride) {
#define NODE(n) peer<Table<n>>("ck_ht", "node", "one writer: inserts under one mutex, lookups without")
    return BENCH_BY_STRIDE(stride, NODE);
}
