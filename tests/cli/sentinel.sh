#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# sentinel.sh TOOL FOLDER -- `tallywheel count` and `audit` with a redis+sentinel:// URL.
# Method: a redis-server and a sentinel of the test's own; the sentinel wants a login.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
need_redis
printf '1431857103\ta\n' >"$work/log"
plan 4

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

answer() {
    redis-cli -p "$sentinel_port" --user watcher -a hush --no-auth-warning PING 2>/dev/null | grep -q PONG && redis_answers
}
answer_or_end() {
    answer || ! kill -0 "$server" 2>/dev/null || ! kill -0 "$pid" 2>/dev/null
}

# A server's port may be taken between its choice and its use: tried anew.
for _ in 1 2 3 4 5; do
    port=$(free_port) sentinel_port=$(free_port)
    redis-server --port "$port" --bind 127.0.0.1 --unixsocket "$work/redis.sock" --dir "$work" --save '' >"$work/redis.log" 2>&1 &
    server=$!
    background="$background $server"
    mkdir -p "$work/sentinel"
    {
        echo "sentinel monitor shop 127.0.0.1 $port 1"
        echo 'user default off'
        echo 'user watcher on >hush -@all +sentinel|get-master-addr-by-name +ping'
    } >"$work/sentinel/sentinel.conf"
    redis-server "$work/sentinel/sentinel.conf" --sentinel --port "$sentinel_port" --bind 127.0.0.1 --dir "$work/sentinel" \
        >"$work/sentinel.log" 2>&1 &
    pid=$!
    background="$background $pid"
    wait_until answer_or_end && answer && break
done
url="redis+sentinel://127.0.0.1:$sentinel_port/shop"

run 1 audit --redis "$url" && err_has "sentinel 127.0.0.1:$sentinel_port" && err_has 'NOAUTH'
ok $? 'a sentinel that wants a login is named, with its refusal'

TALLYWHEEL_SENTINEL_USER=watcher TALLYWHEEL_SENTINEL_PASSWORD=hush
export TALLYWHEEL_SENTINEL_USER TALLYWHEEL_SENTINEL_PASSWORD
run 0 count --format tsv --redis "$url" "$work/log" && [ "$(ask GET count:a:2015051710)" = 1 ]
ok $? 'counts land in the master that the sentinel names'

run 0 audit --redis "$url" && err_has '1 ledgers'
ok $? 'an audit finds it, too'

run 1 audit --redis "redis+sentinel://127.0.0.1:$sentinel_port/nobody" && err_has 'knows no master of that name'
ok $? 'an unknown name is named as such'
