"""Threads and memory of the process: a pool, settings that OpenMP and PyTorch read when loaded, and freed memory."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from ctypes import CDLL
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# When other programs run on the machine, a spinning thread takes the core of the thread that it waits for.
# Two threads on two cores encode this many texts per second, on a quiet machine and while another program is busy:
#
#     spins           quiet     busy
#     unbounded          91     4-14
#     10,000             88       39
#     1,000              76       56
#     never (passive)    72       61
#
# libgomp counts spins, LLVM's and Intel's libomp milliseconds.
WAITING = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}

ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def tune_threads() -> None:
    """Bound the time that OpenMP's threads spin, and let PyTorch use large pages; call it before torch is imported.

    It sets GOMP_SPINCOUNT and KMP_BLOCKTIME, unless they or OMP_WAIT_POLICY are set, and THP_MEM_ALLOC_ENABLE (Linux),
    unless it is set. Each is read once, when its library is loaded: after `import torch` the call has no effect.
    """
    if "OMP_WAIT_POLICY" not in os.environ:  # which sets both libraries
        for name, value in WAITING.items():
            os.environ.setdefault(name, value)
    # PyTorch asks for large pages for large tensors: gradients of an embedding, zeroed at every step, took 15 % of a
    # training step, most of it to get pages.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def in_threads(threads: int, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Call a function for each item in a pool of threads; each call has the caller's context, such as its patience."""
    contexts = [copy_context() for _ in items]
    with ThreadPoolExecutor(threads) as pool:
        return [*pool.map(lambda context, item: context.run(call, item), contexts, items)]


def cpu_threads() -> int:
    """Return the number of threads that compute: OMP_NUM_THREADS, or the cores that this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_threads(threads: int) -> None:
    """Limit the threads that compute in this process, in PyTorch and in graphs."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if (torch := sys.modules.get("torch")) is not None:  # else it reads the variable when it is loaded
        torch.set_num_threads(threads)


def share_arenas() -> None:
    """Let glibc make no further arenas: threads share the present ones, and the holes in them.

    With an arena for each thread, a tuning of `vocable-mini` reached 2.9 GB in nine steps. The call has no effect where
    the process has more than eight arenas already.
    """
    _glibc("mallopt", ARENA_MAX, 1)


def release_memory(*, collect: bool = False) -> None:
    """Return freed memory to the system, where glibc would keep it; `collect` first frees unreachable objects."""
    if collect:
        gc.collect()
    _glibc("malloc_trim", 0)


def _glibc(function: str, *arguments: int) -> None:
    if sys.platform == "linux":
        with suppress(AttributeError):  # other C libraries lack it
            getattr(CDLL(None), function)(*arguments)
