"""Documents that are found by their passages: brute force over all passages, changes, cuts, and what a hit shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from ir_measures import R, nDCG
from sentence_transformers import SentenceTransformer

from tests.cli.command_line import done, refused
from tests.collection.test_writer import corpus, same
from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index
from vocable.collection.passages import passages_of
from vocable.collection.records import Changed
from vocable.collection.verbs import add
from vocable.data import Document, Qrel, Query
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines.folder import FolderStore
from vocable.engines.segmented import Draft
from vocable.engines.snapshot import Snapshot
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.evaluate import evaluate
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.fusion import aligned, weighted
from vocable.indexes.ranking import Ranking, ranking_of

QUERIES = ["the old fox reads", "posting lists at night", "twelve queries (see chapter 7)"]
LENGTH, N = 20, 24
Make = Callable[..., Collection]


@pytest.fixture(scope="module")
def documents(toy_texts: list[str]) -> list[Document]:
    """Of one to twelve sentences, with and without titles."""
    return [
        Document(f"d{i}", " ".join(toy_texts[9 * i : 9 * i + 1 + i % 12]), "My title" * (i % 2), {"even": i % 2 == 0})
        for i in range(N)
    ]


@pytest.fixture
def make(backbones: dict[str, Path], tmp_path: Path) -> Iterator[Make]:
    made: list[Any] = []

    def make(documents: Sequence[Document], **options: Any) -> Collection:
        source, own = corpus(tmp_path / "corpus.jsonl", documents), {"dtype": "float32", "device": "cpu"}
        how = {"bm25": True, "max_length": LENGTH, "long_documents": "passages", **own, **options}
        made.append(index(str(backbones["bert"]), source, tmp_path / "index", **how))
        assert not made[-1].units.are_documents
        return made[-1]

    yield make
    for one in made:
        one.close()


def passages(collection: Collection, documents: Sequence[Document]) -> list[Document]:
    return [one for document in documents for one in passages_of(document, collection.models.documents)]


def best_of(scores: np.ndarray, parts: Sequence[Document], k: int) -> Ranking:
    """The k documents whose best passages score most, from the scores [q, p] of all passages."""
    found = []
    for row in scores:
        best: dict[str, float] = {}
        for part, score in zip(parts, row.tolist(), strict=True):
            parent = part.id.split("\t")[0]
            best[parent] = max(best.get(parent, 0.0), score)
        found.append(list(best.items()))
    return ranking_of(found, k)


def check(collection: Collection, there: Sequence[Document]) -> None:
    """The collection answers as brute force over the passages of the documents does."""
    parts = passages(collection, there)
    assert (len(collection), len(collection.store)) == (len(there), len(parts))
    vectors = encode(collection.models.loaded, [part.full for part in parts], dtype="float32")
    queries = encode(collection.models.loaded, QUERIES, role="query", dtype="float32")
    for k in (1, 5, N):
        same(collection.searcher.search_space(queries, k), best_of((queries @ vectors.T).toarray(), parts, k))
    lexical = BM25Index([part.full for part in parts], [part.id for part in parts])
    hits = lexical.search(QUERIES, len(parts))
    scores = np.zeros((len(QUERIES), len(parts)))
    for row in range(len(QUERIES)):
        scores[row, hits.rows[row][hits.rows[row] >= 0]] = hits.scores[row][hits.rows[row] >= 0]
    same(
        collection.searcher.search_space(collection.store.lexicon.query_vectors(QUERIES), N, space="bm25"),
        best_of(scores, parts, N),
    )


def test_documents_rank_by_their_best_passages(make: Make, documents: list[Document]) -> None:
    collection = make(documents)
    parts = passages(collection, documents)
    assert len(parts) > 2 * N
    assert (collection.making_counts().windows, collection.making_counts().truncated) == (len(parts), 0)
    check(collection, documents)
    assert sum(map(len, (vectors.indptr[1:] for vectors in collection.stored()))) == len(parts)
    with pytest.raises(ArgumentError, match="'kind'"):
        search(collection, QUERIES, N, filter="kind=1")
    found = search(collection, QUERIES, N, filter="even=true")
    assert {int(hit.document.id[1:]) % 2 for answer in found for hit in answer.hits} == {0}
    assert [hit.document for hit in found[0].hits] == collection.documents([hit.document.id for hit in found[0].hits])


def test_a_hit_shows_and_explains_its_best_passage(make: Make, documents: list[Document]) -> None:
    collection = make(documents)
    cut = TextEncoder(collection.models.loaded, "document", dtype="float32", max_length=LENGTH)
    for answer in search(collection, QUERIES, 6, explain=True, weights="sparse"):
        [query] = encode(collection.models.loaded, [answer.query.text], role="query", dtype="float32").toarray()
        assert len({hit.document.id for hit in answer.hits}) == 6
        for hit in answer.hits:
            assert hit.passage is not None
            assert hit.explanation is not None
            start, end, text = hit.passage.start, hit.passage.end, hit.passage.text
            assert hit.document.text[start:end] == text
            vector = cut.encode([f"{hit.document.title} {text}".strip()]).toarray()[0]
            assert (
                hit.score == pytest.approx(query @ vector, rel=1e-4) == pytest.approx(hit.explanation.score, rel=1e-4)
            )
            assert hit.to_json()["passage"] == {"start": start, "end": end, "text": text}
            assert set(hit.document.fields) == {"even"}
    assert cut.truncated == 0


def test_changes_reach_all_passages(make: Make, documents: list[Document], tmp_path: Path) -> None:
    collection = make(documents[:16])
    shorter = [one._replace(text=one.text.split(".")[0]) for one in documents[8:12]]
    longer = [one._replace(text=f"{one.text} {documents[23].text}") for one in documents[:4]]
    assert collection.add([*shorter, *longer, *documents[4:8], *documents[16:]]) == Changed(8, 8, 4, 0, N)
    there = {one.id: one for one in [*documents, *shorter, *longer]}
    check(collection, list(there.values()))
    assert collection.delete(["d3", "d11", "d11", "no such"]) == Changed(0, 0, 0, 2, N - 2)
    del there["d3"], there["d11"]
    check(collection, list(there.values()))
    collection.close()
    opened = open_index(tmp_path / "index")
    assert not opened.units.are_documents
    assert len(opened) == N - 2
    check(opened, list(there.values()))
    opened.close()


@pytest.mark.parametrize("call", ["upsert", "delete"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_change_that_was_cut_short_is_mended_by_its_repetition(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, after: int
) -> None:
    collection = make(documents)
    changed = [one._replace(text=documents[23].text[:60]) for one in documents[6:12]]
    own, left = getattr(collection.store, call), [after]

    def cut_short(*given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("killed")
        return own(*given)

    monkeypatch.setattr(collection.store, call, cut_short)
    change = (lambda one: one.add(changed)) if call == "upsert" or not after else lambda one: one.delete(["d7", "d9"])
    with pytest.raises(OSError, match="killed"):
        change(collection)
    collection.close()
    opened = open_index(tmp_path / "index")
    assert not opened.units.are_documents
    change(opened)
    there = {one.id: one for one in [*documents, *changed]}
    if call == "delete" and after:
        there = {one.id: one for one in documents if one.id not in ("d7", "d9")}
    check(opened, list(there.values()))
    opened.close()


@pytest.mark.parametrize("commits", [1, 4, 9, 12, 14])
def test_an_index_of_passages_resumes_after_an_interruption(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    monkeypatch.setattr(FolderStore, "about", replace(FolderStore.about, part=7))
    save, left = FolderStore._save, [commits]

    def interrupted(store: FolderStore, draft: Draft) -> Snapshot:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return save(store, draft)

    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "_save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(documents)
    collection = make(documents)
    check(collection, documents)
    assert collection.making_counts().windows == len(collection.store)


def test_minimum_match_is_of_a_passage(make: Make, documents: list[Document]) -> None:
    collection = make(documents)
    parts = passages(collection, documents)
    vectors = encode(collection.models.loaded, [part.full for part in parts], dtype="float32")
    queries = encode(collection.models.loaded, QUERIES, role="query", dtype="float32", max_terms=8)
    shared = ((queries > 0).astype(int) @ (vectors > 0).astype(int).T).toarray()
    scores = np.where(shared >= 4, (queries @ vectors.T).toarray(), 0)
    same(collection.searcher.search_space(queries, 6, minimum_match=0.5), best_of(scores, parts, 6))


def test_a_title_that_leaves_no_room_is_cut(make: Make, documents: list[Document]) -> None:
    long = [Document("title", "The old fox reads.", " ".join(documents[11].text.split())), Document("alone", "", "My")]
    collection = make([*documents[:3], *long])
    check(collection, [*documents[:3], *long])
    assert collection.models.documents.truncated == 0
    [part] = passages_of(long[0], collection.models.documents)
    assert long[0].title.startswith(part.title)
    assert part.text == long[0].text


def test_a_passage_is_encoded_after_the_headings_of_its_path(make: Make, documents: list[Document]) -> None:
    section = Document("s", documents[11].text, "Fox", {"path": "My owl > Fox"})
    collection = make([*documents[:3], section])
    check(collection, [*documents[:3], section])
    first, *others = passages_of(section, collection.models.documents)
    assert others
    assert {part.full[: len("My owl Fox ")] for part in (first, *others)} == {"My owl Fox "}
    assert collection.models.documents.truncated == 0


@pytest.mark.parametrize("long_documents", ["truncate", "maxpool"])
def test_what_is_added_is_read_as_the_others_were(
    make: Make, documents: list[Document], backbones: dict[str, Path], tmp_path: Path, long_documents: Any
) -> None:
    source = corpus(tmp_path / "half.jsonl", documents[:12])
    how: dict[str, Any] = {"dtype": "float32", "max_length": LENGTH, "long_documents": long_documents}
    collection: Any = index(str(backbones["bert"]), source, tmp_path / "max", device="cpu", **how)
    collection.add(documents[12:])
    texts = [one.full for one in documents]
    expected = encode(load(backbones["bert"], device="cpu"), texts, **how)
    found = collection.vectors([one.id for one in documents])
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-4, atol=1e-5)
    [hit] = search(collection, QUERIES[:1], 1)[0].hits
    assert hit.passage is None
    assert "passage" not in hit.to_json()
    collection.close()


def test_dense_vectors_are_of_passages(make: Make, documents: list[Document], dense: str) -> None:
    collection = make(documents, dense=dense)
    parts, model = passages(collection, documents), SentenceTransformer(dense, device="cpu")
    vectors = model.encode([part.full for part in parts], normalize_embeddings=True)
    queries = model.encode(QUERIES, normalize_embeddings=True)
    found = collection.searcher.search_space(collection.models.dense_queries(QUERIES), N, space="dense")
    same(found, best_of(queries @ vectors.T, parts, N), 5e-3)  # 8 bits a number
    rankings = [collection.search(QUERIES, N, weights=space) for space in collection.spaces]
    fused = weighted(aligned(rankings), [0.5, 0.3, 0.2], depth=5)
    same(collection.search(QUERIES, 5, weights="sparse=0.5,bm25=0.3,dense=0.2"), fused, 1e-4)


def test_an_index_of_passages_is_measured_by_documents(make: Make, documents: list[Document], dense: str) -> None:
    collection = make(documents, dense=dense)
    queries = [Query(f"q{number}", text) for number, text in enumerate(QUERIES)]
    judged = [Qrel(one.id, f"d{3 * row + more}", 1 + more) for row, one in enumerate(queries) for more in (0, 1)]
    dataset = Dataset("toy", documents, queries, judged)
    compared = evaluate(collection, dataset, ["nDCG@10", "R@5"], device="cpu")
    fused = {"search (sparse=1,bm25=1,dense=1)": None, "sparse": "sparse", "bm25": "bm25", "dense": "dense"}
    for system, weights in fused.items():
        hits = [collection.search([query.text], N, weights=weights).hits(0) for query in queries]
        run = {  # ranks as scores: the reference orders equal scores in its own way
            query.id: {document: -float(place) for place, (document, _) in enumerate(some)}
            for query, some in zip(queries, hits, strict=True)
        }
        [measured] = [one for one in compared.evaluations if one.name == system]
        expected = ir_measures.calc_aggregate([nDCG @ 10, R @ 5], judged, run)
        assert measured.values == pytest.approx({str(name): value for name, value in expected.items()}, abs=1e-6)


@pytest.mark.usefixtures("quiet_libraries")
def test_commands_make_and_search_passages(
    documents: list[Document], backbones: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, source = tmp_path / "index", corpus(tmp_path / "corpus.jsonl", documents[:6])
    made = ("index", backbones["bert"], source, "--max-length", LENGTH, "--long-documents")
    assert " windows of at most 20 tokens" in done(capsys, *made, "passages", "-o", place)
    assert "already there" in done(capsys, *made, "passages", "-o", place)
    assert "limits.long_documents" in refused(capsys, *made, "maxpool", "-o", place)
    assert "6 unchanged; now 6 documents" in done(capsys, "add", place, source)
    found = json.loads(done(capsys, "search", place, QUERIES[0], "-k", "2", "--json"))
    shown = " ".join(done(capsys, "search", place, QUERIES[0], "-k", "2").split())
    for hit in found["hits"]:
        part, best = hit["snippet"], hit["passage"]
        assert best["start"] <= part["start"] < part["end"] <= best["end"]
        assert hit["text"][part["start"] : part["end"]] == part["text"]
        assert " ".join(part["text"].split()[:3]) in shown
    assert [hit["text"][hit["passage"]["start"] : hit["passage"]["end"]] for hit in found["hits"]] == [
        hit["passage"]["text"] for hit in found["hits"]
    ]
    assert "1 deleted; now 5 documents" in done(capsys, "delete", place, "d5")
    one_line = refused(capsys, *made, "passages", "-o", f"seismic:{tmp_path / 'fixed'}")
    assert "--long-documents: passages need a plain folder or a server, not the seismic engine" in one_line
    done(capsys, "encode", backbones["bert"], source, "-o", tmp_path / "vectors", "--long-documents", "maxpool")
    stored = ("index", tmp_path / "vectors", source, "-o", tmp_path / "stored", "--long-documents", "maxpool")
    assert "--long-documents is for encoding" in refused(capsys, *stored)


def test_a_passage_is_no_document(make: Make, documents: list[Document]) -> None:
    collection = make(documents[:4])
    with pytest.raises(ArgumentError):
        collection.add([Document("d3\t0", "new text")])
    assert collection.documents(["d3\t0", "d2"]) == [None, documents[2]]
    assert collection.delete(["d3\t0"]) == Changed(0, 0, 0, 0, 4)
    check(collection, documents[:4])


def test_an_unknown_way_to_read_long_documents_is_refused(
    documents: list[Document], tmp_path: Path, backbones: dict[str, Path]
) -> None:
    wrong: Any = "windows"
    with pytest.raises(ArgumentError):
        index(str(backbones["bert"]), corpus(tmp_path / "c.jsonl", documents), tmp_path / "no", long_documents=wrong)


def test_a_corpus_that_replaces_all_others(make: Make, documents: list[Document], tmp_path: Path) -> None:
    collection = make(documents[:12])
    changed = Document("d3", "another text", fields={"even": False})
    others = corpus(tmp_path / "others.jsonl", [changed, *documents[8:16]])
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(DataError):
        add(collection, tmp_path / "empty.jsonl", replace=True)
    with pytest.raises(ArgumentError):
        add(collection, others, replace=True, skip_bad=1)
    assert len(collection) == 12
    assert add(collection, others, replace=True) == Changed(4, 1, 4, 7, 9)
    found = collection.documents(sorted({name.partition("\t")[0] for name in collection.store.ids()}))
    assert found == sorted([changed, *documents[8:16]], key=lambda document: document.id)


@pytest.mark.parametrize("long_documents", ["truncate", "passages"])
def test_a_document_keeps_fields_with_the_words_of_a_passage_s_fields(
    backbones: dict[str, Path], tmp_path: Path, long_documents: Any
) -> None:
    fields = {"place in the text": [0, 1, 1], "whole document": {"text": "x", "title": "y", "passages": 2}}
    document = Document("d", "the old fox reads", "My title", fields)
    how: dict[str, Any] = {"device": "cpu", "dtype": "float32", "long_documents": long_documents}
    index(str(backbones["bert"]), corpus(tmp_path / "c.jsonl", [document]), tmp_path / "index", **how).close()
    with open_index(tmp_path / "index") as opened:
        assert (len(opened), opened.documents(["d"])) == (1, [document])
