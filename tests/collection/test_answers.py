"""Pages of a search, hits above a score, documents like another, and suggestions."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from vocable.collection import suggestion as suggestion_module
from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.collection.search import LIKE_TERMS
from vocable.collection.suggestion import suggestion as suggested
from vocable.encoding.pruning import prune
from vocable.errors import ArgumentError
from vocable.indexes.fusion import MIN_DEPTH, ScoreParts
from vocable.indexes.ranking import read_trec

QUERIES = ["the old fox reads", "posting lists at night"]
WAYS: list[dict[str, Any]] = [
    {},
    {"weights": "sparse"},
    {"fusion": "reciprocal-rank"},
    {"filter": "lang=en"},
    {"weights": "bm25=1"},
]


@pytest.fixture(scope="module", params=["folder", "memory", "passages"])
def collection(
    request: pytest.FixtureRequest, backbones: dict[str, Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collection]:
    place, options = tmp_path_factory.mktemp("made") / "index", dict[str, Any]()
    if request.param == "passages":
        options = {"max_length": 12, "long_documents": "passages"}
    output = None if request.param == "memory" else place
    made = index(str(backbones["bert"]), corpus, output, bm25=True, dtype="float32", device="cpu", **options)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_pages_are_one_long_search(collection: Collection, way: dict[str, Any]) -> None:
    whole = search(collection, QUERIES, 30, **way)
    pages = [search(collection, QUERIES, 7, offset=start, **way) for start in range(0, 30, 7)]
    for number, answer in enumerate(whole):
        found = [(hit.rank, hit.document.id, hit.score) for page in pages for hit in page[number].hits]
        assert found[:30] == [(hit.rank, hit.document.id, hit.score) for hit in answer.hits]
        assert [rank for rank, *_ in found] == [*range(1, len(found) + 1)]
    assert search(collection, QUERIES, 3, offset=1000, **way)[0].hits == ()


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_hits_below_a_score_are_left_out(collection: Collection, way: dict[str, Any]) -> None:
    whole = search(collection, QUERIES, 30, **way)
    least = whole[0].hits[4].score
    found = search(collection, QUERIES, 20, min_score=least, offset=2, **way)
    for answer, expected in zip(found, whole, strict=True):
        assert [hit.document.id for hit in answer.hits] == [
            hit.document.id for hit in expected.hits[2:22] if hit.score >= least
        ]
    above = float(np.nextafter(np.float32(whole[0].hits[0].score), np.float32(np.inf)))
    assert search(collection, QUERIES[:1], 5, min_score=above, **way)[0].hits == ()


@pytest.mark.parametrize(
    "way",
    [WAYS[0], WAYS[2], WAYS[4], {"weights": "sparse=2,bm25=0.5", "sort": "lang", "offset": 2, "min_score": 0.1}],
    ids=str,
)
def test_parts_sum_up_to_the_score(collection: Collection, way: dict[str, Any]) -> None:
    answers, explained = (search(collection, QUERIES, 9, explain=explain, **way) for explain in (False, True))
    for query, answer, why in zip(QUERIES, answers, explained, strict=True):
        assert answer.hits
        assert [hit.parts for hit in answer.hits] == [hit.parts for hit in why.hits]
        for hit in answer.hits:
            assert hit.parts is not None
            assert hit.parts.words is not None
            assert sum(hit.parts.kinds.values()) == pytest.approx(hit.score, rel=1e-5)
            assert hit.to_json()["parts"] == {"kinds": hit.parts.kinds, "words": list(hit.parts.words)}
            there = set(re.findall(r"\w+", hit.document.full.lower()))
            assert {*query.split()} & there - {"the", "at"} <= {*hit.parts.words} <= {*query.split()} - {"the", "at"}
            assert hit.parts.words or not hit.parts.kinds["bm25"]
    [alone] = search(collection, QUERIES[:1], 1, weights="sparse")[0].hits
    assert alone.parts == ScoreParts({"sparse": pytest.approx(alone.score)})
    assert alone.to_json()["parts"] == {"kinds": {"sparse": alone.score}}


def test_a_run_begins_after_the_offset(collection: Collection, tmp_path: Path) -> None:
    answers = search(collection, QUERIES, 3, offset=5, run=tmp_path / "run")
    lines = [line.split() for line in (tmp_path / "run").read_text(encoding="utf-8").splitlines()]
    assert [int(line[3]) for line in lines] == [6, 7, 8] * 2
    assert [hit.doc_id for hit in read_trec(tmp_path / "run")] == [
        hit.document.id for answer in answers for hit in answer.hits
    ]


def test_pages_of_other_fusions_are_refused(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vocable.collection.plan.MIN_DEPTH", 20)
    assert MIN_DEPTH == 100
    assert search(collection, QUERIES, 10, offset=10)[0].hits[0].rank == 11
    assert search(collection, QUERIES, 21)
    assert search(collection, QUERIES, 10, offset=11, weights="sparse")
    with pytest.raises(ArgumentError):
        search(collection, QUERIES, 10, offset=11)
    with pytest.raises(ArgumentError):
        search(collection, QUERIES, offset=-1)


@pytest.mark.parametrize("terms", [None, 3])
def test_documents_like_another_are_ranked_by_products_of_vectors(collection: Collection, terms: int | None) -> None:
    names = [f"d{i}" for i in range(40)]
    query, passages = collection.units.vectors(["d7", "d20"], "sparse"), not collection.units.are_documents
    vectors = csr_array(
        collection.store.vectors([one for one in collection.store.ids() if "\t" in one or not passages])
    )
    owners = [one.partition("\t")[0] for one in collection.store.ids() if "\t" in one or not passages]
    scores = (prune(csr_array(query), terms or LIKE_TERMS) @ vectors.T).toarray()
    for own, row in zip(("d7", "d20"), scores, strict=True):
        [answer] = search(collection, k=40, like=own, **({} if terms is None else {"max_terms": terms}))
        best = {name: max(row[i] for i, owner in enumerate(owners) if owner == name) for name in names if name != own}
        expected = {name: score for name, score in best.items() if score > 0}
        assert {hit.document.id: hit.score for hit in answer.hits} == pytest.approx(expected, rel=1e-5)
        assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
        assert (answer.query.id, answer.suggestion) == (own, None)
    pages = [hit for start in (0, 4, 8) for hit in search(collection, k=4, like="d7", offset=start)[0].hits]
    assert [(hit.rank, hit.document.id) for hit in pages] == [
        (hit.rank, hit.document.id) for hit in search(collection, k=12, like="d7")[0].hits
    ]


def test_the_terms_of_documents_like_another_are_explained(collection: Collection) -> None:
    for hit in search(collection, k=3, like="d7", explain=True)[0].hits:
        assert hit.explanation is not None
        assert hit.explanation.score == pytest.approx(hit.score, rel=1e-4)
        assert hit.snippet is not None
        assert {mark.term for mark in hit.snippet.marks} <= {match.term for match in hit.explanation.matches}


def test_words_have_no_part_in_documents_like_another(collection: Collection) -> None:
    usual, alone = (search(collection, k=9, like="d7", **way) for way in WAYS[:2])
    assert usual.to_json() == alone.to_json()
    with pytest.raises(ArgumentError):
        search(collection, k=9, like="d7", weights="bm25=1")
    with pytest.raises(ArgumentError):
        search(collection, like="d99")
    with pytest.raises(ArgumentError):
        search(collection)
    given: dict[str, Any]
    for given in ({"queries": QUERIES, "like": "d7"}, {"query_idf": 1.0, "like": "d7"}):
        with pytest.raises(ArgumentError):
            search(collection, **given)


@pytest.mark.parametrize(
    ("query", "suggestion"),
    [
        ("the librarain reads bokks", "the librarian reads books"),
        ("Librarain: vectros?", "librarian: vectors?"),
        ("idnexes", "indexes"),
        ("the old fox reads books", None),
        ("xylophone of 東亰都", None),
        ("librarain of 1804.10959, IL-2131", "librarian of 1804.10959, IL-2131"),  # names with signs stay
        ("fxo", None),  # too short to guess
        ("", None),
    ],
)
def test_words_that_no_document_has_get_a_suggestion(
    collection: Collection, query: str, suggestion: str | None
) -> None:
    assert suggested(collection, query) == suggestion
    assert search(collection, [query])[0].to_json().get("suggestion") == suggestion


def test_the_first_unknown_words_get_suggestions_wherever_they_stand(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    nearest = suggestion_module._nearest
    monkeypatch.setattr(
        suggestion_module, "_nearest", lambda given, word: looked_up.append(word) or nearest(given, word)
    )
    unknown = [f"zzyzx{letters}" for letters in ("aa", "bb", "cc", "dd")]
    query = " ".join(["librarain", *unknown, "bokks", "Librarain", "librarain"])
    assert suggested(collection, query) == " ".join(["librarian", *unknown, "bokks", "Librarain", "librarian"])
    assert looked_up == ["librarain", *unknown]
    note = search(collection, [" ".join(f"zzyzx{number}" for number in range(11_000))])[0].note
    assert note is not None
    assert "zzyzx4 and 495 others" in note


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("the librarain reads Bokks", "no document has the words librarain, Bokks"),
        ("a librarian reads books", None),
        ("the of", None),
        ("How does the librarian's book ... why can't it? WHAT", None),
        ("why would we do this? A banjo", "no document has the word banjo: these hits are guesses by pieces of it"),
        ("東亰 xylophone", "no document has the words 東亰, xylophone: these hits are guesses by {}"),
        (
            "Xylophone xylophone-xylophone",
            "no document has the words Xylophone, xylophone: these hits are guesses by {}",
        ),
        (
            "xa xb xc xd xe xf reads",
            "no document has the words xa, xb, xc, xd, xe and 1 other",
        ),
        ("", None),
    ],
)
def test_words_that_no_document_has_are_named(collection: Collection, query: str, note: str | None) -> None:
    [answer] = search(collection, [query], 1)
    if note is not None and answer.hits:
        note = note.format("pieces of them")
    elif note is not None:
        note = note.partition(":")[0]
    assert answer.note == answer.to_json().get("note") == note
    if note is not None:
        assert str(answer).startswith(note)
        assert note in answer._repr_html_()
    [by_words] = search(collection, [query], 1, weights="bm25=1")
    assert by_words.note == (note if note is None or "guesses" not in note else note.partition(":")[0])
    assert search(collection, k=1, like="d7")[0].note is None


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("東京", None),
        ("東京の寺院", None),  # a document has a pair of its letters
        ("城", None),  # BM25 compares pairs alone
        ("京都", "no document has the word 京都: these hits are guesses by pieces of it"),
        ("大坂 富士山", "no document has the word 大坂"),
        ("京都 サクラ", "no document has the words 京都, サクラ: these hits are guesses by pieces of them"),
        ("สวัสดี", "no document has the word สวัสดี: these hits are guesses by pieces of it"),
    ],
)
def test_words_of_a_script_without_spaces_are_named_if_no_pair_of_letters_is_known(
    tmp_path: Path, query: str, note: str | None
) -> None:
    texts = ["東京は日本の首都", "富士山に登る", "大阪の城", "ภาษาไทย"]
    rows = (json.dumps({"_id": str(number), "text": text}) for number, text in enumerate(texts))
    (tmp_path / "corpus.jsonl").write_text("\n".join(rows), "utf-8")
    with index("vocable-mini-doc", tmp_path / "corpus.jsonl", tmp_path / "index") as collection:
        [answer] = search(collection, [query], 1)
        assert answer.note == (note if note is None or answer.hits else note.partition(":")[0])
        assert suggested(collection, query) is None


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_suggestions_are_words_as_they_are_written(kind: str, backbones: dict[str, Path], tmp_path: Path) -> None:
    texts = ["Expansion and a dimension.", "The quantization of integers", "An explanation", "Compressed documents"]
    texts += ["compression " * 3, "Documentation is compressed", "the system integration"]
    rows = (json.dumps({"_id": str(number), "text": text}) for number, text in enumerate(texts))
    (tmp_path / "corpus.jsonl").write_text("\n".join(rows), "utf-8")
    output = tmp_path / "index" if kind == "folder" else None
    made = index(str(backbones["bert"]), tmp_path / "corpus.jsonl", output, bm25=True, device="cpu")
    for typed, suggestion in {
        "expantion dimention": "expansion dimension",
        "quantizaton": "quantization",  # its stem is four edits from that of the right word
        "explanaton": "explanation",
        "integratoin": "integration",
        "Compresion": "compression",
        "documantation": "documentation",
        "expands": None,  # its stem is one edit from another, the word itself three
        "qantizaton": "quantization",
        "integrats": None,
    }.items():
        assert suggested(made, typed) == suggestion
    made.close()


def test_an_error_of_an_answer_is_not_the_end_of_all(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise IndexError("a fault")

    answers = search(collection, QUERIES)
    monkeypatch.setattr(type(collection), "documents", fails)
    with pytest.raises(IndexError):
        list(answers)


def test_an_answer_is_computed_once(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = search(collection, QUERIES, 3, explain=True)
    first = answers[0]
    monkeypatch.setattr(type(collection), "documents", None)
    assert answers[0] is first
    assert answers[:1] == [first]


@pytest.mark.parametrize("options", [{}, {"explain": True}, {"filter": "lang=en", "facets": "lang"}])
def test_answers_outlive_their_index(
    backbones: dict[str, Path], corpus: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    made = index(str(backbones["bert"]), corpus, tmp_path / "index", bm25=True, dtype="float32", device="cpu")
    expected = search(made, QUERIES, 5, **options).to_json()
    answers, pickled = search(made, QUERIES, 5, **options), pickle.dumps(search(made, QUERIES, 5, **options))
    made.delete([hit["id"] for answer in expected for hit in answer["hits"]])  # type: ignore[attr-defined]
    made.close()
    shutil.rmtree(tmp_path / "index")
    assert answers.to_json() == expected
    copied = pickle.loads(pickled)
    assert copied.to_json() == expected
    assert str(copied) == str(answers)
    assert copied.ranking.to_run(["1", "2"]) == answers.ranking.to_run(["1", "2"])
    np.testing.assert_array_equal(copied.vectors.toarray(), answers.vectors.toarray())


def test_answers_are_of_the_commit_that_was_searched(backbones: dict[str, Path], corpus: Path) -> None:
    made = index(str(backbones["bert"]), corpus, bm25=True, dtype="float32", device="cpu")
    expected = search(made, QUERIES, 5, explain=True).to_json()
    answers = search(made, QUERIES, 5, explain=True)
    best = answers.ranking.hits(0)[0][0]
    made.delete([best])
    assert answers.to_json() == expected
    assert best not in dict(search(made, QUERIES, 5).ranking.hits(0))
