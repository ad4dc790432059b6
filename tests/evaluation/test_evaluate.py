"""The verb `evaluate`: several systems of several kinds on one dataset."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.data.test_topics import SGML
from tests.evaluation.rankings import sparse_ranking
from vocable.collection.index import index
from vocable.data import Document, Qrel, Query, ScoredDoc, read_judgments, read_queries, read_run
from vocable.encoding.models import encoding_model
from vocable.encoding.stream import encode_stream
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError
from vocable.evaluation import retrievers
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import encode_dataset
from vocable.evaluation.expanders import lexical_search
from vocable.evaluation.plans import evaluate_system
from vocable.evaluation.quality import evaluate_run
from vocable.evaluation.retrievers import lexical_index, unexpanded

MEASURES = ["nDCG@10", "R@3"]


@pytest.mark.slow
def test_models_runs_and_baselines_stand_side_by_side(
    toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path
) -> None:
    encoded = encode_dataset(toy_model, dataset, dtype="float32")
    sparse_ranking(encoded).write_trec(tmp_path / "toy.run", encoded.query_ids)
    compared = vo.evaluate(
        {"model": toy_model, "run": tmp_path / "toy.run", "feedback": "bm25+rm3"},
        dataset,
        MEASURES,
        bm25=True,
        hybrid=True,
        dtype="float32",
        output=tmp_path / "results.json",
        per_query=tmp_path / "values.tsv",
    )
    names = [evaluation.name for evaluation in compared.evaluations]
    assert names == ["model", "model + BM25", "run", "run + BM25", "feedback", "feedback + BM25", "BM25"]
    alone = evaluate_system(toy_model, dataset, MEASURES, dtype="float32")
    assert compared[0].per_query == compared[2].per_query == alone.per_query
    assert compared[1].values == compared[3].values
    for place, make in ((4, lexical_search("bm25+rm3")), (6, unexpanded)):
        cost = compared[place].cost
        assert cost is not None
        assert cost.flops == lexical_index(dataset, make=make).cost.flops
    again = vo.compare([tmp_path / "results.json"])
    assert [one.values for one in again.evaluations] == [one.values for one in compared.evaluations]
    assert len((tmp_path / "values.tsv").read_text().splitlines()) == 1 + 7 * 2 * 2
    assert "BM25" in str(compared)
    assert compared._repr_html_().count("<tr>") == 8


@pytest.mark.slow
def test_stored_vectors_are_a_system(backbones: dict[str, Path], dataset: Dataset, tmp_path: Path) -> None:
    model = vo.load(backbones["bert"], device="cpu")
    folders = [tmp_path / "one", tmp_path / "two"]
    for number, folder in enumerate(folders, start=1):
        encoder = TextEncoder(model, dtype="float32")
        half = list(dataset.documents)[number - 1 :: 2]
        encode_stream(encoder, half, folder, model=str(backbones["bert"]))
    parent = tmp_path / "one"
    for shard in folders[1].glob("part-*.parquet"):
        shard.rename(parent / "part-00001.parquet")
    stored = vo.evaluate(parent, dataset, MEASURES, dtype="float32")
    assert stored[0].values == vo.evaluate(model, dataset, MEASURES, dtype="float32")[0].values
    assert json.loads(json.dumps(stored.to_json()))["systems"][0]["cost"]["documents_per_second"] is None
    with pytest.raises(ArgumentError):
        vo.evaluate(parent, dataset, MEASURES, long_documents="maxpool")


def test_a_grid_is_searched(toy_model: SparseEncoder, dataset: Dataset, tmp_path: Path) -> None:
    found = vo.evaluate(
        toy_model, dataset, ["R@3"], grid=["query_max_terms=0,3"], bm25=True, output=tmp_path / "grid.json"
    )
    assert [point.setting and point.setting.query_max_terms for point in found.points] == [0, 3, None]
    assert len(vo.compare([tmp_path / "grid.json"])) == 3


def test_arguments_that_exclude_each_other(toy_model: SparseEncoder, dataset: Dataset) -> None:
    with pytest.raises(ArgumentError):
        vo.evaluate(toy_model, dataset, figure="x.png")
    with pytest.raises(ArgumentError):
        vo.evaluate(toy_model, dataset, grid=["query_max_terms=3"], hybrid=True)
    with pytest.raises(ArgumentError):
        vo.evaluate([], dataset)


def test_bm25_is_a_system_that_asks_for_no_model(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(*names: object, **options: object) -> None:
        raise AssertionError(f"{names} was loaded")

    for place in (
        "vocable.evaluation.evaluate.load_encoder",  # first: its module would import the other replacement
        "vocable.evaluation.select.load_encoder",
        "vocable.encoding.load.load_encoder",
        "vocable.evaluation.evaluate.check_length",
    ):
        monkeypatch.setattr(place, loaded)
    found = vo.evaluate("bm25", dataset, MEASURES, bm25=True)
    assert [one.name for one in found.evaluations] == ["bm25", "BM25"]
    assert found[0].per_query == found[1].per_query
    assert found[0].query_idf is None
    with pytest.raises(ArgumentError):
        vo.select("bm25", dataset)
    with pytest.raises(ArgumentError):
        vo.measure_wackiness("bm25", output="never", queries=["a"], corpus=["b"])


@pytest.mark.slow
def test_answers_are_timed_as_often_as_asked(
    toy_model: SparseEncoder, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []
    original = retrievers.answer_times

    def counted(*arguments: Any, answers: int) -> Any:
        timed.append(answers)
        return original(*arguments, answers=answers)

    monkeypatch.setattr(retrievers, "answer_times", counted)
    systems = {"model": toy_model, "feedback": "bm25+rm3"}
    for time_queries, expected in ((None, [200, 200, 20]), (7, [7, 7, 7]), (0, [])):
        options = {} if time_queries is None else {"time_queries": time_queries}
        found = vo.evaluate(systems, dataset, MEASURES, bm25=True, dtype="float32", **options)
        assert timed == expected
        timed.clear()
        assert ("answer p50 ms" in found.table().header) == bool(expected)
        assert "FLOPS" in found.table().header
    with pytest.raises(ArgumentError):
        vo.evaluate(toy_model, dataset, time_queries=-1)


def test_a_hybrid_is_the_search_for_as_many_results_as_a_measure_looks_at(
    toy_model: SparseEncoder, toy_texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model, a run and an index alike, whatever else is measured."""
    monkeypatch.setattr("vocable.indexes.fusion.MIN_DEPTH", 5)
    documents = [Document(f"d{i}", text) for i, text in enumerate(sorted(set(toy_texts))[:40])]
    queries = [Query(f"q{i}", text) for i, text in enumerate(toy_texts[3:9])]
    judgments = [Qrel(query.id, f"d{7 * i + j}", 1) for i, query in enumerate(queries) for j in range(3)]
    dataset, measures = Dataset("toy", documents, queries, judgments), ["nDCG@3", "R@20", "AP"]
    index(toy_model, documents, tmp_path / "my-index", bm25=True, dtype="float32")
    collection = vo.open_index(tmp_path / "my-index")
    collection.models.loaded = encoding_model(toy_model)
    encoded = encode_dataset(toy_model, dataset, dtype="float32")
    sparse_ranking(encoded).write_trec(tmp_path / "toy.run", encoded.query_ids)
    how: dict[str, Any] = {"hybrid": True, "dtype": "float32", "time_queries": 0}
    of_model = vo.evaluate({"toy": toy_model, "run": tmp_path / "toy.run"}, dataset, measures, **how)
    of_index = vo.evaluate(collection, dataset, measures, hybrid=True, folds=3)
    by_name = {one.name: one.per_query for one in [*of_model.evaluations, *of_index.evaluations]}
    ids, texts = [query.id for query in queries], [query.text for query in queries]
    for measure, k in (("nDCG@3", 3), ("R@20", 20), ("AP", 40)):
        run = collection.search(texts, k).to_run(ids)
        expected = evaluate_run("search", run, dataset, [measure]).per_query[measure]
        for name in ("toy + BM25", "run + BM25", "search (sparse=1,bm25=1)"):
            assert by_name[name][measure] == expected, (name, measure)
        assert vo.evaluate(collection, dataset, [measure])[0].per_query[measure] == expected
    together = vo.evaluate({"toy": toy_model, "my": collection}, dataset, ["nDCG@3"], bm25=True, time_queries=0)
    names = [one.name for one in together.evaluations]  # the first that is named is the baseline
    assert (names[:2], names[-1]) == (["toy", "my: search (sparse=1,bm25=1)"], "BM25")


FOLDER = os.environ.get("VOCABLE_TREC_EVAL")
PUBLISHED = sorted(Path(FOLDER).rglob("results.*")) if FOLDER else []

# trec_eval's names, and those of ir_measures.
NAMES = {
    r"map": "AP",
    r"map_cut_(\d+)": "AP@{}",
    r"Rprec": "Rprec",
    r"bpref": "Bpref",
    r"recip_rank": "RR",
    r"iprec_at_recall_(\d\.\d+)": "IPrec@{}",
    r"P_(\d+)": "P@{}",
    r"recall_(\d+)": "R@{}",
    r"infAP": "infAP",
    r"ndcg": "nDCG",
    r"ndcg_cut_(\d+)": "nDCG@{}",
    r"success_(\d+)": "Success@{}",
    r"set_P": "SetP",
    r"set_recall": "SetR",
    r"num_ret": "NumRet",
    r"num_rel": "NumRel",
    r"num_rel_ret": "NumRelRet",
}


def measure(name: str) -> str | None:
    """The name of trec_eval's measure in ir_measures; None if it is none of those above."""
    for pattern, ours in NAMES.items():
        if found := re.fullmatch(pattern, name):
            return ours.format(*(str(float(group)) if "." in group else group for group in found.groups()))
    return None


def printed(path: Path) -> dict[str, dict[str, float]]:
    """{measure: {query, or "all": value}} of what trec_eval prints, as far as we have the measure."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines():
        name, query, value = line.split()
        if (ours := measure(name)) is not None:
            values[ours][query] = float(value)
    return dict(values)


def check(run: Path) -> int:
    """Compare all figures printed of a run with ours, and return their number."""
    name, compared = run.name.removeprefix("results."), 0
    asked = {hit.query_id for hit in read_run(run)}
    for out in run.parent.glob(f"out.{name}*"):
        options = out.name.removeprefix(f"out.{name}").removeprefix(".")
        if not set(options) <= set("aqc"):
            continue
        expected = printed(out)
        judgments = run.with_name(f"qrels.{name}")
        [found] = vo.evaluate(run, judgments=judgments, measures=list(expected), ties="trec_eval")
        for ours, values in expected.items():
            per_query = found.per_query[ours]
            # By default trec_eval looks at the queries that the run answers alone.
            counted = [value for query, value in per_query.items() if "c" in options or query in asked]
            mean = sum(counted) / (1 if ours.startswith("Num") else len(counted))
            for query, value in values.items():
                ours_is = mean if query == "all" else per_query[query]
                assert ours_is == pytest.approx(value, abs=6e-5), (out.name, ours, query)
                compared += 1
    return compared


@pytest.mark.skipif(not PUBLISHED, reason="VOCABLE_TREC_EVAL names no folder with results.* in it")
@pytest.mark.parametrize("run", PUBLISHED, ids=lambda path: path.name)
def test_published_figures_are_reproduced_from_published_runs(run: Path) -> None:
    assert check(run)


QRELS = "301 0 a 1\n301 0 b 0\n301 0 c 2\n302 0 d 1\n303 0 e 1\n"
RUN = "301 Q0 b 1 3.0 tag\n301 Q0 a 2 2.0 tag\n301 Q0 x 3 1.0 tag\n302 Q0 d 1 1.5 tag\n"
TIED = RUN.replace("301 Q0 a 2 2.0", "301 Q0 a 2 3.0")  # which trec_eval orders by descending id
# By hand. 301: the one relevant document of two that is found comes second, after the one that was judged and is not.
# nDCG@5 of 301 is (1 / log2 3) / (2 + 1 / log2 3). 302 is right; 303 has no answer.
OUT = """runid all tag
num_ret all 4
num_rel all 3
num_rel_ret all 2
map all 0.6250
Rprec all 0.7500
bpref all 0.5000
recip_rank all 0.7500
iprec_at_recall_0.00 all 0.7500
iprec_at_recall_1.00 all 0.5000
P_5 all 0.2000
recall_5 all 0.7500
ndcg_cut_5 all 0.6199
success_1 all 0.5000
"""
ALL_JUDGED = """map 301 0.2500
map 302 1.0000
map all 0.4167
num_rel all 4
recip_rank all 0.5000
"""


def test_figures_by_hand_in_the_layout_of_trec_eval(tmp_path: Path) -> None:
    for name, content in {"qrels": QRELS, "results": TIED, "out": OUT}.items():
        (tmp_path / f"{name}.made").write_text(content, encoding="utf-8")
    (tmp_path / "out.made.aqc").write_text(ALL_JUDGED, encoding="utf-8")
    (tmp_path / "out.made.aqcM").write_text("map all 0.1\n", encoding="utf-8")  # of fewer hits, which is not compared
    assert check(tmp_path / "results.made") == 13 + 5


JUDGED = [Qrel("301", "a", 1), Qrel("301", "b", 0), Qrel("301", "c", 2), Qrel("302", "d", 1), Qrel("303", "e", 1)]
JUDGMENTS = {
    "qrels.txt": QRELS,
    "qrels.test": QRELS,
    "qrels": QRELS,
    "2019qrels-pass.adhoc": QRELS.replace(" ", "\t"),
    "qrels.trec": QRELS.replace(" 0 ", " Q0 "),
    "windows.txt": "\ufeff" + QRELS.replace("\n", "\r\n"),
    "comments.txt": f"# made by hand\n#query iteration document grade\n{QRELS}\n# the end\n#\n",
    "header.tsv": "query-id\tcorpus-id\tscore\n" + QRELS.replace(" 0 ", " ", 5).replace(" ", "\t"),
    "comment-and-header.tsv": "# BEIR\nquery-id\tcorpus-id\tscore\n" + QRELS.replace(" 0 ", " ", 5).replace(" ", "\t"),
    "beir.tsv": QRELS.replace(" 0 ", " ", 5),
    "repeated.txt": QRELS + QRELS,
    "floats.txt": re.sub(r"(\d)$", r"\1.0", QRELS, flags=re.MULTILINE),
}


@pytest.mark.parametrize("name", JUDGMENTS)
def test_layouts_of_judgments(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(JUDGMENTS[name], encoding="utf-8")
    assert list(read_judgments(path)) == JUDGED
    (tmp_path / "run").write_text(RUN, encoding="utf-8")
    [found] = vo.evaluate(tmp_path / "run", judgments=path, measures=["AP", "RR"])
    assert found.values == pytest.approx({"AP": 1.25 / 3, "RR": 0.5})
    assert (found.dataset, found.queries, found.unjudged) == (str(path), 3, 0)


FOUND = [ScoredDoc("301", "b", 3.0), ScoredDoc("301", "a", 2.0), ScoredDoc("301", "x", 1.0), ScoredDoc("302", "d", 1.5)]
RUNS = {
    "plain": RUN,
    "tabs": RUN.replace(" ", "\t"),
    "aligned": RUN.replace(" ", "\t  "),
    "words after the tag": RUN.replace("tag", "my first run"),
    "a number after the tag": RUN.replace("tag", "tag 17"),
    "comments": f"# my favourite run\n#vocable search of 3 May 2024, 4 hits\n{RUN}# the end\n",
    "any order": "".join(reversed(RUN.splitlines(keepends=True))),
    "windows": "\ufeff" + RUN.replace("\n", "\r\n\r\n"),
    "scientific": RUN.replace("3.0", "3e0").replace("1.0", "+1"),
    "repeated": RUN + RUN,
}


@pytest.mark.parametrize("name", RUNS)
def test_layouts_of_runs(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run.txt"
    path.write_text(RUNS[name], encoding="utf-8")
    assert sorted(read_run(path)) == sorted(FOUND)
    (tmp_path / "qrels.txt").write_text(QRELS, encoding="utf-8")
    [found] = vo.evaluate(path, judgments=tmp_path / "qrels.txt", measures=["AP"])
    assert found.per_query["AP"] == pytest.approx({"301": 0.25, "302": 1.0, "303": 0.0})


@pytest.mark.parametrize("line", ["#1 0 d 1", "#1 0 #d 0"])
def test_ids_that_begin_with_a_number_sign_are_no_comments(tmp_path: Path, line: str) -> None:
    (tmp_path / "qrels.txt").write_text(line, encoding="utf-8")
    query, _, document, grade = line.split()
    assert list(read_judgments(tmp_path / "qrels.txt")) == [Qrel(query, document, int(grade))]
    (tmp_path / "run").write_text(f"{query} Q0 {document} 1 2.5 tag", encoding="utf-8")
    assert list(read_run(tmp_path / "run")) == [ScoredDoc(query, document, 2.5)]


def test_a_text_file_of_ids_and_texts_is_a_table(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "topics.dev.txt"
    path.write_text("156493\tdo goldfish grow\n1124210\ttracheids are part of\n", encoding="utf-8")
    expected = [Query("156493", "do goldfish grow"), Query("1124210", "tracheids are part of")]
    assert list(read_queries(path)) == list(read_queries(path)) == expected
    [said] = caplog.messages
    assert said.startswith(f"{path}: read as id TAB text")
    for content in ("156493\tdo goldfish\nno id\n", "a text\twith a tab\n", "7\tone\n7\ttwo\n", "7\tone\n8\ta\tb\n"):
        path.write_text(content, encoding="utf-8")
        assert [query.text for query in read_queries(path)] == content.splitlines()


def test_files_in_place_of_a_dataset(tmp_path: Path) -> None:
    """A run needs judgments, an index queries and BM25 documents, too; together they are the collection."""
    (tmp_path / "qrels.txt").write_text("51 0 d1 1\n", encoding="utf-8")
    (tmp_path / "topics.txt").write_text(SGML, encoding="utf-8")
    lines = '{"_id": "d1", "text": "Lantern tariffs"}\n{"_id": "d2", "text": ""}\n{"_id": "d3", "text": "crime"}\n'
    (tmp_path / "corpus.jsonl").write_text(lines, encoding="utf-8")
    files = {name: tmp_path / file for name, file in (("judgments", "qrels.txt"), ("queries", "topics.txt"))}
    (tmp_path / "run").write_text("51 Q0 d1 1 1.0 tag\n", encoding="utf-8")
    [run, lexical] = vo.evaluate(
        tmp_path / "run", measures=["RR", "P@1"], **files, corpus=tmp_path / "corpus.jsonl", bm25=True
    )
    assert run.values == lexical.values == {"RR": 1.0, "P@1": 1.0}
    with pytest.raises(ArgumentError, match="`corpus` is required"):
        vo.evaluate(tmp_path / "run", **files, bm25=True)
    with pytest.raises(ArgumentError, match="`queries` is required"):
        vo.evaluate("vocable-mini", judgments=files["judgments"])
    with pytest.raises(ArgumentError, match="`dataset` or `judgments` is required"):
        vo.evaluate(tmp_path / "run")
    with pytest.raises(ArgumentError, match="`dataset` or `judgments` is required"):
        vo.evaluate(tmp_path / "run", "pydocs:#test", judgments=files["judgments"])
    with pytest.raises(ArgumentError, match="need `judgments`"):
        vo.evaluate(tmp_path / "run", "pydocs:#test", queries=files["queries"])
