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
number=0

ok() { # STATUS SENTENCE
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then echo "ok $number - $2"; else echo "not ok $number - $2"; fi
}

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

echo 1..43

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

# ---- the rules between folders

rm -rf "${TW_ROOT:?}"/*
for part in engine/base engine/turn sync extras tools examples tests/orderings bench include scripts docs; do mkdir -p "$TW_ROOT/$part"; done
cp "$1/meson.build" "$TW_ROOT/" && cp "$1/include/tallywheel.h" "$TW_ROOT/include/" && cp "$1/engine/meson.build" "$TW_ROOT/engine/" &&
    cp "$1/sync/meson.build" "$TW_ROOT/sync/" && cp "$1/extras/meson.build" "$TW_ROOT/extras/" && cp "$1/tools/meson.build" "$TW_ROOT/tools/"
clock() { # LINE
    printf '/* clock.c -- the time. */\n%s\n' "$1" >"$TW_ROOT/engine/base/clock.c"
}
clock '#include "tallywheel.h"'
printf '/* turn.h -- a turn. */\n' >"$TW_ROOT/engine/turn/turn.h"
echo "files('clock.c')" >"$TW_ROOT/engine/base/meson.build"
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
long_row="| $(printf '%0121d' 0) |"
{ printf '%s\n\n```\n%s\n```\n\n' "$long_row" "$long_row" && printf '%0121d\n' 0; } >"$TW_ROOT/docs/A.md"
layers 1 && says 'docs/A.md:7: 121 columns' && [ "$(grep -c columns "$TW_ROOT/said")" -eq 2 ]
ok $? 'and a line of docs that is too long, but not in a table or a block of code'

# ---- what a release lacks

rm -rf "${TW_ROOT:?}"/*
mkdir -p "$TW_ROOT/debian" "$TW_ROOT/packaging" "$TW_ROOT/include"
printf '#define TW_VERSION_MAJOR 1\n#define TW_VERSION_MINOR 2\n#define TW_VERSION_PATCH 3\n' >"$TW_ROOT/include/tallywheel.h"
printf "project('tallywheel', 'c',\n  version: '1.2.3',\n" >"$TW_ROOT/meson.build"
printf '# Changelog\n\n## 1.2.3 (2027-01-31)\n\n## 1.2.2 (unreleased)\n' >"$TW_ROOT/CHANGELOG.md"
printf 'tallywheel (1.2.3-1) unstable; urgency=medium\n\n -- Ann <ann@a.net>  Sun, 31 Jan 2027 12:00:00 +0000\n' >"$TW_ROOT/debian/changelog"
printf 'Maintainer: Ann <ann@a.net>\n' >"$TW_ROOT/debian/control"
printf '[wrap-git]\nurl = https://a.net/tallywheel.git\nrevision = 1.2.3\n' >"$TW_ROOT/packaging/tallywheel.wrap"
release() { # EXPECTED-STATUS
    sh "$scripts/release.sh" >"$TW_ROOT/said" 2>&1
    [ $? -eq "$1" ] && return
    sed 's/^/# /' "$TW_ROOT/said"
    return 1
}
lacking() { # FILE OLD NEW SAYS: is said while that stands there
    cp "$TW_ROOT/$1" "$TW_ROOT/kept" && sed -i "s|$2|$3|" "$TW_ROOT/$1" && ! cmp -s "$TW_ROOT/$1" "$TW_ROOT/kept" && release 1 &&
        says "$4" && [ "$(wc -l <"$TW_ROOT/said")" -eq 1 ] && cp "$TW_ROOT/kept" "$TW_ROOT/$1"
}

release 0 && [ ! -s "$TW_ROOT/said" ]
ok $? 'a tree with one version everywhere, and addresses, is passed over in silence'
lacking CHANGELOG.md '(2027-01-31)' '(unreleased)' "CHANGELOG.md: its first heading is '## 1.2.3 (unreleased)'" &&
    lacking CHANGELOG.md '## 1.2.3' '## 1.2.34' "should be '## 1.2.3 (" && lacking debian/changelog '1.2.3-1' '1.2.2-1' "of '1.2.2-1', should be of 1.2.3" &&
    lacking packaging/tallywheel.wrap '= 1.2.3' '= 1.2.2' "its revision is '1.2.2', should be 1.2.3" &&
    lacking include/tallywheel.h 'PATCH 3' 'PATCH 2' "TW_VERSION_* are '1.2.2', should be 1.2.3"
ok $? 'a date that is missing and a version that stayed behind are named'
lacking packaging/tallywheel.wrap '//a.net' '//example.org' 'packaging/tallywheel.wrap: example.org stands for an address' &&
    lacking debian/control 'a.net' 'example.org' 'debian/control: example.org' && lacking debian/changelog 'a.net' 'example.org' 'debian/changelog: example.org'
ok $? 'and so is each place where an address is still to be put'

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

# ---- a program that was built against the release can use this library

mkdir -p "$TW_ROOT/packaging" "$TW_ROOT/tools"
cp "$1/tools/tallywheel.map" "$TW_ROOT/tools/"
abi() { # EXPECTED-STATUS SED-SCRIPT: against the header as it is
    header "$2"
    run "$1" abi.py
}
if ! command -v abidiff >/dev/null 2>&1; then
    for what in 'may grow' 'may not go' 'may not move'; do
        number=$((number + 1))
        echo "ok $number - $what # SKIP abigail-tools are not installed"
    done
    exit
fi
header '' && run 0 abi.py --renew
abi 0 's/^TW_API int tw_fd/TW_API int tw_new(void);\n&/; s/TW_KIND_DISTINCT = 2/&, TW_KIND_NEW = 3/; /^#define TW_STATS(X)/,/[^\\]$/s/")$/& X(new_figure, gauge, "new")/
    /^struct tw_options/,/^};/s/^};/const char *new_option;\n};/; /^struct tw_verdict/,/^};/s/uint64_t reserved\[8\]/uint64_t new_field, reserved[7]/
    s/uint64_t new_field, /uint64_t new_field; uint64_t /' && [ "$(grep -c 'new_' "$TW_ROOT/include/tallywheel.h")" -eq 3 ]
ok $? 'calls, numbers, options and figures may be added, and reserved words used'
abi 1 '/^TW_API int tw_fd/d' && says 'tw_fd' && abi 1 's/TW_KIND_DISTINCT = 2/TW_KIND_DISTINCT = 3/' && says TW_KIND_DISTINCT
ok $? 'a call that goes and a number that changes are named'
abi 1 's/^    uint32_t wait_replicas;/    uint32_t new_option; &/' && says new_option &&
    abi 1 '/^struct tw_verdict/,/^};/s/reserved\[8\]/reserved[9]/' && says 'struct tw_verdict'
ok $? 'and so are an option in the middle and a verdict that grows'
