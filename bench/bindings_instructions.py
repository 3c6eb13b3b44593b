#!/usr/bin/env python3
"""bindings_instructions.py LIBRARY -- the user instructions of one call from Python, and of one add from LuaJIT in nginx (a
table of `./dev bench instructions`). callgrind counts them, in the thread that calls.
Python's figures are above a loop that does nothing. LuaJIT's has the loop, after its compiler has seen it.
Always true: the count is checked in the end. A row whose program is not installed is left out, and says so."""
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(root, "tests", "nginx"))
import rig
from rig import Nginx

library = os.path.abspath(sys.argv[1])
os.environ["TALLYWHEEL_LIBRARY"] = library
FEW, MANY = 1000, 6000 # of Lua
CALLS = 5000 # of Python
LOOPS = {"nothing": "pass", "add()": 'views.add("user:1")', "get()": 'views.get("user:1")',
    "acquire()": 'views.acquire("user:1", 1, 1000000)'}
PYTHON = """import sys
sys.path.insert(0, sys.argv[1])
import tallywheel
views = tallywheel.Engine().family("views", window="forever")
views.add("user:1")
for _ in range(int(sys.argv[2])): {}
print(views.get("user:1"))
"""
LUA = """lua_package_path '{root}/bindings/lua/?.lua;;';
init_by_lua_block {{ engine = require("tallywheel").open() views = engine:family("views", {{ window = "forever" }}) }}
init_worker_by_lua_block {{ engine:lead() }}
server {{ listen unix:{socket}; location / {{ content_by_lua_block {{
    local count = 0
    for _ = 1, tonumber(ngx.var.arg_n) do count = views:add("user:1") end
    ngx.print(count)
}} }} }}"""


def python(loop: str) -> int:
    """What the main thread of an interpreter with this loop executes in all."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "--tool=callgrind", "-q", "--separate-threads=yes", f"--callgrind-out-file={folder}/out",
            sys.executable, "-c", PYTHON.format(LOOPS[loop]), os.path.join(root, "bindings", "python"), str(CALLS)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"})
        if done.stdout.strip() != str(1 + CALLS * (loop in ("add()", "acquire()"))):
            raise AssertionError(done.stdout + done.stderr)
        return int(re.search("^totals: ([0-9]+)", rig.read(folder + "/out-01"), re.M)[1])


def control(word: str, process: int) -> str:
    return subprocess.run(["callgrind_control", word, str(process)], capture_output=True, text=True, check=True).stdout


def lua() -> float:
    """One process of nginx; its compiler has seen the loop before the figures."""
    modules = [f"/usr/lib/nginx/modules/{name}_module.so" for name in ("ndk_http", "ngx_http_lua")]
    if not all(os.path.exists(path) for path in [rig.NGINX, *modules]):
        return 0
    Nginx.module = modules[0] + f"; load_module {modules[1]}; env TALLYWHEEL_LIBRARY"
    rig.WRAPPER = ["valgrind", "--tool=callgrind", "-q", "--callgrind-out-file=/dev/null"]
    server = Nginx("lua", "", workers=0, main="master_process off;")
    server.write(LUA.format(root=root, socket=server.socket))
    with open(server.home + "/nginx.conf", encoding="utf-8") as file:
        text = file.read().replace("worker_processes 0;", "")
    with open(server.home + "/nginx.conf", "w", encoding="utf-8") as file:
        file.write(text)
    server.start()
    sum_of = 0

    def instructions(times: int) -> int:
        nonlocal sum_of
        control("-z", server.process.pid)
        sum_of += times
        found = server.ask(f"/?n={times}").text
        if found != str(sum_of):
            raise AssertionError(f"{found}, not {sum_of}")
        return int(re.search(r"^\s*Th\s*\d+\s+([\d,]+)", control("-e", server.process.pid), re.M)[1].replace(",", ""))

    instructions(MANY)
    found = min((instructions(MANY) - instructions(FEW)) / (MANY - FEW) for _ in range(5))
    server.stop()
    return found


def main() -> None:
    start = python("nothing")
    for call in list(LOOPS)[1:]:
        print(f"{'Python, ' + call:26}{(python(call) - start) / CALLS:8.0f}", flush=True)
    found = lua()
    print(f"{'LuaJIT, add()':26}{found:8.0f}" if found else "(there is no nginx with Lua)")


main()
