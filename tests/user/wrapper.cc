/* wrapper.cc -- tallywheel.hpp as a C++ program uses it; compiled with -std=c++17 -Wall -Wextra -Werror, without
 * exceptions and without RTTI. Exits 0 when every figure and every answer is right; else names the line. */
#include <tallywheel.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <unistd.h>

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

    char room[64];
    std::string_view network = "as before";
    CHECK(tallywheel::key_network(std::string_view("1.2.3.4 -").substr(0, 8), 24, 64, room, sizeof room, network) ==
              TW_ERR_KEY && network == "as before");
    CHECK(tallywheel::key_network(std::string_view("1.2.3.4 -").substr(0, 7), 24, 64, room, sizeof room, network) ==
              TW_OK && network == "1.2.3.0/24" && network.data() == room);

    int64_t sum = 0;
    std::string heaviest;
    CHECK(views.each([&sum](const tw_count &count) { return sum += count.view, true; }) == TW_OK && sum == 13);
    auto note = [&heaviest](const tw_count &count) { return heaviest = tallywheel::text(count.key), false; };
    CHECK(views.top(10, note) == TW_OK && heaviest == std::string_view("a\0b", 3));

    int64_t taken = -1;
    bool first = false;
    tw_verdict verdict;
    CHECK(views.acquire("buyer", 2, 3, &verdict) == TW_OK && verdict.remaining == 1);
    tallywheel::verdict why;
    CHECK(views.acquire("buyer", 2, 3, &why) == TW_DENIED && why.cause == TW_CAUSE_LIMIT && why.retry_after_ms > 0);
    CHECK(views.acquire("buyer", 4, 3, &why) == TW_DENIED && why.cause == TW_CAUSE_NEVER && why.retry_after_ms == -1);
    CHECK(views.acquire("buyer", 0, 3, &why) == TW_OK && why.cause == 0);
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

/* Calls beyond counting: each answers as its C call does, and a handle that holds nothing answers TW_ERR_CLOSED. */
static int others() {
    tallywheel::engine engine;
    tallywheel::family views, stock;
    tallywheel::pin pin;
    CHECK(pin.add() == TW_ERR_CLOSED && pin.open(views, "k") == TW_ERR_CLOSED && engine.fd() == -1);
    CHECK(engine.open() == TW_OK && views.open(engine, daily("views")) == TW_OK && engine.find("views") == views.get());
    const tw_key keys[] = {tallywheel::key("a"), tallywheel::key("b")};
    const int64_t deltas[] = {3, 4};
    int64_t views_of[2] = {}, view = 0;
    CHECK(views.add_many(keys, deltas, 2, views_of) == TW_OK && views_of[0] == 3 && views_of[1] == 4);
    CHECK(pin.open(views, "a") == TW_OK && pin.add(2, &view) == TW_OK && view == 5 &&
          pin.open(views, "b") == TW_ERR_MODE);
    tallywheel::pin moved(std::move(pin));
    CHECK(!pin && moved.add() == TW_OK && views.get("a", view) == TW_OK && view == 6);
    moved.close();
    engine.enter();
    CHECK(views.add("a") == TW_OK);
    engine.leave();

    tallywheel::family_options endless;
    endless.name = "stock";
    endless.window = TW_WINDOW_FOREVER;
    CHECK(stock.open(engine, endless) == TW_OK && stock.set(endless) == TW_OK);
    tallywheel::token first, second;
    CHECK(stock.reserve("phone", 2, 3, 60000, "ann", first) == TW_OK && first.text[0] != '\0');
    CHECK(stock.reserve("phone", 2, 3, 60000, "bob", second) == TW_DENIED && engine.reserve_confirm(first) == TW_OK);
    CHECK(stock.reserve("phone", 1, 3, 60000, "bob", second) == TW_OK && engine.reserve_cancel(second) == TW_OK);
    const tw_claim claims[] = {{stock.get(), tw_str("phone"), 1, 3}, {views.get(), tw_str("a"), 1, 7}};
    CHECK(tallywheel::acquire_all(claims, 2) == TW_DENIED);
    CHECK(stock.hold("seat", 1) == TW_OK && stock.hold("seat", 1) == TW_DENIED && stock.hold_release("seat") == TW_OK);
    CHECK(stock.lock("job", 1000, first) < 0); /* no Redis */
    CHECK(std::string_view(tallywheel::status_name(TW_DENIED)) == "TW_DENIED" && tallywheel::version()[0] != '\0');

    char path[] = "/tmp/wrapper-limits-XXXXXX", error[200];
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "login * 2 1h\n", 13) == 13 && close(fd) == 0);
    tallywheel::limits limits;
    tallywheel::limited login;
    int64_t limit = 0;
    if (limits.open(engine, path, error, sizeof error) != TW_OK) return std::printf("%s\n", error), 1;
    CHECK(limits.acquire("login", "ann") == TW_OK && limits.family("login", login) == TW_OK && login);
    CHECK(login.acquire("ann") == TW_OK && login.acquire("ann") == TW_DENIED && limits.reload() == TW_OK);
    CHECK(login.find("ann", nullptr, &limit) == TW_OK && limit == 2 && limits.close() == TW_OK && !limits);
    return unlink(path);
}

/* Calls that answer later: at once where nobody waits, else once by the queue, wherever the request has moved to; one
 * that is destroyed is not answered. Without Redis units that are refunded are what is waited for. */
static int answers_later() {
    tallywheel::engine engine;
    tallywheel::family stock;
    tallywheel::queue queue;
    tallywheel::family_options endless;
    endless.name = "stock";
    endless.window = TW_WINDOW_FOREVER;
    int answers = 0, gone = 0;
    CHECK(queue.open(engine) == TW_ERR_CLOSED && queue.fd() == -1 && queue.run() == 0 && !queue);
    CHECK(engine.open() == TW_OK && stock.open(engine, endless) == TW_OK && queue.open(engine) == TW_OK &&
          queue.fd() >= 0);
    tallywheel::request request;
    CHECK(request.acquire(stock, "phone", 1, 1) == TW_ERR_CLOSED && request.answer() == nullptr &&
          request.cancel() == TW_OK);
    auto count = [&answers](const tw_request &answer) { answers += answer.status == TW_OK ? 1 : 100; };
    CHECK(request.prepare(count, queue, 60000) == TW_OK);
    CHECK(request.acquire(stock, "phone", 1, 1) == TW_OK && request.answer()->verdict.used == 1);
    CHECK(request.acquire_wait(stock, "phone", 1, 1) == TW_STARTED && answers == 0);
    {
        tallywheel::request other;
        CHECK(other.prepare([&gone](const tw_request &) { gone++; }, queue, 60000) == TW_OK);
        CHECK(other.acquire_wait(stock, "phone", 1, 1) == TW_STARTED);
    }
    tallywheel::request moved(std::move(request));
    CHECK(queue.close() == TW_ERR_MODE && stock.refund("phone", 1, 0) == TW_OK);
    for (int tries = 0; answers == 0 && tries < 2000; tries++) {
        (void)queue.run();
        usleep(1000);
    }
    CHECK(answers == 1 && gone == 0 && moved.answer()->status == TW_OK);
    CHECK(moved.flush(engine) == TW_OK && moved.ready(engine) == TW_OK && answers == 1);
    CHECK(moved.once(stock, "first") == TW_OK && moved.answer()->first);
    CHECK(moved.hold(stock, "seat", 1) == TW_OK && moved.hold_release(stock, "seat") == TW_OK);
    CHECK(moved.reserve(stock, "desk", 1, 1, 60000, "ann") == TW_OK && moved.answer()->token[0] != '\0');
    CHECK(moved.lock(stock, "job", 1000) == TW_ERR_REDIS);
    CHECK(moved.acquire_wait(stock, "phone", 1, 1) == TW_STARTED && moved.cancel() == TW_OK);
    return queue.close() == TW_OK && answers == 1 ? 0 : 1;
}

int main() {
    return counts() || moves() || closes() || others() || answers_later();
}
