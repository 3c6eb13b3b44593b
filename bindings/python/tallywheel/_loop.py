"""_loop.py -- the calls of one engine that answer later, in an asyncio loop.

A host-driven engine has a descriptor (tw_fd) and a time (tw_timeout_ms): the loop makes the turns. The results of another
engine come through a queue, which has a descriptor, too.
Always true: `done` is called in the thread of the loop. A request is kept until its result, or until it is cancelled. What
a call took has a caller who knows it, or is given back."""
import asyncio
import ctypes
import os

from ._ffi import Error, check, constants, lib, structs

Request = structs["tw_request"]
Done = dict(Request._fields_)["done"]
waiting: dict = {}  # the address of a request -> its future, the request and its Loop


@Done
def done(request) -> None:
    """The result is in the request. What the thread's error text says now is its reason."""
    future = waiting.pop(ctypes.addressof(request.contents), (None,))[0]
    if future and not future.done():
        status = request.contents.status
        future.set_result(lib.tw_error_text().decode() if status < 0 else "")


class Loop:
    def __init__(self, handle: int, is_driven: bool) -> None:
        self.handle, self.is_driven = handle, is_driven
        self.loop = self.timer = self.queue = self.process = None
        self.descriptor = -1

    def attach(self) -> None:
        loop = asyncio.get_running_loop()
        if self.loop is loop and self.process == os.getpid():
            return
        self.detach()
        if not self.is_driven and self.queue is None:
            queue = ctypes.c_void_p()
            check(lib.tw_queue_open(self.handle, ctypes.byref(queue)))
            self.queue = queue.value
        self.loop, self.process = loop, os.getpid()
        self.descriptor = lib.tw_fd(self.handle) if self.is_driven else lib.tw_queue_fd(self.queue)
        loop.add_reader(self.descriptor, self.turn)
        self.turn()

    def detach(self) -> None:
        if self.loop and not self.loop.is_closed() and self.process == os.getpid():
            self.loop.remove_reader(self.descriptor)
        if self.timer:
            self.timer.cancel()
        self.loop = self.timer = None

    def turn(self) -> None:
        if not self.is_driven:
            lib.tw_queue_run(self.queue, 1000)
            return
        lib.tw_turn(self.handle)
        if self.timer:
            self.timer.cancel()
        self.timer = self.loop.call_later(lib.tw_timeout_ms(self.handle) / 1000, self.turn)

    def begin(self, call, *arguments, future=None):
        request = Request(done=done, queue=self.queue)
        status = call(request, *arguments)
        if status == constants["TW_STARTED"]:
            waiting[ctypes.addressof(request)] = future, request, self
            if self.is_driven:
                self.loop.call_soon(self.turn)  # what was asked is sent
        return request, status

    async def ask(self, undo, call, *arguments):
        """The request with its result. If it came, but its caller was cancelled before it took it: undo(request)."""
        future, text = self.loop.create_future(), ""
        request, status = self.begin(call, *arguments, future=future)
        request.status = status
        if status == constants["TW_STARTED"]:  # until the result comes, which may be after the future was cancelled
            try:
                text = await future
            except BaseException:
                if waiting.pop(ctypes.addressof(request), None):  # nobody waits any more
                    lib.tw_request_cancel(request)
                elif undo and request.status != status:
                    undo(request)
                raise
            status = request.status
        if status < 0:
            raise Error(status, text)
        return request

    def end(self) -> None:
        """Before the engine is closed. Calls that are under way are cancelled, and those who wait for them are told."""
        for address, (future, request, loop) in list(waiting.items()):
            if loop is self and self.process == os.getpid():  # after a fork they are the parent's
                del waiting[address]
                lib.tw_request_cancel(request)
                if future and not self.loop.is_closed():
                    future.cancel()
        self.detach()
        if self.queue is not None:
            while lib.tw_queue_run(self.queue, 1000):
                pass
            check(lib.tw_queue_close(self.queue))
            self.queue = None
