#!/bin/sh
# standards.sh BUILD PROGRAM -- compiles the user's program as a user would: by the pkg-config file of the tree, in each
# language standard, with each compiler there is, warnings being errors; and runs each result, which starts by itself. Prints TAP.
set -u
build=$1
program=$2
header_dir=$(dirname "$program")/../../include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PKG_CONFIG_PATH="$build/meson-uninstalled"
# shellcheck source=tests/support/tap.sh disable=SC2154
. "$(dirname "$program")/../support/tap.sh"
# shellcheck disable=SC2034  # of tap.sh
explain=show_log
show_log() {
    sed 's/^/# /' "$work/log"
}

# try COMPILER LANGUAGE STANDARD
try() {
    if ! command -v "$1" >/dev/null 2>&1; then
        skip "$1 -std=$3" "$1 is not installed: apt-get install $1"
        return
    fi
    strict="-std=$3 -Wall -Wextra -pedantic -Werror"
    # eval: pkg-config quotes its flags for a shell. The header must also compile alone.
    eval "$1 -x $2 $strict -c -o '$work/program.o' '$program' $(pkg-config --cflags tallywheel-uninstalled)" >"$work/log" 2>&1 &&
        echo '#include <tallywheel.h>' | eval "$1 -x $2 $strict '-I$header_dir' -fsyntax-only -" >>"$work/log" 2>&1 &&
        eval "$1 -o '$work/program' '$work/program.o' $(pkg-config --libs tallywheel-uninstalled)" >>"$work/log" 2>&1 &&
        "$work/program" >>"$work/log" 2>&1
    ok $? "$1 -std=$3 compiles, links and runs"
}

echo 1..13
unset LD_LIBRARY_PATH
try gcc c c99
try gcc c c11
try g++ c++ c++11
try g++ c++ c++20
try gcc c c2x
try g++ c++ c++2b
try clang c c99
try clang c c11
try clang++ c++ c++11
try clang++ c++ c++20

ninja -C "$build" -t inputs product >"$work/log" 2>&1 && grep -q '^libtallywheel\.so' "$work/log" && grep -q '^libtallywheel\.a$' "$work/log"
ok $? 'what ./dev run builds is all that there is to link'
# The C++ header, by itself and in a program; without exceptions and RTTI, as some projects have it.
wrapper=$(dirname "$program")/wrapper.cc
if command -v g++ >/dev/null 2>&1; then
    eval "g++ -std=c++17 -Wall -Wextra -pedantic -Werror -fno-exceptions -fno-rtti -o '$work/wrapper' '$wrapper'" \
        "$(pkg-config --cflags --libs tallywheel-uninstalled)" >"$work/log" 2>&1 && "$work/wrapper" >>"$work/log" 2>&1
    ok $? 'tallywheel.hpp: g++ -std=c++17 compiles, links and runs'
else
    skip 'tallywheel.hpp' 'g++ is not installed: apt-get install g++'
fi
# shellcheck disable=SC2046
eval "gcc -o '$work/static' '$program' $(pkg-config --cflags tallywheel-uninstalled)" \
    "'$build/libtallywheel.a' $(pkg-config --static --libs-only-l tallywheel-uninstalled | sed 's/-ltallywheel//') -pthread" >"$work/log" 2>&1 &&
    "$work/static" >>"$work/log" 2>&1 && ! ldd "$work/static" | grep -q tallywheel
ok $? 'the static library does as well'
