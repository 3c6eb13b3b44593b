/* report.cc -- see report.h. */
#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

const char ours_name[] = "tallywheel";
const char ours_form[] = "view";
const char noise_name[] = "clock only";
const char floor_name[] = "floor";

void Report::add(const std::string &command, unsigned key_bytes, int round, const std::vector<Metric> &metrics) {
    for (const Metric &metric : metrics)
        rows_.push_back({command, metric.workload, metric.variant, metric.threads, key_bytes, metric.peer, metric.form,
                         round, metric.metric, metric.value});
}

void Report::fail(const std::string &what) {
    failures_++;
    std::printf("FAILED: %s\n", what.c_str());
    std::fflush(stdout);
}

double Report::median(const std::string &command, const std::string &workload, unsigned key_bytes,
                      const std::string &peer, const std::string &form, const Column &column) const {
    std::vector<double> values;
    for (const Row &row : rows_)
        if (row.metric == column.metric && row.threads == column.threads && row.peer == peer && row.form == form &&
            row.workload == workload && row.variant == column.variant && row.command == command &&
            row.key_bytes == key_bytes)
            values.push_back(row.value);
    if (values.empty()) return std::nan("");
    std::sort(values.begin(), values.end());
    size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/* In the order in which they first came, which is that of the first round. */
std::vector<std::pair<std::string, std::string>>
Report::peers_of(const std::string &command, const std::string &workload, unsigned key_bytes) const {
    std::vector<std::pair<std::string, std::string>> peers;
    std::set<std::pair<std::string, std::string>> known;
    for (const Row &row : rows_) {
        if (row.command != command || row.workload != workload || row.key_bytes != key_bytes) continue;
        if (known.insert({row.peer, row.form}).second) peers.push_back({row.peer, row.form});
    }
    return peers;
}

double Report::best(const std::string &command, const std::string &workload, unsigned key_bytes, const Column &column,
                    const std::vector<std::string> &forms) const {
    double best = std::nan("");
    for (auto &[peer, form] : peers_of(command, workload, key_bytes)) {
        if (peer == ours_name || peer == noise_name || peer == floor_name) continue;
        if (!forms.empty() && std::find(forms.begin(), forms.end(), form) == forms.end()) continue;
        double value = median(command, workload, key_bytes, peer, form, column);
        bool better = column.more_is_better ? value > best : value < best;
        if (!std::isnan(value) && (std::isnan(best) || better)) best = value;
    }
    return best;
}

static void print_cell(double value, int digits, unsigned width) {
    if (std::isnan(value))
        std::printf(" %*s", width, "-");
    else
        std::printf(" %*.*f", width, digits, value);
}

void Report::table(const std::string &title, const std::string &command, const std::string &workload,
                   unsigned key_bytes, const std::vector<Column> &columns, const char *ours_row) const {
    auto peers = peers_of(command, workload, key_bytes);
    if (peers.empty()) return;
    std::printf("\n%s\n%-12s %-13s", title.c_str(), "", "");
    std::vector<unsigned> widths;
    for (const Column &column : columns) {
        widths.push_back(std::max<unsigned>(9, static_cast<unsigned>(column.title.size()) + 2));
        std::printf(" %*s", widths.back(), column.title.c_str());
        if (column.ratio) std::printf(" %6s", "ratio");
    }
    std::printf("\n");
    std::vector<double> ours, bests;
    for (const Column &column : columns) {
        ours.push_back(median(command, workload, key_bytes, ours_name, ours_row, column));
        bests.push_back(best(command, workload, key_bytes, column));
    }
    auto print_row = [&](const std::string &peer, const std::string &form, const std::vector<double> &values,
                         bool all) {
        if (std::all_of(values.begin(), values.end(), [](double value) { return std::isnan(value); })) return;
        std::printf("%-12s %-13s", peer.c_str(), form.c_str());
        for (size_t i = 0; i < columns.size(); i++) {
            double ratio = columns[i].more_is_better ? ours[i] / values[i] : values[i] / ours[i];
            print_cell(all || columns[i].ratio ? values[i] : std::nan(""), columns[i].digits, widths[i]);
            if (columns[i].ratio) print_cell(ratio, 2, 6);
        }
        std::printf("\n");
    };
    for (auto &[peer, form] : peers) {
        std::vector<double> values;
        for (const Column &column : columns) values.push_back(median(command, workload, key_bytes, peer, form, column));
        print_row(peer, form, values, true);
    }
    if (std::any_of(columns.begin(), columns.end(), [](const Column &column) { return column.ratio; }))
        print_row("best peer", "of each", bests, false);
    std::fflush(stdout);
}

void Report::write_csv(const std::string &command) const {
    std::string path = csv_.empty() ? folder_ + "/" + command + ".csv" : csv_;
    std::ofstream file(path);
    file << "command,workload,variant,threads,key_bytes,peer,form,round,metric,value\n";
    for (const Row &row : rows_) {
        if (csv_.empty() && row.command != command) continue;
        char value[40];
        std::snprintf(value, sizeof value, "%.9g", row.value);
        file << row.command << ',' << row.workload << ',' << row.variant << ',' << row.threads << ',' << row.key_bytes
             << ',' << row.peer << ',' << row.form << ',' << row.round << ',' << row.metric << ',' << value << '\n';
    }
    file.close();
    if (!file)
        std::printf("could not write %s\n", path.c_str());
    else
        std::printf("figures of every round: %s\n", path.c_str());
}

/* ---- pictures ---- */

void Report::run_gnuplot(const std::string &name, const std::string &script) const {
    std::string path = folder_ + "/" + name + ".gp";
    std::ofstream file(path);
    file << script;
    file.close();
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(folder_.c_str()) != 0) _exit(126);
        execlp("gnuplot", "gnuplot", (name + ".gp").c_str(), static_cast<char *>(nullptr));
        _exit(127);
    }
    int status = 0;
    if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        std::printf("picture: %s/%s.svg\n", folder_.c_str(), name.c_str());
    else
        std::printf("no picture %s.svg: gnuplot is missing or failed (its input is %s)\n", name.c_str(), path.c_str());
}

static std::string head(const std::string &name, const std::string &title, const char *size) {
    return "set terminal svg size " + std::string(size) +
           " dynamic noenhanced background rgb 'white' font 'sans,12'\nset output '" + name + ".svg'\nset title '" +
           title + "'\nset grid\nset key outside right\n";
}

/* Our rows are red, each other peer has a colour of its own. `index`: the number of the row. */
static std::string colour_of(const std::string &peer, size_t index) {
    static const char *const ours[] = {"#d00000", "#ff7f50", "#ff1493", "#8b0000", "#ffb347", "#e06666"};
    static const char *const others[] = {"#1f4e9c", "#6fa8dc", "#1e7b34", "#8fce6a", "#5b2a86", "#b78be0",
                                         "#7a5c1e", "#c9a94a", "#008b8b", "#333333", "#999999", "#7f9f7f"};
    bool is_ours = peer == ours_name;
    const char *colour =
        is_ours ? ours[index % (sizeof ours / sizeof *ours)] : others[index % (sizeof others / sizeof *others)];
    return std::string(" lc rgb '") + colour + (is_ours ? "' lw 3" : "' lw 1.5");
}

void Report::plot_bars(const std::string &command, const std::vector<std::pair<std::string, Column>> &groups,
                       unsigned key_bytes) const {
    std::ostringstream data, lines;
    std::set<std::pair<std::string, std::string>> known;
    std::vector<std::pair<std::string, std::string>> peers;
    for (auto &group : groups)
        for (auto &peer : peers_of(command, group.first, key_bytes))
            if (known.insert(peer).second) peers.push_back(peer);
    if (peers.empty()) return;
    data << "$data << END\nworkload";
    for (auto &[peer, form] : peers) data << " \"" << peer << ' ' << form << '"';
    data << '\n';
    for (auto &[workload, column] : groups) {
        data << '"' << workload << '"';
        for (auto &[peer, form] : peers) {
            double value = median(command, workload, key_bytes, peer, form, column);
            if (std::isnan(value))
                data << " ?";
            else
                data << ' ' << value;
        }
        data << '\n';
    }
    data << "END\n";
    lines
        << head(command, "ns for one call, 1 thread (less is better)", "1100,600") << data.str()
        << "set datafile missing '?'\nset style data histogram\nset style histogram cluster gap 2\n"
           "set style fill solid 0.9 noborder\nset logscale y\nset ylabel 'ns'\nplot ";
    for (size_t i = 0; i < peers.size(); i++)
        lines << (i == 0 ? "" : ", ") << "$data using " << i + 2 << ":xtic(1) title columnheader(" << i + 2 << ")"
              << colour_of(peers[i].first, i);
    lines << '\n';
    run_gnuplot(command, lines.str());
}

void Report::plot_threads(const std::string &command, const std::string &workload, const std::string &variant,
                          unsigned key_bytes) const {
    std::ostringstream lines, plots;
    std::set<unsigned> threads;
    for (const Row &row : rows_)
        if (row.command == command && row.workload == workload && row.variant == variant && row.metric == "mops")
            threads.insert(row.threads);
    if (threads.empty()) return;
    std::string name = command + "-" + workload + "-threads";
    lines << head(name, command + " " + workload + ": million calls a second by threads", "900,560");
    lines << "set xlabel 'threads'\nset xtics 1\nset ylabel 'million calls a second'\n";
    int block = 0;
    for (auto &[peer, form] : peers_of(command, workload, key_bytes)) {
        std::ostringstream points;
        for (unsigned n : threads) {
            double value = median(command, workload, key_bytes, peer, form, {"", variant, n, "mops"});
            if (!std::isnan(value)) points << n << ' ' << value << '\n';
        }
        if (points.str().empty()) continue;
        lines << "$p" << block << " << END\n" << points.str() << "END\n";
        plots << (block == 0 ? "plot " : ", ") << "$p" << block << " with linespoints"
              << colour_of(peer, static_cast<size_t>(block)) << " title '" << peer << ' ' << form << "'";
        block++;
    }
    if (block != 0) run_gnuplot(name, lines.str() + plots.str() + "\n");
}

void Report::plot_latency(const std::string &command, const std::string &workload, const std::string &variant,
                          unsigned threads, unsigned key_bytes) const {
    std::ostringstream lines, plots;
    std::string name = command + "-" + variant + "-" + std::to_string(threads) + "t";
    std::replace(name.begin(), name.end(), ' ', '-');
    lines << head(name, command + ", " + variant + ", " + std::to_string(threads) + " thread(s): how long calls took",
                  "1000,600");
    lines
        << "set logscale xy\nset xrange [0.6:1e-7] reverse\nset yrange [0.01:*]\n"
           "set xlabel 'share of calls that were not slower'\nset ylabel 'microseconds'\n"
           "set xtics ('50 %%' 0.5, '90 %%' 0.1, '99 %%' 0.01, '99.9 %%' 1e-3, "
           "'99.99 %%' 1e-4, '99.999 %%' 1e-5, '99.9999 %%' 1e-6)\n";
    int block = 0;
    for (auto &[peer, form] : peers_of(command, workload, key_bytes)) {
        std::map<double, std::vector<double>, std::greater<double>> points;
        for (const Row &row : rows_)
            if (row.command == command && row.workload == workload && row.variant == variant &&
                row.threads == threads && row.peer == peer && row.form == form && row.key_bytes == key_bytes &&
                row.metric.rfind("curve ", 0) == 0)
                points[std::atof(row.metric.c_str() + 6)].push_back(row.value);
        if (points.empty()) continue;
        lines << "$p" << block << " << END\n";
        for (auto &[beyond, values] : points) {
            std::sort(values.begin(), values.end());
            lines << beyond << ' ' << values[values.size() / 2] / 1000 << '\n';
        }
        lines << "END\n";
        plots << (block == 0 ? "plot " : ", ") << "$p" << block << " with lines"
              << colour_of(peer, static_cast<size_t>(block)) << " title '" << peer << ' ' << form << "'";
        block++;
    }
    if (block != 0) run_gnuplot(name, lines.str() + plots.str() + "\n");
}

} // namespace bench
