"""tallywheel -- counters for servers that count faster than a network can answer.

    engine = tallywheel.Engine()                     # Engine("redis://...") counts together with other processes
    views = engine.family("views")                   # windows of one hour
    views.add("/index.html")                         # -> the count
    verdict = engine.family("login", 60_000).acquire(user, 1, 5)
    if not verdict: return too_many(verdict.retry_after_ms)

Each method is the call of tallywheel.h with the same name (tw_acquire: Family.acquire), which is the manual. A key is str (as
UTF-8) or bytes. Options are those of tw_options and tw_family_options, by their names; an enum is a word or a number:
engine.family("stock", limit_mode="hard", window="day"). Calls that are not here are in tallywheel.lib, as the header has them.
Always true: what the library refuses is an Error with its text. A call with a closed engine or family is one, too. Any
thread may make any call; calls that wait let other threads run."""
import atexit
import ctypes
from collections import namedtuple
from ctypes import byref, c_bool, c_int64, c_uint64
from weakref import WeakSet

from ._ffi import Denied, Error, check, constants, enums, hot, lib, structs

__all__ = ["Count", "Denied", "Engine", "Error", "Family", "Limits", "Verdict", "constants", "lib"]
__version__ = lib.tw_version().decode()
_DELTA_MAX, _NOW, _OK = constants["TW_DELTA_MAX"], constants["TW_NOW"], constants["TW_OK"]
_add, _get, _acquire = hot("tw_add"), hot("tw_get"), hot("tw_acquire")
_acquire_waiting = hot("tw_acquire", never_waits=False)
_CAUSES = [name[len("TW_CAUSE_"):].lower() for name in enums["tw_cause"]]
_Key = structs["tw_key"]

Count = namedtuple("Count", "key view local start_ms end_ms error")
Count.__doc__ = "A counter, as each() and top() show it. key is bytes; b'' is the overflow counter."


class Verdict(structs["tw_verdict"]):
    """The details of a decision: limit, used, remaining, retry_after_ms, reset_after_ms, window_start_ms ... It is true if the
    call was admitted. `allowed` is what the limit says, also in shadow mode. `cause` is None or limit, share, outage, busy,
    full, buyer, never. `pending` says that units may still come."""
    status = _OK

    def __bool__(self) -> bool:
        return self.status == _OK

    @property
    def allowed(self) -> bool:
        return bool(super().allowed)

    @property
    def cause(self):
        return None if super().allowed else _CAUSES[super().cause]

    @property
    def pending(self) -> bool:
        return self.status == constants["TW_PENDING"]

    def __repr__(self) -> str:
        return (f"<Verdict {lib.tw_status_name(self.status).decode()} used={self.used} limit={self.limit} "
                f"remaining={self.remaining} retry_after_ms={self.retry_after_ms} cause={self.cause}>")


def _decide(call, *arguments) -> Verdict:
    """A call whose last argument is a verdict."""
    verdict = Verdict()
    verdict.status = check(call(*arguments, verdict), verdict)
    return verdict


def _bytes(text) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


def _key(key) -> _Key:
    key = _bytes(key)
    return _Key(key, len(key))


def _keys(keys):
    return (_Key * len(keys))(*map(_key, keys))


def _text_of(key) -> bytes:
    """The bytes of a tw_key of the library's."""
    return ctypes.string_at(ctypes.c_void_p.from_buffer(key), key.size) if key.size else b""


# ---- options --------------------------------------------------------------------------------------------------------


def _word(option: str, word: str) -> int:
    """Of an enum: "hard" is TW_LIMIT_HARD."""
    values = enums.get("tw_" + option) or enums.get("tw_" + option[len("on_"):]) or {}
    for name, value in values.items():
        if name == word or name.endswith("_" + word.upper().replace("-", "_")):
            return value
    raise ValueError(f"{option}: {word!r} is none of {', '.join(values) or 'its values, which are numbers'}")


def _hook(option: str, kind, function, engine: "Engine"):
    """A function of the host, as C calls it: without `ctx`. A text is str, a key is bytes, a family is a Family, which is open
    also while the engine is being closed."""
    def plain(value):
        return value.decode(errors="replace") if isinstance(value, bytes) else _text_of(value) if isinstance(value, _Key) else value

    def call(_, *arguments):
        if option in ("on_lost", "on_window_closed"):
            arguments = (Family(engine, engine._names.get(arguments[0]), arguments[0], True), *arguments[1:])
        return function(*map(plain, arguments))

    def password(_, out, size):
        text = _bytes(function()) + b"\0"
        ctypes.memmove(out, text, min(len(text), size))
        return len(text) - 1 if len(text) <= size else -1

    return kind(password if option.endswith("_password") else call)


def _options(struct: str, given: dict, engine: "Engine"):
    """The struct with these options. What C calls later is kept."""
    options = structs[struct]()
    getattr(lib, struct + "_init_sized")(options, ctypes.sizeof(options))
    kinds = {name: kind for name, kind in options._fields_ if not name.endswith(("size", "_ctx")) and name != "error_text"}
    for name, value in given.items():
        if name not in kinds:
            raise TypeError(f"{struct} has no option {name!r}")
        if value is None:
            continue
        kind = kinds[name]
        if callable(value):
            value = _hook(name, kind, value, engine)
            engine._kept.append(value)
        elif isinstance(value, str):
            value = _bytes(value) if kind in (ctypes.c_char_p, ctypes.c_char) else _word(name, value)
        try:
            setattr(options, name, value)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        if isinstance(value, int) and getattr(options, name) != value:
            raise ValueError(f"{name}: {value} is out of range")
    return options


# ---- what a call took, and gives back -------------------------------------------------------------------------------


class _With:
    def __init__(self, **attributes) -> None:
        self.__dict__.update(attributes)

    def __enter__(self):
        return self


class Once(_With):
    """True for the first caller. In a with block: if the block raises, the next caller is the first."""

    def __bool__(self) -> bool:
        return self.first

    def cancel(self) -> None:
        check(lib.tw_once_cancel(self.family._handle, _key(self.key)))

    def __exit__(self, kind, *_) -> None:
        if kind and self.first:
            self.cancel()


class Hold(_With):
    """A slot that is ours until release(), or the end of the with block."""

    def release(self) -> None:
        check(lib.tw_hold_release(self.family._handle, _key(self.key)))

    def __exit__(self, *_) -> None:
        self.release()


class Lock(Hold):
    """A lock that is ours until release(), the end of the with block, or ttl_ms. Pass `fence` on."""

    def extend(self, ttl_ms: int) -> None:
        check(lib.tw_lock_extend(self.family._handle, _key(self.key), self.token, ttl_ms))

    def release(self) -> None:
        check(lib.tw_lock_release(self.family._handle, _key(self.key), self.token))

    async def __aenter__(self) -> "Lock":
        return self

    async def __aexit__(self, *_) -> None:
        await self.family.engine._ask(lib.tw_lock_release_async, self.family, _key(self.key), self.token)


class Reservation(_With):
    """Units that are set aside. A with block sells them at its end, or gives them back if it raises. Any process with the same
    Redis may do either by the token: engine.confirm(token), engine.cancel(token)."""

    is_held = True

    def confirm(self) -> None:
        self.engine.confirm(self.token)
        self.is_held = False

    def cancel(self) -> None:
        self.engine.cancel(self.token)
        self.is_held = False

    def __exit__(self, kind, *_) -> None:
        if self.is_held:
            self.cancel() if kind else self.confirm()


# ---- families -------------------------------------------------------------------------------------------------------


class Family:
    """Counters with one window and one policy. Engine.family() opens it."""

    def __init__(self, engine: "Engine", name: str, handle: int, waits: bool) -> None:
        self.engine, self.name, self._handle, self._acquire = engine, name, handle, _acquire_waiting if waits else _acquire

    def add(self, key, delta: int = 1):
        """The count after this add. None: the table is full, and the delta is in the overflow counter."""
        if key.__class__ is str:
            key = key.encode()
        if not -_DELTA_MAX <= delta <= _DELTA_MAX:
            raise Error(constants["TW_ERR_RANGE"], "delta")
        view = c_int64()
        status = _add(self._handle, key, len(key), delta, byref(view))
        return None if status and check(status) else view.value

    def get(self, key) -> int:
        if key.__class__ is str:
            key = key.encode()
        view = c_int64()
        check(_get(self._handle, key, len(key), byref(view)))
        return view.value

    def acquire(self, key, n: int, limit: int) -> Verdict:
        if key.__class__ is str:
            key = key.encode()
        if not 0 <= n <= _DELTA_MAX or not 0 <= limit <= _DELTA_MAX:
            raise Error(constants["TW_ERR_RANGE"], "n or limit")
        verdict = Verdict()
        status = self._acquire(self._handle, key, len(key), n, limit, byref(verdict))
        if status:
            verdict.status = check(status, verdict)
        return verdict

    def refund(self, key, n: int, window_start_ms: int) -> None:
        check(lib.tw_refund(self._handle, _key(key), n, window_start_ms))

    def each(self, unix_ms: int = _NOW) -> list:
        return self._walk(lib.tw_each, unix_ms)

    def top(self, n: int = 10, unix_ms: int = _NOW) -> list:
        return self._walk(lib.tw_top, n, unix_ms)

    def _walk(self, call, *arguments) -> list:
        found = []

        def visit(_, count) -> bool:
            one = count.contents
            found.append(Count(_text_of(one.key), one.view, one.local, one.start_ms, one.end_ms, one.error))
            return True

        check(call(self._handle, *arguments, call.argtypes[-2](visit), None))
        return found

    def fetch(self, keys, timeout_ms: int = 1000) -> list:
        """The totals in Redis, of all processes."""
        totals = (c_int64 * len(keys))()
        check(lib.tw_fetch(self._handle, _keys(keys), len(keys), timeout_ms, totals))
        return list(totals)

    def once(self, key) -> Once:
        first = c_bool()
        check(lib.tw_once(self._handle, _key(key), byref(first)))
        return Once(family=self, key=key, first=first.value)

    def lock(self, key, ttl_ms: int) -> Lock:
        token, fence = ctypes.create_string_buffer(constants["TW_TOKEN_SIZE"]), c_uint64()
        if check(lib.tw_lock(self._handle, _key(key), ttl_ms, token, byref(fence))):
            raise Denied(constants["TW_DENIED"], "the lock has another owner")
        return Lock(family=self, key=key, token=token.value, fence=fence.value)

    def hold(self, key, limit: int) -> Hold:
        verdict = _decide(lib.tw_hold, self._handle, _key(key), limit)
        if not verdict:
            raise Denied(verdict.status, "every slot is in use", verdict)
        return Hold(family=self, key=key, verdict=verdict)

    def reserve(self, key, n: int, limit: int, ttl_ms: int, buyer=b"") -> Reservation:
        token = ctypes.create_string_buffer(constants["TW_TOKEN_SIZE"])
        verdict = _decide(lib.tw_reserve, self._handle, _key(key), n, limit, ttl_ms, _key(buyer), token)
        if not verdict:
            raise Denied(verdict.status, f"no unit is left for this buyer, cause: {verdict.cause}", verdict)
        return Reservation(engine=self.engine, token=token.value, verdict=verdict)

    def close(self) -> None:
        self.engine._give_up(self, lib.tw_family_close)

    # The same calls for asyncio: they run in the loop of their caller, which drives the engine from then on.

    async def acquire_async(self, key, n: int, limit: int) -> Verdict:
        request = await self.engine._ask(lib.tw_acquire_async, self, _key(key), n, limit, undo=lambda got: got.status == _OK and (
            lib.tw_refund(self._handle, _key(key), n, got.verdict.window_start_ms)))
        verdict = Verdict.from_buffer_copy(request.verdict)
        verdict.status = request.status
        return verdict

    async def once_async(self, key) -> Once:
        request = await self.engine._ask(lib.tw_once_async, self, _key(key), undo=lambda got: got.first and (
            self.engine._loop.begin(lib.tw_once_cancel_async, self._handle, _key(key))))
        return Once(family=self, key=key, first=request.first)

    async def lock_async(self, key, ttl_ms: int) -> Lock:
        """async with await family.lock_async(...)"""
        request = await self.engine._ask(lib.tw_lock_async, self, _key(key), ttl_ms, undo=lambda got: got.status == _OK and (
            lib.tw_lock_release_async(None, self._handle, _key(key), got.token)))
        if request.status:
            raise Denied(request.status, "the lock has another owner")
        return Lock(family=self, key=key, token=request.token, fence=request.fence)

    async def fetch_async(self, keys) -> list:
        totals = (c_int64 * len(keys))()
        await self.engine._ask(lib.tw_fetch_async, self, _keys(keys), len(keys), totals)
        return list(totals)


class Limits:
    """Limits of a file. Engine.limits() opens it."""

    def __init__(self, engine: "Engine", name: str, handle: int) -> None:
        self.engine, self.name, self._handle = engine, name, handle

    def acquire(self, family: str, key, n: int = 1) -> Verdict:
        return _decide(lib.tw_limits_acquire, self._handle, _bytes(family), _key(key), n)

    def reload(self) -> bool:
        """False: another thread is reloading."""
        return check(lib.tw_limits_reload(self._handle, None, 0)) == _OK

    def close(self) -> None:
        self.engine._give_up(self, lib.tw_limits_close)


# ---- engines --------------------------------------------------------------------------------------------------------


class Engine(_With):
    """Memory, clock and threads. It lives until close(), or the end of the program, which closes it. With shared=True the
    processes that fork from this one count in it together: open the engine and its families, fork, and call lead() in each
    child. In asyncio, threads="host_driven" makes no thread: attach() lets the running loop do its work."""

    def __init__(self, redis_url=None, shared: bool = False, **options) -> None:
        self._loop, self._mine, self._names, self._kept = None, WeakSet(), {}, []
        given = _options("tw_options", {"redis_url": redis_url, "shared": int(shared), **options}, self)
        handle = ctypes.c_void_p()
        check(lib.tw_open(given, byref(handle)))
        self._handle, self._is_driven = handle.value, given.threads == constants["TW_HOST_DRIVEN"]
        atexit.register(self.close)

    def family(self, name: str, window_ms: int = 3600000, **options) -> Family:
        if window_ms == constants["TW_HOUR"]:
            window_ms = None  # the default, also of windows that have no length in ms
        given = _options("tw_family_options", {"name": name, "window_ms": window_ms, **options}, self)
        handle = ctypes.c_void_p()
        check(lib.tw_family_open(self._handle, given, byref(handle)))
        return self._own(Family(self, name, handle.value, given.limit_mode == constants["TW_LIMIT_STRICT"]))

    def find(self, name: str) -> Family:
        """A family that is open, for example "login.1m" of a limits file. KeyError if there is none."""
        handle = lib.tw_family_find(self._handle, _bytes(name))
        if not handle:
            raise KeyError(name)
        return self._own(Family(self, name, handle, True))

    def limits(self, path: str) -> Limits:
        handle = ctypes.c_void_p()
        check(lib.tw_limits_open(self._handle, _bytes(path), None, 0, byref(handle)))
        return self._own(Limits(self, path, handle.value))

    def _own(self, one):
        self._mine.add(one)
        self._names[one._handle] = one.name
        return one

    def lead(self) -> bool:
        """This process may lead the shared engine. True: it leads."""
        return check(lib.tw_lead(self._handle)) == _OK

    def process_died(self) -> None:
        check(lib.tw_process_died(self._handle))

    def flush(self, timeout_ms: int = 1000) -> None:
        check(lib.tw_flush(self._handle, timeout_ms))

    def confirm(self, token: bytes) -> None:
        check(lib.tw_reserve_confirm(self._handle, token))

    def cancel(self, token: bytes) -> None:
        check(lib.tw_reserve_cancel(self._handle, token))

    def stats(self) -> dict:
        figures = structs["tw_stats"]()
        check(lib.tw_stats_read_sized(self._handle, figures, ctypes.sizeof(figures)))
        return {name: getattr(figures, name) for name, _ in figures._fields_ if name != "reserved"}

    def metrics(self, openmetrics: bool = False) -> str:
        """A page for Prometheus."""
        pieces, call = [], lib.tw_metrics_write
        check(call(self._handle, int(openmetrics), call.argtypes[-2](lambda _, text, size: pieces.append(text[:size]) is None), None))
        return b"".join(pieces).decode()

    # Calls that answer later: _loop.py has the loop's side of them.

    def attach(self) -> None:
        """The running asyncio loop does this engine's work from now on. The first call of ..._async does the same."""
        if self._loop is None:
            from ._loop import Loop  # without asyncio nobody waits for its import
            self._loop = Loop(self._handle, self._is_driven)
        self._loop.attach()

    async def flush_async(self) -> None:
        await self._ask(lib.tw_flush_async, self)

    async def _ask(self, call, owner, *arguments, undo=None):
        self.attach()
        return await self._loop.ask(undo, call, owner._handle, *arguments)

    def _give_up(self, owner, call, *arguments) -> None:
        """Closes a handle. Nothing can be called with it from before that on, also by other threads."""
        kind, handle = owner.__class__, owner._handle
        owner.__class__ = _CLOSED[kind]
        status = call(handle, *arguments)
        if status == constants["TW_ERR_MODE"]:
            owner.__class__ = kind
        check(status)

    def close(self, timeout_ms: int = 1000) -> None:
        """Sends what Redis lacks within the time. An Error with the name TW_ERR_TIMEOUT says that some counts were lost."""
        if isinstance(self, _Closed):
            return
        if self._loop:
            self._loop.end()
        kinds = [(one, one.__class__) for one in self._mine if not isinstance(one, _Closed)]
        for one, kind in kinds:
            one.__class__ = _CLOSED[kind]
        try:
            self._give_up(self, lib.tw_close, timeout_ms)
        finally:
            if isinstance(self, _Closed):
                atexit.unregister(self.close)
            else:  # it was refused: all is as before
                for one, kind in kinds:
                    one.__class__ = kind

    def __exit__(self, *_) -> None:
        self.close()


class _Closed:
    """What a closed object becomes: each call asks for the handle, and gets an exception."""

    @property
    def _handle(self):
        raise Error(constants["TW_ERR_CLOSED"], "it was closed")


_CLOSED = {kind: type(kind.__name__, (_Closed, kind), {}) for kind in (Engine, Family, Limits)}
