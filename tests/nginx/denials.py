#!/usr/bin/env python3
"""denials.py MODULE SOURCES -- a client and an operator learn whether a limit is spent or nobody can know (TAP).

Method: a real nginx of two workers and a real Redis, which is killed and started again. Each zone that has no answer then
must deny in its way, and the log must have one line when that begins and one when it is over.
Covers: nginx/denial.c, nginx/headers.c, nginx/show.c, nginx/admit.c, nginx/directives.c.
"""
import os
import re
import shutil
import sys

sys.dont_write_bytecode = True
import rig
from rig import Nginx, Redis, run, same, wait_until

sources = rig.begin(sys.argv)

LOG = "log_format tw escape=none '$request_uri $status $tallywheel_status $tallywheel_decided_by $tallywheel_cause \"$tallywheel_key\"';"
LOCAL = """tallywheel_zone day window=day; tallywheel_zone other window=day; tallywheel_zone trial window=1d shadow;
tallywheel_zone slots window=forever; tallywheel_zone few window=forever keys=1;
server { LISTEN; access_log HOME/access.log tw;
    location / { tallywheel_limit day $uri 1 status=430; tallywheel_headers ratelimit; try_files /page =404; }
    location /text { tallywheel_limit day "$arg_a:$arg_b" 2 n=$arg_n; try_files /page =404; }
    location /two { tallywheel_limit day "two$arg_a" 5; tallywheel_limit other "$arg_b" 1; try_files /page =404; }
    location /trial { tallywheel_limit trial "trial $arg_a" 1; tallywheel_log_level warn; try_files /page =404; }
    location /hold { tallywheel_hold slots "hold $arg_a" 1; }
    location /few { tallywheel_hold few "few $arg_a" 5 status=430 outage_status=507; }
    location /none { try_files /page =404; } }"""
# Zones that have no answer without Redis, and such as have one all the same.
WITH_REDIS = """tallywheel_redis URL interval=20ms timeout=TIME;
tallywheel_zone closed window=1d outage=closed; tallywheel_zone strict window=1d mode=strict outage=closed;
tallywheel_zone stock window=1d mode=hard outage=closed; tallywheel_zone slots window=forever outage=closed;
tallywheel_zone known window=1d; tallywheel_zone open window=1d mode=strict outage=open; tallywheel_zone shadowed window=1d outage=closed shadow;
tallywheel_zone named window=forever redis_key=t%k;
server { LISTEN; access_log HOME/access.log tw; tallywheel_headers ratelimit;
    location /off { tallywheel_headers off; tallywheel_limit closed $arg_key 5; try_files /page =404; }
    location /x { tallywheel_headers x; tallywheel_limit closed $arg_key 5; try_files /page =404; }
    location /draft { tallywheel_headers draft; tallywheel_limit closed $arg_key 5; try_files /page =404; }
    location /closed { tallywheel_limit closed $arg_key 5; try_files /page =404; }
    location /strict { tallywheel_limit strict $arg_key 1 status=410; try_files /page =404; }
    location /stock { tallywheel_limit stock $arg_key 2 status=410 wait=300ms; try_files /page =404; }
    location /sale { tallywheel_limit stock $arg_key 2 status=410; try_files /page =404; }
    location /slots { tallywheel_hold slots $arg_key 2 status=430; try_files /page =404; }
    location /own { tallywheel_limit closed $arg_key 5 outage_status=504; try_files /page =404; }
    location /page { tallywheel_limit closed $arg_key 5; error_page 503 = @behind; try_files /page =404; }
    location @behind { proxy_pass http://unix:HOME/behind; }
    location /wrong { tallywheel_headers off; tallywheel_limit named "w:t" 5; try_files /page =404; }
    location /known { tallywheel_limit known $arg_key 1; try_files /page =404; }
    location /open { tallywheel_limit open $arg_key 1; try_files /page =404; }
    location /trial { tallywheel_limit shadowed $arg_key 1; try_files /page =404; } }
server { listen unix:HOME/behind; location / { root HOME/www; add_header Cache-Control "max-age=60"; add_header Cache-Control "public";
    add_header Retry-After 77; add_header RateLimit-Remaining 5; try_files /page =404; } }"""


def serve(name: str, text: str, **words: str) -> Nginx:
    server = Nginx(name, "")
    for word, value in {"HOME": server.home, "LISTEN": f"listen unix:{server.socket}", **words}.items():
        text = text.replace(word, value)
    server.write(LOG + text)
    for place in ("hold", "few", "slots"):
        os.makedirs(f"{server.home}/www/{place}")
        with open(f"{server.home}/www/{place}/large", "wb") as file:
            file.truncate(64 << 20)
    return server


def end(server: Nginx) -> None:
    server.stop()
    server.must_be_clean()


def line_of(server: Nginx, request: str, status: str = "", count: int = 1) -> list:
    """The log's lines of that request and status, behind its address. They are written after the answer."""
    found: list = []

    def is_there() -> bool:
        found[:] = [line[len(request) + 1 :] for line in server.access() if line.startswith(f"{request} {status}")]
        return len(found) >= count

    wait_until("a line in the log", is_there)
    return found


def denial_lines(server: Nginx) -> list:
    """Without the time and the process, and without what nginx writes behind."""
    return [re.sub(r"^.*\[(\w+)\] \S+ \*\d+ (.*), client: .*$", r"\1 \2", line) for line in server.errors().splitlines()
        if " denies: " in line or " would deny: " in line]


# ---- without Redis --------------------------------------------------------------------------------------------------


def keys_of_variables() -> None:
    """Of a rule that is decided alone, by a text, together with others, in shadow mode, and of a slot; admitted or not."""
    server = serve("variables", LOCAL).start()
    for path, wanted in (("/%C3%A4", ['200 ok local  "/ä"', '430 denied local limit "/ä"']),
        ("/two?a=1&b=", ['200 ok local  "two1"'] * 2), ("/two?a=2&b=3", ['200 ok local  "3"', '429 denied local limit "3"']),
        ("/trial?a=4", ['200 ok local  "trial 4"', '200 ok local limit "trial 4"']), ("/text?a=5&b=6&n=3", ['429 denied local never "5:6"'] * 2),
        ("/none", ['200    ""'] * 2)):
        for _ in range(2):
            server.ask(path)
        same(sorted(line_of(server, path, count=2)), sorted(wanted), path)
    client = server.client()
    client.request("GET", "/hold/large?a=7")
    same(client.getresponse().status, 200)
    same(server.ask("/hold/none?a=7").status, 503)
    same(line_of(server, "/hold/none?a=7"), ['503 denied local limit "hold 7"'])
    client.close()
    same(line_of(server, "/hold/large?a=7"), ['200 ok local  "hold 7"'])
    end(server)


def lines_of_denials() -> None:
    """They have the zone, the key, the limit and the cause. Whatever is in the key, a line stays a line."""
    server = serve("lines", LOCAL).start()
    for path in ("/%22a%5Cb%0A%FF%7E", "/" + "x" * 300):
        same([server.ask(path).status for _ in range(2)], [200, 430])
    same(server.ask("/text?a=1&b=2&n=3").status, 429)
    same([server.ask("/two?a=1&b=3").status for _ in range(2)], [200, 429])
    same([server.ask("/trial?a=1").status for _ in range(2)], [200, 200])
    end(server)
    same(denial_lines(server), [
        r'notice tallywheel_zone "day" denies: key "/\x22a\x5Cb\x0A\xFF~", limit 1, used 1, cause limit',
        f'notice tallywheel_zone "day" denies: key "/{"x" * 255}...", limit 1, used 1, cause limit',
        'notice tallywheel_zone "day" denies: key "1:2", limit 2, used 0, cause never',
        'notice tallywheel_zone "other" denies: key "3", limit 1, used 1, cause limit',
        'warn tallywheel_zone "trial" would deny: key "trial 1", limit 1, used 1, cause limit'])


def no_memory() -> None:
    """A zone of one key has no place for a second one: nobody can know how many slots that one has used."""
    server = serve("memory", LOCAL).start()
    client = server.client()
    client.request("GET", "/few/large?a=1")
    same(client.getresponse().status, 200)
    answer = server.ask("/few/none?a=2")
    same((answer.status, answer.getheader("Cache-Control"), answer.getheader("Retry-After"), answer.getheader("RateLimit-Remaining")),
        (507, "no-store", "1", None))
    same(line_of(server, "/few/none?a=2")[0].split()[-3:], ["full", '"few', '2"'])
    client.close()
    end(server)


# ---- with Redis -----------------------------------------------------------------------------------------------------


class Away:
    """Redis is gone meanwhile."""

    def __enter__(self) -> None:
        redis.kill()

    def __exit__(self, *_) -> None:
        redis.start()


def serve_redis(name: str) -> Nginx:
    server = serve(name, WITH_REDIS, URL=redis.url, TIME="2s").start()
    wait_until("Redis decides", lambda: server.ask(f"/strict?key=first-{name}").status == 410 and server.ask(f"/stock?key=first-{name}").status == 200
        and server.ask(f"/slots?key=first-{name}").status == 200)
    return server


def until_outage(server: Nginx, count: int) -> None:
    """A strict limit, which waits for Redis, and slots know it later than others."""
    wait_until("nobody has an answer", lambda: all({server.ask(f"/{place}?key=until{count}").status for _ in range(times)} == {503}
        for place, times in (("closed", 8), ("strict", 1), ("slots", 2))))


def lines_of_outages(server: Nginx) -> list:
    """At level error, which is Debian's."""
    return [re.sub(r"^.*\[error\] \S+ (?:\*\d+ )?(.*?)(, client: .*)?$", r"\1", line) for line in server.errors().splitlines()
        if "[error]" in line and ("no answer" in line)]


def about_units(answer) -> dict:
    return {name.lower(): value for name, value in answer.getheaders() if "ratelimit" in name.lower() or name.lower() in ("retry-after",
        "cache-control")}


def unknown() -> None:
    server = serve_redis("unknown")
    same([server.ask("/strict?key=1").status, server.ask("/closed?key=1").status, server.ask("/known?key=1").status], [200] * 3)
    answer = server.ask("/strict?key=1")
    same((answer.status, answer.getheader("RateLimit-Remaining"), answer.getheader("Cache-Control")), (410, "0", None), "the limit is spent")
    same(1 < int(answer.getheader("Retry-After")) <= 86400, True)
    answer = server.ask("/wrong")  # its name in Redis would be "tw:t", which the library keeps for itself
    same((answer.status, about_units(answer)), (503, {"cache-control": "no-store"}), "a key that is refused")
    same(line_of(server, "/wrong")[0].split()[:2], ["503", "error"])
    with Away():
        until_outage(server, 1)
        for path, limit in (("/closed?key=1", "5"), ("/strict?key=2", "1"), ("/strict?key=1", "1"), ("/slots?key=1", "2"), ("/sale?key=new", "2"),
            ("/stock?key=new", "2")):
            answer = server.ask(path)
            same((answer.status, about_units(answer)), (503, {"ratelimit-limit": limit, "retry-after": "1", "cache-control": "no-store"}), path)
            line = line_of(server, path, "503")[0].split()
            same((line[1] in ("denied", "error"), line[3]), (True, "outage"), path)
        for path, limit in (("/off", {}), ("/x", {"x-ratelimit-limit": "5"}), ("/draft", {"ratelimit-policy": '"closed";q=5;w=86400'})):
            same(about_units(server.ask(path + "?key=1")), {**limit, "retry-after": "1", "cache-control": "no-store"}, path)
        same(server.ask("/own?key=1").status, 504)
        answer = server.ask("/page?key=1")  # the server behind answers
        same((answer.status, answer.text, about_units(answer)), (200, "page\n", {"ratelimit-limit": "5", "retry-after": "1", "cache-control": "no-store"}))
        same([server.ask("/known?key=1").status, server.ask("/open?key=1").status, server.ask("/trial?key=1").status], [429, 200, 200],
            "what is known here is spent, and others are admitted")
        same(server.ask("/known?key=1").getheader("RateLimit-Remaining"), "0")
    end(server)


def shared() -> None:
    """The units that a new key of a hard limit may spend are not here yet, or are elsewhere: no cache may keep this 410."""
    server = serve_redis("shared")
    for number in range(20):
        answer = server.ask(f"/sale?key=s{number}")
        if answer.status != 200:
            same((answer.status, answer.getheader("Cache-Control"), answer.getheader("Retry-After")), (410, "no-store", "1"))
            same(line_of(server, f"/sale?key=s{number}")[0].split()[-2], "share")
    same([server.ask(f"/stock?key=s{number}").status for number in range(20, 24) for _ in range(3)], [200, 200, 410] * 4)
    same({line.split()[3] for number in range(20, 24) for line in line_of(server, f"/stock?key=s{number}", "410")}, {"limit"})
    end(server)


def one_line_each() -> None:
    """Two workers, a reload, and many requests: the outage is one line at first and one in the end, and so is the next one."""
    server = serve_redis("lines-of-outages")
    for number in (1, 2):
        same(lines_of_outages(server)[2 * (number - 1):], [])
        with Away():
            wait_until("somebody is denied", lambda: server.ask("/closed?key=1").status == 503)
            until_outage(server, 3)
            server.reload()
            until_outage(server, 4)
            same(lines_of_outages(server)[2 * (number - 1):],
                ['tallywheel_zone "closed": Redis has no answer, and requests are denied because of that'])
        wait_until("the outage is over", lambda number=number: len(lines_of_outages(server)) == 2 * number)
        found = re.fullmatch(r"tallywheel: Redis answers again, after (\d+) requests were denied because it had no answer", lines_of_outages(server)[-1])
        same(found is not None and int(found[1]) >= 17, True, lines_of_outages(server)[-1])
        wait_until("Redis decides", lambda number=number: server.ask(f"/strict?key=again{number}").status == 410)
    end(server)


def silent() -> None:
    """Nobody is denied: no line. Redis was never there."""
    server = serve("silent", WITH_REDIS, URL=f"unix://{rig.folder}/nobody", TIME="1s").start()
    for _ in range(5):
        same([server.ask(f"/{place}?key=1").status for place in ("open", "trial")], [200, 200])
    same(server.ask("/known?key=1").status, 200)
    same(lines_of_outages(server), [])
    same(server.ask("/closed?key=1").status, 503)
    same(len(lines_of_outages(server)), 1)
    end(server)


run("$tallywheel_key is the key of the rule that is shown, $tallywheel_cause why it does not admit", keys_of_variables)
run("a denial is a line with zone, key, limit and cause, whatever is in the key", lines_of_denials)
run("a zone that has no place for a key denies by outage_status=, for the moment", no_memory)
if shutil.which("redis-server"):
    redis = Redis().start()
    run("a denial that knows nothing is a 503 for a moment, and status= is for a limit that is spent", unknown)
    run("a 410 for units that are elsewhere is kept by no cache", shared)
    run("an outage that denies is one line of the log when it begins and one when it is over", one_line_each)
    run("an outage that denies nobody is no line", silent)
else:
    rig.tap.skip("denials with Redis", "redis-server: apt-get install redis-server")
rig.tap.end(plans=True)
