/* report.h -- what was measured: kept row by row, written as CSV, told as aligned tables of medians, drawn by gnuplot.
 * Always true: a ratio is one median over another of the same command, workload, variant and threads; above 1 ours is
 * faster. Nothing is left out of the CSV. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/run.h"

#include <map>
#include <string>
#include <vector>

namespace bench {

/* Who ratios are over; and who is no peer, but the machine's noise. */
extern const char ours_name[], ours_form[], noise_name[];

struct Row {
    std::string command, workload, variant;
    unsigned threads;
    unsigned key_bytes;
    std::string peer, form;
    int round;
    std::string metric;
    double value;
};

/* One column of a table: a figure of a variant. */
struct Column {
    std::string title, variant;
    unsigned threads;
    std::string metric;
    bool ratio = false; /* a second column beside it: this over ours, or ours over this where more is better */
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
    /* Peers down, columns across, ratios over our row of that form; where there are ratios, the best of the others
     * last. Of a peer without figures: no row. */
    void table(const std::string &title, const std::string &command, const std::string &workload, unsigned key_bytes,
               const std::vector<Column> &columns, const char *ours = ours_form) const;
    /* Writes the rows of the command; all of them to one file where --csv names one. */
    void write_csv(const std::string &command) const;
    /* SVG by gnuplot; a line says so where it is missing. */
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
