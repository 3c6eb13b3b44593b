#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# audit.sh TOOL FOLDER -- `tallywheel audit` tells each difference by key, and changes nothing.
# Method: counts land in a redis-server of the test's own; its totals are exported by redis-cli, and some are made wrong.
# Covers: tools/audit.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
need_redis
plan 10

# Every name, and every value.
contents() {
    ask --scan --pattern 'count:*' | sort >"$work/names"
    cat "$work/names"
    sed 's/.*/GET "&"/; s/\\/\\\\/' "$work/names" | ask
}
redis_start
awk 'BEGIN { for (i = 0; i < 2000; i++) printf "1431857103\tkey %d\\%d\n", i % 900, i % 900 }' >"$work/log"
run 0 count --format tsv --output tsv --redis "$url" "$work/log"
cut -f 2,3 "$work/out" >"$work/totals"

run 0 audit --redis "$url" --totals "$work/totals" --name 'count:%k:2015051710' --pattern 'count:*' && [ ! -s "$work/out" ] &&
    err_has '1 ledgers' && err_has '900 lines' && err_has '; 0 found'
ok $? 'what was counted is what Redis has: nothing is found, and the exit status says so'

ask INCRBY 'count:key 7\7:2015051710' 1 >/dev/null
ask DEL 'count:key 8\8:2015051710' >/dev/null
ask PERSIST 'count:key 9\9:2015051710' >/dev/null
printf 'no count\n' >>"$work/totals"
contents >"$work/before"
run 1 audit --redis "$url" --totals "$work/totals" --name 'count:%k:2015051710' --pattern 'count:*'
ok $? 'differences are exit status 1'
[ "$(grep -c . "$work/out")" -eq 4 ]
ok $? 'one line for each of them'
grep -q "^total${tab}count:key 7\\\\\\\\7:2015051710${tab}3${tab}4${tab}" "$work/out" &&
    grep -q "^total${tab}count:key 8\\\\\\\\8:2015051710${tab}3${tab}0${tab}the key is missing" "$work/out"
ok $? 'totals that differ: name, what the file says, what Redis holds'
grep -q "^no-expiry${tab}count:key 9\\\\\\\\9:2015051710${tab}-${tab}-${tab}" "$work/out" &&
    grep -q "^line${tab}-${tab}-${tab}-${tab}$work/totals:901: " "$work/out"
ok $? 'a key that never ends, and a line that is none, with file and line'
contents >"$work/after"
same "$work/after" "$work/before"
ok $? 'nothing was changed'

ask HSET article:7 views 12 likes 3 >/dev/null
ask ZADD ranking:2026 5 'a|b' 7 c >/dev/null
printf '7;views\t12\n7;likes\t4\n7;shares\t0\n' >"$work/fields"
printf 'a|b\t6\nc\t7\n' >"$work/members"
run 1 audit --redis "$url" --totals "$work/fields" --name 'article:%k' --shape hash --separator ';' &&
    printf 'total\tarticle:7\t4\t3\tthe counts differ\tlikes\n' | cmp -s - "$work/out" &&
    run 1 audit --redis "$url" --totals "$work/members" --name 'ranking:2026' --shape zset &&
    printf 'total\tranking:2026\t6\t5\tthe counts differ\ta|b\n' | cmp -s - "$work/out" &&
    run 2 audit --redis "$url" --shape list && err_has "--shape 'list': is one of string, hash, zset"
ok $? 'totals of hashes and sorted sets: the last column is the field or member'

run 2 audit && err_has '--redis' && run 2 audit --redis "$url" --nmae x && err_has 'did you mean --name?' &&
    run 2 audit --redis 'http://x' && run 2 audit --redis "$url" --name 'x' && err_has 'totals_name' &&
    run 2 audit --redis "$url" --keys-max many && err_has "--keys-max 'many'" && run 2 audit --redis "$url" file
ok $? 'wrong usage is exit status 2, and says what is wrong'

run 1 audit --redis "unix://$work/nobody.sock" && [ ! -s "$work/out" ] && [ -s "$work/err" ] &&
    run 1 audit --redis "$url" --totals "$work/missing" && err_has 'totals_path'
ok $? 'a Redis or a file that is not there is exit status 1, and is named'

# A Redis whose snapshot failed refuses writes: an audit, which only reads, says so.
mkdir "$work/dump.rdb" # a snapshot cannot get this name
ask CONFIG SET save '3600 1' >/dev/null
ask BGSAVE >/dev/null 2>&1
snapshot_failed() {
    ask INFO persistence | grep -q 'rdb_last_bgsave_status:err'
}
snapshot_is_over() {
    snapshot_failed || ask INFO persistence | grep -q 'rdb_bgsave_in_progress:0'
}
wait_until snapshot_is_over
if snapshot_failed; then
    run 1 audit --redis "$url" && grep -q "^memory${tab}-${tab}-${tab}-${tab}the last snapshot failed: Redis refuses writes" "$work/out"
    ok $? 'a Redis that refuses writes (MISCONF) is a finding'
else
    skip 'a Redis that refuses writes (MISCONF) is a finding' 'no snapshot fails here: run it with a Redis that saves by fork'
fi
