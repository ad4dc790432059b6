"""Commands of vocable in forks of a process that has imported everything: a case takes a second instead of ten.

A fork is as a fresh process: files of its own for stdin, stdout and stderr, default signals, the folder and environment
of this one. Libraries have been imported here and nothing else: no model was read, no thread started (`preload` checks
that), PyTorch's generator is the untouched one, and Python and NumPy draw new seeds. What is not as in a fresh process:
the seed of the hashes is that of this process, and modules are there before the first signal can come.

`Elsewhere` is a second such process, with another seed of the hashes.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import NamedTuple, Self

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # the toy model, and the description of the machine
sys.path.append(str(Path(__file__).parents[2]))  # parts of the tests
os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

from vocable.cli import main, silence
from vocable.errors import VocableError

LIMIT = 60  # seconds of a command that takes one or two, a tuning five; beside other work more
Hook = Callable[[], object]
Command = Sequence[object] | Callable[[], object]  # the arguments of the command line, or a call of Python
USED = (".in", ".out", ".err")  # the files of a command's streams, in its folder
LAZY = (  # modules that libraries import when they are first needed
    "datasets.io.generator",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "pytrec_eval",
    "sklearn.cluster",
    "sklearn.feature_extraction.text",
    "sklearn.metrics",
    "torch.profiler",
)


class Ran(NamedTuple):
    """A command that has ended: its exit status (below 0 the signal), None if it had to be stopped."""

    status: int | None
    out: str
    err: str
    seconds: float


def preload() -> None:
    """Import vocable and all that its commands import; raises `RuntimeError` if a thread was started by that."""
    silence()  # before the libraries are imported, as the command line does
    import vocable

    names = [module.name for module in pkgutil.walk_packages(vocable.__path__, "vocable.")]
    for name in (*names, *LAZY):
        if "__main__" not in name and "triton" not in name:
            import_module(name)
    # Compiles a thousand patterns when the first model is opened.
    import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("bert")
    names = [Path("/proc/self/task", thread, "comm").read_text().strip() for thread in os.listdir("/proc/self/task")]
    if others := set(names[1:]) - {"jemalloc_bg_thd"}:  # which stops for a fork, and starts in it
        raise RuntimeError(f"threads run after the imports, which a fork would lack: {others}")
    gc.freeze()  # pages of what was imported stay shared


def start(folder: Path, command: Command, stdin: bytes = b"", before: Hook = lambda: None) -> int:
    """Start a command in a fork of this process; its streams are files in the folder.

    `before` is called in the fork before the command, and what it returns, if that can be called, after it.
    """
    for name, content in zip(USED, (stdin, b"", b""), strict=True):
        (folder / name).write_bytes(content)
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        for descriptor, name in enumerate(USED):
            os.dup2(os.open(folder / name, os.O_WRONLY if descriptor else os.O_RDONLY), descriptor)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115  (a fork of this fork needs them, too)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sys.modules["numpy"].random.seed()  # Python's own generator is seeded anew in every fork
        after = before()
        status = _call(command) if callable(command) else main([str(argument) for argument in command])
        sys.stdout.flush()
        if callable(after):
            after()
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(status)


def _call(command: Callable[[], object]) -> int:
    """Call a function of Python; mistakes of the user end it as they end the command line."""
    try:
        command()
    except VocableError as error:
        print(f"vocable: {error}", file=sys.stderr)
        return 2
    return 0


def end(child: int, folder: Path, limit: float = LIMIT) -> Ran:
    """Wait for the command's end, and stop it at the time limit."""
    began = time.monotonic()
    while True:
        done, code = os.waitpid(child, os.WNOHANG)
        seconds = time.monotonic() - began
        if done or seconds > limit:
            break
        time.sleep(0.005)
    status = os.waitstatus_to_exitcode(code) if done else None
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    out, err = ((folder / name).read_bytes().decode("utf-8", "replace") for name in USED[1:])
    return Ran(status, out, err, seconds)


def run(folder: Path, command: Command, stdin: bytes = b"", before: Hook = lambda: None) -> Ran:
    """Run a command to its end."""
    return end(start(folder, command, stdin, before), folder)


class Elsewhere:
    """Forks of another preloaded process; its hashes have another seed, so that what depends on them is seen."""

    def __init__(self, folder: Path) -> None:
        self._address = folder / "elsewhere"
        code = f"import preloaded; preloaded.serve({str(self._address)!r})"
        places = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            env=os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": places},
        )

    def wait(self) -> None:
        """Wait until it can run commands."""
        while not self._address.exists():
            if self._process.poll() is not None:
                raise RuntimeError("the other process could not be started")
            time.sleep(0.05)

    def run(self, folder: Path, command: Command, before: Hook = lambda: None) -> Ran:
        """Run a command to its end; what is called must be a function of a module, or a partial of one."""
        with Client(str(self._address)) as connection:
            connection.send((folder, command, b"", before))
            ran = connection.recv()
            assert isinstance(ran, Ran)
            return ran

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.terminate()


def serve(address: str) -> None:
    """Preload, and run a command for each connection until the process that started this one has gone."""
    preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks that answer
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:  # until that end of it is closed
            with Connection(listening.accept()[0].detach()) as connection:
                if not os.fork():
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    connection.send(run(*connection.recv()))
                    os._exit(0)
