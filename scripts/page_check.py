#!/usr/bin/env python3
"""page_check.py [PAGE...] -- do the pages keep their word, as far as reading them shows it?

  links     each relative link leads to a file, and its anchor to a heading there
  commands  what stands in backticks and begins with ./dev, `./dev bench` or tallywheel names a verb, a benchmark, a
            subcommand that exists; a block of commands is marked ```sh (tests/user/pages.py runs it) or says behind that
            why it is not run
  figures   a section with measured times (ns, µs, instructions) or with "times faster" names a command that shows them,
            or a section above it does
  twins     README.md and README.zh-CN.md have the same code blocks, the same links and, section by section, the same
            figures
Always true: each line of output is one fault, as FILE:LINE: WHAT; exit status 0 only if there is none.
Elsewhere: names of functions, files and tests in docs/ (doc_names.py)."""
import glob
import os
import re
import sys
from collections import Counter

FENCE = re.compile(r"^\s*```(\S*)\s*(.*)$")
HEADING = re.compile(r"^(#+) +(.*?) *$")
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
TICKED = re.compile(r"`([^`\n]+)`")
FIGURE = re.compile(r"\d ?(?:ns|µs|us|microseconds|instructions)\b|\d times (?:as fast|faster)")
COMMANDS = ("./dev", "cc", "gcc", "meson", "ninja", "tallywheel", "redis-cli", "redis-server", "sudo", "apt", "git",
            "pkg-config", "export", "kcat", "systemctl", "docker", "python3", "build/")
SHOWS = re.compile(r"(?:^|\s)(?:\./dev|build/|TW_\w+=|valgrind|strace|tallywheel|redis-cli|python3|INFO commandstats)")
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
TWINS = ("README.md", "README.zh-CN.md")


class Page:
    """Lines of a page, apart: text, and blocks of code."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, encoding="utf-8") as file:
            self.lines = file.read().split("\n")
        self.text: list = []  # (number, line) outside of blocks
        self.blocks: list = []  # (number, language, remark, [line])
        inside = None
        for number, line in enumerate(self.lines, 1):
            fence = FENCE.match(line)
            if fence and inside is None:
                inside = (number, fence.group(1), fence.group(2), [])
            elif fence:
                self.blocks.append(inside)
                inside = None
            elif inside is not None:
                inside[3].append(line)
            else:
                self.text.append((number, line))

    def anchors(self) -> set:
        found: Counter = Counter()
        names = set()
        for _, line in self.text:
            heading = HEADING.match(line)
            if not heading:
                continue
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(2)).lower()
            name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            names.add(name + (f"-{found[name]}" if found[name] else ""))
            found[name] += 1
        return names


def pages_of(cache: dict, path: str) -> Page:
    if path not in cache:
        cache[path] = Page(path)
    return cache[path]


def check_links(page: Page, cache: dict) -> list:
    wrong = []
    whole = "\n".join(line for _, line in page.text)
    for match in LINK.finditer(whole):
        target = match.group(1)
        number = page.text[whole.count("\n", 0, match.start())][0]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(page.path), path)) if path else page.path
        if not os.path.exists(file):
            wrong.append((number, f"no file {target}"))
        elif anchor and file.endswith(".md") and anchor not in pages_of(cache, file).anchors():
            wrong.append((number, f"no heading {target}"))
    return wrong


def words_in(path: str, pattern: str) -> set:
    with open(path, encoding="utf-8") as file:
        return set(re.findall(pattern, file.read(), re.M))


def check_command(text: str, verbs: set, benches: set, subcommands: set) -> str:
    words = text.split()
    words = [word for word in words if "=" not in word or word.startswith("-")]
    if words[:1] == ["./dev"] and len(words) > 1 and re.match(r"^[a-z]", words[1]) and words[1] not in verbs:
        return f"./dev has no {words[1]}"
    if words[:2] == ["./dev", "bench"] and len(words) > 2 and re.match(r"^[a-z]", words[2]) and words[2] not in benches:
        return f"./dev bench has no {words[2]}"
    if words[:1] == ["tallywheel"] and len(words) > 1 and re.match(r"^[a-z]+$", words[1]) and words[1] not in subcommands:
        return f"tallywheel has no {words[1]}"
    return ""


def check_commands(page: Page) -> list:
    verbs = words_in("dev", r"^command_([a-z]+)\(\)") | {"clean", "help"}
    benches = words_in("bench/main.cc", r'\{"([a-z]+)"') | {"all", "instructions", "crowds", "nginx", "rivals"}
    subcommands = words_in("tools/main.c", r'\{"([a-z-]+)", \w+_main\}')
    wrong = []
    for number, line in page.text:
        for ticked in TICKED.findall(line):
            wrong.append((number, check_command(ticked, verbs, benches, subcommands)))
    for number, language, remark, lines in page.blocks:
        first = next((line.split()[0] for line in lines if line.strip()), "")
        if language in ("", "console", "bash", "shell") and first.startswith(COMMANDS):
            wrong.append((number, "a block of commands is ```sh, and says behind that why it is not run, if it is not"))
        if language == "sh" and remark and len(remark.split()) < 2:
            wrong.append((number, f"'{remark}' is no reason"))
        for line in lines if language == "sh" else []:
            wrong.append((number, check_command(line.split("#")[0], verbs, benches, subcommands)))
    return [(number, what) for number, what in wrong if what]


def check_figures(page: Page) -> list:
    wrong, shown = [], {}  # depth of a heading -> does its own text name a command?
    depth, first, named = 1, 0, 0
    rows = sorted(page.text + [(number, "`./dev`") for number, language, _, _ in page.blocks if language == "sh"])
    for number, line in rows + [(0, "# end")]:
        heading = HEADING.match(line)
        if heading:
            shown[depth] = named
            if first and not any(shown.get(above) for above in range(1, depth + 1)):
                wrong.append((first, "figures of a section that names no command that shows them"))
            depth, first, named = len(heading.group(1)), 0, 0
            for below in [deeper for deeper in shown if deeper >= depth]:
                del shown[below]
            continue
        if not first and FIGURE.search(line):
            first = number
        named = named or any(SHOWS.search(ticked) for ticked in TICKED.findall(line))
    return wrong


def sections(page: Page) -> list:
    """The figures of each section, code left out."""
    found = [Counter()]
    for _, line in page.text:
        if HEADING.match(line):
            found.append(Counter())
        line = re.sub(r"\]\([^)]*\)", "]", line)
        found[-1].update(NUMBER.findall(line))
    return found


def check_twins(cache: dict) -> list:
    first, second = (pages_of(cache, path) for path in TWINS)
    wrong = []
    codes = [[(language, lines) for _, language, _, lines in page.blocks] for page in (first, second)]
    for at in range(max(len(code) for code in codes)):
        if any(at >= len(code) for code in codes) or codes[0][at] != codes[1][at]:
            wrong.append(f"{TWINS[1]}: code block {at + 1} is not that of {TWINS[0]}")
    links = [Counter(LINK.findall("\n".join(page.lines))) for page in (first, second)]
    mine = {name: TWINS[1 - at] for at, name in enumerate(TWINS)}  # each names the other
    for name in (links[0] | links[1]) - (links[0] & links[1]):
        if name not in mine:
            wrong.append(f"{TWINS[1]}: the link {name} is not in both")
    figures = [sections(page) for page in (first, second)]
    if len(figures[0]) != len(figures[1]):
        wrong.append(f"{TWINS[1]}: {len(figures[1]) - 1} headings, {TWINS[0]} has {len(figures[0]) - 1}")
    for at, (one, other) in enumerate(zip(*figures)):
        if one != other:
            wrong.append(f"{TWINS[1]}: section {at}: only here {dict(other - one)}, only in {TWINS[0]} {dict(one - other)}")
    return wrong


def main() -> int:
    os.chdir(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    cache: dict = {}
    paths = sys.argv[1:] or sorted(glob.glob("*.md") + glob.glob("docs/*.md") + glob.glob("bench/*.md"))
    wrong = []
    for path in paths:
        page = pages_of(cache, path)
        faults = check_links(page, cache) + check_commands(page)
        if path != "CHANGELOG.md":
            faults += check_figures(page)
        wrong += [f"{path}:{number}: {what}" for number, what in sorted(faults)]
    if all(os.path.exists(path) for path in TWINS) and not sys.argv[1:]:
        wrong += check_twins(cache)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
