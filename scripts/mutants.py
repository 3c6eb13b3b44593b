#!/usr/bin/env python3
"""mutants.py [FOLDER [NAME...]] -- a test of the tests: each mistake of tests/sim/mutants must be caught by the simulator.

A mistake is a patch. Its first line says what a reader of the protocol might do wrong. Each is applied to a copy of the tree
below FOLDER; there the program tests/sim/mutants.c is built, and plays fresh seeds until it finds something wrong. One mistake
is compiled while those before it are played. NAME: only these. TW_MUTANT_SEEDS says how many seeds (1000).
Without FOLDER nothing is built: each patch must apply to the tree.
A patch with a line "Test: NAME" in its head is one for tests/NAME, another program of the suite.
It is played only if it is named: the program must pass first, and then fail.
TW_MUTANT_PART=N: of those that are not named one of N, with the next TW_SEED_ROUND the next.
Always true: exit status 0 only if the code without a mistake survives, and each patch applies, compiles and is caught; one
line of output for each mistake, without FOLDER for those alone that do not apply. The tree itself is not touched. What has not
changed since the last run is not compiled anew."""
import concurrent.futures
import contextlib
import filecmp
import glob
import os
import re
import shutil
import signal
import subprocess
import sys

ROOT = os.path.abspath(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
PATCHES = os.path.join(ROOT, "tests", "sim", "mutants")
PROGRAM = os.path.join("tests", "sim_mutants")
SEEDS = os.environ.get("TW_MUTANT_SEEDS", "1000")
PART = int(os.environ.get("TW_MUTANT_PART", "1"))
ROUND = int(os.environ.get("TW_SEED_ROUND") or "0")
SEED = re.compile(r"^# ((not )?caught by seed .*)$", re.MULTILINE)
TEST = re.compile(r"^Test: (\S+)$", re.MULTILINE)
TOUCHED = re.compile(r"^\+\+\+ b/(\S+)", re.MULTILINE)


def files_of(root: str) -> set[str]:
    """Relative paths; build folders and what begins with a dot are left out."""
    found = set()
    for folder, folders, files in os.walk(root):
        at_top = folder == root
        folders[:] = [name for name in folders if not name.startswith(".") and not (at_top and name.startswith("build"))]
        found |= {os.path.relpath(os.path.join(folder, name), root) for name in files if not name.startswith(".")}
    return found


def take_over(copy: str) -> None:
    """The copy becomes what the tree is. Files that are the same keep their times."""
    wanted = files_of(ROOT)
    for name in files_of(copy) - wanted:
        os.remove(os.path.join(copy, name))
    for name in wanted:
        source, target = os.path.join(ROOT, name), os.path.join(copy, name)
        if not os.path.exists(target) or not filecmp.cmp(source, target, shallow=False):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)  # with the time of now: ninja sees that it has changed
            shutil.copymode(source, target)


def touched_by(patch: str) -> list[str]:
    with open(patch, encoding="utf-8") as file:
        return TOUCHED.findall(file.read())


def test_of(patch: str) -> str:
    """The program that must notice it."""
    with open(patch, encoding="utf-8") as file:
        named = TEST.search(file.read())
    return os.path.join("tests", named.group(1)) if named else PROGRAM


def take_back(copy: str, patch: str) -> None:
    for name in touched_by(patch):
        if os.path.exists(os.path.join(ROOT, name)):
            shutil.copyfile(os.path.join(ROOT, name), os.path.join(copy, name))


def apply(folder: str, patch: str, *options: str) -> str:
    """What is wrong with the patch, or nothing."""
    # git looks for no repository around the folder: these are plain files.
    environment = dict(os.environ, GIT_CEILING_DIRECTORIES=os.path.dirname(folder))
    done = subprocess.run(["git", "apply", *options, patch], cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode == 0 and touched_by(patch):
        return ""
    return "DOES NOT APPLY\n" + (done.stderr or "it touches no file\n").rstrip()


def prepare(copy: str, options: list[str]) -> None:
    """A copy of the tree that ninja can build."""
    os.makedirs(copy, exist_ok=True)
    take_over(copy)
    folder = os.path.join(copy, "build")
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        subprocess.run(["meson", "setup", folder, copy, *options], check=True, stdout=subprocess.DEVNULL)


def ninja(copy: str, target: str) -> str:
    """What the compiler says, if it fails, or nothing."""
    done = subprocess.run(["ninja", "-C", os.path.join(copy, "build"), target], capture_output=True, text=True)
    return "DOES NOT COMPILE\n" + "\n".join(done.stdout.splitlines()[-20:]) if done.returncode else ""


def build(copy: str, program: str, test: str = PROGRAM) -> str:
    wrong = ninja(copy, test)
    if not wrong:
        shutil.copy(os.path.join(copy, "build", test), program)
    return wrong


def run(program: str, seconds: float, **options) -> str:
    """`passes`, `fails` or `hangs`, which is longer than these seconds. No child of it stays."""
    process = subprocess.Popen([program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, **options)
    try:
        return "fails" if process.wait(seconds) else "passes"
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def play(program: str, *arguments: str) -> tuple[bool, str]:
    """Whether the test of the program passed, and by which seed something was caught."""
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    os.remove(program)
    line = SEED.search(done.stdout)
    return done.returncode == 0, line.group(1) if line else "\n".join(done.stdout.splitlines()[-10:])


def passes(program: str) -> bool:
    said = run(program, 300)
    os.remove(program)
    return said == "passes"


def play_test(copy: str, patch: str, test: str) -> str:
    """What is wrong, or nothing: the test passes, and fails with the mistake."""
    program = os.path.join(copy, "build", "mutant_" + os.path.basename(test))
    wrong = build(copy, program, test)
    if wrong or not passes(program):
        return wrong or f"{test} DOES NOT PASS in the tree as it is"
    wrong = apply(copy, patch) or build(copy, program, test)
    caught = not wrong and not passes(program)
    take_back(copy, patch)
    return wrong or ("" if caught else f"NOT CAUGHT by {test}")


def check(patches: dict[str, str]) -> int:
    """Whether each patch applies, without a copy of the tree."""
    wrong = [f"{patch}: {said}" for patch in patches.values() if (said := apply(ROOT, patch, "--check"))]
    for line in wrong:
        print(os.path.relpath(line, ROOT))
    return 1 if wrong or not patches else 0


def main() -> int:
    patches = {os.path.basename(path)[: -len(".patch")]: path for path in sorted(glob.glob(os.path.join(PATCHES, "*.patch")))}
    if len(sys.argv) < 2:
        return check(patches)
    copy = os.path.join(os.path.abspath(sys.argv[1]), "tree")
    # A little optimised: compiling all takes longer than what most mistakes are found in.
    prepare(copy, ["-Doptimization=1", "-Ddebug=false", "-Dredis=enabled", "-Dtests=enabled"])
    unnamed = [name for name in patches if test_of(patches[name]) == PROGRAM]
    names = sys.argv[2:] or unnamed[ROUND % PART :: PART]
    failed = 0
    for name in [name for name in names if test_of(patches[name]) != PROGRAM]:
        test = test_of(patches[name])
        wrong = play_test(copy, patches[name], test)
        print(f"{name:36} {wrong or 'caught by ' + test}")
        failed += bool(wrong)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as players:
        program = os.path.join(copy, "build", "mutant_none")
        wrong = build(copy, program)
        if wrong:
            print("the tree as it is " + wrong)
            return 1
        survives = players.submit(play, program)
        played = []
        for name in [name for name in names if test_of(patches[name]) == PROGRAM]:
            program = os.path.join(copy, "build", "mutant_" + name)
            wrong = apply(copy, patches[name]) or build(copy, program)
            take_back(copy, patches[name])
            played.append((name, wrong, None if wrong else players.submit(play, program, SEEDS)))
        passed, said = survives.result()
        if not passed:
            print("something is caught in the tree as it is: " + said)
            failed += 1
        for name, wrong, game in played:
            passed, said = game.result() if game else (False, wrong)
            print(f"{name:36} {said if passed or game is None else 'NOT CAUGHT: ' + said}")
            failed += not passed
    print(f"{len(names)} mistakes, {failed} failed")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
