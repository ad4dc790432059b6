"""The examples to learn from, the scale of a model's scores and vectors, and the recipe that follows from it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

from tests.evaluation.conftest import seq2seq  # noqa: F401  (a fixture)
from vocable.collection.collection import Collection
from vocable.collection.index import index
from vocable.data import Document, Query
from vocable.encoding.encode import encode
from vocable.errors import ModelError
from vocable.indexes.bm25 import BM25Index
from vocable.training.recipe_files import make_recipe
from vocable.tuning import recipe as module
from vocable.tuning.questions import QUESTION_KINDS, question
from vocable.tuning.recipe import (
    DOCUMENT_COST,
    DRAWS,
    EXAMPLES_FILE,
    QUERY_COST,
    QUESTIONS_PER_STEP,
    TEMPERATURE,
    Scale,
    asked_examples,
    made_examples,
    measure_scale,
    recipe,
    written_examples,
)

WEIGHTS = st.floats(0, 4, width=32)


@pytest.fixture
def searched(toy_model: SparseEncoder, page_documents: list[Document]) -> Collection:
    return index(toy_model, page_documents, long_documents="truncate")


def test_made_examples_are_questions_of_the_documents(many: list[Document]) -> None:
    found = made_examples(many, 3, 10**6)
    possible = {
        (made.query, made.part.full)
        for document in many
        for kind in QUESTION_KINDS
        for number in range(2 * DRAWS)
        if (made := question(document, kind, 3 + number)) is not None
    }
    assert {(one.query, one.positive) for one in found} <= possible
    assert len({one.query for one in found}) == len(found)
    assert all(one.query not in one.positive for one in found if len(one.query.split()) > 3)
    most = Counter(one.positive.split(maxsplit=9)[-1] for one in found)
    assert max(most.values()) <= DRAWS * len(QUESTION_KINDS)
    assert made_examples(many, 3, 10**6) == found
    assert made_examples(many, 3, 50) == found[:50]  # the rest follows
    assert made_examples(many, 4, 50) != found[:50]
    assert made_examples([], 0, 10) == []
    assert made_examples([Document("d", "short")], 0, 10) == []


def test_each_document_gives_one_before_any_gives_two(page_documents: list[Document]) -> None:
    found = made_examples(page_documents, 0, len(page_documents) // 2)
    titles = {one.title: one.id for one in page_documents}
    owners = [titles.get(one.query) or next(d.id for d in page_documents if one.query in d.text) for one in found]
    assert len({*owners}) == len(owners)


def test_queries_of_people_where_model_and_bm25_agree(
    searched: Collection, toy_model: SparseEncoder, page_documents: list[Document]
) -> None:
    texts = [text for one in page_documents for text in one.text.split(". ")[:8]] + ["zebra", "the old fox", "☃"]
    found = asked_examples([Query(f"{i}", text) for i, text in enumerate(texts)], page_documents, searched)
    full = [one.full for one in page_documents]
    scores = encode(toy_model, texts, "query").toarray() @ encode(toy_model, full, "document").toarray().T
    by_words = BM25Index(full).search(texts, 1)
    expected = []
    for row, text in enumerate(texts):
        first = int(by_words.rows[row, 0])
        if first >= 0 and scores[row].max() > 0 and int(scores[row].argmax()) == first:
            expected.append((text, full[first]))
    assert [(one.query, one.positive) for one in found] == expected
    assert 0 < len(found) < len(texts)
    assert asked_examples([], page_documents, searched) == []


def test_a_written_question_finds_its_document(
    seq2seq: Path,  # noqa: F811
    searched: Collection,
    page_documents: list[Document],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = written_examples(str(seq2seq), page_documents, searched, 30, 1, "cpu")
    assert found == written_examples(str(seq2seq), page_documents, searched, 30, 1, "cpu")
    assert found != written_examples(str(seq2seq), page_documents, searched, 30, 2, "cpu")
    assert len(found) <= 30
    assert {one.positive for one in found} <= {one.full for one in page_documents}
    # Questions whose words name the document, none, and another's words.
    own = np.random.default_rng(1).permutation(len(page_documents))[:4].tolist()
    other = next(one for one in page_documents if one not in [page_documents[row] for row in own])
    written = [[page_documents[own[0]].full], [""], [other.full], [""]]
    monkeypatch.setattr(module, "generate", lambda *arguments, **options: written)
    monkeypatch.setattr(module, "ROUND_TRIP", 3)
    found = written_examples(str(seq2seq), page_documents, searched, 4, 1, "cpu")
    assert [(one.query, one.positive) for one in found] == [(written[0][0], page_documents[own[0]].full)]
    monkeypatch.setattr(module, "generate", lambda *arguments, **options: [[""]] * 4)
    assert written_examples(str(seq2seq), page_documents, searched, 4, 1, "cpu") == []


@given(arrays(np.float32, (3, 5), elements=WEIGHTS), arrays(np.float32, (6, 5), elements=WEIGHTS))
def test_the_scale_is_numpys(queries: np.ndarray, documents: np.ndarray) -> None:
    spreads = [np.std([float(query @ document) for document in documents]) for query in queries.astype(np.float64)]
    flops = [sum(float(column.astype(np.float64).mean()) ** 2 for column in one.T) for one in (queries, documents)]
    found = measure_scale(csr_array(queries), csr_array(documents))
    assert (found.score_spread, found.query_flops, found.document_flops) == pytest.approx(
        (float(np.mean(spreads)), *flops), rel=1e-4, abs=1e-4
    )


def test_a_scaled_model_gets_the_same_training() -> None:
    """Scores ten times as large, of queries twice and documents five times as heavy, change nothing but the units."""
    rng = np.random.default_rng(0)
    queries, documents = csr_array(rng.random((8, 9))), csr_array(rng.random((20, 9)))
    one, other = measure_scale(queries, documents), measure_scale(2 * queries, 5 * documents)
    first, second = (recipe("m", scale, 5, 0, "float32")["training"] for scale in (one, other))
    assert second["losses"][0]["temperature"] == pytest.approx(10 * first["losses"][0]["temperature"], rel=0.01)
    for role, factor in (("query", 4), ("document", 25)):
        assert second["regularizers"][role] == pytest.approx(first["regularizers"][role] / factor, rel=0.01)


def test_the_recipe_is_valid_and_says_all() -> None:
    values = recipe("m", Scale(2.0, 0.5, 10.0), 40, 3, "bfloat16")
    made = make_recipe({**values, "data_folder": "/x"})
    assert (made.model, made.seed, made.training.steps, made.training.batch_size) == ("m", 3, 40, QUESTIONS_PER_STEP)
    assert [loss.name for loss in made.training.losses] == ["info_nce"]
    assert values["training"]["losses"][0]["temperature"] == TEMPERATURE * 2.0
    assert values["training"]["regularizers"] == {
        "query": pytest.approx(QUERY_COST / 0.5),
        "document": pytest.approx(DOCUMENT_COST / 10.0),
    }
    assert (made.data.examples, made.data.held_out, made.saved.dtype) == ([EXAMPLES_FILE], 0, "bfloat16")


@pytest.mark.parametrize("scale", [Scale(0.0, 1.0, 1.0), Scale(1.0, 0.0, 1.0), Scale(1.0, 1.0, 0.0)])
def test_a_model_that_scores_nothing_is_refused(scale: Scale) -> None:
    with pytest.raises(ModelError):
        recipe("dead", scale, 5, 0, "float32")
