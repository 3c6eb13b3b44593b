#!/bin/sh
# instructions.sh PROGRAM [KEYS...] -- how many instructions tw_add() executes for a new key and for a key that is there,
# tw_add_many() for each key of 32, tw_acquire() by shape of the limit, tw_hold() and its release, each in each kind of
# engine, adds of one key again and again, a request through nginx (nginx_instructions.py), and a call from Python and
# LuaJIT (bindings_instructions.py), counted by callgrind: the same on a busy machine as on a quiet one.
# PROGRAM: bench/instructions of an optimised build.
# Always true: only these calls and what they call is counted, the caller's loop is not; a wrong answer, a wrong sum or a
# count of nothing fails.
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

# measure CALL FORM KEYS KEY_BYTES TOLD [SHAPE]: sets hit, and insert where CALL also makes the keys. callgrind writes
# FILE.1 before the first hit and FILE at the end.
measure() {
    call=$1 form=$2
    shift 2
    file=$work/out.$form.$1.$2.$3.${4:-}
    valgrind --tool=callgrind --toggle-collect="$call" --dump-before=bench_hit_all --callgrind-out-file="$file" \
        "$program" "$form" "$@" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    case $form in
    pin*) insert=- ;;
    *) insert=$(executed "$file.1" "$1") || fail 'callgrind counted no insert' ;;
    esac
    hits=$((10 * $1))
    if [ "$1" = 1 ]; then hits=10240; fi
    hit=$(executed "$file" $hits) || fail 'callgrind counted no hit'
}

echo 'instructions of one tw_add(), and of a key of tw_add_many(), all that they call included (sized: with keys_expected)'
printf '%8s %6s | %9s %11s %5s | %9s %11s %5s\n' keys bytes hit 'hit, sized' many new 'new, sized' many
for keys; do
    for bytes in 8 29 48 100; do
        size=$bytes
        if [ "$bytes" = 29 ]; then size=0; fi # natural keys, 29 bytes on average
        measure tw_add_many many "$keys" "$size" 0
        insert_many=$insert hit_many=$hit
        measure tw_add add "$keys" "$size" 1
        insert_sized=$insert hit_sized=$hit
        measure tw_add add "$keys" "$size" 0
        printf '%8s %6s | %9s %11s %5s | %9s %11s %5s\n' "$keys" "$bytes" "$hit" "$hit_sized" "$hit_many" \
            "$insert" "$insert_sized" "$insert_many"
    done
done

echo
echo 'instructions of one tw_acquire() of a key that is there (29 bytes, local), with a verdict and with NULL in its place'
printf '%8s %8s | %14s %6s %12s %6s | %15s %12s\n' keys shape admitted NULL denied NULL \
    'admitted, sized' denied
for keys; do
    for shape in fixed sliding gcra; do
        measure tw_acquire acquire "$keys" 0 0 $shape
        admitted=$hit
        measure tw_acquire acquire_silent "$keys" 0 0 $shape
        admitted_silent=$hit
        measure tw_acquire denied "$keys" 0 0 $shape
        denied=$hit
        measure tw_acquire denied_silent "$keys" 0 0 $shape
        denied_silent=$hit
        measure tw_acquire acquire "$keys" 0 1 $shape
        admitted_sized=$hit
        measure tw_acquire denied "$keys" 0 1 $shape
        printf '%8s %8s | %14s %6s %12s %6s | %16s %12s\n' "$keys" $shape "$admitted" "$admitted_silent" "$denied" \
            "$denied_silent" "$admitted_sized" "$hit"
    done
done

echo
echo 'instructions of one call with a key that is there (29 bytes, local, with a verdict), in an engine with a thread of its'
echo 'own, in one that processes share, and in a host-driven one that makes a turn in 512 calls'
printf '%8s %-25s | %10s %7s %7s\n' keys call 'own thread' shared hosted
# row KEYS NAME CALL FORM [SHAPE]
row() {
    keys=$1 name=$2 called=$3 kind=$4
    shift 4
    line=
    for engine in '' _shared _hosted; do
        measure "$called" "$kind$engine" "$keys" 0 0 "$@"
        line="$line $hit"
    done
    # shellcheck disable=SC2086  # three figures
    printf '%8s %-25s | %10s %7s %7s\n' "$keys" "$name" $line
}
for keys; do
    row "$keys" 'tw_add' tw_add add
    for shape in fixed sliding gcra; do
        row "$keys" "tw_acquire $shape" tw_acquire acquire $shape
        row "$keys" "tw_acquire $shape, denied" tw_acquire denied $shape
    done
    row "$keys" 'tw_hold, tw_hold_release' 'tw_hold*' hold
done

echo
echo 'instructions of one tw_acquire_all() of a key that is there in each family (29 bytes, local, fixed windows)'
printf '%8s | %9s %9s\n' keys two four
for keys; do
    line=
    for form in all_two all_four; do
        measure tw_acquire_all $form "$keys" 0 0
        line="$line $hit"
    done
    # shellcheck disable=SC2086  # two figures
    printf '%8s | %9s %9s\n' "$keys" $line
done

echo
echo 'instructions of one call with a key whose total is known, in a family with Redis (29 bytes, one engine)'
if command -v redis-server >/dev/null; then
    redis-server --port 0 --unixsocket "$work/redis" --save '' --appendonly no >"$work/redis.log" 2>&1 &
    redis=$!
    trap 'kill $redis; rm -rf "$work"' EXIT
    export BENCH_REDIS="$work/redis"
    while [ ! -S "$BENCH_REDIS" ] && kill -0 $redis; do sleep 0.1; done
    printf '%8s | %7s %16s\n' keys tw_add 'tw_acquire, soft'
    for keys; do
        measure tw_add add_synced "$keys" 0 0
        added=$hit
        measure tw_acquire acquire_synced "$keys" 0 0
        printf '%8s | %7s %16s\n' "$keys" "$added" "$hit"
    done
    unset BENCH_REDIS
else
    echo '(there is no redis-server)'
fi

echo
echo 'instructions of one add of one key again and again (29 bytes, local)'
printf '%14s %14s %16s %18s\n' 'tw_add' 'without view' 'tw_pin_add' 'without view'
line=
for form in add blind pin pin_blind; do
    call=tw_add
    case $form in pin*) call=tw_pin_add ;; esac
    measure $call $form 1 0 1
    line="$line $hit"
done
# shellcheck disable=SC2086  # four figures
printf '%14s %14s %16s %18s\n' $line

echo
echo 'instructions of one request through nginx, above one to a location without rules, beside the bound that was planned'
build=$(dirname "$program")/..
module=nginx/ngx_http_tallywheel_module.so
if ninja -C "$build" -t query $module >/dev/null 2>&1; then
    ninja -C "$build" $module >&2
    python3 "$(dirname "$0")/nginx_instructions.py" "$build/$module"
else
    echo '(there is no nginx, or no nginx-dev)'
fi

echo
echo 'instructions of one call from another language, with the loop of its caller (a key that is there, local)'
library=$(ninja -C "$build" -t targets all | sed -n 's/^\(libtallywheel\.so[0-9.]*\): c_LINKER.*/\1/p')
ninja -C "$build" "$library" >&2
python3 "$(dirname "$0")/bindings_instructions.py" "$build/$library"
