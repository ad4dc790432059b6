"""Read the records of a source, as a stream."""

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
from vocable.data.sources import Stream, parse_source, resolve
from vocable.errors import DataError
from vocable.storage import StrPath

T = TypeVar("T")
PICKLES = (".pkl", ".pickle")
JOINED = ("beir", "ir_datasets", "pydocs")  # sources that have judgments instead of examples


def read_corpus(source: StrPath, *, bad: BadLines | None = None) -> Iterator[Document]:
    """The documents of a source (`vocable.data` lists the sources), in its order, one at a time.

    `bad` tolerates and counts bad lines; without it the first one raises.

    Raises:
        DataError: for a source that is not there (at once), for a bad line or damaged file (when reading gets there).
    """
    return _read(source, DOCUMENT, bad)


def read_queries(source: StrPath, *, bad: BadLines | None = None) -> Iterator[Query]:
    """The queries of a source; arguments and errors are those of `read_corpus`.

    A BEIR folder's query file holds the queries of all splits: of `beir:DIR#train`, only those that the split judges.
    """
    return _read(source, QUERY, bad)


def typed_queries() -> Iterator[Query]:
    """The queries on standard input, a text a line; errors are those of `read_corpus`."""
    return records(resolve("-", QUERY, ".txt"), QUERY, BadLines())


def read_judgments(source: StrPath, *, bad: BadLines | None = None) -> Iterator[Qrel]:
    """The judgments of a source; arguments and errors are those of `read_corpus`."""
    return _read(source, JUDGMENT, bad)


def read_examples(source: StrPath, *, bad: BadLines | None = None) -> Iterator[Example]:
    """The training examples of a source; arguments and errors are those of `read_corpus`.

    A source with judgments instead of examples (`beir:`, `ir_datasets:`, `pydocs:`) gives one for each pair judged
    above 0, in the corpus' order: the positive is the document's title and text. Its split is `train` unless named.
    """
    name = os.fspath(source)
    scheme, _, split = parse_source(name)
    if scheme not in JOINED:
        stream = resolve(name, EXAMPLE)
        return (example._replace(source=stream.name) for example in records(stream, EXAMPLE, bad or BadLines()))
    if split is None and scheme != "ir_datasets":
        name = f"{name.removesuffix('#')}#train"
    return _joined(resolve(name, DOCUMENT), resolve(name, QUERY), resolve(name, JUDGMENT), bad or BadLines())


def read_texts(source: StrPath, *, bad: BadLines | None = None) -> Iterator[str]:
    """The bare texts of a source, for learning a language: of documents (no id needed) or the positives of examples.

    A title stands before its text. Arguments and errors are those of `read_corpus`.
    """
    if parse_source(os.fspath(source))[0] in JOINED:
        return (document.full for document in read_corpus(source, bad=bad))
    return _read(source, PLAIN_TEXT, bad)


def read_mined_negatives(source: StrPath, *, bad: BadLines | None = None) -> Iterator[MinedNegatives]:
    """Hard negatives as ids, by query and system: the layout of the msmarco-hard-negatives data set."""
    return _read(source, MINED, bad)


def read_scores(source: StrPath, *, bad: BadLines | None = None) -> Iterator[ScoredDoc]:
    """A teacher's scores of queries and documents, as ids. Arguments and errors are those of `read_corpus`."""
    if set(PICKLES) & set(Path(os.fspath(source)).suffixes):
        instead = "write it as TSV, qid TAB pid TAB score, a query's lines together"
        raise DataError(f"a pickle can run any code, so it is not read: {instead}", source=os.fspath(source))
    return _read(source, SCORED, bad)


def _read(source: StrPath, kind: Kind[T], bad: BadLines | None) -> Iterator[T]:
    return records(resolve(os.fspath(source), kind), kind, bad or BadLines())


def records(stream: Stream, kind: Kind[T], bad: BadLines) -> Iterator[T]:
    """The records of a stream; what is wrong with a line goes to `bad`."""
    ids, judged = IdSet(), None
    if stream.judged_in is not None:  # whoever reads the judgments themselves counts their bad lines
        judged = {judgment.query_id for judgment in _read(stream.judged_in, JUDGMENT, BadLines(bad.limit))}
    for number, item in stream.items():
        try:
            row = stream.parse(number, item)
            record = None if row is None else kind.record(row)
        except MalformedError as error:
            bad.add(f"{error}; expected {stream.expected}", source=stream.source, line=number)
            continue
        if record is None:
            continue
        key = kind.key(record)
        if key is not None and not ids.add(key):
            bad.add(kind.repeated(record), source=stream.source, line=number)
        elif judged is None or key in judged:
            yield record


def _joined(corpus: Stream, queries: Stream, judgments: Stream, bad: BadLines) -> Iterator[Example]:
    """Judged pairs as examples; judgments and queries are held, the corpus streams by."""
    asking: defaultdict[str, list[str]] = defaultdict(list)
    for judgment in records(judgments, JUDGMENT, bad):
        if judgment.relevance > 0:
            asking[judgment.doc_id].append(judgment.query_id)
    texts = {query.id: query.text for query in records(queries, QUERY, bad)}
    for document in records(corpus, DOCUMENT, bad):
        for query_id in asking.get(document.id, ()):
            if query_id in texts:
                yield Example(texts[query_id], document.full, source=corpus.name)
