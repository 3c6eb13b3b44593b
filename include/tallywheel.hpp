/* tallywheel.hpp -- tallywheel.h for C++17: handles that close automatically, keys as string_view.
 *
 *     tallywheel::engine engine;
 *     tallywheel::family views;
 *     tallywheel::family_options hourly;
 *     hourly.name = "views";
 *     if (engine.open() != TW_OK || views.open(engine, hourly) != TW_OK) return 1;
 *     views.add(path);                        // path: anything that is a std::string_view
 *     if (views.acquire(user, 1, 100) == TW_OK) serve(user);
 *
 * tallywheel.h is the manual. Each function here is one call there, with the same name, the same
 * arguments and the same results. All calls of tallywheel.h are here. get() returns the C handle.
 * Always true: no function throws, and exceptions and RTTI are not needed. Results are tw_status,
 * and only TW_OK admits. Handles can be moved but not copied. An empty handle returns
 * TW_ERR_CLOSED. A function that you pass (visit, write) must not throw, because C calls it. */
#ifndef TALLYWHEEL_HPP
#define TALLYWHEEL_HPP

#include <atomic>
#include <cstdint>
#include <new>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include <tallywheel.h>

namespace tallywheel {

inline tw_key key(std::string_view text) noexcept {
    return tw_bytes(text.data(), text.size());
}
inline std::string_view text(tw_key key) noexcept {
    return {static_cast<const char *>(key.data), key.size};
}

/** The network of an address as a key, for example "10.1.2.0/24". The key lies in `buffer`. */
inline tw_status key_network(std::string_view address, unsigned bits4, unsigned bits6, char *buffer,
                             std::size_t buffer_size, std::string_view &key) noexcept {
    tw_key network;
    const tw_status status =
        tw_key_network(address.data(), address.size(), bits4, bits6, buffer, buffer_size, &network);
    if (status == TW_OK) key = text(network);
    return status;
}

inline const char *status_name(tw_status status) noexcept {
    return tw_status_name(status);
}
inline const char *status_text(tw_status status) noexcept {
    return tw_status_text(status);
}
inline const char *version() noexcept {
    return tw_version();
}
/** A ready options.log_write: lines on standard error. */
inline void log_stderr(void *ctx, int level, int event, const char *text) noexcept {
    tw_log_stderr(ctx, level, event, text);
}
/** Why the last failed call of this thread failed. */
inline const char *error_text() noexcept {
    return tw_error_text();
}

/** The details of a decision. `cause` says why a call was not admitted (enum tw_cause). */
struct verdict : tw_verdict {
    verdict() noexcept : tw_verdict() {
    }
};

/** The token of a lock or a reservation, a C string. */
struct token {
    char text[TW_TOKEN_SIZE] = {};
};

/** Options with every field at its default. Set the fields that you need. */
struct options : tw_options {
    options() noexcept {
        tw_options_init_sized(this, sizeof(tw_options));
    }
};
struct family_options : tw_family_options {
    family_options() noexcept {
        tw_family_options_init_sized(this, sizeof(tw_family_options));
    }
};

struct audit_options : tw_audit_options {
    audit_options() noexcept {
        tw_audit_options_init_sized(this, sizeof(tw_audit_options));
    }
};

namespace detail {
/* Whether an engine is still open. Its families check this before they close. */
struct life {
    std::atomic<unsigned> holders{1};
    std::atomic<bool> open{true};

    static life *hold(life *held) noexcept {
        if (held != nullptr) held->holders.fetch_add(1, std::memory_order_relaxed);
        return held;
    }
    static void let_go(life *held) noexcept {
        if (held != nullptr && held->holders.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete held;
    }
};

/* A C callback that calls the caller's function object, to which ctx points. */
template <typename F> bool visit_count(void *ctx, const tw_count *count) noexcept {
    return (*static_cast<F *>(ctx))(*count);
}
template <typename F> bool visit_number(void *ctx, tw_key key, int64_t number) noexcept {
    return (*static_cast<F *>(ctx))(text(key), number);
}
template <typename F> void take_finding(void *ctx, const tw_finding *finding) noexcept {
    (*static_cast<F *>(ctx))(*finding);
}
template <typename F> bool write_text(void *ctx, const char *text, size_t size) noexcept {
    return (*static_cast<F *>(ctx))(std::string_view(text, size));
}
template <typename F> void *ctx_of(F &function) noexcept {
    return const_cast<void *>(static_cast<const void *>(&function));
}
} // namespace detail

/** An engine. Its destructor calls close() with close_timeout_ms and ignores the result. Call
 *  close() yourself if you need to know whether everything was sent. Never destroy an engine in
 *  one of its hooks. */
class engine {
  public:
    engine() noexcept = default;
    engine(engine &&other) noexcept
        : close_timeout_ms(other.close_timeout_ms), held(std::exchange(other.held, nullptr)),
          life(std::exchange(other.life, nullptr)) {
    }
    engine &operator=(engine &&other) noexcept {
        if (this != &other) {
            (void)close();
            close_timeout_ms = other.close_timeout_ms;
            held = std::exchange(other.held, nullptr);
            life = std::exchange(other.life, nullptr);
        }
        return *this;
    }
    engine(const engine &) = delete;
    engine &operator=(const engine &) = delete;
    ~engine() {
        (void)close();
    }

    /** tw_open(). TW_ERR_MODE means that this handle already has an engine. */
    [[nodiscard]] tw_status open(const tw_options &options = tallywheel::options()) noexcept {
        if (held != nullptr) return TW_ERR_MODE;
        detail::life *born = new (std::nothrow) detail::life;
        if (born == nullptr) return TW_ERR_MEMORY;
        tw_status status = tw_open(&options, &held);
        if (status == TW_OK) {
            life = born;
        } else {
            held = nullptr;
            detail::life::let_go(born);
        }
        return status;
    }
    tw_status close(uint32_t timeout_ms) noexcept {
        if (held == nullptr) return TW_ERR_CLOSED;
        tw_status status = tw_close(held, timeout_ms);
        if (status == TW_ERR_MODE) return status; /* inside a hook; nothing was done */
        held = nullptr;
        life->open.store(false, std::memory_order_release);
        detail::life::let_go(std::exchange(life, nullptr));
        return status;
    }
    tw_status close() noexcept {
        return close(close_timeout_ms);
    }

    tw_status flush(uint32_t timeout_ms) noexcept {
        return held ? tw_flush(held, timeout_ms) : TW_ERR_CLOSED;
    }
    tw_status ready(uint32_t timeout_ms) noexcept {
        return held ? tw_ready(held, timeout_ms) : TW_ERR_CLOSED;
    }
    tw_status stop() noexcept {
        return held ? tw_stop(held) : TW_ERR_CLOSED;
    }
    tw_status save(const char *path) noexcept {
        return held ? tw_save(held, path) : TW_ERR_CLOSED;
    }
    tw_status load(const char *path) noexcept {
        return held ? tw_load(held, path) : TW_ERR_CLOSED;
    }
    tw_status lead() noexcept {
        return held ? tw_lead(held) : TW_ERR_CLOSED;
    }
    tw_status process_died() noexcept {
        return held ? tw_process_died(held) : TW_ERR_CLOSED;
    }
    [[nodiscard]] tw_status hold_notes(void *memory, std::size_t bytes) noexcept {
        return held ? tw_hold_notes(held, memory, bytes) : TW_ERR_CLOSED;
    }
    tw_status turn() noexcept {
        return held ? tw_turn(held) : TW_ERR_CLOSED;
    }
    /** tw_tick(). An empty handle does nothing. */
    void tick() noexcept {
        tw_tick(held);
    }
    /** tw_fd(). An empty handle returns -1. */
    int fd() const noexcept {
        return held ? tw_fd(held) : -1;
    }
    /** tw_timeout_ms(). An empty handle returns 0. */
    uint32_t timeout_ms() noexcept {
        return held ? tw_timeout_ms(held) : 0;
    }
    void enter() noexcept {
        if (held != nullptr) tw_enter(held);
    }
    void leave() noexcept {
        if (held != nullptr) tw_leave(held);
    }
    /** The open family of that name, or NULL. It belongs to the code that opened it. */
    tw_family *find(const char *name) const noexcept {
        return held ? tw_family_find(held, name) : nullptr;
    }
    tw_status reserve_confirm(const token &token) noexcept {
        return held ? tw_reserve_confirm(held, token.text) : TW_ERR_CLOSED;
    }
    tw_status reserve_cancel(const token &token) noexcept {
        return held ? tw_reserve_cancel(held, token.text) : TW_ERR_CLOSED;
    }
    tw_status stats(tw_stats &stats) const noexcept {
        return held ? tw_stats_read(held, &stats) : TW_ERR_CLOSED;
    }
    /** write(std::string_view piece) returns false to end the page. */
    template <typename F> tw_status metrics(uint32_t format, F &&write) const noexcept {
        using function = std::remove_reference_t<F>;
        if (held == nullptr) return TW_ERR_CLOSED;
        return tw_metrics_write(held, format, detail::write_text<function>, detail::ctx_of(write));
    }

    tw_engine *get() const noexcept {
        return held;
    }
    explicit operator bool() const noexcept {
        return held != nullptr;
    }

    /** found(const tw_finding &) is called for each difference. */
    template <typename F>
    tw_status audit(const tw_audit_options &options, F &&found,
                    tw_audit_report *report = nullptr) const noexcept {
        using function = std::remove_reference_t<F>;
        if (held == nullptr) return TW_ERR_CLOSED;
        return tw_audit(held, &options, detail::take_finding<function>, detail::ctx_of(found),
                        report);
    }

    uint32_t close_timeout_ms = 1000; /* used by the destructor */

  private:
    friend class family;
    friend class limits;
    tw_engine *held = nullptr;
    detail::life *life = nullptr;
};

/** A family. Its destructor calls tw_family_close(), unless the engine was closed before, which
 *  also closed the family. No other thread may be in a call with it then. */
class family {
  public:
    family() noexcept = default;
    family(family &&other) noexcept
        : held(std::exchange(other.held, nullptr)), life(std::exchange(other.life, nullptr)) {
    }
    family &operator=(family &&other) noexcept {
        if (this != &other) {
            (void)close();
            held = std::exchange(other.held, nullptr);
            life = std::exchange(other.life, nullptr);
        }
        return *this;
    }
    family(const family &) = delete;
    family &operator=(const family &) = delete;
    ~family() {
        (void)close();
    }

    /** tw_family_open(). TW_ERR_MODE means that this handle already has a family. */
    [[nodiscard]] tw_status open(engine &engine, const tw_family_options &options) noexcept {
        if (held != nullptr) return TW_ERR_MODE;
        if (!engine) return TW_ERR_CLOSED;
        tw_status status = tw_family_open(engine.get(), &options, &held);
        if (status == TW_OK) {
            life = detail::life::hold(engine.life);
        } else {
            held = nullptr;
        }
        return status;
    }
    tw_status close() noexcept {
        if (held == nullptr) return TW_ERR_CLOSED;
        tw_status status = TW_OK;
        if (life->open.load(std::memory_order_acquire)) status = tw_family_close(held);
        if (status == TW_ERR_MODE) return status; /* inside a hook; nothing was done */
        held = nullptr;
        detail::life::let_go(std::exchange(life, nullptr));
        return status;
    }

    tw_status set(const tw_family_options &options) noexcept {
        return held ? tw_family_set(held, &options) : TW_ERR_CLOSED;
    }

    /* ---- counting */
    tw_status add(std::string_view key, int64_t delta = 1, int64_t *view = nullptr) noexcept {
        return held ? tw_add(held, tallywheel::key(key), delta, view) : TW_ERR_CLOSED;
    }
    tw_status add_at(std::string_view key, int64_t delta, int64_t unix_ms,
                     int64_t *view = nullptr) noexcept {
        return held ? tw_add_at(held, tallywheel::key(key), delta, unix_ms, view) : TW_ERR_CLOSED;
    }
    tw_status add_many(const tw_key *keys, const int64_t *deltas, size_t count,
                       int64_t *views = nullptr, tw_status *each = nullptr) noexcept {
        return held ? tw_add_many(held, keys, deltas, count, views, each) : TW_ERR_CLOSED;
    }
    tw_status add_many_at(const tw_key *keys, const int64_t *deltas, size_t count,
                          const int64_t *unix_ms, int64_t *views = nullptr,
                          tw_status *each = nullptr) noexcept {
        return held ? tw_add_many_at(held, keys, deltas, count, unix_ms, views, each)
                    : TW_ERR_CLOSED;
    }
    tw_status close_until(int64_t unix_ms) noexcept {
        return held ? tw_close_until(held, unix_ms) : TW_ERR_CLOSED;
    }
    tw_status reset(std::string_view key, int64_t *last = nullptr) noexcept {
        return held ? tw_reset(held, tallywheel::key(key), last) : TW_ERR_CLOSED;
    }
    tw_status distinct_add(std::string_view key, std::string_view element,
                           bool *changed = nullptr) noexcept {
        return held ? tw_distinct_add(held, tallywheel::key(key), tallywheel::key(element), changed)
                    : TW_ERR_CLOSED;
    }
    tw_status distinct_add_at(std::string_view key, std::string_view element, int64_t unix_ms,
                              bool *changed = nullptr) noexcept {
        return held ? tw_distinct_add_at(held, tallywheel::key(key), tallywheel::key(element),
                                         unix_ms, changed)
                    : TW_ERR_CLOSED;
    }
    tw_status distinct_add_many(std::string_view key, const tw_key *elements, size_t count,
                                size_t *changed = nullptr) noexcept {
        return held ? tw_distinct_add_many(held, tallywheel::key(key), elements, count, changed)
                    : TW_ERR_CLOSED;
    }

    /* ---- reading */
    tw_status get(std::string_view key, int64_t &view) const noexcept {
        return held ? tw_get(held, tallywheel::key(key), &view) : TW_ERR_CLOSED;
    }
    tw_status get_at(std::string_view key, int64_t unix_ms, int64_t &view) const noexcept {
        return held ? tw_get_at(held, tallywheel::key(key), unix_ms, &view) : TW_ERR_CLOSED;
    }
    tw_status read(std::string_view key, tw_reading &reading) const noexcept {
        return held ? tw_read(held, tallywheel::key(key), &reading) : TW_ERR_CLOSED;
    }
    tw_status distinct_get(std::string_view key, int64_t &estimate) const noexcept {
        return held ? tw_distinct_get(held, tallywheel::key(key), &estimate) : TW_ERR_CLOSED;
    }
    tw_status distinct_get_at(std::string_view key, int64_t unix_ms,
                              int64_t &estimate) const noexcept {
        return held ? tw_distinct_get_at(held, tallywheel::key(key), unix_ms, &estimate)
                    : TW_ERR_CLOSED;
    }
    tw_status fetch(const tw_key *keys, size_t count, uint32_t timeout_ms,
                    int64_t *totals) const noexcept {
        return held ? tw_fetch(held, keys, count, timeout_ms, totals) : TW_ERR_CLOSED;
    }
    tw_status fetch(std::string_view key, uint32_t timeout_ms, int64_t &total) const noexcept {
        const tw_key one = tallywheel::key(key);
        return fetch(&one, 1, timeout_ms, &total);
    }
    /** visit(std::string_view field, int64_t total) returns false to end the visit. */
    template <typename F>
    tw_status fetch_fields(std::string_view subject, uint32_t timeout_ms, F &&visit,
                           int64_t unix_ms = TW_NOW) const noexcept {
        using function = std::remove_reference_t<F>;
        if (held == nullptr) return TW_ERR_CLOSED;
        return tw_fetch_fields(held, tallywheel::key(subject), unix_ms, timeout_ms,
                               detail::visit_number<function>, detail::ctx_of(visit));
    }
    /** visit(std::string_view member, int64_t total) returns false to end the visit. */
    template <typename F>
    tw_status fetch_top(size_t n, uint32_t timeout_ms, F &&visit,
                        int64_t unix_ms = TW_NOW) const noexcept {
        using function = std::remove_reference_t<F>;
        if (held == nullptr) return TW_ERR_CLOSED;
        return tw_fetch_top(held, unix_ms, n, timeout_ms, detail::visit_number<function>,
                            detail::ctx_of(visit));
    }
    tw_status fetch_rank(std::string_view member, uint32_t timeout_ms, int64_t &rank,
                         int64_t *total = nullptr, int64_t unix_ms = TW_NOW) const noexcept {
        return held
                   ? tw_fetch_rank(held, tallywheel::key(member), unix_ms, timeout_ms, &rank, total)
                   : TW_ERR_CLOSED;
    }
    /** visit(const tw_count &) returns false to end the walk. */
    template <typename F> tw_status each(F &&visit, int64_t unix_ms = TW_NOW) const noexcept {
        using function = std::remove_reference_t<F>;
        if (held == nullptr) return TW_ERR_CLOSED;
        return tw_each(held, unix_ms, detail::visit_count<function>, detail::ctx_of(visit));
    }
    template <typename F>
    tw_status top(size_t n, F &&visit, int64_t unix_ms = TW_NOW) const noexcept {
        using function = std::remove_reference_t<F>;
        if (held == nullptr) return TW_ERR_CLOSED;
        return tw_top(held, n, unix_ms, detail::visit_count<function>, detail::ctx_of(visit));
    }
    /** visit(std::string_view field, int64_t view) returns false to end the visit. */
    template <typename F>
    tw_status each_field(std::string_view subject, F &&visit,
                         int64_t unix_ms = TW_NOW) const noexcept {
        using function = std::remove_reference_t<F>;
        if (held == nullptr) return TW_ERR_CLOSED;
        return tw_each_field(held, tallywheel::key(subject), unix_ms,
                             detail::visit_number<function>, detail::ctx_of(visit));
    }

    /* ---- limits: only == TW_OK admits */
    [[nodiscard]] tw_status acquire(std::string_view key, int64_t n, int64_t limit,
                                    tw_verdict *verdict = nullptr) noexcept {
        return held ? tw_acquire(held, tallywheel::key(key), n, limit, verdict) : TW_ERR_CLOSED;
    }
    [[nodiscard]] tw_status acquire_some(std::string_view key, int64_t n_max, int64_t limit,
                                         int64_t &taken, tw_verdict *verdict = nullptr) noexcept {
        taken = 0;
        return held ? tw_acquire_some(held, tallywheel::key(key), n_max, limit, &taken, verdict)
                    : TW_ERR_CLOSED;
    }
    [[nodiscard]] tw_status acquire_wait(std::string_view key, int64_t n, int64_t limit,
                                         uint32_t timeout_ms,
                                         tw_verdict *verdict = nullptr) noexcept {
        return held ? tw_acquire_wait(held, tallywheel::key(key), n, limit, timeout_ms, verdict)
                    : TW_ERR_CLOSED;
    }
    tw_status refund(std::string_view key, int64_t n, int64_t window_start_ms) noexcept {
        return held ? tw_refund(held, tallywheel::key(key), n, window_start_ms) : TW_ERR_CLOSED;
    }
    tw_status lease_warm(std::string_view key, int64_t limit) noexcept {
        return held ? tw_lease_warm(held, tallywheel::key(key), limit) : TW_ERR_CLOSED;
    }
    tw_status lease_reclaim(const char *instance, int64_t *units = nullptr) noexcept {
        return held ? tw_lease_reclaim(held, instance, units) : TW_ERR_CLOSED;
    }
    tw_status lease_stranded(const char *instance, int64_t *units = nullptr) noexcept {
        return held ? tw_lease_stranded(held, instance, units) : TW_ERR_CLOSED;
    }
    [[nodiscard]] tw_status once(std::string_view key, bool &first) noexcept {
        first = false;
        return held ? tw_once(held, tallywheel::key(key), &first) : TW_ERR_CLOSED;
    }
    tw_status once_cancel(std::string_view key) noexcept {
        return held ? tw_once_cancel(held, tallywheel::key(key)) : TW_ERR_CLOSED;
    }

    /* ---- locks, reservations, holds: you have them only after == TW_OK */
    [[nodiscard]] tw_status lock(std::string_view key, uint32_t ttl_ms, token &token,
                                 uint64_t *fence = nullptr) noexcept {
        return held ? tw_lock(held, tallywheel::key(key), ttl_ms, token.text, fence)
                    : TW_ERR_CLOSED;
    }
    [[nodiscard]] tw_status lock_extend(std::string_view key, const token &token,
                                        uint32_t ttl_ms) noexcept {
        return held ? tw_lock_extend(held, tallywheel::key(key), token.text, ttl_ms)
                    : TW_ERR_CLOSED;
    }
    tw_status lock_release(std::string_view key, const token &token) noexcept {
        return held ? tw_lock_release(held, tallywheel::key(key), token.text) : TW_ERR_CLOSED;
    }
    /** Confirm or cancel it with the engine. */
    [[nodiscard]] tw_status reserve(std::string_view key, int64_t n, int64_t limit, uint32_t ttl_ms,
                                    std::string_view buyer, token &token,
                                    tw_verdict *verdict = nullptr) noexcept {
        return held ? tw_reserve(held, tallywheel::key(key), n, limit, ttl_ms,
                                 tallywheel::key(buyer), token.text, verdict)
                    : TW_ERR_CLOSED;
    }
    [[nodiscard]] tw_status hold(std::string_view key, int64_t limit,
                                 tw_verdict *verdict = nullptr) noexcept {
        return held ? tw_hold(held, tallywheel::key(key), limit, verdict) : TW_ERR_CLOSED;
    }
    tw_status hold_release(std::string_view key) noexcept {
        return held ? tw_hold_release(held, tallywheel::key(key)) : TW_ERR_CLOSED;
    }

    tw_family *get() const noexcept {
        return held;
    }
    explicit operator bool() const noexcept {
        return held != nullptr;
    }

  private:
    tw_family *held = nullptr;
    detail::life *life = nullptr;
};

/** tw_pin_open(): remembers where one counter is. One thread at a time may use a pin. Close it
 *  before its family. */
class pin {
  public:
    pin() noexcept = default;
    pin(pin &&other) noexcept : held(std::exchange(other.held, nullptr)) {
    }
    pin &operator=(pin &&other) noexcept {
        if (this != &other) {
            close();
            held = std::exchange(other.held, nullptr);
        }
        return *this;
    }
    pin(const pin &) = delete;
    pin &operator=(const pin &) = delete;
    ~pin() {
        close();
    }

    /** TW_ERR_MODE means that this handle already has a pin. */
    [[nodiscard]] tw_status open(family &family, std::string_view key) noexcept {
        if (held != nullptr) return TW_ERR_MODE;
        if (!family) return TW_ERR_CLOSED;
        tw_status status = tw_pin_open(family.get(), tallywheel::key(key), &held);
        if (status != TW_OK) held = nullptr;
        return status;
    }
    void close() noexcept {
        if (held != nullptr) tw_pin_close(std::exchange(held, nullptr));
    }
    tw_status add(int64_t delta = 1, int64_t *view = nullptr) noexcept {
        return held ? tw_pin_add(held, delta, view) : TW_ERR_CLOSED;
    }

    tw_pin *get() const noexcept {
        return held;
    }
    explicit operator bool() const noexcept {
        return held != nullptr;
    }

  private:
    tw_pin *held = nullptr;
};

/** tw_watch_open() for families of one engine or several. Close it before them. */
class watch {
  public:
    watch() noexcept = default;
    watch(watch &&other) noexcept : held(std::exchange(other.held, nullptr)) {
    }
    watch &operator=(watch &&other) noexcept {
        if (this != &other) {
            close();
            held = std::exchange(other.held, nullptr);
        }
        return *this;
    }
    watch(const watch &) = delete;
    watch &operator=(const watch &) = delete;
    ~watch() {
        close();
    }

    /** TW_ERR_MODE means that this handle is open already. */
    [[nodiscard]] tw_status open(tw_family *const *families, size_t count,
                                 bool writes = false) noexcept {
        if (held != nullptr) return TW_ERR_MODE;
        tw_status status = tw_watch_open(families, count, writes, &held);
        if (status != TW_OK) held = nullptr;
        return status;
    }
    /** tw_watch_take(). TW_ERR_CLOSED means that the handle is empty; then the caller keeps the
     *  descriptor. */
    tw_status take(int fd) noexcept {
        return held != nullptr ? tw_watch_take(held, fd) : TW_ERR_CLOSED;
    }
    void close() noexcept {
        if (held != nullptr) tw_watch_close(std::exchange(held, nullptr));
    }
    explicit operator bool() const noexcept {
        return held != nullptr;
    }

  private:
    tw_watch *held = nullptr;
};

/** A family of a limits file, found by limits::family(). It is valid until the limits close. */
class limited {
  public:
    [[nodiscard]] tw_status acquire(std::string_view key, int64_t n = 1,
                                    tw_verdict *verdict = nullptr) noexcept {
        return held ? tw_limited_acquire(held, tallywheel::key(key), n, verdict) : TW_ERR_CLOSED;
    }
    tw_status find(std::string_view key, tw_family **found, int64_t *limit) const noexcept {
        return held ? tw_limited_find(held, tallywheel::key(key), found, limit) : TW_ERR_CLOSED;
    }

    tw_limited *get() const noexcept {
        return held;
    }
    explicit operator bool() const noexcept {
        return held != nullptr;
    }

  private:
    friend class limits;
    tw_limited *held = nullptr;
};

/** A limits file. Its destructor calls tw_limits_close(). Destroy it before its engine is closed,
 *  and never in a hook of the engine. */
class limits {
  public:
    limits() noexcept = default;
    limits(limits &&other) noexcept
        : held(std::exchange(other.held, nullptr)), life(std::exchange(other.life, nullptr)) {
    }
    limits &operator=(limits &&other) noexcept {
        if (this != &other) {
            (void)close();
            held = std::exchange(other.held, nullptr);
            life = std::exchange(other.life, nullptr);
        }
        return *this;
    }
    limits(const limits &) = delete;
    limits &operator=(const limits &) = delete;
    ~limits() {
        (void)close();
    }

    /** TW_ERR_MODE means that this handle already has limits. */
    [[nodiscard]] tw_status open(engine &engine, const char *path, char *error = nullptr,
                                 size_t error_size = 0) noexcept {
        if (held != nullptr) return TW_ERR_MODE;
        if (!engine) return TW_ERR_CLOSED;
        tw_status status = tw_limits_open(engine.get(), path, error, error_size, &held);
        if (status == TW_OK)
            life = detail::life::hold(engine.life);
        else
            held = nullptr;
        return status;
    }
    /** After the engine was closed, this does nothing. */
    tw_status close() noexcept {
        if (held == nullptr) return TW_ERR_CLOSED;
        tw_status status = TW_OK;
        if (life->open.load(std::memory_order_acquire)) status = tw_limits_close(held);
        if (status == TW_ERR_MODE) return status; /* inside a hook; nothing was done */
        held = nullptr;
        detail::life::let_go(std::exchange(life, nullptr));
        return status;
    }
    tw_status reload(char *error = nullptr, size_t error_size = 0) noexcept {
        return held ? tw_limits_reload(held, error, error_size) : TW_ERR_CLOSED;
    }
    [[nodiscard]] tw_status acquire(const char *family, std::string_view key, int64_t n = 1,
                                    tw_verdict *verdict = nullptr) noexcept {
        return held ? tw_limits_acquire(held, family, tallywheel::key(key), n, verdict)
                    : TW_ERR_CLOSED;
    }
    tw_status find(const char *family, std::string_view key, tw_family **found,
                   int64_t *limit) const noexcept {
        return held ? tw_limits_find(held, family, tallywheel::key(key), found, limit)
                    : TW_ERR_CLOSED;
    }
    tw_status family(const char *name, limited &found) noexcept {
        return held ? tw_limits_family(held, name, &found.held) : TW_ERR_CLOSED;
    }

    tw_limits *get() const noexcept {
        return held;
    }
    explicit operator bool() const noexcept {
        return held != nullptr;
    }

  private:
    tw_limits *held = nullptr;
    detail::life *life = nullptr;
};

/** tw_queue_open(): results for one event loop. Its destructor closes it. No call may then be under
 *  way with it. Close the engine after it. */
class queue {
  public:
    queue() noexcept = default;
    queue(queue &&other) noexcept : held(std::exchange(other.held, nullptr)) {
    }
    queue &operator=(queue &&other) noexcept {
        if (this != &other) {
            (void)close();
            held = std::exchange(other.held, nullptr);
        }
        return *this;
    }
    queue(const queue &) = delete;
    queue &operator=(const queue &) = delete;
    ~queue() {
        (void)close();
    }

    /** TW_ERR_MODE means that this handle already has a queue. */
    [[nodiscard]] tw_status open(engine &engine) noexcept {
        if (held != nullptr) return TW_ERR_MODE;
        if (!engine) return TW_ERR_CLOSED;
        tw_status status = tw_queue_open(engine.get(), &held);
        if (status != TW_OK) held = nullptr;
        return status;
    }
    tw_status close() noexcept {
        if (held == nullptr) return TW_ERR_CLOSED;
        tw_status status = tw_queue_close(held);
        if (status == TW_OK) held = nullptr;
        return status;
    }
    int fd() const noexcept {
        return held ? tw_queue_fd(held) : -1;
    }
    size_t run(size_t most = 256) noexcept {
        return held ? tw_queue_run(held, most) : 0;
    }

    tw_queue *get() const noexcept {
        return held;
    }
    explicit operator bool() const noexcept {
        return held != nullptr;
    }

  private:
    tw_queue *held = nullptr;
};

/** A call that answers later, with the function done(const tw_request &answer). Both are on the
 *  heap, so a request may be moved while its call is under way. Its calls are those of chapter 16.
 *  If a call returns its result at once, `done` is not called; answer() shows the result.
 *  The destructor cancels the call, and waits if `done` is running in another thread. Never destroy
 *  a request inside its own `done`. An exception that leaves `done` ends the program. */
class request {
  public:
    request() noexcept = default;
    request(request &&other) noexcept : held(std::exchange(other.held, nullptr)) {
    }
    request &operator=(request &&other) noexcept {
        if (this != &other) {
            drop();
            held = std::exchange(other.held, nullptr);
        }
        return *this;
    }
    request(const request &) = delete;
    request &operator=(const request &) = delete;
    ~request() {
        drop();
    }

    /** Call this before the first call, and only while none is under way. For an empty `queue` see
     *  chapter 16. May return TW_ERR_MEMORY. */
    template <typename F>
    [[nodiscard]] tw_status prepare(F &&done, const queue &queue = tallywheel::queue(),
                                    uint32_t timeout_ms = 0) noexcept {
        using function = std::decay_t<F>;
        auto *made = new (std::nothrow) cell_of<function>(std::forward<F>(done));
        if (made == nullptr) return TW_ERR_MEMORY;
        drop();
        held = made;
        held->call.queue = queue.get();
        held->call.timeout_ms = timeout_ms;
        return TW_OK;
    }
    /** tw_request_cancel(). */
    tw_status cancel() noexcept {
        return held ? tw_request_cancel(&held->call) : TW_OK;
    }
    /** The last result. Not while a call is under way. */
    const tw_request *answer() const noexcept {
        return held ? &held->call : nullptr;
    }

    tw_status acquire(family &family, std::string_view key, int64_t n, int64_t limit) noexcept {
        return is_ready(family)
                   ? tw_acquire_async(&held->call, family.get(), tallywheel::key(key), n, limit)
                   : TW_ERR_CLOSED;
    }
    tw_status acquire_some(family &family, std::string_view key, int64_t n_max,
                           int64_t limit) noexcept {
        return is_ready(family) ? tw_acquire_some_async(&held->call, family.get(),
                                                        tallywheel::key(key), n_max, limit)
                                : TW_ERR_CLOSED;
    }
    tw_status acquire_wait(family &family, std::string_view key, int64_t n,
                           int64_t limit) noexcept {
        return is_ready(family) ? tw_acquire_wait_async(&held->call, family.get(),
                                                        tallywheel::key(key), n, limit)
                                : TW_ERR_CLOSED;
    }
    tw_status acquire(limits &limits, const char *family, std::string_view key,
                      int64_t n = 1) noexcept {
        return is_ready(limits) ? tw_limits_acquire_async(&held->call, limits.get(), family,
                                                          tallywheel::key(key), n)
                                : TW_ERR_CLOSED;
    }
    tw_status acquire(limited &limited, std::string_view key, int64_t n = 1) noexcept {
        return is_ready(limited)
                   ? tw_limited_acquire_async(&held->call, limited.get(), tallywheel::key(key), n)
                   : TW_ERR_CLOSED;
    }
    tw_status once(family &family, std::string_view key) noexcept {
        return is_ready(family) ? tw_once_async(&held->call, family.get(), tallywheel::key(key))
                                : TW_ERR_CLOSED;
    }
    tw_status once_cancel(family &family, std::string_view key) noexcept {
        return is_ready(family)
                   ? tw_once_cancel_async(&held->call, family.get(), tallywheel::key(key))
                   : TW_ERR_CLOSED;
    }
    tw_status lock(family &family, std::string_view key, uint32_t ttl_ms) noexcept {
        return is_ready(family)
                   ? tw_lock_async(&held->call, family.get(), tallywheel::key(key), ttl_ms)
                   : TW_ERR_CLOSED;
    }
    tw_status lock_extend(family &family, std::string_view key, const char *token,
                          uint32_t ttl_ms) noexcept {
        return is_ready(family) ? tw_lock_extend_async(&held->call, family.get(),
                                                       tallywheel::key(key), token, ttl_ms)
                                : TW_ERR_CLOSED;
    }
    tw_status lock_release(family &family, std::string_view key, const char *token) noexcept {
        return is_ready(family)
                   ? tw_lock_release_async(&held->call, family.get(), tallywheel::key(key), token)
                   : TW_ERR_CLOSED;
    }
    tw_status reserve(family &family, std::string_view key, int64_t n, int64_t limit,
                      uint32_t ttl_ms, std::string_view buyer) noexcept {
        return is_ready(family) ? tw_reserve_async(&held->call, family.get(), tallywheel::key(key),
                                                   n, limit, ttl_ms, tallywheel::key(buyer))
                                : TW_ERR_CLOSED;
    }
    tw_status reserve_confirm(engine &engine, const char *token) noexcept {
        return is_ready(engine) ? tw_reserve_confirm_async(&held->call, engine.get(), token)
                                : TW_ERR_CLOSED;
    }
    tw_status reserve_cancel(engine &engine, const char *token) noexcept {
        return is_ready(engine) ? tw_reserve_cancel_async(&held->call, engine.get(), token)
                                : TW_ERR_CLOSED;
    }
    tw_status hold(family &family, std::string_view key, int64_t limit) noexcept {
        return is_ready(family)
                   ? tw_hold_async(&held->call, family.get(), tallywheel::key(key), limit)
                   : TW_ERR_CLOSED;
    }
    tw_status hold_release(family &family, std::string_view key) noexcept {
        return is_ready(family)
                   ? tw_hold_release_async(&held->call, family.get(), tallywheel::key(key))
                   : TW_ERR_CLOSED;
    }
    /** totals must stay valid until the result. */
    tw_status fetch(const family &family, const tw_key *keys, size_t count,
                    int64_t *totals) noexcept {
        return is_ready(family) ? tw_fetch_async(&held->call, family.get(), keys, count, totals)
                                : TW_ERR_CLOSED;
    }
    /** visit(std::string_view field, int64_t total) must stay valid until the result. */
    template <typename F>
    tw_status fetch_fields(const family &family, std::string_view subject, F &visit,
                           int64_t unix_ms = TW_NOW) noexcept {
        return is_ready(family)
                   ? tw_fetch_fields_async(&held->call, family.get(), tallywheel::key(subject),
                                           unix_ms, detail::visit_number<F>, detail::ctx_of(visit))
                   : TW_ERR_CLOSED;
    }
    template <typename F>
    tw_status fetch_top(const family &family, size_t n, F &visit,
                        int64_t unix_ms = TW_NOW) noexcept {
        return is_ready(family) ? tw_fetch_top_async(&held->call, family.get(), unix_ms, n,
                                                     detail::visit_number<F>, detail::ctx_of(visit))
                                : TW_ERR_CLOSED;
    }
    tw_status fetch_rank(const family &family, std::string_view member,
                         int64_t unix_ms = TW_NOW) noexcept {
        return is_ready(family) ? tw_fetch_rank_async(&held->call, family.get(),
                                                      tallywheel::key(member), unix_ms)
                                : TW_ERR_CLOSED;
    }
    tw_status flush(engine &engine) noexcept {
        return is_ready(engine) ? tw_flush_async(&held->call, engine.get()) : TW_ERR_CLOSED;
    }
    tw_status ready(engine &engine) noexcept {
        return is_ready(engine) ? tw_ready_async(&held->call, engine.get()) : TW_ERR_CLOSED;
    }

  private:
    struct cell {
        tw_request call;
        cell() noexcept {
            tw_request_init(&call);
            call.ctx = this;
        }
        virtual ~cell() = default;
    };
    template <typename F> struct cell_of : cell {
        F function;
        template <typename G> explicit cell_of(G &&done) : function(std::forward<G>(done)) {
            call.done = [](tw_request *answer) noexcept {
                auto *self = static_cast<cell_of *>(static_cast<cell *>(answer->ctx));
                self->function(static_cast<const tw_request &>(*answer));
            };
        }
    };
    template <typename T> bool is_ready(const T &handle) const noexcept {
        return held != nullptr && static_cast<bool>(handle);
    }
    void drop() noexcept {
        while (held != nullptr && tw_request_cancel(&held->call) == TW_PENDING)
            std::this_thread::yield();
        delete std::exchange(held, nullptr);
    }
    cell *held = nullptr;
};

/** Takes all claims or none. */
[[nodiscard]] inline tw_status acquire_all(const tw_claim *claims, size_t count,
                                           tw_verdict *verdict = nullptr) noexcept {
    return tw_acquire_all(claims, count, verdict);
}

/** tw_audit() of a Redis without an engine. found(const tw_finding &) is called for each
 *  difference. */
template <typename F>
tw_status audit(const tw_audit_options &options, F &&found,
                tw_audit_report *report = nullptr) noexcept {
    using function = std::remove_reference_t<F>;
    return tw_audit(nullptr, &options, detail::take_finding<function>, detail::ctx_of(found),
                    report);
}

} // namespace tallywheel

#endif
