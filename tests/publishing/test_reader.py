"""The reader against an exact search of the same index: scores within the rounding, filters, damage."""

from __future__ import annotations

import shutil
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.publishing.conftest import Node
from tests.publishing.reader import PublishedSite
from tests.toys import write_corpus
from vocable.collection.collection import open_index
from vocable.collection.index import index
from vocable.data import Document
from vocable.errors import ArgumentError, VectorsError
from vocable.language.languages import language_of
from vocable.language.words import counted_words
from vocable.publishing.files import DATA
from vocable.publishing.publication import publish

QUERIES = ["the old fox", "Every compiler rewrites posting lists", "owl in Ålesund", "giraffe 3", "☃ unknown", ""]


def test_scores_are_those_of_the_index_within_the_rounding(indexed: Path, site: Path) -> None:
    """A weight is off by half a step of 1/255 of its term's largest, a score by the sum over its terms."""
    collection, published = open_index(indexed), PublishedSite(site)
    vectors = collection.models.queries().encode(QUERIES)
    stored = collection.vectors(published.ids)
    largest = stored.max(axis=0).toarray().ravel()
    exact = (stored @ vectors.T).toarray()
    ranking = published.search(QUERIES, k=len(published), hybrid=False)
    most = max(vectors[[row]].multiply(largest).max() for row in range(len(QUERIES)))
    for row in range(len(QUERIES)):
        rounding = vectors[[row]].multiply(largest).sum() / 255 / 2
        left_out = vectors[[row]].nnz * most / 255 / 2  # terms that add less than half a step
        found = np.zeros(len(published))
        hits = ranking.rows[row] >= 0
        found[ranking.rows[row][hits]] = ranking.scores[row][hits]
        np.testing.assert_allclose(found, exact[:, row], atol=rounding + left_out + 1e-4)
    assert (ranking.rows[-1] < 0).all()


@pytest.mark.parametrize("kept", [None, {"sparse": 0.3, "bm25": 0.7}, {"sparse": 1.0}, {"bm25": 1.0}], ids=str)
def test_a_search_is_that_of_the_index(
    kept: dict[str, float] | None, indexed: Path, tmp_path: Path, run_node: Node
) -> None:
    place = shutil.copytree(indexed, tmp_path / "index")
    with open_index(place) as collection:
        collection.keep_weights(kept)
        publish(collection, tmp_path / "site")
    published = PublishedSite(tmp_path / "site")
    with open_index(place) as collection:
        ours, theirs = published.search(QUERIES, 40), collection.search(QUERIES, 40)
    for row in range(len(QUERIES)):
        found, expected = dict(ours.hits(row)), dict(theirs.hits(row))
        if theirs.parts is not None and "verbatim" in theirs.parts:  # a site puts no verbatim match first
            expected |= {name: expected[name] - part for name, part in theirs.parts["verbatim"].hits(row)}
        common = found.keys() & expected.keys()
        assert len(common) >= 0.9 * len(expected)
        for name in common:
            assert found[name] == pytest.approx(expected[name], abs=0.025 * max(expected.values()))
    first = published.search(QUERIES)
    assert first.hits(0) == ours.hits(0)[:10]
    shown = run_node(SEARCHES, {"site": (tmp_path / "site").as_uri() + "/", "queries": QUERIES})
    assert [[tuple(hit) for hit in hits] for hits, _ in shown] == [first.hits(row) for row in range(len(QUERIES))]


def test_bm25_may_be_left_out(indexed: Path, tmp_path: Path) -> None:
    publish(indexed, tmp_path / "site", bm25=False)
    published = PublishedSite(tmp_path / "site")
    assert not published.manifest.words
    assert published.search(QUERIES[:1]).hits(0) == published.search(QUERIES[:1], hybrid=False).hits(0) != []
    with pytest.raises(ArgumentError):
        published.search(QUERIES[:1], hybrid=True)


def test_filters_of_the_reader_are_those_of_the_index(site: Path, rows: list[Document]) -> None:
    published = PublishedSite(site)
    by_id = {one.id: one for one in rows}
    fields = {field.name: field for field in published.manifest.fields}
    assert set(fields) >= {"lang", "tags", "kind"}
    assert "n" not in fields  # a value of its own in each document
    assert dict(zip(fields["tags"].values, fields["tags"].counts, strict=True)) == {"b": 40, "a": 20}
    passing = published.passing({"lang": ["de", "fr"], "tags": ["a"]})
    for name, passes in zip(published.ids, passing.tolist(), strict=True):
        about = by_id[name].fields
        assert passes == (about.get("lang") in ("de", "fr") and "a" in about.get("tags", ()))
    everything = published.search(["compiler librarian neighbour engine fox"], 60, hybrid=False).hits(0)
    some = published.search(["compiler librarian neighbour engine fox"], 60, hybrid=False, filter={"lang": ["de"]})
    assert some.hits(0) == [hit for hit in everything if by_id[hit[0]].fields.get("lang") == "de"] != []
    for wrong in ({"lang": ["xx"]}, {"none": ["de"]}, {"kind": [True]}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            published.search(QUERIES[:1], filter=wrong)  # type: ignore[arg-type]


def test_documents_are_shown_cut(indexed: Path, tmp_path: Path) -> None:
    publish(indexed, tmp_path / "site", characters=60)
    shown = {one.id: one for one in PublishedSite(tmp_path / "site").documents}
    assert all(len(one.text) <= 62 for one in shown.values())
    assert shown["<b>x</b>"].text.endswith(" …")
    assert shown["u1"].url == "../guide/owl/#at-night"
    assert shown["d1"].facts == {"lang": "en", "n": 1}


def test_no_damaged_file_is_searched(site: Path, tmp_path: Path) -> None:
    """Each file in turn is cut, has a bit flipped, or swapped with another: an error or the same hits, no others."""
    shutil.copytree(site, tmp_path / "site")
    expected = [PublishedSite(site).search(QUERIES).hits(row) for row in range(len(QUERIES))]
    files = [*sorted((tmp_path / "site" / DATA).iterdir()), tmp_path / "site" / "manifest.json"]
    rng, errors = np.random.default_rng(0), 0
    for number, path in enumerate(files):
        content = path.read_bytes()
        flipped = bytearray(content)
        flipped[rng.integers(len(content))] ^= 1 << rng.integers(8)
        wrong = [content[: rng.integers(len(content))], bytes(flipped), files[number - 1].read_bytes()][number % 3]
        path.write_bytes(wrong)
        try:
            found = PublishedSite(tmp_path / "site").search(QUERIES)
            assert [found.hits(row) for row in range(len(QUERIES))] == expected
        except VectorsError:
            errors += 1
        path.write_bytes(content)
    assert errors > len(files) / 2


TEXTS = {
    "english": ["Lists of the old fox", "One list, two foxes", "A librarian index", "The neighbour posts"],
    "danish": ["Husene i byen", "Et hus, mange huse", "Ræven sover", "Rævene i byerne"],
    "german": ["Die Häuser der Städte", "Ein Haus in der Stadt", "Der Fuchs schläft, die Füchse", "Größe und Größen"],
    "polish": ["Koty śpią w domach", "Kot śpi w domu", "Stare domy miasta", "Kotami w mieście"],
    "none": ["Häuser, Haus", "houses, house"],
}
SEARCHES = """
const { Collection } = await page("collection.js");
const found = await Collection.open(new URL(given.site));
return Promise.all(given.queries.map(async (query) => [
  (await found.search(query)).map(({ id, score }) => [id, score]), [...await found.marked(query)].sort()]));
"""


@pytest.mark.parametrize("language", list(TEXTS))
def test_words_of_a_language_have_the_stems_of_snowball(
    language: str, model: str, tmp_path: Path, run_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vocable.publishing.postings.POSTINGS_BYTES", 60)  # of stems in other files than their words
    texts = TEXTS[language]
    corpus = write_corpus([Document(str(row), text) for row, text in enumerate(texts)], tmp_path / "corpus.jsonl")
    options: dict[str, Any] = {"bm25": True, "device": "cpu"}
    index(model, corpus, tmp_path / "index", language=language, **options).close()
    publish(tmp_path / "index", tmp_path / "site")
    published = PublishedSite(tmp_path / "site")
    assert published.manifest.language == language
    words = sorted(set().union(*counted_words(texts, language)))
    stems = dict(zip(words, language_of(language).stems(words), strict=True))
    assert {word: published.stem(word) for word in words} == stems
    assert published.stem("unheardof") == "unheardof"
    vocabulary = [token for token in published.tokenizer.get_vocab() if token.isalpha() and token.islower()]
    others = [
        word for word in vocabulary if word not in words and language_of(language).stems([word])[0] in stems.values()
    ]
    assert [published.stem(word) for word in others] == language_of(language).stems(others)
    assert others or language != "english"
    queries = [*words, *(unicodedata.normalize("NFD", text) for text in texts), "unheardof"]
    found = run_node(SEARCHES, {"site": (tmp_path / "site").as_uri() + "/", "queries": queries}, language)
    ranking = published.search(queries)
    assert [[tuple(hit) for hit in hits] for hits, _ in found] == [ranking.hits(row) for row in range(len(queries))]
    for word, (_, marked) in zip(words, found, strict=False):
        same = {one for one in words if stems[one] == stems[word]}
        assert {marked_word for marked_word, _ in marked if marked_word in stems} == same


def test_words_are_marked_as_they_are_written_without_bm25(indexed: Path, tmp_path: Path, run_node: Node) -> None:
    publish(indexed, tmp_path / "site", bm25=False)
    script = """
    const { Collection } = await page("collection.js"), { markedParts } = await page("excerpt.js");
    const marked = await (await Collection.open(new URL(given.site))).marked(given.query);
    return markedParts(given.text, marked).filter(({ mark }) => mark).map(({ text }) => text);
    """
    given = {"site": (tmp_path / "site").as_uri() + "/", "query": "the old foxes", "text": "Foxes, a fox; Old, older"}
    assert run_node(script, given) == ["Foxes", "Old"]


def test_a_language_with_words_of_icu_is_published_without_bm25_alone(model: str, tmp_path: Path) -> None:
    pytest.importorskip("icu4py")
    corpus = write_corpus([Document("1", "東京都の猫")], tmp_path / "corpus.jsonl")
    index(model, corpus, tmp_path / "index", bm25=True, language="japanese+icu", device="cpu").close()
    with pytest.raises(ArgumentError, match=r"japanese\+icu"):
        publish(tmp_path / "index", tmp_path / "site")
    assert publish(tmp_path / "index", tmp_path / "site", bm25=False).words == 0
