#!/bin/sh
# shellcheck disable=SC2016,SC2181  # backticks that are text; a status is looked at where it is compared
# count_resume.sh TOOL FOLDER -- `count --batch NAME --resume`: however a run ends, the next one goes on, and each line is
# counted once.
# Method: a redis-server of the test's own; runs are killed at random moments; sums in Redis are compared with awk's. What
# makes it exact is looked at, too: that each batch of counts has its position (MONITOR).
# Covers: tools/count/resume.c, tools/count/marks.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
need_redis
plan 22
redis_start

lines() { # COUNT: of a log
    awk -v seed="$seed" -v count="$1" 'BEGIN {
        srand(seed)
        for (i = 0; i < count; i++) printf "%d\tkey%d\n", 1431857103 + i * 8, int(rand() * rand() * 300)
    }'
}
lines 10000 >"$work/log"
wanted() { # FILE...: every counter as "name<TAB>value", sorted
    awk '{ h = int(($1 - 1431820800) / 3600); n["count:" $2 ":" sprintf("201505%02d%02d", 17 + int(h / 24), h % 24)]++ }
        END { for (name in n) print name "\t" n[name] }' "$@" | sort
}
contents() {
    ask --scan --pattern 'count:*' | sort >"$work/names"
    sed 's/^/GET /' "$work/names" | ask >"$work/values"
    paste "$work/names" "$work/values"
}
is_exact() { # FILE...: Redis has each line of the files once
    wanted "$@" >"$work/want"
    contents >"$work/got"
    same "$work/got" "$work/want"
}
# A lock ends by itself three seconds after a run was killed. Here nothing of a killed run is on its way any more.
unlock() {
    ask --scan --pattern 'tw:lock:*' | sed 's/^/DEL /' | ask >/dev/null
}
position() { # NAME
    ask GET "$(ask --scan --pattern "count-positions:$1:*:at")"
}
resume() { # EXPECTED NAME FILE...
    wish=$1
    batch=$2
    shift 2
    run "$wish" count --format tsv --output tsv --redis "$url" --batch "$batch" --resume "$@"
}

# Slow input, so that the run is in the middle for sure.
slowly() { # NAME: $pid is the run; 4,000 lines have come
    rm -f "$work/fifo"
    mkfifo "$work/fifo"
    "$tool" count --format tsv --output tsv --redis "$url" --batch "$1" --resume - <"$work/fifo" >"$work/out" 2>"$work/err" &
    pid=$!
    exec 3>"$work/fifo"
    head -n 4000 "$work/log" >&3
    wait_until is_beyond "$1" 10000
}
is_beyond() { # NAME POSITION
    [ "$(position "$1" | grep . || echo 0)" -gt "$2" ]
}
slowly away
kill -9 "$redis"
wait "$redis" 2>/dev/null
tail -n +4001 "$work/log" >&3 & # it waits for the run, which waits for Redis
exec 3>&-
redis_start
wait $pid
[ $? -eq 0 ] && is_exact "$work/log"
ok $? 'Redis is killed in the middle and comes back: the run goes on'
ask FLUSHALL >/dev/null

run 0 count --format tsv --output tsv "$work/log" && cp "$work/out" "$work/rows"
resume 0 whole "$work/log" && err_is_calm && same "$work/out" "$work/rows" && is_exact "$work/log"
ok $? 'a run that nothing interrupts prints and sends what it reads'
resume 0 whole "$work/log" && err_has "goes on behind byte $(wc -c <"$work/log")" && [ ! -s "$work/out" ] && is_exact "$work/log"
ok $? 'a second run has nothing to add'

cp "$work/log" "$work/grown"
printf '1432857103\tlate\n1432857103\tlate\n14328571' >>"$work/grown"
resume 0 whole "$work/grown" && err_has 'its last line has no end yet' && printf '2015-05-28T23:00:00Z\tlate\t2\n' | cmp -s - "$work/out"
ok $? 'a file that has grown, under another name: what is new counts, but for half a line'
printf '03\tlate\n' >>"$work/grown"
gzip -c "$work/grown" >"$work/grown.gz"
resume 0 whole "$work/grown.gz" && is_exact "$work/grown"
ok $? 'the rest of that line, when the file has been compressed meanwhile'

before=$(ask --scan --pattern 'count*' | sort | cksum)
run 1 count --format tsv --window 1d --redis "$url" --batch whole --resume "$work/grown" && err_has 'was begun with another --format' &&
    run 1 count --format tsv --where 'key=key1' --redis "$url" --batch whole --resume "$work/grown" && err_has 'was begun with another' &&
    is_exact "$work/grown" && [ "$(ask --scan --pattern 'count*' | sort | cksum)" = "$before" ]
ok $? 'other options under the same name are refused'
run 1 count --format tsv --redis "$url" --batch whole "$work/grown" && err_has 'was begun with --resume, and goes on with it alone' &&
    resume 0 whole "$work/grown" && is_exact "$work/grown"
ok $? '--batch without --resume adds nothing to it, and leaves it as it is'
ask FLUSHALL >/dev/null
run 0 count --format tsv --redis "$url" --batch plain "$work/log" && resume 1 plain "$work/log" &&
    err_has 'was begun without --resume' && is_exact "$work/log" && [ "$(position plain)" = '' ]
ok $? '--resume adds nothing to what was counted without'

ask FLUSHALL >/dev/null
redis-cli -s "$work/redis.sock" MONITOR >"$work/monitor" &
monitor=$!
background="$background $monitor"
wait_for OK "$work/monitor"
resume 0 steps "$work/log"
ask ECHO the-end >/dev/null
wait_for the-end "$work/monitor"
kill $monitor
grep -i '"evalsha"\|"eval"' "$work/monitor" | grep '"count:key' >"$work/batches"
[ "$(wc -l <"$work/batches")" -gt 20 ] && ! grep -v '"count-positions:steps:[0-9a-f]*:at"' "$work/batches" | grep . >"$work/bare"
ok $? 'each batch that has counts has the position behind them'

# Ten kills at random moments after the run has sent something; each run goes on where Redis is. A busy machine may not
# look in time, and the first run ends whole: then it begins again.
ask FLUSHALL >/dev/null
lines 40000 >"$work/long"
size=$(wc -c <"$work/long")
came=0 round=0
while [ $round -lt 10 ]; do
    round=$((round + 1))
    at=$(position killed)
    "$tool" count --format tsv --redis "$url" --batch killed --resume "$work/long" >/dev/null 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! is_beyond killed "${at:-0}"; do :; done
    sleep "$(awk -v seed="$seed$round" 'BEGIN { srand(seed); print rand() * 0.01 }')"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    unlock
    at=$(position killed)
    echo "# killed at byte $at"
    if [ "${at:-0}" -lt "$size" ]; then came=$((came + 1)); fi
    if [ $came = 0 ] && [ $round = 10 ]; then
        ask FLUSHALL >/dev/null
        round=0
    fi
done
resume 0 killed "$work/long" && is_exact "$work/long" && [ "$came" -gt 0 ]
ok $? "killed at any moment ($came times in the middle): every line counts once"

ask FLUSHALL >/dev/null
slowly stopped
kill -INT $pid
wait $pid
[ $? -eq 130 ] && err_has 'stopped by SIGINT' && exec 3>&- && [ "$(position stopped)" -gt 10000 ] && resume 0 stopped "$work/log" &&
    is_exact "$work/log"
ok $? 'SIGINT ends it with 130, and leaves no lock; the next run goes on'
ask FLUSHALL >/dev/null
slowly lock
kill -9 $pid
wait $pid 2>/dev/null
exec 3>&-
resume 0 lock "$work/log" && is_exact "$work/log"
ok $? 'after kill -9 the next run waits for the lock to end, and goes on'
ask FLUSHALL >/dev/null
slowly both
resume 1 both "$work/log" >/dev/null && err_has 'another run counts under this name'
status=$?
tail -n +4001 "$work/log" >&3
exec 3>&-
wait $pid
[ $? -eq 0 ] && [ $status -eq 0 ] && is_exact "$work/log"
ok $? 'two runs under one name: the second one gives up, and changes nothing'
ask FLUSHALL >/dev/null
head -n 5000 "$work/log" >"$work/part"
resume 0 changed "$work/part"
tail -n +5001 "$work/log" | sed 's/key/kex/' >"$work/tail"
{
    head -n 4999 "$work/log"
    printf '1431857103\tanother-line\n'
    cat "$work/tail"
} >"$work/changed"
resume 1 changed "$work/changed" && err_has 'has other bytes before that; it was not counted' && is_exact "$work/part"
ok $? 'a file that begins alike and has other bytes before the position is refused'
head -n 100 "$work/log" >"$work/short"
resume 1 changed "$work/short" && err_has 'has other bytes before that' && is_exact "$work/part"
ok $? 'so is one that is shorter'
ask FLUSHALL >/dev/null
resume 1 twins "$work/part" "$work/log" && err_has "$work/log: begins with the same line as a file before it" && is_exact "$work/part"
ok $? 'of two files that begin alike the second one is refused'

ask FLUSHALL >/dev/null
ask LPUSH count:key1:2015051710 poison >/dev/null
resume 1 poison "$work/log" && err_has 'does not agree with its position' && resume 1 poison "$work/log" &&
    err_has 'nothing more is added under this name'
ok $? 'a key that Redis refuses ends it, and no later run adds anything'

ask FLUSHALL >/dev/null
head -c $(($(wc -c <"$work/grown.gz") / 2)) "$work/grown.gz" >"$work/cut.gz"
resume 1 cut "$work/cut.gz" && err_has 'end too early' && [ "$(position cut)" -gt 1000 ] && resume 0 cut "$work/grown.gz" &&
    is_exact "$work/grown"
ok $? 'a compressed file that was cut, and then came whole'

# What the command leaves in Redis is what docs/KEYS.md lists, and nothing else; a user with the permissions that it names
# may do all of it. What lives for seconds, or is there after a second try alone, may be missing.
ask FLUSHALL >/dev/null
ask ACL SETUSER counter on '>secret' resetchannels -@all '~count:*' '~tw:*' '~count-batches:*' '~count-positions:*' +evalsha +eval +ping \
    +info +time +get +hmget +hset +hscan +hdel +incrby +pttl +pexpire +pexpireat +zadd +zremrangebyscore +zcard +hget +set +del >/dev/null
user="unix://counter:secret@$work/redis.sock"
run 0 count --format tsv --redis "$user" --batch x1 "$work/part" && err_is_calm &&
    run 0 count --format tsv --redis "$user" --redis-key "count:steps:%k:%Y%m%d%H" --batch x2 --resume "$work/part" && err_is_calm &&
    run 0 count --format tsv --redis "$user" --redis-key "count:steps:%k:%Y%m%d%H" --batch x2 --resume "$work/log" &&
    [ "$(ask GET "$(ask --scan --pattern 'count-positions:x2:*:at')")" -eq "$(wc -c <"$work/log")" ]
allowed=$?
ask DEL count:key1:2015051710 >/dev/null && ask LPUSH count:key1:2015051710 poison >/dev/null
run 1 count --format tsv --redis "$user" --batch x3 --resume "$work/log" && err_has 'does not agree with its position' && [ $allowed -eq 0 ]
ok $? 'the permissions that docs/KEYS.md names suffice for --batch and --resume'
ask --scan | grep -v '^count:\|^tw:ledger:\|^tw:marker$\|^tw:live$' |
    sed 's/:[0-9a-f]\{16\}:/:<16 hex digits>:/; s/:x[123]\(:\|$\)/:NAME\1/; s/^\(tw:calls:count-batches:\)[a-z]*:/\1begun:/' | sort -u >"$work/there"
sed -n '/^### Keys of `tallywheel count`$/,/^### Names/p' "$2/../../docs/KEYS.md" | sed -n 's/^| \(`[^|]*\) |.*/\1/p' |
    grep -o '`[^`]*`' | tr -d '`' | grep : | sort -u >"$work/listed"
sed '/^tw:lock:/d; /^tw:calls:/d' "$work/listed" >"$work/lasting"
comm -23 "$work/there" "$work/listed" | sed 's/^/is not listed: /' >"$work/wrong"
comm -13 "$work/there" "$work/lasting" | sed 's/^/is not there: /' >>"$work/wrong"
sed 's/^/# /' "$work/wrong"
[ "$(wc -l <"$work/listed")" -gt 8 ] && [ ! -s "$work/wrong" ]
ok $? 'each key beside the counters is in the table of docs/KEYS.md, and the other way round'

refused() { # SAYS ARGS...
    says=$1
    shift
    run 2 count --format tsv "$@" "$work/log" && err_has "$says" && [ "$(wc -l <"$work/err")" -eq 1 ]
}
ask FLUSHALL >/dev/null
refused '--resume goes with --batch' --resume && refused '--resume goes with --batch' --redis "$url" --resume &&
    refused '--batch goes with --redis' --batch b --resume &&
    refused '--batch goes with input that ends' --redis "$url" --batch b --resume --follow &&
    refused '--distinct needs no --batch' --redis "$url" --batch b --resume --distinct 3 &&
    refused '--resume wants one Redis' --redis redis+cluster://localhost --batch b --resume &&
    refused '--resume takes no value' --redis "$url" --batch b --resume=1 && [ "$(ask DBSIZE)" -eq 0 ]
ok $? 'wrong combinations are one line, and change nothing'
run 1 count --format tsv --redis "unix://$work/none.sock" --batch b --resume "$work/log" && err_has 'nothing was counted' && [ ! -s "$work/out" ]
ok $? 'where Redis is away, nothing is counted'
