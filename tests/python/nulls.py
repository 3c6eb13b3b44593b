"""nulls.py ROOT LIBRARY -- a pointer that a call needs and that is NULL is refused by its name. Prints TAP.
Method: every call of tallywheel.cdef.h, once for each of its pointers, with NULL there and valid values elsewhere, in a child
process of its own. What the header's paragraph "NULL" says of the call is what must come.
Always true: calls, their arguments, and what is exempt are read from the header, so a new call is not forgotten."""
import ctypes
import os
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap

root = pathlib.Path(sys.argv[1]).resolve()
os.environ["TALLYWHEEL_LIBRARY"] = sys.argv[2]
sys.path.insert(0, str(root / "bindings/python"))
import tallywheel
from tallywheel import _ffi

lib, constants, Key = tallywheel.lib, tallywheel.constants, _ffi.structs["tw_key"]
text = (root / "include/tallywheel.h").read_text()
lines = {name: line for line in (root / "include/tallywheel.cdef.h").read_text().splitlines()
         for name in re.findall(r"^(?!typedef|struct|enum)[\w *]*?\b(tw_\w+)\(", line)}
paragraph = " ".join(re.search(r"^ \* NULL\. (.*?)\*/", text, re.M | re.S)[1].replace("\n *", " ").split())
unchecked = set(re.findall(r"\b(tw_\w+)\(\)", re.search(r"`family` and `keys`, which must not be NULL. These are (.*?)\.", paragraph)[1]))
# Outputs of other types than these, and inputs that the comment of the call lets be NULL.
figures = (ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_bool, ctypes.c_int, _ffi.structs["tw_verdict"],
           _ffi.structs["tw_reading"])
documented = {("tw_audit_sized", "engine"), ("tw_audit_sized", "found"), ("tw_audit_sized", "report"), ("tw_limits_close", "limits"),
              ("tw_limits_find", "found"), ("tw_limited_find", "found"), ("tw_queue_close", "queue"), ("tw_lock_release_async", "request"),
              ("tw_hold_release_async", "request"), ("tw_reserve_cancel_async", "request"), ("tw_key_network", "key")}
folder = tempfile.TemporaryDirectory()
pathlib.Path(folder.name + "/limits").write_text("login * 1 1h\n")


def arguments_of(name: str) -> list:
    """Names and types, in order."""
    inside = re.match(r"[^(]*\((.*)\);$", lines[name]).group(1)
    return [_ffi.declared(one)[0] for one in _ffi.split_arguments(inside)]


def is_pointer(kind) -> bool:
    return kind in (ctypes.c_void_p, ctypes.c_char_p) or issubclass(kind, (ctypes._Pointer, ctypes._CFuncPtr, ctypes.Array))


def may_be_null(name: str, argument: str, kind) -> bool:
    is_figure = issubclass(kind, ctypes._Pointer) and issubclass(kind._type_, figures) and "const" not in declaration_of(name, argument)
    return argument in ("ctx", "visit_ctx", "error_text", "deltas") or is_figure or (name, argument) in documented


def declaration_of(name: str, argument: str) -> str:
    return next(one for one in _ffi.split_arguments(re.match(r"[^(]*\((.*)\);$", lines[name]).group(1))
                if re.search(rf"\b{argument}\b", one))


def values(name: str) -> list:
    """Valid arguments of this call. The child ends without closing anything."""
    engine = tallywheel.Engine()
    family = engine.family("plain")
    limits, limited, pin, queue = engine.limits(folder.name + "/limits"), *(ctypes.c_void_p() for _ in range(3))
    lib.tw_limits_family(limits._handle, b"login", ctypes.byref(limited))
    lib.tw_pin_open(family._handle, Key(b"k", 1), ctypes.byref(pin))
    if name != "tw_close":
        lib.tw_queue_open(engine._handle, ctypes.byref(queue))
    by_name = {"engine": engine._handle, "family": family._handle, "limits": limits._handle, "limited": limited.value, "pin": pin.value,
               "queue": queue.value}
    found = []
    for argument, kind in arguments_of(name):
        star = declaration_of(name, argument)
        if argument in by_name and "**" not in star and kind is ctypes.c_void_p:
            found.append(by_name[argument])
        elif kind is ctypes.c_char_p:
            found.append(b"login" if argument == "family" else folder.name.encode() + b"/limits" if argument == "path" else b"x")
        elif argument == "buffer_size":
            found.append(4096)
        elif kind is Key:
            found.append(Key(b"k", 1))
        elif issubclass(kind, ctypes._CFuncPtr):
            found.append(kind(lambda *_: True))
        elif argument == "options":
            options = kind._type_()
            getattr(lib, re.sub(r".*struct_|.*\.", "", kind._type_.__name__) + "_init_sized")(options, ctypes.sizeof(options))
            if hasattr(options, "name"):
                options.name = b"another"
            found.append(ctypes.pointer(options))
        elif argument == "claims":
            found.append(ctypes.pointer(kind._type_(family._handle, Key(b"k", 1), 1, 1)))
        elif argument == "keys" or argument == "elements":
            found.append(ctypes.pointer(Key(b"k", 1)))
        elif issubclass(kind, ctypes._Pointer) or kind is ctypes.c_void_p or issubclass(kind, ctypes.Array):
            found.append(ctypes.create_string_buffer(4096))
        else:
            found.append(ctypes.sizeof(_ffi.structs.get("tw_" + arguments_of(name)[len(found) - 1][0], ctypes.c_int)) if argument == "size" else 1)
    return found


def outcome(name: str, at: int) -> tuple:
    """(signal or 0, what the call returned, the error text)"""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            call = getattr(lib, name)
            kept = given = values(name)  # a cast does not keep what it points to
            kinds = [kind for _, kind in arguments_of(name)]
            call.argtypes = [ctypes.c_void_p if is_pointer(kind) else kind for kind in kinds]
            given = [ctypes.cast(one, ctypes.c_void_p) if is_pointer(kind) and not isinstance(one, (int, type(None))) else one
                     for one, kind in zip(given, kinds)]
            given[at] = None
            os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
            before = lib.tw_error_text()
            returned = call(*given)
            after = lib.tw_error_text()
            os.write(writes, f"{returned if not isinstance(returned, bytes) else 1}\n{(after if after != before else b'').decode()}".encode())
            os._exit(0 if kept else 1)
        except BaseException as error:
            os.write(writes, f"broken\n{type(error).__name__}: {error}".encode())
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads, "rb") as answer:
        returned, _, why = answer.read().decode().partition("\n")
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, returned, why


def fault(name: str, argument: str, kind, at: int) -> str:
    """What is wrong with this call, or nothing."""
    if name in unchecked and argument in ("family", "keys"):
        return ""
    signal, returned, why = outcome(name, at)
    here = f"{name}({argument} = NULL)"
    if signal or returned == "broken":
        return f"{here}: signal {signal} {why}"
    if may_be_null(name, argument, kind):
        return f"{here}: {returned} {why}" if returned == "-2" and why.startswith(argument) else ""
    if not lines[name].startswith("tw_status"):  # what such a call returns is its last word
        wanted = "-1" if lines[name].startswith("int ") else str(2**32 - 1) if lines[name].startswith("uint32_t") else (
            "0" if lines[name].startswith("size_t") else "None")
        return "" if returned == wanted else f"{here}: {returned}, not {wanted}"
    is_named = re.match(rf"{argument}\b", why)
    return "" if returned == "-2" and is_named else f"{here}: {returned} '{why}'"


pointers = [(name, argument, kind, at) for name in lines for at, (argument, kind) in enumerate(arguments_of(name)) if is_pointer(kind)]
tap.plan(3)
tap.ok(len(lines) > 100 and len(pointers) > 200 and 5 < len(unchecked) < 10 and unchecked < set(lines),
       f"the header has {len(lines)} calls with {len(pointers)} pointers", unchecked)
faults = [one for one in (fault(*one) for one in pointers) if one]
tap.no_faults(faults, "NULL in the place of each of them is refused by its name, or is what the header says")
checked = {name for name, argument, *_ in pointers if argument == "family"} - unchecked
tap.ok(len(checked) > 35, "most calls check their family", sorted(checked))
tap.end()
