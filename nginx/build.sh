#!/bin/sh
# build.sh SOURCES BUILD OUTPUT [INCLUDE LIBS] -- makes the module with the sources of nginx-dev.
#   SOURCES  the configure tree of nginx-dev, which is only read
#   BUILD    a folder for objects
#   OUTPUT   where the module is put
#   INCLUDE  the folder of tallywheel.h
#   LIBS     the linker's words for the library
# Without the last two, pkg-config finds the library.
# CFLAGS and LDFLAGS of the environment are used, too.
# Always true: the module has the options of the nginx that is installed, so nginx accepts it.
set -eu
nginx=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
sources=$1 build=$2 output=$3
if [ $# -ge 5 ]; then
    TALLYWHEEL_INCLUDE=$4 TALLYWHEEL_LIBS=$5
elif pkg-config --exists tallywheel; then
    TALLYWHEEL_INCLUDE=$(pkg-config --cflags-only-I tallywheel | sed 's/-I//g')
    TALLYWHEEL_LIBS=$(pkg-config --libs tallywheel)
else
    echo "build.sh: pkg-config does not find tallywheel. Please install the library first (./dev install)." >&2
    exit 1
fi
export TALLYWHEEL_INCLUDE TALLYWHEEL_LIBS

mkdir -p "$build"
build=$(CDPATH='' cd -- "$build" && pwd)
if [ ! -e "$build/Makefile" ] || [ -n "$(find "$sources/conf_flags" "$nginx/config" -newer "$build/Makefile")" ]; then
    # shellcheck disable=SC2016  # expanded by that bash: conf_flags has an array
    (cd "$sources" && bash -c '. ./conf_flags && ./configure "${NGX_CONF_FLAGS[@]}" --builddir="$1" \
        --add-dynamic-module="$2" --with-cc-opt="$3" --with-ld-opt="$4"' \
        configure "$build" "$nginx" "${CFLAGS:--g -O2} -fPIC" "${LDFLAGS:-} -fPIC") >"$build/configure.log" 2>&1 || {
        rm -f "$build/Makefile"
        cat "$build/configure.log" >&2
        exit 1
    }
fi
[ -n "${V:-}" ] && quiet="" || quiet=-s # V=1 shows the commands
# shellcheck disable=SC2086  # no word, or one
make $quiet -f "$build/Makefile" -C "$sources" modules >&2
# An nginx that runs has mapped the old file, so that is not written to.
cp "$build/ngx_http_tallywheel_module.so" "$output.new"
mv -f "$output.new" "$output"
