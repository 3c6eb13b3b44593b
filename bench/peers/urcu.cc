/* urcu.cc -- liburcu's lock-free hash table, quiescent-state flavour (its fastest readers). Intrusive: a node, and
 * the key behind it. Threads are online while they add. They pass a quiescent state every 64 calls, because the
 * thread that resizes waits for them. With one every 1,024 calls, 10 million inserts by two threads on two loaded
 * cores took minutes now and then. Nothing is ever deleted, so a node stays valid across a quiescent state. */
#include "bench/peers/peers.h"
#include "bench/peers/table.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <urcu/urcu-qsbr.h>
#include <urcu/rculfhash.h>

namespace {

using namespace bench;

struct Node {
    struct cds_lfht_node link;
    std::atomic<int64_t> count;
    size_t size;
    unsigned char bytes[1];
};

struct View {
    const unsigned char *data;
    size_t size;
};

Node *node_of(struct cds_lfht_node *link) {
    return reinterpret_cast<Node *>(reinterpret_cast<char *>(link) - offsetof(Node, link));
}

int matches(struct cds_lfht_node *link, const void *key) {
    const View *view = static_cast<const View *>(key);
    const Node *node = node_of(link);
    return node->size == view->size && std::memcmp(node->bytes, view->data, view->size) == 0;
}

template <unsigned Stride> struct Table {
    static constexpr unsigned stride = Stride;
    struct cds_lfht *map;
    explicit Table(const bench_setup &setup) {
        unsigned long buckets = 64;
        while (buckets < setup.keys_expected) buckets *= 2;
        map =
            cds_lfht_new_flavor(buckets, 64, 0, CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING, &urcu_qsbr_flavor, nullptr);
    }
    void enter() {
        urcu_qsbr_register_thread();
    }
    void leave() {
        urcu_qsbr_unregister_thread();
    }
    int64_t add(const unsigned char *slot) {
        View view = {slot, bench_slot_size(slot, Stride)};
        unsigned long hash = hash_bytes(view.data, view.size);
        struct cds_lfht_iter at;
        cds_lfht_lookup(map, hash, matches, &view, &at);
        struct cds_lfht_node *found = cds_lfht_iter_get_node(&at);
        if (found == nullptr) found = insert(hash, view);
        int64_t count = node_of(found)->count.fetch_add(1) + 1;
        thread_local unsigned calls;
        if (++calls % 64 == 0) urcu_qsbr_quiescent_state();
        return count;
    }
    struct cds_lfht_node *insert(unsigned long hash, const View &view) {
        auto *node = static_cast<Node *>(std::malloc(offsetof(Node, bytes) + view.size));
        cds_lfht_node_init(&node->link);
        node->count = 0;
        node->size = view.size;
        std::memcpy(node->bytes, view.data, view.size);
        struct cds_lfht_node *there = cds_lfht_add_unique(map, hash, matches, &view, &node->link);
        if (there != &node->link) std::free(node);
        return there;
    }
    template <class F> void each(F visit) {
        urcu_qsbr_register_thread();
        struct cds_lfht_iter at;
        cds_lfht_first(map, &at);
        for (struct cds_lfht_node *link; (link = cds_lfht_iter_get_node(&at)) != nullptr; cds_lfht_next(map, &at))
            visit(node_of(link)->count);
        urcu_qsbr_unregister_thread();
    }
};

} // namespace

const bench_peer *bench_urcu(uint32_t stride) {
#define NODE(n) peer<Table<n>>("liburcu", "node", "cds_lfht, QSBR")
    return BENCH_BY_STRIDE(stride, NODE);
}
