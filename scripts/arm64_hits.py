#!/usr/bin/env python3
"""arm64_hits.py FOLDER -- the instructions of one hit on ARM64 beside x86-64, and those of them that order memory.

scripts/arm64_hits.c is linked with the one-file library and run by qemu-user, one instruction at a time, so that each executed
instruction is seen. Of a hundred hits the usual one is shown: its number of instructions for each way to build, and for
ARM64, as gcc builds without options, each instruction that orders memory or is atomic, with the line of its source.
Always true: only the measured call is counted, not its caller; an answer that is wrong, or a call that was not seen,
fails. Exit status 77: a compiler or qemu-user is not installed, which a line says."""
import collections
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CALLS = ["tw_add, with a view", "tw_acquire, admitted", "tw_get"]  # of scripts/arm64_hits.c
BUILDS = [("x86-64", "x86_64-linux-gnu-gcc", "qemu-x86_64", []),
          ("ARM64", "aarch64-linux-gnu-gcc", "qemu-aarch64", []),
          ("ARM64, -march=armv8.1-a", "aarch64-linux-gnu-gcc", "qemu-aarch64", ["-march=armv8.1-a"])]
PACKAGES = {"x86_64-linux-gnu-gcc": "gcc", "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
            "qemu-x86_64": "qemu-user", "qemu-aarch64": "qemu-user", "x86_64-linux-gnu-objdump": "binutils",
            "aarch64-linux-gnu-objdump": "binutils-aarch64-linux-gnu"}
ORDERS = re.compile(r"^(lda[pr]|stl|dmb|dsb|isb|ldax|stlx|cas|swp|ld(add|set|clr|eor))")
TRACE = re.compile(r"^Trace 0: \S+ \[[0-9a-f]+/([0-9a-f]+)/[^]]*\]\s*(\S*)")


def run(*words: str) -> str:
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def build(folder: str, name: str, compiler: str, flags: list[str]) -> str:
    program = f"{folder}/hits-{name.replace(', ', '')}"
    run(compiler, "-D_GNU_SOURCE", "-O2", "-g1", "-static", *flags, "-I" + folder, ROOT + "/scripts/arm64_hits.c",
        folder + "/tallywheel.c", "-o", program, "-pthread")
    return program


def hits(program: str, emulator: str) -> list[list[str]]:
    """Of each measured call the addresses of the instructions that it executed."""
    log = program + ".log"
    run(emulator, "-cpu", "max", "-singlestep", "-d", "exec,nochain", "-D", log, program)
    seen, now, marks, in_mark = [], None, 0, False
    with open(log, encoding="utf-8", errors="replace") as lines:
        for match in filter(None, map(TRACE.match, lines)):
            address, symbol = match.groups()
            if symbol == "mark":
                marks += not in_mark
                if not in_mark and now is not None:
                    seen.append(now)
                now = [] if marks % 2 == 1 else None
            elif now is not None and symbol != "main":
                now.append(address)
            in_mark = symbol == "mark"
    os.remove(log)
    if len(seen) != 100 * len(CALLS):
        sys.exit(f"arm64_hits.py: {len(seen)} calls were seen, not {100 * len(CALLS)}")
    return seen


def usual(program: str, emulator: str) -> list[list[str]]:
    """Of each of CALLS the hit of the length that most have."""
    seen = hits(program, emulator)
    chosen = []
    for at in range(0, len(seen), 100):
        most = collections.Counter(map(len, seen[at:at + 100])).most_common(1)[0][0]
        chosen.append(next(hit for hit in seen[at:at + 100] if len(hit) == most))
    return chosen


def ordering(program: str, addresses: list[str]) -> list[str]:
    """A line for each instruction of ARM64 that orders memory or is atomic, in the order of execution."""
    spelt = {}
    for line in run("aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", program).splitlines():
        address, colon, words = line.partition(":\t")
        if colon:
            spelt[int(address, 16)] = " ".join(words.split("//")[0].split())
    with open(os.path.dirname(program) + "/tallywheel.c", encoding="utf-8") as file:
        source = file.read().splitlines()
    found = [address for address in addresses if ORDERS.match(spelt[int(address, 16)])]
    where = run("aarch64-linux-gnu-addr2line", "-f", "-e", program, *found).splitlines()
    lines = []
    for address, function, place in zip(found, where[::2], where[1::2]):
        match = re.match(r".*/tallywheel\.c:(\d+)", place)
        text = source[int(match.group(1)) - 1].strip() if match else "by libgcc, for its caller"
        lines.append(f"    {spelt[int(address, 16)]:22} {function}: {text}"[:118])
    return lines


def main() -> int:
    for program, packages in PACKAGES.items():
        if not shutil.which(program):
            print(f"skipped: {program} is not installed: apt-get install {packages}")
            return 77
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = sys.argv[1]
    run(sys.executable, ROOT + "/scripts/amalgamate.py", folder)
    programs = [(name, build(folder, name, compiler, flags), emulator) for name, compiler, emulator, flags in BUILDS]
    print("instructions of a hit of one of 1,024 keys of 29 bytes, without Redis, by the AES hash")
    print(f"{'':24}" + "".join(f"{name:>26}" for name, _, _ in programs))
    traces = [usual(program, emulator) for _, program, emulator in programs]
    for call, *of_builds in zip(CALLS, *traces):
        print(f"{call:24}" + "".join(f"{len(trace):26}" for trace in of_builds))
    for call, trace in zip(CALLS, traces[1]):
        print(f"\n{call}, ARM64:", *ordering(programs[1][1], trace), sep="\n")
    return 0


sys.exit(main())
