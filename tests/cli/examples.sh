#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# examples.sh EXAMPLE FOLDER -- what examples print; those that use Redis, against a real one. EXAMPLE is with_redis, the others
# lie beside it. Elsewhere: every other example runs as a test of its own, without a server.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
beside=${tool%with_redis}
plan 17
tool=${beside}event_time
run 0 && [ "$(tr '\n' ';' <"$work/out")" = 'search: 2 errors two hours ago, 1 now; 1 line too old;disk: 3 errors dealt with;' ]
ok $? 'lines of a log are counted in their own hour'
tool=${beside}quotas
run 0 && [ "$(tr '\n' '.' <"$work/out")" = '3 of 5 mails sent, then claim 1 denied; 3 of the minute used.exported 700 rows, then 300.' ]
ok $? 'what one quota denies costs the other nothing, and of a limit there is what is left'
tool=${beside}metrics
run 0 && [ "$(cat "$work/out")" = 'tallywheel_increments_total{service="films"} 42' ]
ok $? 'a page is written after the engine has stopped'
tool=${beside}dimensions
run 0 && [ "$(cat "$work/out")" = 'this server: views 1000 likes 100 shares 10' ]
ok $? 'the dimensions of an article are read together'
tool=${beside}ranking
run 0 && [ "$(head -n 2 "$work/out" | tr -s ' ' | tr '\n' ';')" = '1. newcomer 11000;2. evergreen 5000;' ]
ok $? 'a list of the hour and one of the day are merged'
if ! redis_is_installed; then
    for rest in 6 7 8 9 10 11 12 13 14 15 16 17; do skip "example $rest" "redis-server is not installed: apt-get install redis-server"; done
    exit 0
fi
tool=${beside}with_redis
run 2 && err_has 'TALLYWHEEL_REDIS=redis://localhost'
ok $? 'without a server it says how to name one'
redis_start
TALLYWHEEL_REDIS="unix://$work/redis.sock"
export TALLYWHEEL_REDIS
run 0 && [ "$(cat "$work/out")" = '0 plays before, 100 now, over all processes' ]
ok $? 'it counts a hundred'
run 0 && [ "$(cat "$work/out")" = '100 plays before, 200 now, over all processes' ]
ok $? 'run again, it goes on from there'
[ "$(ask GET plays:film-7)" = 200 ]
ok $? 'and Redis says so itself'
tool=${beside}flash_sale
run 0 && [ "$(cat "$work/out")" = '500 of 500 phones sold, 50 of 50 books paid' ]
ok $? 'two servers sell the whole stock, to the unit'
tool=${beside}submit_once
run 0 && [ "$(cat "$work/out")" = 'submitted four times: 500 201 409 409; orders: 1' ]
ok $? 'a form that is submitted four times is one order'
tool=${beside}online_users
run 0 && [ "$(tr '\n' ' ' <"$work/out")" = '3 online 7 online 7 online 3 online ' ]
ok $? 'each server shows the users of both, and those of the closed one are gone'
tool=${beside}downloads
run 0 && [ "$(tr '\n' ';' <"$work/out")" = '2 of 5 downloads had to wait, 1 could begin later;cleaned up alone;' ]
ok $? 'a slot that is given back is free, and a lock has one holder'
run 0 && [ "$(tail -n 1 "$work/out")" = 'cleaned up alone' ]
ok $? 'who comes next has the lock at once'
tool=${beside}dimensions
run 0 && [ "$(tail -n 1 "$work/out")" = 'all servers: likes 100 shares 10 views 1000' ]
ok $? 'Redis has what two servers counted of an article'
[ "$(ask HGET articles:article:7 views)" = 1000 ]
ok $? 'and says so itself'
tool=${beside}ranking
run 0 && [ "$(head -n 1 "$work/out" | tr -s ' ')" = '1. newcomer 11000' ] && grep -qx 'newcomer is number 1 of the hour' "$work/out"
ok $? 'the lists are those of Redis'
