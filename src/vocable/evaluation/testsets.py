"""Test collections made from a log of queries and the documents that answered them (Kim et al. 2026, 3.5 and C.1).

Queries are put into clusters of similar meaning, and a test collection takes its queries from all clusters alike. Where
the paper is silent, we read: the overlap of a query and a document is the share of the query's words that are in the
document; a query's overlap is the highest over its positives; low is below 1/3, high from 2/3 on. A text is cut into
words as `vocable.retrieval.words` cuts it, single letters included.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

from vocable.data import BadLines, Example, read_examples
from vocable.data.texts import as_texts
from vocable.encoder.hub import open_model
from vocable.errors import ArgumentError, DataError
from vocable.fingerprint import fingerprint
from vocable.options import Count, CountOrZero, Share, check_fields, checked
from vocable.progress import track
from vocable.retrieval.words import words as in_order
from vocable.storage import check_file, finished, refuse_taken, replacing, replacing_folder

LEXICAL = "lexical"
EXACT = 20_000  # texts up to which all of them are looked at in every step of k-means
STARTS = 4  # of which the best is taken
LEVELS = ("low", "middle", "high")

Embeddings: TypeAlias = NDArray[np.floating[Any]] | csr_array


class Log(NamedTuple):
    """A log in memory: distinct `queries` and `documents`, and for each query its documents with their labels."""

    queries: list[str]
    documents: list[str]
    answers: list[dict[int, float]]


def read_log(examples: Iterable[Example]) -> Log:
    """Gather the pairs of a log; a pair's label is its highest score, or without any how often it is there."""
    queries, documents, labels = dict[str, int](), dict[str, int](), list[dict[int, float]]()
    scored: set[bool] = set()
    for example in examples:
        query = queries.setdefault(example.query, len(queries))
        if query == len(labels):
            labels.append({})
        document, answers = documents.setdefault(example.positive, len(documents)), labels[query]
        scored.add(bool(example.scores))
        if len(scored) == 2:
            raise DataError(f"some pairs have a label score and some have none: {example.query[:60]!r}")
        if example.scores:
            answers[document] = max(example.scores[0], answers.get(document, -math.inf))
        else:
            answers[document] = answers.get(document, 0) + 1
    if not queries:
        raise DataError("the log has no pair")
    return Log(list(queries), list(documents), labels)


def text_embeddings(texts: Sequence[str], model: str = LEXICAL, device: str | None = None) -> Embeddings:
    """Unit vectors [n, d] of n texts.

    `model` is a sentence-transformers dense model (a folder, `package:NAME/FOLDER` or a Hub id), or "lexical" for the
    texts' words, weighted by tf-idf, which needs no model; `device` is as for `vocable.load`.
    """
    texts = as_texts(texts)
    if model == LEXICAL:
        from sklearn.feature_extraction.text import TfidfVectorizer

        analyzer = partial(in_order, letters=True)
        try:
            return csr_array(TfidfVectorizer(analyzer=analyzer, sublinear_tf=True).fit_transform(texts))
        except ValueError as error:  # an empty vocabulary
            raise DataError("there is no text with a word to cluster") from error
    from sentence_transformers import SentenceTransformer

    encoder = open_model(model, partial(SentenceTransformer, model_kwargs={"dtype": "float32"}), device)
    found = encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True)
    return cast(Embeddings, found)


def cluster(embeddings: Embeddings, count: int, seed: int = 0) -> NDArray[np.int64]:
    """The cluster of each row of `embeddings` [n, d], int64 [n] below `count`, found by k-means.

    Of more than 20,000 rows a batch is looked at in each step.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    n = embeddings.shape[0]
    if not 2 <= count <= n:
        raise ArgumentError(f"clusters must be at least 2 and at most the different texts, {n:,}; not {count:,}")
    settings = {"n_clusters": count, "random_state": seed, "n_init": STARTS}
    kmeans = KMeans(**settings) if n <= EXACT else MiniBatchKMeans(**settings, batch_size=max(1024, 3 * count))
    rows = csr_matrix(embeddings) if isinstance(embeddings, csr_array) else embeddings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows that are alike: there are fewer clusters than asked
        labels: NDArray[np.int64] = kmeans.fit_predict(rows).astype(np.int64)
    return labels


@dataclass(frozen=True)
class Choice:
    """What a test collection is to be like; the defaults are the paper's, where it has any.

    `queries` is how many there are at most, `positives` and `negatives` how many of each a query has at most (None for
    all positives); a negative has at least the share `min_overlap` of the query's words. `distractors` is the
    number of further queries of each cluster whose documents are added.
    """

    queries: Count = 900
    clusters: Annotated[int, Ge(2)] = 100
    kind: Literal["hard", "plain"] = "hard"
    positives: Count | None = 3
    negatives: Count = 10
    min_overlap: Share = 0.5
    distractors: CountOrZero = 0

    def __post_init__(self) -> None:
        check_fields(self)


class Chosen(NamedTuple):
    """A query of a test collection: rows of the log's queries and documents. `level` is None in a plain one."""

    query: int
    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    level: str | None


class Selection(NamedTuple):
    """What was chosen from a log: `distractors` are rows of documents, `further` of the queries they come from."""

    log: Log
    chosen: list[Chosen]
    further: list[int]
    distractors: list[int]

    def documents(self) -> list[int]:
        """Return the rows of all documents of the collection, in the order of the log."""
        judged = (row for one in self.chosen for row in (*one.positives, *one.negatives))
        return sorted({*judged, *self.distractors})

    def levels(self) -> dict[str, int]:
        """Return the number of queries at each level; none in a plain collection."""
        found = [one.level for one in self.chosen if one.level is not None]
        return {level: found.count(level) for level in LEVELS} if found else {}


def choose(
    log: Log, choice: Choice, *, embedding: str = LEXICAL, seed: int = 0, device: str | None = None
) -> Selection:
    """Choose the queries, positives, negatives and distractors of a test collection.

    Queries are clustered by `text_embeddings` of the `embedding`; `seed` decides clusters and draws.
    """
    groups = cluster(text_embeddings(log.queries, embedding, device), choice.clusters, seed)
    rng = np.random.default_rng(seed)
    if choice.kind == "hard":
        chosen = _hard(log, choice, groups, rng)
    else:
        rows = _from_all(range(len(log.queries)), choice.queries, groups, rng)
        chosen = [Chosen(query, _best(log, query, None), (), None) for query in rows]
    taken = {one.query for one in chosen}
    others = _members((query for query in range(len(groups)) if query not in taken), groups)
    further = [query for some in others.values() for query in rng.permutation(some)[: choice.distractors].tolist()]
    judged = {row for one in chosen for row in (*log.answers[one.query], *one.negatives)}
    distractors = {document for query in further for document in log.answers[query]} - judged
    return Selection(log, chosen, further, sorted(distractors))


def words(text: str) -> set[str]:
    """Return the distinct words of a text, in lower case.

    >>> sorted(words("The fox, the OWL!"))
    ['fox', 'owl', 'the']
    """
    return {*in_order(text, letters=True)}


def _hard(log: Log, choice: Choice, groups: NDArray[np.int64], rng: np.random.Generator) -> list[Chosen]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(log.documents):
        for word in words(text):
            rows[word].append(row)
    holding = {word: np.array(some, dtype=np.int64) for word, some in rows.items()}
    owners: list[set[int]] = [set() for _ in log.documents]  # the clusters whose queries a document answers
    for query, answers in enumerate(log.answers):
        for document in answers:
            owners[document].add(int(groups[query]))
    by_level: dict[str, dict[int, Chosen]] = {level: {} for level in LEVELS}
    for query, text in enumerate(log.queries):
        asked = words(text)
        near = _near(asked, holding, choice.min_overlap)
        negatives = list(islice((row for row in near if int(groups[query]) not in owners[row]), choice.negatives))
        if negatives:
            best = max(len(asked & words(log.documents[document])) for document in log.answers[query])
            level = LEVELS[min(2, 3 * best // len(asked))]
            by_level[level][query] = Chosen(query, _best(log, query, choice.positives), tuple(negatives), level)
    return _balanced(by_level, choice.queries, groups, rng)


def _balanced(
    by_level: dict[str, dict[int, Chosen]], count: int, groups: NDArray[np.int64], rng: np.random.Generator
) -> list[Chosen]:
    """As many of each level, a third of `count` at most, each from all clusters alike."""
    sizes = {level: len(found) for level, found in by_level.items()}
    if missing := " and ".join(level for level, size in sizes.items() if not size):
        there = ", ".join(f"{size:,} {level}" for level, size in sizes.items())
        raise DataError(f"no query of {missing} overlap has a hard negative ({there}): ask for less min_overlap")
    each = min(max(1, count // len(LEVELS)), *sizes.values())
    return [found[query] for found in by_level.values() for query in _from_all(list(found), each, groups, rng)]


def _best(log: Log, query: int, limit: int | None) -> tuple[int, ...]:
    """The answers with the highest labels, the earlier in the log first where they are alike."""
    answers = log.answers[query]
    return tuple(sorted(answers, key=lambda document: (-answers[document], document))[:limit])


def _from_all(queries: Sequence[int], count: int, groups: NDArray[np.int64], rng: np.random.Generator) -> list[int]:
    """`count` of the queries in random order: one of every cluster, then a second one of every cluster, and so on."""
    rounds: dict[int, list[int]] = defaultdict(list)
    for members in _members(queries, groups).values():
        for turn, query in enumerate(rng.permutation(members).tolist()):
            rounds[turn].append(query)
    drawn = (query for turn in sorted(rounds) for query in rng.permutation(rounds[turn]).tolist())
    return [query for query, _ in zip(drawn, range(count), strict=False)]


def _members(queries: Iterable[int], groups: NDArray[np.int64]) -> dict[int, list[int]]:
    """The queries of each cluster."""
    found: dict[int, list[int]] = defaultdict(list)
    for query in queries:
        found[int(groups[query])].append(query)
    return dict(sorted(found.items()))


def _near(asked: set[str], holding: dict[str, NDArray[np.int64]], share: float) -> list[int]:
    """The documents that hold at least that share of the words: those with most of them first, then as in the log."""
    lists = [holding[word] for word in asked if word in holding]
    rows, counts = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *lists]), return_counts=True)
    enough = counts >= share * len(asked) - 1e-9
    return cast(list[int], rows[enough][np.argsort(-counts[enough], kind="stable")].tolist())


def write_beir(selection: Selection, output: str | Path, settings: Mapping[str, Any] | None = None) -> None:
    """Write the collection as a BEIR folder, whole or not at all; documents and queries are called by their rows.

    Positives are judged 1 and hard negatives 0.
    """
    log = selection.log
    corpus = ({"_id": f"d{row}", "title": "", "text": log.documents[row]} for row in selection.documents())
    queries = ({"_id": f"q{one.query}", "text": log.queries[one.query]} for one in selection.chosen)
    with replacing_folder(output, settings) as work:
        (work / "qrels").mkdir()
        for name, rows in (("corpus", corpus), ("queries", queries)):
            with (work / f"{name}.jsonl").open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with (work / "qrels" / "test.tsv").open("w", encoding="utf-8") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            for one in selection.chosen:
                for relevance, rows_of in ((1, one.positives), (0, one.negatives)):
                    file.writelines(f"q{one.query}\td{row}\t{relevance}\n" for row in rows_of)


@dataclass(frozen=True)
class MadeTestset:
    """What a test collection holds: `levels` are {overlap: queries}, `rest` the examples written beside it."""

    queries: int
    documents: int
    levels: dict[str, int]
    rest: int | None
    bad_lines: int

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def __str__(self) -> str:
        levels = {f"{name} overlap": count for name, count in self.levels.items()}
        counts: dict[str, int | None] = {"queries": self.queries, **levels, "documents": self.documents}
        counts |= {"examples of other queries": self.rest, "bad lines left out": self.bad_lines or None}
        return "\n".join(f"{name}: {count:,}" for name, count in counts.items() if count is not None)


@checked
def make_testset(
    log: str,
    output: str | Path,
    *,
    queries: Count = 900,
    clusters: Annotated[int, Ge(2)] = 100,
    kind: Literal["hard", "plain"] = "hard",
    positives: Count | None = 3,
    negatives: Count = 10,
    min_overlap: Share = 0.5,
    distractors: CountOrZero = 0,
    embedding: str = LEXICAL,
    device: str | None = None,
    seed: CountOrZero = 0,
    rest: str | Path | None = None,
    skip_bad: CountOrZero = 0,
) -> MadeTestset:
    """Make a test collection, a BEIR folder, from a log of queries and answers.

    Args:
        log: source of the examples: queries and positives, perhaps with scores.
        output: the folder; there only when it is whole.
        queries: how many queries, at most.
        clusters: groups of similar queries to draw from alike.
        kind: "hard" has queries of three levels of overlap and hard negatives, "plain" neither.
        positives: of "hard", how many positives of a query, at most. None is all.
        negatives: of "hard", how many hard negatives of a query, at most.
        min_overlap: share of a query's words that a hard negative has at least.
        distractors: further queries of each group whose documents are added.
        embedding: dense model that makes the groups, or lexical.
        device: where models run, as cpu, cuda or cuda:1; by default the best there is.
        seed: decides groups and draws.
        rest: JSON lines file for the examples of all other queries, to train on.
        skip_bad: bad lines of the log that are tolerated, and left out.

    Raises:
        ArgumentError: an argument out of its range, the output is there already, or the rest of standard input.
        DataError: the log cannot be read, or no query is fit.
        ModelError: the embedding model cannot be read.
    """
    made_from: dict[str, Any] = {"log": log, "queries": queries, "clusters": clusters, "kind": kind, "seed": seed}
    made_from |= {"positives": positives, "negatives": negatives, "min_overlap": min_overlap, "embedding": embedding}
    made_from |= {"distractors": distractors, "skip_bad": skip_bad, "inputs": fingerprint(log)}
    done = finished(output, made_from)
    if not done:
        refuse_taken(Path(output))
    if rest is not None:
        check_file(rest)
    if rest is not None and log == "-":
        raise ArgumentError("rest reads the log a second time, which standard input cannot give")
    choice, bad = Choice(queries, clusters, kind, positives, negatives, min_overlap, distractors), BadLines(skip_bad)
    read = read_log(track(read_examples(log, bad=bad), "log"))
    selection = choose(read, choice, embedding=embedding, seed=seed, device=device)
    left = None
    if rest is not None:
        # What a training set must do without: the queries whose answers are in the collection.
        answered = (*(one.query for one in selection.chosen), *selection.further)
        used, left = {selection.log.queries[row] for row in answered}, 0
        with replacing(rest) as file:
            for example in read_examples(log, bad=bad):
                if example.query not in used:
                    file.write(example.line)
                    left += 1
    if not done:
        write_beir(selection, output, made_from)
    return MadeTestset(len(selection.chosen), len(selection.documents()), selection.levels(), left, bad.count)
