"""Plans that are evaluated: a search of an index, its spaces, their fusions, and weights tuned by cross-validation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t
from sentence_transformers import SparseEncoder

import vocable as vo
from vocable.collection.index import index
from vocable.data import Document, Qrel, Query
from vocable.encoding.models import encoding_model
from vocable.engines.protocols import Space
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.plans import Judged, evaluate_system, evaluate_words, tune_weights
from vocable.evaluation.quality import evaluate_run
from vocable.evaluation.retrievers import DatasetRetriever, judged_queries, lexical_index, run_index
from vocable.indexes.fusion import parse_weights
from vocable.indexes.ranking import Ranking

MEASURES = ["nDCG@10", "R@3"]
Q, N = 13, 15


@pytest.fixture
def folder(toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path) -> Path:
    index(toy_model, dataset.documents, tmp_path / "my-index", bm25=True, dtype="float32")
    return tmp_path / "my-index"


def opened(folder: Path, model: SparseEncoder) -> vo.search.collection.Collection:
    collection = vo.open_index(folder)
    collection.models.loaded = encoding_model(model)
    return collection


def test_an_index_is_evaluated_by_its_spaces_and_their_fusions(
    toy_model: SparseEncoder, dataset: Dataset, folder: Path
) -> None:
    collection, queries = opened(folder, toy_model), dataset.judged().queries
    found = vo.evaluate(collection, dataset, MEASURES, hybrid=True, weights="bm25=0.3,sparse=0.9", folds=2)
    values = {one.name: dict(one.per_query) for one in found.evaluations}
    searched, *alone = (one.name for one in found.evaluations[:3])
    assert (searched, sorted(alone)) == ("search (bm25=0.3,sparse=0.9)", ["bm25", "sparse"])
    assert found[1].values["nDCG@10"] >= found[2].values["nDCG@10"]
    *fusions, tuned = (one.name for one in found.evaluations[3:])
    assert fusions == ["sparse,bm25 by reciprocal rank", "sparse=1,bm25=1"]
    assert tuned.endswith(" tuned in 2 folds")
    assert values["sparse"] == evaluate_system(toy_model, dataset, MEASURES, dtype="float32").per_query
    assert values["bm25"] == evaluate_words(lexical_index(dataset), dataset, MEASURES).per_query
    texts, ids = [query.text for query in queries], [query.id for query in queries]
    for name, how in (
        ("sparse=1,bm25=1", {}),
        ("sparse,bm25 by reciprocal rank", {"fusion": "reciprocal-rank"}),
        ("search (bm25=0.3,sparse=0.9)", {"weights": {"sparse": 0.9, "bm25": 0.3}}),
    ):
        run = collection.search(texts, 10, **how).to_run(ids)
        assert values[name] == evaluate_run(name, run, dataset, MEASURES).per_query
    assert len(found.p_values) == 5


def test_an_index_beside_a_model_has_its_name_before_each_row(
    toy_model: SparseEncoder, dataset: Dataset, folder: Path
) -> None:
    found = vo.evaluate({"index": opened(folder, toy_model), "model": toy_model}, dataset, MEASURES, dtype="float32")
    searched, *alone, last = found.evaluations
    assert searched.name == "index: search (sparse=1,bm25=1)"
    assert sorted(one.name for one in alone) == ["index: bm25", "index: sparse"]
    assert last.name == "model"
    assert last.cost is not None


@pytest.fixture
def random_search() -> tuple[dict[Space, Ranking], Dataset, np.ndarray]:
    """Rankings of all documents by two spaces, their judgments, and the scores scaled to 0 to 1, float64 [2, q, n]."""
    generator = np.random.default_rng(3)
    scores = generator.permuted(np.tile(np.arange(1.0, N + 1), (2, Q, 1)), axis=2).astype(np.float32)
    relevant = generator.integers(0, N, Q)
    scores[0, np.arange(Q), relevant] += generator.integers(0, 9, Q)
    scores[1, np.arange(Q), relevant] += generator.integers(0, 20, Q)
    ids = [f"d{row:02}" for row in range(N)]
    rankings = {}
    for space, some in zip(("sparse", "bm25"), scores, strict=True):
        order = np.argsort(-some, axis=1, kind="stable")
        rankings[space] = Ranking(order.astype(np.int32), np.take_along_axis(some, order, axis=1), ids)
    queries = [Query(f"q{number}", "") for number in range(Q)]
    qrels = [Qrel(query.id, ids[row], 1) for query, row in zip(queries, relevant, strict=True)]
    dataset = Dataset("toy", [Document(name, "") for name in ids], queries, qrels)
    low, high = (edge(scores.astype(np.float64), axis=2, keepdims=True) for edge in (np.min, np.max))
    return rankings, dataset, (scores - low) / (high - low)


def judged(rankings: Mapping[Space, Ranking], dataset: Dataset) -> Judged:
    retriever = DatasetRetriever("toy", dataset, {space: run_index(ranking) for space, ranking in rankings.items()})
    return Judged(retriever, judged_queries(dataset), dataset, ["RR@15"])


@pytest.mark.parametrize("folds", [2, 5, Q])
def test_weights_of_a_fold_are_the_most_even_that_are_about_the_best_for_the_others(
    random_search: tuple[dict[Space, Ranking], Dataset, np.ndarray], folds: int
) -> None:
    rankings, dataset, scaled = random_search
    relevant = [int(qrel.doc_id[1:]) for qrel in dataset.judgments]

    def reciprocal(query: int, weight: float) -> float:
        """1 / rank of the relevant document; of equal scores the lower id is first."""
        fused = (weight * scaled[0, query] + (1 - weight) * scaled[1, query]).astype(np.float32)
        ahead = (fused > fused[relevant[query]]) | (
            (fused == fused[relevant[query]]) & (np.arange(N) < relevant[query])
        )
        return float(1 / (1 + ahead.sum()))

    tenths = sorted(range(11), key=lambda tenth: (abs(tenth - 5), tenth))  # the most even first
    values = {tenth: [reciprocal(query, tenth / 10) for query in range(Q)] for tenth in tenths}

    def chosen(queries: list[int]) -> int:
        means = {tenth: np.mean([values[tenth][q] for q in queries]) for tenth in tenths}
        best = max(tenths, key=lambda tenth: round(means[tenth], 12))
        for tenth in tenths:
            behind = np.array([values[best][q] - values[tenth][q] for q in queries])
            if behind.mean() <= 0.5 * np.sqrt(behind.var() / len(queries)) + 1e-9:
                return tenth
        raise AssertionError

    best_of = {fold: chosen([q for q in range(Q) if q % folds != fold]) for fold in range(folds)}
    weights, held_out = tune_weights(judged(rankings, dataset), ["sparse", "bm25"], folds)
    found = evaluate_run("tuned", held_out(N).to_run([query.id for query in dataset.queries]), dataset, ["RR@15"])
    expected = [values[best_of[query % folds]][query] for query in range(Q)]
    np.testing.assert_allclose(list(found.per_query["RR@15"].values()), expected, rtol=1e-6)
    overall = chosen([*range(Q)])
    expected_weights = {space: tenth / 10 for space, tenth in (("sparse", overall), ("bm25", 10 - overall)) if tenth}
    assert weights == ({"sparse": 1.0, "bm25": 1.0} if overall == 5 else expected_weights)


def test_of_equally_good_weights_the_most_even_are_taken(
    random_search: tuple[dict[Space, Ranking], Dataset, np.ndarray],
) -> None:
    rankings, dataset, _ = random_search
    same = {"sparse": rankings["sparse"], "bm25": rankings["sparse"], "dense": rankings["sparse"]}
    weights, _ = tune_weights(judged(same, dataset), list(same), 2)
    assert weights == {"sparse": 1.0, "bm25": 1.0, "dense": 1.0}


@pytest.mark.parametrize("gain", [True, False])
def test_an_index_keeps_tuned_weights_if_they_gain_over_equal_weights(
    gain: bool, toy_model: SparseEncoder, tmp_path: Path
) -> None:
    names = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"]
    documents = [Document(f"d{number}", f"{name} words of a text {number}") for number, name in enumerate(names)]
    queries = [Query(f"q{number}", name) for number, name in enumerate(names)]
    index(toy_model, documents, tmp_path / "index", bm25=True, dtype="float32")
    collection = opened(tmp_path / "index", toy_model)
    first = collection.search(names, 1, weights="sparse=1" if gain else "bm25=1")  # relevant to a query
    judgments = [Qrel(query.id, first.hits(number)[0][0], 1) for number, query in enumerate(queries)]
    dataset = Dataset("toy", documents, queries, judgments)
    collection.keep_weights({"sparse": 1})
    found = vo.evaluate(collection, dataset, ["RR@10"], hybrid=True, folds=5, keep_weights=True)
    searched, *_, equal, tuned = found.evaluations
    assert searched.name == "sparse"  # the kept weights
    difference = np.subtract([*tuned.per_query["RR@10"].values()], [*equal.per_query["RR@10"].values()])
    low = difference.mean() - t.ppf(0.975, 9) * difference.std(ddof=1) / np.sqrt(10)
    assert (low > 0) == gain
    kept = parse_weights(tuned.name.split(" ")[0], ["sparse", "bm25"]) if gain else None
    assert collection.kept_weights == opened(tmp_path / "index", toy_model).kept_weights == kept
    assert tuned.note in found.table().notes


def test_what_an_index_is_not_evaluated_with(toy_model: SparseEncoder, dataset: Dataset, folder: Path) -> None:
    collection = opened(folder, toy_model)
    for wrong, message in (
        ({"folds": 2}, "`folds` needs `hybrid`"),
        ({"hybrid": True, "keep_weights": True}, "`keep_weights` needs `folds`"),
        ({"folds": 1, "hybrid": True}, "folds must be at least 2, not 1"),
        ({"folds": 3, "hybrid": True}, "folds must be at most the 2 judged queries, not 3"),
        ({"weights": "dense=1"}, "there is no space 'dense': the index has sparse, bm25"),
        ({"max_length": 9}, "omit `max_length` and `long_documents`"),
        ({"grid": ["query_max_terms=3"]}, "grid needs models"),
    ):
        with pytest.raises(ArgumentError, match=message):
            vo.evaluate(collection, dataset, **wrong)
    with pytest.raises(ArgumentError):
        vo.evaluate(toy_model, dataset, weights="bm25=1")
    elsewhere = Dataset("other", [], dataset.queries, [Qrel("q0", "not-there", 1)])
    with pytest.raises(DataError):
        vo.evaluate(collection, elsewhere)


def test_an_index_in_memory_is_evaluated_as_one_in_a_folder(
    toy_model: SparseEncoder, dataset: Dataset, folder: Path
) -> None:
    memory = index(toy_model, dataset.documents, bm25=True, dtype="float32")
    rows = [
        [(one.name, one.per_query) for one in vo.evaluate(collection, dataset, MEASURES, hybrid=True).evaluations]
        for collection in (memory, opened(folder, toy_model))
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4
