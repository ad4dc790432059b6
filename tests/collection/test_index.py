"""The making of an index: in place, words first and then vectors, in memory, of lists, interrupted and resumed."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

import vocable as vo
from tests.cli.command_line import done, refused
from tests.collection.test_writer import corpus, same
from vocable.collection.collection import Collection
from vocable.data import Document
from vocable.encoding.encode import encode
from vocable.encoding.text_encoder import TextEncoder
from vocable.engines.folder import FolderStore
from vocable.engines.memory import MemoryStore
from vocable.engines.segmented import Draft
from vocable.engines.snapshot import Snapshot
from vocable.errors import ArgumentError, DataError, VectorsError
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.exact_index import ExactIndex
from vocable.options import IndexOptions

QUERIES = ["the old fox reads", "posting lists at night", "nothing of it"]
OPTIONS: IndexOptions = {"dtype": "float32", "device": "cpu"}
PART = 16  # documents of a commit; the corpus has 40


class Killed(BaseException):
    """An exception that no handler catches, as a signal would be."""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in (FolderStore, MemoryStore):
        monkeypatch.setattr(engine, "about", replace(engine.about, part=PART))


def stop_after(monkeypatch: pytest.MonkeyPatch, commits: int) -> None:
    """Kill the writer before the commit that follows `commits` others."""
    save, left = FolderStore._save, [commits]

    def killed(store: FolderStore, draft: Draft) -> Snapshot:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return save(store, draft)

    monkeypatch.setattr(FolderStore, "_save", killed)


def assert_whole(collection: Collection, documents: Sequence[Document]) -> None:
    """A collection has these documents, and answers as brute force over them does."""
    ids = [document.id for document in documents]
    assert sorted(collection.store.ids()) == sorted(ids)
    assert collection.documents(ids) == list(documents)
    texts = [document.full for document in documents]
    queries = collection.models.queries().encode(QUERIES)
    sparse = ExactIndex(encode(collection.models.loaded, texts, dtype="float32"), ids)
    same(collection.search(QUERIES, 40, vectors=queries, weights="sparse"), sparse.search(queries, 40), 1e-4)
    same(collection.search(QUERIES, 40, weights="bm25=1"), BM25Index(texts, ids).search(QUERIES, 40))


@pytest.fixture
def unfinished(
    toy_model: SparseEncoder, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Path]:
    """Make an index of `documents` and kill its writer after a number of parts with vectors."""

    def make(parts: int) -> Path:
        real, left = FolderStore.upsert, [parts]

        def killed(store: FolderStore, added: Sequence[Document], vectors: Any) -> None:
            if vectors:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
            real(store, added, vectors)

        with monkeypatch.context() as patched:
            patched.setattr(FolderStore, "upsert", killed)
            with pytest.raises(Killed):
                vo.index(toy_model, documents, tmp_path / "index", **OPTIONS)
        return tmp_path / "index"

    return make


def test_an_index_resumes_after_a_kill_at_any_commit(
    toy_model: SparseEncoder, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, encode_both = list[str](), TextEncoder.encode_both

    def counted(encoder: TextEncoder, texts: Sequence[str], *others: Any) -> Any:
        read.extend(texts)
        return encode_both(encoder, texts, *others)

    monkeypatch.setattr(TextEncoder, "encode_both", counted)
    for commits in count():
        place, killed = tmp_path / str(commits), False
        read.clear()
        with monkeypatch.context() as patched:
            stop_after(patched, commits)
            try:
                vo.index(toy_model, documents, place, **OPTIONS).close()
            except Killed:
                killed = True
        with vo.index(toy_model, documents, place, **OPTIONS) as collection:
            assert collection.was_there is not killed
            assert len(read) <= len(documents) + PART  # the part of the kill alone is encoded again
            assert (collection.making_counts().texts, len(collection)) == (len(documents), len(documents))
            assert_whole(collection, documents)
            assert len([*place.glob("*.segment")]) == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, range(commits + 1)))
        if not killed:
            break
    assert commits >= 2 * len(documents) // PART


@pytest.mark.parametrize("commits", range(6))
def test_an_interrupted_index_of_stored_vectors_resumes(
    toy_model: SparseEncoder,
    documents: list[Document],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commits: int,
) -> None:
    monkeypatch.setattr("vocable.collection.index.VECTORS_PART", PART)
    source = corpus(tmp_path / "corpus.jsonl", documents)
    vo.encode(toy_model, source, output=tmp_path / "vectors", dtype="float32")
    with monkeypatch.context() as patched:
        stop_after(patched, commits)
        with pytest.raises(Killed):
            vo.index(tmp_path / "vectors", source, tmp_path / "index")
    with vo.index(tmp_path / "vectors", source, tmp_path / "index") as collection:
        assert_whole(collection, documents)


def test_an_index_that_is_being_made_answers_by_words_at_once_and_says_so(
    unfinished: Callable[[int], Path], documents: list[Document]
) -> None:
    place = unfinished(0)
    names, texts = [one.id for one in documents], [one.full for one in documents]
    with vo.open_index(place, device="cpu") as collection:
        assert (len(collection), collection.store.encoded_share) == (40, 0)
        answers = vo.search(collection, QUERIES, 40)
        same(answers.ranking, BM25Index(texts, names).search(QUERIES, 40))
        assert {hit.document.id for hit in answers[0].hits} <= {*names}
        note = "the index is being made: 0% of the documents have vectors so far"
        assert {answer.missing for answer in vo.search(collection, QUERIES)} == {note}


def test_an_index_that_is_being_made_answers_by_the_vectors_that_it_has(
    unfinished: Callable[[int], Path], documents: list[Document], toy_model: SparseEncoder
) -> None:
    place = unfinished(2)
    with vo.open_index(place, device="cpu") as collection:
        encoded = [one for one in documents if collection.vectors([one.id]).nnz]
        assert len(encoded) == 2 * PART
        assert {document.id for document in collection.store.without_vectors()} == {
            document.id for document in documents if document not in encoded
        }
        [answer] = vo.search(collection, QUERIES[:1], 40, weights="sparse=1")
        assert {hit.document.id for hit in answer.hits} <= {document.id for document in encoded}
        assert answer.missing == "the index is being made: 80% of the documents have vectors so far"
        assert answer.missing in str(answer)
        assert answer.to_json()["missing"] == answer.missing
        queries = collection.models.queries().encode(QUERIES)
        matrix = encode(toy_model, [document.full for document in encoded], dtype="float32")
        exact = ExactIndex(matrix, [document.id for document in encoded]).search(queries, 40)
        same(collection.search(QUERIES, 40, vectors=queries, weights="sparse=1"), exact, 1e-4)
        assert collection.search(QUERIES, weights="bm25=1").missing is None
        [everything] = vo.search(collection, QUERIES[:1], 40)
        [by_words] = vo.search(collection, QUERIES[:1], 40, weights="bm25=1")
        ids = [{hit.document.id for hit in one.hits} for one in (everything, answer, by_words)]
        assert ids[0] == ids[1] | ids[2]


def test_an_open_index_follows_the_vectors_that_arrive(
    unfinished: Callable[[int], Path], documents: list[Document], toy_model: SparseEncoder
) -> None:
    place = unfinished(1)
    with vo.open_index(place, device="cpu") as reader:
        assert reader.search(QUERIES).missing is not None
        vo.index(toy_model, documents, place, **OPTIONS).close()
        assert reader.search(QUERIES).missing is None
        assert_whole(reader, documents)
        assert reader.add([documents[0]]).unchanged == 1


@pytest.mark.usefixtures("quiet_libraries")
def test_an_unfinished_index_refuses_changes_and_evaluations(
    model: str, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    place, source = tmp_path / "index", corpus(tmp_path / "corpus.jsonl", documents)
    with monkeypatch.context() as patched:
        stop_after(patched, 4)
        with pytest.raises(Killed):
            vo.index(model, source, place, **OPTIONS)
    with vo.open_index(place) as collection:
        for change in (lambda: collection.add(documents[:1]), lambda: collection.delete(["d0"])):
            with pytest.raises(ArgumentError, match="unfinished"):
                change()
    for command in (["add", place, source], ["delete", place, "d0"]):
        assert f"{place} is unfinished: repeat the command that began it" in refused(capsys, *command)
    line = refused(capsys, "index", model, source, "-o", place, "--dtype", "float32", "--max-terms", 5)
    assert "limits.max_terms" in line
    with monkeypatch.context() as patched:
        patched.setattr("vocable.engines.folder.FolderStore.about", replace(FolderStore.about, part=PART))
        done(capsys, "index", model, source, "-o", place, "--dtype", "float32", "--device", "cpu")
    assert "40 unchanged" in done(capsys, "add", place, source)


def test_an_index_without_words_and_vectors_is_refused(
    toy_model: SparseEncoder, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        stop_after(patched, 0)
        with pytest.raises(Killed):
            vo.index(toy_model, documents, tmp_path / "index", **OPTIONS)
    with pytest.raises(VectorsError, match=re.escape(str(tmp_path / "index"))):
        vo.open_index(tmp_path / "index")


@pytest.mark.parametrize("line", [1, 20, 40])
def test_a_bad_line_leaves_no_folder(model: str, documents: list[Document], tmp_path: Path, line: int) -> None:
    source = corpus(tmp_path / "corpus.jsonl", documents)
    lines = source.read_text().splitlines()
    source.write_text("\n".join([*lines[: line - 1], "{}", *lines[line:]]))
    with pytest.raises(DataError, match=rf"corpus\.jsonl:{line}"):
        vo.index(model, source, tmp_path / "index", **OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]
    source.write_text("\n".join(lines))
    vo.index(model, source, tmp_path / "index", **OPTIONS).close()


def test_another_folder_is_not_written_into(model: str, documents: list[Document], tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("notes", "file"):
        with pytest.raises(ArgumentError, match=name):
            vo.index(model, documents, tmp_path / name, **OPTIONS)
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["mine.txt"]


ITEMS: dict[str, Callable[[list[Document]], Any]] = {
    "texts": lambda documents: [document.full for document in documents],
    "documents": lambda documents: documents,
    "dicts": lambda documents: [{"id": one.id, "text": one.text, "title": one.title} for one in documents],
    "mixed": lambda documents: [documents[0], documents[1].full, {"_id": "x", "text": documents[2].full}],
    "generator": lambda documents: (document for document in documents),
    "array": lambda documents: np.array([document.full for document in documents]),
}


@pytest.mark.parametrize("kind", ITEMS)
def test_a_list_is_indexed_in_memory(toy_model: SparseEncoder, documents: list[Document], kind: str) -> None:
    items = ITEMS[kind](documents)
    index = vo.index(toy_model, items, **OPTIONS)
    listed = [*ITEMS[kind](documents)]
    ids = [item.id if isinstance(item, Document) else str(at) for at, item in enumerate(listed)]
    if kind == "dicts":
        ids = [item["id"] for item in listed]
    elif kind == "mixed":
        ids[2] = "x"
    full = [document.full for document in documents[: len(listed)]]
    assert sorted(index.store.ids()) == sorted(ids)
    assert [document.full for document in index.documents(ids) if document is not None] == full
    queries = index.models.queries().encode(QUERIES)
    expected = ExactIndex(encode(toy_model, full, dtype="float32"), ids).search(queries, 40)
    same(index.search(QUERIES, 40, vectors=queries, weights="sparse"), expected, 1e-4)
    assert vo.search(index, QUERIES, 3, explain=True)[0].hits[0].explanation is not None
    assert index.built is not None
    assert index.built.texts == len(full)


def test_a_wrong_item_of_a_list_is_named(toy_model: SparseEncoder) -> None:
    for wrong, message in (
        ([Document("a", "fox"), 3], r"corpus\[1\] .*int"),
        ([Document("a", "fox"), Document("a", "owl")], r"corpus\[1\]: .*'a'"),
        (["fox", "  "], r"corpus\[1\]"),
        ([], "no documents"),
        ({"id": "a", "text": "fox"}, "dict"),
    ):
        with pytest.raises(ArgumentError, match=message):
            vo.index(toy_model, wrong, **OPTIONS)  # type: ignore[arg-type]
    for option in ({"base_url": "https://host/"}, {"all_pages": True}, {"code": False}):
        with pytest.raises(ArgumentError, match=next(iter(option))):
            vo.index(toy_model, ["fox"], **option, **OPTIONS)  # type: ignore[arg-type]


def test_an_index_in_memory_changes_and_is_saved(
    toy_model: SparseEncoder, documents: list[Document], tmp_path: Path
) -> None:
    index = vo.index(toy_model, documents[:30], **OPTIONS)
    assert vo.add(index, documents[20:]).added == 10
    assert vo.delete(index, [documents[0].id, "no such"]).deleted == 1
    assert_whole(index, documents[1:])
    index.keep_weights({"sparse": 0.3, "bm25": 0.7})
    index.save(tmp_path / "index")
    with pytest.raises(ArgumentError, match=re.escape(str(tmp_path / "index"))):
        index.save(tmp_path / "index")
    index.add([documents[0]])
    with vo.open_index(tmp_path / "index", device="cpu") as saved:
        assert saved.kept_weights == {"sparse": 0.3, "bm25": 0.7}
        assert_whole(saved, documents[1:])
        with pytest.raises(ArgumentError, match=re.escape(str(tmp_path / "index"))):
            saved.save(tmp_path / "other")
        assert saved.add([documents[0]]).added == 1
        for options in ({}, {"weights": "sparse"}, {"weights": "bm25=1"}):
            rankings = [opened.search(QUERIES, 40, **options) for opened in (index, saved)]  # type: ignore[arg-type]
            for number in range(len(QUERIES)):
                assert rankings[0].hits(number) == rankings[1].hits(number)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index"]


@pytest.mark.parametrize("bits", [8, 16])
def test_weights_are_rounded_in_memory_as_in_a_folder(
    toy_model: SparseEncoder, documents: list[Document], tmp_path: Path, bits: int
) -> None:
    options: Any = {"engine_options": {"weight_bits": bits}, **OPTIONS}
    index = vo.index(toy_model, documents, **options)
    ids = [document.id for document in documents]
    truth = encode(toy_model, [document.full for document in documents], dtype="float32").toarray()
    error = np.abs(index.vectors(ids).toarray() - truth).max()
    assert 0 < error <= 2 / (2**bits - 1) * truth.max()
    index.save(tmp_path / "saved")
    vo.index(toy_model, documents, tmp_path / "folder", **options).close()
    for name in ("saved", "folder"):
        with vo.open_index(tmp_path / name) as opened:
            np.testing.assert_array_equal(opened.vectors(ids).toarray(), index.vectors(ids).toarray())


def test_an_index_is_pickled_as_its_place(
    model: str, documents: list[Document], tmp_path: Path, toy_model: SparseEncoder
) -> None:
    with vo.index(model, documents, tmp_path / "index", **OPTIONS) as collection:
        copied = pickle.loads(pickle.dumps(collection))
        assert copied.models.device == "cpu"
        assert copied.search(QUERIES, 5).hits(0) == collection.search(QUERIES, 5).hits(0)
        collection.delete([documents[3].id])
        assert len(copied) == 39
        copied.close()
        assert len(collection) == 39
    with pytest.raises(ArgumentError):
        pickle.dumps(vo.index(toy_model, documents, **OPTIONS))


def _best(collection: Collection, query: str) -> list[tuple[str, float]]:
    hits: list[tuple[str, float]] = collection.search([query], 3, weights="bm25=1").hits(0)
    return hits


def test_threads_and_processes_share_an_index(model: str, documents: list[Document], tmp_path: Path) -> None:
    with vo.index(model, documents[:20], tmp_path / "index", **OPTIONS) as collection:
        with ThreadPoolExecutor(8) as threads:
            changes = [*threads.map(lambda document: collection.add([document]), documents[20:])]
        assert [change.added for change in changes] == [1] * 20
        assert (max(change.documents for change in changes), len(collection)) == (40, 40)
        expected = [_best(collection, query) for query in QUERIES]
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            assert pool.starmap(_best, [(collection, query) for query in QUERIES]) == expected


def test_a_view_of_one_commit_stays_as_it_is(model: str, documents: list[Document], tmp_path: Path) -> None:
    with vo.index(model, documents[:30], tmp_path / "index", **OPTIONS) as collection:
        view = collection.current()
        expected = view.search(QUERIES, 40)
        collection.add([*documents[30:], documents[0]._replace(text="another text")])
        collection.delete([documents[1].id])
        assert (len(view), len(collection), len(view.current())) == (30, 39, 30)
        assert view.documents([documents[0].id, documents[1].id, documents[35].id]) == [*documents[:2], None]
        for number in range(len(QUERIES)):
            assert view.search(QUERIES, 40).hits(number) == expected.hits(number)
        assert_whole(view, documents[:30])
        assert len(collection.current()) == 39
        with pytest.raises(ArgumentError):
            view.store.delete([documents[0].id])


def test_indexes_of_one_folder_are_closed_apart(model: str, documents: list[Document], tmp_path: Path) -> None:
    vo.index(model, documents, tmp_path / "index", **OPTIONS).close()
    first, second = (vo.open_index(tmp_path / "index", device="cpu") for _ in range(2))
    first.close()
    assert len(second.search(QUERIES)) == len(QUERIES)
    assert second.delete([documents[0].id]).deleted == 1
    second.close()
    with pytest.raises(VectorsError):
        second.search(QUERIES)


@pytest.fixture
def _no_files(tmp_path: Path) -> Iterator[None]:
    before = sorted(tmp_path.rglob("*"))
    yield
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("_no_files")
def test_an_index_in_memory_writes_no_file(
    toy_model: SparseEncoder, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    index = vo.index(toy_model, documents, **OPTIONS)
    assert repr(index) == f"Collection('memory', 40 documents, model={index.models.name!r})"
    assert not index.store.about.durable
    assert index.store.nbytes is not None
    assert index.store.nbytes > 0
    assert json.loads(json.dumps(index.to_json()))["texts"] == 40
    index.close()


def test_words_count_for_all_kinds_of_a_document_without_vectors(unfinished: Callable[[int], Path]) -> None:
    with vo.open_index(unfinished(1)) as index:
        lacking = {document.id for document in index.store.without_vectors()}
        rankings = {space: index.search(QUERIES, 40, weights=space) for space in ("sparse", "bm25")}
        fused = index.search(QUERIES, 40)
    for number in range(len(QUERIES)):
        expected = dict[str, float]()
        for space, ranking in rankings.items():
            hits = ranking.hits(number)
            scores = [score for _, score in hits]
            for name, score in hits:
                spread = scores[0] - scores[-1]
                part = (score - scores[-1]) / spread if spread else 1.0
                factor = 2 if space == "bm25" and name in lacking else 1
                expected[name] = expected.get(name, 0.0) + factor * part
        assert dict(fused.hits(number)) == pytest.approx(expected, rel=1e-5)
    assert lacking & {name for number in range(len(QUERIES)) for name, _ in fused.hits(number)[:1]}


def test_a_folder_of_code_counts_identifiers_by_their_parts_and_is_read_again_the_same(
    toy_model: SparseEncoder, tmp_path: Path
) -> None:
    source = tmp_path / "project"
    source.mkdir()
    (source / "lamps.py").write_text("def light_all(lamps):\n    return [lamp.on() for lamp in lamps]\n")
    (source / "README.md").write_text("# Lamps\n\nThey burn.\n")
    vo.index(toy_model, source, tmp_path / "index", base_url="https://host/blob", device="cpu").close()
    with vo.open_index(tmp_path / "index") as opened:
        assert (opened.settings.language, opened.settings.code) == ("english+code", True)
        [best, *_] = vo.search(opened, ["light all"], weights="bm25")[0].hits
        assert "lamps.py:1 light_all" in best.printed().splitlines()[0]
        assert best.document.fields["url"] == "https://host/blob/lamps.py#L1-L2"
    # More pages than code: the index keeps to code.
    for name in "abc":
        (source / f"{name}.md").write_text(f"# {name}\n\nText.\n")
    (source / "lamps.py").write_text("\ndef light_all(lamps):\n    return 1\n")
    changed = vo.add(tmp_path / "index", source)
    assert (changed.added, changed.replaced) == (3, 1)
    assert vo.add(tmp_path / "index", source / "lamps.py").unchanged == 1
    # As words of english, and without code, if one says so.
    pages = vo.index(toy_model, source, tmp_path / "pages", language="english", device="cpu")
    assert (len(pages), pages.settings.language, pages.settings.code) == (4, "english", False)
    pages.close()


def test_a_folder_of_many_documents_is_read_once_and_not_for_wrong_arguments(
    toy_model: SparseEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, reads = import_module("vocable.collection.index"), list[str]()
    read = module.read_corpus
    monkeypatch.setattr(module, "MOST_HELD", 2)
    monkeypatch.setattr(module, "read_corpus", lambda *args, **given: reads.append(args[0]) or read(*args, **given))
    (tmp_path / "pages").mkdir()
    for name in "abcde":
        (tmp_path / "pages" / f"{name}.md").write_text(f"# {name}\n\nLamps burn.\n")
    with pytest.raises(ArgumentError) as error:
        vo.index(toy_model, tmp_path / "pages", tmp_path / "index", dense="vocable-mini-dense", no_dense=True)
    assert str(error.value) == "dense and no_dense exclude each other"
    assert reads == []
    with vo.index(toy_model, tmp_path / "pages", tmp_path / "index", device="cpu") as made:
        assert len(made) == 5
    assert len(reads) == 1
