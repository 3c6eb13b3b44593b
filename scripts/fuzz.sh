#!/bin/sh
# fuzz.sh DIR SECONDS [RUNS] -- builds the fuzzers of tests/fuzz in DIR and lets each run for so long, or for so many
# inputs if that is less; inputs that took new ways stay in DIR/fuzz-corpus and are the first ones of the next time.
# For less than a minute each they are not optimised: then compiling takes a third of the processor time (0.46 s for a
# file, not 1.37), and a second has half as many inputs.
# Always true: each fuzzer says how many inputs it ran; what made one fail lies in DIR; without libFuzzer it exits with 77.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
mkdir -p "$1"
out=$(CDPATH='' cd -- "$1" && pwd)
seconds=$2 runs=${3:--1}

if ! clang -fsanitize=fuzzer -x c - -o "$out/fuzzer-there" 2>/dev/null <<'END'
#include <stddef.h>
int LLVMFuzzerTestOneInput(const void *data, size_t size) { return data == (void *)size; }
END
then
    echo "libFuzzer is not installed: apt-get install libclang-rt-14-dev, or the number of your clang"
    exit 77
fi
if [ "$seconds" -lt 60 ]; then level=0; else level=1; fi
build=$out/fuzz-O$level
if [ ! -f "$build/build.ninja" ]; then
    CC=clang meson setup "$build" "$root" -Doptimization=$level -Ddebug=true -Db_sanitize=address,undefined \
        -Db_lundef=false -Dredis=enabled -Dtests=disabled -Dfuzzers=true -Dchecks=3 \
        "-Dc_args=-fno-sanitize-recover=all -g1" || exit
fi
# shellcheck disable=SC2046  # names of targets
ninja -C "$build" $(ninja -C "$build" -t targets all | sed -n 's/^\(tests\/fuzz\/fuzz_[a-z_]*\): .*/\1/p') || exit

# clang of Debian 12 cannot place a sanitizer's shadow where the kernel spreads addresses widely.
if setarch -R true 2>/dev/null; then plain='setarch -R'; else plain='env'; fi
export root out plain seconds runs
# shellcheck disable=SC2016  # expanded by those shells
find "$build"/tests/fuzz -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x -print0 |
    xargs -0 -P "$(nproc 2>/dev/null || echo 2)" -I{} sh -c '
        name=${1##*/fuzz_}
        log=$out/fuzz-corpus/$name.log
        mkdir -p "$out/fuzz-corpus/$name"
        longest=$(find "$root/tests/fuzz/$name" -type f -printf "%s\n" | sort -n | tail -n 1)
        [ "$longest" -gt 8192 ] || longest=8192
        if ! $plain "$1" -max_total_time="$seconds" -runs="$runs" -max_len="$longest" -timeout=5 -print_final_stats=1 \
            -artifact_prefix="$out/" "$out/fuzz-corpus/$name" "$root/tests/fuzz/$name" >"$log" 2>&1; then
            tail -n 60 "$log"
            echo "fuzz_$name FAILED"
            exit 255
        fi
        echo "fuzz_$name: $(sed -n "s/^stat::number_of_executed_units: *//p" "$log") inputs"
    ' sh {}
