#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_first_look.sh TOOL FOLDER -- what a new user tries first: a pipe without a dash, JSON without a word about it,
# Docker's files, large numbers, and a summary of what could not be read.
# Goal: nothing need be said that the command can see, and what it cannot see is said with its remedy.
# Covers: tools/count/plan.c, tools/count/fields.c, tools/count/line.c, tools/count/line_docker.c, tools/count/outcome.c,
# tools/common/text.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 16
line='10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1 "-" "agent"'
printf '%s\n' "$line" >"$work/log"
row() { printf '2015-05-17T10:00:00Z\t%s\t%s\n' "$@"; }

run 0 count --output tsv <"$work/log" && row 10.0.0.1 1 | cmp -s - "$work/out" && err_is_empty
ok $? 'standard input where no file is named'
# shellcheck disable=SC2002  # a pipe is what is tested
cat "$work/log" | timeout 100 "$tool" count --output tsv --window 1h >"$work/out" 2>"$work/err"
row 10.0.0.1 1 | cmp -s - "$work/out" && err_is_empty
ok $? 'a pipe where no file is named'
python3 - "$tool" <<'PYTHON'
import os, subprocess, sys
master, slave = os.openpty()
done = subprocess.run([sys.argv[1], "count"], stdin=slave, capture_output=True, text=True, timeout=100)
sys.exit(not (done.returncode == 2 and "name a FILE" in done.stderr and done.stdout == ""))
PYTHON
ok $? 'a terminal is not read: a file has to be named'

# json NAME VALUE: one object with these; the time is always the same.
json() { printf '{"ts":1431857103.5,"%s":"%s","status":%s,"bytes":2000}\n' "$1" "$2" "${3:-200}"; }
{
    json addr 10.0.0.1
    printf '%s\n' "$line"
    json addr 10.0.0.2 502
    printf 'web-1  | %s\n' "$(json addr 10.0.0.2)"
} >"$work/mixed"
row 10.0.0.2 2 10.0.0.1 1 >"$work/want"
run 0 count --output tsv --key addr "$work/mixed" && err_has '1 line skipped, first: '"$work/mixed"':2: not a JSON object' &&
    same "$work/out" "$work/want"
ok $? 'JSON is recognised by itself, line by line; a line that is none is reported'
row 200 3 502 1 >"$work/want"
run 0 count --output tsv --key status "$work/mixed" && same "$work/out" "$work/want" && err_is_empty
ok $? 'a name that both have is read from both'
run 1 count --output tsv "$work/mixed" --where addr=10.0.0.1 && err_has 'JSON object: --key NAME says'
ok $? 'JSON without a key is told what is missing'
run 1 count --output tsv --key colour "$work/log" && err_has 'the names of fields are: host, client,'
ok $? 'a name that no access log has is answered with those that they have'
run 2 count --format combined --key colour "$work/log" && err_has "--key 'colour'"
ok $? 'where the format is named it is wrong usage'

docker() { # TEXT MEMBER...: Docker's object, with blanks and in another order than its own
    printf '{ "stream" : "stdout",\t"log" : "%s\\n" , "attrs":{"a":"b"}, "time" : "2001-01-01T00:00:00Z" }\n' "$(printf '%s' "$1" | sed 's/["\\]/\\&/g')"
}
{
    docker "$line"
    docker "$(json addr 10.0.0.9)"
} >"$work/docker"
row 200 2 >"$work/want"
run 0 count --output tsv --key status "$work/docker" && same "$work/out" "$work/want" && err_is_empty
ok $? "Docker's files with blanks between members, of access logs and of JSON"

row 200 2 >"$work/want"
{
    json addr x
    json addr y
    json addr z 502 | sed 's/2000/1999/'
} >"$work/numbers"
run 0 count --output tsv --key status --where 'bytes>=2K' "$work/numbers" && same "$work/out" "$work/want" && err_is_empty
ok $? 'a number with K in a condition'
run 0 plan --keys 1M && cp "$work/out" "$work/want" && run 0 plan --keys 1000000 && same "$work/out" "$work/want" &&
    run 0 plan --keys 4G && run 2 plan --keys 5G && run 2 plan --keys 1Mi && run 2 plan --keys K && err_has "--keys 'K'"
ok $? 'numbers with K, M and G in plan'
row 10.0.0.1 1 >"$work/want"
run 0 count --output tsv --top 1K "$work/log" && same "$work/out" "$work/want"
ok $? 'and in count'

{
    printf 'nonsense\n\n%s\nmore \033[31mred\n' "$line"
    printf '%s\n' "$line" | sed 's/10:05/25:05/'
} >"$work/bad1"
printf '\nlast\n' >"$work/bad2"
run 0 count --output tsv "$work/bad1" "$work/bad2" && err_has "6 lines skipped, first: $work/bad1:1: no time in brackets" &&
    err_has "  2 lines: no time in brackets, as $work/bad1:1: nonsense" && err_has "  2 lines: empty line, as $work/bad1:2" &&
    err_has "  1 line: a bracket is not closed, as $work/bad1:4: more \\x1B[31mred" &&
    err_has "  1 line: no time like [17/May/2015:10:05:03 +0000], as $work/bad1:5: 10.0.0.1 - - [17/May/2015:25:05:03" && [ "$(wc -l <"$work/err")" -eq 5 ]
ok $? 'skipped lines by reason, each with its first line'
wrong=0
for follow in '' --follow; do
    # shellcheck disable=SC2086  # an option or none
    timeout 100 "$tool" count --output tsv $follow <"$work/bad2" >"$work/out" 2>"$work/err"
    err_has '2 lines skipped, first: (standard input):1: empty line' || wrong=1
    err_has '  1 line: no time in brackets, as (standard input):2: last' || wrong=1
done
ok $wrong 'also of standard input, and with --follow'
printf 'alone\n' >"$work/bad2"
run 1 count --output tsv "$work/bad2" && err_has "1 line skipped, first: $work/bad2:1: no time in brackets" && err_has '  its text: alone' && [ "$(wc -l <"$work/err")" -eq 3 ]
ok $? 'a reason that is alone is said once, with the text of its line'
awk -v line="$line" 'BEGIN { for (i = 0; i < 40000; i++) print i % 7 == 3 ? "none " i : i % 1009 == 1008 ? "" : i % 5000 == 4999 ? line "[" : line }' >"$work/many"
run 0 count --output tsv --threads 1 "$work/many" && cp "$work/err" "$work/one" && run 0 count --output tsv --threads 8 "$work/many" && same "$work/err" "$work/one" &&
    err_has "  5714 lines: no time in brackets, as $work/many:4: none 3" && err_has "lines: empty line, as $work/many:1009"
ok $? 'the examples are the same, whatever the number of threads'
