from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

from tests.evaluation.rankings import sparse_ranking
from vocable.core.tables import NONE
from vocable.data import Document, Qrel, Query, ScoredDoc
from vocable.encoding.encode import encode
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.cost import Cost, active_terms, flops
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.encoded import encode_dataset
from vocable.evaluation.measures import JudgedMeasures, Measure
from vocable.evaluation.plans import evaluate_system
from vocable.evaluation.quality import evaluate_run, notes, quality_table
from vocable.evaluation.retrievers import sparse_index
from vocable.evaluation.significance import compare
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.fusion import reciprocal_rank

DOCUMENTS = [
    Document("d1", "The old fox reads books."),
    Document("d2", "A librarian indexes sparse vectors at night.", "Libraries"),
    Document("d3", "Every compiler rewrites posting lists."),
    Document("d4", "The search engine forgets twelve queries."),
]
QUERIES = [Query("q1", "who reads books"), Query("q2", "sparse vectors"), Query("q3", "unjudged"), Query("q4", "rain")]
JUDGMENTS = [
    Qrel("q1", "d1", 1),
    Qrel("q2", "d2", 2),
    Qrel("q2", "d3", 1),
    Qrel("q4", "d4", 0),
    Qrel("q9", "d1", 1),  # a query that is not there
]
DATASET = Dataset("toy", DOCUMENTS, QUERIES, JUDGMENTS)
# q1: the relevant document second. q2: the less relevant one first. q4: no answer. The others are not judged.
RUN = [
    ScoredDoc("q1", "d4", 3.0),
    ScoredDoc("q1", "d1", 2.0),
    ScoredDoc("q2", "d3", 9.0),
    ScoredDoc("q2", "d2", 8.0),
    ScoredDoc("q3", "d1", 1.0),
    ScoredDoc("q9", "d1", 1.0),
]
NDCG = [1 / math.log2(3), (1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3)), 0.0]


def write_beir(folder: Path) -> str:
    corpus = [{"_id": d.id, "title": d.title, "text": d.text} for d in DOCUMENTS]
    queries = [{"_id": q.id, "text": q.text} for q in QUERIES]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, j[:3])) for j in JUDGMENTS)]
    (folder / "qrels.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"beir:{folder}"


def write_trec(path: Path) -> Path:
    path.write_text("".join(f"{h.query_id} Q0 {h.doc_id} 1 {h.score} tag\n" for h in RUN), encoding="utf-8")
    return path


def test_values_are_means_over_the_judged_queries() -> None:
    result = evaluate_run("system", RUN, DATASET, ["nDCG@10", "R@1", "RR@10", "AP(rel=2)"])
    assert list(result.per_query["nDCG@10"]) == ["q1", "q2", "q4"]
    assert list(result.per_query["nDCG@10"].values()) == pytest.approx(NDCG)
    assert result.per_query["R@1"] == {"q1": 0, "q2": 0.5, "q4": 0}
    assert result.per_query["RR@10"] == {"q1": 0.5, "q2": 1, "q4": 0}
    expected = {"nDCG@10": sum(NDCG) / 3, "R@1": 0.5 / 3, "RR@10": 0.5, "AP(rel=2)": 0.5 / 3}
    assert result.values == pytest.approx(expected)
    assert (result.name, result.dataset, result.queries, result.unjudged) == ("system", "toy", 3, 1)


def test_a_run_counts_the_same_however_it_comes(tmp_path: Path) -> None:
    place, path = write_beir(tmp_path), write_trec(tmp_path / "mine.trec")
    for run, dataset in ((path, place), (str(path), place), (iter(RUN), DATASET)):
        assert evaluate_run("mine", run, dataset, ["nDCG@10"]).values == {"nDCG@10": pytest.approx(sum(NDCG) / 3)}


def test_scores_may_be_numpy_numbers() -> None:
    run = [ScoredDoc(hit.query_id, hit.doc_id, np.float32(hit.score)) for hit in RUN]
    assert evaluate_run("x", run, DATASET, ["nDCG@10"]).values["nDCG@10"] == pytest.approx(sum(NDCG) / 3)


def test_a_run_without_hits_scores_zero() -> None:
    assert evaluate_run("none", [], DATASET, ["nDCG@10", "RR@10"]).values == {"nDCG@10": 0, "RR@10": 0}


def test_a_place_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d", "text": "fox"}\n', encoding="utf-8")
    with pytest.raises(DataError):
        load_dataset(tmp_path / "corpus.jsonl")
    with pytest.raises(DataError, match=f"beir:{tmp_path}"):
        load_dataset(tmp_path)


def test_load_dataset_holds_the_judged_part(tmp_path: Path) -> None:
    place = write_beir(tmp_path)
    dataset = load_dataset(place)
    assert [document.full for document in dataset.documents] == [document.full for document in DOCUMENTS]
    assert [query.id for query in dataset.queries] == ["q1", "q2", "q4"]
    assert [judgment.query_id for judgment in dataset.judgments] == ["q1", "q2", "q2", "q4"]
    without = load_dataset(place, documents=False)
    assert (without.documents, without.queries) == ([], dataset.queries)


def test_judged_keeps_the_count_when_repeated() -> None:
    assert DATASET.judged().judged() == DATASET.judged()
    assert DATASET.judged().unjudged == 1


def test_a_dataset_without_judged_queries_is_refused() -> None:
    with pytest.raises(DataError, match=r"toy: .*4 queries"):
        evaluate_run("x", RUN, Dataset("toy", DOCUMENTS, QUERIES, [Qrel("q9", "d1", 1)]))


def test_a_run_of_other_queries_is_refused() -> None:
    with pytest.raises(DataError, match=r"toy: other: .*3 judged queries"):
        evaluate_run("other", [ScoredDoc("a", "d1", 1.0)], DATASET)


def test_a_document_twice_for_a_query_is_refused() -> None:
    with pytest.raises(DataError, match=r"toy: x: .*'d1' .*'q1'"):
        evaluate_run("x", [*RUN, ScoredDoc("q1", "d1", 0.5)], DATASET)


def test_a_name_that_is_no_run_says_how_a_model_is_given() -> None:
    with pytest.raises(DataError, match="naver/splade-v3"):
        evaluate_run("model", "naver/splade-v3", DATASET)


def test_a_measure_is_called_as_it_was_asked() -> None:
    result = evaluate_run("x", RUN, DATASET, ["MRR@10", "RR@10"])
    assert result.values == {"MRR@10": 0.5, "RR@10": 0.5}
    assert result.per_query["MRR@10"] == result.per_query["RR@10"]


def test_a_query_without_a_value_has_0() -> None:
    """Accuracy divides by the number of pairs of a relevant and another hit: only q2 has one."""
    run = [ScoredDoc("q1", "d1", 1.0), ScoredDoc("q2", "d2", 2.0), ScoredDoc("q2", "d1", 1.0)]
    result = evaluate_run("x", run, DATASET, ["nDCG@10", "Accuracy", "Judged@5"])
    assert result.per_query["Accuracy"] == {"q1": 0.0, "q2": 1.0, "q4": 0.0}
    assert not result.uncomputed


def test_ids_that_a_program_cannot_read_are_said() -> None:
    result = evaluate_run("x", RUN, DATASET, ["nDCG@10", "ERR@10", "Judged@5"])
    assert result.uncomputed == {"ERR@10": "ERR@10 cannot be computed: perl ended with status 25"}
    assert result.values == evaluate_run("x", RUN, DATASET, ["nDCG@10", "Judged@5"]).values


def test_a_measure_that_cannot_be_computed_is_a_dash_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = JudgedMeasures._computed

    def fails(self: JudgedMeasures, measure: Measure, ordered: Mapping[str, Sequence[str]]) -> dict[str, float]:
        if measure.name == "Bpref":
            raise RuntimeError("a line\nof perl")
        return computed(self, measure, ordered)

    before = evaluate_run("y", RUN, DATASET, ["Bpref", "nDCG@10", "Rprec"])
    monkeypatch.setattr(JudgedMeasures, "_computed", fails)
    result = evaluate_run("x", RUN, DATASET, ["Bpref", "nDCG@10", "Rprec"])
    assert result.values == {name: before.values[name] for name in ("nDCG@10", "Rprec")}
    assert result.uncomputed == {"Bpref": "Bpref cannot be computed: a line of perl"}
    assert result.queries == 3
    table = result.table()
    assert table.rows[0][table.header.index("Bpref")] == NONE
    assert "Bpref cannot be computed: a line of perl" in str(result)
    with pytest.raises(ArgumentError):
        result.value("Bpref")
    both = compare([before, result])  # p-values of the other measures
    assert both.p_values == ({"nDCG@10": 1.0, "Rprec": 1.0},)
    assert "x: Bpref cannot be computed" in str(both)
    assert json.loads(json.dumps(result.to_json()))["uncomputed"] == result.uncomputed
    monkeypatch.undo()
    with pytest.raises(ArgumentError):
        compare([before, evaluate_run("z", RUN, DATASET, ["nDCG@10"])])


def test_a_model_is_its_exact_ranking_and_its_cost(toy_model: SparseEncoder) -> None:
    encoded = encode_dataset(toy_model, DATASET, dtype="float32")
    found, ranking = sparse_index(encoded), sparse_ranking(encoded, k=3)
    queries = encode(toy_model, [QUERIES[row].text for row in (0, 1, 3)], role="query", dtype="float32")
    documents = encode(toy_model, [document.full for document in DOCUMENTS], dtype="float32")
    scores = (queries @ documents.T).toarray()
    assert encoded.query_ids == ["q1", "q2", "q4"]
    np.testing.assert_array_equal(ranking.rows, np.argsort(-scores, axis=1)[:, :3])
    np.testing.assert_allclose(ranking.scores, -np.sort(-scores, axis=1)[:, :3], rtol=1e-5)
    assert found.cost.query_terms == active_terms(queries)
    assert found.cost.document_terms == active_terms(documents)
    assert found.cost.flops == flops(queries, documents)
    letters = sum(len(document.id) for document in DOCUMENTS)
    present = len(np.unique(documents.indices))  # terms; each has a pointer to its postings
    assert found.cost.index_bytes == 6 * documents.nnz + 8 * (present + 1) + 8 * 5 + letters
    assert found.cost.documents_per_second > 0
    assert found.cost.search_p50_ms is None
    assert found.cost.answer_p50_ms is None
    answered = sparse_index(encoded, time_queries=20)
    assert 0 < answered.cost.search_p50_ms <= answered.cost.search_p95_ms
    assert answered.cost.search_p50_ms < answered.cost.answer_p50_ms <= answered.cost.answer_p95_ms

    evaluation = evaluate_system(toy_model, DATASET, ["nDCG@3", "R@3"], k=3, dtype="float32")
    again = evaluate_run("run", ranking.to_run(encoded.query_ids), DATASET, ["nDCG@3", "R@3"])
    assert evaluation.per_query == again.per_query
    assert evaluation.cost.flops == found.cost.flops
    assert evaluation.name == Path(toy_model[0].auto_model.name_or_path).name


def test_baseline_and_hybrid_come_through_the_same_door(toy_model: SparseEncoder) -> None:
    dataset = DATASET.judged()
    query_ids = [query.id for query in dataset.queries]
    index = BM25Index([document.full for document in dataset.documents], [document.id for document in DOCUMENTS])
    lexical = index.search([query.text for query in dataset.queries], k=3)
    bm25 = evaluate_run("BM25", lexical.to_run(query_ids), dataset, ["RR@10"])
    assert bm25.per_query["RR@10"] == {"q1": 1, "q2": 1, "q4": 0}
    assert bm25.cost is None
    hybrid = reciprocal_rank([lexical, sparse_ranking(encode_dataset(toy_model, dataset), k=3)])
    result = evaluate_run("hybrid", hybrid.to_run(query_ids), dataset, ["R@10"])
    assert result.per_query["R@10"]["q1"] == 1


@pytest.mark.parametrize(
    "options",
    [{"k": 5}, {"k": 0, "measures": ["AP"]}],
)
def test_arguments_out_of_range_are_refused(toy_model: SparseEncoder, options: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        evaluate_system(toy_model, DATASET, **({"measures": ["nDCG@3", "R@10"]} | options))


def test_a_model_needs_documents(toy_model: SparseEncoder) -> None:
    with pytest.raises(DataError):
        evaluate_system(toy_model, Dataset("toy", [], QUERIES, JUDGMENTS), ["AP"])


def test_json_there_and_back(tmp_path: Path) -> None:
    cost = Cost(query_terms=3.5, flops=0.25, index_bytes=1000)
    for given in (cost, None):
        result = evaluate_run("system", RUN, DATASET, ["nDCG@10", "R@1"], cost=given)
        written = json.loads(json.dumps(result.to_json()))
        assert written["per_query"]["R@1"] == {"q1": 0, "q2": 0.5, "q4": 0}
        assert (written["queries"], written["unjudged"]) == (3, 1)
        for values in (written, [written]):
            (tmp_path / "result.json").write_text(json.dumps(values), encoding="utf-8")
            assert compare([tmp_path / "result.json"])[0] == result


@pytest.mark.parametrize("values", [[[]], {"name": "x"}, {"cost": {"colour": 1}}])
def test_other_json_is_refused(values: object, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(DataError, match=r"result\.json"):
        compare([tmp_path / "result.json"])


def test_tables_show_quality_and_cost() -> None:
    result = evaluate_run("a|b [unused1]", RUN, DATASET, ["RR@10"], cost=Cost(query_terms=3.5, search_p50_ms=0.126))
    assert result.markdown() == (
        "| system | RR@10 | query terms | p50 ms |\n|:--|--:|--:|--:|\n| a\\|b [unused1] | 0.5000 | 3.50 | 0.13 |\n\n"
        "convention trec_eval; equal scores by id; relevant: judged 1 or more\n\n1 query without a judgment left out"
        "\n\n1 judged query without a hit, as 0"
    )
    shown = str(result.table())
    assert "toy, 3 queries" in shown
    assert ["a|b", "[unused1]", "0.5000", "3.50", "0.13"] in [line.split() for line in shown.splitlines()]


def test_the_widest_table_keeps_its_numbers_on_a_terminal_of_80_columns() -> None:
    cost = Cost(123.4, 1234.5, 12.34, 5_000_000_000, 1234.5, 12345.6, 12.345, 123.456)
    result = evaluate_run("a model with a long name", RUN, DATASET, ["nDCG@10", "R@1000"], cost=cost)
    shown = str(quality_table([result, result], [{"nDCG@10": 0.0321, "R@1000": 0.00001}]))
    assert max(map(len, shown.splitlines())) <= 80
    for cells in ("0.032 0.6667 <0.001", "123.4 1234 12.3 5000 1,234 12346 12.3 123.5"):
        assert cells in [" ".join(line.split()[-len(cells.split()) :]) for line in shown.splitlines()]
    assert "…" not in shown


def test_a_table_with_answers_has_their_medians() -> None:
    cost = Cost(query_terms=3.5, search_p50_ms=0.126, search_p95_ms=0.2, answer_p50_ms=4.5, answer_p95_ms=9.5)
    result = evaluate_run("a", RUN, DATASET, ["RR@10"], cost=cost)
    assert result.table().header[2:] == ["query terms", "p50 ms", "answer p50 ms"]
    assert result.to_json()["cost"]["answer_p95_ms"] == 9.5


def test_judgments_of_queries_that_are_not_there_are_said(caplog: pytest.LogCaptureFixture) -> None:
    qrels = [Qrel("q1", "d1", 1), Qrel("q3", "d1", 1), Qrel("q2", "d1", 1)]
    left = Dataset("toy", [], [Query("q1", "lists")], qrels).judged()
    assert [judgment.query_id for judgment in left.judgments] == ["q1"]
    assert caplog.messages == ["toy: ignored 2 judged queries missing from the queries, such as 'q2'"]
    caplog.clear()
    left.judged()
    assert caplog.messages == []


def test_a_run_with_judgments_alone_says_what_was_left_out() -> None:
    judgments = [Qrel("q1", "d1", 1), Qrel("q2", "d2", 1), Qrel("q3", "d3", 1)]
    dataset = Dataset("toy", [], [Query(name, name) for name in ("q1", "q2", "q3")], judgments)
    found = evaluate_run("run", [ScoredDoc("q1", "d1", 2.0), ScoredDoc("q9", "d1", 1.0)], dataset, ["RR@10"])
    assert (found.unanswered, found.unjudged, found.values["RR@10"]) == (2, 1, pytest.approx(1 / 3))
    assert [line for line in notes([found]) if "2 judged queries without a hit" in line]
    assert [line for line in notes([found]) if "1 query without a judgment" in line]
