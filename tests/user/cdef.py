"""cdef.py ROOT CC... -- tallywheel.cdef.h says what a C compiler makes of tallywheel.h. Prints TAP.
Method: two programs print the size of each struct, the place and size of each field, and the value of each constant: one
includes the header, the other the file for FFIs. The prototypes of both are compiled together, where a difference is an error.
LuaJIT and Python's cffi, if they are installed, read the file as it stands and print the same lines.
Always true: the names of calls, structs and constants that must be there are taken from the header."""
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap

root, compiler = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
header = re.sub(r"/\*.*?\*/", "", (root / "include/tallywheel.h").read_text(), flags=re.S)
cdef_path = root / "include/tallywheel.cdef.h"
cdef = cdef_path.read_text()
lines = [line for line in cdef.splitlines() if re.match(r"[a-z]", line)]
structs = {name: [re.findall(r"\w+", re.sub(r"\[.*|.*\(\*|\)\(.*", "", one))[-1] for piece in body.split(";")[:-1]
                  for one in ([piece] if "(" in piece else piece.split(","))]
           for name, body in re.findall(r"^struct (\w+) \{ (.*) \};$", cdef, re.M)}
enums = [name for body in re.findall(r"^enum \w* ?\{ (.*) \};$", cdef, re.M) for name in re.findall(r"(TW_\w+) =", body)]
large = {name: value for name, value in re.findall(r"^/\* (TW_\w+) = (.*) \*/$", cdef, re.M)}
prototypes = [line for line in lines if re.match(r"[\w *]+\(", line) and not line.startswith(("typedef", "struct", "enum"))]
folder = tempfile.TemporaryDirectory()


def compiled(name: str, text: str, *options) -> subprocess.CompletedProcess:
    source = pathlib.Path(folder.name) / f"{name}.c"
    source.write_text(text)
    return subprocess.run([*compiler, "-std=c99", "-Werror", *options, "-I", root / "include", "-o", source.with_suffix(""), source],
                          capture_output=True, text=True, check=False)


def layout(name: str, include: str) -> list:
    """What a program prints that includes this."""
    body = [f'printf("{one} %zu\\n", sizeof(struct {one}));' for one in structs]
    body += [f'printf("{one}.{field} %zu %zu\\n", offsetof(struct {one}, {field}), sizeof(((struct {one} *)0)->{field}));'
             for one, fields in structs.items() for field in fields]
    body += [f'printf("{one} %lld\\n", (long long){one});' for one in enums]
    made = compiled(name, "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n" + include +
                    "\nint main(void) {\n" + "\n".join(body) + "\nreturn 0;\n}\n")
    if made.returncode:
        return made.stderr.splitlines()
    return subprocess.run([f"{folder.name}/{name}"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()


def differences(found: list, wanted: list) -> list:
    return [f"found {one}, and the compiler says {other}" for one, other in zip(found, wanted) if one != other] + (
        [f"{len(found)} lines, and the compiler has {len(wanted)}: {found[:3]}"] if len(found) != len(wanted) else [])


def luajit(wanted: list) -> None:
    """By its library, which every package that has LuaJIT has."""
    sentence = "LuaJIT reads it, and has the same sizes, places and values"
    try:
        lua = ctypes.CDLL("libluajit-5.1.so.2")
    except OSError:
        tap.skip(sentence, "LuaJIT is not installed: apt-get install libluajit-5.1-2")
        return
    lua.luaL_newstate.restype, lua.lua_tolstring.restype = ctypes.c_void_p, ctypes.c_char_p
    state = ctypes.c_void_p(lua.luaL_newstate())
    lua.luaL_openlibs(state)
    script = f'local ffi, found = require "ffi", {{}} ffi.cdef(io.open("{cdef_path}"):read("*a"))\n'
    script += "local function note(...) found[#found + 1] = table.concat({...}, ' ') end\n"
    script += "".join(f'note("{one}", ffi.sizeof("{one}"))\n' for one in structs)
    script += "".join(f'note("{one}.{field}", (ffi.offsetof("{one}", "{field}")))\n' for one, fields in structs.items() for field in fields)
    script += "".join(f'note("{one}", tonumber(ffi.C.{one}))\n' for one in enums) + 'return table.concat(found, "\\n")'
    failed = lua.luaL_loadstring(state, script.encode()) or lua.lua_pcall(state, 0, 1, 0)
    found = lua.lua_tolstring(state, -1, None).decode().splitlines()
    lua.lua_close(state)
    places = [re.sub(r"^(\w+\.\w+ \d+) \d+$", r"\1", line) for line in wanted]
    tap.no_faults(found if failed else differences(found, places), sentence)


def cffi(wanted: list) -> None:
    sentence = "Python's cffi reads it, and has the same sizes, places and values"
    try:
        from cffi import FFI  # pylint: disable=import-outside-toplevel
    except ImportError:
        tap.skip(sentence, "cffi is not installed: apt-get install python3-cffi")
        return
    ffi = FFI()
    ffi.cdef(cdef)
    found = [f"{one} {ffi.sizeof(one)}" for one in structs]
    for one in structs:
        found += [f"{one}.{name} {field.offset} {ffi.sizeof(field.type)}" for name, field in ffi.typeof(one).fields]
    calls = ffi.dlopen(None)
    found += [f"{one} {int(getattr(calls, one))}" for one in enums]
    tap.no_faults(differences(found, wanted), sentence)


tap.plan(9)
made = subprocess.run([sys.executable, root / "scripts/cdef.py"], env={**os.environ, "CC": " ".join(compiler)}, stdout=subprocess.PIPE,
                      text=True, check=True).stdout
tap.ok(made == cdef, "the file is what the header makes", "python3 scripts/cdef.py --renew")
odd = [line for line in cdef.split("*/\n", 1)[1].splitlines() if not re.match(r"/\* .* \*/$|[a-z].*;$", line) or "inline" in line or "__" in line]
tap.no_faults(odd, "it has neither macros nor inline functions nor includes: a declaration is a line")
calls = set(re.findall(r"\b(tw_\w+)\(", " ".join(re.findall(r"\bTW_API\s[^;]*;", header))))
there = {re.search(r"(tw_\w+)\(", line).group(1) for line in prototypes}
tags = set(re.findall(r"\b(?:struct|enum) (tw_\w+) \{", header))
macros = {name for name, value in re.findall(r"^#define (TW_\w+)[ \t]+(\S+)", header, re.M) if not value.startswith("__")} - {"TW_STATS_ONE"}
tap.no_faults(sorted(calls ^ there) + sorted(tags - set(re.findall(r"\b(tw_\w+)", cdef))) + sorted(macros - set(enums) - set(large)),
              f"each of {len(calls)} calls, {len(tags)} structs and enums, and {len(macros)} constants is there")
wanted_lines = layout("by_header", "#include <tallywheel.h>")
tap.ok(len(wanted_lines) > 400, "there is something to compare", wanted_lines)
tap.no_faults(differences(layout("by_cdef", f'#include "{cdef_path}"'), wanted_lines), "a C compiler gives both the same sizes, places and values")
both = compiled("both", "#include <tallywheel.h>\n" + "\n".join(prototypes) + "\n", "-c")
tap.ok(both.returncode == 0, "the prototypes are those of the header", both.stderr)
checks = "".join(f"typedef char is_{name}[({name}) == ({value.replace('-9223372036854775808', '-9223372036854775807 - 1')}) ? 1 : -1];\n"
                 for name, value in large.items() if not value.startswith('"'))
texts = [name for name, value in large.items() if value.startswith('"') and f"#define {name} {value}" not in header]
numbers = compiled("numbers", "#include <tallywheel.h>\n" + checks, "-c")
tap.ok(numbers.returncode == 0 and not texts, "so are the constants that are comments", [numbers.stderr, *texts])
luajit(wanted_lines)
cffi(wanted_lines)
tap.end()
