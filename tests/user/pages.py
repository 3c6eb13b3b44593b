#!/usr/bin/env python3
"""pages.py ROOT BUILD [PAGE...] -- the code of the pages, as a reader would use it. Prints TAP.

For each page, in a fresh folder, block by block in the order of the page:
  ```c NAME.c   a program: compiled without a warning, and stays there under that name
  ```c          functions: compiled without a warning, as a file that includes <tallywheel.h>
  ```sh         commands: run by `sh -e`. What stands behind `sh` on that line is the reason why a block is not run;
                `needs PROGRAM`: run where that is installed
  ```ini        a unit of systemd: `systemd-analyze verify` has nothing to say, where it is installed
  ```text       right behind ```sh: what the commands print. `…` stands for any text of a line
`cc ... $(pkg-config ... tallywheel)` finds the library of BUILD, `tallywheel` is its command, and there is an access.log.
A real redis-server listens on a socket of the folder: redis://localhost is replaced by its address, `redis-cli` asks it.
./dev run is stood in for by the command that it would build (tests/cli/dev.sh tests ./dev); ./dev amalgamate is real.
Last, the programs with Redis are run with an address where nobody listens: they print the reason, and fail.
Always true: nothing is left of a run, no server and no file."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap

root, build = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(root, "scripts"))
from page_check import Page  # noqa: E402

SECONDS_MAX = 120
C_FLAGS = "-std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -Wno-unused-function".split()
FRAME = "".join(f"#include <{name}>\n" for name in
                ("inttypes.h", "pthread.h", "signal.h", "stdatomic.h", "stdio.h", "stdlib.h", "tallywheel.h", "time.h", "unistd.h"))


def executable(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


class Stage:
    """The folder of one page, its stand-ins and its server."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="pages")
        self.socket = os.path.join(self.folder, "redis.sock")
        self.redis = None
        stands = os.path.join(self.folder, ".bin")
        os.mkdir(stands)
        tool = os.path.join(build, "tools", "tallywheel")
        os.symlink(tool, os.path.join(stands, "tallywheel"))
        if shutil.which("redis-cli"):
            executable(os.path.join(stands, "redis-cli"),
                       f'#!/bin/sh\nexec {shutil.which("redis-cli")} -s {self.socket} "$@"\n')
        executable(os.path.join(self.folder, "dev"),
                   f'#!/bin/sh\nverb=$1\nshift\ncase $verb in\nrun) exec {tool} "$@" ;;\n'
                   f'amalgamate) exec python3 {root}/scripts/amalgamate.py build/one ;;\nesac\nexit 2\n')
        self.environment = dict(os.environ, PATH=stands + ":" + os.environ["PATH"], LC_ALL="C", LD_LIBRARY_PATH=build,
                                PKG_CONFIG_PATH=os.path.join(build, "meson-uninstalled"))
        with open(os.path.join(self.folder, "access.log"), "w", encoding="ascii") as log:
            for i in range(3000):
                log.write(f'10.0.0.{i % 17} - - [20/Nov/2026:{13 + i // 2000:02}:{i // 50 % 60:02}:{i % 60:02} +0000] '
                          f'"GET /page{i * i % 11}.html HTTP/1.1" {404 if i % 29 == 0 else 200} {i}\n')

    def redis_start(self) -> None:
        self.redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--dir",
                                       self.folder], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not os.path.exists(self.socket) and time.monotonic() < deadline:
            time.sleep(0.02)

    def end(self) -> None:
        if self.redis:
            self.redis.kill()
            self.redis.wait()
        shutil.rmtree(self.folder)

    def run(self, command: list, **more) -> subprocess.CompletedProcess:
        return subprocess.run(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS_MAX, check=False, **more)

    def to_our_redis(self, text: str) -> str:
        if "redis" in text and self.redis is None:
            self.redis_start()
        return re.sub(r"redis://([^@/\s]*@)?localhost(:6379)?(/0)?", rf"unix://\1{self.socket}", text)

    def compile(self, name: str, text: str) -> str:
        program = bool(name)
        path = os.path.join(self.folder, name or "functions.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_our_redis(text) if program else FRAME + text)
        said = self.run(["cc", *C_FLAGS, "-I" + os.path.join(root, "include"), "-c", "-o", "page.o", path])
        return said.stdout if said.returncode else ""

    def unit(self, text: str) -> str:
        """systemd-analyze asks for the program, and that it may be executed."""
        if not shutil.which("systemd-analyze"):
            return ""
        path = os.path.join(self.folder, "page.service")
        with open(path, "w", encoding="utf-8") as file:
            file.write(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.M))
        said = self.run(["systemd-analyze", "verify", "--man=no", path])
        return said.stdout if said.returncode or "page.service:" in said.stdout else ""

    def commands(self, text: str, wanted) -> str:
        said = self.run(["sh", "-e", "-c", self.to_our_redis(text)])
        if said.returncode:
            return f"exit status {said.returncode}\n{said.stdout}"
        if wanted is None:
            return ""
        got = said.stdout.rstrip("\n").split("\n")
        for at in range(max(len(got), len(wanted))):
            want = wanted[at] if at < len(wanted) else "(nothing)"
            have = got[at] if at < len(got) else "(nothing)"
            pattern = ".*".join(re.escape(part) for part in want.rstrip().split("…"))
            if not re.fullmatch(pattern, have.rstrip()):
                return f"line {at + 1}: '{have}', the page has '{want}'\n{said.stdout}"
        return ""


def output_behind(page: Page, at: int):
    """The lines of a ```text block that follows block `at` with nothing but an empty line between; else None."""
    if at + 1 == len(page.blocks):
        return None
    number, _, _, lines = page.blocks[at]
    then, language, _, wanted = page.blocks[at + 1]
    return wanted if language == "text" and then - (number + len(lines) + 2) <= 1 else None


def can_run(remark: str) -> bool:
    needed = re.fullmatch(r"needs ([\w-]+)", remark)
    return not remark or bool(needed and shutil.which(needed.group(1)))


def pages_with_code() -> list:
    found = sorted(glob.glob("*.md", root_dir=root) + glob.glob("docs/*.md", root_dir=root))
    return [path for path in found if path != "README.zh-CN.md" and  # its code is that of README.md
            any(language in ("c", "ini") or language == "sh" and can_run(remark)
                for _, language, remark, _ in Page(os.path.join(root, path)).blocks)]


def play(path: str) -> list:
    """What is wrong with a page."""
    page, stage, wrong = Page(os.path.join(root, path)), Stage(), []
    try:
        for at, (number, language, remark, lines) in enumerate(page.blocks):
            text = "\n".join(lines) + "\n"
            said = ""
            try:
                if language == "c":
                    said = stage.compile(remark, text)
                elif language == "ini":
                    said = stage.unit(text)
                elif language == "sh" and can_run(remark):
                    said = stage.commands(text, output_behind(page, at))
            except subprocess.TimeoutExpired:
                said = f"not done after {SECONDS_MAX} s"
            if said:
                wrong.append(f"{path}:{number}: {said}")
    finally:
        stage.end()
    return wrong


# Programs of the pages that count in Redis.
WITH_REDIS = [("README.md", "program.c"), ("docs/START.md", "shared.c")]


def quiet_programs() -> list:
    """Those that do not say that nobody listens at their address, or end as if all was well."""
    wrong = []
    for path, name in WITH_REDIS:
        stage = Stage()
        try:
            nobody = os.path.join(stage.folder, "nobody.sock")
            blocks = Page(os.path.join(root, path)).blocks
            text = "\n".join(next(lines for _, language, remark, lines in blocks if (language, remark) == ("c", name))) + "\n"
            text = re.sub(r"/\* (options\.redis_url = .*?;).*\*/", r"\1", text)  # what the page says to uncomment
            text, addresses = re.subn(r'"redis://localhost[^"]*"', f'"unix://{nobody}"', text)
            with open(os.path.join(stage.folder, name), "w", encoding="utf-8") as file:
                file.write(text)
            built = stage.run(["sh", "-c", f"cc {name} -o program $(pkg-config --cflags --libs tallywheel)"])
            said = stage.run(["./program"]) if addresses == 1 and built.returncode == 0 else built
            if said.returncode != 1 or not re.search(rf"^tallywheel warning: .*{nobody}: connect: .*TW-E011", said.stdout, re.M):
                wrong.append(f"{path} {name}: exit status {said.returncode}, said: {said.stdout}")
        finally:
            stage.end()
    return wrong


# A page, what stands there, a fault in its place, and what page_check.py says to it.
FAULTS = [
    ("docs/START.md", "(LIMITS.md#choose-a-limit)", "(LIMITS.md#choose)", "no heading LIMITS.md#choose"),
    ("docs/START.md", "(BACKFILL.md)", "(BACKFIL.md)", "no file BACKFIL.md"),
    ("docs/MEMORY.md", "`./dev bench memory`", "`./dev bench bytes`", "./dev bench has no bytes"),
    ("docs/BACKFILL.md", "```sh\ntallywheel count", "```\ntallywheel count", "a block of commands is ```sh"),
    ("README.md", "| `./dev bench` |", "| |", "figures of a section that names no command"),
    ("README.zh-CN.md", "| 117 字节，", "| 114 字节，", "only here {'114': 1}, only in README.md {'117': 1}"),
    ("README.zh-CN.md", "--top 10", "--top 11", "is not that of README.md"),
    ("README.zh-CN.md", "(docs/SPEED.md)", "(docs/SCALE.md)", "is not in both"),
]


def missed_faults() -> list:
    """The faults that page_check.py does not find, each planted into a copy of the pages."""
    wrong = []
    folder = tempfile.mkdtemp(prefix="pages")
    try:
        for name in os.listdir(root):
            if name.endswith(".md"):
                shutil.copy(os.path.join(root, name), folder)
            elif name not in ("docs", "build"):
                os.symlink(os.path.join(root, name), os.path.join(folder, name))
        shutil.copytree(os.path.join(root, "docs"), os.path.join(folder, "docs"))
        for path, right, fault, says in FAULTS:
            copy = os.path.join(folder, path)
            with open(copy, encoding="utf-8") as file:
                text = file.read()
            planted = text.replace(right, fault, 1)
            if planted == text:
                wrong.append(f"{path} has no '{right}'")
            if not fault.strip(" |"):  # the page keeps its figures and loses all that shows them
                planted = re.sub(r"`\./dev bench \w+`", "", re.sub(r"^```sh.*$", "```text", planted, flags=re.M))
            with open(copy, "w", encoding="utf-8") as file:
                file.write(planted)
            said = subprocess.run([sys.executable, os.path.join(root, "scripts", "page_check.py")], text=True, check=False,
                                  env=dict(os.environ, TW_ROOT=folder), stdout=subprocess.PIPE).stdout
            if says not in said:
                wrong.append(f"{path}: '{fault}' is not found; said: {said}")
            with open(copy, "w", encoding="utf-8") as file:
                file.write(text)
    finally:
        shutil.rmtree(folder)
    return wrong


def main() -> None:
    pages = sys.argv[3:] or pages_with_code()
    tap.plan(len(pages) + 2)
    for path in pages:
        if shutil.which("redis-server"):
            tap.no_faults(play(path), f"the code of {path} does what the page says")
        else:
            tap.skip(path, "redis-server is not installed: apt-get install redis-server")
    tap.no_faults(quiet_programs(), "with an address where nobody listens the programs of the pages print why, and fail")
    tap.no_faults(missed_faults(), "page_check.py finds what is planted")
    tap.end()


if __name__ == "__main__":
    main()
