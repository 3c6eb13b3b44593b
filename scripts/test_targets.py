#!/usr/bin/env python3
"""test_targets.py BUILD [--part TURN/PARTS] [--names] [SUITE|-SUITE]... -- what ninja has to build in BUILD before the tests of
these suites can run, one target a line. "-SUITE" leaves out those that are also of that suite. Without a SUITE: the tests of
all suites but these.

    --part TURN/PARTS   only one of so many parts of the tests, with the next TURN the next one; the parts take about the same
                        time, by the seconds in tests/coverage.txt
    --names             prints the names of the tests, for meson's command line
Always true: it reads what meson says of the tests, so a test needs no entry here. Each test is in one of the parts. Tests of one
name are in the same part."""
import argparse
import json
import os
import re
import subprocess


def introspect(build, what):
    return json.loads(subprocess.check_output(["meson", "introspect", what, build]))


def seconds():
    """Of each test that coverage.txt knows, by its name without the suite."""
    found = {}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "coverage.txt"), encoding="utf-8") as file:
        for name, took in re.findall(r"^\w+/(\S+) ([\d.]+) s$", file.read(), re.M):
            found[name] = found.get(name, 0) + float(took)
    return found


def part_of(names, turn, parts):
    """The longest first, each to the part that has least so far."""
    took, sums, chosen = seconds(), [0.0] * parts, [set() for _ in range(parts)]
    cost = {name: took.get(name.removesuffix(" (long)"), 1.0) for name in names}
    for name in sorted(names, key=lambda name: (-cost[name], name)):
        least = sums.index(min(sums))
        sums[least] += cost[name]
        chosen[least].add(name)
    return chosen[turn % parts]


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("build")
    parser.add_argument("--part")
    parser.add_argument("--names", action="store_true")
    options, words = parser.parse_known_args()
    build = os.path.realpath(options.build)
    wanted = {name for name in words if not name.startswith("-")}
    unwanted = {name[1:] for name in words if name.startswith("-")}
    tests = []
    for test in introspect(build, "--tests"):
        suites = {name.split(":")[-1] for name in test["suite"]}
        if (suites & wanted or not wanted) and not suites & unwanted:
            tests.append(test)
    if options.part:
        turn, parts = map(int, options.part.split("/"))
        names = part_of({test["name"] for test in tests}, turn, parts)
        tests = [test for test in tests if test["name"] in names]
    if options.names:
        print("\n".join(sorted({test["name"] for test in tests})))
        return
    files = {target["id"]: target["filename"] for target in introspect(build, "--targets")}
    needed = {os.path.relpath(file, build) for test in tests for target in test["depends"] for file in files[target]}
    print("\n".join(sorted(needed)))


main()
