// model.hpp -- how the engine's protocols are put before relacy, and how their orderings are weakened one by one.
//
// A model repeats functions of engine/ word by word, on small structures: same steps, same names of operations, same
// labels. Its head names them, each with a digest of its text: scripts/model_digests.py tells which have changed since
// somebody last read the two side by side (./dev check layers, ./dev check models). Each operation carries its label;
// the runner weakens one label at a time and expects the model to fail:
//   acquire, release   that half of the operation becomes relaxed
//   fence              the fence is gone
//   step               the step that the label is about is done in the wrong way (said at its place in the model)
// What survives must be excused in the table, with the reason; an excuse that is not true any more (the model fails
// after all) is an error as well. relacy runs each on random schedules, with loads that may return what was
// overwritten: the same ones in every run. Plain memory is rl::var: two accesses without an order between them are a
// failure.
// Always true: one line of output for each model and each mutant; exit status 0 only if all of them are as expected.
// Left out everywhere: what relacy does not have: loads that see stores of the future (load buffering), and a failed
// compare-and-swap that reads an old value; of each atomic the three newest values can be read.
#ifndef TALLYWHEEL_MODEL_HPP
#define TALLYWHEEL_MODEL_HPP

#include <relacy/relacy.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <streambuf>

enum model_label {
    NONE,
// clang-format off
#define MODEL_LABELS(X) \
    X(A1) X(A2) X(A3) X(A4) X(A5) X(A6) X(A7) X(A8) X(A9) \
    X(AN1) X(AN2) X(AN3) X(AN4) X(AN5) X(AN6) X(AN7) X(AN8) X(AN9) X(AN10) X(AN11) X(AN12) X(AN13) X(AN14) \
    X(B1) X(B2) X(B3) X(B4) X(B5) X(B6) X(B7) X(B8) X(B9) \
    X(C1) X(C2) \
    X(D1) X(D2) X(D3) X(D4) X(D5) X(D6) X(D7) X(D8) X(D9) X(D10) X(D11) \
    X(E1) X(E2) \
    X(F1) X(F2) \
    X(FL1) X(FL2) X(FL3) X(FL4) \
    X(H1) X(H2) X(H3) X(H4) X(H5) \
    X(HS1) X(HS2) X(HS3) X(HS4) X(HS5) X(HS6) \
    X(I1) X(I2) X(I3) X(I4) \
    X(J1) X(J2) X(J3) X(J4) X(J5) X(J6) X(J7) X(J8) X(J9) X(J10) X(J11) X(J12) \
    X(K1) X(K2) \
    X(N1) X(N2) X(N3) X(N4) X(N5) \
    X(O1) X(O2) \
    X(PL1) X(PL2) X(PL3) X(PL4) \
    X(Q1) X(Q2) X(Q3) X(Q4) \
    X(R1) X(R2) X(R3) X(R4) X(R5) X(R6) X(R7) X(R8) X(R9) \
    X(S1) X(S2) X(S3) X(S4) X(S5) X(S6) X(S7) X(S8) \
    X(TS1) X(TS2) \
    X(U1) X(U2) X(U3) X(U4) X(U5) \
    X(T5) X(T6) X(T7) X(T8) X(T9) X(T10) X(T11) X(T12) X(T13) \
    X(V1) X(V2) X(V3) X(V4) X(V5) X(V6) X(V7) \
    X(W1) X(W2) X(W3) X(W4) X(W5) X(W6) X(W7) \
   
// clang-format on
#define MODEL_ENUM(name) name,
    MODEL_LABELS(MODEL_ENUM)
};
static const char *const model_label_names[] = {"",
#define MODEL_NAME(name) #name,
                                                MODEL_LABELS(MODEL_NAME)};

enum model_half { ACQUIRE, RELEASE, FENCE, STEP };
static const char *const model_half_names[] = {"acquire", "release", "fence", "step"};

// What is weakened in this run.
static model_label weak_label = NONE;
static model_half weak_half;

inline bool is_weak(model_label label, model_half half) {
    return label != NONE && label == weak_label && half == weak_half;
}

inline rl::memory_order order_of(bool acquire, bool release, model_label label) {
    acquire = acquire && !is_weak(label, ACQUIRE);
    release = release && !is_weak(label, RELEASE);
    return acquire ? (release ? rl::mo_acq_rel : rl::mo_acquire) : (release ? rl::mo_release : rl::mo_relaxed);
}
inline rl::memory_order failed_order_of(model_label label) {
    return is_weak(label, ACQUIRE) ? rl::mo_relaxed : rl::mo_acquire;
}

// The operations of engine/base/atomic.h, with the label behind.
#define twi_load_relaxed(p) (p)->load(rl::mo_relaxed, $)
#define twi_load_acquire(p, label) (p)->load(order_of(true, false, label), $)
#define twi_load_seqcst(p, label) (p)->load(is_weak(label, ACQUIRE) ? rl::mo_relaxed : rl::mo_seq_cst, $)
#define twi_store_relaxed(p, v) (p)->store((v), rl::mo_relaxed, $)
#define twi_store_release(p, v, label) (p)->store((v), order_of(false, true, label), $)
#define twi_swap_acqrel(p, v, label) (p)->exchange((v), order_of(true, true, label), $)
#define twi_swap_acquire(p, v, label) (p)->exchange((v), order_of(true, false, label), $)
#define twi_add_relaxed(p, v) (p)->fetch_add((v), rl::mo_relaxed, $)
#define twi_sub_relaxed(p, v) (p)->fetch_sub((v), rl::mo_relaxed, $)
#define twi_add_acqrel(p, v, label) (p)->fetch_add((v), order_of(true, true, label), $)
#define twi_or_acqrel(p, v, label) (p)->fetch_or((v), order_of(true, true, label), $)
#define twi_or_relaxed(p, v) (p)->fetch_or((v), rl::mo_relaxed, $)
#define twi_sub_acqrel(p, v, label) (p)->fetch_sub((v), order_of(true, true, label), $)
#define twi_and_acqrel(p, v, label) (p)->fetch_and((v), order_of(true, true, label), $)
#define twi_cas_acqrel(p, expected, v, label) \
    (p)->compare_exchange_strong(*(expected), (v), order_of(true, true, label), $, failed_order_of(label), $)
#define twi_cas_relaxed(p, expected, v) \
    (p)->compare_exchange_strong(*(expected), (v), rl::mo_relaxed, $, rl::mo_relaxed, $)
#define twi_cas_weak_acqrel(p, expected, v, label) \
    (p)->compare_exchange_weak(*(expected), (v), order_of(true, true, label), $, failed_order_of(label), $)
#define twi_fence_seqcst(label) \
    do { \
        if (!is_weak(label, FENCE)) rl::atomic_thread_fence(rl::mo_seq_cst, $); \
    } while (0)

// ---- the runner -----------------------------------------------------------------------------------------------------

struct model_mutant {
    model_label label;
    model_half half;
    const char *excuse; // why the model need not fail; NULL: it must
};

// relacy has its own operator new while a model runs: a stream for its reports must not allocate.
struct model_report : std::streambuf {
    char text[1 << 20];
    size_t size = 0;
    int overflow(int byte) override {
        if (size < sizeof text - 1) text[size++] = (char)byte;
        return 0;
    }
};

template <typename model> bool model_holds(unsigned iterations, bool show) {
    static model_report report;
    report.size = 0;
    std::ostream nowhere(&report);
    rl::test_params params;
    params.iteration_count = iterations;
    params.execution_depth_limit = 20000;
    params.progress_stream = &nowhere;
    params.output_stream = &nowhere;
    bool holds = rl::simulate<model>(params);
    report.text[report.size] = 0;
    if (!holds && show && std::getenv("MODEL_HISTORY") == NULL) {
        char *history = std::strstr(report.text, "execution history");
        if (history != NULL) *history = 0; // MODEL_HISTORY=1 shows the schedule
    }
    if (!holds && show) std::printf("%s\n", report.text);
    return holds;
}

// Runs a model as it is, then each of its mutants. Returns how many were not as expected.
template <typename model>
int model_run(const char *name, unsigned iterations, const model_mutant *mutants, size_t count) {
    weak_label = NONE;
    bool holds = model_holds<model>(iterations, true);
    std::printf("%s  %s\n", holds ? "ok   holds   " : "FAIL does not hold", name);
    int wrong = holds ? 0 : 1;
    for (size_t i = 0; i < count; i++) {
        const model_mutant &mutant = mutants[i];
        weak_label = mutant.label;
        weak_half = mutant.half;
        bool survives = model_holds<model>(iterations, false);
        bool as_expected = survives == (mutant.excuse != NULL);
        std::printf("%s %s  %s without %s %s%s%s\n", as_expected ? "ok  " : "FAIL", survives ? "survives" : "fails   ",
                    name, model_label_names[mutant.label], model_half_names[mutant.half],
                    mutant.excuse != NULL ? ": " : "", mutant.excuse != NULL ? mutant.excuse : "");
        std::fflush(stdout);
        wrong += !as_expected;
    }
    weak_label = NONE;
    return wrong;
}
#define MODEL_RUN(model, name, iterations, mutants) \
    model_run<model>((name), (iterations), (mutants), sizeof(mutants) / sizeof(mutants)[0])

#endif
