# shellcheck shell=sh disable=SC2034,SC2154
# cli.sh -- what the scripts of this folder share; sourced with the command's path in $tool and the folder's in $2.
# Always true: everything is written into a folder of its own under $TMPDIR, removed at the end; helpers started in the
# background are ended by their id. A run can be repeated: TW_SEED, or else TW_SEED_ROUND, gives the same logs.
# shellcheck source=tests/support/tap.sh
. "$2/../support/tap.sh"
set -u
LC_ALL=C
export LC_ALL
work=$(mktemp -d)
background=''
redis=''
tab=$(printf '\t')
seed=${TW_SEED:-${TW_SEED_ROUND:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}}

at_end() {
    # A server that would save at SIGTERM does not end, because its folder is gone by then. It has nothing to save.
    if [ -n "$redis" ]; then kill -9 "$redis" 2>/dev/null; fi
    for pid in $background; do kill "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap at_end EXIT
trap 'exit 1' INT TERM

plan() { # COUNT
    echo "1..$1"
    echo "# seed $seed"
}

# A step that fails says what the last command did and printed: a rare failure may be seen only in a report.
explain=say_last_run
say_last_run() {
    printf '%s' "$broken" | head -n 5
    if [ -n "$ran" ]; then printf '%s\n' "$ran" | sed 's/^/# /'; fi
    for stream in out err; do
        [ -s "$work/$stream" ] || continue
        [ "$stream" = out ] && echo '# standard output:' || echo '# standard error:'
        head -n 5 "$work/$stream" | cut -c 1-300 | sed 's/^/#   /'
    done
}

# Runs the command; its output is in $work/out and $work/err. True if it exits with the expected status.
run() { # EXPECTED-STATUS ARGS...
    expected=$1
    shift
    timeout 100 "$tool" "$@" >"$work/out" 2>"$work/err"
    status=$?
    ran="'$*' exited with $status"
    [ "$status" -eq "$expected" ] && return 0
    echo "# '$*' exited with $status, $expected was expected"
    return 1
}

# Something that a step needs done before it, such as a command for Redis. If it fails, or prints anything else than
# what is expected, the next step fails and names it.
set_up() { # EXPECTED-TEXT COMMAND...
    expected_text=$1
    shift
    got=$("$@" 2>"$work/set_up") && [ "$got" = "$expected_text" ] && return 0
    got=$(printf '%s' "$got" | cat - "$work/set_up" | head -c 300 | tr '\n' ' ')
    broken="$broken# set-up: '$*' failed, or printed '$got' and not '$expected_text'
"
    return 1
}

# A reader that takes nothing out of the pipe that it makes: $work/full is there when the pipe is full.
stuck_reader() { # PIPE
    mkfifo "$1"
    rm -f "$work/full"
    python3 -c 'import fcntl, os, struct, sys, termios, time
pipe = os.open(sys.argv[1], os.O_RDONLY)
while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0] < 60000: time.sleep(0.05)
open(sys.argv[2], "w").close()
time.sleep(100)' "$1" "$work/full" >"$work/reader" 2>&1 &
    background="$background $!"
}

# Whether a process does nothing, for it waits for something.
sleeps() { # PID
    grep -q '^State:.*S ' "/proc/$1/status"
}

# Ends a program that prints into it by one signal. $status: its exit status, 137 if it had to be killed.
interrupt_print() { # PID SIGNAL
    # one process, so it ends when it is killed; and whoever waits for the test's output must not wait for it
    python3 -c 'import os, sys, time; time.sleep(50); os.kill(int(sys.argv[1]), 9)' "$1" >/dev/null 2>&1 &
    background="$background $!"
    wait_until [ -e "$work/full" ]
    wait_until sleeps "$1" # in its write
    kill "-$2" "$1"
    wait "$1"
    status=$?
}

err_has() { # TEXT
    grep -qF -- "$1" "$work/err" && return 0
    echo "# standard error lacks: $1"
    return 1
}

err_is_empty() {
    [ ! -s "$work/err" ]
}

# For a run that counts into Redis: on a busy machine it may say that it waits for a Redis that replies.
err_is_calm() {
    ! grep -qv '^tallywheel: waiting for Redis to take the rest$' "$work/err"
}

same() { # GOT WANTED
    cmp -s "$1" "$2" && return 0
    diff "$1" "$2" | head -n 5 | sed 's/^/# /'
    return 1
}

# A redis-server of the script's own on $work/redis.sock; $redis is its process id. It may be killed and started again.
redis_start() {
    redis-server --port 0 --unixsocket "$work/redis.sock" --dir "$work" --save '' --appendonly yes --aof-load-truncated no --daemonize no \
        >"$work/redis.log" 2>&1 &
    redis=$!
    background="$background $redis"
    wait_until redis_answers || echo '# redis-server does not start'
}
redis_answers() {
    ask PING >/dev/null 2>&1
}
ask() {
    redis-cli -s "$work/redis.sock" "$@"
}
redis_is_installed() {
    command -v redis-server >/dev/null && command -v redis-cli >/dev/null
}
# For a test that needs both: a redis-server, and a $tool that speaks to it. Sets $url, where redis_start makes it listen.
need_redis() {
    # shellcheck disable=SC2034  # for the test
    url="unix://$work/redis.sock"
    if ! redis_is_installed; then
        echo '1..0 # SKIP redis-server is not installed: apt-get install redis-server'
        exit 0
    fi
    # shellcheck disable=SC2154  # the test's
    if "$tool" audit --redis "unix://$work/none" 2>&1 | grep -q 'built without'; then
        echo '1..0 # SKIP built without Redis: apt-get install libhiredis-dev, and configure with -Dredis=enabled'
        exit 0
    fi
}

# The peak resident memory of a command, in kB, on standard output of this function; its own goes to $work/out.
peak_kb() { # COMMAND...
    python3 -c '
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:], stdout=open(sys.argv[1], "wb"))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)' "$work/out" "$@"
}

# Waits until a file has a line that matches.
wait_for() { # PATTERN FILE
    wait_until grep -q -s -- "$1" "$2" && return 0
    echo "# no '$1' in: $(head -c 300 "$2")"
    return 1
}

# Waits until `count --follow` has looked at its files again, and has read what is there now: each look is three reads or
# more, one each 200 ms, and the reads of what has come besides.
looks() { # PID [READS]
    looks_from=$(reads_of "$1") looks_more=${2:-15}
    wait_until has_looked "$1"
}
has_looked() {
    [ $(($(reads_of "$1") - looks_from)) -ge "$looks_more" ]
}
reads_of() {
    sed -n 's/^syscr: //p' "/proc/$1/io"
}
# Waits until it has opened the file.
opens() { # PID FILE
    wait_until has_open "$1" "$2"
}
has_open() {
    # shellcheck disable=SC2010  # names of links, which are numbers
    ls -l "/proc/$1/fd" 2>/dev/null | grep -qF -- " $2"
}

# Order of `count --output tsv`: by window, then count downwards, then key in byte order.
sort_rows() {
    sort -t "$tab" -k1,1 -k3,3nr -k2,2
}
