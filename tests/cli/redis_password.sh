#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# redis_password.sh TOOL FOLDER -- Redis's password comes out of a file, the environment or the URL, and `ps` never shows it.
# Method: a redis-server with a password of odd characters; the command line of a command that runs is read from /proc.
# Covers: tools/common/redis_flags.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
need_redis
plan 6

redis_start
odd='s3cret/@:%é+'
set_up OK ask CONFIG SET requirepass "$odd"
set_up 'OK' ask -a "$odd" --no-auth-warning ACL SETUSER counter on ">$odd" '~*' '+@all'
printf '1431857103\ta\n' >"$work/log"
(umask 077 && printf '%s\nsecond line\n' "$odd" >"$work/password")
count="count --format tsv --output tsv"

# shellcheck disable=SC2086
run 0 $count --redis "$url" --redis-password-file "$work/password" "$work/log" && err_is_calm &&
    [ "$(ask -a "$odd" --no-auth-warning GET count:a:2015051710)" = 1 ]
ok $? 'a file'
# shellcheck disable=SC2086
TALLYWHEEL_REDIS_PASSWORD=$odd run 0 $count --redis "$url" "$work/log" &&
    [ "$(ask -a "$odd" --no-auth-warning GET count:a:2015051710)" = 2 ] &&
    TALLYWHEEL_REDIS_PASSWORD=$odd run 0 audit --redis "unix://counter@$work/redis.sock" --pattern 'count:*' && err_has '; 0 found'
ok $? 'the environment, also for an audit, and for a user whose name is in the URL'
# shellcheck disable=SC2086
run 1 $count --redis "$url" "$work/log" && err_has 'NOAUTH' && ! grep -qF "$odd" "$work/err"
ok $? 'without it Redis refuses'

# The password is covered soon after the start, for all that follows.
shows_stars() {
    tr '\0' ' ' <"/proc/$pid/cmdline" >"$work/line" 2>/dev/null
    grep -qF '*******' "$work/line"
}
mkfifo "$work/pipe"
for form in "--redis=unix://:secret1%2F@$work/none.sock" "--redis unix://counter:secret1@$work/none.sock" '--redis redis://:se%2Fcret1@127.0.0.1:1'; do
    # shellcheck disable=SC2086
    "$tool" $count $form - <"$work/pipe" >"$work/out" 2>"$work/err" &
    pid=$!
    background="$background $pid"
    exec 3>"$work/pipe"
    wait_until shows_stars
    cat "$work/line" >>"$work/shown"
    exec 3>&-
    kill $pid 2>/dev/null
    wait $pid
done
grep -q 'redis.*none.sock' "$work/shown" && ! grep -q 'cret1' "$work/shown" && grep -qF '://counter:*******@' "$work/shown"
ok $? 'the password of a URL is not in the arguments that ps shows'

# shellcheck disable=SC2086
run 2 $count --redis 'redis://:x@localhost' --redis-password-file "$work/password" "$work/log" && err_has 'exclude each other' &&
    run 2 $count --redis "$url" --redis-password-file "$work/none" "$work/log" && err_has 'No such file' &&
    : >"$work/empty" && run 2 $count --redis "$url" --redis-password-file "$work/empty" "$work/log" && err_has 'is no password' &&
    run 2 $count --redis-password-file "$work/password" "$work/log" && err_has 'go with --redis'
ok $? 'two passwords, no file, an empty file, no Redis: each is named'
chmod 644 "$work/password"
# shellcheck disable=SC2086
run 0 $count --redis "$url" --redis-password-file "$work/password" "$work/log" && err_has 'others may read it (mode 0644)'
ok $? 'a file that others may read is named'
