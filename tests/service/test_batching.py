"""The queue of the service: what would not be done in time is refused, what nobody waits for stops or is not begun."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from contextvars import ContextVar
from typing import Any

import pytest

from vocable.core.cancelling import stop_if_cancelled
from vocable.service.batching import ARRIVED, Batcher, OverloadedError


@pytest.fixture
def batcher() -> Iterator[Batcher]:
    """A queue with a time limit of half a second."""
    batcher = Batcher(size=8, limit=100, timeout=0.5)
    yield batcher
    batcher.close()


def test_calls_that_would_not_be_done_in_time_are_refused_and_never_done(batcher: Batcher) -> None:
    done: list[int] = []

    def slow(number: int) -> int:
        time.sleep(0.1)
        done.append(number)
        return number

    async def ask() -> list[object]:
        return await asyncio.gather(*(batcher.call(slow, number) for number in range(40)), return_exceptions=True)

    answers = asyncio.run(ask())  # nothing is known of their time when they come
    refused = [answer for answer in answers if isinstance(answer, OverloadedError)]
    assert [answer for answer in answers if not isinstance(answer, Exception)] == done == [*range(len(done))]
    assert 0 < len(done) <= 5
    assert len(done) + len(refused) == 40
    assert {str(error) for error in refused} == {"the work that waits would not be done within 0.5 s"}
    assert all(error.seconds >= 1 for error in refused)
    assert batcher.depth == 0


def test_a_kind_of_work_that_takes_too_long_is_tried_again_when_nothing_waits(batcher: Batcher) -> None:
    def slow(number: int) -> int:
        time.sleep(0.6)
        return number

    assert [asyncio.run(batcher.call(slow, number)) for number in range(2)] == [0, 1]


def test_one_stall_of_a_kind_of_work_refuses_nothing() -> None:
    """The first batch loads what its kind needs, and a busy machine stalls now and then."""
    stalls = {0, 4}

    def quick(number: int) -> int:
        time.sleep(0.4 if number in stalls else 0.002)
        return number

    async def ask(batcher: Batcher) -> list[object]:
        return await asyncio.gather(*(batcher.call(quick, number) for number in range(40)), return_exceptions=True)

    with closing(Batcher(size=8, limit=100, timeout=2)) as batcher:
        assert asyncio.run(ask(batcher)) == [*range(40)]


def test_the_time_counts_from_the_arrival_of_the_request(batcher: Batcher) -> None:
    async def ask(seconds: float) -> object:
        ARRIVED.set(time.monotonic() - seconds)
        return await batcher.call(abs, -1)

    assert asyncio.run(ask(0)) == 1
    with pytest.raises(OverloadedError):
        asyncio.run(ask(1))


class Lazy(Sequence[Any]):
    """Results of a batch, each made when it is asked for, in `seconds`."""

    def __init__(self, items: Sequence[int], made: list[int], seconds: float = 0.0) -> None:
        self._items, self._made, self._seconds = items, made, seconds

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, place: Any) -> Any:
        time.sleep(self._seconds)
        self._made.append(self._items[place])
        return self._items[place]


def test_a_slow_batch_answers_what_is_ready_and_refuses_the_rest_early(batcher: Batcher) -> None:
    made: list[int] = []

    def slow(items: Sequence[int]) -> Sequence[int]:
        return Lazy(items, made, seconds=0.2)

    async def ask() -> list[object]:
        return await asyncio.gather(*(batcher.run(slow, [n], wait=0.1) for n in range(8)), return_exceptions=True)

    answers = asyncio.run(ask())
    assert answers[0] == [0]
    assert made == [*range(len(made))]
    assert len(made) <= 3
    assert all(isinstance(answer, OverloadedError) for answer in answers[len(made) :])


def test_what_nobody_waits_for_is_left_out_of_a_batch_in_progress(batcher: Batcher) -> None:
    begun, gone, made = threading.Event(), threading.Event(), list[int]()

    def work(items: Sequence[int]) -> Sequence[int]:
        begun.set()
        gone.wait(10)
        return Lazy(items, made)

    async def ask() -> list[object]:
        tasks = [asyncio.create_task(batcher.run(work, [number], wait=0.1)) for number in range(3)]
        await asyncio.to_thread(begun.wait, 10)
        tasks[1].cancel()
        await asyncio.wait(tasks[1:2])
        gone.set()
        return await asyncio.gather(tasks[0], tasks[2])

    assert asyncio.run(ask()) == [[0], [2]]
    assert made == [0, 2]


@pytest.mark.parametrize(("change", "steps"), [(False, 1), (True, 3)])
def test_what_nobody_waits_for_stops_at_its_next_step_unless_it_is_a_change(
    batcher: Batcher, change: bool, steps: int
) -> None:
    begun, gone, done = threading.Event(), threading.Event(), list[int]()

    def work() -> None:
        for step in range(3):
            done.append(step)
            begun.set()
            gone.wait(10)
            stop_if_cancelled()

    async def ask() -> int:
        task = asyncio.create_task(batcher.call(work, change=change))
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        await asyncio.wait([task])
        gone.set()
        return await batcher.call(lambda: len(done))

    assert asyncio.run(ask()) == steps


def test_slow_work_takes_turns_with_other_work(batcher: Batcher) -> None:
    done, hold = list[str](), threading.Event()

    async def ask() -> None:
        held = asyncio.create_task(batcher.call(hold.wait, 10))
        await asyncio.sleep(0)
        calls = [batcher.call(done.append, name, slow=name.startswith("slow")) for name in WAITING]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
        hold.set()
        await asyncio.gather(held, *tasks)

    asyncio.run(ask())
    assert done == ["slow 1", "search 1", "slow 2", "search 2", "slow 3", "slow 4"]


WAITING = ["slow 1", "slow 2", "slow 3", "slow 4", "search 1", "search 2"]


def test_a_failing_batch_is_tried_one_by_one_and_a_single_item_once(batcher: Batcher) -> None:
    tried: list[list[int]] = []

    def fails(items: list[int]) -> list[int]:
        tried.append(items)
        return [10 // item for item in items]

    async def ask(numbers: list[int]) -> list[object]:
        return await asyncio.gather(*(batcher.run(fails, [n], wait=0.1) for n in numbers), return_exceptions=True)

    results = asyncio.run(ask([5, 0]))
    assert results[0] == [2]
    assert isinstance(results[1], ZeroDivisionError)
    assert tried == [[5, 0], [5], [0]]
    asyncio.run(ask([0]))
    assert tried[3:] == [[0]]


def test_work_is_done_in_the_context_of_its_request(batcher: Batcher) -> None:
    traced: ContextVar[str] = ContextVar("traced", default="none")

    async def ask(name: str) -> list[str]:
        traced.set(name)
        return [await batcher.call(traced.get), await batcher.call(traced.get, slow=True)]

    async def both() -> list[list[str]]:
        return await asyncio.gather(ask("a"), ask("b"))

    assert asyncio.run(both()) == [["a", "a"], ["b", "b"]]
