"""Hits with the same title and text are one hit, in every search that shows documents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.copies import also_in, content_of, merged
from vocable.collection.index import index
from vocable.data import Document
from vocable.indexes.ranking import read_trec

QUERY = "a librarian or a compiler reads posting lists, jumped over the dog and forgets queries at night"
CONTENTS = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["x", " x\n", "y"])), max_size=12)


@pytest.fixture(scope="module", params=["folder", "memory", "passages"])
def opened(
    request: pytest.FixtureRequest, backbones: dict[str, Path], toy_texts: list[str], tmp_path_factory: Any
) -> Iterator[Collection]:
    """30 texts; every third is there three times, once with other white space."""
    folder = tmp_path_factory.mktemp("copies")
    rows = []
    for number, text in enumerate(sorted(set(toy_texts))[:30]):
        copies = [text, f" {text.replace(' ', chr(10))}", text] if number % 3 == 0 else [text]
        rows += [{"_id": f"{copy}/{number}", "title": "T", "text": written} for copy, written in enumerate(copies)]
    rows.append({"_id": "other", "title": "Another title", "text": rows[0]["text"]})
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    passages = request.param == "passages"
    options = {"max_length": 6, "long_documents": "passages"} if passages else {}
    place = None if request.param == "memory" else folder / "index"
    made = index(str(backbones["bert"]), folder / "corpus.jsonl", place, bm25=True, device="cpu", **options)
    yield made
    made.close()


@pytest.mark.parametrize("way", [{}, {"weights": "sparse"}, {"weights": "bm25=1"}, {"explain": True}])
def test_copies_are_one_hit_that_names_them(opened: Collection, way: dict[str, Any]) -> None:
    [answer] = search(opened, [QUERY], 40, **way)
    contents = [content_of(hit.document) for hit in answer.hits]
    assert len(set(contents)) == len(contents) > 1
    assert [hit.rank for hit in answer.hits] == [*range(1, len(contents) + 1)]
    merged_hits = [hit for hit in answer.hits if hit.copies]
    assert merged_hits
    for hit in merged_hits:
        [first, *others] = sorted([hit.document.id, *hit.copies])
        assert [first, *others] == [f"{copy}/{first[2:]}" for copy in range(3)]
        assert hit.to_json()["copies"] == list(hit.copies)
        assert f"also in {', '.join(hit.copies)}" in str(hit)


@pytest.mark.parametrize("way", [{}, {"weights": "sparse"}])
def test_pages_of_merged_hits_are_one_long_search(opened: Collection, way: dict[str, Any]) -> None:
    whole = [hit.document.id for hit in search(opened, [QUERY], 20, **way)[0].hits]
    pages = [search(opened, [QUERY], 3, offset=start, **way)[0].hits for start in range(0, 21, 3)]
    assert [hit.document.id for page in pages for hit in page][: len(whole)] == whole
    assert all(len(page) == 3 for page in pages[: len(whole) // 3])


def test_a_run_has_every_copy(opened: Collection, tmp_path: Path) -> None:
    answers = search(opened, [QUERY], 20, run=tmp_path / "run")
    names = [hit.doc_id for hit in read_trec(tmp_path / "run")]
    assert names == [name for name, _ in opened.search([QUERY], 20).hits(0)]
    assert len({name[2:] for name in names}) < len(names) == 20
    assert answers.ranking.hits(0) == opened.search([QUERY], 20).hits(0)


@given(CONTENTS, st.integers(1, 5))
def test_the_best_hit_stands_for_its_copies(contents: Sequence[tuple[str, str]], k: int) -> None:
    documents = {f"d{at}": Document(f"d{at}", text, title) for at, (title, text) in enumerate(contents)}
    read = list[str]()

    def documents_of(ids: Sequence[str]) -> list[Document | None]:
        read.extend(ids)
        return [documents[identifier] for identifier in ids]

    hits = merged([(name, 1.0) for name in documents], k, documents_of)
    groups: dict[tuple[str, str], list[str]] = {}
    for name, document in documents.items():
        groups.setdefault((document.title, document.text.strip()), []).append(name)
    assert [hit.document.id for hit in hits] == [names[0] for names in groups.values()][:k]
    assert len(read) <= len(documents)
    for hit, names in zip(hits, groups.values(), strict=False):
        assert [hit.document.id, *hit.copies] == [name for name in names if name in read]


def test_many_copies_are_counted() -> None:
    assert also_in([f"p{number}" for number in range(7)], 80) == "also in p0, p1, p2 and 4 more copies"
    assert also_in(["p0", "p1", "p2", "p3"], 80) == "also in p0, p1, p2 and 1 more copy"
