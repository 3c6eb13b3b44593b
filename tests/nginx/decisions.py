#!/usr/bin/env python3
"""decisions.py MODULE SOURCES -- the module for nginx decides as its page says (TAP).

Method: a real nginx of two workers, and where a limit is one over processes a real Redis. Each configuration of
examples/nginx/ is used as it is: only addresses, paths and the Redis are replaced by the test's own.
Covers: nginx/admit.c, nginx/directives.c, nginx/engine.c, nginx/open.c, nginx/metrics.c, nginx/ngx_http_tallywheel.h,
nginx/ngx_http_tallywheel_module.c, nginx/request.c, nginx/sentences.c, nginx/show.c, nginx/texts.c, nginx/values.c,
nginx/wait.c, nginx/worker.c.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import rig
from rig import Load, Nginx, Redis, run, same, wait_until

sources = rig.begin(sys.argv)


def serve(name: str, http_block: str, **more) -> Nginx:
    server = Nginx(name, "", **more)
    server.write(http_block.replace("LISTEN", f"listen unix:{server.socket};"))
    return server.start()


def statuses(server: Nginx, path: str, count: int, headers=None) -> list:
    client = server.client()
    found = [client.ask(path, headers).status for _ in range(count)]
    client.close()
    return found


# ---- without Redis --------------------------------------------------------------------------------------------------

# Windows are long: none ends in the middle of a test.
ONE = """
tallywheel_zone month window=month; tallywheel_zone other window=month; tallywheel_zone day window=day; tallywheel_zone seen window=day;
tallywheel_zone even window=1d shape=gcra burst=2; tallywheel_zone watched window=day shadow;
log_format tw '$uri?$args $status $tallywheel_status $tallywheel_zone $tallywheel_limit $tallywheel_used $tallywheel_remaining $tallywheel_decided_by $tallywheel_shadow $tallywheel_cause';
map $arg_n $amount { default 1; "~^([0-9]+)$" $1; "bad" "three"; }
map "" $dash { default "-"; }
map "" $limit { default 1000; }
map "" $circle { default $round; }
map "" $round { default $circle; }
map $arg_max $most { default 3; "none" off; "one" 1; "bad" "many"; }
server {
    LISTEN
    access_log ACCESS tw;
    location /limited { tallywheel_limit month "a$arg_key" 3; tallywheel_headers ratelimit; try_files /page =404; }
    location /units { tallywheel_limit month "b$arg_key" 10 n=$amount status=503; try_files /page =404; }
    location /by { tallywheel_limit month "c$arg_key" $most; try_files /page =404; }
    location /empty { tallywheel_limit month $arg_key 1; try_files /page =404; }
    location /circle { tallywheel_limit month $circle 1; try_files /page =404; }
    location /both { tallywheel_limit month "d$arg_key" 5; tallywheel_limit day "d$arg_key" 2 status=403; try_files /page =404; }
    location /refund { tallywheel_limit month "e$arg_key" 2 refund=404; tallywheel_limit day "e$arg_key" 2 refund=4xx; try_files $arg_file =404; }
    location /trial { tallywheel_limit watched "f$arg_key" 2; tallywheel_headers ratelimit; try_files /page =404; }
    location /even { tallywheel_limit even "g$arg_key" 24; try_files /page =404; }
    location /inside { tallywheel_limit month "h$arg_key" 2; error_page 429 = /busy; try_files /page =404; }
    location = /busy { tallywheel_limit month "h$arg_key" 2; try_files /page =404; }
    location /redirected { tallywheel_limit other "i$arg_key" 2; try_files /nothing /to; }
    location = /to { tallywheel_limit month "i$arg_key" 1; try_files /page =404; }
    location /auth { auth_request /login; tallywheel_limit month "j$arg_key" 2; try_files /page =404; }
    location = /login { internal; tallywheel_limit month "k" 1; try_files /page =404; }
    location /parts { ssi on; default_type text/html; tallywheel_limit month "n$arg_key" 2; try_files /parts.html =404; }
    location /level { tallywheel_limit month "l$arg_key" 2; location /level/own { tallywheel_limit day "l$arg_key" 1; try_files /page =404; }
        location /level/same { try_files /page =404; } }
    location = /text1 { tallywheel_limit month "o-$arg_key-$arg_none-$arg_n" 1000; tallywheel_headers ratelimit; try_files /page =404; }
    location = /text2 { tallywheel_limit month o-${arg_key}-${arg_none}-${arg_n} 1000 n=1; tallywheel_headers ratelimit; try_files /page =404; }
    location = /text3 { tallywheel_limit month "o$dash$arg_key$arg_none$dash$arg_none$dash$arg_none$arg_n$arg_none$arg_none" 1000; tallywheel_headers ratelimit; try_files /page =404; }
    location ~ ^/text4/(.)$ { tallywheel_limit month "o-$1--$arg_n" 1000; tallywheel_headers ratelimit; try_files /page =404; }
    location = /text5 { tallywheel_limit month "o-7--5" $limit; tallywheel_headers ratelimit; try_files /page =404; }
    location /counted { tallywheel_count seen "m$arg_key" n=$status; try_files /page =404; }
    location /seen { tallywheel_limit seen "m$arg_key" 1000; tallywheel_headers ratelimit; try_files /page =404; }
    location = /metrics { tallywheel_metrics; }
}
"""


def limited() -> None:
    answers = [one.ask("/limited?key=1") for _ in range(5)]
    same([answer.status for answer in answers], [200] * 3 + [429] * 2)
    same([answer.getheader("RateLimit-Remaining") for answer in answers], ["2", "1", "0", "0", "0"])
    same({answer.getheader("RateLimit-Limit") for answer in answers}, {"3"})
    for answer in answers:
        assert 1 <= int(answer.getheader("RateLimit-Reset")) <= 31 * 86400
        same(answer.getheader("Retry-After") is not None, answer.status == 429, "Retry-After")


def units() -> None:
    same(statuses(one, "/units?n=4", 3), [200, 200, 503])
    same(statuses(one, "/units?n=2", 2), [200, 503])
    same(line_of("/units?n=2")[-1], "limit")
    same(statuses(one, "/units?n=11", 1), [503])
    same(line_of("/units?n=11")[-1], "never")
    same(statuses(one, "/units?n=bad", 1), [200])
    assert 'not a number: "three"' in one.errors()


def limit_by_variable() -> None:
    same(statuses(one, "/by?key=1", 4), [200, 200, 200, 429])
    same(statuses(one, "/by?key=2&max=one", 2), [200, 429])
    same(statuses(one, "/by?key=3&max=none", 9), [200] * 9)
    same(statuses(one, "/by?key=4&max=bad", 4), [200] * 4)


def keys() -> None:
    same(statuses(one, "/empty", 5), [200] * 5)
    long, other = "x" * 3000, "x" * 2999 + "y"
    same(statuses(one, "/empty?key=" + long, 2), [200, 429])
    same(statuses(one, "/empty?key=" + other, 2), [200, 429])


def circle() -> None:
    same(statuses(one, "/circle", 2), [200, 200])
    wait_until("the log names the circle", lambda: 'cycle while evaluating variable "' in one.errors())


def texts() -> None:
    """The same text in all ways to write it: each request finds the units of the others."""
    asked = ["/text1?key=7&n=5", "/text2?key=7&n=5", "/text3?key=7&n=5", "/text4/7?n=5", "/text5"]
    answers = [one.ask(path) for path in asked]
    same([answer.status for answer in answers], [200] * 5)
    same([answer.getheader("RateLimit-Remaining") for answer in answers], ["999", "998", "997", "996", "995"])
    same({answer.getheader("RateLimit-Limit") for answer in answers}, {"1000"})


def both() -> None:
    same(statuses(one, "/both?key=1", 3), [200, 200, 403])
    # the third request took nothing of the month: three of five are left, and the log shows it
    same(line_of("/both?key=1")[1:6], ["403", "denied", "day", "2", "2"])
    same(metric('tallywheel_family_limit_denied_total{family="day",cause="limit",engine="1"}') >= 1, True)


def line_of(request: str) -> list:
    """The log's line of the one request that was answered in its own location. It is written after the answer, and two
    workers write in any order: "the last line" may be another's."""
    found = []

    def is_there() -> bool:
        found[:] = [line.split() for line in one.access() if line.startswith(request + " ")]
        return bool(found)

    wait_until("a line in the log", is_there)
    same(len(found), 1)
    return found[0]


def metric(name: str) -> float:
    page = one.ask("/metrics")
    same(page.status, 200)
    for line in page.text.splitlines():
        if line.startswith(name):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(name + " is not on the page")


def refunds() -> None:
    # One connection: a unit returns when nginx logs its request. The worker reads the next one after that.
    client = one.client()
    found = [client.ask("/refund?key=1&file=" + file).status for file in ["/nothing"] * 9 + ["/page"] * 3]
    client.close()
    same(found, [404] * 9 + [200, 200, 429])


def refund_of_before() -> None:
    """Two limits are taken in a window. The one whose window ends has more units left, so the verdict is that of the other
    one. The request fails in the next window, in which another one has taken a unit: that one stays taken."""
    shop = socket.socket(socket.AF_UNIX)
    shop.bind(rig.folder + "/slow-shop")
    os.chmod(rig.folder + "/slow-shop", 0o777)
    shop.listen(8)
    shop.settimeout(60)
    server = serve("before", f"""tallywheel_zone short window=4s; tallywheel_zone long window=month;
server {{ LISTEN
    location = /slow {{ tallywheel_limit short "r" 1000 refund=502; tallywheel_limit long "r" 900 refund=502;
        proxy_pass http://unix:{rig.folder}/slow-shop; }}
    location = /page {{ tallywheel_limit short "r" 1000; tallywheel_headers ratelimit; }} }}""")

    def left() -> str:
        return server.ask("/page").getheader("RateLimit-Remaining")

    def next_window() -> int:
        """Waits until one has begun, and returns its number. Engine time may be 20 ms late."""
        now = time.time() // 4
        wait_until("the next window", lambda: time.time() // 4 > now and 0.1 < time.time() % 4 < 2)
        return int(time.time() // 4)

    def one_try() -> bool:
        first = server.client()
        next_window()
        first.request("GET", "/slow")
        call, _ = shop.accept()
        window = next_window()
        before = left()
        call.close()
        same(first.getresponse().status, 502)
        first.close()
        after = left()
        is_one = time.time() // 4 == window  # otherwise the machine is slow
        if is_one:
            same((before, after), ("999", "998"), "what is left")
        return is_one

    wait_until("a window is long enough", one_try)
    end(server)


def trial() -> None:
    answers = [one.ask("/trial") for _ in range(4)]
    same([answer.status for answer in answers], [200] * 4)
    wait_until("four lines", lambda: len([line for line in one.access() if line.startswith("/page") and "watched" in line]) == 4)
    lines = [line.split() for line in one.access() if " watched " in line]
    same(sorted(line[8] for line in lines), ["denied"] * 2 + ["ok"] * 2)  # two workers write the log
    same({line[2] for line in lines}, {"ok"})


def even() -> None:
    same(statuses(one, "/even", 4), [200, 200, 429, 429])


def inside() -> None:
    same(statuses(one, "/inside?key=1", 4), [200] * 4)  # the denied ones are served by the page of the error
    same(metric('tallywheel_family_limit_denied_total{family="month",cause="limit",engine="1"}') >= 2, True)


def redirected() -> None:
    same(statuses(one, "/redirected?key=1", 3), [200, 200, 429])  # decided once, in the first location


def auth() -> None:
    same(statuses(one, "/auth?key=1", 3), [200, 200, 429])  # the subrequest is not limited


def parts() -> None:
    with open(one.home + "/www/parts.html", "w", encoding="utf-8") as file:
        file.write('<!--# include virtual="/by?key=parts&max=one" -->' * 3)
    client = one.client()
    same([client.ask("/parts?key=1").text for _ in range(2)], ["page\n" * 3] * 2)
    same(client.ask("/parts?key=1").status, 429)
    client.close()
    same(statuses(one, "/by?key=parts&max=one", 2), [200, 429], "units of the parts")


def levels() -> None:
    same(statuses(one, "/level/own?key=1", 2), [200, 429])
    same(statuses(one, "/level/same?key=1", 3), [200, 200, 429])


def counted() -> None:
    same(statuses(one, "/counted?key=1", 2), [200, 200])
    asked = []

    def is_counted() -> bool:
        asked.append(int(one.ask("/seen?key=1").getheader("RateLimit-Remaining")))
        return asked[-1] <= 600

    wait_until("400 are counted", is_counted)
    same(asked[-1], 1000 - 400 - len(asked))


def metrics() -> None:
    page = one.ask("/metrics")
    same(page.getheader("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")
    lines = page.text.splitlines()
    same(len(lines) == len(set(lines)), True, "each line is there once")
    open_metrics = one.ask("/metrics", {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
    same(open_metrics.getheader("Content-Type"), "application/openmetrics-text; version=1.0.0; charset=utf-8")
    same(open_metrics.text.endswith("# EOF\n"), True)


def http2() -> None:
    if "HTTP2" not in subprocess.run(["curl", "-V"], capture_output=True, text=True, check=False).stdout:
        return
    server = Nginx("http2", "")
    server.write(f"""tallywheel_zone minute window=1m;
server {{ listen unix:{server.socket} http2; location / {{ tallywheel_limit minute a 3; tallywheel_headers ratelimit; }} }}""")
    server.start()
    out = subprocess.run(["curl", "-s", "--http2-prior-knowledge", "--unix-socket", server.socket, "-o", "/dev/null", "-w",
        "%{http_code} %{header_json}\n"] + ["http://test/page"] * 1, capture_output=True, text=True, check=False).stdout
    same(out.split()[0], "200")
    same('"ratelimit-remaining":["2"]' in out, True, out)
    server.stop()
    server.must_be_clean()


# ---- words that nginx -t refuses ------------------------------------------------------------------------------------

WRONG = [
    ("tallywheel_zone a window=1y1x;", 'invalid parameter "window=1y1x" of "tallywheel_zone": the window is a time, such as 10s, or day, week, month or forever'),
    ("tallywheel_zone a mode=fast;", 'invalid parameter "mode=fast" of "tallywheel_zone": the mode is soft, hard or strict'),
    ("tallywheel_zone a shape=round;", 'invalid parameter "shape=round" of "tallywheel_zone": the shape is fixed, sliding or gcra'),
    ("tallywheel_zone a outage=maybe;", 'invalid parameter "outage=maybe" of "tallywheel_zone": the outage is local, open, closed or share'),
    ("tallywheel_zone a grace=2d;", 'invalid parameter "grace=2d" of "tallywheel_zone": the grace is a time of at most 1d'),
    ("tallywheel_zone a keys=0;", 'invalid parameter "keys=0" of "tallywheel_zone": not a number above 0'),
    ("tallywheel_zone a burst=-1;", 'invalid parameter "burst=-1" of "tallywheel_zone": not a number'),
    ("tallywheel_zone a size=1m;", 'invalid parameter "size=1m" of "tallywheel_zone": the parameters are window=, mode=, shape=, burst=, outage=, grace=, keys=, memory=, full=, redis_key= and shadow'),
    ("tallywheel_zone a; tallywheel_zone a;", 'tallywheel_zone "a" is already in nginx.conf:12'),
    ("tallywheel_zone a window=1500ms;", 'tallywheel_zone "a": window: 1500 is not a multiple of 1000'),
    ("tallywheel_zone a/b;", 'tallywheel_zone "a/b": name: '),
    ("tallywheel_zone a burst=3;", 'tallywheel_zone "a": burst: '),
    ("tallywheel_zone a redis_key=fixed;", 'tallywheel_zone "a": redis_key: '),
    ("tallywheel_memory 1k; tallywheel_zone a;", "tallywheel: tallywheel_memory: 1024 is less than 1 MiB"),
    ("tallywheel_memory many;", '"tallywheel_memory" directive invalid value'),
    ("tallywheel_redis http://x; tallywheel_zone a;", "tallywheel: URL: must begin with redis:// or unix://"),
    ("tallywheel_redis redis://x again=1; tallywheel_zone a;", 'invalid parameter "again=1" of "tallywheel_redis": the parameters are prefix=, '),
    ("tallywheel_redis redis://x timeout=soon;", 'invalid parameter "timeout=soon" of "tallywheel_redis": not a time, such as 100ms'),
    ("tallywheel_redis redis://x; tallywheel_redis redis://x;", '"tallywheel_redis" directive is duplicate'),
    ("tallywheel_redis redis://x password_file=/nothing; tallywheel_zone a;", 'tallywheel: cannot read "/nothing"'),
    ("tallywheel_redis redis://x; tallywheel_zone a shape=gcra;", 'tallywheel_zone "a": shape: with Redis, shape=gcra needs mode=strict: '),
    ("tallywheel_redis redis://x; tallywheel_zone a shape=sliding mode=hard;", 'tallywheel_zone "a": shape: mode=hard allows only shape=fixed'),
    ("tallywheel_redis redis://x interval=1h; tallywheel_zone a;", "tallywheel: interval: 3600000 is not in 1..60000"),
    ("tallywheel_redis rediss://x ca=/nothing; tallywheel_zone a;", "tallywheel: ca: No such file or directory"),
    ("tallywheel_limit a $uri 3;", 'no tallywheel_zone has the name "a"'),
    ("tallywheel_zone a; tallywheel_limit a $uri;", '"tallywheel_limit" directive needs a zone, a key and a limit'),
    ("tallywheel_zone a; tallywheel_limit a $uri three;", 'invalid parameter "three" of "tallywheel_limit": the limit is a number, a variable or off'),
    ("tallywheel_zone a; tallywheel_limit a $uri 3 status=200;", 'invalid parameter "status=200" of "tallywheel_limit": the status is a number from 400 to 599'),
    ("tallywheel_zone a; tallywheel_limit a $uri 3 outage_status=600;", 'invalid parameter "outage_status=600" of "tallywheel_limit": the status is a number from 400 to 599'),
    ("tallywheel_zone a; tallywheel_limit a $uri 3 wait=1h;", 'invalid parameter "wait=1h" of "tallywheel_limit": the wait is a time of at most 10m, such as 200ms'),
    ("tallywheel_zone a; tallywheel_limit a $uri 3 refund=5x;", 'invalid parameter "refund=5x" of "tallywheel_limit": the refund is a list of statuses, such as 5xx,404'),
    ("tallywheel_zone a; tallywheel_limit a $uri 3 burst=5;", 'invalid parameter "burst=5" of "tallywheel_limit": the parameters are n=, status=, outage_status=, wait=, queue=, refund= and invalid='),
    ("tallywheel_zone a shape=gcra; tallywheel_limit a $uri 3 refund=502;", 'tallywheel_zone "a": the shape gcra takes no refund'),
    ("tallywheel_zone a; tallywheel_hold a $uri 3;", 'tallywheel_zone "a": window: tallywheel_hold is for window=forever zones'),
    ("tallywheel_zone a window=forever shadow; tallywheel_hold a $uri 3;", 'tallywheel_zone "a": shadow: tallywheel_hold is not for zones in shadow mode'),
    ("tallywheel_zone a window=forever; tallywheel_hold a $uri 3 n=2;", 'invalid parameter "n=2" of "tallywheel_hold": the parameters are status=, outage_status= and invalid='),
    ("tallywheel_zone a; tallywheel_count a $uri status=500;", 'invalid parameter "status=500" of "tallywheel_count": the only parameter is n='),
    ("tallywheel_zone a; tallywheel_headers all;", 'invalid value "all"'),
    ("tallywheel_zone a; tallywheel_log_level debug;", 'invalid value "debug"'),
]


def refused(words: str, wanted: str) -> None:
    server = Nginx("refused", words)
    said = server.check()
    Nginx.all.remove(server)
    line = next((line for line in said.splitlines() if wanted in line), "")
    if not re.search(r" in nginx\.conf:12(?: \(.*\))?$", line):
        raise AssertionError(f"{words}\n{said}")


def all_refused() -> None:
    for words, wanted in WRONG:
        refused(words, wanted)
    server = Nginx("accepted", "tallywheel_redis redis://nowhere.invalid; tallywheel_zone a mode=strict; tallywheel_limit a $uri 3;")
    same(server.check().count("warn"), 0)
    server.write("tallywheel_redis redis+cluster://nowhere.invalid; tallywheel_zone a mode=strict; tallywheel_limit a $uri 3;")
    same("each of the 2 workers has an engine of its own, and Redis adds up their counts" in server.check(), True)
    said = server.check()  # whether Redis answers is not asked
    Nginx.all.remove(server)
    same("test is successful" in said, True, said)


# ---- the configurations of the page ---------------------------------------------------------------------------------


def example(name: str) -> Nginx:
    with open(f"{sources}/examples/nginx/{name}.conf", encoding="utf-8") as file:
        text = file.read()
    server = Nginx(name, "")
    text = text.replace("listen 80;", f"listen unix:{server.socket};")
    # Redis decides each request, also on a machine that is so busy that a reply takes seconds.
    text = text.replace("redis://127.0.0.1", redis.url + " timeout=30s").replace("127.0.0.1:8080", f"unix:{server.home}/shop")
    text = text.replace("/var/log/nginx", server.home)
    for place in ("api", "files", "login"):
        os.makedirs(f"{server.home}/www/{place}", exist_ok=True)
        shutil.copy(server.home + "/www/page", f"{server.home}/www/{place}/page")
    server.write(text + f"server {{ listen unix:{server.home}/shop; location / {{ try_files /page =404; }} location = /buy {{ if ($arg_fail) {{ return 502; }} try_files /page =404; }} }}")
    return server.start()


def end(server: Nginx) -> None:
    server.stop()
    server.must_be_clean()


def rate_limit() -> None:
    server = example("1_rate_limit")
    wait_until("a minute has begun", lambda: 1 < time.time() % 60 < 30)  # its windows are minutes; engine time may be 20 ms late
    load = Load(server, "/page", clients=8, most=100)
    same(load.wait().get(200), 600)
    end(server)


def flash_sale() -> None:
    server = example("2_flash_sale")
    load = Load(server, lambda number, asked: "/buy?sku=7" + ("&fail=1" if asked % 10 == 3 else ""), clients=8, most=80)
    found = load.wait()
    server.stop()
    same(load.failures, [])
    same(redis.total("stock:*"), found.get(200), "sold in Redis")
    same(found.get(200) <= 500 and found.get(502, 0) > 0, True, str(found))
    server.start()
    left = Load(server, "/buy?sku=7", clients=4, most=60).wait()
    same(found.get(200) + left.get(200, 0), 500, "sold to the last piece")
    same(set(left) <= {200, 410}, True, str(left))
    end(server)


def quota() -> None:
    server = example("3_quota")
    found = Load(server, "/api/page", clients=4, most=5).wait()  # without a key there is no limit
    same(found, {200: 20})
    client = server.client()
    same([client.ask("/api/page", {"X-Api-Key": "intern"}).status for _ in range(3)], [200] * 3)
    same([client.ask("/api/page", {"X-Api-Key": "gold"}).getheader("RateLimit-Remaining") for _ in range(2)], ["99999", "99998"])
    same(client.ask("/api/page", {"X-Api-Key": "mine"}).getheader("RateLimit-Limit"), "1000")
    same(redis.total("quota:gold:*"), 2)
    end(server)


def shadow() -> None:
    server = example("4_shadow")
    same(statuses(server, "/login/page", 8), [200] * 8)
    wait_until("eight lines", lambda: os.path.exists(server.home + "/trial.log") and len(open(server.home + "/trial.log", encoding="utf-8").readlines()) == 8)
    with open(server.home + "/trial.log", encoding="utf-8") as file:
        lines = [line.split() for line in file]
    same(sorted(line[1] for line in lines), ["denied"] * 3 + ["ok"] * 5)
    end(server)


def counts() -> None:
    server = example("5_counts")
    same(statuses(server, "/page?a", 3) + statuses(server, "/none", 1), [200] * 3 + [404])
    server.stop()
    day = time.strftime("%Y%m%d", time.gmtime())
    same(redis.ask("GET", f"hits:{day}:test/page"), "3")
    same(redis.ask("GET", f"hits:{day}:test/none"), "1")
    same(int(redis.ask("GET", redis.ask("--scan", "--pattern", "bytes:test*"))) > 500, True)
    server.must_be_clean()


def connections() -> None:
    server = example("6_connections")
    with open(server.home + "/www/files/large", "wb") as file:
        file.truncate(64 << 20)
    clients = [server.client() for _ in range(3)]
    for client in clients:  # they do not read, so they hold their slots
        client.request("GET", "/files/large")
        same(client.getresponse().status, 200)
    same(server.ask("/files/page").status, 503)
    clients[0].close()
    wait_until("the slot is free", lambda: server.ask("/files/page").status == 200)
    for client in clients:
        client.close()
    wait_until("all slots are free", lambda: statuses(server, "/files/page", 4) == [200] * 4)
    end(server)


def trial_without_answer() -> None:
    """A zone in shadow mode that has no answer comes after two limits that have taken units. The library refuses its key:
    its name in Redis would be "tw:t", and the library keeps such names for itself."""
    server = serve("trial", f"""tallywheel_redis {redis.url} interval=20ms;
tallywheel_zone first window=month; tallywheel_zone second window=month; tallywheel_zone watched window=forever redis_key=t%k shadow;
log_format tw '$status $tallywheel_status'; access_log {rig.folder}/trial.log tw;
server {{ LISTEN location / {{ tallywheel_limit first "t" 1000000; tallywheel_limit second "t" 1000000; tallywheel_limit watched "w:t" 5; }} }}""")
    found = statuses(server, "/page", 4)
    server.stop()
    admitted = found.count(200)
    same([redis.total("first:t:*"), redis.total("second:t:*")], [admitted] * 2, f"units in Redis after {found}")
    same(found, [200] * 4, "nobody is denied in shadow mode")
    same(rig.read(rig.folder + "/trial.log").splitlines(), ["200 error"] * 4)
    same('tallywheel_zone "watched": TW_ERR_KEY' in server.errors(), True, "the log has the reason")
    server.must_be_clean()


one = Nginx("one", "")
one.write(ONE.replace("LISTEN", f"listen unix:{one.socket};").replace("ACCESS", one.home + "/access.log"))
one.start()
run("a limit admits as many as it says, and headers show the rest", limited)
run("a request may cost several units, by a variable", units)
run("the limit may come from a variable, be off, or be no number, which is no limit and is logged", limit_by_variable)
run("an empty key is not limited, and a key that is too long is one all the same", keys)
run("a variable that needs itself is nothing, and is logged", circle)
run("a text with variables has the same value however it is written", texts)
run("of several limits each request takes all or none", both)
run("units return after the answers that refund= names", refunds)
run("units do not return to a later window", refund_of_before)
run("shadow mode denies nobody and shows who would be", trial)
run("a bucket that empties evenly admits its burst", even)
run("a request that was denied is not asked again on its way to the error page", inside)
run("an internal redirect costs nothing", redirected)
run("a subrequest is not limited", auth)
run("the parts of a page are not limited", parts)
run("a location with rules of its own inherits none", levels)
run("tallywheel_count counts when the answer is known", counted)
run("metrics come in both formats", metrics)
one.stop()
run("nothing unexpected is in the log", one.must_be_clean)
run("HTTP/2 has the same limits and headers", http2)
run("nginx -t names file, line and reason of each wrong word", all_refused)
if shutil.which("redis-server"):
    redis = Redis().start()
    run("example: a rate limit by address", rate_limit)
    run("example: a flash sale sells its stock to the piece, and what failed is sold again", flash_sale)
    run("example: a quota by key", quota)
    run("example: shadow first", shadow)
    run("example: counting only", counts)
    run("example: connections in use", connections)
    run("a zone in shadow mode that has no answer denies nobody, and no unit is lost", trial_without_answer)
rig.tap.end(plans=True)
