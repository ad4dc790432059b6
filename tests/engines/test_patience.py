"""The requests of a context: changed for a block, seen in its threads, and as before after it."""

from __future__ import annotations

from contextvars import copy_context
from math import inf
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.engines import patience
from vocable.engines.patience import Request, patiently, request, requests, seconds_left
from vocable.engines.server import BusyError


def test_blocks_change_requests_and_end_in_any_way() -> None:
    def failing() -> None:
        with patiently(), requests(kind="count"):
            assert request() == Request("count", True, deadline=7.0)
            raise BusyError("busy")

    with requests(kind="search", deadline=7.0):
        with pytest.raises(BusyError):
            failing()
        assert request() == Request("search", deadline=7.0)
    assert request() == Request("record", False, inf, inf, 1)


def test_a_thread_of_a_block_has_its_requests() -> None:
    seen = list[Request]()
    with requests(longest=3.0):
        threads = [Thread(target=copy_context().run, args=(lambda: seen.append(request()),)) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    assert seen == [Request(longest=3.0)] * 2


@pytest.mark.parametrize(
    ("writing", "longest", "seconds"), [(True, inf, 180), (False, inf, 20), (False, 3, 3), (True, 3, 3)]
)
def test_the_patience_of_a_request(writing: bool, longest: float, seconds: float) -> None:
    with requests(writing=writing, longest=longest):
        assert patience.patience() == seconds


@given(st.booleans(), st.floats(-10, 500), st.integers(1, 9), st.integers(1, 3))
def test_an_attempt_has_a_share_of_the_time_left(writing: bool, left: float, nodes: int, shares: int) -> None:
    with pytest.MonkeyPatch.context() as patched, requests(writing=writing, deadline=1_000 + left, shares=shares):
        patched.setattr(patience.time, "monotonic", lambda: 1_000.0)
        share = (1_000 + left - 1_000) / max(nodes, shares)
        assert seconds_left(nodes) == sorted([7.0 if writing else 2.0, share, 60.0])[1]
