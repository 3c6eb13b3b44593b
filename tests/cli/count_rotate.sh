#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_rotate.sh TOOL FOLDER -- --follow loses and doubles no line: files that are cut and refilled, copied, renamed, linked.
# Method: the follower is stopped (SIGSTOP) while a file changes, so that all of it happens between two looks; then the
# sum of each key is compared with the lines that were written.
# Covers: tools/count/tail_file.c, tools/count/tail_copy.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 7

sum_of() { # KEY FILE
    awk -F "$tab" -v key="$1" '$2 == key { n += $3 } END { print n + 0 }' "$2"
}
lines() { # KEY COUNT [SECONDS]
    for _ in $(seq "$2"); do printf '%s\t%s\n' "${3:-1431857103}" "$1"; done
}
follow() { # FILE...
    # Without 9: with the file there that this script writes, the tool would seem to have opened it before it has.
    "$tool" count --follow --format tsv --window 1d --output tsv "$@" >"$work/live" 2>"$work/err" 9>&- &
    pid=$!
    background="$background $pid"
    opens $pid "$(realpath "$1")" && looks $pid # all that is there was read
}
# Ends the follower and compares what it counted: KEY SUM...
ends_with() {
    looks $pid 60
    kill -INT $pid
    wait $pid
    [ $? -eq 130 ] || return 1
    while [ $# -gt 1 ]; do
        if [ "$(sum_of "$1" "$work/live")" -ne "$2" ]; then
            echo "# $1: $(sum_of "$1" "$work/live"), should be $2"
            cat "$work/err"
            return 1
        fi
        shift 2
    done
}

today=$(date +%s)
lines old 10 "$today" >"$work/cut"
follow "$work/cut"
kill -STOP $pid
: >"$work/cut"
lines new 30 "$today" >>"$work/cut"
kill -CONT $pid
ends_with old 10 new 30 && err_has 'was truncated'
ok $? 'a file that was cut and refilled beyond its old size is read from its start'

lines old 10 "$today" >"$work/copied"
follow "$work/copied"
kill -STOP $pid
lines last 5 "$today" >>"$work/copied"
cp "$work/copied" "$work/copied.1"
: >"$work/copied"
lines new 3 "$today" >>"$work/copied"
kill -CONT $pid
ends_with old 10 last 5 new 3 && err_has 'copied.1, continuing from its start'
ok $? 'lines that came before the copy was made are read from the copy'

lines old 10 "$today" >"$work/packed.log"
follow "$work/packed.log"
printf '%s\tla' "$today" >>"$work/packed.log"
looks $pid
kill -STOP $pid
printf 'st\n' >>"$work/packed.log"
lines last 4 "$today" >>"$work/packed.log"
gzip -c "$work/packed.log" >"$work/packed.log-20261126.gz"
: >"$work/packed.log"
kill -CONT $pid
looks $pid
lines new 3 "$today" >>"$work/packed.log"
if gzip -t "$work/packed.log-20261126.gz" && "$tool" count --format tsv "$work/packed.log-20261126.gz" >/dev/null 2>&1; then
    ends_with old 10 last 5 new 3
    ok $? 'a copy that is compressed already is read, from the middle of a line'
else
    kill $pid
    skip 'a copy that is compressed already is read' 'built without zlib: apt-get install zlib1g-dev'
fi

lines old 10 "$today" >"$work/again"
lines old 12 "$today" >"$work/again.1" && touch -d '1 hour ago' "$work/again.1"
follow "$work/again"
: >"$work/again"
looks $pid
lines new 3 "$today" >>"$work/again"
ends_with old 10 new 3
ok $? 'an older copy that holds the same lines is not counted'

lines old 10 "$today" >"$work/renamed"
exec 9>>"$work/renamed"
follow "$work/renamed"
mv "$work/renamed" "$work/renamed.1"
lines new 3 "$today" >"$work/renamed"
looks $pid
lines left 4 "$today" >&9
looks $pid
lines left 4 "$today" >&9
printf '%s\tend' "$today" >&9
exec 9>&-
ends_with old 10 new 3 left 8 end 1
ok $? 'what a program writes into a file that was renamed is counted, until it opens the new one'

lines a 10 "$today" >"$work/a"
lines b 6 "$today" >"$work/b"
ln -s a "$work/link"
follow "$work/link"
ln -sfn b "$work/link"
looks $pid
lines a 2 "$today" >>"$work/a"
lines b 2 "$today" >>"$work/b"
looks $pid
ln -sfn a "$work/link"
looks $pid
lines a 3 "$today" >>"$work/a"
ends_with a 15 b 8
ok $? 'a link that names another file, and the first one again, counts the lines of both once'

lines old 2000 "$today" >"$work/hole"
follow "$work/hole"
: >"$work/hole"
dd if=/dev/zero bs=1048576 count=3 2>/dev/null >>"$work/hole"
lines new 3 "$today" >>"$work/hole"
ends_with old 2000 new 3 && ! grep -q skipped "$work/err"
ok $? 'a hole of zeros, where a program went on at its old place in a file that was cut, is no part of a line'
