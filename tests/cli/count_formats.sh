#!/bin/sh
# shellcheck disable=SC2181,SC2016  # a status is looked at where it is compared; programs of awk stand in single quotes
# count_formats.sh TOOL FOLDER -- one log in each format, by fields, conditions and spans of time: the rows are awk's.
# Method: awk makes requests and writes each in every format; another awk counts them from its own list, with no code of
# ours. Texts have quotes, backslashes and letters beyond ASCII, which JSON escapes.
# Covers: tools/count/line_combined.c, tools/count/line_tsv.c, tools/count/line_docker.c, tools/count/line_dpkg.c,
# tools/count/line_w3c.c, tools/count/line_word.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 37

# The list: seconds<TAB>client<TAB>method<TAB>path<TAB>status<TAB>bytes<TAB>host<TAB>agent
awk -v seed="$seed" 'function number(n) { return int(rand() * n) }
BEGIN {
    srand(seed)
    OFS = "\t"
    split("GET GET GET POST HEAD", methods, " ")
    split("200 200 200 304 404 500 502", codes, " ")
    split("plain|an \"odd\" agent|back\\slash|\303\274ber", agents, "|")
    for (i = 0; i < 20000; i++)
        print 1431820800 + number(172800), "10.0." number(3) "." number(40), methods[1 + number(5)], "/page" number(40), codes[1 + number(7)],
            number(100000), "host" number(4) ".example:443", agents[1 + number(4)]
}' >"$work/list"
awk -F "$tab" -v folder="$work" -v ascii='./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz' '
function escaped(text) { gsub(/\\/, "\\\\\\\\", text); gsub(/"/, "\\\\\"", text); return text }
function bytes(text,  i, list) {
    for (i = 1; i <= length(text); i++) list = list "," (index(ascii, substr(text, i, 1)) + 45)
    return "[" substr(list, 2) "]"
}
function unicode(text) { text = escaped(text); gsub(/\303\274/, "\\u00fc", text); return text }
{
    day = 17 + int(($1 - 1431820800) / 86400); rest = $1 % 86400
    clock = sprintf("%02d:%02d:%02d", int(rest / 3600), int(rest / 60) % 60, rest % 60)
    iso = "2015-05-" day "T" clock
    web = "[" day "/May/2015:" clock " +0000] \"" $3 " " $4 "?q=" NR " HTTP/1.1\" " $5 " " $6 " \"-\" \"" escaped($8) "\""
    print $2 " - - " web >(folder "/combined")
    print $7 " " $2 " - - " web >(folder "/vhost_combined")
    print $2 " - - [" iso "+00:00] \"" $3 " " $4 " HTTP/1.1\" " $5 " " $6 >(folder "/iso")
    print "{\"time_local\":\"" day "/May/2015:" clock " +0000\",\"remote_addr\":\"" $2 "\",\"request_method\":\"" $3 "\",\"uri\":\"" $4 "\",\"status\":" $5 ",\"body_bytes_sent\":" $6 ",\"host\":\"" $7 "\",\"agent\":\"" escaped($8) "\"}" >(folder "/nginx")
    print "{\"level\":\"info\", \"time\":\"" iso "." NR % 1000 "Z\", \"request\":{\"remote_ip\":\"" $2 "\", \"headers\":{\"X\":[\"}]\", {}]}, \"method\":\"" $3 "\", \"uri\":\"" $4 "\"}, \"status\":" $5 ", \"bytes\":" $6 ", \"host\":\"" $7 "\", \"agent\":\"" unicode($8) "\"}" >(folder "/nested")
    print "{\"__CURSOR\":\"s=" NR ";i=1\",\"__REALTIME_TIMESTAMP\":\"" $1 sprintf("%06d", NR) "\",\"_SYSTEMD_UNIT\":\"" $2 "\",\"PRIORITY\":\"" int($5 / 100) "\",\"MESSAGE\":" (NR % 2 ? "\"" $4 "\"" : bytes($4)) "}" >(folder "/journal")
    print "{\"level\":\"info\",\"ts\":" $1 "." NR % 1000 ",\"logger\":\"http.log.access\",\"request\":{\"remote_ip\":\"" $2 "\",\"method\":\"" $3 "\",\"uri\":\"" $4 "\",\"headers\":{\"User-Agent\":[\"" escaped($8) "\"]}},\"duration\":0.0001,\"size\":" $6 ",\"status\":" $5 "}" >(folder "/caddy")
    print "2015-05-" day " " clock " " $3 " pkg" $4 ":amd64 " (NR % 3 ? "1.0" : "<none>") " 2.0" >(folder "/dpkg")
    print iso "Z\t" $2 >(folder "/tsv")
    print $1 "\t" $2 "\t" $6 - 50000 >(folder "/deltas")
}' "$work/list"

# expected KEY CONDITION SIZE SUFFIX: the rows of the lines that meet the condition.
expected() {
    awk -F "$tab" -v size="$3" -v suffix="$4" "$2"' {
        day = 17 + int(($1 - 1431820800) / 86400); rest = $1 % 86400
        stamp = sprintf("2015-05-%02dT%02d:%02d", day, int(rest / 3600), int(rest / 60) % 60)
        n[substr(stamp, 1, size) suffix "\t" '"$1"']++
    } END { for (row in n) print row "\t" n[row] }' "$work/list" | sort_rows
}
hour() { expected "$1" "$2" 13 :00:00Z; }
rows() { # SENTENCE ARGS...: the rows are those of $work/want
    sentence=$1
    shift
    run 0 count --output tsv "$@" && same "$work/out" "$work/want" && err_is_empty
    ok $? "$sentence"
}

hour '$2' '' >"$work/want"
rows 'combined: clients' "$work/combined"
rows 'combined with ISO times: clients' "$work/iso"
rows 'vhost_combined: clients' --format vhost_combined "$work/vhost_combined"
rows "nginx's JSON: clients" --format json --key remote_addr "$work/nginx"
rows 'nested JSON: clients' --format json --key request.remote_ip "$work/nested"
rows "the journal's JSON: units" --format json --key _SYSTEMD_UNIT "$work/journal"
rows "Caddy's JSON: clients" --format json --key request.remote_ip "$work/caddy"
rows 'tsv with ISO times' --format tsv "$work/tsv"
rows 'JSON, eight threads' --format json --key remote_addr --threads 8 "$work/nginx"
rows 'JSON with a time that is named' --format json --key remote_addr --time time_local "$work/nginx"
hour '$3 ":" $4' '$5 >= 500' >"$work/want"
rows 'combined: methods and paths of failures' --key method,path --where 'status>=500' "$work/combined"
rows 'vhost_combined: the same' --format vhost_combined --key method,path --where '6>=500' "$work/vhost_combined"
rows 'JSON: the same' --format json --key request_method,uri --where 'status>=500' "$work/nginx"
rows "Caddy's JSON: the same" --format json --key request.method,request.uri --where 'status>=500' "$work/caddy"
rows 'nested JSON: the same' --format json --key request.method,request.uri --where 'status>=500' "$work/nested"
hour '$7 ":" $5' '$3 != "GET" && $6 < 50000 && index($2, "10.0.1.")' >"$work/want"
set -- --where 'bytes<50000' --where 'client~10.0.1.' --where 'method!=GET'
rows 'three conditions: hosts and codes' --format vhost_combined --key host,status "$@" "$work/vhost_combined"
rows 'three conditions, JSON' --format json --key host,status --where 'body_bytes_sent<50000' --where 'remote_addr~10.0.1.' --where 'request_method!=GET' "$work/nginx"
hour '$4' '' >"$work/want"
rows "the journal's JSON: messages, half of them as lists of bytes" --format json --key MESSAGE "$work/journal"
hour '$3' '' >"$work/want"
rows 'dpkg: actions' --format dpkg "$work/dpkg"
hour '$3 ":pkg" $4 ":amd64"' 'NR % 3 == 0' >"$work/want"
rows 'dpkg: actions and packages where a text in angles stands' --format dpkg --key action,package --where '5=<none>' "$work/dpkg"
awk -F "$tab" '{ n[$2] += $6 - 50000 } END { for (k in n) print "all\t" k "\t" n[k] }' "$work/list" | sort_rows >"$work/want"
rows 'tsv with deltas, negative ones too: their sums' --format tsv --window all "$work/deltas"
hour '$8' '$1 >= 1431858600 && $1 < 1431900000' | sed 's/back\\slash/back\\\\slash/' | sort_rows >"$work/want"
rows '--since and --until: agents, escapes resolved' --format json --key agent --since 2015-05-17T10:30 --until '2015-05-18T00:00:00+02:00' "$work/nginx"
rows 'the same from escapes of Unicode' --format json --key agent --since 1431858600 --until 2015-05-17T22:00Z "$work/nested"
expected '$4' '' 10 T00:00:00Z >"$work/want"
rows 'days: paths' --window 1d --key path "$work/combined"
expected '$4' '' 0 all >"$work/want"
rows '--window all: paths' --window all --key path --threads 2 "$work/combined"
sed 's/\t/,/g; 1i window,key,count' "$work/want" >"$work/csv"
run 0 count --window all --key path --output csv "$work/combined" && same "$work/out" "$work/csv"
ok $? 'csv: the same behind a header'
run 1 count --output tsv --format json --key colour "$work/nginx" && err_has '20000 lines skipped' && err_has 'the line has no such field'
ok $? 'a member that no line has is said to be missing'
run 0 count --window all --output csv --key agent "$work/combined" && python3 - "$work/out" <<'PYTHON'
import csv, sys
rows = list(csv.reader(open(sys.argv[1], encoding="utf-8")))
assert rows[0] == ["window", "key", "count"] and sum(int(row[2]) for row in rows[1:]) == 20000, rows
assert sorted(row[1] for row in rows[1:]) == ['an \\\\"odd\\\\" agent', "back\\\\\\\\slash", "plain", "\u00fcber"], rows
PYTHON
ok $? 'csv: quotes and backslashes as a reader of csv takes them'
run 0 count --window all --output json --key status "$work/combined" && python3 -c 'import json, sys
(window,) = json.load(open(sys.argv[1]))
assert window["window"] == "all" and sum(c["count"] for c in window["counts"]) == 20000, window' "$work/out"
ok $? 'json: the window of everything is called all'
printf 'all\t10.0.0.1\t2\nall\t10.0.0.2\t1\n' >"$work/want"
printf '1431857103\t10.0.0.1\n-5\t10.0.0.1\n1\t10.0.0.2\n' >"$work/old"
rows '--window all holds moments before 1970, too' --format tsv --window all "$work/old"
printf '{"ts":1431857103,"k":"a"}\n{"ts":1431857103,"k":"a"\n{"k":"a"}\nx\n\n{"ts":1431857103,"k":{}}\n' >"$work/bad"
printf '2015-05-17T10:00:00Z\ta\t2\n' >"$work/want"
run 0 count --format json --key k --output tsv "$work/bad" && same "$work/out" "$work/want" && err_has "4 lines skipped, first: $work/bad:3: no member is the time"
ok $? 'broken JSON is counted as skipped, and told'
run 0 count --where 'status=999' --output tsv "$work/combined" && [ ! -s "$work/out" ] && err_is_empty
ok $? 'a condition that no line meets is no mistake'

# Local time without its offset, in each format that may have it.
row=2015-05-17T02:00:00Z$tab
printf 'k - - [2015-05-17T10:05:03] "GET / HTTP/1.1" 200 1\n' >"$work/local_combined"
printf '{"time":"2015-05-17 10:05:03","k":"k"}\n' >"$work/local_json"
printf '2015-05-17 10:05:03 k\n' >"$work/local_dpkg"
printf '2015-05-17 10:05\tk\n' >"$work/local_tsv"
printf '%sk\t1\n' "$row" >"$work/want"
for format in combined json dpkg tsv; do
    set -- --format $format --utc-offset +08:00
    if [ $format = json ]; then set -- "$@" --key k; fi
    rows "$format: a time without offset has that of --utc-offset" "$@" "$work/local_$format"
done
printf '0999-12-31\tk\n1000-01-01\tk\n9998-12-31\tk\n9999-01-01\tk\n1431857103000\tk\n' >"$work/years"
printf 'all\tk\t2\n' >"$work/want"
run 0 count --format tsv --window all --output tsv "$work/years" && same "$work/out" "$work/want" &&
    err_has "3 lines skipped, first: $work/years:1: its time is not in the years 1000 to 9998"
ok $? 'a time that the library does not count is skipped, with the reason'
