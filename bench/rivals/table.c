/* table.c -- rivals [SEEDS [FIRST_SEED [CASE]]], the program of ./dev bench rivals. It prints the table of
 * docs/LIMITS.md, or one case of it (1 ...): each case with each scheme on 2 to 64 nodes, over some seeds.
 * Always true: the same seeds print the same table. */
#include "bench/rivals/rivals.h"

static const int node_counts[] = {2, 4, 8, 16, 32, 64};
#define PATIENCE_MS 2000
#define RIVALS_SEEDS_MAX 1000
#define COUNTS (sizeof node_counts / sizeof *node_counts)

struct figures { /* percent of the limit, one for each seed */
    double sold[RIVALS_SEEDS_MAX], counted[RIVALS_SEEDS_MAX];
    size_t count;
};

static double percent(int64_t part, int64_t of) {
    return (double)part * 100 / (double)of;
}

static void measure(int which, int scheme, int nodes, uint64_t seed, struct figures *figures) {
    const struct rivals_case *at = &rivals_cases[which];
    struct rivals_outcome out = rivals_run(which, scheme, nodes, PATIENCE_MS, seed);
    figures->sold[figures->count] = percent(out.admitted - out.wanted, at->limit);
    figures->counted[figures->count++] = percent(out.in_redis - out.admitted, at->limit);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct text {
    char of[24];
};

static struct text text_of(double value) {
    struct text text = {"0"};
    if (value < -0.995 || value > 0.995)
        snprintf(text.of, sizeof text.of, "%+.1f", value);
    else if (value < -0.005 || value > 0.005)
        snprintf(text.of, sizeof text.of, "%+.2f", value);
    return text;
}

/* The median; in brackets, where that says more, the value farthest from 0. */
static void print_cell(double *values, size_t count) {
    qsort(values, count, sizeof *values, by_value);
    double worst = -values[0] > values[count - 1] ? values[0] : values[count - 1];
    struct text median = text_of(values[count / 2]), farthest = text_of(worst);
    printf(" %s", median.of);
    if (strcmp(median.of, farthest.of) != 0) printf(" (%s)", farthest.of);
}

static bool is_exact(const struct figures figures[SCHEMES][COUNTS]) {
    for (int scheme = 0; scheme < SCHEMES; scheme++)
        for (size_t n = 0; n < COUNTS; n++)
            for (size_t i = 0; scheme != BATCHES && i < figures[scheme][n].count; i++)
                if (figures[scheme][n].counted[i] != 0) return false;
    return true;
}

static void print_table(const char *title, struct figures figures[SCHEMES][COUNTS], bool counted) {
    printf("\n| %s |", title);
    for (size_t n = 0; n < COUNTS; n++) printf(" %d |", node_counts[n]);
    printf("\n|");
    for (size_t n = 0; n <= COUNTS; n++) printf(" --- |");
    printf("\n");
    for (int scheme = 0; scheme < SCHEMES; scheme++) {
        if (counted && !rivals_scheme(scheme)->in_redis) continue;
        printf("| %s |", rivals_scheme(scheme)->name);
        for (size_t n = 0; n < COUNTS; n++) {
            struct figures *cell = &figures[scheme][n];
            print_cell(counted ? cell->counted : cell->sold, cell->count);
            printf(" |");
        }
        printf("\n");
    }
    fflush(stdout);
}

/* One case, with so many seeds from the first one on. */
static void print_case(int which, size_t seeds, uint64_t first_seed) {
    static struct figures figures[SCHEMES][COUNTS];
    memset(figures, 0, sizeof figures);
    for (int scheme = 0; scheme < SCHEMES; scheme++)
        for (size_t n = 0; n < COUNTS; n++)
            for (size_t i = 0; i < seeds; i++)
                measure(which, scheme, node_counts[n], first_seed + i, &figures[scheme][n]);
    print_table(rivals_cases[which].title, figures, false);
    if (!is_exact((const struct figures(*)[COUNTS])figures))
        print_table("&nbsp; what Redis has counted, less what was admitted", figures, true);
}

int main(int argc, char **argv) {
    size_t seeds = argc > 1 ? strtoul(argv[1], NULL, 10) : 9;
    uint64_t first_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    int only = argc > 3 ? atoi(argv[3]) : 0;
    if (seeds < 1 || seeds > RIVALS_SEEDS_MAX || only < 0 || only > CASES) {
        fprintf(stderr, "usage: %s [SEEDS, 1 to %d [FIRST_SEED [CASE, 1 to %d]]]\n", argv[0], RIVALS_SEEDS_MAX, CASES);
        return 2;
    }
    for (int which = 0; which < CASES; which++)
        if (only == 0 || only == which + 1) print_case(which, seeds, first_seed);
    return 0;
}
