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

from vocable.collection.collection import Collection
from vocable.data import Document, Example, Query
from vocable.errors import ModelError
from vocable.evaluation.expanders import generate, generator_task, load_generator
from vocable.tuning.questions import PART_WORDS, QUESTION_KINDS, question

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


def made_examples(documents: Sequence[Document], seed: int, count: int) -> list[Example]:
    """Return at most `count` examples with different queries; documents take turns to give a title or a sentence."""
    examples: dict[str, Example] = {}
    rng = np.random.default_rng(seed)
    for number in range(DRAWS * len(QUESTION_KINDS)):
        for row in rng.permutation(len(documents)).tolist():
            kind = QUESTION_KINDS[(row + number) % len(QUESTION_KINDS)]
            learned = question(documents[row], kind, seed + number)
            if learned is not None and learned.query not in examples:
                examples[learned.query] = Example(learned.query, learned.part.full)
                if len(examples) == count:
                    return [*examples.values()]
    return [*examples.values()]


def asked_examples(queries: Sequence[Query], documents: Sequence[Document], index: Collection) -> list[Example]:
    """Return an example for each query if the model and BM25 rank the same document of their index first."""
    texts, full = [query.text for query in queries], {document.id: document.full for document in documents}
    if not texts:
        return []
    by_model, by_words = (index.search(texts, 1, weights=space, plain=True) for space in ("sparse", "bm25"))
    pairs = [(text, by_model.hits(row), by_words.hits(row)) for row, text in enumerate(texts)]
    return [
        Example(text, full[first[0][0]])
        for text, first, other in pairs
        if first and other and first[0][0] == other[0][0]
    ]


def written_examples(
    generator: str, documents: Sequence[Document], index: Collection, count: int, seed: int, device: str | None
) -> list[Example]:
    """Return examples of the questions that a generative model writes about `count` of the documents.

    The generator reads the part of a document that the training reads. A causal model continues it and a request. A
    seq2seq model gets the text without an instruction, the input format of docT5query. A question is kept if the fused
    ranking of model and BM25 has its document among the first ten of the index.
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
    if not pairs:
        return []
    # Keep the questions that find their documents.
    ranked = index.search([text for text, _ in pairs], ROUND_TRIP, weights="sparse,bm25", plain=True)
    return [
        Example(text, document.full)
        for row, (text, document) in enumerate(pairs)
        if document.id in {name for name, _ in ranked.hits(row)}
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
