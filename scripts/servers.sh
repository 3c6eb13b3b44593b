#!/bin/sh
# servers.sh FOLDER -- the servers that the library promises to work with, each in FOLDER/NAME/bin as `redis-server` and
# `redis-cli`. Put that folder first in PATH, and every test uses that server. Prints the names of those that are there.
# What Debian 11 and 13 have is unpacked, not installed, and runs by its own loader with its own libraries.
# Always true: nothing outside FOLDER changes; what could not be had is said on standard error, with the reason.
set -u
mkdir -p "$1" || exit
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$(CDPATH='' cd -- "$1" && pwd)

# offer NAME RELEASE PROGRAMS: PROGRAMS-server and PROGRAMS-cli of that release
offer() {
    here=$folder/$2
    loader=$(find "$here" -name 'ld-*.so*' -type f | head -n 1)
    libraries=$(find "$here" -name '*.so.*' -exec dirname {} + | sort -u | paste -s -d :)
    mkdir -p "$folder/$1/bin"
    for program in server cli; do
        printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$loader" "$libraries" "$here/usr/bin/$3-$program" \
            >"$folder/$1/bin/redis-$program"
        chmod +x "$folder/$1/bin/redis-$program"
    done
    if "$folder/$1/bin/redis-server" --version >&2; then
        echo "$1"
    else
        lacks "$1" 'it does not start here'
    fi
}

lacks() { # NAME WHY
    echo "skipped: $1 is not there, $2: install that server, and run the tests with its folder first in PATH" >&2
}

unpack() { # RELEASE PACKAGE...
    release=$1
    shift
    sh "$root/scripts/unpack_debian.sh" "$folder/$release" "$release" "$(dpkg --print-architecture)" redis-server redis-tools \
        libc6 libatomic1 libjemalloc2 liblzf1 libstdc++6 libgcc-s1 libsystemd0 libzstd1 "$@"
}

if unpack bullseye libssl1.1 liblua5.1-0 lua-bitop lua-cjson liblzma5 liblz4-1 libgcrypt20 libgpg-error0; then
    offer redis-6.0 bullseye redis
else
    lacks redis-6.0 'Debian 11 cannot be reached'
fi
if command -v redis-server >/dev/null; then
    echo installed
else
    lacks 'the installed Redis' 'no redis-server is installed'
fi
if unpack trixie valkey-server valkey-tools libssl3t64 libcap2 zlib1g; then
    offer redis-8.0 trixie redis
    offer valkey-8.1 trixie valkey
else
    lacks 'redis-8.0, valkey-8.1' 'Debian 13 cannot be reached'
fi
