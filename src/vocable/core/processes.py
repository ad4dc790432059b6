"""A pool of worker processes on this machine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from threading import Thread
from types import ModuleType
from typing import Any


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
