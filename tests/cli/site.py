#!/usr/bin/env python3
"""site.py ROOT [TALLYWHEEL] -- the site that ./dev site makes: does every link lead somewhere, is everything on it?
Method: it is made into a folder of its own, and each page is read as a browser reads it. Prints TAP."""
import glob
import html
import json
import os
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from urllib.parse import unquote

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap

ROOT = os.path.abspath(sys.argv[1])
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Links (attribute, where to), anchors, and whether each element is closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path, self.links, self.anchors, self.open, self.wrong = path, [], [], [], []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())
        self.close()
        self.wrong += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script" and (os.path.basename(self.path) != "search.html" or not dict(attrs).get("src")):
            self.wrong.append("a script")
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append((tag, value))
            elif name == "id":
                self.anchors.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")


def leads_nowhere(pages: dict, out: str, path: str, tag: str, to: str) -> bool:
    if re.match(r"https?://|mailto:", to):
        return tag != "a"  # a reader may leave; nothing is fetched
    target, _, anchor = unquote(to).partition("#")
    full = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
    if not full.startswith(out) or not os.path.isfile(full):
        return True
    return bool(anchor) and anchor not in pages[full].anchors


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "site")
        made = subprocess.run([sys.executable, os.path.join(ROOT, "scripts/site.py"), out, *sys.argv[2:]], stdout=sys.stderr, check=False)
        if made.returncode == 77:
            tap.skip_all("cmark-gfm is not installed: apt-get install cmark-gfm")
        tap.plan(9)
        tap.no_faults([f"scripts/site.py ended with {made.returncode}"] if made.returncode else [], "the site is made")
        pages = {path: Page(path) for path in glob.glob(out + "/**/*.html", recursive=True)}
        tap.no_faults([f"{path[len(out):]}: {what}" for path, page in pages.items() for what in page.wrong[:3]]
                     + [f"{path[len(out):]}: {name} twice" for path, page in pages.items() for name in set(page.anchors) if page.anchors.count(name) > 1],
                     "each element is closed, each anchor is there once, and only the search has a script")
        tap.no_faults([f"{path[len(out):]}: {to}" for path, page in pages.items() for tag, to in page.links if leads_nowhere(pages, out, path, tag, to)],
                     "each link leads to a page and an anchor that is there, and nothing is fetched from elsewhere")
        with open(os.path.join(ROOT, "include/tallywheel.h"), encoding="utf-8") as file:
            calls = set(re.findall(r"^TW_API[^;]*?\b(tw_\w+)\(", file.read(), re.MULTILINE))
        index = pages[out + "/calls/index.html"]
        tap.no_faults([call for call in calls if not any(to.endswith(f"#{call}") for _, to in index.links)], "the index has all calls of the header")
        first = pages[out + "/index.html"]
        docs = [path.removesuffix(".md") + ".html" for path in glob.glob("docs/*.md", root_dir=ROOT)]
        tap.no_faults([path for path in docs if ("a", path) not in first.links], "each page of docs/ is in the list of pages")
        with open(out + "/site.css", encoding="utf-8") as file:
            tap.no_faults(re.findall(r"url\(.*|@import.*", file.read()), "nor does the style sheet fetch anything")
        tap.no_faults(sections_astray(pages, out), "each section that the search knows is there, and all calls are among them")
        tap.no_faults([path for path in docs if not has_contents(os.path.join(out, path))], "each long page has a list of its headings")
        tap.no_faults(options_left_out(out), "each option of the command is there, with its value, apart from what is said of it")
    tap.end()


def sections_astray(pages: dict, out: str) -> list:
    with open(out + "/search-index.js", encoding="utf-8") as file:
        sections = json.loads(file.read().removeprefix("const PAGES = ").rstrip(";\n"))
    wrong = [to for _, _, to, _ in sections if leads_nowhere(pages, out, out + "/search.html", "a", to)]
    headings = " ".join(heading for _, heading, _, _ in sections)
    return wrong + [call for call in ("tw_add()", "tw_acquire()", "tw_queue_run()") if call not in headings]


def has_contents(path: str) -> bool:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return text.count('<h2 id="') < 3 or '<details class="contents">' in text


def options_left_out(out: str) -> list:
    if len(sys.argv) < 3:
        return []
    with open(out + "/command.html", encoding="utf-8") as file:
        shown = dict(re.findall(r'<h2 id="([a-z-]+)">(.*?)(?=<h2|<footer)', file.read(), re.DOTALL))

    def said(*words: str) -> str:
        return subprocess.run([sys.argv[2], *words, "--help"], capture_output=True, text=True, check=True).stdout

    commands = re.findall(r"^  ([a-z][a-z-]*)  ", said(), re.MULTILINE)
    options = [(command, option) for command in commands for option in re.findall(r"^  (--[a-z-]+(?: \S+)?)", said(command), re.MULTILINE)]
    return [f"{command} {option}" for command, option in options if f"<code>{html.escape(option)}</code></dt>" not in shown.get(command, "")]


main()
