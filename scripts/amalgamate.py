#!/usr/bin/env python3
"""amalgamate.py OUT -- writes the library as one pair of files, OUT/tallywheel.c and OUT/tallywheel.h.

    cc program.c tallywheel.c -pthread -I.
    cc -DTW_WITH_REDIS program.c tallywheel.c -pthread -I. -lhiredis
    cc -DTW_WITH_TLS program.c tallywheel.c -pthread -I. -lhiredis -lssl -lcrypto

First come the system's headers, then ours, each once, then the .c files in the order of the rooms. libck is not needed:
the event counts are the library's own. The scripts for Redis are texts in the file.
Names that a .c file has for itself (functions, variables, macros, tags, constants) get the file's name in front, so that no
two files, and no file and a header of some system, disagree on one.
Always true: the same sources give the same bytes; nothing is left out by a compiler's opinion. What two files still have in
common, or an #include that was not understood, ends this script with a message."""
import glob
import os
import re
import sys
from functools import lru_cache

sys.dont_write_bytecode = True
OUT = os.path.abspath(sys.argv[1]) if len(sys.argv) == 2 and not sys.argv[1].startswith("-") else ""
os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import embed
import rooms

GUARDED = re.compile(r"^#ifndef (TWI_\w+_H)$", re.MULTILINE)
INCLUDE = re.compile(r'^ *# *include +(?:"([^"]+)"|<([^>]+)>).*\n', re.MULTILINE)
DEFINE = re.compile(r"^ *# *define +(\w+)", re.MULTILINE)
TOKEN = re.compile(
    r'(?P<gap>\s+|\\\n|/\*.*?\*/|//[^\n]*)|(?P<text>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    r"|(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)|(?P<word>[A-Za-z_]\w*)|(?P<sign>->|\.\.\.|##|.)",
    re.DOTALL)

# In the file, or not, by what its user defines.
LEFT_OUT = {"engine/base/race_point.c"}
WITHOUT_REDIS = {"engine/driver_none.c"}
WITHOUT_TLS = {"sync/wire/tls_none.c"}
WITH_TLS = {"sync/wire/tls.c", "sync/wire/tls_context.c", "sync/wire/tls_context.c"}
# System headers that stand where they are: some machine or library has them not, and the #if around them says which.
# Names of the kernel that a file defines where its headers are not there.
OF_THE_KERNEL = re.compile(r"FUTEX_|MEMBARRIER_")
KEYWORDS = {"int", "void", "bool", "char", "double", "long", "unsigned", "struct", "union", "enum", "_Atomic", "sizeof"}
CONDITIONAL = re.compile(r"(emm|imm|arm_neon|x86).*\.h|linux/.*|sys/sdt\.h")

TOP = """/* tallywheel.c -- Tallywheel {version} as one file: counters for servers that count faster than a network can answer.
 * Made by scripts/amalgamate.py from the sources of the same version: change those, not this. tallywheel.h, beside it, is
 * the manual.
 *
 *   cc program.c tallywheel.c -pthread -I.
 *   cc -DTW_WITH_REDIS program.c tallywheel.c -pthread -I. -lhiredis                  counts are merged into Redis
 *   cc -DTW_WITH_TLS program.c tallywheel.c -pthread -I. -lhiredis -lssl -lcrypto     also by rediss://
 *
 * Compile it once, to an object (-c): with -O2 gcc 12 takes some 40 s of a processor and 420 MB, some 30 s without Redis,
 * and 15 s with -O0.
 * A release is built with -O2. C11, gcc or clang, Linux, 64 bits; C++ programs compile this file by the C compiler.
 *
{licence}
 */
#if defined(__cplusplus)
#error "tallywheel.c is C: compile it by the C compiler, and link the object"
#elif __SIZEOF_POINTER__ != 8
#error "Tallywheel needs a 64-bit target"
#elif __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Tallywheel needs a little-endian target"
#elif !defined(__linux__)
#error "Tallywheel needs Linux"
#else

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#if defined(TW_WITH_TLS) && !defined(TW_WITH_REDIS)
#define TW_WITH_REDIS 1
#endif
#define TWI_OWN_EVENT_COUNT 1
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wformat-truncation" /* texts for people are cut to the room there is */
#endif

#include "tallywheel.h"

"""


def stop(why: str) -> None:
    sys.exit("amalgamate.py: " + why)


@lru_cache(maxsize=None)
def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    # The half of libck is not in the file.
    return re.sub(r"^#ifdef TWI_OWN_EVENT_COUNT\n(.*?)^#else\n.*?^#endif\n", r"\1", text, flags=re.MULTILINE | re.DOTALL)


def tokens(text: str) -> list[tuple[str, str]]:
    return [(match.lastgroup, match.group()) for match in TOKEN.finditer(text)]


# ---- which files, in which order ------------------------------------------------------------------------------------


def sources() -> list[str]:
    folders = [f"{tree}/{room}" for tree in ("engine", "extras", "sync") for room in rooms.ROOMS[tree] + [""]]
    return [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, "*.c"))) if path not in LEFT_OUT]


def condition_of(path: str) -> str:
    """Of a .c file."""
    if path in WITHOUT_REDIS:
        return "!defined(TW_WITH_REDIS)"
    if path in WITH_TLS:
        return "defined(TW_WITH_TLS)"
    if path in WITHOUT_TLS:
        return "defined(TW_WITH_REDIS) && !defined(TW_WITH_TLS)"
    return "defined(TW_WITH_REDIS)" if path.startswith("sync/") else ""


class Headers:
    """Ours, each behind those that it includes; and the system's, by the condition under which they are needed."""

    def __init__(self) -> None:
        self.ours: dict[str, str] = {}  # path -> condition
        self.system: dict[str, str] = {}

    def add_system(self, name: str, condition: str) -> None:
        if name.startswith("openssl/"):
            condition = "defined(TW_WITH_TLS)"
        if not CONDITIONAL.fullmatch(name) and self.system.get(name) != "":
            known = self.system.setdefault(name, condition)
            if known != condition:
                self.system[name] = "" if "" in (known, condition) else "defined(TW_WITH_REDIS)"

    def visit(self, path: str, condition: str) -> None:
        for ours, system in INCLUDE.findall(read(path)):
            if system:
                self.add_system(system, condition)
            elif ours.endswith(".lua.h"):
                self.ours[ours] = "defined(TW_WITH_REDIS)"
            elif ours != "tallywheel.h" and ours not in self.ours:
                if not os.path.exists(ours):
                    stop(f"{path} includes {ours}, which is not there")
                inner = "defined(TW_WITH_REDIS)" if ours.startswith("sync/") else ""
                if "<openssl/" in read(ours):
                    inner = "defined(TW_WITH_TLS)"
                self.visit(ours, inner)
                if GUARDED.search(read(ours)):
                    self.ours[ours] = inner


# ---- what a .c file has for itself ----------------------------------------------------------------------------------


def defined(text: str) -> tuple[set[str], set[str], set[str]]:
    """At the outermost level of a text: functions and variables; constants and macros; tags."""
    plain = [(kind, word) for kind, word in tokens(re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", "", text, flags=re.MULTILINE)) if kind != "gap"]
    objects, constants, tags = set(), set(DEFINE.findall(text)), set()
    depth, statement, at = 0, [], 0
    while at < len(plain):
        kind, word = plain[at]
        if depth == 0 and word in ("struct", "union", "enum"):
            tag = plain[at + 1][1] if plain[at + 1][0] == "word" else ""
            opens = at + (2 if tag else 1)
            if plain[opens][1] == "{":
                closes, level = opens, 0
                while True:
                    level += {"{": 1, "}": -1}.get(plain[closes][1], 0)
                    if level == 0:
                        break
                    closes += 1
                if tag:
                    tags.add(tag)
                if word == "enum":
                    constants |= {plain[i][1] for i in range(opens + 1, closes)
                                  if plain[i][0] == "word" and plain[i - 1][1] in "{,"}
                statement.append(("sign", "@"))  # a type
                at = closes + 1
                continue
        if word in "([{":
            if depth == 0:
                statement.append((kind, word))
            depth += 1
        elif word in ")]}":
            depth -= 1
            if depth == 0 and word == "}" and "(" in [each for _, each in statement] and "=" not in [each for _, each in statement]:
                objects |= declared(statement)
                statement = []
        elif depth == 0 and word == ";":
            objects |= declared(statement)
            statement = []
        elif depth == 0:
            statement.append((kind, word))
        at += 1
    return objects, constants, tags


def own_names(text: str) -> tuple[set[str], set[str], set[str]]:
    """What a .c file has for itself. Names that begin with tw_ and twi_ are everybody's."""
    own = lambda names: {name for name in names if not re.match(r"twi?_|TWI?_", name) and not OF_THE_KERNEL.match(name)}
    objects, constants, tags = defined(text)
    return own(objects), own(constants), own(tags)


def of_both(headers: list[str]) -> set[str]:
    """Names that headers of engine/ and headers of sync/ give to different things. No file of the sources sees both."""
    names: dict[str, set[str]] = {"engine": set(), "sync": set()}
    for path in headers:
        tree = path.split("/")[0]
        if tree in names and os.path.exists(path):
            _, constants, tags = defined(read(path))
            names[tree] |= constants | tags
    return names["engine"] & names["sync"]


def apart(text: str, path: str, both: set[str]) -> str:
    """Those of sync/ are twi_sync_NAME or TWI_SYNC_NAME in the file."""
    if not path.startswith("sync/"):
        return text
    new = {name: re.sub(r"^(TWI|twi)_", lambda match: {"TWI": "TWI_SYNC_", "twi": "twi_sync_"}[match.group(1)], name) for name in both}
    return re.sub(r"\b(?:" + "|".join(sorted(new)) + r")\b", lambda match: new[match.group()], text) if new else text


def declared(statement: list[tuple[str, str]]) -> set[str]:
    """Of a declaration at the outermost level, without what its brackets hold."""
    words = [word for _, word in statement]
    while "__attribute__" in words:  # and the bracket behind it
        del words[words.index("__attribute__") : words.index("__attribute__") + 2]
    for word in ("_Alignas", "alignas"):
        while word in words:
            del words[words.index(word) : words.index(word) + 2]
    if not words or words[0] in ("typedef", "_Static_assert", "static_assert"):
        return set(words[-1:]) if words[:1] == ["typedef"] else set()
    names, is_value = set(), False
    for i, word in enumerate(words + [";"]):
        if word in "=([,;{" and i > 0 and not is_value and re.match(r"[A-Za-z_]", words[i - 1]) and words[i - 1] not in KEYWORDS:
            names.add(words[i - 1])
            if word == "(":
                break  # a function: what follows are attributes
        is_value = word == "=" or is_value and word not in ",;"
    return names


def renamed(text: str, prefix: str) -> str:
    objects, constants, tags = own_names(text)
    out, before, members, braces = [], "", 0, []
    for kind, word in tokens(text):
        if kind == "sign":
            if word == "{":
                braces.append(before_brace(out))
                members += braces[-1]
            elif word == "}" and braces:
                members -= braces.pop()
        if kind == "word" and before not in (".", "->"):
            is_tag = before in ("struct", "union", "enum")
            mine = word in tags if is_tag else word in constants or word in objects and not members
            if mine:
                word = prefix + word
        if kind != "gap":
            before = word
        out.append(word)
    text = "".join(out)
    # What a macro makes a name of: PREFIX_##part.
    return re.sub(r"\b((?!twi?_|TWI?_)[A-Za-z_]\w*_)(\s*##)", lambda match: prefix + match.group(1) + match.group(2)
                  if not match.group(1).startswith(prefix) else match.group(0), text)


def before_brace(out: list[str]) -> int:
    """1: the brace to come begins the members of a struct."""
    words = [word for word in out[-8:] if not word.isspace() and not word.startswith("/*")]
    return int(bool(words) and (words[-1] in ("struct", "union") or len(words) > 1 and words[-2] in ("struct", "union")))


def body_of(path: str, seen: tuple[str, ...] = ()) -> str:
    """A .c file without its includes; a template, which has no guard, in its place."""

    def put(match: re.Match) -> str:
        ours, system = match.group(1), match.group(2)
        if system:
            visible = "#pragma GCC visibility push(default)\n{}#pragma GCC visibility pop\n".format(match.group(0))
            return visible if CONDITIONAL.fullmatch(system) else ""
        if ours.endswith(".lua.h") or ours == "tallywheel.h" or GUARDED.search(read(ours)):
            return ""
        if ours in seen:
            stop(f"{path} includes {ours} in a circle")
        return body_of(ours, seen + (ours,))

    return INCLUDE.sub(put, read(path))


# ---- the pair -------------------------------------------------------------------------------------------------------


def script_text(header: str) -> str:
    """batch.lua.h, as the build makes it."""
    name = header.split(".")[0]
    return embed.embedded(f"twi_script_{name}", f"sync/script/{name}.lua")


class Writer:
    """Pieces, each under its condition; neighbours under one share an #if."""

    def __init__(self, head: str) -> None:
        self.parts, self.condition = [head], ""

    def put(self, text: str, condition: str) -> None:
        if condition != self.condition:
            if self.condition:
                self.parts.append(f"#endif /* {self.condition} */\n\n")
            if condition:
                self.parts.append(f"#if {condition}\n")
            self.condition = condition
        self.parts.append(text)

    def section(self, name: str, text: str, condition: str) -> None:
        self.put(f"/* ==== {name} {'=' * max(4, 108 - len(name))} */\n{text.strip()}\n\n", condition)


def amalgamation() -> str:
    version = re.search(r"^  version: '(.*)',", read("meson.build"), re.MULTILINE).group(1)
    licence = "\n".join((" * " + line).rstrip() for line in read("LICENSE").strip().split("\n"))
    writer, headers, files = Writer(TOP.format(version=version, licence=licence)), Headers(), sources()
    for path in files:
        headers.visit(path, condition_of(path))
    for condition in ("", "defined(TW_WITH_REDIS)", "defined(TW_WITH_TLS)"):
        for name in sorted(name for name, needed in headers.system.items() if needed == condition):
            writer.put(f"#include <{name}>\n", condition)
    writer.put("\n/* Internal names stay inside of the program or library that this file is linked into. */\n"
               "#pragma GCC visibility push(hidden)\n\n", "")
    both = of_both(list(headers.ours))
    for path, condition in headers.ours.items():
        text = script_text(path) if path.endswith(".lua.h") else apart(body_of(path), path, both)
        writer.section(path, text, condition)
    stems = [os.path.basename(path) for path in files]
    everything = "".join(read(path) for path in files + [path for path in headers.ours if os.path.exists(path)])
    for path in files:
        stem = path if stems.count(os.path.basename(path)) > 1 else os.path.basename(path)
        prefix = stem.replace("/", "_")[: -len(".c")] + "_c_"
        if prefix in everything:
            stop(f"{prefix} begins a name already")
        text = renamed(apart(body_of(path), path, both), prefix).rstrip() + "\n"
        left = sorted({name for name in DEFINE.findall(text) if name.startswith("TWI_")})
        text += "".join(f"#undef {name}\n" for name in left)
        writer.section(path, text, condition_of(path))
    writer.put("#pragma GCC visibility pop\n#endif\n", "")
    return "".join(writer.parts)


def main() -> int:
    if not OUT:
        stop("usage: amalgamate.py OUT")
    os.makedirs(OUT, exist_ok=True)
    text = amalgamation()
    for name, content in (("tallywheel.c", text), ("tallywheel.h", read("include/tallywheel.h"))):
        with open(os.path.join(OUT, name), "w", encoding="utf-8") as file:
            file.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
