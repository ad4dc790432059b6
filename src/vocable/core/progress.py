"""Progress of long work: a bar if stderr is a terminal, otherwise a line of the log (INFO) every 30 seconds.

Within `StagedProgress` each progress is a part of the whole command, and shows the time left of the whole command.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from datetime import timedelta
from math import inf
from threading import Event, Lock, Thread, Timer
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console  # slow to import, and only a bar needs it

T = TypeVar("T")

BAR_DELAY = 1.0  # seconds before a bar is shown
INTERVAL = 30.0  # seconds between two lines

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)
_shown = Lock()  # held by the outermost progress, the only one that is shown


class StagedProgress:
    """The progress of a command in stages, whose work is planned in seconds or another unit; a context around it.

    `begin` names the stage that begins. The later stages are expected to go on at the rate of this run: its seconds so
    far, for the planned work that it did in them. Only the outermost `StagedProgress` counts, and only with several
    stages. For a command that does less work rather than exceed its `limit`, in seconds from now, the time left never
    exceeds the rest of the limit.
    """

    _current: StagedProgress | None = None

    def __init__(self, planned: Mapping[str, float], limit: float = inf) -> None:
        self._planned, self._stage, self._end = planned, "", time.monotonic() + limit
        self._seconds, self._shares = 0.0, dict[str, float]()  # of this run, in progress that has ended; by stage
        self._is_outermost = False

    def __enter__(self) -> StagedProgress:
        self._is_outermost = StagedProgress._current is None and len(self._planned) > 1
        if self._is_outermost:
            StagedProgress._current = self
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_outermost:
            StagedProgress._current = None

    def begin(self, stage: str) -> None:
        self._stage = stage

    def title(self, title: str) -> str:
        """Return the title of a progress with the number of its stage."""
        names = list(self._planned)
        return f"{title} (stage {names.index(self._stage) + 1} of {len(names)})" if self._stage in names else title

    def add(self, seconds: float, share: float) -> None:
        """Count the seconds of a progress that did a share of the stage; of several, no more than the whole stage."""
        self._seconds += seconds
        self._shares[self._stage] = self._done(share)

    def _done(self, share: float) -> float:
        return min(1.0, self._shares.get(self._stage, 0.0) + share)

    def _work(self, share: float) -> float:
        """Return the planned work that this run has done, given the progress in this stage so far."""
        shares = self._shares | {self._stage: self._done(share)}
        return sum(done * self._planned.get(stage, 0.0) for stage, done in shares.items())

    def within_limit(self, seconds: float) -> float:
        """Return the seconds left, at most the rest of the limit, unless the limit is over."""
        most = self._end - time.monotonic()
        return min(seconds, most) if most > 0 else seconds

    def from_here(self, seconds: float) -> float | None:
        """Return the seconds of a stage that began so long ago, and of the later stages; None for the first stage."""
        names = list(self._planned)
        if not (work := self._work(0.0)) or self._stage not in names:
            return None
        planned = sum(self._planned[name] for name in names[names.index(self._stage) :])
        return self.within_limit(max(0.0, self._seconds / work * planned - seconds))

    def later(self, seconds: float, share: float) -> float:
        """Return the seconds of the later stages, given the progress in this stage so far."""
        names = list(self._planned)
        following = names[names.index(self._stage) + 1 :] if self._stage in names else []
        work = self._work(share)
        rate = (self._seconds + seconds) / work if work else 0.0
        return rate * sum(self._planned[name] for name in following)


class _Clock:
    """The count of a progress, and the time that is left at the rate of this run."""

    def __init__(self, total: int | None, begun: int) -> None:
        self.count, self.total, self._begun, self._start = begun, total, begun, time.monotonic()
        self._newest, self._moved = 1, 0.0  # the newest steps, counted together, and the seconds at their end
        self.staged = StagedProgress._current

    def advance(self, done: int, total: int | None) -> None:
        self.count, self.total = self.count + done, total or self.total
        if done:
            self._newest, self._moved = done, self.seconds

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    @property
    def _share(self) -> float:
        """The share of the total that this run did."""
        return (self.count - self._begun) / self.total if self.total else 0.0

    @property
    def left(self) -> float | None:
        """The seconds that are left of the whole command; None if nothing is known."""
        if not self.total or self.count == self._begun:
            return None if self.staged is None else self.staged.from_here(self.seconds)
        # The seconds of a step; the steps that have begun count once they take longer than the steps before.
        steps, now = self.count - self._begun, self.seconds
        rate, to_do = max(self._moved / steps, now / (steps + self._newest)), max(0, self.total - self.count)
        left = max(rate * to_do - (now - self._moved), rate * (to_do - self._newest), 0.0)
        if self.staged is None:
            return left
        return self.staged.within_limit(left + self.staged.later(rate * steps, self._share))

    def end(self) -> None:
        if self.staged is not None:
            self.staged.add(self.seconds, self._share)


@contextmanager
def progress(
    title: str, total: int | None = None, *, begun: int = 0, console: Console | None = None
) -> Iterator[Callable[..., None]]:
    """Show a bar, and yield `advance(done)`, which moves it by `done` of `total` steps.

    `begun` steps were done by an earlier run: they do not count for the rate and the time that is left. Within
    `StagedProgress` the whole command counts for the time left.
    `advance(done, more=text, total=n)` also shows a text, and changes the total. The bar appears after a second and
    disappears at the end. Without a total it shows the count of steps. A progress inside another shows nothing.
    """
    if not _shown.acquire(blocking=False):
        yield lambda done, more="", total=None: None
        return
    is_terminal = sys.stderr.isatty() if console is None else console.is_terminal
    clock = _Clock(total, begun)
    title = title if clock.staged is None else clock.staged.title(title)
    try:
        with _bar(title, clock, console) if is_terminal else _lines(title, clock) as advance:
            yield advance
    finally:
        clock.end()
        _shown.release()


@contextmanager
def _bar(title: str, clock: _Clock, console: Console | None) -> Iterator[Callable[..., None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.table import Column
    from rich.text import Text

    # Items per second.
    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s")

    class Left(ProgressColumn):
        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            return Text("-:--:--" if clock.left is None else str(timedelta(seconds=round(clock.left))))

    console = console or Console(stderr=True)
    ends = TimeElapsedColumn() if clock.total is None else Left()
    columns = TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), Rate(), ends
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")  # cut in a narrow terminal
    more = TextColumn("{task.fields[more]}", markup=False, table_column=rest)
    bar = Progress(*columns, more, console=console, transient=True, expand=True)
    task = bar.add_task(title, total=clock.total, completed=clock.count, more="")

    def advance(done: int, total: int | None = None, **more: Any) -> None:
        clock.advance(done, total)
        bar.update(task, advance=done, total=clock.total, **more)

    timer = Timer(BAR_DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield advance
    finally:
        timer.cancel()
        timer.join()  # it may be starting the bar
        bar.stop()


@contextmanager
def _lines(title: str, clock: _Clock) -> Iterator[Callable[..., None]]:
    """Log the progress every `INTERVAL` seconds, from a thread because a single step may take longer."""
    text, ended = "", Event()

    def advance(done: int, more: str = "", total: int | None = None) -> None:
        nonlocal text
        clock.advance(done, total)
        text = more or text

    def log() -> None:
        while not ended.wait(INTERVAL):
            share = f" of {clock.total:,} ({clock.count / clock.total:.0%})" if clock.total else ""
            rest = f", {_minutes(left)} left{'' if clock.staged is None else ' in all'}" if (left := clock.left) else ""
            texts = title, f"{clock.count:,}", share, _elapsed(clock.seconds), rest, text and f", {text}"
            logger.info("%s: %s%s after %s%s%s", *texts)

    thread = Thread(target=log, name="progress", daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        ended.set()
        thread.join()


def _elapsed(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else _minutes(seconds)


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
