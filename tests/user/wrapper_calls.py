"""wrapper_calls.py ROOT -- tallywheel.hpp has every call of tallywheel.h. Prints TAP.
Method: the names of the functions that the header declares, without its comments, against the code of the wrapper. A call that
takes the size of its struct is used through the inline function that gives it."""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap

include = pathlib.Path(sys.argv[1]) / "include"


def code(name):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", (include / name).read_text(), flags=re.S)


header, wrapper = code("tallywheel.h"), code("tallywheel.hpp")
calls = set(re.findall(r"\b(tw_[a-z0-9_]+)\s*\(", header))
used = set(re.findall(r"\b(tw_[a-z0-9_]+)\s*\(", wrapper))
# Made by inline functions: keys are string_views here, and options are initialised by their constructors.
other_ways = {"tw_str": "tw_bytes"} | {name: name + "_sized" for name in calls if name + "_sized" in calls}
other_ways |= {name: name[:-6] for name in calls if name.endswith("_sized")}
missing = sorted(name for name in calls if name not in used and other_ways.get(name) not in used)
tap.plan(2)
tap.ok(len(calls) > 70, "the header has calls", f"{len(calls)} were found")
tap.no_faults(missing, "the wrapper has all of them")
tap.end()
