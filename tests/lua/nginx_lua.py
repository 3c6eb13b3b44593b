"""nginx_lua.py ROOT LIBRARY -- bindings/lua in a real nginx with Debian's Lua module (TAP).

Method: the master opens the engine, two workers share it. Clients ask for more than the limit says, sell a stock and count,
while a worker is killed and while nginx reloads. Each answer is counted by the clients.
"""
import os
import pathlib
import re
import signal
import sys

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../nginx")
import rig
from rig import Load, Nginx, run, same, tap, wait_until

root, library = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
modules = [f"/usr/lib/nginx/modules/{name}_module.so" for name in ("ndk_http", "ngx_http_lua")]
if not all(os.path.exists(path) for path in [rig.NGINX, *modules]):
    tap.skip_all("nginx with Lua is not installed: apt-get install nginx libnginx-mod-http-lua")
Nginx.module = modules[0] + f"; load_module {modules[1]}; env TALLYWHEEL_LIBRARY"
os.environ["TALLYWHEEL_LIBRARY"] = library


def block(server: Nginx) -> str:
    return f"""lua_package_path '{root}/bindings/lua/?.lua;;';
init_by_lua_block {{
    local tallywheel = require "tallywheel"
    engine = tallywheel.open()
    limits = engine:family("limits", {{ window = "from_first" }})
    stock = engine:family("stock", {{ window = "forever" }})
    views = engine:family("views")
    refused = {{}}
    for _, wrong in ipairs {{ {{ windo = 1 }}, {{ window = "fortnight" }}, {{ window_ms = 1 }}, {{ limit_mode = "strict" }} }} do
        refused[#refused + 1] = select(2, pcall(engine.family, engine, "w", wrong))
    end
}}
init_worker_by_lua_block {{ engine:lead() }}
server {{ listen unix:{server.socket};
location = /limit {{ access_by_lua_block {{
    local is_admitted, verdict = limits:acquire("client", 1, 1000)
    ngx.header.RateLimit_Remaining = verdict.remaining
    if not is_admitted then ngx.header.Retry_After = math.ceil(verdict.retry_after_ms / 1000) ngx.exit(429) end
}} content_by_lua_block {{ ngx.say(views:add("page")) }} }}
location = /buy {{ content_by_lua_block {{
    local is_sold, verdict = stock:acquire("sku", 2, 100)
    if is_sold and ngx.var.arg_back then stock:refund("sku", 2, verdict) end
    ngx.exit(is_sold and 200 or verdict.cause == "limit" and 410 or 500)
}} }}
location = /count {{ content_by_lua_block {{ ngx.print(views:get("page"), " ", stock:get("sku"), " ", tostring(views:add(""))) }} }}
location = /refused {{ content_by_lua_block {{ ngx.print(table.concat(refused, "\\n")) }} }}
location = /metrics {{ content_by_lua_block {{ ngx.print(engine:metrics()) }} }} }}"""


def all_of_it() -> None:
    server = Nginx("lua", "", workers=2)
    server.write(block(server))
    server.start()
    refused = server.ask("/refused").text.split("\n")
    for text, wanted in zip(refused, ("no option 'windo'", "window: 'fortnight'", "window_ms", "strict"), strict=True):
        assert wanted in text, refused
    found = Load(server, "/limit", clients=4, most=100).wait()
    same(found, {200: 400}, "the first 400 requests")
    victim = server.worker_ids()[0]
    os.kill(victim, signal.SIGKILL)
    wait_until("another worker runs", lambda: victim not in server.worker_ids() and len(server.worker_ids()) == 2)
    wait_until("a worker leads", lambda: re.search(r"^tallywheel_processes_died_total 1$", server.ask("/metrics").text, re.M))
    found = Load(server, "/limit", clients=4, most=200).wait()
    same(found, {200: 600, 429: 200}, "all workers together, one killed")
    denied = server.ask("/limit")
    same((denied.status, denied.getheader("RateLimit-Remaining")), (429, "0"))
    assert 0 < int(denied.getheader("Retry-After")) <= 3600
    same(Load(server, "/buy?back=1", clients=4, most=20).wait(), {200: 80}, "bought and brought back")
    same(Load(server, "/buy", clients=4, most=20).wait(), {200: 50, 410: 30}, "a stock of 100, two at a time")
    same(server.ask("/count").text, "1000 100 nil")
    server.reload()  # the master opens another engine
    same(server.ask("/count").text, "0 0 nil", "after the reload")
    same(server.ask("/limit").status, 200)
    server.stop()
    ended = [line for line in server.errors().splitlines() if "TW-E028" in line and f"process {victim}," not in line]
    assert len(ended) <= 1 and all("the process that led" in line for line in ended), ended  # if the killed one led
    server.must_be_clean("exited on signal 9|TW-E028")


tap.plan(1)
run("limits, stock and counts of all workers together, with a worker killed, and after a reload", all_of_it)
tap.end()
