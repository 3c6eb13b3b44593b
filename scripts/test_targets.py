#!/usr/bin/env python3
"""test_targets.py BUILD [SUITE|-SUITE]... -- what ninja has to build in BUILD before the tests of these suites can run, one target
a line. "-SUITE" leaves out those that are also of that suite. Without a SUITE: the tests of all suites but these.
Always true: it reads what meson says of the tests, so a test needs no entry here."""
import json
import os
import subprocess
import sys


def introspect(build, what):
    return json.loads(subprocess.check_output(["meson", "introspect", what, build]))


def main():
    build = os.path.realpath(sys.argv[1])
    wanted = {name for name in sys.argv[2:] if not name.startswith("-")}
    unwanted = {name[1:] for name in sys.argv[2:] if name.startswith("-")}
    files = {target["id"]: target["filename"] for target in introspect(build, "--targets")}
    needed = set()
    for test in introspect(build, "--tests"):
        suites = {name.split(":")[-1] for name in test["suite"]}
        if (suites & wanted or not wanted) and not suites & unwanted:
            for target in test["depends"]:
                needed.update(os.path.relpath(file, build) for file in files[target])
    print("\n".join(sorted(needed)))


main()
