"""A searchable folder: what is in it, what it finds, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SparseEncoder

from vocable.collection import making
from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.verbs import build as build_collection
from vocable.collection.verbs import index, open_index
from vocable.data import Document, Query
from vocable.encoding import stream
from vocable.encoding.load import load
from vocable.encoding.models import encoding_model
from vocable.encoding.terms import terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines import exact, protocols
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.fusion import weighted
from vocable.indexes.ranking import read_trec
from vocable.options import DType

QUERIES = ["the old fox reads", "posting lists"]


class Killed(BaseException):
    """An exception that no handler catches, as a signal would be."""


@pytest.fixture(autouse=True, scope="module")  # for `folder`, too: batches of other sizes may be rounded otherwise
def _small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exact.ExactStore, "about", replace(exact.ExactStore.about, part=16))
        yield


@pytest.fixture(scope="module")
def documents(toy_texts: list[str]) -> list[Document]:
    """40 documents whose ids are not in the order of their rows."""
    texts = sorted(set(toy_texts))[:40]
    return [Document(f"d{(7 * i) % 40}", text, title=f"chapter {i}") for i, text in enumerate(texts)]


@pytest.fixture(scope="module")
def model(backbones: dict[str, Path]) -> SparseEncoder:
    return load(backbones["bert"], device="cpu")


@pytest.fixture(scope="module")
def folder(
    model: SparseEncoder,
    backbones: dict[str, Path],
    documents: list[Document],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    path = tmp_path_factory.mktemp("collection") / "index"
    build(model, documents, path, name=str(backbones["bert"]))
    return path


def build(model: SparseEncoder, documents: Iterable[Document], folder: Path, name: str = "toy") -> Collection:
    options: dict[str, Any] = {"source": "list", "bm25": True, "dtype": "float32"}
    return build_collection(model, documents, f"exact:{folder}", name=name, **options)


@pytest.fixture
def opened(folder: Path) -> Collection:
    return open_index(folder)


def store_of(collection: Collection) -> exact.ExactStore:
    assert isinstance(collection.store, exact.ExactStore)
    return collection.store


def dense(model: SparseEncoder, texts: list[str], role: str) -> np.ndarray:
    return TextEncoder(model, role, dtype="float32").encode(texts).toarray().astype(np.float64)


def test_documents_of_a_collection_come_back_as_they_went_in(
    opened: Collection, folder: Path, documents: list[Document], backbones: dict[str, Path]
) -> None:
    assert opened.documents([d.id for d in documents]) == documents
    assert list(opened.store.ids()) == [document.id for document in documents]
    assert (opened.models.name, opened.settings.source) == (str(backbones["bert"]), "list")
    assert sorted(path.name for path in folder.parent.iterdir()) == ["index"]


def test_search_is_the_product(opened: Collection, model: SparseEncoder, documents: list[Document]) -> None:
    vectors = opened.models.queries(model).encode(QUERIES)
    ranking = opened.search(QUERIES, 5, vectors=vectors)
    scores = vectors.toarray() @ dense(model, [document.full for document in documents], "document").T
    np.testing.assert_allclose(ranking.scores, -np.sort(-scores, axis=1)[:, :5], rtol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(scores, ranking.rows, axis=1), ranking.scores, rtol=1e-4)


def test_hybrid_search_fuses_with_bm25(opened: Collection, model: SparseEncoder, documents: list[Document]) -> None:
    vectors = opened.models.queries(model).encode(QUERIES)
    sparse = opened.search(QUERIES, 100, vectors=vectors)
    lexical = BM25Index([document.full for document in documents], [document.id for document in documents])
    expected = weighted([sparse, lexical.search(QUERIES, 100)], [1, 1], depth=4)
    found = opened.search(QUERIES, 4, vectors=vectors, hybrid=True)
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_allclose(found.scores, expected.scores)


def test_hybrid_search_needs_the_lexical_index(model: SparseEncoder, documents: list[Document], tmp_path: Path) -> None:
    options: Any = {"name": "toy", "dtype": "float32", "bm25": False}
    opened = build_collection(model, documents, f"exact:{tmp_path / 'index'}", **options)
    assert store_of(opened).words is None
    with pytest.raises(ArgumentError):
        opened.search(QUERIES, hybrid=True)


def test_stored_vectors_are_those_of_the_documents(
    opened: Collection, model: SparseEncoder, documents: list[Document]
) -> None:
    weights = dense(model, [document.full for document in documents], "document")
    for row in range(len(documents)):
        np.testing.assert_allclose(store_of(opened).postings.get([row]).toarray()[0], weights[row], atol=1e-4)


def test_an_answer_explains_its_scores(folder: Path, documents: list[Document]) -> None:
    answers = search(folder, [Query("q1", QUERIES[0]), Query("q2", QUERIES[1])], 3, explain=True)
    assert (len(answers), repr(answers)) == (2, "Answers(2 queries, k=3)")
    assert [answer.query.id for answer in answers] == ["q1", "q2"]
    ranking = open_index(folder).search(QUERIES, 3)
    for i, answer in enumerate(answers):
        assert [(hit.document.id, pytest.approx(hit.score, rel=1e-4)) for hit in answer.hits] == ranking[i]
        assert [hit.rank for hit in answer.hits] == [1, 2, 3]
        for hit in answer.hits:
            assert hit.explanation is not None
            assert hit.explanation.score == pytest.approx(hit.score, rel=1e-5)
            assert hit.document in documents
    assert json.loads(json.dumps(answers.to_json()))[1]["hits"][0]["id"] == answers[1].hits[0].document.id
    assert str(answers).startswith(f"{QUERIES[0]}\nno document has the words old, fox\n  1 ")
    assert "expansion: " in str(answers[0].hits[0])


def test_a_notebook_shows_hits_with_their_terms_marked_and_runs_nothing(
    model: SparseEncoder, folder: Path, tmp_path: Path
) -> None:
    hostile = "<script>alert(1)</script> the old fox"
    texts = [Document("<b>1</b>", hostile, "<i>", {"at": "<img onerror=x>"}), Document("2", "reads " * 300)]
    opened = build_collection(model, texts, f"exact:{tmp_path / 'index'}", name="toy")
    opened.models.loaded = encoding_model(model)
    [answer] = answers = search(opened, ["<u>the old fox</u> reads"], 2, explain=True)
    html = answers._repr_html_()
    assert html == answer._repr_html_()
    assert not re.search(r"<(script|b>1|i>|img|u>)", html)
    for hit in answer.hits:
        assert hit.explanation is not None
        matching = {match.term for match in hit.explanation.matches[:8]}
        words = [word for word in re.findall(r"<mark [^>]*>([^<]*)</mark>", hit._repr_html_()) if len(word) > 1]
        assert hit.snippet is not None
        assert {mark.term for mark in hit.snippet.marks} <= matching
        there = [hit.snippet.text[mark.start : mark.end] for mark in hit.snippet.marks]
        assert words == [word for word in there if len(word) > 1]
    assert len(next(hit for hit in answer.hits if hit.document.id == "2")._repr_html_()) < 40_000
    plain = search(opened, ["the old fox"], 1)._repr_html_()
    assert re.findall(r"<mark [^>]*>([^<]*)</mark>", plain) == ["old", "fox"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt; the <mark" in plain


def test_answers_are_written_as_a_run(folder: Path, tmp_path: Path) -> None:
    answers = search(folder, QUERIES, 3, hybrid=True, run=tmp_path / "run.txt")
    run = [(hit.query_id, hit.doc_id, np.float32(hit.score)) for hit in read_trec(tmp_path / "run.txt")]
    assert run == [(hit.query_id, hit.doc_id, np.float32(hit.score)) for hit in answers.ranking.to_run(["1", "2"])]


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("engine", ["", "exact:"])
def test_stored_vectors_make_the_same_index(
    model: SparseEncoder, documents: list[Document], tmp_path: Path, shards: int, engine: str
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": d.id, "text": d.text, "title": d.title}) + "\n" for d in documents))
    encoded = index(model, corpus, f"{engine}{tmp_path / 'encoded'}", bm25=True, dtype="float32", max_terms=7)
    assert encoded.to_json()["texts"] == len(encoded) == len(documents)
    stored = f"{engine}{tmp_path / 'stored'}"
    folders = [tmp_path / f"shard{i}" for i in range(shards)]
    for i, place in enumerate(folders):
        encoder = TextEncoder(model, dtype="float32")
        stream.encode_stream(encoder, documents[i::shards], place, model="toy")
    found = index(folders, corpus, stored, bm25=True, max_terms=7)
    ids = [document.id for document in documents]
    assert found.documents(ids) == encoded.documents(ids) == documents
    np.testing.assert_allclose(found.vectors(ids).toarray(), encoded.vectors(ids).toarray(), rtol=1e-5, atol=1e-6)
    assert index(folders, corpus, stored, bm25=True, max_terms=7).settings.model == "toy"
    with pytest.raises(ArgumentError):
        index(folders, corpus, stored, bm25=False, max_terms=7)
    if shards > 1:
        with pytest.raises(VectorsError):
            index(folders[:1], corpus, f"{engine}{tmp_path / 'some'}")


@pytest.mark.parametrize(("engine", "dtype"), [("", "float32"), ("", "bfloat16"), ("exact:", "float32")])
def test_queries_are_encoded_in_the_type_of_the_documents(
    backbones: dict[str, Path], documents: list[Document], tmp_path: Path, engine: str, dtype: DType
) -> None:
    corpus, place = tmp_path / "corpus.jsonl", f"{engine}{tmp_path / 'index'}"
    corpus.write_text("".join(json.dumps({"_id": d.id, "text": d.text}) + "\n" for d in documents))
    index(str(backbones["bert"]), corpus, place, dtype=dtype, device="cpu").close()
    found = open_index(place, device="cpu").models.queries().encode(QUERIES).toarray()
    expected = TextEncoder(load(backbones["bert"], device="cpu"), "query", dtype=dtype).encode(QUERIES).toarray()
    np.testing.assert_array_equal(found, expected)


def test_another_vocabulary_is_refused(opened: Collection, backbones: dict[str, Path]) -> None:
    other = load(backbones["roberta"], device="cpu")
    assert len(terms(other)) != store_of(opened).postings.shape[1]
    with pytest.raises(VectorsError):
        opened.models.queries(other)


def test_a_whole_collection_is_left_as_it_is(
    model: SparseEncoder, documents: list[Document], tmp_path: Path, folder: Path
) -> None:
    first = build(model, documents, tmp_path / "index")
    leftover = tmp_path / "index.partial"
    leftover.mkdir()  # a call that was killed after the renaming
    again = build(model, [], tmp_path / "index")
    assert again.making_counts() == first.making_counts()._replace(seconds=0.0)  # nothing was encoded
    assert not leftover.exists()
    with pytest.raises(ArgumentError, match=r"\(meta.model, model\)"):
        build(model, documents, tmp_path / "index", name="another")


@pytest.mark.parametrize("step", [(exact, "save_exact"), (exact, "BM25Index"), (making, "finish")])
def test_a_build_goes_on_after_any_step(
    model: SparseEncoder,
    documents: list[Document],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: tuple[Any, str],
    folder: Path,
) -> None:
    def killed(*_: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(*step, killed)
        with pytest.raises(Killed):
            build(model, documents, tmp_path / "index")
    with pytest.raises(VectorsError):
        open_index(tmp_path / "index")

    with monkeypatch.context() as patched:
        patched.setattr(TextEncoder, "encode_both", killed)  # what is encoded is not encoded again
        build(model, documents, tmp_path / "index")
    found, expected = store_of(open_index(tmp_path / "index")), store_of(open_index(folder))
    for name, array in expected.postings.arrays().items():
        np.testing.assert_array_equal(found.postings.arrays()[name], array)
    assert found.texts.equals(expected.texts)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_an_empty_corpus_is_refused(model: SparseEncoder, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        build(model, [], tmp_path / "index")
    assert not list(tmp_path.iterdir())


def test_a_damaged_collection_is_refused(folder: Path, tmp_path: Path) -> None:
    damages = {
        "store.json": "damaged",
        "texts.arrow": "the index is damaged",
        "postings/weights.npy": "damaged",
        "bm25/index.json": "damaged",
    }
    for number, (name, message) in enumerate(damages.items()):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(VectorsError, match=message):
            open_index(copy)


def test_a_folder_without_a_collection_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VectorsError):
        open_index(tmp_path / "nothing")


def test_a_changed_bit_of_the_texts_is_noticed(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "index")
    file = tmp_path / "index" / "texts.arrow"
    whole = file.read_bytes()
    for place in range(0, len(whole), 97):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(VectorsError, match=r"texts\.arrow"):
            open_index(tmp_path / "index")


def test_parts_of_two_collections_do_not_make_one(
    model: SparseEncoder, documents: list[Document], folder: Path, tmp_path: Path
) -> None:
    build(model, [document._replace(id=f"other{document.id}") for document in documents], tmp_path / "other")
    for name in ("postings", "bm25"):
        shutil.copytree(folder, tmp_path / name)
        shutil.rmtree(tmp_path / name / name)
        shutil.copytree(tmp_path / "other" / name, tmp_path / name / name)
        with pytest.raises(VectorsError):
            open_index(tmp_path / name)


@pytest.mark.parametrize("name", ["store.json", "texts.arrow"])
def test_a_pipe_is_not_waited_for(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(folder, tmp_path / "index")
    (tmp_path / "index" / name).unlink()
    os.mkfifo(tmp_path / "index" / name)
    with pytest.raises((VectorsError, OSError), match=r"not a regular file|there is no index here"):
        open_index(tmp_path / "index")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_changed_model_is_refused(
    backbones: dict[str, Path], documents: list[Document], tmp_path: Path, dtype: DType
) -> None:
    shutil.copytree(backbones["bert"], tmp_path / "model")
    model = load(tmp_path / "model", device="cpu")
    encoder, place = TextEncoder(model, dtype=dtype), f"exact:{tmp_path / 'index'}"
    build_collection(model, documents, place, name=str(tmp_path / "model"), source="list", dtype=dtype)
    stream.encode_stream(encoder, documents, tmp_path / "vectors", model=str(tmp_path / "model"))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": d.id, "text": d.text}) + "\n" for d in documents))
    index(tmp_path / "vectors", corpus, tmp_path / "stored").close()
    found = search(tmp_path / "index", QUERIES, 3)
    changed = load_file(tmp_path / "model" / "model.safetensors")
    next(iter(changed.values())).add_(1)
    save_file(changed, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    for name in ("index", "stored"):
        with pytest.raises(VectorsError, match=rf"{name}: .*\(weights\)"):
            search(tmp_path / name, QUERIES, 3)
        assert len(search(tmp_path / name, QUERIES, 3, allow_changed_model=True)) == len(found)
        opened = open_index(tmp_path / name, allow_changed_model=True)
        assert search(opened, QUERIES, 3).collection is opened


def test_an_engine_is_chosen_by_name(
    model: SparseEncoder, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Another(exact.ExactStore):
        about = replace(exact.ExactStore.about, engine="another")

    monkeypatch.setattr(protocols, "engine_named", {"another": Another, "exact": exact.ExactStore}.get)
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"_id": d.id, "text": d.text}) + "\n" for d in documents))
    made = index(model, corpus, f"another:{tmp_path / 'made'}")
    stream.encode_stream(TextEncoder(model), documents, tmp_path / "vectors", model="toy")
    for opened in (made, index(tmp_path / "vectors", corpus, f"another:{tmp_path / 'stored'}")):
        assert type(opened.store) is Another
        assert store_of(opened).postings.meta is not None
    with pytest.raises(ArgumentError):
        index(model, corpus, f"exact:{tmp_path / 'made'}")
    with pytest.raises(ArgumentError):
        index(model, corpus, "nobody+http://host/name")


def test_a_search_without_the_learned_space_loads_no_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = search(folder, QUERIES, 3, weights="bm25=1")
    assert expected.vectors.shape[0] == len(QUERIES)  # encoded when they are asked for

    def loaded(*names: object, **options: object) -> None:
        raise AssertionError(f"{names} was loaded")

    monkeypatch.setattr("vocable.collection.models.load_encoder", loaded)
    for weights in ("bm25=1", {"bm25": 2.0, "sparse": 0.0}):
        found = search(folder, QUERIES, 3, weights=weights, run=folder.parent / "my.run")
        assert str(found) == str(expected)
    assert len(read_trec(folder.parent / "my.run")) == (expected.ranking.rows >= 0).sum()
    for options in ({}, {"hybrid": True}, {"weights": "bm25=1", "explain": True}):
        with pytest.raises(AssertionError, match="was loaded"):
            str(search(folder, QUERIES, 3, **options))
    with pytest.raises(ArgumentError):
        search(folder, QUERIES, 3, weights="bm25=1", max_terms=0)
