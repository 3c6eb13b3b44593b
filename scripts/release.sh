#!/bin/sh
# release.sh --check               what this tree still lacks to be tagged under the version of meson.build: a line for each
#                                  thing, as FILE: WHAT
# release.sh VERSION               makes the release VERSION of HEAD, all but the push: the versions, dates and addresses in
#                                  every file, the ABI file, the Debian packages, lintian, the one file as an archive, the
#                                  site, checksums; then the commit and its tag
# release.sh VERSION --rehearse    the same without commit and tag, and also with placeholders in packaging/addresses
# release.sh VERSION --show        only prints what the commit would change
# All is made in a clone, build/release/tree, and what is to be published is in build/release. Run once more it makes the
# same bytes. Packages are built with DEB_BUILD_OPTIONS, or without their tests: those are ./dev check's.
# Always true: only a release that succeeded as a whole changes anything outside of build/release; --check changes nothing;
# exit status 0 only if nothing is lacking.
set -u
scripts=$(cd "$(dirname "$0")" && pwd)
cd "${TW_ROOT:-$scripts/..}" || exit 2
root=$(pwd)
unset TW_ROOT

first() { # SED-SCRIPT FILE: what it prints first
    sed -n "$1" "$2" | head -n 1
}

# ---- each line that names the version, its day or an address ----------------------------------------------------------

# each_line COMMAND: runs COMMAND FILE PATTERN LINE for each; the first line that matches PATTERN is to be LINE.
each_line() {
    minor=${version#*.}
    series=${version%.*}
    "$1" meson.build "^  version: '" "  version: '$version',"
    "$1" include/tallywheel.h '^#define TW_VERSION_MAJOR ' "#define TW_VERSION_MAJOR ${version%%.*}"
    "$1" include/tallywheel.h '^#define TW_VERSION_MINOR ' "#define TW_VERSION_MINOR ${minor%%.*}"
    "$1" include/tallywheel.h '^#define TW_VERSION_PATCH ' "#define TW_VERSION_PATCH ${version##*.}"
    "$1" CHANGELOG.md '^## ' "## $version ($day)"
    "$1" README.md '^## Limitations of ' "## Limitations of $series"
    "$1" README.zh-CN.md '^## .* 版的限制$' "## $series 版的限制"
    "$1" README.md '^git clone ' "git clone $repository && cd tallywheel"
    "$1" README.zh-CN.md '^git clone ' "git clone $repository && cd tallywheel"
    "$1" packaging/tallywheel.wrap '^url = ' "url = $repository"
    "$1" packaging/tallywheel.wrap '^revision = ' "revision = $version"
    "$1" debian/control '^Maintainer: ' "Maintainer: $maintainer"
    "$1" debian/changelog '^tallywheel ' "tallywheel ($version) unstable; urgency=medium"
    "$1" debian/changelog '^ -- ' " -- $maintainer  $(LC_ALL=C date -u -d "$day 12:00" '+%a, %d %b %Y %H:%M:%S +0000')"
}

read_addresses() {
    repository=$(first 's/^repository = //p' packaging/addresses)
    maintainer=$(first 's/^maintainer = //p' packaging/addresses)
}

day_of() { # VERSION: the day of its release, from CHANGELOG.md; nothing if there is none
    first "s/^## $(printf '%s' "$1" | sed 's/\./\\./g') (\([0-9]\{4\}-[0-9]\{2\}-[0-9]\{2\}\))\$/\1/p" CHANGELOG.md
}

# ---- --check ----------------------------------------------------------------------------------------------------------

lacks() { # FILE WHAT
    printf '%s: %s\n' "$1" "$2"
    lacking=1
}

compare() { # FILE PATTERN LINE
    is=$(grep -m 1 -- "$2" "$1") || is='nothing like it'
    [ "$is" = "$3" ] || lacks "$1" "'$is', should be '$3'"
}

# Nobody made up an address: the names of example.org are where somebody has to put one.
check_addresses() {
    read_addresses
    for what in "repository = $repository" "maintainer = $maintainer"; do
        case $what in
        *example.org* | *'= ') lacks packaging/addresses "'$what' is a placeholder; the file says what is to be put there" ;;
        esac
    done
}

check() {
    lacking=0
    version=$(first "s/^  version: '\([0-9.]*\)',\$/\1/p" meson.build)
    day=$(day_of "$version")
    heading=$(first '/^## /p' CHANGELOG.md)
    case $heading in
    "## $version ($day)") ;;
    *) lacks CHANGELOG.md "'$heading', should be '## $version (YYYY-MM-DD)'" && return 1 ;;
    esac
    check_addresses
    each_line compare
    return $lacking
}

# ---- what forbids a release -------------------------------------------------------------------------------------------

refuse() {
    printf 'release.sh: %s\n' "$*" >&2
    refused=1
}

need() { # COMMAND:PACKAGE...
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || refuse "${pair%%:*} is missing: apt-get install ${pair#*:}"
    done
}

# The tools that the texts need, and those that the packages and the site need.
need_tools() {
    need git:git python3:python3 cc:gcc abidw:abigail-tools
    [ "$mode" != --show ] || return 0
    need dpkg-buildpackage:dpkg-dev dh:debhelper lintian:lintian readelf:binutils cmark-gfm:cmark-gfm
    command -v dpkg-checkbuilddeps >/dev/null 2>&1 || return 0
    lacking=$(DEB_BUILD_PROFILES=$profiles dpkg-checkbuilddeps 2>&1 | sed -n 's/.*[Uu]nmet build dependencies: //p')
    [ -z "$lacking" ] || refuse "the packages need what is not installed: apt-get install $lacking"
}

# The newest version that was released, as tags and CHANGELOG.md have it, but for this one.
last_release() {
    {
        git tag --list
        sed -n 's/^## \([0-9.]*\) ([0-9-]*)$/\1/p' CHANGELOG.md
    } | grep -xE '[0-9]+\.[0-9]+\.[0-9]+' | grep -vxF -- "$version" | sort -V | tail -n 1
}

check_history() {
    if [ "$(git rev-parse --show-toplevel 2>/dev/null)" != "$root" ]; then
        refuse "$root is no checkout of git: a release is a commit and its tag"
        return
    fi
    changed=$(git status --porcelain | head -n 3 | cut -c 4- | paste -sd ' ')
    [ -z "$changed" ] || refuse "the tree has changes that are not committed ($changed): commit or remove them"
    last=$(last_release)
    if [ "$(printf '%s\n' "$last" "$version" | sort -V | tail -n 1)" != "$version" ]; then
        refuse "$version is older than the last release, $last"
    fi
    tagged=$(git rev-parse -q --verify "refs/tags/$version^{commit}")
    if [ -n "$tagged" ] && [ "$tagged" != "$(git rev-parse HEAD)" ]; then refuse "the tag $version is on another commit"; fi
    heading=$(first '/^## /p' CHANGELOG.md)
    case $heading in
    "## $version (unreleased)") ;;
    *)
        [ "$heading" = "## $version ($(day_of "$version"))" ] ||
            refuse "CHANGELOG.md begins with '$heading', should begin with '## $version (unreleased)' and what is new"
        ;;
    esac
    git var GIT_COMMITTER_IDENT >/dev/null 2>&1 || refuse 'git knows no name for the commit: git config user.name, user.email'
}

refuse_what_must_be() {
    refused=0
    if ! printf '%s\n' "$version" | grep -qxE '(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}'; then
        refuse "'$version' is no version such as 0.1.0"
        exit 1
    fi
    need_tools
    command -v git >/dev/null 2>&1 && check_history
    placeholders=$(check_addresses)
    if [ -n "$placeholders" ]; then
        printf '%s\n' "$placeholders" | sed 's/^/release.sh: /' >&2
        if [ -z "$mode" ]; then refuse 'only --rehearse and --show go on with placeholders'; fi
    fi
    [ $refused -eq 0 ] || exit 1
}

# ---- the steps --------------------------------------------------------------------------------------------------------

give_up() {
    printf 'release.sh: %s\n' "$*" >&2
    exit 1
}

part() { # NAME COMMAND...: what it says is in build/release/log/NAME.txt, and is shown if it fails
    name=$1
    shift
    if "$@" >"$out/log/$name.txt" 2>&1; then return; fi
    tail -n 40 "$out/log/$name.txt" | sed 's/^/      | /' >&2
    give_up "$name failed (build/release/log/$name.txt)"
}

put() { # FILE PATTERN LINE
    pattern=$2 line=$3 awk '!done && $0 ~ ENVIRON["pattern"] { $0 = ENVIRON["line"]; done = 1 } { print } END { exit !done }' \
        "$1" >"$out/line" || give_up "$1 has no line like $2"
    cat "$out/line" >"$1"
}

new_entry() { # in debian/changelog, above those of other versions
    if head -n 1 debian/changelog | grep -qF "tallywheel ($version)"; then return; fi
    cp debian/changelog "$out/line"
    printf 'tallywheel (%s) unstable; urgency=medium\n\n  * New release: see CHANGELOG.md.\n\n -- nobody  today\n\n' "$version" |
        cat - "$out/line" >debian/changelog
}

names_of() { # FILE of abidw: each call and the version of its name
    sed -n "s/.*<elf-symbol name='\([^']*\)' version='\([^']*\)'.*/\1 \2/p" "$1" | sort
}

# A program of the last release must go on to work; and one that needs a new call must not start with an old library, so
# such a call has a node of its own in tools/tallywheel.map.
renew_abi() {
    if [ -n "$last" ]; then
        cp packaging/libtallywheel.abi "$out/abi.before"
        python3 scripts/abi.py || return
    fi
    python3 scripts/abi.py --renew || return
    [ -n "$last" ] || return 0
    names_of "$out/abi.before" >"$out/names.before"
    names_of packaging/libtallywheel.abi | comm -13 "$out/names.before" - >"$out/names.new"
    cut -d ' ' -f 2 "$out/names.before" | sort -u | grep -Ff - "$out/names.new" || return 0
    echo 'these calls are new: tools/tallywheel.map is to give them a node of this version'
    return 1
}

edit_tree() {
    day=$(day_of "$version")
    [ -n "$day" ] || day=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%F)
    read_addresses
    new_entry
    each_line put
    part abi renew_abi
    if git diff --quiet; then return; fi
    git -c user.name="$(git -C "$root" config user.name)" -c user.email="$(git -C "$root" config user.email)" \
        commit -qam "release $version" || give_up 'git could not commit'
}

make_packages() {
    DEB_BUILD_OPTIONS=${DEB_BUILD_OPTIONS-nocheck parallel=$(nproc)} DEB_BUILD_PROFILES=$profiles dpkg-buildpackage -b -us -uc
}

unpack() {
    for package in "$out"/*.deb; do dpkg -x "$package" "$out/unpacked" || return; done
    set -- "$out"/unpacked/usr/bin/* "$out"/unpacked/usr/lib/*/libtallywheel.so.*
    if [ -d "$out/unpacked/usr/lib/nginx" ]; then set -- "$@" "$out"/unpacked/usr/lib/nginx/modules/*.so; fi
    sh "$scripts/hardened.sh" --log "$out/log/packages.txt" "$@"
}

archive_one_file() {
    one=tallywheel-$version-one-file
    python3 scripts/amalgamate.py "$out/$one" && cp LICENSE "$out/$one/" && cc -fsyntax-only "$out/$one/tallywheel.c" &&
        tar -C "$out" --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw --mtime="$day 12:00Z" -cf "$out/$one.tar" "$one" &&
        gzip -9nf "$out/$one.tar"
}

make_site() {
    library=$(echo "$out"/unpacked/usr/lib/*/libtallywheel.so.0)
    LD_LIBRARY_PATH=${library%/*} python3 scripts/site.py "$out/site" "$out/unpacked/usr/bin/tallywheel"
}

make_all() {
    part packages make_packages
    part lintian lintian --allow-root --fail-on error,warning "$out/tallywheel_${version}"_*.changes
    part unpacked unpack
    part one-file archive_one_file
    part site make_site
    (cd "$out" && sha256sum ./*.deb ./*.tar.gz >SHA256SUMS) || give_up 'no checksums could be made'
}

publish() {
    commit=$(git -C "$tree" rev-parse HEAD)
    cd "$root" || exit 2
    git fetch -q "$tree" HEAD || give_up "the commit could not be fetched from $tree"
    git merge -q --ff-only "$commit" || give_up "the branch could not go on to $commit"
    git rev-parse -q --verify "refs/tags/$version" >/dev/null || git tag -a "$version" -m "Tallywheel $version" ||
        give_up 'git could not tag it'
    echo "release.sh: $version is made, and tagged here. build/release has what is to be published beside it."
    echo "release.sh: git push $repository HEAD:main $version"
}

release() {
    refuse_what_must_be
    out=$root/build/release
    tree=$out/tree
    rm -rf "$out"
    mkdir -p "$out/log"
    part clone git clone -q "$root" "$tree"
    cd "$tree" || exit 2
    before=$(git rev-parse HEAD)
    edit_tree
    if [ "$mode" = --show ]; then
        git diff "$before" HEAD -- . ':!packaging/libtallywheel.abi'
        git diff --stat "$before" HEAD -- packaging/libtallywheel.abi
        return
    fi
    lacking=$(check) || [ "$lacking" = "$placeholders" ] || give_up "$lacking"
    make_all
    if [ -z "$mode" ]; then publish; else echo "release.sh: a rehearsal: build/release has all of it; nothing was committed or tagged"; fi
}

profiles=nocheck
case ${DEB_BUILD_OPTIONS-nocheck} in *nocheck*) ;; *) profiles= ;; esac
[ -e /usr/share/nginx/src/conf_flags ] || profiles="$profiles pkg.tallywheel.nonginx"
version=${1:-}
mode=${2:-}
case $#:$version:$mode in
1:--check:) check ;;
1:[0-9]*: | 2:[0-9]*:--rehearse | 2:[0-9]*:--show) release ;;
*)
    echo 'usage: release.sh --check | VERSION [--rehearse | --show]' >&2
    exit 2
    ;;
esac
