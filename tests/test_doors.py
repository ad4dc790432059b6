"""A search is the same through every door, and `evaluate` measures it: the command, Python, HTTP, MCP, a run file.

Verbs that analyze a model, or mine with it, search as `evaluate` does.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest

import vocable as vo
from studies.common import reproduce
from studies.measurements import quality
from studies.plan import Exhibit, Study
from tests.cli.command_line import done
from tests.service.conftest import Client
from vocable.data import read_corpus, read_queries, read_run
from vocable.options import check
from vocable.service import ServiceOptions
from vocable.service.mcp import call
from vocable.service.server import WorkerSettings, application
from vocable.wackiness import study as wackiness

DOCUMENTS, QUERIES, RELEVANT, LEAST = 150, 12, 3, 15


@pytest.fixture(scope="module")
def beir(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> str:
    """A BEIR source with documents of two sentences; the relevant documents of a query have one or two of its words."""
    folder, generator = tmp_path_factory.mktemp("doors"), np.random.default_rng(4)
    pairs = [" ".join(generator.choice(toy_texts, 2)) for _ in range(DOCUMENTS)]
    rows = {
        "corpus": [{"_id": f"d{row}", "title": "", "text": text} for row, text in enumerate(pairs)],
        "queries": [{"_id": f"q{row}", "text": " ".join(pairs[row].split()[1:5])} for row in range(QUERIES)],
    }
    for name, values in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in values), encoding="utf-8")
    judged = [
        f"q{query}\td{row}\t{1 + row % 2}\n"
        for query in range(QUERIES)
        for row in generator.choice(DOCUMENTS, RELEVANT, replace=False)
    ]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged), encoding="utf-8")
    return f"beir:{folder}"


@pytest.fixture(scope="module", params=["sparse,bm25,dense", "sparse"])
def index(
    request: pytest.FixtureRequest, model: str, dense: str, beir: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place, several = tmp_path_factory.mktemp("index") / "index", "," in request.param
    vo.index(model, beir, place, bm25=several, dense=dense if several else None, dtype="float32", device="cpu").close()
    with vo.open_index(place) as opened:
        assert [*opened.spaces] == request.param.split(",")
    return place


def hits_of_run(path: Path) -> dict[str, dict[str, float]]:
    hits: dict[str, dict[str, float]] = {}
    for hit in read_run(path):
        hits.setdefault(hit.query_id, {})[hit.doc_id] = hit.score
    return hits


@pytest.mark.parametrize(("measure", "k"), [("nDCG@10", 10), ("R@20", 20), ("R@1000", 1000)])
def test_the_first_row_of_an_evaluation_is_the_run_file_of_a_search(
    capsys: pytest.CaptureFixture[str],
    index: Path,
    beir: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measure: str,
    k: int,
) -> None:
    monkeypatch.setattr("vocable.indexes.fusion.MIN_DEPTH", LEAST)  # so that a fusion depends on the number of hits
    run, results = tmp_path / "run", tmp_path / "results.json"
    done(capsys, "search", index, "--queries", beir, "--run", run, "-k", k)
    done(capsys, "evaluate", index, "--dataset", beir, "-m", "nDCG@10", "-m", "R@1000", "-m", "R@20", "-o", results)
    first = json.loads(results.read_text(encoding="utf-8"))[0]
    qrels = Path(beir.removeprefix("beir:")) / "qrels.tsv"
    judged = [line.split("\t") for line in qrels.read_text(encoding="utf-8").splitlines()[1:]]
    parsed = ir_measures.parse_measure(measure)
    calculated = ir_measures.calc(
        [parsed],
        [ir_measures.Qrel(query, document, int(grade)) for query, document, grade in judged],
        [ir_measures.ScoredDoc(query, *hit) for query, hits in hits_of_run(run).items() for hit in hits.items()],
    )
    per_query = {metric.query_id: metric.value for metric in calculated[1]}
    assert first["per_query"][measure] == per_query
    assert first["values"][measure] == pytest.approx(calculated[0][parsed], rel=1e-14)
    assert len(per_query) == QUERIES
    assert first["values"][measure] > 0


def test_hits_are_the_same_through_every_door(
    capsys: pytest.CaptureFixture[str], index: Path, beir: str, tmp_path: Path
) -> None:
    lines = (Path(beir.removeprefix("beir:")) / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    settings = WorkerSettings(
        str(index), None, "127.0.0.1", None, check(ServiceOptions, {"device": "cpu", "allow_host": ["test"]})
    )
    client = Client(application(settings))
    try:
        for line in lines[:4]:
            (tmp_path / "query.jsonl").write_text(line, encoding="utf-8")
            done(capsys, "search", index, "--queries", tmp_path / "query.jsonl", "--run", tmp_path / "run", "-k", 10)
            text = json.loads(line)["text"]
            printed = json.loads(done(capsys, "search", index, text, "-k", 10, "--json"))
            posted = client("POST", "/search", json={"query": text, "k": 10}).json()
            called, failed = asyncio.run(call(client.service, "search", {"query": text, "k": 10}))
            assert not failed
            [answer] = vo.search(index, [text], 10)
            expected = [(hit.document.id, hit.score) for hit in answer.hits]
            doors: dict[str, Any] = {"command": printed, "HTTP": posted, "MCP": called}
            for door, answered in doors.items():
                assert [(hit["id"], hit["score"]) for hit in answered["hits"]] == expected, door
            [written] = hits_of_run(tmp_path / "run").values()
            assert [*written] == [name for name, _ in expected]
            assert [*written.values()] == pytest.approx([score for _, score in expected], rel=1e-6)
    finally:
        client.service.close()


@pytest.fixture(scope="module")
def limited(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with limits of terms, prompts, and an IDF of queries."""
    encoder: Any = vo.load(model, device="cpu")
    encoder[0].auto_model.config.active_terms = {"query": 9, "document": 20}
    encoder[0].auto_model.config.query_idf = 0.75
    encoder.prompts = {"query": "the fox ", "document": "books "}
    folder = str(tmp_path_factory.mktemp("limited") / "model")
    encoder.save_pretrained(folder)
    return folder


def test_nothing_is_left_out_where_a_model_is_analyzed_or_mines(
    limited: str, beir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an ablation, and among the hits of `measure_wackiness` and `mine`, everything is as `evaluate` has it."""
    measures, exact = ["nDCG@10", "AP"], {"dtype": "float32", "device": "cpu"}
    [whole] = vo.evaluate(limited, beir, measures, query_idf=None, **exact)
    [plain] = vo.evaluate(limited, beir, measures, query_idf=0, **exact)
    assert whole.values != plain.values  # the IDF matters here
    stored = {"vectors": tmp_path / "documents", "query_vectors": tmp_path / "queries"}
    vo.encode(limited, beir, output=stored["vectors"], **exact)
    vo.encode(limited, beir, "query", output=stored["query_vectors"], **exact)
    # Ablations, of encoded and of stored vectors.
    for number, (role, vectors) in enumerate((role, given) for role in ("query", "document") for given in ({}, stored)):
        few: dict[str, Any] = {"thresholds": [2], "draws": 2, "role": role, "measures": measures}
        report = vo.ablate(limited, beir, tmp_path / f"ablated-{number}", **few, **vectors, **exact)
        assert report.datasets[0].full == whole.values
    # The documents that measure-wackiness reads.
    judged = [line.split("\t") for line in Path(beir[5:], "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    qrels = [ir_measures.Qrel(query, document, int(grade)) for query, document, grade in judged]
    ids = [document.id for document in read_corpus(beir)]
    seen: list[Any] = []
    expand = wackiness.expansion_data
    monkeypatch.setattr(
        wackiness, "expansion_data", lambda *args, **kwargs: seen.append(expand(*args, **kwargs)) or seen[-1]
    )
    for number, vectors in enumerate(({}, stored)):
        vo.measure_wackiness(limited, beir, tmp_path / f"wacky-{number}", queries=beir, k=DOCUMENTS, **vectors, **exact)
        hits = [
            ir_measures.ScoredDoc(query.id, ids[row], -float(rank))
            for query, rows in zip(read_queries(beir), seen[-1].rows, strict=True)
            for rank, row in enumerate(rows[rows >= 0])
        ]
        found = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in measures], qrels, hits)
        assert {str(name): value for name, value in found.items()} == pytest.approx(whole.values, abs=1e-12)


def test_an_added_row_of_a_study_is_the_evaluation_of_its_model(limited: str, beir: str, tmp_path: Path) -> None:
    measures = ["nDCG@10", "AP"]
    columns = {name: quality(name, "given") for name in measures}
    exhibits = {"table": Exhibit("an own model", columns=measures)}
    study = Study(tmp_path, "a study of a given collection", {"given": beir}, columns, exhibits)
    [whole] = vo.evaluate(limited, beir, measures, dtype="float32", device="cpu")
    row = reproduce(study, tmp_path / "out", only=["mine"], added=[f"mine={limited}"]).cells["table"]["mine"]
    assert {name: cell.ours for name, cell in row.items()} == {name: [whole.values[name]] for name in measures}


def test_scores_of_mined_examples_are_scores_of_a_search(limited: str, beir: str, tmp_path: Path) -> None:
    index = vo.index(limited, beir, bm25=False, dtype="float32", device="cpu")
    documents = {document.full: document.id for document in read_corpus(beir)}
    pairs = [{"query": query.text, "positive": [*documents][row]} for row, query in enumerate(read_queries(beir))]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    vo.mine(
        vo.load(limited, device="cpu"), tmp_path / "pairs.jsonl", tmp_path / "hard.jsonl", corpus=beir, with_scores=True
    )
    mined = [*vo.read_examples(tmp_path / "hard.jsonl")]
    assert len(mined) == QUERIES
    for example in mined:
        [answer] = vo.search(index, [example.query], DOCUMENTS)
        scores = {hit.document.id: hit.score for hit in answer.hits}
        texts = (example.positive, *example.negatives)
        assert example.scores == pytest.approx([scores[documents[text]] for text in texts], rel=1e-5)
