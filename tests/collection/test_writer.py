"""A collection that changes: what is added, replaced and deleted, and that each search is then the exact index's."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedTokenizerFast

from tests.cli.command_line import done, refused
from vocable.collection.answers import search
from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index
from vocable.collection.records import Changed
from vocable.collection.verbs import add, delete
from vocable.core.open_folder import OpenFolder
from vocable.data import Document
from vocable.encoding.encode import encode
from vocable.encoding.load import load
from vocable.engines import folder
from vocable.engines.filters import matches, parse_filter
from vocable.errors import ArgumentError, DataError, InUseError, ModelError, NoSpaceError, VectorsError
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.fusion import aligned, reciprocal_rank, weighted
from vocable.indexes.ranking import Ranking

QUERIES = ["the old fox reads", "posting lists at night", "nothing of it"]
N = 60


@pytest.fixture(scope="module")
def texts(toy_texts: list[str]) -> list[str]:
    return sorted(set(toy_texts))[:N]


@pytest.fixture(scope="module")
def documents(texts: list[str]) -> list[Document]:
    kinds = [{"lang": ["de", "en", "fr"][i % 3], "year": 2000 + i, "share": i / 7} for i in range(N)]
    return [Document(f"d{(7 * i) % N}", text, f"chapter {i}", kinds[i]) for i, text in enumerate(texts)]


def corpus(path: Path, documents: Sequence[Document]) -> Path:
    rows = [{"_id": one.id, "title": one.title, "text": one.text, **one.fields} for one in documents]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


Make = Callable[..., Collection]


@pytest.fixture
def make(backbones: dict[str, Path], tmp_path: Path) -> Iterator[Make]:
    """Make an index of documents, all closed at the end."""
    made: list[Collection] = []

    def make(documents: Sequence[Document], **given: Any) -> Collection:
        options: Any = {"bm25": True, "dtype": "float32", "device": "cpu"} | given
        made.append(index(str(backbones["bert"]), documents, tmp_path / f"index{len(made)}", **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def closed(backbones: dict[str, Path], documents: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of thirty documents with BM25, closed."""
    folder = tmp_path_factory.mktemp("closed")
    source = corpus(folder / "made.jsonl", documents[:30])
    index(str(backbones["bert"]), source, folder / "index", bm25=True, dtype="float32", device="cpu").close()
    return folder / "index"


@pytest.fixture
def place(closed: Path, tmp_path: Path) -> Path:
    """The test's own copy of `closed`."""
    return Path(shutil.copytree(closed, tmp_path / "index"))


def same(found: Ranking, expected: Ranking, rtol: float = 1e-5) -> None:
    """The same hits with the same scores, but for the part of a verbatim match, in an order that these allow."""
    for query in range(len(expected)):
        one, other = dict(found.hits(query)), dict(expected.hits(query))
        one |= {
            name: one[name] - part for name, part in (found.parts or {}).get("verbatim", expected.first(0)).hits(query)
        }
        assert one.keys() == other.keys()
        np.testing.assert_allclose([one[key] for key in other], list(other.values()), rtol=rtol, atol=1e-6)
        assert list(one.values()) == sorted(one.values(), reverse=True)


def changed(documents: list[Document]) -> tuple[list[Document], list[str], list[Document]]:
    """Documents to add, of which some replace others; ids to delete; and what is there then."""
    longer = [one._replace(text=f"{one.text} Twice as long: {one.text}") for one in documents[:10]]
    gone = [one.id for one in documents[20:30]]
    there = {one.id: one for one in [*documents[:40], *longer, *documents[40:]] if one.id not in gone}
    return [*longer, *documents[40:]], gone, list(there.values())


def test_add_refuses_what_readers_refuse_and_writes_all_or_none(make: Make, documents: list[Document]) -> None:
    collection = make(documents[:10])
    new = [one._replace(id=f"new{number}") for number, one in enumerate(documents[10:])]
    refused = {
        "has neither text nor title": Document("bad", "  "),
        "an empty id": Document(" ", "a text"),
        "has a tab or a line end": Document("bad\n", "a text"),
        "the id must be a text, not int": Document(5, "a text"),  # type: ignore[arg-type]
        "keys are str": Document("bad", "a text", fields={1: 2}),  # type: ignore[dict-item]
        "half of a surrogate pair": Document("bad", "a \ud83d text"),
        "duplicate id 'new0'": new[0],
    }
    for message, document in refused.items():
        with pytest.raises(ArgumentError, match=rf"^documents\[{len(new)}\]: .*{message}"):
            collection.add(iter([*new, document]))
    assert len(collection) == 10
    assert collection.documents(["new0", "bad"]) == [None, None]
    assert collection.add(iter(new)) == Changed(len(new), 0, 0, 0, 10 + len(new))
    for ids in ("d1", [1], [None], None, ["\ud83d"]):
        with pytest.raises(ArgumentError):
            delete(collection, ids)  # type: ignore[arg-type]


def exact_of(collection: Collection, there: list[Document]) -> ExactIndex:
    sparse = encode(collection.models.loaded, [one.full for one in there], dtype="float32")
    return ExactIndex(sparse, [one.id for one in there])


def bm25_of(there: list[Document]) -> BM25Index:
    return BM25Index([one.full for one in there], [one.id for one in there])


def test_after_changes_searches_are_those_of_the_exact_index(make: Make, documents: list[Document]) -> None:
    collection, (more, gone, there) = make(documents[:40]), changed(documents)
    assert collection.add(more) == Changed(20, 10, 0, 0, 60)
    assert collection.add(more) == Changed(0, 0, 30, 0, 60)
    assert collection.delete([*gone, "no such"]) == Changed(0, 0, 0, 10, 50)
    assert collection.documents([one.id for one in there]) == there
    exact, lexical = exact_of(collection, there), bm25_of(there)
    vectors = collection.models.queries().encode(QUERIES)
    same(collection.searcher.search_space(vectors, N), exact.search(vectors, N), 1e-4)
    words = collection.store.lexicon.query_vectors(QUERIES)
    same(collection.searcher.search_space(words, N, space="bm25"), lexical.search(QUERIES, N))
    fused = weighted(aligned([exact.search(vectors, N), lexical.search(QUERIES, N)]), [1, 1], depth=N)
    same(collection.search(QUERIES, N), fused, 1e-4)


def test_words_are_weighed_by_the_mean_length_of_all_documents_after_every_change(
    make: Make, documents: list[Document]
) -> None:
    collection = make(documents[:20])
    longer = [one._replace(text=" ".join([one.text] * 9)) for one in documents[20:40]]
    collection.add(longer)
    words = collection.store.lexicon.query_vectors(QUERIES)
    same(
        collection.searcher.search_space(words, N, space="bm25"), bm25_of([*documents[:20], *longer]).search(QUERIES, N)
    )
    collection.delete([one.id for one in documents[:40]])
    assert (len(collection), collection.store.lexicon.query_vectors(QUERIES).nnz) == (0, 0)
    assert collection.search(QUERIES, 3).hits(0) == []
    collection.add(documents[40:])
    words = collection.store.lexicon.query_vectors(QUERIES)
    same(collection.searcher.search_space(words, N, space="bm25"), bm25_of(documents[40:]).search(QUERIES, N))


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_minimum_match_is_that_of_the_exact_index(make: Make, documents: list[Document], share: float) -> None:
    collection = make(documents, bm25=False)
    vectors = collection.models.queries(max_terms=4).encode(QUERIES)
    expected = exact_of(collection, documents).search(vectors, 3, minimum_match=share)
    found = collection.searcher.search_space(vectors, 3, minimum_match=share)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4)
    with pytest.raises(ArgumentError, match="minimum_match"):
        collection.searcher.search_space(vectors, 3, minimum_match=1.5)


@pytest.mark.parametrize("text", ["lang=de", "year>=2030 and not lang in (de, fr)", "share>=3 or year<2005", "year=1"])
def test_a_filter_lets_through_what_matches(make: Make, documents: list[Document], text: str) -> None:
    collection = make(documents)
    vectors = collection.models.queries().encode(QUERIES)
    allowed = np.array([matches(parse_filter(text), one.fields) for one in documents])
    expected = exact_of(collection, documents).search(vectors, N, allowed=allowed)
    same(collection.search(QUERIES, N, vectors=vectors, filter=text, weights="sparse"), expected, 1e-4)
    fused = collection.search(QUERIES, N, vectors=vectors, filter=text)
    lexical = bm25_of(documents).search(QUERIES, N, allowed=allowed)
    same(fused, weighted(aligned([expected, lexical]), [1, 1], depth=N), 1e-3)


def test_fields_come_back_to_the_last_bit(make: Make, documents: list[Document]) -> None:
    number = 0.9447832518820701  # which a reader of JSON that rounds reads as another
    collection = make(documents[:3])
    collection.add([documents[0]._replace(fields={"n": number, "deep": {"a": [number, None, True, 1e300]}})])
    collection.close()
    opened = open_index(collection.place)
    [found] = opened.documents([documents[0].id])
    assert found is not None
    assert found.fields == {"n": number, "deep": {"a": [number, None, True, 1e300]}}
    opened.close()


def test_a_change_that_fails_leaves_the_last_commit(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = make(documents[:30])
    files = sorted(path.name for path in Path(collection.place).iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(folder, "_write_commit", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            collection.add(documents[20:])
        with pytest.raises(OSError, match="full"):
            collection.delete([documents[0].id])
    for opened in (collection, open_index(collection.place)):
        words = opened.store.lexicon.query_vectors(QUERIES)
        same(opened.searcher.search_space(words, N, space="bm25"), bm25_of(documents[:30]).search(QUERIES, N))
        assert opened.documents([documents[0].id, documents[40].id]) == [documents[0], None]
    assert collection.add(documents[20:]) == Changed(30, 0, 10, 0, 60)
    assert opened.search(QUERIES, N, weights="bm25=1").rows.max() >= 30  # the other handle follows
    words = opened.store.lexicon.query_vectors(QUERIES)
    same(opened.searcher.search_space(words, N, space="bm25"), bm25_of(documents).search(QUERIES, N))
    left = {path.name for path in Path(collection.place).iterdir()}
    assert len(left) <= len(files) + 1  # the files of the failed changes are removed
    opened.close()


def test_an_error_says_how_many_documents_are_written(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collection = make(documents[:10])
    source = corpus(tmp_path / "more.jsonl", documents)
    source.write_text(source.read_text() + "{}\n")
    monkeypatch.setattr(folder.FolderStore, "about", replace(folder.FolderStore.about, part=20))
    with pytest.raises(DataError, match=rf"more\.jsonl:{N + 1}: .*; {N - 10} "):
        add(collection, source)
    assert len(collection) == N


def test_an_index_is_closed_at_the_end_of_a_block(make: Make, documents: list[Document]) -> None:
    with make(documents[:5]) as collection:
        assert len(collection) == 5
    with pytest.raises(VectorsError):
        len(collection)
    with pytest.raises(VectorsError):
        collection.search(QUERIES)
    with pytest.raises(VectorsError):
        collection.add(documents[:7])
    with open_index(collection.place) as again:
        assert len(again) == 5


def test_an_addition_says_what_was_lost_of_its_texts(
    make: Make, documents: list[Document], caplog: pytest.LogCaptureFixture
) -> None:
    collection = make(documents[:5], long_documents="truncate")
    long = Document("long", " ".join(documents[0].text for _ in range(200)))
    collection.add([long, Document("odd", "\u0e41\u0e21\u0e27"), *documents[:5]])
    said = [record.getMessage() for record in caplog.records if record.name == "vocable.collection.writer"]
    assert [line.split(": ", 1)[1] for line in said] == [
        f"1 text cut at {collection.models.documents.max_length} tokens",
        "1 text without an active term",
        "1 text mostly unknown to the vocabulary",
    ]


def test_texts_that_the_dense_model_reads_in_part_are_counted_and_said(
    dense: str, documents: list[Document], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = SentenceTransformer(dense, device="cpu")
    long = [one._replace(text=" ".join([one.text] * (30 if n % 2 else 1))) for n, one in enumerate(documents)]
    read = model.max_seq_length
    first, second = (
        sum(len(model.tokenizer(one.full)["input_ids"]) > read for one in part) for part in (long[:5], long[5:9])
    )
    assert 0 < first < 5
    collection = index("vocable-mini", long[:5], tmp_path / "index", dense=dense)
    assert (collection.built.dense_truncated, collection.built.dense_length) == (first, read)
    assert f"{first} texts cut at {read} tokens for the dense vectors" in str(collection.built)
    collection.add(long[5:9])
    assert f"{second} texts cut at {read} tokens for the dense vectors" in caplog.text
    caplog.clear()
    collection.search(["fox " * 200, "a fox"])
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"1 of 2 queries were cut at {length} tokens" for length in (128, read)]


def test_an_index_reads_long_documents_to_their_end(
    make: Make, backbones: dict[str, Path], documents: list[Document]
) -> None:
    texts = ["\n\n".join(other.text for other in documents[n : n + 12]) for n in range(N)]
    long = [one._replace(text=text) for one, text in zip(documents, texts, strict=True)]
    collection, model = make(long[:40]), load(backbones["bert"], device="cpu")
    collection.add(long[40:])
    assert collection.settings.limits["long_documents"] == "maxpool"
    assert collection.built.truncated == 0
    whole = encode(model, [one.full for one in long], long_documents="maxpool", dtype="float32")
    found = collection.vectors([one.id for one in long])
    np.testing.assert_allclose(found.toarray(), whole.toarray(), rtol=1e-4, atol=1e-5)
    assert (abs(whole - encode(model, [one.full for one in long], dtype="float32")) > 0.01).nnz > 100


def test_an_index_cuts_long_documents_if_the_tokenizer_tells_no_places(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PreTrainedTokenizerFast, "is_fast", False)
    collection = make([Document("long", " ".join(documents[0].text for _ in range(200)))])
    assert collection.settings.limits["long_documents"] == "truncate"
    assert collection.built.truncated == 1


@pytest.mark.parametrize("step", [".segment", ".gone-", "commit.json"])
def test_a_full_disk_leaves_the_last_commit_and_the_message_names_the_file(
    place: Path, documents: list[Document], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    real, full = os.fsync, [True]

    def fsync(descriptor: int) -> None:
        if full[0] and step in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    changes = [*documents[30:33], documents[0]._replace(text="another text")]
    with open_index(place, device="cpu") as collection:
        with pytest.raises(NoSpaceError, match=rf"^{re.escape(str(place))}/\S*{re.escape(step)}"):
            collection.add(changes)
        assert collection.documents([documents[0].id, documents[30].id]) == [documents[0], None]
        assert len(collection) == 30
        full[0] = False
        assert collection.add(changes) == Changed(3, 1, 0, 0, 33)
        assert collection.documents([documents[0].id]) == [changes[-1]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"limits": None}, "limits"),
        ({"limits": []}, "limits"),
        ({"limits": {"max_terms": "x"}}, "limits: max_terms"),
        ({"limits": {"max_terms": 0}}, "limits: max_terms"),
        ({"limits": {"unknown": 1}}, "limits: unknown"),
        ({"limits": {"long_documents": "passages"}}, "limits.long_documents"),
        ({"unknown": 1}, "unknown"),
        ({"meta": {}}, "meta"),
        ({"dense": 3}, "dense"),
        ({"model": None}, "model"),
    ],
)
def test_damaged_settings_are_named(place: Path, change: dict[str, Any], says: str) -> None:
    directory = OpenFolder(place)
    commit = folder.read_commit(directory)
    if isinstance(limits := change.get("limits"), dict):
        change = {"limits": commit.settings["limits"] | limits}
    folder._write_commit(directory, commit._replace(settings=commit.settings | change))
    with pytest.raises(VectorsError, match=says):
        open_index(place)


def test_a_document_that_is_refused_changes_nothing(make: Make, documents: list[Document]) -> None:
    collection = make(documents[:30])
    version = collection.store.version()
    with pytest.raises(DataError, match="'bad'"):
        collection.writer.add_stream([documents[30], Document("bad", "unheard", fields={"n": float("nan")})])
    assert (len(collection), collection.store.version()) == (30, version)
    assert collection.store.lexicon.query_vectors(["unheard"]).nnz == 0


def test_dense_vectors_rank_by_cosine(make: Make, documents: list[Document], dense: str) -> None:
    collection = make(documents[:40], dense=dense)
    collection.add(documents[40:])
    model = SentenceTransformer(dense, device="cpu")
    stored = model.encode([one.full for one in documents], normalize_embeddings=True)
    cosines = model.encode(QUERIES, normalize_embeddings=True) @ stored.T
    found = collection.searcher.search_space(collection.models.dense_queries(QUERIES), N, space="dense")
    for query, row in enumerate(cosines):
        expected = {one.id: score for one, score in zip(documents, row, strict=True) if score > 0}
        hits = dict(found.hits(query))
        assert hits.keys() == expected.keys()
        np.testing.assert_allclose([hits[key] for key in expected], list(expected.values()), atol=4e-3)  # 8 bits
    spaces = [
        collection.searcher.search_space(collection.models.queries().encode(QUERIES), 100),
        collection.searcher.search_space(collection.store.lexicon.query_vectors(QUERIES), 100, space="bm25"),
        found,
    ]
    same(collection.search(QUERIES, 5), weighted(aligned(spaces), [1, 1, 1], depth=5), 1e-4)
    for fusion, fuse in (("weighted", weighted), ("reciprocal-rank", reciprocal_rank)):
        pair = fuse(aligned(spaces[1:]), weights=[0.7, 0.2], depth=5)
        same(collection.search(QUERIES, 5, weights="bm25=0.7,sparse=0,dense=0.2", fusion=fusion), pair, 1e-4)
    same(collection.search(QUERIES, N, weights={"dense": 0.5}), found, 1e-6)
    by_rank = collection.search(QUERIES, 5, fusion="reciprocal-rank")
    same(by_rank, reciprocal_rank(aligned(spaces), depth=5), 1e-4)
    with pytest.raises(ArgumentError):
        make(documents[:3]).models.dense_queries(QUERIES)
    collection.settings = replace(collection.settings, dense_fingerprint={"weights": "float32:0"})
    with pytest.raises(VectorsError, match=rf"{dense} .*\(weights\)"):
        collection.with_model().search(QUERIES)
    assert collection.with_model(allow_changed_model=True).models.dense_queries(QUERIES).shape[0] == len(QUERIES)


def test_a_document_without_text_is_never_a_hit(make: Make, documents: list[Document], dense: str) -> None:
    collection = make(documents[:9], dense=dense)
    assert collection.writer.add_stream([Document("empty", "", " ")]).documents == 10
    for weights in ("sparse=1", "bm25=1", "dense=1", "sparse=1,bm25=1,dense=1"):
        ranking = collection.search(QUERIES, 10, weights=weights)
        assert all("empty" not in dict(ranking.hits(query)) for query in range(len(QUERIES)))
    assert collection.documents(["empty"]) == [Document("empty", "", " ")]


def test_a_dense_model_that_does_not_exist_is_refused(make: Make, documents: list[Document], tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        make(documents[:3], dense=str(tmp_path / "no-such"))


def test_a_changed_model_is_refused_unless_it_is_allowed(documents: list[Document], tmp_path: Path, model: str) -> None:
    shutil.copytree(model, tmp_path / "model")
    source = corpus(tmp_path / "corpus.jsonl", documents[:9])
    index(str(tmp_path / "model"), source, tmp_path / "index", dtype="float32", device="cpu").close()
    weights = load_file(tmp_path / "model" / "model.safetensors")
    next(iter(weights.values())).add_(1)
    save_file(weights, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    with pytest.raises(VectorsError, match=r"\(weights\)"):
        search(tmp_path / "index", QUERIES, 3)
    with pytest.raises(VectorsError):
        add(tmp_path / "index", corpus(tmp_path / "more.jsonl", documents[9:12]))
    opened = open_index(tmp_path / "index", allow_changed_model=True, device="cpu")
    assert len(opened.search(QUERIES, 3)) == len(QUERIES)
    assert str(opened.models.loaded.device) == "cpu"
    opened.close()


def test_a_collection_of_the_seismic_engine_refuses_changes(
    documents: list[Document], tmp_path: Path, model: str
) -> None:
    pytest.importorskip("seismic")
    place = f"seismic:{tmp_path / 'fixed'}"
    index(load(model, device="cpu"), documents[:9], place).close()
    with pytest.raises(ArgumentError):
        add(place, corpus(tmp_path / "corpus.jsonl", documents[:9]))
    for ids in (["d0"], "d0"):
        with pytest.raises(ArgumentError):
            delete(place, ids)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to a folder without permission")
def test_an_index_without_write_permission_is_searched_and_refuses_changes(
    place: Path, documents: list[Document]
) -> None:
    place.chmod(0o555)
    try:
        with open_index(place) as collection:
            assert len(collection.search(QUERIES, 3)) == len(QUERIES)
            with pytest.raises(ArgumentError, match=re.escape(str(place))):
                collection.add(documents[30:])
    finally:
        place.chmod(0o755)


@pytest.mark.parametrize("swap", ["moved", "removed", "replaced"])
def test_a_change_follows_a_folder_that_was_moved_and_is_refused_for_another_index(
    place: Path, documents: list[Document], model: str, swap: str
) -> None:
    other = place.with_name("other")
    index(model, documents[:30], other, max_terms=5, device="cpu").close()
    with open_index(place, device="cpu") as collection:
        if swap == "removed":
            shutil.rmtree(place)
        else:
            place.rename(place.with_name("elsewhere"))
        if swap == "replaced":
            other.rename(place)
        if swap == "moved":
            assert collection.add(documents[30:]).added == 30
        else:
            with pytest.raises(VectorsError, match=re.escape(str(place))):
                collection.add(documents[30:])
    lengths = {"moved": {"elsewhere": 60, "other": 30}, "removed": {"other": 30}}
    for name, length in lengths.get(swap, {"elsewhere": 30, "index": 30}).items():
        with open_index(place.with_name(name)) as opened:
            assert len(opened) == length


@pytest.mark.usefixtures("quiet_libraries")
def test_commands_change_and_search_a_collection(
    documents: list[Document],
    tmp_path: Path,
    model: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, source = tmp_path / "index", corpus(tmp_path / "corpus.jsonl", documents[:9])
    done(capsys, "index", model, source, "-o", place, "--bm25", "--dtype", "float32")
    more = corpus(tmp_path / "more.jsonl", [documents[0]._replace(text="new words"), *documents[1:12]])
    counts = {"added": 3, "replaced": 1, "unchanged": 8, "deleted": 0, "documents": 12}
    assert json.loads(done(capsys, "add", place, more, "--json")) == counts
    assert done(capsys, "add", place, more).strip() == "12 unchanged; now 12 documents"
    assert done(capsys, "delete", place, documents[0].id, "no such").strip() == "1 deleted; now 11 documents"
    given = "".join(f"{one.id}\n" for one in documents[1:3])
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    assert json.loads(done(capsys, "delete", place, "no such", "-", "--json"))["deleted"] == 2
    assert "nothing: there is no index here" in refused(capsys, "add", tmp_path / "nothing", more)
    assert "no-such.jsonl" in refused(capsys, "add", place, tmp_path / "no-such.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"_id": "x", "text": "y"}\n{"_id": 3\n')
    assert "bad.jsonl:2" in refused(capsys, "add", place, tmp_path / "bad.jsonl")


WRITER = """
import sys
from vocable.engines.folder import FolderStore
store = FolderStore.open(sys.argv[1])
with store.alone():
    print("open", flush=True)
    sys.stdin.read()
"""


def test_readers_do_not_wait_for_a_writer_and_a_second_writer_names_it(
    place: Path, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_index(place) as before, search_of(place) as other:
        monkeypatch.setattr(folder, "PATIENCE", 0.1)
        assert len(before.search(QUERIES, 3)) == len(QUERIES)
        with open_index(place, device="cpu") as opened:
            assert len(opened.search(QUERIES, 3)) == len(QUERIES)
            for change in (lambda: opened.add(documents[30:]), lambda: opened.delete([documents[0].id])):
                with pytest.raises(InUseError, match=str(other.pid)):
                    change()
        other.communicate()
        assert add(place, corpus(place.parent / "more.jsonl", documents)).added == 30
        assert len(before) == 60


@contextmanager
def search_of(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is writing to an index."""
    command = [sys.executable, "-c", WRITER, os.fspath(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process


def test_replaced_documents_give_their_room_back(make: Make, documents: list[Document]) -> None:
    collection = make(documents[:30], bm25=True)
    for number in range(12):
        collection.add([one._replace(text=f"{one.text} {number}") for one in documents[:30]])
    fresh = make([one._replace(text=f"{one.text} 11") for one in documents[:30]])
    assert collection.store.nbytes is not None
    assert fresh.store.nbytes is not None
    assert collection.store.nbytes <= 1.5 * fresh.store.nbytes
    assert len([*Path(collection.place).glob("*.segment")]) <= 2


def test_additions_of_the_same_documents_write_nothing(make: Make, documents: list[Document]) -> None:
    collection = make(documents[:30])
    states = {path: path.stat().st_mtime_ns for path in Path(collection.place).iterdir() if path.name != "lock"}
    assert collection.add(documents[:30]).unchanged == 30
    assert collection.delete(["no such"]).deleted == 0
    assert {path: path.stat().st_mtime_ns for path in Path(collection.place).iterdir() if path.name != "lock"} == states


def test_a_value_of_another_type_is_a_change(make: Make, documents: list[Document]) -> None:
    values: list[Any] = [1, True, 0, False, [1], [True], {"a": 1}, {"a": True}, {"a": [0, {"b": 1}]}, 1.0]
    collection = make([documents[0]._replace(fields={"v": values[0]})])
    for value in values[1:]:
        new = documents[0]._replace(fields={"v": value})
        assert collection.add([new]).replaced == 1
        assert repr(collection.documents([new.id])) == repr([new])
        assert collection.add([new]).unchanged == 1
    same_keys = documents[0]._replace(fields={"x": 1, "v": {"b": 1, "a": 2}})
    collection.add([same_keys])
    assert collection.add([same_keys._replace(fields={"v": {"a": 2, "b": 1}, "x": 1})]).unchanged == 1


def test_a_filter_on_a_field_that_no_document_has_is_refused(
    make: Make, documents: list[Document], capsys: pytest.CaptureFixture[str], quiet_libraries: None
) -> None:
    collection = make(documents)
    with pytest.raises(ArgumentError, match="'laang'"):
        search(collection, QUERIES, filter="not laang=de")
    collection.add([documents[0]._replace(fields={"deep": {"laang": None}}), documents[1]._replace(fields={"a.b": 1})])
    assert search(collection, QUERIES, filter="deep.laang=de")[0].hits == ()
    with pytest.raises(ArgumentError, match="'a'"):
        search(collection, QUERIES, filter="a.b=1 and a=1")  # some document has a.b, though no filter can meet it
    collection.delete([documents[0].id])  # its names stay known: to be sure that they are gone takes reading all
    place = Path(collection.place)
    collection.close()
    assert search(place, QUERIES, filter="deep=1 or deep.laang=1", device="cpu")[0].hits == ()
    line = refused(capsys, "search", place, "the old fox", "--filter", "yaer>2000")
    assert line == "vocable: --filter: no document has the field 'yaer': did you mean year?"


def test_unknown_fields_are_refused_until_there_are_too_many_names_to_keep(
    make: Make, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep: dict[str, Any] = {"a": 1}
    for _ in range(250):
        deep = {"a": deep}
    collection = make(documents[:3])
    collection.add([documents[1]._replace(fields=deep)])
    with pytest.raises(ArgumentError):
        search(collection, QUERIES, filter="laang=de")
    assert search(collection, QUERIES, filter=f"{'a.' * 250}a=1 or a.a=1")[0].hits != ()
    monkeypatch.setattr("vocable.engines.filters.MAX_NAMES", 5)
    collection.add([documents[0]._replace(fields={f"f{i}": i for i in range(3)})])
    assert search(collection, QUERIES, filter="laang=de")[0].hits == ()
    collection.add([documents[0]._replace(fields={})])
    assert search(collection, QUERIES, filter="laang=de")[0].hits == ()


def test_values_of_several_types_are_told_apart_by_filters(
    backbones: dict[str, Path], documents: list[Document]
) -> None:
    kinds: list[Any] = [1, True, 1.0, 0, False, 0.0, "1", None]
    those = [one._replace(fields={"v": kind}) for one, kind in zip(documents, kinds, strict=False)]
    collection = index(str(backbones["bert"]), those, device="cpu")
    everything = {hit.document.id for hit in search(collection, [QUERIES[0]])[0].hits}
    for text in ("v=true", "v=1", "v=1.0", "v='1'", "v=false", "v=0", "v in (0, true)", "v in (false, 1)") * 2:
        found = {hit.document.id for hit in search(collection, [QUERIES[0]], filter=text)[0].hits}
        assert found == everything & {one.id for one in those if matches(parse_filter(text), one.fields)}
        assert found, text
    with pytest.raises(ArgumentError):
        search(collection, QUERIES, filter="w=1")
