"""header_doc.py -- the public header as data: its comments as blocks of text, its declarations, and the pages that they make.

man_pages.py and site.py write the manual from it, and the texts of `tallywheel COMMAND --help` go through the same
blocks(). A block is a pair: ("text", TEXT), ("code", LINES), ("list", [(TAG, BLOCKS)]), ("bullets", [BLOCKS]) or
("table", ROWS).
Always true: each declaration and each comment of the header stands on exactly one page, or pages() ends the script with
a sentence that says which does not."""
import os
import re
import sys

HEADER = "include/tallywheel.h"
COLUMNS = 100

# Each page: its name, what it is about, and what is on it: names of calls or types (each brings what is declared below the
# same comment), "chapter N" (its opening words), "top" (the head of the file), or the first words of a comment between.
PAGES = [
    ("tallywheel", "counters for servers that count faster than a network can answer",
     "top, TW_VERSION_MAJOR, tw_key, TW_KEY_SIZE_MAX, TW_SECOND, tw_bytes, tw_str"),
    ("tw_status", "what calls answer, and why",
     "tw_status, GENERAL ERRORS, tw_status_name, tw_status_text, tw_error_text, tw_version"),
    ("tw_options", "options of an engine",
     "chapter 4, tw_options_init, tw_options, tw_threads, tw_shared, tw_merge, tw_clock, tw_log, tw_log_stderr, tw_lost, tw_event"),
    ("tw_open", "open, flush, stop and close an engine", "tw_open, tw_ready, tw_flush, tw_stop, tw_close"),
    ("tw_turn", "background work in the host's own event loop", "tw_turn, tw_tick, tw_fd, tw_timeout_ms"),
    ("tw_family_options", "options of a family of counters",
     "chapter 5, tw_family_options_init, tw_family_options, tw_window, tw_on_full, tw_full_limit, tw_closed, tw_closed_by, "
     "tw_kind, tw_redis_shape, tw_limit_mode, tw_limit_shape, tw_outage, tw_busy"),
    ("tw_family_open", "open, find, change and close a family of counters",
     "tw_family_open, tw_family_find, tw_family_set, tw_family_close"),
    ("tw_add", "count",
     "tw_add, tw_add_at, tw_add_many, tw_add_many_at, tw_reset, tw_enter, chapter 7"),
    ("tw_pin_open", "count one key without looking it up", "tw_pin"),
    ("tw_key_network", "a key for the network of an address", "tw_key_network"),
    ("tw_close_until", "a watermark: close windows by event time", "tw_close_until"),
    ("tw_get", "read counts as this process knows them",
     "chapter 8, tw_get, tw_get_at, tw_read, tw_reading, tw_read_sized"),
    ("tw_each", "visit the counters of a window, or the heaviest of them", "tw_each, tw_top, tw_count"),
    ("tw_fetch", "ask Redis for the totals of all processes, and wait for them", "tw_fetch"),
    ("tw_fetch_top", "the ranking of all processes: sorted sets in Redis", "RANKINGS, tw_fetch_top, tw_fetch_rank"),
    ("tw_each_field", "all counts of a subject: hashes in Redis", "SUBJECTS, tw_each_field, tw_fetch_fields"),
    ("tw_distinct_add", "count different elements",
     "DISTINCT COUNTS, tw_distinct_add, tw_distinct_add_at, tw_distinct_add_many, tw_distinct_get, tw_distinct_get_at"),
    ("tw_acquire", "limits: take units, and give them back",
     "tw_acquire, tw_acquire_some, tw_acquire_wait, tw_acquire_all, tw_claim, tw_refund, Rules of tw_acquire(), tw_verdict, "
     "tw_decided_by, tw_cause"),
    ("tw_lease_warm", "leases of hard limits", "tw_lease_warm, tw_lease_reclaim, tw_lease_stranded"),
    ("tw_once", "the first caller in a window", "tw_once, tw_once_cancel"),
    ("tw_lock", "a lock over all processes, with a fencing token", "tw_lock, tw_lock_extend, tw_lock_release"),
    ("tw_reserve", "set units of a stock aside until they are paid", "tw_reserve, tw_reserve_confirm, tw_reserve_cancel"),
    ("tw_hold", "at most so many in use at once", "tw_hold, tw_hold_release, tw_hold_notes"),
    ("tw_limits_open", "limits in a file, changed while the program runs",
     "chapter 13, tw_limits, tw_limited, tw_limits_open, tw_limits_reload, tw_limits_acquire, tw_limits_find, "
     "tw_limits_family, tw_limited_acquire, tw_limits_close"),
    ("tw_stats_read", "figures of an engine", "tw_stats_read, tw_stats_read_sized, tw_stats, TW_STATS, TW_STATS_ROOM"),
    ("tw_metrics_write", "the figures as a page for Prometheus", "tw_metrics_write, tw_metrics, TW_METRICS_NO_EOF"),
    ("tw_watch_open", "a watch socket of the host", "tw_watch"),
    ("tw_audit", "is Redis what it should be?",
     "tw_audit, tw_audit_sized, tw_audit_options_init, tw_audit_options, tw_audit_report, tw_finding, tw_audit_kind"),
    ("tw_request", "calls that answer later, for event loops",
     "chapter 16, tw_request, tw_request_init, tw_request_cancel, tw_queue_open, tw_queue_fd, tw_queue_run, tw_queue_close, "
     "tw_acquire_async"),
    ("tw_save", "counts of a process without Redis, carried over a planned restart", "chapter 17, tw_save, tw_load"),
    ("tw_lead", "one engine for all processes that fork from one parent", "chapter 18, tw_lead, tw_process_died"),
]


def stop(why: str) -> None:
    sys.exit("header_doc.py: " + why)


# ---- text: what stands in a comment or a help, as blocks ------------------------------------------------------------

DEFINITION = re.compile(r"^(?: {2})?(\S(?:.*?\S)?)( {2,}\S.*)$")
OPTION = re.compile(r"^ {2}(--[a-z-]+ [A-Z+][^a-z ]*)( \S.*)$")  # one so long that a single blank parts it from the text
LIKE = re.compile(r"^ {2}(\S[^:]*)(: as \S.*)$")
LABEL = re.compile(r"^(Returns\b|(Cost|Memory|Threads|Families|Exit status):)")


def definition_of(line: str) -> re.Match | None:
    return OPTION.match(line) or DEFINITION.match(line) or LIKE.match(line)


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def rows_of(items: list) -> list:
    """The rows, if each item has columns of its own."""
    rows = [[tag] + re.split(r" {2,}", body[0].strip()) for tag, body, _ in items if body]
    return rows if len(rows) == len(items) > 1 and all(len(row) > 2 for row in rows) else []


def take_list(lines: list[str], at: int, room: int) -> tuple:
    """The definitions that begin at `at`: a block, and where it ends. What belongs to one is further in than its tag."""
    level, items = indent_of(lines[at]), []
    while at < len(lines) and lines[at] and indent_of(lines[at]) == level and (level or definition_of(lines[at])):
        match = definition_of(lines[at])
        tag = match.group(1) if match else lines[at].strip()
        body = [match.group(2).removeprefix(": ").strip()] if match else []
        column = match.end(2) - len(body[0]) if match else level + 2
        at += 1
        while at < len(lines) and indent_of(lines[at]) > level:
            body.append(lines[at][min(column, indent_of(lines[at])) :])
            at += 1
        items.append((tag, body, column))
    if rows_of(items):
        return ("table", rows_of(items)), at
    return ("list", [(tag, blocks(body, room and room - column)) for tag, body, column in items]), at


def take_bullets(lines: list[str], at: int, room: int) -> tuple:
    items: list = []
    while at < len(lines) and (lines[at].startswith("- ") or (items and lines[at].startswith("  "))):
        if lines[at].startswith("- "):
            items.append([])
        items[-1].append(lines[at][2:])
        at += 1
    return ("bullets", [blocks(item, room) for item in items]), at


def take_code(lines: list[str], at: int) -> tuple:
    end = at
    while end < len(lines) and (not lines[end] or indent_of(lines[end]) >= 4):
        end += 1
    while not lines[end - 1]:
        end -= 1
    margin = min(indent_of(line) for line in lines[at:end] if line)
    return ("code", [line[margin:] for line in lines[at:end]]), end


def ends_a_paragraph(line: str, following: str, room: int) -> bool:
    """Whoever wrote the line left room for the next word: what follows is a new thought."""
    return bool(LABEL.match(following)) or (line.endswith((".", ".)")) and len(line) + 1 + len(following.split(" ")[0]) <= room)


def blocks(lines: list[str], room: int = 0) -> list:
    """room: how many columns a line had; 0: paragraphs are parted by empty lines alone."""
    out: list = []
    text = ""
    at = 0
    while at < len(lines):
        line = lines[at]
        indent, after_gap = indent_of(line), at == 0 or not lines[at - 1]
        is_more = text and line and not indent and not definition_of(line) and not line.startswith("- ")
        if is_more and not ends_a_paragraph(lines[at - 1], line, room):
            text, at = text + " " + line, at + 1
            continue
        if text:
            out.append(("text", text))
            text = ""
        if not line:
            at += 1
            continue
        if indent >= 4 and after_gap:
            block, at = take_code(lines, at)
        elif line.startswith("- "):
            block, at = take_bullets(lines, at, room)
        elif indent or definition_of(line):
            block, at = take_list(lines, at, room)
        else:
            text, at = line, at + 1
            continue
        out.append(block)
    return out + ([("text", text)] if text else [])


def comment_lines(text: str) -> list[str]:
    """Of a comment: without its signs, and without what all lines are indented by."""
    lines = [re.sub(r"^\s*(/\*\*?|\*/|\*)", lambda sign: " " * len(sign.group()), line) for line in text.split("\n")]
    lines = [re.sub(r"\s*\*/$", "", line).rstrip() for line in lines]
    margin = min((indent_of(line) for line in lines if line), default=0)
    return [line[margin:] for line in lines]


def comment_blocks(text: str) -> list:
    lines = comment_lines(text)
    while lines and not lines[0]:
        lines.pop(0)
    return blocks(lines, COLUMNS - 4)


# ---- declarations ---------------------------------------------------------------------------------------------------


class Declaration:
    """kind: function, macro, struct, enum or type. `members` of a struct: ("heading", TEXT), ("text", TEXT) or
    (DECLARATION, BLOCKS); of an enum (NAME = VALUE, BLOCKS)."""

    def __init__(self, kind: str, name: str, text: str, members: list | None = None) -> None:
        self.kind, self.name, self.text, self.members = kind, name, text, members or []
        self.is_exported = False  # a function of the library


MEMBER = re.compile(r"/\*.*?\*/|[^;/]+;(?:[ \t]*/\*.*?\*/)?", re.DOTALL)
FIGURE = re.compile(r'X\((\w+), (\w+), \\?\s*((?:"[^"]*"[\s\\]*)+)\)')


def struct_members(body: str) -> list:
    members: list = []
    for match in MEMBER.finditer(body):
        piece = match.group()
        if piece.startswith("/*"):
            text = " ".join(comment_lines(piece)).strip()
            is_heading = len(text) < 40 and not re.search(r"[.;]", text)
            members.append(("heading" if is_heading else "text", re.sub(r"\s+", " ", text)))
            continue
        declaration, _, comment = piece.partition(";")
        if "reserved" not in declaration and "#" not in declaration:
            text = re.sub(r"\s+", " ", " ".join(comment_lines(comment.strip()))).strip()
            members.append((" ".join(declaration.split()), [("text", text)] if text else []))
    return members


def enumerators(body: str) -> list:
    found = []
    for match in re.finditer(r"(\w+)\s*=\s*(-?\w+),?\s*(/\*.*?\*/)?", body, re.DOTALL):
        text = re.sub(r"\s+", " ", " ".join(comment_lines(match.group(3) or ""))).strip()
        found.append((f"{match.group(1)} = {match.group(2)}", [("text", text)] if text else []))
    return found


def figures(macro: str) -> list:
    """The fields of TW_STATS(X)."""
    parts = [(name, kind, "".join(re.findall(r'"([^"]*)"', text))) for name, kind, text in FIGURE.findall(macro)]
    return [(f"int64_t {name}", [("text", f"{kind}: {text}")]) for name, kind, text in parts]


def declaration_of(text: str) -> Declaration | None:
    match = re.match(r"#define (\w+)", text)
    if match:
        return Declaration("macro", match.group(1), text, figures(text) if match.group(1) == "TW_STATS" else None)
    match = re.match(r"(?:typedef )?(struct|enum) (\w+) \{(.*)\}[^}]*;$", text, re.DOTALL)
    if match:
        members = struct_members(match.group(3)) if match.group(1) == "struct" else enumerators(match.group(3))
        return Declaration(match.group(1), match.group(2), text, members)
    match = re.match(r"typedef .*?(\w+);", text)
    if match:
        return Declaration("type", match.group(1), match.group())
    match = re.match(r"(?:TW_API|static inline) ([^{]*?\b(tw_\w+)\([^{;]*\))", text, re.DOTALL)
    if match:
        found = Declaration("function", match.group(2), " ".join(match.group(1).split()) + ";")
        found.is_exported = text.startswith("TW_API")
        return found
    return None


class Entry:
    """A comment and what is declared below it, up to the next empty line; or a comment that stands alone."""

    def __init__(self, key: str, chapter: str, comment: str) -> None:
        self.key, self.chapter, self.doc = key, chapter, comment_blocks(comment) if comment else []
        self.declarations: list[Declaration] = []

    def calls(self) -> list[Declaration]:
        return [one for one in self.declarations if one.kind == "function" or re.match(r"#define tw_\w+\(", one.text)]


# One piece of the header at a time, at its top level. A body ends with the first } that begins a line.
PIECE = re.compile(
    r"(?P<comment>/\*.*?\*/)|(?P<gap>\n[ \t]*\n)|\s+"
    r"|(?P<declaration>\#define(?:[^\\\n]|\\\n|\\.)*|static inline.*?\n\}"
    r"|(?:typedef )?(?:struct|enum) \w+ \{(?:[^\n]*\};|.*?\n\}[^;]*;)|(?:TW_API|typedef)[^;]*;[^\n]*)"
    r"|\#[^\n]*|extern \"C\" \{|\}",
    re.DOTALL)
OWN = {"TALLYWHEEL_H", "TW_API", "TW_STATS_ONE", "TW_STATS_FIELD"}  # macros that the header has for itself


def entries(text: str) -> list[Entry]:
    """What the header has, in its order. The head comes first; what only names a type that is defined below is left out."""
    top, _, rest = text.partition("#ifndef TALLYWHEEL_H")
    out = [Entry("top", "", re.sub(r"^/\* \S+ -- .*\n", "/*\n", top))]
    chapter, at, is_new = "", 0, True
    while at < len(rest):
        match = PIECE.match(rest, at)
        if not match:
            stop("not understood: " + rest[at:].split("\n")[0])
        at = match.end()
        piece = match.group()
        if match.lastgroup == "comment":
            title = re.match(r"/\* ==== (\d+)\. (.*?) =+(?= \*/|\n)", piece)
            if title:
                chapter = title.group(2)
            body = "/*" + piece[title.end() :] if title else piece
            words = " ".join(" ".join(comment_lines(body)).split())
            out.append(Entry(f"chapter {title.group(1)}" if title else words, chapter, body))
        elif match.lastgroup == "declaration":
            found = declaration_of(piece)
            if not found or found.name in OWN or re.match(r"typedef struct (\w+) \1; */\* chapter", piece):
                continue
            if is_new:
                out.append(Entry(found.name, chapter, ""))
            if not out[-1].declarations:
                out[-1].key = found.name
            out[-1].declarations.append(found)
        if match.lastgroup:
            is_new = match.lastgroup == "gap" or piece.startswith("/* ====")
    return [entry for entry in out if (entry.declarations or entry.doc) and entry.key not in ("tw_engine", "tw_family")]


# ---- pages ----------------------------------------------------------------------------------------------------------


class Page:
    def __init__(self, name: str, about: str, on_it: list[Entry]) -> None:
        self.name, self.about, self.entries = name, about, on_it

    def calls(self) -> list[Declaration]:
        return [call for entry in self.entries for call in entry.calls()]

    def names(self) -> list[str]:
        """All that a reader may look up here, but for constants."""
        return list(dict.fromkeys(one.name for entry in self.entries for one in entry.declarations if one.name.startswith("tw_")))


def pages(root: str) -> list[Page]:
    with open(os.path.join(root, HEADER), encoding="utf-8") as file:
        left = entries(file.read())
    out = []
    for name, about, keys in PAGES:
        on_it = []
        for key in keys.split(", "):
            found = [entry for entry in left if entry.key == key or (" " in entry.key and entry.key.startswith(key))]
            if len(found) != 1:
                stop(f"page {name}: {HEADER} has {key} {len(found)} times, or it stands on another page, too")
            left.remove(found[0])
            on_it.append(found[0])
        out.append(Page(name, about, on_it))
    if left:
        stop(f"{HEADER}: on no page of PAGES is {', '.join(entry.key[:60] for entry in left)}")
    return out


def version_and_date(root: str) -> tuple[str, str]:
    """Of the release that debian/changelog begins with: the same sources give the same pages."""
    with open(os.path.join(root, "debian/changelog"), encoding="utf-8") as file:
        text = file.read()
    months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
    day, month, year = re.search(r"^ -- .*, +(\d+) (\w+) (\d+)", text, re.MULTILINE).groups()
    return re.match(r"\S+ \(([^)]+)\)", text).group(1), f"{year}-{months.index(month) + 1:02}-{int(day):02}"


def examples_with(root: str, names: list[str]) -> list[tuple[str, str]]:
    """Examples that use one of these calls: file and what it is for."""
    found = []
    for file_name in sorted(os.listdir(os.path.join(root, "examples"))):
        if file_name.endswith(".c"):
            with open(os.path.join(root, "examples", file_name), encoding="utf-8") as file:
                text = file.read()
            if any(re.search(rf"\b{name}\(", text) for name in names):
                about = " ".join(" ".join(comment_lines(text.partition("*/")[0])).split())
                found.append((file_name, re.match(r"\S+ -- (.*?)[.?](?: |$)", about).group(1)))
    return found


if __name__ == "__main__":  # what the parser sees, for whoever changes it
    for one_page in pages(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")):
        print(f"== {one_page.name}: {one_page.about}")
        for one_entry in one_page.entries:
            print("  --", one_entry.key[:60], [declaration.name for declaration in one_entry.declarations])
            for one_block in one_entry.doc:
                print("      ", one_block)
