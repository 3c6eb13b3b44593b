#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# exporter.sh TOOL FOLDER PROGRAM -- `tallywheel exporter` joins the pages of two programs that run (watch_engine.c), serves them
# by HTTP, and writes them as a file; one that dies is left out and named.
# Covers: tools/watched/exporter.c, tools/watched/exporter_round.c.
tool=$1
engine=$3
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 13

begin() { # NAME: an engine on $work/NAME.sock; $began is its process id
    mkfifo "$work/$1.in"
    "$engine" "$work/$1.sock" <"$work/$1.in" >"$work/$1.said" 2>&1 &
    began=$!
    background="$background $began"
}
get() { # PATH: by HTTP, from the exporter at $port; the answer's head is in $work/head, its body in $work/body
    python3 -c '
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}{sys.argv[2]}", timeout=60)
except urllib.error.HTTPError as error:
    answer = error
open(sys.argv[3], "w").write(f"{answer.status} {answer.headers[sys.argv[5]]}\n")
open(sys.argv[4], "wb").write(answer.read())' "$port" "$1" "$work/head" "$work/body" Content-Type
}
value() { # SAMPLE FILE
    grep -F -- "$1 " "$2" | sed 's/.* //'
}

begin a
exec 7>"$work/a.in"
first=$began
begin b
exec 8>"$work/b.in"
wait_for ready "$work/a.said"
wait_for ready "$work/b.said"
echo open >&7
wait_for 'done' "$work/a.said"

run 0 exporter --once "$work/*.sock" && [ "$(value 'tallywheel_increments_total{socket="a.sock"}' "$work/out")" = 91 ] &&
    [ "$(value 'tallywheel_increments_total{socket="b.sock"}' "$work/out")" = 0 ] && err_is_empty
ok $? 'the pages of two engines are one, each sample under its socket'
[ "$(value 'tallywheel_family_limit_denied_total{socket="a.sock",family="logins",cause="limit"}' "$work/out")" = 2 ] &&
    grep -q '^tallywheel_build_info{socket="b.sock",version=' "$work/out"
ok $? 'labels of the library stand behind it'
[ "$(grep -c '^# TYPE tallywheel_increments_total ' "$work/out")" -eq 1 ] &&
    [ -z "$(grep '^# TYPE' "$work/out" | sort | uniq -d)" ] && sed -n '/^# TYPE tallywheel_entries /,/^# TYPE tallywheel_memory/p' "$work/out" |
    grep -c '^tallywheel_entries{' | grep -qx 2
ok $? 'each metric is described once, and its samples stand together'
if command -v promtool >/dev/null; then
    promtool check metrics <"$work/out" >"$work/err" 2>&1 && err_is_empty
    ok $? 'promtool takes the page'
else
    skip 'promtool takes the page' 'promtool is not installed: apt-get install prometheus'
fi

mkdir "$work/one" "$work/two" && ln -s "$work/a.sock" "$work/one/x.sock" && ln -s "$work/b.sock" "$work/two/x.sock" &&
    run 0 exporter --once "$work/*/x.sock" "$work/two/x.sock" && err_is_empty &&
    [ "$(value 'tallywheel_increments_total{socket="one/x.sock"}' "$work/out")" = 91 ] &&
    [ "$(value 'tallywheel_increments_total{socket="two/x.sock"}' "$work/out")" = 0 ] && [ "$(grep -c '^tallywheel_increments_total' "$work/out")" -eq 2 ]
ok $? 'sockets of one name in several folders have labels of their own; one that two arguments name is asked once'
mkdir "$work/odd" && ln -s "$work/a.sock" "$work/odd/$(printf 'q"b\\\377\303\251\nn.sock')" && run 0 exporter --once "$work/odd/*.sock" &&
    grep -qF 'tallywheel_exporter_up{socket="q\"b\\\\xFFé\nn.sock"} 1' "$work/out" && iconv -f UTF-8 -t UTF-8 "$work/out" >/dev/null
ok $? 'a name that is no text is a label all the same'

"$tool" exporter --listen 127.0.0.1:0 "$work/*.sock" 2>"$work/where" &
exporter=$!
background="$background $exporter"
wait_for '/metrics' "$work/where"
port=$(sed 's/.*:\([0-9]*\)\/metrics/\1/' "$work/where")
get /metrics && grep -q '^200 text/plain; version=0.0.4' "$work/head" && grep -q '^tallywheel_exporter_up{socket="b.sock"} 1$' "$work/body"
ok $? 'the page by HTTP, under the type that Prometheus knows'
get /other && grep -q '^404 ' "$work/head" && get / && grep -q '^200 ' "$work/head"
ok $? 'other paths'
cat >"$work/http.py" <<'END'
import socket, sys, time

port = int(sys.argv[1])

def connect():
    return socket.create_connection(("127.0.0.1", port), timeout=30)

def ask(sent, pieces=1):
    client = connect()
    for at in range(0, len(sent), len(sent) // pieces):
        client.sendall(sent[at:at + len(sent) // pieces])
        time.sleep(0.01 if pieces > 1 else 0)
    got = b""
    while chunk := client.recv(65536):  # fails if the connection is reset
        got += chunk
    head, body = got.split(b"\r\n\r\n", 1)
    return head.decode(), body

head, page = ask(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", pieces=20)
assert head.startswith("HTTP/1.1 200 OK\r\n") and f"Content-Length: {len(page)}\r\n" in head and b"\ntallywheel_" in page
head, body = ask(b"HEAD /metrics?x=1 HTTP/1.0\n\n")
assert head.startswith("HTTP/1.1 200 OK\r\n") and "Content-Length: " in head and body == b""
large = b"x" * 300000  # a body that nobody reads
for sent, status in [(b"POST /metrics HTTP/1.1\r\n\r\n" + large, "405"), (b"GET /metrics HTTP/1.1 \r\n\r\n", "200"),
                     (b"GET /metricsx HTTP/1.1\r\n\r\n", "404"), (b"GET /metrics\r\n\r\n", "400"), (b"\r\n\r\n", "400"),
                     (b"\0\xff\n\n", "400"), (b"GET /\0 HTTP/1.1\r\n\r\n", "404"), (b"GET /" + large, "431")]:
    try:
        head, _ = ask(sent)
    except ConnectionError:
        head = "reset" if len(sent) < 300000 else status  # it was answered before all of it was sent
    assert status in head[:12], (sent[:40], head)
began = time.monotonic()
others = [connect() for _ in range(100)]  # silent; more than are served at a time
for client in others[::2]:
    client.sendall(b"GET /metrics HT")
head, page = ask(b"GET /metrics HTTP/1.1\r\n\r\n")
assert b"\ntallywheel_" in page and time.monotonic() - began < 20, time.monotonic() - began  # two seconds each would be 200
for client in others:  # dropped, without an answer
    try:
        assert client.recv(1) == b""
    except ConnectionError:
        pass
END
python3 "$work/http.py" "$port" 2>"$work/err" && err_is_empty
ok $? 'HEAD, wrong and endless requests are answered; a hundred silent clients delay nobody'
kill -STOP "$first"
# Prometheus waits ten seconds. A busy machine gets several tries.
in_time() {
    asked=$(date +%s)
    get /metrics && [ $(($(date +%s) - asked)) -le 7 ]
}
in_time || in_time || in_time || in_time || in_time
[ $? -eq 0 ] && grep -q '^tallywheel_exporter_up{socket="a.sock"} 0$' "$work/body" &&
    [ "$(value 'tallywheel_increments_total{socket="b.sock"}' "$work/body")" = 0 ]
ok $? 'an engine that stands still holds up the others for less than a scrape lasts'
kill -CONT "$first"
kill -9 "$first"
wait "$first" 2>/dev/null
get /metrics && grep -q '^tallywheel_exporter_up{socket="a.sock"} 0$' "$work/body" && ! grep -q '{socket="a.sock",family' "$work/body" &&
    [ "$(value 'tallywheel_increments_total{socket="b.sock"}' "$work/body")" = 0 ]
ok $? 'an engine that died is named; the others are served'
kill -TERM "$exporter"
wait "$exporter"
[ $? -eq 143 ] && run 0 exporter --once --textfile "$work/page.prom" "$work/b.sock" && grep -q '^tallywheel_increments_total{socket="b.sock"} 0$' "$work/page.prom" &&
    [ -z "$(find "$work" -name 'page.prom.*')" ] && printf 'mine\n' >"$work/target" && ln -sf target "$work/page.prom" &&
    run 0 exporter --once --textfile "$work/page.prom" "$work/b.sock" && [ ! -L "$work/page.prom" ] && [ "$(cat "$work/target")" = mine ]
ok $? 'a file for node_exporter, written as a whole; SIGTERM ends the server'
run 1 exporter --once "$work/a.sock" && grep -qx 'tallywheel_exporter_up{socket="a.sock"} 0' "$work/out" && run 2 exporter && err_has 'name the engines' &&
    run 1 exporter --listen nowhere "$work/b.sock" && err_has 'HOST:PORT' && run 2 exporter --interval x "$work/b.sock" && err_has "not 'x'" && run 2 exporter --listen :1 --textfile x "$work/b.sock" &&
    run 1 exporter --textfile "$work/none/page.prom" --once "$work/b.sock" && err_has 'No such file' && run 0 exporter --help
ok $? 'nobody answers, wrong usage, a folder that is not there: each is named'
exec 7>&- 8>&-
