#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_reference.sh TOOL FOLDER -- counts equal those of awk, sort and uniq.
# Goal: `count` is exact for every window, any number of threads, from files and from standard input.
# Method: a made access log with lines out of order, escaped quotes, IPv6 clients, broken and very long lines; awk takes its
# first and fourth word apart with no code of ours.
# Covers: tools/count/count.c, tools/count/count_engine.c, tools/count/feed.c, tools/count/feed_file.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 21

awk -v seed="$seed" -v lines=20000 '
function number(n) { return int(rand() * n) }
BEGIN {
    srand(seed)
    for (long = "long "; length(long) < 70000;) long = long long
    split("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", months, " ")
    for (i = 0; i < lines; i++) {
        kind = number(100)
        client = kind < 10 ? sprintf("2001:db8::%x", number(30)) : sprintf("10.%d.%d.7", number(3), number(200) * number(2))
        time = sprintf("%02d/%s/2015:%02d:%02d:%02d +0000", 1 + number(28), months[2 + number(2)], number(24), number(60), number(60))
        path = kind == 11 ? "/a b\\\"c\\\\" : "/page" number(50)
        agent = kind == 12 ? "odd \\\" ] [ agent" : "Mozilla/5.0 (X11; Linux x86_64)"
        if (kind == 13 && i % 5 == 0) agent = long
        line = client " - - [" time "] \"GET " path " HTTP/1.1\" 200 " number(100000) " \"-\" \"" agent "\""
        if (kind == 14) line = substr(line, 1, 20)                           # cut before the time
        if (kind == 15) line = "not a log line at all"
        if (kind == 16) { sub(/\/2015:/, "/2015;", line) }                   # a time that is none
        if (kind == 17) line = ""
        if (kind == 18) line = substr(line, 1, index(line, "\"") + 5)        # cut inside the request: its client counts
        if (kind == 19) line = line "\r"
        print line
    }
    printf "10.9.9.9 - - [01/Apr/2015:00:00:00 +0000] \"last line, no newline\""
}' >"$work/log" || exit 1

# Columns 2 and 1 of the answer: the window cut out of the time by position, and the client.
reference() { # CHARACTERS-OF-THE-TIME SUFFIX
    awk -v size="$1" -v suffix="$2" '
    BEGIN { split("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", names, " "); for (m in names) month[names[m]] = m }
    $4 ~ /^\[[0-9][0-9]\/[A-Z][a-z][a-z]\/[0-9][0-9][0-9][0-9]:[0-9][0-9]:[0-9][0-9]:[0-9][0-9]$/ && $5 ~ /^\+0000\]/ {
        stamp = sprintf("%s-%02d-%sT%s", substr($4, 9, 4), month[substr($4, 5, 3)], substr($4, 2, 2), substr($4, 14))
        print substr(stamp, 1, size) suffix "\t" $1
    }' "$work/log" | sort | uniq -c | awk '{ print $2 "\t" $3 "\t" $1 }' | sort_rows
}
reference 10 T00:00:00Z >"$work/1d"
reference 13 :00:00Z >"$work/1h"
reference 16 :00Z >"$work/1m"
counted=$(awk -F "$tab" '{ n += $3 } END { print n }' "$work/1d")
lines=$(awk 'END { print NR }' "$work/log")
echo "# $lines lines, $counted of them for awk"
[ "$lines" -eq 20001 ] && [ "$counted" -gt 18000 ] || exit 1

for window in 1h 1m 1d; do
    for threads in 1 8; do
        run 0 count --format combined --output tsv --window $window --threads $threads "$work/log" && same "$work/out" "$work/$window"
        ok $? "windows of $window, threads: $threads, from a file"
        run 0 count --output tsv --window $window --threads $threads - <"$work/log" && same "$work/out" "$work/$window"
        ok $? "windows of $window, threads: $threads, from standard input"
        # shellcheck disable=SC2002  # a pipe is what is tested
        cat "$work/log" | "$tool" count --output tsv --window $window --threads $threads - >"$work/out" 2>"$work/err"
        same "$work/out" "$work/$window"
        ok $? "windows of $window, threads: $threads, from a pipe"
    done
done

first=$(awk '!($4 ~ /^\[[0-9][0-9]\/[A-Z][a-z][a-z]\/[0-9][0-9][0-9][0-9]:/ && $5 ~ /^\+0000\]/) { print NR; exit }' "$work/log")
run 0 count --threads 8 --output tsv "$work/log"
err_has "$((lines - counted)) lines skipped, first: $work/log:$first: "
ok $? 'skipped lines are counted, and the first is named, whatever the number of threads'

awk '{ print > (FILENAME (NR % 3)) }' "$work/log"
run 0 count --output tsv "$work/log0" "$work/log1" - "$work/log2" </dev/null && same "$work/out" "$work/1h"
ok $? 'several files count as one'

awk -F "$tab" '{ if ($1 != last) shown = 0; last = $1; if (shown++ < 3) print }' "$work/1h" >"$work/top"
run 0 count --output tsv --top 3 "$work/log" && same "$work/out" "$work/top"
ok $? '--top 3 shows the first three rows of each window'
