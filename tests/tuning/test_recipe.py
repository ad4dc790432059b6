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
from vocable.data import Document, Query
from vocable.encoding.encode import encode
from vocable.errors import ModelError
from vocable.evaluation.encoded import Encoded, encode_dataset
from vocable.indexes.bm25 import BM25Index
from vocable.training.recipe_files import make_recipe
from vocable.tuning import recipe as module
from vocable.tuning.exam import Exam, make_exam
from vocable.tuning.questions import LEARNED_KINDS, Rarity, question
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
def exam(page_documents: list[Document]) -> Exam:
    return make_exam(page_documents, Rarity(one.full for one in page_documents), 0)


@pytest.fixture
def collection(toy_model: SparseEncoder, exam: Exam) -> Encoded:
    return encode_dataset(toy_model, exam.dataset)


def test_made_examples_are_questions_of_the_documents(many: list[Document]) -> None:
    rarity = Rarity(one.full for one in many)
    found = made_examples(many, rarity, 3, 10**6)
    possible = {
        (made.query, made.part.full)
        for document in many
        for kind in LEARNED_KINDS
        for number in range(2 * DRAWS)
        if (made := question(document, kind, rarity, 3 + number)) is not None
    }
    assert {(one.query, one.positive) for one in found} <= possible
    assert len({one.query for one in found}) == len(found)
    assert all(one.query not in one.positive for one in found if len(one.query.split()) > 3)
    most = Counter(one.positive.split(maxsplit=9)[-1] for one in found)
    assert max(most.values()) <= DRAWS * len(LEARNED_KINDS)
    assert made_examples(many, rarity, 3, 10**6) == found
    assert made_examples(many, rarity, 3, 50) == found[:50]  # the rest follows
    assert made_examples(many, rarity, 4, 50) != found[:50]
    assert made_examples([], rarity, 0, 10) == []
    assert made_examples([Document("d", "short")], rarity, 0, 10) == []


def test_each_document_gives_one_before_any_gives_two(page_documents: list[Document]) -> None:
    rarity = Rarity(one.full for one in page_documents)
    found = made_examples(page_documents, rarity, 0, len(page_documents) // 2)
    titles = {one.title: one.id for one in page_documents}
    owners = [titles.get(one.query) or next(d.id for d in page_documents if one.query in d.text) for one in found]
    assert len({*owners}) == len(owners)


def test_queries_of_people_where_model_and_bm25_agree(
    collection: Encoded, toy_model: SparseEncoder, exam: Exam, page_documents: list[Document]
) -> None:
    texts = [text for one in page_documents for text in one.text.split(". ")[:8]] + ["zebra", "the old fox", "☃"]
    found = asked_examples([Query(f"{i}", text) for i, text in enumerate(texts)], collection, exam.training)
    learned, documents = {one.id for one in exam.training}, exam.dataset.documents
    rows = [row for row, one in enumerate(documents) if one.id in learned]
    full = [documents[row].full for row in rows]
    scores = encode(toy_model, texts, "query").toarray() @ encode(toy_model, full, "document").toarray().T
    lexical = BM25Index([one.full for one in documents])
    words = lexical.search(texts, len(documents))
    expected = []
    for row, text in enumerate(texts):
        hits = [hit for hit in words.rows[row].tolist() if hit in rows]
        if hits and scores[row].max() > 0 and rows[int(scores[row].argmax())] == hits[0]:
            expected.append((text, documents[hits[0]].full))
    assert [(one.query, one.positive) for one in found] == expected
    assert 0 < len(found) < len(texts)


def test_a_written_question_finds_its_document(
    seq2seq: Path,  # noqa: F811
    collection: Encoded,
    exam: Exam,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = written_examples(str(seq2seq), exam.training, collection, 30, 1, "cpu")
    assert found == written_examples(str(seq2seq), exam.training, collection, 30, 1, "cpu")
    assert found != written_examples(str(seq2seq), exam.training, collection, 30, 2, "cpu")
    assert len(found) <= 30
    assert {one.positive for one in found} <= {one.full for one in exam.training}
    # Questions whose words name the document, none, and another's words.
    learned, own = list(exam.training), np.random.default_rng(1).permutation(len(exam.training))[:4].tolist()
    other = next(one for one in learned if one not in [learned[row] for row in own])
    written = [[learned[own[0]].full], [""], [other.full], [""]]
    monkeypatch.setattr(module, "generate", lambda *arguments, **options: written)
    monkeypatch.setattr(module, "ROUND_TRIP", 1)
    found = written_examples(str(seq2seq), learned, collection, 4, 1, "cpu")
    assert [(one.query, one.positive) for one in found] == [(written[0][0], learned[own[0]].full)]


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
