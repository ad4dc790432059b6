"""An index in a folder: what is in it, what it finds, and what is refused."""

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

from tests.toys import write_corpus
from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index
from vocable.data import Document, Query
from vocable.encoding import stream
from vocable.encoding.load import load
from vocable.encoding.terms import terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines import protocols
from vocable.engines.folder import FolderStore
from vocable.errors import ArgumentError, VectorsError
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.fusion import aligned, weighted
from vocable.indexes.ranking import read_trec
from vocable.options import DType

QUERIES = ["the old fox reads", "posting lists"]


@pytest.fixture(autouse=True, scope="module")  # for `folder`, too: batches of other sizes may be rounded otherwise
def _small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FolderStore, "about", replace(FolderStore.about, part=16))
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
def folder(model: SparseEncoder, documents: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("collection") / "index"
    build(model, documents, path).close()
    return path


def build(model: SparseEncoder, documents: Iterable[Document], folder: Path, **options: Any) -> Collection:
    return index(model, documents, folder, **{"bm25": True, "dtype": "float32", **options})


@pytest.fixture
def opened(folder: Path) -> Collection:
    return open_index(folder)


def dense(model: SparseEncoder, texts: list[str], role: str) -> np.ndarray:
    return TextEncoder(model, role, dtype="float32").encode(texts).toarray().astype(np.float64)


def test_documents_of_a_collection_come_back_as_they_went_in(
    opened: Collection, folder: Path, documents: list[Document], backbones: dict[str, Path]
) -> None:
    assert opened.documents([d.id for d in documents]) == documents
    assert sorted(opened.store.ids()) == sorted(document.id for document in documents)
    assert (opened.models.name, opened.settings.source) == (str(backbones["bert"]), "")
    assert sorted(path.name for path in folder.parent.iterdir()) == ["index"]


def test_search_is_the_product(opened: Collection, model: SparseEncoder, documents: list[Document]) -> None:
    vectors = opened.models.queries(model).encode(QUERIES)
    ranking = opened.search(QUERIES, 5, vectors=vectors, weights="sparse")
    scores = vectors.toarray() @ dense(model, [document.full for document in documents], "document").T
    names = [document.id for document in documents]
    for number, row in enumerate(scores):
        hits = ranking.hits(number)
        np.testing.assert_allclose([score for _, score in hits], -np.sort(-row)[:5], rtol=1e-4)
        np.testing.assert_allclose([row[names.index(name)] for name, _ in hits], [one for _, one in hits], rtol=1e-4)


def test_a_search_fuses_with_bm25(opened: Collection, model: SparseEncoder, documents: list[Document]) -> None:
    vectors = opened.models.queries(model).encode(QUERIES)
    sparse = opened.search(QUERIES, 100, vectors=vectors, weights="sparse")
    lexical = BM25Index([document.full for document in documents], [document.id for document in documents])
    expected = weighted(aligned([sparse, lexical.search(QUERIES, 100)]), [1, 1], depth=4)
    ranking = opened.search(QUERIES, 4, vectors=vectors)
    for number in range(len(QUERIES)):
        assert dict(ranking.hits(number)) == pytest.approx(dict(expected.hits(number)), rel=1e-5)


def test_words_need_the_lexical_index(model: SparseEncoder, documents: list[Document], tmp_path: Path) -> None:
    opened = build(model, documents, tmp_path / "index", bm25=False)
    assert opened.spaces == ("sparse",)
    with pytest.raises(ArgumentError):
        opened.search(QUERIES, weights="sparse=1,bm25=1")
    found, alone = (opened.search(QUERIES, **options) for options in ({}, {"weights": "sparse"}))  # type: ignore[arg-type]
    assert [found.hits(number) for number in range(2)] == [alone.hits(number) for number in range(2)]


def test_stored_vectors_are_those_of_the_documents(
    opened: Collection, model: SparseEncoder, documents: list[Document]
) -> None:
    weights = dense(model, [document.full for document in documents], "document")
    stored = opened.vectors([document.id for document in documents]).toarray()
    np.testing.assert_allclose(stored, weights, atol=1e-4)


def test_an_answer_explains_its_scores(folder: Path, documents: list[Document]) -> None:
    answers = search(folder, [Query("q1", QUERIES[0]), Query("q2", QUERIES[1])], 3, explain=True, weights="sparse")
    assert (len(answers), repr(answers)) == (2, "Answers(2 queries, k=3)")
    assert [answer.query.id for answer in answers] == ["q1", "q2"]
    ranking = open_index(folder).search(QUERIES, 3, weights="sparse")
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
    opened = index(model, texts, tmp_path / "index")
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
    answers = search(folder, QUERIES, 3, run=tmp_path / "run.txt")
    run = [(hit.query_id, hit.doc_id, np.float32(hit.score)) for hit in read_trec(tmp_path / "run.txt")]
    assert run == [(hit.query_id, hit.doc_id, np.float32(hit.score)) for hit in answers.ranking.to_run(["1", "2"])]


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("engine", ["", "seismic:"])
def test_stored_vectors_make_the_same_index(
    model: SparseEncoder, documents: list[Document], tmp_path: Path, shards: int, engine: str
) -> None:
    if engine:
        pytest.importorskip("seismic")
    corpus = write_corpus(documents, tmp_path / "corpus.jsonl")
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


@pytest.mark.parametrize(("engine", "dtype"), [("", "float32"), ("", "bfloat16"), ("seismic:", "float32")])
def test_queries_are_encoded_in_the_type_of_the_documents(
    backbones: dict[str, Path], documents: list[Document], tmp_path: Path, engine: str, dtype: DType
) -> None:
    if engine:
        pytest.importorskip("seismic")
    corpus, place = write_corpus(documents, tmp_path / "corpus.jsonl"), f"{engine}{tmp_path / 'index'}"
    index(str(backbones["bert"]), corpus, place, dtype=dtype, device="cpu").close()
    found = open_index(place, device="cpu").models.queries().encode(QUERIES).toarray()
    expected = TextEncoder(load(backbones["bert"], device="cpu"), "query", dtype=dtype).encode(QUERIES).toarray()
    np.testing.assert_array_equal(found, expected)


def test_another_vocabulary_is_refused(opened: Collection, backbones: dict[str, Path]) -> None:
    other = load(backbones["roberta"], device="cpu")
    assert len(terms(other)) != opened.store.spaces["sparse"]
    with pytest.raises(VectorsError):
        opened.models.queries(other)


def test_a_whole_collection_is_left_as_it_is(
    model: SparseEncoder, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(model, documents, tmp_path / "index")
    states = {path: path.stat().st_mtime_ns for path in (tmp_path / "index").iterdir() if path.name != "lock"}
    monkeypatch.setattr(TextEncoder, "encode_both", None)  # nothing is encoded again
    again = build(model, documents, tmp_path / "index")
    assert (first.was_there, again.was_there) == (False, True)
    assert again.making_counts() == first.making_counts()._replace(seconds=0.0, of_run=0)
    assert {path: path.stat().st_mtime_ns for path in states} == states
    with pytest.raises(ArgumentError, match=r"\(limits.max_terms\)"):
        build(model, documents, tmp_path / "index", max_terms=7)
    with pytest.raises(ArgumentError):
        build(model, documents[1:], tmp_path / "index")
    assert len(open_index(tmp_path / "index")) == len(documents)


def test_an_empty_corpus_is_refused(model: SparseEncoder, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        build(model, [], tmp_path / "index")
    assert not list(tmp_path.iterdir())


def segment_of(folder: Path) -> Path:
    """The file of the only segment of a collection."""
    [path] = folder.glob("*.segment")
    return path


def test_a_damaged_collection_is_refused(folder: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("commit.json", segment_of(folder).name)):
        place = tmp_path / str(number)
        shutil.copytree(folder, place)
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(VectorsError, match=re.escape(name)):
            open_index(place)
        (place / name).unlink()
        with pytest.raises(VectorsError, match=str(number)):
            open_index(place)


def test_a_folder_without_a_collection_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VectorsError):
        open_index(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["segment", "commit"])
def test_a_changed_bit_is_noticed(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(folder, tmp_path / "index")
    file = segment_of(tmp_path / "index") if name == "segment" else tmp_path / "index" / "commit.json"
    whole = file.read_bytes()
    used = np.flatnonzero(np.frombuffer(whole, np.uint8))  # zeros fill the space between arrays
    for place in used[:: len(used) // 40].tolist():
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(VectorsError, match=re.escape(file.name) if name == "segment" else None):
            open_index(tmp_path / "index")
    file.write_bytes(whole)
    assert len(open_index(tmp_path / "index")) == 40


def test_parts_of_two_collections_do_not_make_one(
    model: SparseEncoder, documents: list[Document], folder: Path, tmp_path: Path
) -> None:
    build(model, [document._replace(id=f"other{document.id}") for document in documents], tmp_path / "other")
    shutil.copytree(folder, tmp_path / "index")
    segment = segment_of(tmp_path / "index")
    shutil.copy(segment_of(tmp_path / "other"), segment)
    with pytest.raises(VectorsError, match=re.escape(segment.name)):
        open_index(tmp_path / "index")


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_file_that_is_none_is_not_waited_for(folder: Path, tmp_path: Path, kind: str) -> None:
    for name in ("commit.json", segment_of(folder).name):
        place = tmp_path / name.partition(".")[2]
        shutil.copytree(folder, place)
        (place / name).unlink()
        if kind == "link":
            (place / name).symlink_to(folder / name)
        else:
            (os.mkfifo if kind == "pipe" else os.mkdir)(place / name)
        with pytest.raises((VectorsError, OSError)):
            open_index(place)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_changed_model_is_refused(
    backbones: dict[str, Path], documents: list[Document], tmp_path: Path, dtype: DType
) -> None:
    shutil.copytree(backbones["bert"], tmp_path / "model")
    model = load(tmp_path / "model", device="cpu")
    encoder = TextEncoder(model, dtype=dtype)
    index(model, documents, tmp_path / "index", dtype=dtype).close()
    stream.encode_stream(encoder, documents, tmp_path / "vectors", model=str(tmp_path / "model"))
    corpus = write_corpus(documents, tmp_path / "corpus.jsonl")
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
        assert len(search(opened, QUERIES, 3)) == len(found)


def test_an_engine_is_chosen_by_name(
    model: SparseEncoder, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Another(FolderStore):
        about = replace(FolderStore.about, engine="another")

    monkeypatch.setattr(protocols, "engine_named", {"another": Another, "folder": FolderStore}.get)
    corpus = write_corpus(documents, tmp_path / "corpus.jsonl")
    made = index(model, corpus, f"another:{tmp_path / 'made'}")
    stream.encode_stream(TextEncoder(model), documents, tmp_path / "vectors", model="toy")
    stored = index(tmp_path / "vectors", corpus, f"another:{tmp_path / 'stored'}")
    for opened in (made, stored, open_index(tmp_path / "made")):
        assert type(opened.store) is Another
        assert len(opened.search(QUERIES, 3, vectors=made.models.queries().encode(QUERIES))) == len(QUERIES)
    with pytest.raises(VectorsError):
        index(model, corpus, f"folder:{tmp_path / 'made'}")
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
    for options in ({}, {"weights": "sparse"}, {"weights": "bm25=1", "explain": True}):
        with pytest.raises(AssertionError, match="was loaded"):
            str(search(folder, QUERIES, 3, **options))
    with pytest.raises(ArgumentError):
        search(folder, QUERIES, 3, weights="bm25=1", max_terms=0)
