#!/usr/bin/env python3
"""cdef.py [--renew] -- include/tallywheel.cdef.h: what include/tallywheel.h declares, for foreign function interfaces.

    --renew   writes the file
    nothing   prints it
It is installed beside the header, so that a binding in another language begins with a file and not with a script. Python's
cffi, LuaJIT's ffi.cdef and bindings/python read it as it stands. The C preprocessor takes the macros out (CC, or cc).
Always true: a declaration is a line, in the order of the header, without comments, attributes, inline functions and
includes; each number is written out; the same header gives the same file. tests/user/cdef.py compares it with what a C
compiler makes of the header."""
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
HEADER = os.path.join(ROOT, "include/tallywheel.h")
CDEF = os.path.join(ROOT, "include/tallywheel.cdef.h")
HEAD = """\
/* tallywheel.cdef.h -- the declarations of tallywheel.h for foreign function interfaces (cffi, LuaJIT, ctypes).
 * Made by scripts/cdef.py: change the header, and then run it with --renew. tallywheel.h is the manual.
 * One declaration is one line. Constants are enums. LuaJIT has no enum of 64 bits, and no enum is a text: these constants
 * are comments, NAME = VALUE. Not here are tw_read(), tw_stats_read(), tw_audit() and the ..._init() macros, which only
 * pass a size to the call of the same name with _sized. A new tw_request is filled with zeros.
 */
/* clang-format off */
"""
VALUES = {"INT64_MAX": 2**63 - 1, "INT64_MIN": -(2**63)}


def declarations(text: str) -> list:
    """Each declaration as one line."""
    text = re.sub(r"^#include .*$", "", text, flags=re.MULTILINE)
    command = os.environ.get("CC", "cc").split() + ["-E", "-P", "-x", "c", "-U__GNUC__", "-"]
    text = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    text = re.sub(r"\bstatic inline\b.*?\n\}", "", text, flags=re.DOTALL)
    text = re.sub(r"\[([\d\s()+*-]+)\]", lambda size: f"[{eval(size.group(1))}]", text)  # sums of numbers, nothing else
    pieces = re.findall(r"(?:[^;{}]|\{[^{}]*\})+;", " ".join(text.split()))
    return [re.sub(r"^typedef struct (\w+) (\{.*\}) \1;$", r"typedef struct \1 \1;\nstruct \1 \2;", piece.strip()) for piece in pieces]


def constants(text: str) -> list:
    """Of each macro that is a constant: the line that stands for it."""
    lines = []
    for name, value in re.findall(r"^#define (TW_\w+) +([^\s\\].*?)(?: +/\*.*)?$", text, re.MULTILINE):
        if value.startswith('"'):
            lines.append(f"/* {name} = {value} */")
        elif name not in ("TW_API", "TW_STATS_ONE"):
            number = re.sub(r"^INT64_C\((.*)\)$", r"\1", value)
            number = VALUES[number] if number in VALUES else int(number)
            is_small = -(2**31) <= number < 2**31
            lines.append(f"enum {{ {name} = {number} }};" if is_small else f"/* {name} = {number} */")
    return lines


def cdef() -> str:
    with open(HEADER, encoding="utf-8") as file:
        text = file.read()
    return HEAD + "\n".join(constants(text) + declarations(text)) + "\n"


def main() -> None:
    if sys.argv[1:] == ["--renew"]:
        with open(CDEF, "w", encoding="utf-8") as file:
            file.write(cdef())
    else:
        sys.stdout.write(cdef())


if __name__ == "__main__":
    main()
