/* top.c -- `tallywheel top` and `tallywheel show` look at a running engine through its watch socket.
 * Always true: requests use at most a fifth of the time. An engine with very many keys gets fewer requests. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/moment.h"
#include "tools/common/options.h"
#include "tools/common/stop.h"
#include "tools/common/text.h"
#include "tools/common/tool.h"
#include "tools/top/top.h"

#define SOCKET_VARIABLE "TALLYWHEEL_SOCKET"
#define INTERVAL_MS 2000
#define KEYS_DEFAULT 20u
#define KEYS_MAX 1000u

static const char top_help[] =
    "Usage: tallywheel top [OPTION]... [SOCKET]\n"
    "Shows a running engine: counting, memory, Redis, its families, and the heaviest keys of one of them.\n"
    "SOCKET is the engine's watch_path; without it $TALLYWHEEL_SOCKET is.\n"
    "\n"
    "  --family NAME     whose keys are shown; else the family with the most counters\n"
    "  --keys N          how many, 1..1000 (default: as many as fit; with --once and --json 20)\n"
    "  --interval SPAN   time between two looks, such as 2s or 1m (default 2s)\n"
    "  --once            one look, as plain text; with --interval a second one so much later, for rates\n"
    "  --json            one object a look: with --once one, else one at each interval\n"
    "  --help\n"
    "\n"
    "Keys: up and down (or k and j) choose the family, q quits. An engine that ends is waited for.\n"
    "Exit status: 0 done; 1 no engine answers there; 2 wrong usage; 128 and its number after a signal.\n";

static const char show_help[] =
    "Usage: tallywheel show [OPTION]... [SOCKET] FAMILY\n"
    "       tallywheel show [OPTION]... SOCKET FAMILY KEY\n"
    "Prints the heaviest keys of one family of a running engine, the heaviest first, or one key's count.\n"
    "SOCKET is the engine's watch_path; without it $TALLYWHEEL_SOCKET is. FAMILY SOCKET is accepted, too.\n"
    "KEY is as it is printed: \\t, \\n, \\r, \\\\ and \\xHH are bytes.\n"
    "\n"
    "  --keys N          how many, 1..1000 (default 20)\n"
    "  --at MS           the window of a moment, in Unix milliseconds, as far as the engine still holds it\n"
    "  --json            one object\n"
    "  --help\n"
    "\n"
    "Exit status: 0 done; 1 no engine answers there, it refuses, or it has no such key; 2 wrong usage.\n";

struct request {
    const char *command, *socket, *family;
    const char *key; /* NULL means the heaviest ones */
    uint64_t keys;
    int64_t interval_ms; /* 0 means not given */
    int64_t unix_ms;
    bool once, json;
};

/* ---- the command line ---- */

static int usage(const struct request *request, const char *what, const char *which) {
    tool_complain("%s '%s'; 'tallywheel %s --help' says more", what, which, request->command);
    return EXIT_USAGE;
}

static bool take_number(const struct option_rule *rule, void *into, const char *given) {
    return text_number(given, rule->low, rule->high, (uint64_t *)(void *)((char *)into + rule->at)) ||
           usage(into, rule->takes, given) == EXIT_DONE;
}

static bool top_take_interval(const struct option_rule *rule, void *into, const char *given) {
    struct request *request = into;
    return (text_span(given, &request->interval_ms) && request->interval_ms > 0) ||
           usage(request, rule->takes, given) == EXIT_DONE;
}

#define NUMBER(option, field, least, most, words) \
    { \
        .name = option, .take = take_number, .at = offsetof(struct request, field), .low = least, .high = most, \
        .takes = words \
    }
#define KEYS NUMBER("keys", keys, 1, KEYS_MAX, "--keys is 1..1000, not")
static const struct option_rule top_rules[] = {
    OPTION_TEXT("family", struct request, family),
    KEYS,
    {.name = "interval", .take = top_take_interval, .takes = "--interval is a span such as 2s or 1m, not"},
    OPTION_FLAG("once", struct request, once),
    OPTION_FLAG("json", struct request, json),
    OPTIONS_END};
static const struct option_rule show_rules[] = {
    KEYS, NUMBER("at", unix_ms, 0, INT64_MAX, "--at is a number of milliseconds, not"),
    OPTION_FLAG("json", struct request, json), OPTIONS_END};

static int need_socket(struct request *request, const char *given) {
    request->socket = given != NULL ? given : getenv(SOCKET_VARIABLE);
    if (request->socket != NULL && *request->socket != '\0') return -1;
    tool_complain("name the engine's socket (its watch_path), or set " SOCKET_VARIABLE);
    return EXIT_USAGE;
}

static int take_socket(struct request *request, int argc, char **argv) {
    if (argc - optind > 1) return usage(request, "too many arguments:", argv[argc - 1]);
    return need_socket(request, argc - optind == 1 ? argv[optind] : NULL);
}

/* The name of a family has no slash. */
static bool is_path(const char *word) {
    return strchr(word, '/') != NULL;
}

/* [SOCKET] FAMILY, or SOCKET FAMILY KEY; the old order was FAMILY [SOCKET]. */
static int show_take_words(struct request *request, int argc, char **argv, char family[65]) {
    int count = argc - optind;
    char **words = argv + optind;
    if (count > 3) return usage(request, "too many arguments:", argv[argc - 1]);
    if (count < 1) {
        tool_complain("name a family; 'tallywheel show --help' says more");
        return EXIT_USAGE;
    }
    if (count == 1 && is_path(words[0])) {
        tool_complain("name a family behind the socket: tallywheel show %s FAMILY", words[0]);
        return EXIT_USAGE;
    }
    bool is_old = count == 2 && !is_path(words[0]) && (is_path(words[1]) || access(words[1], F_OK) == 0);
    (void)snprintf(family, 65, "%s", count == 1 || is_old ? words[0] : words[1]);
    request->key = count == 3 ? words[2] : NULL;
    if (request->key != NULL && request->unix_ms != INT64_MIN)
        return usage(request, "--at is not for one key:", request->key);
    return need_socket(request, count == 1 ? NULL : is_old ? words[1] : words[0]);
}

/* ---- looks ---- */

/* The family with the most counters; the first of them by name. */
static const char *largest(const struct watched *look) {
    const struct watched_family *found = NULL;
    for (size_t i = 0; i < look->family_count; i++)
        if (found == NULL || look->families[i].keys > found->keys) found = &look->families[i];
    return found != NULL ? found->name : NULL;
}

/* `family` is the requested one, and stays over looks. It is empty if none was chosen yet. */
static bool look_whole(const struct request *request, size_t keys, char family[65], struct watched *look) {
    char why[400];
    if (!watched_look(request->socket, look, why, sizeof why)) {
        if (stop_signal() == 0) tool_complain("%s", why);
        return false;
    }
    const char *chosen = family[0] != '\0' ? family : largest(look);
    if (chosen == NULL) return true;
    if (chosen != family) (void)snprintf(family, 65, "%s", chosen);
    if (request->key != NULL ? watched_look_key(request->socket, family, request->key, look, why, sizeof why)
                             : watched_look_top(request->socket, family, keys, request->unix_ms, look, why, sizeof why))
        return true;
    if (stop_signal() == 0) tool_complain("%s", why);
    watched_free(look);
    return false;
}

/* The exit status when no look was had. */
static int no_look(void) {
    return stop_signal() != 0 ? EXIT_SIGNAL + stop_signal() : EXIT_TROUBLE;
}

static struct top_view view_of(const struct watched *now, const struct watched *before, const char *family) {
    bool any = family[0] != '\0' && (now->family_count > 0 || now->top_error != NULL);
    return (struct top_view){now, before->version != NULL ? before : NULL, any ? family : NULL, NULL};
}

static int print_page(const struct page *page) {
    struct sink sink;
    bool done = sink_open(&sink, STDOUT_FILENO);
    for (size_t i = 0; done && i < page->count; i++) {
        sink_text(&sink, page->lines[i].text);
        sink_byte(&sink, '\n');
    }
    done = done && sink_flush(&sink);
    sink_close(&sink);
    if (!done) tool_complain("cannot write the output");
    return done ? EXIT_DONE : EXIT_TROUBLE;
}

static int print_json(const struct top_view *view, bool whole) {
    struct sink sink;
    bool done = sink_open(&sink, STDOUT_FILENO);
    if (done) top_json(&sink, view, whole);
    done = done && sink_flush(&sink);
    sink_close(&sink);
    if (!done) tool_complain("cannot write the output");
    return done ? EXIT_DONE : EXIT_TROUBLE;
}

static int print_view(const struct request *request, const struct top_view *view) {
    struct page page;
    if (request->json) return print_json(view, true);
    if (!page_begin(&page, 0, 0)) return EXIT_TROUBLE;
    top_draw(&page, view);
    int status = print_page(&page);
    page_free(&page);
    return status;
}

/* Sleeps for the rest of the interval, and at least four times as long as the look took. Returns false if a signal
 * came. */
static bool top_sleep_until_next(int64_t began_ms, int64_t interval_ms) {
    int64_t now_ms = moment_mono_ms(), rested_ms = now_ms + 4 * (now_ms - began_ms);
    return stop_sleep_until(rested_ms > began_ms + interval_ms ? rested_ms : began_ms + interval_ms);
}

/* With --once and --json, looks are printed one after the other. */
static int run_plain(const struct request *request, char family[65]) {
    struct watched before = {0}, now = {0};
    size_t keys = request->keys != 0 ? request->keys : KEYS_DEFAULT;
    int64_t interval_ms = request->interval_ms != 0 ? request->interval_ms : INTERVAL_MS;
    int status = EXIT_DONE;
    unsigned looks = request->once && request->interval_ms == 0 ? 1 : 2; /* of --once */
    for (unsigned look = 1; status == EXIT_DONE; look++) {
        int64_t began_ms = moment_mono_ms();
        if (!look_whole(request, keys, family, &now)) {
            status = no_look();
            break;
        }
        struct top_view view = view_of(&now, &before, family);
        if (!request->once || look == looks) status = print_view(request, &view);
        if (request->once && look == looks) break;
        watched_free(&before);
        before = now;
        now = (struct watched){0};
        if (status == EXIT_DONE && !top_sleep_until_next(began_ms, interval_ms)) status = EXIT_SIGNAL + stop_signal();
    }
    watched_free(&before);
    watched_free(&now);
    return status;
}

/* ---- the screen ---- */

/* The state of the screen. */
struct watching {
    const struct request *request;
    struct top_screen screen;
    struct watched now, before; /* the last two looks; empty before they were made */
    char *family;               /* whose keys are requested (65 bytes); empty if none was chosen yet */
    char why[400];              /* why the last question has no answer */
    bool gone;                  /* the engine does not answer; `now` is its last answer */
};

static void top_choose(const struct watched *now, char family[65], int step) {
    for (size_t i = 0; i < now->family_count; i++) {
        if (strcmp(now->families[i].name, family) != 0) continue;
        size_t next = step < 0 ? (i > 0 ? i - 1 : 0) : (i + 1 < now->family_count ? i + 1 : i);
        (void)snprintf(family, 65, "%s", now->families[next].name);
        return;
    }
    family[0] = '\0'; /* it was closed, so show the largest one again */
}

/* Rates are of two looks without a gap between them. */
static void look_again(struct watching *watching) {
    const struct request *request = watching->request;
    struct watched look;
    size_t height = watching->screen.height;
    size_t keys = request->keys != 0 ? request->keys : height < KEYS_MAX ? height : KEYS_MAX;
    if (!watched_look(request->socket, &look, watching->why, sizeof watching->why)) {
        watching->gone = true;
        return;
    }
    watched_free(&watching->before);
    if (watching->gone)
        watched_free(&watching->now);
    else
        watching->before = watching->now;
    watching->now = look;
    watching->gone = false;
    char *family = watching->family;
    if (family[0] == '\0' && largest(&look) != NULL) (void)snprintf(family, 65, "%s", largest(&look));
    if (family[0] != '\0' && !watched_look_top(request->socket, family, keys, INT64_MIN, &watching->now, watching->why,
                                               sizeof watching->why))
        watching->now.top_error = watching->why;
}

static void draw(const struct watching *watching, const struct watched *now) {
    struct page page;
    struct top_view view = view_of(now, &watching->before, watching->family);
    if (watching->gone) view.gone = watching->why;
    if (!page_begin(&page, watching->screen.width, watching->screen.height)) return;
    top_draw(&page, &view);
    top_screen_show(&page);
    page_free(&page);
}

/* The keys of the family that was chosen are not there yet. */
static void draw_chosen(const struct watching *watching) {
    struct watched now = watching->now;
    now.key_count = 0;
    now.top_error = "asking...";
    draw(watching, &now);
}

/* Waits for the next look, which began_ms was the last one's beginning. A key press is followed sooner, but not so soon
 * that a key that stays pressed keeps the engine busy. Returns false at the end. */
static bool attend(struct watching *watching, int64_t began_ms) {
    const struct request *request = watching->request;
    int64_t interval_ms = request->interval_ms != 0 ? request->interval_ms : INTERVAL_MS;
    int64_t now_ms = moment_mono_ms(), rested_ms = now_ms + 4 * (now_ms - began_ms), until_ms = began_ms + interval_ms;
    if (until_ms < rested_ms) until_ms = rested_ms;
    for (int64_t left_ms; (left_ms = until_ms - moment_mono_ms()) > 0;) {
        enum top_key key = top_screen_wait(&watching->screen, left_ms < 3600000 ? (int)left_ms : 3600000);
        if (key == TOP_QUIT) return false;
        if (key == TOP_RESIZED) draw(watching, &watching->now);
        if (key == TOP_UP || key == TOP_DOWN) {
            top_choose(&watching->now, watching->family, key == TOP_UP ? -1 : 1);
            draw_chosen(watching);
            until_ms = rested_ms;
        }
    }
    return true;
}

static int run_screen(const struct request *request, char family[65]) {
    struct watching watching = {.request = request, .family = family, .gone = true};
    if (!look_whole(request, KEYS_DEFAULT, family, &watching.now)) return no_look(); /* while standard error is seen */
    if (!top_screen_begin(&watching.screen)) {
        tool_complain("this terminal (TERM) is not known; --once and --json need none");
        return EXIT_TROUBLE;
    }
    for (bool goes_on = true; goes_on;) {
        int64_t began_ms = moment_mono_ms();
        look_again(&watching);
        draw(&watching, &watching.now);
        goes_on = attend(&watching, began_ms);
    }
    top_screen_end();
    watched_free(&watching.before);
    watched_free(&watching.now);
    return stop_signal() != 0 ? EXIT_SIGNAL + stop_signal() : EXIT_DONE;
}

/* ---- the commands ---- */

int top_main(int argc, char **argv) {
    struct request request = {.command = "top", .unix_ms = INT64_MIN};
    char family[65] = "";
    int status = options_read(argc, argv, top_rules, top_help, NULL, &request);
    if (status < 0) status = take_socket(&request, argc, argv);
    if (status >= 0) return status;
    if (request.family != NULL) (void)snprintf(family, sizeof family, "%s", request.family);
    (void)setlocale(LC_CTYPE, "");
    if (!stop_begin()) return EXIT_TROUBLE;
    if (request.once || request.json) return run_plain(&request, family);
    if (!top_screen_is_built()) {
        tool_complain("built without ncurses; --once and --json need none");
        return EXIT_USAGE;
    }
    if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) return run_screen(&request, family);
    tool_complain("this is no terminal; --once prints one look, --json one at each interval");
    return EXIT_USAGE;
}

int show_main(int argc, char **argv) {
    struct request request = {.command = "show", .unix_ms = INT64_MIN, .keys = KEYS_DEFAULT};
    struct watched now, before = {0};
    struct page page;
    int status = options_read(argc, argv, show_rules, show_help, NULL, &request);
    if (status >= 0) return status;
    char family[65];
    status = show_take_words(&request, argc, argv, family);
    if (status >= 0) return status;
    if (!look_whole(&request, request.keys, family, &now)) return EXIT_TROUBLE;
    struct top_view view = view_of(&now, &before, family);
    if (now.top_error != NULL) {
        tool_complain("%s: %s", family, now.top_error);
        status = EXIT_TROUBLE;
    } else if (request.key != NULL && now.key_count == 0) {
        tool_complain("%s: no such key: the engine has no count of it in this window", family);
        status = EXIT_TROUBLE;
    } else if (request.json) {
        status = print_json(&view, false);
    } else if (page_begin(&page, 0, 0)) {
        top_draw_keys(&page, &view);
        status = print_page(&page);
        page_free(&page);
    }
    watched_free(&now);
    return status < 0 ? EXIT_TROUBLE : status;
}
