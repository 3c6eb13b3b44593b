#!/bin/sh
# check.sh [STEP...] -- what ./dev check runs: one line per step, with its seconds and those of processors, its log in
# build/check/STEP.log.
# check.sh list [STEP...] names all steps, if these are among them. N and SEED may be behind the step mutants_random.
# Always true: each step counts as one passed or failed; a step leaves nothing behind but its build folder; a failed step
# shows the end of its log, and the others still run.
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root" || exit 2
out=$root/build/check
mkdir -p "$out"
jobs=$(nproc 2>/dev/null || echo 2)
waiting_jobs=$((3 * jobs)) # of tests that wait two thirds of the time and more
passed=0 failed=0 skipped=0
TW_SEED_ROUND=${TW_SEED_ROUND-$(cat tests/seeds/round)} # as ./dev test
export TW_SEED_ROUND
# As ./dev, but never gold: of code that is not optimised (noredis), it gives thread-local variables of a shared library wrong
# addresses.
if [ -z "${CC_LD:-}" ] && command -v ld.mold >/dev/null 2>&1; then export CC_LD=mold; fi

# ---- helpers: everything a step prints goes to its log --------------------------------------------------------------

tracked() { # SUFFIX...: files of the project, from git where there is one
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files --cached --others --exclude-standard -- "$@"
    else
        for suffix in "$@"; do find . -path ./build -prune -o -type f -name "$suffix" -print; done
    fi
}

# configure NAME OPTIONS...: like ./dev's, for build/check/NAME.
configure() {
    dir=$out/$1
    shift
    if [ -f "$dir/build.ninja" ] && [ "$(cat "$dir/dev-options" 2>/dev/null)" = "$*" ]; then return; fi
    mkdir -p "$dir"
    if [ -f "$dir/build.ninja" ]; then
        meson setup --reconfigure "$dir" "$root" "$@" || return
    else
        meson setup "$dir" "$root" "$@" || return
    fi
    printf '%s\n' "$*" >"$dir/dev-options"
}

# Half an hour is for the whole check. So steps that need most play one of `parts` parts of their programs, with the next commit
# the next one. NAME_full plays all, and the soak plays all without a sanitizer.
parts=1
turn=$(git rev-list --count HEAD 2>/dev/null || echo 0)

ninja_tests() { # NAME SUITE...: builds the library, the command and what these suites need, and no other program
    dir=$out/$1
    shift
    # shellcheck disable=SC2046
    ninja -C "$dir" product $(python3 scripts/test_targets.py "$dir" --part "$turn/$parts" "$@")
    part_suites=$*
}

run_tests() { # NAME ARGS...: at least one test must have run
    dir=$out/$1
    shift
    if [ "$parts" -gt 1 ]; then
        # shellcheck disable=SC2086  # words
        python3 scripts/test_targets.py "$dir" --part "$turn/$parts" --names $part_suites >"$dir/part"
        while IFS= read -r name; do set -- "$@" "$name"; done <"$dir/part"
        echo "part $((turn % parts)) of $parts"
    fi
    factor=1 before='' # of meson's times, for the tests' own watchdogs (tests/support/watchdog.h)
    for argument in "$@"; do
        if [ "$before" = -t ]; then factor=$argument; fi
        before=$argument
    done
    rm -f "$dir"/meson-logs/testlog*.json
    TW_TIMEOUT_FACTOR=$factor meson test -C "$dir" --no-rebuild --print-errorlogs "$@"
    # shellcheck disable=SC2046
    set -- $(python3 scripts/count_tests.py "$dir")
    echo "$1 passed, $2 failed, $3 skipped"
    [ "$2" -eq 0 ] && [ "$1" -gt 0 ]
}

# gcc and clang of Debian 12 cannot place a sanitizer's shadow where the kernel spreads addresses widely.
plain_addresses() {
    if setarch -R true 2>/dev/null; then echo 'setarch -R'; else echo env; fi
}

# left_out LOG: what a step's tests left out, by "WHAT is missing: HOW to get it", with how many of them did.
left_out() {
    awk -F ': ' '/^skipped: / && NF > 2 { count[$(NF - 1) ": " $NF]++ }
        END { for (why in count) printf "      | left out: %d, %s\n", count[why], why }' "$1" | sort
}

# why LOG: what a failed step says. First the failed tests with what differed, as scripts/count_tests.py has them: some 40
# lines, divided among the programs. Then what else names a failure, then the end: whoever sees only the first lines needs
# no more.
why() {
    awk 'NR == FNR { programs += /^failed: /; next }
        /^failed: / { left = programs > 6 ? 6 : int(40 / programs) }
        !/^(failed: |    )/ { left = 0 }
        left-- > 0' "$1" "$1" | head -n 60
    grep -E '^ *[0-9]+/[0-9]+ .* (FAIL|TIMEOUT|ERROR) |^not ok |^FAIL|: (fatal )?error: |WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:' \
        "$1" | sort -u | head -n 12
    tail -n 25 "$1"
}

processor_seconds() { # of all that this shell has waited for; no $(...): that would be another shell
    times >"$out/times.$$"
    processors=$(sed -n '2s/[ms]/ /gp' "$out/times.$$" | awk '{ printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }')
    rm -f "$out/times.$$"
}

step() { # NAME SENTENCE: runs step_NAME
    name=$1
    if [ -n "$wanted" ]; then
        case " $wanted " in *" $name "*) ;; *) return ;; esac
    fi
    processor_seconds
    begin=$(date +%s) before=$processors
    ("step_$name") >"$out/$name.log" 2>&1 </dev/null
    status=$?
    seconds=$(($(date +%s) - begin))
    processor_seconds
    took=$(printf '%4d s %4d cpu' "$seconds" $((processors - before)))
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        printf 'ok    %-10s %s  %s\n' "$name" "$took" "$2"
        left_out "$out/$name.log"
    elif [ $status -eq 77 ]; then
        skipped=$((skipped + 1))
        printf 'skip  %-10s %s  %s: %s\n' "$name" "$took" "$2" "$(tail -n 1 "$out/$name.log")"
    else
        failed=$((failed + 1))
        printf 'FAIL  %-10s %s  %s (build/check/%s.log)\n' "$name" "$took" "$2" "$name"
        why "$out/$name.log" | sed 's/^/      | /'
    fi
}

# Half an hour on two processors is for all of it. So a build makes no more debug information than its step can show:
# -g1 where a tool names functions and lines (valgrind, sanitizers), none where only the tests' own messages are read.

# ---- the steps, quick ones first ------------------------------------------------------------------------------------

step_format() {
    tracked '*.c' '*.h' | xargs -r clang-format --dry-run -Werror
}

step_scripts() {
    # shellcheck disable=SC2046
    sh -n dev && shellcheck dev .ci/run $(tracked '*.sh')
}

step_layers() {
    sh scripts/layers.sh
}

# The build of ./dev test, if warnings are errors there (.ci/run): its tests have been run, too. Else one like it.
find_gcc() {
    gcc=gcc
    if grep -q -e '-Dtests=enabled.*--werror' "$out/../dev-options" 2>/dev/null; then gcc=..; fi
}

need_gcc() {
    find_gcc
    [ -f "$out/$gcc/libtallywheel.so.0" ] || step_gcc
}

# Programs of the other suites are compiled by gcc for the sanitizers, where warnings are errors, too.
step_gcc() {
    find_gcc
    if [ $gcc = .. ]; then
        echo 'the build of ./dev test has no warnings: there they are errors'
        ninja -C "$out/.."
        return
    fi
    configure gcc --buildtype=debugoptimized --werror -Dredis=enabled -Dtests=enabled -Dc_args=-g1 &&
        ninja_tests gcc model unit user && run_tests gcc --suite model --suite user # those of unit/ run under valgrind
}

# All of the product and the examples are compiled, for clang's warnings, which need no optimised code. What depends on the
# compiler, and what users write, is run. Other tests and the benchmarks are gcc's; `clang_full` compiles them, too.
step_clang() {
    CC=clang configure clang -Doptimization=0 -Ddebug=false --werror -Dredis=enabled -Dtests=enabled "-Dbench=${benches:-false}" &&
        ninja_tests clang user &&
        ninja -C "$out/clang" -t targets all | sed -n 's/^\(.*\.o\): .*_COMPILER.*/\1/p' | grep -v "${clang_without:-^tests/}" |
        xargs ninja -C "$out/clang" &&
        run_machine_tests clang && run_tests clang --suite user
}

step_clang_full() {
    clang_without='^$' benches=true
    step_clang
}

step_tidy() {
    [ -f "$out/clang/compile_commands.json" ] || step_clang || return
    tracked 'engine/*.c' 'extras/*.c' 'sync/*.c' 'tools/*.c' | sed "s|^|$root/|" >"$out/tidy.all"
    # Only what the build knows: a file that is not in a meson.build has no flags. The analyzer follows 20,000 states of
    # a function, not 225,000: that takes two fifths of the time of 75,000. `tidy_deep` follows them all.
    while read -r file; do
        if grep -qF "/${file#"$root"/}\"" "$out/clang/compile_commands.json"; then echo "$file"; fi
    done <"$out/tidy.all" | xargs -r -P "$jobs" -n 3 clang-tidy --quiet -p "$out/clang" \
        --extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg="max-nodes=${nodes:-20000}"
    status=$?
    grep -hE ' (error|warning): .*\[' "$out/$name.log" | sort -u | sed 's/^/found: /' # last, where a reader looks first
    return $status
}

step_tidy_deep() {
    nodes=225000
    step_tidy
}

step_symbols() {
    need_gcc || return
    # "A" is the version of the names itself.
    nm -D --extern-only --defined-only --without-symbol-versions "$out/$gcc/libtallywheel.so.0" | awk '$2 != "A" {print $NF}' >"$out/symbols.all"
    foreign=$(grep -v '^tw_' "$out/symbols.all")
    # _.stapsdt.base is sys/sdt.h's.
    internal=$(nm -g --defined-only "$out/$gcc/libtallywheel.a" 2>/dev/null | awk 'NF == 3 {print $3}' |
        grep -vE '^(twi?_|_\.stapsdt\.base$)')
    tr '\n' ' ' <include/tallywheel.h | grep -oE ' TW_API [^;(]*\(' | grep -oE 'tw_[a-z_]+\(' | tr -d '(' | sort -u >"$out/symbols.promised"
    # Each declared call is there, and no other.
    sort -u "$out/symbols.all" | diff "$out/symbols.promised" - | sed -n 's/^< /declared, but not in the library: /p
        s/^> /in the library, but not declared: /p' >"$out/symbols.wrong"
    cat "$out/symbols.wrong"
    echo "foreign: $foreign"
    echo "without prefix: $internal"
    python3 scripts/rooms.py "$out/$gcc" || return
    python3 scripts/abi.py || [ $? -eq 77 ] || return # what it lacks it says
    [ -s "$out/symbols.promised" ] && [ -z "$foreign" ] && [ -z "$internal" ] && [ ! -s "$out/symbols.wrong" ]
}

# Programs of users, by each way that docs/INSTALL.md has: tests/user/consumers.sh.
step_install() {
    need_gcc || return
    rm -rf "$out/install"
    DESTDIR=$out/install meson install -C "$out/$gcc" --no-rebuild --quiet &&
        sh tests/user/consumers.sh "$root" "$out/install" "$out/consumers"
}

# What scripts/release.sh makes.
step_release() {
    sh tests/user/consumers.sh "$root" "$out/install" "$out/release" release
}

noredis_unit='acquire_test calls_test calls_ends_test engine_test event_count_test family_options_test family_test host_test limits_test
options_test ready_test reserve_test stats_test waiters_test'
step_noredis() {
    # shellcheck disable=SC2046,SC2086  # words
    configure noredis -Doptimization=0 -Ddebug=false --werror -Dredis=disabled -Dck=disabled -Dtests=enabled -Dchecks=2 &&
        ninja_tests noredis user cli && ninja -C "$out/noredis" $(printf 'tests/unit_%s ' $noredis_unit) || return
    if ! needs=$(ldd "$out/noredis/libtallywheel.so.0") || echo "$needs" | grep -E 'hiredis|libck'; then
        echo "a build without Redis is linked with hiredis or libck, or with nothing"
        return 1
    fi
    # Nor does one without TLS need OpenSSL; what it lacks it says.
    configure notls -Doptimization=0 -Ddebug=false --werror -Dredis=enabled -Dtls=disabled -Dtests=disabled &&
        ninja -C "$out/notls" product || return
    if ! needs=$(ldd "$out/notls/libtallywheel.so.0") || echo "$needs" | grep -E 'libssl|libcrypto'; then
        echo "a build without TLS is linked with OpenSSL, or with nothing"
        return 1
    fi
    case $("$out/notls/tools/tallywheel" audit --redis rediss://127.0.0.1:1 2>&1) in
    *'built without'*) ;;
    *)
        echo "a build without TLS does not say so"
        return 1
        ;;
    esac
    # Without Redis and libck the engine has the same sources, but for its event counts and what opening says: the tests of
    # these, of what waits by event counts, and of what the command says where an option needs Redis.
    # shellcheck disable=SC2086  # words
    run_tests noredis --num-processes "$waiting_jobs" $noredis_unit count_wrong_input count_output exporter && run_tests noredis --suite user
}

# arm64 NAME TEST...: builds these tests with Debian's cross compiler, and runs them under qemu-user, one by one: it is ten
# times slower. No TEST: all of unit, model, fault and stress. Libraries for ARM64 are unpacked, not installed.
arm64() {
    for program in aarch64-linux-gnu-gcc qemu-aarch64; do
        if ! command -v $program >/dev/null; then
            echo "$program is not installed: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
            return 77
        fi
    done
    arm=$out/arm64-root
    if ! sh scripts/unpack_debian.sh "$arm" bookworm arm64 libcmocka-dev libcmocka0 libck-dev libhiredis-dev libhiredis0.14; then
        echo "the libraries of Debian 12 for ARM64 cannot be had: run it with apt and its network"
        return 77
    fi
    cat >"$out/arm64.ini" <<END
[binaries]
c = 'aarch64-linux-gnu-gcc'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-cpu', 'max', '-L', '/usr/aarch64-linux-gnu', '-E',
    'LD_LIBRARY_PATH=$arm/usr/lib/aarch64-linux-gnu', '-E', 'TW_EMULATED=1']
[properties]
pkg_config_libdir = '$arm/usr/lib/aarch64-linux-gnu/pkgconfig'
sys_root = '$arm'
[built-in options]
c_link_args = ['-L$arm/usr/lib/aarch64-linux-gnu']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
    name=$1
    shift
    CC_LD='' configure "$name" --cross-file "$out/arm64.ini" -Doptimization="${level:-2}" -Ddebug=false --werror -Dtests=enabled -Dtools=false "$@"
}

# What depends on the processor and on the compiler: vectors, atomics, pages. In suite unit; `conserve` of suite stress, too.
machine_tests='hash_test table_test page_size_test epoch_test'
run_machine_tests() { # NAME ARGS...
    # shellcheck disable=SC2086,SC2046  # words
    ninja -C "$out/$1" $(printf 'tests/unit_%s ' $machine_tests) tests/stress_conserve &&
        TW_SCALE=20 run_tests "$@" $machine_tests conserve
}

# Hash and table have code of their own there; its vectors are written by hand, and the same at each level.
step_arm64() {
    level=1
    arm64 arm64 -Dredis=disabled -Dtls=disabled && run_machine_tests arm64 -t 10
}

# Each compiler that is installed, from the oldest to the newest that Debian 12 has; warnings are errors.
compilers='gcc-11 gcc-12 clang-13 clang-14 clang-15 clang-16 clang-19 clang-22'
step_compilers() {
    status=0 tried=''
    for compiler in $compilers; do
        if ! command -v "$compiler" >/dev/null; then
            echo "skipped: $compiler is not installed: apt-get install $compiler"
            continue
        fi
        version=${compiler##*-} linker=bfd archiver=ar
        for options in '-Doptimization=0' '-Doptimization=2 -Dc_args=-march=native' '-Doptimization=3 -Db_lto=true'; do
            case "$compiler $options" in
            gcc*b_lto*) archiver=gcc-ar-$version ;;
            clang*b_lto*)
                linker=lld-$version archiver=llvm-ar-$version # lld alone is the one of another version
                if ! command -v "ld.lld-$version" >/dev/null || ! command -v "$archiver" >/dev/null; then
                    echo "skipped: $compiler -flto needs lld and llvm-ar: apt-get install lld-$version llvm-$version"
                    continue
                fi
                ;;
            esac
            echo "== $compiler $options"
            rm -rf "$out/compilers"
            # shellcheck disable=SC2086  # words
            CC=$compiler CC_LD=$linker AR=$archiver configure compilers -Ddebug=false --werror -Dredis=enabled \
                -Dtests=enabled $options && ninja -C "$out/compilers" product && run_machine_tests compilers || status=1
        done
        tried="$tried $compiler"
    done
    echo "with:$tried"
    [ -n "$tried" ] || return 77
    return $status
}

# With the crypto extension, too: the hash is then made of its AES rounds.
step_arm64_full() {
    arm64 arm64-full -Dredis=enabled -Dtls=disabled || return
    ninja_tests arm64-full unit model fault stress || return
    TW_SCALE=20 run_tests arm64-full --suite unit --suite model --suite fault --suite stress --no-suite long -t 20 || return
    arm64 arm64-aes -Dredis=disabled -Dtls=disabled -Dc_args=-march=armv8.1-a+crypto && ninja -C "$out/arm64-aes" tests/unit_hash_test tests/unit_table_test &&
        run_tests arm64-aes -t 10 hash_test table_test || return
    python3 scripts/arm64_hits.py "$out/arm64-hits" || [ $? -eq 77 ]
}

# musl-gcc has no headers of the kernel and no cmocka: the former are lent, the latter is made from Debian's source.
step_musl() {
    if ! command -v musl-gcc >/dev/null; then
        echo "musl-gcc is not installed: apt-get install musl-tools"
        return 77
    fi
    musl=$out/musl-root
    if ! sh scripts/unpack_debian.sh "$musl" bookworm source cmocka; then
        echo "the source of cmocka cannot be had: run it with apt and its network"
        return 77
    fi
    mkdir -p "$musl/lent"
    ln -sfn /usr/include/linux "$musl/lent/linux"
    ln -sfn /usr/include/asm-generic "$musl/lent/asm-generic"
    ln -sfn "/usr/include/$(gcc -print-multiarch)/asm" "$musl/lent/asm"
    cat >"$musl/cmocka.pc" <<END
Name: cmocka
Description: made for musl
Version: 1.1.5
Libs: -L$musl -lcmocka
Cflags: -I$musl/include -idirafter $musl/lent
END
    musl-gcc -O1 -D_GNU_SOURCE -DHAVE_SIGNAL_H -DHAVE_STRSIGNAL -DHAVE_UNISTD_H -DHAVE_GCC_THREAD_LOCAL_STORAGE \
        -DHAVE_CLOCK_GETTIME -DHAVE_CLOCK_REALTIME -DHAVE_STRUCT_TIMESPEC -DHAVE_TIME_H -I"$musl/include" \
        -c -o "$musl/cmocka.o" "$musl/src/cmocka.c" && ar rcs "$musl/libcmocka.a" "$musl/cmocka.o" || return
    CC=musl-gcc PKG_CONFIG_LIBDIR=$musl configure musl -Doptimization=1 -Ddebug=false -Dredis=disabled -Dck=disabled \
        -Dusdt=disabled -Dtests=enabled -Dtools=false &&
        ninja_tests musl unit stress && run_tests musl --suite unit --suite stress --no-suite long
}

# Each program of tests/orderings weakens the labelled orderings one by one. Every label of docs/CONCURRENCY.md's table is
# to be among them, but for those named here: the eviction epoch stands for a clock, which the models have as one word.
labels_not_modelled='G5 G6'
step_models() {
    parts=3
    step_models_full
}

step_models_full() {
    mkdir -p "$out/models"
    python3 scripts/model_digests.py || return
    if ! g++ -E -x c++ - >/dev/null 2>&1 <<'END'
#include <relacy/relacy.hpp>
END
    then
        echo "relacy is not installed: apt-get install relacy-dev"
        return 77
    fi
    rm -f "$out"/models/*
    # shellcheck disable=SC2016  # expanded by those shells
    printf '%s\n' tests/orderings/*.cpp | awk "NR % $parts == $turn % $parts" | xargs -P "$jobs" -I{} sh -c '
        name=$(basename "$1" .cpp)
        g++ -std=c++14 -O1 -Wall -Wextra -Wno-unused -I. -o "$2/$name" "$1" || exit
        timeout 900 "$2/$name" >"$2/$name.txt" || { echo "FAIL $name"; exit 1; }
    ' sh {} "$out/models"
    status=$?
    cat "$out"/models/*.txt
    labels=$(grep -oE '^\| [A-Z]{1,2}[0-9]+(, [A-Z]{1,2}[0-9]+)* \|' docs/CONCURRENCY.md | grep -oE '[A-Z]+[0-9]+')
    for label in $labels; do
        case " $labels_not_modelled " in *" $label "*) continue ;; esac
        if [ "$parts" -gt 1 ]; then
            named=$(grep -lw "$label" tests/orderings/*.cpp)
        else
            named=$(grep -l " without $label " "$out"/models/*.txt)
        fi
        if [ -z "$named" ]; then
            echo "FAIL no model weakens $label"
            status=1
        fi
    done
    return $status
}

# What plays random worlds plays a quarter as many under a sanitizer, which is three to ten times slower: `long` plays ten times
# as many, optimised.

# -O1: compiling takes two fifths less processor time than with -O2, the tests about as much. What the sanitizers look
# at is inserted at both levels; -O1 removes less of the code before. (What it inserts hides from gcc how long a number
# can be: -Wno-format-truncation.)
step_asan() {
    parts=5
    step_asan_full
}

step_asan_full() {
    configure asan --werror -Doptimization=1 -Ddebug=true -Db_sanitize=address,undefined -Db_lundef=false -Dredis=enabled \
        -Dtests=enabled -Dchecks=3 "-Dc_args=-fno-sanitize-recover=all -Wno-format-truncation -g1" &&
        ninja_tests asan cli fault host model redis sim unit user -scripts || return
    TW_SCALE=25 ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=1 \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
        run_tests asan --no-suite long --no-suite stress --no-suite scripts -t 4 --num-processes "$waiting_jobs" --wrapper "$(plain_addresses)"
}

# Not those of model/ and sim/, nor of unit/ those that meson.build names: each runs in one thread, which has nobody to
# race with.
step_tsan() {
    parts=5
    step_tsan_full
}

step_tsan_full() {
    # -Wno-tsan: gcc says that fences are not seen; what rests on libck's fences is excused in scripts/tsan.supp.
    configure tsan --werror -Doptimization=1 -Ddebug=true -Db_sanitize=thread -Db_lundef=false -Dredis=enabled -Dtests=enabled \
        -Dchecks=2 -Drace_points=true "-Dc_args=-Wno-tsan -Wno-format-truncation -g1" || return
    ninja_tests tsan unit stress redis -calculating -no-races -scripts || return
    TW_SCALE=25 TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:suppressions=$root/scripts/tsan.supp \
        run_tests tsan --suite unit --suite stress --suite redis --no-suite calculating --no-suite no-races --no-suite scripts -t 4 --num-processes "$waiting_jobs" --wrapper "$(plain_addresses)"
}

# Programs that make or read messages, files and texts; AddressSanitizer has looked at all.
step_valgrind() {
    under_valgrind 5 written
}

step_valgrind_full() {
    under_valgrind 25 unit
}

under_valgrind() { # SCALE SUITE
    need_gcc || return
    ninja_tests $gcc "$2" user &&
        TW_SCALE=$1 run_tests $gcc --suite "$2" --no-suite calculating -t 10 \
            --wrapper 'valgrind --quiet --leak-check=full --errors-for-leak-kinds=definite,indirect,possible --error-exitcode=9 --trace-children=no' &&
        valgrind --leak-check=full --show-leak-kinds=all --errors-for-leak-kinds=all --error-exitcode=9 \
            "$out/$gcc/tests/user/user_program"
}

step_fuzz() {
    sh scripts/fuzz.sh "$out" 4
}

# The build of ./dev test, which is optimised and has the tests of every suite; where there is none, one like it.
main_build() {
    main=..
    if ! grep -q -e '-Dtests=enabled' "$out/../dev-options" 2>/dev/null; then
        main=main
        configure main --buildtype=debugoptimized -Dredis=enabled -Dtests=enabled
    fi
}

# Programs that wait for Redis, and compilers: three for two processors. And what ./dev test leaves out, which waits more.
step_once() {
    main_build && ninja_tests $main once checked &&
        run_tests $main --suite once --num-processes "$(((3 * jobs + 1) / 2))" &&
        TW_SCALE=25 run_tests $main --suite checked --no-suite once --num-processes "$waiting_jobs"
}

step_long() {
    parts=4
    step_long_full
}

step_long_full() {
    main_build && ninja_tests $main long -soak || return
    if ! meson test -C "$out/$main" --list --suite long 2>/dev/null | grep -q ' / '; then
        echo "there are no long tests"
        return 77
    fi
    run_tests $main --suite long --no-suite soak --num-processes "$waiting_jobs"
}

# The tests of redis/ with each server that scripts/servers.sh can have: it is the first redis-server of their PATH.
step_servers() {
    main_build && ninja_tests $main redis || return
    servers=$(sh scripts/servers.sh "$out/servers")
    status=0
    for name in $servers; do
        PATH=$out/servers/$name/bin:$PATH
        export PATH
        echo "== $name: $(redis-server --version)"
        run_tests $main --suite redis --no-suite long --num-processes "$waiting_jobs" || status=1
        PATH=${PATH#*:}
    done
    echo "with: $servers"
    return $status
}

# The module and its tests with the nginx of Debian 13, and with its curl, which has HTTP/3. Both run by their own loader. A
# binary upgrade starts argv[0], so that is the script.
nginx13='nginx nginx-dev libc6 libcrypt1 libpcre2-8-0 libssl3t64 libzstd1 zlib1g libgcc-s1
    libnginx-mod-http-ndk libnginx-mod-http-lua libnginx-mod-http-geoip2 libnginx-mod-http-headers-more-filter
    libnginx-mod-http-echo libmaxminddb0 libluajit-5.1-2 lua-resty-core lua-resty-lrucache
    curl libcurl4t64 libbrotli1 libcom-err2 libffi8 libgmp10 libgnutls30t64 libgssapi-krb5-2 libhogweed6t64 libidn2-0
    libk5crypto3 libkeyutils1 libkrb5-3 libkrb5support0 libldap2 libnettle8t64 libnghttp2-14 libnghttp3-9 libp11-kit0
    libpsl5t64 librtmp1 libsasl2-2 libssh2-1t64 libtasn1-6 libunistring5'
step_nginx13() {
    tree=$out/nginx13/debian
    # shellcheck disable=SC2086  # words
    if ! sh scripts/unpack_debian.sh "$tree" trixie "$(dpkg --print-architecture)" $nginx13; then
        echo "Debian 13's packages cannot be had: allow apt to reach them"
        return 77
    fi
    stop=tests/nginx/libstop_in_set.so
    main_build && ninja -C "$out/$main" product $stop || return
    PKG_CONFIG_PATH=$out/$main/meson-uninstalled sh nginx/build.sh "$tree/usr/share/nginx/src" "$out/nginx13/objects" \
        "$out/nginx13/module.so" || return
    loader=$(find "$tree" -name 'ld-linux*.so*' -type f | head -n 1)
    libraries=$(find "$tree" -name '*.so.*' -exec dirname {} + | sort -u | paste -s -d :)
    mkdir -p "$out/nginx13/bin"
    for program in sbin/nginx bin/curl; do
        # shellcheck disable=SC2016  # expanded by that script
        printf '#!/bin/sh\nexec "%s" --argv0 "$0" --library-path "%s" "%s" "$@"\n' "$loader" "$libraries" \
            "$tree/usr/$program" >"$out/nginx13/bin/${program#*bin/}"
        chmod +x "$out/nginx13/bin/${program#*bin/}"
    done
    "$out/nginx13/bin/nginx" -v || return
    status=0
    for test in tests/nginx/*.py; do
        case $test in
        */rig.py) continue ;;
        */watch.py) more=$out/$main/tools/tallywheel ;;
        */reloads.py) more=$out/$main/$stop ;;
        *) more='' ;;
        esac
        echo "== $test"
        PATH=$out/nginx13/bin:$PATH TW_NGINX_TREE=$tree timeout 300 \
            python3 "$test" "$out/nginx13/module.so" "$root" ${more:+"$more"} || status=1
    done >"$out/nginx13/results"
    cat "$out/nginx13/results"
    echo "$(grep -c '^ok' "$out/nginx13/results") passed, $(grep -c '^not ok' "$out/nginx13/results") failed"
    return $status
}

# A test of the tests: mistakes of tests/sim/mutants, in sync/ and in the script, must be caught by the simulator. One of four,
# others with the next round of seeds.
step_mutants() {
    TW_MUTANT_PART=4 python3 scripts/mutants.py "$out/mutants"
}

step_mutants_full() {
    python3 scripts/mutants.py "$out/mutants"
}

# Which tests execute which source file, and how long they take: tests/coverage.txt, which ./dev quick reads. A test that fails
# here has executed what it has executed. Not optimised: each line has code of its own.
step_coverage() {
    main_build && ninja_tests $main cli fault model redis sim stress unit &&
        gcc -c -o "$out/coverage_exit.o" scripts/coverage_exit.c &&
        CC=gcc configure coverage -Doptimization=0 -Ddebug=false -Db_coverage=true -Dredis=enabled -Dtests=enabled \
            '-Dc_args=-fprofile-exclude-files=.*/tests/.*' "-Dc_link_args=-Wl,--wrap=_exit,$out/coverage_exit.o -lgcov" &&
        ninja_tests coverage cli fault model redis sim stress unit || return
    python3 scripts/coverage.py --times "$out/$main" && python3 scripts/coverage.py --learn "$out/coverage"
}

# The same for random mistakes in engine/ and sync/, which programs of unit/, model/ and sim/ must catch.
step_mutants_random() {
    nice -n 5 python3 scripts/mutants_random.py "$out/mutants_random" "$mutants_count" "$mutants_seed"
}

# ---- main -----------------------------------------------------------------------------------------------------------

all='format scripts layers gcc symbols install clang tidy noredis arm64 models asan tsan valgrind fuzz mutants once long'
by_name='tidy_deep clang_full models_full asan_full tsan_full valgrind_full mutants_full long_full servers nginx13 arm64_full musl compilers release coverage mutants_random' # minutes, or apt's network: these run only if they are named
beside='tidy arm64 models mutants'
step_beside() { # the steps that run beside the others when all are wanted
    step tidy 'clang-tidy'
    step arm64 'the engine on ARM64: gcc, and some tests under qemu'
    step models 'models of the protocols hold, and fail with any ordering weakened; one of three parts'
    step mutants 'mistakes made on purpose are caught by the simulator'
}
add_counts() { # LINE: the last line of another run of this script
    # shellcheck disable=SC2046  # three numbers
    set -- $(echo "$1" | awk '/^[0-9]+ passed, [0-9]+ failed/ { print $1, $3, $5 + 0 }')
    passed=$((passed + ${1:-0})) failed=$((failed + ${2:-1})) skipped=$((skipped + ${3:-0}))
}
only_list=false
if [ "${1:-}" = list ]; then only_list=true && shift; fi
wanted='' mutants_count='' mutants_seed=''
for name in "$@"; do
    if [ "${wanted##* }" = mutants_random ] && [ -z "$mutants_seed" ] && expr "$name" : '[0-9]*$' >/dev/null; then
        if [ -z "$mutants_count" ]; then mutants_count=$name; else mutants_seed=$name; fi
        continue
    fi
    case " $all $by_name " in
    *" $name "*) wanted="$wanted${wanted:+ }$name" ;;
    *)
        echo "check: there is no step $name; there are: $all $by_name" >&2
        exit 2
        ;;
    esac
done
if $only_list; then
    echo "$all $by_name"
    exit 0
fi
mutants_count=${mutants_count:-20} mutants_seed=${mutants_seed:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
started=$(date +%s)
step format 'clang-format leaves every file as it is'
step scripts 'shell scripts are POSIX and clean (shellcheck)'
step layers 'layers, one door per dependency, head comments'
step gcc 'gcc, warnings are errors; model, and user code as C99, C11, C++11, C++20'
step symbols 'the libraries define what the header declares and nothing else, as the release did; calls keep to the rooms'
step install 'user programs: installed tree, pkg-config, CMake, subproject, one file, C++'
step clang 'clang, warnings are errors: what depends on the compiler, user code'
if [ -z "$wanted" ]; then
    # Tests wait a part of their time for servers and clocks. Meanwhile the processors work on these steps, which only
    # calculate and know no time limit. To a test that wants to run they give way at once.
    # shellcheck disable=SC2086  # words
    nice -n 19 sh "$root/scripts/check.sh" $beside >"$out/beside.log" 2>/dev/null </dev/null &
    beside_id=$!
else
    step_beside
fi
step noredis 'the engine without hiredis and libck, and its tests; all of it without OpenSSL'
step asan 'AddressSanitizer and UBSan, checks=3, one of five parts; nginx, too'
step tsan 'ThreadSanitizer, race points, one of five parts'
step valgrind 'valgrind: no error, no leak; those of unit/ that write and read messages, files and texts'
step fuzz 'fuzzing, 4 s for each target'
step once 'what is the same in every build: sources, scripts, pages, the one file; what ./dev test leaves out'
step long 'the long tests, optimised, one of four parts'
if [ -n "$wanted" ]; then
    step tidy_deep 'clang-tidy, its analyzer as deep as it goes'
    step clang_full 'clang, warnings are errors: the tests and the benchmarks, too'
    step models_full 'all models of the protocols'
    step asan_full 'AddressSanitizer and UBSan, all tests of the step asan'
    step tsan_full 'ThreadSanitizer, all tests of the step tsan'
    step long_full 'all long tests'
    step valgrind_full 'valgrind, all programs of unit/'
    step mutants_full 'all mistakes made on purpose are caught by the simulator'
    step arm64_full 'the whole engine on ARM64: unit, model, fault and stress under qemu, also with its AES rounds'
    step release 'a release, rehearsed: packages, lintian, hardening, one file, site'
    step musl 'unit and stress, linked with musl'
    step compilers 'old and new compilers: -O0, -march=native, -O3 -flto'
    step servers 'the tests with real servers, with Redis 6.0, the installed one, 8.0 and Valkey 8.1'
    step nginx13 "the module and its tests with Debian 13's nginx"
    step coverage 'which tests execute which source file: tests/coverage.txt is written anew'
    step mutants_random "random mistakes are caught: $mutants_count of seed $mutants_seed"
fi
if [ -z "$wanted" ]; then
    wait "$beside_id"
    sed '$d' "$out/beside.log"
    add_counts "$(tail -n 1 "$out/beside.log")"
fi
echo "check: $(($(date +%s) - started)) s in all" >&2
if [ "$skipped" -gt 0 ]; then
    echo "$passed passed, $failed failed, $skipped skipped"
else
    echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
