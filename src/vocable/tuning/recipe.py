"""The training of a tuning: its examples, and its recipe, scaled to the scores and weights of the model.

Examples are questions taken from documents, asked by people, or written by a model. The temperature and the
regularizers were chosen for the built-in model, and suit scores of its size. They are scaled by the scores and vectors
of the initial model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from vocable.data import Document, Example, Query
from vocable.errors import ModelError
from vocable.evaluation.encoded import Encoded
from vocable.evaluation.expanders import generate, generator_task, load_generator
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.fusion import MIN_DEPTH, weighted
from vocable.indexes.ranking import Ranking
from vocable.tuning.questions import LEARNED_KINDS, PART_WORDS, Rarity, question

EXAMPLES_FILE = "examples.jsonl"  # file in the folder of a tuning
DRAWS = 4  # most questions of a kind that a document gives
QUESTION_TOKENS, SAMPLED_TOKENS = 32, 10  # tokens of a written question; likeliest tokens that each is drawn from
REQUEST = "\n\nA question that this text answers:"
ROUND_TRIP = 10  # rank at which a written question finds its document

QUESTIONS_PER_STEP, QUERY_LENGTH, DOCUMENT_LENGTH = 96, 64, 128
MICRO_BATCH = 16  # questions and documents in memory at once, with gradients of the whole step
LEARNING_RATE = 1e-4
TEMPERATURE = 0.75  # standard deviations of a query's scores
QUERY_COST, DOCUMENT_COST = 0.03, 0.033  # weight of the regularizer times the FLOPS before the training
START_SHARE = 0.5  # share of the initial weights: their mean forgets less and gains more on queries of people
SAVE_EVERY, LOG_EVERY = 20, 2


def made_examples(documents: Sequence[Document], rarity: Rarity, seed: int, count: int) -> list[Example]:
    """Return at most `count` examples with different queries; documents take turns to give a title or a sentence."""
    examples: dict[str, Example] = {}
    rng = np.random.default_rng(seed)
    for number in range(DRAWS * len(LEARNED_KINDS)):
        for row in rng.permutation(len(documents)).tolist():
            kind = LEARNED_KINDS[(row + number) % len(LEARNED_KINDS)]
            learned = question(documents[row], kind, rarity, seed + number)
            if learned is not None and learned.query not in examples:
                examples[learned.query] = Example(learned.query, learned.part.full)
                if len(examples) == count:
                    return [*examples.values()]
    return [*examples.values()]


def asked_examples(queries: Sequence[Query], collection: Encoded, learned: Sequence[Document]) -> list[Example]:
    """Return an example for each query if the model and BM25 rank the same document first.

    Only documents to be `learned` from are ranked.
    """
    texts = [query.text for query in queries]
    rankings = _rankings(texts, collection, learned, 1)
    pairs = zip(texts, *(ranking.rows[:, 0].tolist() for ranking in rankings), strict=True)
    documents = collection.dataset.documents
    return [Example(text, documents[first].full) for text, first, other in pairs if first == other >= 0]


def written_examples(
    generator: str, documents: Sequence[Document], collection: Encoded, count: int, seed: int, device: str | None
) -> list[Example]:
    """Return examples of the questions that a generative model writes about `count` of the documents.

    The generator reads the part of a document that the training reads. A causal model continues it and a request. A
    seq2seq model gets the text without an instruction, the input format of docT5query. A question is kept if the fused
    ranking of model and BM25 has its document among the first ten.
    """
    rows = np.random.default_rng(seed).permutation(len(documents))[:count].tolist()
    chosen = [documents[row] for row in rows]
    # The first line that the generator writes is the question.
    task = generator_task(generator)
    request = REQUEST if task == "causal" else ""
    prompts = [" ".join(document.full.split()[:PART_WORDS]) + request for document in chosen]
    options = {"new_tokens": QUESTION_TOKENS, "top_k": SAMPLED_TOKENS, "seed": seed}
    written = generate(load_generator(generator, task, device), prompts, **options)
    questions = [text.partition("\n")[0].strip() for [text] in written]
    pairs = [(text, document) for text, document in zip(questions, chosen, strict=True) if text]
    # Keep the questions that find their documents.
    row_of = {document.id: row for row, document in enumerate(collection.dataset.documents)}
    rankings = _rankings([text for text, _ in pairs], collection, documents, MIN_DEPTH)
    fused = weighted(rankings, [1, 1], depth=ROUND_TRIP)
    return [
        Example(text, document.full)
        for (text, document), hits in zip(pairs, fused.rows.tolist(), strict=True)
        if row_of[document.id] in hits
    ]


def _rankings(texts: Sequence[str], collection: Encoded, learned: Sequence[Document], k: int) -> list[Ranking]:
    """Return the rankings of the documents to be learned from, by the model and by BM25."""
    documents, ids = collection.dataset.documents, {document.id for document in learned}
    allowed = np.array([document.id in ids for document in documents])
    assert collection.encoder is not None
    return [
        ExactIndex(collection.documents).search(collection.encoder.encode(list(texts)), k, allowed=allowed),
        BM25Index([document.full for document in documents]).search(list(texts), k, allowed=allowed),
    ]


@dataclass(frozen=True)
class Scale:
    """The size of a model's scores and vectors on its documents."""

    score_spread: float  # standard deviation of a query's scores over documents, mean over queries
    query_flops: float  # sum over terms of the squared mean weight
    document_flops: float


def measure_scale(queries: csr_array, documents: csr_array) -> Scale:
    """Return the scale of the vectors of queries [q, v] and documents [n, v].

    >>> scale = measure_scale(csr_array(np.array([[1.0, 0.0]])), csr_array(np.array([[2.0, 0.0], [4.0, 2.0]])))
    >>> scale.score_spread, scale.query_flops, scale.document_flops  # scores 2 and 4, mean weights 3 and 1
    (1.0, 1.0, 10.0)
    """
    scores = (queries @ documents.T).toarray()
    return Scale(float(scores.std(axis=1).mean()), _flops(queries), _flops(documents))


def _flops(vectors: csr_array) -> float:
    return float(np.square(np.asarray(vectors.mean(axis=0))).sum())


def recipe(
    model: str,
    scale: Scale,
    steps: int,
    seed: int,
    dtype: str,
) -> dict[str, Any]:
    """Return the keys of a recipe of contrastive in-batch training.

    Raises `ModelError` if the model gives no scores or vectors for the scale.
    """
    if not min(astuple(scale)) > 0:
        raise ModelError(f"{model}: it gives these texts no terms, or the same terms to all: see vocable inspect")
    temperature = _rounded(TEMPERATURE * scale.score_spread)
    training: dict[str, Any] = {
        "steps": steps,
        "batch_size": QUESTIONS_PER_STEP,
        "micro_batch": MICRO_BATCH,
        "query_length": QUERY_LENGTH,
        "document_length": DOCUMENT_LENGTH,
        "freeze_embeddings": True,
        "learning_rate": LEARNING_RATE,
        "losses": [{"name": "info_nce", "temperature": temperature}],
        "regularizers": {
            "query": _rounded(QUERY_COST / scale.query_flops),
            "document": _rounded(DOCUMENT_COST / scale.document_flops),
        },
        "save_every": SAVE_EVERY,
        "log_every": LOG_EVERY,
    }
    return {
        "about": "Made by vocable tune.",
        "model": model,
        "seed": seed,
        "data": {"examples": [EXAMPLES_FILE], "held_out": 0},
        "training": training,
        "saved": {"start_share": START_SHARE, "dtype": dtype},
    }


def _rounded(value: float) -> float:
    """Round a value to three digits, for a readable recipe."""
    return float(f"{value:.3g}")
