#!/usr/bin/env python3
"""abi.py [--renew] -- can a program that was built against the last release use this library?

The calls and types of include/tallywheel.h are compared by abidiff with packaging/libtallywheel.abi, which abidw wrote when
the release was made (--renew: writes it now). New calls, numbers and options, and reserved words that get a use, are no
difference; anything else is.
Compared is what a compiler makes of the header: a library of the same calls, empty, with the same versions at its names.
That the real one has these calls and no other is looked at by `./dev check symbols`, beside this.
Always true: exit status 0: compatible; 1: not, and abidiff says what; 77: abigail-tools are not installed."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

sys.dont_write_bytecode = True
import header_doc

ROOT = os.path.abspath(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
KEPT = os.path.join(ROOT, "packaging/libtallywheel.abi")
RESERVED = re.compile(r"(u?int64_t) reserved\[([^;]*)\];")
# A word of which one byte has a use, behind its comment.
BYTE = re.compile(r"uint8_t (\w+);(\s*/\*(?:(?!\*/).)*\*/)?\s*uint8_t reserved_bytes\[7\];", re.DOTALL)


# ---- what may grow ----------------------------------------------------------------------------------------------------
# abidiff can be told that a struct may grow; but 2.2 then overlooks whatever else has changed in it.


def named_words(header: str) -> str:
    """Each reserved word by a name of its own, counted from the end: one that becomes a field is then another name at the
    same place, which abidiff takes for harmless, and the others stay what they are. A field of one byte stands for its whole
    word: the seven bytes behind it were reserved, and are."""

    def words(match: re.Match) -> str:
        length = match.group(2)
        count = int(length) if length.isdigit() else room - len(header_doc.FIGURE.findall(header))
        return " ".join(f"{match.group(1)} reserved_{number};" for number in range(count, 0, -1))

    room = int(re.search(r"#define TW_STATS_ROOM (\d+)", header).group(1))
    return RESERVED.sub(words, BYTE.sub(r"uint64_t \1;", header))


def last_members() -> dict[str, str]:
    """Of each struct of the release: its last member."""
    members = {one.get("name"): one.findall("data-member/var-decl") for one in xml.parse(KEPT).iter("class-decl")}
    return {name: found[-1].get("name") for name, found in members.items() if found}


def without_what_came_behind(header: str) -> str:
    """Structs that begin with their size, as far as the release knew them."""

    def cut(match: re.Match) -> str:
        end = re.search(rf"\b{last.get(match.group(1), '')}(?:\[\w*\]|\)\([^;]*\))?;", match.group(2))
        return f"struct {match.group(1)} {{{match.group(2)[: end.end()] if end else match.group(2)}\n}}"

    last = last_members()
    return re.sub(r"struct (\w+) \{(\s*size_t size;.*?)\n\}", cut, header, flags=re.DOTALL)


# ---- the library without its bodies -----------------------------------------------------------------------------------


def source(header: str) -> str:
    """An empty body for each call; and since numbers go in and out as plain integers, something that has each enum's type."""
    out = ['#include "tallywheel.h"']
    for one in (one for entry in header_doc.entries(header) for one in entry.declarations):
        if one.kind == "function" and one.is_exported:
            out.append(f"TW_API {one.text.removesuffix(';')} {{ __builtin_trap(); }}")
        elif one.kind == "enum":
            out.append(f"TW_API enum {one.name} tw_numbers_of_{one.name.removeprefix('tw_')};")
    return "\n".join(out) + "\n"


def dump(header: str, work: str, out: str) -> None:
    for name, text in (("tallywheel.h", named_words(header)), ("calls.c", source(header))):
        with open(os.path.join(work, name), "w", encoding="utf-8") as file:
            file.write(text)
    subprocess.run([os.environ.get("CC", "cc"), "-g", "-w", "-shared", "-fPIC", "-fvisibility=hidden", "-o", "calls.so", "calls.c",
                    f"-Wl,--version-script={ROOT}/tools/tallywheel.map", "-Wl,-soname,libtallywheel.so.0"], cwd=work, check=True)
    subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--no-elf-needed", "--no-architecture",
                    "--exported-interfaces-only", "--type-id-style", "hash", "--out-file", out, "calls.so"], cwd=work, check=True)


def main() -> int:
    if not shutil.which("abidw") or not shutil.which("abidiff"):
        print("abidiff is not installed: apt-get install abigail-tools")
        return 77
    with open(os.path.join(ROOT, header_doc.HEADER), encoding="utf-8") as file:
        header = file.read()
    with tempfile.TemporaryDirectory() as work:
        if sys.argv[1:] == ["--renew"]:
            dump(header, work, KEPT)
            return 0
        now = os.path.join(work, "now.abi")
        dump(without_what_came_behind(header), work, now)
        if subprocess.run(["abidiff", "--no-added-syms", KEPT, now], check=False).returncode == 0:
            return 0
    print("A program that was built against the last release may break. With a new release: scripts/abi.py --renew, and a new SONAME")
    return 1


if __name__ == "__main__":
    sys.exit(main())
