"""The standing of a document in a search, compared with the search and with products of the vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vocable.collection.answers import search
from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.collection.standing import Standing, explain
from vocable.encoding.protocol import EncodedTexts
from vocable.errors import ArgumentError
from vocable.explanation.explain import Expansion, Explanation, expand_text, explain_texts

QUERY = "the old fox reads"


@pytest.fixture(scope="module", params=["documents", "passages"])
def collection(
    request: pytest.FixtureRequest, backbones: dict[str, Path], corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Collection]:
    place, options = str(tmp_path_factory.mktemp("made") / "index"), dict[str, Any]()
    if request.param == "passages":
        options = {"max_length": 12, "long_documents": "passages"}
    made = index(str(backbones["bert"]), corpus, place, bm25=True, dtype="float32", device="cpu", **options)
    yield made
    made.close()


def standing(collection: Collection, name: str, **options: Any) -> Standing:
    found = explain(collection, QUERY, name, **options)
    assert isinstance(found, Standing)
    return found


WAYS: list[dict[str, Any]] = [{}, {"weights": "sparse"}, {"weights": "bm25=1"}, {"filter": "lang=en"}]
PRUNED: dict[str, Any] = {"max_terms": 3, "query_idf": 1.0}


@pytest.mark.parametrize("way", [*WAYS, PRUNED], ids=str)
def test_ranks_and_scores_are_those_of_the_search(
    collection: Collection, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vocable.collection.standing.MIN_DEPTH", 3)  # deeper searches follow
    [answer] = search(collection, [QUERY], 40, explain=True, **way)
    for hit in answer.hits[:: len(answer.hits) // 4]:
        found = standing(collection, hit.document.id, k=2, **way)
        assert (found.rank, found.score, found.passes) == (hit.rank, hit.score, True if "filter" in way else None)
        assert found.last_score == answer.hits[1].score
        assert found.parts == hit.parts
        assert (f"parts: {hit.parts}" in " ".join(str(found).split())) == (way != {"weights": "sparse"})
        shown = str(found)
        assert shown.startswith(f"{hit.document.id} {hit.document.title}: hit {hit.rank}, with the score ")
        assert ("; hit 2 has " in shown) == (hit.rank > 2)
        assert max(map(len, shown.splitlines())) <= 80


def test_terms_of_one_side_are_those_without_a_product(collection: Collection) -> None:
    name = search(collection, [QUERY], 1)[0].hits[0].document.id
    found, query = standing(collection, name), collection.models.queries().encode([QUERY])
    [document] = collection.documents([name])
    assert document is not None
    [shown] = collection.units.shown([document], lambda: query)
    one, other = query.toarray()[0], collection.vectors([shown.id]).toarray()[0]
    assert found.explanation.score == pytest.approx(float(one @ other), rel=1e-4)
    assert found.lacking.active == np.count_nonzero((one > 0) & (other == 0))
    assert found.unasked.active == np.count_nonzero((one == 0) & (other > 0))
    names = collection.models.terms
    heaviest = np.argsort(-np.where(one > 0, 0, other), kind="stable")[:20]
    assert [term.term for term in found.unasked.terms] == [names[i] for i in heaviest if other[i] and not one[i]]
    values = json.loads(json.dumps(found.to_json()))
    assert (values["rank"], values["k"], values["id"]) == (1, 10, name)
    assert values["lacking"]["active"] == found.lacking.active


def test_a_filter_that_leaves_the_document_out_is_named(collection: Collection) -> None:
    hit = next(one for one in search(collection, [QUERY], 40)[0].hits if one.document.fields["lang"] != "en")
    found = standing(collection, hit.document.id, filter="lang=en")
    assert (found.passes, found.rank, found.score) == (False, hit.rank, hit.score)
    assert "the filter leaves it out; without it, hit " in " ".join(str(found).split())
    assert found.to_json()["passes"] is False


def test_a_document_that_shares_no_term_has_no_rank(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = collection.models.queries().encode([QUERY])
    empty.data[:] = 0
    empty.eliminate_zeros()
    both = EncodedTexts(empty)
    monkeypatch.setattr("vocable.encoding.text_encoder.TextEncoder.encode_both", lambda *given: both)
    found = standing(collection, "d3", weights="sparse")
    assert (found.rank, found.score, found.last_score, found.searched) == (None, None, None, 0)
    assert "d3 chapter 3: it shares no term with the query" in str(found)
    assert "rank" not in found.to_json()


def test_unknown_documents_and_options_without_an_index_are_refused(collection: Collection) -> None:
    with pytest.raises(ArgumentError):
        explain(collection, QUERY, "d99")
    with pytest.raises(ArgumentError):
        explain(collection, QUERY, "d1", filter="kind=1")
    with pytest.raises(ArgumentError):
        explain(collection.models.loaded, QUERY, "a fox", k=3)
    with pytest.raises(ArgumentError):
        explain(collection, QUERY, weights="sparse")


def test_texts_are_explained_as_before(collection: Collection) -> None:
    model = collection.models.loaded
    found = explain(model, QUERY, "a fox")
    assert isinstance(found, Explanation)
    assert found == explain_texts(model, QUERY, "a fox")
    assert explain(collection, QUERY) == expand_text(model, QUERY, "query")


@pytest.mark.parametrize("options", [{"query_idf": 0.75}, PRUNED], ids=str)
def test_terms_of_a_query_are_those_of_its_search(collection: Collection, options: dict[str, Any]) -> None:
    found, vector = explain(collection, QUERY, **options), search(collection, [QUERY], 1, **options).vectors
    assert isinstance(found, Expansion)
    weights = {collection.models.terms[i]: float(w) for i, w in zip(vector.indices, vector.data, strict=True)}
    assert found.active == len(weights)
    assert {term.term: term.weight for term in found.terms}.items() <= weights.items()
    assert found != expand_text(collection.models.loaded, QUERY, "query")
