#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# examples.sh EXAMPLE FOLDER -- the example with_redis against a real Redis, twice.
# Elsewhere: every example runs as a test of its own, with_redis only as far as it goes without a server.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
if ! redis_is_installed; then
    echo '1..0 # SKIP redis-server is not installed'
    exit 0
fi
plan 3
redis_start
TALLYWHEEL_REDIS="unix://$work/redis.sock"
export TALLYWHEEL_REDIS
run 0 && [ "$(cat "$work/out")" = '0 plays before, 100 now, over all processes' ]
ok $? 'it counts a hundred'
run 0 && [ "$(cat "$work/out")" = '100 plays before, 200 now, over all processes' ]
ok $? 'run again, it goes on from there'
[ "$(ask GET plays:film-7)" = 200 ]
ok $? 'and Redis says so itself'
