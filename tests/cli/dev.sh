#!/bin/sh
# dev.sh ROOT -- ./dev and its helpers as a newcomer meets them: wrong commands, packages missing, how tests are counted.
# Method: dpkg-query, id, sudo and apt-get are stood in for by scripts of our own; nothing is installed or built. Prints TAP.
# shellcheck disable=SC2016  # the stand-ins expand it
set -u
root=$1
dev_script=$root/dev # `root` changes in some of the steps
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/tap.sh disable=SC2154
. "$root/tests/support/tap.sh"

stand_in() { # NAME TEXT
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

run() { # EXPECTED-STATUS ARGS...: ./dev with our stand-ins; true if it ends so
    expected=$1
    shift
    PATH="$work/bin:$PATH" "$root/dev" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [ $status -eq "$expected" ] && return
    echo "# ./dev $* ended with $status, should end with $expected"
    sed 's/^/# /' "$work/err"
    return 1
}

counted() { # EXPECTED, test log on standard input
    mkdir -p "$work/meson-logs"
    cat >"$work/meson-logs/testlog.json"
    got=$(python3 "$root/scripts/count_tests.py" "$work" 2>"$work/said")
    [ "$got" = "$1" ] && return
    echo "# counted $got, should be $1"
    return 1
}

echo 1..40
mkdir "$work/bin"
stand_in dpkg-query 'for package; do :; done; case $package in libck-dev | redis-server | git) exit 1 ;; *) printf installed ;; esac'
stand_in id 'echo 1000'
stand_in sudo 'exit 1'
stand_in apt-get 'echo "$@" >>'"$work/apt"

run 2 && [ ! -s "$work/out" ] && grep -q '^usage:' "$work/err"
ok $? 'without a command it says what it can do, on standard error'
run 2 tset && grep -q '^usage:' "$work/err"
ok $? 'an unknown command is a usage error'
run 2 soak forever && run 2 soak && run 2 soak 9 load nothing && run 2 soak load
ok $? 'soak wants a number of seconds, and parts that it has'
run 3 test && [ ! -s "$work/out" ]
ok $? 'where it may not install, it exits with 3'
grep -qx "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends libck-dev redis-server git'" "$work/err"
ok $? 'and prints the one line to run, with what is missing (git, by which mistakes are planted) and nothing else'
[ ! -e "$work/apt" ]
ok $? 'and has not tried'
grep -q 'not root, and no sudo works here without a password' "$work/err"
ok $? 'and says why'
mkdir "$work/few"
for tool in dpkg-query id; do ln -s "$work/bin/$tool" "$work/few/$tool"; done
ln -s "$(command -v dirname)" "$work/few/dirname"
PATH=$work/few "$root/dev" test >"$work/out" 2>"$work/err" </dev/null
[ $? -eq 3 ] && grep -qx "su -c 'apt-get update && apt-get install -y --no-install-recommends libck-dev redis-server git'" "$work/err"
ok $? 'where there is no sudo, the line begins with su'
stand_in sudo 'echo "$@" >>'"$work/sudo"'; case $2 in true) exit 0 ;; *) exit 100 ;; esac'
run 3 run && grep -q 'install libck-dev redis-server$' "$work/sudo"
ok $? 'an installation that fails is said so, with the same line'

run 0 check list && grep -q format "$work/out" && ! grep -q . "$work/err"
ok $? 'naming the steps of the check installs nothing'
run 2 check tyde && grep -q 'no step tyde; there are: format' "$work/err" &&
    run 2 check mutants_random 20 x && grep -q 'no step x;' "$work/err" && run 2 check long 20 && grep -q 'no step 20;' "$work/err"
ok $? 'nor does a step that there is not'

# A tree of its own, with a build that says much: the command is made there.
mkdir -p "$work/tree/build" "$work/tree/scripts" "$work/tree/tests/seeds"
cp "$root/dev" "$work/tree/dev"
cp "$root/tests/seeds/round" "$work/tree/tests/seeds/"
cp "$root/scripts/count_tests.py" "$work/tree/scripts/"
stand_in dpkg-query 'printf installed'
stand_in meson 'seq -f "meson line %g" 40; mkdir -p "$2"; : >"$2/build.ninja"'
stand_in cc 'echo some-triplet'
stand_in ninja 'seq -f "[%g/140] Compiling" 140; echo "$@" >>'"$work/ninja"'
mkdir -p "$2/tools" && printf "#!/bin/sh\necho the command: \"\$@\"\n" >"$2/tools/tallywheel" && chmod +x "$2/tools/tallywheel"'
(root=$work/tree && run 0 run count x)
[ "$(cat "$work/out")" = 'the command: count x' ] && [ "$(wc -l <"$work/err")" -le 1 ]
ok $? 'run builds without a word but one line'
grep -q ' product$' "$work/ninja"
ok $? 'and builds the libraries with the command'
[ ! -e /etc/debian_version ] || grep -q -- '-Dlibdir=lib/some-triplet$' "$work/tree/build/dev-options"
ok $? 'on a Debian the libraries are installed where its compiler looks for them'
(root=$work/tree && run 0 run count x)
[ "$(cat "$work/out")" = 'the command: count x' ] && [ ! -s "$work/err" ]
ok $? 'a second run says nothing of its own'
stand_in ninja 'echo "x.c:1: error"; exit 1'
(root=$work/tree && run 1 run count x)
grep -q 'x.c:1: error' "$work/err" && grep -q 'the build failed' "$work/err" && [ ! -s "$work/out" ]
ok $? 'a build that fails is shown'

printf '%s\n' '{"result": "OK", "stdout": "1..2\n# seed 0x1\nok 1 - a\nok 2 - b\n"}' \
    '{"result": "OK", "stdout": "hello"}' '{"result": "SKIP", "stdout": "1..0 # SKIP no server\n"}' | counted '3 0 1'
ok $? 'tests are counted one by one'
printf '%s\n' '{"result": "FAIL", "stdout": "1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP why\n"}' | counted '1 1 1'
ok $? 'a failed test is one failure, a skipped one no success'
printf '%s\n' '{"result": "TIMEOUT", "stdout": "1..5\nok 1 - a\n"}' '{"result": "FAIL", "stdout": null}' | counted '1 5 0'
ok $? 'tests that were never reached have failed'
printf '%s\n' '{"result": "ERROR", "stdout": "1..1\nok 1 - a\n"}' | counted '1 1 0'
ok $? 'a program that breaks after its last test has failed'
printf '%s\n' '{"name": "redis / x", "result": "ERROR", "stdout": "1..1\nnot ok 1 - a\n", "stderr": "it was 3\n"}' | counted '0 1 0' &&
    printf '%s\n' 'failed: redis / x (ERROR)' '    not ok 1 - a' '    it was 3' | cmp -s - "$work/said"
ok $? 'what failed is named last, with what it said'
printf '%s\n' '{"name": "x", "result": "FAIL", "stdout": "1..2\n# seed 7\n# of a\nok 1 - a\n# above b\nnot ok 2 - b\n# below b\n"}' |
    counted '1 1 0' && printf '%s\n' 'failed: x (FAIL)' '    # seed 7' '    # above b' '    not ok 2 - b' '    # below b' |
    cmp -s - "$work/said"
ok $? 'what a test said above and below the line of its failure is shown, and nothing of other tests'
{
    printf '{"name": "x", "result": "FAIL", "stdout": "1..2\\nnot ok 1 - a\\n# 1, not 2\\n'
    printf '# a line of a log\\n%.0s' $(seq 2000)
    printf 'not ok 2 - b\\n# 3, not 4\\n", "stderr": "'
    printf 'info\\n%.0s' $(seq 200)
    printf '==7==ERROR: AddressSanitizer: heap-use-after-free\\n    #0 at f\\n'
    printf 'shadow bytes\\n%.0s' $(seq 200)
    printf '"}\n'
    printf '%s\n' '{"name": "y", "result": "OK", "stdout": "1..0 # SKIP no server\n"}'
} | counted '0 2 1' && [ "$(wc -l <"$work/said")" -le 40 ] && sed -n 2p "$work/said" | grep -q '^failed: x ' &&
    grep -A1 'not ok 1' "$work/said" | grep -q '1, not 2' && grep -A1 'not ok 2' "$work/said" | grep -q '3, not 4' &&
    grep -A1 'ERROR: AddressSanitizer' "$work/said" | grep -q '#0 at f'
ok $? 'of logs of thousands of lines it shows the failed assertions and the beginning of a report, and last'
sed -n '/^why() {/,/^}/p' "${dev_script%/dev}/scripts/check.sh" >"$work/why"
{
    echo 'x.c:3:4: error: no such name'
    for which in 1 2 3; do
        printf '%s\n' "failed: p$which (FAIL)" '    not ok 1 - a' "    # $which, not 2"
        seq -f '    # %g of a log' 20
    done
    seq 500
} >"$work/log"
# shellcheck source=/dev/null
(. "$work/why" && why "$work/log") >"$work/out"
for which in 1 2 3; do echo "failed: p$which (FAIL) not ok 1 - a # $which, not 2"; done >"$work/wanted"
head -n 40 "$work/out" | grep -A2 '^failed: ' | grep -v '^--' | paste -s -d '  \n' | sed 's/   */ /g' | cmp -s - "$work/wanted" &&
    sed -n 1p "$work/out" | grep -q '^failed: p1' && grep -q 'no such name' "$work/out" &&
    [ "$(tail -n 1 "$work/out")" = 500 ] && [ "$(wc -l <"$work/out")" -le 100 ]
ok $? 'a failed step of the check shows first what failed in each program and why'
printf '%s\n' '{"name": "unit / x", "result": "OK", "stdout": "1..2\n# left out: b: no AES\nok 1 - a\nok 2 - b\n"}' | counted '1 0 1' &&
    printf '%s\n' 'skipped: unit / x: b: no AES' | cmp -s - "$work/said"
ok $? 'a test that says it was left out has not passed, and its reason is named'
printf '%s\n' '{"name": "x", "result": "OK", "stdout": "1..2\nok 1 - a\n# left out: a: why\n# left out: a: as well\nok 2 - ab\n"}' |
    counted '1 0 1'
ok $? 'the line stands where it will, as often as it will, and is of no other test'
printf '%s\n' '{"name": "x", "result": "ERROR", "stdout": "1..1\n# left out: a: why\nnot ok 1 - a\n"}' | counted '0 1 0'
ok $? 'a test that left something out and failed has failed'
printf '%s\n' '{"name": "x", "result": "OK", "stdout": "1..1\n# left out: helper: why\nok 1 - a\n"}' | counted '1 1 0' &&
    printf '%s\n' '{"name": "x", "result": "OK", "stdout": "# left out: a: why\n"}' | counted '0 1 0'
ok $? 'what is left out under a name that no test has is a failure'
printf '%s\n' '{"name": "y", "result": "OK", "stdout": "1..0 # SKIP no server\n"}' | counted '0 0 1' &&
    printf '%s\n' 'skipped: y: all of it: no server' | cmp -s - "$work/said"
ok $? 'a program that is skipped is named with its reason'
printf '%s\n' '{"name": "y", "result": "SKIP", "stdout": "begun\nno server\n"}' | counted '0 0 1' &&
    printf '%s\n' 'skipped: y: all of it: no server' | cmp -s - "$work/said"
ok $? 'a program without TAP gives its reason in its last line'

# ./dev test itself, its build stood in for: what it says last is the sum of its two runs.
stand_in ninja 'exit 0'
stand_in meson 'case $1 in setup) mkdir -p "$2"; : >"$2/build.ninja" ;; test) mkdir -p "$3/meson-logs"
case "$*" in *--logbase*) log=${*##*--logbase } log=${log%% *} ;; *) log=testlog ;; esac
printf "%s\n" "{\"result\": \"OK\", \"stdout\": \"1..2\\nok 1 - a\\n# left out: b: why\\nok 2 - b\\n\"}" >"$3/meson-logs/$log.json" ;; esac'
(root=$work/tree && run 0 test)
[ "$(tail -n 1 "$work/out")" = '2 passed, 0 failed, 2 skipped' ]
ok $? 'the last line of test is the sum of its two runs, and tells how many were skipped'

# ./dev quick: which tests it builds and runs, by a map and a change; meson is asked, but only said to run.
mkdir -p "$work/tree/engine/turn" "$work/tree/tests/unit/turn" "$work/tree/tests/redis"
for script in quick covers coverage c_source files; do cp "${dev_script%/dev}/scripts/$script.py" "$work/tree/scripts/"; done
printf 'int twi_a(void) {\n    return 1;\n}\n\nint twi_b(void) {\n    return 1;\n}\n' >"$work/tree/engine/turn/a.c"
for name in unit/turn/near_test unit/turn/far_test redis/rare redis/slow; do echo '/* x */' >"$work/tree/tests/$name.c"; done
printf '%s\n' 'unit/near_test 1.0 s' 'unit/far_test 1.0 s' 'redis/rare 1.0 s' 'redis/slow 99.0 s' \
    'engine/turn/a.c 2 lines, 9 tests: redis/slow 90 unit/near_test 80 unit/far_test 10' '  twi_b: redis/rare' >"$work/tree/tests/coverage.txt"
stand_in ninja 'echo "$@" >"'"$work"'/ninja"'
stand_in meson 'case $1.$2 in
introspect.--tests) printf "["; for name in unit.near_test unit.far_test redis.rare redis.slow; do
    printf "{\"name\": \"%s\", \"suite\": [\"x:%s\"], \"depends\": [\"id-%s\"]}," ${name#*.} ${name%.*} ${name#*.}; done
    echo "{\"name\": \"z (long)\", \"suite\": [\"x:long\"], \"depends\": []}]" ;;
introspect.--targets) printf "["; for name in near_test far_test rare; do
    printf "{\"id\": \"id-%s\", \"filename\": [\"'"$work"'/tree/build/tests/%s\"]}," $name $name; done; echo "{\"id\": \"id-slow\", \"filename\": []}]" ;;
setup.*) mkdir -p "$2"; : >"$2/build.ninja" ;;
test.*) echo "$@" >"'"$work"'/meson"; mkdir -p "$3/meson-logs"
    printf "%s\n" "{\"result\": \"OK\", \"stdout\": \"1..2\\nok 1 - a\\nok 2 - b\\n\"}" >"$3/meson-logs/testlog.json" ;; esac'
(root=$work/tree && run 0 quick "$work/tree/engine/turn/a.c")
[ "$(tail -n 1 "$work/out")" = '2 passed, 0 failed' ] && grep -q ' far_test near_test$' "$work/meson" &&
    grep -q ' tests/far_test tests/near_test$' "$work/ninja" &&
    grep -qx 'dev: engine/turn/a.c: unit/near_test unit/far_test' "$work/err"
ok $? 'quick builds and runs the tests that a file was measured to need, the closest first, and none that takes long'
tree_git() {
    git -C "$work/tree" -c user.name=Ann -c user.email=ann@a.net "$@"
}
echo build >"$work/tree/.gitignore"
tree_git init -q && tree_git add -A && tree_git commit -q -m sources
(root=$work/tree && run 0 quick) && [ "$(cat "$work/out")" = '0 passed, 0 failed' ] && grep -q 'no file differs from the last commit' "$work/err"
ok $? 'where nothing has changed it says so'
sed -i '6s/1/2/' "$work/tree/engine/turn/a.c" && echo '/* y */' >"$work/tree/tests/unit/turn/far_test.c" && echo >"$work/tree/docs.md"
(root=$work/tree && run 0 quick) && grep -qx 'dev: engine/turn/a.c: redis/rare unit/far_test unit/near_test' "$work/err" &&
    grep -qx 'dev: tests/unit/turn/far_test.c: unit/far_test' "$work/err" && grep -q 'docs.md: no quick test covers it; run ' "$work/err"
ok $? 'of what has changed it takes first what executes that function; a test is for itself; of other files it says what to run'
stand_in ninja 'exit 1'
(root=$work/tree && run 1 quick) && [ "$(cat "$work/out")" = '0 passed, 1 failed' ]
ok $? 'a build that fails is a failure'

stand_in ninja 'echo "$@" >"'"$work"'/ninja"
mkdir -p "$2/bench/rivals" && printf "#!/bin/sh\necho the table: \"\$@\"\n" >"$2/bench/rivals/rivals" && chmod +x "$2/bench/rivals/rivals"'
(root=$work/tree && run 0 bench rivals 9 1)
[ "$(cat "$work/out")" = 'the table: 9 1' ] && grep -q ' bench/rivals/rivals$' "$work/ninja"
ok $? 'bench rivals builds and runs the program of the table'

# install: a build of its own, without tests; nothing is asked.
stand_in ninja 'echo "$@" >"'"$work"'/ninja"'
stand_in meson 'echo "$@" >>"'"$work"'/meson"; if [ $1 = setup ]; then mkdir -p "$2"; : >"$2/build.ninja"; fi'
(root=$work/tree && run 0 install "$work/new/prefix") && [ ! -s "$work/out" ] && grep -q "installed under $work/new/prefix" "$work/err" &&
    grep -q "^setup $work/tree/build/install .* -Dtests=disabled -Dprefix=$work/new/prefix" "$work/meson" &&
    [ "$(cat "$work/ninja")" = "-C $work/tree/build/install" ] && grep -qx "install -C $work/tree/build/install --no-rebuild" "$work/meson"
ok $? 'install builds without tests, and installs under the prefix'
: >"$work/file" && (root=$work/tree && run 3 install /proc/1/nowhere) && grep -q 'may not write into /proc/1/nowhere' "$work/err"
ok $? 'where it may not write it says so before it builds'

# A package manager that is ended by a closed terminal: what kept services from starting is taken away again.
sed -n "/^install_as_root='/,/^'/p" "$dev_script" | sed "1d; \$d; s|/usr/sbin/policy-rc.d|$work/policy|" >"$work/as_root"
stand_in apt-get 'kill -HUP $PPID; sleep 1'
# Under nohup the signal is ignored, and no shell can change that: env gives it its meaning back.
env --default-signal=HUP PATH="$work/bin:$PATH" sh "$work/as_root" x >/dev/null 2>&1
[ $? -eq 129 ] && [ ! -e "$work/policy" ]
ok $? 'a hangup in the middle of an installation leaves no file behind'

mkdir -p "$work/tree/bench" && printf '%s\n' 'echo "counted: $*"' >"$work/tree/bench/instructions.sh"
(root=$work/tree && run 0 bench instructions 1000)
[ "$(cat "$work/out")" = "counted: $work/tree/build/bench-release/bench/instructions 1000" ] &&
    grep -q ' bench/instructions$' "$work/ninja"
ok $? 'bench instructions builds the program and counts what it executes'
