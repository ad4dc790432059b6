"""Progress of long work: a bar if stderr is a terminal, otherwise a line of the log (INFO) every 30 seconds."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from threading import Event, Lock, Thread, Timer
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console  # slow to import, and only a bar needs it

T = TypeVar("T")

BAR_DELAY = 1.0  # seconds before a bar is shown
INTERVAL = 30.0  # seconds between two lines

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)
_shown = Lock()  # held by the outermost progress, the only one that is shown


@contextmanager
def progress(
    title: str, total: int | None = None, *, begun: int = 0, console: Console | None = None
) -> Iterator[Callable[..., None]]:
    """Show a bar, and yield `advance(done)`, which moves it by `done` of `total` steps.

    `begun` steps were done by an earlier run: they do not count for the rate and the time that is left.
    `advance(done, more=text)` also shows a text. The bar appears after a second and disappears at the end. Without a
    total it shows the count of steps. A progress inside another progress shows nothing.
    """
    if not _shown.acquire(blocking=False):
        yield lambda done, more="": None
        return
    is_terminal = sys.stderr.isatty() if console is None else console.is_terminal
    try:
        with _bar(title, total, begun, console) if is_terminal else _lines(title, total, begun) as advance:
            yield advance
    finally:
        _shown.release()


@contextmanager
def _bar(title: str, total: int | None, begun: int, console: Console | None) -> Iterator[Callable[..., None]]:
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
    from rich.table import Column
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s")

    console = console or Console(stderr=True)
    ends = TimeElapsedColumn() if total is None else TimeRemainingColumn()
    columns = TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), Rate(), ends
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # cut in a narrow terminal
    more = TextColumn("{task.fields[more]}", markup=False, table_column=rest)
    bar = Progress(*columns, more, console=console, transient=True, expand=True)
    task = bar.add_task(title, total=total, completed=begun, more="")
    timer = Timer(BAR_DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, **more: bar.update(task, advance=done, **more)
    finally:
        timer.cancel()
        timer.join()  # it may be starting the bar
        bar.stop()


@contextmanager
def _lines(title: str, total: int | None, begun: int) -> Iterator[Callable[..., None]]:
    """Log the progress every `INTERVAL` seconds, from a thread because a single step may take longer."""
    count, text, ended, start = begun, "", Event(), time.monotonic()

    def advance(done: int, more: str = "") -> None:
        nonlocal count, text
        count, text = count + done, more or text

    def log() -> None:
        while not ended.wait(INTERVAL):
            share = "" if not total else f" of {total:,} ({count / total:.0%})"
            seconds = time.monotonic() - start
            left = 0.0 if not total or count == begun else seconds / (count - begun) * (total - count)
            rest = f", {_minutes(left)} left" if left else ""
            logger.info("%s: %s%s after %.0f s%s%s", title, f"{count:,}", share, seconds, rest, text and f", {text}")

    thread = Thread(target=log, name="progress", daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        ended.set()
        thread.join()


def _minutes(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes:,} minute{'' if minutes == 1 else 's'}" if minutes else "less than a minute"


@contextmanager
def without_progress() -> Iterator[None]:
    """Show no progress in the context."""
    with _shown:
        yield


def track(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """Yield the items and show the progress; `total` defaults to len(items) if they have a length."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress(title, total) as advance:
        for item in items:
            yield item
            advance(1)
