#!/bin/sh
# shellcheck disable=SC2181,SC1003  # a status is looked at where it is compared; backslashes stand for themselves
# count_json.sh TOOL FOLDER -- JSON as journald and nginx (escape=json) really write it: texts as lists of bytes, null,
# repeated fields, escapes, numbers that are missing.
# Method: lines with every member that such a log has, and the rows that follow from them by hand.
# Covers: tools/count/line_json.c, tools/count/line_where.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 13

# journal MICROSECONDS UNIT PRIORITY MESSAGE: a record of journalctl -o json; UNIT and MESSAGE are written as they are.
journal() {
    printf '{"__CURSOR":"s=0639f95;i=%s;b=2d0f;m=1a2b;t=516;x=9","__REALTIME_TIMESTAMP":"%s","__MONOTONIC_TIMESTAMP":"2721543",' "$1" "$1"
    printf '"_BOOT_ID":"2d0f6c9a4c3c4b9c8a0f0b3c5e1d7a90","_MACHINE_ID":"c1f0","_HOSTNAME":"web-1","_TRANSPORT":"stdout",'
    printf '"_CMDLINE":"/usr/bin/shop --name \\"caf\\u00e9\\"","SYSLOG_TIMESTAMP":"May 17 10:05:03 ","_SOURCE_REALTIME_TIMESTAMP":"%s",' "$1"
    printf '"PRIORITY":"%s","_PID":"%s","CODE_LINE":"42","_SYSTEMD_UNIT":%s,"MESSAGE":%s}\n' "$3" "${#2}" "$2" "$4"
}
{
    journal 1431857103123456 '"shop.service"' 6 '"paid: caf\u00e9 \u2014 4 \u20ac \ud83d\ude00"'
    journal 1431857104000000 '"shop.service"' 3 '[114,101,102,117,115,101,100,32,255,10,92]'
    journal 1431857105000000 '"shop.service"' 3 '[ 114, 101,102,117,115,101,100,32,255,10,92 ]'
    journal 1431857106000000 '"cron.service"' 6 null
    journal 1431857107000000 '"cron.service"' 6 '"a\ttab, a \"quote\", a \\ and \u001b[31mred"'
    journal 1431860800000000 '["shop.service","shop@2.service"]' 6 '"paid: caf\u00e9 \u2014 4 \u20ac \ud83d\ude00"'
    journal 1431860801000000 '"shop.service"' 6 '[300,1]'
} >"$work/journal"
rows() { # SENTENCE SAYS ARGS...: the rows are those of $work/want; SAYS: a complaint, or nothing
    sentence=$1
    says=$2
    shift 2
    run 0 count --format json --output tsv "$@" && same "$work/out" "$work/want" &&
        if [ "$says" = '' ]; then err_is_empty; else err_has "$says"; fi
    ok $? "$sentence"
}
row() { printf '2015-05-17T%s:00:00Z\t%s\t%s\n' "$@"; }
{
    row 10 'refused \xFF\n\\' 2
    row 10 'a\ttab, a "quote", a \\ and \x1B[31mred' 1
    row 10 'paid: café — 4 € 😀' 1
    row 11 'paid: café — 4 € 😀' 1
} >"$work/want"
rows 'messages: lists of bytes are texts, null is none' '2 lines skipped, first: ' --key MESSAGE "$work/journal"
{
    row 10 shop.service 3
    row 10 cron.service 2
    row 11 shop.service 1
} >"$work/want"
rows 'units; one that stands twice in a record is no text' '1 line skipped, first: ' --key _SYSTEMD_UNIT "$work/journal"
row 10 3 2 >"$work/want"
rows 'a condition on a message that is a list of bytes' '' --key PRIORITY --where 'MESSAGE~refused' "$work/journal"
row 10 cron.service 1 >"$work/want"
rows 'a condition on a message that is null' '1 line skipped, first: ' --key _SYSTEMD_UNIT --where 'MESSAGE=' "$work/journal"
row 10 '/usr/bin/shop --name "café"' 5 >"$work/want"
rows 'a time of the process, in place of that of the journal' '' --key _CMDLINE --time _SOURCE_REALTIME_TIMESTAMP --until 2015-05-17T11:00Z "$work/journal"
{
    row 10 3:shop.service 2
    row 10 6:cron.service 2
    row 10 6:shop.service 1
    row 11 6:shop.service 1
} >"$work/want"
rows 'two fields' '1 line skipped, first: ' --key PRIORITY,_SYSTEMD_UNIT "$work/journal"
{
    row 10 shop.service 2
    row 10 cron.service 1
} >"$work/want"
rows 'different messages, also as lists of bytes' '3 lines skipped, first: ' --key _SYSTEMD_UNIT --distinct MESSAGE --where 'MESSAGE!=' --until 2015-05-17T11:00Z "$work/journal"
printf '{"time":"2015-05-17T10:00:00Z","tags":[104,105]}\n' >"$work/tags"
run 1 count --format json --key tags "$work/tags" && err_has 'the field is an object or a list'
ok $? 'a list of numbers in another log is no text'

cat >"$work/nginx" <<'END'
{"time_iso8601":"2015-05-17T10:05:03+00:00","msec":1431857103.412,"remote_addr":"2001:db8::1","request":"GET /caf\u00E9?q=\"x\" HTTP/1.1","uri":"/caf\u00e9","status":200,"body_bytes_sent":512,"request_time":0.004,"upstream_response_time":"0.003","upstream_status":"200","http_referer":"","http_user_agent":"Mozilla/5.0 (X11; \\ \"odd\")"}
{"time_iso8601":"2015-05-17T10:05:04+00:00","msec":1431857104.000,"remote_addr":"10.0.0.2","request":"\u0016\u0003\u0001\u0002\u0000\u0001\u0000","uri":"","status":400,"body_bytes_sent":150,"request_time":0.000,"upstream_response_time":,"upstream_status":-,"http_referer":null,"http_user_agent":""}
{"time_iso8601":"2015-05-17T10:05:05+00:00","msec":1431857105.999,"remote_addr":"10.0.0.2","request":"GET /caf\u00e9 HTTP/2.0","uri":"/café","status":502,"body_bytes_sent":0,"request_time":60.001,"upstream_response_time":"0.001, 60.000","upstream_status":"502, 504","http_referer":"http:\/\/example.com\/\t","http_user_agent":"curl\u002f7"}
{"time_iso8601":"2015-05-17T10:05:06+00:00","remote_addr":"10.0.0.2","uri":"/x","status":200,"request_time":}
END
{
    row 10 10.0.0.2 3
    row 10 2001:db8::1 1
} >"$work/want"
rows 'nginx: numbers that are missing are none, and the line counts' '' --key remote_addr "$work/nginx"
{
    row 10 /café 2
    row 10 /x 1
} >"$work/want"
rows 'nginx: one text in three spellings; an empty one is no key' '1 line skipped, first: ' --key uri "$work/nginx"
row 10 /café 1 >"$work/want"
rows 'nginx: conditions on numbers and texts' '' --key uri --where 'request_time>1' --where 'http_referer=http://example.com/	' \
    --where 'http_user_agent=curl/7' "$work/nginx"
printf '{"time":"2015-05-17T10:00:00Z","caf\\u00e9":"x","request":{"h\\u0065ad":"y"}}\n' >"$work/names"
row 10 x:y 1 >"$work/want"
rows 'names that are written with escapes' '' --key café,request.head "$work/names"
printf '{"time":"2015-05-17T10:00:00Z","k":"first","r":{"k":1},"k":"second","r":{"k":2}}\n' >"$work/twice"
row 10 first:1 1 >"$work/want"
rows 'of a member that stands twice, the first counts' '' --key k,r.k "$work/twice"
