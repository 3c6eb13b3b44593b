#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# examples.sh EXAMPLE FOLDER -- the examples that use Redis, against a real one; EXAMPLE is with_redis, the others lie beside it.
# Elsewhere: every other example runs as a test of its own, without a server.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
if ! redis_is_installed; then
    echo '1..0 # SKIP redis-server is not installed'
    exit 0
fi
plan 7
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
beside=${tool%with_redis}
tool=${beside}flash_sale
run 0 && [ "$(cat "$work/out")" = '500 of 500 phones sold, 50 of 50 books paid' ]
ok $? 'two servers sell the whole stock, to the unit'
tool=${beside}submit_once
run 0 && [ "$(cat "$work/out")" = 'submitted four times: 500 201 409 409; orders: 1' ]
ok $? 'a form that is submitted four times is one order'
tool=${beside}online_users
run 0 && [ "$(tr '\n' ' ' <"$work/out")" = '3 online 7 online 7 online 3 online ' ]
ok $? 'each server shows the users of both, and those of the closed one are gone'
