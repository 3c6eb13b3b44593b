#!/bin/sh
# shellcheck disable=SC2181,SC2016  # a status is looked at where it is compared; formats stand in single quotes
# count_log_format.sh TOOL FOLDER -- --log-format with the formats of nginx, Apache and HAProxy: the rows are awk's.
# Method: awk makes requests and writes each in the form that a server configured so would write; another awk counts them
# from its own list. Users, paths and agents are what visitors send: spaces, brackets, times, pieces of lines.
# Covers: tools/count/layout.c, tools/count/layout_fields.c, tools/count/layout_time.c, tools/count/line_layout.c.
tool=$1
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 63

# The list: seconds<TAB>ms<TAB>client<TAB>user<TAB>method<TAB>path<TAB>query<TAB>status<TAB>bytes<TAB>host<TAB>agent
awk -v seed="$seed" 'function number(n) { return int(rand() * n) }
BEGIN {
    srand(seed)
    OFS = "\t"
    users = split("-|-|frank|john smith|[|a [b|10.9.9.9 - x|x [01/Jan/2001:00:00:00 +0000] 200 5|- -|]|%h|{", user, "|")
    agents = split("curl/7.88|Mozilla/5.0 (X11; Linux) [x]|odd [17/May/2015:10:05:03 +0000] agent|a|200 12", agent, "|")
    paths = split("/ /a /a/b.png /caf%C3%A9 /x]y /[", path, " ")
    split("GET GET POST HEAD", method, " ")
    split("200 200 304 404 502", code, " ")
    for (i = 0; i < 4000; i++)
        print 1431820800 + number(86400), number(1000), number(5) ? "10.0." number(3) "." number(9) : sprintf("2001:db8::%x", number(9)), \
            user[1 + number(users)], method[1 + number(4)], path[1 + number(paths)], number(2) ? "?q=" number(3) : "", \
            code[1 + number(5)], number(100000), "host" number(3) ".example", agent[1 + number(agents)]
}' >"$work/list"
lines=$(awk 'END { print NR }' "$work/list")
[ "$lines" -eq 4000 ] || exit 1

# try NAME FORMAT LINE KEY AWK-KEY ...: LINE is awk's expression of a line, AWK-KEY that of what --key KEY has to be.
begin='{
    rest = $1 % 86400
    clock = sprintf("%02d:%02d:%02d", int(rest / 3600), int(rest / 60) % 60, rest % 60)
    hour12 = sprintf("%02d:%02d:%02d %s", (int(rest / 3600) + 11) % 12 + 1, int(rest / 60) % 60, rest % 60, rest < 43200 ? "AM" : "PM")
    ms = sprintf("%03d", $2)
    east = rest + 7200; day = 17 + (east >= 86400); east %= 86400
    east = sprintf("%02d/May/2015:%02d:%02d:%02d +0200", day, int(east / 3600), int(east / 60) % 60, east % 60)
    web = "17/May/2015:" clock; zone = " +0000"; iso = "2015-05-17T" clock
    client = $3; user = $4; method = $5; path = $6; url = $6 $7; query = $7; status = $8; bytes = $9; host = $10; agent = $11
    request = method " " url " HTTP/1.1"; port = 1024 + NR % 60000; q = "\""
'
try() {
    name=$1 format=$2 write=$3
    shift 3
    awk -F "$tab" "$begin print $write }" "$work/list" >"$work/log"
    while [ $# -gt 0 ]; do
        awk -F "$tab" "$begin"' n["2015-05-17T" substr(clock, 1, 2) ":00:00Z\t" '"$2"']++ }
            END { for (row in n) print row "\t" n[row] }' "$work/list" | sort_rows >"$work/want"
        run 0 count --output tsv --log-format "$format" --key "$1" "$work/log" && same "$work/out" "$work/want" && err_is_empty
        ok $? "$name: $1"
        shift 2
    done
}

# ---- nginx ----
try 'nginx: combined' '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"' \
    'client " - " user " [" web zone "] " q request q " " status " " bytes " \"-\" " q agent q' \
    client client user user path path status status agent agent
try 'nginx: two hours east' '$remote_addr - $remote_user [$time_local] "$request" $status' \
    'client " - " user " [" east "] " q request q " " status' client client user user
try 'nginx: time_iso8601, in front' '$time_iso8601 $remote_addr $request_method "$request_uri" $status $request_time' \
    'iso "+00:00 " client " " method " " q url q " " status " 0.0" ms' client client path path method,status 'method ":" status'
try 'nginx: msec' '${msec}|$remote_addr|$status|$http_user_agent|' '$1 "." ms "|" client "|" status "|" agent "|"' \
    client client agent agent 2,3 'client ":" status'
try 'nginx: no quotes, the user among words' '$remote_addr - $remote_user [$time_local] $status $body_bytes_sent' \
    'client " - " user " [" web zone "] " status " " bytes' client client user user bytes bytes
try 'nginx: the host first, and what upstream servers say' '$host $remote_addr [$time_local] "$request" $status "$upstream_addr" $upstream_response_time $pipe' \
    'host " " client " [" web zone "] " q request q " " status " \"10.2.0.1:80, 10.2.0.2:80\" 0.001, 0.0" ms " ."' \
    host host client client path path
try 'nginx: JSON by hand' '{"t":"$time_iso8601","c":"$remote_addr","u":"$remote_user","s":$status}' \
    '"{\"t\":\"" iso "+00:00\",\"c\":\"" client "\",\"u\":\"" user "\",\"s\":" status "}"' client client user user status status

# ---- Apache ----
try 'Apache: common' '%h %l %u %t \"%r\" %>s %b' 'client " - " user " [" web zone "] " q request q " " status " " bytes' \
    client client user user bytes bytes
try 'Apache: vhost_combined' '%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"' \
    'host ":443 " client " - " user " [" east "] " q request q " " status " " bytes " \"-\" " q agent q' \
    host host client client user user User-Agent agent
try 'Apache: milliseconds' '%a %u [%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] "%m %U" %s' \
    'client " " user " [" web "." ms " +0000] " q method " " path q " " status' client client method,path 'method ":" path' user user
try 'Apache: date and time apart' '%{%Y-%m-%d}t %h %{%H:%M:%S}t %>s %D' '"2015-05-17 " client " " clock " " status " 123"' \
    client client status status
try 'Apache: seconds and microseconds' '%{sec}t.%{usec_frac}t %h "%{X-Forwarded-For}i" %B' \
    '$1 "." ms "000 " client " " q agent q " " bytes' client client X-Forwarded-For agent
try 'Apache: twelve hours' '[%{%b %e %Y %I:%M:%S %p}t] %h %s' '"[May 17 2015 " hour12 "] " client " " status' client client
try 'Apache: microseconds' '%{usec}t %h %{c}a %X %>s %!404{Referer}i|' '$1 ms "000 " client " 10.1.1.1 + " status " -|"' client client
try 'Apache: as it is in the file' 'LogFormat "%h %l %u %t \"%r\" %>s" common' \
    'client " - " user " [" web zone "] " q request q " " status' client client user user
try 'Apache: the name of the zone' '%{%a, %d %B %Y %T %Z}t, %h, %s' '"Sun, 17 May 2015 " clock " GMT, " client ", " status' client client

# ---- HAProxy ----
http='%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r'
timers='client ":" port " [" web "." ms "] http-in~ static/srv" status " 10/0/30/69/109 " status " " bytes " - - ---- 1/1/1/1/0 0/0 '
try 'HAProxy: HTTP' "$http" "$timers\" q request q" client client path path server '"srv" status' status status
try 'HAProxy: HTTP with headers' "$http" "$timers{\" host \"|\" agent \"} {} \" q request q" client client path path hr '"{" host "|" agent "}"'
try 'HAProxy: TCP' '%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq' \
    'client ":" port " [" web "." ms "] fnt bck/srv" status " 0/0/5007 " bytes " -- 0/0/0/0/3 0/0"' client client bytes bytes
try 'HAProxy: CLF' '%{+Q}o\ %{-Q}ci\ -\ -\ [%trg]\ %r\ %ST\ %B\ ""\ ""\ %cp\ %ms\ %ft\ %b\ %s' \
    'client " - - [" web zone "] " q request q " " status " " bytes " \"\" \"\" " port " " ms " \"fe\" \"be\" \"srv\""' \
    client client path path
try 'HAProxy: samples and their times' '%Ts.%ms %[src] %{+Q}[capture.req.hdr(0)] %HM %HU %ST' \
    '$1 "." ms " " client " " q agent q " " method " " url " " status' src client url url method method

# ---- around the line ----
awk -F "$tab" "$begin"' print "May 17 10:05:03 lb haproxy[9]: " client " " web zone " " status }' "$work/list" >"$work/log"
awk -F "$tab" "$begin"' n["2015-05-17T" substr(clock, 1, 2) ":00:00Z\t" client]++ } END { for (row in n) print row "\t" n[row] }' \
    "$work/list" | sort_rows >"$work/want"
run 0 count --output tsv --log-format '$remote_addr $time_local $status' "$work/log" && same "$work/out" "$work/want" && err_is_empty
ok $? 'behind syslog'
sed 's/^[^:]*:[^:]*:[^:]*: \(.*\)/{"log":"\1\\n","stream":"stdout","time":"2001-01-01T00:00:00Z"}/' "$work/log" >"$work/docker"
run 0 count --output tsv --log-format '$remote_addr $time_local $status' --threads 2 <"$work/docker" && same "$work/out" "$work/want" && err_is_empty
ok $? "in Docker's files"

# ---- refused: a format with the place, a line with the reason ----
refused() { # FORMAT TEXT ARGS...
    format=$1 text=$2
    shift 2
    run 2 count --log-format "$format" "$@" "$work/log" && err_has "$text" && [ ! -s "$work/out" ]
}
refused '$remote_addr$time_local' 'character 13: two fields touch' && refused '%h%t' 'character 3: two fields touch' &&
    refused '%t %U%q' 'character 6: two fields touch' && refused '[%tr] %ci%cp' 'character 10: two fields touch' &&
    refused '%t%h' 'character 3: two fields touch'
ok $? 'two fields that touch, with the place of the second'
refused '$remote_addr "$request"' 'character 24: the format ends without a field that is the time' &&
    refused '%h %{%H:%M}t' 'its time has no year' && refused '%{%F}t %h' 'its time has no hour' &&
    refused '%ci %ms' 'without a field that is the time'
ok $? 'no time, or a part of one'
refused '%t %y' 'character 4: LogFormat of Apache has no such field' && refused '%ci %zz %tr' 'character 5: log-format of HAProxy' &&
    refused '$remote_addr $' 'character 14: a name is wanted' && refused 'plain' 'character 1: no field is in it' &&
    refused '%{%F %T %Q}t %h' 'character 9: this conversion' && refused '%h %{X' 'character 5: a brace is not closed'
ok $? 'fields that the server does not have'
refused '%t %s' 'no field in it is the client' && refused '%t %h' "--key 'user'" --key user && refused '%t %h' "the names are: client, time, t, h" --key x &&
    refused '%t %h' '--log-format goes without --format' --format combined
ok $? 'a key that the format has not'
printf '10.0.0.1 - a [17/May/2015:10:05:03 +0000] 200\n10.0.0.1 - a [17/May/2015:25:05:03 +0000] 200\n10.0.0.1 - a [17/May/2015:10:05:03 +0000]\n' >"$work/bad"
run 0 count --output tsv --log-format '%h %l %u %t %s' "$work/bad" && err_has "2 lines skipped, first: $work/bad:2: no time where --log-format has it" &&
    printf '2015-05-17T10:00:00Z\t10.0.0.1\t1\n' | cmp -s - "$work/out"
ok $? 'lines of another form are reported'
awk 'BEGIN { for (i = 0; i < 30000; i++) a = a " [1"; print "10.0.0.1 - " a " [17/May/2015:10:05:03 +0000] \"x\" 200"; for (i = 0; i < 30000; i++) b = b "/:"; print "10.0.0.1 - " b " [17/May/2015:10:05:03 +0000] " b }' >"$work/long"
run 0 count --output tsv --log-format '%h %l %u %t "%r" %s' "$work/long" && err_has '1 line skipped' &&
    printf '2015-05-17T10:00:00Z\t10.0.0.1\t1\n' | cmp -s - "$work/out"
ok $? 'a visitor who writes much of the form into a line does not make it long to read'
