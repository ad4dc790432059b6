"""The exam of a tuning: questions about documents that no stage learns from, asked before and after.

The documents of the exam are drawn by their ids. Each gives a question of a kind that the training teaches; in the
searched collection the document lacks the words of its question. It also gives keywords, which are not trained: they
show whether the training harms other questions. Documents that repeat passages of the exam's documents are not learned
from either.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from vocable.core.tables import counted
from vocable.data import Document, Qrel, Query, read_judgments, read_queries
from vocable.encoding.dense_models import load_dense_beside
from vocable.engines.protocols import Space
from vocable.errors import DataError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.encoded import Encoded
from vocable.evaluation.plans import Judged
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.retrievers import DatasetRetriever, SpaceIndex, dense_index, judged_queries, sparse_index
from vocable.evaluation.significance import mean_interval
from vocable.language.words import words
from vocable.training_options import TuningSources
from vocable.tuning.questions import LEARNED_KINDS, QUESTION_KINDS, Kind, Question, Rarity, question

logger = logging.getLogger(__name__)

ASKED = "asked"  # kind of a caller's judged queries
EXAM_MEASURE, EXAM_RECALL = "nDCG@10", "R@100"
PASSAGE_LENGTH = 8  # words of a passage
FEWEST_DOCUMENTS = 300  # with fewer documents the exam can show nothing
MOST_QUESTIONS, ONE_IN = 600, 5  # most questions, and documents per question
SHARED_PASSAGES = 0.2  # a document with a larger share of its passages in the exam is not learned from
ENOUGH_ASKED = 10  # number of judged queries of people that decide in place of the made questions


@dataclass(frozen=True)
class Exam:
    """Questions about a collection, and the other documents, which may be learned from."""

    dataset: Dataset
    kinds: Mapping[str, str]  # by query id
    training: Sequence[Document]

    def by_kind(self) -> dict[str, list[str]]:
        """Return the ids of the queries of each kind; kinds without a query are left out."""
        by_kind: dict[str, list[str]] = {kind: [] for kind in (*QUESTION_KINDS, ASKED)}
        for query, kind in self.kinds.items():
            by_kind[kind].append(query)
        return {kind: queries for kind, queries in by_kind.items() if queries}


def distinct(documents: Iterable[Document]) -> tuple[list[Document], int]:
    """Return the documents without duplicates and empty documents, and the number of these.

    A duplicate has the words of an earlier document.

    >>> documents = [Document("a", "A cat."), Document("b", "a  cat"), Document("c", "")]
    >>> [document.id for document in distinct(documents)[0]]
    ['a']
    """
    kept: dict[bytes, Document] = {}
    count = 0
    for document in documents:
        count += 1
        if text := " ".join(words(document.full, letters=True)):
            kept.setdefault(blake2b(text.encode(), digest_size=16).digest(), document)
    return [*kept.values()], count - len(kept)


def check_count(documents: Sequence[Document], sources: TuningSources) -> None:
    """Raise `DataError` if there are too few documents for an exam, and too few judged queries of people."""
    if len(documents) >= FEWEST_DOCUMENTS:
        return
    if len(read_asked(sources, {document.id for document in documents}).judged) < ENOUGH_ASKED:
        raise DataError(
            f"{counted(len(documents), 'distinct document')}: the exam of a tuning needs {FEWEST_DOCUMENTS:,}; "
            f"{ENOUGH_ASKED} judged queries of people can decide in its place (queries and judgments), and a "
            "generator writes more questions; or search with the model as it is"
        )


def make_exam(
    documents: Sequence[Document], rarity: Rarity, seed: int, asked: Sequence[Query] = (), judged: Sequence[Qrel] = ()
) -> Exam:
    """Ask questions about some documents; return the exam, with the other documents to learn from.

    Args:
        documents: distinct documents.
        asked, judged: queries of people and their judgments, which are a separate kind of questions.

    Raises:
        DataError: the documents suit no question, and too few queries of people are judged.
    """
    replaced: dict[int, Document] = {}
    queries, judgments, kinds = list[Query](), list[Qrel](), dict[str, str]()
    # A document is searched without the words of its question. Keywords ask for the same document.
    for row, learned in _questions(documents, rarity, seed, min(MOST_QUESTIONS, len(documents) // ONE_IN)):
        replaced[row] = learned.document
        for asked_question in filter(None, (learned, question(learned.document, "keywords", rarity, seed))):
            name = f"{asked_question.kind}-{row}"
            queries.append(Query(name, asked_question.query))
            judgments.append(Qrel(name, learned.document.id, 1))
            kinds[name] = asked_question.kind
    if not queries and len(asked) < ENOUGH_ASKED:
        raise DataError(
            "no document suits a question of the exam: the texts are too short; "
            f"{ENOUGH_ASKED} judged queries of people can decide in its place (queries and judgments)"
        )
    # Queries of people, under separate names.
    for query in asked:
        queries.append(Query(f"{ASKED}-{query.id}", query.text))
        kinds[f"{ASKED}-{query.id}"] = ASKED
    judgments += [qrel._replace(query_id=f"{ASKED}-{qrel.query_id}") for qrel in judged]
    searched = [replaced.get(row, document) for row, document in enumerate(documents)]
    dataset = Dataset("exam", searched, queries, judgments)
    return Exam(dataset, kinds, _unseen(documents, replaced))


def _digest(seed: int, name: str) -> bytes:
    return blake2b(f"{seed} {name}".encode(), digest_size=8).digest()


def _questions(documents: Sequence[Document], rarity: Rarity, seed: int, count: int) -> Iterator[tuple[int, Question]]:
    """Yield at most `count` questions of trained kinds, with rows; a kind with fewer questions so far comes first."""
    asked: Counter[Kind] = Counter()
    for row in sorted(range(len(documents)), key=lambda row: _digest(seed, documents[row].id)):
        if asked.total() == count:
            return
        for kind in sorted(LEARNED_KINDS, key=asked.__getitem__):
            if (made_question := question(documents[row], kind, rarity, seed)) is not None:
                asked[kind] += 1
                yield row, made_question
                break


def _unseen(documents: Sequence[Document], replaced: Mapping[int, Document]) -> list[Document]:
    """Return the documents that are not in `replaced` and do not repeat passages of documents that are."""
    held = {passage for row in replaced for passage in _passages(documents[row].full)}
    unseen = []
    for row, document in enumerate(documents):
        if row not in replaced:
            passages = _passages(document.full)
            if sum(passage in held for passage in passages) <= SHARED_PASSAGES * len(passages):
                unseen.append(document)
    return unseen


def _passages(text: str) -> set[str]:
    """Return the runs of eight words of a text; a shorter text is a single run."""
    parts = words(text, letters=True)
    return {" ".join(parts[i : i + PASSAGE_LENGTH]) for i in range(max(1, len(parts) - PASSAGE_LENGTH + 1))}


class AskedQueries(NamedTuple):
    """Queries of people: the queries with judgments, the judgments, and the queries without judgments."""

    judged: list[Query]
    judgments: list[Qrel]
    unjudged: list[Query]


def read_asked(sources: TuningSources, documents: Collection[str]) -> AskedQueries:
    """Read the queries of people, and the judgments of these documents; leave out judgments of other documents."""
    place, judged_by = sources.get("queries"), sources.get("judgments")
    queries = [] if place is None else list(read_queries(place))
    read = [] if judged_by is None else list(read_judgments(judged_by))
    judgments = [qrel for qrel in read if qrel.doc_id in documents]
    answered = {qrel.query_id for qrel in judgments if qrel.relevance > 0} & {query.id for query in queries}
    if judged_by is not None and not answered:
        raise DataError(
            f"none of {counted(len(read), 'judgment')} joins a query of {place} to a searched document",
            source=judged_by,
        )
    if len(judgments) < len(read):
        logger.warning("%d of %d judgments name documents that are not searched", len(read) - len(judgments), len(read))
    return AskedQueries(
        [query for query in queries if query.id in answered],
        [qrel for qrel in judgments if qrel.query_id in answered],
        [query for query in queries if query.id not in answered],
    )


class ExamAnswers(NamedTuple):
    """The evaluations of a model's answers to all questions: by the model alone, and as a search ranks by default."""

    alone: Evaluation
    hybrid: Evaluation


def answers(collections: Sequence[Encoded], words: SpaceIndex, dataset: Dataset) -> list[ExamAnswers]:
    """Search a dataset as each model encoded it; all share the dense model that goes with the first."""
    encoder = collections[0].encoder
    other = None if encoder is None else load_dense_beside(encoder.model)
    beside = None if other is None else dense_index(collections[0], other)
    return [_answers(encoded, words, beside, dataset) for encoded in collections]


def _answers(encoded: Encoded, words: SpaceIndex, beside: SpaceIndex | None, dataset: Dataset) -> ExamAnswers:
    """Search an encoded dataset, by the model alone and fused with its words and dense vectors."""
    indexes: dict[Space, SpaceIndex] = {"sparse": sparse_index(encoded), "bm25": words}
    if (dense := dense_index(encoded) or beside) is not None:
        indexes["dense"] = dense
    queries = judged_queries(dataset, encoded.queries)
    judged = Judged(DatasetRetriever("exam", dataset, indexes), queries, dataset, [EXAM_MEASURE, EXAM_RECALL])
    return ExamAnswers(
        judged.evaluate("alone", {"sparse": 1.0}, cost=indexes["sparse"].cost),
        judged.evaluate("hybrid", dict.fromkeys(indexes, 1.0)),
    )


@dataclass(frozen=True)
class Change:
    """The mean of a measure before and after, and the 95 % confidence interval of the mean difference."""

    queries: int
    before: float
    after: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        return self.after - self.before


def change(start: Evaluation, end: Evaluation, queries: Sequence[str], measure: str = EXAM_MEASURE) -> Change:
    """Compare two evaluations on these queries; the interval is Student's interval of the paired differences."""
    first, second = start.per_query[measure], end.per_query[measure]
    low, high = mean_interval({query: second[query] - first[query] for query in queries})
    means = [sum(values[query] for query in queries) / len(queries) for values in (first, second)]
    return Change(len(queries), means[0], means[1], low, high)
