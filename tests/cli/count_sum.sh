#!/bin/sh
# shellcheck disable=SC2181,SC2016  # a status is looked at where it is compared; programs of awk stand in single quotes
# count_sum.sh TOOL FOLDER -- count --sum: a field is added up beside the counts, on the terminal and in Redis, and there
# exactly once, however runs end.
# Method: awk's sums; a redis-server of the test's own; a run with --resume is killed in the middle, again and again.
# Covers: tools/count/rows.c, tools/count/print.c, tools/count/counter.c, tools/count/step.c, tools/count/line_where.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
need_redis
plan 16

awk -v seed="$seed" 'BEGIN {
    srand(seed)
    for (i = 0; i < 20000; i++) {
        h = int(rand() * 24)
        bytes = i % 9 == 0 ? "-" : int(rand() * 100000)
        printf "10.0.0.%d - - [17/May/2015:%02d:%02d:%02d +0000] \"GET /%d HTTP/1.1\" %d %s \"-\" \"a\"\n", rand() * rand() * 300, h, rand() * 60, rand() * 60, rand() * 9, rand() * 2 < 1 ? 200 : 404, bytes
    }
}' >"$work/log"
# rows SIZE SUFFIX: window, client, count, sum
rows() {
    awk -v size="$1" -v suffix="$2" '{ k = substr("2015-05-17T" substr($4, 14), 1, size) suffix "\t" $1; n[k]++; s[k] += $10 }
        END { for (k in n) printf "%s\t%d\t%d\n", k, n[k], s[k] }' "$work/log" | sort_rows
}
rows 13 :00:00Z >"$work/want"
for threads in 1 4; do
    run 0 count --sum bytes --output tsv --threads $threads "$work/log" && same "$work/out" "$work/want" && err_is_empty
    ok $? "bytes beside counts, threads: $threads; a dash is nothing"
done
run 0 count --sum 7 --output csv "$work/log" && sed 's/\t/,/g; 1i window,key,count,sum' "$work/want" >"$work/csv" && same "$work/out" "$work/csv"
ok $? 'csv, the field by its number'
run 0 count --sum bytes --output json "$work/log" && python3 -c 'import json, sys
rows = ["%s\t%s\t%d\t%d\n" % (w["window"], c["key"], c["count"], c["sum"]) for w in json.load(open(sys.argv[1])) for c in w["counts"]]
assert "".join(rows) == open(sys.argv[2]).read()' "$work/out" "$work/want"
ok $? 'json'
awk -F "$tab" '{ if ($1 != last) shown = 0; last = $1; if (shown++ < 3) print }' "$work/want" >"$work/top"
run 0 count --sum bytes --output tsv --top 3 "$work/log" && same "$work/out" "$work/top"
ok $? '--top goes by counts'
sum=$(awk '{ s += $10 } END { printf "%d", s }' "$work/log")
run 0 count --sum bytes --window all "$work/log" && [ "$(head -n 1 "$work/out" | tr -d ,)" = "All  20000 counts of $(cut -f 2 "$work/want" | sort -u | wc -l) keys sum $sum" ]
ok $? 'table: the sum of everything is in the heading'
rows 0 all >"$work/all"
awk '{ print "{\"ts\":1431857103,\"k\":\"" $1 "\",\"b\":" ($10 == "-" ? "null" : NR % 2 ? $10 : "\"" $10 "\"") "}" }' "$work/log" >"$work/json"
run 0 count --sum b --key k --window all --output tsv "$work/json" && same "$work/out" "$work/all" &&
    run 0 count --sum bytes --log-format '%h %l %u %t "%r" %s %b "%{Referer}i" "%{User-Agent}i"' --window all --output tsv "$work/log" && same "$work/out" "$work/all"
ok $? 'JSON, where null is nothing, and --log-format'
printf '{"ts":1431857103,"k":"a","b":%s}\n' 1.5 9007199254740993 '"x"' 7 -3 9007199254740992 '"-"' >"$work/odd"
run 0 count --sum b --key k --window all --output tsv "$work/odd" && err_has '3 lines skipped, first: ' && err_has 'the field of --sum is no whole number' &&
    printf 'all\ta\t4\t9007199254740996\n' | cmp -s - "$work/out"
ok $? 'what is no whole number is reported with its line; others may be negative'
usage() { # TEXT ARGS...
    text=$1
    shift
    run 2 count "$@" "$work/log" && err_has "$text"
}
usage '--sum goes with counts' --sum bytes --distinct user && usage '--sum goes with counts' --sum bytes --follow &&
    usage "--sum 'bytes,status'" --sum bytes,status && usage '--sum goes with' --sum 3 --format tsv &&
    usage 'it needs %n' --sum bytes --redis "$url" --redis-key '%k:%%n:%Y%m%d%H' && usage "--sum 'size'" --sum size --format combined
ok $? 'what it does not go with'

redis_start
# Redis has each line of these rows once: counts and sums.
is_exact() { # ROWS
    awk -F "$tab" '{ stamp = $1; gsub(/[-T:Z]/, "", stamp); stamp = substr(stamp, 1, 10)
        print "count:" $2 ":" stamp "\t" $3; if ($4 != 0) print "sum:" $2 ":" stamp "\t" $4 }' "$1" | sort >"$work/expected"
    { ask --scan --pattern 'count:*' && ask --scan --pattern 'sum:*'; } | sort >"$work/names"
    sed 's/^/GET /' "$work/names" | ask >"$work/values"
    paste "$work/names" "$work/values" >"$work/got"
    same "$work/got" "$work/expected"
}
run 0 count --sum bytes --output tsv --redis "$url" "$work/log" && same "$work/out" "$work/want" && is_exact "$work/want"
ok $? 'Redis: counts and sums, each under its name'
ttl=$(ask PTTL "$(ask --scan --pattern 'sum:*' | head -n 1)")
[ "$ttl" -gt $((7 * 86400000 - 600000)) ] && [ "$ttl" -le $((7 * 86400000 + 60000)) ]
ok $? 'sums live as long as counts'
run 0 count --sum bytes --output tsv --redis "$url" "$work/log" && same "$work/out" "$work/want"
ok $? 'a second run prints its own sums, not those in Redis'
ask FLUSHALL >/dev/null
run 0 count --sum bytes --output tsv --redis "$url" --batch once "$work/log" && run 0 count --sum bytes --output tsv --redis "$url" --batch once "$work/log" &&
    err_has 'was counted into this Redis before' && same "$work/out" "$work/want" && is_exact "$work/want"
ok $? '--batch: once'

ask FLUSHALL >/dev/null
ran=''
set -- count --sum bytes --output tsv --redis "$url" --batch steps --resume "$work/log"
position() { ask GET "$(ask --scan --pattern 'count-positions:steps:*:at')"; }
has_more() { [ "$(position | grep . || echo 0)" -gt "$last" ]; }
round=0
while [ $round -lt 4 ]; do
    last=$(position | grep . || echo 0)
    "$tool" "$@" >"$work/out" 2>"$work/err" &
    pid=$!
    # a run that ends before it is seen has nothing to be killed for
    wait_until has_more || break
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    ask --scan --pattern 'tw:lock:*' | sed 's/^/DEL /' | ask >/dev/null
    round=$((round + 1))
    [ "$(position)" -lt "$(wc -c <"$work/log")" ] || break
done
echo "# $round kills, the last at byte $(position)"
run 0 "$@" && is_exact "$work/want"
ok $? '--resume: killed again and again, the next run goes on, and each line is summed once'
run 0 "$@" && [ ! -s "$work/out" ] && is_exact "$work/want"
ok $? 'another run has nothing to add'
run 1 count --sum status --output tsv --redis "$url" --batch steps --resume "$work/log" && err_has 'was begun with another --format' && is_exact "$work/want"
ok $? 'another field under the same name is refused'
