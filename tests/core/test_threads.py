"""The environment that `tune_threads` and the command line set before torch is loaded; importing sets nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "THP_MEM_ALLOC_ENABLE")
PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
SCRIPT = "import json, os, sys, vocable; {call}; print(json.dumps([dict(os.environ), 'torch' in sys.modules]))"
TUNE = "vocable.tune_threads()"
COMMAND = "import vocable.cli, io; out, sys.stdout = sys.stdout, io.StringIO(); vocable.cli.main([]); sys.stdout = out"


def after(call: str, given: dict[str, str]) -> tuple[dict[str, str], bool]:
    """The environment after a call in a new process with these variables, and whether torch was loaded."""
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | given
    found = json.loads(subprocess.check_output([sys.executable, "-c", SCRIPT.format(call=call)], env=environment))
    return {name: found[0][name] for name in NAMES if name in found[0]}, found[1]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"} | PAGES),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"} | PAGES),
        ({"GOMP_SPINCOUNT": "infinity"}, {"GOMP_SPINCOUNT": "infinity", "KMP_BLOCKTIME": "1"} | PAGES),
        ({"KMP_BLOCKTIME": "200"}, {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "200"} | PAGES),
        ({"OMP_WAIT_POLICY": "active"} | {"THP_MEM_ALLOC_ENABLE": "0"},) * 2,
    ],
)
def test_spinning_is_bounded_and_pages_are_large_unless_the_user_has_set_them(
    given: dict[str, str], left: dict[str, str]
) -> None:
    assert after(TUNE, given) == (left, False)


def test_the_command_line_does_it_and_an_import_does_not() -> None:
    assert after(COMMAND, {}) == ({"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"} | PAGES, False)
    assert after("pass", {}) == ({}, False)


FREED = """
import sys
from threading import Thread
from psutil import Process
from vocable.core.threads import release_memory

def work():
    kept.append([b"a" * size for size in range(49_000, 51_000)])

kept = []
for _ in range(2):
    thread = Thread(target=work)
    thread.start()
    thread.join()
held = [part[::50] for part in kept]  # which lie between freed blocks: glibc keeps all of them
del kept[:]
before = Process().memory_info().rss
release_memory()
print(before - Process().memory_info().rss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_freed_memory_returns_to_the_system() -> None:
    freed = int(subprocess.check_output([sys.executable, "-c", FREED]))
    assert freed > 150e6  # of 200 MB


ARENAS = """
from ctypes import CDLL, c_int, c_void_p
from threading import Barrier, Thread
from vocable.core.threads import share_arenas

def work():
    kept.append([b"a" * size for size in range(1_000, 2_000)])
    barrier.wait()

kept, barrier = [], Barrier(6)
{call}
threads = [Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = CDLL(None)
libc.fdopen.restype, libc.malloc_info.argtypes, libc.fflush.argtypes = c_void_p, [c_int, c_void_p], [c_void_p]
stdout = libc.fdopen(1, b"w")
libc.malloc_info(0, stdout)
libc.fflush(stdout)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_threads_share_the_arenas_that_there_are() -> None:
    counts = [
        subprocess.check_output([sys.executable, "-c", ARENAS.format(call=call)], text=True).count("<heap ")
        for call in ("", "share_arenas()")
    ]
    assert counts[0] > counts[1] in (1, 2)
