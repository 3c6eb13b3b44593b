#!/usr/bin/env python3
"""count_tests.py FOLDER -- of a build: prints "PASSED FAILED SKIPPED", counted over single tests, not programs.

meson counts a TAP program as one; here each of its tests counts. A program that broke its plan, crashed or ran out of
time counts as failed even if each line it managed to print was an `ok`. What failed is named on standard error, with the end of
what it said: a log that is cut short keeps its end."""
import glob
import json
import re
import sys

LINE = re.compile(r"^(not )?ok\b(?:\s+\d+)?(.*)$")
PLAN = re.compile(r"^1\.\.(\d+)")


def count_program(test: dict) -> tuple[int, int, int]:
    passed = failed = skipped = 0
    planned = None
    for line in (test.get("stdout") or "").splitlines():
        plan = PLAN.match(line)
        if plan:
            planned = (planned or 0) + int(plan.group(1))
        match = LINE.match(line)
        if not match:
            continue
        if re.search(r"#\s*skip", match.group(2), re.IGNORECASE):
            skipped += 1
        elif match.group(1):
            failed += 1
        else:
            passed += 1
    good = test["result"] in ("OK", "EXPECTEDFAIL")
    if planned is None:  # no TAP: the program is one test
        if test["result"] == "SKIP":
            return 0, 0, 1
        return (1, 0, 0) if good else (0, 1, 0)
    if planned == 0:
        return 0, 0, 1
    failed += max(0, planned - passed - failed - skipped)
    if not good and test["result"] != "SKIP" and failed == 0:
        failed += 1
    return passed, failed, skipped


def name_failed(test: dict) -> None:
    print(f"failed: {test.get('name', '?')} ({test['result']})", file=sys.stderr)
    said, after = [], False
    for line in (test.get("stdout") or "").splitlines():
        after = line.startswith("not ok") or (after and line.startswith("#"))  # cmocka says why below
        if after:
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
                counts = count_program(test)
                if counts[1]:
                    name_failed(test)
                total = [a + b for a, b in zip(total, counts)]
    print(*total)
    return 0


sys.exit(main())
