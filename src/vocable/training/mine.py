"""Hard negatives and teacher scores for training examples: JSON lines in, JSON lines out.

Hard negatives come from the model's own index: documents that it ranks high for a query and that are not answers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, Unpack

import numpy as np
from sentence_transformers import SparseEncoder

from vocable.collection.collection import Collection, open_index
from vocable.collection.index import index as index_of
from vocable.core.fingerprint import settings_of
from vocable.core.progress import track
from vocable.data import Document, Example, read_corpus, read_examples
from vocable.data.bad_lines import tolerant
from vocable.data.docstore import without_repeats
from vocable.encoding.dense_models import dense_fingerprint
from vocable.encoding.model_fingerprint import digest
from vocable.encoding.models import is_model, model_digest
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, ModelError
from vocable.options import CountOrZero, checked
from vocable.training.example_files import ExampleCounts, rewrite
from vocable.training.teachers import Scorer, TeacherModel, load_scoring_model, make_scorer
from vocable.training_options import NegativeOptions

WITHOUT_IDF = (
    "scores are without the IDF of the query's terms, to the power %g, by which the model searches: examples have no "
    "collection (vocable mine --with-scores scores with it)"
)

logger = logging.getLogger(__name__)


def score_bound(positive: float, rule: NegativeOptions) -> float:
    """Return the upper bound of a negative's score, exclusive, for a positive's score.

    >>> score_bound(40.0, {"margin": 1.0, "relative_margin": 0.05})
    38.0
    """
    below = math.inf if rule["margin"] is None else positive - rule["margin"]
    return below if rule["relative_margin"] is None else min(below, (1 - rule["relative_margin"]) * positive)


@checked
@tolerant
def mine(
    model: SparseEncoder,
    examples: str | Path,
    output: str | Path,
    *,
    corpus: str | None = None,
    index: str | Path | None = None,
    with_scores: bool = False,
    skip_bad: CountOrZero = 0,
    **options: Unpack[NegativeOptions],
) -> ExampleCounts:
    """Find hard negatives with the model's own index.

    Positives of the query, and documents with their texts, are never negatives. Existing negatives are replaced. An
    example with too few negatives is left out. An interrupted run resumes when repeated.

    Args:
        model: from `vocable.load`.
        examples: source of queries and positives.
        output: output JSON Lines file (written atomically).
        corpus: source of the documents to search; by default the positives of the examples.
        index: a folder of `vocable index` to search, instead of a corpus.
        with_scores: also write the model's scores of the positive and of each negative.
        skip_bad: number of malformed lines to skip; one more is an error.
        options: rule for negatives, the fields of `vocable.training_options.NegativeOptions`.

    Raises:
        ArgumentError: an argument is out of its range, both a corpus and an index are given, the examples come from
            standard input, or the output exists.
        DataError: a source cannot be read, or there is no example.
        VectorsError: the index has another vocabulary, or the work in progress other examples.
    """
    arguments = locals()
    if corpus is not None and index is not None:
        raise ArgumentError("`corpus` and `index` exclude each other")
    source = str(examples)
    if source == "-":
        raise ArgumentError("`examples` are read more than once: give a file instead of standard input")
    read_examples(source)  # a missing source is an error before any work is done
    if corpus is not None:
        read_corpus(corpus)
    encoder = TextEncoder(model, "document")
    settings = settings_of(mine, arguments, {"model": model_digest(model)})
    opened = None if index is None else open_index(index)
    if opened is not None:
        opened.models.queries(model)  # raises an error for another vocabulary

    def prepare(work: Path) -> Miner:
        collection = opened
        if collection is None:
            positives = without_repeats(example.positive for example in read_examples(source))
            collection = index_of(model, positives if corpus is None else corpus, work / "index")
        pairs = track(read_examples(source), "positives")
        answers = {answer(example.query, example.positive) for example in pairs}
        return Miner(model, collection, options, answers, scored=with_scores)

    return rewrite(partial(read_examples, source), output, settings, prepare, title="mine")


class Miner:
    """Gives examples negatives, and drops examples with too few; `answers` are hashes of all queries and positives."""

    def __init__(
        self, model: SparseEncoder, collection: Collection, rule: NegativeOptions, answers: set[int], *, scored: bool
    ) -> None:
        collection.check_whole("mine")
        self._collection, self._rule, self._answers, self._scored = collection, rule, answers, scored
        self._queries, self._documents = collection.models.queries(model), TextEncoder(model, "document")

    def __call__(self, examples: list[Example]) -> list[Example]:
        queries = self._queries.encode([example.query for example in examples])
        ranking = self._collection.searcher.search_space(queries, min(self._rule["to_rank"], len(self._collection)))
        positive_scores = np.zeros(len(examples), dtype=np.float32)
        if self._scored or self._rule["margin"] is not None or self._rule["relative_margin"] is not None:
            positives = self._documents.encode([example.positive for example in examples])  # perhaps not in the index
            positive_scores = np.asarray(queries.multiply(positives).sum(axis=1))
        numbered = zip(examples, positive_scores, range(len(examples)), strict=True)
        mined = [self._with_negatives(row, float(score), ranking.hits(number)) for row, score, number in numbered]
        return [example for example in mined if len(example.negatives) == self._rule["negatives"]]

    def _with_negatives(self, example: Example, positive_score: float, hits: Sequence[tuple[str, float]]) -> Example:
        bound, taken = score_bound(positive_score, self._rule), dict[str, float]()
        candidates = hits[self._rule["from_rank"] - 1 :]
        documents = self._collection.documents([identifier for identifier, _ in candidates])
        for document, (_, score) in zip(documents, candidates, strict=True):
            if len(taken) == self._rule["negatives"]:
                break
            if document is None:  # deleted meanwhile
                continue
            if score < bound and not self._is_answer(example, document):
                taken.setdefault(document.full, float(score))
        all_scores = (positive_score, *taken.values()) if self._scored else ()
        return Example(example.query, example.positive, tuple(taken), scores=all_scores)

    def _is_answer(self, example: Example, document: Document) -> bool:
        texts = (document.full, document.text)  # examples may lack the titles
        return any(answer(example.query, text) in self._answers for text in texts)


def answer(query: str, text: str) -> int:
    """Return a hash of a query and a text that answers it."""
    return hash((query, " ".join(text.split())))  # differences in white space do not count


@checked
@tolerant
def teacher_scores(
    model: TeacherModel | str | Path,
    examples: str | Path,
    output: str | Path,
    *,
    kind: Literal["cross", "dense", "sparse"] | None = None,
    device: str | None = None,
    skip_bad: CountOrZero = 0,
) -> ExampleCounts:
    """Add a teacher's scores to examples.

    The positive and each negative are scored; existing scores are replaced. An interrupted run resumes when repeated.

    Args:
        model: a cross-encoder with a single label, whose raw scores are used, or a dense or sparse bi-encoder of
            sentence-transformers: a folder or a Hub id; in Python also loaded.
        examples: source of queries, positives and negatives.
        output: output JSON Lines file (written atomically).
        kind: kind of the model, if its files do not tell.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        skip_bad: number of malformed lines to skip; one more is an error.

    Raises:
        ArgumentError: the output is something else, or another model began the work in progress.
        DataError: a source cannot be read, or there is no example.
        ModelError: a cross-encoder has several labels, or a score is not finite.
        VectorsError: the work in progress has other examples.
    """
    arguments = locals()
    if isinstance(model, str | Path):
        model = load_scoring_model(model, kind, device)
    source, scorer = str(examples), make_scorer(model.eval())
    if isinstance(model, SparseEncoder) and (power := TextEncoder(model, "query").query_idf):
        logger.warning(WITHOUT_IDF, power)
    scored_by = model_digest(model) if is_model(model) else digest(dense_fingerprint(model))
    settings = settings_of(teacher_scores, arguments, {"model": scored_by, "kind": type(model).__name__})
    change = partial(_scored, scorer=scorer)
    return rewrite(partial(read_examples, source), output, settings, lambda work: change, title="teacher scores")


def _scored(examples: list[Example], scorer: Scorer) -> list[Example]:
    documents = [(example.positive, *example.negatives) for example in examples]
    queries = [example.query for example, texts in zip(examples, documents, strict=True) for _ in texts]
    scores = scorer(queries, [text for texts in documents for text in texts])
    if not np.isfinite(scores).all():
        raise ModelError("the model gives scores that are not finite")
    left = iter(scores.tolist())
    return [example._replace(scores=tuple(islice(left, 1 + len(example.negatives)))) for example in examples]
