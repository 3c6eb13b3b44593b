#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# reclaim.sh TOOL FOLDER -- `tallywheel reclaim` frees what a dead process held of hard limits, and nothing else.
# Method: leases of a process that never was are written into a redis-server of the test's own, as docs/KEYS.md has them.
# Covers: tools/reclaim.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
need_redis
dead=00112233445566778899aabbccddeeff
other=ffeeddccbbaa99887766554433221100
plan 16

usage() { # MESSAGE ARGS...
    message=$1
    shift
    run 2 reclaim "$@" && err_has "$message" && [ ! -s "$work/out" ]
}
usage '--redis URL is wanted;' && usage '--redis URL is wanted;' sale "$dead" && usage 'a family is wanted;' --redis "$url" &&
    usage 'an instance, behind the family, is wanted;' --redis "$url" sale && usage "'more' is no option" --redis "$url" sale "$dead" more
ok $? 'Redis, one family and one instance are wanted, and what is missing is named'
usage 'unknown option --units' --units 5 && usage '--redis needs a value' sale "$dead" --redis
ok $? 'an unknown option, and one without its value, are named'
usage 'redis_url' --redis 'http://localhost' sale "$dead"
ok $? 'what is no URL of Redis is refused'
usage 'name' --redis "$url" 'a family' "$dead" && usage 'redis_key' --redis "$url" --redis-key 'no key' sale "$dead"
ok $? 'what is no name of a family, and no template, is refused'
run 0 reclaim --help && grep -q '^Usage: tallywheel reclaim' "$work/out" && err_is_empty
ok $? '--help'
run 1 reclaim --redis "$url" sale "$dead" && [ -s "$work/err" ]
ok $? 'where no Redis answers the exit status is 1'

lease() { # KEY INSTANCE GRANTED RETURNED SPENT [NEW-FIELDS]
    set_up "${6:-5}" ask HSET "$1" "$2" "1 $3 $4 $5 0" t "$(($3 - $4))" s "$5" e x l 100
}
field() { # KEY INSTANCE
    ask HGET "$1" "$2"
}
redis_start
refused=0
for wrong in '' 0123 "${dead}00" "$(echo "$dead" | tr 'f' 'g')" 'x*'; do
    usage 'is no instance' --redis "$url" sale "$wrong" && refused=$((refused + 1))
done
[ "$refused" -eq 5 ]
ok $? 'what is no instance is refused'

lease tw:lease:sale:tv "$dead" 40 0 10
lease tw:lease:sale:radio "$dead" 7 2 5
lease tw:lease:sales:tv "$dead" 40 0 10
lease tw:lease:sale:car "$other" 40 0 10
printf '30\n' >"$work/wanted"
run 1 reclaim --redis "$url" sale "$dead" && [ "$(cat "$work/out")" = 0 ] && err_has 'passed by up to 30 units' &&
    [ "$(field tw:lease:sale:tv "$dead")" = '1 40 0 10 0' ] && [ "$(ask HGET tw:lease:sale:tv t)" = 40 ]
ok $? 'without --force nothing is freed, and what may be is said'
run 0 reclaim --force --redis "$url" sale "$dead" && same "$work/out" "$work/wanted" && err_has 'passed by up to 30 units'
ok $? 'what was granted and not spent is freed by force, and said'
[ "$(field tw:lease:sale:tv "$dead")" = '1 40 30 10 0' ] && [ "$(ask HGET tw:lease:sale:tv t)" = 10 ] &&
    [ "$(field tw:lease:sale:radio "$dead")" = '1 7 2 5 0' ]
ok $? 'what was spent stays spent'
[ "$(field tw:lease:sales:tv "$dead")" = '1 40 0 10 0' ] && [ "$(field tw:lease:sale:car "$other")" = '1 40 0 10 0' ]
ok $? 'other families and other processes keep what they have'
printf '0\n' >"$work/wanted"
run 0 reclaim --redis "$url" sale "$dead" && same "$work/out" "$work/wanted" && err_is_empty &&
    run 0 reclaim --force --redis "$url" sale "$dead" && same "$work/out" "$work/wanted" && err_is_empty
ok $? 'a second time there is nothing to free'
usage 'no lease of family "nothing"' --redis "$url" nothing "$dead" &&
    usage "these have: $dead" --redis "$url" --force sales "$other"
ok $? 'a family, and an instance, without leases is an error that names those that have some'
set_up OK ask SET sale:tv 35
lease tw:lease:sale:tv "$dead" 40 0 10 0
printf '5\n' >"$work/wanted"
run 0 reclaim --force --redis "$url" sale "$dead" && same "$work/out" "$work/wanted"
ok $? 'what the counter has beyond all reports stays sold'
set_up 1 ask DEL sale:tv

lease app:tw:lease:stock:tv "$dead" 40 0 38
printf '2\n' >"$work/wanted"
run 0 reclaim --force --redis "$url" --prefix app: --redis-key 'stock:%k' sale "$dead" && same "$work/out" "$work/wanted"
ok $? 'a prefix and a template of its own lead to its leases'

lease tw:lease:sale:tv "$other" 40 0 10 1
# Some time ahead, so that no slowness makes it old.
set_up 1 ask EVAL "local t = redis.call('TIME') return redis.call('HSET', 'tw:leases', 'i:$other', (t[1] + 60) * 1000)" 0
run 1 reclaim --redis "$url" sale "$other" && err_has 'it is alive' && [ "$(field tw:lease:sale:tv "$other")" = '1 40 0 10 0' ]
ok $? 'of a process that Redis has just heard of nothing is freed'
