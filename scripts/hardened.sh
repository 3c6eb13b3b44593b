#!/bin/sh
# hardened.sh --log BUILD-LOG FILE... -- are the programs and shared libraries of a package hardened as a distribution asks
# of what reads from a network?
#   each file       position-independent; memory is writable or executable, never both; relocations are resolved at the
#                   start, and read-only from then on (full RELRO); it has guards of the stack and copies that check their room
#   each command    that compiled a file of C, as the log of the build has it: -fstack-protector-strong and _FORTIFY_SOURCE=3
# Always true: each line of output is one fault, as FILE: WHAT; exit status 0 only if there is none.
set -u
faults=0
fault() {
    printf '%s: %s\n' "$file" "$1"
    faults=1
}
has() { # PATTERN OTHERWISE: of what readelf says
    printf '%s\n' "$said" | grep -qE -- "$1" || fault "$2"
}
if [ "${1:-}" != --log ] || [ $# -lt 3 ]; then
    echo 'usage: hardened.sh --log BUILD-LOG FILE...' >&2
    exit 2
fi
file=$2
shift 2
compiled=$(grep -cE ' -c [^ ]+\.c( |$)' "$file")
for flag in -fstack-protector-strong -D_FORTIFY_SOURCE=3; do
    with=$(grep -E ' -c [^ ]+\.c( |$)' "$file" | grep -cE -- " $flag( |\$)")
    if [ "$compiled" -eq 0 ] || [ "$with" -ne "$compiled" ]; then fault "$flag at $with of $compiled files"; fi
done
for file in "$@"; do
    if ! said=$(readelf -hldW --dyn-syms "$file" 2>&1); then
        fault 'readelf cannot read it'
        continue
    fi
    has 'Type: +DYN' 'its place in memory is fixed (no -fPIE, no -fPIC)'
    has 'GNU_STACK .* RW  ' 'its stack can be executed'
    has 'GNU_RELRO' 'its relocations stay writable (no -z relro)'
    has 'BIND_NOW|FLAGS.* NOW' 'calls are resolved when they are made (no -z now)'
    has '__stack_chk_fail' 'no guard of the stack'
    case $file in
    */nginx/modules/*) ;; # nginx's pools do not show the room that a copy has
    *) has ' __[a-z]+_chk[@ ]' 'no copy checks its room' ;;
    esac
    if printf '%s\n' "$said" | grep -qE '^ *LOAD .* RWE '; then fault 'memory that is writable and executable'; fi
done
exit $faults
