"""package.py ROOT LIBRARY -- the Python package, with a real Redis where one is installed. Prints TAP.
Method: what a user writes, and the counts that must come of it; each kind of error once. Structs are compared with the C
compiler's by tests/user/cdef.py: here what the package reads of them is compared with what the library reads back."""
import asyncio
import ctypes
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import tap
from waits import wait_until

root = pathlib.Path(sys.argv[1]).resolve()
os.environ["TALLYWHEEL_LIBRARY"] = sys.argv[2]
sys.path.insert(0, str(root / "bindings/python"))
import tallywheel

folder = tempfile.TemporaryDirectory()
redis = None


def redis_url() -> str:
    """Of one server for all tests. Empty: there is none."""
    global redis
    path = folder.name + "/redis.sock"
    if not shutil.which("redis-server") or not tallywheel_has_redis():
        return ""
    if redis is None:
        redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder.name],
                                 stdout=subprocess.DEVNULL)
        wait_until(lambda: os.path.exists(path) and redis_cli("PING") == "PONG")
    return "unix://" + path


def tallywheel_has_redis() -> bool:
    try:
        tallywheel.Engine("unix:///nowhere").close()
        return True
    except tallywheel.Error as error:
        return error.name != "TW_ERR_REDIS"


def redis_cli(*words) -> str:
    return subprocess.run(["redis-cli", "-s", folder.name + "/redis.sock", *words], capture_output=True, text=True, check=False).stdout.strip()


def same(found, wanted, of: str = "") -> None:
    if found != wanted:
        raise AssertionError(f"{of} found {found!r}, wanted {wanted!r}")


def refused(kind, text: str, call, *arguments, **named):
    """The call raises an exception of this kind with this text."""
    try:
        found = call(*arguments, **named)
    except kind as error:
        if text not in str(error):
            raise AssertionError(f"'{error}' has no '{text}'") from None
        return error
    raise AssertionError(f"it was not refused: {found!r}")


def run(test) -> None:
    sentence = test.__name__.replace("_", " ")
    if "url" in inspect.signature(test).parameters and not redis_url():
        tap.skip(sentence, "redis-server is not installed, or the library is built without it: apt-get install redis-server")
        return
    try:
        arguments = {"url": redis_url()} if "url" in inspect.signature(test).parameters else {}
        test(**arguments)
        tap.ok(True, sentence)
    except Exception as error:  # pylint: disable=broad-except
        trace, places = error.__traceback__, []
        while trace:
            places.append(f"line {trace.tb_lineno} of {os.path.basename(trace.tb_frame.f_code.co_filename)}")
            trace = trace.tb_next
        tap.ok(False, sentence, [f"{type(error).__name__}: {error}", *places])


# ---- in the process -------------------------------------------------------------------------------------------------


def counts_are_those_of_the_library_whatever_the_key_is():
    with tallywheel.Engine() as engine:
        family = engine.family("views")
        for key in ("a", "ключ", b"\0", b"x\0y", b"\xff" * 1024):
            same(family.add(key), 1, repr(key)[:20])
            same(family.add(key, 4), 5)
            same(family.get(key), 5)
            view = ctypes.c_int64()
            data = key.encode() if isinstance(key, str) else key
            same(tallywheel.lib.tw_get(family._handle, tallywheel._Key(data, len(data)), ctypes.byref(view)), 0)
            same(view.value, 5, "by a struct")
        same(sorted(one.key for one in family.each()), sorted([b"a", "ключ".encode(), b"\0", b"x\0y", b"\xff" * 1024]))
        family.add("a", 2)
        same([(one.key, one.view) for one in family.top(1)], [(b"a", 7)])
        same(engine.stats()["increments"], 11)
        assert "tallywheel_increments_total 11\n" in engine.metrics()
        assert engine.metrics(openmetrics=True).endswith("# EOF\n")


def a_limit_admits_exactly_as_many_as_it_says_to_all_threads():
    with tallywheel.Engine() as engine:
        family, admitted = engine.family("rate"), []
        threads = [threading.Thread(target=lambda: admitted.extend(1 for _ in range(500) if family.acquire("k", 1, 1000))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        same(len(admitted), 1000)
        verdict = family.acquire("k", 1, 1000)
        same((bool(verdict), verdict.allowed, verdict.cause, verdict.limit, verdict.used, verdict.remaining, verdict.pending),
             (False, False, "limit", 1000, 1000, 0, False))
        assert 0 < verdict.retry_after_ms <= 3600000
        same(family.acquire("k", 1001, 1000).cause, "never")
        family.refund("k", 1, verdict.window_start_ms)
        verdict = family.acquire("k", 1, 1000)
        same((bool(verdict), verdict.allowed, verdict.cause, verdict.retry_after_ms), (True, True, None, 0))
        shadow = engine.family("shadow", shadow=True)
        assert shadow.acquire("k", 1, 1) and shadow.acquire("k", 1, 1)
        same(shadow.acquire("k", 1, 1).allowed, False)


def an_option_or_argument_that_is_wrong_is_named():
    with tallywheel.Engine() as engine:
        refused(TypeError, "'limit_mod'", engine.family, "w", limit_mod="hard")
        refused(TypeError, "'redis_ur'", tallywheel.Engine, redis_ur="x")
        refused(TypeError, "'error_text'", tallywheel.Engine, error_text=b"x")
        refused(ValueError, "limit_mode: 'hardy'", engine.family, "w", limit_mode="hardy")
        refused(ValueError, "keys_max: -1", engine.family, "w", keys_max=-1)
        refused(ValueError, "window_ms", engine.family, "w", window_ms=2**70)
        refused(TypeError, "keys_max", engine.family, "w", keys_max=1.5)
        refused(tallywheel.Error, "TW_ERR_OPTIONS: window_ms", engine.family, "w", window_ms=1)
        refused(tallywheel.Error, "TW_ERR_OPTIONS: redis_url", tallywheel.Engine, "nonsense://")
        family = engine.family("views")
        same(refused(tallywheel.Error, "key", family.add, "").name, "TW_ERR_KEY")
        same(refused(tallywheel.Error, "delta", family.add, "k", 2**64 + 1).name, "TW_ERR_RANGE")
        refused(tallywheel.Error, "limit", family.acquire, "k", 1, 2**64 + 1)
        refused(tallywheel.Error, "n ", family.acquire, "k", -1, 1)
        refused(ctypes.ArgumentError, "out of range", family.refund, "k", 2**64 + 1, 0)
        same(refused(tallywheel.Error, "redis_url", family.lock, "k", 1000).name, "TW_ERR_REDIS")
        refused(KeyError, "nothing", engine.find, "nothing")
        same((family.get("k"), engine.stats()["increments"]), (0, 0), "nothing was counted:")


def words_of_options_are_the_enums_of_the_header():
    with tallywheel.Engine() as engine:
        same(engine.family("days", window="day").acquire("k", 1, 1).reset_after_ms > 0, True)
        bucket = engine.family("bucket", limit_shape="gcra", burst=1)
        same([bool(bucket.acquire("k", 1, 2)) for _ in range(2)], [True, False])
        same(engine.family("full", on_full="reject", on_full_limit="deny", limit_mode="hard").add("k"), 1)
        forever = engine.family("forever", window="forever")
        same(forever.acquire("k", 2, 1).retry_after_ms, -1)


def a_closed_engine_and_a_closed_family_refuse_each_call():
    engine = tallywheel.Engine()
    family, other = engine.family("views"), engine.family("other")
    other.close()
    same(refused(tallywheel.Error, "closed", other.add, "k").name, "TW_ERR_CLOSED")
    same(family.add("k"), 1)
    engine.close()
    engine.close()
    for call in (lambda: family.add("k"), lambda: family.get("k"), lambda: family.acquire("k", 1, 1), family.top, engine.stats,
                 family.close, lambda: engine.family("views")):
        same(refused(tallywheel.Error, "closed", call).name, "TW_ERR_CLOSED")


def a_hook_gets_the_closed_window_and_its_family():
    seen, lines = [], []

    def closed(family, start_ms, end_ms, flags) -> bool:
        seen.append((family.name, [(one.key, one.view) for one in family.each(start_ms)], end_ms - start_ms, flags))
        return True

    engine = tallywheel.Engine(log_write=lambda level, event, text: lines.append(text))
    family = engine.family("views", 2000, on_window_closed=closed)
    family.add("k", 3)
    engine.close()
    same(seen[-1:], [("views", [(b"k", 3)], 2000, seen[-1][3])])


def what_was_taken_comes_back():
    with tallywheel.Engine() as engine:
        slots, stock, jobs = engine.family("slots", window="forever"), engine.family("stock", window="forever"), engine.family("jobs")
        with slots.hold("u", 1) as slot:
            same(slot.verdict.used, 1)
            same(refused(tallywheel.Denied, "TW_DENIED", slots.hold, "u", 1).verdict.cause, "limit")
        slots.hold("u", 1).release()
        with stock.reserve("sku", 2, 2, 60000, "buyer"):
            same(stock.get("sku"), 2)
        same(refused(tallywheel.Denied, "limit", stock.reserve, "sku", 1, 2, 60000).verdict.cause, "limit")
        same(refused(tallywheel.Denied, "buyer", stock.reserve, "sku", 1, 9, 60000, "buyer").verdict.cause, "buyer")
        refused(ZeroDivisionError, "", fails_in, stock.reserve("sku", 1, 3, 60000))
        same(stock.get("sku"), 2, "the reservation of a block that raised:")
        reservation = stock.reserve("sku", 1, 3, 60000)
        with reservation:
            reservation.cancel()
        engine.cancel(stock.reserve("sku", 1, 3, 60000).token)
        same(stock.get("sku"), 2)
        refused(ZeroDivisionError, "", fails_in, jobs.once("job"))
        with jobs.once("job") as first:
            same(bool(first), True)
        same(bool(jobs.once("job")), False)


def fails_in(block) -> None:
    with block:
        raise ZeroDivisionError


def limits_of_a_file_are_kept_and_read_again():
    path = folder.name + "/limits"
    pathlib.Path(path).write_text("login * 1 1h\n")
    with tallywheel.Engine() as engine:
        limits = engine.limits(path)
        assert limits.acquire("login", "a") and not limits.acquire("login", "a")
        refused(tallywheel.Error, "TW_ERR_OPTIONS", limits.acquire, "logout", "a")
        pathlib.Path(path).write_text("login * 2 1h\n")
        same(limits.reload(), True)
        assert limits.acquire("login", "a") and not limits.acquire("login", "a")
        same(engine.find("login.1h").get("a"), 2)
        pathlib.Path(path).write_text("login * many 1h\n")
        refused(tallywheel.Error, ":1", limits.reload)
        limits.close()
        refused(tallywheel.Error, "closed", limits.acquire, "login", "a")


def a_full_table_is_said():
    with tallywheel.Engine(memory_bytes_max=1 << 20) as engine:
        family, strict = engine.family("few", keys_max=1), engine.family("none", keys_max=1, on_full="reject", on_full_limit="deny")
        family.add("a"), strict.add("a")
        found = [family.add(f"b{n}") for n in range(50)]
        assert None in found, "no add says that its delta is in the overflow counter"
        error = None
        for n in range(50):
            try:
                strict.acquire(f"b{n}", 1, 1)
            except tallywheel.Error as refusal:
                error = refusal
        same((error.name, error.verdict.cause), ("TW_ERR_FULL", "full"))


def processes_that_fork_share_an_engine():
    with tallywheel.Engine(shared=True) as engine:
        family = engine.family("rate")
        children = []
        for _ in range(4):
            child = os.fork()
            if not child:
                status = 1
                try:
                    engine.lead()
                    status = sum(bool(family.acquire("k", 1, 100)) for _ in range(50))
                    engine.close()
                finally:
                    os._exit(status)
            children.append(child)
        same(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children), 100)
        engine.process_died()
        same(family.get("k"), 100)
    with tallywheel.Engine() as engine:
        same(refused(tallywheel.Error, "shared", engine.lead).name, "TW_ERR_MODE")


def an_asyncio_loop_drives_an_engine_that_has_no_thread():
    closed = []
    engine = tallywheel.Engine(threads="host_driven")
    family = engine.family("views", 1000, on_window_closed=lambda *arguments: closed.append(arguments) is None)

    async def main() -> None:
        engine.attach()
        family.add("k")
        for _ in range(6000):
            if closed:
                return
            await asyncio.sleep(0.01)

    for _ in range(2):  # each run has a loop of its own
        asyncio.run(main())
        same(len(closed) > 0, True, "windows closed:")
        closed.clear()
    engine.close()


# ---- with Redis -----------------------------------------------------------------------------------------------------


def two_engines_count_in_one_redis(url):
    with tallywheel.Engine(url) as first, tallywheel.Engine(url) as second:
        one, other = first.family("together", window="forever"), second.family("together", window="forever")
        one.add("k", 2), other.add("k", 3)
        first.flush(30000), second.flush(30000)
        same(one.fetch(["k", "nothing"], 30000), [5, 0])
        same(redis_cli("GET", "together:k"), "5")


def locks_and_strict_limits_wait_for_redis(url):
    with tallywheel.Engine(url) as engine:
        jobs, stock = engine.family("locks"), engine.family("strict", limit_mode="strict", window="forever")
        with jobs.lock("report", 60000) as lock:
            lock.extend(90000)
            assert lock.fence > 0
            refused(tallywheel.Denied, "owner", jobs.lock, "report", 1000)
        jobs.lock("report", 60000).release()
        same([bool(stock.acquire("sku", 1, 2)) for _ in range(3)], [True, True, False])
        with stock.reserve("other", 1, 1, 60000) as reservation:
            pass
        same(refused(tallywheel.Error, "", engine.cancel, reservation.token).name, "TW_ERR_LATE")


async def ask_all(engine, jobs, stock) -> None:
    verdicts = await asyncio.gather(*(stock.acquire_async("sku", 1, 10) for _ in range(30)))
    same((sum(map(bool, verdicts)), {one.cause for one in verdicts}), (10, {None, "limit"}))
    same([bool(one) for one in await asyncio.gather(*(stock.once_async("job") for _ in range(5)))].count(True), 1)
    async with await jobs.lock_async("report", 60000) as lock:
        assert lock.fence > 0
        try:
            await jobs.lock_async("report", 60000)
            raise AssertionError("two owners of one lock")
        except tallywheel.Denied:
            pass
    async with await jobs.lock_async("report", 60000):
        pass
    jobs.add("total", 7)
    await engine.flush_async()
    same(await jobs.fetch_async(["total", "nothing"]), [7, 0])
    try:
        await stock.acquire_async("", 1, 1)
        raise AssertionError("an empty key")
    except tallywheel.Error as error:
        same(error.name, "TW_ERR_KEY")
    for key in ("cancelled", "answered and cancelled", "cancelled and answered"):
        await cancel(engine, stock.acquire_async(key, 1, 1), key)
        await until("the unit of a cancelled call returns", stock.acquire_async, key, 1, 1)
        await cancel(engine, stock.once_async(key + " once"), key)
        await until("the next caller is the first", stock.once_async, key + " once")
        await cancel(engine, jobs.lock_async(key, 600000), key)
        await until("the lock is free", jobs.lock_async, key, 600000)


async def cancel(engine, call, how: str) -> None:
    """The task does not run between its call and both."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    for step in how.split(" and "):
        if step == "cancelled":
            task.cancel()
        while step == "answered" and tallywheel._loop.waiting:
            engine._loop.turn()
            time.sleep(0.001)
    same([type(one) for one in await asyncio.gather(task, return_exceptions=True)], [asyncio.CancelledError])


async def until(what: str, call, *arguments) -> None:
    for _ in range(3000):
        try:
            if await call(*arguments):
                return
        except tallywheel.Denied:
            pass
        await asyncio.sleep(0.01)
    raise AssertionError("never: " + what)


def asyncio_waits_for_redis_by_a_queue_or_by_the_turns_of_its_loop(url):
    for threads in ("own_thread", "host_driven"):
        for _ in range(2):  # each run has a loop of its own
            redis_cli("FLUSHALL")
            with tallywheel.Engine(url, threads=threads, redis_timeout_ms=20000) as engine:
                jobs = engine.family("jobs", window="forever")
                asyncio.run(ask_all(engine, jobs, engine.family("asked", limit_mode="strict", window="forever")))


def an_engine_is_closed_while_calls_wait(url):
    async def main() -> None:
        engine = tallywheel.Engine(url, redis_timeout_ms=20000)
        family = engine.family("late", limit_mode="strict", window="forever")
        redis.send_signal(19)
        try:
            task = asyncio.ensure_future(family.acquire_async("k", 1, 1))
            await asyncio.sleep(0)
            try:
                engine.close(100)
            except tallywheel.Error as error:
                same(error.name, "TW_ERR_TIMEOUT")
            found = (await asyncio.gather(task, return_exceptions=True))[0]
            assert isinstance(found, (asyncio.CancelledError, tallywheel.Error)), repr(found)
        finally:
            redis.send_signal(18)

    asyncio.run(main())


def each_block_of_the_page_runs():
    blocks = re.findall(r"^```python\n(.*?)^```$", (root / "docs/LANGUAGES.md").read_text(), re.M | re.S)
    outputs = [subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False, cwd=folder.name,
                              env={**os.environ, "PYTHONPATH": str(root / "bindings/python")}) for block in blocks]
    same([one.stderr for one in outputs], [""] * 3)
    same([one.stdout.splitlines()[-1:] for one in outputs][1:], [[], ["[True, True, False]"]])
    assert outputs[0].stdout.startswith("1\n[Count(key=b'/index.html', view=1, "), outputs[0].stdout


def the_package_has_at_most_700_lines_and_needs_ctypes_alone():
    files = list((root / "bindings/python/tallywheel").glob("*.py"))
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert 300 < len(lines) <= 700, len(lines)
    used = {name for line in lines for name in re.findall(r"^\s*(?:import|from) ([a-z]\w*)", line)}
    same(used - {"asyncio", "atexit", "collections", "ctypes", "os", "re", "weakref"}, set())


tests = [test for name, test in list(globals().items()) if inspect.isfunction(test) and name.count("_") > 2 and test.__module__ == "__main__"
         and name != "tallywheel_has_redis"]
tap.plan(len(tests))
for one_test in tests:
    run(one_test)
if redis:
    redis.kill()
    redis.wait()
tap.end()
