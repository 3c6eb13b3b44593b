#!/bin/sh
# scripts.sh ROOT -- scripts that compare texts of the project: do they find what they are for?
# Method: a tree of a few files, one of which is changed at a time. Prints TAP.
# shellcheck disable=SC2016  # backticks that are text
set -u
root=$1
scripts=$root/scripts
TW_ROOT=$(mktemp -d)
export TW_ROOT
trap 'rm -rf "$TW_ROOT"' EXIT
# shellcheck source=tests/support/tap.sh disable=SC2154
. "$root/tests/support/tap.sh"

run() { # EXPECTED-STATUS SCRIPT ARGS...: true if it ends so; what it says is in $TW_ROOT/said
    expected=$1 script=$2
    shift 2
    python3 "$scripts/$script" "$@" >"$TW_ROOT/said" 2>&1
    status=$?
    [ $status -eq "$expected" ] && return
    echo "# $script $* ended with $status, should end with $expected"
    sed 's/^/# /' "$TW_ROOT/said"
    return 1
}

says() {
    grep -qF -- "$1" "$TW_ROOT/said"
}

echo 1..70

# ---- models carry digests of what they copy

mkdir -p "$TW_ROOT/tests/orderings" "$TW_ROOT/engine"
mark() { # BODY
    printf '#include "x.h"\n\nint before(void);\n\n/* Marks. */\nstatic void mark(int n) {\n%s\n}\n\nint after(void) {\n    return 1;\n}\n' \
        "$1" >"$TW_ROOT/engine/dirty.c"
}
mark '    if (n > 0) store(n); /* D1 */'
printf '// a.cpp -- a model.\n//   engine/dirty.c:mark\nint main() {}\n' >"$TW_ROOT/tests/orderings/a.cpp"

run 1 model_digests.py
ok $? 'a model without a digest is not believed'
run 0 model_digests.py --renew && run 0 model_digests.py && [ ! -s "$TW_ROOT/said" ]
ok $? 'renewed, it is, without a word'
mark '    if (n > 0)
        store(n);       /* D1, pairs with D2: "} */'
run 0 model_digests.py
ok $? 'comments and blanks are no change'
mark '    store(n); if (n > 0) return; /* D1 */'
run 1 model_digests.py && says 'tests/orderings/a.cpp: engine/dirty.c: mark() has changed' && says 'model_digests.py --renew'
ok $? 'a step moved is one: model, file and function are named, and the command'
sed -i 's/return 1/return 2/' "$TW_ROOT/engine/dirty.c"
run 0 model_digests.py --renew tests/orderings/a.cpp && sed -i 's/return 2/return 3/' "$TW_ROOT/engine/dirty.c" && run 0 model_digests.py
ok $? 'what it does not name may change'
sed -i 's/mark(int/tag(int/' "$TW_ROOT/engine/dirty.c"
run 1 model_digests.py --renew && says 'engine/dirty.c has no function mark()'
ok $? 'a function that is gone cannot be renewed'
rm "$TW_ROOT/engine/dirty.c"
run 1 model_digests.py && says 'has no function'
ok $? 'nor one whose file is gone'
printf '// b.cpp -- a model.\n' >"$TW_ROOT/tests/orderings/b.cpp"
run 1 model_digests.py && says 'b.cpp: names no function'
ok $? 'a model that names nothing is not believed'

# ---- what the docs name exists

mkdir -p "$TW_ROOT/docs" "$TW_ROOT/tests/redis"
printf 'static void mark(int n) {\n    or(n); /* D1 */\n}\n' >"$TW_ROOT/engine/dirty.c"
printf '#define take(n) and(n) /* D2 */\n' >"$TW_ROOT/engine/port.h"
printf 'static void a_b_c_d(void **state) {\n}\n' >"$TW_ROOT/tests/redis/wire.c"
printf 'static void e_f_g_h(void **state) {\n}\n' >"$TW_ROOT/tests/redis/other.c"
doc() { # TEXT
    printf '%s\n' "$1" >"$TW_ROOT/docs/A.md"
}

doc '| D1, D2 | dirty.c `mark`; port.h `take` | or |
Of `mark()`, `engine/dirty.c`, `port.*`, `redis/wire`: `wire.c` `a_b_c_d`; `e_f_g_h`; build/tests/redis_wire.'
run 0 doc_names.py && [ ! -s "$TW_ROOT/said" ]
ok $? 'names that lead somewhere are passed over in silence'
doc '| D1 | dirty.c `stamp` | or |'
run 1 doc_names.py && says 'docs/A.md:1: no function stamp() in engine/dirty.c'
ok $? 'a function that is not in its file is named'
doc '| D1 | dirty.c `mark`, `take` | or |'
run 1 doc_names.py && says 'no function take() in engine/dirty.c'
ok $? 'one of another file, too'
doc '| D1, D3 | dirty.c `mark` | or |'
run 1 doc_names.py && says 'label D3 stands in none of engine/dirty.c'
ok $? 'and a label that the code does not bear'
doc 'Then `unmark()`, and `not_there`.'
run 1 doc_names.py && says 'no function unmark()' && says 'no word not_there'
ok $? 'so is a function, or a word, that is nowhere'
doc '| a fault | `wire.c` `a_b_c_d`, `e_f_g_h` |'
run 1 doc_names.py && says 'no test e_f_g_h in tests/redis/wire.c'
ok $? 'a test that stands in another file'
doc 'See `gone.c`, `engine/port.c`, `unit/wire`.'
run 1 doc_names.py && says 'no file gone.c' && says 'no file engine/port.c' && says 'no file unit/wire'
ok $? 'a file that is gone'
doc '```
build/tests/redis/wire
```'
run 1 doc_names.py && says 'docs/A.md:2: no program build/tests/redis/wire' &&
    echo "executable('wire', 'wire.c')" >"$TW_ROOT/tests/redis/meson.build" && run 0 doc_names.py
ok $? 'a program that is not built, also where it is to be copied from'

printf '<!-- files: begin (scripts/files.py --renew) -->\n<!-- files: end -->\n' >"$TW_ROOT/docs/ARCHITECTURE.md"
rm "$TW_ROOT/docs/A.md"
run 1 doc_names.py && says 'missing (python3 scripts/files.py --renew): | `engine/` | `dirty.c`, `port.h` |' &&
    run 0 files.py --renew && run 0 doc_names.py
ok $? 'a file that ARCHITECTURE.md does not list'
cp "$TW_ROOT/docs/ARCHITECTURE.md" "$TW_ROOT/list"
printf '%s\n' '```' ' engine/dirty.c mark ─▶ gone/a.c' ' redis/wire.c e_f_g_h' '    no_word' '```' >>"$TW_ROOT/docs/ARCHITECTURE.md"
run 1 doc_names.py && says ': no file gone/a.c' && says ': no word e_f_g_h in tests/redis/wire.c' && says ': no word no_word' &&
    [ "$(grep -c ARCHITECTURE "$TW_ROOT/said")" -eq 3 ]
ok $? 'and what its drawings name that is nowhere, or in another file'
mv "$TW_ROOT/list" "$TW_ROOT/docs/ARCHITECTURE.md"
rm "$TW_ROOT/engine/port.h"
run 1 files.py && says 'not in the folders' && run 0 files.py --renew && run 0 files.py && [ ! -s "$TW_ROOT/said" ]
ok $? 'and one that it lists and is gone'
printf '#define take(n) and(n) /* D2 */\n' >"$TW_ROOT/engine/port.h"
rm "$TW_ROOT/docs/ARCHITECTURE.md"
mkdir -p "$TW_ROOT/extras"
printf 'Each counter has one window.\n' >"$TW_ROOT/README.md"
run 0 words.py && printf '/* a.c -- counts that stand anew. */\n' >"$TW_ROOT/extras/a.c" && run 1 words.py &&
    says 'extras: 1 times stand' && says 'extras: 1 times anew' && says 'extras: measure' &&
    printf '/* a.c -- `stand` in code, and what it stands for. */\n' >"$TW_ROOT/extras/a.c" && run 1 words.py && ! says 'times stand'
ok $? 'words that are read twice are counted, apart from those in code'
rm -r "$TW_ROOT/extras" "$TW_ROOT/README.md"

finding() { # TEXT
    printf '%s\n' "$1" >"$TW_ROOT/docs/FINDING.md"
}

mkdir -p "$TW_ROOT/sync"
printf '#define OWN(name) hot_##name\nstatic int OWN(walk)(int n) {\n    return n;\n}\n' >"$TW_ROOT/engine/fast.h"
printf 'local function deny(status)\n  return status\nend\n' >"$TW_ROOT/sync/batch.lua"
finding 'Marks: `engine/dirty.c` `mark()`, by the
template `engine/fast.h`
`walk()`, `OWN`; `batch.lua` `deny()`.'
run 0 doc_names.py && [ ! -s "$TW_ROOT/said" ]
ok $? 'in FINDING.md functions that stand behind their own file are passed over, of templates and in Lua, too'
finding 'One line.
Marks: `engine/port.h` `take()`, `mark()`; `batch.lua` `deny()`, `walk()`; `dirty.c` `state`.'
run 1 doc_names.py && says 'docs/FINDING.md:2: no function mark() in engine/port.h' &&
    says 'no function walk() in sync/batch.lua' && says 'no word state in engine/dirty.c'
ok $? 'those that their file does not define are named'
touch "$TW_ROOT/sync/dirty.c"
finding 'Marks: `mark()`. And `dirty.c`.'
run 1 doc_names.py && says 'docs/FINDING.md:1: mark() stands behind no file' &&
    says 'dirty.c may be any of engine/dirty.c sync/dirty.c'
ok $? 'and one that stands alone, and a file that may be another'

# ---- mistakes made on purpose are caught: of a tree whose "compiler" copies the only source, a shell script

mkdir -p "$TW_ROOT/tests/sim/mutants" "$TW_ROOT/bin"
printf '#!/bin/sh\nmkdir -p "$3" && touch "$3/build.ninja"\n' >"$TW_ROOT/bin/meson"
printf '#!/bin/sh\nmkdir -p "$2/tests" && cp "$2/../tests/sim/program.sh" "$2/$3" && sh -n "$2/$3"\n' >"$TW_ROOT/bin/ninja"
printf '#!/bin/sh\nwrong=0\nif [ $# -gt 0 ]; then test $wrong = 1; else test $wrong = 0; fi\n' >"$TW_ROOT/tests/sim/program.sh"
chmod +x "$TW_ROOT"/bin/* "$TW_ROOT/tests/sim/program.sh"
mistake() { # NAME OLD NEW
    printf 'Something wrong.\n--- a/tests/sim/program.sh\n+++ b/tests/sim/program.sh\n@@ -1,3 +1,3 @@\n #!/bin/sh\n-%s\n+%s\n if [ $# -gt 0 ]; then test $wrong = 1; else test $wrong = 0; fi\n' \
        "$2" "$3" >"$TW_ROOT/tests/sim/mutants/$1.patch"
}
path=$PATH
PATH=$TW_ROOT/bin:$PATH

mistake first 'wrong=0' 'wrong=1'
mistake second 'wrong=0' 'wrong=1 # too'
run 0 mutants.py && [ ! -s "$TW_ROOT/said" ] && run 0 mutants.py "$TW_ROOT/build" && says '2 mistakes, 0 failed'
ok $? 'mistakes that are caught are well'
mistake second 'wrong=0' 'wrong=0 # all the same'
run 1 mutants.py "$TW_ROOT/build" && says 'second                               NOT CAUGHT' && says '2 mistakes, 1 failed'
ok $? 'one that is not caught is named'
mistake second 'wrong=0' 'wrong=$(('
run 1 mutants.py "$TW_ROOT/build" && says 'second                               DOES NOT COMPILE' && says '2 mistakes, 1 failed'
ok $? 'one that does not compile is not taken for caught'
mistake second 'wrong=7' 'wrong=1'
run 1 mutants.py "$TW_ROOT/build" && says 'second                               DOES NOT APPLY' && says '2 mistakes, 1 failed'
ok $? 'nor is one that does not apply any more'
run 1 mutants.py && says 'tests/sim/mutants/second.patch: DOES NOT APPLY'
ok $? 'which is seen without a build, too'
rm "$TW_ROOT/tests/sim/mutants/second.patch"
sed -i 's/^wrong=0/wrong=1/' "$TW_ROOT/tests/sim/program.sh"
mistake first 'wrong=1' 'wrong=1 # more'
run 1 mutants.py "$TW_ROOT/build" && says 'something is caught in the tree as it is'
ok $? 'nothing is believed where something is caught without a mistake'
PATH=$path

# ---- random mistakes: places in a file where something does nothing are none

printf '%s\n' '/* mark.c -- n < 3 */' '#include "x.h"' '#if N > 2' '#define BIG 7' '#endif' \
    'struct s { char text[9]; int bits : 5; };' 'static int mark(int n) {' '    twi_check(n >= 1 &&' '              n < 9);' \
    '    char text[64];' '    return !n || at->x < 2 ? "n == 1" : '"'<'"' + 0x0f; // 4' '}' >"$TW_ROOT/engine/mark.c"
run 0 mutations.py engine/mark.c && [ "$(sed 's/^engine.mark.c://' "$TW_ROOT/said")" = '4:13 BIG: 7 -> 6
4:13 BIG: 7 -> 8
11:12 mark: ! -> nothing
11:15 mark: || -> &&
11:24 mark: < -> <=
11:26 mark: 2 -> 1
11:26 mark: 2 -> 3
11:47 mark: 0x0f -> 0x10
11:47 mark: 0x0f -> 0xe' ]
ok $? 'comparisons and constants of functions and macros can be changed, not those of comments, texts, sizes and checks'

# ---- the rules between folders

rm -rf "${TW_ROOT:?}"/*
for part in engine/base engine/turn sync extras tools nginx examples tests/orderings tests/cli bench bindings include scripts docs; do mkdir -p "$TW_ROOT/$part"; done
cp "$1/meson.build" "$TW_ROOT/" && cp "$1/include/tallywheel.h" "$TW_ROOT/include/" && cp "$1/engine/meson.build" "$TW_ROOT/engine/" &&
    cp "$1/sync/meson.build" "$TW_ROOT/sync/" && cp "$1/extras/meson.build" "$TW_ROOT/extras/" && cp "$1/tools/meson.build" "$TW_ROOT/tools/"
clock() { # LINE
    printf '/* clock.c -- the time. */\n%s\n' "$1" >"$TW_ROOT/engine/base/clock.c"
}
clock '#include "tallywheel.h"'
printf '/* turn.h -- a turn. */\n' >"$TW_ROOT/engine/turn/turn.h"
echo "files('clock.c')" >"$TW_ROOT/engine/base/meson.build"
printf '# clock.sh -- the time and the turn.\n# Covers: engine/base/clock.c, engine/turn/turn.h.\n' >"$TW_ROOT/tests/cli/clock.sh"
layers() { # EXPECTED-STATUS
    sh "$scripts/layers.sh" >"$TW_ROOT/said" 2>&1
    status=$?
    [ $status -eq "$1" ] && return
    echo "# layers.sh ended with $status, should end with $1"
    sed 's/^/# /' "$TW_ROOT/said"
    return 1
}

layers 0 && [ ! -s "$TW_ROOT/said" ]
ok $? 'a tree that keeps all rules is passed over in silence'
clock '#include "engine/turn/turn.h"'
layers 1 && says 'engine/base/clock includes engine/turn/turn, which lies above it'
ok $? 'a file that includes one of a higher room is named'
clock "struct wide { int a$(seq -s ', a' 1 25); char b; };"
layers 1 && says 'engine/base/clock.c: struct wide has 26 direct fields, more than 25'
ok $? 'a struct that knows everything, too'
clock 'void twi_say(void) { puts("x"); }'
layers 1 && says 'the library neither ends the process nor prints' && says 'engine/base/clock.c:2'
ok $? 'and so is a line that a rule forbids'
clock '#include "tallywheel.h"'
{ echo '// model.cpp -- a model.' && printf 'const char *text = "%099d";\nconst char *text = "%098d";\n' 0 0; } >"$TW_ROOT/tests/orderings/model.cpp"
layers 1 && says 'tests/orderings/model.cpp:2:' && ! says 'model.cpp:3:'
ok $? 'and a text of more than 120 columns, also in C++'
rm "$TW_ROOT/tests/orderings/model.cpp"
long_row="| $(printf '%0121d' 0) |"
{ printf '%s\n\n```\n%s\n```\n\n' "$long_row" "$long_row" && printf '%0121d\n' 0; } >"$TW_ROOT/docs/A.md"
layers 1 && says 'docs/A.md:7: 121 columns' && [ "$(grep -c columns "$TW_ROOT/said")" -eq 2 ]
ok $? 'and a line of docs that is too long, but not in a table or a block of code'
rm "$TW_ROOT/docs/A.md"
sed -i 's|, engine/turn/turn.h||' "$TW_ROOT/tests/cli/clock.sh"
layers 1 && says 'engine/turn/turn.h: no test covers it'
ok $? 'and a file that no test covers'

# ---- which tests cover a file: by names, and by what was measured

rm -rf "${TW_ROOT:?}"/*
mkdir -p "$TW_ROOT/engine/turn" "$TW_ROOT/tests/unit/turn" "$TW_ROOT/tests/redis/part"
printf 'int twi_a_step(void) {\n    return 1;\n}\n' >"$TW_ROOT/engine/turn/a.c"
for name in unit/turn/a_test unit/turn/user_test redis/part/whole; do echo '/* x */' >"$TW_ROOT/tests/$name.c"; done
echo 'int b = twi_a_step();' >>"$TW_ROOT/tests/unit/turn/user_test.c"
run 0 covers.py engine/turn/a.c && printf 'tests/unit/turn/%s.c\n' a_test user_test | cmp -s - "$TW_ROOT/said"
ok $? 'where nothing was measured, tests are those that have or use its names'
printf '%s\n' 'redis/whole 2.0 s' 'engine/turn/a.c 1 lines, 7 tests: redis/whole 100' '  twi_a_step: redis/whole' >"$TW_ROOT/tests/coverage.txt"
run 0 covers.py engine/turn/a.c && says 'engine/turn/a.c: 7 tests execute it' && grep -v 7 "$TW_ROOT/said" >"$TW_ROOT/tests_said" &&
    printf 'tests/%s.c\n' unit/turn/a_test redis/part/whole | cmp -s - "$TW_ROOT/tests_said"
ok $? 'else those that have its name, then those that were measured'
run 0 covers.py && [ ! -s "$TW_ROOT/said" ] && rm "$TW_ROOT/tests/redis/part/whole.c" && mv "$TW_ROOT/engine/turn/a.c" "$TW_ROOT/engine/turn/new.c" &&
    run 1 covers.py && says 'tests/coverage.txt: there is no engine/turn/a.c' && says 'tests/coverage.txt: there is no redis/whole'
ok $? 'what was measured and is gone is named'
run 0 coverage.py --prune && run 0 coverage.py && [ ! -s "$TW_ROOT/said" ] && ! grep -q whole "$TW_ROOT/tests/coverage.txt"
ok $? 'and is taken out when that is asked for'
run 0 covers.py && rm "$TW_ROOT/tests/unit/turn/user_test.c" && run 1 covers.py && says 'engine/turn/new.c: no test covers it' && says './dev check coverage'
ok $? 'a new file needs no measurement if a test uses its names'

# ---- a release
# Of the real files, as version 1.2.3 in a repository of their own.

rm -rf "${TW_ROOT:?}"/*
tree=$TW_ROOT/tree
mkdir "$tree"
(cd "$root" && tar -cf - .gitignore README.md README.zh-CN.md CHANGELOG.md meson.build debian packaging include scripts tools/tallywheel.map) |
    tar -xf - -C "$tree"
release() { # EXPECTED-STATUS ARGS...
    expected=$1
    shift
    TW_ROOT=$tree sh "$scripts/release.sh" "$@" >"$TW_ROOT/said" 2>&1
    [ $? -eq "$expected" ] && return
    sed 's/^/# /' "$TW_ROOT/said"
    return 1
}
change() { # FILE SED-SCRIPT
    sed -i "$2" "$tree/$1"
}
commit() {
    git -C "$tree" add -A && git -C "$tree" commit -q -m "$1" --allow-empty
}
refuses() { # SAYS [VERSION]
    release 1 "${2:-1.2.3}" && says "$1" && [ ! -e "$tree/build" ]
}
lacking() { # FILE OLD NEW SAYS: is said while that stands there
    cp "$tree/$1" "$TW_ROOT/kept" && change "$1" "s|$2|$3|" && ! cmp -s "$tree/$1" "$TW_ROOT/kept" && release 1 --check &&
        says "$4" && [ "$(wc -l <"$TW_ROOT/said")" -eq 1 ] && cp "$TW_ROOT/kept" "$tree/$1"
}
if command -v git >/dev/null 2>&1 && command -v abidiff >/dev/null 2>&1; then
    git init -q "$tree" && git -C "$tree" config user.name Ann && git -C "$tree" config user.email ann@a.net
    printf '# Changelog\n\n## 1.2.3 (unreleased)\n\n- New.\n\n## 1.2.2 (2027-01-01)\n' >"$tree/CHANGELOG.md"
    change packaging/addresses 's|= .*|= Nobody <nobody@example.org>|'
    TW_ROOT=$tree python3 "$scripts/abi.py" --renew && commit sources
    refuses "'maintainer = Nobody <nobody@example.org>' is a placeholder" && says "'repository = "
    ok $? 'a placeholder in packaging/addresses forbids a release'
    change packaging/addresses 's|^repository = .*|repository = https://a.net/tallywheel.git|; s|^maintainer = .*|maintainer = Ann <ann@a.net>|'
    refuses 'changes that are not committed (packaging/addresses)' && commit addresses && echo >"$tree/new.c" && refuses '(new.c)' && rm "$tree/new.c"
    ok $? 'so does what is not committed'
    refuses '1.2.1 is older than the last release, 1.2.2' 1.2.1 && refuses "should begin with '## 1.2.4 (unreleased)'" 1.2.4 &&
        refuses "'1.2' is no version" 1.2 && git -C "$tree" tag 1.10.0 && refuses 'older than the last release, 1.10.0' && git -C "$tree" tag -d 1.10.0 >/dev/null
    ok $? 'and a version that is older than the last, or that CHANGELOG.md does not begin with'
    git -C "$tree" tag 1.2.3 && commit later && refuses 'the tag 1.2.3 is on another commit' && git -C "$tree" tag -d 1.2.3 >/dev/null
    ok $? 'and one that is the tag of another commit'
    mkdir "$TW_ROOT/bin" && ln -s /usr/bin/* "$TW_ROOT/bin/" && rm -f "$TW_ROOT/bin/lintian" "$TW_ROOT/bin/dh"
    PATH=$TW_ROOT/bin refuses 'lintian is missing: apt-get install lintian' && says 'dh is missing: apt-get install debhelper'
    ok $? 'and a tool that is missing; it is said where it comes from'

    SOURCE_DATE_EPOCH=1801396800 release 0 1.2.3 --show && cp "$TW_ROOT/said" "$TW_ROOT/patch" && [ -z "$(git -C "$tree" status --porcelain)" ] &&
        git -C "$tree" apply "$TW_ROOT/patch" && release 0 --check && [ ! -s "$TW_ROOT/said" ] && commit 'release 1.2.3'
    ok $? 'what it changes is shown; then nothing is lacking'
    head -n 5 "$tree/debian/changelog" | grep -qx ' -- Ann <ann@a.net>  Sun, 31 Jan 2027 12:00:00 +0000' &&
        head -n 1 "$tree/debian/changelog" | grep -q '(1.2.3)' && [ "$(grep -c '^tallywheel (' "$tree/debian/changelog")" -eq 2 ]
    ok $? 'debian/changelog has a new entry, of that day'
    SOURCE_DATE_EPOCH=1900000000 release 0 1.2.3 --show && [ ! -s "$TW_ROOT/said" ]
    ok $? 'done a second time, on another day, it changes nothing'
    lacking CHANGELOG.md '(2027-01-31)' '(unreleased)' "'## 1.2.3 (unreleased)', should be '## 1.2.3 (YYYY-MM-DD)'" &&
        lacking CHANGELOG.md '^## 1.2.3' '## 1.2.34' "should be '## 1.2.3 (YYYY-MM-DD)'" && lacking debian/changelog '(1.2.3)' '(1.2.2)' "debian/changelog: 'tallywheel (1.2.2)" &&
        lacking packaging/tallywheel.wrap '= 1.2.3' '= 1.2.2' "packaging/tallywheel.wrap: 'revision = 1.2.2', should be 'revision = 1.2.3'" &&
        lacking include/tallywheel.h 'PATCH 3' 'PATCH 2' "include/tallywheel.h: '#define TW_VERSION_PATCH 2'" && lacking README.md 'Limitations of 1.2' 'Limitations of 1.1' 'README.md' &&
        lacking README.zh-CN.md '//a.net' '//b.net' 'README.zh-CN.md: ' && lacking debian/control 'ann@a.net' 'b@a.net' 'debian/control: '
    ok $? 'a date that is missing, a version that stayed behind and another address are named'

    change CHANGELOG.md '0,/^## /s/^## /## 1.3.0 (unreleased)\n\n&/'
    change include/tallywheel.h '/^TW_API int tw_fd/i TW_API int tw_new(void);'
    commit 'a new call' && release 1 1.3.0 --show && says 'tw_new TALLYWHEEL_0.1' && says 'tools/tallywheel.map is to give them a node'
    ok $? 'a call that is new, and has the node of an older version, forbids a release'
    change include/tallywheel.h '/^TW_API int tw_new/d; /^TW_API int tw_fd/d'
    commit 'a call is gone' && release 1 1.3.0 --show && says tw_fd && says 'may break'
    ok $? 'and so does a call that is gone'
else
    for what in placeholder changes older tag tool shown entry twice lacking new gone; do
        skip "release: $what" 'no git or abidiff: apt-get install git abigail-tools'
    done
fi

# ---- hardened programs

rm -rf "${TW_ROOT:?}"/*
printf '#include <stdio.h>\n#include <string.h>\nint main(int n, char **w) { char a[64]; strcpy(a, w[n - 1]); return puts(a) < 0; }\n' >"$TW_ROOT/p.c"
hardened() { # EXPECTED-STATUS FLAG...
    expected=$1
    shift
    echo "cc $* -o p.o -c p.c" >"$TW_ROOT/log"
    cc "$@" -o "$TW_ROOT/p" "$TW_ROOT/p.c" && sh "$scripts/hardened.sh" --log "$TW_ROOT/log" "$TW_ROOT/p" >"$TW_ROOT/said" 2>&1
    [ $? -eq "$expected" ] && return
    sed 's/^/# /' "$TW_ROOT/said"
    return 1
}
hardened 0 -O2 -fPIE -pie -fstack-protector-strong -D_FORTIFY_SOURCE=3 -Wl,-z,relro,-z,now && [ ! -s "$TW_ROOT/said" ]
ok $? 'a program that is hardened in each way is passed over in silence'
hardened 1 -O2 -no-pie -fno-stack-protector -U_FORTIFY_SOURCE -Wl,-z,norelro,-z,lazy,-z,execstack && says 'its place in memory is fixed' &&
    says 'its stack can be executed' && says 'its relocations stay writable' && says 'calls are resolved when they are made' &&
    says 'no guard of the stack' && says 'no copy checks its room' && says '-D_FORTIFY_SOURCE=3 at 0 of 1 files' &&
    hardened 1 -O2 -fPIE -pie -fstack-protector-strong -D_FORTIFY_SOURCE=2 -Wl,-z,relro,-z,now && [ "$(cat "$TW_ROOT/said")" = "$TW_ROOT/log: -D_FORTIFY_SOURCE=3 at 0 of 1 files" ]
ok $? 'each way that is missing is named'

# ---- what a change must touch

rm -rf "${TW_ROOT:?}"/*
mkdir -p "$TW_ROOT/include" "$TW_ROOT/engine" "$TW_ROOT/docs" "$TW_ROOT/tests/orderings"
cat >"$TW_ROOT/include/tallywheel.h" <<'END'
/* tallywheel.h -- */
#ifndef TALLYWHEEL_H

struct tw_family_options {
    const char *name;
    uint32_t sub_windows; /* parts */
    uint32_t kind;        /* what */
    uint32_t on_full;     /* then */
    uint32_t on_full_limit; /* and then */
    uint32_t limit_mode;
    uint32_t limit_shape;
    int64_t idle_ms;
    void (*on_closed)(void *ctx);
};

#define TW_STATS(X) \
    X(late_adds, counter, "too late") \
    X(clock_lag_ms_max, gauge, "late")
#endif
END
cat >"$TW_ROOT/engine/a.c" <<'END'
static int check_sub_windows(void) { return TW_SUB_WINDOWS_MAX; }
static int mark(void) {
    stats->late_adds++;
    return options->kind + kind + family->kind.synced;
}
int full = on_full_limit;
END
echo 'int of = limit_mode + limit_shape + idle_ms + on_full + on_closed + lateness_ms;' >"$TW_ROOT/engine/b.c"
echo 'Set sub-windows. See `tallywheel_late_adds_total`, tallywheel_clock_lag_max_seconds.' >"$TW_ROOT/docs/A.md"
printf '//   engine/a.c:mark 123456789abc\n' >"$TW_ROOT/tests/orderings/m.cpp"

run 0 where.py option sub_windows && says 'include/tallywheel.h:6: uint32_t sub_windows; /* parts */' &&
    says 'engine/a.c:1: static int check_sub_windows' && says 'docs/A.md:1: Set sub-windows.' && [ "$(grep -c : "$TW_ROOT/said")" -eq 8 ]
ok $? 'an option is found in each form of its name'
says 'know other fields of tw_family_options, and not sub_windows:' && says 'engine/b.c: 5 others, such as idle_ms, limit_mode, limit_shape'
ok $? 'and so is a source that knows its siblings alone'
run 0 where.py option kind && says 'engine/a.c:4: ' && ! says 'engine/a.c:2' && run 0 where.py option on_full && says 'engine/b.c:1' &&
    ! says 'engine/a.c' && run 0 where.py option on_closed && says 'tallywheel.h:13: void (*on_closed)(void *ctx);'
ok $? 'a short name is found as a field alone, and one that begins another is not that one'
run 0 where.py metric late_adds && says 'X(late_adds, counter' && says 'engine/a.c:3: stats->late_adds++;' && says 'docs/A.md:1' &&
    says 'tests/orderings/m.cpp: has a digest of mark() of engine/a.c' && run 0 where.py metric tallywheel_clock_lag_max_seconds &&
    says 'X(clock_lag_ms_max, gauge' && says 'docs/A.md:1'
ok $? 'a figure is found as Prometheus calls it, too, and with the digests of its functions'
run 2 where.py option sub_window && says 'no option sub_window in include/tallywheel.h; near to it: sub_windows' &&
    run 2 where.py metric lateadds && says 'near to it: late_adds' && run 2 where.py option zzz && ! says near &&
    run 2 where.py figure late_adds && says usage && run 2 where.py option && says usage
ok $? 'a name that is unknown is an error with the nearest ones'

# ---- the man pages say what the header says

rm -rf "${TW_ROOT:?}"/*
mkdir -p "$TW_ROOT/include" "$TW_ROOT/debian" "$TW_ROOT/examples"
cp "$1/debian/changelog" "$TW_ROOT/debian/"
header() { # SED-SCRIPT
    sed "$1" "$root/include/tallywheel.h" >"$TW_ROOT/include/tallywheel.h"
}
header '/^TW_API int tw_fd/a TW_API int tw_new(tw_engine *engine);'
run 0 man_pages.py "$TW_ROOT/man" && grep -q 'so man3/tw_turn' "$TW_ROOT/man/tw_new.3" && grep -q 'tw_new' "$TW_ROOT/man/tw_turn.3"
ok $? 'a call that comes below the comment of another stands on its page'
rm -r "${TW_ROOT:?}/man" && header '' && run 0 man_pages.py "$TW_ROOT/man" && ! grep -rni 'chapter [0-9]' "$TW_ROOT/man"
ok $? 'no page sends its reader to a chapter: only the header has them'
header '/^TW_API int tw_fd/a\\n/** New. */\nTW_API int tw_new(tw_engine *engine);'
run 1 man_pages.py list && says 'on no page of PAGES is tw_new'
ok $? 'a call with a comment of its own must be given a page'
header 's/\btw_fd(/tw_socket(/'
run 1 man_pages.py list && says 'page tw_turn: include/tallywheel.h has tw_fd 0 times'
ok $? 'one that is gone may not stand on any'

# ---- the tables of options say what the header says

mkdir -p "$TW_ROOT/docs"
header ''
for of in tw_options tw_family_options; do
    printf '<!-- %s: begin (scripts/option_tables.py --renew) -->\n<!-- %s: end -->\n' "$of" "$of"
done >"$TW_ROOT/docs/OPTIONS.md"
run 1 option_tables.py && says 'missing (python3 scripts/option_tables.py --renew): | `window_ms` | A multiple of 1000' &&
    run 0 option_tables.py --renew && run 0 option_tables.py && [ ! -s "$TW_ROOT/said" ]
ok $? 'a table without an option is named, and made'
row() { # TEXT: a row of the page begins so
    grep -qF -- "$1" "$TW_ROOT/docs/OPTIONS.md" && return
    echo "# no row: $1"
    return 1
}
row '| `on_full` | `TW_ON_FULL_OVERFLOW` (default): counts in one overflow counter and returns `TW_OVERFLOWED`. `TW_ON_FULL_REJECT`: ' &&
    row '| `clock_now_ns`, `clock_ctx` | Clock, in nanoseconds.' && row '`"subject\|field"`' &&
    ! grep -qE '^\| `(size|reserved)' "$TW_ROOT/docs/OPTIONS.md"
ok $? 'with the values of an enum, one row for fields under one comment, and no end of a cell in a text'
header 's/a multiple of 1000; default/a multiple of 100; default/'
run 1 option_tables.py && says 'not in include/tallywheel.h' && says '| `window_ms` | A multiple of 1000;' && says 'A multiple of 100;'
ok $? 'a row that the header has changed is named'

# ---- a program that was built against the release can use this library

mkdir -p "$TW_ROOT/packaging" "$TW_ROOT/tools"
cp "$1/tools/tallywheel.map" "$TW_ROOT/tools/"
abi() { # EXPECTED-STATUS SED-SCRIPT: against the header as it is
    header "$2"
    run "$1" abi.py
}
if ! command -v abidiff >/dev/null 2>&1; then
    for what in 'may grow' 'may not go' 'may not move'; do
        skip "$what" 'abidiff is not installed: apt-get install abigail-tools'
    done
    exit
fi
header '' && run 0 abi.py --renew
abi 0 's/^TW_API int tw_fd/TW_API int tw_new(void);\n&/; s/TW_KIND_DISTINCT = 2/&, TW_KIND_NEW = 3/; /^#define TW_STATS(X)/,/[^\\]$/s/")$/& X(new_figure, gauge, "new")/
    /^struct tw_options/,/^};/s/^};/const char *new_option;\n};/; /^struct tw_verdict/,/^};/s/uint64_t reserved\[7\]/uint64_t new_field, reserved[6]/
    s/uint64_t new_field, /uint64_t new_field; uint64_t /' && [ "$(grep -c 'new_' "$TW_ROOT/include/tallywheel.h")" -eq 3 ]
ok $? 'calls, numbers, options and figures may be added, and reserved words used'
abi 1 '/^TW_API int tw_fd/d' && says 'tw_fd' && abi 1 's/TW_KIND_DISTINCT = 2/TW_KIND_DISTINCT = 3/' && says TW_KIND_DISTINCT
ok $? 'a call that goes and a number that changes are named'
abi 1 's/^    uint32_t wait_replicas;/    uint32_t new_option; &/' && says new_option &&
    abi 1 '/^struct tw_verdict/,/^};/s/reserved\[7\]/reserved[8]/' && says 'struct tw_verdict' &&
    abi 1 '/^struct tw_verdict/,/^};/s/reserved_bytes\[7\]/reserved_bytes[15]/' && says 'struct tw_verdict'
ok $? 'and so are an option in the middle and a verdict that grows'
