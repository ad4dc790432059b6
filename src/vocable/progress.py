"""Progress of long work: a bar on stderr where that is a terminal, and else a line of the log from time to time.

The lines are of level INFO: the command line prints them, a program in Python sees them if it asks for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from threading import Event, Lock, Thread, Timer
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

T = TypeVar("T")

PATIENCE = 1.0  # seconds without a bar
INTERVAL = 30.0  # seconds between two lines

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # how far it is is for everybody
_shown = Lock()  # held by the outermost progress; what runs inside it shows none of its own


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


@contextmanager
def progress(title: str, total: int | None = None, *, console: Console | None = None) -> Iterator[Callable[..., None]]:
    """Show a bar that the yielded `advance(done)` moves on by `done` of `total` pieces of work.

    `advance(done, more=text)` also has it say something else. It appears after a second and is gone when the context
    ends. Without a total it counts. Where stderr is no terminal, a line is logged every 30 seconds in place of the bar.
    Inside another progress nothing is shown.
    """
    if not _shown.acquire(blocking=False):
        yield lambda done, more="": None
        return
    console = console or Console(stderr=True)
    try:
        with (_bar if console.is_terminal else _lines)(title, total, console) as advance:
            yield advance
    finally:
        _shown.release()


@contextmanager
def _bar(title: str, total: int | None, console: Console) -> Iterator[Callable[..., None]]:
    ends = TimeElapsedColumn() if total is None else TimeRemainingColumn()
    columns = TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), _Rate(), ends
    bar = Progress(*columns, TextColumn("{task.fields[more]}"), console=console, transient=True)
    task = bar.add_task(title, total=total, more="")
    patience = Timer(PATIENCE, bar.start)
    patience.daemon = True
    patience.start()
    try:
        yield lambda done, **more: bar.update(task, advance=done, **more)
    finally:
        patience.cancel()
        patience.join()  # it may be about to start the bar
        bar.stop()


@contextmanager
def _lines(title: str, total: int | None, console: Console) -> Iterator[Callable[..., None]]:
    """Log every `INTERVAL` seconds how much is done, in a thread of its own: a piece of work may take longer."""
    count, said, ended, start = 0, "", Event(), time.monotonic()

    def advance(done: int, more: str = "") -> None:
        nonlocal count, said
        count, said = count + done, more or said

    def log() -> None:
        while not ended.wait(INTERVAL):
            share = "" if not total else f" of {total:,} ({count / total:.0%})"
            seconds = time.monotonic() - start
            rest = "" if not total or not count else f", {seconds / count * (total - count) / 60:,.0f} minutes left"
            logger.info("%s: %s%s after %.0f s%s%s", title, f"{count:,}", share, seconds, rest, said and f", {said}")

    thread = Thread(target=log, name="progress", daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        ended.set()
        thread.join()


@contextmanager
def without_progress() -> Iterator[None]:
    """Show no bar while the context lasts."""
    with _shown:
        yield


def track(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """Yield the items with a bar that counts them, as `progress` shows it; `total` is len(items) where they have it."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress(title, total) as advance:
        for item in items:
            yield item
            advance(1)
