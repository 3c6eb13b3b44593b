#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# demo.sh TOOL FOLDER -- the demo proves its books, with and without Redis, and leaves nothing behind.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 5
TMPDIR=$work
export TMPDIR

run 0 demo --no-redis && grep -q 'no unit sold twice, none lost' "$work/out"
ok $? 'without Redis the whole stock is sold, to the unit'
if command -v redis-server >/dev/null && ! "$tool" count --redis unix:///nowhere - </dev/null 2>&1 | grep -q 'built without'; then
    run 0 demo --engines 2 --threads 2 && grep -q 'KILLED' "$work/out" && grep -q 'no count lost or doubled' "$work/out" &&
        grep -q 'sold = stock: no unit sold twice, none left' "$work/out"
    ok $? 'with Redis, killed in the middle, the books agree, and the whole stock is sold'
    "$tool" demo >"$work/out" 2>"$work/err" &
    pid=$!
    background="$background $pid"
    wait_for 'visited' "$work/out" && kill -TERM $pid && wait $pid && grep -q 'no count lost or doubled' "$work/out"
    ok $? 'SIGTERM ends it early: the books agree all the same'
else
    ok 0 'with Redis, killed in the middle, the books agree # SKIP no redis-server'
    ok 0 'SIGTERM ends it early # SKIP no redis-server'
fi
[ -z "$(find "$work" -name 'tallywheel-demo-*')" ]
ok $? 'its folder is removed'
run 2 demo --engines 99 && err_has "--engines '99'"
ok $? 'more engines than there may be are wrong usage'
