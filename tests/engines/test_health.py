"""The breaker of a server, and second requests while the first hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

import pytest

from vocable.engines import health
from vocable.engines.health import Health, attempt, hedged, others
from vocable.engines.patience import requests
from vocable.errors import UnavailableError, VectorsError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("vocable.engines.health.time.monotonic", lambda: now[0])
    return now


def ask(of: Health, kind: str = "search", error: Exception | None = None) -> None:
    with requests(kind=kind), of.asking():
        if error is not None:
            raise error


def in_thread(call: Callable[[], Any]) -> Any:
    """What a call raises in another thread."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_after_a_failure_requests_fail_at_once_and_then_one_tries(clock: list[float]) -> None:
    of = Health(rest=5)
    with pytest.raises(UnavailableError):
        ask(of, error=UnavailableError("away"))
    clock[0] += 2
    with pytest.raises(UnavailableError) as found:
        ask(of)
    assert (str(found.value), found.value.seconds) == ("away", 3.0)
    clock[0] += 3
    with requests(kind="search"), of.asking():  # this thread tries
        of.check()
        refused = in_thread(of.check)
        assert (str(refused), refused.seconds) == ("away", health.TRIAL_SECONDS)
    assert of.failure is None
    assert in_thread(of.check) is None


def test_a_search_says_that_the_server_answers_and_a_record_does_not(clock: list[float]) -> None:
    of = Health(rest=5)
    for error in (VectorsError("gone"), UnavailableError("away")):
        with pytest.raises(type(error)):
            ask(of, "record", error)
        assert of.failure == str(error)
    clock[0] += 6
    ask(of, "record")
    assert of.failure == "away"
    assert isinstance(in_thread(of.check), UnavailableError)
    ask(of, "read")  # a shard answered: a search of another thread may try
    assert in_thread(of.check) is None
    assert of.failure == "away"


@pytest.mark.parametrize("kind", ["search", "count"])
def test_a_success_clears_the_failure(kind: str, clock: list[float]) -> None:
    of = Health(rest=5)
    with pytest.raises(UnavailableError):
        ask(of, "write", UnavailableError("away"))
    clock[0] += 6
    ask(of, kind)
    assert (of.failure, of.answered) == (None, 106.0)


def test_a_refused_document_and_no_rest_leave_a_server_as_it_is() -> None:
    of = Health()
    with pytest.raises(VectorsError):
        ask(of, "write", VectorsError("refused"))
    assert of.failure is None
    with pytest.raises(UnavailableError):
        ask(of, error=UnavailableError("away"))
    assert of.failure == "away"
    ask(of)
    assert of.failure is None


def test_the_first_answer_counts_and_a_hanging_request_is_left() -> None:
    hangs, turns = threading.Event(), list[int]()

    def call() -> int:
        if (number := attempt.get()) < 2:
            hangs.wait(20)
        return number

    assert hedged(call, lambda: turns.append(1), 0.02) in (2, 3)
    hangs.set()
    assert len(turns) >= 2
    with pytest.raises(ZeroDivisionError):
        hedged(lambda: 1 // 0, lambda: turns.append(1), 5.0)


def test_requests_are_seen_by_their_kind_and_a_busy_server_gets_no_second_one(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    seen, patient = list[str](), list[float]()

    @contextmanager
    def of_kind(kind: str) -> Iterator[None]:
        seen.append(kind)
        yield

    def waiting(call: Callable[[], Any], turn: Callable[[], object], seconds: float) -> Any:
        patient.append(seconds)
        attempt.set(next(winners))
        return call()

    def slow(seconds: float) -> Callable[[], None]:
        def call() -> None:
            clock[0] += seconds

        return call

    monkeypatch.setattr(health, "hedged", waiting)
    of = Health(seen=of_kind)
    winners = iter((0, 0, 1, 0, 0))
    for seconds in (1.5, 4.0, 30.0, 13.0, 0.0):
        with requests(kind="count"):
            copy_context().run(of.send, slow(seconds), lambda: None)
    assert seen == ["count"] * 5
    assert patient == pytest.approx([2.0, 4.5, 12.0, 12.0, 39.0])  # the answer to a second request says nothing


def test_each_node_is_left_out_by_one_of_the_second_requests() -> None:
    for count in (2, 3, 7, 40):
        nodes = [f"n{number}" for number in range(count)]
        asked = [others(nodes, number) for number in range(1, health.HEDGES)]
        assert all(any(node not in some for some in asked) for node in nodes)
        assert all(asked)
    assert others(["alone"], 1) == []
