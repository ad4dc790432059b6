"""Draw test collections from a log of queries and the documents that answered them (Kim et al. 2026, 3.5 and C.1).

Queries are clustered by meaning, and a test collection takes its queries evenly from all clusters. Where the paper is
silent, we assume: the overlap of a query and a document is the share of the query's words that the document contains; a
query's overlap is the highest over its positives; a low overlap is below 1/3, a high overlap is 2/3 or more. Words are
as in `vocable.language.words`, and single letters count.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from vocable.core.fingerprint import settings_of
from vocable.core.progress import track
from vocable.core.storage import check_file, finished, refuse_taken, replacing, replacing_folder
from vocable.data import BadLines, Document, Example, Qrel, Query, read_examples
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.clusters import LEXICAL, cluster, text_embeddings
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.logged import logged_dataset
from vocable.language.words import words as words_in_order
from vocable.options import CountOrZero, TestsetOptions, changed, checked

LEVELS = ("low", "middle", "high")


class QueryLog(NamedTuple):
    """Distinct `queries` and `documents`, and the documents of each query with their labels."""

    queries: list[str]
    documents: list[str]
    answers: list[dict[int, float]]


def read_log(examples: Iterable[Example]) -> QueryLog:
    """Collect the pairs of a log; a pair's label is its highest score, or its frequency if no pair has scores."""
    queries, documents, labels = dict[str, int](), dict[str, int](), list[dict[int, float]]()
    scored: set[bool] = set()
    for example in examples:
        query = queries.setdefault(example.query, len(queries))
        if query == len(labels):
            labels.append({})
        document, answers = documents.setdefault(example.positive, len(documents)), labels[query]
        scored.add(bool(example.scores))
        if len(scored) == 2:
            raise DataError(f"some pairs have a score and some have none: {example.query[:60]!r}")
        if example.scores:
            answers[document] = max(example.scores[0], answers.get(document, -math.inf))
        else:
            answers[document] = answers.get(document, 0) + 1
    if not queries:
        raise DataError("the log has no pair")
    return QueryLog(list(queries), list(documents), labels)


class DrawnQuery(NamedTuple):
    """A test query: rows in the log's queries and documents; `level` is None in a plain collection."""

    query: int
    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    level: str | None


class DrawnTestset(NamedTuple):
    """Test queries drawn from a log; `distractors` are rows of documents, and `further` are rows of their queries."""

    log: QueryLog
    queries: list[DrawnQuery]
    further: list[int]
    distractors: list[int]

    def documents(self) -> list[int]:
        """Return the rows of all documents of the collection, in the order of the log."""
        judged = (row for query in self.queries for row in (*query.positives, *query.negatives))
        return sorted({*judged, *self.distractors})

    def dataset(self) -> Dataset:
        """Return the test collection; the ids of documents and queries contain their rows.

        Positives are judged 1 and hard negatives 0.
        """
        judgments = [
            Qrel(f"q{query}", f"d{row}", relevance)
            for query, positives, negatives, _ in self.queries
            for relevance, rows in ((1, positives), (0, negatives))
            for row in rows
        ]
        documents = [Document(f"d{row}", self.log.documents[row]) for row in self.documents()]
        queries = [Query(f"q{each.query}", self.log.queries[each.query]) for each in self.queries]
        return Dataset("", documents, queries, judgments)

    def levels(self) -> dict[str, int]:
        """Return the number of queries at each level; empty for a plain collection."""
        levels = [query.level for query in self.queries if query.level is not None]
        return {level: levels.count(level) for level in LEVELS} if levels else {}


@checked
def draw_testset(
    log: QueryLog,
    *,
    embedding: str = LEXICAL,
    seed: CountOrZero = 0,
    device: str | None = None,
    **options: Unpack[TestsetOptions],
) -> DrawnTestset:
    """Draw the queries, positives, negatives and distractors of a test collection.

    Queries are clustered by `text_embeddings` with the model `embedding`; `seed` determines clusters and draws.
    """
    # The cluster of each query [q].
    groups = cluster(text_embeddings(log.queries, embedding, device), options["clusters"], seed)
    rng = np.random.default_rng(seed)
    if options["difficulty"] == "hard":
        drawn = _hard(log, options, groups, rng)
    else:
        rows = _evenly(range(len(log.queries)), options["queries"], groups, rng)
        drawn = [DrawnQuery(query, _best(log, query, None), (), None) for query in rows]
    # Distractors answer other queries of the same clusters; judged documents are left out.
    taken = {each.query for each in drawn}
    others = _members((query for query in range(len(groups)) if query not in taken), groups)
    further = [
        row for members in others.values() for row in rng.permutation(members)[: options["distractors"]].tolist()
    ]
    judged = {row for each in drawn for row in (*log.answers[each.query], *each.negatives)}
    distractors = {document for query in further for document in log.answers[query]} - judged
    return DrawnTestset(log, drawn, further, sorted(distractors))


def words(text: str) -> set[str]:
    """Return the distinct words of a text, in lower case.

    >>> sorted(words("The fox, the OWL!"))
    ['fox', 'owl', 'the']
    """
    return {*words_in_order(text, letters=True)}


def _hard(
    log: QueryLog, options: TestsetOptions, groups: NDArray[np.int64], rng: np.random.Generator
) -> list[DrawnQuery]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(log.documents):
        for word in words(text):
            rows[word].append(row)
    holding = {word: np.array(numbers, dtype=np.int64) for word, numbers in rows.items()}
    owners: list[set[int]] = [set() for _ in log.documents]  # clusters of the queries that a document answers
    for query, answers in enumerate(log.answers):
        for document in answers:
            owners[document].add(int(groups[query]))
    by_level: dict[str, dict[int, DrawnQuery]] = {level: {} for level in LEVELS}
    for query, text in enumerate(log.queries):
        query_words = words(text)
        near = _near(query_words, holding, options["min_overlap"])
        negatives = list(islice((row for row in near if int(groups[query]) not in owners[row]), options["negatives"]))
        if negatives:
            best = max(len(query_words & words(log.documents[document])) for document in log.answers[query])
            level = LEVELS[min(2, 3 * best // len(query_words))]
            by_level[level][query] = DrawnQuery(query, _best(log, query, options["positives"]), tuple(negatives), level)
    return _balanced(by_level, options["queries"], groups, rng)


def _balanced(
    by_level: dict[str, dict[int, DrawnQuery]], count: int, groups: NDArray[np.int64], rng: np.random.Generator
) -> list[DrawnQuery]:
    """Draw the same number of queries of each level, at most a third of `count`, evenly from all clusters."""
    sizes = {level: len(queries) for level, queries in by_level.items()}
    if missing := " and ".join(level for level, size in sizes.items() if not size):
        counts = ", ".join(f"{size:,} {level}" for level, size in sizes.items())
        raise DataError(f"no query of {missing} overlap has a hard negative ({counts}): lower min_overlap")
    each = min(max(1, count // len(LEVELS)), *sizes.values())
    return [queries[row] for queries in by_level.values() for row in _evenly(list(queries), each, groups, rng)]


def _best(log: QueryLog, query: int, limit: int | None) -> tuple[int, ...]:
    """Return the answers with the highest labels; among equal labels, the earlier answer in the log first."""
    answers = log.answers[query]
    return tuple(sorted(answers, key=lambda document: (-answers[document], document))[:limit])


def _evenly(queries: Sequence[int], count: int, groups: NDArray[np.int64], rng: np.random.Generator) -> list[int]:
    """Draw `count` queries in random order: a query from every cluster, then a second query from each, and so on."""
    rounds: dict[int, list[int]] = defaultdict(list)
    for members in _members(queries, groups).values():
        for turn, query in enumerate(rng.permutation(members).tolist()):
            rounds[turn].append(query)
    drawn = (query for turn in sorted(rounds) for query in rng.permutation(rounds[turn]).tolist())
    return [query for query, _ in zip(drawn, range(count), strict=False)]


def _members(queries: Iterable[int], groups: NDArray[np.int64]) -> dict[int, list[int]]:
    members: dict[int, list[int]] = defaultdict(list)
    for query in queries:
        members[int(groups[query])].append(query)
    return dict(sorted(members.items()))


def _near(query_words: set[str], holding: dict[str, NDArray[np.int64]], share: float) -> list[int]:
    """Return the documents with at least this share of the words, by decreasing number of words, then by row."""
    lists = [holding[word] for word in query_words if word in holding]
    rows, counts = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *lists]), return_counts=True)
    enough = counts >= share * len(query_words) - 1e-9
    return cast(list[int], rows[enough][np.argsort(-counts[enough], kind="stable")].tolist())


def write_beir(dataset: Dataset, output: str | Path, settings: Mapping[str, object] | None = None) -> None:
    """Write a dataset as a BEIR folder, atomically."""
    corpus = (
        {"_id": document.id, "title": document.title, "text": document.text}
        | ({"fields": dict(document.fields)} if document.fields else {})
        for document in dataset.documents
    )
    queries = ({"_id": query.id, "text": query.text} for query in dataset.queries)
    with replacing_folder(output, settings) as work:
        (work / "qrels").mkdir()
        for name, rows in (("corpus", corpus), ("queries", queries)):
            with (work / f"{name}.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with (work / "qrels" / "test.tsv").open("w", encoding="utf-8") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            file.writelines(f"{query}\t{document}\t{grade}\n" for query, document, grade, _ in dataset.judgments)


@dataclass(frozen=True)
class MadeTestset:
    """Counts of a test collection.

    `levels` is {overlap: queries}; `train_examples` counts the training examples; `unmatched` counts the addresses of
    the log that name no page of the index.
    """

    queries: int
    documents: int
    levels: dict[str, int]
    train_examples: int | None
    bad_lines: int
    unmatched: int | None = None

    def to_json(self) -> dict[str, object]:
        """Return the counts as JSON values."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def __str__(self) -> str:
        levels = {f"{name} overlap": count for name, count in self.levels.items()}
        counts: dict[str, int | None] = {"queries": self.queries, **levels, "documents": self.documents}
        counts |= {"training examples": self.train_examples, "bad lines left out": self.bad_lines or None}
        counts |= {"addresses without a page": self.unmatched}
        return "\n".join(f"{name}: {count:,}" for name, count in counts.items() if count is not None)


@checked
def make_testset(
    log: str,
    output: str | Path,
    *,
    index: str | None = None,
    embedding: str = LEXICAL,
    device: str | None = None,
    seed: CountOrZero = 0,
    train_output: str | Path | None = None,
    skip_bad: CountOrZero = 0,
    **options: Unpack[TestsetOptions],
) -> MadeTestset:
    """Make a test collection from a log of queries.

    It is a BEIR folder whose queries come equally from all groups of similar queries, with equal numbers of low, middle
    and high word overlap with their documents.

    With `index` the log has searches and the pages clicked: the columns query, page (or url, id) and optionally count
    of a .csv file. Every search with a page of the index is a query, and equal searches are one. A page is named by its
    link, path, file or id, and stands for all its sections. Every page clicked is relevant, and the sum of its clicks
    is its grade, which nDCG weighs; R and RR do not.

    Args:
        log: source of queries and positives, with or without scores; with `index`, searches.
        output: output folder (written atomically).
        index: place of the index with the pages of a log of searches.
        embedding: dense model that groups the queries, or lexical.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        seed: seed of the groups and draws.
        train_output: JSON Lines file for the examples of all other queries, to train on.
        skip_bad: number of malformed lines to skip; one more is an error.
        options: the fields of `vocable.options.TestsetOptions`.

    Raises:
        ArgumentError: an argument is out of its range, something else exists at `output`, `log` is the standard
            input and `train_output` is given, or `index` and an option of the draw are given.
        DataError: the log cannot be read, or has no suitable query.
        ModelError: the embedding model cannot be read.
    """
    made_from = settings_of(make_testset, locals(), without=("train_output",))
    done = finished(output, made_from)
    if not done:
        refuse_taken(Path(output))
    bad = BadLines(skip_bad)
    if index is not None:
        given = {*changed(TestsetOptions, options), *(["train_output"] if train_output is not None else [])}
        if given or embedding != LEXICAL or seed:
            name = min(given, default="embedding" if embedding != LEXICAL else "seed")
            raise ArgumentError(f"{name} is for drawing from a log: `index` takes all its searches")
        searched = logged_dataset(log, index, bad)
        if not done:
            write_beir(searched.dataset, output, made_from)
        counts = len(searched.dataset.queries), len(searched.dataset.documents)
        return MadeTestset(*counts, {}, None, bad.count, searched.unmatched)
    if train_output is not None:
        check_file(train_output)
        if log == "-":
            raise ArgumentError("train_output reads the log twice: standard input cannot be read again")
    read = read_log(track(read_examples(log, bad=bad), "log"))
    drawn = draw_testset(read, embedding=embedding, seed=seed, device=device, **options)
    train_examples = None
    if train_output is not None:
        # The training set must not contain queries with answers in the collection.
        used = {read.queries[row] for row in (*(each.query for each in drawn.queries), *drawn.further)}
        train_examples = 0
        with replacing(train_output) as file:
            for example in read_examples(log, bad=bad):
                if example.query not in used:
                    file.write(example.line)
                    train_examples += 1
    if not done:
        write_beir(drawn.dataset(), output, made_from)
    return MadeTestset(len(drawn.queries), len(drawn.documents()), drawn.levels(), train_examples, bad.count)
