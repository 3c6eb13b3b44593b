#!/bin/sh
# shellcheck disable=SC2016,SC2317  # backticks in a pattern; functions that are called by way()
# consumers.sh ROOT TREE WORK [release] -- programs of users, by every way that docs/INSTALL.md has: from the installed
# TREE by pkg-config and by CMake, as a meson subproject, with the one file; with `release`, which takes minutes, only
# from the Debian packages of a release. One line for each way: ok, FAIL, or skip with the reason.
# Always true: exit status 0 only if none failed. WORK is emptied.
set -u
root=$1
tree=$2
work=$3
program=$root/tests/user/program.c
strict='-std=c11 -Wall -Wextra -pedantic -Werror'
failed=0
redis=
rm -rf "$work"
mkdir -p "$work"
cd "$work" || exit 2
trap 'if [ -n "$redis" ]; then kill "$redis"; fi' EXIT
trap 'exit 1' INT TERM

way() { # SENTENCE COMMAND...: what the command says is shown if it fails
    sentence=$1
    shift
    begin=$(date +%s)
    if "$@" >log 2>&1; then
        echo "ok    $sentence ($(($(date +%s) - begin)) s)"
    else
        echo "FAIL  $sentence"
        tail -n 25 log | sed 's/^/      | /'
        failed=1
    fi
}

needs() { # COMMAND SENTENCE: says why it is left out
    if command -v "$1" >/dev/null 2>&1; then return; fi
    echo "skip  $2: $1 is not installed"
    return 1
}

config=$(find "$tree" -name tallywheel.pc)
libdir=$(dirname "$(find "$tree" -name libtallywheel.a)")
prefix=$(find "$tree" -type d -name include | sed 's|/include$||')

# ---- from an installed tree

everything_is_there() {
    for file in include/tallywheel.h include/tallywheel.hpp include/tallywheel.cdef.h bin/tallywheel share/doc/tallywheel/LICENSE \
        share/doc/tallywheel/examples/count_hits.c share/doc/tallywheel/tallywheel.wrap \
        share/bash-completion/completions/tallywheel share/zsh/site-functions/_tallywheel; do
        [ -s "$prefix/$file" ] || { echo "no $file" && return 1; }
    done
    "$prefix/bin/tallywheel" --version &&
        readelf -dW "$libdir/libtallywheel.so" | grep -qF 'Library soname: [libtallywheel.so.0]' &&
        nm -D --defined-only "$libdir/libtallywheel.so" | grep -q ' tw_open@@TALLYWHEEL_0\.1$'
}

# One for each call, which may only lead to the page of its group; the pages are clean, and readers follow to them.
man_pages_are_there() {
    for call in $(sed -n 's/^TW_API.*[ *]\(tw_[a-z_]*\)(.*/\1/p' "$root/include/tallywheel.h" | grep -v '_sized$') tw_read tw_verdict; do
        [ -s "$prefix/share/man/man3/$call.3" ] || { echo "no page for $call" && return 1; }
        grep -q "^\.so" "$prefix/share/man/man3/$call.3" || continue
        page=$(sed 's|^\.so ||' "$prefix/share/man/man3/$call.3")
        grep -qw "$call" "$prefix/share/man/$page" || { echo "$page has no $call" && return 1; }
    done
    # shellcheck disable=SC2046
    mandoc -T lint $(grep -rL '^\.so' "$prefix/share/man") || return
    shows tallywheel.1 --utc-offset && shows tallywheel-count.1 --log-format && shows tallywheel.1 INSTANCE && shows tallywheel.3 dlclose &&
        shows tw_add.3 TW_ERR_LATE && shows tw_acquire_some.3 n_max
}

shows() { # PAGE.SECTION WORD: to somebody who asks for the page by its name; bold letters are struck twice there
    mman -M "$prefix/share/man" "${1##*.}" "${1%.*}" | sed "s/.$(printf '\b')//g" >page.txt
    grep -q '^NAME' page.txt && grep -qwe "$2" page.txt && return
    echo "what man shows for $1 has no $2"
    return 1
}

flags_of() { # FOLDER-OF-THE-PC --static or nothing
    PKG_CONFIG_SYSROOT_DIR=$tree PKG_CONFIG_PATH=$1 pkg-config ${2:+"$2"} --cflags --libs tallywheel
}

by_pkg_config() {
    flags=$(flags_of "$(dirname "$config")") && eval "gcc $strict -o shared '$program' $flags" && LD_LIBRARY_PATH=$libdir ./shared &&
        ! echo "$flags" | grep -E -e '-l(ck|hiredis|ssl|crypto)' # what only the library needs is not the program's
}

# A copy without the shared library: else the linker would take that.
by_pkg_config_static() {
    mkdir -p static-tree && cp -r "$tree/." static-tree/ && find static-tree -name 'libtallywheel.so*' -delete &&
        folder=$work/static-tree${config#"$tree"} && flags=$(tree=$work/static-tree && flags_of "${folder%/*}" --static) &&
        eval "gcc $strict -o static '$program' $flags" && ./static && ! ldd static | grep tallywheel || return
    # Where both are installed, as docs/INSTALL.md has it.
    flags=$(flags_of "$(dirname "$config")" --static | sed 's/-ltallywheel//') &&
        eval "gcc $strict -o static '$program' -L'$libdir' -Wl,-Bstatic -ltallywheel -Wl,-Bdynamic $flags" && ./static && ! ldd static | grep tallywheel
}

by_pkg_config_from_cpp() { # COMPILER
    flags=$(flags_of "$(dirname "$config")") &&
        sed -n '/^```cpp/,/^```$/p' "$root/docs/INSTALL.md" | sed '/^```/d' >manual.cc && grep -q tallywheel::engine manual.cc &&
        eval "$1 -std=c++17 -Wall -Wextra -pedantic -Werror -o manual manual.cc $flags" && LD_LIBRARY_PATH=$libdir ./manual &&
        eval "$1 -std=c++17 -Wall -Wextra -pedantic -Werror -o wrapper '$root/tests/user/wrapper.cc' $flags" && LD_LIBRARY_PATH=$libdir ./wrapper
}

by_cmake() {
    mkdir -p cmake && cat >cmake/CMakeLists.txt <<END &&
cmake_minimum_required(VERSION 3.16)
project(consumer C)
set(CMAKE_C_STANDARD 11)
find_package(tallywheel 0.1 CONFIG REQUIRED)
add_executable(shared $program)
target_link_libraries(shared PRIVATE tallywheel::tallywheel)
add_executable(static $program)
target_link_libraries(static PRIVATE tallywheel::static)
find_package(tallywheel 0.9 CONFIG QUIET)
if(tallywheel_FOUND)
  message(FATAL_ERROR "0.1 is taken for 0.9")
endif()
END
        cmake -S cmake -B cmake/build -DCMAKE_PREFIX_PATH="$prefix" && cmake --build cmake/build &&
        cmake/build/shared && cmake/build/static && ldd cmake/build/shared | grep tallywheel && ! ldd cmake/build/static | grep tallywheel
}

# ---- from the sources

# The sample .wrap as it is: the folder that it would fetch is there.
by_subproject() {
    mkdir -p meson/subprojects && cp "$root/packaging/tallywheel.wrap" meson/subprojects/ &&
        ln -sfn "$root" meson/subprojects/tallywheel && cp "$program" meson/program.c && cat >meson/meson.build <<'END' &&
project('consumer', 'c', default_options: ['default_library=static', 'optimization=0', 'debug=false'])
executable('program', 'program.c', dependencies: dependency('tallywheel', version: '>=0.1'))
END
        meson setup meson/build meson && ninja -C meson/build && meson/build/program || return
    targets=$(meson introspect --targets meson/build | python3 -c 'import json, sys; print(*sorted(t["name"] for t in json.load(sys.stdin) if t["type"] != "custom"))')
    echo "targets: $targets"
    [ "$targets" = 'program tallywheel' ]
}

# Little optimised: what a compiler sees only with -O3, gcc shows below.
one_file_by_clang() {
    clang -O1 -Wall -Wextra -pedantic -Werror -c -o clang.o one/tallywheel.c && clang -o by-clang "$program" clang.o -pthread -Ione && ./by-clang &&
        clang -static -o static-clang "$program" clang.o -pthread -Ione && ./static-clang && ! readelf -lW static-clang | grep INTERP
}

one_file_with_musl() {
    musl-gcc -static -o musl "$program" one/tallywheel.c -pthread -Ione && ./musl && ! readelf -lW musl | grep INTERP
}

# The object with all of it, in a program that counts in Redis. -O3: there gcc believes to see more than elsewhere.
one_file_with_redis() {
    gcc -O3 -Wall -Wextra -pedantic -Werror -DTW_WITH_TLS -c -o tls.o one/tallywheel.c &&
        gcc -o redis "$root/examples/with_redis.c" tls.o -pthread -Ione -lhiredis -lssl -lcrypto || return
    redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --dir "$work" --daemonize no >redis.log &
    redis=$!
    tries=0
    until redis-cli -s "$work/redis.sock" ping; do
        tries=$((tries + 1)) && [ "$tries" -lt 200 ] && sleep 0.1 || return
    done
    TALLYWHEEL_REDIS=unix://$work/redis.sock ./redis && [ "$(redis-cli -s "$work/redis.sock" GET plays:film-7)" = 100 ]
}

# What scripts/release.sh makes of the sources, all but the tag: packages that are clean, complete, hardened, and have the
# probes that the scripts for bpftrace name; the archive and the checksums.
release_is_made() {
    mkdir -p release && (cd "$root" && tar -cf - --exclude=./build --exclude=./.git .) | tar -xf - -C release &&
        git -C release init -q && git -C release config user.name a && git -C release config user.email a@example.org &&
        git -C release add -A && git -C release commit -q -m tree || return
    version=$(sed -n '/^## /{s/^## \([^ ]*\).*/\1/p;q}' release/CHANGELOG.md)
    DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)" sh release/scripts/release.sh "$version" --rehearse || return
    tree=release/build/release/unpacked/usr
    for file in bin/tallywheel share/man/man1/tallywheel.1.gz share/man/man1/tallywheel-count.1.gz \
        share/man/man3/tw_add.3.gz share/bash-completion/completions/tallywheel \
        share/zsh/vendor-completions/_tallywheel share/tallywheel/alerts.yml share/tallywheel/dashboard.json \
        share/doc/libtallywheel0/copyright share/doc/libtallywheel-dev/copyright share/doc/tallywheel/copyright \
        share/doc/libtallywheel-dev/examples/count_hits.c share/doc/libtallywheel-dev/docs/pictures/flow.svg; do
        [ -s "$tree/$file" ] || { echo "no $file" && return 1; }
    done
    library=$(echo "$tree"/lib/*/libtallywheel.so.0)
    probes=$(sed -n 's/^usdt:.*:tallywheel:\([a-z_]*\).*/\1/p' "$tree"/share/tallywheel/*.bt)
    [ -n "$probes" ] || return
    for probe in $probes; do
        readelf -n "$library" | grep -qx " *Name: $probe" || { echo "no probe $probe" && return 1; }
    done
    gcc -o release/program "$program" -I"$tree/include" "$library" && LD_LIBRARY_PATH=${library%/*} release/program &&
        (cd release/build/release && sha256sum -c SHA256SUMS && [ -s site/index.html ] &&
            [ "$(tar -tzf tallywheel-"$version"-one-file.tar.gz | grep -cE '/(tallywheel\.[ch]|LICENSE)$')" -eq 3 ])
}

if [ "${4:-}" = release ]; then
    needs lintian 'a release' && needs dh 'a release' && needs git 'a release' && needs abidw 'a release' && needs cmark-gfm 'a release' &&
        way 'a release, rehearsed: Debian packages, clean under lintian and hardened; one file, site' release_is_made
else
    way 'what is installed is complete' everything_is_there
    needs mandoc 'man pages' && way 'man pages: one for each call, clean' man_pages_are_there
    way 'pkg-config, shared' by_pkg_config
    way 'pkg-config, static' by_pkg_config_static
    for compiler in g++ clang++; do
        needs "$compiler" "C++ by $compiler" && way "C++ by $compiler" by_pkg_config_from_cpp "$compiler"
    done
    needs cmake 'CMake package' && way 'CMake package, shared and static' by_cmake
    way 'meson subproject' by_subproject
    way 'one file is made' "$root/dev" amalgamate
    cp -r "$root/build/one" one
    needs clang 'one file by clang' && way 'one file by clang, shared libc and static' one_file_by_clang
    needs musl-gcc 'one file with musl' && way 'one file with musl, linked statically' one_file_with_musl
    needs redis-server 'one file with Redis and TLS' && way 'one file with Redis and TLS, counting in Redis' one_file_with_redis
fi
exit $failed
