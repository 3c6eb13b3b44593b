/* audit.c -- `tallywheel audit` compares the data in Redis with the expected data, and changes no data.
 *
 * Each difference is one line, kind<TAB>name<TAB>expected<TAB>found<TAB>sentence, with `-` for an empty field; with
 * --shape also <TAB>field or member.
 * Names are escaped as `count --output tsv` escapes keys. Always true: exit status 0 means that everything was checked
 * and no difference was found. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/foreign.h"
#include "tools/common/sink.h"
#include "tallywheel.h"
#include "tools/common/options.h"
#include "tools/common/redis_flags.h"
#include "tools/common/text.h"
#include "tools/common/tool.h"

static const char help[] =
    "Usage: tallywheel audit --redis URL [OPTION]...\n"
    "Checks Redis's memory and eviction policy, the ledgers of all engines, the expiries of keys, and totals.\n"
    "Reports each difference and changes nothing.\n"
    "\n"
    "  --redis URL         redis://[user:password@]host[:port][/db], unix:///path; rediss: TLS;\n"
    "                      redis+sentinel://[user:password@]sentinel[:port][,...]/name[/db];\n"
    "                      redis+cluster://[user:password@]node[:port][,...]\n" REDIS_FLAGS_HELP
    "  --prefix TEXT       the engines' redis_prefix, if they have one\n"
    "  --pattern GLOB      keys that must have an expiry, a pattern for SCAN's MATCH: 'views:*'\n"
    "  --keys-max N        check at most this many of these keys (default 10000000)\n"
    "  --totals FILE       the counts of a database: key<TAB>count, in keys \\t \\n \\\\ \\xHH\n"
    "  --name TEXT         the name in Redis of a key of FILE: %k the key, before it perhaps {%t}, the hash tag\n"
    "                      of its group, %% a percent sign (default %k), for example 'views:%k:2026112014'\n"
    "  --tags N            the family's redis_tags, for %t (default 128)\n"
    "  --shape SHAPE       how Redis stores the counters of FILE: string (default), hash or zset. hash: a key is\n"
    "                      subject|field, %k the subject. zset: a key is a member, and --name is the sorted set\n"
    "  --separator C       with hash: the separator of subject and field, at its last place in the key (default |)\n"
    "  --timeout SPAN      the timeout of one reply (default 1s)\n"
    "  --help\n"
    "\n"
    "Prints kind<TAB>name<TAB>expected<TAB>found<TAB>sentence, with hash and zset also <TAB>field or member; kinds\n"
    "are ledger, no-expiry, total, no-count, memory, line, stray. Exit status: 0 no difference; 1 differences, or\n"
    "Redis, a part of it, or FILE could not be read; 2 wrong usage.\n";

/* ---- findings ---------------------------------------------------------------------------------------------------- */

static const char *kind_name(int kind) {
    static const char *const names[] = {
        [TW_AUDIT_LEDGER] = "ledger",     [TW_AUDIT_NO_EXPIRY] = "no-expiry", [TW_AUDIT_TOTAL] = "total",
        [TW_AUDIT_NO_COUNT] = "no-count", [TW_AUDIT_MEMORY] = "memory",       [TW_AUDIT_LINE] = "line",
        [TW_AUDIT_STRAY] = "stray"};
    return kind > 0 && (size_t)kind < sizeof names / sizeof *names ? names[kind] : "other";
}

static void number_or_dash(struct sink *sink, bool is_number, int64_t number) {
    if (is_number)
        sink_number(sink, number);
    else
        sink_byte(sink, '-');
    sink_byte(sink, '\t');
}

struct output {
    struct sink sink;
    bool has_inner; /* a column of fields or members */
};

static void show_finding(void *ctx, const tw_finding *finding) {
    struct output *output = ctx;
    struct sink *sink = &output->sink;
    bool numbers = finding->kind == TW_AUDIT_TOTAL || finding->expected != 0 || finding->found != 0;
    sink_text(sink, kind_name(finding->kind));
    sink_byte(sink, '\t');
    if (finding->name.size == 0) sink_byte(sink, '-');
    foreign_line(sink, finding->name.data, finding->name.size);
    sink_byte(sink, '\t');
    number_or_dash(sink, numbers, finding->expected);
    number_or_dash(sink, numbers, finding->found);
    foreign_line(sink, (const unsigned char *)finding->text, strlen(finding->text));
    if (output->has_inner) sink_byte(sink, '\t');
    if (output->has_inner && finding->inner.size == 0) sink_byte(sink, '-');
    foreign_line(sink, finding->inner.data, finding->inner.size);
    sink_byte(sink, '\n');
}

static void audit_tell(const tw_audit_report *report) {
    char memory[96] = "";
    if (report->memory_used >= 0)
        snprintf(memory, sizeof memory, "; Redis uses %" PRId64 " bytes of memory", report->memory_used);
    fprintf(stderr, "%" PRIu64 " ledgers, %" PRIu64 " keys, %" PRIu64 " lines looked at%s%s; %" PRIu64 " found\n",
            report->ledgers, report->keys, report->lines, report->cut_off ? " (there are more)" : "", memory,
            report->findings);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

struct request {
    tw_audit_options options;
    struct redis_flags flags;
};

static bool take_shape(const struct option_rule *rule, void *into, const char *given) {
    static const char *const names[] = {
        [TW_REDIS_STRING] = "string", [TW_REDIS_HASH] = "hash", [TW_REDIS_ZSET] = "zset"};
    struct request *request = into;
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(given, names[i]) != 0) continue;
        request->options.redis_shape = i;
        return true;
    }
    return option_refuse(rule, given, "is one of string, hash, zset");
}

static bool take_separator(const struct option_rule *rule, void *into, const char *given) {
    struct request *request = into;
    request->options.key_separator = given[0];
    return strlen(given) == 1 || option_refuse(rule, given, "one byte is wanted");
}

static bool take_timeout(const struct option_rule *rule, void *into, const char *given) {
    struct request *request = into;
    int64_t span_ms;
    if (!text_span(given, &span_ms) || span_ms < 1 || span_ms > 600000)
        return option_refuse(rule, given, "a span from 1s to 10m is wanted");
    request->options.timeout_ms = (uint32_t)span_ms;
    return true;
}

static const struct option_rule rules[] = {
    OPTION_TEXT("redis", struct request, options.redis_url),
    OPTION_TEXT("prefix", struct request, options.redis_prefix),
    OPTION_TEXT("pattern", struct request, options.pattern),
    OPTION_NUMBER("keys-max", struct request, options.keys_max, 1, INT64_MAX, "a number of keys is wanted"),
    OPTION_TEXT("totals", struct request, options.totals_path),
    OPTION_TEXT("name", struct request, options.totals_name),
    OPTION_NUMBER("tags", struct request, options.redis_tags, 1, 1024, "a power of two up to 1024 is wanted"),
    OPTION_OTHER("shape", take_shape),
    OPTION_OTHER("separator", take_separator),
    OPTION_OTHER("timeout", take_timeout),
    REDIS_FLAGS(struct request, flags),
    OPTIONS_END};

/* Returns -1 to continue, otherwise the exit status. */
static int audit_read_options(int argc, char **argv, struct request *request) {
    int status = options_read(argc, argv, rules, help, NULL, request);
    if (status >= 0) return status;
    redis_flags_apply(&request->flags, &request->options);
    if (optind < argc) {
        tool_complain("'%s' is no option; name a file of totals with --totals", argv[optind]);
        return EXIT_USAGE;
    }
    if (!redis_flags_finish(&request->flags, &request->options.redis_url)) return EXIT_USAGE;
    if (request->options.redis_url) return -1;
    tool_complain("--redis is missing: which Redis?");
    return EXIT_USAGE;
}

int audit_main(int argc, char **argv) {
    char error[256] = "";
    struct output output = {0};
    struct request request = {.flags = {0}};
    tw_audit_options *options = &request.options;
    tw_audit_report report = {0};
    tw_audit_options_init(options);
    options->error_text = error;
    options->error_size = sizeof error;
    int status = audit_read_options(argc, argv, &request);
    if (status >= 0) return status;
    output.has_inner = options->redis_shape != TW_REDIS_STRING;
    if (!sink_open(&output.sink, STDOUT_FILENO)) {
        tool_complain("no memory");
        return EXIT_TROUBLE;
    }
    tw_status done = tw_audit(NULL, options, show_finding, &output, &report);
    bool written = sink_flush(&output.sink);
    sink_close(&output.sink);
    if (!written) tool_complain("cannot write the output");
    if (done != TW_OK) tool_complain("%s", error[0] ? error : tw_status_text(done));
    if (done == TW_ERR_OPTIONS && strncmp(error, "totals_path", 11) != 0) return EXIT_USAGE;
    if (done == TW_OK || report.ledgers + report.keys + report.lines > 0)
        audit_tell(&report); /* a part was looked at */
    return done == TW_OK && written && report.findings == 0 ? EXIT_DONE : EXIT_TROUBLE;
}
