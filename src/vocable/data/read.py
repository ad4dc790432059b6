"""Read the records of a source as a stream."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Literal, TypeVar, cast

from vocable.core.fingerprint import DERIVED
from vocable.core.storage import StrPath, path_name
from vocable.data.bad_lines import BadLines, tolerance
from vocable.data.docstore import IdSet
from vocable.data.kinds import (
    DOCUMENT,
    EXAMPLE,
    JUDGMENT,
    MINED,
    PLAIN_TEXT,
    QUERY,
    RUN_HIT,
    SCORED,
    TYPED_ID,
    TYPED_QUERY,
    Kind,
    RowValues,
)
from vocable.data.lines import text_row, typed_row
from vocable.data.records import Document, Example, MalformedError, MinedNegatives, Qrel, Query, ScoredDoc
from vocable.data.sources import Stream, folder_stream, parse_source, resolve, rows_stream, run_file, standard_input
from vocable.errors import DataError

T = TypeVar("T")
PICKLES = (".pkl", ".pickle")
JUDGED = ("beir", "ir_datasets", "pydocs")  # sources with judgments instead of examples


def read_corpus(
    source: StrPath,
    *,
    bad: BadLines | None = None,
    folder: StrPath | None = None,
    inside: str = "",
    all_pages: bool = False,
    code: bool | None = None,
) -> Iterator[Document]:
    """Return the documents of a source (`vocable.data` lists the kinds of sources), one at a time.

    `bad` tolerates and counts bad lines. By default the enclosing `tolerating` block does; without a block, the first
    bad line raises. Repeated lines are skipped. Published collections ("beir:", "ir_datasets:", "hf:") may have
    documents without text. With `folder`, the source is this folder, or `inside` it a file or a folder with a slash;
    `all_pages` includes pages that generators made of other pages; `code` reads source code, too, by default where
    there is at least as much of it as pages.

    Raises:
        DataError: the source is missing (at once), or a line is bad or the file damaged (when it is reached).
    """
    if folder is not None:
        stream = folder_stream(Path(folder), inside=inside, all_pages=all_pages, code=code)
        return records(stream, DOCUMENT, bad or tolerance())
    return _read(source, DOCUMENT, bad)


def read_queries(source: StrPath, *, bad: BadLines | None = None) -> Iterator[Query]:
    """Return the queries of a source; arguments and errors as in `read_corpus`.

    The query file of a BEIR folder holds the queries of all splits; `beir:DIR#train` yields the queries that the split
    `train` judges.
    """
    return _read(source, QUERY, bad)


def read_collection(source: StrPath) -> Iterator[Document]:
    """Read a source like a published collection, and return its documents; errors as in `read_corpus`."""
    return records(open_source(path_name(source, "a source"), DOCUMENT)._replace(published=True), DOCUMENT, tolerance())


def typed_queries() -> Iterator[Query]:
    """Return the lines of standard input, blank lines included, as queries; errors as in `read_corpus`."""
    return records(standard_input(typed_row, TYPED_QUERY.layout), TYPED_QUERY, tolerance())


def typed_ids() -> Iterator[str]:
    """Return the lines of standard input as ids; errors as in `read_corpus`."""
    return records(standard_input(text_row, TYPED_ID.layout), TYPED_ID, tolerance())


def read_judgments(source: StrPath, *, bad: BadLines | None = None) -> Iterator[Qrel]:
    """Return the judgments of a source; arguments and errors as in `read_corpus`."""
    return _read(source, JUDGMENT, bad)


def read_run(path: StrPath, *, bad: BadLines | None = None) -> Iterator[ScoredDoc]:
    """Return the hits of a TREC run; arguments and errors as in `read_corpus`."""
    return records(run_file(Path(path), RUN_HIT), RUN_HIT, bad or tolerance())


def read_examples(source: StrPath, *, bad: BadLines | None = None) -> Iterator[Example]:
    """Return the training examples of a source; arguments and errors as in `read_corpus`.

    A source with judgments (`beir:`, `ir_datasets:`, `pydocs:`) yields an example for each pair judged above 0, in the
    order of the corpus; the positive is the title and text of the document. The default split is `train`.
    """
    name = os.fspath(source)
    scheme, _, split = parse_source(name)
    if scheme not in JUDGED:
        stream = open_source(name, EXAMPLE)
        return (example._replace(source=stream.name) for example in records(stream, EXAMPLE, bad or tolerance()))
    if split is None and scheme != "ir_datasets":
        name = f"{name.removesuffix('#')}#train"
    return _joined(
        open_source(name, DOCUMENT), open_source(name, QUERY), open_source(name, JUDGMENT), bad or tolerance()
    )


def read_texts(source: StrPath, *, bad: BadLines | None = None) -> Iterator[str]:
    """Return the texts of documents, with their titles, or of positives of examples, for language modelling.

    Ids are not required. Arguments and errors as in `read_corpus`.
    """
    if parse_source(os.fspath(source))[0] in JUDGED:
        return (document.full for document in read_corpus(source, bad=bad) if document.full)
    return _read(source, PLAIN_TEXT, bad)


def check_there(source: str) -> None:
    """Raise `DataError` for a local source that does not exist; other sources are not looked for."""
    scheme, place, _ = parse_source(source)
    if scheme in DERIVED:
        check_there(source.partition(":")[2])
    elif source != "-" and scheme in (None, "beir") and not Path(place).exists():
        open_source(source, PLAIN_TEXT if scheme is None else DOCUMENT)


def read_mined_negatives(source: StrPath, *, bad: BadLines | None = None) -> Iterator[MinedNegatives]:
    """Return hard negatives as ids, by query and system, in the format of msmarco-hard-negatives."""
    return _read(source, MINED, bad)


def read_scores(source: StrPath, *, bad: BadLines | None = None) -> Iterator[ScoredDoc]:
    """Return the scores of a teacher for pairs of query and document ids; arguments and errors as in `read_corpus`."""
    if set(PICKLES) & set(Path(os.fspath(source)).suffixes):
        instead = "write it as TSV, qid TAB pid TAB score, a query's lines together"
        raise DataError(f"pickles can run code and are not read: {instead}", source=os.fspath(source))
    return _read(source, SCORED, bad)


def _read(source: StrPath, kind: Kind[T], bad: BadLines | None) -> Iterator[T]:
    return records(open_source(path_name(source, "a source"), kind), kind, bad or tolerance())


def open_source(source: str, kind: Kind[T]) -> Stream:
    """Return the stream of a source, which may derive its records from another source (`DERIVED`).

    Raises `DataError` at once if the source is missing or has no records of this kind.
    """
    scheme, place, _ = parse_source(source)
    if scheme not in DERIVED:
        return resolve(source, kind)
    inner = source.partition(":")[2]
    if scheme != "pairs":
        if kind is not EXAMPLE:
            reason = f"makes examples, no {kind.name}: without {scheme}: the texts themselves are read"
            raise DataError(reason, source=source)
        read_texts(inner)  # a missing source is reported at once
        name = Path(place).name.partition(".")[0]
        return rows_stream(source, f"{scheme}-{name}", lambda: _made_rows(scheme, inner), kind)
    if kind is not PLAIN_TEXT:
        reason = f"makes texts to pre-train on, no {kind.name}: name the source without pairs:"
        raise DataError(reason, source=source)
    read_examples(inner)
    return rows_stream(source, "pairs", lambda: _pair_rows(inner), kind)


def _made_rows(scheme: str, source: str) -> Iterator[RowValues]:
    from vocable.data.cloze import cloze, crops  # imports bm25s

    make = cloze if scheme == "cloze" else crops
    return (pair._asdict() for pair in map(make, read_texts(source)) if pair is not None)


def crops_of(source: str, turn: int) -> Iterator[Example] | None:
    """Return the examples of a source `crops:TEXTS` in a pass; None for other sources.

    The order of the texts is the same in each pass.
    """
    if parse_source(source)[0] != "crops":
        return None
    from vocable.data.cloze import crops

    pairs = (crops(text, turn) for text in read_texts(source.partition(":")[2]))
    return (Example(*pair) for pair in pairs if pair is not None)


def _pair_rows(source: str) -> Iterator[RowValues]:
    return ({"text": f"{example.query} {example.positive}"} for example in read_examples(source))


def records(stream: Stream, kind: Kind[T], bad: BadLines) -> Iterator[T]:
    """Yield the records of a stream; record the bad lines and the numbers of repeated and empty records in `bad`."""
    make = (stream.published and kind.published) or kind.record
    key_of = attrgetter(*kind.key) if kind.key else None
    seen, repeated, empty = Seen(), 0, 0
    # Queries without a judgment are skipped.
    judged: set[object] | None = None
    if stream.judged_in is not None:
        judged = {judgment.query_id for judgment in _read(stream.judged_in, JUDGMENT, bad)}
    for number, item in stream.items():
        try:
            row = stream.parse(number, item)
            record = None if row is None else make(row)
        except MalformedError as error:
            source, line = stream.place(number, item)
            bad.add(f"{error}; expected {stream.expected}", source=source, line=line)
            continue
        if record is None:
            continue
        # A record with a known key is a repetition, which is counted, or a conflict, which is an error.
        key = None if key_of is None else key_of(record)
        earlier = None if key is None else seen.add(key, cast(Iterable[object], record))
        if earlier == "other":
            source, line = stream.place(number, item)
            bad.add(f"{kind.duplicate(record)}, with {kind.differs}", source=source, line=line)
        elif earlier == "same":
            repeated += 1
        elif judged is None or key in judged:
            empty += isinstance(record, Document) and not record.full
            yield record
    bad.note(stream.source, kind.name, repeated=repeated, empty=empty)


class Seen:
    """The records of a stream so far, at 16 bytes each: hashes of their keys and of their contents.

    >>> seen = Seen()
    >>> [seen.add(query.id, query) for query in (Query("1", "a"), Query("1", "a"), Query("1", "b"))]
    [None, 'same', 'other']
    """

    def __init__(self) -> None:
        self._keys, self._records = IdSet(), IdSet()

    def add(self, key: Hashable, record: Iterable[object]) -> Literal["same", "other"] | None:
        """Add a record; return "same" if an earlier record is equal, "other" if only its key is equal, else None."""
        is_new = self._keys.add(key)
        if self._records.add(
            tuple(map(str, record))
        ):  # as texts: -1 and -2 have equal hashes, mappings cannot be hashed
            return None if is_new else "other"
        return "same"


def _joined(corpus: Stream, queries: Stream, judgments: Stream, bad: BadLines) -> Iterator[Example]:
    """Yield judged pairs as examples; keep judgments and queries in memory, but not the corpus."""
    queries_of: defaultdict[str, list[str]] = defaultdict(list)
    for judgment in records(judgments, JUDGMENT, bad):
        if judgment.relevance > 0:
            queries_of[judgment.doc_id].append(judgment.query_id)
    texts = {query.id: query.text for query in records(queries, QUERY, bad)}
    for document in records(corpus, DOCUMENT, bad):
        for query_id in queries_of.get(document.id, ()) if document.full else ():
            if query_id in texts:
                yield Example(texts[query_id], document.full, source=corpus.name)
