/* glib.cc -- GLib's GHashTable under one mutex. It cannot be presized: it grows while it is loaded.
 * Inline: a set of records that begin with the slot. String: a set of records that begin with a pointer to the key's
 * bytes and their size, as with g_strdup()ed keys. */
#include "bench/peers/peers.h"
#include "bench/peers/table.h"

#include <cstdlib>
#include <glib.h>
#include <mutex>

namespace {

using namespace bench;

struct View {
    const unsigned char *data;
    size_t size;
};

template <unsigned Stride> struct ByInline {
    static constexpr unsigned stride = Stride;
    using probe = const unsigned char *;
    struct Record {
        Pod<Stride> key;
        int64_t count;
    };
    static guint hash(const void *key) {
        uint64_t hashed = hash_pod(*static_cast<const Pod<Stride> *>(key));
        return static_cast<guint>(hashed >> 32);
    }
    static gboolean equal(const void *a, const void *b) {
        return *static_cast<const Pod<Stride> *>(a) == *static_cast<const Pod<Stride> *>(b);
    }
    static const void *look(const unsigned char *slot, View *) {
        return slot;
    }
    static Record *record(const unsigned char *slot) {
        auto *made = static_cast<Record *>(std::malloc(sizeof(Record)));
        std::memcpy(made->key.bytes, slot, Stride);
        return made;
    }
};

template <unsigned Stride> struct ByString {
    static constexpr unsigned stride = Stride;
    struct Record {
        View key;
        int64_t count;
    };
    static guint hash(const void *key) {
        const View *view = static_cast<const View *>(key);
        return static_cast<guint>(hash_bytes(view->data, view->size) >> 32);
    }
    static gboolean equal(const void *a, const void *b) {
        const View *x = static_cast<const View *>(a), *y = static_cast<const View *>(b);
        return x->size == y->size && std::memcmp(x->data, y->data, x->size) == 0;
    }
    static const void *look(const unsigned char *slot, View *view) {
        *view = {slot, bench_slot_size(slot, Stride)};
        return view;
    }
    static Record *record(const unsigned char *slot) {
        size_t size = bench_slot_size(slot, Stride);
        auto *bytes = static_cast<unsigned char *>(std::malloc(size));
        std::memcpy(bytes, slot, size);
        auto *made = static_cast<Record *>(std::malloc(sizeof(Record)));
        made->key = {bytes, size};
        return made;
    }
};

template <class Form> struct Table : Plain {
    static constexpr unsigned stride = Form::stride;
    using Record = typename Form::Record;
    std::mutex lock;
    GHashTable *map = g_hash_table_new(Form::hash, Form::equal);
    explicit Table(const bench_setup &) {
    }
    int64_t add(const unsigned char *slot) {
        View view;
        std::lock_guard<std::mutex> guard(lock);
        auto *found = static_cast<Record *>(g_hash_table_lookup(map, Form::look(slot, &view)));
        if (found != nullptr) return ++found->count;
        found = Form::record(slot);
        found->count = 1;
        g_hash_table_add(map, found);
        return 1;
    }
    template <class F> void each(F visit) {
        GHashTableIter at;
        void *found;
        g_hash_table_iter_init(&at, map);
        while (g_hash_table_iter_next(&at, &found, nullptr)) visit(static_cast<Record *>(found)->count);
    }
};

} // namespace

const bench_peer *bench_glib(uint32_t stride, bool string) {
    const char *name = "GLib";
#define INLINE(n) peer<Table<ByInline<n>>>(name, "inline", "GHashTable under one mutex; not presized")
#define STRING(n) peer<Table<ByString<n>>>(name, "string", "GHashTable under one mutex; not presized")
    return string ? BENCH_BY_STRIDE(stride, STRING) : BENCH_BY_STRIDE(stride, INLINE);
}
