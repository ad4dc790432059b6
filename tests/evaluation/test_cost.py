from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from vocable.errors import ArgumentError, VectorsError
from vocable.evaluation.cost import (
    TIMED_TEXTS,
    TURN,
    Cost,
    TimedSystem,
    activation_rates,
    active_terms,
    answer_costs,
    answer_times,
    cost_columns,
    encoding_rates,
    flops,
    spread,
)
from vocable.indexes.exact_index import ExactIndex

V = 7


def dense() -> st.SearchStrategy[np.ndarray]:
    weights = st.sampled_from([0.0, 0.0, 0.5, 2.0])
    return st.integers(1, 6).flatmap(lambda rows: arrays(np.float32, (rows, V), elements=weights))


@given(dense(), dense())
def test_flops_and_active_terms_equal_counting_over_all_pairs(queries: np.ndarray, documents: np.ndarray) -> None:
    shared = [np.count_nonzero((query > 0) & (document > 0)) for query in queries for document in documents]
    assert flops(csr_array(queries), csr_array(documents)) == pytest.approx(np.mean(shared))
    assert active_terms(csr_array(queries)) == pytest.approx((queries > 0).sum(axis=1).mean())
    np.testing.assert_allclose(activation_rates(csr_array(documents)), (documents > 0).mean(axis=0))


def test_flops_is_the_postings_read_over_all_pairs() -> None:
    rng = np.random.default_rng(0)
    queries, documents = ((rng.random((rows, 40)) < 0.2).astype(np.float32) for rows in (11, 23))
    frequency = ExactIndex(csr_array(documents)).document_frequency
    read = sum(frequency[query > 0].sum() for query in queries)
    assert flops(csr_array(queries), csr_array(documents)) == pytest.approx(read / (11 * 23))


def test_a_stored_zero_is_not_an_active_term() -> None:
    vectors = csr_array((np.array([0.0, 3.0]), np.array([0, 2]), np.array([0, 2])), shape=(1, 4))
    assert active_terms(vectors) == 1
    assert activation_rates(vectors).tolist() == [0, 0, 1, 0]
    assert flops(vectors, vectors) == 1


def test_no_vectors_cost_nothing() -> None:
    empty, one = csr_array((0, V)), csr_array(np.ones((1, V)))
    assert active_terms(empty) == flops(empty, one) == flops(one, empty) == 0


def test_flops_of_two_vocabularies_is_refused() -> None:
    with pytest.raises(VectorsError):
        flops(csr_array(np.ones((1, 2))), csr_array(np.ones((1, 3))))


def test_index_bytes_is_the_size_of_its_arrays() -> None:
    vectors = csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]], dtype=np.float32))
    # 3 postings of a place (uint16) and a weight (float32), and v + 1 offsets (int64)
    assert ExactIndex(vectors).nbytes == 3 * (2 + 4) + 4 * 8
    wide = csr_array((vectors.data, vectors.indices, vectors.indptr), shape=(2, 30_522))
    assert ExactIndex(wide).nbytes == ExactIndex(vectors).nbytes  # terms of no document count nothing
    # and ids: 3 offsets (int64) and their letters; they are in order already
    assert ExactIndex(vectors, ["a", "bc"]).nbytes == 3 * (2 + 4) + 4 * 8 + 3 * 8 + 3


def test_only_columns_with_a_value_are_shown() -> None:
    costs = [None, Cost(flops=1.234, index_bytes=5_250_000), Cost(flops=0.5)]
    header, rows = cost_columns(costs)
    assert header == ["FLOPS", "index MB"]
    assert rows == [["–", "–"], ["1.23", "5.25"], ["0.50", "–"]]
    assert cost_columns([None, Cost()]) == ([], [[], []])


class Clock:
    """A clock that a test advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("vocable.evaluation.cost.perf_counter", lambda: self.now)

    def taking(self, seconds: Callable[[Any], float]) -> Callable[[Any], Any]:
        def call(given: Any) -> Any:
            self.now += seconds(given)
            return given

        return call


@pytest.mark.usefixtures("all_answers")
@pytest.mark.parametrize(("queries", "timed"), [(3, 201), (52, 208), (200, 200), (777, 200)])
def test_every_query_is_timed_in_every_search(monkeypatch: pytest.MonkeyPatch, queries: int, timed: int) -> None:
    clock = Clock(monkeypatch)
    fast = TimedSystem(clock.taking(lambda text: int(text) / 1e3), [clock.taking(lambda _: 0.002)])
    ways = [clock.taking(lambda text: int(text) / 1e4), clock.taking(lambda _: 0.5)]
    texts = [str(number) for number in range(queries)]
    times = answer_times([fast, TimedSystem(clock.taking(lambda _: 0.25), ways)], texts)  # type: ignore[arg-type]
    rows = np.array([*spread(queries, 200)] * (timed // min(queries, 200)), dtype=float)
    expected = [(rows, [[2.0] * timed]), (np.full(timed, 250.0), [rows / 10, [500.0] * timed])]
    for (encoding, searching), (encoded, searched) in zip(times, expected, strict=True):
        np.testing.assert_allclose(encoding, encoded, atol=1e-6)
        np.testing.assert_allclose(searching, searched, atol=1e-6)
    with pytest.raises(ArgumentError):
        answer_times([fast], [])


@pytest.mark.usefixtures("all_answers")
def test_systems_take_turns_and_the_first_query_of_a_turn_warms_up() -> None:
    called: list[str] = []
    systems = [TimedSystem(lambda text, name=name: called.append(name + text), []) for name in "ab"]  # type: ignore[misc]
    answer_times(systems, [f"{number:03}" for number in range(200)])  # type: ignore[arg-type]
    assert called[:3] == ["a000", "a000", "a001"]
    assert called[TURN : TURN + 4] == [f"a{TURN - 1:03}", "b000", "b000", "b001"]
    assert len(called) == 2 * (200 + -(-200 // TURN))


def test_a_rate_of_encoding_is_a_median_without_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seconds = Clock(monkeypatch), iter([90.0, 1.0, 9.0, 2.0, 1.0, 2.0])
    slow = clock.taking(lambda texts: next(seconds))
    rates = encoding_rates([slow, clock.taking(lambda texts: len(texts) / 50)], ["text"] * 300)
    assert rates == pytest.approx([TIMED_TEXTS / 2.0, 50.0])


@given(st.lists(st.tuples(st.floats(0.01, 50), st.floats(0.01, 50)), min_size=1, max_size=30))
def test_percentiles_are_of_whole_answers(times: list[tuple[float, float]]) -> None:
    encoding, searching = np.array(times).T

    def percentile(values: list[float], share: float) -> float:
        """The value at this share of the sorted ones, on a straight line between two."""
        ordered, place = sorted(values), share * (len(values) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    found = answer_costs(encoding, searching)
    for name, values in (("search", searching.tolist()), ("answer", [sum(both) for both in times])):
        for share in (50, 95):
            measured = found[f"{name}_p{share}_ms"]  # type: ignore[literal-required]
            assert measured == pytest.approx(percentile(values, share / 100))
