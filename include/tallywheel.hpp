/* tallywheel.hpp -- tallywheel.h for C++17: handles that close themselves, keys as string_view.
 *
 *     tallywheel::engine engine;
 *     tallywheel::family views;
 *     tallywheel::family_options hourly;
 *     hourly.name = "views";
 *     if (engine.open() != TW_OK || views.open(engine, hourly) != TW_OK) return 1;
 *     views.add(path);                        // path: anything that is a std::string_view
 *     if (views.acquire(user, 1, 100) == TW_OK) serve(user);
 *
 * tallywheel.h is the manual: each function here is one call there, with the same name, the same
 * arguments and the same answers. What is not here is called with get():
 * tw_reserve(family.get(), ...).
 * Always true: nothing throws and nothing needs exceptions or RTTI: answers are tw_status, and only
 * TW_OK admits. Handles are moved, never copied. A handle that holds nothing answers
 * TW_ERR_CLOSED. A function that is handed over (visit, write) must not throw: it is called
 * through C. */
#ifndef TALLYWHEEL_HPP
#define TALLYWHEEL_HPP

#include <atomic>
#include <cstdint>
#include <new>
#include <string_view>
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

/** Options with every field at its default. Set what you need. */
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

namespace detail {
/* Whether an engine is open still: what its families ask before they close themselves. */
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

/* A C callback that calls the caller's function object, which ctx points at. */
template <typename F> bool visit_count(void *ctx, const tw_count *count) noexcept {
    return (*static_cast<F *>(ctx))(*count);
}
template <typename F> bool visit_number(void *ctx, tw_key key, int64_t number) noexcept {
    return (*static_cast<F *>(ctx))(text(key), number);
}
template <typename F> bool write_text(void *ctx, const char *text, size_t size) noexcept {
    return (*static_cast<F *>(ctx))(std::string_view(text, size));
}
template <typename F> void *ctx_of(F &function) noexcept {
    return const_cast<void *>(static_cast<const void *>(&function));
}
} // namespace detail

/** An engine. Its destructor is close() with close_timeout_ms, whose answer nobody sees: call
 *  close() where it matters whether everything was sent. Never destroy it in one of its hooks. */
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

    /** tw_open(). TW_ERR_MODE: this handle holds an engine already. */
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
        if (status == TW_ERR_MODE) return status; /* from inside of a hook: nothing was done */
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
    tw_status turn() noexcept {
        return held ? tw_turn(held) : TW_ERR_CLOSED;
    }
    tw_status stats(tw_stats &stats) const noexcept {
        return held ? tw_stats_read(held, &stats) : TW_ERR_CLOSED;
    }
    /** write(std::string_view piece): false ends the page. */
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

    uint32_t close_timeout_ms = 1000; /* of the destructor */

  private:
    friend class family;
    tw_engine *held = nullptr;
    detail::life *life = nullptr;
};

/** A family. Its destructor is tw_family_close(), unless the engine was closed before it: then the
 *  family went with the engine. No other thread may be in a call with it by then. */
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

    /** tw_family_open(). TW_ERR_MODE: this handle holds a family already. */
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
        if (status == TW_ERR_MODE) return status; /* from inside of a hook: nothing was done */
        held = nullptr;
        detail::life::let_go(std::exchange(life, nullptr));
        return status;
    }

    /* ---- counting */
    tw_status add(std::string_view key, int64_t delta = 1, int64_t *view = nullptr) noexcept {
        return held ? tw_add(held, tallywheel::key(key), delta, view) : TW_ERR_CLOSED;
    }
    tw_status add_at(std::string_view key, int64_t delta, int64_t unix_ms,
                     int64_t *view = nullptr) noexcept {
        return held ? tw_add_at(held, tallywheel::key(key), delta, unix_ms, view) : TW_ERR_CLOSED;
    }
    tw_status reset(std::string_view key, int64_t *last = nullptr) noexcept {
        return held ? tw_reset(held, tallywheel::key(key), last) : TW_ERR_CLOSED;
    }
    tw_status distinct_add(std::string_view key, std::string_view element,
                           bool *changed = nullptr) noexcept {
        return held ? tw_distinct_add(held, tallywheel::key(key), tallywheel::key(element), changed)
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
    /** visit(const tw_count &): false ends the walk. */
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
    /** visit(std::string_view field, int64_t view): false ends it. */
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
    [[nodiscard]] tw_status once(std::string_view key, bool &first) noexcept {
        first = false;
        return held ? tw_once(held, tallywheel::key(key), &first) : TW_ERR_CLOSED;
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

} // namespace tallywheel

#endif
