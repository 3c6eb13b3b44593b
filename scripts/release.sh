#!/bin/sh
# release.sh -- what this tree still lacks to be tagged under the version of meson.build: a line for each thing, as
# FILE: WHAT. CONTRIBUTING.md ("Release") says what to do about each.
# Always true: it changes nothing; exit status 0 only if nothing is lacking.
set -u
scripts=$(cd "$(dirname "$0")" && pwd)
cd "${TW_ROOT:-$scripts/..}" || exit 2
lacking=0

lacks() { # FILE WHAT
    printf '%s: %s\n' "$1" "$2"
    lacking=1
}
first() { # SED-SCRIPT FILE: what it prints first
    sed -n "$1" "$2" | head -n 1
}

version=$(first "s/^  version: '\(.*\)',\$/\1/p" meson.build)
[ -n "$version" ] || lacks meson.build 'has no version'
header=include/tallywheel.h
macros=$(sed -n 's/^#define TW_VERSION_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\)$/\2/p' "$header" | paste -sd .)
[ "$macros" = "$version" ] || lacks "$header" "TW_VERSION_* are '$macros', should be $version"
heading=$(first '/^## /p' CHANGELOG.md)
if ! printf '%s\n' "$heading" | grep -qxE "## $(printf '%s' "$version" | sed 's/\./\\./g') \([0-9]{4}-[0-9]{2}-[0-9]{2}\)"; then
    lacks CHANGELOG.md "its first heading is '$heading', should be '## $version (YYYY-MM-DD)'"
fi
debian=$(first 's/^tallywheel (\(.*\)) [a-z-]*;.*/\1/p' debian/changelog)
[ "${debian%%-*}" = "$version" ] || lacks debian/changelog "its first entry is of '$debian', should be of $version"
wrap=$(first 's/^revision = //p' packaging/tallywheel.wrap)
[ "$wrap" = "$version" ] || lacks packaging/tallywheel.wrap "its revision is '$wrap', should be $version"
# Nobody made up an address: the names of example.org stand where somebody has to put one.
for file in debian/control debian/changelog packaging/tallywheel.wrap; do
    if grep -q 'example\.org' "$file"; then lacks "$file" 'example.org stands for an address that nobody has put there yet'; fi
done
exit $lacking
