#!/bin/sh
# shellcheck disable=SC2181  # a status is looked at where it is compared
# wrap.sh ROOT -- packaging/tallywheel.wrap fetches this tree by git, and a project finds the library in it. Prints TAP.
# Method: the tree's files, in a repository of their own, are what the .wrap's address names; nothing is compiled. In a
# release the .wrap names its tag, and the repository has that.
set -u
root=$1
# shellcheck source=tests/support/tap.sh disable=SC2154
. "$root/tests/support/tap.sh"
# shellcheck disable=SC2034  # of tap.sh
explain=show_what_was_said
show_what_was_said() {
    sed 's/^/# /' "$work/said"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! command -v git >/dev/null 2>&1; then
    echo '1..0 # SKIP git is not installed: apt-get install git'
    exit 0
fi
echo 1..2

revision=$(sed -n 's/^revision = //p' "$root/packaging/tallywheel.wrap")
mkdir -p "$work/origin" "$work/project/subprojects"
(cd "$root" && tar -cf - --exclude=./build --exclude=./.git --exclude=./bench --exclude=./tests .) | tar -xf - -C "$work/origin" &&
    git -C "$work/origin" init -q && git -C "$work/origin" add -A &&
    git -C "$work/origin" -c user.name=a -c user.email=a@example.org commit -q -m tree &&
    { [ "$revision" = HEAD ] || git -C "$work/origin" tag "$revision"; } || echo '# no repository could be made'
sed "s|^url = .*|url = file://$work/origin|" "$root/packaging/tallywheel.wrap" >"$work/project/subprojects/tallywheel.wrap"
printf '%s\n' "project('consumer', 'c')" \
    "executable('program', 'program.c', dependencies: dependency('tallywheel', allow_fallback: true))" >"$work/project/meson.build"
echo 'int main(void) { return 0; }' >"$work/project/program.c"
PKG_CONFIG_LIBDIR=/nowhere meson setup "$work/build" "$work/project" --prefer-static -Dtallywheel:redis=disabled >"$work/said" 2>&1
ok $? 'the .wrap fetches the tree, and the project has its dependency'
[ -f "$work/project/subprojects/tallywheel/include/tallywheel.h" ]
ok $? 'it is what git has'
