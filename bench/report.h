/* report.h -- what was measured: kept row by row, written as CSV, printed as aligned tables of medians, drawn by
 * gnuplot.
 * Always true: a ratio is the median of one row over that of another, with the same command, workload, variant and
 * threads. Above 1, ours is faster. The CSV has every row. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/run.h"

#include <map>
#include <string>
#include <vector>

namespace bench {

/* The row that ratios are over; and the rows that are no peers: the noise of the machine, and what it allows. */
extern const char ours_name[], ours_form[], noise_name[], floor_name[];

struct Row {
    std::string command, workload, variant;
    unsigned threads;
    unsigned key_bytes;
    std::string peer, form;
    int round;
    std::string metric;
    double value;
};

/* One column of a table: one figure of one variant. */
struct Column {
    std::string title, variant;
    unsigned threads;
    std::string metric;
    bool ratio = false; /* adds a column: this over ours, or ours over this where more is better */
    bool more_is_better = false;
    int digits = 1;
};

class Report {
  public:
    Report(std::string folder, std::string csv) : folder_(std::move(folder)), csv_(std::move(csv)) {
    }

    void add(const std::string &command, unsigned key_bytes, int round, const std::vector<Metric> &metrics);
    void fail(const std::string &what);
    bool failed() const {
        return failures_ != 0;
    }
    /* The median over all rounds; NaN if there is none. */
    double median(const std::string &command, const std::string &workload, unsigned key_bytes, const std::string &peer,
                  const std::string &form, const Column &column) const;
    /* The best median of all peers in one of these forms; no form: in any. NaN if there is none. */
    double best(const std::string &command, const std::string &workload, unsigned key_bytes, const Column &column,
                const std::vector<std::string> &forms = {}) const;
    /* Prints peers down and columns across, with ratios over our row of that form. With ratios, the last row is the
     * best of the other peers. A peer without figures has no row. */
    void table(const std::string &title, const std::string &command, const std::string &workload, unsigned key_bytes,
               const std::vector<Column> &columns, const char *ours = ours_form) const;
    /* Writes the rows of the command to its CSV file. Where --csv names a file, all rows go there. */
    void write_csv(const std::string &command) const;
    /* Draws SVG pictures by gnuplot. Where gnuplot is missing, prints a line that says so. */
    void plot_bars(const std::string &command, const std::vector<std::pair<std::string, Column>> &groups,
                   unsigned key_bytes) const;
    void plot_threads(const std::string &command, const std::string &workload, const std::string &variant,
                      unsigned key_bytes) const;
    void plot_latency(const std::string &command, const std::string &workload, const std::string &variant,
                      unsigned threads, unsigned key_bytes) const;

  private:
    std::vector<std::pair<std::string, std::string>> peers_of(const std::string &command, const std::string &workload,
                                                              unsigned key_bytes) const;
    void run_gnuplot(const std::string &name, const std::string &script) const;

    std::string folder_, csv_;
    std::vector<Row> rows_;
    int failures_ = 0;
};

} // namespace bench
#endif
