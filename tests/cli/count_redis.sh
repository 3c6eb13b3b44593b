#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_redis.sh TOOL FOLDER -- the counts also land in Redis, exactly once.
# Method: a redis-server of the test's own on a unix socket; sums are read with redis-cli.
# Covers: tools/count/batch.c, tools/count/counter.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
need_redis
plan 22

# Every counter as "name<TAB>value", sorted.
contents() {
    ask --scan --pattern 'count:*' | sort >"$work/names"
    sed 's/^/GET /' "$work/names" | ask >"$work/values"
    paste "$work/names" "$work/values"
}
redis_start

awk -v seed="$seed" 'BEGIN {
    srand(seed)
    for (i = 0; i < 30000; i++) printf "%d\tkey%d\n", 1431857103 + int(rand() * 172800), int(rand() * 300)
}' >"$work/log"
# Names as the library renders them by default: count:KEY:YYYYmmddHH.
# On a crowded machine it may say that it waits.
run 0 count --format tsv --output tsv --redis "$url" "$work/log" && err_is_calm
ok $? 'it succeeds and has nothing to complain of'
awk -F "$tab" '{ stamp = $1; gsub(/[-T:Z]/, "", stamp); print "count:" $2 ":" substr(stamp, 1, 10) "\t" $3 }' "$work/out" |
    sort >"$work/want"
cp "$work/out" "$work/first"
contents >"$work/got"
same "$work/got" "$work/want"
ok $? 'each key of each window has in Redis what was printed'

ttl=$(ask PTTL "$(head -n 1 "$work/names")")
[ "$ttl" -gt $((7 * 86400000 - 600000)) ] && [ "$ttl" -le $((7 * 86400000 + 60000)) ]
ok $? 'windows that ended years ago live on for the seven days of --retention from now'

run 0 count --format tsv --output tsv --redis "$url" --threads 8 "$work/log" && same "$work/out" "$work/first"
ok $? 'a second run prints what it read itself, not what Redis holds'
keys=$(wc -l <"$work/want")
err_has "$keys of $keys counters held 30000 more than this run has counted" && err_has 'Were the same lines counted before?'
ok $? 'and says that it has counted on top of what was there'
head -n 100 "$work/log" | sed 's/key/other/' >"$work/new"
run 0 count --format tsv --redis "$url" "$work/new" && err_is_calm
ok $? 'new keys have nothing under them'
ask --scan --pattern 'count:other*' | xargs -r -n 50 redis-cli -s "$work/redis.sock" DEL >/dev/null
awk -F "$tab" '{ print $1 "\t" 2 * $2 }' "$work/want" >"$work/twice"
contents >"$work/got"
same "$work/got" "$work/twice"
ok $? 'and in Redis everything stands exactly twice'

run 0 count --format tsv --redis "$url" --redis-key 'hits:%Y-%m-%d:%k' --window 1d --retention 2d "$work/log" &&
    [ "$(ask EXISTS hits:2015-05-17:key7)" -eq 1 ] && [ "$(ask PTTL hits:2015-05-17:key7)" -le 172860000 ]
ok $? '--redis-key and --retention are obeyed'
run 2 count --format tsv --redis "$url" --redis-key 'hits:%k' "$work/log" && err_has '--redis-key'
ok $? 'names that are alike for two windows are wrong usage'
run 2 count --format tsv --redis 'http://example.com' "$work/log" && err_has '--redis'
ok $? 'a URL that is none of Redis is wrong usage'

# Each line's key is an element of one of three keys. PFCOUNT says what was printed; a second run changes nothing.
awk -F "$tab" '{ print $1 "\tpage" NR % 3 "\t" $2 }' "$work/log" >"$work/visits"
run 0 count --format tsv --window 7d --distinct 3 --output tsv --redis "$url" --redis-key 'seen:%k:%Y%m%d' "$work/visits" &&
    cp "$work/out" "$work/seen" &&
    run 0 count --format tsv --window 7d --distinct 3 --output tsv --redis "$url" --redis-key 'seen:%k:%Y%m%d' "$work/visits" &&
    same "$work/out" "$work/seen" && [ "$(wc -l <"$work/seen")" -ge 3 ] &&
    awk -F "$tab" '{ gsub(/-/, "", $1); print "PFCOUNT seen:" $2 ":" substr($1, 1, 8) }' "$work/seen" | ask >"$work/asked" &&
    cut -f 3 "$work/seen" >"$work/estimates" && same "$work/asked" "$work/estimates"
ok $? '--distinct: PFCOUNT has the estimates that were printed, after a second run, too'

# Redis stands still for half of a second, as on a busy machine.
{
    printf '1431857103\tpaused\n'
    sleep 0.5
    kill -STOP "$redis"
    printf '1431857103\tpaused\n'
    sleep 0.5
    kill -CONT "$redis"
} | "$tool" count --follow --format tsv --redis "$url" - >"$work/out" 2>"$work/err"
[ $? -eq 0 ] && err_is_calm && [ "$(ask GET count:paused:2015051710)" = 2 ]
ok $? 'a Redis that is slow for a moment is no outage'

# A batch has a name: however often it is run, it is counted once.
ask FLUSHALL >/dev/null
set -- count --format tsv --output tsv --redis "$url" --batch monday "$work/log"
run 0 "$@" && err_is_calm && same "$work/out" "$work/first" && contents >"$work/got" && same "$work/got" "$work/want"
ok $? '--batch: the counts land in Redis as ever'
run 0 "$@" && same "$work/out" "$work/first" && err_has '--batch monday: was counted into this Redis before; nothing was added' &&
    contents >"$work/got" && same "$work/got" "$work/want"
ok $? '--batch: a second run prints, and adds nothing'
ask DEL tw:once:count-batches:done:monday count-batches:done:monday >/dev/null
run 1 "$@" && err_has '--batch monday: was begun and is not done' && contents >"$work/got" && same "$work/got" "$work/want"
ok $? '--batch: what was begun and is not done is told, and never added again'
ask FLUSHALL >/dev/null
mkfifo "$work/half"
"$tool" count --format tsv --output tsv --redis "$url" --batch tuesday - <"$work/half" >"$work/out" 2>"$work/err" &
pid=$!
exec 3>"$work/half"
head -n 15000 "$work/log" >&3
kill -INT $pid
wait $pid
status=$?
exec 3>&-
[ $status -eq 130 ] && err_has '--batch tuesday: nothing was sent to Redis' && [ "$(ask --scan --pattern 'count:*' | wc -l)" -eq 0 ] &&
    run 0 count --format tsv --output tsv --redis "$url" --batch tuesday "$work/log" && contents >"$work/got" && same "$work/got" "$work/want"
ok $? '--batch: a run that was interrupted has sent nothing; the next one is the first'
run 0 count --format tsv --window all --output tsv --redis "$url" --batch wednesday "$work/log" &&
    [ "$(ask GET count:key7)" = "$(awk -F "$tab" '$2 == "key7" { print $3 }' "$work/out")" ]
ok $? '--batch and --window all: one key in Redis for all time'
"$tool" count --format tsv --redis "unix://$work/none.sock" --batch friday "$work/new" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && err_has '--batch friday: nothing was sent' && [ -s "$work/out" ]
ok $? '--batch: where Redis is away, nothing is sent, and that is told'

# A signal while the rows are printed, to a reader that takes nothing.
ask FLUSHALL >/dev/null
stuck_reader "$work/stuck"
"$tool" count --format tsv --output tsv --redis "$url" "$work/log" >"$work/stuck" 2>"$work/err" &
interrupt_print $! INT
contents >"$work/got"
[ $status -eq 130 ] && err_has 'stopped by SIGINT: not everything was printed' && same "$work/got" "$work/want"
ok $? 'a signal ends the printing, and every count arrives in Redis'
ask FLUSHALL >/dev/null
rm "$work/stuck"
stuck_reader "$work/stuck"
"$tool" count --format tsv --output tsv --redis "$url" --batch saturday "$work/log" >"$work/stuck" 2>"$work/err" &
interrupt_print $! INT
[ $status -eq 130 ] && err_has '--batch saturday: nothing was sent to Redis: a signal came before' && [ "$(ask DBSIZE)" -eq 0 ] &&
    run 0 count --format tsv --output tsv --redis "$url" --batch saturday "$work/log" && contents >"$work/got" && same "$work/got" "$work/want"
ok $? '--batch: a signal while it prints: nothing was sent, and the next run is the first'

# Redis goes away while the log is read, and comes back.
ask FLUSHALL >/dev/null
mkfifo "$work/pipe"
"$tool" count --format tsv --output tsv --redis "$url" - <"$work/pipe" >"$work/out" 2>"$work/err" &
pid=$!
exec 3>"$work/pipe"
head -n 15000 "$work/log" >&3
sleep 0.5
kill -9 $redis
wait $redis 2>/dev/null
tail -n +15001 "$work/log" >&3
exec 3>&-
sleep 0.5
redis_start
wait $pid
status=$?
contents >"$work/got"
[ $status -eq 0 ] && same "$work/out" "$work/first" && same "$work/got" "$work/want"
ok $? 'Redis is killed in the middle and comes back: every count is there, once'

kill -9 "$redis"
wait "$redis" 2>/dev/null
run 1 count --format tsv --output tsv --redis "$url" "$work/log" && same "$work/out" "$work/first" &&
    err_has '30000 counts in'
ok $? 'Redis stays away: the output is whole, what was not sent is reported, the exit status says so'
