"""A pool of worker processes on this machine, and limits of what a process uses."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any, NoReturn

KILL_FACTOR = 1.5  # times the seconds of `limited`: code that is not Python is interrupted by nothing less
OWN_SIZES = Path("/proc/self/statm")  # of this process in pages (Linux), the address space first


class WorkerPool(ProcessPoolExecutor):
    """Spawned workers that do not import the caller's script, so that it needs no `if __name__ == "__main__"`."""

    def submit(self, *args: Any, **kwargs: object) -> Any:
        """Schedule a call; hide `__main__`, because the first calls start the workers, which would import it."""
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            return super().submit(*args, **kwargs)
        finally:
            sys.modules["__main__"] = main


@contextmanager
def worker_pool(workers: int, start: Callable[..., object], *args: object) -> Iterator[WorkerPool]:
    """Yield a pool whose workers first call `start(*args)`; the workers end with the block or with this process."""
    others = active_children()
    pool = WorkerPool(workers, get_context("spawn"), initializer=_begin, initargs=(start, args))
    try:
        yield pool
    except BaseException:
        for process in active_children():
            if process not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(start: Callable[..., object], args: tuple[object, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    Thread(target=_end_with_parent, daemon=True).start()
    start(*args)


def _end_with_parent() -> None:
    """End this process when its parent ends, even by a kill: the pool's pipes would stay open."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def limited(seconds: float, memory: int) -> Iterator[None]:
    """Limit what a block of a worker's main thread uses: `seconds` of a processor, and `memory` further bytes (Linux).

    Code that is not Python and takes longer, or that does not survive a failed allocation, ends the process. Windows
    has no such limits.

    Raises:
        TimeoutError: the seconds are over.
        MemoryError: the memory is used up.
    """
    if sys.platform == "win32":
        yield
        return
    import resource

    # Linux limits the addresses of a process: all that are mapped so far, and `memory` more.
    space = int(OWN_SIZES.read_text().split()[0]) * resource.getpagesize() + memory if OWN_SIZES.exists() else None
    _, hard = limits = resource.getrlimit(resource.RLIMIT_AS)
    # The first timer raises an error in Python's code; the second ends the process if other code does not return.
    signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    signal.setitimer(signal.ITIMER_PROF, KILL_FACTOR * seconds)  # SIGPROF ends the process
    try:
        # A hard limit that is lower cannot be exceeded.
        if space is not None and (hard == resource.RLIM_INFINITY or space <= hard):
            resource.setrlimit(resource.RLIMIT_AS, (space, hard))
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _stop(*_: object) -> NoReturn:
    raise TimeoutError
