"""Progress bars on stderr: shown after a second, and on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from threading import Lock, Timer
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

_shown = Lock()  # held by the outermost bar; what runs inside it shows none of its own


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


@contextmanager
def progress(title: str, total: int | None = None, *, console: Console | None = None) -> Iterator[Callable[..., None]]:
    """Show a bar that the yielded `advance(done)` moves on by `done` of `total` pieces of work.

    `advance(done, more=text)` also has it say something else. It appears after a second, is gone when the context ends,
    and is not there at all where stderr is not a terminal or inside another bar. Without a total it counts.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal or not _shown.acquire(blocking=False):
        yield lambda done, more="": None
        return
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
        _shown.release()


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
