#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# one_file.sh ROOT PROGRAM -- the library as one pair of files (scripts/amalgamate.py), compiled beside the user's program by
# one line, as its head says. Elsewhere: with Redis, with TLS, by other compilers (consumers.sh). Prints TAP.
set -u
root=$1
program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/tap.sh disable=SC2154
. "$root/tests/support/tap.sh"

# shellcheck disable=SC2034  # of tap.sh
explain=show_log
show_log() {
    head -n 20 "$work/log" | sed 's/^/# /'
}

echo 1..5
python3 "$root/scripts/amalgamate.py" "$work" >"$work/log" 2>&1 && cmp "$work/tallywheel.h" "$root/include/tallywheel.h" >>"$work/log" 2>&1
ok $? 'the pair is made, and its header is the header'

# The line of the head, in two steps: the object is looked at below.
cd "$work" || exit 2
gcc -c tallywheel.c >log 2>&1 && gcc -o program "$program" tallywheel.o -pthread -I. >>log 2>&1 &&
    ./program >>log 2>&1 && ! ldd program | grep -E 'libck|hiredis|libssl' >>log
ok $? 'a program compiled with it runs, and needs no library of others'

readelf -sW tallywheel.o | awk '$5 == "GLOBAL" && $6 == "DEFAULT" && $7 != "UND" && $8 !~ /^tw_/ { print "left visible: " $8; found = 1 }
    $8 == "tw_open" { open = 1 } END { exit found || !open }' >log 2>&1
ok $? 'only names that begin with tw_ leave a library that it is linked into'

# The system headers for 32 bits need not be there: nothing of them is looked at.
gcc -m32 -fsyntax-only tallywheel.c >log 2>&1
[ $? -ne 0 ] && [ "$(grep -c 'error:' log)" -eq 1 ] && grep -q 'error: #error "Tallywheel needs a 64-bit target"' log
ok $? 'a 32-bit target is refused in one line'
if command -v clang >/dev/null; then
    clang --target=s390x-linux-gnu -fsyntax-only tallywheel.c >log 2>&1
    [ $? -ne 0 ] && [ "$(grep -c 'error:' log)" -eq 1 ] && grep -q 'error: "Tallywheel needs a little-endian target"' log
    ok $? 'a big-endian target is refused in one line'
else
    skip 'a big-endian target is refused in one line' 'clang is not installed: apt-get install clang'
fi
