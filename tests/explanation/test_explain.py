from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array, vstack
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

from vocable.core.tables import Table
from vocable.encoding.encode import encode
from vocable.encoding.terms import terms
from vocable.errors import ArgumentError, VectorsError
from vocable.explanation.explain import (
    Explanation,
    MatchedTerm,
    expand_text,
    expand_vector,
    explain_hits,
    explain_texts,
    explain_vectors,
    text_terms,
)
from vocable.indexes.exact_index import ExactIndex
from vocable.torch_models import torch_model

NAMES = ["list", "array", "##ing", "[unused1]", "set"]
QUERY, DOCUMENT = "The old fox reads", "Every compiler rewrites books at night."


def row(*weights: float) -> csr_array:
    return csr_array(np.array([weights], dtype=np.float32))


def shown(table: Table) -> list[list[str]]:
    """The rows of a table as it is printed."""
    _, _, lines = str(table).partition("─\n")
    return [line.split() for line in lines.splitlines()]


@given(*[arrays(np.float32, 5, elements=st.sampled_from([0.0, 0.25, 1.0, 3.0]))] * 2)
def test_contributions_are_the_terms_of_the_dot_product(query: np.ndarray, document: np.ndarray) -> None:
    found = explain_vectors(row(*query), row(*document), NAMES, ["list"], ["set", "list"])
    assert found.score == pytest.approx(float(query @ document))
    assert sum(match.contribution for match in found.matches) == pytest.approx(found.score)
    expected = {NAMES[t]: query[t] * document[t] for t in range(5) if query[t] and document[t]}
    assert {match.term: match.contribution for match in found.matches} == expected
    contributions = [match.contribution for match in found.matches]
    assert contributions == sorted(contributions, reverse=True)
    if found.matches:
        assert sum(match.share for match in found.matches) == pytest.approx(1)


def test_a_term_is_from_the_text_or_an_expansion_on_either_side() -> None:
    query, document = row(1.0, 2.0, 0.5, 1.0, 0.0), row(2.0, 0.5, 4.0, 0.25, 9.0)
    found = explain_vectors(query, document, NAMES, ["list", "set"], {"list", "##ing"})
    assert [(m.term, m.query_weight, m.document_weight, m.in_query, m.in_document) for m in found.matches] == [
        ("list", 1.0, 2.0, True, True),
        ("##ing", 0.5, 4.0, False, True),
        ("array", 2.0, 0.5, False, False),
        ("[unused1]", 1.0, 0.25, False, False),
    ]
    assert found.score == 5.25
    assert found.matches[0].share == pytest.approx(2 / 5.25)
    assert json.loads(json.dumps(found.to_json()))["matches"][1] == {
        "term": "##ing",
        "query_weight": 0.5,
        "document_weight": 4.0,
        "contribution": 2.0,
        "share": pytest.approx(2 / 5.25),
        "in_query": False,
        "in_document": True,
    }
    assert shown(found.table())[1:] == [
        ["##ing", "0.50", "4.00", "2.00", "38.1%", "expansion", "text"],
        ["array", "2.00", "0.50", "1.00", "19.0%", "expansion", "expansion"],
        ["[unused1]", "1.00", "0.25", "0.25", "4.8%", "expansion", "expansion"],
    ]
    assert len(shown(found.table(limit=2))) == 2


def test_a_wacky_term_is_marked_where_it_is_an_expansion() -> None:
    query, document = row(1.0, 2.0, 0.5, 1.0, 0.0), row(2.0, 0.5, 4.0, 0.25, 9.0)
    tokens = ["list", "set"], {"list", "##ing"}
    found = explain_vectors(query, document, NAMES, *tokens, wacky={"list", "##ing", "array", "set"})
    # `list` stands in both, `##ing` in one of them, `array` in none; nobody calls the last one wacky.
    assert [(m.term, m.wacky) for m in found.matches] == [
        ("list", False),
        ("##ing", True),
        ("array", True),
        ("[unused1]", False),
    ]
    assert [match["wacky"] for match in found.to_json()["matches"]] == [False, True, True, False]
    assert [cells[-2:] for cells in shown(found.table())] == [
        ["text", "text"],
        ["wacky", "text"],
        ["wacky", "wacky"],
        ["expansion", "expansion"],
    ]
    terms_of_one = expand_vector(query, NAMES, tokens[0], wacky=frozenset({"list", "array"}))
    assert [(term.term, term.wacky) for term in terms_of_one.terms] == [
        ("array", True),
        ("list", False),
        ("[unused1]", False),
        ("##ing", False),
    ]
    assert terms_of_one.to_json()["terms"][0] == {"term": "array", "weight": 2.0, "in_text": False, "wacky": True}
    assert [cells[-1] for cells in shown(terms_of_one.table())] == ["wacky", "text", "expansion", "expansion"]
    marked = explain_vectors(
        query, document, NAMES, *tokens, wacky=()
    )  # nothing is, which is another answer than no answer
    assert [m.wacky for m in marked.matches] == [False] * 4


def test_texts_without_a_shared_term_have_a_score_of_zero() -> None:
    found = explain_vectors(row(1, 0, 0, 0, 0), row(0, 1, 0, 0, 0), NAMES, [], [])
    assert (found.score, found.matches) == (0.0, ())
    assert shown(found.table()) == []


@pytest.mark.parametrize("vector", [row(1.0, 2.0), csr_array(np.ones((2, 5)))])
def test_vectors_that_do_not_fit_the_names_are_refused(vector: csr_array) -> None:
    with pytest.raises(VectorsError):
        explain_vectors(row(1, 1, 1, 1, 1), vector, NAMES, [], [])
    with pytest.raises(VectorsError):
        expand_vector(vector, NAMES, [])


def test_expansion_has_the_heaviest_terms_and_the_number_of_all() -> None:
    vector = row(1.0, 0.0, 3.0, 0.5, 1.0)
    found = expand_vector(vector, NAMES, ["list", "[unused1]"], k=3)
    assert [(term.term, term.weight, term.in_text) for term in found.terms] == [
        ("##ing", 3.0, False),
        ("list", 1.0, True),
        ("set", 1.0, False),
    ]
    assert found.active == 4
    assert shown(found.table()) == [
        ["##ing", "3.00", "expansion"],
        ["list", "1.00", "text"],
        ["set", "1.00", "expansion"],
    ]
    assert found.to_json() == {
        "active": 4,
        "terms": [
            {"term": "##ing", "weight": 3.0, "in_text": False},
            {"term": "list", "weight": 1.0, "in_text": True},
            {"term": "set", "weight": 1.0, "in_text": False},
        ],
    }
    with pytest.raises(ArgumentError):
        expand_vector(vector, NAMES, [], k=0)


def test_texts_are_explained_with_the_score_that_a_search_gives(toy_model: SparseEncoder) -> None:
    queries, documents = encode(toy_model, [QUERY], role="query"), encode(toy_model, [DOCUMENT])
    found = explain_texts(toy_model, QUERY, DOCUMENT)
    [(_, score)] = ExactIndex(documents).search(queries, k=1).hits(0)
    assert found.score == pytest.approx(score, rel=1e-5)
    names, tokens = terms(toy_model), toy_model[0].tokenizer.tokenize
    for match in found.matches:
        column = names.index(match.term)
        assert match.query_weight == queries[0, column]
        assert match.document_weight == documents[0, column]
        assert match.in_query == (match.term in tokens(QUERY))
        assert match.in_document == (match.term in tokens(DOCUMENT))
    assert len(found.matches) == queries.multiply(documents).nnz > 0


def test_text_terms_are_the_word_pieces_also_beyond_the_models_length(toy_model: SparseEncoder) -> None:
    assert text_terms(toy_model, ["The old fox"]) == [set(toy_model[0].tokenizer.tokenize("the old fox"))]
    late = "fox " * 100 + "compiler"
    assert text_terms(toy_model, [late])[0] >= set(toy_model[0].tokenizer.tokenize("compiler"))


def test_expansion_of_a_text_is_its_vector(toy_model: SparseEncoder) -> None:
    vector, names = encode(toy_model, [DOCUMENT]).toarray()[0], terms(toy_model)
    found = expand_text(toy_model, DOCUMENT, k=5)
    assert found.active == np.count_nonzero(vector)
    assert [term.weight for term in found.terms] == np.sort(vector)[::-1][:5].tolist()
    [in_text] = text_terms(toy_model, [DOCUMENT])
    assert all(vector[names.index(t.term)] == t.weight and t.in_text == (t.term in in_text) for t in found.terms)


def test_inference_free_queries_are_explained_too(toy_model: SparseEncoder) -> None:
    tokenizer = toy_model[0].tokenizer
    weights = torch.arange(1, len(tokenizer) + 1, dtype=torch.float32) / 100
    router = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(tokenizer, weight=weights)], document_modules=list(toy_model.children())
    )
    model = SparseEncoder(modules=[router], device="cpu").eval()
    found = explain_texts(model, QUERY, DOCUMENT)
    document = encode(model, [DOCUMENT]).toarray()[0]
    ids = {tokenizer.convert_tokens_to_ids(token) for token in tokenizer.tokenize(QUERY)}
    assert found.score == pytest.approx(sum((token + 1) / 100 * document[token] for token in ids), rel=1e-5)
    assert all(match.in_query for match in found.matches)
    query = expand_text(model, QUERY, role="query")
    assert query.active == len(ids)
    assert all(term.in_text for term in query.terms)


def test_terms_of_the_text_stand_apart_from_expansions() -> None:
    rows = [("fox", 0.6, True, True), ("hound", 0.3, True, False), ("books", 0.1, True, True)]
    matches = tuple(MatchedTerm(term, 1, share, share, share, *where) for term, share, *where in rows)
    assert Explanation(1.0, matches).reasons() == ["text: fox 60%, books 10%", "expansion: hound 30%"]
    assert Explanation(0.0, ()).reasons() == ["no shared term"]
    wacky = tuple(replace(match, wacky=match.term != "fox") for match in matches[:2])
    assert Explanation(1.0, wacky).reasons() == ["text: fox 60%", "wacky: hound 30%"]


def test_names_of_terms_are_made_once_for_a_text(toy_model: SparseEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    made, calls = torch_model.output_terms, list[object]()
    monkeypatch.setattr(torch_model, "output_terms", lambda *of: calls.append(of) or made(*of))
    assert len(text_terms(toy_model, ["A librarian carefully measures a vocabulary"])[0]) > 1
    assert len(calls) == 1


def test_hits_are_explained_as_each_vector_alone() -> None:
    documents = vstack([row(0, 1, 0, 2, 0), row(3, 1.5, 0, 0, 2), row(0, 0, 0, 0, 0)], format="csr")
    query, tokens = row(1, 2, 0, 0, 1), [["array"], ["list", "set"], []]
    found = explain_hits(query, csr_array(documents), NAMES, ["list"], tokens, wacky={"array"})
    assert found == [
        explain_vectors(query, csr_array(documents[[number]]), NAMES, ["list"], words, {"array"})
        for number, words in enumerate(tokens)
    ]
    with pytest.raises(VectorsError):
        explain_hits(query, csr_array(documents), NAMES, ["list"], tokens[:2])
