"""Conventions of evaluation, against pytrec_eval as BEIR's evaluator calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.cli.command_line import done, refused
from vocable.data import Document, Qrel, Query, ScoredDoc
from vocable.encoding.encode import encode
from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.evaluate import evaluate
from vocable.evaluation.plans import evaluate_system
from vocable.evaluation.quality import evaluate_run
from vocable.indexes.exact_index import ExactIndex

NAMES = {"nDCG@10": "ndcg_cut_10", "AP@100": "map_cut_100", "R@5": "recall_5", "P@5": "P_5", "RR": "recip_rank"}
IDS = [f"d{number}" for number in range(12)]  # of documents; every other one is a query, too


def reference(
    judgments: list[Qrel], run: dict[str, dict[str, float]], *, level: int = 1, identical: bool = False
) -> dict[str, dict[str, float]]:
    """{query: {measure: value}}, without identical ids unless they are to stay."""
    judged: dict[str, dict[str, int]] = {}
    for query, document, relevance, _ in judgments:
        judged.setdefault(query, {})[document] = relevance
    hits = {q: {d: s for d, s in some.items() if identical or d != q} for q, some in run.items()}
    names = {"ndcg_cut.10", "map_cut.100", "recall.5", "P.5", "recip_rank"}
    found: dict[str, dict[str, float]]
    found = pytrec_eval.RelevanceEvaluator(judged, names, relevance_level=level).evaluate(hits)
    return found


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Qrel], dict[str, dict[str, float]]]:
    """Judgments and a run of queries that are documents."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    queries = IDS[::2][: draw(st.integers(1, 6))]
    judgments = [
        Qrel(q, d, int(rng.integers(0, 3))) for q in queries for d in rng.choice(IDS, 5, replace=False).tolist()
    ]
    run = {q: {d: float(rng.normal()) for d in rng.choice(IDS, 8, replace=False).tolist()} for q in queries}
    return judgments, run


@given(runs())
def test_both_conventions_have_the_values_of_pytrec_eval(drawn: tuple[list[Qrel], dict[str, dict[str, float]]]) -> None:
    judgments, run = drawn
    queries = [Query(query, "") for query in run]
    hits = [ScoredDoc(query, document, score) for query, some in run.items() for document, score in some.items()]
    for convention, identical in (("beir", False), ("trec_eval", True)):
        dataset = Dataset("toy", [], queries, judgments, convention=convention)
        found = evaluate_run("run", hits, dataset, list(NAMES))
        expected = reference(judgments, run, identical=identical)
        for name, theirs in NAMES.items():
            for query in run:
                assert found.per_query[name][query] == pytest.approx(expected.get(query, {}).get(theirs, 0.0), abs=1e-6)


@given(runs())
def test_a_level_of_relevance_is_part_of_a_measure(drawn: tuple[list[Qrel], dict[str, dict[str, float]]]) -> None:
    """As TREC DL counts recall: of what is judged 2 or more."""
    judgments, run = drawn
    hits = [ScoredDoc(query, document, score) for query, some in run.items() for document, score in some.items()]
    found = evaluate_run("run", hits, Dataset("toy", [], [Query(q, "") for q in run], judgments), ["R(rel=2)@5"])
    expected = reference(judgments, run, level=2, identical=True)
    for query in run:
        assert found.per_query["R(rel=2)@5"][query] == pytest.approx(expected[query]["recall_5"], abs=1e-6)


@pytest.fixture
def arguments(tmp_path: Path, toy_texts: list[str]) -> Path:
    """A BEIR folder laid out as ArguAna: each query is a document, and another one is the answer."""
    texts = sorted(set(toy_texts))[:20]
    rows = [{"_id": f"a{number}", "text": text} for number, text in enumerate(texts)]
    for name, some in (("corpus", rows), ("queries", rows[:8])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
    judged = "".join(f"a{number}\ta{number + 8}\t1\n" for number in range(8))
    (tmp_path / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_a_query_does_not_find_itself(
    toy_model: SparseEncoder, arguments: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = load_dataset(f"beir:{arguments}")
    assert dataset.convention == "beir"
    texts = [document.full for document in dataset.documents]
    ids = [document.id for document in dataset.documents]
    vectors = encode(toy_model, texts, dtype="float32")
    asked = encode(toy_model, [query.text for query in dataset.queries], role="query", dtype="float32")
    ranking = ExactIndex(vectors, ids).search(asked, 20)
    run = {query.id: dict(ranking.hits(row)) for row, query in enumerate(dataset.queries)}
    judgments = list(dataset.judgments)
    assert reference(judgments, run) != reference(judgments, run, identical=True)  # else it would show nothing
    for convention, identical in ((None, False), ("trec_eval", True)):
        expected = reference(judgments, run, identical=identical)
        [found] = evaluate(toy_model, f"beir:{arguments}", [*NAMES], convention=convention, dtype="float32").evaluations
        for name, theirs in NAMES.items():
            mean = np.mean([expected[query][theirs] for query in run])
            assert found.values[name] == pytest.approx(mean, abs=1e-6), (convention, name)
    # A measure as deep as the search loses no place to the document that is left out.
    shallow = evaluate_system(toy_model, dataset, ["R@5"], k=5, dtype="float32")
    recalls = [one["recall_5"] for one in reference(judgments, run).values()]
    assert shallow.values["R@5"] == pytest.approx(np.mean(recalls))
    ranking.write_trec(tmp_path / "run.trec", [query.id for query in dataset.queries])
    command = ["evaluate", tmp_path / "run.trec", "--dataset", f"beir:{arguments}", "-m", "RR", "--json"]
    values = [json.loads(done(capsys, *command, *more)) for more in ([], ["--convention", "trec_eval"])]
    assert [one["systems"][0]["values"]["RR"] for one in values] == [
        pytest.approx(np.mean([one["recip_rank"] for one in reference(judgments, run, identical=which).values()]))
        for which in (False, True)
    ]


def test_an_unknown_convention_is_refused_and_beir_searches_one_deeper(arguments: Path) -> None:
    with pytest.raises(ArgumentError):
        load_dataset(f"beir:{arguments}", convention="trec")  # type: ignore[arg-type]
    toy = Dataset("toy", [Document("d1", "")], [Query("q1", "")], [])
    assert (toy.search_depth(10), Dataset("toy", [], [Query("d1", "")], [], convention="beir").search_depth(10)) == (
        10,
        11,
    )


def test_what_the_convention_leaves_out_is_said_and_stored(
    toy_model: SparseEncoder, arguments: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ids of queries and documents that merely coincide: their documents are dropped, and it is not silent."""
    dataset, how = f"beir:{arguments}", {"dtype": "float32", "time_queries": 0}
    found = evaluate({"one": toy_model}, dataset, ["P@1"], bm25=True, output=tmp_path / "beir.json", **how)
    assert [one.dropped for one in found.evaluations] == [8, 8]
    assert "convention beir; equal scores by id; relevant: judged 1 or more" in str(found)
    assert "8 hits with the id of their query left out; convention trec_eval keeps them" in str(found)
    stored = json.loads((tmp_path / "beir.json").read_text(encoding="utf-8"))
    said = {"convention": "beir", "ties": "search", "relevant_from": {"P@1": 1}, "dropped": 8, "unjudged": 0}
    assert {name: stored[0][name] for name in said} == said
    other = evaluate(
        {"other": toy_model}, dataset, ["P@1"], convention="trec_eval", output=tmp_path / "trec.json", **how
    )
    assert (other[0].dropped, other[0].convention) == (0, "trec_eval")
    files = [tmp_path / "beir.json", tmp_path / "trec.json"]
    assert "one: convention beir, ties search; other: convention trec_eval" in refused(capsys, "compare", *files)
    shown = done(capsys, "compare", *files, "--mixed-conventions")
    assert "one, BM25: convention beir; equal scores by id" in shown
    assert "other: convention trec_eval; equal scores by id" in shown
    old = [{name: value for name, value in stored[0].items() if name != "convention"}]
    (tmp_path / "old.json").write_text(json.dumps(old), encoding="utf-8")
    assert "convention: this key is missing" in refused(capsys, "compare", tmp_path / "old.json")


def test_models_are_chosen_by_the_convention_that_is_asked_for(toy_model: SparseEncoder, arguments: Path) -> None:
    options: dict[str, Any] = {"grid": ["document_max_terms=0,4"], "dtype": "float32"}
    for convention, dropped in ((None, 8), ("trec_eval", 0)):
        found = vo.select(toy_model, f"beir:{arguments}", ["P@1", "RR"], convention=convention, **options)
        grid = vo.evaluate(toy_model, f"beir:{arguments}", ["P@1", "RR"], convention=convention, **options)
        assert [one.evaluation.values for one in found.points] == [one.evaluation.values for one in grid.points]
        assert found.points[0].evaluation.dropped == dropped
        for values in (*found.to_json()["settings"], *grid.to_json()):
            assert (values["convention"], values["ties"]) == (convention or "beir", "search")
        for shown in (str(found), str(grid), found.markdown(), grid.markdown()):
            assert f"convention {convention or 'beir'}; equal scores by id" in shown
