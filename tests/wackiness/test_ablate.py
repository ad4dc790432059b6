"""Searches without some terms, against brute force: dense products, sorted, and ir_measures on every query."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import ttest_rel
from sentence_transformers import SparseEncoder

from vocable.core.storage import read_record, write_record
from vocable.data import Document, Qrel, Query
from vocable.encoding.protocol import Role
from vocable.encoding.terms import remove_expansions, terms
from vocable.encoding.vectors import VectorsMeta, vocabulary_fingerprint, write_vectors
from vocable.errors import ArgumentError, VectorsError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import Encoded
from vocable.indexes import exact_shards
from vocable.wackiness import expansions
from vocable.wackiness.ablate import STRATUM, Ablation, remove_wackiest
from vocable.wackiness.ablation_report import AblatedSearch, DatasetAblation, ThresholdResult, difference_interval
from vocable.wackiness.expansions import stored_index, stored_vectors

Q, N, V = 12, 30, 25
MEASURES = ["nDCG@10", "R@5", "AP"]


def sparse(rows: int, share: float, rng: np.random.Generator) -> csr_array:
    dense = rng.lognormal(0, 1, (rows, V)) * (rng.random((rows, V)) < share)
    return csr_array(dense.astype(np.float32))


def toy(seed: int = 0, share: float = 0.3) -> tuple[Encoded, csr_array, csr_array]:
    """Random vectors with two judged documents a query, and the own terms of queries and documents."""
    rng = np.random.default_rng(seed)
    documents = [Document(f"d{row:02}", "") for row in rng.permutation(N)]
    queries = [Query(f"q{row}", "") for row in range(Q)]
    found = [(query.id, row) for query in queries for row in rng.choice(N, 2, replace=False)]
    judgments = [Qrel(query, documents[row].id, 1 + position % 2) for position, (query, row) in enumerate(found)]
    dataset = Dataset("toy", documents, queries, judgments)
    encoded = Encoded(dataset, sparse(Q, share, rng), sparse(N, share, rng), 1.0)
    return encoded, sparse(Q, 0.2, rng), sparse(N, 0.2, rng)


def brute_force(encoded: Encoded, queries: csr_array, documents: csr_array) -> dict[str, dict[str, float]]:
    scores, run = queries.toarray() @ documents.toarray().T, {}
    for row, query in enumerate(encoded.query_ids):
        run[query] = {name: float(scores[row, i]) for i, name in enumerate(encoded.document_ids) if scores[row, i]}
    parsed = [ir_measures.parse_measure(name) for name in MEASURES]
    values: dict[str, dict[str, float]] = {name: {} for name in MEASURES}
    for metric in ir_measures.iter_calc(parsed, list(encoded.dataset.judgments), run):
        values[str(metric.measure)][metric.query_id] = metric.value
    return values


@pytest.mark.parametrize("role", ["query", "document"])
@given(seed=st.integers(0, 1000), count=st.integers(0, V))
def test_values_are_those_of_brute_force(role: Role, seed: int, count: int) -> None:
    encoded, own_queries, own_documents = toy(seed)
    own = own_queries if role == "query" else own_documents
    terms = np.random.default_rng(seed).choice(V, count, replace=False)
    ablation = Ablation(encoded, own, MEASURES, role=role, threads=1)
    queries, documents = encoded.queries, encoded.documents
    full = brute_force(encoded, queries, documents)
    left = remove_expansions(queries if role == "query" else documents, own, terms)
    pruned = brute_force(encoded, *((left, documents) if role == "query" else (queries, left)))
    outcome = ablation.without(terms)
    for name in MEASURES:
        assert ablation.values()[name] == pytest.approx(np.mean(list(full[name].values())), abs=1e-6)
        assert outcome.values[name] == pytest.approx(np.mean(list(pruned[name].values())), abs=1e-6)
        first, second = ([values[name][query] for query in encoded.query_ids] for values in (full, pruned))
        different = not np.allclose(first, second)
        assert outcome.p[name] == pytest.approx(ttest_rel(first, second).pvalue if different else 1.0, abs=1e-5)


@pytest.mark.parametrize("role", ["query", "document"])
def test_what_is_removed_is_counted(role: Role) -> None:
    encoded, own_queries, own_documents = toy()
    own, vectors = (own_queries, encoded.queries) if role == "query" else (own_documents, encoded.documents)
    ablation = Ablation(encoded, own, MEASURES, role=role)
    is_expansion = (vectors.toarray() > 0) & (own.toarray() == 0)
    assert ablation.expansion_terms.tolist() == np.flatnonzero(is_expansion.any(axis=0)).tolist()
    terms = ablation.expansion_terms[:2]
    missing = np.setdiff1d(np.arange(V), ablation.expansion_terms)[:1]
    outcome = ablation.without(np.concatenate([terms, missing]))
    assert outcome.terms == 2
    assert outcome.share == pytest.approx(is_expansion[:, terms].sum() / is_expansion.sum())
    touched = is_expansion[:, terms] if role == "query" else encoded.queries.toarray()[:, terms] > 0
    assert 0 < outcome.changed == touched.any(axis=1).sum() < Q
    nothing = ablation.without(np.empty(0, dtype=np.int64))
    assert (nothing.terms, nothing.share, nothing.changed) == (0, 0, 0)
    assert (nothing.values, set(nothing.p.values())) == (ablation.values(), {1.0})


def test_a_query_that_is_left_with_nothing_counts_zero() -> None:
    encoded, _, _ = toy()
    ablation = Ablation(encoded, csr_array((Q, V), dtype=np.float32), MEASURES)
    outcome = ablation.without(np.arange(V))
    assert (outcome.changed, outcome.share) == (Q, 1.0)
    assert set(outcome.values.values()) == {0.0}
    own = Ablation(encoded, encoded.queries, MEASURES)
    assert own.expansion_terms.tolist() == []
    assert own.without(np.arange(V)).values == own.values()


def test_arguments_of_ablate_that_cannot_be_are_refused() -> None:
    encoded, own, _ = toy()
    with pytest.raises(VectorsError):
        Ablation(encoded, own, role="document")
    with pytest.raises(ArgumentError):
        Ablation(encoded, own, role="both")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        Ablation(encoded, own, ["nDGC@10"])


@pytest.fixture(scope="module")
def ablation() -> Ablation:
    encoded, own, _ = toy(share=0.5)
    return Ablation(encoded, own, MEASURES)


def test_as_many_random_terms_are_removed_as_wacky_ones(ablation: Ablation, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[np.ndarray] = []
    search = ablation.without

    def watched(terms: np.ndarray) -> AblatedSearch:
        removed.append(terms)
        return search(terms)

    monkeypatch.setattr(ablation, "without", watched)
    wackiest = np.array([7, 3, 12, 5, 1, 20])
    found = remove_wackiest(ablation, wackiest, [5, 2, 5], draws=3, seed=1)
    assert [point.threshold for point in found.points] == [2, 5]
    assert [set(removed[0].tolist()), set(removed[4].tolist())] == [{7, 3}, {7, 3, 12, 5, 1}]
    assert [len(terms) for terms in removed] == [2] * 4 + [5] * 4
    assert all(len(set(terms.tolist())) == len(terms) for terms in removed)
    assert set(np.concatenate(removed).tolist()) <= set(ablation.expansion_terms.tolist())
    assert len({tuple(sorted(terms.tolist())) for terms in removed[5:]}) == 3
    assert found.points[1].wacky == search(wackiest[:5])
    assert found.full == ablation.values()
    assert (found.dataset, found.role, found.queries) == ("toy", "query", 12)


def test_terms_that_are_no_expansion_here_do_not_count() -> None:
    encoded, own, _ = toy(share=0.05)
    ablation = Ablation(encoded, own, MEASURES)
    assert 0 < len(ablation.expansion_terms) < V
    [point] = remove_wackiest(ablation, np.arange(V), [V], draws=2).points
    assert [outcome.terms for outcome in (point.wacky, *point.random)] == [len(ablation.expansion_terms)] * 3
    assert {outcome.share for outcome in point.random} == {1.0}
    assert [point.measures[name].differs for name in MEASURES] == [False] * 3


def test_draws_depend_on_nothing_but_the_seed(ablation: Ablation) -> None:
    def draws(thresholds: list[int], count: int, seed: int) -> tuple[AblatedSearch, ...]:
        return remove_wackiest(ablation, np.arange(V), thresholds, draws=count, seed=seed).points[-1].random

    few, many = draws([4], 2, 0), draws([1, 4], 4, 0)
    assert few == many[:2]
    assert few != draws([4], 2, 1)


def test_the_band_is_the_mean_and_two_standard_deviations() -> None:
    values = [0.5, 0.25, 0.75, 0.5]
    wacky, *random = (
        AblatedSearch(3, 0.5, 2, {"RR": value}, {"RR": 0.01}, {"RR": {"q": value}}) for value in (0.0625, *values)
    )
    point = ThresholdResult.of(10, wacky, random, {"RR": 0.625})
    std = float(np.std(values, ddof=1))
    found = point.measures["RR"]
    assert (found.wacky, found.difference, found.p, found.differs) == (0.0625, -0.5625, 0.01, True)
    assert found.random == pytest.approx({"mean": 0.5, "std": std, "low": 0.5 - 2 * std, "high": 0.5 + 2 * std})


@pytest.mark.slow
def test_the_interval_over_queries_and_draws_covers_what_is_true() -> None:
    """Queries and draws differ at random around a known difference: 95 % of the intervals have it, give or take."""
    rng, covered, wider = np.random.default_rng(0), 0, 0
    for _ in range(300):
        queries, draws = rng.normal(0, 0.2, 60), rng.normal(0, 0.05, (8, 1))
        values = 0.5 + queries + rng.normal(0, 0.1, 60)
        others = 0.53 + queries + draws + rng.normal(0, 0.1, (8, 60))
        found = difference_interval(values, others, rng, samples=400)
        assert found["difference"] == pytest.approx(values.mean() - others.mean())
        covered += found["low"] <= -0.03 <= found["high"]
        fixed = difference_interval(values, others[:1], rng, samples=400)  # of one draw: the queries alone
        wider += found["high"] - found["low"] > 0
        assert fixed["low"] < fixed["difference"] < fixed["high"]
    assert 0.88 < covered / 300 < 0.99
    assert wider == 300


def test_a_removal_has_the_interval_of_its_queries(ablation: Ablation) -> None:
    found = remove_wackiest(ablation, np.arange(V), [2, 9], draws=3, seed=4)
    for point in found.points:
        chosen = np.arange(point.threshold)
        own = ablation.without(np.intersect1d(chosen, ablation.expansion_terms)).per_query
        drawn = [
            ablation.without(
                ablation.control(
                    np.intersect1d(chosen, ablation.expansion_terms),
                    "frequency",
                    np.random.default_rng([4, point.threshold, number]),
                )
            ).per_query
            for number in (1, 2, 3)
        ]
        for name, measured in point.measures.items():
            means = [np.mean(list(one[name].values())) for one in drawn]
            expected = np.mean(list(own[name].values())) - np.mean(means)
            assert measured.vs_random["difference"] == pytest.approx(expected)
            assert measured.vs_random["low"] <= expected + 1e-12
            assert expected <= measured.vs_random["high"] + 1e-12
    assert found == remove_wackiest(ablation, np.arange(V), [2, 9], draws=3, seed=4)
    assert not found.points[0].wacky.per_query


def test_removals_are_written_and_read_as_json(ablation: Ablation, tmp_path: Path) -> None:
    found = remove_wackiest(ablation, np.arange(V), [2, 9], draws=2)
    write_record(tmp_path / "removal.json", found)
    assert read_record(tmp_path / "removal.json", DatasetAblation) == found
    for damaged in ({}, asdict(found) | {"points": [{}]}):
        write_record(tmp_path / "removal.json", damaged)
        with pytest.raises(VectorsError):
            read_record(tmp_path / "removal.json", DatasetAblation)


def test_what_was_found_before_is_not_searched_again(
    ablation: Ablation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = remove_wackiest(ablation, np.arange(V), [2], draws=2, folder=tmp_path / "searches")
    names = ["2-random-1.json", "2-random-2.json", "2-wacky.json"]
    assert sorted(path.name for path in (tmp_path / "searches").iterdir()) == names
    wacky = tmp_path / "searches" / "2-wacky.json"
    write_record(wacky, replace(read_record(wacky, AblatedSearch), values=dict.fromkeys(MEASURES, 0.125)))
    monkeypatch.setattr(Ablation, "without", lambda *_: 1 / 0)
    again = remove_wackiest(ablation, np.arange(V), [2], draws=2, folder=tmp_path / "searches")
    assert again.points[0].random == first.points[0].random
    assert again.points[0].wacky.values == dict.fromkeys(MEASURES, 0.125)
    for damage in ("{", '{"terms": 1}'):
        wacky.write_text(damage, encoding="utf-8")
        with pytest.raises(VectorsError, match=r"2-wacky\.json"):
            remove_wackiest(ablation, np.arange(V), [2], draws=2, folder=tmp_path / "searches")


@pytest.mark.parametrize(
    ("thresholds", "draws"),
    [([], 2), ([0], 2), ([1], 1)],
)
def test_an_impossible_plan_is_refused(ablation: Ablation, thresholds: list[int], draws: int) -> None:
    with pytest.raises(ArgumentError):
        remove_wackiest(ablation, np.arange(V), thresholds, draws=draws)


def test_matched_terms_are_as_many_of_each_frequency(ablation: Ablation) -> None:
    entries = np.zeros(V, int)
    for row in range(ablation.encoded.queries.shape[0]):
        part = slice(*ablation.encoded.queries.indptr[row : row + 2])
        for column in ablation.encoded.queries.indices[part][ablation.is_expansion[part]]:
            entries[column] += 1
    ordered = sorted(ablation.expansion_terms.tolist(), key=lambda term: (-entries[term], term))
    strata = {term: place // STRATUM for place, term in enumerate(ordered)}
    wacky = np.array(ordered[::7] + ordered[:3])
    wacky = np.unique(wacky)
    draws = [ablation.control(wacky, "frequency", np.random.default_rng(seed)).tolist() for seed in range(200)]
    for drawn in draws:
        assert len(set(drawn)) == len(drawn) == len(wacky)
        assert Counter(strata[term] for term in drawn) == Counter(strata[int(term)] for term in wacky)
    # Within a stratum every term is drawn as often as any other.
    first = [term for term, stratum in strata.items() if stratum == 0]
    count = sum(strata[int(term)] == 0 for term in wacky)
    times = Counter(term for drawn in draws for term in drawn if term in first)
    share = count / len(first)
    assert max(abs(times[term] / len(draws) - share) for term in first) < 5 * (share * (1 - share) / len(draws)) ** 0.5
    assert not len(ablation.control(wacky[:0], "frequency", np.random.default_rng(0)))


def test_the_control_of_the_paper_draws_from_all(ablation: Ablation) -> None:
    rare = ablation.by_frequency[-3:]
    drawn = {
        term for seed in range(60) for term in ablation.control(rare, "number", np.random.default_rng(seed)).tolist()
    }
    assert drawn == set(ablation.expansion_terms.tolist())


@pytest.mark.parametrize("postings", [10**9, 60])
def test_an_index_of_stored_vectors_takes_the_place_of_vectors_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, toy_model: SparseEncoder, postings: int
) -> None:
    """By shards of few postings, too; the vectors lie in another order than the documents."""
    v, rng = len(terms(toy_model)), np.random.default_rng(4)
    encoded, own, _ = toy(4)
    queries, documents = (
        csr_array((some.data, some.indices, some.indptr), shape=(some.shape[0], v))
        for some in (encoded.queries, encoded.documents)
    )
    own = csr_array((own.data, own.indices, own.indptr), shape=(Q, v))
    order, meta = (
        rng.permutation(N),
        VectorsMeta(vocabulary_fingerprint(terms(toy_model)), "m", "max", "document", 8, v),
    )
    ids = [encoded.document_ids[row] for row in order]
    for part in range(3):
        some = slice(10 * part, 10 * part + 10)
        write_vectors(tmp_path / f"{part}.parquet", ids[some], documents[order[some]], meta)
    small = lambda parts, folder: exact_shards.save_exact(parts, folder, postings=postings)  # noqa: E731
    monkeypatch.setattr(expansions, "save_exact", small)
    places = [tmp_path / f"{part}.parquet" for part in range(3)]
    monkeypatch.setattr(expansions, "STORED_PART", 7)
    np.testing.assert_array_equal(
        stored_vectors(places, toy_model, encoded.document_ids).toarray(), documents.toarray()
    )
    index = stored_index(places, toy_model, encoded.document_ids, tmp_path / "index")
    assert isinstance(index, exact_shards.ExactShards) == (postings == 60)
    np.testing.assert_array_equal(index.get().toarray(), documents.toarray())
    whole = Ablation(encoded._replace(queries=queries, documents=documents), own, MEASURES)
    empty = encoded._replace(queries=queries, documents=documents[:0])
    by_index = Ablation(empty, own, MEASURES, index=index)
    assert by_index.full == whole.full
    removed = whole.expansion_terms[::2]
    assert by_index.without(removed) == whole.without(removed)
    assert by_index.without(removed).per_query == whole.without(removed).per_query
    with pytest.raises(VectorsError):
        stored_index(places, toy_model, [*encoded.document_ids, "d99"], tmp_path / "other")
