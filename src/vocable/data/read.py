"""Read the records of a place, as a stream."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from vocable.data.docstore import IdSet
from vocable.data.schemas import (
    DOCUMENT,
    EXAMPLE,
    JUDGMENT,
    MINED,
    PLAIN_TEXT,
    QUERY,
    SCORED,
    BadLines,
    Document,
    Example,
    Kind,
    MalformedError,
    MinedNegatives,
    Qrel,
    Query,
    ScoredDoc,
)
from vocable.data.sources import Source, parse_place, resolve
from vocable.errors import DataError

T = TypeVar("T")
Place = str | os.PathLike[str]
PICKLES = (".pkl", ".pickle")
JOINED = ("beir", "ir_datasets", "pydocs")  # places that have judgments instead of examples


def read_corpus(place: Place, *, bad: BadLines | None = None) -> Iterator[Document]:
    """The documents of a place (`vocable.data` lists the places), in its order, one at a time.

    `bad` tolerates and counts bad lines; without it the first one raises.

    Raises:
        DataError: for a place that is not there (at once), for a bad line or damaged file (when reading gets there).
    """
    return _read(place, DOCUMENT, bad)


def read_queries(place: Place, *, bad: BadLines | None = None) -> Iterator[Query]:
    """The queries of a place; arguments and errors are those of `read_corpus`.

    A BEIR folder's query file holds the queries of all splits: of `beir:DIR#train`, only those that the split judges.
    """
    return _read(place, QUERY, bad)


def read_judgments(place: Place, *, bad: BadLines | None = None) -> Iterator[Qrel]:
    """The judgments of a place; arguments and errors are those of `read_corpus`."""
    return _read(place, JUDGMENT, bad)


def read_examples(place: Place, *, bad: BadLines | None = None) -> Iterator[Example]:
    """The training examples of a place; arguments and errors are those of `read_corpus`.

    A place with judgments instead of examples (`beir:`, `ir_datasets:`, `pydocs:`) gives one for each pair judged above
    0, in the corpus' order, with the document's title and text as the positive. Its split is `train` unless named.
    """
    name = os.fspath(place)
    scheme, _, split = parse_place(name)
    if scheme not in JOINED:
        source = resolve(name, EXAMPLE)
        return (example._replace(source=source.name) for example in _records(source, EXAMPLE, bad or BadLines()))
    if split is None and scheme != "ir_datasets":
        name = f"{name.removesuffix('#')}#train"
    return _joined(resolve(name, DOCUMENT), resolve(name, QUERY), resolve(name, JUDGMENT), bad or BadLines())


def read_texts(place: Place, *, bad: BadLines | None = None) -> Iterator[str]:
    """The bare texts of a place, for learning a language: of documents (no id needed) or the positives of examples.

    A title stands before its text. Arguments and errors are those of `read_corpus`.
    """
    if parse_place(os.fspath(place))[0] in JOINED:
        return (document.full for document in read_corpus(place, bad=bad))
    return _read(place, PLAIN_TEXT, bad)


def read_mined_negatives(place: Place, *, bad: BadLines | None = None) -> Iterator[MinedNegatives]:
    """Hard negatives as ids, by query and system: the layout of the msmarco-hard-negatives data set.

    Arguments and errors are those of `read_corpus`.
    """
    return _read(place, MINED, bad)


def read_scores(place: Place, *, bad: BadLines | None = None) -> Iterator[ScoredDoc]:
    """A teacher's scores of queries and documents, as ids. Arguments and errors are those of `read_corpus`.

    Raises:
        DataError: also for a pickle, which could run any code.
    """
    if set(PICKLES) & set(Path(os.fspath(place)).suffixes):
        raise DataError(
            "a pickle can run any code, so it is not read: write it as TSV, qid TAB pid TAB score, a query's "
            "lines together",
            place=os.fspath(place),
        )
    return _read(place, SCORED, bad)


def _read(place: Place, kind: Kind[T], bad: BadLines | None) -> Iterator[T]:
    return _records(resolve(os.fspath(place), kind), kind, bad or BadLines())


def _records(source: Source, kind: Kind[T], bad: BadLines) -> Iterator[T]:
    """The source's records; what is wrong with a line goes to `bad`."""
    ids, judged = IdSet(), None
    if source.judged_in is not None:  # whoever reads the judgments themselves counts their bad lines
        judged = {judgment.query_id for judgment in _read(source.judged_in, JUDGMENT, BadLines(bad.limit))}
    for number, item in source.items():
        try:
            row = source.parse(number, item)
            record = None if row is None else kind.record(row)
        except MalformedError as error:
            bad.add(f"{error}; expected {source.expected}", place=source.place, line=number)
            continue
        if record is None:
            continue
        key = kind.key(record)
        if key is not None and not ids.add(key):
            bad.add(kind.repeated(record), place=source.place, line=number)
        elif judged is None or key in judged:
            yield record


def _joined(corpus: Source, queries: Source, judgments: Source, bad: BadLines) -> Iterator[Example]:
    """Judged pairs as examples; judgments and queries are held, the corpus streams by."""
    asking: defaultdict[str, list[str]] = defaultdict(list)
    for judgment in _records(judgments, JUDGMENT, bad):
        if judgment.relevance > 0:
            asking[judgment.doc_id].append(judgment.query_id)
    texts = {query.id: query.text for query in _records(queries, QUERY, bad)}
    for document in _records(corpus, DOCUMENT, bad):
        for query_id in asking.get(document.id, ()):
            if query_id in texts:
                yield Example(texts[query_id], document.full, source=corpus.name)
