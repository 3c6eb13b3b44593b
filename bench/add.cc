/* add.cc -- `add`, `many`, `hot`, `acquire`: how long one call takes on a loaded table.
 *   W0 1,024 keys   W1 65,536 keys   W2 many keys, uniform   W3 the same keys, Zipf 0.99   W4 one key
 * Always true: a table is loaded, measured in every way the command knows, its sum is checked, and it is gone before
 * the next peer begins. So W2 and W3, dependent or not, with one thread or more, are measured on one and the same
 * load. */
#include "bench/bench.h"
#include "bench/server.h"

#include <chrono>
#include <cstdio>
#include <thread>

namespace bench {

namespace {

/* Which forms of a peer are measured on one load. */
struct Entry {
    const bench_peer *peer;
    std::vector<const bench_peer *> forms;
};

std::vector<Entry> everyone(const Bench &bench, uint32_t stride) {
    std::vector<Entry> all = {{bench_ours(), {bench_ours(), bench_ours_blind(), bench_ours_many()}},
                              {bench_ours_sized(), {bench_ours_sized()}},
                              {bench_ours_synced(), {bench_ours_synced()}}};
    for (const bench_peer *peer : peers_for(bench, stride)) all.push_back({peer, {peer}});
    return all;
}

bench_setup setup_for(const bench_peer *peer, const Stream &stream, uint64_t keys, unsigned threads) {
    bench_setup setup = {};
    setup.stride = stream.stride();
    setup.keys_expected = keys_expected_by(peer, keys);
    setup.threads = threads;
    return setup;
}

Plan plan_for(const Bench &bench, const Stream &stream, uint64_t ops, unsigned threads, Mode mode = Mode::plain) {
    Plan plan;
    plan.stream = &stream;
    plan.threads = threads;
    plan.mode = mode;
    plan.ops = bench.options.ops != 0 ? bench.options.ops : ops;
    plan.seconds = bench.options.seconds;
    return plan;
}

/* Runs the stream once: it decides which keys are new and which are known. */
Plan plan_once(const Stream &stream) {
    Plan plan;
    plan.stream = &stream;
    return plan;
}

std::vector<Column> columns_by_threads(const Bench &bench, bool dependent) {
    std::vector<Column> columns;
    for (unsigned threads : bench.options.threads) {
        std::string title = std::to_string(threads) + "T";
        columns.push_back({"ns " + title, "plain", threads, "ns", true});
        if (threads != 1) columns.push_back({"Mops " + title, "plain", threads, "mops"});
    }
    if (dependent) columns.push_back({"ns dependent", "dependent", 1, "ns", true});
    return columns;
}

const std::vector<Column> columns_of_hits = {{"ns 90 % hits", "90 % hits", 1, "ns", true},
                                             {"ns all new", "all new", 1, "ns", true}};

struct Small {
    const char *workload;
    uint64_t keys;
    size_t stream_count;
    uint64_t ops;
};

/* W0 and W1. */
void add_small(Bench &bench, const Small &small, unsigned key_bytes, bool whole) {
    Stream all = stream_all(key_bytes, small.keys);
    Stream uniform = stream_uniform(key_bytes, small.keys, small.stream_count, 1);
    uint64_t next = small.keys;
    Stream hits = stream_hits(key_bytes, small.keys, small.stream_count, 90, 2, &next);
    uint64_t fresh_of_hits = next - small.keys, fresh_of_new = small.stream_count;
    Stream fresh = stream_hits(key_bytes, small.keys, small.stream_count, 0, 3, &next);
    bool with_hits = whole && small.keys > 10000;
    rotate<Entry>(everyone(bench, all.stride()), bench.rounds(5), [&](int round, const Entry &entry) {
        bench.measure("add", key_bytes, round, entry.peer, [&](Child &child) {
            bench_setup setup = setup_for(entry.peer, all, small.keys, bench.threads_most());
            Loaded table(child, entry.peer, setup, all, 1);
            for (const bench_peer *form : entry.forms) {
                for (unsigned threads : bench.options.threads)
                    if (whole || threads == 1)
                        table.run(form, small.workload, "plain", plan_for(bench, uniform, small.ops, threads));
                if (whole)
                    table.run(form, small.workload, "dependent",
                              plan_for(bench, uniform, small.ops / 2, 1, Mode::dependent));
            }
            table.check();
        });
        if (!with_hits) return;
        /* in a table of its own: one made for all these new keys is many times as large as the keys above need */
        bench.measure("add", key_bytes, round, entry.peer, [&](Child &child) {
            bench_setup setup = setup_for(entry.peer, all, next, bench.threads_most());
            Loaded table(child, entry.peer, setup, all, 1);
            table.run(entry.peer, small.workload, "90 % hits", plan_once(hits), fresh_of_hits);
            table.run(entry.peer, small.workload, "all new", plan_once(fresh), fresh_of_new);
            table.check();
        });
    });
    char title[160];
    std::snprintf(title, sizeof title, "%s: %llu keys of %.1f bytes", small.workload,
                  static_cast<unsigned long long>(small.keys), all.mean_bytes());
    std::vector<Column> columns =
        whole ? columns_by_threads(bench, true) : std::vector<Column>{{"ns 1T", "plain", 1, "ns", true}};
    if (with_hits) columns.insert(columns.end(), columns_of_hits.begin(), columns_of_hits.end());
    bench.report.table(title, "add", small.workload, key_bytes, columns);
}

/* W2 and W3. */
void add_large(Bench &bench) {
    uint64_t keys = bench.keys_large(), ops = bench.options.ops != 0 ? bench.options.ops : 2000000;
    Stream all = stream_all(natural, keys);
    Stream uniform = stream_uniform(natural, keys, ops, 1), zipf = stream_zipf(natural, keys, ops, 2);
    uint64_t next = keys;
    Stream hits = stream_hits(natural, keys, ops, 90, 3, &next);
    uint64_t fresh_of_hits = next - keys;
    Stream fresh = stream_hits(natural, keys, ops, 0, 4, &next);
    rotate<Entry>(everyone(bench, all.stride()), bench.rounds(3), [&](int round, const Entry &entry) {
        bench.measure("add", natural, round, entry.peer, [&](Child &child) {
            Loaded table(child, entry.peer, setup_for(entry.peer, all, next, bench.threads_most()), all, cores());
            for (const bench_peer *form : entry.forms) {
                for (unsigned threads : bench.options.threads) {
                    table.run(form, "W2", "plain", plan_for(bench, uniform, ops, threads));
                    table.run(form, "W3", "plain", plan_for(bench, zipf, ops, threads));
                }
                table.run(form, "W2", "dependent", plan_for(bench, uniform, ops / 2, 1, Mode::dependent));
                table.run(form, "W3", "dependent", plan_for(bench, zipf, ops / 2, 1, Mode::dependent));
            }
            table.run(entry.peer, "W2", "90 % hits", plan_once(hits), fresh_of_hits);
            table.run(entry.peer, "W2", "all new", plan_once(fresh), fresh.count());
            table.check();
        });
    });
    char text[160];
    std::vector<Column> columns = columns_by_threads(bench, true);
    std::snprintf(text, sizeof text, "W3: %llu keys of %.1f bytes, Zipf 0.99", static_cast<unsigned long long>(keys),
                  all.mean_bytes());
    std::string title_of_zipf = text;
    std::snprintf(text, sizeof text, "W2: %llu keys of %.1f bytes, uniform", static_cast<unsigned long long>(keys),
                  all.mean_bytes());
    bench.report.table(title_of_zipf, "add", "W3", natural, columns);
    columns.insert(columns.end(), columns_of_hits.begin(), columns_of_hits.end());
    bench.report.table(text, "add", "W2", natural, columns);
}

const Small w0 = {"W0", 1024, 65536, 4000000};
const Small w1 = {"W1", 65536, 262144, 4000000};

/* A stream of one key, which stays in the first cache. */
Stream one_key() {
    return stream_uniform(natural, 1, 1024, 1);
}

} // namespace

void command_add(Bench &bench) {
    add_small(bench, w0, natural, true);
    add_small(bench, w1, natural, true);
    for (unsigned key_bytes : {8u, 16u, 48u, 100u}) add_small(bench, w1, key_bytes, false);
    add_large(bench);
    bench.report.write_csv("add");
    Column single = {"", "plain", 1, "ns"};
    bench.report.plot_bars("add", {{"W0", single}, {"W1", single}, {"W2", single}, {"W3", single}}, natural);
    for (const char *workload : {"W0", "W1", "W2", "W3"}) bench.report.plot_threads("add", workload, "plain", natural);
}

void command_many(Bench &bench) {
    static const size_t sizes[] = {8, 32, 128, 512};
    uint64_t large = bench.keys_large();
    struct Case {
        const char *workload;
        uint64_t keys;
        Stream stream;
        uint64_t ops;
    };
    Case cases[] = {{"W0", w0.keys, stream_uniform(natural, w0.keys, w0.stream_count, 1), w0.ops},
                    {"W1", w1.keys, stream_uniform(natural, w1.keys, w1.stream_count, 1), w1.ops},
                    {"W2", large, stream_uniform(natural, large, 2000000, 1), 2000000},
                    {"W3", large, stream_zipf(natural, large, 2000000, 2), 2000000}};
    Stream loads[] = {stream_all(natural, w0.keys), stream_all(natural, w1.keys), stream_all(natural, large)};
    std::vector<int> which = {0, 1, 2};
    rotate<int>(which, bench.rounds(5), [&](int round, const int &load) {
        bench.measure("many", natural, round, bench_ours_many(), [&](Child &child) {
            Loaded table(child, bench_ours(),
                         setup_for(bench_ours(), loads[load], loads[load].count(), bench.threads_most()), loads[load],
                         cores());
            for (int i = load; i <= (load == 2 ? 3 : load); i++) {
                for (unsigned threads : bench.options.threads) {
                    Plan plan = plan_for(bench, cases[i].stream, cases[i].ops, threads);
                    double single = table.run(bench_ours(), cases[i].workload, "single", plan).ns();
                    for (size_t size : sizes) {
                        bench_many_count = size;
                        std::string variant = "batch " + std::to_string(size);
                        double ns = table.run(bench_ours_many(), cases[i].workload, variant.c_str(), plan).ns();
                        child.put(bench_ours_many(), cases[i].workload, variant.c_str(), threads, "gain", single / ns);
                    }
                }
            }
            table.check();
        });
    });
    for (const Case &one : cases) {
        std::vector<Column> columns;
        for (unsigned threads : bench.options.threads) {
            std::string title = " " + std::to_string(threads) + "T";
            columns.push_back({"single" + title, "single", threads, "ns"});
            for (size_t size : sizes) {
                std::string variant = "batch " + std::to_string(size);
                columns.push_back({variant + title, variant, threads, "ns"});
                columns.push_back({"gain", variant, threads, "gain", false, false, 2});
            }
        }
        bench.report.table(std::string(one.workload) + ": " + std::to_string(one.keys) +
                               " keys, ns a key; gain: how many times faster than single calls of the same round",
                           "many", one.workload, natural, columns);
    }
    bench.report.write_csv("many");
}

void command_hot(Bench &bench) {
    Stream key = one_key(), all = stream_all(natural, 1);
    std::vector<unsigned> threads = bench.options.threads;
    threads.push_back(4 * cores()); /* more than there are cores */
    rotate<Entry>(everyone(bench, all.stride()), bench.rounds(5), [&](int round, const Entry &entry) {
        bench.measure("hot", natural, round, entry.peer, [&](Child &child) {
            std::vector<const bench_peer *> forms = entry.forms;
            if (entry.peer == bench_ours())
                forms.insert(forms.end(), {bench_ours_pinned(), bench_ours_pinned_blind(), bench_ours_acquire_exactly(),
                                           bench_ours_acquire()});
            /* Each form has its own table: a counter that was striped or sliced stays so. */
            for (const bench_peer *form : forms) {
                Loaded table(child, entry.peer, setup_for(entry.peer, all, 64, threads.back()), all, 1);
                for (unsigned count : threads) table.run(form, "W4", "plain", plan_for(bench, key, 4000000, count));
                table.check();
            }
        });
    });
    Server server(Server::redis); /* leases come from this server: without it, their row is left out */
    for (int round = 0; !server.address().empty() && round < bench.rounds(5); round++)
        bench.measure("hot", natural, round, bench_ours_acquire_hard(), [&](Child &child) {
            bench_setup setup = setup_for(bench_ours(), all, 64, threads.back());
            setup.address = server.address().c_str();
            Loaded table(child, bench_ours_acquire_hard(), setup, all, 1);
            for (unsigned count : threads)
                table.run(bench_ours_acquire_hard(), "W4", "plain", plan_for(bench, key, 4000000, count));
            table.check();
        });
    std::vector<Column> columns;
    for (unsigned count : threads) {
        std::string title = std::to_string(count) + "T";
        columns.push_back({"ns " + title, "plain", count, "ns", true});
        columns.push_back({"Mops " + title, "plain", count, "mops"});
    }
    bench.report.table("W4: one key, all threads", "hot", "W4", natural, columns);
    bench.report.write_csv("hot");
    bench.report.plot_threads("hot", "W4", "plain", natural);
}

void command_acquire(Bench &bench) {
    struct Case {
        const char *workload;
        uint64_t keys;
        uint64_t ops;
        Stream all, stream;
    };
    uint64_t large = std::min<uint64_t>(bench.keys_large(), 2000000);
    Case cases[] = {
        {"W0", w0.keys, 4000000, stream_all(natural, w0.keys), stream_uniform(natural, w0.keys, w0.stream_count, 1)},
        {"W1", w1.keys, 4000000, stream_all(natural, w1.keys), stream_uniform(natural, w1.keys, w1.stream_count, 1)},
        {"W2", large, 2000000, stream_all(natural, large), stream_uniform(natural, large, 2000000, 1)},
        {"W4", 1, 4000000, stream_all(natural, 1), one_key()}};
    Server server(Server::redis);
    std::vector<const Case *> order = {&cases[0], &cases[1], &cases[2], &cases[3]};
    rotate<const Case *>(order, bench.rounds(5), [&](int round, const Case *const &one) {
        bench.measure("acquire", natural, round, bench_ours_acquire(), [&](Child &child) {
            Loaded table(child, bench_ours(), setup_for(bench_ours(), one->all, one->keys, bench.threads_most()),
                         one->all, cores());
            for (unsigned threads : bench.options.threads)
                for (const bench_peer *form :
                     {bench_ours(), bench_ours_acquire(), bench_ours_acquire_async(), bench_ours_acquire_silent(),
                      bench_ours_denied(), bench_ours_denied_silent()})
                    table.run(form, one->workload, "plain", plan_for(bench, one->stream, one->ops, threads));
            table.check();
        });
        if (server.address().empty() || one->keys > w1.keys) return;
        bench.measure("acquire", natural, round, bench_ours_acquire_synced(), [&](Child &child) {
            bench_setup setup = setup_for(bench_ours(), one->all, one->keys, bench.threads_most());
            setup.address = server.address().c_str();
            Loaded table(child, bench_ours_synced(), setup, one->all, cores());
            /* From here on totals and the rate of the other engines are known, as for keys that live for several
             * intervals, and the engine's first seconds (share.h) are over. */
            for (int interval = 0; interval < 5; interval++) {
                Plan plan;
                plan.peer = bench_ours_synced();
                plan.self = table.self;
                plan.stream = &one->all;
                plan.threads = cores();
                run_threads(plan);
                table.sum += static_cast<int64_t>(one->all.count());
                if (!bench_ours_flush(table.self, 60000))
                    child.fail("not all was acknowledged by Redis within a minute");
                std::this_thread::sleep_for(std::chrono::milliseconds(400));
            }
            for (unsigned threads : bench.options.threads)
                for (const bench_peer *form : {bench_ours_synced(), bench_ours_acquire_synced()})
                    table.run(form, one->workload, "plain", plan_for(bench, one->stream, one->ops, threads));
            table.check();
        });
    });
    for (const Case &one : cases)
        bench.report.table(std::string(one.workload) + ": " + std::to_string(one.keys) +
                               " keys; `view` is tw_add, the ratio is over it",
                           "acquire", one.workload, natural, columns_by_threads(bench, false));
    bench.report.write_csv("acquire");
}

} // namespace bench
