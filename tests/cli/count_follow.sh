#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_follow.sh TOOL FOLDER -- --follow: growing files, rotation, truncation, each window when it closes.
# Method: windows of two seconds by the real clock and lines stamped with the present; a line is written with its time, so the
# sums are known whatever window it falls into.
# Covers: tools/common/stop.c, tools/count/follow.c, tools/count/tail.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 14

sum_of() { # KEY FILE
    awk -F "$tab" -v key="$1" '$2 == key { n += $3 } END { print n + 0 }' "$2"
}
# Waits until the sum of a key is as it should be.
wait_sum() { # KEY SUM FILE
    wait_until has_sum "$@" && return 0
    echo "# $1: $(sum_of "$1" "$3"), should be $2"
    return 1
}
has_sum() {
    [ "$(sum_of "$1" "$3")" -eq "$2" ]
}
now() {
    date +%s
}
# The same in the first half of a window: what takes a while has four seconds before it is late.
early() {
    until [ $(($(now) % 2)) -eq 0 ]; do sleep 0.05; done
    now
}
# No window stands in the output in two places.
each_once() { # FILE
    [ "$(cut -f 1 "$1" | uniq | sort | uniq -d | wc -l)" -eq 0 ]
}

# An old day first, then the present.
{
    for key in a b a; do printf '1431857103\t%s\n' $key; done
    printf '%s\tnow\n' "$(now)"
} >"$work/log"
"$tool" count --follow --lateness 3s --format tsv --window 2s --output tsv "$work/log" >"$work/live" 2>"$work/err" &
pid=$!
background="$background $pid"
wait_sum a 2 "$work/live" && [ "$(sum_of b "$work/live")" -eq 1 ]
ok $? 'windows that have long ended are printed at once'
wait_sum now 1 "$work/live"
ok $? 'the open window is printed when it has closed, lateness included'

printf '%s\tnow\n' "$(now)" >>"$work/log"
wait_sum now 2 "$work/live"
ok $? 'lines that are added are counted'
printf '%s\tnow' "$(early)" >>"$work/log"
looks $pid
[ "$(sum_of now "$work/live")" -eq 2 ] && printf '\t5\n' >>"$work/log" && wait_sum now 7 "$work/live"
ok $? 'half a line waits for its other half'

mv "$work/log" "$work/log.1"
printf '%s\trotated\n' "$(now)" >>"$work/log.1"
printf '%s\trotated\t10\n' "$(now)" >"$work/log"
wait_sum rotated 11 "$work/live"
ok $? 'a file that is rotated is read to its end, then the new one from its start'
: >"$work/log"
looks $pid
printf '%s\tcut\n' "$(now)" >>"$work/log"
wait_sum cut 1 "$work/live" && err_has 'was truncated'
ok $? 'a file that is cut is read on from its start'
rm "$work/log"
looks $pid
printf '%s\tback\n' "$(now)" >"$work/log"
wait_sum back 1 "$work/live"
ok $? 'a file that is removed and made anew is found'

printf '1431857103\tlate\n' >>"$work/log"
printf '%s\topen\n' "$(now)" >>"$work/log"
looks $pid
kill -INT $pid
wait $pid
[ $? -eq 130 ] && [ "$(sum_of open "$work/live")" -eq 1 ]
ok $? 'SIGINT prints the window that is still open; the exit status says which signal it was'
[ "$(sum_of late "$work/live")" -eq 0 ] && err_has '1 line skipped' && err_has 'late: its window has been closed'
ok $? 'a line of a window that has been printed is reported as late'
each_once "$work/live" && sort -c -t "$tab" -k1,1 "$work/live"
ok $? 'each window is printed once, in order of time'

{
    printf '1431857103\ta\n1431857104\ta\n1431850000\tb\n'
    sleep 2
} | "$tool" count --follow --format tsv --output tsv - >"$work/out" 2>"$work/err"
status=$?
printf '2015-05-17T08:00:00Z\tb\t1\n2015-05-17T10:00:00Z\ta\t2\n' >"$work/want"
[ $status -eq 0 ] && same "$work/out" "$work/want" && err_is_empty
ok $? 'standard input is followed to its end'
{
    printf '1431857103\ta\n'
    printf '%s\tb\n' "$(now)"
} | "$tool" count --follow --format tsv --output json - >"$work/out" 2>"$work/err"
[ $? -eq 0 ] && python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert [c["key"] for l in lines for c in l["counts"]] == ["a", "b"], lines' "$work/out"
ok $? 'json: one object a line'
run 1 count --follow --format tsv "$work/absent" && err_has 'No such file'
ok $? 'a file that is not there from the start is an error'
printf '\037\213\010\000\000\000\000\000rest' >"$work/log.gz"
run 1 count --follow --format tsv "$work/log.gz" && err_has 'is compressed (gzip)'
ok $? 'a file that is compressed is an error that says so'
