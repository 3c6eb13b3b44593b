#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# count_output.sh TOOL FOLDER -- what is printed: order, escapes, JSON, the table, keys of several fields, offsets.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 29

# Keys with a tab, a backslash, broken UTF-8, a control byte, a NUL, an umlaut, quotes.
{
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\tb" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\\\\b" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\377\300\257b" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\033[31m" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "a\000b" 200 1 "-" "x"\n'
    printf '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "\303\274\\"q\\"" 200 1 "-" "x"\n'
} >"$work/odd"
{
    printf '2015-05-17T10:00:00Z\ta\\x00b\t1\n'
    printf '2015-05-17T10:00:00Z\ta\\tb\t1\n'
    printf '2015-05-17T10:00:00Z\ta\\x1B[31m\t1\n'
    printf '2015-05-17T10:00:00Z\ta\\\\\\\\b\t1\n'
    printf '2015-05-17T10:00:00Z\ta\\xFF\\xC0\\xAFb\t1\n'
    printf '2015-05-17T10:00:00Z\t\303\274\\\\"q\\\\"\t1\n'
} >"$work/want"
run 0 count --key 5 --output tsv "$work/odd" && same "$work/out" "$work/want" && err_is_empty
ok $? 'tsv: odd bytes are escaped, rows are sorted by the bytes themselves'
run 0 count --key 5 --output json "$work/odd" && python3 - "$work/out" <<'END'
import json, sys
(window,) = json.load(open(sys.argv[1], encoding="utf-8"))
assert window["window"] == "2015-05-17T10:00:00Z"
keys = [(c["key"], c.get("key_hex"), c["count"]) for c in window["counts"]]
assert keys == [("a\0b", None, 1), ("a\tb", None, 1), ("a\033[31m", None, 1), ("a\\\\b", None, 1),
                ("a\ufffd\ufffd\ufffdb", "61ffc0af62", 1), ("ü\\\"q\\\"", None, 1)], keys
END
ok $? 'json: valid, keys exact, broken UTF-8 marked and given in hexadecimal'
run 0 count --key 5 "$work/odd" && ! tr -d '\n' <"$work/out" | grep -q '[[:cntrl:]]'
ok $? 'table: no control byte reaches the terminal'

printf '' >"$work/none"
run 0 count --output json "$work/none" && [ "$(cat "$work/out")" = '[]' ]
ok $? 'json of nothing is an empty array'

{
    printf '1431857103\tb\t2\n1431857103\ta\t2\n1431857103\tc\t10\n1431857103\tneg\t-5\n'
    printf '1431853503\tearlier\n-1\tbefore 1970\n1431857103\ta\t+1\n'
} >"$work/tsv"
{
    printf '1969-12-31T23:00:00Z\tbefore 1970\t1\n2015-05-17T09:00:00Z\tearlier\t1\n'
    printf '2015-05-17T10:00:00Z\tc\t10\n2015-05-17T10:00:00Z\ta\t3\n2015-05-17T10:00:00Z\tb\t2\n2015-05-17T10:00:00Z\tneg\t-5\n'
} >"$work/want"
run 0 count --format tsv --output tsv "$work/tsv" && same "$work/out" "$work/want"
ok $? 'deltas, negative ones too; windows in order of time, rows by count'
tr '\n' '\r' <"$work/tsv" | sed 's/\r/\r\n/g' >"$work/crlf"
run 0 count --format tsv --output tsv "$work/crlf" && same "$work/out" "$work/want"
ok $? 'carriage returns at the ends of lines belong to no key'

log() { # TIME
    printf '10.0.0.1 - frank [%s] "GET /x HTTP/1.1" 404 1 "-" "Some Agent"\n' "$1"
}
{
    log '17/May/2015:10:05:03 +0200'
    log '17/May/2015:08:59:59 +0000'
    log '17/May/2015:00:30:00 -0800'
} >"$work/offsets"
printf '2015-05-17T08:00:00Z\t10.0.0.1\t3\n' >"$work/want"
run 0 count --output tsv "$work/offsets" && same "$work/out" "$work/want"
ok $? "a line's own offset is honoured"
printf '2015-05-16T16:00:00Z\t10.0.0.1\t3\n' >"$work/want"
run 0 count --output tsv --window 1d --utc-offset +08:00 "$work/offsets" && same "$work/out" "$work/want"
ok $? 'with --utc-offset +08:00 days begin at midnight in Shanghai'
run 0 count --window 1d --utc-offset=+08:00 "$work/offsets" && grep -q '^Sun 2015-05-17 +08:00  3 counts of 1 key$' "$work/out"
ok $? "table: the heading is in the offset's time"

printf '2015-05-17T08:00:00Z\t404:frank:Some Agent\t3\n' >"$work/want"
run 0 count --output tsv --key 6,3,9 "$work/offsets" && same "$work/out" "$work/want"
ok $? 'several fields are joined in the order given'
run 1 count --output tsv --key 10 "$work/offsets" && err_has 'fewer fields than --key needs'
ok $? 'a field that no line has'
printf '[2001:db8::1]:443 - john smith [17/May/2015:08:05:03 +0000] "GET / HTTP/1.1" 200 1\n' >"$work/spaces"
printf '2015-05-17T08:00:00Z\tjohn\t1\n' >"$work/want"
run 1 count --output tsv --key 3 "$work/spaces" && err_has 'continues after its closing mark'
ok $? 'text behind a closing bracket is no field'
sed 's/^[^ ]* /[2001:db8::1] /' "$work/spaces" >"$work/spaces2"
run 0 count --output tsv --key 3 "$work/spaces2" && same "$work/out" "$work/want"
ok $? "a user's name with a space, a client in brackets: the time is found all the same"

# Behind a virtual host: recognised line by line, however the host and the client are written.
rest='[17/May/2015:08:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "agent"'
{
    echo "shop.example:443 10.0.0.1 - - $rest"
    echo "shop.example 10.0.0.1 - frank $rest"
    echo "shop.example:80 2001:db8::1 - - $rest"
    echo "intranet:80 desk - - $rest"
} >"$work/vhost"
echo "10.0.0.1 - frank $rest" >"$work/plain"
echo "10.0.0.9 - john smith $rest" >>"$work/plain"
hour=2015-05-17T08:00:00Z
printf "%b" "$hour\t10.0.0.1\t3\n$hour\t10.0.0.9\t1\n$hour\t2001:db8::1\t1\n$hour\tdesk\t1\n" >"$work/want"
run 0 count --output tsv "$work/vhost" "$work/plain" && same "$work/out" "$work/want" && err_is_empty
ok $? 'behind a virtual host the client is the key, in the same file or not'
run 0 count --output tsv --format combined "$work/vhost" "$work/plain" && same "$work/out" "$work/want"
ok $? 'also where combined was asked for'
run 0 count --output tsv --key 5 --format vhost_combined "$work/vhost" &&
    [ "$(cat "$work/out")" = "$hour${tab}GET / HTTP/1.1${tab}4" ]
ok $? 'fields count from the client, so that one --key goes for both'
printf "%b" "$hour\tshop.example:443:10.0.0.1\t1\n$hour\tshop.example:80:2001:db8::1\t1\n$hour\tshop.example:10.0.0.1\t1\n$hour\tintranet:80:desk\t1\n" |
    sort_rows >"$work/want"
run 0 count --output tsv --key host,client --format vhost_combined "$work/vhost" && same "$work/out" "$work/want"
ok $? 'the host is a part of the key where its name is said'
run 0 count --output tsv --key host "$work/vhost" "$work/plain" && err_has '2 lines skipped' &&
    err_has 'the line does not begin with a virtual host'
ok $? 'a line without a host has none to count'
run 1 count --output tsv --format vhost_combined "$work/plain" && err_has 'the line does not begin with a virtual host'
ok $? 'where every line is to have one, a line without is not read'

{
    echo '2024-05-01 00:00:01 install foo:amd64 <none> 1.0'
    echo '2024-05-01 00:00:02 status installed foo:amd64 1.0'
    echo '2024-05-01 00:00:02 status half-installed foo:amd64 1.0'
    echo 'garbage'
} >"$work/dpkg"
printf '2024-05-01T00:00:00Z\tstatus\t2\n2024-05-01T00:00:00Z\tinstall\t1\n' >"$work/want"
run 0 count --format dpkg --output tsv "$work/dpkg" && same "$work/out" "$work/want" &&
    err_has "1 line skipped, first: $work/dpkg:4: no time like 2024-05-01 12:00:01 at the start"
ok $? 'dpkg: the action is the key'
printf '2024-04-30T22:00:00Z\tinstall:foo:amd64\t1\n' >"$work/want"
head -n 1 "$work/dpkg" >"$work/dpkg1"
run 0 count --format dpkg --key 3,4 --utc-offset +02:00 --output tsv "$work/dpkg1" && same "$work/out" "$work/want"
ok $? "dpkg: its local times are taken as in --utc-offset"

awk 'BEGIN { for (i = 0; i < 1000; i++) for (j = 0; j <= i % 7; j++) print "1431857103\tkey" i }' >"$work/ties"
run 0 count --format tsv --output tsv "$work/ties" && sort_rows <"$work/out" >"$work/want" && cp "$work/out" "$work/all" &&
    same "$work/all" "$work/want" && run 0 count --format tsv --output tsv --top 400 "$work/ties" &&
    head -n 400 "$work/want" >"$work/top" && same "$work/out" "$work/top"
ok $? 'equal counts: by key in byte order, with and without --top'
run 0 count --format tsv --top 2 "$work/ties" && grep -q '(998 more keys)' "$work/out"
ok $? 'table: what --top leaves out is summed up'

# Distinct values: three clients of page a in the first hour, one of them twice; two of page b; one in the next hour.
visit() { # CLIENT TIME PAGE USER
    printf '%s - %s [17/May/2015:%s +0000] "GET /%s HTTP/1.1" 200 1 "-" "x"\n' "$1" "$4" "$2" "$3"
}
{
    visit 10.0.0.1 10:00:00 a ann
    visit 10.0.0.2 10:10:00 a ann
    visit 10.0.0.1 10:20:00 a bob
    visit 10.0.0.3 10:59:59 a ann
    visit 10.0.0.1 10:00:00 b ann
    visit 10.0.0.2 10:00:01 b ann
    visit 10.0.0.1 09:59:59 a ann
} >"$work/visits"
{
    printf '2015-05-17T09:00:00Z\tGET /a HTTP/1.1\t1\n'
    printf '2015-05-17T10:00:00Z\tGET /a HTTP/1.1\t3\n2015-05-17T10:00:00Z\tGET /b HTTP/1.1\t2\n'
} >"$work/want"
run 0 count --key 5 --distinct 1 --output tsv "$work/visits" && same "$work/out" "$work/want" && err_is_empty
ok $? '--distinct: different clients of each page, by hour'
printf '2015-05-17T00:00:00Z\tGET /a HTTP/1.1\t4\n2015-05-17T00:00:00Z\tGET /b HTTP/1.1\t2\n' >"$work/want"
run 0 count --key 5 --distinct 1,3 --window 1d --output tsv "$work/visits" && same "$work/out" "$work/want"
ok $? '--distinct of several fields: their different combinations'
run 0 count --key 5 --distinct 1 --top 1 "$work/visits" && grep -q '^Sun 2015-05-17 10:00 UTC  2 keys$' "$work/out" &&
    grep -q '(1 more key)' "$work/out" && ! grep -q 'counts in' "$work/out"
ok $? '--distinct, table: estimates of several keys are not summed up'
{
    printf '1431857103\tk\tx\n1431857103\tk\t\n1431857103\tk\tx\n1431857103\tk\ty\ty\n1431857103\tk\n'
    head -c 30000 /dev/zero | tr '\0' z | sed 's/^/1431857103\tlong\t/'
} >"$work/tsv3"
printf '2015-05-17T10:00:00Z\tk\t3\n2015-05-17T10:00:00Z\tlong\t1\n' >"$work/want"
run 0 count --format tsv --distinct 3 --output tsv "$work/tsv3" && same "$work/out" "$work/want" &&
    err_has "1 line skipped, first: $work/tsv3:5: no tab after the key"
ok $? '--distinct 3 of tsv: elements are bytes of any size, none included'
run 1 count --distinct 10 "$work/visits" && err_has 'fewer fields than --key and --distinct need'
ok $? '--distinct of a field that no line has'
run 0 count --key host --distinct client --format vhost_combined --output tsv "$work/vhost" &&
    grep -q "intranet:80${tab}1" "$work/out"
ok $? '--distinct behind a virtual host'
