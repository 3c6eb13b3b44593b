/* plan.c -- the options of `tallywheel count`. See plan.h.
 * Always true: every refusal names the option, its value, and its valid values. */
#include "tools/count/plan.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tools/count/marks.h"
#include "tools/count/feed.h"
#include "tools/count/fields.h"
#include "tools/common/options.h"
#include "tools/common/text.h"
#include "tools/common/tool.h"

#define DEFAULT_LATENESS_MS 5000
/* The longest that the library accepts. */
#define WINDOW_DAYS_MAX 3660
#define DAYS_MAX 36500

/* Two texts, because C promises no more than 4095 bytes for one. */
static const char help_of_counting[] =
    "Usage: tallywheel count [OPTION]... [FILE]...\n"
    "Counts the lines of logs by key and window, each line by its own time. - is standard input, and so is no\n"
    "FILE if that is no terminal. Files that gzip or zstd has compressed are recognised by their first bytes.\n"
    "\n"
    "  --format FORMAT     combined (default): web servers' access logs, also after a virtual host, and the lines\n"
    "                      of s3, alb, envoy, haproxy and w3c, which are recognised, as are JSON objects if no\n"
    "                      FORMAT is named. One of these by its word:\n"
    "                      also by its own fields. vhost_combined: a virtual host begins every line; s3: Amazon S3;\n"
    "                      alb: its load balancers; cloudfront; w3c: IIS, the file names its columns (#Fields);\n"
    "                      json: one object a line (nginx with escape=json, journalctl -o json, ...);\n"
    "                      dpkg: /var/log/dpkg.log; tsv: unix-seconds or ISO time<TAB>key[<TAB>delta]; cri, or\n"
    "                      cri+FORMAT: every line as Kubernetes's log files have it. What cri, syslog, docker compose\n"
    "                      and kubectl write in front of a line is also passed over without this\n"
    "  --log-format STRING the form of a line as its server is configured: a log_format of nginx, a LogFormat of\n"
    "                      Apache, a log-format of HAProxy. Fields have their names there, and those of --key\n"
    "  --key FIELD[,...]   the fields that make the key, joined by ':'. By name: client (default), host, user,\n"
    "                      request, method, url, path, protocol, status, bytes, referer, agent; s3: bucket,\n"
    "                      operation, object; alb: target, target_status; haproxy: frontend, backend, server, state;\n"
    "                      envoy: flags; w3c: the column's name; dpkg: action (default), package; json: the member's\n"
    "                      name, or its path as request.uri. Or by number, counted from 1; a quoted or bracketed\n"
    "                      text is one field. tsv has its own. client/24/64 is the network of an address: bits of\n"
    "                      IPv4, bits of IPv6\n"
    "  --distinct FIELD[,...]  count how many different values these fields have had with the key, in place of lines:\n"
    "                      an estimate, as a rule within 1 %, without the values themselves (tsv: 3, behind the key)\n"
    "  --sum FIELD         also add up this field, a whole number, as bytes; in Redis under the name sum, not count\n"
    "  --where COND        count only lines with FIELD=TEXT, != (not equal), <, <=, >, >= (numbers), ~ (contains) or\n"
    "                      !~, as 'status>=500' or 'bytes>1M'; up to 8 times, then all must hold\n"
    "  --since TIME        count only lines from this time on: 2015-05-17, 2015-05-17T10:05+02:00, Unix seconds, or\n"
    "                      a span before now, as 2h\n"
    "  --until TIME        count only lines before this time\n"
    "  --time NAME         json: the member that is the time (default: time, timestamp, @timestamp, ts,\n"
    "                      time_iso8601, time_local, msec, datetime, __REALTIME_TIMESTAMP, timeStamp, start_time, or\n"
    "                      date and time)\n"
    "  --window SPAN       30s, 1m, 1h (default), 7d ...; all: one window for everything\n"
    "  --utc-offset +HH:MM the time zone offset by which days begin, and of times without one (default +00:00)\n"
    "  --top N             show only the N greatest counts of each window\n"
    "  --output FORM       table (default), tsv: window-start<TAB>key<TAB>count (and <TAB>sum), csv: the same\n"
    "                      with a header, json\n"
    "  --svg FILE          draw the windows over time and the greatest keys of all windows into FILE, too\n"
    "  --threads N         threads that parse and count (default: one per processor; one with --follow)\n"
    "  --memory SIZE       the most counting memory, such as 512M or 4G (default: 3/4 of the machine's)\n"
    "  --follow            continue as files grow, are rotated or truncated; print each window when it closes\n"
    "  --lateness SPAN     with --follow: how long after its end a window waits for late lines (default 5s)\n";
static const char help_of_redis[] =
    "  --redis URL         count in Redis too: redis://[user:password@]host[:port][/db], unix:///path,\n"
    "                      redis+sentinel://[user:password@]sentinel[:port][,...]/name[/db],\n"
    "                      redis+cluster://[user:password@]node[:port][,...]; rediss: TLS;\n"
    "                      a second run over the same lines counts them there a second time\n" REDIS_FLAGS_HELP
    "  --batch NAME        count into Redis only if no run did so under this name before: the counts are sent\n"
    "                      when all input was read, so a run that was interrupted can be repeated\n"
    "  --resume            with --batch: send the counts in steps, each with the place in the file, and continue\n"
    "                      where the last run of this name ended; counts by one thread\n"
    "  --redis-key TEXT    the keys' names in Redis: %k the key, before it perhaps {%t}, a hash tag of Redis Cluster,\n"
    "                      %Y %m %d %H %M %S the window's start, %n \"count\", %% a percent sign (default\n"
    "                      \"%n:%k:\" and a stamp as fine as the window)\n"
    "  --retention SPAN    how long keys live in Redis after their window's end, or from now if it ended\n"
    "                      long ago (default 7d)\n"
    "  --help\n"
    "\n"
    "Numbers may end in K, M or G: 1000, 1000000, ...\n"
    "\n"
    "Exit status: 0 done; 1 a file could not be read (or was cut short), no line could be read as the format, the\n"
    "output could not be written, there was no memory for some keys, or Redis did not take every count; 2 wrong\n"
    "usage; 130 and 143 after SIGINT and SIGTERM: what was counted until then is printed. Lines that cannot be read\n"
    "are skipped and reported on standard error.\n";

/* ---- values ---- */

/* Returns the index of one of a few words; -1 if it is not one of them. */
static int word_index(const char *given, const char *const *words) {
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(given, words[i]) == 0) return i;
    }
    return -1;
}

static bool choice(const struct option_rule *rule, const char *given, const char *const *words, const char *takes,
                   int *index) {
    *index = word_index(given, words);
    if (*index >= 0) return true;
    const char *nearest = text_nearest(given, words);
    if (nearest == NULL) return option_refuse(rule, given, takes);
    tool_complain("--%s '%s': did you mean %s? It %s", rule->name, given, nearest, takes);
    return false;
}

/* What plan_read() collects before it can make the plan. The fields depend on the format, and the span of time on the
 * offset; either may come first. */
struct draft {
    struct plan plan;
    struct fields_asked fields;
    const char *since, *until, *log_format;
    bool has_format; /* --format names more than cri */
};

/* From `low` ms to `high` days. */
static bool take_span(const struct option_rule *rule, void *into, const char *given) {
    int64_t value;
    char takes[120];
    if (text_span(given, &value) && value >= (int64_t)rule->low && value <= (int64_t)rule->high * TW_DAY) {
        *(int64_t *)(void *)((char *)into + rule->at) = value;
        return true;
    }
    snprintf(takes, sizeof takes, "a whole number followed by s, m, h or d is wanted, as 30s, 1h, 7d, up to %lldd",
             (long long)rule->high);
    return option_refuse(rule, given, takes);
}

static bool take_where(const struct option_rule *rule, void *into, const char *given) {
    struct fields_asked *fields = &((struct draft *)into)->fields;
    if (fields->where_count == LINE_WHERE_MAX) return option_refuse(rule, given, "at most 8 conditions are taken");
    fields->where[fields->where_count++] = given;
    return true;
}

static bool take_window(const struct option_rule *rule, void *into, const char *given) {
    struct draft *draft = into;
    if (strcmp(given, "all") != 0) return take_span(rule, into, given);
    draft->plan.window_ms = WINDOWS_ALL;
    return true;
}

/* FORMAT, cri, or cri+FORMAT. */
static bool take_format(const struct option_rule *rule, void *into, const char *given) {
    static const char *const formats[] = {"combined", "vhost_combined", "dpkg", "tsv",        "json", "s3", "alb",
                                          "envoy",    "haproxy",        "w3c",  "cloudfront", "cri",  NULL};
    static const char takes[] = "is one of combined, vhost_combined, s3, alb, cloudfront, w3c, envoy, haproxy, json,"
                                " dpkg, tsv, cri";
    struct draft *draft = into;
    int index;
    bool is_cri = strncmp(given, "cri+", 4) == 0;
    if (!choice(rule, is_cri ? given + 4 : given, formats, takes, &index)) return false;
    bool is_last = formats[index + 1] == NULL;
    draft->plan.rule.is_cri = is_cri || is_last;
    draft->fields.format = is_last ? LINE_COMBINED : (enum line_format)index;
    draft->fields.is_open = is_last;
    draft->has_format = !is_last;
    return true;
}

static bool take_offset(const struct option_rule *rule, void *into, const char *given) {
    struct draft *draft = into;
    return text_offset(given, &draft->plan.rule.utc_offset_ms) ||
           option_refuse(rule, given, "an offset within 14 hours of UTC is wanted, as +08:00 or -03:30");
}

static bool take_memory(const struct option_rule *rule, void *into, const char *given) {
    struct draft *draft = into;
    if (!text_size(given, &draft->plan.memory_bytes))
        return option_refuse(rule, given, "a size as 512M or 4G is wanted");
    return draft->plan.memory_bytes > 0 || option_refuse(rule, given, "must not be 0");
}

static bool take_output(const struct option_rule *rule, void *into, const char *given) {
    static const char *const forms[] = {"table", "tsv", "json", "csv", NULL};
    struct draft *draft = into;
    int index;
    if (!choice(rule, given, forms, "is one of table, tsv, csv, json", &index)) return false;
    draft->plan.form = (enum print_form)index;
    return true;
}

static bool take_batch(const struct option_rule *rule, void *into, const char *given) {
    struct draft *draft = into;
    draft->plan.batch = given;
    return (given[0] != '\0' && strlen(given) <= BATCH_NAME_MAX) ||
           option_refuse(rule, given, "a name of 1 to 200 bytes is wanted, as access.log-2015-05-17");
}

#define TEXT(name, field) OPTION_TEXT(name, struct draft, field)
#define FLAG(name, field) OPTION_FLAG(name, struct draft, field)
#define NUMBER(name, field, high) OPTION_NUMBER(name, struct draft, field, 1, high, NULL)
#define SPAN(option, function, field, least, days) \
    { .name = option, .take = function, .at = offsetof(struct draft, field), .low = least, .high = days }
static const struct option_rule rules[] = {OPTION_OTHER("format", take_format),
                                           TEXT("log-format", log_format),
                                           TEXT("key", fields.key),
                                           TEXT("distinct", fields.element),
                                           TEXT("sum", fields.sum),
                                           OPTION_OTHER("where", take_where),
                                           TEXT("since", since),
                                           TEXT("until", until),
                                           TEXT("time", fields.time),
                                           SPAN("window", take_window, plan.window_ms, 1, WINDOW_DAYS_MAX),
                                           OPTION_OTHER("utc-offset", take_offset),
                                           TEXT("redis", plan.redis_url),
                                           TEXT("redis-key", plan.redis_key),
                                           REDIS_FLAGS(struct draft, plan.flags),
                                           OPTION_OTHER("batch", take_batch),
                                           FLAG("resume", plan.resume),
                                           SPAN("retention", take_span, plan.retention_ms, 1, DAYS_MAX),
                                           OPTION_OTHER("memory", take_memory),
                                           NUMBER("top", plan.top, UINT32_MAX),
                                           OPTION_OTHER("output", take_output),
                                           TEXT("svg", plan.svg),
                                           NUMBER("threads", plan.threads, FEED_THREADS_MAX),
                                           FLAG("follow", plan.follow),
                                           SPAN("lateness", take_span, plan.lateness_ms, 0, DAYS_MAX),
                                           OPTIONS_END};

/* ---- defaults ---- */

/* Returns the machine's memory, or a container's share of it; 0 means unknown. */
static uint64_t machine_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        unsigned long long granted;
        FILE *file = fopen(limits[i], "re");
        if (file == NULL) continue;
        if (fscanf(file, "%llu", &granted) == 1 && granted > 0 && (bytes == 0 || granted < bytes)) bytes = granted;
        fclose(file);
    }
    return bytes;
}

static unsigned processors(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > 64 ? 64 : (unsigned)count;
}

static void defaults_set(struct plan *plan) {
    *plan = (struct plan){.window_ms = TW_HOUR, .lateness_ms = -1, .form = PRINT_TABLE};
    plan->threads = processors();
    plan->memory_bytes = machine_bytes() / 4 * 3;
}

/* ---- the whole ---- */

/* "2h" is a moment two hours ago. */
static bool moment_take(const char *option, const char *given, int64_t utc_offset_ms, int64_t *unix_ms) {
    int64_t span_ms;
    if (text_span(given, &span_ms)) {
        *unix_ms = (int64_t)time(NULL) * 1000 - span_ms;
        return true;
    }
    if (line_time_read(given, strlen(given), utc_offset_ms, unix_ms)) return true;
    tool_complain("--%s '%s': a time is wanted, as 2015-05-17, 2015-05-17T10:05:03Z, Unix seconds, or 2h (ago)", option,
                  given);
    return false;
}

static bool span_set(struct line_rule *rule, const struct draft *draft) {
    rule->has_span = draft->since != NULL || draft->until != NULL;
    rule->since_ms = INT64_MIN;
    rule->until_ms = INT64_MAX;
    if (draft->since != NULL && !moment_take("since", draft->since, rule->utc_offset_ms, &rule->since_ms)) return false;
    if (draft->until != NULL && !moment_take("until", draft->until, rule->utc_offset_ms, &rule->until_ms)) return false;
    if (rule->since_ms < rule->until_ms) return true;
    tool_complain("--until is not after --since: no line could count");
    return false;
}

/* Whether a template has %n; %%n is none. */
static bool has_name(const char *template) {
    for (; *template != '\0'; template ++) {
        if (*template != '%') continue;
        if (*++template == 'n') return true;
        if (*template == '\0') return false;
    }
    return false;
}

static bool draft_is_sound(const struct draft *draft) {
    const struct plan *plan = &draft->plan;
    if (plan->file_count == 0) {
        tool_complain("nothing to count: name a FILE, or - for standard input");
    } else if (draft->log_format != NULL && draft->has_format) {
        tool_complain("--log-format goes without --format: it says what a line's form is");
    } else if (plan->follow && plan->window_ms == WINDOWS_ALL) {
        tool_complain("--follow prints a window when it closes, and --window all never does");
    } else if (plan->lateness_ms >= 0 && !plan->follow) {
        tool_complain("--lateness goes with --follow; without it no line is late");
    } else if (plan->svg != NULL && (plan->follow || draft->fields.element != NULL)) {
        tool_complain("--svg goes with counts of lines, in input that ends: neither with --follow nor with --distinct");
    } else if (plan->batch != NULL && plan->redis_url == NULL) {
        tool_complain("--batch goes with --redis");
    } else if (plan->batch != NULL && (plan->follow || draft->fields.element != NULL)) {
        tool_complain(plan->follow ? "--batch goes with input that ends, and --follow has none"
                                   : "--distinct needs no --batch: a second run changes nothing in Redis");
    } else if (draft->fields.sum != NULL && (plan->follow || draft->fields.element != NULL)) {
        tool_complain("--sum goes with counts of lines, in input that ends: neither with --follow nor with --distinct");
    } else if (draft->fields.sum != NULL && plan->redis_key != NULL && !has_name(plan->redis_key)) {
        tool_complain("--redis-key '%s': with --sum it needs %%n, which is \"count\" or \"sum\"", plan->redis_key);
    } else if (plan->resume && plan->batch == NULL) {
        tool_complain("--resume goes with --batch, whose name says what is gone on with");
    } else if (plan->resume && strstr(plan->redis_url, "+cluster://") != NULL) {
        tool_complain("--resume wants one Redis: the nodes of a cluster cannot take counts and a position as one");
    } else if (plan->resume && (draft->fields.format == LINE_W3C || draft->fields.format == LINE_CLOUDFRONT)) {
        tool_complain("--resume goes on in the middle of a file, and in w3c and cloudfront its head names the columns");
    } else if (plan->retention_ms > 0 && plan->redis_url == NULL) {
        tool_complain("--retention goes with --redis");
    } else if (plan->redis_key != NULL && plan->redis_url == NULL) {
        tool_complain("--redis-key goes with --redis");
    } else if (redis_flags_any(&plan->flags) && plan->redis_url == NULL) {
        tool_complain("--redis-password-file, --tls-ca and their kin go with --redis");
    } else {
        return true;
    }
    return false;
}

static bool log_format_set(struct draft *draft) {
    static struct line_layout layout; /* lives as long as the rule */
    if (draft->log_format == NULL) return true;
    draft->fields.format = LINE_LAYOUT;
    draft->fields.layout = &layout;
    draft->fields.is_open = false;
    return layout_read(draft->log_format, &layout);
}

/* Two runs with the same hash count the same lines under the same names. */
static uint64_t meaning_of(const struct draft *draft) {
    const struct plan *plan = &draft->plan;
    const struct fields_asked *fields = &draft->fields;
    char numbers[80];
    snprintf(numbers, sizeof numbers, "%s%d %lld %lld", plan->rule.is_cri ? "cri+" : "", (int)fields->format,
             (long long)plan->window_ms, (long long)plan->rule.utc_offset_ms);
    const char *texts[8 + LINE_WHERE_MAX] = {numbers,      fields->key,     fields->time, draft->since,
                                             draft->until, plan->redis_key, NULL};
    size_t count = 6;
    for (size_t i = 0; i < fields->where_count; i++) texts[count++] = fields->where[i];
    if (draft->log_format != NULL) texts[count++] = draft->log_format; /* an earlier batch has the same hash */
    if (fields->sum != NULL) texts[count++] = fields->sum;
    uint64_t hash = TEXT_HASH_BEGIN;
    for (size_t i = 0; i < count; i++) /* each with its NUL; an option that is not there is empty */
        hash = text_hash(hash, texts[i] != NULL ? texts[i] : "", texts[i] != NULL ? strlen(texts[i]) + 1 : 1);
    return hash;
}

int plan_read(int argc, char **argv, struct plan *plan) {
    static char input[] = "-";
    static char *input_alone[] = {input};
    struct draft draft = {.fields.format = LINE_COMBINED, .fields.is_open = true};
    defaults_set(&draft.plan);
    int status = options_read(argc, argv, rules, help_of_counting, help_of_redis, &draft);
    if (status >= 0) return status;
    draft.plan.files = argv + optind;
    draft.plan.file_count = (size_t)(argc - optind);
    if (argc == optind && isatty(STDIN_FILENO) == 0) {
        draft.plan.files = input_alone;
        draft.plan.file_count = 1;
    }
    if (!draft_is_sound(&draft) || !log_format_set(&draft) ||
        !redis_flags_finish(&draft.plan.flags, &draft.plan.redis_url) || !fields_set(&draft.plan.rule, &draft.fields) ||
        !span_set(&draft.plan.rule, &draft))
        return EXIT_USAGE;
    if (draft.plan.lateness_ms < 0) draft.plan.lateness_ms = DEFAULT_LATENESS_MS;
    draft.plan.meaning = meaning_of(&draft);
    *plan = draft.plan;
    return -1;
}
