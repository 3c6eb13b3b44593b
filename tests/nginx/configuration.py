#!/usr/bin/env python3
"""configuration.py MODULE SOURCES -- what nginx -t says of a wrong configuration, and what a right one means: networks as keys, n=
and LIMIT by variables, off, refunds by the first answer, looks (TAP).

Method: nginx -t with one configuration for each sentence, and a real nginx for what requests see. A Redis is a real one, or a
socket that notes who comes.
Covers: nginx/answers.c, nginx/directives.c, nginx/engine.c, nginx/open.c, nginx/mistakes.c, nginx/network.c,
nginx/ngx_http_tallywheel_module.c, nginx/request.c, nginx/show.c, nginx/values.c.
"""
import ipaddress
import os
import random
import re
import resource
import socket
import subprocess
import sys

sys.dont_write_bytecode = True
import rig
from rig import Nginx, Redis, run, same, wait_until

sources = rig.begin(sys.argv)


def serve(name: str, http_block: str, **more) -> Nginx:
    server = Nginx(name, "", **more)
    server.write(http_block.replace("LISTEN", f"listen unix:{server.socket};").replace("FOLDER", server.home))
    return server.start()


def check(http_block: str) -> str:
    """What nginx -t says. The first line of the block is line 9 of nginx.conf."""
    server = Nginx("checked", http_block.replace("LISTEN", f"listen unix:{rig.folder}/none;"))
    Nginx.all.remove(server)
    return server.check()


def must_say(http_block: str, level: str, *sentences: str) -> None:
    """One line of that level for each sentence, and no other; nginx takes the block if these are warnings."""
    said = check(http_block)
    found = [line for line in said.splitlines() if re.search(r"\[(emerg|warn|alert|crit|error|notice)\]", line)]
    same(len(found), len(sentences), f"the lines of {said!r} for {http_block!r}")
    for line, sentence in zip(found, sentences):
        if f"[{level}]" not in line or sentence not in line or "nginx.conf:" not in line:
            raise AssertionError(f"{line!r} is no {level} with {sentence!r} and a place")
    same("test is successful" in said, level == "warn", f"{http_block!r}: {said!r}: accepted")


def must_be_quiet(http_block: str) -> None:
    """But for the line that a cluster has one engine for each worker."""
    said = "".join(line + "\n" for line in check(http_block).splitlines() if "each of the 2 workers has an engine of its own" not in line)
    if "test is successful" not in said or len(said.splitlines()) != 2:
        raise AssertionError(f"{http_block!r}: {said}")


def statuses(server: Nginx, path: str, count: int, headers=None) -> list:
    client = server.client()
    found = [client.ask(path, headers).status for _ in range(count)]
    client.close()
    return found


# ---- what is refused --------------------------------------------------------------------------------------------------

ZONES = "tallywheel_zone a window=day; tallywheel_zone rate window=1h shape=gcra mode=strict burst=3; tallywheel_zone slots window=forever; tallywheel_zone hard window=day mode=hard; tallywheel_zone trial window=day shadow;"


def rules(text: str, more: str = "") -> str:
    return f"{more} {ZONES} server {{ LISTEN {text} }}"


def swapped() -> None:
    for limit in ("$remote_addr", "$binary_remote_addr", "${remote_addr}", "$uri", "$request_uri", "'x$arg_a'", "$arg_a:$arg_b", "$arg_a$remote_addr",
                  "net($remote_addr,24,64)"):
        for kind in ("tallywheel_limit", "tallywheel_hold"):
            must_say(rules(f"{kind} a 100 {limit};"), "emerg", "comes behind the key")
    must_say(rules("tallywheel_limit a $remote_addr all;"), "emerg", "comes behind the key")
    must_say(rules("tallywheel_limit a $remote_addr 5 n=$uri;"), "emerg", "it can never be a number")
    for limit in ("$limit", "${limit}0", "1$limit", "$a$b", "off", "100"):
        must_be_quiet("map $uri $limit { default 5; } map $uri $a { default 5; } map $uri $b { default 5; } " + rules(f"tallywheel_limit a $remote_addr {limit};"))


def urls() -> None:
    for url in ("nonsense", "127.0.0.1:6379", "redis://", "http://127.0.0.1", "redis://host:99999", "unix:", "redis+cluster://", "redis+sentinel://host"):
        for text in (rules("tallywheel_limit a $uri 5;"), "server { LISTEN }"):
            must_say(f"tallywheel_redis {url}; " + text, "emerg", "URL: ")
    for url in ("redis://127.0.0.1:1", "unix:///none", "redis+sentinel://127.0.0.1:1/master", "redis+cluster://127.0.0.1:1"):
        must_be_quiet(f"tallywheel_redis {url}; server {{ LISTEN }}")


def networks_refused() -> None:
    for key in ("net($remote_addr)", "net($remote_addr,24)", "net($remote_addr,33,64)", "net($remote_addr,24,129)", "net($remote_addr,-1,64)", "net(,24,64)",
                "net($remote_addr,24,64", "net($remote_addr,24,64)x", "'net($remote_addr, 24, 64)'", "net($remote_addr,,)"):
        must_say(rules(f"tallywheel_limit a {key} 5;"), "emerg", "net($remote_addr,24,64)")
    must_say(rules("tallywheel_limit a net($binary_remote_addr,24,64) 5;"), "emerg", "text of an address")
    must_be_quiet(rules("tallywheel_limit a net($remote_addr,24,64) 5; tallywheel_count a net($http_x,0,128);"))


def off_refused() -> None:
    for kind, rule in (("limit", "tallywheel_limit a x 5;"), ("hold", "tallywheel_hold a x 5;"), ("count", "tallywheel_count a x;")):
        must_say(rules(f"tallywheel_{kind} off; {rule}"), "emerg", "is off, and has a rule")
        must_say(rules(f"{rule} tallywheel_{kind} off;"), "emerg", "is off, and has a rule")
        must_say(rules(f"tallywheel_{kind} off; tallywheel_{kind} off;"), "emerg", "is duplicate")
        must_say(rules(f"tallywheel_{kind} a;"), "emerg", "or off")
    must_say(rules("tallywheel_limit a x;"), "emerg", "needs a zone, a key and a limit")
    must_say(rules("tallywheel_limit a x 5 invalid=maybe;"), "emerg", "deny or admit")


# ---- what is a warning ------------------------------------------------------------------------------------------------


def twins() -> None:
    twice = "so each request counts twice"
    must_say(rules("tallywheel_limit a $uri 10; tallywheel_limit a $uri 10;"), "warn", twice)
    must_say(rules("tallywheel_limit a $uri 10; location / { tallywheel_limit a $host 5; tallywheel_limit a $host 7; }"), "warn", twice)
    must_say(rules("tallywheel_limit a net($remote_addr,24,64) 10; tallywheel_limit a net($remote_addr,24,64) 10;"), "warn", twice)
    must_say(rules("tallywheel_count a $uri; tallywheel_count a $uri;"), "warn", twice)
    must_be_quiet(rules("tallywheel_limit a $uri 10; tallywheel_limit a $uri 10 n=0; tallywheel_limit a $host 10; tallywheel_limit rate $uri 10;"))
    must_be_quiet(rules("tallywheel_limit a $uri 10; location / { tallywheel_limit a $uri 10; }"))


def always() -> None:
    denies = "this limit denies every request"
    for rule in ("tallywheel_limit a x 0", "tallywheel_limit a x 3 n=4", "tallywheel_limit rate x 10 n=4", "tallywheel_hold slots x 0",
                 "tallywheel_limit a x 0 n=$content_length"):
        must_say(rules(rule + ";"), "warn", denies)
    for rule in ("tallywheel_limit a x 3 n=3", "tallywheel_limit rate x 10 n=3", "tallywheel_limit a x 0 n=0", "tallywheel_limit trial x 0",
                 "tallywheel_limit a x off"):
        must_be_quiet(rules(rule + ";"))


def hard() -> None:
    redis = "tallywheel_redis redis://127.0.0.1:1;"
    must_say(rules("tallywheel_limit hard x 5;", redis), "warn", "mode=hard without wait=")
    must_be_quiet(rules("tallywheel_limit hard x 5 wait=200ms; tallywheel_limit hard y 5 n=0; tallywheel_count hard z;", redis))
    must_be_quiet(rules("tallywheel_limit hard x 5;"))


def of_client() -> None:
    for n in ("$arg_n", "$http_x_units", "$cookie_n", "${arg_n}", "1$arg_n"):
        must_say(rules(f"tallywheel_limit a x 5 n={n};"), "warn", "a client chooses its n=")
    must_say(rules("tallywheel_count a x n=$arg_n;"), "warn", "a client chooses its n=")
    must_say(rules("tallywheel_limit a x $http_x_limit;"), "warn", "a client chooses its limit")
    must_be_quiet("map $arg_n $amount { default 1; 2 2; } " + rules("tallywheel_limit a $arg_key 5 n=$amount; tallywheel_count a $cookie_c n=$bytes_sent;"))


# ---- what nginx -t does not do ----------------------------------------------------------------------------------------


def asks_nobody() -> None:
    """A Redis that is there notes who comes. Where there is none, nothing is said of it. nginx -t ends when it has answered, so whoever
    came is in the queue of the socket then."""
    path = rig.folder + "/noted"
    with socket.socket(socket.AF_UNIX) as noted, socket.socket() as other:
        noted.bind(path)
        os.chmod(path, 0o777)
        noted.listen(10)
        noted.setblocking(False)
        other.bind(("127.0.0.1", 0))
        other.listen(10)
        other.setblocking(False)
        port = other.getsockname()[1]
        for url in (f"unix://{path}", f"redis://127.0.0.1:{port}", f"redis+cluster://127.0.0.1:{port}", f"redis+sentinel://127.0.0.1:{port}/m", "redis://127.0.0.1:1",
                    "redis+cluster://127.0.0.1:1"):
            redis = f"tallywheel_redis {url};"
            must_be_quiet(rules("tallywheel_limit a x 5;", redis))
            must_be_quiet(rules("tallywheel_limit a x 5; tallywheel_hold slots y 5;", redis))
            must_say(redis + "tallywheel_zone a window=1500ms; server { LISTEN tallywheel_limit a x 5; }", "emerg", "is not a multiple of 1000")
            must_say(redis + "tallywheel_zone a window=forever redis_key=%x; server { LISTEN tallywheel_hold a x 5; }", "emerg", "redis_key")
            must_say(rules("tallywheel_hold a y 5;", redis), "emerg", "tallywheel_hold is for window=forever zones")
            must_be_quiet(redis + " server { LISTEN }")
        for listener in (noted, other):
            try:
                listener.accept()
                raise AssertionError("nginx -t came to Redis")
            except BlockingIOError:
                pass


def reserves_little() -> None:
    """With so much address space that an engine of 1 GB has no room."""
    server = Nginx("small", "tallywheel_memory 64m; tallywheel_redis unix:///none; " + rules("tallywheel_limit a x 5 wait=1s; tallywheel_hold slots y 5;").replace(
        "LISTEN", f"listen unix:{rig.folder}/none;"))
    Nginx.all.remove(server)
    most = 400 << 20
    out = subprocess.run([rig.NGINX, "-t", "-c", server.home + "/nginx.conf"], capture_output=True, text=True, check=False,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))
    same(out.returncode, 0, out.stderr)
    traced = subprocess.run(["strace", "-f", "-e", "trace=mmap", rig.NGINX, "-t", "-c", server.home + "/nginx.conf"], capture_output=True, text=True, check=False)
    sizes = [int(one) for one in re.findall(r"mmap\(NULL, (\d+), PROT_READ\|PROT_WRITE, MAP_(?:SHARED|PRIVATE)\|MAP_ANONYMOUS\|MAP_NORESERVE", traced.stderr)]
    assert sizes and max(sizes) <= 72 << 20, sizes  # an engine of 64 MB has tables of processes, too


# ---- what a configuration means ---------------------------------------------------------------------------------------

ONE = """
tallywheel_zone nets window=day; tallywheel_zone day window=day; tallywheel_zone other window=day; tallywheel_zone slots window=forever; tallywheel_zone trial window=day shadow;
set_real_ip_from unix:; real_ip_header X-Real-IP;
map $http_x_n $n { default $http_x_n; } map $http_x_limit $limit { default $http_x_limit; }
log_format tw '$request_uri $status $tallywheel_status $tallywheel_used';
server {
    LISTEN
    access_log FOLDER/access.log tw;
    location /net { tallywheel_limit nets net($remote_addr,24,64) 3; tallywheel_headers ratelimit; try_files /page =404; }
    location /text { tallywheel_limit nets net($http_x_text,24,64) 3; try_files /page =404; }
    location /seen { tallywheel_limit nets $arg_key 1000 n=0; add_header X-Used $tallywheel_used always; try_files /page =404; }
    location /n { tallywheel_limit day "n$arg_key" 5 n=$n; tallywheel_headers ratelimit; try_files /page =404; }
    location /deny { tallywheel_limit day "d$arg_key" 5 n=$n invalid=deny; tallywheel_limit other "d$arg_key" 5; tallywheel_headers ratelimit; try_files /page =404; }
    location /max { tallywheel_limit day "m$arg_key" $limit invalid=deny; try_files /page =404; }
    location /old { tallywheel_limit day "o$arg_key" $limit invalid=admit; try_files /page =404; }
    location /slots { tallywheel_hold slots x $limit invalid=deny; try_files /page =404; }
    location /trial { tallywheel_limit trial x $limit invalid=deny; try_files /page =404; }
    location /count { tallywheel_count nets "count" n=$n; try_files /page =404; }
    location /level { tallywheel_limit day level 1; tallywheel_hold slots level 0; tallywheel_count nets level;
        location /level/off { tallywheel_limit off; tallywheel_hold off; tallywheel_count off; try_files /page =404; location /level/off/deep { try_files /page =404; } }
        location /level/half { tallywheel_hold off; try_files /page =404; }
        try_files /page =404; }
}
"""


def of(address: str) -> dict:
    return {"X-Real-IP": address}


def networks() -> None:
    same([one.ask("/net", of(address)).status for address in ("10.1.2.3", "10.1.2.4", "::ffff:10.1.2.5", "10.1.2.6")], [200] * 3 + [429])
    same([one.ask("/net", of(f"2001:db8:1:2::{number:x}")).status for number in range(4)], [200] * 3 + [429])
    same(one.ask("/net", of("10.1.3.3")).status, 200)
    same(one.ask("/net", of("2001:db8:1:3::1")).status, 200)
    # A client of the unix socket has the address "unix:".
    same(statuses(one, "/net", 4), [200] * 3 + [429])
    same(one.ask("/net", of("no-address")).status, 429)
    same([one.ask("/text", {"X-Text": text}).status for text in ("bad", "1.2.3.4.5", "x" * 3000, "10.9.9.9")], [429] * 3 + [200])
    same(statuses(one, "/text", 9), [200] * 9)  # an empty text is no key
    for key, used in (("10.1.2.0/24", "3"), ("2001:db8:1:2::/64", "3"), ("no-address", "3")):
        same(one.ask("/seen?key=" + key).getheader("X-Used"), used, key)
    # against another implementation
    draw = random.Random(41)
    for _ in range(200):
        address = ipaddress.ip_address(draw.getrandbits(128) >> draw.choice((0, 64))) if draw.random() < 0.5 else ipaddress.ip_address(draw.getrandbits(32))
        network = ipaddress.ip_network(f"{address}/{24 if address.version == 4 else 64}", strict=False)
        before = int(one.ask(f"/seen?key={network}").getheader("X-Used"))
        one.ask("/text", {"X-Text": str(address)})
        same(int(one.ask(f"/seen?key={network}").getheader("X-Used")), min(before + 1, 3), f"{address} in {network}")


def no_numbers() -> None:
    same([one.ask("/n?key=1", {"X-N": n}).getheader("RateLimit-Remaining") for n in ("", "2", "0")], ["4", "2", "2"])
    for n in ("x", "-1", "1.5", "off", "99999999999999999999"):
        same(one.ask("/n?key=1", {"X-N": n}).status, 200, n)  # as before: the rule is not used
        answer = one.ask("/deny?key=1", {"X-N": n})
        same([answer.status, answer.getheader("RateLimit-Remaining"), answer.getheader("Retry-After")], [503, None, None], n)
    same(one.ask("/n?key=1").getheader("RateLimit-Remaining"), "1")
    same(statuses(one, "/deny?key=1", 6), [200] * 5 + [429])  # the denied requests have taken nothing, of neither limit
    for limit, found in (("2", 200), ("x", 503), ("-1", 503), ("off", 200), ("", 200), ("0", 429)):
        same(one.ask("/max?key=" + limit, {"X-Limit": limit}).status, found, limit)
    same(one.ask("/old", {"X-Limit": "x"}).status, 200)
    same([one.ask("/slots", {"X-Limit": limit}).status for limit in ("x", "1", "0")], [503, 200, 503])
    same(one.ask("/trial", {"X-Limit": "x"}).status, 200)  # a trial denies nobody
    assert 'not a number: "1.5", the rule in ' in one.errors() and "denies the request" in one.errors()
    wait_until("the log has the request", lambda: "/old 200 error -" in one.access() and "/max?key=x 503 error -" in one.access())
    for n in ("", "5", "0", "x"):
        one.ask("/count", {"X-N": n})
    wait_until("the counts are there", lambda: one.ask("/seen?key=count").getheader("X-Used") == "6")


def off() -> None:
    same(statuses(one, "/level/half", 2), [200, 429])
    same(statuses(one, "/level", 1), [429])
    same(statuses(one, "/level/off", 3), [200] * 3)
    same(statuses(one, "/level/off/deep", 3), [200] * 3)
    wait_until("the counts are there", lambda: one.ask("/seen?key=level").getheader("X-Used") == "3")  # none of off


# ---- refunds by the first answer --------------------------------------------------------------------------------------

TWO = """
tallywheel_zone day window=day;
map $uri $where { default /replaced; }
log_format tw '$request_uri $status $args';
server {
    listen unix:FOLDER/broken; access_log off;
    location / { return 502; }
    location /500 { return 500; }
    location /200 { return 200; }
}
server {
    LISTEN
    access_log FOLDER/access.log tw;
    error_page 500 =200 /replaced?of=server;
    location /replaced { try_files /page =404; }
    location /gone { return 503; }
    location @named { try_files /page =404; }
    location @again { rewrite ^ /500 break; proxy_pass http://unix:FOLDER/broken; }
    location /seen { tallywheel_limit day $arg_key 1000 n=0; add_header X-Used $tallywheel_used always; try_files /page =404; }
    location /plain { tallywheel_limit day plain 100 refund=502; proxy_pass http://unix:FOLDER/broken:/; }
    location /named { tallywheel_limit day named 100 refund=502; error_page 502 = @named; proxy_pass http://unix:FOLDER/none; }
    location /status { tallywheel_limit day status 100 refund=502; error_page 502 =200 /replaced; proxy_pass http://unix:FOLDER/none; }
    location /variable { tallywheel_limit day variable 100 refund=5xx; error_page 502 =200 $where?x=$status; proxy_pass http://unix:FOLDER/none; }
    location /intercepted { tallywheel_limit day intercepted 100 refund=502; proxy_intercept_errors on; error_page 502 =200 /replaced; proxy_pass http://unix:FOLDER/broken:/; }
    location /redirected { tallywheel_limit day redirected 100 refund=502; error_page 502 http://elsewhere/; proxy_pass http://unix:FOLDER/none; }
    location /inherited { tallywheel_limit day inherited 100 refund=500; proxy_intercept_errors on; proxy_pass http://unix:FOLDER/broken:/500; }
    location /missing { tallywheel_limit day missing 100 refund=404; error_page 404 =200 /replaced; try_files /nothing =404; }
    location /first { tallywheel_limit day first 100 refund=500; recursive_error_pages on; error_page 502 = @again; proxy_pass http://unix:FOLDER/none; }
    location /worse { tallywheel_limit day worse 100 refund=503; error_page 502 = /gone; proxy_pass http://unix:FOLDER/none; }
    location /good { tallywheel_limit day good 100 refund=502,404; error_page 502 404 =200 /replaced; proxy_pass http://unix:FOLDER/broken:/200; }
    location /denied { tallywheel_limit day denied 1 refund=429; error_page 429 =200 /replaced; try_files /page =404; }
}
"""


def refunds() -> None:
    """Each location is asked three times, and keeps so many units. What the client sees is what its error_page says. A unit
    returns after the client has its answer. nginx ends a connection with a 500, so the next request may meet another worker."""
    for name, status, kept in (("plain", 502, 0), ("named", 200, 0), ("status", 200, 0), ("variable", 200, 0), ("intercepted", 200, 0), ("redirected", 302, 0),
                               ("inherited", 200, 0), ("missing", 200, 0), ("first", 500, 3), ("worse", 503, 3), ("good", 200, 3)):
        client = two.client()
        same([client.ask("/" + name).status for _ in range(3)], [status] * 3, name)
        wait_until(f"{name} keeps {kept}", lambda: client.ask("/seen?key=" + name).getheader("X-Used") == str(kept))
        client.close()
    same(statuses(two, "/denied", 3), [200] * 3)
    same(two.ask("/seen?key=denied").getheader("X-Used"), "1")
    wait_until("the log has the requests", lambda: {"/inherited 200 of=server", "/variable 200 x=200"} <= set(two.access()))


# ---- the example ------------------------------------------------------------------------------------------------------


def example() -> None:
    """As it is, but for the address of the server, and for the window, which must not end in the test."""
    with open(f"{sources}/examples/nginx/7_networks.conf", encoding="utf-8") as file:
        text = file.read().replace("listen 80;", "LISTEN").replace("window=1m", "window=month")
    server = serve("networks", "set_real_ip_from unix:; real_ip_header X-Real-IP; " + text.replace("location / {", "location / { try_files /page =404;"))
    for listed, limited in (("192.0.2.9", "198.51.100.9"), ("2001:db8:77:1::9", "2001:db8:78:1::9"), ("::1", "::1:0:0:0:9"), ("127.0.0.1", "127.0.0.2")):
        same(statuses(server, "/page", 601, of(limited)), [200] * 600 + [429], limited)
        answer = server.ask("/page", of(str(ipaddress.ip_address(limited) + 1)))  # another address of that network
        same([answer.status, answer.getheader("RateLimit-Limit")], [429, "600"], limited)
        same(statuses(server, "/page", 610, of(listed)), [200] * 610, listed)
        same(server.ask("/page", of(listed)).getheader("RateLimit-Limit"), None, listed)
    server.stop()
    server.must_be_clean()


# ---- looks ------------------------------------------------------------------------------------------------------------

SHARED = """
tallywheel_redis URL;
tallywheel_zone soft window=month; tallywheel_zone hard window=month mode=hard; tallywheel_zone strict window=month mode=strict; tallywheel_zone slide window=30d shape=sliding;
server {
    LISTEN
    tallywheel_headers ratelimit; add_header X-Used "$tallywheel_used/$tallywheel_remaining" always;
    location ~ ^/count/(?<z>.*)$ { tallywheel_count soft $arg_key n=4; tallywheel_count hard $arg_key n=4; tallywheel_count strict $arg_key n=4; tallywheel_count slide $arg_key n=4;
        try_files /page =404; }
    location /soft { tallywheel_limit soft $arg_key 5 n=0; try_files /page =404; }
    location /hard { tallywheel_limit hard $arg_key 5 n=0; try_files /page =404; }
    location /strict { tallywheel_limit strict $arg_key 5 n=0; try_files /page =404; }
    location /slide { tallywheel_limit slide $arg_key 5 n=0; try_files /page =404; }
    location /both { tallywheel_limit soft $arg_key 5 n=0; tallywheel_limit soft $arg_other 100 n=0; try_files /page =404; }
}
"""


def looks(redis: Redis) -> None:
    """One nginx has counted. The other one looks until it knows, and shows nothing wrong before."""
    block = SHARED.replace("URL", redis.url)
    counter, looker = serve("counter", block), serve("looker", block)
    for key in ("x", "y"):
        counter.ask("/count/?key=" + key)
    wait_until("Redis has the counts", lambda: redis.total("*x:*") == 16 and redis.total("*y:*") == 16)
    for where in ("soft?key=x", "hard?key=x", "strict?key=x", "slide?key=x", "both?key=y&other=z"):

        def is_known() -> bool:
            answer = looker.ask("/" + where)
            same(answer.status, 200, where)
            if answer.getheader("X-Used") == "unknown/unknown":
                same([answer.getheader("RateLimit-Remaining"), answer.getheader("RateLimit-Limit")], [None, "5"], where)
                return False
            same([answer.getheader("X-Used"), answer.getheader("RateLimit-Remaining")], ["4/1", "1"], where)
            return True

        wait_until(f"{where} is known", is_known)
    same(looker.ask("/strict?key=never").getheader("X-Used"), "0/5")
    redis.pause()
    same(looker.ask("/soft?key=new").getheader("X-Used"), "unknown/unknown")
    redis.resume()
    wait_until("a key without counts is known", lambda: looker.ask("/soft?key=new").getheader("X-Used") == "0/5")
    for server in (counter, looker):
        server.stop()
        server.must_be_clean()


if __name__ == "__main__":
    run("KEY and LIMIT in the other order, and a LIMIT or n= that can never be a number, are refused", swapped)
    run("a Redis URL that is none is refused, with and without a zone", urls)
    run("a network that is none is refused", networks_refused)
    run("off beside a rule is refused", off_refused)
    run("the same rule twice is a warning", twins)
    run("a limit that always denies is a warning", always)
    run("mode=hard without wait= is a warning where Redis gives the units", hard)
    run("an n= or LIMIT that the client chooses is a warning", of_client)
    run("nginx -t asks nobody, and says nothing about Redis", asks_nobody)
    if rig.WRAPPER:
        rig.tap.skip("nginx -t reserves no more than tallywheel_memory", "a wrapper reserves memory of its own: run it without TW_WRAPPER")
    else:
        run("nginx -t reserves no more than tallywheel_memory", reserves_little)

    one = serve("one", ONE)
    run("a key by network: all spellings, IPv4 in IPv6, unix sockets and bad text", networks)
    run("invalid=deny and admit, an empty n is 1", no_numbers)
    run("off: a location has no rules of that kind", off)
    one.stop()
    one.must_be_clean()

    two = serve("two", TWO)
    run("refund= goes by the first answer, also through error_page", refunds)
    two.stop()
    two.must_be_clean(r"connect\(\) to unix:\S*/none failed")

    run("examples/nginx/7_networks.conf: networks are limited, those of the list never", example)
    run("n=0 shows what Redis has, or that it is unknown", looks, Redis().start())
    rig.tap.end(plans=True)
