"""The demonstration: its known items, and what it says of gains."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from vocable.cli import demo
from vocable.collection.answers import search
from vocable.collection.index import index
from vocable.data import Document, Qrel, Query
from vocable.encoding.load import load
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.significance import compare


def test_answers_are_printed_as_a_search_prints_them(
    backbones: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["which elements occur most often in a list", "several random items", "compare two files and their lines"]
    corpus = tmp_path / "corpus.jsonl"
    records = [{"_id": f"d{i}", "text": text, "url": "https://x.org/" + "a/" * 60} for i, text in enumerate(texts)]
    corpus.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "80")
    with index(str(backbones["bert"]), corpus, tmp_path / "index", device="cpu") as collection:
        text = io.StringIO()
        demo._ask(Console(file=text, width=80), collection.models.loaded, collection)
        answer = search(collection, [demo.QUESTIONS[0]], 3)[0]
    for line in str(answer).splitlines():
        assert line in text.getvalue()
    assert text.getvalue().count("because of") == len(demo.QUESTIONS)


@pytest.mark.slow
@pytest.mark.parametrize(("whole", "least"), [(False, 100), (True, 300)])
def test_known_items_lack_their_queries(whole: bool, least: int) -> None:
    dataset = demo.known_items(whole=whole)
    texts = {document.id: document.text for document in dataset.documents}
    answers = {one.query_id: one.doc_id for one in dataset.judgments}
    assert len(dataset.queries) == len(dataset.documents) > least
    repeated = [query.id for query in dataset.queries if query.text in " ".join(texts[answers[query.id]].split())]
    assert len(repeated) <= len(dataset.queries) / 100  # a docstring may say its first words again
    assert whole or {name.partition(".")[0] for name in texts} <= {*demo.MODULES}


@pytest.mark.slow
def test_some_hundreds_of_documents_are_indexed_unless_all_are_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: dict[Path, list[str]] = {}

    def index_(_model: str, corpus: list[Document], place: Path) -> None:
        told[place] = [document.id for document in corpus]

    monkeypatch.setattr(demo, "index", index_)
    for whole in (False, True):
        demo._indexed(demo._place(tmp_path, whole=whole), whole=whole)
    part, everything = told[tmp_path / "index"], told[tmp_path / "whole-index"]
    assert {name.partition(".")[0] for name in part} == {*demo.MODULES}
    assert 200 < len(part) < 400
    assert {*part} < {*everything}
    assert {"bisect.insort_right", "collections.Counter.most_common", "random.Random.sample", "timeit"} <= {*part}


def test_changes_say_what_may_be_chance() -> None:
    values = {"BM25": [0.0, 0.5, 0.25, 0.5], "model": [0.5, 1.0, 0.75, 1.0], "BM25 + model": [0.5, 1.0, 1.0, 0.75]}
    first, second = demo.changes(compare([evaluation(name, some) for name, some in values.items()]))
    assert first.startswith("the model gained 0.500 nDCG@10 over BM25")
    assert "which may be chance" in second


def test_a_model_with_dense_vectors_has_one_fusion_more(
    backbones: dict[str, Path], m3: str, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "MEDIAN_OF", 4)
    queries = [Query(one.id, " ".join(one.text.split()[:3])) for one in documents[:4]]
    dataset = Dataset("toy", documents, queries, [Qrel(one.id, one.id, 1) for one in queries])
    for model, more in ((backbones["bert"], []), (m3, ["BM25 + model + dense"])):
        systems = compare(demo._systems(load(model, device="cpu"), dataset, "model"))
        assert [one.name for one in systems.evaluations] == ["BM25", "model", "BM25 + model", *more]
        assert len(demo.changes(systems)) == 2 + len(more)


def evaluation(name: str, values: list[float]) -> Evaluation:
    per_query = {demo.MEASURE: {str(row): value for row, value in enumerate(values)}}
    means = {demo.MEASURE: sum(values) / len(values)}
    return Evaluation(name, "toy", means, per_query, convention="trec_eval", ties="search")
