#!/bin/sh
# unpack_debian.sh FOLDER RELEASE ARCHITECTURE PACKAGE... -- unpacks these packages of a Debian release into FOLDER, from
# where the machine's own apt has its packages. Nothing is installed, and packages that they need are to be named, too.
# ARCHITECTURE `source`: the source of one package, as its authors released it.
# Always true: nothing outside FOLDER changes; FOLDER/complete names what FOLDER has; exit 1 with a line that says why.
set -u
folder=$1 release=$2 architecture=$3
shift 3
wanted="$release $architecture $*"
if [ "$(cat "$folder/complete" 2>/dev/null)" = "$wanted" ]; then exit 0; fi
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" || exit
folder=$(CDPATH='' cd -- "$folder" && pwd)
# shellcheck disable=SC2016  # expanded by apt
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 2>/dev/null | head -n 1)
if [ -z "$mirror" ]; then
    echo "unpack_debian: apt knows no place of Debian's packages (apt-get update, on a Debian)" >&2
    exit 1
fi
: >"$folder/apt/status"
kind=deb get=download
if [ "$architecture" = source ]; then
    kind=deb-src get='source --download-only' architecture=$(dpkg --print-architecture)
fi
echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$folder/apt/sources.list"
ours() {
    "$@" -q -o Dir::State="$folder/apt" -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt/cache" \
        -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o Acquire::Languages=none \
        -o APT::Sandbox::User="$(id -un)" >&2
}
# shellcheck disable=SC2086  # words
if ! ours apt-get update || ! (cd "$folder/apt" && ours apt-get $get "$@"); then
    echo "unpack_debian: apt cannot fetch these packages of $release ($architecture): $*" >&2
    exit 1
fi
for package in "$folder"/apt/*.deb "$folder"/apt/*.orig.tar.*z; do
    case $package in
    *'*'*) ;; # there is none
    *.deb) dpkg -x "$package" "$folder" || exit 1 ;;
    *) tar -xf "$package" -C "$folder" --strip-components=1 || exit 1 ;;
    esac
done
rm -rf "$folder/apt"
echo "$wanted" >"$folder/complete"
