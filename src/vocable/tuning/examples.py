"""Training examples of a tuning: questions taken from documents, asked by people, or written by a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vocable.data import Document, Example, Query
from vocable.evaluation.expanders import generate, generator_task, load_generator
from vocable.evaluation.retrieval import Encoded
from vocable.indexes.bm25 import BM25Index
from vocable.indexes.exact_index import ExactIndex
from vocable.indexes.fusion import weighted
from vocable.indexes.ranking import Ranking
from vocable.tuning.exam import EXAM_DEPTH
from vocable.tuning.questions import PART_WORDS, Rarity, question
from vocable.tuning.settings import DRAWS, LEARNED_KINDS

QUESTION_TOKENS, SAMPLED_TOKENS = 32, 10  # tokens of a written question; likeliest tokens that each is drawn from
REQUEST = "\n\nA question that this text answers:"
ROUND_TRIP = 10  # rank at which a written question finds its document


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
    task = generator_task(generator)
    request = REQUEST if task == "causal" else ""
    prompts = [" ".join(document.full.split()[:PART_WORDS]) + request for document in chosen]
    options = {"new_tokens": QUESTION_TOKENS, "top_k": SAMPLED_TOKENS, "seed": seed}
    written = generate(load_generator(generator, task, device), prompts, **options)
    questions = [text.partition("\n")[0].strip() for [text] in written]
    pairs = [(text, document) for text, document in zip(questions, chosen, strict=True) if text]
    row_of = {document.id: row for row, document in enumerate(collection.dataset.documents)}
    fused = weighted(
        _rankings([text for text, _ in pairs], collection, documents, EXAM_DEPTH), [1, 1], depth=ROUND_TRIP
    )
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
