"""_ffi.py -- tallywheel.cdef.h as ctypes: structs, enums, constants and prototypes, and the library that has the calls.

The file is the one beside this package (an installed package), or the one of the source tree that this package is in.
Always true: no number of the header is repeated here."""
import ctypes
import os
import re
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
CDEF = next(path for path in (os.path.join(HERE, "tallywheel.cdef.h"), os.path.join(HERE, "../../../include/tallywheel.cdef.h"))
            if os.path.exists(path))
SIMPLE = {
    "void": None, "bool": ctypes.c_bool, "char": ctypes.c_char, "int": ctypes.c_int, "tw_status": ctypes.c_int,
    "size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "unsigned": ctypes.c_uint,
}
structs, constants, enums, functions = {}, {}, {}, {}  # enums: tag -> {name: value}; functions: name -> (result, [arguments])


class Whole(namedtuple("Whole", "kind")):
    """An integer as an argument. ctypes alone would cut off what is too large."""

    def from_param(self, value):
        number = self.kind(value)
        if number.value != value:
            raise OverflowError(f"{value} is out of range")
        return number


def as_argument(kind):
    if issubclass(kind, ctypes.Array):
        return ctypes.c_void_p
    return Whole(kind) if issubclass(kind, ctypes._SimpleCData) and isinstance(kind().value, int) and kind is not ctypes.c_bool else kind


def type_of(text: str):
    """Of a type without a name, such as "const tw_key *"."""
    words, stars = text.replace("const", "").replace("*", "").strip(), text.count("*")
    if not stars:
        return structs[words] if words in structs else SIMPLE[words]
    if stars == 1 and text.startswith(("const char", "const void")):
        return ctypes.c_char_p  # it takes bytes, also those of a key
    if stars == 1 and words not in structs and (words in ("char", "void") or words not in SIMPLE):
        return ctypes.c_void_p  # a buffer, or a handle
    return ctypes.POINTER(type_of(text.replace("*", "", 1)))


def split_arguments(text: str) -> list:
    """At commas outside of parentheses."""
    return [] if text.strip() == "void" else [one.strip() for one in re.findall(r"(?:[^,()]|\([^()]*\))+", text)]


def declared(text: str) -> list:
    """Names and types of a field or an argument: "int64_t limit, used", "char token[64]", "bool (*visit)(void *ctx)"."""
    match = re.match(r"(.*?) ?\(\*(\w+)\)\((.*)\)$", text)
    if match:
        arguments = [declared(one)[0][1] for one in split_arguments(match.group(3))]
        return [(match.group(2), ctypes.CFUNCTYPE(type_of(match.group(1)), *arguments))]
    base, names = re.match(r"((?:const )?\w+ (?:\*(?:const )?)*)(.*)$", text).groups()
    found = []
    for name in names.split(", "):
        name, size = re.match(r"(\w+)(?:\[(\d+)\])?$", name).groups()
        found.append((name, type_of(base) * int(size) if size else type_of(base)))
    return found


def read(path: str) -> None:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    constants.update((name, int(value)) for name, value in re.findall(r"^/\* (TW_\w+) = (-?\d+) \*/$", text, re.MULTILINE))
    for name in re.findall(r"^struct (\w+) ", text, re.MULTILINE):
        structs[name] = type(name, (ctypes.Structure,), {})
    for line in re.findall(r"^[a-z].*;$", text, re.MULTILINE):
        kind, name, body = (re.match(r"(enum|struct) ?(\w*) ?\{ (.*) \};", line) or re.match(r"()()()", line)).groups()
        if kind == "enum":
            values = enums.setdefault(name, {})
            for pair in body.split(", "):
                constant, value = pair.split(" = ")
                values[constant] = constants[constant] = constants[value] if value in constants else int(value)
        elif kind == "struct":
            structs[name]._fields_ = [field for piece in body.rstrip(";").split("; ") for field in declared(piece)]
        elif not line.startswith("typedef"):
            result, name, arguments = re.match(r"(.*?[ *])(tw_\w+)\((.*)\);", line).groups()
            functions[name] = type_of(result.strip()), [as_argument(declared(one)[0][1]) for one in split_arguments(arguments)]


def library() -> ctypes.CDLL:
    found = ctypes.CDLL(os.environ.get("TALLYWHEEL_LIBRARY") or f"libtallywheel.so.{constants['TW_VERSION_MAJOR']}")
    for name, (result, arguments) in functions.items():
        getattr(found, name).restype, getattr(found, name).argtypes = result, arguments
    return found


def hot(name: str, never_waits: bool = True):
    """A call of a family and a key, as cheap as ctypes makes it. A call that never waits keeps the interpreter's lock. The key
    is two arguments in place of a struct: on x86-64 and ARM64 both are the same two registers, if the call has no more than
    six words. The numbers are not checked."""
    call = (ctypes.PyDLL if never_waits else ctypes.CDLL)(None, handle=lib._handle)[name]
    words = [[ctypes.c_char_p, ctypes.c_size_t] if one is structs["tw_key"] else [getattr(one, "kind", ctypes.c_void_p)]
             for one in functions[name][1]]
    call.argtypes, call.restype = sum(words, []), ctypes.c_int
    return call


read(CDEF)
lib = library()


class Error(Exception):
    """A call was refused, or has no result. `name` is the status, for example "TW_ERR_FULL", and the text is the reason.
    `verdict` is what the policy recommends, if the call has one."""

    def __init__(self, status: int, text: str = "", verdict=None) -> None:
        self.status, self.name, self.verdict = status, lib.tw_status_name(status).decode(), verdict
        super().__init__(f"{self.name}: {text or lib.tw_error_text().decode()}")


class Denied(Error):
    """A slot, a lock or a reservation that was not to be had. verdict.retry_after_ms says when to ask again."""


def check(status: int, verdict=None) -> int:
    """The status, if it is no error."""
    if status < 0:
        raise Error(status, verdict=verdict)
    return status
