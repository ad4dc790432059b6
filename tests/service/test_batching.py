"""The queue of the service: what would not be done in time is refused, and the rest is answered in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

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


def test_the_time_counts_from_the_arrival_of_the_request(batcher: Batcher) -> None:
    async def ask(seconds: float) -> object:
        ARRIVED.set(time.monotonic() - seconds)
        return await batcher.call(abs, -1)

    assert asyncio.run(ask(0)) == 1
    with pytest.raises(OverloadedError):
        asyncio.run(ask(1))
