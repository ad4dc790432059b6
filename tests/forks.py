"""Processes that start at once: forks of a process that has imported the libraries, one for each process of pytest.

A fork is a fresh process but for that: no thread runs, no model was read, the generators are untouched (`preload` in
`tests/slow/preloaded.py` has more). Its hashes have another seed than those of the process of pytest.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from runpy import run_path
from threading import Timer
from typing import IO, Any


def context() -> ForkServerContext:
    """Return the context of `multiprocessing` whose processes are such forks."""
    forks = get_context("forkserver")
    forks.set_forkserver_preload([f"{__package__}.preload"])
    forkserver.ensure_running()  # with this module, before a library names its own
    return forks


class Fork:
    """A call in a fork, with pipes as `stdout` and `stderr`.

    Args:
        call: A function of a module; an integer that it returns is the exit status.
        environment: Variables of the fork besides those of the process it is a fork of.
    """

    def __init__(self, call: Callable[..., object], *arguments: object, environment: dict[str, str] | None = None):
        forks = context()
        pipes = [forks.Pipe(duplex=False) for _ in range(2)]
        writers = [writer for _, writer in pipes]
        self.process: BaseProcess = forks.Process(target=_run, args=(call, arguments, environment or {}, writers))
        self.process.start()
        self.stdout, self.stderr = (_text(reader) for reader, _ in pipes)
        for writer in writers:
            writer.close()

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.process.join()
        self.stdout.close()
        self.stderr.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self.process.pid is not None
        return self.process.pid

    def kill(self) -> None:
        """End the process by SIGKILL, unless it has ended."""
        self.process.kill()

    def wait(self, timeout: float = 300) -> int:
        """Return the exit status when the process has ended; below 0 it is a signal."""
        self.process.join(timeout)
        assert self.process.exitcode is not None, "the process did not end"
        return self.process.exitcode

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """Return all that the process writes to `stdout` and `stderr`; it is killed at the time limit."""
        limit = Timer(timeout, self.kill)
        limit.start()
        with ThreadPoolExecutor(1) as reading:
            errors = reading.submit(self.stderr.read)
            written = self.stdout.read(), errors.result()
        self.process.join()
        limit.cancel()
        self.stdout.close()
        self.stderr.close()
        return written


def run_script(path: Path, *arguments: object, timeout: float = 300) -> tuple[int, str, str]:
    """Run a script as `python PATH ARGUMENTS` does, in a fork; returns its exit status, `stdout` and `stderr`."""
    with Fork(_script, str(path), *map(str, arguments)) as process:
        out, err = process.communicate(timeout)
        return process.wait(), out, err


def start_two(call: Callable[..., int], *arguments: object) -> list[Fork]:
    """Start two processes as `torchrun` does; their ranks are the first argument of the call."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    return [
        Fork(_ranked, call, rank, *arguments, environment=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]


def _script(*words: str) -> None:
    sys.argv = [*words]
    sys.path.insert(0, str(Path(words[0]).parent))
    run_path(words[0], run_name="__main__")


def _ranked(call: Callable[..., int], rank: int, *arguments: object) -> None:
    """Call a function, and end as a process of Python does: a fork calls no function of `atexit`."""
    import torch

    torch.set_num_threads(1)
    status = call(rank, *arguments)
    atexit._run_exitfuncs()
    sys.exit(status)


def _text(reader: Any) -> IO[str]:
    with reader:
        return open(os.dup(reader.fileno()), encoding="utf-8")


def _run(call: Callable[..., object], arguments: tuple[object, ...], environment: dict[str, str], writers: Any) -> None:
    for descriptor, writer in enumerate(writers, 1):
        os.dup2(writer.fileno(), descriptor)
        writer.close()
    os.environ |= environment
    status = call(*arguments)
    if isinstance(status, int):
        raise SystemExit(status)
