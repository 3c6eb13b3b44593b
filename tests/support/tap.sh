# shellcheck shell=sh disable=SC2034
# tap.sh -- the results of a test program in shell, as TAP, and how it waits; sourced by each of them.
# Always true: only the script itself writes to its standard output. What it starts in the background writes into files.
number=0
explain=: # a command that prints more of a result that failed
ran=''    # for it: what was done for this result
broken='' # what went wrong before this result. It fails, too

ok() { # STATUS SENTENCE
    number=$((number + 1))
    if [ "$1" -eq 0 ] && [ -z "$broken" ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        $explain
    fi
    ran='' broken=''
}

skip() { # SENTENCE WHY
    ok 0 "$1 # SKIP $2"
}

# Waits for a condition, never for a usual time. The time is for what never comes: a busy machine may need a part of it.
wait_until() { # COMMAND...: false if it fails even after a minute
    for _ in $(seq 1 600); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}
