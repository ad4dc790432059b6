"""Shards of a corpus: their plan, and the processes that make them, here or on other machines.

The folder of the shards exists from the beginning. `shards.json` has the spans of the corpus, `settings.json`
everything else that determines the vectors. `shard-00001`, ... are folders of vectors, written atomically. Any process
that sees the folder can make a shard, under a lock that ends with the process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, as_completed
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from vocable.core.progress import track, without_progress
from vocable.core.storage import finished, read_record, replacing_folder, write_record
from vocable.core.threads import cpu_threads, limit_threads
from vocable.data import BadLines
from vocable.data.kinds import Kind
from vocable.data.slices import Span, cut
from vocable.encoding.vectors import SHARDS
from vocable.errors import ArgumentError, require_extra

logger = logging.getLogger(__name__)

T = TypeVar("T")
Make: TypeAlias = Callable[[int], T | None]  # makes a shard by its number; None while another process makes it
MakeAll: TypeAlias = Callable[[Make[T], list[int]], Iterator[tuple[int, T | None]]]

SHARD_WAIT = 30.0  # seconds between looks at shards that other processes make
MAX_DEATHS = 3  # consecutive deaths of processes without a finished shard


def planned(folder: Path, settings: Mapping[str, Any], kind: Kind[object], size: int, bad: BadLines) -> list[Span]:
    """Return the spans of a folder of shards, and create the folder if it is missing; `size` records are a part.

    Raises `ArgumentError` if the folder was made with other settings.
    """
    if not finished(folder, settings):
        spans = cut(settings["source"], kind, size, settings["shards"], bad)
        try:
            with replacing_folder(folder, settings) as work:
                write_record(work / SHARDS, spans)
        except (ArgumentError, OSError):  # another process was faster
            if not finished(folder, settings):
                raise
    return read_record(folder / SHARDS, list[Span])


def make_all(make: Make[T], numbers: Iterable[int], run: MakeAll[T]) -> Iterator[T]:
    """Make shards until all exist, and yield the results of the shards made here.

    Wait for shards that other processes make, and make such a shard here if its process dies.
    """
    left, died, waited = set(numbers), 0, False
    while left:
        left_before = len(left)
        # A shard without a result belongs to another process.
        try:
            for number, result in run(make, sorted(left)):
                if result is not None:
                    left.discard(number)
                    yield result
        except BrokenExecutor as error:
            # Count deaths in a row, without a shard between them.
            died = 1 if len(left) < left_before else died + 1
            if died == MAX_DEATHS:
                advice = "perhaps out of memory: use fewer"
                raise ArgumentError(f"processes that make shards have died {MAX_DEATHS} times, {advice}") from error
            logger.warning("a process has died: another one makes its shard")
            continue
        # Other processes have all shards that are left: look again later.
        if len(left) == left_before:
            if not waited:
                logger.warning("waiting for other processes, which make the last %d shards", left_before)
            waited = True
            time.sleep(SHARD_WAIT)


def in_turn(make: Make[T], numbers: list[int]) -> Iterator[tuple[int, T | None]]:
    """Make one shard after the other in this process."""
    return ((number, make(number)) for number in numbers)


def in_processes(make: Make[T], numbers: list[int], *, workers: int) -> Iterator[tuple[int, T | None]]:
    """Make several shards at once, each in a process of this machine with a share of its threads."""
    from vocable.core.processes import worker_pool  # multiprocessing is slow to import; a search needs none

    with worker_pool(workers, limit_threads, max(1, cpu_threads() // workers)) as pool:
        futures = {pool.submit(_without_bar, make, number): number for number in numbers}
        for future in track(as_completed(futures), "shards", len(futures)):
            yield futures[future], future.result()


def _without_bar(make: Make[Any], number: int) -> Any:
    with without_progress():
        return make(number)


def on_dask(make: Make[T], numbers: list[int], *, address: str) -> Iterator[tuple[int, T | None]]:
    """Make shards on the workers of a Dask cluster with the scheduler dask://HOST:PORT."""
    dask = require_extra("distributed", "dask")
    scheme, _, host = address.partition("://")
    if scheme != "dask" or not host:
        raise ArgumentError(f"scheduler must be an address, as dask://host:8786, not {address!r}")
    try:
        client = dask.Client(f"tcp://{host}")
    except (OSError, ValueError) as error:
        raise ArgumentError(f"scheduler: no Dask scheduler answers at {address}: {error}") from error
    with client:
        futures = client.map(make, numbers, pure=False)
        by_key = {future.key: number for future, number in zip(futures, numbers, strict=True)}
        try:
            for future in track(dask.as_completed(futures), "shards", len(futures)):
                yield by_key[future.key], future.result()
        except dask.KilledWorker as error:
            raise BrokenExecutor(str(error)) from error
