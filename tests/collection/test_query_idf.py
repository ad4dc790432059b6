"""Queries weighed by the IDF of the collection that is searched, by every way to search: against NumPy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from vocable.collection.answers import search
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.collection.standing import explain
from vocable.collection.verbs import add, delete
from vocable.data import Document, Qrel, Query, ScoredDoc
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import encode_dataset
from vocable.evaluation.evaluate import evaluate
from vocable.evaluation.quality import evaluate_run

QUERIES = ["the old fox reads", "posting lists at night", "a librarian measures twelve queries"]
POWER = 0.5
Model = Callable[[str], Path]


@pytest.fixture
def with_idf(backbones: dict[str, Path], tmp_path: Path) -> Model:
    """A backbone whose configuration asks for the IDF."""

    def make(name: str) -> Path:
        model = load(str(backbones[name]))
        model[0].auto_model.config.query_idf = POWER
        model.save_pretrained(str(tmp_path / name))
        return tmp_path / name

    return make


def corpus(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"_id": f"d{i}", "text": text}) + "\n" for i, text in enumerate(texts)))
    return path


def expected(model: SparseEncoder, texts: list[str], counted: slice = slice(None), power: float = POWER) -> np.ndarray:
    """The queries' weights [q, v]: log(1 + (n - df + 1/2) / (df + 1/2)), to the power, times the encoder's."""
    queries = TextEncoder(model, "query").encode(QUERIES).toarray()
    documents = TextEncoder(model, "document").encode(texts).toarray()
    counts, n = (documents[counted] > 0).sum(axis=0), len(documents[counted])
    return queries * np.log(1 + (n - counts + 0.5) / (counts + 0.5)) ** power


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
def test_a_search_weighs_queries(name: str, with_idf: Model, toy_texts: list[str], tmp_path: Path) -> None:
    texts = sorted(set(toy_texts))[:50]
    made = with_idf(name)
    model = load(str(made))
    index(str(made), corpus(tmp_path / "corpus.jsonl", texts), tmp_path / "index")
    with_idfs, documents = expected(model, texts), TextEncoder(model, "document").encode(texts)
    answers = search(str(tmp_path / "index"), QUERIES, k=50, explain=True, weights="sparse")
    np.testing.assert_allclose(answers.vectors.toarray(), with_idfs, rtol=1e-4, atol=1e-6)
    scores = with_idfs @ documents.toarray().T
    for row, answer in enumerate(answers):
        for hit in answer.hits:
            assert hit.score == pytest.approx(scores[row, int(hit.document.id[1:])], rel=1e-4)
        assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    raw = search(str(tmp_path / "index"), QUERIES, query_idf=0.0)
    np.testing.assert_array_equal(raw.vectors.toarray(), TextEncoder(model, "query").encode(QUERIES).toarray())


@pytest.mark.parametrize("engine", ["seismic:", "", "milvus:"])
def test_scores_are_the_same_in_every_engine(
    engine: str, with_idf: Model, toy_texts: list[str], tmp_path: Path
) -> None:
    """Each engine has the 40 last texts: one that changes, after additions, replacements and deletions."""
    if engine.removesuffix(":") in ("seismic", "milvus"):
        pytest.importorskip({"seismic:": "seismic", "milvus:": "milvus_lite"}[engine])
    texts, made, kept = sorted(set(toy_texts))[:50], with_idf("bert"), slice(10, 50)
    model, all_of_them = load(str(made)), {f"d{i}": text for i, text in enumerate(texts)}
    final = dict(list(all_of_them.items())[kept])
    place, first = f"{engine}{tmp_path / 'index.db'}", texts[:30] if engine in ("", "milvus:") else []
    if first:
        changed = [*first[:20], *reversed(first[20:])]  # ten documents with another text, to be replaced
        opened = index(model, corpus(tmp_path / "first.jsonl", changed), place, dtype="float32")
        opened.models.queries()
        assert add(opened, corpus(tmp_path / "all.jsonl", texts)).replaced == 10
        assert delete(opened, [f"d{i}" for i in range(10)]).deleted == 10
    else:
        rows = "".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in final.items())
        (tmp_path / "corpus.jsonl").write_text(rows)
        opened = index(model, tmp_path / "corpus.jsonl", place, dtype="float32")
    weights = opened.models.queries().encode(QUERIES)
    np.testing.assert_allclose(weights.toarray(), expected(model, texts[kept]), rtol=1e-5, atol=1e-7)
    documents = TextEncoder(model, "document", dtype="float32").encode(list(final.values()))
    counted, count = opened.store.count_terms(np.arange(documents.shape[1]))
    np.testing.assert_array_equal(counted, np.bincount(documents.indices, minlength=documents.shape[1]))
    assert count == len(final)
    scores = (weights @ documents.T).toarray()
    allowed = {"float32": 0.0, "float16": 2.0**-11, "9 bits": 2.0**-8}[opened.store.about.precision] + 1e-4
    found = opened.search(QUERIES, len(final), weights="sparse")
    for query in range(len(QUERIES)):
        hits = dict(found.hits(query))
        truth = {name: score for name, score in zip(final, scores[query].tolist(), strict=True) if score > 0}
        assert hits == pytest.approx({name: truth[name] for name in hits}, rel=allowed)
        assert hits.keys() == truth.keys() or not opened.store.about.exact
    opened.close()


def test_what_is_added_is_counted(with_idf: Model, toy_texts: list[str], tmp_path: Path) -> None:
    texts, made = sorted(set(toy_texts))[:50], with_idf("bert")
    opened = index(str(made), corpus(tmp_path / "corpus.jsonl", texts[:10]), tmp_path / "index")
    opened.models.queries()
    add(opened, corpus(tmp_path / "more.jsonl", texts))
    found = opened.models.queries().encode(QUERIES).toarray()
    np.testing.assert_allclose(found, expected(load(str(made)), texts), rtol=1e-4, atol=1e-6)
    opened.close()
    again = open_index(tmp_path / "index")
    np.testing.assert_array_equal(again.models.queries().encode(QUERIES).toarray(), found)
    again.close()


def passing(path: Path, texts: list[str], part: int) -> Path:
    """A corpus whose first documents have the field `part`."""
    rows = [{"_id": f"d{i}", "text": text} | ({"part": 1} if i < part else {}) for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_queries_are_weighed_by_the_idf_of_a_filter(with_idf: Model, toy_texts: list[str], tmp_path: Path) -> None:
    texts, made, few = sorted(set(toy_texts))[:50], with_idf("bert"), 4
    model = load(str(made))
    opened = index(str(made), passing(tmp_path / "corpus.jsonl", texts, few), tmp_path / "index")
    whole, part = expected(model, texts), expected(model, texts, slice(0, few))
    cases: list[tuple[dict[str, str], np.ndarray]] = [
        ({"idf_filter": "part=1"}, part),
        ({"filter": "part=1", "idf_filter": "part=1"}, part),
        ({"filter": "part=1", "idf_filter": "all"}, whole),
        ({"filter": "not part=1"}, whole),
        ({"filter": "not part=1", "idf_filter": "not part=1"}, expected(model, texts, slice(few, None))),
    ]
    for options, wanted in cases:
        answers = search(opened, QUERIES, k=5, **options)  # type: ignore[arg-type]
        np.testing.assert_allclose(answers.vectors.toarray(), wanted, rtol=1e-4, atol=1e-6)
    name = answers[0].hits[0].document.id
    for options, wanted in cases[:3:2]:
        standing: Any = explain(opened, QUERIES[0], name, idf_filter=options["idf_filter"])
        stored = opened.vectors([name]).toarray()[0]
        assert standing.explanation.score == pytest.approx(float(wanted[0] @ stored), rel=1e-4)
    with pytest.raises(ArgumentError) as unknown:
        search(opened, QUERIES, idf_filter="parts=1")
    assert str(unknown.value).startswith("idf_filter: no document has the field 'parts'")
    opened.close()


def test_a_common_word_of_one_tenant_does_not_dominate(backbones: dict[str, Path]) -> None:
    """All documents of a tenant name its product, which no other document names."""
    tenant = ["lantern lantern lantern lantern", "the lantern invoices of a month", "lantern setup", "lantern news"]
    texts = [(text, "a") for text in tenant] + [(f"invoices of the shop {i}", "b") for i in range(60)]
    texts += [(f"a page about rivers {i}", "b") for i in range(260)]
    documents = [Document(f"d{i}", text, "", {"tenant": name}) for i, (text, name) in enumerate(texts)]
    opened = index(load(str(backbones["bert"])), documents)
    words = {"weights": "bm25=1", "filter": "tenant=a"}
    first = [
        search(opened, ["lantern invoices"], **words, **more)[0].hits[0].document.id  # type: ignore[arg-type]
        for more in ({"idf_filter": "all"}, {"idf_filter": "tenant=a"}, {})
    ]
    assert first == ["d0", "d1", "d1"]


def dataset(texts: list[str]) -> Dataset:
    documents = [Document(f"d{i}", text) for i, text in enumerate(texts)]
    queries = [Query(f"q{i}", text) for i, text in enumerate(QUERIES)]
    return Dataset("toys", documents, queries, [Qrel(f"q{i}", f"d{i}", 1) for i in range(len(QUERIES))])


@pytest.mark.slow
def test_an_evaluation_weighs_queries(with_idf: Model, toy_texts: list[str], tmp_path: Path) -> None:
    texts, made = sorted(set(toy_texts))[:50], with_idf("bert")
    model, judged = load(str(made)), dataset(texts)
    for power in (None, 0.0, 1.0):
        wanted = expected(model, texts, power=POWER if power is None else power)
        found = encode_dataset(model, judged, query_idf=power)
        np.testing.assert_allclose(found.queries.toarray(), wanted, rtol=1e-4, atol=1e-6)
        kept = encode_dataset(model, judged, query_idf=power, keep=tmp_path / "kept", name="toy")  # made once
        np.testing.assert_allclose(kept.queries.toarray(), wanted, rtol=1e-4, atol=1e-6)
    encode(model, str(corpus(tmp_path / "corpus.jsonl", texts)), output=tmp_path / "vectors")
    systems = {"model": model, "vectors": tmp_path / "vectors"}
    one, other = evaluate(systems, judged, ["nDCG@10"], query_idf=2.0).evaluations
    assert one.per_query == other.per_query
    assert (one.query_idf, other.query_idf) == (2.0, 2.0)
    assert "query weights times IDF to the power 2" in str(one)
    place = tmp_path / "index"
    index(str(made), corpus(tmp_path / "corpus.jsonl", texts), place, dtype="float32").close()
    found = evaluate(place, judged, ["nDCG@10"], query_idf=2.0)[0]
    assert found.per_query == one.per_query
    for power in (None, 0.0, 2.0):
        hits = search(place, [query.text for query in judged.queries], k=10, query_idf=power).ranking.hits
        expected_hits = {query.id: hits(row) for row, query in enumerate(judged.queries)}
        run = [ScoredDoc(query, *hit) for query, some in expected_hits.items() for hit in some]
        measured = evaluate(place, judged, ["nDCG@10"], query_idf=power)[0]  # of the sparse space
        assert measured.per_query == evaluate_run("search", run, judged, ["nDCG@10"]).per_query
        assert measured.query_idf == measured.to_json()["query_idf"] == (POWER if power is None else power)


def test_documents_and_models_that_ask_for_none_stay_as_they_are(with_idf: Model, backbones: dict[str, Path]) -> None:
    counts, vectors = np.arange(5), csr_array(np.eye(5, dtype=np.float32))
    for model, role in ((with_idf("bert"), "document"), (backbones["bert"], "query")):
        encoder = TextEncoder(load(str(model)), role)  # type: ignore[arg-type]
        encoder.know_collection(counts, 5)
        np.testing.assert_array_equal(encoder.weighed(vectors).toarray(), np.eye(5))
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ArgumentError, match="query_idf"):
            TextEncoder(load(str(backbones["bert"])), "query", query_idf=wrong)
