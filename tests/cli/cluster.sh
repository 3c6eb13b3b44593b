#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# cluster.sh TOOL FOLDER -- `tallywheel count`, `audit` and `reclaim` with a redis+cluster:// URL.
# Method: three masters of the test's own, which read from nodes.conf who has which slots; later one of them is killed.
# Always true: the nodes have names that no other cluster of this machine has, and a node counts as up only under its name:
# another test may get its port first, or use one that a killed node has left. No step needs a fast machine: a node is missed
# after 15 s, and an audit waits 20 s for a reply.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
need_redis
plan 10

# Three ports that are free, and free 10000 above: there the nodes speak to each other.
free_ports() {
    python3 -c '
import random, socket
def free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try: s.bind(("127.0.0.1", port))
        except OSError: return False
    return True
found = []
while len(found) < 3:
    port = random.randrange(11000, 22000)
    if port not in found and free(port) and free(port + 10000): found.append(port)
print(*found)'
}

mine=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
id_of() { # NODE
    printf '%s%08d' "$mine" "$1"
}

nodes_write() { # FILE NODE PORTS... -- the file of node NODE
    file=$1 self=$2
    shift 2
    node=0
    for one; do
        node=$((node + 1))
        [ "$node" -eq "$self" ] && flags='myself,master' || flags='master'
        printf '%s 127.0.0.1:%d@%d %s - 0 0 %d connected %d-%d\n' "$(id_of $node)" "$one" $((one + 10000)) "$flags" $node \
            $(((node - 1) * 5461)) $((node < 3 ? node * 5461 - 1 : 16383))
    done >"$file"
    echo 'vars currentEpoch 3 lastVoteEpoch 0' >>"$file"
}

is_up() {
    number_of=0
    for at in $ports; do
        number_of=$((number_of + 1))
        [ "$(redis-cli -p "$at" CLUSTER MYID 2>/dev/null)" = "$(id_of $number_of)" ] &&
            redis-cli -p "$at" CLUSTER INFO | grep -q 'cluster_state:ok' || return 1
    done
}
all_live() {
    # shellcheck disable=SC2086  # three words
    kill -0 $pids 2>/dev/null
}

# A port may be taken between its choice and its use: tried anew.
for _ in 1 2 3 4 5; do
    ports=$(free_ports) pids='' number_of=0
    for port in $ports; do
        number_of=$((number_of + 1))
        rm -rf "${work:?}/$number_of"
        mkdir "$work/$number_of"
        # shellcheck disable=SC2086  # three words
        nodes_write "$work/$number_of/nodes.conf" $number_of $ports
        redis-server --port "$port" --bind 127.0.0.1 --dir "$work/$number_of" --save '' --cluster-enabled yes \
            --cluster-node-timeout 15000 --cluster-require-full-coverage no >"$work/$number_of/log" 2>&1 &
        pids="$pids $!"
        background="$background $!"
    done
    for _ in $(seq 1 300); do
        is_up && break 2
        all_live || break
        sleep 0.1
    done
    # shellcheck disable=SC2086
    kill $pids 2>/dev/null
    wait
done
set_up '' is_up
# shellcheck disable=SC2086
set -- $ports
url="redis+cluster://127.0.0.1:$1,127.0.0.1:$2"
# shellcheck disable=SC2086
set -- $pids
awk 'BEGIN { for (i = 0; i < 900; i++) printf "1431857103\tkey%d\n", i % 300 }' >"$work/log"

run 0 count --format tsv --output tsv --redis "$url" "$work/log" && [ "$(wc -l <"$work/out")" -eq 300 ]
ok $? 'counts of a cluster are those of the log'
cut -f 2,3 "$work/out" >"$work/totals"

share=0 all=0
for port in $ports; do
    keys=$(redis-cli -p "$port" --scan --pattern 'count:*' | wc -l)
    [ "$keys" -gt 40 ] && share=$((share + 1))
    all=$((all + keys))
done
[ "$share" -eq 3 ] && [ "$all" -eq 300 ]
ok $? 'each master has its part of them'

name='count:{%t}:%k:2015051710'
run 0 audit --timeout 20s --redis "$url" --totals "$work/totals" --name "$name" --pattern 'count:*' && [ ! -s "$work/out" ] &&
    err_has ' 300 keys, 300 lines' && err_has '; 0 found'
ok $? 'an audit looks at all of them, and the totals agree'

for port in $ports; do
    set_up 1 redis-cli -p "$port" PERSIST "$(redis-cli -p "$port" --scan --pattern 'count:*' | head -n 1)"
done
run 1 audit --timeout 20s --redis "$url" --pattern 'count:*' && [ "$(grep -c "^no-expiry$tab" "$work/out")" -eq 3 ]
ok $? 'a difference is found at whichever master it is'

# Leases of a process that never was, at each of the masters, in a template with tags and in one without.
dead=00112233445566778899aabbccddeeff
other=ffeeddccbbaa99887766554433221100
first_port=${ports%% *}
ask() { # of the whole cluster
    redis-cli -c -p "$first_port" "$@"
}
lease() { # KEY INSTANCE GRANTED RETURNED SPENT
    set_up 5 ask HSET "$1" "$2" "1 $3 $4 $5 0" t "$(($3 - $4))" s "$5" e x l 100 # five new fields
}
for tag in 0 47 94 141 188 235; do
    lease "tw:lease:sale:{$tag}:tv" "$dead" 40 0 10
    lease "tw:lease:sale:{$tag}:car" "$other" 40 0 10
    lease "tw:lease:stock:{$tag}" "$dead" 5 1 2
done
lease 'tw:lease:{3}stock:tv' "$dead" 7 0 0
printf '180\n' >"$work/wanted"
run 0 reclaim --force --redis "$url" sale "$dead" && same "$work/out" "$work/wanted" && err_has 'passed by up to 180 units' &&
    [ "$(ask HGET 'tw:lease:sale:{47}:tv' "$dead")" = '1 40 30 10 0' ] &&
    [ "$(ask HGET 'tw:lease:sale:{47}:car' "$other")" = '1 40 0 10 0' ]
ok $? 'what a dead process held at any master is freed'
printf '0\n' >"$work/wanted"
run 0 reclaim --force --redis "$url" sale "$dead" && same "$work/out" "$work/wanted"
ok $? 'a second time there is nothing to free'
run 2 reclaim --redis "$url" sale "00$other" && run 2 reclaim --redis "$url" sale ffffffffffffffffffffffffffffffff &&
    err_has 'these have: ' && run 2 reclaim --force --redis "$url" nothing "$dead" && err_has 'no lease of family "nothing"'
ok $? 'who has no lease is an error, as on one Redis'
set_up 1 ask EVAL "local t = redis.call('TIME') return redis.call('HSET', KEYS[1], 'i:$dead', (t[1] + 60) * 1000)" 1 \
    'tw:leases:{94}'
run 1 reclaim --force --redis "$url" --redis-key 'stock:%k' sale "$dead" && err_has 'it is alive' &&
    [ "$(ask HGET 'tw:lease:stock:{0}' "$dead")" = '1 5 1 2 0' ]
ok $? 'of a process that one store has just heard of nothing is freed in any'
set_up 1 ask DEL 'tw:leases:{94}'

set_up '' kill -9 "$2"
wait "$2" 2>/dev/null # its port is closed
run 1 audit --timeout 20s --redis "$url" --totals "$work/totals" --name "$name" --pattern 'count:*' && err_has 'incomplete: 5461 of 16384 slots' &&
    [ "$(grep -c "^no-expiry$tab" "$work/out")" -eq 2 ] && ! grep -q "^total$tab" "$work/out"
ok $? 'with a master away the others are looked at, and the exit status says that it was not all'
printf '15\n' >"$work/wanted"
run 1 reclaim --force --redis "$url" --redis-key 'stock:%k' sale "$dead" && err_has 'incomplete: 5461 of 16384 slots' &&
    same "$work/out" "$work/wanted"
ok $? 'with a master away the rest is freed, and the exit status says that it was not all'
