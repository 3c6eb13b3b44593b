/* main.cc -- tallywheel-bench COMMAND [OPTIONS]: reads the options, prints on what machine it runs, calls the
 * command. Exit status: 0; 1 if a run failed (above all by a wrong sum); 2 for a usage error. Slowness never fails. */
#include "bench/bench.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <sys/utsname.h>
#include <unistd.h>

namespace bench {

static const struct Command {
    const char *name, *text;
    void (*run)(Bench &);
} commands[] = {
    {"floor", "what the machine allows: hash, atomic add, memory", command_floor},
    {"add", "W0 to W3: one add to a key that is there, or to a new one, beside every peer", command_add},
    {"alone", "W0 to W3 again: calls that wait for each other, and single calls among other work", command_alone},
    {"many", "batches against single calls", command_many},
    {"hot", "W4: one key, all threads, more threads than cores", command_hot},
    {"acquire", "limits against adds", command_acquire},
    {"grow", "W5: new keys only, from small; latency to p99.999 and the worst call", command_grow},
    {"shared", "one engine for all processes, and one for each", command_shared},
    {"rollover", "windows following each other under load", command_rollover},
    {"memory", "bytes a counter", command_memory},
    {"rates", "rates finer than the clock's grain, and sub-windows of sliding limits", command_rates},
    {"distinct", "an element added to a distinct count, beside an add to a counter", command_distinct},
    {"top", "tw_top() over 10 million keys, and what it costs threads that add", command_top},
    {"redis", "Redis and memcached over a unix socket; Tallywheel with Redis behind it", command_redis},
    {"sync", "what counts cost a Redis: Tallywheel's batches, and the ways one would write by hand", command_sync},
    {"tls", "what TLS costs a batch: TCP, TLS, unix socket", command_tls},
    {"cluster", "what Redis Cluster costs a batch: one Redis, and a cluster of one node", command_cluster},
    {"engines", "what 10 to 10,000 engines cost a Redis while nothing happens, and a draw of theirs", command_engines},
    {"strict", "calls that wait for Redis, by threads and in flight, beside raw hiredis", command_strict},
    {"scripts", "what each script costs Redis by its own account", command_scripts},
    {"neighbour", "how long another client of the same Redis waits while 175,000 keys a second are merged",
     command_neighbour},
};

[[noreturn]] static void usage() {
    std::fprintf(stderr, "usage: tallywheel-bench COMMAND [OPTIONS]\n");
    for (const Command &command : commands) std::fprintf(stderr, "  %-9s %s\n", command.name, command.text);
    std::fprintf(stderr, "  %-9s all of them\noptions:\n", "all");
    std::fprintf(
        stderr,
        "  --rounds N        each peer so often, in rotated order (each command has its own number)\n"
        "  --ops N           calls of one measurement\n"
        "  --seconds S       each measurement so long, instead of by calls\n"
        "  --keys N          of the large workloads (10000000, fewer where memory is short), of rollover and redis\n"
        "  --threads N,...   1,2,4 ... cores; more than cores are welcome\n"
        "  --peers NAME,...  only peers whose name holds one of these (Tallywheel is always there)\n"
        "  --cases NAME,...  only cases of `alone` whose name holds one of these, as \"W1 48\" or \"1000 families\"\n"
        "  --csv FILE        all figures there, instead of COMMAND.csv in the folder\n"
        "  --out FOLDER      for CSV and pictures; default: here\n"
        "  --large-pages     malloc asks for 2 MiB pages (glibc), for everyone\n");
    std::exit(2);
}

static double number(const char *text, double least, double most) {
    char *end;
    double value = std::strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= least && value <= most)) {
        std::fprintf(stderr, "tallywheel-bench: \"%s\" is no number from %.0f to %.0f\n", text, least, most);
        std::exit(2);
    }
    return value;
}

static std::vector<std::string> words(const char *text) {
    std::vector<std::string> all;
    std::stringstream stream(text);
    for (std::string one; std::getline(stream, one, ',');)
        if (!one.empty()) all.push_back(one);
    return all;
}

/* malloc reads the environment before main(). So this sets the variable and starts the program once more. */
static void ask_for_large_pages(char **argv) {
    static const char tunable[] = "glibc.malloc.hugetlb=1";
    const char *set = std::getenv("GLIBC_TUNABLES");
    if (set != nullptr && std::strstr(set, tunable) != nullptr) return;
    setenv("GLIBC_TUNABLES", set != nullptr ? (std::string(set) + ":" + tunable).c_str() : tunable, 1);
    execv("/proc/self/exe", argv);
    std::fprintf(stderr, "tallywheel-bench: could not start anew for --large-pages\n");
    std::exit(2);
}

static Options parse(int argc, char **argv) {
    Options options;
    for (int i = 2; i < argc; i++) {
        std::string name = argv[i];
        if (name == "--large-pages") {
            ask_for_large_pages(argv);
            continue;
        }
        if (i + 1 >= argc) usage();
        const char *value = argv[++i];
        if (name == "--rounds")
            options.rounds = static_cast<int>(number(value, 1, 1000));
        else if (name == "--ops")
            options.ops = static_cast<uint64_t>(number(value, 1000, 1e8));
        else if (name == "--seconds")
            options.seconds = number(value, 0.01, 3600);
        else if (name == "--keys")
            options.keys = static_cast<uint64_t>(number(value, 1000, 1e8 / 2));
        else if (name == "--threads")
            for (const std::string &one : words(value))
                options.threads.push_back(static_cast<unsigned>(number(one.c_str(), 1, 1024)));
        else if (name == "--peers")
            options.peers = words(value);
        else if (name == "--cases")
            options.cases = words(value);
        else if (name == "--csv")
            options.csv = value;
        else if (name == "--out")
            options.folder = value;
        else
            usage();
    }
    if (options.threads.empty()) {
        for (unsigned threads = 1; threads < cores(); threads *= 2) options.threads.push_back(threads);
        options.threads.push_back(cores());
    }
    return options;
}

static std::string line_of(const char *file, const char *field) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);)
        if (line.rfind(field, 0) == 0) return line.substr(std::strlen(field));
    return "unknown";
}

static void print_machine() {
    struct utsname system = {};
    uname(&system);
    std::string cpu = line_of("/proc/cpuinfo", "model name");
    cpu.erase(0, cpu.find_first_not_of("\t :"));
    std::printf("machine:  %s, %u cores, %.1f GiB of memory available\n", cpu.c_str(), cores(),
                static_cast<double>(available_bytes()) / (1 << 30));
    std::printf("system:   %s %s %s; transparent huge pages: %s; load: %s\n", system.sysname, system.release,
                system.machine, line_of("/sys/kernel/mm/transparent_hugepage/enabled", "").c_str(),
                line_of("/proc/loadavg", "").c_str());
    char date[16];
    time_t now = time(nullptr);
    struct tm day = {};
    gmtime_r(&now, &day);
    std::strftime(date, sizeof date, "%Y-%m-%d", &day);
    std::printf("date:     %s\n", date);
    const char *tunables = std::getenv("GLIBC_TUNABLES");
    std::printf("built by: %s %s, optimised; malloc: %s\n",
#if defined(__clang__)
                "clang",
#else
                "gcc",
#endif
                __VERSION__, tunables != nullptr ? tunables : "as it is");
    std::printf(
        "peers:    one hash for all, inline and not keyed; ours is keyed. ns are medians of rounds, per call and "
        "thread;\n"
        "          ratio: this over ours (tallywheel, view), above 1 ours is faster\n");
    print_left_out();
    std::fflush(stdout);
}

} // namespace bench

int main(int argc, char **argv) {
    using namespace bench;
    if (argc < 2) usage();
    std::string name = argv[1];
    Bench bench = {parse(argc, argv), Report("", "")};
    bench.report = Report(bench.options.folder, bench.options.csv);
    bool found = false;
    for (const Command &command : commands) found = found || name == "all" || name == command.name;
    if (!found) usage();
    print_machine();
    for (const Command &command : commands) {
        if (name != "all" && name != command.name) continue;
        double begin = now_s();
        std::printf("\n== %s: %s\n", command.name, command.text);
        std::fflush(stdout);
        command.run(bench);
        std::printf("(%s took %.0f s)\n", command.name, now_s() - begin);
    }
    if (bench.report.failed()) std::printf("\nThere were failures: see the lines FAILED above.\n");
    return bench.report.failed() ? 1 : 0;
}
