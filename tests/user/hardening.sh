#!/bin/sh
# hardening.sh FILE... -- each file, as the default build makes it, has its relocations read-only and bound at its start, a
# stack protector, and libc's checks of sizes. Prints TAP.
if ! command -v readelf >/dev/null 2>&1; then
    echo '1..0 # SKIP readelf is not installed: apt-get install binutils'
    exit 0
fi
echo "1..$(($# * 3))"
number=0
has() { # FILE WHAT PATTERN READELF-OPTION
    number=$((number + 1))
    if readelf -W "$4" "$1" | grep -qE "$3"; then echo "ok $number - $2: ${1##*/}"; else echo "not ok $number - $2: ${1##*/}"; fi
}
for file in "$@"; do
    has "$file" 'RELRO and BIND_NOW' 'BIND_NOW|FLAGS.*NOW' -d
    has "$file" 'a stack protector' '__stack_chk_fail' --dyn-syms
    has "$file" 'checks of sizes' '__[a-z]+_chk' --dyn-syms
done
