#!/bin/sh
# instructions.sh PROGRAM [KEYS...] -- how many instructions tw_add() executes for a new key and for a key that is there,
# counted by callgrind: the same on a busy machine as on a quiet one. PROGRAM: bench/instructions of an optimised build.
# Always true: only tw_add() and what it calls is counted, the caller's loop is not; a wrong sum or a count of nothing fails.
set -eu
if [ $# = 0 ]; then
    echo "usage: instructions.sh PROGRAM [KEYS...]" >&2
    exit 2
fi
program=$1
shift
if [ $# = 0 ]; then set -- 1024 65536; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { # WHY
    printf 'instructions.sh: %s\n' "$1" >&2
    exit 1
}

# executed FILE CALLS: what one call of FILE took.
executed() {
    awk -v calls="$2" '/^totals:/ { sum += $2 } END { if (sum == 0) exit 1; printf "%.0f", sum / calls }' "$1"
}

# measure KEYS KEY_BYTES TOLD: sets insert and hit. callgrind writes FILE.1 before the first hit and FILE at the end.
measure() {
    file=$work/out.$1.$2.$3
    valgrind --tool=callgrind --toggle-collect=tw_add --dump-before=bench_hit_all --callgrind-out-file="$file" \
        "$program" "$@" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    insert=$(executed "$file.1" "$1") || fail 'callgrind counted no insert'
    hit=$(executed "$file" $((10 * $1))) || fail 'callgrind counted no hit'
}

echo 'instructions of one tw_add(), all that it calls included (told: with keys_expected)'
printf '%8s %6s | %11s %9s | %11s %9s\n' keys bytes 'hit, told' untold 'new, told' untold
for keys; do
    for bytes in 8 29 48 100; do
        size=$bytes
        if [ "$bytes" = 29 ]; then size=0; fi # natural keys, 29 bytes on average
        measure "$keys" "$size" 1
        insert_told=$insert hit_told=$hit
        measure "$keys" "$size" 0
        printf '%8s %6s | %11s %9s | %11s %9s\n' "$keys" "$bytes" "$hit_told" "$hit" "$insert_told" "$insert"
    done
done
