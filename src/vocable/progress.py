"""A progress bar on stderr, for work that takes longer than a second and somebody to see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

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

PATIENCE = 1.0  # seconds without a bar


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f}/s")


@contextmanager
def progress(
    title: str, total: int | None = None, *, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Within the context, a bar that the yielded `advance(done)` moves on by `done` of `total` pieces of work.

    It appears after a second, is gone when the context ends, and is not there at all where stderr is not a terminal.
    Without a total it counts.
    """
    console = console or Console(stderr=True)
    ends = TimeElapsedColumn() if total is None else TimeRemainingColumn()
    columns = TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), _Rate(), ends
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(title, total=total)
    patience = Timer(PATIENCE, bar.start)
    patience.daemon = True
    patience.start()
    try:
        yield lambda done: bar.advance(task, done)
    finally:
        patience.cancel()
        patience.join()  # it may be about to start the bar
        bar.stop()
