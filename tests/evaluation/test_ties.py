"""One order of equal scores: in all measures, in written runs whoever reads them, and of identical documents."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.cli.command_line import done
from vocable.data import Qrel, Query, ScoredDoc
from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Dataset, Identical, load_dataset
from vocable.evaluation.quality import evaluate_run
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.ranking import Ranking, falling, in_order, read_trec

# Measures of four programs: trec_eval, MS MARCO's (RR@k), ir_measures' own (Judged, Compat, Accuracy).
MEASURES = ["nDCG@10", "nDCG", "AP", "AP@3", "P@1", "P@5", "R@3", "RR", "RR@1", "RR@10", "Success@2", "Rprec"]
MORE = ["Judged@3", "Compat(p=0.8)", "Accuracy@10", "RR(rel=2)@10", "Bpref"]
IDS = [f"d{number}" for number in range(10, 22)]


def figure(name: str, ranked: list[str], judged: dict[str, int]) -> float:
    """A measure of MEASURES by its definition, for documents in order."""
    measure, _, cutoff = name.partition("@")
    k = int(cutoff) if cutoff else len(ranked)
    relevant = {document for document, grade in judged.items() if grade >= 1}
    found = [document in relevant for document in ranked]
    at = [rank for rank, hit in enumerate(found, start=1) if hit]
    if measure == "nDCG":
        gains = [judged.get(document, 0) / math.log2(rank + 1) for rank, document in enumerate(ranked[:k], start=1)]
        ideal = sorted(judged.values(), reverse=True)[: k if cutoff else None]
        best = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(ideal, start=1))
        return sum(gains) / best if best else 0.0
    if measure == "RR":
        return 1 / at[0] if at and at[0] <= k else 0.0
    if measure == "AP":
        return sum(sum(found[:rank]) / rank for rank in at if rank <= k) / len(relevant) if relevant else 0.0
    if measure == "Rprec":
        return sum(found[: len(relevant)]) / len(relevant) if relevant else 0.0
    hits = sum(found[:k])
    return {"P": hits / k, "R": hits / max(1, len(relevant)), "Success": float(hits > 0)}[measure]


@st.composite
def tied_runs(draw: st.DrawFn) -> tuple[list[Qrel], dict[str, dict[str, float]]]:
    """Judgments and a run with few different scores, in any order of documents."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = [0.1, 0.1 + 1e-12, 0.5, 1.0, 1e6]
    judgments, run = [], {}
    for query in [f"q{number}" for number in range(draw(st.integers(1, 4)))]:
        judgments += [
            Qrel(query, document, int(rng.integers(0, 3))) for document in rng.choice(IDS, 6, replace=False).tolist()
        ]
        chosen = rng.choice(IDS, draw(st.integers(1, 12)), replace=False).tolist()
        run[query] = {document: float(rng.choice(scores[: draw(st.integers(1, 5))])) for document in chosen}
    return judgments, run


@given(tied_runs())
def test_every_measure_has_the_order_of_the_search(drawn: tuple[list[Qrel], dict[str, dict[str, float]]]) -> None:
    judgments, run = drawn
    hits = [ScoredDoc(query, document, score) for query, some in run.items() for document, score in some.items()]
    queries = [Query(query, "") for query in run]
    for ties, order in (("search", 1), ("trec_eval", -1)):
        dataset = Dataset("toy", [], queries, judgments, ties=ties)  # type: ignore[arg-type]
        found = evaluate_run("run", hits, dataset, MEASURES)
        assert (found.ties, found.to_json()["ties"]) == (ties, ties)
        for query, some in run.items():
            places = {document: order * place for place, document in enumerate(IDS)}
            as_read = {d: s if ties == "search" else float(np.float32(s)) for d, s in some.items()}
            ranked = sorted(some, key=lambda document: (-as_read[document], places[document]))
            judged = {judgment.doc_id: judgment.relevance for judgment in judgments if judgment.query_id == query}
            for name in MEASURES:
                expected = figure(name, ranked, judged)
                assert found.per_query[name][query] == pytest.approx(expected, abs=1e-6), (name, ties)


@given(tied_runs())
def test_the_order_of_trec_eval_gives_its_figures(drawn: tuple[list[Qrel], dict[str, dict[str, float]]]) -> None:
    judgments, run = drawn
    judged: dict[str, dict[str, int]] = {}
    for query, document, relevance, _ in judgments:
        judged.setdefault(query, {})[document] = relevance
    theirs = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "map", "P.1", "recip_rank"}).evaluate(run)
    hits = [ScoredDoc(query, document, score) for query, some in run.items() for document, score in some.items()]
    dataset = Dataset("toy", [], [Query(query, "") for query in run], judgments, ties="trec_eval")
    found = evaluate_run("run", hits, dataset, ["nDCG@10", "AP", "P@1", "RR"]).per_query
    for query in run:
        for ours, name in (("nDCG@10", "ndcg_cut_10"), ("AP", "map"), ("P@1", "P_1"), ("RR", "recip_rank")):
            assert found[ours][query] == pytest.approx(theirs[query][name], abs=1e-6)


def test_five_equal_scores_are_one_ranking_in_all_measures() -> None:
    dataset = Dataset("toy", [], [Query("q", "")], [Qrel("q", "d1", 1)])
    hits = [ScoredDoc("q", f"d{number}", 1.0) for number in range(1, 6)]
    names = ["RR@10", "RR", "P@1", "nDCG@10", "AP", "R@1", "Success@1"]
    assert evaluate_run("run", hits, dataset, names).values == pytest.approx(dict.fromkeys(names, 1.0))
    with pytest.raises(ArgumentError):
        Dataset("toy", [], [], [], ties="any")  # type: ignore[arg-type]


@given(tied_runs())
def test_a_written_run_is_read_in_its_order_by_every_program(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[list[Qrel], dict[str, dict[str, float]]]
) -> None:
    judgments, run = drawn
    path, queries = tmp_path_factory.mktemp("runs") / "my.run", list(run)
    hits = [ScoredDoc(query, document, score) for query, some in run.items() for document, score in some.items()]
    ranking = Ranking.from_run(hits, queries, IDS)
    ranking.write_trec(path, queries)
    shown = {query: [document for document, _ in ranking.hits(row)] for row, query in enumerate(queries)}
    lines = [line.split() for line in path.read_text().splitlines()]
    for query in queries:
        own = [line for line in lines if line[0] == query]
        by_rank = [line[2] for line in sorted(own, key=lambda line: int(line[3]))]
        # trec_eval reads float32 and puts equal ones by descending id; others read float64.
        as_trec_eval = sorted(own, key=lambda line: (np.float32(line[4]), line[2]), reverse=True)
        assert by_rank == [line[2] for line in as_trec_eval] == shown[query]
        assert by_rank == [line[2] for line in sorted(own, key=lambda line: -float(line[4]))]
    dataset = Dataset("toy", [], [Query(query, "") for query in queries], judgments)
    expected = evaluate_run("ranking", ranking.to_run(queries), dataset, MEASURES).per_query
    assert evaluate_run("file", path, dataset, MEASURES).per_query == expected
    for program in (ir_measures.pytrec_eval, ir_measures.msmarco, ir_measures.judged, ir_measures.compat):
        names = [name for name in [*MEASURES, *MORE] if program.supports(ir_measures.parse_measure(name))]
        assert names
        values = evaluate_run("ranking", ranking.to_run(queries), dataset, names).per_query
        again = list(ir_measures.read_trec_run(str(path)))
        for metric in program.iter_calc([ir_measures.parse_measure(name) for name in names], judgments, again):
            value = values[str(metric.measure)][metric.query_id]
            assert value == pytest.approx(metric.value, abs=1e-6), (metric.measure, program.NAME)


@given(st.lists(st.floats(-1e6, 1e6, width=32), max_size=30))
def test_falling_scores_change_equal_ones_alone(scores: list[float]) -> None:
    ordered = sorted(scores, reverse=True)
    found = falling(ordered)
    assert all(above > below for above, below in pairwise(found))
    assert len(set(scores)) < len(scores) or found == ordered
    assert all(abs(float(new) - old) <= 1e-5 * max(1.0, abs(old)) for new, old in zip(found, ordered, strict=True))


def test_scores_equal_in_float32_are_ties_to_trec_eval_alone() -> None:
    hits = {"a": 0.1, "b": 0.1 + 1e-12}
    assert (in_order(hits), in_order(hits, "trec_eval")) == (["b", "a"], ["b", "a"])
    hits = {"a": 0.1 + 1e-12, "b": 0.1}
    assert (in_order(hits), in_order(hits, "trec_eval")) == (["a", "b"], ["b", "a"])


def test_identical_documents_are_counted_and_found_in_the_order_of_their_ids(
    toy_model: SparseEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["old books", "old books", "a fox reads", "old books", "a fox reads", "rain"]
    rows = [{"_id": f"d{number}", "text": text} for number, text in enumerate(texts)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "old books"}\n', encoding="utf-8")
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n", encoding="utf-8")
    dataset = load_dataset(f"beir:{tmp_path}")
    assert dataset.identical == Identical(2, 5)
    assert load_dataset(f"beir:{tmp_path}", documents=False).identical is None
    [found] = vo.evaluate(toy_model, dataset, ["RR@10", "P@1", "RR"], dtype="float32", time_queries=0).evaluations
    assert dict(found.values) == {"RR@10": 1.0, "P@1": 1.0, "RR": 1.0}
    assert found.to_json()["identical"] == {"groups": 2, "documents": 5}
    assert "5 documents in 2 groups of identical texts" in str(found)
    vectors = vo.encode(toy_model, texts, dtype="float32")
    index = ExactIndex(vectors, [row["_id"] for row in rows])
    ranking = index.search(vo.encode(toy_model, ["old books"], role="query", dtype="float32"), 10)
    ranking.write_trec(tmp_path / "my.run", ["q"])
    assert [hit.doc_id for hit in read_trec(tmp_path / "my.run")][:3] == ["d0", "d1", "d3"]
    options = ["--dataset", f"beir:{tmp_path}", "-m", "P@1", "--ties", "trec_eval"]
    shown = done(capsys, "evaluate", tmp_path / "my.run", *options)
    assert "equal scores by descending id" in shown
    assert " 1.0000" in shown
