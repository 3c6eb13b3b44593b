#!/usr/bin/env python3
"""headers.py MODULE SOURCES -- the headers that say what a limit decided: whose limit it is, by which names, and what they
replace (TAP).

Method: a real nginx. Behind it is a server that has limits of its own and says so, by all names there are. A client must
find each name once, with the figures of the limit that holds for it in nginx.
Covers: nginx/headers.c, nginx/show.c, nginx/admit.c.
"""
import sys

sys.dont_write_bytecode = True
import rig
from rig import Nginx, run, same, wait_until

sources = rig.begin(sys.argv)

# The server behind says 77 by each name, also twice, and however it is written.
THEIRS = ("RateLimit-Limit", "ratelimit-remaining", "RATELIMIT-RESET", "Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit",
    "X-RateLimit-Remaining", "x-ratelimit-reset", "X-RateLimit-Other", "Cache-Control", "RateLimit-Limit")
BEHIND = "server { listen unix:HOME/behind; location / { root HOME/www; " + \
    "".join(f'add_header {name} "77" always; ' for name in THEIRS) + "try_files /page =404; } location /busy { return 503; " + \
    'add_header Retry-After "77" always; } }'
ZONES = """tallywheel_zone day window=day; tallywheel_zone week window=week; tallywheel_zone month window=month;
tallywheel_zone minute window=1m; tallywheel_zone even window=10s shape=gcra burst=5; tallywheel_zone ever window=forever;
tallywheel_zone trial window=1d shadow; tallywheel_zone first window=1d shadow;
log_format tw '$request_uri $tallywheel_zone $tallywheel_limit $tallywheel_used $tallywheel_shadow $tallywheel_status';
"""


class Server(Nginx):
    def __init__(self, name: str, http_block: str) -> None:
        super().__init__(name, "")
        self.write(ZONES + (http_block + BEHIND).replace("HOME", self.home).replace("LISTEN", f"listen unix:{self.socket}"))

    def end(self) -> None:
        self.stop()
        self.must_be_clean()


def found(answer, *names: str) -> dict:
    """All values of these headers, and of all others that speak of limits."""
    of_limits = {}
    for name, value in answer.getheaders():
        if name.lower() in [one.lower() for one in names] or "ratelimit" in name.lower() or name.lower() == "retry-after":
            of_limits.setdefault(name.lower(), []).append(value)
    return of_limits


def about(value: str, most: int) -> str:
    """A time in seconds that passes meanwhile."""
    return f"up to {most}" if 0 < int(value) <= most else value


def replaced() -> None:
    server = Server("replaced", """server { LISTEN; tallywheel_headers ratelimit;
        location / { tallywheel_limit day "a$arg_key" 2; proxy_pass http://unix:HOME/behind; }
        location /to { tallywheel_limit day "b$arg_key" 1; error_page 429 = @behind; proxy_pass http://unix:HOME/behind:/; }
        location @behind { proxy_pass http://unix:HOME/behind; } location /none { proxy_pass http://unix:HOME/behind; }
        location /ever { tallywheel_limit ever "c$arg_key" 3; proxy_pass http://unix:HOME/behind:/; } }""").start()
    others = {name.lower(): ["77"] for name in THEIRS}
    others["ratelimit-limit"] = ["77", "77"]
    same(found(server.ask("/none"), "cache-control"), others, "without a limit nothing is touched")
    for path, wanted in (("/page?key=1", ["2", "1", "day"]), ("/to?key=1", ["1", "0", "day"]), ("/ever?key=1", ["3", "2", None])):
        answer = server.ask(path)
        same(answer.status, 200)
        mine = found(answer, "cache-control")
        same([mine.pop("ratelimit-limit", None), mine.pop("ratelimit-remaining", None)], [[wanted[0]], [wanted[1]]], path)
        resets = mine.pop("ratelimit-reset", None)
        same(resets and [about(one, 86400) for one in resets], wanted[2] and ["up to 86400"], path + ": when it begins anew")
        same(mine, {name: value for name, value in others.items() if not name.startswith("ratelimit-") or name == "ratelimit-policy"},
            path + ": names that are not written here stay")
    answer = server.ask("/to?key=1")  # denied: the server behind answers all the same
    same((answer.status, [about(one, 86400) for one in found(answer)["retry-after"]]), (200, ["up to 86400"]))
    same(found(server.ask("/busy?key=2"))["retry-after"], ["77"], "nobody was denied: the server behind knows when to come back")
    server.end()


def words() -> None:
    """tallywheel_headers in http, in server and in a location; of a zone that has no fixed length, and of a bucket."""
    server = Server("words", """tallywheel_headers x; server { LISTEN; location / { tallywheel_limit day "a$arg_key" 3; try_files /page =404; }
            location /off { tallywheel_headers off; tallywheel_limit day "b$arg_key" 2; try_files /page =404; } }
        server { LISTEN; server_name draft; tallywheel_headers draft; location / { tallywheel_limit minute "c$arg_key" 3; try_files /page =404; }
            location /week { tallywheel_limit week "d$arg_key" 9007199254740992; proxy_pass http://unix:HOME/behind:/; }
            location /month { tallywheel_limit month "e$arg_key" 1; try_files /page =404; }
            location /even { tallywheel_limit even "f$arg_key" 100; try_files /page =404; }
            location /ever { tallywheel_limit ever "g$arg_key" 100; try_files /page =404; }
            location /three { tallywheel_headers ratelimit; tallywheel_limit day "h$arg_key" 3; try_files /page =404; } }""").start()

    def draft(path: str) -> dict:
        return found(server.ask(path, {"Host": "draft"}))

    def parts(field: str) -> list:
        return field.split(";")

    mine = found(server.ask("/page?key=1"))
    same([about(one, 86400) for one in mine.pop("x-ratelimit-reset")], ["up to 86400"])
    same(mine, {"x-ratelimit-limit": ["3"], "x-ratelimit-remaining": ["2"]})
    same(found(server.ask("/off?key=1")), {})
    same(sorted(draft("/three?key=1")), ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"])
    for path, most, policy, left in (("/page", 60, '"minute";q=3;w=60', ['"minute"', "r=2"]), ("/even", 10, '"even";q=100;w=10', ['"even"', "r=4"]),
        ("/month", 31 * 86400, '"month";q=1', ['"month"', "r=0"]), ("/ever", 0, '"ever";q=100', ['"ever"', "r=99"]),
        ("/week", 7 * 86400, '"week";q=999999999999999;w=604800', ['"week"', "r=999999999999999"])):
        mine = draft(path + "?key=1")
        same(mine.pop("ratelimit-policy"), [policy], path)
        same(len(mine["ratelimit"]), 1, path)
        one = parts(mine.pop("ratelimit")[0])
        same(one[:2], left, path)
        same([about(each.removeprefix("t="), most) for each in one[2:]], [f"up to {most}"] if most else [], path)
        if path != "/week":
            same(mine, {}, path)
    for path in ("/month?key=1", "/off?key=2", "/off?key=2", "/off?key=2"):
        answer = server.ask(path, {"Host": "draft" if "month" in path else "test"})
    same((answer.status, found(answer)), (429, {}), "off says nothing, also of a denial")
    answer = server.ask("/month?key=1", {"Host": "draft"})
    same((answer.status, parts(answer.getheader("RateLimit"))[:2], about(answer.getheader("Retry-After"), 31 * 86400)),
        (429, ['"month"', "r=0"], f"up to {31 * 86400}"))
    for _ in range(2):
        server.ask("/page?key=1")
    answer = server.ask("/page?key=1")
    same((answer.status, answer.getheader("X-RateLimit-Remaining"), about(answer.getheader("Retry-After"), 86400)), (429, "0", "up to 86400"))
    server.end()


def shadow() -> None:
    """Beside a limit that is enforced, one in shadow mode says nothing, wherever it stands and however few units it has left."""
    limits = {"before": ("first", "trial"), "behind": ("trial", "first")}
    server = Server("shadow", "server { LISTEN; tallywheel_headers ratelimit; access_log HOME/access.log tw; " + "".join(f"""
        location /{name} {{ tallywheel_limit {one} "{name}" 1; tallywheel_limit day "{name}" 100; tallywheel_limit {other} "{name}" 1;
            try_files /page =404; }}""" for name, (one, other) in limits.items()) + """
        location /waits { tallywheel_limit trial "w$arg_key" 1 wait=10ms; tallywheel_limit day "w$arg_key" 100 wait=10ms; try_files /page =404; }
        location /used { tallywheel_limit first "u" 1; tallywheel_hold ever "u" 50; try_files /page =404; }
        location /alone { tallywheel_limit trial "alone" 2; try_files /page =404; }
        location /without { tallywheel_limit day $arg_none 100; tallywheel_limit trial "without" 2; try_files /page =404; } }""").start()
    for path, most, times in (("/before", "100", 4), ("/behind", "100", 4), ("/waits", "100", 3), ("/used", "50", 3), ("/alone", "2", 4),
        ("/without", "2", 4)):
        answers = [server.ask(path) for _ in range(times)]
        same({(answer.status, answer.getheader("RateLimit-Limit"), answer.getheader("Retry-After")) for answer in answers}, {(200, most, None)}, path)
    same([server.ask("/before").getheader("RateLimit-Remaining") for _ in range(2)], ["95", "94"])

    def lines(path: str) -> list:
        return sorted(tuple(line.split()[1:]) for line in server.access() if line.startswith(path + " "))

    wait_until("the log has 24 lines", lambda: len(server.access()) == 24)
    same(sorted(line[:2] + line[3:] for line in lines("/behind")), [("day", "100", "denied", "ok")] * 3 + [("day", "100", "ok", "ok")])
    same(sorted(line[:2] + line[3:] for line in lines("/alone")), [("trial", "2", "denied", "ok")] * 2 + [("trial", "2", "ok", "ok")] * 2)
    server.end()


run("headers of the same names are replaced, and all others stay", replaced)
run("a zone in shadow mode says nothing beside one that is enforced", shadow)
run("tallywheel_headers has four words, at each level", words)
rig.tap.end(plans=True)
