#!/usr/bin/env python3
"""site.py OUT [COMMAND] -- writes the manual as a static site: plain HTML, one style sheet; one script, for the search.

    pages      README.md, docs/*.md and the other pages beside them, by cmark-gfm, which renders as the forge does
    calls      out of include/tallywheel.h: a page for each group (header_doc.PAGES), and an index of all calls
    command    out of what COMMAND says upon --help; left out without COMMAND
    sources    whatever file or folder of the project a page leads to
    search     finds sections of all of these by their words (site_search.js); the other pages have no script

A call that is named in a page leads to what the header says of it.
Always true: OUT is emptied; each page of the project is in the list at the side of every page; a link to a file that is not
there ends the script with a sentence. Elsewhere: whether all links of the result lead somewhere (tests/cli/site.py)."""
import glob
import html
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import textwrap

sys.dont_write_bytecode = True
import header_doc
import man_pages

ROOT = os.path.abspath(os.environ.get("TW_ROOT") or os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
SCRIPTS = os.path.dirname(os.path.abspath(__file__))
# The list at the side; pages that it does not name come last.
GROUPS = [
    ("Begin", "README.md README.zh-CN.md docs/START.md docs/INSTALL.md docs/RECIPES.md"),
    ("Use", "docs/OPTIONS.md docs/LIMITS.md docs/EVENT_LOOPS.md docs/SHARED.md docs/LANGUAGES.md docs/NGINX.md docs/BACKFILL.md docs/MEMORY.md docs/COUNT.md"),
    ("Run", "docs/OPERATE.md docs/WATCH.md docs/KEYS.md docs/SYNC.md docs/SCALE.md"),
    ("Reference", "calls command include/tallywheel.h CHANGELOG.md"),
    ("Inside", "docs/ARCHITECTURE.md docs/CONCURRENCY.md docs/PROTOCOL.md docs/FINDING.md docs/GLOSSARY.md docs/STYLE.md docs/TESTING.md "
     "docs/SPEED.md bench/README.md nginx/README.md CONTRIBUTING.md SECURITY.md"),
]
# Of those whose first heading would not do, or that have none.
TITLES = {"README.md": "Overview", "README.zh-CN.md": "中文", "bench/README.md": "Benchmarks", "nginx/README.md": "The module's files",
          "calls": "Calls", "command": "The command", "include/tallywheel.h": "tallywheel.h"}
PLACES = {"README.md": "index.html", "calls": "calls/index.html", "command": "command.html"}
CONTENTS_MIN = 3  # a page with so many headings of the second level begins with a list of them
SECTION = re.compile(r"(<h[1-4](?: [^>]*)?>.*?</h[1-4]>)", re.DOTALL)
PICTURE = (".svg", ".png")
LINK = re.compile(r'(<(?:a|img) [^>]*?(?:href|src)=")([^"]*)(")')
HEADING = re.compile(r"<h([1-6])>(.*?)</h\1>", re.DOTALL)
PATH = re.compile(r"\b(?:docs/\w+\.md|README\.md|examples/\w+\.c)\b")


def read(path: str) -> str:
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def place_of(path: str) -> str:
    """Where in the site something of the project is."""
    if path in PLACES or path.endswith(PICTURE):
        return PLACES.get(path, path)
    if os.path.isdir(os.path.join(ROOT, path)):
        return path + "/index.html"
    return (path.removesuffix(".md") if path.endswith(".md") else path) + ".html"


def slug(heading: str, used: set) -> str:
    """The anchor that a forge gives a heading."""
    words = html.unescape(re.sub(r"<[^>]*>", "", heading)).strip().lower()
    words = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
    name, number = words, 0
    while name in used:
        number += 1
        name = f"{words}-{number}"
    used.add(name)
    return name


def wrapped(prototype: str) -> str:
    """Broken between parameters."""
    whole = re.sub(r"(?<!,) ", "\u00a0", prototype)
    return textwrap.fill(whole, 92, subsequent_indent=" " * 8, break_long_words=False).replace("\u00a0", " ")


class Site:
    def __init__(self, out: str, command: str) -> None:
        self.out, self.command = out, command
        self.version, _ = header_doc.version_and_date(ROOT)
        self.groups = header_doc.pages(ROOT)
        others = glob.glob("*.md", root_dir=ROOT) + glob.glob("docs/*.md", root_dir=ROOT) + ["bench/README.md", "nginx/README.md"]
        self.docs = ["README.md", *sorted(set(others) - {"README.md"})]
        self.asked: list[str] = []  # sources that pages lead to, and pictures
        self.sections: list[list[str]] = []  # for the search: title of the page, heading, where to, text
        self.names = self.names_of_the_header()
        named = " ".join(paths for _, paths in GROUPS).split()
        self.list = GROUPS + [("More", " ".join(path for path in self.docs if path not in named))]

    def names_of_the_header(self) -> dict[str, str]:
        """Each call, type and number, and where it is."""
        found = {}
        for page in self.groups:
            for entry in page.entries:
                for one in entry.declarations:
                    for name in [one.name] + [member.split(" ")[0] for member, _ in one.members if one.kind == "enum"]:
                        found.setdefault(name, f"calls/{page.name}.html#{name}")
        return found

    # ---- one page of the site -------------------------------------------------------------------------------------------

    def link(self, here: str, to: str) -> str:
        path, _, anchor = to.partition("#")
        return posixpath.relpath(path, posixpath.dirname(here) or ".") + ("#" + anchor if anchor else "")

    def side(self, here: str) -> str:
        out = []
        for group, paths in self.list:
            lines = []
            for path in paths.split():
                if path.endswith(".md") and path not in self.docs or path == "command" and not self.command:
                    continue
                title = TITLES.get(path) or re.search(r"^# (.*)", read(path), re.MULTILINE).group(1).split(":")[0]
                current = ' aria-current="page"' if place_of(path) == here else ""
                lines.append(f'<li><a href="{self.link(here, place_of(path))}"{current}>{html.escape(title)}</a></li>')
            if lines:
                out.append(f"<h2>{group}</h2><ul>{''.join(lines)}</ul>")
        return "".join(out)

    def contents(self, body: str) -> str:
        """The headings of a long page, to unfold."""
        found = re.findall(r'<h2 id="([^"]*)">(.*?)(?: <a class="here".*?)?</h2>', body, re.DOTALL)
        if len(found) < CONTENTS_MIN:
            return body
        lines = "".join(f'<li><a href="#{name}">{re.sub("</?a[^>]*>", "", text)}</a></li>' for name, text in found)
        head, end, rest = body.partition("</h1>")
        return f'{head}{end}<details class="contents"><summary>Contents of this page</summary><ul>{lines}</ul></details>{rest}'

    def note_sections(self, here: str, title: str, body: str) -> None:
        def plain(text: str) -> str:
            return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())

        heading, to = "", here
        for number, part in enumerate(SECTION.split(body)):
            if number % 2:
                anchor = re.search(r' id="([^"]*)"', part)
                heading, to = plain(re.sub(r'<a class="here".*?</a>', "", part)), here + (f"#{anchor.group(1)}" if anchor else "")
            elif heading:
                self.sections.append([title, heading, to, plain(part)])

    def search(self) -> None:
        shutil.copy(os.path.join(SCRIPTS, "site_search.js"), os.path.join(self.out, "search.js"))
        self.write("search.html", "Search", '<h1>Search</h1>\n<p><input id="q" type="search" aria-label="words" autofocus></p>\n'
                   '<p id="count"></p>\n<ul id="found"></ul>\n<noscript><p>The search needs JavaScript. All calls are in the <a '
                   'href="calls/index.html">index</a>.</p></noscript>\n<script src="search-index.js"></script><script src="search.js"></script>\n')
        with open(os.path.join(self.out, "search-index.js"), "w", encoding="utf-8") as file:
            file.write("const PAGES = " + json.dumps(self.sections, ensure_ascii=False).replace("</", "<\\/") + ";\n")

    def write(self, here: str, title: str, body: str) -> None:
        self.note_sections(here, title, body)
        path = os.path.join(self.out, here)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        language = "zh" if ".zh-" in here else "en"
        top = self.link(here, "index.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write(
                f'<!DOCTYPE html>\n<html lang="{language}"><head><meta charset="utf-8">\n'
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
                f'<title>{html.escape(title)} – Tallywheel</title><link rel="stylesheet" href="{self.link(here, "site.css")}"></head>\n'
                f'<body><header><a class="name" href="{top}">Tallywheel <small>{self.version}</small></a>'
                f'<form action="{self.link(here, "search.html")}"><input type="search" name="q" placeholder="Search" aria-label="Search"></form>'
                '<a class="pages" href="#site-pages">Pages</a></header>\n'
                f"<main>\n{body}\n<footer>Tallywheel {self.version}</footer></main>\n"
                f'<nav id="site-pages"><div>{self.side(here)}</div></nav></body></html>\n')

    # ---- pages of the project -------------------------------------------------------------------------------------------

    def target(self, page: str, here: str, link: str) -> str:
        """Where a link of a page of the project leads in the site."""
        if re.match(r"[a-z]+:|#", link):
            return link
        path, _, anchor = html.unescape(link).partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
        if not os.path.exists(os.path.join(ROOT, path)) or path.startswith(".."):
            sys.exit(f"site.py: {page} leads to {link}, which is not there")
        if path not in self.docs:
            self.asked.append(path)
        return html.escape(self.link(here, place_of(path) + ("#" + anchor if anchor else "")))

    def heading(self, match: re.Match, used: set) -> str:
        level, text = match.groups()
        name = slug(text, used)
        here = f' <a class="here" href="#{name}" aria-label="link to this heading">#</a>' if level != "1" else ""
        return f'<h{level} id="{name}">{text}{here}</h{level}>'

    def named(self, here: str, text: str) -> str:
        """Calls of the header in code lead to it."""

        def linked(match: re.Match) -> str:
            to = self.names.get(match.group(1))
            return f'<a href="{self.link(here, to)}">{match.group(0)}</a>' if to else match.group(0)

        parts = re.split(r"(<pre.*?</pre>|<a .*?</a>|<h\d.*?</h\d>)", text, flags=re.DOTALL)
        return "".join(part if number % 2 else re.sub(r"<code>((?:tw|TW)_\w+)(?:\(\))?</code>", linked, part)
                       for number, part in enumerate(parts))

    def doc(self, path: str) -> None:
        here = place_of(path)
        made = subprocess.run(["cmark-gfm", "-e", "table", os.path.join(ROOT, path)], capture_output=True, text=True, check=True)
        used: set = set()
        body = HEADING.sub(lambda match: self.heading(match, used), made.stdout)
        body = LINK.sub(lambda match: match.group(1) + self.target(path, here, match.group(2)) + match.group(3), body)
        body = re.sub(r"<table>.*?</table>", lambda match: f'<div class="wide">{match.group()}</div>', body, flags=re.DOTALL)
        body = re.sub(r"<p>(<img [^>]*>)</p>", r'<div class="wide">\1</div>', body)
        body = self.contents(body.replace("<!-- raw HTML omitted -->", ""))
        title = re.search(r"^# (.*)", read(path), re.MULTILINE).group(1)
        self.write(here, title, self.named(here, body))

    def source(self, path: str) -> None:
        full = os.path.join(ROOT, path)
        if path.endswith(PICTURE):
            os.makedirs(os.path.dirname(os.path.join(self.out, path)), exist_ok=True)
            shutil.copy(full, os.path.join(self.out, path))
        elif os.path.isdir(full):
            here = place_of(path)
            files = sorted(name for name in os.listdir(full) if os.path.isfile(os.path.join(full, name)))
            lines = []
            for name in files:
                self.asked.append(posixpath.join(path, name))
                about = re.match(r"(?:#!.*\n)?(?:/\*|#|//) \S+ -- (.*)", read(posixpath.join(path, name)))
                to = self.link(here, place_of(posixpath.join(path, name)))
                lines.append(f'<dt><a href="{to}">{name}</a></dt><dd>{html.escape(about.group(1)) if about else ""}</dd>')
            self.write(here, path + "/", f"<h1>{path}/</h1><dl>{''.join(lines)}</dl>")
        else:
            self.write(place_of(path), path, f"<h1>{html.escape(path)}</h1><pre><code>{html.escape(read(path))}</code></pre>")

    # ---- what the header says -------------------------------------------------------------------------------------------

    def inline(self, here: str, text: str) -> str:
        def marked(match: re.Match) -> str:
            ticked, name, option = match.groups()
            word = ticked or name or option
            to = self.names.get(re.split(r"[.(]", name)[0]) if name else None
            code = f"<code>{html.escape(word)}</code>"
            return f'<a href="{self.link(here, to)}">{code}</a>' if to else code

        def path(match: re.Match) -> str:
            return f'<a href="{self.target("", here, match.group())}">{match.group()}</a>'

        out, at = "", 0
        for match in man_pages.MARKED.finditer(text):
            out += PATH.sub(path, html.escape(text[at : match.start()], quote=False)) + marked(match)
            at = match.end()
        out += PATH.sub(path, html.escape(text[at:], quote=False))
        rule = self.link(here, "calls/tw_status.html#general-errors")
        return re.sub(r"\b(general errors|A WAITING CALL)\b", rf'<a href="{rule}">\1</a>', out)

    def blocks(self, here: str, blocks: list) -> str:
        out = ""
        for kind, what in blocks:
            if kind == "text":
                out += f"<p>{self.inline(here, what)}</p>\n"
            elif kind == "code":
                out += "<pre><code>" + html.escape("\n".join(what)) + "</code></pre>\n"
            elif kind == "bullets":
                out += "<ul>" + "".join(f"<li>{self.blocks(here, item)}</li>" for item in what) + "</ul>\n"
            elif kind == "table":
                rows = ["".join(f"<td>{self.inline(here, cell)}</td>" for cell in row) for row in what]
                rows[0] = rows[0].replace("td>", "th>")
                out += '<div class="wide"><table>' + "".join(f"<tr>{row}</tr>" for row in rows) + "</table></div>\n"
            else:
                items = (self.item(here, tag, body) for tag, body in what)
                out += f"<dl>{''.join(items)}</dl>\n"
        return out

    def item(self, here: str, tag: str, body: list, name: str = "") -> str:
        anchor = f' id="{name}"' if name else ""
        plain = tag == "general errors" or " " in tag and not re.search(r"[*;=_()<-]", tag)  # words, not code
        shown = self.inline(here, tag) if plain else f"<code>{html.escape(tag)}</code>"
        return f"<dt{anchor}>{shown}</dt><dd>{self.blocks(here, body)}</dd>\n"

    def members(self, here: str, one: header_doc.Declaration) -> str:
        out, items = "", ""
        for member, what in one.members:
            if member in ("heading", "text"):
                out += f"<dl>{items}</dl>" if items else ""
                items = ""
                out += f"<h4>{html.escape(what)}</h4>" if member == "heading" else f"<p>{self.inline(here, what)}</p>"
            else:
                items += self.item(here, member, what, member.split(" ")[0] if one.kind == "enum" else "")
        return out + (f"<dl>{items}</dl>" if items else "")

    def entry(self, here: str, entry: header_doc.Entry) -> str:
        """What one comment and the declarations below it say."""
        shown, rest = [], ""
        for one in entry.declarations:
            if one.kind == "function" or one.kind in ("macro", "type") and not one.members:
                shown.append(one)
            else:
                title = f"{one.kind} {one.name}" if one.kind != "macro" else one.name
                rest += f'<h3 id="{one.name}"><code>{title}</code></h3>\n' if one is not entry.declarations[0] else ""
                rest += self.members(here, one)
        anchors = "".join(f'<span id="{one.name}"></span>' for one in shown)
        first = entry.declarations[0] if entry.declarations else None
        if not first:
            title = ' id="general-errors"' if entry.key.startswith("GENERAL") else ""
            return f"<section{title}>{self.blocks(here, entry.doc)}</section>\n"
        name = ", ".join(f"{one.name}()" for one in entry.calls()) or (f"{first.kind} {first.name}" if rest else "")
        own = "" if first in shown else f' id="{first.name}"'
        head = f"<h2{own}>{anchors}<code>{name}</code></h2>\n" if name else anchors
        lines = (wrapped(one.text) if one.kind == "function" else one.text for one in shown)
        code = f"<pre><code>{html.escape(chr(10).join(lines))}</code></pre>\n" if shown else ""
        return f"<section>{head}{code}{self.blocks(here, entry.doc)}{rest}</section>\n"

    def calls(self) -> None:
        lines: dict[str, str] = {}
        here = "calls/index.html"
        for page in self.groups:
            at = f"calls/{page.name}.html"
            body = f"<h1><code>{page.name}</code> – {html.escape(page.about)}</h1>\n"
            body += "".join(self.entry(at, entry) for entry in page.entries)
            shown = header_doc.examples_with(ROOT, [call.name for call in page.calls()])
            if shown:
                items = (self.item(at, f"examples/{name}", [("text", text)]).replace(f"<code>examples/{name}</code>", self.inline(at, f"examples/{name}"))
                         for name, text in shown)
                body += f"<h2>Examples</h2><dl>{''.join(items)}</dl>"
            self.write(at, page.name, body)
            for entry in page.entries:
                for call in entry.calls():
                    first = next((what for kind, what in entry.doc if kind == "text"), "")
                    sentence = re.split(r"(?<=[.;:])\s", first)[0].rstrip(".;:")
                    lines[call.name] = self.item(here, call.name + "()", [("text", sentence)]).replace(
                        f"<code>{call.name}()</code>", self.inline(here, call.name + "()"))
        groups = "".join(f'<dt><a href="{page.name}.html"><code>{page.name}</code></a></dt><dd>{html.escape(page.about)}</dd>\n' for page in self.groups)
        self.write(here, "Calls", f"<h1>Calls</h1>\n<h2>By what they are for</h2><dl>{groups}</dl>\n"
                   f"<h2>All calls</h2><dl>{''.join(text for _, text in sorted(lines.items()))}</dl>")

    # ---- what the command says ------------------------------------------------------------------------------------------

    def command_page(self) -> None:
        here = place_of("command")
        usage, before, options, after = man_pages.parts_of(man_pages.help_of([self.command]))
        body = f"<h1>The command <code>tallywheel</code></h1><pre><code>{html.escape(chr(10).join(usage))}</code></pre>"
        body += self.blocks(here, before + ([("list", options)] if options else []) + after)
        for name, _ in next(what for kind, what in before if kind == "list"):
            usage, first, options, last = man_pages.parts_of(man_pages.help_of([self.command, name]))
            body += f'<h2 id="{name}">{name}</h2><pre><code>{html.escape(chr(10).join(usage))}</code></pre>'
            body += self.blocks(here, first + ([("list", options)] if options else []) + last)
        self.write(here, "The command", body)

    def make(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        os.makedirs(self.out)
        shutil.copy(os.path.join(SCRIPTS, "site.css"), self.out)
        self.calls()
        if self.command:
            self.command_page()
        self.asked.append("include/tallywheel.h")
        for path in self.docs:
            self.doc(path)
        done: set = set()
        while set(self.asked) - done:
            path = (set(self.asked) - done).pop()
            done.add(path)
            if path not in self.docs:
                self.source(path)
        self.search()


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which("cmark-gfm"):
        print("cmark-gfm is not installed: apt-get install cmark-gfm")
        return 77
    Site(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "").make()
    return 0


if __name__ == "__main__":
    sys.exit(main())
