"""The Wackiness Score against the formula, taken term by term from the paper, and what must not change it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from vocable.encoding.term_scores import ranked
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.exact_index import ExactIndex
from vocable.options import check
from vocable.training_options import WackinessOptions
from vocable.wackiness.expansions import without_itself
from vocable.wackiness.measure import bootstrap_areas
from vocable.wackiness.score import area, curve, expansions, lexical_importance, scored, wackiness


class Case(NamedTuple):
    """Dense inputs: vectors [m, v], own [m, v], documents [n, v] and counts [n, v]."""

    vectors: np.ndarray
    own: np.ndarray
    documents: np.ndarray
    counts: np.ndarray

    def rows(self, k: int) -> np.ndarray:
        return ExactIndex(csr_array(self.documents)).search(csr_array(self.vectors), k).rows

    def measure(self, k: int, **options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        arrays = csr_array(self.vectors), csr_array(self.own), self.rows(k), csr_array(self.counts)
        return wackiness(*arrays, **options)


def random_case(seed: int, m: int = 12, n: int = 25, v: int = 18) -> Case:
    """Sparse vectors with weights that make no two scores equal, and a vocabulary with unused terms."""
    rng = np.random.default_rng(seed)

    def sparse(rows: int, density: float, values: np.ndarray) -> np.ndarray:
        return np.where(rng.random((rows, v)) < density, values, 0).astype(np.float32)

    case = Case(
        sparse(m, 0.4, rng.exponential(size=(m, v)) + 0.01),
        sparse(m, 0.2, rng.integers(1, 4, (m, v))),
        sparse(n, 0.3, rng.exponential(size=(n, v)) + 0.01),
        sparse(n, 0.3, rng.integers(1, 5, (n, v))),
    )
    for part in case:
        part[:, -2:] = 0
    case.vectors[0] = 0  # activates nothing
    return case


def by_the_formula(case: Case, k: int, bm25: bool = False) -> tuple[list[float], list[float]]:
    """Scores and mean importance, with lists and loops, straight from sections 3.2 and the definition of a ranking."""
    n, v = case.counts.shape
    found: list[list[float]] = [[] for _ in range(v)]
    for vector, own in zip(case.vectors.tolist(), case.own.tolist(), strict=True):
        dots = [sum(a * b for a, b in zip(vector, document, strict=True)) for document in case.documents.tolist()]
        best = sorted((d for d in range(n) if dots[d] > 0), key=lambda d: (-dots[d], d))[:k]
        for term in range(v):
            if vector[term] > 0 and own[term] == 0:
                df = sum(case.counts[d, term] > 0 for d in range(n))
                idf = math.log(1 + (n - df + 0.5) / (df + 0.5)) if bm25 else math.log(n / df) if df else 0.0
                found[term].append(sum(float(case.counts[d, term]) for d in best) * idf)
    means = [sum(values) / len(values) if values else math.nan for values in found]
    known = [mean for mean in means if not math.isnan(mean)]
    low, high = min(known), max(known)
    return [1 - (mean - low) / (high - low) for mean in means], means


@pytest.mark.parametrize("k", [1, 3, 100])
@pytest.mark.parametrize("idf", ["log", "bm25"])
def test_scores_are_those_of_the_formula(k: int, idf: str) -> None:
    for seed in range(10):
        case = random_case(seed)
        found = case.measure(k, idf=idf)
        scores, means = by_the_formula(case, k, idf == "bm25")
        np.testing.assert_allclose(found[1], means, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(found[0], scores, rtol=0, atol=1e-6)
        assert found[2].tolist() == ((case.vectors > 0) & (case.own == 0)).sum(axis=0).tolist()
        assert np.isnan(found[0][-2:]).all()  # terms that nobody uses


@given(st.integers(0, 1000), st.sampled_from([1, 4, 50]), st.randoms(use_true_random=False))
def test_order_and_scale_change_nothing(seed: int, k: int, random: Any) -> None:
    case = random_case(seed)
    expected = case.measure(k)
    (m, v), n = case.vectors.shape, len(case.documents)
    inputs, documents, terms = (random.sample(range(size), size) for size in (m, n, v))
    shuffled = Case(
        2.5 * case.vectors[np.ix_(inputs, terms)],
        case.own[np.ix_(inputs, terms)],
        0.3 * case.documents[np.ix_(documents, terms)],
        case.counts[np.ix_(documents, terms)],
    )
    for found, before in zip(shuffled.measure(k), expected, strict=True):
        np.testing.assert_allclose(found, before[terms], atol=1e-12)
    scores = expected[0][~np.isnan(expected[0])]
    assert scores.min() >= 0
    assert scores.max() == 1


def test_an_input_that_activates_nothing_changes_nothing() -> None:
    case = random_case(3)
    without = Case(case.vectors[1:], case.own[1:], case.documents, case.counts)
    for found, expected in zip(case.measure(4), without.measure(4), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_inputs_without_expansions_give_no_score() -> None:
    case = random_case(4)
    own = Case(case.vectors, np.ones_like(case.own), case.documents, case.counts)
    for part in (own, Case(0 * case.vectors, case.own, case.documents, case.counts)):
        scores, importance, inputs = part.measure(5)
        assert np.isnan(scores).all()
        assert np.isnan(importance).all()
        assert not inputs.any()
    empty = wackiness(
        csr_array((0, 18), dtype=np.float32), csr_array((0, 18)), np.zeros((0, 5), np.int32), csr_array(case.counts)
    )
    assert np.isnan(empty.scores).all()


def test_scores_of_a_collection_of_one_document_by_hand() -> None:
    # Its terms are in all documents: log(1/1) is 0, so that nothing is important; the IDF of BM25 leaves something.
    vectors, own, counts = csr_array([[1.0, 1.0, 1.0]]), csr_array([[1.0, 0.0, 0.0]]), csr_array([[1.0, 2.0, 0.0]])
    rows = np.array([[0, -1, -1]], dtype=np.int32)
    assert wackiness(vectors, own, rows, counts).scores.tolist()[1:] == [1.0, 1.0]
    found = wackiness(vectors, own, rows, counts, idf="bm25")
    assert found.scores.tolist()[1:] == [0.0, 1.0]
    assert found.importance[1] == pytest.approx(2 * math.log(1 + 0.5 / 1.5), rel=1e-6)


def test_k_beyond_the_collection_is_the_whole_collection() -> None:
    case = random_case(5)
    for found, expected in zip(case.measure(1000), case.measure(25), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_term_that_no_document_has_is_of_no_importance() -> None:
    case = random_case(6)
    case.counts[:, 0] = 0
    case.vectors[1, 0], case.own[1, 0] = 1, 0
    for idf in ("log", "bm25"):
        assert case.measure(5, idf=idf)[1][0] == 0


def test_the_least_important_term_has_the_score_one_even_alone() -> None:
    one = csr_array(([2.0], ([0], [1])), shape=(1, 3))
    assert scored(one).scores.tolist()[1] == 1.0
    equal = csr_array(([2.0, 2.0], ([0, 0], [1, 2])), shape=(1, 3))
    assert scored(equal).scores.tolist()[1:] == [1.0, 1.0]


def test_weights_count_an_input_as_often() -> None:
    case = random_case(7)
    importance = lexical_importance(
        expansions(csr_array(case.vectors), csr_array(case.own)), case.rows(4), csr_array(case.counts)
    )
    times = np.random.default_rng(0).integers(0, 3, len(case.vectors))
    repeated = csr_array(importance[np.repeat(np.arange(len(times)), times)])
    for found, expected in zip(scored(importance, times), scored(repeated), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_special_columns_are_no_expansions() -> None:
    case = random_case(8)
    left = expansions(csr_array(case.vectors), csr_array(case.own), special=[0, 5])
    expected = np.where(case.own > 0, 0, case.vectors)
    expected[:, [0, 5]] = 0
    np.testing.assert_array_equal(left.toarray(), expected)
    found = case.measure(5, special=[0, 5])
    assert np.isnan(found[0][[0, 5]]).all()
    np.testing.assert_array_equal(found[1][1:5], case.measure(5)[1][1:5])


def test_ties_go_to_the_term_that_expands_more_inputs() -> None:
    scores, inputs = np.array([1.0, 0.5, 1.0, np.nan, 1.0]), np.array([3, 9, 7, 0, 3])
    assert ranked(scores, inputs).tolist() == [2, 0, 4, 1]
    assert ranked(scores).tolist() == [0, 2, 4, 1]


@given(st.data())
def test_a_document_is_not_among_what_it_retrieves(data: st.DataObject) -> None:
    k = data.draw(st.integers(1, 5))
    lists = data.draw(st.lists(st.permutations(range(8)), min_size=1, max_size=4))
    hits = data.draw(st.lists(st.integers(0, k + 1), min_size=len(lists), max_size=len(lists)))
    rows = np.array(
        [[*ranking[:found], *[-1] * (k + 1 - found)] for ranking, found in zip(lists, hits, strict=True)], np.int32
    )
    itself = np.array([data.draw(st.integers(0, 7)) for _ in lists])
    for found, ranking, own in zip(without_itself(rows, itself).tolist(), rows.tolist(), itself, strict=True):
        others = [row for row in ranking if row not in (own, -1)][:k]
        assert found == others + [-1] * (k - len(others))


def test_shapes_that_do_not_fit_are_refused() -> None:
    case = random_case(9)
    vectors, own, counts = csr_array(case.vectors), csr_array(case.own), csr_array(case.counts)
    rows = case.rows(3)
    with pytest.raises(VectorsError):
        wackiness(vectors, own[:, :17], rows, counts)
    with pytest.raises(VectorsError):
        wackiness(vectors, own, rows, counts[:, :17])
    with pytest.raises(VectorsError):
        wackiness(vectors, own, rows[1:], counts)
    with pytest.raises(VectorsError):
        wackiness(vectors, own, np.full((12, 3), 25), counts)
    with pytest.raises(ArgumentError):
        wackiness(vectors, own, rows, counts, idf="tf")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        wackiness(vectors, own, rows, counts, special=[18])
    with pytest.raises(ArgumentError):
        wackiness(vectors, own, np.full((12, 3), -1), csr_array((0, 18), dtype=np.float32))


SCORES = arrays(np.float64, st.integers(1, 60), elements=st.one_of(st.floats(0, 1), st.just(np.nan)))


@given(SCORES, st.integers(1, 25), st.booleans())
def test_bins_are_the_means_of_the_ranks_they_have(scores: np.ndarray, bins: int, vocabulary: bool) -> None:
    ordered = sorted((score for score in scores.tolist() if not np.isnan(score)), reverse=True)
    heights = curve(scores, bins, whole_vocabulary=vocabulary)
    assert heights.shape == (bins,)
    if not ordered:
        assert np.isnan(heights).all()
        assert np.isnan(area(heights))
        return
    size = len(scores) if vocabulary else len(ordered)
    for i, height in enumerate(heights):
        first = int(np.floor(i * size / bins + 1e-9))
        last = max(int(np.floor((i + 1) * size / bins + 1e-9)), first + 1)
        those = ordered[first:last]
        assert height == pytest.approx(sum(those) / len(those) if those else 0.0, abs=1e-9)
    assert (np.diff(heights) <= 1e-9).all()
    assert 0 <= area(heights) <= 1


@given(arrays(np.float64, st.integers(2, 30), elements=st.floats(0, 1)))
def test_area_is_that_of_the_trapezoids(heights: np.ndarray) -> None:
    width = 1 / (len(heights) - 1)
    expected = sum(width * (a + b) / 2 for a, b in pairwise(heights))
    assert area(heights) == pytest.approx(expected, abs=1e-12)


@given(SCORES, st.randoms(use_true_random=False))
def test_the_area_does_not_depend_on_the_order_of_the_terms(scores: np.ndarray, random: object) -> None:
    shuffled = np.random.default_rng(0).permutation(scores)
    np.testing.assert_allclose(curve(shuffled, 7), curve(scores, 7), atol=1e-12)


def test_curves_and_areas_of_one_or_two_scores() -> None:
    assert curve(np.array([np.nan, 1.0]), 5).tolist() == [1.0] * 5
    assert curve(np.array([1.0, 0.0]), 1).tolist() == [0.5]
    assert area(np.array([0.25])) == 0.25


def importance(seed: int, m: int = 30, v: int = 12) -> csr_array:
    """Term i is of about the importance i, so that what tells the terms apart is not only chance."""
    rng = np.random.default_rng(seed)
    return csr_array(np.where(rng.random((m, v)) < 0.4, rng.exponential(size=(m, v)) * np.arange(1, v + 1), 0))


def test_bootstrap_is_the_area_of_inputs_drawn_with_repetition() -> None:
    found, m = importance(0), 30
    settings = check(WackinessOptions, {"bootstrap": 40, "bins": 6, "seed": 3})
    areas = bootstrap_areas(found, settings)
    rng, expected = np.random.default_rng(3), []
    for _ in range(40):
        times = rng.multinomial(m, np.full(m, 1 / m))
        drawn = csr_array(found[np.repeat(np.arange(m), times)])
        expected.append(area(curve(scored(drawn).scores, 6)))
    np.testing.assert_allclose(areas, expected, atol=1e-12)
    assert areas.std() > 0
    np.testing.assert_array_equal(areas, bootstrap_areas(found, settings))
    assert not np.array_equal(areas, bootstrap_areas(found, {**settings, "seed": 4}))


def test_more_inputs_move_the_area_less() -> None:
    few, many = importance(1, m=40), importance(1, m=4000)
    settings = check(WackinessOptions, {"bootstrap": 50})
    assert bootstrap_areas(many, settings).std() < bootstrap_areas(few, settings).std() / 3


def test_equal_inputs_do_not_move_the_area() -> None:
    same = csr_array(np.tile([3.0, 1.0, 2.0, 0.0], (10, 1)))
    assert bootstrap_areas(same, check(WackinessOptions, {"bootstrap": 10})).std() == 0


def test_without_inputs_or_expansions_there_is_no_area() -> None:
    for inputs in (0, 5):
        areas = bootstrap_areas(csr_array((inputs, 4)), check(WackinessOptions, {"bootstrap": 3}))
        assert np.isnan(areas).tolist() == [True] * 3


def test_scores_with_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(ArgumentError):
        curve(np.array([1.0]), 0)
