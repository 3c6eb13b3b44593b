#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_memory.sh TOOL FOLDER -- memory follows the number of keys and windows, not of lines.
# Goal: a year of minutes in any order, one key each, stays under 400 MB; a stream costs what its keys cost.
# Method: the kernel's own figure of the peak resident memory. The minutes come in the order i * 257,123 mod 525,600 (the two
# have no common divisor), so that each comes once and none near its neighbours.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 5
lines=${TW_STREAM_LINES:-1000000}

awk 'BEGIN { for (i = 0; i < 525600; i++) printf "%d\tkey%d\n", 1420070400 + 60 * (i * 257123 % 525600), i % 7 }' >"$work/year"
kb=$(peak_kb "$tool" count --format tsv --window 1m --output tsv "$work/year")
status=$?
echo "# peak $kb kB"
[ $status -eq 0 ] && [ "$kb" -lt 400000 ]
ok $? 'a year of minutes in any order: under 400 MB'
[ "$(wc -l <"$work/out")" -eq 525600 ] && sort -c "$work/out" && awk -F "$tab" '$3 != 1 { exit 1 }' "$work/out"
ok $? 'and every minute of it is printed, in order'

stream() {
    awk -v lines="$lines" 'BEGIN { for (i = 0; i < lines; i++) printf "%d\tkey%d\n", 1420070400 + i % 36000, i % 1000 }'
}
kb=$(stream | peak_kb "$tool" count --format tsv --output tsv -)
status=$?
echo "# peak $kb kB for $lines lines of 10,000 counters"
[ $status -eq 0 ] && [ "$kb" -lt 40000 ]
ok $? 'a stream from standard input costs what its counters cost'
awk -F "$tab" -v lines="$lines" '{ sum += $3 } END { exit sum != lines || NR != 10000 }' "$work/out"
ok $? 'and every line of it is counted'

# shellcheck disable=SC3045  # dash has ulimit -v, too
(ulimit -v 400000 && run 1 count --format tsv --memory 1G "$work/year") && err_has '--memory is 1073741824, and RLIMIT_AS allows the process 409600000:'
ok $? 'a limit of the process below --memory is named'
