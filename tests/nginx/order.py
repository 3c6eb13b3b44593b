#!/usr/bin/env python3
"""order.py MODULE SOURCES -- the rules come last in their phase: behind the address of the client, and behind what refuses
a request for other reasons, however the modules are loaded (TAP).

Method: a real nginx behind a proxy, which is the test: it names its client by a header or by the PROXY protocol. Each client
must have a limit of its own, and the access log and a server behind nginx must see the client. Debian's modules are loaded
before this one and after it.
Covers: nginx/request.c.
"""
import os
import socket
import sys

sys.dont_write_bytecode = True
import rig
from rig import Nginx, run, same, wait_until

sources = rig.begin(sys.argv)

CLIENTS = ("192.0.2.1", "192.0.2.2", "2001:db8::3")
REAL = "set_real_ip_from unix:; real_ip_header X-Real-IP;"
ZONES = """tallywheel_zone day window=day; tallywheel_zone seen window=day; tallywheel_zone slots window=forever;
log_format address '$request_uri $status $remote_addr'; log_format behind '$http_x_client';
limit_req_zone $arg_key zone=slow:1m rate=1r/m; limit_conn_zone $arg_key zone=used:1m;
"""
# The server behind: its log has what nginx says of the client.
BEHIND = "server { listen unix:HOME/behind; access_log HOME/behind.log behind; location / { root HOME/www; try_files /page =404; } }"
LIMITED = """tallywheel_limit day "$server_name $remote_addr" 2; tallywheel_count seen "$remote_addr";
    proxy_set_header X-Client $remote_addr; proxy_pass http://unix:HOME/behind;"""


class Server(Nginx):
    """Modules of Debian are loaded before the module or after it."""

    def __init__(self, name: str, http_block: str, before: str = "", after: str = "") -> None:
        self.before, self.after = before, after
        super().__init__(name, http_block)
        self.write(http_block)

    def write(self, http_block: str) -> None:
        super().write(ZONES + (http_block + BEHIND).replace("HOME", self.home).replace("LISTEN", f"listen unix:{self.socket}"))
        with open(self.home + "/nginx.conf", encoding="utf-8") as file:
            text = file.read()
        with open(self.home + "/nginx.conf", "w", encoding="utf-8") as file:
            file.write(self.before + text.replace(f"load_module {self.module};\n", f"load_module {self.module};\n{self.after}", 1))

    def addresses(self, uri: str) -> list:
        return [line.split()[2] for line in self.access() if line.startswith(uri + " ")]


def end(server: Nginx) -> None:
    server.stop()
    server.must_be_clean()


def ask_by_header(server: Nginx, client: str) -> int:
    return server.ask("/page", {"X-Real-IP": client}).status


def ask_by_protocol(server: Nginx, client: str) -> int:
    family = "TCP6" if ":" in client else "TCP4"
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(60)
        one.connect(server.socket)
        one.sendall(f"PROXY {family} {client} {client} 5 6\r\nGET /page HTTP/1.0\r\n\r\n".encode())
        return int(one.makefile("rb").readline().split()[1])


def must_know_clients(server: Nginx, ask) -> None:
    """Two of each client's three requests are served, and whoever sees an address sees the client's."""
    same({client: [ask(server, client) for _ in range(3)] for client in CLIENTS}, {client: [200, 200, 429] for client in CLIENTS})
    end(server)  # the logs are complete
    same(sorted(server.addresses("/page")), sorted(CLIENTS * 3), "the access log")
    same(sorted(rig.read(server.home + "/behind.log").split()), sorted(CLIENTS * 2), "the server behind")


def real_address(level: str) -> None:
    real = {place: REAL if place == level else "" for place in ("http", "server", "location")}
    must_know_clients(Server("real-" + level, f"""{real['http']} server {{ LISTEN; access_log HOME/access.log address; {real['server']}
        location / {{ {real['location']} {LIMITED} }} }}""").start(), ask_by_header)


def proxy_protocol(level: str) -> None:
    real = "set_real_ip_from unix:; real_ip_header proxy_protocol;"
    must_know_clients(Server("proxy-" + level, f"""server {{ LISTEN proxy_protocol; access_log HOME/access.log address;
        {real if level == 'server' else ''} location / {{ {real if level == 'location' else ''} {LIMITED} }} }}""").start(), ask_by_protocol)


def counts_and_slots() -> None:
    """tallywheel_count and tallywheel_hold have the client's address, too."""
    server = Server("counts", f"""server {{ LISTEN; {REAL.replace('set_real_ip_from unix:;', '')}
        location /page {{ set_real_ip_from unix:; tallywheel_count seen $remote_addr; }}
        location /seen {{ tallywheel_limit seen $arg_key 1000 n=0; tallywheel_headers ratelimit; try_files /page =404; }}
        location /use {{ set_real_ip_from unix:; tallywheel_hold slots $remote_addr 1; }} }}""")
    os.makedirs(server.home + "/www/use")
    with open(server.home + "/www/use/large", "wb") as file:
        file.truncate(64 << 20)
    server.start()
    for client in CLIENTS[:2]:
        same(server.ask("/page", {"X-Real-IP": client}).status, 200)

    def counted(key: str) -> int:
        return 1000 - int(server.ask("/seen?key=" + key).getheader("RateLimit-Remaining"))

    wait_until("each client has one", lambda: [counted(key) for key in (*CLIENTS, "unix:")] == [1, 1, 0, 0])
    clients = [server.client() for _ in CLIENTS]
    for one, client in zip(clients, CLIENTS):
        one.request("GET", "/use/large", headers={"X-Real-IP": client})
        same(one.getresponse().status, 200, "a connection of each client")
    same(server.ask("/use/none", {"X-Real-IP": CLIENTS[0]}).status, 503)
    for one in clients:
        one.close()
    end(server)


def refused_before() -> None:
    """What limit_req or limit_conn refuses takes no units."""
    server = Server("refused", """server { LISTEN;
        location /rate { limit_req zone=slow; limit_req_status 430; tallywheel_limit day "rate" 1000; try_files /page =404; }
        location /use { limit_conn used 1; limit_conn_status 431; tallywheel_limit day "used" 1000; }
        location /left { tallywheel_limit day $arg_name 1000 n=0; tallywheel_headers ratelimit; try_files /page =404; } }""")
    os.makedirs(server.home + "/www/use")
    with open(server.home + "/www/use/large", "wb") as file:
        file.truncate(64 << 20)
    server.start()

    def used(name: str) -> int:
        return 1000 - int(server.ask("/left?name=" + name).getheader("RateLimit-Remaining"))

    same([server.ask("/rate?key=1").status for _ in range(4)], [200, 430, 430, 430])
    same(used("rate"), 1)
    client = server.client()
    client.request("GET", "/use/large?key=1")
    same(client.getresponse().status, 200)
    same([server.ask("/use/none?key=1").status for _ in range(3)], [431] * 3)
    same(used("used"), 1)
    client.close()
    end(server)


# ---- with Debian's modules ------------------------------------------------------------------------------------------

TREE = os.environ.get("TW_NGINX_TREE", "") # where Debian's packages of another nginx are unpacked
FOLDER = TREE + "/usr/lib/nginx/modules"
LUA_PATH = f'lua_package_path "{TREE}/usr/share/lua/5.1/?.lua;;";' if TREE else ""
MODULES = ["ndk_http_module", "ngx_http_lua_module", "ngx_http_geoip2_module", "ngx_http_headers_more_filter_module", "ngx_http_echo_module"]
PACKAGES = "libnginx-mod-http-lua libnginx-mod-http-geoip2 libnginx-mod-http-headers-more-filter libnginx-mod-http-echo"
LOADED = "".join(f"load_module {FOLDER}/{name}.so;\n" for name in MODULES)


def write_database(path: str) -> None:
    """A database of GeoIP2 for IPv4: 192.0.2.1 and all before it are in XA, others above 128.0.0.0 are in XB."""

    def text(value: str) -> bytes:
        return bytes((0x40 | len(value),)) + value.encode()

    def number(value: int) -> bytes:
        return b"\xa2" + value.to_bytes(2, "big")

    def mapping(*pairs: bytes) -> bytes:
        return bytes((0xE0 | len(pairs) // 2,)) + b"".join(pairs)

    places = [mapping(text("code"), text(code)) for code in ("XA", "XB")]
    address = int.from_bytes(bytes((192, 0, 2, 1)), "big")
    data = [32 + 16, 32 + 16 + len(places[0])]
    nodes = []  # the way to 192.0.2.1: whoever leaves it to the left is in XA, to the right in XB
    for bit in range(31, -1, -1):
        ahead = len(nodes) + 1 if bit else data[0]
        nodes.append((data[0], ahead) if address >> bit & 1 else (ahead, data[1]))
    about = mapping(text("node_count"), b"\xc4" + (32).to_bytes(4, "big"), text("record_size"), number(24), text("ip_version"), number(4),
        text("database_type"), text("test"), text("languages"), b"\x00\x04", text("binary_format_major_version"), number(2),
        text("binary_format_minor_version"), number(0), text("build_epoch"), b"\x08\x02" + (1).to_bytes(8, "big"), text("description"),
        mapping())
    with open(path, "wb") as file:
        for left, right in nodes:
            file.write(left.to_bytes(3, "big") + right.to_bytes(3, "big"))
        file.write(bytes(16) + b"".join(places) + b"\xab\xcd\xefMaxMind.com" + about)


def beside(before: str, after: str) -> None:
    """Each of the modules has a part in a key, or in the answer of a limited request."""
    server = Server("beside-" + ("before" if before else "after"), f"""{LUA_PATH} geoip2 HOME/places.mmdb {{ $place source=$remote_addr code; }}
        server {{ LISTEN; access_log HOME/access.log address; {REAL.replace('set_real_ip_from unix:;', '')} set $by_lua "";
        location /page {{ set_real_ip_from unix:; {LIMITED} }}
        location /place {{ set_real_ip_from unix:; tallywheel_limit day "place $place" 2; try_files /page =404; }}
        location /lua {{ set_real_ip_from unix:; rewrite_by_lua_block {{ ngx.var.by_lua = "lua " .. ngx.var.arg_key; }}
            tallywheel_limit day "$by_lua $remote_addr" 2; tallywheel_headers ratelimit; content_by_lua_block {{ ngx.print(ngx.var.remote_addr); }} }}
        location /refused {{ access_by_lua_block {{ ngx.exit(403); }} tallywheel_limit day "refused" 2; try_files /page =404; }}
        location /echo {{ set_real_ip_from unix:; tallywheel_limit day "echo $remote_addr" 2; echo -n $remote_addr; }}
        location /more {{ more_set_input_headers "X-Key: more"; more_clear_headers RateLimit-Reset; tallywheel_limit day $http_x_key 2;
            tallywheel_headers ratelimit; try_files /page =404; }} }}""", before, after)
    write_database(server.home + "/places.mmdb")
    server.start()
    ask = lambda path, client: server.ask(path, {"X-Real-IP": client})  # noqa: E731
    first, second = CLIENTS[:2]
    same([ask("/place", client).status for client in (first, first, first, second, second, second)], [200, 200, 429] * 2, "by geoip2")
    for path in ("/lua?key=1", "/echo"):
        for client in (first, second):
            answers = [ask(path, client) for _ in range(3)]
            same([answer.status for answer in answers], [200, 200, 429], path)
            same([answer.text for answer in answers[:2]], [client] * 2, path)
    same(ask("/lua?key=2", first).getheader("RateLimit-Remaining"), "1")
    answers = [server.ask("/more") for _ in range(3)]
    same([answer.status for answer in answers], [200, 200, 429])
    same([(answer.getheader("RateLimit-Remaining"), answer.getheader("RateLimit-Reset")) for answer in answers],
        [("1", None), ("0", None), ("0", None)])
    same([server.ask("/refused").status for _ in range(4)], [403, 403, 429, 429], "access rules come after limits")
    must_know_clients(server, ask_by_header)


for where in ("http", "server", "location"):
    run(f"behind a proxy each client has a limit of its own, set_real_ip_from in {where}", real_address, where)
for where in ("server", "location"):
    run(f"behind a proxy that speaks the PROXY protocol, too, set_real_ip_from in {where}", proxy_protocol, where)
run("counts and slots are each client's own, too", counts_and_slots)
run("what limit_req and limit_conn refuse takes no units", refused_before)
for order, words in (("before", (LOADED, "")), ("after", ("", LOADED))):
    sentence = f"beside geoip2, headers-more, Lua and echo, loaded {order} this module"
    if all(os.path.exists(f"{FOLDER}/{name}.so") for name in MODULES):
        run(sentence, beside, *words)
    else:
        rig.tap.skip(sentence, "modules of Debian: apt-get install " + PACKAGES)
rig.tap.end(plans=True)
