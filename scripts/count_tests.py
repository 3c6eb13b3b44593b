#!/usr/bin/env python3
"""count_tests.py FOLDER -- of a build: prints "PASSED FAILED SKIPPED", counted over single tests, not programs.

meson counts a TAP program as one; here each of its tests counts. A program that broke its plan, crashed or ran out of
time counts as failed even if each line it managed to print was an `ok`. What was skipped is named on standard error, with
its reason. Then, last, for a log that is cut short keeps its end, what failed: "failed: NAME (RESULT)", and four columns
to the right the seed, each `not ok` with the lines around it that say why, and of standard error what a tool reports, or
its end. All that a program said is in meson's log, and above, if meson prints it.

"# left out: NAME: why" (test_leave_out() of tests/support) says of a test that it, or a part of it, did not run: its `ok`
counts as skipped. The line may stand above or below, for programs whose tests run side by side print it below. Such a
line without a test of its name is a failure: it would have hidden one that did not run."""
import glob
import json
import re
import sys

LINE = re.compile(r"^(not )?ok\b(?:\s+\d+)?(.*)$")
NAME = re.compile(r"^\s*-?\s*(.*?)\s*(?:#.*)?$")
SKIP = re.compile(r"#\s*skip\S*\s*(.*)", re.IGNORECASE)
PLAN = re.compile(r"^1\.\.(\d+)")
SEED = re.compile(r"^# (seed\b|.* to repeat: )")
LEFT_OUT = re.compile(r"^# left out: ([^:]+): (.*)$")
NOTE = re.compile(r"^# not ok - |^\(test program exited with status code |^$")  # cmocka's and meson's last words
# The first line of a report: of a sanitizer, valgrind, Python, our checks, a shell.
REPORT = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|^==\d+== \S|^Traceback |^ERROR: |[Aa]ssert|: error: ")
AROUND = 12  # comments above a failed test, below it, and lines of standard error, that are shown


def count_program(test: dict, left_out: list[str]) -> tuple[int, int, int]:
    """What is skipped is named in left_out."""
    passed = failed = skipped = 0
    planned = None
    lines = (test.get("stdout") or "").splitlines()
    reasons = {match.group(1): match.group(2) for match in map(LEFT_OUT.match, lines) if match}
    unknown = set(reasons)
    for line in lines:
        plan = PLAN.match(line)
        if plan:
            planned = (planned or 0) + int(plan.group(1))
            reason = SKIP.search(line)
            if planned == 0:
                left_out.append("all of it: " + (reason.group(1) if reason else "no reason"))
        match = LINE.match(line)
        if not match:
            continue
        name, skip = NAME.match(match.group(2)).group(1), SKIP.search(match.group(2))
        unknown.discard(name)
        if skip or (name in reasons and not match.group(1)):
            skipped += 1
            left_out.append(name + ": " + (skip.group(1) if skip else reasons[name]))
        elif match.group(1):
            failed += 1
        else:
            passed += 1
    good = test["result"] in ("OK", "EXPECTEDFAIL")
    if planned is None:  # no TAP: the program is one test
        if test["result"] == "SKIP":
            said = (test.get("stderr") or "").split("\n") + lines
            left_out.append("all of it: " + next((line for line in reversed(said) if line.strip()), "no reason"))
            return 0, 0, 1
        return (1, 0, 0) if good and not unknown else (0, 1, 0)
    if planned == 0:
        return 0, 0, 1
    failed += max(0, planned - passed - failed - skipped) + len(unknown)
    if not good and test["result"] != "SKIP" and failed == 0:
        failed += 1
    return passed, failed, skipped


def name_failed(test: dict) -> None:
    """What its tests print behind their reasons, such as a server's log of a thousand lines, is left out."""
    print(f"failed: {test.get('name', '?')} ({test['result']})", file=sys.stderr)
    said, seeds, above = [], [], []
    below = None  # how many comments stand below a failed test so far
    for line in (test.get("stdout") or "").splitlines():
        if NOTE.search(line):
            continue
        if SEED.match(line):
            seeds.append(line)
        elif line.startswith("not ok"):
            said += [seed for seed in dict.fromkeys(seeds) if seed not in said]
            said += above[-AROUND:] + [line]  # a shell script says why above
            above, below = [], 0
        elif not line.startswith("#"):
            above, below = [], None
            del seeds[1:]  # the first may be the program's, the others are of what passed
        elif below is None:
            above.append(line)
        else:
            said += [line] if below < AROUND else []  # cmocka and Python say why below
            below += 1
    said = said or seeds[-1:]
    errors = [line for line in (test.get("stderr") or "").splitlines() if not NOTE.search(line)]
    begin = next((i for i, line in enumerate(errors) if REPORT.search(line)), max(0, len(errors) - AROUND))
    for line in said + errors[begin:begin + AROUND]:
        print(f"    {line[:300]}", file=sys.stderr)


def main() -> int:
    total, failed = [0, 0, 0], []
    # Under a wrapper meson names its log after it; callers remove old logs first. None: the caller sees 0 passed.
    for path in glob.glob(glob.escape(sys.argv[1]) + "/meson-logs/testlog*.json"):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if not line.strip():
                    continue
                test = json.loads(line)
                left_out: list[str] = []
                counts = count_program(test, left_out)
                for line_out in left_out:
                    print(f"skipped: {test.get('name', '?')}: {line_out}", file=sys.stderr)
                if counts[1]:
                    failed.append(test)
                total = [a + b for a, b in zip(total, counts)]
    for test in failed:
        name_failed(test)
    print(*total)
    return 0


sys.exit(main())
