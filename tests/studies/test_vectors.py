"""Vectors of a study's datasets: what they take is known before, texts are held once, indexes are those of all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vocable as vo
from studies import cost, vectors
from studies.cost import Resources, free_memory
from studies.runs import Run
from studies.vectors import Encoders, Place, check_room
from tests.evaluation.rankings import sparse_ranking
from vocable.encoding import stream
from vocable.errors import ArgumentError
from vocable.evaluation.encoded import encode_dataset
from vocable.indexes import exact_shards

WORDS = ["snow", "rain", "hail", "sun", "wind", "fog", "storm", "ice", "cloud", "thunder"]


def collection(folder: Path, documents: dict[str, str]) -> str:
    """Write a BEIR folder with a query of each of the first three documents."""
    folder.mkdir()
    rows = [{"_id": name, "text": text} for name, text in documents.items()]
    queries = [{"_id": f"q{number}", "text": row["text"][:30]} for number, row in enumerate(rows[:3])]
    for file, some in (("corpus", rows), ("queries", queries)):
        (folder / f"{file}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    judged = [f"q{number}\t{row['_id']}\t1" for number, row in enumerate(rows[:3])]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    return f"beir:{folder}"


@pytest.fixture
def encoders(tmp_path: Path) -> Encoders:
    texts = {f"d{17 * n % 60}": f"{n} days of {WORDS[n % 10]} and {WORDS[n % 7]}" for n in range(60)}
    first = collection(tmp_path / "first", texts)
    shared = dict(reversed([*texts.items()][10:50])) | {"d0": "another text", "new": "a new text of snow"}
    second = collection(tmp_path / "second", shared)
    places = {"first": Place(first, "first"), "second": Place(second, "first")}
    return Encoders(Run("run", tmp_path / "out", model="vocable-mini"), places)


def test_shared_documents_are_held_and_encoded_once(encoders: Encoders) -> None:
    first, second = encoders.open("first").dataset, encoders.open("second").dataset
    known = {id(document) for document in first.documents}
    own = [document for document in second.documents if id(document) not in known]
    assert {document.id for document in own} == {"d0", "new"}
    assert len(second.documents) == 42 - (not any(one.id == "d0" for one in second.documents))
    encoders.let_go()
    assert "dataset" not in vars(encoders.open("first")) | vars(encoders.open("second"))


@pytest.mark.slow
@pytest.mark.parametrize("max_terms", [0, 6])
@pytest.mark.parametrize("name", ["first", "second"])
def test_an_index_finds_what_all_vectors_in_memory_find(
    encoders: Encoders, name: str, max_terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = encoders.open(name)
    monkeypatch.setattr(on, "_postings", 500)
    index = on.index(max_terms)
    encoded = encode_dataset(vo.load("vocable-mini"), on.dataset)
    encoded = encoded._replace(documents=vo.prune(encoded.documents, max_terms or None))
    expected = sparse_ranking(encoded, k=20)
    found = index.search(encoded.queries, 20)
    for query in range(3):
        assert [hit for hit, _ in found.hits(query)] == [hit for hit, _ in expected.hits(query)]
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    assert on.index(max_terms) is index
    assert len([*(encoders.vectors).glob(f"{name}-index-{max_terms}/postings/shard-*")]) > 1 or max_terms
    encoders.close()
    assert not encoders.vectors.exists()


def test_a_run_that_does_not_fit_is_refused_by_a_sample(encoders: Encoders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "FEW", 50)
    monkeypatch.setattr(vectors, "SAMPLE", 8)
    seen: list[Any] = []
    monkeypatch.setattr(vectors, "check_room", lambda *given: seen.append(given))
    assert encoders.open("first").index().shape[0] == 60
    [(name, needed, disk, memory)] = seen
    terms = encoders.open("first").index().document_frequency.sum() / 60
    assert (name, needed.texts) == ("first", 60)
    assert needed.terms == pytest.approx(terms, rel=0.2)
    assert disk > 1e6
    assert memory is None or memory > 1e6


@pytest.mark.slow
def test_a_killed_measurement_asks_for_no_room_again_and_indexes_anew(
    encoders: Encoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(vectors, "FEW", 50)
    on, asked = encoders.open("first"), list[Any]()
    monkeypatch.setattr(vectors, "check_room", lambda *given: asked.append(given))
    for module, name in ((stream, "finish"), (vectors, "save_exact")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, killed)
            with pytest.raises(KeyboardInterrupt):
                on.index()
    assert len(on.index()) == 60
    assert len(asked) == 1
    assert {path.name for path in encoders.vectors.iterdir()} == {"first-document", "first-index-0"}


def test_room_for_vectors_and_an_index_is_compared_with_what_there_is() -> None:
    needed = Resources.of(8_841_823, 1000)
    assert needed.disk == pytest.approx(8_841_823 * 1000 * 11.5)
    assert needed.memory == 24 * exact_shards.SHARD_POSTINGS < 4e9  # not in proportion to the terms
    assert Resources.of(1000, 100).memory == 24 * 100_000
    check_room("MSM", needed, 200e9, None)
    with pytest.raises(ArgumentError, match=r"MSM: 8,841,823 texts of 1,000 terms.*102 GB of disk.*47 GB.*--output"):
        check_room("MSM", needed, 47e9, 64e9)
    with pytest.raises(ArgumentError):
        check_room("MSM", needed, 200e9, 2e9)


def test_free_memory_is_that_of_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_memory()
    assert free is None or free > 1e6
    (tmp_path / "max").write_text("3000\n")
    (tmp_path / "current").write_text("1000\n")
    monkeypatch.setattr(cost, "CONTAINER", [(str(tmp_path / "max"), str(tmp_path / "current")), ("none", "none")])
    assert free is None or free_memory() == 2000
    (tmp_path / "max").write_text("max\n")
    assert free is None or (free_memory() or 0) > 1e6
