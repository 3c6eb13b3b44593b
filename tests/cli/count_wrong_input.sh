#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_wrong_input.sh TOOL FOLDER -- wrong usage, unreadable files, lines that are none, outputs that take nothing.
# Goal: a clear sentence on standard error, the promised exit status, nothing counted wrong.
# Covers: tools/main.c, tools/common/options.c, tools/common/say.c, tools/common/tool.h, tools/count/fields.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 61
line='10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "agent"'
printf '%s\n' "$line" >"$work/log"
printf '2015-05-17T10:00:00Z\t10.0.0.1\t1\n' >"$work/one"

refused() { # SENTENCE TEXT ARGS...: a usage error that says TEXT
    sentence=$1 text=$2
    shift 2
    run 2 "$@" && err_has "$text" && [ ! -s "$work/out" ]
    ok $? "$sentence"
}
refused 'no command' 'name a command'
refused 'an unknown command' "unknown command 'cuont'; did you mean count?" cuont
refused 'a misspelt option' 'unknown option --windwo; did you mean --window?' count --windwo 1h "$work/log"
refused 'an unknown option' 'unknown option --frobnicate' count --frobnicate "$work/log"
refused 'an option without its value' '--key needs a value' count --key
refused 'a value where none is taken' '--follow takes no value' count --follow=yes "$work/log"
refused 'an unknown letter behind a file' 'unknown option -xyz' count "$work/log" -xyz
refused 'a value where none is taken, behind a file' '--follow takes no value' count "$work/log" --follow=yes
each_command() { # FUNCTION: it holds for each of them
    for word in audit count demo exporter plan reclaim reset show top; do "$1" "$word" || return 1; done
}
names_unknown() { run 2 "$1" file --frobnicate && err_has 'unknown option --frobnicate' && [ ! -s "$work/out" ]; }
each_command names_unknown
ok $? 'an unknown option of each command is named'
names_nearest() { run 2 "$1" --helo && err_has 'unknown option --helo; did you mean --help?'; }
each_command names_nearest
ok $? 'a misspelt option of each command is recognised'
has_help() {
    run 0 "$1" --help && grep -q "^Usage: tallywheel $1" "$work/out" && cp "$work/out" "$work/help" && run 0 "$1" -h &&
        same "$work/out" "$work/help" && ! "$tool" "$1" --help >/dev/full 2>"$work/err" && err_has 'cannot write the output'
}
each_command has_help
ok $? 'each command shows its help, and says if it cannot'
refused 'a format that is none' "--format 'cmbined': did you mean combined?" count --format cmbined "$work/log"
refused 'an output that is none' "--output 'xml'" count --output xml "$work/log"
refused 'a key field of 0' "--key '0'" count --key 0 "$work/log"
refused 'a key list with a hole' "--key '1,,2'" count --key 1,,2 "$work/log"
refused 'a key for tsv' '--key goes with' count --format tsv --key 2 "$work/log"
refused 'a window without unit' "--window '60'" count --window 60 "$work/log"
refused 'a window of nothing' "--window '0h'" count --window 0h "$work/log"
refused 'a window of 200 years' "--window '73000d'" count --window 73000d "$work/log"
refused 'a window of eleven years, with the longest that there is' 'up to 3660d' count --window 4000d "$work/log"
run 0 count --window 3660d "$work/log"
ok $? 'the longest that it names is taken'
refused 'distinct values of no field' "--distinct '0'" count --distinct 0 "$work/log"
refused 'distinct values of another field of tsv' '--distinct 3' count --format tsv --distinct 4 "$work/log"
refused 'distinct hosts of a format without one' "--distinct 'host'" count --format dpkg --distinct host "$work/log"
refused 'a host as the key of a format without one' "--key 'host'" count --format dpkg --key host "$work/log"
refused 'an offset that is none' "--utc-offset '8'" count --utc-offset 8 "$work/log"
refused 'an offset past 14 hours' "--utc-offset '+15:00'" count --utc-offset +15:00 "$work/log"
refused 'no memory at all' "--memory '0'" count --memory 0 "$work/log"
refused 'a size that is none' "--memory '12X'" count --memory 12X "$work/log"
refused 'memory below what an engine takes' '--memory' count --memory 1K "$work/log"
refused '--top 0' "--top '0'" count --top 0 "$work/log"
refused '--threads 0' "--threads '0'" count --threads 0 "$work/log"
refused '--threads 1000000' "--threads '1000000'" count --threads 1000000 "$work/log"
refused '--lateness without --follow' '--lateness goes with --follow' count --lateness 1s "$work/log"
refused '--retention without --redis' '--retention goes with --redis' count --retention 1d "$work/log"
refused 'a demo with arguments' 'demo takes no argument' demo now

run 1 count "$work" && err_has "$work: is a directory, not a file" && [ ! -s "$work/out" ]
ok $? 'a directory instead of a file'
run 1 count "$work/absent" && err_has "$work/absent: No such file or directory"
ok $? 'a file that is not there'
run 1 count --output tsv "$work/absent" "$work/log" && err_has 'No such file' && same "$work/out" "$work/one"
ok $? 'the other files are counted all the same'
run 1 count --output tsv - <"$work" && err_has 'standard input'
ok $? 'a directory as standard input'
"$tool" count --output tsv - <&- >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && err_has '(standard input): Bad file descriptor'
ok $? 'no standard input at all'

: >"$work/empty"
run 0 count --output tsv "$work/empty" && [ ! -s "$work/out" ] && err_is_empty
ok $? 'an empty file is no mistake'
printf 'nonsense\nmore of it\n' >"$work/nonsense"
run 1 count --output tsv "$work/nonsense" && [ ! -s "$work/out" ] &&
    err_has "2 lines skipped, first: $work/nonsense:1: no time in brackets" && err_has 'no line could be read'
ok $? 'lines, and none of them readable'
printf 'nonsense\n%s' "$line" | "$tool" count --output tsv - >"$work/out" 2>"$work/err"
[ $? -eq 0 ] && same "$work/out" "$work/one" && err_has '1 line skipped, first: (standard input):1: no time in brackets'
ok $? 'one line is read and one is skipped'

{
    printf '%s\n' "$line"
    head -c 3000000 /dev/zero | tr '\0' 'x'
    printf '\n%s\n' "$line"
} >"$work/long"
run 0 count --output tsv "$work/long" && printf '2015-05-17T10:00:00Z\t10.0.0.1\t2\n' | cmp -s - "$work/out" &&
    err_has "1 line skipped, first: $work/long:2: longer than 1 MiB"
ok $? 'a line of 3 MB is skipped as one'
long_lines() { # TAIL: a line of 1 MiB and one that is a byte longer; TAIL: what follows, a newline or nothing
    for size in 1048576 1048577; do
        printf '1431857103\t%d\t' $size
        awk -v size=$((size - 19)) 'BEGIN { while (size-- > 0) printf "x" }'
        if [ $size = 1048576 ]; then echo; else printf "%b" "$1"; fi
    done
}
long_lines '\n' >"$work/mib"
printf '2015-05-17T10:00:00Z\t1048576\t1\n' >"$work/want"
one_is_too_long() { same "$work/out" "$work/want" && err_has '1 line skipped, first: ' && err_has ':2: longer than 1 MiB'; }
set -- count --format tsv --distinct 3 --output tsv
run 0 "$@" "$work/mib" && one_is_too_long && run 0 "$@" - <"$work/mib" && one_is_too_long &&
    long_lines '' | "$tool" "$@" - >"$work/out" 2>"$work/err" && one_is_too_long
ok $? 'a line of 1 MiB counts, a longer one is skipped'
# The lines come at once: of a pipe that is silent for a second no old lines are expected any more.
timeout 100 "$tool" "$@" --follow - <"$work/mib" >"$work/out" 2>"$work/err" && one_is_too_long
ok $? 'with --follow, too'
{
    head -c 700000 /dev/zero | tr '\0' 'x'
    printf '\n'
    head -c 1100 /dev/zero | tr '\0' 'k'
    printf ' - - [17/May/2015:10:05:03 +0000] "-"\n'
    head -c 1024 /dev/zero | tr '\0' 'k'
    printf ' - - [17/May/2015:10:05:03 +0000] "-"\n'
} >"$work/keys"
run 0 count --output tsv "$work/keys" && err_has "2 lines skipped" && [ "$(wc -c <"$work/out")" -eq 1048 ]
ok $? 'a key of 1,024 bytes counts, one of 1,100 is skipped'

printf '1431857103\ta\t9007199254740992\n' >"$work/tsv"
for bad in '1431857103' "x${tab}a" "1431857103${tab}" "1431857103${tab}a${tab}x" "1431857103${tab}a${tab}1${tab}2" \
    "9999999999999${tab}a" "1431857103${tab}a${tab}9007199254740993" "1431857103${tab}a${tab}99999999999999999999" \
    "1431857103.5${tab}a" "${tab}a" "1431857103${tab}a${tab}"; do
    printf '%s\n' "$bad"
done >>"$work/tsv"
run 0 count --format tsv --output tsv "$work/tsv" && err_has "11 lines skipped, first: $work/tsv:2: no tab after the time" &&
    printf '2015-05-17T10:00:00Z\ta\t9007199254740992\n' | cmp -s - "$work/out"
ok $? 'broken tsv lines count nothing'
awk 'BEGIN { for (i = 0; i < 300; i++) print "1431857103\ta\t9007199254740992" }' >"$work/sum"
run 0 count --format tsv --output tsv --threads 1 "$work/sum" && err_has 'the count would exceed' &&
    awk -F "$tab" '{ exit !($3 == 255 * 9007199254740992 || $3 == 256 * 9007199254740992) }' "$work/out"
ok $? 'a sum that would pass 2^61 - 1 is refused line by line'

for bad in '32/May/2015:10:05:03 +0000' '29/Feb/2015:10:05:03 +0000' '17/Mai/2015:10:05:03 +0000' '17/May/2015:24:05:03 +0000' \
    '17/May/2015:10:60:03 +0000' '17/May/2015:10:05:61 +0000' '17/May/2015:10:05:03 0000' '17/May/2015:10:05:03 +1500' \
    '17/May/2015 10:05:03 +0000' '7/May/2015:10:05:03 +0000' '17/May/2015:10:05:03'; do
    printf '10.0.0.1 - - [%s] "GET /"\n' "$bad"
done >"$work/times"
run 1 count "$work/times" && err_has '11 lines skipped'
ok $? 'times that no calendar has'

"$tool" count "$work/log" >/dev/full 2>"$work/err"
[ $? -eq 1 ] && err_has 'cannot write the output: No space left on device'
ok $? 'a full disk'
"$tool" --help >/dev/full 2>"$work/err"
[ $? -eq 1 ]
ok $? 'a full disk under --help'
awk 'BEGIN { for (i = 0; i < 100000; i++) print "1431857103\tkey" i }' >"$work/many"
{
    "$tool" count --format tsv --output tsv "$work/many" 2>"$work/err"
    echo $? >"$work/status"
} | head -n 1 >"$work/out"
[ "$(cat "$work/status")" -eq 1 ] && err_is_empty && [ "$(wc -l <"$work/out")" -eq 1 ]
ok $? 'a closed pipe is no news to anybody'
"$tool" count "$work/log" >&- 2>"$work/err"
[ $? -eq 1 ] && err_has 'cannot write the output'
ok $? 'no standard output at all'

awk 'BEGIN { for (i = 0; i < 300000; i++) printf "%d\tkey-%020d\n", 1431857103, i % 150000 }' >"$work/crowd"
run 1 count --format tsv --output tsv --memory 4M "$work/crowd" && err_has 'memory did not suffice for every key' &&
    missing=$(sed -n 's/.* \([0-9]*\) lines of keys that came late.*/\1/p' "$work/err") &&
    awk -F "$tab" -v missing="$missing" '$3 > 2 { wrong = 1 } { sum += $3 }
        END { exit wrong || NR < 1000 || NR >= 150000 || sum + missing != 300000 }' "$work/out"
ok $? 'memory that does not suffice: every line is in the output or among those reported as missing'

compressed() { # NAME BYTES: a file that begins with them
    printf '%b' "$2" >"$work/$1"
    head -c 70000 /dev/urandom >>"$work/$1"
    run 1 count --output tsv "$work/$1" "$work/log" && err_has "$work/$1: is compressed ($1)" && same "$work/out" "$work/one" &&
        ! err_has 'lines skipped' >"$work/said"
    ok $? "a file that is compressed by $1 is said to be so; the others are counted"
}
compressed bzip2 'BZh9'
compressed xz '\03757zXZ\0000'

mkfifo "$work/pipe"
"$tool" count --output tsv - <"$work/pipe" >"$work/out" 2>"$work/err" &
pid=$!
exec 3>"$work/pipe"
printf '%s\n%.20s' "$line" "$line" >&3
sleep 0.5
kill -INT $pid
wait $pid
[ $? -eq 130 ] && same "$work/out" "$work/one" && err_has 'stopped by SIGINT'
ok $? 'SIGINT prints what was counted, and ends with 130; the half line that was read last is none'
exec 3>&-
mkfifo "$work/fifo"
"$tool" count --output tsv "$work/fifo" "$work/log" >"$work/out" 2>"$work/err" &
pid=$!
sleep 0.5
kill -TERM $pid
wait $pid
[ $? -eq 143 ] && err_has 'stopped by SIGTERM'
ok $? 'SIGTERM ends the wait for a named pipe that nobody writes, with 143'

stuck_reader "$work/stuck"
awk 'BEGIN { for (i = 0; i < 30000; i++) print "1431857103\tkey" i }' >"$work/many"
"$tool" count --format tsv --output tsv "$work/many" >"$work/stuck" 2>"$work/err" &
interrupt_print $! TERM
[ $status -eq 143 ] && err_has 'stopped by SIGTERM: not everything was printed'
ok $? 'one signal ends a print whose reader takes nothing'
