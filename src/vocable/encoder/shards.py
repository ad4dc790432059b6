"""Shards of a corpus: what each of them is made of, and processes here or elsewhere that make them.

A folder of shards is there from the beginning. `shards.json` has the spans of the corpus, `settings.json` all else that
decides the vectors, and `shard-00001`, ... are folders of vectors, each there only when it is whole. Whoever sees the
folder can make a shard: its lock keeps others away while it is made, and is gone with the process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, as_completed
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch

from vocable.data import BadLines
from vocable.data.kinds import Kind
from vocable.data.slices import Span, cut
from vocable.errors import ArgumentError, require_extra
from vocable.processes import worker_pool
from vocable.progress import track, without_progress
from vocable.storage import finished, read_record, replacing_folder, write_record
from vocable.vectors import SHARDS

logger = logging.getLogger(__name__)

T = TypeVar("T")
Make: TypeAlias = Callable[[int], T | None]  # a shard by its number; None while another process makes it
Run: TypeAlias = Callable[[Make[T], list[int]], Iterator[tuple[int, T | None]]]

WAIT = 30.0  # seconds, for shards that other processes make
TRIES = 3  # of processes that die before one of them has finished a shard


def planned(folder: Path, settings: Mapping[str, Any], kind: Kind[Any], size: int, bad: BadLines) -> list[Span]:
    """Return the spans of a folder of shards, which is made if it is not there; parts of a shard have so many records.

    Raises `ArgumentError` if it was made with other settings.
    """
    if not finished(folder, settings):
        spans = cut(settings["source"], kind, size, settings["shards"], bad)
        try:
            with replacing_folder(folder, settings) as work:
                write_record(work / SHARDS, spans)
        except (ArgumentError, OSError):  # another process was quicker
            if not finished(folder, settings):
                raise
    return read_record(folder / SHARDS, list[Span])


def make_all(make: Make[T], numbers: Iterable[int], run: Run[T]) -> Iterator[T]:
    """Make shards until all are there, and yield what was made.

    Those that other processes make are waited for, and made here if these die.
    """
    left, died, waited = set(numbers), 0, False
    while left:
        before = len(left)
        try:
            for number, made in run(make, sorted(left)):
                if made is not None:
                    left.discard(number)
                    yield made
        except BrokenExecutor as error:
            died = 1 if len(left) < before else died + 1
            if died == TRIES:
                instead = "perhaps for want of memory: fewer of them need less"
                raise ArgumentError(f"processes that make shards have died {TRIES} times, {instead}") from error
            logger.warning("a process has died: its shard is made by another")
            continue
        if len(left) == before:
            if not waited:
                logger.warning("waiting for other processes, which make what is left (%d shards)", before)
            waited = True
            time.sleep(WAIT)


def in_turn(make: Make[T], numbers: list[int]) -> Iterator[tuple[int, T | None]]:
    """Make one shard after the other, here."""
    return ((number, make(number)) for number in numbers)


def in_processes(make: Make[T], numbers: list[int], *, workers: int) -> Iterator[tuple[int, T | None]]:
    """Make several shards at once, each in a process of this machine with its share of the threads."""
    threads = max(1, torch.get_num_threads() // workers)
    with worker_pool(workers, torch.set_num_threads, threads) as pool:
        futures = {pool.submit(_without_bar, make, number): number for number in numbers}
        for future in track(as_completed(futures), "shards", len(futures)):
            yield futures[future], future.result()


def _without_bar(make: Make[Any], number: int) -> Any:
    with without_progress():
        return make(number)


def on_dask(make: Make[T], numbers: list[int], *, address: str) -> Iterator[tuple[int, T | None]]:
    """Make shards on the workers of a Dask cluster, whose scheduler is at dask://HOST:PORT."""
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
