#!/bin/sh
# shellcheck disable=SC1003,SC2181  # a backslash before a quote; a status is looked at where it is compared
# watch.sh TOOL FOLDER PROGRAM -- `tallywheel top` and `show` look at a program that runs: watch_engine.c, whose counts are
# known. The screen is asked for by a terminal of the test's own (python's pty), and resized.
# Covers: tools/reset.c, tools/top/top.c, tools/top/top_screen.c, tools/top/top_json.c.
tool=$(realpath "$1")
engine=$3
# shellcheck source=tests/cli/cli.sh disable=SC2154
. "$2/cli.sh"
plan 21
socket=$work/engine.sock

# The engine reads commands from a pipe, and says "done" to each.
mkfifo "$work/in"
"$engine" "$socket" <"$work/in" >"$work/said" 2>"$work/engine.err" &
server=$!
background="$background $server"
exec 7>"$work/in"
commands=0
tell() { # COMMAND
    commands=$((commands + 1))
    echo "$1" >&7
    wait_until has_done "$commands" || echo "# the engine does not answer to $1"
}
has_done() { # COMMANDS
    [ "$(grep -c 'done' "$work/said")" -ge "$1" ]
}
member() { # EXPRESSION: of the object in $work/out, by python
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$work/out" "$1"
}
wait_for ready "$work/said"

run 0 top --once "$socket" && grep -q '^No family is open' "$work/out" && err_is_empty
ok $? 'an engine without a family is shown'
tell open
weird='\xFF\t"\\'
run 0 top --once "$socket" && grep -q '^> views  *counter  forever  *31  *1$' "$work/out" &&
    grep -q '^  logins  *counter  *day  *1  *1  *10  *2$' "$work/out" && grep -q '^  *30  */page/30$' "$work/out" && err_is_empty
ok $? '--once: families, what limits admitted and denied, the heaviest keys of the largest family'
run 0 show --keys 2 "$socket" views && sed 's/^ *//' "$work/out" | tail -n 2 >"$work/got" &&
    printf '31                %s\n30                %s\n' "$weird" /page/30 >"$work/want" && same "$work/got" "$work/want"
ok $? 'show: the heaviest keys first, each on one line, whatever its bytes are'
run 0 show --keys 2 views "$socket" && cp "$work/out" "$work/old" && (cd "$work" && run 0 show --keys 2 views engine.sock &&
    same "$work/out" "$work/old" && run 0 show --keys 2 engine.sock views && same "$work/out" "$work/old")
ok $? 'show: the family may be in front of the socket, as it was before'
run 0 show "$socket" views /page/7 && sed 's/^ *//' "$work/out" | tail -n 1 | grep -q '^7  */page/7$' &&
    run 0 show --json "$socket" views "$weird" && [ "$(member 'd["top"]["keys"][0]["key_hex"], d["top"]["keys"][0]["view"], len(d["top"]["keys"])')" = "('ff09225c', 31, 1)" ] &&
    run 1 show "$socket" views /page/99 && err_has 'views: no such key' && run 1 show "$socket" views 'a\' && err_has 'a backslash in a key' &&
    run 2 show --at 0 "$socket" views /page/7 && run 2 show "$socket" views a b
ok $? 'show: the count of one key, which is written as it is printed'
run 3 reset "$socket" views /page/7 && err_has 'this socket does not write' && [ ! -s "$work/out" ] && run 0 show "$socket" views /page/7
ok $? 'reset: a socket that does not write says so'
TALLYWHEEL_SOCKET=$socket
export TALLYWHEEL_SOCKET
run 0 top --once --json --family visitors --keys 5 && [ "$(member 'd["top"]["family"], d["top"]["keys"][0]["view"]')" = "('visitors', 50)" ] &&
    [ "$(member 'd["stats"]["increments"], d["stats"]["limit_denied"], len(d["families"])')" = '(91, 2, 3)' ]
ok $? '--json: statistics, families, distinct counts; the socket may come from the environment'
run 0 show --json views && [ "$(member 'd["top"]["keys"][0]["key_hex"], len(d["top"]["keys"]), len(d["families"])')" = "('ff09225c', 20, 1)" ]
ok $? 'show --json: the exact bytes of a key that is no text'
"$tool" top --json --interval 1s --keys 1 >"$work/looks" 2>"$work/err" &
looks=$!
background="$background $looks"
wait_for '"increments":91,' "$work/looks"
tell add
wait_for '"increments":172,' "$work/looks"
kill -TERM "$looks"
wait "$looks"
[ $? -eq 143 ] && err_is_empty && python3 - "$work/looks" <<'END'
import json, sys
looks = [json.loads(line) for line in open(sys.argv[1]) if line.endswith("}\n")]
before = [look for look in looks if look["stats"]["increments"] == 91]
after = next(look for look in looks if look["stats"]["increments"] == 172)
assert "increments_per_s" not in before[0] and "per_s" not in before[0]["top"]["keys"][0]
assert after["increments_per_s"] > 0 and after["top"]["keys"][0]["per_s"] > 0
END
ok $? '--json without --once: one object at each interval, with the rates since the last; SIGTERM ends it'
run 0 top --once --interval 1s "$socket" && grep -q 'rates over [0-9.]* s$' "$work/out"
ok $? '--once with --interval: rates over two looks'
run 1 show nothing && err_has 'nothing: no family of that name is open' && run 1 show --at 86400000 logins && err_has 'logins: '
ok $? 'what the engine refuses is said'
run 1 top --once "$work/none" && err_has 'No such file or directory' && run 2 top --keys 0 --once && err_has "--keys is 1..1000, not '0'" &&
    run 2 top --once a b && run 2 top </dev/null && grep -qE 'this is no terminal|built without ncurses' "$work/err"
ok $? 'no engine, wrong usage, no terminal: each is named'
(unset TALLYWHEEL_SOCKET && run 2 show views && err_has 'TALLYWHEEL_SOCKET')
ok $? 'without a socket the option to name it is named'

cat >"$work/screen.py" <<'END'
import fcntl, os, pty, select, struct, subprocess, sys, termios, time

def size(fd, rows, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

def engine():
    server = subprocess.Popen([sys.argv[3], sys.argv[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    return server

engines = [engine()] if len(sys.argv) > 3 else []
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execv(sys.argv[1], [sys.argv[1], "top", "--interval", "1s", sys.argv[2]])
size(fd, 24, 80)
seen = b""

def wait_for(text):
    global seen
    until = time.monotonic() + 30
    while text not in seen:
        if not select.select([fd], [], [], until - time.monotonic() if until > time.monotonic() else 0)[0]:
            sys.exit(f"no {text!r} in {seen[-600:]!r}")
        seen += os.read(fd, 65536)

def look():
    global seen
    wait_for(b"Heaviest keys of views")
    seen = b""
    size(fd, 50, 200)
    wait_for(b"/page/")  # drawn anew
    seen = b""
    os.write(fd, b"j")
    wait_for(b"visitors")

def outlive():
    global seen
    first = engines[0]
    wait_for(b"No family is open")
    seen = b""
    first.kill()
    first.wait()
    wait_for(b"GONE")
    seen = b""
    engines.append(engine())
    engines[1].stdin.write(b"open\n")
    engines[1].stdin.flush()
    wait_for(b"Heaviest keys of views")

try:
    look() if len(sys.argv) == 3 else outlive()
finally:
    for server in engines:
        server.kill()
os.write(fd, b"q")
while True:  # what it still says, until it is gone
    try:
        if not os.read(fd, 65536):
            break
    except OSError:
        break
_, status = os.waitpid(pid, 0)
sys.exit(f"ended with {status}" if status else 0)
END
if "$tool" top "$socket" </dev/null 2>&1 | grep -q 'built without ncurses'; then
    skip 'the screen' 'built without ncurses: apt-get install libncurses-dev'
    skip 'the screen outlives its engine' 'built without ncurses: apt-get install libncurses-dev'
else
    python3 "$work/screen.py" "$tool" "$socket" >"$work/err" 2>&1
    ok $? 'the screen: drawn, drawn anew in another size, another family by a key, ended by q'
    python3 "$work/screen.py" "$tool" "$work/other.sock" "$engine" >"$work/err" 2>&1
    ok $? 'the screen outlives its engine: says that it is gone, and shows the next one'
fi
kill -STOP "$server"
"$tool" top --once "$socket" >"$work/out" 2>"$work/err" &
looks=$!
background="$background $looks"
opens "$looks" socket: && wait_until sleeps "$looks" # it has asked, and waits
kill -INT "$looks"
wait "$looks"
[ $? -eq 130 ] && err_is_empty
ok $? 'SIGINT ends a look at an engine that stands still'
kill -CONT "$server"
run 0 top --help && grep -q '^Usage: tallywheel top' "$work/out" && run 0 show --help && grep -q '^Usage: tallywheel show' "$work/out" &&
    run 0 reset --help && grep -q '^Usage: tallywheel reset' "$work/out"
ok $? '--help'
(unset TALLYWHEEL_SOCKET && run 2 show "$socket" && err_has 'name a family behind the socket')
ok $? 'show: a socket without a family is named as what it is'
exec 7>&-
wait_until [ ! -e "$socket" ]
mkfifo "$work/in2"
"$engine" "$work/writes.sock" 30 write <"$work/in2" >"$work/said2" 2>"$work/engine2.err" &
background="$background $!"
exec 7>"$work/in2"
echo open >&7
wait_for 'done' "$work/said2"
run 0 reset "$work/writes.sock" views /page/7 && [ "$(cat "$work/out")" = 7 ] && err_is_empty && run 0 reset "$work/writes.sock" views /page/7 &&
    [ "$(cat "$work/out")" = 0 ] && run 0 reset "$work/writes.sock" views "$weird" && [ "$(cat "$work/out")" = 31 ] &&
    run 0 show --keys 1 "$work/writes.sock" views && grep -q '/page/30$' "$work/out" && run 0 show "$work/writes.sock" views /page/7 &&
    sed 's/^ *//' "$work/out" | tail -n 1 | grep -q '^0  */page/7$'
ok $? 'reset: one count is 0, and what it was is printed'
run 1 reset "$work/writes.sock" views nobody && err_has 'no such key' && run 2 reset "$work/writes.sock" views && run 2 reset a b c d &&
    run 4 reset "$work/none" views a && err_has 'No such file or directory' && run 4 reset "$work/writes.sock" none a &&
    err_has 'no family of that name is open' && run 4 reset "$work/writes.sock" visitors / && err_has 'TW_KIND_DISTINCT' &&
    run 4 reset "$work/writes.sock" 'views a' b && err_has 'no family has such a name'
ok $? 'reset: no such key, wrong usage, no engine, no such family, a family that cannot: each has its status'
exec 7>&-
run 1 top --once && [ ! -e "$socket" ] && [ ! -s "$work/engine.err" ]
ok $? 'the socket goes with its engine'
