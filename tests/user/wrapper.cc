/* wrapper.cc -- tallywheel.hpp as a C++ program uses it; compiled with -std=c++17 -Wall -Wextra -Werror, without exceptions and
 * without RTTI. Exits 0 when every figure and every answer is right; else names the line. */
#include <tallywheel.hpp>

#include <cstdio>
#include <string>
#include <type_traits>

#define CHECK(x) \
    do { \
        if (!(x)) return std::printf("%s:%d: %s\n", __FILE__, __LINE__, #x), 1; \
    } while (0)

static_assert(!std::is_copy_constructible_v<tallywheel::engine> && !std::is_copy_assignable_v<tallywheel::engine>);
static_assert(!std::is_copy_constructible_v<tallywheel::family> && !std::is_copy_assignable_v<tallywheel::family>);
static_assert(std::is_nothrow_move_constructible_v<tallywheel::engine> &&
              std::is_nothrow_move_assignable_v<tallywheel::engine>);
static_assert(std::is_nothrow_move_constructible_v<tallywheel::family> &&
              std::is_nothrow_move_assignable_v<tallywheel::family>);

static int closings; /* of windows, by engines that closed */

static bool count_closing(void *, tw_family *, int64_t, int64_t, uint32_t) {
    closings++;
    return true;
}

static tallywheel::family_options daily(const char *name) {
    tallywheel::family_options options;
    options.name = name;
    options.window_ms = TW_DAY;
    options.on_window_closed = count_closing;
    return options;
}

/* Keys are any bytes of a string_view; figures and answers are those of the C calls. */
static int counts() {
    tallywheel::engine engine;
    tallywheel::family views;
    CHECK(engine.open() == TW_OK && views.open(engine, daily("views")) == TW_OK);
    std::string path = "/index.html?x=1";
    int64_t view = 0;
    CHECK(views.add(path) == TW_OK && views.add(std::string_view(path).substr(0, 11), 2) == TW_OK);
    CHECK(views.add("/index.html", 3, &view) == TW_OK && view == 5);
    CHECK(views.add(std::string_view("a\0b", 3), 7) == TW_OK && views.get(std::string_view("a\0b", 3), view) == TW_OK &&
          view == 7);
    CHECK(views.get("a", view) == TW_OK && view == 0);
    CHECK(views.add("") == TW_ERR_KEY);

    int64_t sum = 0;
    std::string heaviest;
    CHECK(views.each([&sum](const tw_count &count) { return sum += count.view, true; }) == TW_OK && sum == 13);
    auto note = [&heaviest](const tw_count &count) { return heaviest = tallywheel::text(count.key), false; };
    CHECK(views.top(10, note) == TW_OK && heaviest == std::string_view("a\0b", 3));

    int64_t taken = -1;
    bool first = false;
    tw_verdict verdict;
    CHECK(views.acquire("buyer", 2, 3, &verdict) == TW_OK && verdict.remaining == 1);
    CHECK(views.acquire("buyer", 2, 3) == TW_DENIED);
    CHECK(views.acquire_some("buyer", 2, 3, taken) == TW_OK && taken == 1);
    CHECK(views.acquire_wait("buyer", 4, 3, 60000) == TW_DENIED);
    CHECK(views.once("order-7", first) == TW_OK && first && views.once("order-7", first) == TW_OK && !first);

    tw_stats stats;
    std::string page;
    CHECK(engine.stats(stats) == TW_OK && stats.entries >= 4);
    CHECK(engine.metrics(TW_METRICS_PROMETHEUS, [&page](std::string_view piece) { return page += piece, true; }) ==
          TW_OK);
    CHECK(page.find("tallywheel_") != std::string::npos);
    return 0;
}

/* A moved-from handle holds nothing; what was moved counts on. A refused call leaves a handle as it was. */
static int moves() {
    tallywheel::engine first, second;
    tallywheel::family views, other;
    int64_t view = 0;
    CHECK(!first && first.close() == TW_ERR_CLOSED && views.add("k") == TW_ERR_CLOSED);
    CHECK(views.open(first, daily("views")) == TW_ERR_CLOSED);
    CHECK(first.open() == TW_OK && first.open() == TW_ERR_MODE && first);
    CHECK(views.open(first, tallywheel::family_options()) == TW_ERR_OPTIONS && !views);
    CHECK(views.open(first, daily("views")) == TW_OK && views.open(first, daily("more")) == TW_ERR_MODE);
    CHECK(views.add("k", 5) == TW_OK);
    second = std::move(first);
    other = std::move(views);
    CHECK(!first && second && !views && other && views.add("k") == TW_ERR_CLOSED);
    CHECK(other.add("k", 1, &view) == TW_OK && view == 6);
    tallywheel::family third(std::move(other));
    CHECK(third.get("k", view) == TW_OK && view == 6 && tw_get(third.get(), tw_str("k"), &view) == TW_OK && view == 6);

    /* The family outlives its engine: its destructor leaves alone what is gone. */
    closings = 0;
    CHECK(second.close() == TW_OK && closings == 1 && !second);
    return 0;
}

/* Destructors close: the hook is told of the window that was open. */
static int closes() {
    closings = 0;
    {
        tallywheel::engine engine;
        tallywheel::family views;
        CHECK(engine.open() == TW_OK && views.open(engine, daily("views")) == TW_OK && views.add("k") == TW_OK);
    }
    CHECK(closings == 1);
    {
        tallywheel::family views; /* destroyed after its engine */
        tallywheel::engine engine;
        CHECK(engine.open() == TW_OK && views.open(engine, daily("views")) == TW_OK && views.add("k") == TW_OK);
    }
    CHECK(closings == 2);
    tallywheel::options wrong;
    tallywheel::engine engine;
    wrong.memory_bytes_max = 1;
    CHECK(engine.open(wrong) == TW_ERR_OPTIONS && !engine && engine.open() == TW_OK);
    return 0;
}

int main() {
    return counts() || moves() || closes();
}
