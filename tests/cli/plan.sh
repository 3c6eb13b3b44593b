#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# plan.sh TOOL FOLDER -- `tallywheel plan` as a user types it. Elsewhere: whether its figures are right
# (unit/tools/memory_plan_test.c), and the output that docs/MEMORY.md shows (tests/user/pages.py).
# Covers: tools/count/plan.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 9

usage() { # MESSAGE ARGS...
    message=$1
    shift
    run 2 plan "$@" && err_has "$message" && [ ! -s "$work/out" ]
}
mib() { # the figure of a row of $work/out
    sed -n "s/^$1  *\([0-9.]*\) MiB.*/\1/p" "$work/out"
}
usage '--keys is wanted' && usage '--keys is wanted' --key-bytes 8
ok $? 'without a number of keys there is nothing to say'
usage "--keys '0'" --keys 0 && usage "--keys 'many'" --keys many && usage "--key-bytes '1025'" --keys 1 --key-bytes 1025 &&
    usage "--windows '257'" --keys 1 --windows 257 && usage "--open '0'" --keys 1 --open 0
ok $? 'a value that is none is named, with those that it takes'
usage "--keys '1m': a whole number from 1 to 4294967296 is wanted, and K, M or G may follow" --keys 1m &&
    usage "--keys '1.5M': a whole number from" --keys 1.5M && usage "--windows '1K': a whole number from 0 to 256 is wanted" --keys 1 --windows 1K &&
    ! grep -q 'may follow' "$work/err" &&
    run 0 plan --keys 1M && run 0 plan --keys 1K --key-bytes 1K
ok $? 'who writes 1m is told of 1M'
usage 'unknown option --bytes' --bytes 5 --keys 1 && usage "'5' is no option" --keys 1 5 &&
    usage '--keys needs a value' --keys
ok $? 'an unknown option, a word too much and a missing value are named'
run 0 plan --help && grep -q '^Usage: tallywheel plan' "$work/out" && err_is_empty
ok $? '--help'
run 0 plan --keys 1000000 --key-bytes 29 && err_is_empty && [ "$(mib 'at most')" = 280.7 ] && ! grep -q Redis "$work/out"
ok $? 'a million keys of 29 bytes'
run 0 plan --keys 1000000 --key-bytes 29 --redis && [ -n "$(mib 'in Redis, a window')" ] && [ "$(mib 'a window that takes counts')" = 131.6 ]
ok $? 'with Redis a record is larger, and Redis has a row'
run 0 plan --keys 4294967296 --key-bytes 1024 --windows 256 --open 256 --redis && [ "$(mib 'at most' | cut -d. -f1)" -gt 2000000000 ]
ok $? 'the greatest of all plans is a number still'
run 0 plan --keys 700M && ! grep -q 'more than an engine' "$work/out" && run 0 plan --keys 4G &&
    grep -q '^memory_bytes_max .*  more than an engine may have (256 GiB): use several, or count fewer keys$' "$work/out"
ok $? 'a plan that no engine would take says so'
