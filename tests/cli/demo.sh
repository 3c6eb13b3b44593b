#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# demo.sh TOOL FOLDER -- the demo proves its books, with and without Redis, and leaves nothing behind.
# Covers: tools/demo/demo.c, tools/demo/demo_local.c, tools/demo/demo_redis.c, tools/demo/demo_worker.c,
# tools/demo/demo_cluster.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 7
TMPDIR=$work
export TMPDIR

# With a cluster, beside the others: most of the time it waits.
"$tool" demo --cluster --engines 2 --threads 2 >"$work/cluster.out" 2>"$work/cluster.err" &
cluster=$!
background="$background $cluster"

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
    wait $cluster && grep -q 'a Redis Cluster of three masters' "$work/cluster.out" &&
        grep -q 'master [123] KILLED' "$work/cluster.out" && grep -q 'no count lost or doubled' "$work/cluster.out" &&
        grep -q 'sold = stock: no unit sold twice, none left' "$work/cluster.out"
    ok $? 'with a cluster, of which the master with the stock is killed, the books agree, and the whole stock is sold'
else
    skip 'with Redis, killed in the middle, the books agree' 'redis-server is not installed: apt-get install redis-server'
    skip 'SIGTERM ends it early' 'redis-server is not installed: apt-get install redis-server'
    wait $cluster && grep -q 'no redis-server here' "$work/cluster.out"
    ok $? 'without redis-server there is no cluster, and the demo says so'
fi
[ -z "$(find "$work" -name 'tallywheel-demo-*')" ]
ok $? 'its folder is removed'
run 2 demo --engines 99 && err_has "--engines '99'"
ok $? 'more engines than there may be are wrong usage'
run 2 demo --cluster --no-redis && err_has 'exclude each other'
ok $? 'a cluster without Redis is wrong usage'
