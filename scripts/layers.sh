#!/bin/sh
# layers.sh -- the rules between folders and the one door per dependency, as greps. Prints each line that breaks one.
# Always true: a rule that is broken makes the exit status 1; what is exempt is named here, nowhere else.
set -u
scripts=$(cd "$(dirname "$0")" && pwd)
cd "${TW_ROOT:-$scripts/..}" || exit 2
broken=$(mktemp) # not empty: a rule is broken. A file, for the right end of a pipe is a shell of its own
trap 'rm -f "$broken"' EXIT

# must_be_empty RULE: standard input holds the lines that break it.
must_be_empty() {
    lines=$(cat)
    if [ -n "$lines" ]; then
        printf 'broken: %s\n%s\n' "$1" "$lines" | tee -a "$broken"
    fi
}

# one_file_only RULE: standard input holds the names of files; .c and .h of one name are one.
one_file_only() {
    names=$(sed 's/\.[ch]$//' | sort -u)
    if [ "$(printf '%s' "$names" | grep -c .)" -gt 1 ]; then
        printf 'broken: %s\n%s\n' "$1" "$names" | tee -a "$broken"
    fi
}

sources() {
    find "$@" -type f \( -name '*.c' -o -name '*.h' \) | sort
}

in_sources() { # PATTERN FOLDER...: lines that match, comments of one line left out
    pattern=$1
    shift
    sources "$@" | xargs -r grep -nE -- "$pattern" /dev/null | grep -vE '^[^:]*:[0-9]*: *(/\*|\*|//)'
}

# ---- who may include whom
in_sources '#include "' engine include | grep -vE '#include "(engine/|tallywheel\.h")' |
    must_be_empty "engine/ includes nothing of sync/"
in_sources '#include "engine/' sync | grep -vE '"engine/(port/[a-z]+|base/(atomic|check|descriptor|event_count|grow|key_slot|probe|threads|why))\.h"' |
    must_be_empty "sync/ sees the engine through engine/port/ (and base/atomic.h, check.h, descriptor.h, event_count.h, grow.h, key_slot.h, probe.h, threads.h, why.h) only"
in_sources '#include "' tools examples extras nginx | grep -E '"(\.\./)?(engine|sync)/' | grep -vE '"engine/base/(atomic|check)\.h"' |
    grep -vE '^extras/.*"engine/(base/(descriptor|grow|random|threads|why)|port/extras)\.h"' | must_be_empty "the command, the examples, extras/ and nginx/ use the public header"
grep -nE '^ *# *include' include/tallywheel.h | grep -vE '<(stdbool|stddef|stdint|string)\.h>' |
    must_be_empty "the public header includes <stdbool.h> <stddef.h> <stdint.h> <string.h> only"

# beyond COLUMNS: standard input names the files
beyond() {
    xargs env LC_ALL=C.UTF-8 grep -nE "^.{$(($1 + 1)),}" /dev/null
}
echo include/tallywheel.h | beyond 100 | must_be_empty "the public header has 100 columns"
# clang-format breaks no text (BreakStringLiterals), and looks at no comment: who writes a long one breaks it, where a reader
# would. tallywheel.cdef.h is generated: one declaration is one line.
find engine sync extras tools nginx examples tests bench bindings include -type f ! -name '*.cdef.h' \
    \( -name '*.c' -o -name '*.h' -o -name '*.cc' -o -name '*.cpp' -o -name '*.hpp' \) | sort | beyond 120 |
    must_be_empty "code, its texts and its comments have 120 columns"
# Tables and code blocks apart: a table's row is one line.
python3 - <<'END' | must_be_empty "docs/*.md, README.md and bench/README.md have 120 columns"
import glob
for path in sorted(glob.glob("docs/*.md") + glob.glob("README.md") + glob.glob("bench/README.md")):
    is_code = False
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            is_code ^= line.startswith("```")
            columns = len(line.rstrip("\n"))
            if columns > 120 and not is_code and not line.startswith(("|", "    ")):
                print(f"{path}:{number}: {columns} columns")
END

# ---- rooms: who lies below whom; their symbols are compared by ./dev check symbols
python3 "$scripts"/rooms.py | must_be_empty "rooms, circles and sizes (scripts/rooms.py says which)"

# ---- one door per dependency
in_sources 'memory_order_' engine sync extras tools nginx examples include | grep -v '^engine/base/atomic\.h:' |
    must_be_empty "only engine/base/atomic.h spells memory orders"
in_sources '#include [<"]hiredis' engine sync extras tools examples tests | cut -d: -f1 | one_file_only "hiredis has one door"
in_sources '#include [<"]hiredis' engine include | must_be_empty "engine/ knows nothing of hiredis"
in_sources '#include [<"]openssl' engine sync extras tools examples include | grep -v '^sync/wire/tls' |
    must_be_empty "OpenSSL has one door: sync/wire/tls*"
in_sources '#include <(n?curses)' engine sync extras tools examples include | grep -v '^tools/top/top_screen\.c:' |
    must_be_empty "ncurses has one door: tools/top/top_screen.c"
in_sources '#include <sys/sdt' engine sync extras tools examples include | grep -v '^engine/base/probe\.h:' |
    must_be_empty "sys/sdt.h has one door: engine/base/probe.h"
in_sources '[^_a-z](mmap|mremap)\(' engine sync extras | cut -d: -f1 | one_file_only "mmap has one door"
# race_point.c is built for tests only: it times its naps
in_sources '[^_a-z](clock_gettime|gettimeofday|timespec_get|time)\(' engine sync extras | cut -d: -f1 | grep -v '^engine/base/race_point\.c$' |
    one_file_only "the system clock has one door"

in_sources '[^_a-z]pthread_mutex_(lock|trylock|timedlock|unlock)\(' engine sync extras | grep -v '^engine/base/threads\.c:' |
    must_be_empty "mutexes have one door: engine/base/threads.c (whoever waits for one stops no engine's time)"
in_sources '[^_a-z](eventfd|epoll_create1?|accept4?|socket|socketpair|pipe2?|timerfd_create|inotify_init1?)\(' engine sync extras |
    grep -v 'twi_descriptor_own(' | must_be_empty "a descriptor that stays open has one owner: engine/base/descriptor.c"
in_sources '[^_a-z]pthread_create\(' engine sync extras | grep -v '^engine/base/threads\.c:' |
    must_be_empty "threads of our own have one door: engine/base/threads.c"
# The host's functions, by the header: a function that is added there is called in host.c, or not at all. A password is
# asked for through `ask`, in sync/wire/wire.c by the engine's function for it.
names=$(grep -oE '^    (void|int|bool) \(\*[a-z_]+\)\(void \*ctx' include/tallywheel.h | grep -oE '\*[a-z_]+\)' | tr -d '*)' | sort -u | paste -sd'|')
in_sources "(->|\\.)($names|ask)\\(" engine sync extras | grep -vE '^engine/core/host\.c:|driver->ask\(' |
    must_be_empty "the host's functions have one door: engine/core/host.c ($names)"

# ---- what a library does not do
in_sources '[^_a-z](exit|_exit|abort|printf|puts|perror|fprintf|vfprintf)\(' engine sync extras nginx |
    must_be_empty "the library neither ends the process nor prints"

# tw_error_text(): whoever answers one of these says why, in the same breath. What is exempt passes on what was said.
in_sources '(return|[=?:]) *TW_ERR_(MODE|REDIS|OPTIONS)\>' engine sync | grep -vE '== *TW_ERR_|^engine/base/why\.h:' |
    must_be_empty "TW_ERR_MODE, TW_ERR_REDIS and TW_ERR_OPTIONS come with a reason (engine/base/why.h)"

# ---- what every file has
sources engine sync extras tools nginx examples tests bench include | while read -r file; do
    base=$(basename "$file")
    head -n 1 "$file" | grep -qF "/* $base -- " || echo "$file: should open with: /* $base -- ..."
done | grep -v '^bench/peers/' | must_be_empty "every file opens by saying what it is for"
grep -rnE '/(work|home)/[a-z]' --include='*.[ch]' --include='*.sh' --include='*.md' --include='meson*' . 2>/dev/null |
    grep -vE '^\./(build[^/]*/|scripts/layers\.sh)' | must_be_empty "no path of one machine"

grep -rhoiE 'traps?[ _][elrs][0-9]+' engine sync extras tools examples tests docs include | grep -oE '[A-Za-z][0-9]+$' | tr '[:lower:]' '[:upper:]' | sort -u |
    while read -r trap; do grep -q "^- \*\*$trap\*\* " docs/CONCURRENCY.md || echo "$trap"; done |
    must_be_empty "traps that are cited are listed in docs/CONCURRENCY.md"

find engine sync extras tools nginx examples tests bench -name '*.c' | while read -r file; do
    name=$(basename "$file" .c) list=$(dirname "$file")/meson.build
    if [ ! -e "$list" ]; then # one list for a folder of folders
        name=$(basename "$(dirname "$file")")/$name list=$(dirname "$file")/../meson.build
    fi
    grep -qE "'$name(\\.c)?'" "$list" 2>/dev/null || echo "$file"
done | grep -v '^bench/peers/' | must_be_empty "every file is named in its folder's meson.build"

# ---- a test that did not run is not counted as passed
in_sources '(\|\| *test_is_slow\(\)|test_is_slow\(\) *\|\||! *test_is_slow\(\)|if \(test_is_slow\(\)\) return)' tests |
    must_be_empty "what a test leaves out it says by test_leave_out() (tests/support/support.h)"
# It names the function that it is in: in another than the test's own, nobody could tell which test left something out.
find tests -name '*.c' -exec awk '
    /^[a-z].*\) \{$|^[A-Z_]+\(/ { function_head = $0 }
    /test_(leave_out|misses_[a-z_]+)\(/ && function_head !~ /void \*\*state|^[A-Z_]+\([a-z]/ { print FILENAME ":" FNR ": " $0 }' {} + |
    must_be_empty "test_leave_out() is called by the test itself, not by a function that it calls"

# The reason of each skip has a colon, and behind it how to get what is missing.
find tests -name '*.[ch]' -exec sh -c 'for file; do tr "\n" " " <"$file" | grep -oE "test_(leave_out|skip_program)\( *\"[^\"]*\"" |
    sed "s|^|$file: |"; done' sh {} + | grep -v '"[^"]*[^ ]: [^"]*"$' |
    must_be_empty "a skip names what is missing and how to get it: \"WHAT: HOW\""
grep -rnE --include='*.sh' --include='*.py' "1\.\.0 # SKIP |^[^#]*\<skip ['\"]|\<skip(_all)?\(.*\"" tests | grep -vE "(# SKIP |skip['\"a-z_( ]).*: ." |
    grep -vE '^tests/(cli/dev\.sh|support/tap\.(py|sh)):' | must_be_empty "a skip names what is missing and how to get it: # SKIP WHAT: HOW"

# ---- each statistic has a test: what is read as a field of its own, not in a list of all fields
read_by_tests=$(find tests -name '*.c' -exec grep -ohE '((stat|figure)_of\([^,]*, *|tw_stats, *|FIGURE\(|stats(\(\w*\))?(\.|->)|stats_of\(\w*\)\.)[a-z_]+' {} + |
    grep -oE '[a-z_]+$' | sort -u)
sed -n '/^#define TW_STATS(X)/,/[^\]$/s/^    X(\([a-z_]*\),.*/\1/p' include/tallywheel.h | sort | while read -r name; do
    [ -z "$read_by_tests" ] || printf '%s\n' "$read_by_tests" | grep -qx "$name" || echo "$name" # the tree of scripts.sh has no test in C
done | must_be_empty "each statistic (TW_STATS) is read by name in a test"

# ---- each line of the log is provoked and read by a test
python3 "$scripts"/log_lines.py | must_be_empty "tests/log_lines.txt has the test of each line of the log (scripts/log_lines.py --missing)"

# ---- models are models of the code
python3 "$scripts"/model_digests.py | must_be_empty "tests/orderings repeat what the code says now"

# ---- mistakes for the simulator still apply
python3 "$scripts"/mutants.py | must_be_empty "tests/sim/mutants/*.patch apply: mend the context, keep the mistake (./dev check mutants)"

# ---- what is named exists
python3 "$scripts"/doc_names.py | must_be_empty "what docs/*.md name exists, and ARCHITECTURE.md lists every file"

python3 "$scripts"/option_tables.py | must_be_empty "the tables of docs/OPTIONS.md say what the header says of each option"

# ---- plain words
python3 "$scripts"/words.py | must_be_empty "pages and comments use words that are read once (scripts/words.py --figures)"
python3 "$scripts"/covers.py | must_be_empty "docs/TESTING.md has the tests of each source file (scripts/covers.py --renew)"

# ---- links, commands and figures of all pages
python3 "$scripts"/page_check.py | must_be_empty "pages keep their word (scripts/page_check.py says what that is)"

# ---- one version
version=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
header=$(sed -n 's/^#define TW_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' include/tallywheel.h | paste -sd.)
test "$version" = "$header" || echo "meson.build says $version, the header $header" |
    must_be_empty "build and header name one version"

[ ! -s "$broken" ]
