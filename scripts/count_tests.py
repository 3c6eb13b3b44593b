#!/usr/bin/env python3
"""count_tests.py FOLDER -- of a build: prints "PASSED FAILED SKIPPED", counted over single tests, not programs.

meson counts a TAP program as one; here each of its tests counts. A program that broke its plan, crashed or ran out of
time counts as failed even if each line it managed to print was an `ok`. What failed is named on standard error, with the
end of what it said: a log that is cut short keeps its end. What was skipped is named there, too, with its reason.

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
BEFORE = 12  # comments above a failed test that are shown


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
    print(f"failed: {test.get('name', '?')} ({test['result']})", file=sys.stderr)
    said, before, after = [], [], False
    for line in (test.get("stdout") or "").splitlines():
        is_comment = line.startswith("#")
        failed = line.startswith("not ok")
        said += before[-BEFORE:] if failed else []  # a shell script says why above
        after = failed or (after and is_comment)  # cmocka says why below
        before = before + [line] if is_comment and not after and not SEED.match(line) else []
        if after or SEED.match(line):
            said.append(line)
    for line in said + (test.get("stderr") or "").splitlines()[-12:]:
        print(f"    {line[:200]}", file=sys.stderr)


def main() -> int:
    total = [0, 0, 0]
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
                    name_failed(test)
                total = [a + b for a, b in zip(total, counts)]
    print(*total)
    return 0


sys.exit(main())
